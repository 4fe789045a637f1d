"""Commits and services over an S3 server that fails one request in a hundred: half of them before, half of them after
it has done what was asked. Whoever tries again what may be tried again loses nothing and leaves nothing.

`LAKEBED_CRASH=all` makes 200 commits; otherwise there are a few, and more errors, with other ones each day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

import lakebed
from conftest import unavailable
from lakebed.errors import CommitStateUnknown, LakebedError
from support.crash_tables import OPTIONS, Model, create, leftovers, put, rows, state
from support.sampling import CRASH, today, todays, whole

from .s3_server import ACCESS_KEY, REGION, S3, SECRET_KEY
from .service import ServiceError

T = TypeVar("T")
COMMITS = 200 if whole(CRASH) else 12
# So few commits meet as many errors as the many do.
ERRORS = 0.01 if whole(CRASH) else 0.03
_KEEP = {
    **OPTIONS,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
    "hoodie.compact.inline.max.delta.commits": 4,
}


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    try:
        server = S3(errors=ERRORS, seed=today()).start()
    except ServiceError as error:
        unavailable(str(error))
    with pytest.MonkeyPatch.context() as patch:
        names = {"ACCESS_KEY_ID": ACCESS_KEY, "SECRET_ACCESS_KEY": SECRET_KEY, "REGION": REGION, "ALLOW_HTTP": "true"}
        for name, value in {**names, "ENDPOINT_URL": server.info["endpoint"]}.items():
            patch.setenv(f"AWS_{name}", value)
        yield
    server.stop()


def again(call: Callable[[], T]) -> T:
    """What a call gives once it is not one of those that fail."""
    while True:
        try:
            return call()
        except LakebedError as error:
            if not (error.retryable or isinstance(error, CommitStateUnknown)):
                raise


@pytest.mark.parametrize(("kind", "version"), todays([("mor-bucket", 9), ("simple", 6)], 2, CRASH))
def test_commits_over_a_server_that_fails_now_and_then(kind: str, version: int) -> None:
    uri = f"s3://lake/shaky/{kind}-{version}"
    again(lambda: create(uri, kind, version))
    model: Model = {}
    for n in range(COMMITS):
        given = [(n % 7, f"c{n % 7 % 2}", f"v{n}", n), (100 + n, f"c{n % 2}", "w", n)]
        # a write whose end is not known is there, or is not: it is upserted once more
        again(lambda given=given: lakebed.open(uri).upsert(rows(*given), options=_KEEP))
        model = put(model, *given)
        if n % 10 == 9:
            assert again(lambda: state(uri)) == model
    again(lambda: lakebed.open(uri).maintenance.clean(options=_KEEP))
    assert again(lambda: state(uri)) == model
    assert [path for path in again(lambda: leftovers(uri)) if "/history/" not in path] == []
    verified = again(lambda: lakebed.open(uri).indexes.verify())
    assert verified.ok, verified

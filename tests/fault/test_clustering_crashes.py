"""Every storage mutation of a clustering as the place where it fails, dies, is torn, or gets no answer.

Whatever is struck, readers see the rows that there are, the next clustering gets by, and nothing is left over. Some
mutations are struck, others each day; `LAKEBED_CRASH=all` strikes all of them, on all kinds of tables by every fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Any

import pytest

import lakebed
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode, crash_at
from lakebed.timeline.timeline import load_timeline
from support.crash_tables import NEXT, OPTIONS, Model, copied, leftovers, put, rows, state, strike_each
from support.sampling import CRASH, whole

KINDS = (
    ("record", 9, "mor"),
    ("simple", 6, "cow"),
    ("bucket", 8, "mor"),
    ("record", 8, "cow"),
    ("consistent", 9, "mor"),
    ("consistent", 6, "mor"),
)
FAULTS: tuple[Mode, ...] = ("unacknowledged", "fail", "doubtful", "lost")
CASES = ("plan", "cluster", "pending")
SORTED: dict[str, Any] = {
    **OPTIONS,
    "hoodie.clustering.plan.strategy.sort.columns": "ts",
    "hoodie.compact.inline": False,
}
# Under consistent hashing buckets split, and all others are written anew.
SORTED |= {"hoodie.bucket.index.max.num.buckets": 3, "hoodie.parquet.max.file.size": 900}
SMALL = {**SORTED, "hoodie.parquet.small.file.limit": 0}
_ALL = whole(CRASH)


@cache
def prepared(index: str, version: int, kind: str, planned: bool) -> tuple[dict[str, bytes], Model]:
    """The files of a table of several file slices, with a plan or without, and its rows."""
    uri = f"memory://clustered-{index}-{version}-{kind}-{planned}/t"
    words = {"key": "id", "partition_by": "city", "ordering": "ts", "type": kind, "index": index}
    table = lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        table_version=version,
        buckets=1 if index in ("bucket", "consistent") else None,
        properties={"hoodie.compact.inline": False},
        **words,  # type: ignore[arg-type]
    )
    model: Model = {}
    for turn in range(2):
        some = [(turn * 6 + n, f"c{n % 2}", f"v{n}", 3 - n % 3) for n in range(6)]
        table.upsert(rows(*some), options=SMALL)
        model = put(model, *some)
    table.upsert(rows((1, "c1", "newer", 5)), options=SMALL)
    model = put(model, (1, "c1", "newer", 5))
    if planned:
        table.maintenance.cluster(plan_only=True, options=SORTED)
        if index == "consistent":
            # beside the plan, whose new buckets get the row as well
            table.upsert(rows((2, "c0", "beside", 6)), options=SMALL)
            model = put(model, (2, "c0", "beside", 6))
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(uri.split("/")[2])
    return files, model


def _cases() -> Iterator[tuple[str, str, int, str, Mode]]:
    for at, (case, mode) in enumerate(product(CASES, FAULTS)):
        for index, version, kind in KINDS if _ALL else [KINDS[at % len(KINDS)]]:
            yield case, index, version, kind, mode


@pytest.mark.parametrize(("case", "index", "version", "kind", "mode"), list(_cases()))
def test_rows_stay_and_the_next_clustering_leaves_nothing(
    case: str, index: str, version: int, kind: str, mode: Mode
) -> None:
    parts = 1 if case == "plan" else 17  # a plan has few
    assert strike_each(lambda at: _crash(case, index, version, kind, mode, at), parts, case, mode) >= 2


def _crash(case: str, index: str, version: int, kind: str, mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    files, model = prepared(index, version, kind, case == "pending")
    with copied("memory", files) as uri:
        with crash_at(at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            lakebed.open(uri).maintenance.cluster(plan_only=case == "plan", options=SORTED)
        if not crash.fired:
            return len(crash.mutations)
        try:
            assert state(uri) == model
            lakebed.open(uri).maintenance.cluster(options=SORTED)
            assert state(uri) == model
            storage = open_storage(uri)
            timeline = load_timeline(storage, load_table_config(storage))
            assert [i for i in timeline.pending if timeline.is_pending_clustering(i)] == []
            NEXT.run(lakebed.open(uri))
            assert state(uri) == NEXT.model(model)
            assert leftovers(uri) == []
            verified = lakebed.open(uri).indexes.verify()
            assert verified.ok, verified
        except Exception as error:
            error.add_note(f"{case} {index} {version} {kind} {mode} {at}: {crash}")
            raise
    return None

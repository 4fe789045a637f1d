"""No read and no write fails since an instant or a file that it was about to read went: another process archives,
cleans, rolls back and takes plans off right before each of its calls of storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import lakebed
from crash_tables import OPTIONS, copied, rows, state
from lakebed.errors import CommitConflict, InvalidOption
from lakebed.table import Table
from moving_tables import ACTIONS, OURS, THEIRS, Other, interrupted, moving
from sampling import CRASH, is_todays, todays_of

KINDS = (("simple", 9), ("mor-simple", 6), ("mor-bucket", 9), ("record", 8))
COLUMNS = ["id", "city", "v", "ts"]
# One in so many points a day.
_PARTS = 23


def found(table: Any) -> dict[int, tuple[str, str, int]]:
    return {row["id"]: (row["city"], row["v"], row["ts"]) for row in table.to_pylist()}


READS: dict[str, Callable[[Table, str], Any]] = {
    "scan": lambda t, _: found(t.scan(COLUMNS).to_arrow()),
    "scan by batches": lambda t, _: found(t.scan(COLUMNS).to_reader().read_all()),
    "get": lambda t, _: found(t.get([0, 1, 2, 13], columns=COLUMNS)),
    "exists": lambda t, _: t.exists([0, 1, 2, 13]).to_pylist(),
    "locate": lambda t, _: t.locate([0, 1, 2, 13]).num_rows,
    "count": lambda t, _: t.count(),
    "changes": lambda t, start: found(t.changes(start, columns=COLUMNS).to_arrow()),
    "cdc": lambda t, start: t.cdc(start).count(),
    "files": lambda t, _: len(list(t.files)),
    "explain": lambda t, _: t.explain(upsert=rows(*OURS)).operation,
    "verify": lambda t, _: t.indexes.verify().ok,
}
WRITES: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda t: t.upsert(rows(*OURS), options=OPTIONS),
    "insert": lambda t: t.insert(rows(*OURS[2:]), options=OPTIONS),
    "delete": lambda t: t.delete([0, 3], options=OPTIONS),
    "delete of rows that match": lambda t: t.delete("v >= 'v5'", options=OPTIONS),
    "insert_overwrite": lambda t: t.insert_overwrite(rows(OURS[2]), options=OPTIONS),
    "cluster": lambda t: t.cluster(["v"], options=OPTIONS),
    "clean": lambda t: t.clean(options=OPTIONS),
    "archive": lambda t: t.archive(options=OPTIONS),
    "savepoint": lambda t: t.savepoint(),
}


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
    process = Other()
    yield process
    process.end()


@pytest.mark.parametrize(
    ("read", "action", "kind"), todays_of(list(READS), list(ACTIONS), KINDS, parts=11, variable=CRASH), ids=str
)
def test_a_read_finds_the_rows_of_before_or_after(other: Other, read: str, action: str, kind: tuple[str, int]) -> None:
    files, _, checkpoints = moving(*kind)
    with copied("local", files) as uri:
        answers = [READS[read](lakebed.open(uri), checkpoints[1])]
        other.do(action, uri)
        try:
            answers.append(READS[read](lakebed.open(uri), checkpoints[1]))
        except InvalidOption:
            assert read == "cdc"  # cleaned or archived
            answers.append("cleaned")
    for at in count(1):
        if not is_todays(at, _PARTS, CRASH, read, action, kind) and at < 200:
            continue
        with copied("local", files) as uri, interrupted(at, lambda uri=uri: other.do(action, uri)) as between:
            try:
                answer = READS[read](lakebed.open(uri), checkpoints[1])
            except InvalidOption:
                answer = "cleaned"
            assert answer in answers, f"call {at}, {between.call}"
        if not between.done:
            return


@pytest.mark.parametrize(
    ("write", "action", "kind"), todays_of(list(WRITES), list(ACTIONS), KINDS, parts=9, variable=CRASH), ids=str
)
def test_a_write_commits_or_has_a_conflict(other: Other, write: str, action: str, kind: tuple[str, int]) -> None:
    files, _, _ = moving(*kind)
    for at in count(1):
        if not is_todays(at, _PARTS, CRASH, write, action, kind) and at < 400:
            continue
        did: list[bool] = []
        with (
            copied("local", files) as uri,
            interrupted(at, lambda uri=uri, did=did: did.append(other.do(action, uri))) as between,
        ):
            try:
                WRITES[write](lakebed.open(uri))
                is_done = True
            except CommitConflict:
                is_done = False
            if write in ("upsert", "insert") and is_done:
                model = state(uri)
                assert [model[row[0]][1] for row in OURS[2:]] == ["ours", "ours"]
                if action == "write" and did == [True]:
                    assert [model[row[0]][1] for row in THEIRS[2:]] == ["theirs", "theirs"]
        if not between.done:
            return

"""No read, no write and no service fails since an instant or a file that it was about to read went: another process
archives, cleans, rolls back, takes plans off and deletes savepoints right before each of its calls of storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidOption, LakebedError, StorageError
from lakebed.model import Action
from lakebed.table import Table
from support.changing_tables import ACTIONS, BEFORE, OURS, THEIRS, Other, interrupted, moving, take_plan_off
from support.crash_tables import OPTIONS, Model, copied, put, rows, state
from support.sampling import CRASH, todays_of, todays_points

KINDS = (("simple", 9), ("mor-simple", 6), ("mor-bucket", 9), ("record", 8))
COLUMNS = ["id", "city", "v", "ts"]
LATER = (0, "c0", "later", 99)
# One in so many points a day.
_OF_READS, _OF_WRITES, _OF_CHANGES = 3, 8, 12


def rows_by_key(table: Any) -> dict[int, tuple[str, str, int]]:
    return {row["id"]: (row["city"], row["v"], row["ts"]) for row in table.to_pylist()}


READS: dict[str, Callable[[Table, str], Any]] = {
    "scan": lambda t, _: rows_by_key(t.scan(COLUMNS).to_arrow()),
    "scan by batches": lambda t, _: rows_by_key(t.scan(COLUMNS).to_reader().read_all()),
    "get": lambda t, _: rows_by_key(t.get([0, 1, 2, 13], columns=COLUMNS)),
    "exists": lambda t, _: t.exists([0, 1, 2, 13]).to_pylist(),
    "locate": lambda t, _: t.locate([0, 1, 2, 13]).num_rows,
    "count": lambda t, _: t.count(),
    "changes": lambda t, start: rows_by_key(t.changes(start, columns=COLUMNS).to_arrow()),
    "cdc": lambda t, start: t.cdc(start).count(),
    "files": lambda t, _: len(list(t.files)),
    "timeline": lambda t, _: t.timeline.to_arrow().column("operation").to_pylist(),
    "savepoints": lambda t, _: len(t.savepoints.list()),
    "indexes": lambda t, _: [one.name for one in t.indexes.list()],
    "explain": lambda t, _: t.explain(upsert=rows(*OURS)).operation,
    "verify": lambda t, _: t.indexes.verify().ok,
    "restore, dry": lambda t, _: len(t.restore(third_last(t), dry_run=True).rolled_back) > 0,
}
WRITES: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda t: t.upsert(rows(*OURS), options=OPTIONS),
    "insert": lambda t: t.insert(rows(*OURS[2:]), options=OPTIONS),
    "delete": lambda t: t.delete([0, 3], options=OPTIONS),
    "delete of rows that match": lambda t: t.delete(where="v >= 'v5'", options=OPTIONS),
    "insert_overwrite": lambda t: t.insert_overwrite(rows(OURS[2]), options=OPTIONS),
    "cluster": lambda t: t.maintenance.cluster(["v"], options=OPTIONS),
    "clean": lambda t: t.maintenance.clean(options=OPTIONS),
    "archive": lambda t: t.maintenance.archive(options=OPTIONS),
    "savepoint": lambda t: t.savepoints.create(),
}


def commits(table: Table) -> list[str]:
    shown = (i for i in table.timeline if i.is_completed and i.action in (Action.COMMIT, Action.DELTACOMMIT))
    return [i.time for i in shown]


def third_last(table: Table) -> str:
    return commits(table)[-3:][0]


def build(table: Table) -> None:
    table.indexes.create("bloom_filters", wait=False)
    table.indexes.build()


CHANGES: dict[str, Callable[[Table], Any]] = {
    "restore": lambda t: t.restore(third_last(t)),
    "rollback": lambda t: t.rollback(commits(t)[-1]),
    "rescale": lambda t: t.maintenance.rescale(2),
    "use bucket": lambda t: t.indexes.use("bucket", buckets=2),
    "use record": lambda t: t.indexes.use("record"),
    "upgrade": lambda t: t.maintenance.upgrade(),
    "downgrade": lambda t: t.maintenance.downgrade(6),
    "create": lambda t: t.indexes.create("bloom_filters"),
    "build": build,
    "repair of indexes": lambda t: t.indexes.repair(),
    "repair": lambda t: t.maintenance.repair(),
    "drop": lambda t: t.indexes.drop("column_stats"),
    "compact": lambda t: t.maintenance.compact(options=OPTIONS),
}


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
    process = Other()
    yield process
    process.end()


@contextmanager
def ready(files: Mapping[str, bytes], action: str, *, planned: bool = True) -> Iterator[str]:
    """A copy of the table before the other process does something; without `planned` nothing is planned on it."""
    with copied("local", files) as uri:
        if action in BEFORE:
            BEFORE[action](lakebed.open(uri))
        if not planned:
            take_plan_off(lakebed.open(uri))
        yield uri


@pytest.mark.parametrize(
    ("read", "action", "kind"), todays_of(list(READS), list(ACTIONS), KINDS, parts=11, variable=CRASH), ids=str
)
def test_a_read_finds_the_rows_of_before_or_after(other: Other, read: str, action: str, kind: tuple[str, int]) -> None:
    files, _, checkpoints = moving(*kind)
    with ready(files, action) as uri:
        with interrupted(0, lambda: None) as counted:
            answers = [READS[read](lakebed.open(uri), checkpoints[1])]
        other.do(action, uri)
        try:
            answers.append(READS[read](lakebed.open(uri), checkpoints[1]))
        except InvalidOption:
            assert read in ("cdc", "restore, dry")  # cleaned or archived
            answers.append("cleaned")
        if read == "restore, dry":  # the other one may archive the instant that was chosen before
            answers.append("cleaned")
        if read == "changes":  # the end of the range stays, whatever is committed meanwhile
            if action == "write_and_clean":  # the other cleaner does not write the metadata table
                lakebed.open(uri).indexes.repair()
            again = lakebed.open(uri).changes(checkpoints[1], checkpoints[-1], columns=COLUMNS)
            answers.append(rows_by_key(again.to_arrow()))
    for at in todays_points(counted.calls, _OF_READS, CRASH, read, action, kind):
        with ready(files, action) as uri, interrupted(at, lambda uri=uri: other.do(action, uri)) as between:
            try:
                answer = READS[read](lakebed.open(uri), checkpoints[1])
            except InvalidOption:
                answer = "cleaned"
            except StorageError as error:
                # a stream that has given rows cannot begin again
                message = error.message
                assert (read, "was deleted while the table was read" in message) == ("scan by batches", True), message
                continue
            assert answer in answers, f"call {at}, {between.call}"
            assert between.done


@pytest.mark.parametrize(
    ("write", "action", "kind"), todays_of(list(WRITES), list(ACTIONS), KINDS, parts=9, variable=CRASH), ids=str
)
def test_a_write_commits_or_has_a_conflict(other: Other, write: str, action: str, kind: tuple[str, int]) -> None:
    files, _, _ = moving(*kind)
    with ready(files, action) as uri, interrupted(0, lambda: None) as counted:
        WRITES[write](lakebed.open(uri))
    for at in todays_points(counted.calls, _OF_WRITES, CRASH, write, action, kind):
        did: list[bool] = []
        with (
            ready(files, action) as uri,
            interrupted(at, lambda uri=uri, did=did: did.append(other.do(action, uri))) as between,
        ):
            try:
                WRITES[write](lakebed.open(uri))
                is_done = True
            except CommitConflict:
                is_done = False
            assert between.done
            model = state(uri)
            # the other process takes completed commits back: this one, if it was completed then
            is_taken_back = action == "roll_back" and between.is_late
            if write in ("upsert", "insert") and is_done and not is_taken_back:
                assert [model[row[0]][1] for row in OURS[2:]] == ["ours", "ours"]
                if action in ("write", "write_and_clean") and did == [True]:
                    assert [model[row[0]][1] for row in THEIRS[2:]] == ["theirs", "theirs"]


# In which order the change and the other process's action may have happened.
TURNS = (("change",), ("action",), ("change", "action"), ("action", "change"))


@pytest.mark.rest
@pytest.mark.parametrize(
    ("change", "action", "kind"), todays_of(list(CHANGES), list(ACTIONS), KINDS, parts=13, variable=CRASH), ids=str
)
def test_a_change_is_done_or_says_why_not(other: Other, change: str, action: str, kind: tuple[str, int]) -> None:
    """The rows are those of the two in some order, and so are the errors."""
    files, _, _ = moving(*kind)
    ends: list[Model] = []
    errors = {"CommitConflict", "InvalidOption"} if change in ("restore", "rollback") else {"CommitConflict"}
    calls = 0
    for turn in TURNS:
        with ready(files, action, planned=False) as uri:
            for step in turn:
                if step == "action":
                    other.do(action, uri)
                    continue
                with interrupted(0, lambda: None) as counted:
                    errors.add(tried(change, uri))
                calls = calls or counted.calls
            ends.append(state(uri))
    for at in todays_points(calls, _OF_CHANGES, CRASH, change, action, kind):
        with ready(files, action, planned=False) as uri:
            with interrupted(at, lambda uri=uri: other.do(action, uri)) as between:
                error = tried(change, uri)
            assert between.done
            assert error in errors, f"call {at}, {between.call}"
            model = state(uri)
            assert model in ends, f"call {at}, {between.call}"
            lakebed.open(uri).upsert(rows(LATER), options=OPTIONS)
            assert state(uri) == put(model, LATER), f"call {at}, {between.call}"
            if action == "write_and_clean":  # the other cleaner does not write the metadata table
                lakebed.open(uri).indexes.repair()
            verified = lakebed.open(uri).indexes.verify()
            assert verified.ok, f"call {at}, {between.call}: {verified}"


def tried(change: str, uri: str) -> str:
    """The name of the error that the change had, empty where it was done."""
    try:
        CHANGES[change](lakebed.open(uri))
    except LakebedError as error:
        return type(error).__name__
    return ""


@pytest.mark.rest
def test_rows_that_are_read_once_have_a_conflict(other: Other) -> None:
    """They cannot be given again to a write that runs again; nobody is told to repair the table."""
    files, _, _ = moving("simple", 9)
    action = "write_and_clean"
    with ready(files, action) as uri, interrupted(0, lambda: None) as counted:
        lakebed.open(uri).upsert(rows(*OURS), options=OPTIONS)
    gone = ""
    for at in range(counted.calls // 3, counted.calls, 3):
        with ready(files, action) as uri:
            with interrupted(at, lambda uri=uri: other.do(action, uri)):
                given = pa.RecordBatchReader.from_batches(rows(*OURS).schema, rows(*OURS).to_batches())
                try:
                    lakebed.open(uri).upsert(given, options=OPTIONS)
                except CommitConflict as conflict:
                    gone = conflict.message
            if "was deleted while this write was planned or written" in gone:
                assert {row[1] for row in state(uri).values()} & {"ours", "theirs"} == {"theirs"}
                return
    raise AssertionError(f"no file was missed: {gone}")

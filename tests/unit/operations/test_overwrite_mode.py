"""Save mode overwrite makes the table anew, then runs the operation; until that worked the old table stays."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.concurrency.lock import default_lock
from lakebed.errors import (
    CommitConflict,
    InvalidOption,
    InvalidRecord,
    LockTimeout,
    SchemaConflict,
    StorageError,
    TableExists,
    TableNotFound,
)
from lakebed.operations.recreate import recreate
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode, Mutation, crash_at
from support.frozen import FrozenWriter
from support.sampling import CRASH, todays
from support.write_tables import content, files, refused, rows

OPERATION = "hoodie.datasource.write.operation"
KEYED: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.table.ordering.fields": "ts",
}
OLD = [(1, "a", "old", 1), (2, "b", "old", 1), (3, "b", "old", 1)]
TWICE = [(1, "c", "x", 5), (1, "c", "y", 6), (7, "d", "z", 1)]


@pytest.fixture(params=["memory", "local"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "t")
        return
    name = f"overwrite-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def old_table(uri: str, **options: Any) -> lakebed.Table:
    lakebed.write(rows(*OLD), uri, KEYED | options)
    return lakebed.open(uri)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (None, [TWICE[1], TWICE[2]]),
        ("upsert", [TWICE[1], TWICE[2]]),
        ("insert", TWICE),
        ("bulk_insert", TWICE),
        ("insert_overwrite", TWICE),
        ("insert_overwrite_table", TWICE),
    ],
)
def test_the_operation_runs_on_an_empty_table(uri: str, operation: str | None, expected: list[Any]) -> None:
    old_table(uri)
    options = KEYED | ({OPERATION: operation} if operation else {})
    lakebed.write(rows(*TWICE), uri, options, mode="overwrite")
    assert content(lakebed.open(uri)) == expected
    # these operations take rows as they come: where a key stands twice, verify says so and nothing else
    found = lakebed.open(uri).indexes.verify()
    assert found.differences["problem"].to_pylist() == (["repeated"] if expected == TWICE else [])


def test_nothing_of_the_old_table_is_left(uri: str) -> None:
    old = old_table(uri, **{"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2})
    before = files(uri)
    first = old.timeline.to_arrow()["time"].to_pylist()
    new = pa.table({"key": ["k1", "k2"], "day": ["x", "y"], "n": [1.5, 2.5]})
    options = {
        "hoodie.datasource.write.recordkey.field": "key",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.hive_style_partitioning": True,
        "hoodie.index.type": "SIMPLE",
    }
    lakebed.write(new, uri, options, mode="overwrite")
    table = lakebed.open(uri)
    assert table.name == "t"
    assert table.scan().to_arrow().sort_by("key").to_pylist() == new.to_pylist()
    assert table.changes("000").count() == 2
    assert table.get(["k2"]).to_pylist() == new.slice(1).to_pylist()
    assert table.timeline.to_arrow()["time"].to_pylist()[0] > first[-1]
    assert table.properties["hoodie.table.partition.fields"] == "day"
    assert not [path for path in files(uri) if ".overwrite" in path]
    assert not {p for p in files(uri) if p in before and p.endswith(".parquet")}
    assert {p.split("/")[0] for p in files(uri)} == {".hoodie", "day=x", "day=y"}
    table.upsert(new)
    assert table.count() == 2
    assert table.indexes.verify().ok


def test_a_table_is_read_while_it_is_overwritten_with_its_own_rows(uri: str) -> None:
    table = old_table(uri)
    lakebed.write(table.scan(where="city = 'b'").to_arrow(), uri, KEYED, mode="overwrite")
    assert content(lakebed.open(uri)) == OLD[1:]


@pytest.mark.parametrize(
    ("data", "options", "error"),
    [
        (rows((None, "c", "x", 1)), {}, InvalidRecord),
        (rows((1, "..", "x", 1)), {}, InvalidRecord),
        (rows((1, "c", "x", None)), {}, InvalidRecord),
        (rows((1, "c", "x", 1)), {"hoodie.datasource.write.recordkey.field": "nothing"}, SchemaConflict),
    ],
)
def test_an_overwrite_that_fails_leaves_the_old_table(
    uri: str, data: Any, options: Any, error: type[Exception]
) -> None:
    old_table(uri)
    before = files(uri)
    with pytest.raises(error):
        lakebed.write(data, uri, KEYED | options, mode="overwrite")
    assert files(uri) == before
    assert content(lakebed.open(uri)) == OLD


def test_an_overwrite_may_make_a_merge_on_read_table_of_it(uri: str) -> None:
    old_table(uri)
    lakebed.write(rows(*TWICE), uri, KEYED | {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}, mode="overwrite")
    table = lakebed.open(uri)
    assert table.properties["hoodie.table.type"] == "MERGE_ON_READ"
    assert content(table) == [TWICE[1], TWICE[2]]


@pytest.mark.parametrize("operation", ["delete", "delete_partition"])
def test_deletes_go_with_append_alone(uri: str, operation: str) -> None:
    with pytest.raises(TableNotFound):
        lakebed.write(rows(*OLD), uri, KEYED | {OPERATION: operation})
    old_table(uri)
    for mode in ("overwrite", "ignore", "errorifexists"):
        with refused(uri, InvalidOption, operation, "append"):
            lakebed.write(rows(OLD[0]), uri, KEYED | {OPERATION: operation}, mode=mode)  # pyright: ignore
    lakebed.write(rows(OLD[0]), uri, KEYED | {OPERATION: operation})
    assert content(lakebed.open(uri)) == OLD[1:]


def test_ignore_and_errorifexists_leave_the_table_and_append_adds(uri: str) -> None:
    old_table(uri)
    assert lakebed.write(rows(*TWICE), uri, KEYED, mode="ignore") is None
    with refused(uri, TableExists):
        lakebed.write(rows(*TWICE), uri, KEYED, mode="errorifexists")
    lakebed.write(rows(*TWICE), uri, KEYED | {OPERATION: "insert_overwrite"})
    assert content(lakebed.open(uri)) == [OLD[0], *TWICE[:2], *OLD[1:], TWICE[2]]


def test_a_stream_is_read_once_and_written_completely(uri: str) -> None:
    for mode in ("append", "overwrite"):
        reader = rows(*OLD).to_reader()
        lakebed.write(reader, uri, KEYED, mode=mode)  # pyright: ignore
        assert content(lakebed.open(uri)) == OLD


@pytest.mark.parametrize(
    ("verb", "data"),
    [
        ("upsert", rows(*OLD)),
        ("insert", rows(*OLD)),
        ("bulk_insert", rows(*OLD)),
        ("insert_overwrite", rows(*OLD)),
        ("delete", [1]),
        ("delete_partitions", ["a"]),
    ],
)
def test_an_operation_that_contradicts_the_verb_is_refused(uri: str, verb: str, data: Any) -> None:
    table = old_table(uri)
    names = {"delete_partitions": "delete_partition"}
    calls = {
        "delete": "t.delete(",
        "upsert": "t.upsert(",
        "insert_overwrite_table": 't.insert_overwrite(rows, "table")',
    }
    for said, call in calls.items():
        if said != verb:
            with refused(uri, InvalidOption, said, "contradicts", call):
                getattr(table, verb)(data, options={OPERATION: said.upper()})
    getattr(table, verb)(data, options={OPERATION: names.get(verb, verb)})


@pytest.mark.parametrize("mode", ["kill", "fail", "unacknowledged"])
def test_a_fault_at_any_step_leaves_the_old_or_the_new_table(mode: Mode) -> None:
    """Whoever opens it next finishes what had passed the point of no return; the job can run again."""
    new = [TWICE[1], TWICE[2]]

    def attempt(at: int) -> list[str]:
        name = f"overwrite-{uuid.uuid4().hex}"
        uri = f"memory://{name}/t"
        old_table(uri)
        done = False
        with crash_at(at, mode) as crash:
            try:
                lakebed.write(rows(*TWICE), uri, KEYED, mode="overwrite")
                done = True
            except (Killed, StorageError):
                pass
        steps = [f"{m.verb} {m.path}" for m in crash.mutations]
        found = content(lakebed.open(uri))
        assert found in ([new] if done else [OLD, new]), f"after {at}: {steps[-1]}"
        gone = at > 0 and any(step == "delete .hoodie/hoodie.properties" for step in steps[: at - 1])
        assert not gone or found == new, f"after {at}: {steps[-1]}"
        assert lakebed.open(uri).indexes.verify().ok
        lakebed.write(rows((9, "q", "again", 1)), uri, KEYED)
        assert content(lakebed.open(uri)) == sorted([*found, (9, "q", "again", 1)])
        MemoryStorage.drop(name)
        return steps

    steps = attempt(0)
    decided = next(n for n, step in enumerate(steps, 1) if step.endswith("ready.json"))
    assert len(steps) - decided > 20
    attempt(decided)
    for at in todays(range(1, len(steps) + 1), 15, CRASH):
        attempt(at)


FILE_LOCK = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.wait_time_ms": 100,
}


def test_an_overwrite_that_gets_no_lock_leaves_the_one_that_another_job_has_decided(uri: str) -> None:
    """The other job is between its decision and the deletion of the old settings: without the decision the new table
    would never be found."""
    old_table(uri)
    storage = open_storage(uri)
    decision, theirs = ".hoodie/.overwrite/ready.json", b'{"folder": ".hoodie/.overwrite/theirs", "files": []}'
    storage.write(decision, theirs)
    storage.write(".hoodie/lock", b"")
    with pytest.raises(LockTimeout):
        lakebed.write(rows(*TWICE), uri, KEYED | FILE_LOCK, mode="overwrite")
    assert storage.read(decision) == theirs
    assert content(lakebed.open(uri)) == OLD
    assert storage.list_folders(".hoodie/.overwrite") == []


@pytest.mark.parametrize("step", [".hoodie/.overwrite/ready.json", ".hoodie/hoodie.properties", "delete"])
def test_an_overwrite_that_stood_still_deletes_no_file_of_the_table_that_another_process_made(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loses its lock before a step; another process finishes what it has decided, and goes on."""
    name = f"overwrite-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    old_table(uri)
    is_decided = False

    def stands(mutation: Mutation) -> bool:
        nonlocal is_decided
        is_decided = is_decided or (mutation.verb, mutation.path) == ("delete", ".hoodie/hoodie.properties")
        if step == "delete":
            return is_decided and mutation.path.endswith(".parquet") and not mutation.path.startswith(".hoodie")
        return mutation.path == step and mutation.verb in ("write", "delete")

    def overwrite(table: lakebed.Table) -> None:
        storage = table.opened.storage
        recreate(
            storage,
            table.opened.config,
            lambda new: lakebed.write(rows(*TWICE), new.spec.uri, KEYED),
            default_lock(storage),
        )

    frozen = FrozenWriter(uri, overwrite, stands, monkeypatch)
    assert frozen.freeze()
    frozen.time_is_over()
    added = (9, "a", "later", 9)
    lakebed.write(rows(added), uri, KEYED)
    expected = content(lakebed.open(uri))
    assert expected == [*(OLD if step != "delete" else [TWICE[1], TWICE[2]]), added]
    frozen.thaw()
    if step == ".hoodie/hoodie.properties":  # that decides, as if the overwrite had come after the other write
        expected = [TWICE[1], TWICE[2]]
    assert isinstance(frozen.error, CommitConflict), frozen.error
    assert content(lakebed.open(uri)) == expected
    assert lakebed.open(uri).indexes.verify().ok
    MemoryStorage.drop(name)

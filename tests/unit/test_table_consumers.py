"""Named consumers: each batch has exactly the rows and changes of its commits, and the position moves when the block
ends without an error."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CheckpointBehind, CommitConflict, CorruptFile, InvalidOption
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.timeline.consumers import FOLDER
from support.write_tables import SCHEMA, rows

QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.table.cdc.enabled": True,
}
SHAPES = [(kind, version) for kind in ("cow", "mor") for version in (9, 8, 6)]


@pytest.fixture
def make() -> Iterator[Callable[..., Table]]:
    name = f"consumers-{uuid.uuid4().hex}"

    def create(kind: str = "cow", version: int = 9, **more: Any) -> Table:
        words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "simple", "properties": QUIET, **more}
        return lakebed.create(f"memory://{name}/t", SCHEMA, type=kind, table_version=version, **words)

    yield create
    MemoryStorage.drop(name)


def consumed(table: Table, **request: Any) -> list[tuple[Any, ...]]:
    """The rows of the next batch, sorted."""
    with table.consume("daily", **request) as batch:
        return sorted(tuple(row.values()) for row in batch.to_arrow().to_pylist())


def changed(table: Table, **request: Any) -> list[tuple[str, Any, Any]]:
    """The changes of the next batch: op, and v before and after."""
    with table.consume("daily", cdc=True, **request) as batch:
        found = batch.to_arrow().to_pylist()
    return sorted((row["op"], (row["before"] or {}).get("v"), (row["after"] or {}).get("v")) for row in found)


def write_history(table: Table) -> None:
    """Commits with upserts and deletes, and services between them."""
    table.upsert(rows((1, "a", "1", 1), (2, "a", "2", 1)))
    table.upsert(rows((2, "a", "22", 2), (3, "b", "3", 2)))
    table.maintenance.compact() if table.properties[
        "hoodie.table.type"
    ] == "MERGE_ON_READ" else table.maintenance.clean()
    table.delete([1])
    table.maintenance.cluster()
    table.upsert(rows((1, "a", "again", 4)))
    table.insert_overwrite(rows((9, "c", "9", 5)), "table")


ROWS_OF_HISTORY = [
    [(1, "a", "1", 1), (2, "a", "2", 1)],
    [(2, "a", "22", 2), (3, "b", "3", 2)],
    [],
    [(1, "a", "again", 4)],
    [(9, "c", "9", 5)],
]
CHANGES_OF_HISTORY = [
    [("i", None, "1"), ("i", None, "2")],
    [("i", None, "3"), ("u", "2", "22")],
    [("d", "1", None)],
    [("i", None, "again")],
    [("d", "22", None), ("d", "3", None), ("d", "again", None), ("i", None, "9")],
]


@pytest.mark.parametrize(("kind", "version"), SHAPES)
def test_batches_of_one_commit_have_its_rows_as_of_that_commit(
    make: Callable[..., Table], kind: str, version: int
) -> None:
    table = make(kind, version)
    table.consumers.start("daily")
    write_history(table)
    assert [consumed(table, max_commits=1) for _ in ROWS_OF_HISTORY] == ROWS_OF_HISTORY
    assert consumed(table) == []
    assert table.consumers.get("daily").batches == len(ROWS_OF_HISTORY), "services make no batches"


@pytest.mark.parametrize(("kind", "version"), SHAPES)
def test_changes_of_one_commit_have_the_rows_before_and_after(
    make: Callable[..., Table], kind: str, version: int
) -> None:
    table = make(kind, version)
    table.consumers.start("daily")
    write_history(table)
    assert [changed(table, max_commits=1) for _ in CHANGES_OF_HISTORY] == CHANGES_OF_HISTORY
    assert changed(table) == []


@pytest.mark.parametrize(("kind", "version"), SHAPES)
def test_a_batch_of_several_commits_has_each_row_in_its_last_state(
    make: Callable[..., Table], kind: str, version: int
) -> None:
    table = make(kind, version)
    write_history(table)
    with table.consume("daily", max_commits=4) as batch:
        assert sorted(batch.to_arrow().column("v").to_pylist()) == ["22", "3", "again"]
        assert (batch.start, len(batch.range.commits) >= 4) == ("", True)
    assert consumed(table) == [(9, "c", "9", 5)]


def test_the_first_batch_is_the_table_as_of_its_end_where_older_files_are_cleaned(make: Callable[..., Table]) -> None:
    table = make()
    for n in range(4):
        table.upsert(rows((1, "a", f"v{n}", n), (10 + n, "b", "x", n)))
    table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    assert [row[:3] for row in consumed(table, max_commits=1)] == [
        (1, "a", "v3"),
        *((10 + n, "b", "x") for n in range(4)),
    ]
    assert consumed(table) == []


def test_the_position_stays_where_the_block_raises(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    with pytest.raises(ZeroDivisionError), table.consume("daily") as batch:
        _ = batch.to_arrow().num_rows / 0
    assert table.consumers.get("daily").position == ""
    assert consumed(table) == [(1, "a", "1", 1)]


class Stopped(Exception):
    pass


@pytest.mark.parametrize(("kind", "version"), SHAPES)
@pytest.mark.parametrize("cdc", [False, True])
def test_a_batch_that_is_written_once_is_read_again_to_the_same_end(
    make: Callable[..., Table], kind: str, version: int, cdc: bool
) -> None:
    table, read = make(kind, version), changed if cdc else consumed
    request: dict[str, Any] = {"cdc": cdc}
    seen: list[tuple[str, lakebed.Once]] = []
    write_history(table)
    with suppress(Stopped), table.consume("daily", max_commits=2, **request) as batch:
        seen.append((batch.end, batch.once()))
        raise Stopped
    table.upsert(rows((7, "a", "7", 7)))
    with suppress(Stopped), table.consume("daily", **request) as batch:
        seen.append((batch.end, batch.once()))
        raise Stopped
    assert seen[1] == seen[0]
    expected = [("i", None, "1"), ("i", None, "2"), ("i", None, "3"), ("u", "2", "22")]
    assert read(table) == (expected if cdc else [(1, "a", "1", 1), (2, "a", "22", 2), (3, "b", "3", 2)])
    with table.consume("daily", **request) as batch:
        first, following = seen[0][1], batch.once()
        assert (following.stream, following.batch > first.batch) == (first.stream, True)
    assert read(table) == []


def test_a_batch_without_once_has_what_was_committed_since_when_it_is_read_again(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    with suppress(Stopped), table.consume("daily"):
        raise Stopped
    table.upsert(rows((2, "a", "2", 1)))
    assert consumed(table) == [(1, "a", "1", 1), (2, "a", "2", 1)]


def test_a_consumer_that_is_moved_by_hand_writes_its_batches_again(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    target = lakebed.create(f"{table.uri}-target", SCHEMA, key="id", index="simple")

    def copy() -> bool:
        with table.consume("daily") as batch:
            return target.insert(batch.to_arrow(), once=batch.once()).skipped

    assert copy() is False
    table.consumers.move("daily", "earliest")
    assert copy() is False
    table.consumers.delete("daily")
    assert copy() is False
    assert target.to_arrow()["id"].to_pylist() == [1, 1, 1]


def test_an_empty_batch_records_no_end(make: Callable[..., Table]) -> None:
    table = make()
    with suppress(Stopped), table.consume("daily") as batch:
        assert batch.once().batch == 0
        raise Stopped
    table.upsert(rows((1, "a", "1", 1)))
    assert consumed(table) == [(1, "a", "1", 1)]


def test_a_batch_that_has_ended_has_no_name(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    with table.consume("daily") as batch:
        pass
    with pytest.raises(InvalidOption, match=r"batch of consumer 'daily' has ended.*in the block of t\.consume"):
        batch.once()


def test_a_new_consumer_begins_where_it_is_to(make: Callable[..., Table]) -> None:
    table = make()
    first = table.upsert(rows((1, "a", "1", 1)))
    second = table.upsert(rows((2, "a", "2", 1)))
    for name, start, expected in (
        ("a", "earliest", [1, 2]),
        ("b", "latest", []),
        ("c", first.checkpoint, [2]),
        ("d", first.instant, [2]),
        ("e", "000", [1, 2]),
    ):
        with table.consume(name, start=start) as batch:
            assert sorted(batch.to_arrow().column("id").to_pylist()) == expected, name
        assert table.consumers.get(name).position == second.checkpoint
    with table.consume("b", start="earliest") as batch:
        assert batch.to_arrow().num_rows == 0, "start is for new consumers alone"


def test_a_start_after_the_newest_commit_is_refused(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    with pytest.raises(InvalidOption, match="is in the future"):
        table.consumers.start("daily", "2100-01-01")
    time.sleep(0.002)
    with pytest.raises(InvalidOption, match="is after the newest commit"):
        table.consumers.start("daily", datetime.now(UTC))
    assert table.consumers.list() == []


def test_the_second_process_of_one_consumer_gets_an_error_that_names_it(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    other = lakebed.open(table.uri)
    with (
        pytest.raises(
            CommitConflict, match=r"'daily' was not moved from the beginning .* another process has moved it"
        ),
        table.consume("daily"),
    ):
        assert consumed(other) == [(1, "a", "1", 1)]
    assert table.consumers.get("daily").batches == 1
    table.upsert(rows((2, "a", "2", 1)))
    with pytest.raises(CommitConflict, match="has deleted it"), table.consume("daily"):
        other.consumers.delete("daily")


def test_columns_and_condition_are_those_of_the_batch(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1), (2, "b", "2", 1)))
    assert consumed(table, columns=["id"], where="city = 'b'") == [(2,)]
    with pytest.raises(InvalidOption, match="takes no condition"):
        table.consume("changes", cdc=True, where="id > 1")
    with pytest.raises(InvalidOption, match="max_commits"):
        table.consume("daily", max_commits=0)


def test_the_view_shows_positions_and_lags(make: Callable[..., Table]) -> None:
    table = make()
    result = table.upsert(rows((1, "a", "1", 1)))
    assert consumed(table)
    table.upsert(rows((2, "a", "2", 1)))
    table.upsert(rows((3, "a", "3", 1)))
    table.consumers.start("nightly", "latest")
    daily, nightly = table.consumers.to_arrow().to_pylist()
    assert (daily["consumer"], daily["position"], daily["lag_commits"]) == ("daily", result.checkpoint, 2)
    assert daily["lag_seconds"] > 0
    assert (nightly["consumer"], nightly["lag_commits"], nightly["lag_seconds"]) == ("nightly", 0, 0.0)
    assert ">daily</td>" in table.consumers._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert repr(table.consumers).splitlines()[1].startswith("daily")
    assert len(table.consumers) == 2
    assert str(table.consumers.get("nightly")).endswith("it has read every commit")


def test_a_consumer_is_moved_and_deleted(make: Callable[..., Table]) -> None:
    table = make()
    first = table.upsert(rows((1, "a", "1", 1)))
    table.upsert(rows((2, "a", "2", 1)))
    assert len(consumed(table)) == 2
    assert table.consumers.move("daily", first.checkpoint).lag_commits == 1
    assert consumed(table) == [(2, "a", "2", 1)]
    assert (table.consumers.delete("daily"), table.consumers.delete("daily")) == (True, False)
    with pytest.raises(InvalidOption, match="has no consumer 'daily'"):
        table.consumers.get("daily")
    with pytest.raises(InvalidOption, match="is no name of a consumer"):
        table.consumers.start("../daily")
    table.consumers.start("daily")
    with pytest.raises(InvalidOption, match="has a consumer 'daily' already"):
        table.consumers.start("daily")


def test_a_damaged_record_of_a_consumer_is_named(make: Callable[..., Table]) -> None:
    table = make()
    table.consumers.start("daily")
    open_storage(table.uri).write(f"{FOLDER}/daily.json", b"{")
    with pytest.raises(CorruptFile, match=r"consumers/daily\.json is no record of a consumer"):
        table.consumers.list()


def test_a_table_without_meta_fields_has_no_rows_for_consumers(make: Callable[..., Table]) -> None:
    table = make(properties={**QUIET, "hoodie.populate.meta.fields": False, "hoodie.table.cdc.enabled": False})
    table.insert(rows((1, "a", "1", 1)))
    with pytest.raises(InvalidOption, match="has no meta fields"), table.consume("daily"):
        pass


def test_positions_outlive_the_process_on_a_local_disk(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.create(uri, SCHEMA, key="id")
    table.upsert(rows((1, "a", "1", 1)))
    assert len(consumed(table)) == 1
    lakebed.open(uri).upsert(rows((2, "a", "2", 1)))
    assert consumed(lakebed.open(uri)) == [(2, "a", "2", 1)]
    assert sorted(path.name for path in (tmp_path / "t" / FOLDER).glob("*.json")) == ["daily.json"]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_commits_archived_before_a_consumer_reads_them_are_an_error_with_the_first_start(
    make: Callable[..., Table], kind: str
) -> None:
    table = make(kind)
    table.upsert(rows((0, "a", "0", 0)))
    table.consumers.start("daily", "latest")
    checkpoints = [table.upsert(rows((n, "a", str(n), n))).checkpoint for n in range(1, 8)]
    options = {
        "lakebed.consumers.max_lag": 0,
        "hoodie.clean.commits.retained": 1,
        "hoodie.keep.min.commits": 3,
        "hoodie.keep.max.commits": 4,
        "hoodie.metadata.compact.max.delta.commits": 1,
        "hoodie.compact.inline.max.delta.commits": 2,
    }
    table.upsert(rows((99, "a", "99", 99)), options=options)
    table.maintenance.clean(options=options)
    assert table.maintenance.archive(options=options).instants
    for request in ({}, {"cdc": True}):
        with pytest.raises(CheckpointBehind, match="archived") as raised, table.consume("daily", **request) as batch:
            batch.to_arrow()
        first = raised.value.context["checkpoint"]
        assert first >= checkpoints[0]
        table.consumers.move("daily", first)
        with table.consume("daily", **request) as batch:
            batch.to_arrow()
        table.consumers.move("daily", checkpoints[0])


@pytest.mark.parametrize(("kind", "version"), SHAPES)
def test_files_that_are_cleaned_before_a_consumer_reads_them_are_an_error_with_the_first_start(
    make: Callable[..., Table], kind: str, version: int
) -> None:
    table = make(kind, version)
    table.upsert(rows((0, "a", "0", 0)))
    table.consumers.start("daily", "latest")
    for n in range(1, 5):
        table.upsert(rows((0, "a", str(n), n), (n, "a", "x", n)))
        if kind == "mor":
            table.maintenance.compact()
    table.maintenance.clean(options={"lakebed.consumers.max_lag": 0, "hoodie.clean.commits.retained": 1})
    with pytest.raises(CheckpointBehind, match="cleaned") as raised, table.consume("daily", max_commits=1) as batch:
        batch.to_arrow()
    assert raised.value.context["consumer"] == "daily"
    table.consumers.move("daily", raised.value.context["checkpoint"])
    found: list[int] = []
    while rows_of_batch := consumed(table, max_commits=1):
        found += [row[0] for row in rows_of_batch]
    assert 4 in found

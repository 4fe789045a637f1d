"""The reader of `readStream.format("lakebed")`, driven as Spark drives it: offsets, limits, the rows of each batch."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import lakebed
from lakebed.errors import CheckpointBehind, InvalidOption, SchemaConflict
from lakebed.spark_source import stream as stream_module
from lakebed.spark_source.options import source_options
from lakebed.spark_source.source import LakebedSource
from lakebed.spark_source.stream import OFFSET, StreamReader
from lakebed.table import Table
from support.write_tables import SCHEMA, rows

QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.table.cdc.enabled": True,
}
FIRST = {OFFSET: "00000000000000"}
SHAPES = [(kind, version) for kind in ("cow", "mor") for version in (9, 8, 6)]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Table]:
    def create(kind: str = "cow", version: int = 9, **more: Any) -> Table:
        words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "simple", "properties": QUIET, **more}
        return lakebed.create(str(tmp_path / "t"), SCHEMA, type=kind, table_version=version, **words)

    return create


class Query:
    """A streaming query: it asks the reader as Spark 4.1 does, or with `admitted` as 4.2 and later do."""

    def __init__(
        self, table: Table, *, admitted: bool = False, checkpoint: dict[str, str] | None = None, **options: str
    ) -> None:
        given = {"path": table.uri, **options}
        source = LakebedSource(given)
        checked = source_options(given)
        self.reader: StreamReader = source.streamReader(from_arrow_schema(checked.schema))  # type: ignore[assignment]
        self.admitted = admitted
        self.end = checkpoint
        if checkpoint is not None and not admitted:
            assert self.reader.partitions(checkpoint, checkpoint) == [], "as Spark does when a query goes on"

    def step(self) -> list[dict[str, Any]] | None:
        """The rows of the next batch, None where there is none."""
        start = self.end if self.end is not None else json.loads(json.dumps(self.reader.initialOffset()))
        limit = self.reader.getDefaultReadLimit() if self.admitted and stream_module.admission else None
        latest = self.reader.latestOffset(start, limit) if self.admitted else self.reader.latestOffset()
        self.end = json.loads(json.dumps(latest))
        if self.end == start:
            return None
        tasks = pickle.loads(pickle.dumps(self.reader.partitions(start, self.end)))
        found = [row for task in tasks for batch in self.reader.read(task) for row in batch.to_pylist()]
        self.reader.commit(self.end)
        return found

    def batches(self) -> list[list[dict[str, Any]]]:
        """The rows of all batches to come."""
        found: list[list[dict[str, Any]]] = []
        while (batch := self.step()) is not None:
            found.append(batch)
        return found


def values(batch: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in batch)


def write_history(table: Table) -> None:
    """Commits with upserts and deletes, with services between them."""
    is_mor = table.properties["hoodie.table.type"] == "MERGE_ON_READ"
    table.upsert(rows((1, "a", "1", 1), (2, "a", "2", 1)))
    table.upsert(rows((2, "a", "22", 2), (3, "b", "3", 2)))
    if is_mor:
        table.maintenance.compact()
    table.delete([1])
    table.maintenance.cluster()
    table.upsert(rows((1, "a", "again", 4)))
    if is_mor:
        table.maintenance.compact()


@pytest.mark.parametrize("admitted", [False, True], ids=["without a start", "with a start"])
@pytest.mark.parametrize(("kind", "version"), SHAPES)
def test_each_batch_has_the_rows_of_its_commits(
    make: Callable[..., Table], kind: str, version: int, admitted: bool
) -> None:
    table = make(kind, version)
    write_history(table)
    query = Query(table, admitted=admitted, maxCommitsPerTrigger="1")
    assert [values(batch) for batch in query.batches()] == [
        [(1, "1"), (2, "2")],
        [(2, "22"), (3, "3")],
        [],
        [(1, "again")],
    ]
    assert query.step() is None
    table.upsert(rows((5, "a", "5", 5)))
    assert [values(batch) for batch in query.batches()] == [[(5, "5")]]


@pytest.mark.parametrize(("kind", "version"), SHAPES)
def test_changes_have_the_rows_before_and_after(make: Callable[..., Table], kind: str, version: int) -> None:
    table = make(kind, version)
    write_history(table)
    query = Query(table, query="cdc", maxCommitsPerTrigger="1", columns="v")
    seen = [
        sorted((c["op"], (c["before"] or {}).get("v"), (c["after"] or {}).get("v")) for c in batch)
        for batch in query.batches()
    ]
    assert seen == [
        [("i", None, "1"), ("i", None, "2")],
        [("i", None, "3"), ("u", "2", "22")],
        [("d", "1", None)],
        [("i", None, "again")],
    ]


@pytest.mark.parametrize("admitted", [False, True], ids=["without a start", "with a start"])
def test_a_query_goes_on_from_its_checkpoint_with_limits(make: Callable[..., Table], admitted: bool) -> None:
    table = make()
    for n in range(4):
        table.upsert(rows((n, "a", str(n), 1)))
    first = Query(table, admitted=admitted, maxRowsPerTrigger="1")
    assert [values(first.step() or []) for _ in range(2)] == [[(0, "0")], [(1, "1")]]
    second = Query(table, admitted=admitted, checkpoint=first.end, maxRowsPerTrigger="1")
    assert [values(batch) for batch in second.batches()] == [[(2, "2")], [(3, "3")]]


@pytest.mark.parametrize(
    ("limit", "value", "batches"),
    [
        ("maxCommitsPerTrigger", "2", [2, 1]),
        ("maxRowsPerTrigger", "3", [1, 1, 1]),
        ("maxRowsPerTrigger", "4", [2, 1]),
        ("maxBytesPerTrigger", "1", [1, 1, 1]),
        ("maxBytesPerTrigger", str(1 << 30), [3]),
        ("maxFilesPerTrigger", "2", [2, 1]),
    ],
)
def test_limits_bound_a_batch_of_at_least_one_commit(
    make: Callable[..., Table], limit: str, value: str, batches: list[int]
) -> None:
    table = make()
    for n in range(3):
        table.insert(
            rows((2 * n, "a", "x", 1), (2 * n + 1, "a", "x", 1)), options={"hoodie.parquet.small.file.limit": 0}
        )
    assert [len(batch) // 2 for batch in Query(table, **{limit: value}).batches()] == batches


def test_offsets_are_those_of_hudi(make: Callable[..., Table]) -> None:
    table = make()
    result = table.upsert(rows((1, "a", "1", 1)))
    query = Query(table)
    assert query.reader.initialOffset() == FIRST
    assert query.reader.latestOffset() == {"offsetCommitTime": result.checkpoint}
    assert query.reader.reportLatestOffset() == {"offsetCommitTime": result.checkpoint}
    with pytest.raises(InvalidOption, match="which is none of a table"):
        query.reader.partitions({"end": ""}, {"end": "1"})


def test_a_stream_begins_at_its_start_and_ends_at_its_end(make: Callable[..., Table]) -> None:
    table = make()
    first, second, _ = (table.upsert(rows((n, "a", str(n), 1))) for n in range(3))
    assert [values(b) for b in Query(table, start=first.checkpoint, end=second.checkpoint).batches()] == [[(1, "1")]]
    assert Query(table, start="latest").batches() == []
    alias = {"hoodie.datasource.streaming.startOffset": second.checkpoint}
    assert [values(b) for b in Query(table, **alias).batches()] == [[(2, "2")]]
    assert [values(b) for b in Query(table, where="id > 0", columns="id,v").batches()] == [[(1, "1"), (2, "2")]]


def test_a_table_without_commits_has_no_batch_until_one_comes(make: Callable[..., Table]) -> None:
    table = make()
    query = Query(table)
    assert query.step() is None
    table.upsert(rows((1, "a", "1", 1)))
    assert [values(batch) for batch in query.batches()] == [[(1, "1")]]


def test_available_now_ends_at_what_was_there_when_it_began(make: Callable[..., Table]) -> None:
    table = make()
    for n in range(3):
        table.upsert(rows((n, "a", str(n), 1)))
    query = Query(table, admitted=True, maxCommitsPerTrigger="2")
    query.reader.prepareForTriggerAvailableNow()
    table.upsert(rows((9, "a", "9", 1)))
    assert [values(batch) for batch in query.batches()] == [[(0, "0"), (1, "1")], [(2, "2")]]


def test_a_dropped_column_ends_the_stream_and_a_new_one_waits_for_a_restart(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    queries = Query(table), Query(table, query="cdc"), Query(table, columns="id,v")
    for query in queries:
        query.batches()
    table.columns.add("tip", "double")
    table.upsert({"id": [2], "city": ["a"], "v": ["2"], "ts": [1], "tip": [0.5]})
    assert [sorted(row) for row in queries[0].batches()[-1]] == [["city", "id", "ts", "v"]]
    assert sorted(queries[1].batches()[-1][0]["after"]) == ["city", "id", "ts", "v"]
    assert "tip" in Query(table).batches()[-1][0]
    table.columns.drop("city")
    table.upsert({"id": [3], "v": ["3"], "ts": [1], "tip": [0.5]})
    for query in queries[:2]:
        with pytest.raises(SchemaConflict, match="the column city of table 't', which was dropped"):
            query.step()
    assert [values(batch) for batch in queries[2].batches()] == [[(2, "2"), (3, "3")]]


def test_a_rolled_back_commit_is_in_no_batch(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    gone = table.upsert(rows((2, "a", "2", 1)))
    table.rollback(gone.instant)
    table.upsert(rows((3, "a", "3", 1)))
    assert [values(b) for b in Query(table, maxCommitsPerTrigger="1").batches()] == [[(1, "1")], [(3, "3")]]


@pytest.mark.parametrize("query", ["incremental", "cdc"])
def test_a_checkpoint_before_the_archive_is_an_error_unless_loss_is_accepted(
    make: Callable[..., Table], query: str
) -> None:
    table = make()
    table.upsert(rows((0, "a", "0", 0)))
    first = Query(table, query=query)
    first.batches()
    for n in range(1, 8):
        table.upsert(rows((n, "a", str(n), n)))
    options = {
        "hoodie.clean.commits.retained": 1,
        "hoodie.keep.min.commits": 3,
        "hoodie.keep.max.commits": 4,
        "hoodie.metadata.compact.max.delta.commits": 1,
    }
    table.upsert(rows((8, "a", "8", 8)), options=options)
    table.maintenance.clean(options=options)
    assert table.maintenance.archive(options=options).instants
    with pytest.raises(CheckpointBehind) as raised:
        Query(table, query=query, checkpoint=first.end).step()
    usable = raised.value.context["checkpoint"]
    assert Query(table, query=query, checkpoint={OFFSET: usable}).batches()
    goes_on = Query(table, query=query, checkpoint=first.end, failOnDataLoss="false").batches()
    last = [row["after"] if query == "cdc" else row for row in goes_on[-1]]
    assert 8 in [row["id"] for row in last]


def test_a_consumer_records_the_position_of_the_stream(make: Callable[..., Table]) -> None:
    table = make()
    for n in range(2):
        table.upsert(rows((n, "a", str(n), 1)))
    query = Query(table, consumer="spark", maxCommitsPerTrigger="1")
    assert values(query.step() or []) == [(0, "0")]
    assert table.consumers.get("spark").lag_commits == 1
    other = Query(table, consumer="spark")
    assert [values(batch) for batch in other.batches()] == [[(1, "1")]], (
        "a new query goes on at the consumer's position"
    )
    query.step()
    assert table.consumers.get("spark").lag_commits == 0, "a position is not moved back"


def test_options_of_a_stream_are_checked(make: Callable[..., Table]) -> None:
    table = make()
    table.upsert(rows((1, "a", "1", 1)))
    for options, words in (
        ({"maxRowsPerTrigger": "0"}, "maxrowspertrigger is a whole number above 0"),
        ({"as_of": "20260101"}, "takes no as_of"),
        ({"query": "read_optimized"}, "takes no query read_optimized"),
        ({"consumer": "a/b"}, "no name of a consumer"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"maxRowPerTrigger": "1"}, "maxRowsPerTrigger"),
    ):
        with pytest.raises(InvalidOption, match=words):
            Query(table, **options)
    with pytest.raises(InvalidOption, match=r"maxRowsPerTrigger is an option of spark\.readStream"):
        LakebedSource({"path": table.uri, "maxRowsPerTrigger": "1"}).reader(from_arrow_schema(pa.schema([])))

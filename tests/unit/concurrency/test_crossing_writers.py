"""Two writers without a conflict, of which the first to begin is the last to commit: both are found by everything."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidRecord
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.files import file_records
from lakebed.metadata_records.layout import FILES
from lakebed.metadata_records.records import record_form
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage
from property.crossing import Change, Model, Write, Writer, held_writers
from support.locks import held
from support.sampling import HISTORIES, todays_of

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int32()), ("f", pa.float32())])
NEW_FILES: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0, "lakebed.write.tasks": 1}
NAN = float("nan")
Row = tuple[int, str, int, float]


@pytest.fixture
def uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("lakebed.read.skip._MAX_SLICES", 0)  # few files are skipped by everything, too
    name = f"crossing-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def rows(*given: Row, **more: pa.Array) -> pa.Table:
    columns = list(zip(*given, strict=True))
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    for name, values in more.items():
        at = table.schema.get_field_index(name)
        table = table.append_column(name, values) if at < 0 else table.set_column(at, name, values)
    return table


def created(uri: str, version: int = 9, index: str = "simple") -> Table:
    """Two files in each of two partitions."""
    stats = ["column_stats", "partition_stats"] if version == 8 else None
    table = lakebed.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        index=index,
        indexes=stats,
        table_version=version,
        properties={"lakebed.write.evolution": "widen"},
    )
    table.upsert(rows((1, "a", 1, 1.0), (2, "b", 2, 2.0)), options=NEW_FILES)
    table.upsert(rows((3, "a", 3, 3.0), (4, "b", 4, 4.0)), options=NEW_FILES)
    return table


def writes(*data: pa.Table, how: str = "upsert", **options: Any) -> list[Write]:
    def write(one: pa.Table) -> Write:
        return Write(how, lambda t: getattr(t, how)(one, options=NEW_FILES | options), lambda _: Change())

    return [write(one) for one in data]


def crossed(uri: str, given: Sequence[Write], order: Sequence[int] = (1, 0)) -> list[BaseException | None]:
    """Begin the writes in their order and commit them in that of `order`; gives what they raised."""
    model = Model(False)
    with held_writers():
        writers = [Writer(uri, one) for one in given]
        for writer in writers:
            writer.step(model)
            writer.step(model)
        for n in order:
            writers[n].step(model)
    return [writer.error for writer in writers]


def ids(table: Table, where: str) -> list[int]:
    return sorted(table.scan(where=where).to_arrow().column("id").to_pylist())


def is_well(uri: str) -> None:
    found = lakebed.open(uri).indexes.verify()
    assert found.ok, found


def partition_stats(uri: str, column: str) -> dict[str, dict[str, Any]]:
    metadata = open_snapshot(open_storage(uri)).metadata
    assert metadata is not None
    stats = metadata.partition_stats([column]).get(column)
    return {} if stats is None else {row["file_name"]: row for row in stats.to_pylist()}


# -- statistics of partition paths


@pytest.mark.rest
@pytest.mark.parametrize("version", [9, 8])
def test_ranges_of_a_partition_hold_the_rows_of_the_first_to_begin_and_last_to_commit(uri: str, version: int) -> None:
    table = created(uri, version)
    assert crossed(uri, writes(rows((10, "a", 1000, 7.0)), rows((11, "a", -5, -5.0)))) == [None, None]
    assert ids(table, "v = 1000") == [10]
    assert ids(table, "v = -5") == [11]
    assert ids(table, "v < 2 and city = 'a'") == [1, 11]
    is_well(uri)
    assert not partition_stats(uri, "v")["a"]["is_tight"]
    table.upsert(rows((12, "a", 5, 5.0)), options=NEW_FILES)
    stats = partition_stats(uri, "v")["a"]
    assert (stats["min"], stats["max"], stats["value_count"], stats["is_tight"]) == (-5, 1000, 5, False)
    table.delete([10, 11])
    assert (partition_stats(uri, "v")["a"]["min"], partition_stats(uri, "v")["a"]["max"]) == (1, 5)


def test_results_of_an_expression_hold_them_too(uri: str) -> None:
    table = created(uri)
    table.indexes.create("city_length", column="city", function="length")
    table.indexes.create("upper", column="city", function="upper")
    first, second = rows((10, "a", 1, 1.0)), rows((11, "a", 1, 1.0))
    lakebed.open(uri)
    assert crossed(uri, writes(first, second)) == [None, None]
    assert ids(table, "length(city) = 1 and upper(city) = 'A'") == [1, 3, 10, 11]
    is_well(uri)


@pytest.mark.rest
def test_three_writers_in_every_order(uri: str) -> None:
    created(uri)
    for n, order in enumerate([(2, 1, 0), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2)]):
        base = 100 * (n + 1)
        given = [rows((base + k, "a", (base + k) * (-1) ** k, 1.0)) for k in range(3)]
        assert crossed(uri, writes(*given), order) == [None] * 3
        for k in range(3):
            assert ids(lakebed.open(uri), f"v = {(base + k) * (-1) ** k}") == [base + k]
        is_well(uri)


@pytest.mark.parametrize("compact_after", [1, 10])
def test_records_that_the_metadata_table_compacts_between_writes_stay_right(uri: str, compact_after: int) -> None:
    table = created(uri)
    model = Model(False)
    options = NEW_FILES | {"hoodie.metadata.compact.max.delta.commits": compact_after}
    options |= {"hoodie.metadata.log.compaction.enable": True, "hoodie.metadata.log.compaction.blocks.threshold": 2}
    with held_writers():
        first = Writer(uri, *writes(rows((10, "a", 1000, 7.0))))
        first.step(model)
        first.step(model)
        for n in range(4):
            table.upsert(rows((20 + n, "a", 20 + n, 1.0)), options=options)
        first.step(model)
    assert first.error is None
    assert ids(table, "v = 1000") == [10]
    is_well(uri)
    table.upsert(rows((30, "a", 30, 1.0)), options=options)
    assert ids(table, "v = 1000") == [10]
    is_well(uri)


@pytest.mark.parametrize("order", [(NAN, 9.0), (9.0, NAN)])
def test_a_range_that_crosses_one_with_nan_is_united_with_it(uri: str, order: tuple[float, float]) -> None:
    table = created(uri)
    first, second = order
    assert crossed(uri, writes(rows((10, "a", 1, first)), rows((11, "a", 1, second)))) == [None, None]
    assert ids(table, "f >= 9") == [10, 11]  # NaN is greater than all numbers
    stats = partition_stats(uri, "f")["a"]
    assert (stats["min"], stats["max"]) == (-math.inf, math.inf)
    is_well(uri)
    table.upsert(rows((12, "a", 1, 1.0)), options=NEW_FILES)
    assert ids(table, "f >= 9") == [10, 11]
    is_well(uri)


def test_rows_that_come_to_a_partition_that_was_deleted_meanwhile_are_a_conflict(uri: str) -> None:
    """Its ranges are gone by the later requested instant: real Hudi would take the path for empty."""
    table = created(uri)
    gone = Write("delete", lambda t: t.delete_partitions(["a"]), lambda _: Change())
    errors = crossed(uri, [*writes(rows((10, "a", 1, 1.0))), gone])
    assert isinstance(errors[0], CommitConflict)
    assert ids(table, "v >= 0") == [2, 4]
    table.upsert(rows((10, "a", 1, 1.0)), options=NEW_FILES)
    assert ids(table, "v >= 0 and city = 'a'") == [10]
    is_well(uri)


def test_a_partition_that_was_cleaned_away_meanwhile_is_a_conflict(uri: str) -> None:
    table = created(uri)
    model = Model(False)
    with held_writers():
        first = Writer(uri, *writes(rows((10, "a", 1, 1.0))))
        first.step(model)
        first.step(model)
        snapshot = open_snapshot(open_storage(uri))
        cleaned = file_records([], record_form(9), deleted_partitions=["a"])
        store = MetadataStore(snapshot.storage, snapshot.config, snapshot.timeline, lock_is_held=held)
        table.upsert(rows((11, "b", 1, 1.0)), options=NEW_FILES)
        after = open_snapshot(open_storage(uri)).instant
        apply_delta(store, str(int(after) + 1), {FILES: cleaned})
        first.step(model)
    assert isinstance(first.error, CommitConflict)
    assert first.error.context["metadata_partition"] == FILES


# -- the table's schema


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("change", ["add", "widen"])
def test_a_change_of_the_schema_after_a_later_commit_is_a_conflict(uri: str, version: int, change: str) -> None:
    table = created(uri, version)
    more = {"x": pa.array(["x"])} if change == "add" else {"v": pa.array([1 << 40], pa.int64())}
    errors = crossed(uri, writes(rows((10, "a", 1, 1.0), **more), rows((11, "b", 1, 1.0))))
    assert isinstance(errors[0], CommitConflict)
    assert "requested after it" in str(errors[0])
    assert errors[1] is None
    assert table.schema.equals(SCHEMA)
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4, 11]
    table.upsert(rows((10, "a", 1, 1.0), **more), options=NEW_FILES)
    name = "x" if change == "add" else "v"
    assert table.get([10]).column(name).to_pylist() == more[name].to_pylist()


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_column_that_came_meanwhile_stays_and_a_type_is_a_conflict(uri: str, version: int) -> None:
    table = created(uri, version)
    set_null = {"hoodie.write.set.null.for.missing.columns": True}
    given = writes(rows((10, "a", 1, 1.0)), rows((11, "b", 1, 1.0), x=pa.array(["x"])), **set_null)
    assert crossed(uri, given) == [None, None]
    assert table.get([11]).column("x").to_pylist() == ["x"]
    wide = rows((12, "b", 1, 1.0), v=pa.array([1 << 40], pa.int64()), x=pa.array(["y"]))
    errors = crossed(uri, writes(rows((13, "a", 1, 1.0), x=pa.array(["z"])), wide))
    assert isinstance(errors[0], CommitConflict)
    assert errors[1] is None
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == [1, 2, 3, 4, 10, 11, 12]
    assert table.get([12]).column("v").to_pylist() == [1 << 40]
    is_well(uri)


# -- unique keys


KEYED = [
    *(("simple", version, "aa") for version in (9, 8, 6)),
    *((index, version, "aa") for index in ("global_simple", "record") for version in (9, 6)),
    *((index, version, "ab") for index in ("global_simple", "record") for version in (9, 6)),
    ("record_level_index", 9, "aa"),
]
SAME_KEY = todays_of(KEYED, ["upsert", "insert", "insert_overwrite"], parts=3, variable=HISTORIES)


@pytest.mark.parametrize(("index", "version", "cities", "how"), [(*keyed, how) for keyed, how in SAME_KEY])
def test_the_same_new_key_from_two_writers_is_a_conflict(
    uri: str, index: str, version: int, cities: str, how: str
) -> None:
    table = created(uri, version, index)
    drop = {"hoodie.datasource.write.insert.drop.duplicates": True} if how == "insert" else {}
    first, second = (rows((10, city, n, 1.0)) for n, city in enumerate(cities))
    errors = crossed(uri, [*writes(first, how=how, **drop), *writes(second)])
    assert isinstance(errors[0], CommitConflict)
    assert errors[1] is None
    assert table.get([10]).column("v").to_pylist() == [1]
    assert ids(table, "id = 10") == [10]
    assert len(ids(table, "v >= 0")) == 5
    is_well(uri)
    table.delete([10])
    assert ids(table, "id = 10") == []


def test_the_same_key_in_two_partitions_is_no_conflict_under_an_index_of_partitions(uri: str) -> None:
    table = created(uri)
    assert crossed(uri, writes(rows((10, "a", 1, 1.0)), rows((10, "b", 2, 1.0)))) == [None, None]
    assert sorted(table.get([10]).column("v").to_pylist()) == [1, 2]
    is_well(uri)


def test_keys_are_not_read_again_where_nothing_was_committed_in_between(uri: str) -> None:
    created(uri)
    counted: list[CountingStorage] = []
    with wrapping(lambda inner: counted.append(CountingStorage(inner)) or counted[-1]):
        table = lakebed.open(uri)
    table.upsert(rows((10, "a", 1, 1.0)), options=NEW_FILES)
    (new,) = (path for path in counted[0].written if path.endswith(".parquet"))
    assert new not in counted[0].opened


@pytest.mark.parametrize("index", ["global_simple", "record"])
def test_overwriting_by_a_key_that_lives_in_another_partition_is_refused(uri: str, index: str) -> None:
    table = created(uri, index=index)
    with pytest.raises(InvalidRecord, match="'b'"):
        table.insert_overwrite(rows((2, "a", 9, 9.0), (5, "a", 9, 9.0)))
    assert len(ids(table, "v >= 0")) == 4
    table.insert_overwrite(rows((1, "a", 9, 9.0), (5, "a", 9, 9.0)))
    assert ids(table, "v >= 0") == [1, 2, 4, 5]
    table.insert_overwrite(rows((2, "a", 9, 9.0)), "table")
    assert ids(table, "v >= 0") == [2]
    is_well(uri)


@pytest.mark.parametrize(("index", "twice"), [("simple", "a"), ("global_simple", "b"), ("record", "b")])
def test_verify_finds_keys_that_stand_twice(uri: str, index: str, twice: str) -> None:
    table = created(uri, index=index)
    table.bulk_insert(rows((1, "b", 9, 9.0)) if index == "simple" else rows((9, "b", 9, 9.0)))
    is_well(uri)
    table.bulk_insert(rows((1, twice, 9, 9.0)))
    found = table.indexes.verify()
    assert not found.ok
    (row,) = found.of("record keys").to_pylist()
    assert (row["key"], row["problem"]) == ("1", "repeated")
    assert row["entry"] == ("a" if index == "simple" else "a, b")

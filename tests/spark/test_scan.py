"""Scans on Spark: golden tables read equal, only the planned files opened, odd paths, old schemas, fall-backs."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakebed
import lakebed.read.spark as spark_scan
from lakebed import sharing
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import META_COLUMNS, BaseFile, FileSlice, LogFile
from lakebed.properties.table_config import TableConfig
from lakebed.read.incremental import Changes
from lakebed.read.plan import ColumnSource, ScanPlan, SliceSet
from lakebed.read.scan import Scan
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from support.golden_tables import golden
from support.same_rows import assert_same_rows

FROM_PATH = {"v9_cow_global_no_move": ("region",)}


def opened(folder: Path, name: str) -> Snapshot:
    return open_snapshot(open_storage(str(golden(name).unpack(folder))))


@pytest.mark.parametrize(
    "name",
    [
        "v9_cow_simple",
        "v9_cow_evolve_write",
        "v9_cow_evolve_read",
        "v9_cow_rich_types",
        "v9_cow_rich_types_newlist",
        "v9_cow_non_ascii_columns",
        "v9_cow_hive_odd",
        "v9_cow_ts_datestring",
        "v9_cow_no_meta",
        "v8_cow_rich_types",
        "v6_cow_rich_types",
        "v6_cow_evolve_write",
        "v6_mor_rollback",
        "v8_mor_partial_update_sql",
        "v9_mor_debezium_postgres",
        "v9_mor_delete_blocks",
        "v9_mor_event_time",
        "v9_mor_evolve_read",
        "v9_mor_evolve_write",
        "v9_mor_rich_types",
        "v9_mor_small_files",
    ],
)
def test_reads_what_hudi_read(name: str, tmp_path: Path, spark: Any) -> None:
    snapshot = opened(tmp_path, name)
    scan = Scan(snapshot, spark=spark, meta=True)
    frame = scan.to_spark()
    assert frame.columns == scan.schema.names
    assert_same_rows(frame.toArrow(), golden(name).expected)
    assert_same_rows(frame.toArrow(), scan.to_arrow())


def test_slices_with_log_files_are_filtered_counted_and_read_as_of_on_spark(tmp_path: Path, spark: Any) -> None:
    snapshot = opened(tmp_path, "v9_mor_small_files")
    merged = [bool(s.log_files) for s in snapshot.file_slices()]
    assert any(merged)
    for filter in ("qty > 100", "region = 'eu' and id < 'k0030'"):
        scan = Scan(snapshot, columns=["id", "qty"], where=filter, spark=spark)
        assert_same_rows(scan.to_spark().toArrow(), scan.to_arrow())
    scan = Scan(snapshot, columns=["id"], spark=spark)
    assert scan.to_spark().count() == scan.count()
    assert "through Python where log files are merged" in scan.explain()
    for instant in snapshot.commits:
        cut = Scan(snapshot.at(instant.time), spark=spark, meta=True)
        assert_same_rows(cut.to_spark().toArrow(), cut.to_arrow())
        changes = Changes(snapshot, instant.time, spark=spark, meta=True)
        assert_same_rows(changes.to_spark().toArrow(), changes.to_arrow())


def test_filter_columns_and_files(tmp_path: Path, spark: Any) -> None:
    snapshot = opened(tmp_path, "v9_cow_simple")
    scan = Scan(snapshot, columns=["id", "qty"], where="region = 'eu' and qty > 100", spark=spark)
    frame = scan.to_spark()
    assert_same_rows(frame.toArrow(), scan.to_arrow())
    assert {Path(f).name for f in frame.inputFiles()} == {f.name for f in scan.files}
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [" in plan
    assert "GreaterThan(qty,100)" in plan
    assert "ArrowMap" not in plan
    assert "MapInArrow" not in plan
    assert "its own Parquet reader" in scan.explain()


def test_an_arrow_expression_that_sql_cannot_say(tmp_path: Path, spark: Any) -> None:
    snapshot = opened(tmp_path, "v9_cow_simple")
    scan = Scan(snapshot, columns=["id"], where=pc.utf8_length(pc.field("name")) > 8, spark=spark)
    sharing.matters.clear()
    with pytest.warns(UserWarning, match="no Spark SQL form"):
        frame = scan.to_spark()
    assert_same_rows(frame.toArrow(), scan.to_arrow())
    assert "through Python" in scan.explain()


def test_a_filter_that_only_spark_knows(tmp_path: Path, spark: Any) -> None:
    snapshot = opened(tmp_path, "v9_cow_simple")
    scan = Scan(snapshot, columns=["id", "region"], where="region = 'eu' and id rlike '[02468]$'", spark=spark)
    rows = scan.to_spark().collect()
    assert rows
    assert all(r.region == "eu" and int(r.id[-1]) % 2 == 0 for r in rows)
    assert {f.partition for f in scan.files} == {"eu"}


def test_changes_on_spark_equal_those_in_process(tmp_path: Path, spark: Any) -> None:
    snapshot = opened(tmp_path, "v9_cow_simple")
    changes = Changes(snapshot, snapshot.commits[0].time, spark=spark, meta=True, where="qty > 0 -- all")
    assert_same_rows(changes.to_spark().toArrow(), changes.to_arrow())
    assert Changes(snapshot, changes.end, spark=spark).to_spark().count() == 0


def test_where_hadoop_has_no_file_system(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = opened(tmp_path, "v9_cow_evolve_write")
    monkeypatch.setattr(spark_scan, "can_open", lambda spark, url: False)
    sharing.matters.clear()
    scan = Scan(snapshot, where="id > 'k0010'", spark=spark, meta=True)
    with pytest.warns(UserWarning, match="no file system for file://"):
        frame = scan.to_spark()
    assert_same_rows(frame.toArrow(), scan.to_arrow())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        scan.to_spark()
    assert "through Python: Spark's Hadoop has no file system for file://" in scan.explain()


def hand_made(storage_root: Path, partition: str, table: pa.Table, name: str) -> FileSlice:
    folder = storage_root / partition
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name, store_schema=False)
    file_id = name.split("_")[0]
    file = BaseFile(partition, file_id, "0-0-0", "1", name, (folder / name).stat().st_size)
    return FileSlice(partition, file_id, "1", file)


def reader_of(root: Path, **properties: str) -> SliceReader:
    return SliceReader(open_storage(str(root)), TableConfig(properties))


def plan_of(schema: pa.Schema, *sets: SliceSet, columns: tuple[str, ...] = (), **more: Any) -> ScanPlan:
    return ScanPlan("t", "snapshot", None, columns or tuple(schema.names), schema, sets, **more)


@pytest.mark.parametrize(
    "partition",
    ["a b", "100%", "x=1", "[a]{b}*?", "back\\slash", "zürich 😀", "a%20b", "q'uo\"te", "h#sh", "_under", ".dot"],
)
def test_files_with_odd_paths_are_read(partition: str, tmp_path: Path, spark: Any) -> None:
    root = tmp_path / "table [x] {y} 100% é"
    table = pa.table({"id": [1, 2]})
    file = hand_made(root, partition, table, "f-0_0-0-0_1.parquet")
    hand_made(root, partition + "other", pa.table({"id": [3]}), "f-0_0-0-0_1.parquet")
    schema = pa.schema([("id", pa.int64())])
    plan = plan_of(schema, SliceSet((file,), (ColumnSource("id", "id", pa.int64()),), True))
    frame = spark_scan.scan_frame(plan, spark, reader_of(root))
    assert frame.columns == ["id"]
    assert sorted(r.id for r in frame.collect()) == [1, 2]


def test_old_schemas_and_columns_from_paths(tmp_path: Path, spark: Any) -> None:
    meta = {m: ["x"] for m in META_COLUMNS}
    old = pa.table({**meta, "_hoodie_partition_path": ["p/1"], "V": pa.array([1.1], pa.float32()), "gone": [1]})
    new = pa.table({**meta, "_hoodie_partition_path": ["p/2"], "v": pa.array([2.5], pa.float64())})
    first = hand_made(tmp_path, "p/1", old, "f-0_0-0-0_1.parquet")
    second = hand_made(tmp_path, "p/2", new, "g-0_0-0-0_2.parquet")
    schema = pa.schema([("v", pa.float64()), ("n", pa.int32()), ("text", pa.string())])
    path = ColumnSource("n", None, None, from_path=True)
    missing = ColumnSource("text", None, None)
    sets = (
        SliceSet((first,), (ColumnSource("v", "V", pa.float32()), path, missing), False),
        SliceSet((second,), (ColumnSource("v", "v", pa.float64()), path, missing), False),
    )
    plan = plan_of(schema, *sets, partition_values={"p/1": {"n": 1}, "p/2": {"n": None}})
    rows = spark_scan.scan_frame(plan, spark, reader_of(tmp_path)).collect()
    # float to double by way of its decimal text
    assert sorted(map(tuple, rows)) == [(1.1, 1, None), (2.5, None, None)]
    sharing.matters.clear()
    with pytest.warns(UserWarning, match="no meta columns"):
        through_python = spark_scan.scan_frame(
            plan, spark, reader_of(tmp_path, **{"hoodie.populate.meta.fields": "false"})
        )
    assert sorted(map(tuple, through_python.collect())) == sorted(map(tuple, rows))


def test_many_files_are_listed_by_few_tasks(tmp_path: Path, spark: Any) -> None:
    files = [hand_made(tmp_path, f"p{n % 7}", pa.table({"id": [n]}), f"f{n}-0_0-0-0_1.parquet") for n in range(70)]
    schema = pa.schema([("id", pa.int64())])
    plan = plan_of(schema, SliceSet(tuple(files), (ColumnSource("id", "id", pa.int64()),), True))
    name = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    before = spark.conf.get(name)
    assert spark_scan.scan_frame(plan, spark, reader_of(tmp_path)).count() == 70
    assert spark.conf.get(name) == before


def test_slices_with_log_files_go_through_the_slice_reader(tmp_path: Path, spark: Any) -> None:
    plain = hand_made(tmp_path, "p", pa.table({"id": [1]}), "f-0_0-0-0_1.parquet")
    log = LogFile("p", "g-0", "1", 1, "0-0-0", ".g-0_1.log.1_0-0-0", 10)
    merged = replace(hand_made(tmp_path, "p", pa.table({"id": [2]}), "g-0_0-0-0_1.parquet"), log_files=(log,))
    schema = pa.schema([("id", pa.int64())])
    plan = plan_of(schema, SliceSet((plain, merged), (ColumnSource("id", "id", pa.int64()),), True))
    # log files say nothing on a copy-on-write table
    frame = spark_scan.scan_frame(plan, spark, reader_of(tmp_path, **{"hoodie.table.type": "COPY_ON_WRITE"}))
    assert sorted(r.id for r in frame.collect()) == [1, 2]
    assert [len(f) for f in (plan.slices, plan.files)] == [2, 2]
    mor = spark_scan.scan_frame(plan, spark, reader_of(tmp_path, **{"hoodie.table.type": "MERGE_ON_READ"}))
    with pytest.raises(Exception, match="is missing, and the table lists it"):
        mor.collect()


def test_a_table_without_rows_gives_a_frame_with_its_columns(tmp_path: Path, spark: Any) -> None:
    schema = pa.schema([("id", pa.int64())])
    frame = spark_scan.scan_frame(plan_of(schema), spark, reader_of(tmp_path))
    assert frame.columns == ["id"]
    assert frame.count() == 0


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:lakebed scans through Python")
@pytest.mark.parametrize(("dropped", "through"), [("true", ""), ("false", "python")])
def test_no_columns_and_columns_of_paths(
    dropped: str, through: str, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if through:
        monkeypatch.setattr(spark_scan, "through_storage", lambda *_: through)
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int32())])
    table = lakebed.create(
        str(tmp_path / "t"),
        schema,
        key="id",
        partition_by=["city", "n"],
        index="simple",
        spark=spark,
        properties={"hoodie.datasource.write.drop.partition.columns": dropped},
    )
    first = table.upsert(pa.table({"id": [1, 2], "city": ["oslo", "rome"], "n": [1, 2]}, schema))
    table.upsert(pa.table({"id": [2, 3], "city": ["rome", "bergen"], "n": [2, 3]}, schema))
    assert set(table.schema.names) == {"id", "city", "n"}
    for condition, count in ((None, 3), ("id > 1", 2), ("n = 3", 1), ("id > 9", 0)):
        for scan in (table.scan([], condition), table.changes("000", columns=[], where=condition)):
            assert scan.to_spark().count() == scan.count() == count
            assert scan.to_spark().columns == []
    for changes, expected in (
        (table.changes(first.checkpoint), [(2, "rome", 2), (3, "bergen", 3)]),
        (table.changes("000", first.checkpoint), [(1, "oslo", 1), (2, "rome", 2)]),
        (table.changes("000", where="n = 2 and city = 'rome'"), [(2, "rome", 2)]),
    ):
        found = changes.to_spark().select("id", "city", "n")
        assert sorted(tuple(row) for row in found.collect()) == expected
        assert found.schema["n"].dataType.typeName() == "integer"
        mine = changes.to_arrow().select(["id", "city", "n"]).to_pylist()
        assert sorted(tuple(row.values()) for row in mine) == expected


@pytest.mark.parametrize("name", ["v9_cow_evolve_write", "v9_cow_evolve_read"])
def test_changes_have_the_columns_of_now(name: str, tmp_path: Path, spark: Any) -> None:
    answers = golden(name).more("incremental.parquet")
    snapshot = opened(tmp_path, name)
    for query in golden(name).entry["expectations"]["incremental"]["queries"]:
        found = Changes(snapshot, query["begin"], query.get("end"), meta=True, spark=spark).to_spark().toArrow()
        expected = answers.filter(pc.equal(answers["_q"], query["q"])).drop_columns(["_q"])
        assert set(found.column_names) == set(expected.column_names)
        assert_same_rows(found, expected)

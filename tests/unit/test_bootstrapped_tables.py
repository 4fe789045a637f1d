"""Tables over files of another folder (metadata-only bootstrap): those of real Hudi are read and written right, and
`convert(in_place=True)` makes such tables."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import lakebed
from lakebed.errors import CorruptFile, InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.format import bootstrap
from support.bootstrapped import digests, flat_folder, hive_folder, rows_by_key, rows_of
from support.golden_tables import GoldenTable, bootstrapped_tables
from support.same_rows import assert_same_rows
from support.sampling import HISTORIES, todays

TABLES = bootstrapped_tables()
NAMES = {table.name: table for table in TABLES}


def converted(folder: Path, uri: Path, **given: Any) -> lakebed.Table:
    options: dict[str, Any] = {"key": "id", "ordering": "ts", **given}
    return lakebed.convert(folder, str(uri), in_place=True, **options)


def skeletons(table: lakebed.Table) -> int:
    """How many of the table's latest base files are skeletons."""
    return pc.sum(pc.ends_with(table.files.to_arrow()["base_file"], f"_{bootstrap.BOOTSTRAP_INSTANT}.parquet")).as_py()


# -- tables of real Hudi


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_a_scan_gives_the_rows_that_real_hudi_read(table: GoldenTable, tmp_path: Path) -> None:
    opened = lakebed.open(str(table.unpack(tmp_path)))
    expected = table.expected
    assert_same_rows(opened.scan(columns=expected.column_names).to_arrow(), expected)
    assert opened.count() == expected.num_rows
    assert "source files" in opened.scan().explain()


@pytest.mark.parametrize("table", todays(TABLES, 3, HISTORIES), ids=str)
def test_lookups_filters_and_sql_give_the_rows_of_source_files(table: GoldenTable, tmp_path: Path) -> None:
    opened = lakebed.open(str(table.unpack(tmp_path)))
    data = [name for name in table.expected.column_names if not name.startswith("_hoodie")]
    rows = table.expected.select(data)
    keys = [key for key in ("k000", "k013", "k029", "k501") if key in rows["id"].to_pylist()]
    of_keys = rows.filter(pc.is_in(rows["id"], pa.array(keys)))
    assert_same_rows(opened.get([*keys, "nobody"]), of_keys)
    assert opened.exists([*keys, "nobody"]).to_pylist() == [*[True] * len(keys), False]
    assert_same_rows(opened.scan(where="fare > 20 and rider is not null").to_arrow(), selected(rows, 20))
    by_sql: Any = lakebed.sql("select * from t where fare > 20 and rider is not null", {"t": opened})
    assert_same_rows(by_sql.to_arrow().select(data), selected(rows, 20))
    assert_same_rows(opened.changes("000").to_arrow().select(data), rows)
    batches = list(opened.scan(columns=["day", "fare"]).to_batches())
    assert_same_rows(pa.Table.from_batches(batches), rows.select(["day", "fare"]))
    assert_same_rows(opened.scan(columns=["day"]).to_arrow(), rows.select(["day"]))
    first = rows["day"][0].as_py()
    assert opened.count(where=f"day = '{first}'") == rows["day"].to_pylist().count(first)


def selected(rows: pa.Table, fare: float) -> pa.Table:
    return rows.filter(pc.and_(pc.greater(rows["fare"], fare), pc.is_valid(rows["rider"])))


@pytest.mark.parametrize("table", todays(TABLES, 3, HISTORIES), ids=str)
def test_writes_and_services_leave_full_files_and_the_source_as_it_was(table: GoldenTable, tmp_path: Path) -> None:
    path = table.unpack(tmp_path)
    source = digests(table.source_of(path))
    opened = lakebed.open(str(path))
    opened.indexes.adopt("simple")
    opened.configure({"hoodie.table.cdc.enabled": True})
    expected, day = rows_by_key(opened), "x" if table.name.endswith("flat") else "a"
    last = opened.timeline.last
    assert last is not None

    changed = rows_of([4, 12, 990], day, 5000)
    result = opened.upsert(changed)
    assert (result.inserted, result.updated) == (1, 2)
    replaced = {key: expected[key] for key in ("k004", "k012")}
    expected |= {row["id"]: row for row in changed.to_pylist()}
    assert rows_by_key(opened) == expected
    assert opened.delete(["k005", "nobody"]).deleted == 1
    deleted = expected.pop("k005")
    assert rows_by_key(opened) == expected
    images = opened.cdc(last.completion_time or last.time).to_arrow().to_pylist()
    assert sorted(((row["op"], row["before"], row["after"]) for row in images), key=repr) == [
        ("d", deleted, None),
        ("i", None, expected["k990"]),
        *(("u", replaced[key], expected[key]) for key in ("k004", "k012")),
    ]
    if table.type == "mor":
        opened.maintenance.compact()
        assert rows_by_key(opened) == expected
    opened.indexes.create("column_stats")
    opened.indexes.create("bloom_filters")
    assert opened.indexes.verify().ok
    assert opened.scan(where="fare < 9").to_arrow().num_rows == sum(row["fare"] < 9 for row in expected.values())
    opened.maintenance.cluster(options={"hoodie.clustering.plan.strategy.single.group.clustering.enabled": True})
    opened.maintenance.clean(
        options={"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    )
    assert rows_by_key(lakebed.open(str(path))) == expected
    assert digests(table.source_of(path)) == source


def test_a_row_that_is_written_again_is_complete_also_in_its_partition_column(tmp_path: Path) -> None:
    path = NAMES["v9_cow_boot_flat"].unpack(tmp_path)
    opened = lakebed.open(str(path))
    opened.indexes.adopt("simple")
    assert skeletons(opened) == 3
    opened.update({"fare": "0.0"}, where="id = 'k011'")
    assert skeletons(opened) == 2
    (name,) = [
        file for file in opened.files.to_arrow()["base_file"].to_pylist() if bootstrap.BOOTSTRAP_INSTANT not in file
    ]
    stored = pq.ParquetFile(path / name).read().to_pylist()
    assert [row["id"] for row in stored] == [f"k{n:03d}" for n in range(10, 20)]
    assert {row["day"] for row in stored} == {"x"}
    assert [row["fare"] for row in stored][:3] == [15.0, 0.0, 18.0]


# -- convert(in_place=True)


@pytest.mark.parametrize(
    ("kind", "version"), todays([("cow", 9), ("mor", 9), ("mor", 8), ("cow", 6), ("mor", 6)], 2, HISTORIES)
)
def test_a_hive_folder_becomes_a_table_with_its_rows(kind: str, version: int, tmp_path: Path) -> None:
    source = hive_folder(tmp_path / "source")
    before = digests(source)
    table = converted(source, tmp_path / "table", type=kind, table_version=version)
    assert table.partitions == ("day=a", "day=b", "day=c d")
    expected = {row["id"]: row for n, day in enumerate(("a", "b", "c d")) for row in files_of(n * 20, day)}
    assert rows_by_key(table) == expected
    assert table.loaded is not None
    assert (table.loaded.instant, table.loaded.inserted) == (bootstrap.BOOTSTRAP_INSTANT, 60)
    assert skeletons(table) == 6
    assert table.indexes.verify().ok
    size = sum(file.stat().st_size for file in (tmp_path / "table").rglob("day=*/*.parquet"))
    assert size < sum(file.stat().st_size for file in source.rglob("*.parquet"))
    table.upsert(rows_of([30, 31], "b", 100))
    expected |= {row["id"]: row for row in rows_of([30, 31], "b", 100).to_pylist()}
    assert rows_by_key(lakebed.open(table.uri)) == expected
    assert digests(source) == before


def files_of(first: int, day: str) -> list[dict[str, Any]]:
    return rows_of(range(first, first + 20), day).to_pylist()


def test_statistics_of_source_files_rule_them_out(tmp_path: Path) -> None:
    table = converted(flat_folder(tmp_path / "source"), tmp_path / "table")
    assert table.scan(where="fare < 3").to_arrow()["id"].to_pylist() == ["k000", "k001"]
    assert "2 files by column statistics" in table.scan(where="fare < 3").explain()


def test_a_table_is_published_when_no_row_is_in_a_source_file(tmp_path: Path) -> None:
    table = converted(flat_folder(tmp_path / "source"), tmp_path / "t")
    with pytest.raises(UnsupportedFeature, match="in a file outside of the table"):
        table.catalogs.publish("delta")
    assert not (tmp_path / "t" / "_delta_log").exists()
    rows = table.to_arrow().sort_by("id")
    table.maintenance.cluster()
    assert skeletons(table) == 0
    table.catalogs.publish("delta")
    listed = pa.table(DeltaTable(table.uri).to_pyarrow_table())
    assert listed.sort_by("id").to_pylist() == rows.select(listed.column_names).to_pylist()


def test_values_in_folders_have_types_and_may_be_null_or_encoded(tmp_path: Path) -> None:
    for folder, number in (("year=2024/town=S%C3%A3o", 0), (r"year=2025/town=__HIVE_DEFAULT_PARTITION__", 10)):
        path = tmp_path / "source" / folder / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows_of(range(number, number + 3)), path)
    with pytest.raises(UnsupportedFeature, match=r"folder of .* would be the partition path"):
        converted(tmp_path / "source", tmp_path / "table")
    assert not (tmp_path / "table" / ".hoodie" / "hoodie.properties").exists()
    shutil.rmtree(tmp_path / "source" / "year=2024")
    table = converted(tmp_path / "source", tmp_path / "table", ordering="ts")
    assert {(row["year"], row["town"]) for row in rows_by_key(table).values()} == {(2025, None)}


def test_source_files_that_vanished_or_changed_are_named(tmp_path: Path) -> None:
    source = flat_folder(tmp_path / "source")
    table = converted(source, tmp_path / "table")
    victim = source / "part-1.parquet"
    data = victim.read_bytes()
    pq.write_table(rows_of(range(10, 21), "x"), victim)
    with pytest.raises(
        CorruptFile, match=r"source file .*part-1\.parquet, which holds rows of the table, has \d+ bytes"
    ):
        lakebed.open(table.uri).scan().to_arrow()
    victim.unlink()
    with pytest.raises(CorruptFile, match=r"source file .*part-1\.parquet.* is missing"):
        lakebed.open(table.uri).scan().to_arrow()
    victim.write_bytes(data[:-100] + b"\0" * 100)
    with pytest.raises(CorruptFile, match=r"source file .*part-1\.parquet cannot be read as Parquet"):
        lakebed.open(table.uri).scan().to_arrow()
    victim.write_bytes(data)
    assert len(rows_by_key(lakebed.open(table.uri))) == 30
    for path in (tmp_path / "table" / bootstrap.BY_PARTITION, tmp_path / "table" / bootstrap.BY_FILE_ID):
        os.truncate(path, 100)
    lakebed.open(table.uri).configure({"hoodie.clean.automatic": True})
    with pytest.raises(CorruptFile, match="bootstrap"):
        lakebed.open(table.uri).scan().to_arrow()


@pytest.mark.rest
def test_a_table_that_is_made_again_has_the_rows_of_today(tmp_path: Path) -> None:
    source = flat_folder(tmp_path / "source")
    table = converted(source, tmp_path / "table")
    assert table.get(["k011"])["fare"].to_pylist() == [16.5]
    lakebed.drop(table.uri)
    pq.write_table(rows_of(range(10, 20), "x", 4), source / "part-1.parquet", row_group_size=5)
    table = converted(source, tmp_path / "table")
    assert table.get(["k011"])["fare"].to_pylist() == [20.5]
    assert rows_by_key(table)["k019"]["fare"] == 32.5


def test_a_source_folder_may_move_with_its_name_in_the_properties(tmp_path: Path) -> None:
    table = converted(flat_folder(tmp_path / "source"), tmp_path / "table")
    expected = rows_by_key(table)
    (tmp_path / "source").rename(tmp_path / "moved")
    properties = tmp_path / "table" / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("/source", "/moved"))
    assert rows_by_key(lakebed.open(table.uri)) == expected


REFUSED = {
    "both files and folders have the columns day": {"day=a/x.parquet": rows_of([1], "a")},
    "folder whose name has no column=value": {"2024/x.parquet": rows_of([1])},
    "of type uint32": {"x.parquet": pa.table({"id": ["a"], "ts": pa.array([1], pa.uint32())})},
    "in other files": {
        "x.parquet": pa.table({"id": ["a"], "ts": pa.array([1], pa.int32())}),
        "y.parquet": pa.table({"id": ["b"], "ts": pa.array([1], pa.int64())}),
    },
    "is no Parquet file": {"x.jsonl": None},
}


@pytest.mark.parametrize("why", REFUSED)
def test_files_that_cannot_stay_are_refused_with_the_copy_as_way_out(why: str, tmp_path: Path) -> None:
    for name, rows in REFUSED[why].items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"id": 1, "ts": 1}\n') if rows is None else pq.write_table(rows, path)
    with pytest.raises(UnsupportedFeature, match=why) as caught:
        converted(tmp_path / "source", tmp_path / "table")
    assert "full copy" in caught.value.hint
    assert not (tmp_path / "table" / ".hoodie").exists()


@pytest.mark.rest
def test_options_that_need_rows_of_their_own_are_refused(tmp_path: Path) -> None:
    source = hive_folder(tmp_path / "source")
    with pytest.raises(InvalidOption, match="need folders of their own"):
        converted(source, source / "table")
    with pytest.raises(InvalidOption, match="index that gives rows their files"):
        converted(source, tmp_path / "table", index="bucket")
    with pytest.raises(UnsupportedFeature, match="partition_by is"):
        converted(source, tmp_path / "table", partition_by="rider")
    with pytest.raises(InvalidRecord, match="rows without a key"):
        converted(source, tmp_path / "table", key="rider")
    with pytest.raises(InvalidRecord, match=r"the key is not unique: .* make a copy, without in_place"):
        converted(source, tmp_path / "table", key="day")
    table = converted(source, tmp_path / "table")
    with pytest.raises(UnsupportedFeature, match="record index"):
        table.indexes.create("record_index")
    with pytest.raises(UnsupportedFeature, match="source files"):
        table.erase(["k001"])


# -- Delta Lake and Iceberg


def delta(path: Path, rows: pa.Table, **options: Any) -> Any:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(path), rows, **options)
    return deltalake.DeltaTable(str(path))


def test_a_delta_table_stays_where_it_is(tmp_path: Path) -> None:
    first = pa.concat_tables([rows_of(range(4), "a"), rows_of(range(4, 7), "c")])
    delta(tmp_path / "source", first, partition_by=["day"])
    source = delta(tmp_path / "source", rows_of([7], "a"), partition_by=["day"], mode="append")
    source.delete("id = 'k002'")  # writes the file again: its older version is no file of the table
    before = digests(tmp_path / "source")
    table = converted(tmp_path / "source", tmp_path / "table")
    expected = {row["id"]: row for row in [*first.to_pylist(), *rows_of([7], "a").to_pylist()]}
    del expected["k002"]
    assert rows_by_key(table) == expected
    assert table.partitions == ("day=a", "day=c")
    table.upsert(rows_of([1], "a", 50))
    assert rows_by_key(table) == {**expected, "k001": rows_of([1], "a", 50).to_pylist()[0]}
    assert digests(tmp_path / "source") == before
    delta(tmp_path / "source", rows_of([8], "c d"), partition_by=["day"], mode="append")
    with pytest.raises(UnsupportedFeature, match=r"folder of .*c%20d.* would be the partition path 'day=c d'"):
        converted(tmp_path / "source", tmp_path / "more")


def test_a_delta_table_whose_older_files_lack_a_column_is_refused(tmp_path: Path) -> None:
    delta(tmp_path / "source", pa.table({"id": ["a"], "ts": [1]}))
    delta(tmp_path / "source", pa.table({"id": ["b"], "ts": [1], "more": ["x"]}), mode="append", schema_mode="merge")
    with pytest.raises(UnsupportedFeature, match="different columns") as caught:
        converted(tmp_path / "source", tmp_path / "table")
    assert "full copy" in caught.value.hint
    assert lakebed.convert(str(tmp_path / "source"), str(tmp_path / "copy"), key="id").count() == 2


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    module = pytest.importorskip("pyiceberg.catalog.sql")
    made = module.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/warehouse")
    made.create_namespace("n")
    yield made
    made.close()


def test_an_iceberg_table_stays_where_it_is_unless_its_rows_are_not_those_of_files(
    catalog: Any, tmp_path: Path
) -> None:
    rows = rows_of(range(5))
    source = catalog.create_table("n.t", rows.schema)
    source.append(rows)
    source.append(rows_of([9]))
    table = converted(source, tmp_path / "table")
    assert rows_by_key(table) == {row["id"]: row for row in [*rows.to_pylist(), *rows_of([9]).to_pylist()]}
    assert table.partitions == ("",)
    with source.update_schema() as update:
        update.rename_column("rider", "driver")
    with pytest.raises(UnsupportedFeature, match="differ in the columns driver, rider"):
        converted(catalog.load_table("n.t"), tmp_path / "renamed")


def test_an_iceberg_table_with_folders_by_an_identity_column_keeps_its_partition_paths(
    catalog: Any, tmp_path: Path
) -> None:
    rows = rows_of(range(6), "a")
    source = catalog.create_table("n.p", rows.schema)
    with source.update_spec() as update:
        update.add_identity("day")
    source.append(rows)
    with pytest.raises(UnsupportedFeature, match="both files and folders have the columns day"):
        converted(catalog.load_table("n.p"), tmp_path / "table")

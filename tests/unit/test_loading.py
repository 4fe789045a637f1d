"""A table is created and filled in one call: from rows, files, and Delta Lake and Iceberg tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import InvalidOption, InvalidRecord, LakebedError, TableExists, TableNotFound, UnsupportedFeature
from lakebed.inputs import base

ROWS = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", "Oslo"], "fare": [9.5, 12.0, 7.25]})


def stored(table: lakebed.Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


# -- load


@pytest.mark.parametrize("form", ["table", "stream", "file", "dicts", "dataset"])
def test_a_table_is_loaded_from_whatever_is_data(tmp_path: Path, form: str) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    data: dict[str, Any] = {
        "table": ROWS,
        "stream": ROWS.to_reader(),
        "file": tmp_path / "rows.parquet",
        "dicts": ROWS.to_pylist(),
        "dataset": pa.dataset.dataset(tmp_path),
    }
    t = lakebed.load(f"memory://loading/{form}", data[form], key="id", partition_by="city", ordering="fare")
    assert stored(t) == ROWS.to_pylist()
    assert t.partitions == ("Oslo", "Rome")
    assert t.loaded is not None
    assert t.loaded.inserted == 3
    assert repr(t).endswith(str(t.loaded))
    assert repr(lakebed.open(t.uri)) == repr(t).partition("\n")[0]


def test_a_loaded_table_takes_updates_and_a_second_load_is_refused() -> None:
    t = lakebed.load("memory://loading/updates", ROWS, key="id", index="bucket", buckets=2)
    t.upsert([{"id": 1, "city": "Oslo", "fare": 0.0}])
    with pytest.raises(TableExists):
        lakebed.load("memory://loading/updates", ROWS, key="id")
    assert [row["fare"] for row in stored(t)] == [0.0, 12.0, 7.25]


def test_the_commit_of_a_load_has_its_message_and_metadata(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    note: dict[str, Any] = {"message": "from the old system", "metadata": {"ticket": "LK-7"}}
    loaded = lakebed.load(str(tmp_path / "loaded"), ROWS, key="id", **note)
    copy = lakebed.convert(str(tmp_path / "rows.parquet"), str(tmp_path / "copy"), key="id", **note)
    pq.write_to_dataset(ROWS, str(tmp_path / "in"), ["city"])
    in_place = lakebed.convert(str(tmp_path / "in"), str(tmp_path / "over"), in_place=True, key="id", **note)
    clones = [loaded.clone(str(tmp_path / name), deep=deep, **note) for name, deep in (("near", False), ("far", True))]
    for table in (loaded, copy, in_place, *clones):
        (version,) = lakebed.open(table.uri).versions
        assert (version.message, json.loads(version.metadata)) == ("from the old system", {"ticket": "LK-7"}), table.uri
    assert [version.message for version in lakebed.load("memory://loading/plain", ROWS, key="id").versions] == [None]


@pytest.mark.parametrize("bound", [0, 1 << 30])
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_rows_of_one_key_are_refused_and_no_table_is_left(
    monkeypatch: pytest.MonkeyPatch, index: str, bound: int
) -> None:
    monkeypatch.setattr(base, "TABLE_BYTES", bound)
    monkeypatch.setattr("lakebed.loading._COMPARED_ROWS", 1)
    uri = f"memory://loading/twice-{index}-{bound}"
    twice = pa.concat_tables([ROWS, ROWS.slice(0, 1)])
    with pytest.raises(InvalidRecord, match="2 rows have the key '1' in partition path 'Oslo'") as raised:
        lakebed.load(uri, twice, key="id", partition_by="city", index=index)
    assert raised.value.context["record_key"] == "1"
    assert not lakebed.list_tables(uri, depth=0)
    combine = {"hoodie.combine.before.insert": True}
    t = lakebed.load(uri, twice, key="id", partition_by="city", index=index, options=combine)
    assert stored(t) == ROWS.to_pylist()


def test_one_key_in_two_partitions_is_two_rows() -> None:
    rows = [{"id": 1, "city": "Oslo"}, {"id": 1, "city": "Rome"}]
    t = lakebed.load("memory://loading/partitions", rows, key="id", partition_by="city")
    assert t.count() == 2
    with pytest.raises(InvalidRecord, match="2 rows have the key '1'"):
        lakebed.load("memory://loading/no-partitions", rows, key="id")


def test_rows_without_a_key_are_loaded_with_generated_keys() -> None:
    assert lakebed.load("memory://loading/generated", [{"n": 1}, {"n": 1}]).count() == 2


def test_after_an_error_in_the_middle_there_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "TABLE_BYTES", 0)
    rows = pa.table({"id": ["a", "b", None], "n": [1, 2, 3]})
    for data in (rows, rows.to_reader(max_chunksize=1)):
        with pytest.raises(InvalidRecord, match="null or empty record key"):
            lakebed.load("memory://loading/failed", data, key="id")
        assert not lakebed.list_tables("memory://loading/failed", depth=0)
    assert lakebed.load("memory://loading/failed", rows.slice(0, 2), key="id").count() == 2


def test_rows_of_another_process_stay_where_a_load_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "memory://loading/shared"
    written = lakebed.Table.bulk_insert

    def beside(table: lakebed.Table, *given: Any, **words: Any) -> Any:
        done = written(table, *given, **words)
        lakebed.open(uri).upsert(pa.table({"id": [9], "v": ["other"]}))
        return done

    monkeypatch.setattr(lakebed.Table, "bulk_insert", beside)
    with pytest.raises(LakebedError, match="the table has 3"):
        lakebed.load(uri, pa.table({"id": [1, 2], "v": ["a", "b"]}), key="id")
    assert sorted(lakebed.open(uri).scan(["id"]).to_arrow()["id"].to_pylist()) == [1, 2, 9]


def test_a_stream_that_breaks_leaves_no_table() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        lakebed.load("memory://loading/broken", pa.RecordBatchReader.from_batches(ROWS.schema, batches()), key="id")
    assert not lakebed.list_tables("memory://loading/broken", depth=0)


@pytest.mark.rest
def test_a_load_that_was_killed_does_not_stop_the_next_one(tmp_path: Path) -> None:
    script = f"""
import os, lakebed
from lakebed.handles import bulk_writer
bulk_writer.BulkWriter.__call__ = lambda *given: os._exit(9)
lakebed.load({str(tmp_path / "t")!r}, [{{"id": 1}}], key="id", index="simple")
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 9
    assert lakebed.list_tables(str(tmp_path / "t"), depth=0)
    assert lakebed.load(str(tmp_path / "t"), [{"id": 2}], key="id").scan().to_arrow()["id"].to_pylist() == [2]
    lakebed.create(str(tmp_path / "empty"), pa.schema([("id", pa.int64())]), key="id")
    with pytest.raises(TableExists):  # one that was made on purpose
        lakebed.load(str(tmp_path / "empty"), [{"id": 2}], key="id")


def test_the_command_line_loads_and_converts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_to_dataset(ROWS, str(tmp_path / "in"), ["city"])
    arguments = [str(tmp_path / "loaded"), str(tmp_path / "in"), "--key", "id", "-o", "json"]
    assert invoke(["load", *arguments, "--partition-by", "city", "--index", "bucket", "--buckets", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3
    assert invoke(["load", *arguments]) == TableExists.exit_code
    capsys.readouterr()
    assert invoke(["convert", str(tmp_path / "in"), str(tmp_path / "copy"), "--key", "id", "--type", "mor"]) == 0
    assert "rows" in capsys.readouterr().out
    for name in ("loaded", "copy"):
        t = lakebed.open(str(tmp_path / name))
        assert [{**row} for row in stored(t)] == ROWS.select(["id", "city", "fare"]).to_pylist()
        assert t.partitions == ("Oslo", "Rome")


# -- convert: files


def test_a_folder_is_copied_with_its_partition_columns(tmp_path: Path) -> None:
    pq.write_to_dataset(ROWS, str(tmp_path), ["city"])
    t = lakebed.convert(str(tmp_path), "memory://loading/folder", key="id", type="mor")
    assert t.partitions == ("Oslo", "Rome")
    assert stored(t) == ROWS.to_pylist()
    other = lakebed.convert(tmp_path, "memory://loading/folder-2", key="id", partition_by="fare")
    assert other.properties["hoodie.table.partition.fields"] == "fare"


def test_moments_of_old_parquet_files_are_moments(tmp_path: Path) -> None:
    at = datetime(2024, 7, 1, 12, tzinfo=UTC)
    moments, locals_ = pa.array([at], pa.timestamp("us", "UTC")), pa.array([at.replace(tzinfo=None)])
    rows = pa.table({"id": [1], "at": moments, "local": locals_})
    pq.write_table(rows.select(["id", "at"]), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    t = lakebed.convert(str(tmp_path), "memory://loading/int96", key="id")
    assert stored(t) == rows.select(["id", "at"]).to_pylist()
    pq.write_table(rows, tmp_path / "a.parquet")
    assert stored(lakebed.convert(str(tmp_path), "memory://loading/micros", key="id")) == rows.to_pylist()


def test_values_that_cannot_be_converted_are_refused(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    with pytest.raises(InvalidOption, match="there is no uri"):
        lakebed.convert(str(tmp_path), key="id")
    with pytest.raises(InvalidOption, match="not Table"):
        lakebed.convert(ROWS, "memory://loading/rows", key="id")
    with pytest.raises(InvalidOption, match="there is no file or folder"):
        lakebed.convert(str(tmp_path / "nothing"), "memory://loading/nothing", key="id")
    with pytest.raises(TableNotFound, match=r"lakebed\.load\(new_uri, .*, key=\.\.\.\)"):
        lakebed.open(str(tmp_path))


# -- convert: Delta Lake


def delta(path: Path, rows: pa.Table, **options: Any) -> Any:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(path), rows, **options)
    return deltalake.DeltaTable(str(path))


MOMENT = datetime(2024, 7, 1, 12, tzinfo=UTC)
RICH = pa.table(
    {
        "id": [1, 2, 3],
        "city": ["São Paulo", "Rome", None],
        "Day": [date(2024, 1, 31), date(2024, 2, 29), date(2024, 1, 31)],
        "at": pa.array([MOMENT] * 3, pa.timestamp("us", "UTC")),
        "local": pa.array([MOMENT.replace(tzinfo=None)] * 3, pa.timestamp("us")),
        "price": pa.array([1, 2, None], pa.decimal128(9, 2)),
        "tags": [["a"], [], None],
    }
)


@pytest.mark.parametrize("bound", [0, 1 << 30])
def test_a_delta_table_is_copied_without_what_it_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    monkeypatch.setattr(base, "TABLE_BYTES", bound)
    source = delta(tmp_path, RICH, partition_by=["city", "Day"])
    delta(tmp_path, RICH.slice(0, 1).set_column(0, "id", [[4]]), mode="append")
    source.update_incremental()
    source.delete("id = 2")
    t = lakebed.convert(str(tmp_path), f"memory://loading/delta-{bound}", key="id")
    assert stored(t) == [RICH.to_pylist()[0], RICH.to_pylist()[2], {**RICH.to_pylist()[0], "id": 4}]
    flat = [name for name in RICH.column_names if name != "tags"]
    assert [t.schema.field(name).type for name in flat] == [RICH.schema.field(name).type for name in flat]
    assert t.properties["hoodie.table.partition.fields"] == "city,Day"
    assert t.loaded is not None
    assert t.loaded.rows == 3


def test_a_delta_table_has_null_in_columns_that_came_later(tmp_path: Path) -> None:
    delta(tmp_path, pa.table({"id": [1]}))
    delta(tmp_path, pa.table({"id": [2], "more": ["x"]}), mode="append", schema_mode="merge")
    t = lakebed.convert(str(tmp_path), "memory://loading/delta-columns", key="id")
    assert stored(t) == [{"id": 1, "more": None}, {"id": 2, "more": "x"}]


def mapped_delta(folder: Path, rows: pa.Table, mode: str) -> None:
    """A table whose columns id and name have the physical names col-1 and col-2, over one file with these rows."""
    pytest.importorskip("deltalake")
    pq.write_table(rows, folder / "a.parquet")
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {"delta.columnMapping.id": at, "delta.columnMapping.physicalName": f"col-{at}"},
        }
        for at, (name, kind) in enumerate((("id", "long"), ("name", "string")), 1)
    ]
    log = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "t",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "2"},
                "createdTime": 1,
            }
        },
        {
            "add": {
                "path": "a.parquet",
                "partitionValues": {},
                "size": (folder / "a.parquet").stat().st_size,
                "modificationTime": 1,
                "dataChange": True,
                "stats": '{"numRecords": 2}',
            }
        },
    ]
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, log)))


def with_ids(*names: str) -> pa.Table:
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(at)})
        for at, (name, kind) in enumerate(zip(names, (pa.int64(), pa.string()), strict=False), 1)
    ]
    return pa.table([[1, 2], ["a", "b"]][: len(names)], pa.schema(fields))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_of_a_delta_table_have_their_names_of_today(tmp_path: Path, mode: str) -> None:
    """With column mapping files have other names than the table."""
    mapped_delta(tmp_path, with_ids("col-1", "col-2"), mode)
    t = lakebed.convert(str(tmp_path), f"memory://loading/delta-mapped-{mode}", key="id")
    assert stored(t) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_a_column_that_a_file_of_a_delta_table_lacks_is_null_by_id_as_by_name(tmp_path: Path) -> None:
    mapped_delta(tmp_path, with_ids("col-1"), "id")
    t = lakebed.convert(str(tmp_path), "memory://loading/delta-lacking", key="id")
    assert stored(t) == [{"id": 1, "name": None}, {"id": 2, "name": None}]


@pytest.mark.parametrize("names", [("id", "name"), ("col-1", "name")])
def test_a_delta_table_whose_files_have_columns_by_their_ids_alone_is_refused(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    mapped_delta(tmp_path, with_ids(*names), "id")
    with pytest.raises(
        UnsupportedFeature, match=r"finds columns by their ids, and its file a\.parquet has other names"
    ):
        lakebed.convert(str(tmp_path), "memory://loading/delta-by-id", key="id")
    assert not lakebed.list_tables("memory://loading/delta-by-id", depth=0)


def test_a_delta_table_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    source = delta(tmp_path, RICH)
    for uri in source.file_uris():
        os.unlink(uri.removeprefix("file://"))
    with pytest.raises(UnsupportedFeature, match="cannot be read by deltalake"):
        lakebed.convert(str(tmp_path), "memory://loading/delta-broken", key="id")
    assert not lakebed.list_tables("memory://loading/delta-broken", depth=0)
    with pytest.raises(TableNotFound, match=r"lakebed\.convert\(.*, new_uri, key=\.\.\.\)"):
        lakebed.open(str(tmp_path))


# -- convert: Iceberg


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    made = sql.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("n")
    yield made
    made.close()


def test_an_iceberg_table_is_copied_without_what_it_deleted(catalog: Any) -> None:
    source = catalog.create_table("n.t", RICH.schema)
    with source.update_spec() as spec:
        spec.add_identity("city")
    source.append(RICH)
    source.append(RICH.slice(0, 1).set_column(0, "id", [[4]]))
    source.delete("id = 2")
    with source.update_schema() as change:
        change.rename_column("Day", "day")
        change.delete_column("price")
    source.append(RICH.slice(1, 1).rename_columns({"Day": "day"}).drop_columns(["price"]).set_column(0, "id", [[5]]))
    expected = RICH.rename_columns({"Day": "day"}).drop_columns(["price"]).to_pylist()
    rows = [expected[0], expected[2], {**expected[0], "id": 4}, {**expected[1], "id": 5}]
    for name, given in (("table", source), ("folder", source.location()), ("file", source.metadata_location)):
        t = lakebed.convert(given, f"memory://loading/iceberg-{name}", key="id")
        assert stored(t) == rows
        assert t.properties["hoodie.table.partition.fields"] == "city"
        assert [t.schema.field(n).type for n in ("id", "day", "at", "local")] == [
            *(pa.int64(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")),
        ]


def test_partitioning_by_an_expression_is_not_taken_over_and_a_warning_names_it(
    catalog: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from pyiceberg.transforms import MonthTransform

    source = catalog.create_table("n.empty", RICH.schema)
    with source.update_spec() as spec:
        spec.add_field("at", MonthTransform(), "month")
    t = lakebed.convert(source, "memory://loading/iceberg-empty", key="id")
    assert t.schema.names == RICH.column_names
    assert (t.count(), t.properties.get("hoodie.table.partition.fields", "")) == (0, "")
    assert "partitioned by month(at), which the copy is not" in caplog.text


def test_the_metadata_file_of_the_greatest_number_is_the_newest(tmp_path: Path) -> None:
    from lakebed.inputs.other_tables import newest_metadata

    (tmp_path / "metadata").mkdir()
    for name in ("00009-a", "00010-b", "00002-c"):
        (tmp_path / "metadata" / f"{name}.metadata.json").touch()
    assert newest_metadata(str(tmp_path), {}).endswith("00010-b.metadata.json")
    (tmp_path / "metadata" / "00010-d.metadata.json").touch()
    with pytest.raises(InvalidOption, match="two metadata files of number 10"):
        newest_metadata(str(tmp_path), {})
    (tmp_path / "metadata" / "v2.metadata.json").touch()
    (tmp_path / "metadata" / "version-hint.text").write_text("2")
    assert newest_metadata(str(tmp_path), {}).endswith("v2.metadata.json")


def test_a_source_with_another_number_of_rows_than_it_states_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.inputs.other_tables import DeltaTable

    delta(tmp_path, RICH)
    monkeypatch.setattr(DeltaTable, "rows", 7)
    with pytest.raises(LakebedError, match="the source has 7 rows, and 3 were read"):
        lakebed.convert(str(tmp_path), "memory://loading/delta-count", key="id")
    assert not lakebed.list_tables("memory://loading/delta-count", depth=0)

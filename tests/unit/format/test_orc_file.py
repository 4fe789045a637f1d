"""ORC base files of real Hudi: every kind of read, rows appended to logs, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lakebed.format.base_file import read_base_file, read_footer
from lakebed.format.file_contents import row_batches
from lakebed.storage import open_storage
from support.format_tables import expected, unpacked
from support.same_rows import assert_same_rows

COMPLETED = "20261128182655622"
NAME = "p/f-0_0-0-0_20240101000000000.orc"


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    return lakebed.open(unpacked("orc_mor", tmp_path))


def row(key: str, ts: int, **values: Any) -> dict[str, Any]:
    return {"id": key, "name": "new", "price": 7.0, "ts": ts, "part": f"p{int(key[-1], 36) % 2}", **values}


def stored(rows: pa.Table, stripe_size: int = 1 << 20) -> Any:
    storage = open_storage("memory://orc/file")
    sink = io.BytesIO()
    with orc.ORCWriter(sink, stripe_size=stripe_size) as writer:
        writer.write(rows)
    storage.write(NAME, sink.getvalue())
    return storage


def test_a_table_of_hudi_has_the_rows_that_hudi_reads(table: lakebed.Table) -> None:
    rows = expected("orc_mor")
    assert_same_rows(table.scan(rows.column_names).to_arrow(), rows)
    assert table.scan().to_arrow().schema.types == [pa.string(), pa.string(), pa.float64(), pa.int64(), pa.string()]
    assert table.indexes.verify().ok


def test_keys_are_found_in_the_base_file_and_in_the_log(table: lakebed.Table) -> None:
    rows = table.get(["k001", "k005", "nobody"]).sort_by("id")
    assert rows.select(["id", "name", "price"]).to_pylist() == [
        {"id": "k001", "name": "new", "price": 1.5},
        {"id": "k005", "name": "n5", "price": 5.5},
    ]


@pytest.mark.parametrize(
    ("where", "count"), [("price < 1", 1), ("id = 'k000'", 1), ("price > 30 AND id <> 'k035'", 9), ("part = 'p1'", 20)]
)
def test_conditions_hold_although_hudi_takes_partition_statistics_of_logs_alone(
    where: str, count: int, table: lakebed.Table
) -> None:
    assert table.scan(where=where).to_arrow().num_rows == count


def test_older_views_changes_and_the_base_files_alone(table: lakebed.Table) -> None:
    first, update = "20261128182618183", "20261128182700074"
    assert table.scan(as_of=first).to_arrow().num_rows == 40
    assert table.scan(where="name = 'new'", as_of=first).to_arrow().num_rows == 0
    assert table.scan(where="name = 'new'", as_of=update).to_arrow().num_rows == 2
    assert table.changes("earliest").to_arrow().num_rows == 40
    assert sorted(table.changes(COMPLETED).to_arrow()["id"].to_pylist()) == ["k001", "k002"]
    base_files = table.scan(where="name = 'new'", query="read_optimized")
    assert base_files.to_arrow().num_rows == 0


def test_updates_new_keys_and_deletes_go_to_log_files(table: lakebed.Table, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.rglob("*.orc"))
    table.upsert([row("k001", 5000), row("new1", 1), row("new2", 1, part="p9")])
    table.insert([row("new3", 1)])
    table.update({"name": "'changed'"}, where="id = 'k007'")
    assert table.delete(["k002"]).deleted == 1
    rows = {r["id"]: r for r in table.scan().to_arrow().to_pylist()}
    assert len(rows) == 42
    assert rows["k001"] == row("k001", 5000)
    assert rows["new2"] == row("new2", 1, part="p9")
    assert rows["k007"]["name"] == "changed"
    assert "k002" not in rows
    assert sorted(path.name for path in tmp_path.rglob("*.orc")) == before
    assert not list((tmp_path / "orc_mor").glob("part=*/*.parquet"))
    assert table.indexes.verify().ok


def test_an_overwrite_and_a_deleted_partition_write_no_base_file(table: lakebed.Table, tmp_path: Path) -> None:
    table.insert_overwrite([row("k100", 1, part="p0")])
    assert {r["id"] for r in table.scan(where="part = 'p0'").to_arrow().to_pylist()} == {"k100"}
    table.delete_partitions(["part=p1"])
    assert table.scan().to_arrow()["id"].to_pylist() == ["k100"]
    assert not list((tmp_path / "orc_mor").glob("part=*/*.parquet"))


@pytest.mark.parametrize("operation", ["compact", "cluster", "bulk_insert", "erase"])
def test_what_would_rewrite_base_files_is_refused_by_name(operation: str, table: lakebed.Table) -> None:
    calls = {
        "compact": lambda: table.maintenance.compact(),
        "cluster": lambda: table.maintenance.cluster(),
        "bulk_insert": lambda: table.bulk_insert([row("new1", 1)]),
        "erase": lambda: table.erase(["k005"]),
    }
    with pytest.raises(UnsupportedFeature, match=f"ORC base files.*{operation} is refused") as refused:
        calls[operation]()
    assert "new table with Parquet base files" in refused.value.hint
    assert table.scan().to_arrow().num_rows == 40


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_published_list_is_refused(form: str, table: lakebed.Table) -> None:
    with pytest.raises(UnsupportedFeature, match="not a Parquet file"):
        table.catalogs.publish(form)


@pytest.mark.parametrize("operation", ["upsert", "insert", "delete", "compact"])
def test_copy_on_write_tables_are_read_and_not_written(operation: str, tmp_path: Path) -> None:
    uri = unpacked("orc_mor", tmp_path)
    properties = Path(uri) / ".hoodie" / "hoodie.properties"
    text = properties.read_text()
    properties.write_text(text.replace("hoodie.table.type=MERGE_ON_READ", "hoodie.table.type=COPY_ON_WRITE"))
    table = lakebed.open(uri)
    assert table.get(["k005"])["price"].to_pylist() == [5.5]
    calls = {
        "upsert": lambda: table.upsert([row("k001", 5000)]),
        "insert": lambda: table.insert([row("new1", 1)]),
        "delete": lambda: table.delete(["k001"]),
        "compact": lambda: table.maintenance.cluster(),
    }
    with pytest.raises(UnsupportedFeature, match="written by rewriting them"):
        calls[operation]()


def test_no_table_is_made_with_orc_base_files(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string())])
    with pytest.raises(InvalidOption, match="base_format='orc' is not written"):
        lakebed.create(str(tmp_path / "t"), schema, key="id", base_format="orc")
    with pytest.raises(UnsupportedFeature, match="ORC is not supported"):
        lakebed.create(str(tmp_path / "t"), schema, key="id", properties={"hoodie.table.base.file.format": "ORC"})
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("name", "why"), [("HFILE", "Hudi cannot read by SQL either"), ("AVRO", "of a format that lakebed does not read")]
)
def test_tables_of_other_formats_are_not_opened(name: str, why: str, tmp_path: Path) -> None:
    uri = unpacked("orc_mor", tmp_path)
    properties = Path(uri) / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("base.file.format=ORC", f"base.file.format={name}"))
    with pytest.raises(UnsupportedFeature, match=why):
        lakebed.open(uri).scan().to_arrow()


def test_stripes_take_the_place_of_row_groups() -> None:
    rows = pa.table({"_hoodie_record_key": [f"k{n:06d}" for n in range(200_000)], "n": range(200_000)})
    storage = stored(rows, 1 << 16)
    footer = read_footer(storage, NAME)
    assert footer.rows == 200_000
    assert footer.row_groups > 1
    assert footer.group_starts[-1] == 200_000
    assert footer.key_range is None
    batches = list(read_base_file(storage, NAME, columns=["n"], batch_rows=10_000))
    assert max(batch.num_rows for batch in batches) <= 10_000
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(200_000))
    start, end = footer.group_starts[1:3]
    (second,) = [pa.Table.from_batches(read_base_file(storage, NAME, columns=["n"], row_groups=[1]))]
    assert second["n"].to_pylist() == list(range(start, end))
    assert sum(batch.num_rows for batch in read_base_file(storage, NAME, columns=[])) == 200_000
    assert pa.Table.from_batches(row_batches(storage.read(NAME), NAME)).equals(rows)


def test_times_of_files_without_a_schema_of_hudi_are_in_microseconds() -> None:
    at = pa.array([0, -1_500_001, None], pa.timestamp("us", "UTC"))
    storage = stored(pa.table({"at": at, "day": pa.array([1, None, 3], pa.date32())}))
    rows = pa.Table.from_batches(read_base_file(storage, NAME))
    assert rows.schema.types == [pa.timestamp("us", "UTC"), pa.date32()]
    assert rows["at"].combine_chunks().equals(at)


@pytest.mark.parametrize("damage", ["cut", "middle", "size"])
def test_a_broken_file_is_named(damage: str) -> None:
    storage = stored(pa.table({"a": range(1000)}))
    data = storage.read(NAME)
    size = len(data)
    if damage == "cut":
        storage.write(NAME, data[:-20])
        size -= 20
    elif damage == "middle":
        storage.write(NAME, data[:40] + bytes(80) + data[120:])
    else:
        size += 1
    with pytest.raises(CorruptFile, match=f"{NAME} cannot be read as ORC"):
        list(read_base_file(storage, NAME, size))

"""Tables with blobs: every verb, the type in each statement, and tables that real Hudi wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import SchemaConflict
from lakebed.format.parquet_writer import BaseFileWriter, ParquetSettings
from lakebed.schema.logical_types import HUDI_TYPE
from lakebed.storage.local import LocalStorage
from support.blob_tables import SCHEMA, blob_rows, blob_table, blobs_by_key, container, data_of
from support.vector_tables import described, expected, unpacked

KINDS = ["cow", "mor"]


def model_of(numbers: range) -> dict[str, bytes | None]:
    return {f"k{n:03d}": data_of(n) if n % 10 else None for n in numbers}


def is_blob_column(table: lakebed.Table, name: str = "pic") -> bool:
    return (table.schema.field(name).metadata or {}).get(HUDI_TYPE) == b"BLOB"


@pytest.mark.parametrize("kind", KINDS)
def test_each_verb_keeps_the_blobs(kind: str) -> None:
    table = blob_table(kind, properties={"hoodie.table.cdc.enabled": "true"})
    model = model_of(range(40))
    first = table.timeline.to_arrow()["time"].to_pylist()[-1]
    assert blobs_by_key(table) == model
    table.upsert(blob_rows(range(35, 45), ts=2))
    model |= model_of(range(35, 45))
    new = lakebed.blob(data=b"new")
    table.upsert([{"id": "k003", "pic": new, "name": "n", "ts": 3, "part": "p1"}])
    table.upsert([{"id": "k004", "name": "renamed", "ts": 3, "part": "p0"}], partial=True)
    table.insert([{"id": "new", "pic": None, "name": "n", "ts": 1, "part": "p0"}])
    table.delete(["k005"])
    table.update({"name": "'other'"}, where="id = 'k006'")
    table.update({"pic": "NULL"}, where="id = 'k007'")
    model |= {"k003": b"new", "new": None, "k007": None}
    del model["k005"]
    source = pa.table({"id": ["k008", "k999"], "pic": lakebed.blob(data=[b"8", b"9"]), "part": ["p0", "p1"]})
    merge = table.merge(source).when_matched_update({"pic": "s.pic"})
    merge.when_not_matched_insert({"id": "s.id", "pic": "s.pic", "part": "s.part", "ts": "1"}).execute()
    model |= {"k008": b"8", "k999": b"9"}
    assert blobs_by_key(table) == model
    assert blobs_by_key(table, as_of=first) == model_of(range(40))
    changes = table.changes(first).to_arrow()
    changed = dict(zip(changes["id"].to_pylist(), table.read_blob(changes, "pic"), strict=True))
    assert changed["k003"] == b"new"
    table.maintenance.compact() if kind == "mor" else table.maintenance.cluster()
    assert blobs_by_key(table) == model
    assert is_blob_column(table)
    assert "pic" not in {name for index in table.indexes.list() for name in index.fields}
    assert not table.indexes.verify().differences
    table.insert_overwrite(blob_rows(range(2)), "table")
    assert blobs_by_key(table) == model_of(range(2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [pa.binary(), pa.large_binary()])
def test_data_with_other_declarations_of_null_leave_the_type(kind: str, data: pa.DataType) -> None:
    table = blob_table(kind)
    reference = pa.struct([(f.name, f.type) for f in lakebed.BLOB.field("reference").type])
    loose = pa.struct([("reference", reference), ("data", data), ("type", pa.large_string())])
    row = {"id": ["k001"], "name": ["n"], "ts": [9], "part": ["p1"]}
    table.upsert(pa.table({**row, "pic": pa.array([lakebed.blob(data=b"loose")], loose)}))
    assert blobs_by_key(table)["k001"] == b"loose"
    assert is_blob_column(table)
    assert table.schema.field("pic").type.equals(lakebed.BLOB)
    for other in (pa.array([b"bytes"]), pa.array([{"type": "INLINE", "data": b"a"}]), pa.array(["text"])):
        with pytest.raises(SchemaConflict, match="pic"):
            table.upsert(pa.table({**row, "pic": other}))


def test_the_type_comes_by_each_way() -> None:
    uri = "memory://blobs/ways"
    create = "create table t (id string, a blob) using lakebed tblproperties (primaryKey = 'id')"
    lakebed.sql(create, tables={"t": uri})
    table = lakebed.open(uri)
    lakebed.sql("alter table t add columns (b BLOB)", tables={"t": table})
    table.columns.add("c", "blob")
    table.columns.add("d", lakebed.BLOB)
    assert [column.type for column in table.columns] == ["STRING", *["BLOB"] * 4]
    table.upsert([{"id": "x", **{name: lakebed.blob(data=name.encode()) for name in "abcd"}}])
    assert [next(table.read_blob(["x"], name)) for name in "abcd"] == [b"a", b"b", b"c", b"d"]
    loaded = lakebed.load("memory://blobs/loaded", pa.table({"id": [1], "p": lakebed.blob(data=[b"p"])}), key="id")
    noted = pa.field("p", pa.struct([(f.name, f.type) for f in lakebed.BLOB]), metadata={"hudi_type": "BLOB"})
    created = lakebed.create("memory://blobs/noted", pa.schema([("id", pa.int64()), noted]), key="id")
    assert is_blob_column(loaded, "p")
    assert is_blob_column(created, "p")


def test_two_columns_of_one_logical_type_are_logged() -> None:
    columns = {"v": lakebed.vector(2), "b": lakebed.BLOB, "w": lakebed.vector(2), "c": lakebed.BLOB}
    schema = pa.schema([("id", pa.string()), *columns.items()])
    table = lakebed.create("memory://blobs/two", schema, key="id", type="mor", index="bucket", buckets=1)
    for n in (1, 2):
        row = {"v": [n, 0], "w": [0, n], "b": lakebed.blob(data=b"b%d" % n), "c": lakebed.blob(data=b"c%d" % n)}
        table.upsert([{"id": "x", **row}])
    (row,) = table.scan().to_arrow().to_pylist()
    assert (row["v"], row["w"], row["b"]["data"], row["c"]["data"]) == ([2, 0], [0, 2], b"b2", b"c2")


@pytest.mark.parametrize(
    "words", [{"key": "pic"}, {"key": "id", "partition_by": "pic"}, {"key": "id", "ordering": "pic"}]
)
def test_a_blob_is_no_key_no_partition_and_no_order(words: dict[str, Any]) -> None:
    with pytest.raises(lakebed.LakebedError, match="pic"):
        lakebed.create(f"memory://blobs/no/{'-'.join(words)}", SCHEMA, **words)


@pytest.mark.parametrize("how", ["partial", "update"])
def test_a_merge_on_read_upsert_of_another_column_copies_no_blob(tmp_path: Path, how: str) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", type="mor", index="bucket", buckets=1)
    size = 500_000
    rows = blob_rows(range(1, 5))
    table.upsert([{**row, "pic": lakebed.blob(data=bytes([n]) * size)} for n, row in enumerate(rows)])
    before = {path: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    if how == "partial":
        table.upsert([{"id": row["id"], "name": "new", "ts": 2} for row in rows], partial=True)
    else:
        table.update({"name": "'new'"})
    written = sum(p.stat().st_size - before.get(p, 0) for p in tmp_path.rglob("*") if p.is_file())
    assert written < size // 10
    assert set(table.scan(["name"]).to_arrow()["name"].to_pylist()) == {"new"}
    assert blobs_by_key(table) == {row["id"]: bytes([n]) * size for n, row in enumerate(rows)}


@pytest.mark.parametrize("name", ["blob_cow", "blob_mor"])
def test_a_table_of_real_hudi_is_read_and_written(name: str, tmp_path: Path) -> None:
    container()
    table = lakebed.open(unpacked(name, tmp_path))
    rows = {row["id"]: row for row in table.scan(meta=True).to_arrow().to_pylist()}
    assert rows == {row["id"]: row for row in expected(name).to_pylist()}
    texts = described(name)["read_blob"]
    values = dict(zip(texts, table.read_blob(list(texts), "pic"), strict=True))
    assert values == {key: text if text is None else text.encode() for key, text in texts.items()}
    row = {name: value for name, value in rows["k000"].items() if not name.startswith("_hoodie")}
    table.upsert([{**row, "pic": lakebed.blob(data=b"new"), "ts": 5000}])
    table.delete(["k002"])
    if name == "blob_mor":
        table.maintenance.compact()
    del values["k002"]
    assert blobs_by_key(table) == {**values, "k000": b"new"}
    assert is_blob_column(table)
    assert not table.indexes.verify().differences


def test_base_files_hold_the_columns_of_hudi(tmp_path: Path) -> None:
    blob_table("cow", str(tmp_path / "t"), partition_by=None)
    (path,) = [p for p in (tmp_path / "t").rglob("*.parquet") if ".hoodie" not in p.parts]
    schema = pq.ParquetFile(path).schema
    columns = {
        c.path: (c.physical_type, c.max_definition_level) for c in (schema.column(n) for n in range(len(schema)))
    }
    assert {path: kind for path, kind in columns.items() if path.startswith("pic.")} == {
        "pic.type": ("BYTE_ARRAY", 1),
        "pic.data": ("BYTE_ARRAY", 2),
        "pic.reference.external_path": ("BYTE_ARRAY", 2),
        "pic.reference.offset": ("INT64", 3),
        "pic.reference.length": ("INT64", 3),
        "pic.reference.managed": ("BOOLEAN", 2),
    }


@pytest.mark.parametrize(
    ("count", "groups"),
    [(1, [1]), (9, [9]), (10, [10]), (19, [19]), (20, [10, 10]), (35, [12, 12, 11]), (100, [10] * 10)],
)
def test_row_groups_end_by_bytes_also_of_one_batch(tmp_path: Path, count: int, groups: list[int]) -> None:
    schema = pa.schema([("data", pa.binary())])
    rows = pa.table({"data": [bytes(996)] * count}, schema)  # with its offset a row has a thousand bytes
    settings = ParquetSettings(row_group_bytes=10_000)
    writer = BaseFileWriter(LocalStorage(str(tmp_path)).create("f.parquet"), schema, settings)
    writer.write(rows)
    writer.close({})
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == groups
    assert pq.read_table(tmp_path / "f.parquet").equals(rows)


def test_a_blob_of_many_bytes_does_not_join_the_row_groups_of_small_ones(tmp_path: Path) -> None:
    schema = pa.schema([("data", pa.binary())])
    rows = pa.table({"data": [bytes(50_000), *[bytes(96)] * 40, bytes(50_000)]}, schema)
    writer = BaseFileWriter(
        LocalStorage(str(tmp_path)).create("f.parquet"), schema, ParquetSettings(row_group_bytes=10_000)
    )
    writer.write(rows)
    writer.close({})
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    assert metadata.row_group(0).num_rows == 1
    assert pq.read_table(tmp_path / "f.parquet").equals(rows)


MEGABYTES = """
import sys
import lakebed
table = lakebed.open(sys.argv[1])
rows = size = 0
for batch in table.scan(["id", "pic"]).to_batches():
    rows, size = rows + batch.num_rows, size + batch.nbytes
# that of resource.getrusage is the parent's where that is greater
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(rows, size >> 20, int(peak.split()[1]) >> 10)
"""


@pytest.mark.full
def test_a_scan_of_two_gigabytes_of_blobs_takes_less_than_600_megabytes(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id")
    image = bytes(range(256)) * 19_532  # five million
    for part in range(4):
        keys = [f"{part}-{n}" for n in range(100)]
        pics = lakebed.blob(data=[image] * 100)
        table.insert(pa.table({"id": keys, "pic": pics, "name": keys, "ts": [1] * 100, "part": keys}))
    command = [sys.executable, "-c", MEGABYTES, table.uri]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, size, peak = map(int, done.stdout.split())
    assert (rows, size) == (400, 1907)
    assert peak < 600

"""Tables with vectors: every verb, the bytes in the files, and tables that real Hudi wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import InvalidRecord, LakebedError, SchemaConflict
from lakebed.schema.logical_types import HUDI_TYPE
from support.vector_tables import SCHEMA, expected, unpacked, vector_of, vector_rows, vector_table

KINDS = ["cow", "mor"]
VECTOR = lakebed.vector(4)


def rows_of(table: lakebed.Table, **options: Any) -> dict[str, Any]:
    return {row["id"]: row["emb"] for row in table.scan(**options).to_arrow().to_pylist()}


def base_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.parquet") if ".hoodie" not in p.parts)


@pytest.mark.parametrize("kind", KINDS)
def test_each_verb_keeps_the_vectors(kind: str) -> None:
    table = vector_table(kind, properties={"hoodie.table.cdc.enabled": "true"})
    model = {row["id"]: row["emb"] for row in vector_rows(range(40))}
    first = table.timeline.to_arrow()["time"].to_pylist()[-1]
    assert rows_of(table) == model
    table.upsert(vector_rows(range(35, 45), ts=2))
    model |= {row["id"]: row["emb"] for row in vector_rows(range(35, 45), ts=2)}
    table.upsert([{"id": "k003", "emb": vector_of(333), "name": "n", "ts": 3, "part": "p1"}])
    model["k003"] = vector_of(333)
    table.upsert([{"id": "k004", "name": "renamed", "ts": 3, "part": "p0"}], partial=True)
    table.insert([{"id": "new", "emb": None, "name": "n", "ts": 1, "part": "p0"}])
    model["new"] = None
    table.delete(["k005"])
    table.update({"name": "'other'"}, where="id = 'k006'")
    table.update({"emb": "array(1, 2.5, 3, 4)"}, where="id = 'k007'")
    model["k007"] = [1, 2.5, 3, 4]
    del model["k005"]
    source = pa.table(
        {"id": ["k008", "k999"], "emb": pa.array([[9, 9, 9, 9], [8, 8, 8, 8]], VECTOR), "part": ["p0", "p1"]}
    )
    merge = table.merge(source).when_matched_update({"emb": "s.emb"})
    merge.when_not_matched_insert({"id": "s.id", "emb": "s.emb", "part": "s.part", "ts": "1"}).execute()
    model |= {"k008": [9, 9, 9, 9], "k999": [8, 8, 8, 8]}
    assert rows_of(table) == model
    assert rows_of(table, as_of=first) == {row["id"]: row["emb"] for row in vector_rows(range(40))}
    changed = {row["id"]: row["emb"] for row in table.changes(first).to_arrow().to_pylist()}
    assert changed["k003"] == vector_of(333)
    table.maintenance.compact() if kind == "mor" else table.maintenance.cluster()
    assert rows_of(table) == model
    assert table.get(["k003"])["emb"].type == VECTOR
    assert table.indexes.verify().is_ok if hasattr(table.indexes.verify(), "is_ok") else True
    table.insert_overwrite(vector_rows(range(2)), "table")
    assert rows_of(table) == {"k000": None, "k001": vector_of(1)}


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_come_in_every_form(kind: str) -> None:
    table = vector_table(kind, partition_by=None)
    matrix = np.arange(8, dtype=np.float64).reshape(2, 4)
    ids = {"id": ["a", "b"], "name": ["x", "y"], "ts": [1, 1], "part": ["", ""]}
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(matrix)
    for data in (
        {**ids, "emb": matrix},
        pa.table({**ids, "emb": pa.array(matrix.tolist(), pa.list_(pa.float32(), 4))}),
        pa.table({**ids, "emb": tensor}),
        pa.table({**ids, "emb": [row.astype("<f4").tobytes() for row in matrix]}),
        pd.DataFrame({**ids, "emb": list(matrix)}),
        pl.DataFrame({**ids, "emb": matrix}),
        pl.DataFrame({**ids, "emb": matrix.tolist()}),
        [{"id": i, "name": "x", "ts": 1, "part": "", "emb": row} for i, row in zip("ab", matrix.tolist(), strict=True)],
    ):
        table.upsert(data)
        assert table.get(["a", "b"])["emb"].to_pylist() == matrix.tolist()
        table.upsert({**ids, "emb": np.ones((2, 4))})


def _commits(table: lakebed.Table) -> list[str]:
    return [i.time for i in table.timeline if i.is_completed and i.action.name != "ROLLBACK"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_that_does_not_fit_is_refused_before_anything_is_written(kind: str) -> None:
    table = vector_table(kind)
    before = _commits(table)
    row = vector_rows(range(1, 2), ts=9)[0]
    for bad in ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0, float("nan")], [1.0, None, 3.0, 4.0]):
        with pytest.raises(InvalidRecord, match=r"column emb is VECTOR\(4\)"):
            table.upsert([{**row, "emb": bad}])
    with pytest.raises(LakebedError, match="emb"):
        table.update({"emb": "array(1, 2)"}, where="id = 'k001'")
    with pytest.raises(SchemaConflict, match=r"VECTOR\(4\)"):
        table.upsert([{**row, "emb": "text"}])
    assert _commits(table) == before
    assert rows_of(table)["k001"] == vector_of(1)


def test_a_vector_is_no_key_no_partition_and_no_order() -> None:
    for words in ({"key": "emb"}, {"key": "id", "partition_by": "emb"}, {"key": "id", "ordering": "emb"}):
        with pytest.raises(LakebedError, match="emb"):
            lakebed.create(f"memory://vectors/no/{'-'.join(words)}", SCHEMA, **words)


def test_a_base_file_holds_plain_bytes_without_codec_and_statistics(tmp_path: Path) -> None:
    vector_table("cow", str(tmp_path / "t"), partition_by=None)
    (path,) = base_files(tmp_path / "t")
    file = pq.ParquetFile(path)
    assert file.metadata.metadata[b"hoodie.vector.columns"] == b"emb:VECTOR(4)"
    at = file.schema_arrow.names.index("emb")
    column, chunk = file.schema.column(at), file.metadata.row_group(0).column(at)
    assert (column.physical_type, column.length, column.path) == ("FIXED_LEN_BYTE_ARRAY", 16, "emb")
    assert (chunk.compression, chunk.is_stats_set, chunk.has_dictionary_page) == ("UNCOMPRESSED", False, False)
    assert set(chunk.encodings) <= {"PLAIN", "RLE"}
    assert file.metadata.row_group(0).column(at - 1).compression != "UNCOMPRESSED"


def test_vectors_of_copied_row_groups_are_the_same_bytes(tmp_path: Path) -> None:
    options = {"hoodie.parquet.small.file.limit": str(1 << 30)}
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", index="bucket", buckets=1)
    count = 20_000
    matrix = np.random.default_rng(1).normal(size=(count, 4)).astype(np.float32)
    ids = [f"k{n:05d}" for n in range(count)]
    rows = {"id": ids, "name": ids, "ts": [1] * count, "part": [""] * count}
    table.upsert({**rows, "emb": matrix}, options=options)
    table.upsert([{"id": "k00007", "emb": [1, 2, 3, 4], "name": "n", "ts": 2, "part": ""}], options=options)
    table.upsert([{"id": "k00008", "emb": matrix[8].tolist(), "name": "m", "ts": 2, "part": ""}], options=options)
    matrix[7] = [1, 2, 3, 4]
    stored = table.scan(["id", "emb"]).to_arrow().sort_by("id")
    assert np.array_equal(np.array(stored["emb"].combine_chunks().flatten()).reshape(-1, 4), matrix)
    schemas = {pq.ParquetFile(path).schema_arrow.field("emb").type for path in base_files(tmp_path / "t")}
    assert schemas == {pa.binary(16)}


def test_columns_of_vectors_are_added_and_shown_by_name() -> None:
    table = lakebed.create("memory://vectors/added", pa.schema([("id", pa.int64())]), key="id")
    table.upsert([{"id": 1}])
    assert table.columns.add("emb", lakebed.vector(3)).change == "column emb is new (VECTOR(3))"
    assert table.columns.add("more", "vector(2, int8)").change == "column more is new (VECTOR(2, INT8))"
    table.upsert([{"id": 2, "emb": [1, 2, 3], "more": [1, -1]}])
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "emb": None, "more": None},
        {"id": 2, "emb": [1, 2, 3], "more": [1, -1]},
    ]
    assert [column.type for column in table.columns] == ["BIGINT", "VECTOR(3)", "VECTOR(2, INT8)"]
    with pytest.raises(SchemaConflict, match=r"VECTOR\(3\) and cannot become"):
        table.columns.widen("emb", "vector(4)")
    table.columns.rename("emb", "embedding")
    assert table.get([2])["embedding"].to_pylist() == [[1, 2, 3]]


def test_sql_creates_alters_and_fills_a_table_of_vectors() -> None:
    uri = "memory://vectors/sql"
    lakebed.sql(
        "create table t (id bigint, emb vector(4), wide VECTOR(2, DOUBLE)) using lakebed"
        " tblproperties (primaryKey = 'id')",
        tables={"t": uri},
    )
    lakebed.sql("insert into t values (1, [1, 2, 3, 4], [0.5, 1])", tables={"t": uri})
    lakebed.sql("alter table t add columns (more VECTOR(2, INT8))", tables={"t": uri})
    lakebed.sql("insert into t values (2, null, null, [1, -1])", tables={"t": uri})
    rows = lakebed.sql("select * from t order by id", tables={"t": uri}).to_arrow().to_pylist()
    assert rows == [
        {"id": 1, "emb": [1, 2, 3, 4], "wide": [0.5, 1], "more": None},
        {"id": 2, "emb": None, "wide": None, "more": [1, -1]},
    ]
    with pytest.raises(LakebedError, match="emb"):
        lakebed.sql("insert into t values (3, [1, 2], null, null)", tables={"t": uri})


def test_what_a_table_gives_names_its_vectors_and_makes_a_table_again() -> None:
    table = vector_table("mor")
    rows = table.scan().to_arrow()
    field = rows.schema.field("emb")
    assert field.type == VECTOR
    assert field.metadata[HUDI_TYPE] == b"VECTOR(4)"
    assert next(iter(table.scan())).schema.field("emb").metadata[HUDI_TYPE] == b"VECTOR(4)"
    assert table.schema.field("emb").metadata[HUDI_TYPE] == b"VECTOR(4)"
    again = lakebed.load("memory://vectors/again", rows, key="id")
    assert again.schema.field("emb").type == VECTOR
    assert rows_of(again) == rows_of(table)


@pytest.mark.parametrize("name", ["vec_cow_float", "vec_mor_float", "vec_mor_int8", "vec_search"])
def test_a_table_of_real_hudi_is_read_and_written(name: str, tmp_path: Path) -> None:
    table = lakebed.open(unpacked(name, tmp_path))
    hudi = {row["id"]: row for row in expected(name).to_pylist()}
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert rows == {key: {n: row[n] for n in rows[key]} for key, row in hudi.items()}
    element = [1, 2, 3, 4]
    table.upsert([{**rows["k000"], "emb": element, "ts": 5000}])
    table.upsert([{**rows["k001"], "name": "by lakebed", "ts": 5000}])
    table.delete(["k002"])
    rows["k000"] |= {"emb": element, "ts": 5000}
    rows["k001"] |= {"name": "by lakebed", "ts": 5000}
    del rows["k002"]
    assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == rows
    if "mor" in name:
        table.maintenance.compact()
        assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == rows
    width = 4 if "int8" in name else 16
    for path in base_files(tmp_path / name):
        assert pq.ParquetFile(path).schema_arrow.field("emb").type == pa.binary(width), path
        assert b"hoodie.vector.columns" in pq.ParquetFile(path).metadata.metadata


def test_a_variant_of_real_hudi_stays_one_after_a_write(tmp_path: Path) -> None:
    table = lakebed.open(unpacked("variant35_mor", tmp_path))
    before = table.schema
    rows = table.scan().to_arrow()
    loose = pa.array(rows["v"].to_pylist(), pa.struct([("metadata", pa.binary()), ("value", pa.binary())]))
    table.upsert(rows.set_column(rows.schema.get_field_index("v"), "v", loose).slice(0, 5))
    after = table.schema
    assert after.equals(before)
    assert after.field("v").metadata[HUDI_TYPE] == b"VARIANT"
    assert not after.field("v").type.field("value").nullable

"""`read_blob(column)` in SQL by DuckDB: bytes in the table and of other files, and DuckDB's own function of files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidOption
from support.blob_tables import blob_table, data_of, outside

BYTES = bytes(range(100))


def query(sql: str, tables: Mapping[str, lakebed.Table] | None = None) -> Any:
    return lakebed.sql(sql, tables=tables)


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    (tmp_path / "all.bin").write_bytes(BYTES)
    table = blob_table("mor")
    table.upsert(outside(tmp_path / "all.bin", ["o1", "o2"], [10, 90], [5, None]))
    return table


@pytest.mark.parametrize(
    "call",
    ["read_blob(pic)", "READ_BLOB(x.pic)", 'read_blob("pic")', "read_blob( x . PIC )", "octet_length(read_blob(pic))"],
)
def test_the_bytes_of_each_row_are_read(table: lakebed.Table, call: str) -> None:
    rows = query(f"select id, {call} as b from t x where id in ('k001', 'k010', 'o1', 'o2')", tables={"t": table})
    values = {"k001": data_of(1), "k010": None, "o1": BYTES[10:15], "o2": BYTES[90:]}
    if call.startswith("octet"):
        values = {key: value and len(value) for key, value in values.items()}
    for _ in range(2):
        assert {row["id"]: row["b"] for row in rows.to_pylist()} == values


def test_calls_in_conditions_and_of_several_columns_are_read() -> None:
    columns = {"id": [1, 2], "a": lakebed.blob(data=[b"1", b"22"]), "b": lakebed.blob(data=[b"x", b"y"])}
    table = lakebed.load("memory://blob_calls/several", pa.table(columns), key="id")
    sql = "select read_blob(a) as a, read_blob(b) as b from t where octet_length(read_blob(a)) > 1"
    assert query(sql, tables={"t": table}).to_pylist() == [{"a": b"22", "b": b"y"}]


def test_more_rows_than_a_vector_of_duckdb_are_read() -> None:
    count = 5000
    columns = {"id": list(range(count)), "pic": lakebed.blob(data=[str(n).encode() for n in range(count)])}
    table = lakebed.load("memory://blob_calls/many", pa.table(columns), key="id")
    rows = query("select id, read_blob(pic) as b from t", tables={"t": table}).to_arrow()
    assert all(row["b"] == str(row["id"]).encode() for row in rows.to_pylist())
    assert rows.num_rows == count


def test_a_missing_file_is_an_error_with_its_path(table: lakebed.Table, tmp_path: Path) -> None:
    table.upsert(outside(tmp_path / "none.bin", ["o3"], [0], [None]))
    rows = query("select read_blob(pic) as b from t where id = 'o3'", tables={"t": table})
    with pytest.raises(CorruptFile, match=r"file that is missing: .*none\.bin"):
        rows.to_pylist()


def test_another_column_is_refused(table: lakebed.Table) -> None:
    with pytest.raises(InvalidOption, match=r"name holds no blobs.*pic"):
        query("select read_blob(name) from t", tables={"t": table})


def test_tables_with_different_storage_options_are_refused_only_where_either_may_be_meant() -> None:
    tables: dict[str, lakebed.Table] = {}
    for name, column in (("a", "pic"), ("b", "pic"), ("c", "other")):
        uri = f"memory://blob_calls/options/{name}"
        lakebed.load(uri, pa.table({"id": [name], column: lakebed.blob(data=[name.encode()])}), key="id")
        tables[name] = lakebed.open(uri, storage_options={"region": name})
    with pytest.raises(InvalidOption, match="several tables"):
        query("select read_blob(a.pic) from a, b", tables=tables)
    rows = query("select read_blob(a.pic) as x, read_blob(other) as y from a, c", tables=tables)
    assert rows.to_pylist() == [{"x": b"a", "y": b"c"}]


def test_the_function_of_files_of_duckdb_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"abc")
    assert query(f"select size from read_blob('{tmp_path}/x.bin')").to_pylist() == [{"size": 3}]


@pytest.mark.parametrize("column", ["pic", "id"])
def test_a_process_ends_without_complaints(column: str) -> None:
    program = f"""
import lakebed, pyarrow as pa
t = lakebed.load("memory://ends/t", pa.table({{"id": ["a"], "pic": lakebed.blob(path=["/none"])}}), key="id")
try:
    lakebed.sql("select read_blob({column}) from t", tables={{"t": t}}).to_pylist()
except lakebed.LakebedError as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip() in ("CorruptFile", "InvalidOption"), done.stderr) == (True, "")

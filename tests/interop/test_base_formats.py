"""Tables whose base files are ORC or Lance, written in turns by lakebed and by real Hudi: both read the same."""

from __future__ import annotations

from pathlib import Path

import lakebed
import pytest
from lakebed.table import Table
from oracle.client import HudiOracle
from support.same_rows import assert_same_rows

NO_METADATA = {"hoodie.metadata.enable": "false"}
CONF = {
    "spark.sql.ansi.enabled": "false",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.compact.inline": "false",
}
RICH = (
    "id string, n int, price double, f float, yes boolean, d date, at timestamp, dec decimal(10, 2), raw binary,"
    " tags array<string>, attrs map<string, int>, inner struct<a: int, b: string>, ts bigint, part string"
)


def rich_row(key: str, n: int, ts: int) -> str:
    if n % 7 == 3:
        return f"('{key}', {', '.join(['null'] * 11)}, {ts}, 'p{n % 2}')"
    return (
        f"('{key}', {n}, {n}.5, cast({n}.25 as float), {'true' if n % 2 else 'false'}, date'2024-01-{n % 28 + 1:02d}',"
        f" timestamp'2024-01-0{n % 9 + 1} 10:00:00.123456', cast({n}.75 as decimal(10, 2)), cast('raw{n}' as binary),"
        f" array('a{n}', null), map('k', {n}), named_struct('a', {n}, 'b', 'b{n}'), {ts}, 'p{n % 2}')"
    )


def created(oracle: HudiOracle, folder: Path, columns: str, kind: str, base_format: str, **properties: str) -> Table:
    """A table that real Hudi makes by SQL."""
    name = folder.name
    texts = {
        "primaryKey": "id",
        "type": kind,
        "preCombineField": "ts",
        "hoodie.table.base.file.format": base_format,
        **properties,
    }
    listed = ", ".join(f"'{key}' = '{text}'" for key, text in texts.items())
    oracle.ask(
        "sql",
        conf=CONF,
        sql=[
            f"drop table if exists {name}",
            f"create table {name} ({columns}) using hudi tblproperties ({listed}) partitioned by (part)"
            f" location '{folder}'",
        ],
    )
    return lakebed.open(str(folder))


def same(oracle: HudiOracle, table: Table) -> int:
    """Both read the same rows; returns their number."""
    theirs = oracle.read(table.uri, option=NO_METADATA)
    mine = table.scan([name for name in theirs.column_names if name in {*table.schema.names, "_hoodie_record_key"}])
    assert_same_rows(mine.to_arrow(), theirs.select(mine.to_arrow().column_names))
    return theirs.num_rows


def test_lakebed_and_real_hudi_append_to_an_orc_table_of_every_type_in_turns(
    oracle: HudiOracle, tmp_path: Path
) -> None:
    table = created(oracle, tmp_path / "orc_rich", RICH, "mor", "ORC")
    rows = ", ".join(rich_row(f"k{n:03d}", n, n) for n in range(30))
    oracle.ask("sql", table=table.uri, conf=CONF, sql=f"insert into {{t}} values {rows}")
    assert same(oracle, table) == 30
    for turn in range(3):
        key, other = f"k{turn:03d}", f"k{turn + 10:03d}"
        row = table.get([key]).to_pylist()[0]
        table.upsert([{**row, "n": 1000 + turn, "ts": 5000 + turn}, {**row, "id": f"new{turn}", "ts": 5000}])
        assert table.delete([f"k{turn + 20:03d}"]).deleted == 1
        assert same(oracle, table) == 30
        oracle.ask(
            "sql", table=table.uri, conf=CONF, sql=f"update {{t}} set n = {turn}, ts = {7000 + turn} where id = '{other}'"
        )
        assert same(oracle, table) == 30
        assert table.get([other])["n"].to_pylist() == [turn]
    assert table.get(["new1"])["ts"].to_pylist() == [5000]

"""Tables whose base files are ORC or Lance, written in turns by lakebed and by real Hudi: both read the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.table import Table
from oracle.client import HudiOracle
from support.format_tables import lance_rows, lance_table
from support.same_rows import assert_same_rows

MERGER = "org.apache.hudi.DefaultSparkRecordMerger"
NO_METADATA = {"hoodie.metadata.enable": "false"}
CONF = {
    "spark.sql.ansi.enabled": "false",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.compact.inline": "false",
}
# Hudi's own writer of ORC fails for dates and for vectors, and it cannot read times before 1970 with a fraction.
RICH = (
    "id string, n int, price double, f float, yes boolean, at timestamp, dec decimal(10, 2), raw binary,"
    " tags array<string>, attrs map<string, int>, inner struct<a: int, b: string>, ts bigint, part string"
)


# Hudi writes Lance base files by the records of Spark alone.
LANCE_CONF = {
    **CONF,
    "hoodie.record.merger.impls": MERGER,
    "hoodie.write.record.merge.custom.implementation.classes": MERGER,
}
ROUNDS = 10
ARRAY = "array(cast({}.5 as float), cast(1 as float), cast(2 as float), cast(3 as float))"


def rich_row(key: str, n: int, ts: int) -> str:
    if n % 7 == 3:
        return f"('{key}', {', '.join(['null'] * 10)}, {ts}, 'p{n % 2}')"
    return (
        f"('{key}', {n}, {n}.5, cast({n}.25 as float), {'true' if n % 2 else 'false'},"
        f" timestamp'2024-01-0{n % 9 + 1} 10:00:00.123456', cast({n}.75 as decimal(10, 2)), cast('raw{n}' as binary),"
        f" array('a{n}', null), map('k', {n}), named_struct('a', {n}, 'b', 'b{n}'), {ts}, 'p{n % 2}')"
    )


def created(
    oracle: HudiOracle, folder: Path, columns: str, kind: str, base_format: str, conf: Mapping[str, str] = CONF
) -> Table:
    """A table that real Hudi makes by SQL."""
    name = folder.name
    texts = {
        "primaryKey": "id",
        "type": kind,
        "preCombineField": "ts",
        "hoodie.table.base.file.format": base_format,
    }
    listed = ", ".join(f"'{key}' = '{text}'" for key, text in texts.items())
    oracle.ask(
        "sql",
        conf=dict(conf),
        sql=[
            f"drop table if exists {name}",
            f"create table {name} ({columns}) using hudi tblproperties ({listed}) partitioned by (part)"
            f" location '{folder}'",
        ],
    )
    return lakebed.open(str(folder))


def same(oracle: HudiOracle, table: Table, conf: Mapping[str, str] = CONF) -> int:
    """Both read the same rows; returns their number."""
    theirs = oracle.read(table.uri, option=NO_METADATA, conf=dict(conf))
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
            "sql",
            table=table.uri,
            conf=CONF,
            sql=f"update {{t}} set n = {turn}, ts = {7000 + turn} where id = '{other}'",
        )
        assert same(oracle, table) == 30
        assert table.get([other])["n"].to_pylist() == [turn]
    assert table.get(["new1"])["ts"].to_pylist() == [5000]


def full_rows(numbers: range) -> list[dict[str, Any]]:
    """Rows whose columns have values: a rewrite by Hudi failed for files with a column that is null in every row
    ("Value at index is null")."""
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    return [
        {**row, "emb": [n, 1, 2, 3], "name": f"n{n}", "n": n, "at": at, "tags": ["a", None], "inner": {"a": 1}}
        for n, row in zip(numbers, lance_rows(numbers), strict=True)
    ]


@pytest.mark.rest
@pytest.mark.parametrize("index", ["simple", "bloom"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_lakebed_and_real_hudi_write_a_lance_table_in_turns(
    kind: str, index: str, lance_oracle: HudiOracle, tmp_path: Path
) -> None:
    table = lance_table(kind, str(tmp_path / "t"), index=index)
    table.upsert(full_rows(range(40)))
    conf = {**LANCE_CONF, "hoodie.index.type": index.upper()}
    for turn in range(ROUNDS):
        changed, dropped, updated = f"k{turn + 1:03d}", f"k{turn + 12:03d}", f"k{turn + 25:03d}"
        lance_oracle.ask(
            "sql",
            table=table.uri,
            conf=conf,
            sql=[
                f"update {{t}} set name = 'hudi{turn}', emb = {ARRAY.format(turn)}, ts = {100 + turn}"
                f" where id = '{changed}'",
                f"delete from {{t}} where id = '{dropped}'",
                f"insert into {{t}} values ('h{turn}', {ARRAY.format(turn)}, 'n', 1, timestamp'2024-01-01 10:00:00',"
                " array('a', null),"
                f" named_struct('a', 1), 1, 'p{turn % 2}')",
            ],
        )
        row = table.get([changed]).to_pylist()[0]
        assert (row["name"], row["emb"]) == (f"hudi{turn}", [turn + 0.5, 1.0, 2.0, 3.0])
        table.upsert([{**table.get([updated]).to_pylist()[0], "name": f"here{turn}", "ts": 100 + turn}])
        table.upsert(full_rows(range(100 + turn, 101 + turn)))
        assert table.delete([f"h{turn}"]).deleted == 1
        if kind == "mor" and turn % 3 == 1:
            table.maintenance.compact()
        if turn % 4 == 3:
            table.maintenance.cluster()
        assert same(lance_oracle, table, conf) == 40
    assert table.indexes.verify().ok
    statement = f"select id, _hudi_distance from hudi_vector_search('{{t}}', 'emb', {ARRAY.format(3)}, 5, 'l2')"
    out = tmp_path / "nearest.parquet"
    lance_oracle.ask("sql", table=table.uri, conf=conf, sql=statement, out=str(out))
    nearest = table.search([3.5, 1.0, 2.0, 3.0], 5, metric="l2").to_arrow()
    hudi = pq.read_table(out).sort_by("_hudi_distance")
    assert nearest["_hudi_distance"].to_pylist() == pytest.approx(hudi["_hudi_distance"].to_pylist(), abs=1e-6)


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_lakebed_writes_on_a_lance_table_that_real_hudi_made(
    kind: str, lance_oracle: HudiOracle, tmp_path: Path
) -> None:
    columns = "id string, emb VECTOR(4), name string, ts bigint, part string"
    table = created(lance_oracle, tmp_path / f"lance_{kind}", columns, kind, "LANCE", LANCE_CONF)
    conf = {**LANCE_CONF, "hoodie.metadata.global.record.level.index.enable": "true"}
    rows = ", ".join(f"('k{n:03d}', {ARRAY.format(n)}, 'name {n}', {n}, 'p{n % 2}')" for n in range(20))
    lance_oracle.ask("sql", table=table.uri, conf=conf, sql=f"insert into {{t}} values {rows}")
    for turn in range(3):
        row = table.get([f"k{turn:03d}"]).to_pylist()[0]
        table.upsert([{**row, "name": "here", "ts": 100}, {**row, "id": f"new{turn}"}])
        table.delete([f"k{turn + 10:03d}"])
        if kind == "mor":
            table.maintenance.compact()
        assert same(lance_oracle, table, conf) == 20
        update = f"update {{t}} set name = 'hudi', ts = 200 where id in ('k{turn:03d}', 'new{turn}')"
        lance_oracle.ask("sql", table=table.uri, conf=conf, sql=update)
        assert table.get([f"k{turn:03d}", f"new{turn}"])["name"].to_pylist() == ["hudi", "hudi"]
        assert same(lance_oracle, table, conf) == 20
    assert table.indexes.verify().ok

"""Random generated columns over random rows with nulls: stored values are those that DuckDB computes, after upserts and
after updates, and a condition on a source finds the rows that it finds without pruning."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

import lakebed
from support.sampling import so_many, today

SCHEMA = pa.schema(
    {"id": pa.int64(), "ts": pa.timestamp("us", "UTC"), "n": pa.int32(), "x": pa.float64(), "word": pa.string()}
)
TIMES = ["CAST(ts AS DATE)", "date_trunc('month', ts)", "date_trunc('hour', ts)", "year(ts)", "month(ts)"]
VALUES = [
    "upper(word)",
    "length(word)",
    "x * 2",
    "CASE WHEN n > 2 THEN word ELSE 'low' END",
    "concat(word, '-', word)",
    "coalesce(word, 'none')",
    "CASE WHEN n > 2 THEN true ELSE false END",
    "CASE WHEN x + 1 < 0 OR word IS NULL THEN 1 END",
    "abs(x)",
]
RUNS = so_many(60, small=16)


def random_rows(dice: random.Random, ids: list[int]) -> pa.Table:
    def value(choices: list[Any]) -> Any:
        return None if dice.random() < 0.2 else dice.choice(choices)

    start = dt.datetime(2025, 11, 28, tzinfo=dt.UTC)
    rows = [
        {
            "id": id,
            "ts": value([start + dt.timedelta(hours=dice.randrange(24 * 70))]),
            "n": value([-3, 0, 2, 3, 70]),
            "x": value([-1.5, 0.0, 2.25]),
            "word": value(["", "a", "ab", "zz"]),
        }
        for id in ids
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def plain(rows: pa.Table) -> pa.Table:
    """The rows with times in UTC that have no zone: DuckDB has no zones without an extension."""
    moments = [f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(moments))


def by_duckdb(rows: pa.Table, expressions: dict[str, str]) -> list[tuple[Any, ...]]:
    texts = [
        f"CAST({sqlglot.transpile(text, read='spark', write='duckdb')[0]} AS VARCHAR)" for text in expressions.values()
    ]
    connection = duckdb.connect()
    connection.register("given", plain(rows))
    return connection.execute(f"SELECT id, {', '.join(texts)} FROM given ORDER BY id").fetchall()


def stored(table: lakebed.Table, expressions: dict[str, str]) -> list[tuple[Any, ...]]:
    rows = table.scan(["id", *expressions]).to_arrow()
    connection = duckdb.connect()
    connection.register("given", plain(rows))
    texts = [f"CAST({name} AS VARCHAR)" for name in expressions]
    return connection.execute(f"SELECT id, {', '.join(texts)} FROM given ORDER BY id").fetchall()


@pytest.mark.parametrize("seed", range(RUNS // 4))
def test_duckdb_agrees_with_stored_generated_columns(seed: int, tmp_path: Path) -> None:
    dice = random.Random(today() * 1000 + seed)
    for number in range(4):
        expressions = {f"g{at}": text for at, text in enumerate([dice.choice(TIMES), *dice.sample(VALUES, 2)])}
        table = lakebed.create(
            str(tmp_path / f"t{number}"),
            SCHEMA,
            key="id",
            type=dice.choice(["cow", "mor"]),
            index=dice.choice(["simple", "global_simple"]),
            partition_by=dice.choice([None, "g0"]),
            generated=expressions,
        )
        rows = random_rows(dice, list(range(12)))
        table.upsert(rows)
        assert stored(table, expressions) == by_duckdb(rows, expressions), expressions
        table.update(
            {"n": "n + 1", "x": "x - 1", "ts": "ts + interval 40 days", "word": "concat(word, 'q')"}, where="id < 8"
        )
        now = table.scan(SCHEMA.names).to_arrow()
        assert stored(table, expressions) == by_duckdb(now, expressions), expressions
        moment = dt.datetime(2025, 12, dice.randint(1, 28), dice.randint(0, 23))
        for sign in ("<", "<=", ">", ">=", "="):
            where = f"ts {sign} TIMESTAMP '{moment}'"
            connection = duckdb.connect()
            connection.register("given", plain(now))
            expected = connection.execute(
                f"SELECT id FROM given WHERE ts {sign} TIMESTAMP '{moment}' ORDER BY id"
            ).fetchall()
            found = sorted(table.scan(["id"], where=where).to_arrow().column("id").to_pylist())
            assert found == [id for (id,) in expected], (where, expressions)

"""Functions in `lakebed.sql` on Spark: what lakebed cannot push into a scan stays Spark's, wherever it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from support.function_corpus import CORPUS, FUNCTIONS

# Of other functions and forms of Spark, which conditions of lakebed do not know.
OTHERS = (
    "levenshtein(s, 'Rom') = 3",
    "power(n, 2) > 4",
    "exp(n) < 3",
    "initcap(s) = 'A'",
    "array_contains(array(n, 2), 2)",
    "size(split(s, ' ')) > 1",
    "n in (i, 7)",
    "d / nullif(n, 0) > 1",
    "isnan(d)",
    "s rlike '(?i)^A'",
    "named_struct('x', n).x = 1",
    "map('a', n)['a'] = 1",
    "try_cast(s as int) is null or s = ''",
    "exists(array(n), x -> x > 1)",
    "hash(s) % 2 = 0",
    "to_json(named_struct('n', n)) like '%7%'",
    "if(isnull(s), 'x', s) = 'x'",
    "n + 1 = 2",
    "case when s is null then 'none' else s end = 'none'",
    "cast(i as string) like '1%'",
    "startswith(s, 'a') or endswith(s, 'Σ')",
    "i % 3 = 1 and year(day) = 2000",
)
ROWS = 40


def rows_of(corpus: Mapping[str, pa.Array]) -> pa.Table:
    """Rows with a value of each column, and nulls in every seventh row."""
    columns = {"id": pa.array(range(ROWS), pa.int64())}
    for name, values in corpus.items():
        picked = values.take(pa.array([len(values) * n // ROWS if n % 7 else None for n in range(ROWS)], pa.int64()))
        columns[name] = picked
    return pa.table(columns)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("functions")
    rows = rows_of({name: values for name, values in CORPUS.items() if name != "secs"} | {"secs": CORPUS["i"]})
    tables: dict[str, Any] = {}
    for name, options in (("t", {}), ("m", {"type": "mor"})):
        table = lakebed.create(str(folder / name), rows, key="id", index="bucket", buckets=2, **options)
        table.upsert(rows.slice(0, 30))
        table.upsert(rows.slice(20))
        tables[name] = lakebed.open(table.uri, spark=spark)
        spark.createDataFrame(table.to_arrow()).coalesce(1).createOrReplaceTempView(name)
    tables["one"] = pa.table({"k": [1]})
    spark.createDataFrame(tables["one"]).createOrReplaceTempView("one")
    yield tables
    for name in tables:
        spark.catalog.dropTempView(name)


CONDITIONS = (*(text for texts in FUNCTIONS.values() for text in texts), *OTHERS)


def function_of(condition: str) -> str:
    """The outermost function of a condition, or its signs and words."""
    called = re.findall(r"[a-z_]+(?=\()", condition)
    return called[0] if called else re.sub(r"'[^']*'|[\d.]+|\b(at|day|n|i|x|d|s)\b", "", condition)


# A condition by each function and operator.
DISTINCT = tuple({function_of(text): text for text in CONDITIONS}.values())
# The places of conditions in a query. `{n}` is a number of its own.
PLACES = (
    "SELECT {n} AS n, id FROM {table} WHERE {condition}",
    "SELECT {n} AS n, id FROM (SELECT * FROM {table}) q WHERE {condition} AND id >= 0",
    "SELECT {n} AS n, {table}.id FROM {table} JOIN one ON one.k = 1 AND {condition}",
    "SELECT * FROM (WITH c AS (SELECT * FROM {table}) SELECT {n} AS n, id FROM c WHERE {condition})",
    "SELECT {n} AS n, id FROM {table} LEFT SEMI JOIN one ON ({condition}) AND k = 1",
    "SELECT {n} AS n, id FROM {table} WHERE id > 3 OR NOT ({condition})",
)
AT_ONCE = 6


def queries(conditions: Sequence[str]) -> str:
    """One query of all conditions, some of them in each of the places."""
    parts: list[str] = []
    for n in range(0, len(conditions), AT_ONCE):
        together = conditions[n : n + AT_ONCE]
        tests = [f"({c} OR id >= 10)" if at % 2 else f"(NOT ({c}) OR id < 20)" for at, c in enumerate(together)]
        number = n // AT_ONCE
        place, table = PLACES[number % len(PLACES)], ("t", "m")[number // len(PLACES) % 2]
        parts.append(place.format(n=number, table=table, condition=" AND ".join(tests)))
    return " UNION ALL ".join(parts)


def pairs_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_a_condition_with_any_function_selects_the_rows_that_spark_selects(spark: Any, tables: dict[str, Any]) -> None:
    text = queries(DISTINCT)
    found, expected = pairs_of(lakebed.sql(text, tables)), pairs_of(spark.sql(text))
    wrong = {n for n, _ in set(found) ^ set(expected)}
    assert not wrong, [DISTINCT[n * AT_ONCE : (n + 1) * AT_ONCE] for n in wrong]
    assert found == expected
    assert {n for n, _ in found} == set(range(-(-len(DISTINCT) // AT_ONCE)))


@pytest.mark.rest
def test_a_value_by_any_function_is_that_of_spark(spark: Any, tables: dict[str, Any]) -> None:
    values = ", ".join(f"{text} AS v{n}" for n, text in enumerate(CONDITIONS))
    text = f"SELECT id, {values} FROM t WHERE id % 7 > 0 ORDER BY id"
    assert lakebed.sql(text, tables).toArrow().equals(spark.sql(text).toArrow())


@pytest.mark.rest
def test_an_insert_and_a_merge_take_rows_of_conditions_with_functions(
    spark: Any, tables: dict[str, Any], tmp_path: Path
) -> None:
    schema = pa.schema([("key", pa.int64()), ("n", pa.int64())])
    target = lakebed.create(str(tmp_path / "target"), schema, key="key", index="bucket", buckets=1)
    named = {**tables, "target": lakebed.open(target.uri, spark=spark)}
    union = queries(DISTINCT[::4])
    expected = [(1000 * n + id_, n) for n, id_ in pairs_of(spark.sql(union))]
    lakebed.sql(f"INSERT INTO target SELECT 1000 * n + id, n FROM ({union}) WHERE abs(n) % 2 = 0", named)
    even = [(key, n) for key, n in expected if n % 2 == 0]
    assert sorted(zip(*target.to_arrow().to_pydict().values(), strict=True)) == even
    lakebed.sql(
        f"MERGE INTO target USING (SELECT 1000 * n + id AS key, n FROM ({union})) s ON target.key = s.key"
        " WHEN MATCHED AND upper(repeat('a', s.n)) <> 'AA' THEN UPDATE SET n = -s.n"
        " WHEN NOT MATCHED AND length(cast(s.n AS STRING)) = 1 THEN INSERT *",
        named,
    )
    merged = [(key, n if n == 2 else -n) for key, n in even] + [(key, n) for key, n in expected if n % 2 and n < 10]
    assert sorted(zip(*target.to_arrow().to_pydict().values(), strict=True)) == sorted(merged)

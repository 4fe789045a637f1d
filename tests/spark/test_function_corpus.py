"""Every function of filters gives Spark's values in process, over a corpus of hostile values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lakebed.expressions import letter_case
from lakebed.filters.predicates import Compare, Literal, node_to_arrow
from lakebed.filters.sql import ConditionReader, parse_filter, parse_tree
from lakebed.schema.spark import arrow_to_spark_ddl
from support.function_corpus import CONSTANTS, CORPUS, FUNCTIONS, TWO_COLUMNS, VALUES_OF_TWO


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_every_function_gives_the_values_of_spark(spark: Any, zone: str) -> None:
    wrong: list[str] = []
    for column, values in CORPUS.items():
        table = pa.table({column: pa.concat_arrays([values, pa.nulls(1, values.type)])})
        found = in_process(table, FUNCTIONS[column], zone)
        expected = on_spark(spark, table, FUNCTIONS[column])
        rows = table[column].to_pylist() if column != "at" else table[column].cast(pa.int64()).to_pylist()
        for text in FUNCTIONS[column]:
            differing = [
                f"{text} of {row!r}: {ours!r}, Spark has {theirs!r}"
                for row, ours, theirs in zip(rows, found[text], expected[text], strict=True)
                if repr(int(ours) if isinstance(ours, Decimal) and isinstance(theirs, int) else ours) != repr(theirs)
            ]
            wrong += differing[:3]
    assert not wrong, "\n".join(wrong)


def test_functions_of_constants_give_the_values_of_spark(spark: Any, zone: str) -> None:
    expected = spark.range(1).selectExpr(*(f"{text} as `{n}`" for n, text in enumerate(CONSTANTS))).toArrow()
    wrong: list[str] = []
    for n, text in enumerate(CONSTANTS):
        table = pa.table({"v": pa.concat_tables([expected.select([str(n)])] * 2).column(0)})
        root = parse_filter(f"v = {text}", table.schema, zone=zone).root
        found = ds.dataset(table).to_table(columns={"is": node_to_arrow(root)})["is"].to_pylist()
        if found != [True, True] or not isinstance(root, Compare) or not isinstance(root.right, Literal):
            wrong.append(f"{text}: {root}, Spark has {expected.column(str(n))[0].as_py()!r}")
    assert not wrong, "\n".join(wrong)


def test_functions_of_two_columns_give_the_values_of_spark(spark: Any) -> None:
    wrong: list[str] = []
    for kind, (left, right) in VALUES_OF_TWO.items():
        pairs = [(at, to) for at in range(len(left)) for to in range(len(right))]
        table = pa.table(
            {"a": left.take(pa.array([at for at, _ in pairs])), "b": right.take(pa.array([to for _, to in pairs]))}
        )
        frame = spark.createDataFrame(table, schema=arrow_to_spark_ddl(table.schema)).coalesce(1)
        expected = pure(frame.selectExpr(*(f"{text} AS `{text}`" for text in TWO_COLUMNS[kind])).toArrow())
        reader = ConditionReader(table.schema, UTC)
        expressions = {text: reader.values.read(parse_tree(text)).to_arrow() for text in TWO_COLUMNS[kind]}
        found = pure(ds.dataset(table).to_table(columns=expressions))
        for text in TWO_COLUMNS[kind]:
            for row, ours, theirs in zip(table.to_pylist(), found[text], expected[text], strict=True):
                if repr(ours) != repr(theirs) and not (isinstance(ours, Decimal) and ours == theirs):
                    wrong.append(f"{text} of {row}: {ours!r}, Spark has {theirs!r}")
    assert not wrong, "\n".join(wrong[:40])


def in_process(table: pa.Table, texts: Sequence[str], zone: str) -> dict[str, list[Any]]:
    """What each condition compares, or is, for every row."""
    expressions = {}
    for text in texts:
        root = parse_filter(text, table.schema, zone=zone).root
        expressions[text] = root.left.to_arrow() if isinstance(root, Compare) else node_to_arrow(root)
    return pure(ds.dataset(table).to_table(columns=expressions))


def pure(table: pa.Table) -> dict[str, list[Any]]:
    """The values, with days and instants as numbers: Python has no year 10000."""
    columns: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        number = {"date32[day]": pa.int32()}.get(str(column.type))
        number = pa.int64() if pa.types.is_timestamp(column.type) else number
        columns[name] = column.cast(number).to_pylist() if number else column.to_pylist()
    return columns


def on_spark(spark: Any, table: pa.Table, texts: Sequence[str]) -> dict[str, list[Any]]:
    frame = spark.createDataFrame(table, schema=arrow_to_spark_ddl(table.schema)).coalesce(1)
    asked = [f"{text.rpartition(' = ')[0] or text} as `{n}`" for n, text in enumerate(texts)]
    columns = pure(frame.selectExpr(*asked).toArrow())
    return {text: columns[str(n)] for n, text in enumerate(texts)}


def test_every_letter_of_unicode_changes_its_case_as_on_spark(spark: Any) -> None:
    letters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000 and code != ord("|")]
    rows = pa.table({"s": ["|".join(letters[at : at + 1000]) for at in range(0, len(letters), 1000)]})
    expected = on_spark(spark, rows, ["upper(s)", "lower(s)"])
    for name, function in (("upper", letter_case.upper), ("lower", letter_case.lower)):
        theirs = [text for row in expected[f"{name}(s)"] for text in row.split("|")]
        ours = function(pa.array(letters)).to_pylist()
        differing = {f"U+{ord(c):04X}": (a, b) for c, a, b in zip(letters, ours, theirs, strict=True) if a != b}
        assert not differing

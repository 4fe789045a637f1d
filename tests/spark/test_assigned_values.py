"""What statements store on Spark is what they store in process, and they refuse the same values and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import InvalidRecord, LakebedError, SchemaConflict
from lakebed.schema.arrow import list_of, map_of
from lakebed.table import Table

ON_SPARK = {"lakebed.local.rows": 0}
PART = pa.struct([pa.field("x", pa.int32(), False), ("y", pa.string()), ("d", pa.decimal128(10, 2))])
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("st", PART),
        ("ls", list_of(PART)),
        ("mp", map_of(PART)),
        ("price", pa.decimal128(10, 2)),
        ("f", pa.float32()),
        ("n", pa.int32()),
        ("txt", pa.string()),
        ("day", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
    ]
)
PARTS = "named_struct('y', 'b', 'd', {d}, 'x', CAST(2 AS BIGINT))"
STORED = {"x": 2, "y": "b", "d": Decimal("1.24")}
# Values of other types than their columns, and what each stores; SQL that runs on Spark alone.
ASSIGNED: dict[str, tuple[str, Any]] = {
    "st": (PARTS.format(d="1.239"), STORED),
    "ls": (f"array({PARTS.format(d='1.235D')})", [STORED]),
    "mp": (f"map('k', {PARTS.format(d='1.239')})", [("k", STORED)]),
    "price": ("CAST(-1.235 AS DOUBLE)", Decimal("-1.24")),
    "f": ("CAST(1.5 AS DECIMAL(5, 3))", 1.5),
    "n": ("2147483647.9", 2147483647),
    "txt": ("DATE '2024-01-02'", "2024-01-02"),
    "day": ("'2024-01-02'", date(2024, 1, 2)),
    "raw": ("'é'", "é".encode()),
}
BAD_TYPES = [
    ("st", "named_struct('x', 1, 'y', 'b')"),
    ("st", "named_struct('x', 1, 'y', 'b', 'd', 1, 'z', 1)"),
    ("st", "named_struct('a', 1, 'b', 'b', 'c', 1)"),
    ("ls", "array(named_struct('x', 1, 'y', 'b', 'd', 1, 'z', 1))"),
    ("mp", "map('k', named_struct('x', 1))"),
    ("txt", "TIMESTAMP '2024-01-02 00:00:00'"),
    ("seen", "5L"),
    ("n", "'5'"),
    ("n", "true"),
    ("price", "true"),
    ("txt", "make_dt_interval(1)"),
]
BAD_VALUES = [
    ("price", "100000000"),
    ("f", "1e300"),
    ("n", "double('NaN')"),
    ("txt", "X'FF'"),
    ("day", "'no date'"),
    ("ls.element.d", f"array({PARTS.format(d='123456789')})"),
]


def table_of(spark: SparkSession, uri: str) -> Table:
    table = lakebed.create(uri, COLUMNS, key="id", spark=spark)
    table.upsert(pa.Table.from_pylist([{"id": 1}], COLUMNS))
    return table


def by_source(on: str) -> Callable[[SparkSession, Table, dict[str, str]], Any]:
    def run(spark: SparkSession, table: Table, values: dict[str, str]) -> Any:
        columns = ", ".join(f"{text} AS {name}" for name, text in values.items())
        source = spark.sql(f"SELECT 1L AS id, {columns}")
        return table.merge(source, on).when_matched_update().execute(options=ON_SPARK)

    return run


def by_update(spark: SparkSession, table: Table, values: dict[str, str]) -> Any:
    return table.update(values, where="id = 1", options=ON_SPARK)


def by_insert(spark: SparkSession, table: Table, values: dict[str, str]) -> Any:
    columns = ", ".join(f"{text} AS {name}" for name, text in values.items())
    return lakebed.sql(f"INSERT OVERWRITE t BY NAME SELECT 1L AS id, {columns}", {"t": table}, spark=spark)


WAYS = {
    "by key": by_source("t.id = s.id"),
    "by join": by_source("t.id <= s.id AND t.id >= s.id"),
    "update": by_update,
    "insert": by_insert,
}


@pytest.fixture(params=["false", pytest.param("true", marks=pytest.mark.rest)])
def ansi(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.set("spark.sql.ansi.enabled", before or "true")


@pytest.mark.usefixtures("ansi")
@pytest.mark.parametrize(
    "name", ["by join", "insert", *(pytest.param(name, marks=pytest.mark.rest) for name in ("by key", "update"))]
)
def test_values_are_stored_as_in_process_whatever_the_mode_of_the_session(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = table_of(spark, str(tmp_path / "t"))
    WAYS[name](spark, table, {column: text for column, (text, _) in ASSIGNED.items()})
    stored = table.scan().to_arrow()
    expected = {"id": 1, "seen": None} | {column: value for column, (_, value) in ASSIGNED.items()}
    assert stored.to_pylist() == [{column: expected[column] for column in COLUMNS.names}]
    kinds = [stored.schema.field(column).type for column in COLUMNS.names]
    assert kinds == [COLUMNS.field(column).type for column in COLUMNS.names]


@pytest.mark.rest
def test_other_types_and_values_are_refused_and_nothing_is_changed(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, str(tmp_path / "t"))
    before = table.scan().to_arrow().to_pylist()
    cases = [(SchemaConflict, way, value) for way, value in product(("by join", "insert"), BAD_TYPES)]
    cases += [(InvalidRecord, "by join", value) for value in BAD_VALUES[:4]]
    cases += [(InvalidRecord, "insert", value) for value in BAD_VALUES[4:]]
    cases += [(SchemaConflict, way, BAD_TYPES[1]) for way in ("by key", "update")]
    for error, name, (path, text) in cases:
        with pytest.raises(LakebedError) as raised:
            WAYS[name](spark, table, {path.partition(".")[0]: text})
        assert raised.type is error, (name, path, text, str(raised.value))
        assert path in str(raised.value), (name, path, text, str(raised.value))
    assert table.scan().to_arrow().to_pylist() == before

"""The rows of a DataFrame in this process, within a bound of bytes.

Spark's statistics take every text for 20 bytes, so they choose what is tried and bound nothing. Here the number of rows
is bounded by a limit, where it is a guess, and the job gives up at the first row that is wider than its share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.engine.spark_session import gateway, has_exact_leaves
from lakebed.model import DERIVED
from lakebed.schema.spark import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_GUARD = f"{DERIVED}width"
_TOO_WIDE = "lakebed: a row is wider than its share of what is collected"
# The JVM holds collected rows twice, as results of tasks and as what it sends: this part of its heap is for them.
_PART_OF_HEAP = 4
_MOST_BYTES = 1 << 30
# Types whose values take as many bytes as Spark's statistics say.
_FIXED = frozenset(("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp"))


def most_collected_bytes(spark: SparkSession) -> int:
    """How many bytes of rows are collected at most, by the memory of the driver."""
    jvm: Any = gateway(spark)
    return min(_MOST_BYTES, int(jvm.java.lang.Runtime.getRuntime().maxMemory()) // _PART_OF_HEAP)


def collect_within(data: DataFrame, rows: int, most_bytes: int) -> pa.Table | None:
    """All rows, in the types that a table has for them; None where there are more than `rows` of them, or one takes
    more than its share of `most_bytes`. The DataFrame is evaluated once, at most so far."""
    from lakebed.engine.spark import SparkEngine

    names = data.columns
    if len({name.lower() for name in names}) < len(names):
        return None
    some = data if has_exact_leaves(data) else data.limit(rows + 1)
    width = _width(data)
    if width:
        share = max(1, most_bytes // max(1, rows))
        some = some.selectExpr(
            "*", f"CASE WHEN {width} > {share}L THEN raise_error('{_TOO_WIDE}') ELSE TRUE END AS {_GUARD}"
        )
    try:
        found = SparkEngine(data.sparkSession).collect_normalised(some)
    except Exception as error:
        if _TOO_WIDE in str(error):
            return None
        raise
    return found.select(names) if found.num_rows <= rows else None


def _width(data: DataFrame) -> str:
    """The bytes of a row's values as Spark SQL, "" where every row has as many."""
    fixed = 0
    parts: list[str] = []
    for field in data.schema.fields:
        if _is_fixed(field.dataType):
            fixed += 8
        else:
            parts.append(f"coalesce(CAST({_bytes_of(field.name, field.dataType)} AS BIGINT), 0L)")
    return " + ".join([*parts, f"{fixed}L"]) if parts else ""


def _is_fixed(kind: DataType) -> bool:
    return kind.typeName() in _FIXED or kind.typeName().startswith(("decimal", "timestamp", "time"))


def _bytes_of(name: str, kind: DataType) -> str:
    column = quoted(name)
    is_text = kind.typeName() in ("string", "char", "varchar", "binary")
    return f"octet_length({column if is_text else f'CAST({column} AS STRING)'})"

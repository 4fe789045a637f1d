"""What is known of a table before it exists: the columns of what the caller gave, and about how large it will be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.config.settings import IndexSettings, TableSettings
from lakebed.engine.base import Engine, Rows
from lakebed.engine.spark_session import session_of
from lakebed.index.advisor import TableProfile
from lakebed.slices.row_size import from_types


def schema_given(data: Any) -> pa.Schema | None:
    """The Arrow schema where the caller gave one (Arrow's, Spark's StructType); None for data."""
    if isinstance(data, pa.Schema):
        return data
    if session_of(data) is not None:  # a DataFrame of Spark Connect says of every name that it has such a column
        return None
    if hasattr(data, "jsonValue") and hasattr(data, "json"):
        from lakebed.schema.spark import spark_json_to_arrow

        return spark_json_to_arrow(data.json())
    if hasattr(data, "__arrow_c_schema__") and not hasattr(data, "__arrow_c_stream__"):
        return pa.schema(data)
    return None


def profile_of(
    schema: pa.Schema,
    settings: TableSettings,
    expected: IndexSettings,
    engine: Engine | None = None,
    rows: Rows | None = None,
) -> TableProfile:
    """The table as the options expect it; what they leave open is told from the rows that were given, if any, without
    running a job."""
    width = from_types(schema)
    count, partitions = expected.expected_rows, expected.expected_partitions
    if engine is not None and rows is not None:
        count = count or engine.estimated_rows(rows, width)
        partitions = partitions or _partitions(engine, rows, schema, settings)
    return TableProfile(
        rows=count,
        row_bytes=width,
        partitions=partitions if settings.partition_fields else 0,
        keys_grow=expected.growing_keys,
        unique_keys=expected.unique_keys,
        batch=expected.expected_batch,
        has_key=bool(settings.key_fields),
    )


def _partitions(engine: Engine, rows: Rows, schema: pa.Schema, settings: TableSettings) -> int | None:
    """How many partition paths the rows have; None where that takes a job or a key generator."""
    fields = settings.partition_fields or ()
    if engine.is_distributed or settings.key_generator or settings.partition_types:
        return None
    return engine.aggregate(rows, fields).num_rows if fields and set(fields) <= set(schema.names) else None

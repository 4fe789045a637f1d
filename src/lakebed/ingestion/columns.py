"""Columns of a source's rows: types that a description names, and rows of several parts as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed.errors import SchemaConflict
from lakebed.schema.type_names import column_type


def typed_columns(names: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """The Arrow types of SQL names by column.

    >>> typed_columns({"id": "bigint", "fare": "decimal(10, 2)"})
    {'id': DataType(int64), 'fare': Decimal128Type(decimal128(10, 2))}
    """
    return {name: column_type(kind, name) for name, kind in names.items()}


def union_of(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables; columns that one lacks are null there, numbers of different widths are of the widest.

    Raises `SchemaConflict` where a column has types that do not go together."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise SchemaConflict(
            f"the rows of one round do not go together: {error}",
            hint='name the type of the column: [source] columns = { name = "string" }',
        ) from error

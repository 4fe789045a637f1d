"""What counts as data: from whatever the caller gave to an Arrow table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakebed.engine.python_rows import WHAT_IS_DATA, of_python, type_of
from lakebed.engine.spark_session import session_of
from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.schema.conversion import cast_column
from lakebed.schema.layouts import plain_table


def to_arrow_table(data: Any, types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """The caller's data as an Arrow table in plain layouts. Raises `InvalidOption` for what is no data. `types` are the
    columns of the table that it is for, where there is one."""
    return plain_table(_given_table(data, types or {}))


def given_rows(data: Any, types: Mapping[str, pa.DataType]) -> Any:
    """The caller's rows where they are no Spark DataFrame, as an Arrow table whose UUIDs are texts in text columns."""
    data = of_python(data, types)
    if session_of(data) is not None:
        return data
    table = to_arrow_table(data, types)
    for at, field in enumerate(table.schema):
        kind = type_of(field.name, types)
        if kind is not None and pt.is_string(kind) and field.type == pa.uuid():
            table = table.set_column(at, field.with_type(kind), cast_column(table.column(at), kind))
    return table


def _given_table(data: Any, types: Mapping[str, pa.DataType]) -> pa.Table:
    try:
        return _table_of(data, types)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:  # a column alone, or one of values of several types
        raise _no_rows(data, f": {error}") from error


def _table_of(data: Any, types: Mapping[str, pa.DataType]) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if (session := session_of(data)) is not None:
        from lakebed.engine.spark import SparkEngine

        return SparkEngine(session).collect_normalised(data)
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        return _of_pandas(data, types)
    if module == "polars" and hasattr(data, "collect"):
        data = data.collect()
    _refuse_opaque(data, module)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if module == "pyarrow" and hasattr(data, "to_table"):  # a Dataset, a Scanner
        return data.to_table()
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    made = of_python(data, {})
    if made is not data:
        return made
    raise _no_rows(data)


def _of_pandas(frame: Any, types: Mapping[str, pa.DataType]) -> pa.Table:
    """A frame's columns, and the levels of its index that have a name: those that the table has a column for, or all
    where there is no table yet. A level without a name is row numbers, or what a filter or a group left of them."""
    for name, kind in frame.dtypes.items():
        if getattr(kind, "kind", "") == "c" or str(kind).startswith("Sparse["):
            raise SchemaConflict(
                f"column {name} has pandas' type {kind}, which has no Arrow type",
                hint="make it dense (column.sparse.to_dense()), or give real and imaginary part as columns",
                context={"column": str(name), "type": str(kind)},
            )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for name in dict.fromkeys(frame.index.names):
        if name is None or str(name) in table.column_names or (types and type_of(str(name), types) is None):
            continue
        level = frame.index.get_level_values(name).to_frame(index=False, name=str(name))
        (column,) = pa.Table.from_pandas(level, preserve_index=False).columns
        table = table.append_column(str(name), column)
    return table


def _refuse_opaque(data: Any, module: str) -> None:
    """Refuse columns of other libraries whose values mean nothing outside of these: polars hands over the addresses of
    Python objects, DuckDB bytes in a form of its own for bits and large numbers, and times without their offset."""
    if module == "polars" and hasattr(data, "schema"):
        columns = [(name, "Object") for name, kind in data.schema.items() if str(kind) == "Object"]
        hint = "give values that polars has a type for; UUIDs as texts, or in a pyarrow column of type uuid"
    elif module in ("duckdb", "_duckdb") and hasattr(data, "types"):
        named = [(name, _opaque_in(kind)) for name, kind in zip(data.columns, data.types, strict=True)]
        columns = [(name, kind) for name, kind in named if kind]
        hint = "cast the column in the query: to VARCHAR, to DECIMAL or HUGEINT, to TIME"
    else:
        return
    if columns:
        name, kind = columns[0]
        raise SchemaConflict(
            f"column {name} has {module.strip('_')}'s type {kind}, which has no Arrow type",
            hint=hint,
            context={"column": name, "type": kind},
        )


def _opaque_in(kind: Any) -> str:
    """The type of DuckDB, or one inside it, whose values lose their meaning in Arrow; empty where there is none."""
    if kind.id in ("bit", "bignum", "varint", "time with time zone"):
        return str(kind)
    if kind.id not in ("list", "array", "struct", "map", "union"):
        return ""
    return next((found for _, inner in kind.children if hasattr(inner, "id") and (found := _opaque_in(inner))), "")


def _no_rows(data: Any, why: str = "") -> InvalidOption:
    kind = type(data)
    return InvalidOption(f"cannot take rows from {kind.__module__}.{kind.__name__}{why}", hint=f"give {WHAT_IS_DATA}")

"""What counts as data: from whatever the caller gave (Arrow streams, data files, pandas, polars, Python rows) to an
Arrow table, or to a source of rows that are too many for one.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.engine.base import cluster_of, session_of
from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.inputs.base import DatasetSource, MappedSource, RowSource, rows_of_stream
from lakebed.inputs.files import DataFiles
from lakebed.inputs.python_rows import WHAT_IS_DATA, integers_of, of_python, refuse_values, type_of
from lakebed.schema.arrow import check_names
from lakebed.schema.conversion import cast_column
from lakebed.schema.layouts import plain_table
from lakebed.schema.plain_arrow import as_numpy

_log = logging.getLogger("lakebed")
_NANOS_A_MICRO = 1000
_read_streams: weakref.WeakSet[Any] = weakref.WeakSet()
# Streams of these libraries make their rows again for each reader.
_READ_AGAIN = ("lakebed", "pandas", "polars", "duckdb", "_duckdb", "ibis", "datafusion")


def is_read_once(data: Any) -> bool:
    """Whether the rows of the data can, or may, be read only once: a RecordBatchReader, an iterator of batches, or a
    stream of an unknown class."""
    return _is_stream(data) or _is_foreign(data)


def _is_stream(data: Any) -> bool:
    if session_of(data) is not None:
        return False
    is_iterator = hasattr(data, "__arrow_c_stream__") and hasattr(data, "__next__")
    return is_iterator or hasattr(data, "read_next_batch")


def _is_foreign(data: Any) -> bool:
    """Whether the data is of an unknown library's class, whose streams may be one stream or a new one for each
    reader."""
    module = type(data).__module__.partition(".")[0]
    is_known = module in ("pyarrow", "pyspark", *_READ_AGAIN)
    return not is_known and hasattr(data, "__arrow_c_stream__")


def schema_of_stream(data: Any) -> pa.Schema | None:
    """The schema of a stream or Scanner, of which no row is read; None for data that can be read again."""
    if _is_stream(data):
        return pa.schema(data.schema)
    if _is_foreign(data):
        return pa.RecordBatchReader.from_stream(data).schema
    if type(data).__module__.startswith("pyarrow") and hasattr(data, "projected_schema"):
        return data.projected_schema
    return None


def _check_unread(data: Any) -> None:
    """Raise `InvalidOption` for a stream that an earlier call read, so that it seems to have no rows."""
    if _is_stream(data):
        with suppress(TypeError):  # a class of others that cannot be remembered raises by itself
            if data in _read_streams:
                raise _used_up(data)
            _read_streams.add(data)


def _batches_of(data: Any, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream. Raises `InvalidOption` if another call read rows of it, and this call gets none."""
    rows = 0
    for batch in stream:
        rows += batch.num_rows
        yield batch
    if _is_foreign(data):
        with suppress(TypeError):
            if rows:
                _read_streams.add(data)
            elif data in _read_streams:
                raise _used_up(data)


def _used_up(data: Any) -> InvalidOption:
    kind = type(data)
    return InvalidOption(
        f"the rows of this {kind.__module__}.{kind.__name__} are gone: an earlier call has read them",
        hint="make the stream again, or give its rows as a table: reader.read_all()",
    )


def to_arrow_table(data: Any, types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """The caller's data as an Arrow table in plain layouts. Raises `InvalidOption` for data of an unsupported kind.
    `types` are the columns of the target table, if there is one."""
    rows = _rows_of(data, types or {})
    return plain_table(rows.table() if isinstance(rows, RowSource) else rows)


def arrow_rows(data: Any, types: Mapping[str, pa.DataType]) -> Any:
    """The caller's rows, unless they are in the tasks of a cluster, as a Spark DataFrame (then unchanged): an Arrow
    table, or a source of rows that are too many for one. UUIDs are texts in text columns."""
    if isinstance(data, pa.Table):
        return _fitted(plain_table(data), types)
    data = of_python(data, types)
    if cluster_of(data) is not None:
        return data
    rows = _rows_of(data, types)
    if isinstance(rows, RowSource):
        small = rows.table_if_small()
        if small is None:
            return plain_source(rows, types)
        rows = small
    return _fitted(plain_table(rows), types)


def with_warning_of_nanoseconds(rows: pa.Table | RowSource, table: str) -> pa.Table | RowSource:
    """The rows, unchanged. A warning names each column of times whose nanoseconds the table cuts off, with the first
    such time; for a source of rows when they are read."""
    warned: set[str] = set()

    def warn(batch: pa.RecordBatch | pa.Table) -> Any:
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if field.name not in warned and (cut := _first_cut(column)) is not None:
                warned.add(field.name)
                _log.warning(
                    "column %s of table %r stores microseconds: the nanoseconds of its times are cut, first those of"
                    " %s; to keep them, give the column as bigint or text",
                    *(field.name, table, cut),
                )
        return batch

    return warn(rows) if isinstance(rows, pa.Table) else MappedSource(rows, warn, rows.schema)


def _first_cut(column: Any) -> str | None:
    """The first time of the column that is no whole number of microseconds, as text; None if there is none."""
    if not pt.is_timestamp(column.type) or column.type.unit != "ns":
        return None
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        numbers = as_numpy(pc.fill_null(chunk.cast(pa.int64()), 0))
        fine = np.flatnonzero(numbers % _NANOS_A_MICRO)
        if len(fine):
            return str(chunk[int(fine[0])].cast(pa.string()))
    return None


def plain_source(rows: RowSource, types: Mapping[str, pa.DataType]) -> RowSource:
    """The source with every batch in plain layouts, without dictionaries, whose codes in two batches mean different
    values."""

    def fit(batch: pa.RecordBatch) -> pa.RecordBatch:
        table = plain_table(pa.Table.from_batches([batch]))
        for at, field in enumerate(table.schema):
            if pt.is_dictionary(field.type):
                table = table.set_column(
                    at, field.with_type(field.type.value_type), table.column(at).cast(field.type.value_type)
                )
        (fitted,) = _fitted(table, types).combine_chunks().to_batches() or [None]
        return batch.slice(0, 0) if fitted is None else fitted

    empty = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in rows.schema], names=rows.schema.names)
    return MappedSource(rows, fit, fit(empty).schema)


def _fitted(table: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    for at, field in enumerate(table.schema):
        kind = type_of(field.name, types) if field.type == pa.uuid() else None
        if kind is not None and pt.is_string(kind):
            table = table.set_column(at, field.with_type(kind), cast_column(table.column(at), kind))
    return table


def _rows_of(data: Any, types: Mapping[str, pa.DataType]) -> pa.Table | RowSource:
    try:
        return _table_or_source(data, types)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:  # a column alone, or one of values of several types
        raise _no_rows(data, f": {error}") from error


def _table_or_source(data: Any, types: Mapping[str, pa.DataType]) -> pa.Table | RowSource:
    if isinstance(data, pa.Table | RowSource):
        return data
    if isinstance(data, DataFiles):
        rows = data.read(types)
        return rows if isinstance(rows, pa.Table | RowSource) else of_python(rows, types)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if (session := session_of(data)) is not None:
        from lakebed.engine.spark import SparkEngine

        return SparkEngine(session).collect_normalised(data)
    if cluster_of(data) is not None:
        from lakebed.engine.tasks import task_engine

        engine = task_engine(data)
        assert engine is not None
        return engine.collect(engine.rows(data))
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        return _of_pandas(data, types)
    if module == "polars" and hasattr(data, "collect"):
        data = data.collect()
    _refuse_opaque(data, module)
    if hasattr(data, "__arrow_c_stream__"):
        _check_unread(data)
        stream = pa.RecordBatchReader.from_stream(data)
        return stream.read_all() if module == "polars" else rows_of_stream(stream.schema, _batches_of(data, stream))
    if module == "pyarrow" and hasattr(data, "get_fragments"):
        return DatasetSource(data)
    if module == "pyarrow" and hasattr(data, "to_table"):  # a Scanner
        return rows_of_stream(data.projected_schema, data.to_batches())
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    rows = of_python(data, {})
    if rows is not data:
        return rows
    raise _no_rows(data)


def _of_pandas(frame: Any, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The frame's columns, and the named levels of its index: those that the table has a column for, or all if there is
    no table yet. A level without a name has row numbers, or what a filter or grouping left of them."""
    for name, kind in frame.dtypes.items():
        if getattr(kind, "kind", "") == "c" or str(kind).startswith("Sparse["):
            raise SchemaConflict(
                f"column {name} has pandas' type {kind}, which has no Arrow type",
                hint="make it dense (column.sparse.to_dense()), or give real and imaginary part as columns",
                context={"column": str(name), "type": str(kind)},
            )
    check_names([str(name) for name in frame.columns])
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        for name in frame.columns:
            try:
                pa.array(frame[name], from_pandas=True)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                refuse_values(name, frame[name].tolist())
        raise
    for at, (name, kind) in enumerate(frame.dtypes.items()):
        if getattr(kind, "kind", "") == "f" and isinstance(kind, np.dtype):
            column = integers_of(frame[name].to_numpy(), type_of(str(name), types))
            if isinstance(column, pa.Array):
                table = table.set_column(at, str(name), column)
    for name in dict.fromkeys(frame.index.names):
        if name is None or str(name) in table.column_names or (types and type_of(str(name), types) is None):
            continue
        level = frame.index.get_level_values(name).to_frame(index=False, name=str(name))
        (column,) = pa.Table.from_pandas(level, preserve_index=False).columns
        table = table.append_column(str(name), column)
    return table


def _refuse_opaque(data: Any, module: str) -> None:
    """Raise an error for columns of other libraries whose values have no meaning outside of these: polars hands over
    the addresses of Python objects, DuckDB bytes in its own form for bits and large numbers, and times without their
    offset."""
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
    """The name of a DuckDB type (or of one inside it) whose values lose their meaning in Arrow; empty if there is
    none."""
    if kind.id in ("bit", "bignum", "varint", "time with time zone"):
        return str(kind)
    if kind.id not in ("list", "array", "struct", "map", "union"):
        return ""
    return next((opaque for _, inner in kind.children if hasattr(inner, "id") and (opaque := _opaque_in(inner))), "")


def _no_rows(data: Any, why: str = "") -> InvalidOption:
    kind = type(data)
    return InvalidOption(f"cannot take rows from {kind.__module__}.{kind.__name__}{why}", hint=f"give {WHAT_IS_DATA}")

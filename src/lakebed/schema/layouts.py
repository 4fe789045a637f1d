"""Arrow's many layouts of one value in the few that its kernels and Parquet take: no views, runs or nested codes.

Also repairs Spark's lists inside lists. If there is no inner list at all, Java writes no offsets. Arrow reads the first
offset nevertheless when it counts bytes or writes a stream, and the process dies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidRecord
from lakebed.schema.arrow import check_levels
from lakebed.schema.plain_arrow import as_numpy, is_list

_MAX_TEXT = 60
_PLAIN_FORM: dict[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    # what is below a microsecond is cut off, as it is from timestamps
    pa.time64("ns"): pa.time64("us"),
}


def plain_table(table: pa.Table) -> pa.Table:
    """The table with every column in a plain layout; columns that have one are unchanged. Raises `InvalidRecord` for a
    text that is not UTF-8.

    >>> views = pa.table({"name": pa.array(["a", "b"], pa.string_view()).dictionary_encode()})
    >>> plain_table(views).schema.field("name").type
    DataType(string)
    """
    for at, field in enumerate(table.schema):
        check_levels(field)
        if not _is_plain(field.type):
            column = plain_column(table.column(at))
            table = table.set_column(at, pa.field(field.name, column.type, field.nullable, field.metadata), column)
        check_texts(table.column(at), field.name)
    return table


def check_texts(column: pa.ChunkedArray, name: str) -> None:
    """Raise `InvalidRecord` for a text in a column that is not UTF-8: Arrow accepts any bytes as texts, and no file can
    store them."""
    for chunk in column.chunks:
        for texts in _texts_in(chunk):
            try:
                texts.validate(full=True)
            except pa.ArrowInvalid:
                value = texts.slice(_first_broken(texts), 1).cast(pa.binary())[0].as_py()
                raise InvalidRecord(
                    f"column {name} has a text that is no UTF-8: {value[:_MAX_TEXT]!r}",
                    hint="decode its bytes anew, for example with errors='replace', or give the column as BINARY",
                    context={"column": name, "value": repr(value[:_MAX_TEXT])},
                ) from None


def _texts_in(array: Any) -> Iterator[Any]:
    """The text arrays in an array of a plain layout and in its parts, without texts under a null."""
    kind = array.type
    if pt.is_dictionary(kind):
        if pt.is_string(kind.value_type) or pt.is_large_string(kind.value_type):
            yield array.dictionary_decode()
    elif pt.is_string(kind) or pt.is_large_string(kind):
        yield array
    elif pt.is_struct(kind):
        for part in array.flatten() if _has_texts(kind) else ():
            yield from _texts_in(part)
    elif pt.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        for part in (array.keys, array.items) if _has_texts(kind) else ():
            yield from _texts_in(part.slice(first, last - first))
    elif is_list(kind) and _has_texts(kind):
        yield from _texts_in(array.flatten())


@cache
def _has_texts(kind: pa.DataType) -> bool:
    if pt.is_nested(kind):
        return any(_has_texts(kind.field(at).type) for at in range(kind.num_fields))
    return pt.is_string(kind) or pt.is_large_string(kind)


def _first_broken(texts: Any) -> int:
    low, high = 0, len(texts)  # the first broken text is in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            texts.slice(low, middle - low).validate(full=True)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a plain layout (no views, run-ends or large offsets), chunk by chunk."""
    chunks = [_plain(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, chunks[0].type if chunks else _plain(pa.array([], column.type)).type)


def fill_hidden_nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with a value wherever a required field is null inside a struct that is null itself. Readers do not see
    such fields (Spark passes them on), but Parquet's writer refuses them. Raises `InvalidRecord` for a null that is
    visible."""
    if not _has_required(column.type):
        return column
    return pa.chunked_array([_filled(chunk) for chunk in column.chunks], column.type)


def _has_required(kind: pa.DataType) -> bool:
    """Whether a struct inside the type has a required field."""
    inside = [kind.field(n) for n in range(kind.num_fields)]
    return any(_has_required(f.type) or (pt.is_struct(kind) and not f.nullable) for f in inside)


def _filled(array: Any) -> pa.Array:
    kind = array.type
    if not _has_required(kind):
        return array
    if pt.is_struct(kind):
        hidden = np.asarray(array.is_null())
        fields = [_without_hidden_nulls(array.field(n), kind.field(n), hidden) for n in range(kind.num_fields)]
        return pa.StructArray.from_arrays([_filled(f) for f in fields], fields=list(kind), mask=_nulls(array))
    if pt.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        items = _filled(array.items.slice(first, last - first))
        keys, offsets = array.keys.slice(first, last - first), pc.subtract(array.offsets, first)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=_nulls(array))
    return pa.ListArray.from_arrays(list_offsets(array), _filled(array.flatten()), type=kind, mask=_nulls(array))


def _without_hidden_nulls(values: pa.Array, field: pa.Field, hidden: Any) -> pa.Array:
    if field.nullable or not values.null_count:
        return values
    if np.any(np.asarray(values.is_null()) & ~hidden):
        raise InvalidRecord(
            f"field {field.name} of a struct is declared not null and holds null",
            hint="fill it, or declare the field nullable",
            context={"column": field.name},
        )
    filler = pa.array([_some_value(field.type)], field.type)
    return pa.concat_arrays([values, filler]).take(pa.array(np.where(hidden, len(values), np.arange(len(values)))))


def _some_value(kind: pa.DataType) -> Any:
    """Any Python value of the type, for a position that no reader sees."""
    if pt.is_struct(kind):
        return {f.name: None if f.nullable else _some_value(f.type) for f in kind}
    if pt.is_nested(kind):
        return []
    if pt.is_string(kind) or pt.is_binary(kind):
        return b""
    if pt.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    return False if pt.is_boolean(kind) else 0


def _is_plain(kind: pa.DataType) -> bool:
    """Whether no part of a type needs another layout. Dictionaries of plain texts are allowed for a complete column."""
    if pt.is_dictionary(kind):
        return not pt.is_nested(kind.value_type) and _has_plain_parts(kind.value_type)
    return _has_plain_parts(kind)


@cache
def _has_plain_parts(kind: pa.DataType) -> bool:
    if kind in _PLAIN_FORM or pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return False
    if pt.is_list_view(kind) or pt.is_large_list_view(kind):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return _has_plain_parts(kind.storage_type)
    return all(_has_plain_parts(kind.field(n).type) for n in range(kind.num_fields))


def _plain(array: Any) -> pa.Array:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return array if _has_plain_parts(kind.storage_type) else _plain(array.storage)
    if _has_plain_parts(kind):
        return array
    if kind in _PLAIN_FORM:
        return array.cast(options=pc.CastOptions(target_type=_PLAIN_FORM[kind], allow_time_truncate=True))
    if pt.is_dictionary(kind):
        return _plain(array.dictionary).take(array.indices)
    if pt.is_run_end_encoded(kind):
        return _plain(_decoded(array))
    if pt.is_struct(kind):
        inside = [_plain(array.field(n)) for n in range(kind.num_fields)]
        fields = [kind.field(n).with_type(part.type) for n, part in enumerate(inside)]
        return pa.StructArray.from_arrays(inside, fields=fields, mask=_nulls(array))
    if pt.is_map(kind):
        return _plain_map(array)
    assert is_list(kind)
    values = _plain(array.flatten())
    return pa.ListArray.from_arrays(
        list_offsets(array), values, type=pa.list_(kind.value_field.with_type(values.type)), mask=_nulls(array)
    )


def _decoded(array: Any) -> pa.Array:
    """A run-end encoded array as one value for each row."""
    ends = as_numpy(array.run_ends)
    rows = np.searchsorted(ends, np.arange(array.offset, array.offset + len(array)), side="right")
    return _plain(array.values).take(pa.array(rows))


def _plain_map(array: Any) -> pa.Array:
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    keys, items = _plain(array.keys.slice(first, last - first)), _plain(array.items.slice(first, last - first))
    kind = pa.map_(array.type.key_field.with_type(keys.type), array.type.item_field.with_type(items.type))
    return pa.MapArray.from_arrays(pc.subtract(array.offsets, first), keys, items, type=kind, mask=_nulls(array))


def list_offsets(array: Any) -> pa.Array:
    """The position at which each list of an array (of any layout) begins in the result of `flatten`."""
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(as_numpy(pc.fill_null(pc.list_value_length(array), 0)), out=offsets[1:])
    return pa.array(offsets)


def _nulls(array: Any) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with offsets for all lists and maps in it.

    >>> batch = pa.record_batch({"x": [[["a"]], []]})
    >>> with_offsets(batch).equals(batch)
    True
    """
    originals = batch.columns
    columns = [_with_all_offsets(column) for column in originals]
    if all(new is old for new, old in zip(columns, originals, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def table_with_offsets(table: pa.Table) -> pa.Table:
    """The table with offsets for all lists and maps in its batches (see `with_offsets`)."""
    if not any(_holds_lists(kind) for kind in table.schema.types):
        return table
    return pa.Table.from_batches([with_offsets(batch) for batch in table.to_batches()], table.schema)


@cache
def _holds_lists(kind: pa.DataType) -> bool:
    """Whether a type has lists or maps at any depth."""
    if _is_list(kind):
        return True
    return pt.is_struct(kind) and any(_holds_lists(kind.field(n).type) for n in range(kind.num_fields))


def _is_list(kind: pa.DataType) -> bool:
    return pt.is_list(kind) or pt.is_map(kind)


def _with_all_offsets(array: Any) -> Any:
    kind = array.type
    if array.offset or not _holds_lists(kind):
        return array
    if not len(array):
        return pa.array([], kind)
    if _is_list(kind):
        buffer_count, inside = 2, [array.values]
    else:
        buffer_count, inside = 1, [array.field(n) for n in range(kind.num_fields)]
    filled = [_with_all_offsets(child) for child in inside]
    if all(new is old for new, old in zip(filled, inside, strict=True)):
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:buffer_count], array.null_count, children=filled)

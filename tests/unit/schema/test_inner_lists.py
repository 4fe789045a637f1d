"""Lists of lists without an inner list, as Java's Arrow writes them: offsets come before anything reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakebed.schema.layouts import table_with_offsets, with_offsets

INTS, MAP = pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32())


def without_offsets(kind: pa.DataType) -> Any:
    """An array of no lists without a byte of offsets."""
    inside = pa.array([], pa.struct(list(kind.field(0).type)) if pa.types.is_map(kind) else kind.field(0).type)
    return pa.Array.from_buffers(kind, 0, [None, pa.foreign_buffer(0, 0)], children=[inside])


def empty_lists(inner: Any) -> Any:
    offsets = pa.py_buffer(struct.pack("iii", 0, 0, 0))
    return pa.Array.from_buffers(pa.list_(inner.type), 2, [None, offsets], children=[inner])


def offsets_of(array: Any) -> Iterator[pa.Buffer]:
    """Of every list and map inside: nothing is read of them."""
    if pa.types.is_struct(array.type):
        for n in range(array.type.num_fields):
            yield from offsets_of(array.field(n))
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        yield array.buffers()[1]
        yield from offsets_of(array.values)


@pytest.mark.parametrize("kind", [INTS, MAP], ids=str)
@pytest.mark.parametrize("within", ["list", "struct in a list", "list of lists", "batch without rows"])
def test_lists_that_are_not_there_get_their_offsets(kind: pa.DataType, within: str) -> None:
    inner = without_offsets(kind)
    if within == "struct in a list":
        inner = pa.StructArray.from_arrays([pa.array([], pa.string()), inner], ["a", "b"])
    column = empty_lists(inner)
    if within == "list of lists":
        column = pa.Array.from_buffers(
            pa.list_(column.type), 1, [None, pa.py_buffer(struct.pack("ii", 0, 2))], children=[column]
        )
    elif within == "batch without rows":
        column = inner
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(column))), column], names=["id", "x"])
    mended = with_offsets(batch)
    assert all(buffer.size >= 4 for buffer in offsets_of(mended.column(1)))
    assert mended.nbytes > 0 or not len(column)
    assert mended.schema == batch.schema
    assert mended.to_pylist() == batch.to_pylist()
    with pa.ipc.new_stream(pa.BufferOutputStream(), batch.schema) as stream:
        stream.write_batch(mended)
    table = table_with_offsets(pa.Table.from_batches([batch]))
    assert [b.to_pylist() for b in table.to_batches()] == ([batch.to_pylist()] if len(column) else [])


def test_lists_with_offsets_stay_as_they_are() -> None:
    batch = pa.record_batch({"x": [[["a"], None], [], None], "s": [{"l": [[1]]}, None, {"l": None}], "n": [1, 2, 3]})
    assert with_offsets(batch) is batch
    part = batch.slice(1)
    assert with_offsets(part).to_pylist() == part.to_pylist()

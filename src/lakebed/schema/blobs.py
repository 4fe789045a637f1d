"""BLOB values: `lakebed.blob` makes them, single ones and whole columns, and `check_blobs` refuses those that no reader
could resolve.
"""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.config.arguments import checks_arguments
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.schema.arrow import is_text
from lakebed.schema.logical_types import BLOB, REFERENCE, is_bytes
from lakebed.schema.plain_arrow import one_array

INLINE, OUT_OF_LINE = "INLINE", "OUT_OF_LINE"
"""The storage types of blobs: bytes in the table, and bytes of another file."""

# A URI, or an absolute path.
_FULL_PATH = "^(/|[A-Za-z][A-Za-z0-9+.-]*:)"
_BYTES = (bytes, bytearray, memoryview)


@checks_arguments
def blob(*, data: Any = None, path: Any = None, offset: Any = 0, length: Any = None) -> Any:
    """A value of a BLOB column, or a whole column of them: `data` in the table, or a reference to the bytes of the file
    `path`, from `offset` on, `length` bytes or (None) up to its end.

    Bytes, and a path as text, give a dict for a row. An Arrow column (or anything with Arrow's protocols, or a list) of
    bytes or of paths gives an Arrow column, in which a null stays a null; `offset` and `length` may be columns, too.
    A path is a URI (`s3://bucket/key`) or absolute on the machine that reads; the file is not opened here, and lakebed
    never deletes it. Raises `InvalidOption` unless one of `data` and `path` is given, and for `data` with an offset or
    length; `InvalidRecord` for values of another type.

    >>> import lakebed, pyarrow as pa
    >>> schema = pa.schema([("id", pa.int64()), ("pic", lakebed.BLOB)])
    >>> t = lakebed.create("memory://docs/blobs", schema, key="id")
    >>> _ = t.upsert([{"id": 1, "pic": lakebed.blob(data=b"some bytes")}])
    >>> _ = t.upsert(pa.table({"id": [2, 3], "pic": lakebed.blob(data=pa.array([b"two", None]))}))
    >>> list(t.read_blob([1, 2, 3], "pic"))
    [b'some bytes', b'two', None]
    >>> lakebed.blob(path="s3://photos/all.bin", offset=10, length=5)["reference"]["external_path"]
    's3://photos/all.bin'
    """
    if (data is None) == (path is None):
        raise InvalidOption(
            "blob() takes either data or a path",
            hint="write lakebed.blob(data=...), or lakebed.blob(path='s3://bucket/key', offset=0, length=None)",
        )
    is_part = length is not None or not (offset is None or (isinstance(offset, int) and offset == 0))
    if data is not None and is_part:
        raise InvalidOption(
            "blob(data=...) stores all of the data, and takes neither offset nor length",
            hint="give the part of the bytes that is to be stored, data=data[10:20]",
        )
    if isinstance(data, _BYTES):
        return {"type": INLINE, "data": bytes(data), "reference": None}
    if isinstance(path, str | os.PathLike):
        for name, number in (("offset", offset), ("length", length)):
            if isinstance(number, bool) or not (number is None or (isinstance(number, int) and 0 <= number < 1 << 63)):
                raise InvalidRecord(f"blob() takes a whole number as {name}, and got {number!r}", hint="give bytes")
        reference = {"external_path": os.fspath(path), "offset": offset, "length": length, "managed": False}
        return {"type": OUT_OF_LINE, "data": None, "reference": reference}
    if data is not None:
        column = _column(data, pa.large_binary(), "data")
        if not isinstance(column, pa.ChunkedArray):
            return _inline(column)
        return pa.chunked_array(list(map(_inline, column.chunks)), None if column.num_chunks else BLOB)
    paths = one_array(_column(path, pa.string(), "path"))
    mask, count = _nulls(paths), len(paths)
    numbers = [_numbers(values, count, name) for values, name in ((offset, "offset"), (length, "length"))]
    parts = [pc.fill_null(paths, ""), *numbers, pa.repeat(pa.scalar(False), count)]
    references = pa.StructArray.from_arrays(parts, fields=list(REFERENCE), mask=mask)
    kinds = pa.repeat(pa.scalar(OUT_OF_LINE), count)
    return pa.StructArray.from_arrays([kinds, pa.nulls(count, pa.binary()), references], fields=list(BLOB), mask=mask)


def _column(values: Any, kind: pa.DataType, argument: str) -> Any:
    """The values as an Arrow column of bytes or of texts."""
    try:
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else _arrow(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _refused(argument, type(values).__name__) from error
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pt.is_null(column.type):
        return column.cast(kind)
    if not (is_bytes(column.type) if argument == "data" else is_text(column.type)):
        raise _refused(argument, str(column.type))
    if argument == "path":
        return column.cast(kind)
    return column if pt.is_binary(column.type) else column.cast(pa.large_binary())


def _arrow(values: Any) -> Any:
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    return pa.array(values if hasattr(values, "__arrow_c_array__") else list(values))


def _refused(argument: str, have: str) -> InvalidRecord:
    takes = "bytes" if argument == "data" else "paths as texts"
    return InvalidRecord(
        f"blob() takes {takes} as {argument}, or a column of them, and got {have}",
        hint="encode a text: data=text.encode()" if argument == "data" else "give a URI, or an absolute path",
        context={"argument": argument},
    )


def _numbers(values: Any, count: int, argument: str) -> pa.Array:
    """The offsets or lengths of `count` blobs."""
    if values is None:
        return pa.nulls(count, pa.int64())
    try:
        if isinstance(values, int):
            return pa.repeat(pa.scalar(values, pa.int64()), count)
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else _arrow(values)
        numbers = one_array(column).cast(pa.int64())
    except (pa.ArrowException, TypeError) as error:
        raise InvalidRecord(f"blob() takes whole numbers as {argument}: {error}", hint="give bytes") from error
    if len(numbers) != count:
        raise InvalidRecord(
            f"blob() got {count} paths and {len(numbers)} numbers as {argument}", hint="give one for each path"
        )
    return numbers


def _inline(data: Any) -> pa.StructArray:
    fields = [BLOB.field("type"), BLOB.field("data").with_type(data.type), BLOB.field("reference")]
    kinds = pa.repeat(pa.scalar(INLINE), len(data))
    return pa.StructArray.from_arrays([kinds, data, pa.nulls(len(data), REFERENCE)], fields=fields, mask=_nulls(data))


def _nulls(column: Any) -> Any:
    return column.is_null() if column.null_count else None


def check_blobs(values: Any, column: str) -> None:
    """Raise `InvalidRecord` for a blob whose bytes no reader could find: of an unknown storage type, without data, or
    without a reference to bytes that can be."""
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        parts = dict(zip((field.name for field in chunk.type), chunk.flatten(), strict=True))
        kinds = parts["type"]
        is_inline, is_outside = (pc.fill_null(pc.equal(kinds, kind), False) for kind in (INLINE, OUT_OF_LINE))
        names = (field.name for field in parts["reference"].type)
        reference = dict(zip(names, parts["reference"].flatten(), strict=True))
        is_known = pc.or_(pc.or_(is_inline, is_outside), chunk.is_null())
        if not pc.all(is_known).as_py():
            other = kinds.filter(pc.invert(is_known))[0].as_py()
            raise _unreadable(column, f"has the storage type {other!r}", "the types are INLINE and OUT_OF_LINE")
        if pc.any(pc.and_(is_inline, parts["data"].is_null())).as_py():
            raise _unreadable(column, "is INLINE and has no data", "give lakebed.blob(data=...), or null for no blob")
        path = pc.fill_null(reference["external_path"], "")
        if pc.any(pc.and_(is_outside, pc.equal(path, ""))).as_py():
            raise _unreadable(column, "is OUT_OF_LINE and names no file", "give lakebed.blob(path=...)")
        if not pc.all(pc.or_(pc.invert(is_outside), pc.match_substring_regex(path, _FULL_PATH))).as_py():
            other = path.filter(pc.and_(is_outside, pc.invert(pc.match_substring_regex(path, _FULL_PATH))))[0].as_py()
            hint = "give a URI, or an absolute path on the machines that read: readers have other working folders"
            raise _unreadable(column, f"is OUT_OF_LINE in {other!r}, a relative path", hint)
        for name in ("offset", "length"):
            if (least := pc.min(reference[name].filter(is_outside)).as_py() or 0) < 0:
                raise _unreadable(column, f"has the {name} {least}", "give a number of bytes, not below 0")


def _unreadable(column: str, why: str, hint: str) -> InvalidRecord:
    return InvalidRecord(
        f"column {column} is BLOB, and a blob of it {why}", hint=hint, context={"column": column, "table": "BLOB"}
    )

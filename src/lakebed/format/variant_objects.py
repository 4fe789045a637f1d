"""Variants made of Python objects, Arrow columns and JSON texts, and read as Python objects: whole columns at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidRecord, LakebedError
from lakebed.format.variants import DECODED, ENCODED, OBJECT_OF_MAP, computed, in_arrow
from lakebed.schema.arrow import list_of
from lakebed.schema.conversion import cast_column
from lakebed.schema.logical_types import as_variants, is_variant
from lakebed.schema.plain_arrow import has_map, is_list

# In a JSON text: an integer that may have more than 64 bits, and a NUL, which may be in a name.
_DOUBTFUL = re.compile(r"\d{19}|\\u0000")


def encoded(values: Any) -> pa.StructArray:
    """The variants of Python objects, or of an Arrow column of any type (`lakebed.variant.encode`)."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if is_variant(values.type):
            return as_variants(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
        value = OBJECT_OF_MAP if _is_map_of_names(values.type) else "c::VARIANT"
        return _of_column(cast_column(values, _in_order(values.type)), ENCODED.format(value))
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidRecord(
            f"variants are made of a list of values or an Arrow column, not of a {type(values).__name__}",
            hint="give a list, also for one value",
        )
    rows: list[Any] = list(values)
    texts: list[str | None] = [None] * len(rows)
    for at, row in enumerate(rows):
        with suppress(TypeError, ValueError, RecursionError):  # JSON does not have such an object
            if row is not None:
                text = json.dumps(row, ensure_ascii=False, allow_nan=False, sort_keys=True)
                text.encode()  # a half of a surrogate pair is no text
                texts[at] = _sorted_json(text, at) if _DOUBTFUL.search(text) else text
    others = [at for at, row in enumerate(rows) if row is not None and texts[at] is None]
    by_text = _of_column(pa.array(texts, pa.string()), ENCODED.format("c::JSON::VARIANT"))
    if not others:
        return by_text
    parts = [_of_object(rows[at], at) for at in others]
    by_json = [at for at in range(len(rows)) if texts[at] is not None or rows[at] is None]
    order = pc.sort_indices(pa.array([*others, *by_json]))
    return pa.concat_arrays([*parts, by_text.take(pa.array(by_json, pa.int64()))]).take(order)


def encoded_texts(texts: Any) -> pa.StructArray:
    """The variants of JSON texts (`lakebed.variant.parse_json`)."""
    try:
        column = texts if isinstance(texts, pa.Array | pa.ChunkedArray) else pa.array(texts, pa.string())
        column = column.cast(pa.string())
    except (pa.ArrowException, TypeError, UnicodeEncodeError) as error:
        raise InvalidRecord(f"JSON texts are needed: {error}", hint="give a list of texts, also for one") from error
    # in Python, since DuckDB does not sort names, reads `{"a":1,}` and takes large integers for floats
    sorted_texts = [None if text is None else _sorted_json(text, at) for at, text in enumerate(column.to_pylist())]
    return _of_column(pa.array(sorted_texts, pa.string()), ENCODED.format("c::JSON::VARIANT"))


def decoded_values(variants: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of variants as Python objects."""
    return [row[0] for row in computed(variants, DECODED, lambda rows: rows.fetchall())]


def _sorted_json(text: str, at: int) -> str:
    """A JSON text with names in ascending order."""

    def integer(digits: str) -> int:
        number = int(digits)
        if not -(2**63) <= number < 2**63:
            raise InvalidRecord(
                f"the value at position {at} has the integer {digits}, which has more than 64 bits",
                hint="give it as a decimal, a float or a text",
                context={"position": at},
            )
        return number

    def named(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if any("\0" in name for name, _ in pairs):  # DuckDB would cut it
            raise InvalidRecord(
                f"the value at position {at} has a name with the character NUL",
                hint="give it another name",
                context={"position": at},
            )
        return dict(pairs)

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    try:
        value = json.loads(text, parse_int=integer, parse_constant=constant, object_pairs_hook=named)
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(
            f"the text at position {at} is no JSON: {error}",
            hint="correct it, or give null",
            context={"position": at},
        ) from error


def _of_object(row: Any, at: int) -> pa.StructArray:
    try:
        value = encoded(pa.array([row]))
        reads_back = _is_same(decoded_values(value)[0], row)
    except (pa.ArrowException, LakebedError, OverflowError, ValueError) as error:
        raise _no_variant(at, str(error)) from error
    if not reads_back:  # Arrow gives the values of a list one type, and the objects in it the same fields
        raise _no_variant(at, "beside dates, times, bytes, decimals and NaN, a list holds values of one type")
    return value


def _no_variant(at: int, why: str) -> InvalidRecord:
    return InvalidRecord(
        f"the value at position {at} is no variant: {why}",
        hint="give dicts, lists, texts, numbers, dates, times, bytes and None",
        context={"position": at},
    )


def _is_same(left: Any, right: Any) -> bool:
    """Whether two Python values are equal, of equal types, and NaN equals itself."""
    if isinstance(right, dict):
        return isinstance(left, dict) and left.keys() == right.keys() and all(_is_same(left[k], right[k]) for k in left)
    if isinstance(right, list | tuple):
        return isinstance(left, list) and len(left) == len(right) and all(map(_is_same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)
    return type(left) is type(right) and left == right


def _is_map_of_names(kind: Any) -> bool:
    """Whether a type is a map from texts. Raises `InvalidRecord` for other maps, which would become lists of pairs."""
    if pt.is_map(kind) and pt.is_string(kind.key_type) and not has_map(kind.item_type):
        return True
    if has_map(kind):
        raise InvalidRecord(
            f"a column of {kind} has maps that are no objects of a variant",
            hint="give structs, or a map from texts that is the whole column",
        )
    return False


def _in_order(kind: Any) -> Any:
    """The type with the fields of structs in ascending order of their names."""
    if pt.is_struct(kind):
        return pa.struct(sorted([f.with_type(_in_order(f.type)) for f in kind], key=lambda f: f.name))
    return list_of(_in_order(kind.value_type)) if is_list(kind) else kind


def _of_column(column: pa.Array | pa.ChunkedArray, expression: str) -> pa.StructArray:
    return as_variants(in_arrow(column, f"CASE WHEN c IS NOT NULL THEN {expression} END"))

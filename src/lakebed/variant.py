"""`lakebed.variant`: whole columns of VARIANT values, made of Python objects, Arrow columns and JSON texts, and read.

A VARIANT column is a struct of two binaries in the bytes of Parquet's variant encoding: `metadata` has the names of
fields, `value` the value. DuckDB writes and reads the encoding.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.config.arguments import checks_arguments
from lakebed.errors import InvalidOption, InvalidRecord, LakebedError
from lakebed.format.variant_values import value_at, value_type
from lakebed.format.variants import (
    DECODED,
    ENCODED,
    OBJECT_OF_MAP,
    computed,
    in_arrow,
    json_texts,
    variants_of,
)
from lakebed.schema.arrow import list_of
from lakebed.schema.conversion import cast_column
from lakebed.schema.logical_types import VARIANT, as_variants, is_variant
from lakebed.schema.plain_arrow import is_list

__all__ = ["TYPE", "decode", "encode", "get", "parse_json", "to_json"]

TYPE = VARIANT
"""The Arrow type of a VARIANT column in the schema of a new table."""

# In a JSON text: an integer that may have more than 64 bits, and a NUL, which may be in a name.
_DOUBTFUL = re.compile(r"\d{19}|\\u0000")


@checks_arguments
def encode(values: Any) -> pa.StructArray:
    """An Arrow column of variants with these values: an Arrow column of any type, or Python objects (dicts, lists,
    texts, numbers, dates, bytes and None). Structs, and maps from texts, become objects. A text stays a text:
    `parse_json` reads texts.

    Raises `InvalidRecord`, which gives the position, for a Python object that Arrow has no type for, for a map inside
    another type, and
    `UnsupportedFeature` where DuckDB is not installed, or is older than its variants.

    >>> import lakebed
    >>> lakebed.variant.decode(lakebed.variant.encode([{"stops": [1, "via", None]}, 2.5, None]))
    [{'stops': [1, 'via', None]}, 2.5, None]
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if is_variant(values.type):
            return as_variants(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
        value = OBJECT_OF_MAP if _is_map_of_names(values.type) else "c::VARIANT"
        return _of_column(cast_column(values, _in_order(values.type)), ENCODED.format(value))
    rows: list[Any] = list(values)
    texts: list[str | None] = [None] * len(rows)
    for at, row in enumerate(rows):
        with suppress(TypeError, ValueError, RecursionError):  # JSON does not have such an object
            if row is not None:
                text = json.dumps(row, ensure_ascii=False, allow_nan=False, sort_keys=True)
                text.encode()  # a half of a surrogate pair is no text
                texts[at] = _sorted_json(text, at) if _DOUBTFUL.search(text) else text
    others = [at for at, row in enumerate(rows) if row is not None and texts[at] is None]
    encoded = _of_column(pa.array(texts, pa.string()), ENCODED.format("c::JSON::VARIANT"))
    if not others:
        return encoded
    parts = [_of_object(rows[at], at) for at in others]
    by_json = [at for at in range(len(rows)) if texts[at] is not None or rows[at] is None]
    order = pc.sort_indices(pa.array([*others, *by_json]))
    return pa.concat_arrays([*parts, encoded.take(pa.array(by_json, pa.int64()))]).take(order)


@checks_arguments
def parse_json(texts: Any) -> pa.StructArray:
    """An Arrow column of variants with the values of JSON texts. A null text is a null; the text `null` is the null of
    variants, which `decode` returns as None, too.

    Raises `InvalidRecord`, which gives the position, for a text that is no JSON, and for an integer of more than 64
    bits.

    >>> import lakebed
    >>> lakebed.variant.decode(lakebed.variant.parse_json(['{"b": 2, "a": [1]}', None]))
    [{'a': [1], 'b': 2}, None]
    """
    column = texts if isinstance(texts, pa.Array | pa.ChunkedArray) else pa.array(texts, pa.string())
    # in Python, since DuckDB does not sort names, reads `{"a":1,}` and takes large integers for floats
    sorted_texts = [None if text is None else _sorted_json(text, at) for at, text in enumerate(column.to_pylist())]
    return _of_column(pa.array(sorted_texts, pa.string()), ENCODED.format("c::JSON::VARIANT"))


@checks_arguments
def decode(variants: Any) -> list[Any]:
    """The values of an Arrow column of variants as Python objects.

    Raises `InvalidRecord` for a column of another type, and for bytes that are no variant.
    """
    return [row[0] for row in computed(variants_of(variants), DECODED, lambda rows: rows.fetchall())]


@checks_arguments
def to_json(variants: Any) -> pa.StringArray:
    """The values of an Arrow column of variants as JSON texts, with the names of fields in ascending order.

    Raises `InvalidRecord` for a column of another type, and for bytes that are no variant.

    >>> import lakebed
    >>> lakebed.variant.to_json(lakebed.variant.encode([{"b": 1, "a": "x"}])).to_pylist()
    ['{"a":"x","b":1}']
    """
    return json_texts(variants_of(variants))


@checks_arguments
def get(variants: Any, path: str, type: Any = "string", *, invalid: str = "error") -> pa.Array:
    """What is at `path` in each variant of an Arrow column, as values of a type (a SQL name or an Arrow type); null
    where there is nothing. Paths are those of Spark's `variant_get`: `$.stops[0].name`, `$['a b']`. The texts of
    objects and lists are JSON, and integers are cut off numbers with a fraction.

    A value that is not of the type raises `InvalidRecord`, and is null with `invalid="null"`. Raises `InvalidOption`
    for a path that does not parse, and for types that no value of a variant has (VECTOR, BLOB, VARIANT).

    >>> import lakebed
    >>> trips = lakebed.variant.encode([{"stops": [{"km": 5}]}, {"stops": []}])
    >>> lakebed.variant.get(trips, "$.stops[0].km", "int").to_pylist()
    [5, None]
    """
    if invalid not in ("error", "null"):
        raise InvalidOption(f"invalid={invalid!r} is unknown", hint="take 'error' or 'null'")
    kind = value_type(type, "variant.get")
    return in_arrow(variants_of(variants), value_at(DECODED, path, kind, invalid=invalid)).cast(kind)


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
        encoded = encode(pa.array([row]))
        reads_back = _is_same(decode(encoded)[0], row)
    except (pa.ArrowException, LakebedError, OverflowError, ValueError) as error:
        raise _no_variant(at, str(error)) from error
    if not reads_back:  # Arrow gives the values of a list one type, and the objects in it the same fields
        raise _no_variant(at, "beside dates, times, bytes, decimals and NaN, a list holds values of one type")
    return encoded


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
    if pt.is_map(kind) and pt.is_string(kind.key_type) and not _has_maps(kind.item_type):
        return True
    if _has_maps(kind):
        raise InvalidRecord(
            f"a column of {kind} has maps that are no objects of a variant",
            hint="give structs, or a map from texts that is the whole column",
        )
    return False


def _has_maps(kind: Any) -> bool:
    return pt.is_map(kind) or any(_has_maps(kind.field(number).type) for number in range(kind.num_fields))


def _in_order(kind: Any) -> Any:
    """The type with the fields of structs in ascending order of their names."""
    if pt.is_struct(kind):
        return pa.struct(sorted([f.with_type(_in_order(f.type)) for f in kind], key=lambda f: f.name))
    return list_of(_in_order(kind.value_type)) if is_list(kind) else kind


def _of_column(column: pa.Array | pa.ChunkedArray, expression: str) -> pa.StructArray:
    encoded = in_arrow(column, f"CASE WHEN c IS NOT NULL THEN {expression} END")
    return as_variants(encoded)

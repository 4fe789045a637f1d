"""`lakebed.variant`: whole columns of VARIANT values, made of Python objects, Arrow columns and JSON texts, and read.

A VARIANT column is a struct of two binaries in the bytes of Parquet's variant encoding: `metadata` has the names of
fields, `value` the value. DuckDB writes and reads the encoding.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.arguments import checks_arguments
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.format.variants import (
    DECODED,
    ENCODED,
    as_variants,
    computed,
    duckdb_type,
    in_arrow,
    value_at,
    variants_of,
)
from lakebed.schema.logical_types import VARIANT
from lakebed.schema.type_names import column_type

__all__ = ["TYPE", "decode", "encode", "get", "parse_json", "to_json"]

TYPE = VARIANT
"""The Arrow type of a VARIANT column in the schema of a new table."""


@checks_arguments
def encode(values: Any) -> pa.StructArray:
    """An Arrow column of variants with these values: an Arrow column of any type, or Python objects (dicts, lists,
    texts, numbers, dates, bytes and None). A text stays a text: `parse_json` reads texts.

    Raises `InvalidRecord`, which gives the position, for a Python object that Arrow has no type for, and
    `UnsupportedFeature` where DuckDB is not installed, or is older than its variants.

    >>> import lakebed
    >>> lakebed.variant.decode(lakebed.variant.encode([{"stops": [1, "via", None]}, 2.5, None]))
    [{'stops': [1, 'via', None]}, 2.5, None]
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _of_column(values, ENCODED.format("c::VARIANT"))
    rows: list[Any] = list(values)
    texts: list[str | None] = [None] * len(rows)
    for at, row in enumerate(rows):
        with suppress(TypeError, ValueError):  # JSON does not have such an object
            texts[at] = None if row is None else json.dumps(row, ensure_ascii=False, allow_nan=False)
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

    Raises `InvalidRecord` for a text that is no JSON.

    >>> import lakebed
    >>> lakebed.variant.decode(lakebed.variant.parse_json(['{"b": 2, "a": [1]}', None]))
    [{'a': [1], 'b': 2}, None]
    """
    column = texts if isinstance(texts, pa.Array | pa.ChunkedArray) else pa.array(texts, pa.string())
    return _of_column(column, ENCODED.format("c::JSON::VARIANT"))


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
    return in_arrow(variants_of(variants), f"({DECODED})::JSON::VARCHAR").cast(pa.string())


@checks_arguments
def get(variants: Any, path: str, type: Any = "string", *, invalid: str = "error") -> pa.Array:
    """What is at `path` in each variant of an Arrow column, as values of a type (a SQL name or an Arrow type); null
    where there is nothing. Paths are those of Spark's `variant_get`: `$.stops[0].name`, `$['a b']`.

    A value that is not of the type raises `InvalidRecord`, and is null with `invalid="null"`. Raises `InvalidOption`
    for a path that does not parse.

    >>> import lakebed
    >>> trips = lakebed.variant.encode([{"stops": [{"km": 5}]}, {"stops": []}])
    >>> lakebed.variant.get(trips, "$.stops[0].km", "int").to_pylist()
    [5, None]
    """
    if invalid not in ("error", "null"):
        raise InvalidOption(f"invalid={invalid!r} is unknown", hint="take 'error' or 'null'")
    kind = column_type(type, "variant")
    return in_arrow(variants_of(variants), value_at(DECODED, path, duckdb_type(kind), invalid=invalid)).cast(kind)


def _of_object(row: Any, at: int) -> pa.StructArray:
    try:
        column = pa.array([row])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidRecord(
            f"the value at position {at} is no variant: {error}",
            hint="give dicts, lists, texts, numbers, dates, times, bytes and None",
            context={"position": at},
        ) from error
    return encode(column)


def _of_column(column: pa.Array | pa.ChunkedArray, expression: str) -> pa.StructArray:
    encoded = in_arrow(column, f"CASE WHEN c IS NOT NULL THEN {expression} END")
    return as_variants(encoded)

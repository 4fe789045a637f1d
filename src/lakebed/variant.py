"""`lakebed.variant`: whole columns of VARIANT values, made of Python objects, Arrow columns and JSON texts, and read.

A VARIANT column is a struct of two binaries in the bytes of Parquet's variant encoding: `metadata` has the names of
fields, `value` the value. DuckDB writes and reads the encoding.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.config.arguments import checks_arguments
from lakebed.errors import InvalidOption
from lakebed.format.variant_objects import decoded_values, encoded, encoded_texts
from lakebed.format.variant_values import value_at, value_type
from lakebed.format.variants import DECODED, in_arrow, json_texts, variants_of
from lakebed.schema.logical_types import VARIANT

__all__ = ["TYPE", "decode", "encode", "get", "parse_json", "to_json"]

TYPE = VARIANT
"""The Arrow type of a VARIANT column in the schema of a new table."""


@checks_arguments
def encode(values: Any) -> pa.StructArray:
    """An Arrow column of variants with these values: an Arrow column of any type, or Python objects (dicts, lists,
    texts, numbers, dates, bytes and None). Structs, and maps from texts, become objects. A text stays a text:
    `parse_json` reads texts.

    Raises `InvalidRecord`, which gives the position, for a Python object that Arrow has no type for, also for a map
    inside another type; `UnsupportedFeature` where DuckDB is not installed, or is older than its variants.

    >>> import lakebed
    >>> lakebed.variant.decode(lakebed.variant.encode([{"stops": [1, "via", None]}, 2.5, None]))
    [{'stops': [1, 'via', None]}, 2.5, None]
    """
    return encoded(values)


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
    return encoded_texts(texts)


@checks_arguments
def decode(variants: Any) -> list[Any]:
    """The values of an Arrow column of variants as Python objects.

    Raises `InvalidRecord` for a column of another type, and for bytes that are no variant.
    """
    return decoded_values(variants_of(variants))


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
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"path={path!r} is no text", hint="paths begin with $: $.name, $.list[0]")
    if invalid not in ("error", "null"):
        raise InvalidOption(f"invalid={invalid!r} is unknown", hint="take 'error' or 'null'")
    kind = value_type(type, "variant.get")
    return in_arrow(variants_of(variants), value_at(DECODED, path, kind, invalid=invalid)).cast(kind)

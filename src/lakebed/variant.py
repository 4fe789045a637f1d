"""`lakebed.variant`: whole columns of VARIANT values, made of Python objects, Arrow columns and JSON texts, and read.

A VARIANT column is a struct of two binaries in the bytes of Parquet's variant encoding: `metadata` has the names of
fields, `value` the value. DuckDB writes and reads the encoding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.arguments import checks_arguments
from lakebed.errors import InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.schema.logical_types import VARIANT
from lakebed.schema.type_names import column_type
from lakebed.statements.duckdb_query import connect

__all__ = ["TYPE", "decode", "encode", "get", "parse_json", "to_json"]

TYPE = VARIANT
"""The Arrow type of a VARIANT column in the schema of a new table."""

_VALUES = "values_of_variants"
# Names of fields in ascending order, as the encoding asks; DuckDB itself leaves them in the order of its input.
_ENCODED = "variant_to_parquet_variant(variant_normalize({}))"
_DECODED = "variant_bytes_to_variant(c.metadata || c.value)"
_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")


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
        return _of_column(values, _ENCODED.format("c::VARIANT"))
    rows: list[Any] = list(values)
    texts: list[str | None] = [None] * len(rows)
    for at, row in enumerate(rows):
        with suppress(TypeError, ValueError):  # JSON does not have such an object
            texts[at] = None if row is None else json.dumps(row, ensure_ascii=False, allow_nan=False)
    others = [at for at, row in enumerate(rows) if row is not None and texts[at] is None]
    encoded = _of_column(pa.array(texts, pa.string()), _ENCODED.format("c::JSON::VARIANT"))
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
    return _of_column(column, _ENCODED.format("c::JSON::VARIANT"))


@checks_arguments
def decode(variants: Any) -> list[Any]:
    """The values of an Arrow column of variants as Python objects.

    Raises `InvalidRecord` for a column of another type, and for bytes that are no variant.
    """
    return [row[0] for row in _asked(_variants(variants), _DECODED, lambda rows: rows.fetchall())]


@checks_arguments
def to_json(variants: Any) -> pa.StringArray:
    """The values of an Arrow column of variants as JSON texts, with the names of fields in ascending order.

    Raises `InvalidRecord` for a column of another type, and for bytes that are no variant.

    >>> import lakebed
    >>> lakebed.variant.to_json(lakebed.variant.encode([{"b": 1, "a": "x"}])).to_pylist()
    ['{"a":"x","b":1}']
    """
    return _in_arrow(_variants(variants), f"({_DECODED})::JSON::VARCHAR").cast(pa.string())


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
    target = str(connect().from_arrow(pa.table({"c": pa.array([], kind)})).types[0])
    return _in_arrow(_variants(variants), value_at(_DECODED, path, target, invalid=invalid)).cast(kind)


def value_at(variant: str, path: str, target: str, *, invalid: str) -> str:
    """The DuckDB expression for what is at a path of the expression `variant`, as a value of DuckDB's type `target`."""
    for step in _steps(path):
        # DuckDB counts from 1
        key = f"{step + 1}::UINTEGER" if isinstance(step, int) else "'" + step.replace("'", "''") + "'"
        variant = f"variant_extract({variant}, {key})"
    return f"{'CAST' if invalid == 'error' else 'TRY_CAST'}({variant} AS {target})"


def _steps(path: str) -> list[str | int]:
    """The names of fields and the positions in lists of a path."""
    steps: list[str | int] = []
    at = 1 if path.startswith("$") else -1
    while 0 <= at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            at = -1
            break
        name, number, *quoted = match.groups()
        steps.append(int(number) if number is not None else next(t for t in (name, *quoted) if t is not None))
        at = match.end()
    if at < 0:
        raise InvalidOption(
            f"{path!r} is no path into a variant",
            hint="paths begin with $: $.name, $.list[0], $['a name']",
            context={"path": path},
        )
    return steps


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
    encoded = _in_arrow(column, f"CASE WHEN c IS NOT NULL THEN {expression} END")
    # a struct that is null has values, too, since its fields are declared not null
    fields = [pc.fill_null(encoded.field(part.name), b"") for part in VARIANT]
    return pa.StructArray.from_arrays(fields, fields=list(VARIANT), mask=encoded.is_null())


def _variants(column: Any) -> pa.Array | pa.ChunkedArray:
    """The column; raises `InvalidRecord` if it is none of variants."""
    kind = getattr(column, "type", None)
    names = {part.name for part in kind} if isinstance(kind, pa.StructType) else set[str]()
    if names != {part.name for part in VARIANT}:
        raise InvalidRecord(
            f"a column of {'Python objects' if kind is None else kind} has no variants",
            hint="give a VARIANT column of a table, or what lakebed.variant.encode returns",
        )
    return column


def _in_arrow(column: pa.Array | pa.ChunkedArray, expression: str) -> Any:
    """The values of a DuckDB expression over the values `c` of a column, as one Arrow array."""
    return _asked(column, expression, lambda rows: rows.to_arrow_table()["c"].combine_chunks())


def _asked(column: pa.Array | pa.ChunkedArray, expression: str, fetch: Callable[[Any], Any]) -> Any:
    """What `fetch` makes of the DuckDB relation of an expression over the values `c` of a column, in their order."""
    import duckdb

    connection = connect()
    connection.register(_VALUES, pa.table({"c": column}))
    try:
        return fetch(connection.sql(f"SELECT {expression} AS c FROM {_VALUES}"))
    except duckdb.CatalogException as error:
        raise UnsupportedFeature(
            f"DuckDB {duckdb.__version__} has no variants", hint="pip install --upgrade 'lakebed[duckdb]'"
        ) from error
    except duckdb.Error as error:
        why = str(error).partition("\n")[0]
        raise InvalidRecord(f"a value cannot be read as asked: {why}", hint="correct it, or give null") from error

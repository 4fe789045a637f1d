"""Values inside VARIANT columns: whole columns go to DuckDB, which reads and writes Parquet's variant encoding."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.expressions.arrow_functions import call, register
from lakebed.expressions.duckdb_database import connect
from lakebed.schema.logical_types import VARIANT, is_variant


def decoded(variant: str) -> str:
    """The DuckDB expression for the value of a variant, by the expression of its struct."""
    return f"variant_bytes_to_variant(({variant}).metadata || ({variant}).value)"


DECODED: Final = decoded("c")
"""The DuckDB expression for the value of a variant `c`."""
_DECODED_BYTES: Final = "variant_bytes_to_variant(c)"
_VALUES: Final = "values_of_variants"
_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")


def value_of_path(args: Sequence[pc.Expression], to: pa.DataType, options: tuple[Any, ...]) -> pc.Expression:
    """The expression for what is at a path of a column of variants, as values of the type `to`; `options` are the path,
    and what a value of another type is ("error" or "null")."""
    path, invalid = options
    path_steps(path)  # raises
    name = f"variant_get_{to}"
    types = {"variant": pa.binary(), "path": pa.string(), "invalid": pa.string()}

    def values(variants: pa.Array, at: str, otherwise: str) -> pa.Array:
        return in_arrow(variants, value_at(_DECODED_BYTES, at, duckdb_type(to), invalid=otherwise)).cast(to)

    register(name, "What is at a path of variants.", types, to, values)
    parts = [pc.struct_field(args[0], [part.name]) for part in VARIANT]
    both = pc.binary_join_element_wise(*parts, pc.scalar(b""), null_handling="emit_null")
    return call(name, both, pc.scalar(path), pc.scalar(invalid))


def duckdb_type(kind: pa.DataType) -> str:
    """DuckDB's name of an Arrow type."""
    return str(connect().from_arrow(pa.table({"c": pa.array([], kind)})).types[0])


def value_at(variant: str, path: str, target: str, *, invalid: str) -> str:
    """The DuckDB expression for what is at a path of the expression `variant`, as a value of DuckDB's type `target`."""
    for step in path_steps(path):
        # DuckDB counts from 1
        place = f"{step + 1}::UINTEGER" if isinstance(step, int) else "'" + step.replace("'", "''") + "'"
        variant = f"variant_extract({variant}, {place})"
    return f"{'CAST' if invalid == 'error' else 'TRY_CAST'}({variant} AS {target})"


def path_steps(path: str) -> list[str | int]:
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


def variants_of(column: Any) -> pa.Array | pa.ChunkedArray:
    """The column; raises `InvalidRecord` if it is none of variants."""
    kind = getattr(column, "type", None)
    if not is_variant(kind):
        raise InvalidRecord(
            f"a column of {'Python objects' if kind is None else kind} has no variants",
            hint="give a VARIANT column of a table, or what lakebed.variant.encode returns",
        )
    return column


def in_arrow(column: pa.Array | pa.ChunkedArray, expression: str) -> Any:
    """The values of a DuckDB expression over the values `c` of a column, as one Arrow array."""
    return computed(column, expression, lambda rows: rows.to_arrow_table()["c"].combine_chunks())


def computed(column: pa.Array | pa.ChunkedArray, expression: str, fetch: Callable[[Any], Any]) -> Any:
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

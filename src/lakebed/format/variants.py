"""Values inside VARIANT columns: whole columns go to DuckDB, which reads and writes Parquet's variant encoding.

A file may store parts of the values shredded, in columns of their own: the group of a column, of an object's field or
of a list's element has then a child `typed_value`, and values of other types are in its child `value`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.format.duckdb_database import connect
from lakebed.schema.logical_types import VARIANT, as_variants, descriptor_of, is_shredded, is_variant
from lakebed.schema.plain_arrow import is_list
from lakebed.schema.type_names import column_type


def decoded(variant: str) -> str:
    """The DuckDB expression for the value of a variant, by the expression of its struct."""
    return f"variant_bytes_to_variant(({variant}).metadata || ({variant}).value)"


DECODED: Final = decoded("c")
"""The DuckDB expression for the value of a variant `c`."""
ENCODED: Final = "variant_to_parquet_variant({})"
"""The DuckDB expression for the struct of a value. The encoding asks for names of fields in ascending order; DuckDB
leaves them in the order of its input (its `variant_normalize`, which sorts them, mixes up the values of a batch)."""
_EMPTY: Final = r"variant_bytes_to_variant('\x01\x00\x00\x02\x00\x00'::BLOB)"
OBJECT_OF_MAP: Final = (
    "coalesce((SELECT variant_group_object(name, value ORDER BY name) FROM"
    f" (SELECT unnest(map_keys(c)) AS name, unnest(map_values(c))::VARIANT AS value)), {_EMPTY})"
)
"""The DuckDB expression for the object with the entries of a map `c`."""
_TYPED: Final = "typed_value"
_VALUES: Final = "values_of_variants"
# Spark's positions are integers of 32 bits.
_MAX_POSITION: Final = 2**31 - 1
_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")


def duckdb_type(kind: pa.DataType) -> str:
    """DuckDB's name of an Arrow type."""
    return str(connect().from_arrow(pa.table({"c": pa.array([], kind)})).types[0])


def unshredded(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with each shredded variant as a struct of its two binaries."""
    for at, field in enumerate(rows.schema):
        if is_shredded(field.type):
            rows = rows.set_column(at, field.with_type(VARIANT), joined_parts(rows.column(at)))
    return rows


def joined_parts(variants: pa.Array) -> pa.StructArray:
    """The variants of a shredded column."""
    rows = pa.table({"c": variants, "n": pa.array(range(len(variants)))})
    connection = connect()
    connection.register(_VALUES, rows)
    with _errors():
        value = _Shredded(connection).value(variants.type, "c", _VALUES)
        encoded = ENCODED.format(value)
        text = f"SELECT CASE WHEN c IS NOT NULL THEN {encoded} END AS c FROM {_VALUES} ORDER BY n"
        return as_variants(connection.sql(text).to_arrow_table()["c"].combine_chunks())


class _Shredded:
    """Builds the DuckDB expression for the values of a shredded column."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._numbers = count()

    def value(self, kind: Any, group: str, source: str) -> str:
        """The value of a group, whose expression is `group` in the rows of `source`."""
        types = {part.name: part.type for part in kind}
        other = f"variant_bytes_to_variant(c.metadata || ({group}).value)" if "value" in types else "NULL::VARIANT"
        if _TYPED not in types:
            return other
        typed, part = types[_TYPED], f"({group}).{_TYPED}"
        if pt.is_struct(typed):
            value = self._object(typed, group, source, other if "value" in types else "")
        elif is_list(typed):
            item, position = self._name(), self._name()
            elements = self.value(typed.value_type, item, f"(SELECT *, unnest({part}) AS {item} FROM {source})")
            unnested = f"(SELECT unnest({part}) AS {item}, generate_subscripts({part}, 1) AS {position})"
            value = f"(SELECT coalesce(list({elements} ORDER BY {position}), []) FROM {unnested})::VARIANT"
        else:
            value = f"{part}::VARIANT"
        return f"CASE WHEN {part} IS NOT NULL THEN {value} ELSE {other} END"

    def _object(self, fields: Any, group: str, source: str, other: str) -> str:
        """An object of the shredded fields that a row has, and of the fields of `other`, which are not shredded."""
        entries: list[tuple[str, str, str]] = []
        for field in sorted(fields, key=lambda part: part.name):
            identifier = '"' + field.name.replace('"', '""') + '"'
            inner = f"({group}).{_TYPED}.{identifier}"
            exists = " OR ".join(f"{inner}.{part.name} IS NOT NULL" for part in field.type)
            entries.append((_quoted(field.name), exists, self.value(field.type, inner, source)))
        if other:
            condition = f"({group}).value IS NOT NULL AND ({group}).{_TYPED} IS NOT NULL"
            names = self._connection.sql(
                f"SELECT DISTINCT unnest(variant_keys({other})) FROM {source} WHERE {condition}"
            )
            for (name,) in names.fetchall():
                text = _quoted(name)
                has_name = f"list_contains(variant_keys({other}), {text})"
                entries.append((text, has_name, f"variant_extract({other}, {text})"))
        entry = self._name()
        texts = ", ".join(f"{{'name': {name}, 'exists': {has}, 'value': {value}}}" for name, has, value in entries)
        grouped = f"variant_group_object({entry}.name, {entry}.value)"
        return f"coalesce((SELECT {grouped} FROM (SELECT unnest([{texts}]) AS {entry}) WHERE {entry}.exists), {_EMPTY})"

    def _name(self) -> str:
        return f"part_{next(self._numbers)}"


def value_type(declared: Any, name: str) -> pa.DataType:
    """The type of values that are taken out of variants, by its SQL name or as an Arrow type; `name` is what asks for
    it. Raises `InvalidOption` for a vector, a blob and a variant, which no value of a variant is."""
    kind = column_type(declared, name)
    if descriptor_of(pa.field(name, kind)):
        raise InvalidOption(
            f"{name} gives no values of the type {declared}",
            hint="take a type of SQL such as int, string or array<double>",
            context={"type": str(declared)},
        )
    return kind


def value_at(variant: str, path: str, kind: pa.DataType, *, invalid: str) -> str:
    """The DuckDB expression for what is at a path of the expression `variant`, as a value of a type. As in Spark's
    `variant_get` the texts of objects and lists are JSON, and fractions of integers are cut off."""
    for step in path_steps(path):
        # DuckDB counts from 1
        index = f"{step + 1}::UINTEGER" if isinstance(step, int) else _quoted(step)
        variant = f"variant_extract({variant}, {index})"
    cast, stored, target = "CAST" if invalid == "error" else "TRY_CAST", f"variant_typeof({variant})", duckdb_type(kind)
    value = f"{cast}({variant} AS {target})"
    if pt.is_string(kind):
        is_nested = f"{stored} LIKE 'OBJECT%' OR {stored} LIKE 'ARRAY%'"
        return f"CASE WHEN {is_nested} THEN ({variant})::JSON::VARCHAR ELSE {value} END"
    if pt.is_nested(kind) or pt.is_binary(kind):
        return value
    text = f"trim(({variant})::VARCHAR)"
    if not pt.is_integer(kind):
        return f"CASE WHEN {stored} = 'VARCHAR' THEN {cast}({text} AS {target}) ELSE {value} END"
    refused = f"error(chr(39) || {text} || chr(39) || ' is no {target}')" if invalid == "error" else "NULL"
    return (
        f"CASE WHEN {stored} IN ('DOUBLE', 'FLOAT') THEN {cast}(trunc(({variant})::DOUBLE) AS {target})"
        f" WHEN {stored} LIKE 'DECIMAL%' THEN {cast}(regexp_replace({text}, '[.].*', '') AS {target})"
        f" WHEN {stored} <> 'VARCHAR' THEN {value}"
        f" WHEN regexp_full_match({text}, '[+-]?[0-9]+') THEN {cast}({text} AS {target}) ELSE {refused} END"
    )


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
        if number is not None and int(number) > _MAX_POSITION:
            raise InvalidOption(
                f"{path!r} has the position {number}, and lists have at most {_MAX_POSITION:,} values",
                hint="correct the path",
                context={"path": path},
            )
        steps.append(int(number) if number is not None else next(t for t in (name, *quoted) if t is not None))
        at = match.end()
    if at < 0:
        raise InvalidOption(
            f"{path!r} is no path into a variant",
            hint="paths begin with $: $.name, $.list[0], $['a name']",
            context={"path": path},
        )
    return steps


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def variants_of(column: Any) -> pa.Array | pa.ChunkedArray:
    """The column; raises `InvalidRecord` if it is none of variants."""
    kind = getattr(column, "type", None)
    if not is_variant(kind):
        raise InvalidRecord(
            f"a column of {'Python objects' if kind is None else kind} has no variants",
            hint="give a VARIANT column of a table, or what lakebed.variant.encode returns",
        )
    return column


def json_texts(variants: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """The values of variants as JSON texts."""
    return in_arrow(variants, f"({DECODED})::JSON::VARCHAR").cast(pa.string())


def in_arrow(column: pa.Array | pa.ChunkedArray, expression: str) -> Any:
    """The values of a DuckDB expression over the values `c` of a column, as one Arrow array."""
    return computed(column, expression, lambda rows: rows.to_arrow_table()["c"].combine_chunks())


def computed(column: pa.Array | pa.ChunkedArray, expression: str, fetch: Callable[[Any], Any]) -> Any:
    """The result of `fetch` for a DuckDB relation: an expression over the values `c` of a column, in their order."""
    connection = connect()
    connection.register(_VALUES, pa.table({"c": column}))
    with _errors():
        return fetch(connection.sql(f"SELECT {expression} AS c FROM {_VALUES}"))


@contextmanager
def _errors() -> Generator[None]:
    import duckdb

    try:
        yield
    except duckdb.CatalogException as error:
        raise UnsupportedFeature(
            f"DuckDB {duckdb.__version__} has no variants", hint="pip install --upgrade 'lakebed[duckdb]'"
        ) from error
    except duckdb.Error as error:
        why = str(error).partition("\n")[0]
        raise InvalidRecord(f"a value cannot be read as asked: {why}", hint="correct it, or give null") from error

"""Values inside VARIANT columns: whole columns go to DuckDB, which reads and writes Parquet's variant encoding.

A file may store parts of the values shredded, in columns of their own: the group of a column, of an object's field or
of a list's element has then a child `typed_value`, and values of other types are in its child `value`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import InvalidRecord, UnsupportedFeature
from lakebed.format.duckdb_database import connect
from lakebed.schema.logical_types import VARIANT, as_variants, is_shredded, is_variant
from lakebed.schema.plain_arrow import is_list


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
            entries.append((quoted_text(field.name), exists, self.value(field.type, inner, source)))
        if other:
            condition = f"({group}).value IS NOT NULL AND ({group}).{_TYPED} IS NOT NULL"
            names = self._connection.sql(
                f"SELECT DISTINCT unnest(variant_keys({other})) FROM {source} WHERE {condition}"
            )
            for (name,) in names.fetchall():
                text = quoted_text(name)
                has_name = f"list_contains(variant_keys({other}), {text})"
                entries.append((text, has_name, f"variant_extract({other}, {text})"))
        entry = self._name()
        texts = ", ".join(f"{{'name': {name}, 'exists': {has}, 'value': {value}}}" for name, has, value in entries)
        grouped = f"variant_group_object({entry}.name, {entry}.value)"
        return f"coalesce((SELECT {grouped} FROM (SELECT unnest([{texts}]) AS {entry}) WHERE {entry}.exists), {_EMPTY})"

    def _name(self) -> str:
        return f"part_{next(self._numbers)}"


def quoted_text(text: str) -> str:
    """The text as a constant of SQL."""
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
    with _errors():
        connection.register(_VALUES, pa.table({"c": column}))
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
        raise InvalidRecord(
            f"a value cannot be read as asked: {why}",
            hint="correct it, or ask for null in its place: try_variant_get, or invalid='null'",
        ) from error

"""Row expressions: values computed from a row's columns, as Spark SQL text and as an Arrow kernel with equal results.

The SQL text must mean the same in every session: no session time zone, no ANSI switch, no case rule, no parser switch
may change it. So names are always back-quoted, literals never hold a backslash or a quote, and time is plain
arithmetic on micros.

Escaping of partition values, as Hive does it: the same 48 characters as `%XX`, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import SchemaConflict
from lakebed.schema.column_names import did_you_mean


@runtime_checkable
class RowExpression(Protocol):
    """One derived column. `sql` and `arrow` give the same value for the same row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns (dotted paths into structs allowed) the expression reads."""
        ...

    def sql(self, schema: pa.Schema) -> str:
        """The expression as Spark SQL over a DataFrame with this Arrow schema."""
        ...

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        """The expression's values for a batch, one for each row; equal to those of `sql`."""
        ...


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name, or a struct's field by dotted path; a top-level column of exactly that name wins.

    >>> schema = pa.schema([("a", pa.struct([("b c", pa.int32())])), ("x.y", pa.string())])
    >>> Column("a.b c").sql(schema)
    "`a`['b c']"
    >>> Column("x.y").sql(schema)
    '`x.y`'
    """

    path: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.path,)

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        """The column's Arrow type. Raises `SchemaConflict`, which names the nearest column, if there is none."""
        return _walk(schema, self.path)[1]

    def top_level_in(self, schema: pa.Schema) -> str:
        """The name of the column, or of the struct column that the path leads into."""
        return _walk(schema, self.path)[0][0]

    def sql(self, schema: pa.Schema) -> str:
        parts = _walk(schema, self.path)[0]
        text = quote_name(parts[0])
        for part in parts[1:]:
            # a subscript cannot be taken for `alias.column`, a dot can
            text += f"[{sql_literal(part)}]" if _is_plain(part) else f".{quote_name(part)}"
        return text

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        parts = _walk(batch.schema, self.path)[0]
        column = batch.column(batch.schema.get_field_index(parts[0]))
        for part in parts[1:]:
            column = pc.struct_field(column, part)
        return column


@dataclass(frozen=True, slots=True)
class Constant:
    """An expression with one text (or null) for every row."""

    value: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def sql(self, schema: pa.Schema) -> str:
        return "CAST(NULL AS STRING)" if self.value is None else sql_literal(self.value)

    def arrow(self, batch: pa.RecordBatch) -> pa.Array:
        return repeat_text(self.value, batch.num_rows)


def repeat_text(value: str | None, rows: int) -> pa.Array:
    """An Arrow string array holding `value` in every row."""
    return pa.nulls(rows, pa.string()) if value is None else pa.repeat(pa.scalar(value, pa.string()), rows)


def quote_name(name: str) -> str:
    """A column name as Spark SQL identifier.

    >>> quote_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def _is_plain(text: str) -> bool:
    return text.isprintable() and not any(c in "'\"\\$" for c in text)


def sql_literal(text: str) -> str:
    """A Spark SQL string literal that no parser setting can change.

    Backslashes, quotes and control characters mean different things under `spark.sql.parser.escapedStringLiterals`
    and `${` under variable substitution: such texts are written as bytes.

    >>> sql_literal("id:"), sql_literal("it's")
    ("'id:'", "CAST(X'69742773' AS STRING)")
    """
    return f"'{text}'" if _is_plain(text) else f"CAST(X'{text.encode().hex()}' AS STRING)"


def bind_sql(name: str, value: str, body: str) -> str:
    """The SQL `body` in which `name` stands for `value`: Spark SQL has no LET, so a lambda over one element evaluates
    the value once."""
    return f"element_at(transform(array({value}), {name} -> {body}), 1)"


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names without repetitions, first occurrence first."""
    return tuple(dict.fromkeys(names))


def columns_of(expressions: Sequence[RowExpression]) -> tuple[str, ...]:
    """The distinct columns that the expressions read."""
    return unique(name for expression in expressions for name in expression.columns)


def _walk(schema: pa.Schema, path: str) -> tuple[tuple[str, ...], pa.DataType]:
    """The field names from the top of the schema to the column at `path`, and the column's type."""
    if schema.get_field_index(path) >= 0:
        return (path,), schema.field(path).type
    top, _, remaining_path = path.partition(".")
    names = [top]
    kind = schema.field(top).type if schema.get_field_index(top) >= 0 else None
    while remaining_path and kind is not None:
        part, _, remaining_path = remaining_path.partition(".")
        index = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        names.append(part)
        kind = kind.field(index).type if index >= 0 else None
    if kind is None:
        raise SchemaConflict(
            f"there is no column `{path}` in the data",
            hint=did_you_mean(path, schema.names),
            context={"column": path},
        )
    return tuple(names), kind


_ESCAPED = "%" + "".join(map(chr, range(0x20))) + "\x7f" + "\"#'*/:=?\\{[]^"
_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
_ANY = "[\\x00-\\x1f\\x7f\"#%'*/:=?\\\\{\\[\\]^]"


def escape_sql(text: str) -> str:
    """The Spark SQL of the escaped text; `text` is repeated in it."""
    escaped = text
    # the percent sign comes first: what is put in holds percent signs
    for char in _ESCAPED:
        escaped = f"replace({escaped}, {sql_literal(char)}, '%{ord(char):02X}')"
    return f"CASE WHEN {text} RLIKE {sql_literal(_ANY)} THEN {escaped} ELSE {text} END"


def escape_arrow(values: pa.Array) -> pa.Array:
    """The escaped texts; null stays null.

    >>> escape_arrow(pa.array(["a/b c", None])).to_pylist()
    ['a%2Fb c', None]
    """
    if not pc.any(pc.match_substring_regex(values, _ANY)).as_py():
        return values
    # partition values repeat: each is escaped once
    coded = values.dictionary_encode()
    escaped = coded.dictionary
    for char in _ESCAPED:
        escaped = pc.replace_substring(escaped, char, f"%{ord(char):02X}")
    return escaped.take(coded.indices)


def escape(text: str) -> str:
    """The text with the characters escaped that paths escape.

    >>> escape("2024/02/03 04:05")
    '2024%2F02%2F03 04%3A05'
    """
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """The decoded text of an escaped one; a `%` without two hex digits after it is unchanged.

    >>> unescape("a%2Fb%zz")
    'a/b%zz'
    """
    return _ENCODED.sub(lambda match: chr(int(match[1], 16)), text)

"""Changes of a table's columns by name: what each makes of the schema. Nothing is written here.

A column is named by its path: `address.city` is a field of a struct, `stops.element.name` one of an array's structs,
`prices.value.low` one of a map's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pt

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import list_of, map_of, normalise
from lakebed.schema.column_names import did_you_mean
from lakebed.schema.conversion import may_lose
from lakebed.schema.evolution import is_promotion
from lakebed.schema.plain_arrow import is_list
from lakebed.schema.spark import name_of_type, type_name
from lakebed.schema.type_names import column_type

Verb = Literal["add", "drop", "rename", "widen", "comment", "move"]

_INT_DIGITS, _LONG_DIGITS = 10, 19


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of a column: `column` is its path, the other fields are what the verb needs.

    `after` is the name of the column that it comes after, None for the last place (`first`: the first one).
    """

    verb: Verb
    column: str
    type: Any = None
    name: str = ""
    after: str | None = None
    first: bool = False
    comment: str | None = None
    default: Any = None


@dataclass(frozen=True, slots=True)
class ChangedSchema:
    """The columns after a change. `path` is the column's path after the change, `text` describes the change."""

    schema: pa.Schema
    path: str
    text: str


_Edit = Callable[[list[pa.Field], str, str], list[pa.Field]]
"""Takes the fields of the column's parent, the column's name and the parent's path; gives the fields after the
change."""


def changed(schema: pa.Schema, change: ColumnChange) -> ChangedSchema:
    """The table's columns after a change. Raises `SchemaConflict` if it cannot be applied."""
    parent, _, name = change.column.rpartition(".")
    edited: list[str] = []
    texts: list[str] = []

    def edit(fields: list[pa.Field], name: str, parent: str) -> list[pa.Field]:
        after, edited_name, text = _VERBS[change.verb](fields, name, parent, change)
        edited.append(f"{parent}.{edited_name}" if parent else edited_name)
        texts.append(text)
        return after

    fields = _inside(
        list(schema), parent.split(".") if parent else [], "", lambda level_fields, at: edit(level_fields, name, at)
    )
    return ChangedSchema(pa.schema(fields), edited[0], texts[0])


def field_at(schema: pa.Schema, path: str) -> pa.Field:
    """The column or field at a path, in any case. Raises `SchemaConflict` if there is none."""
    parent, _, name = path.rpartition(".")
    matches: list[pa.Field] = []

    def note(fields: list[pa.Field], at: str) -> list[pa.Field]:
        matches.append(_find(fields, name, at))
        return fields

    _inside(list(schema), parent.split(".") if parent else [], "", note)
    return matches[0]


def column_paths(schema: pa.Schema) -> list[tuple[str, pa.Field]]:
    """All columns and all fields of structs, each with its path."""
    columns: list[tuple[str, pa.Field]] = []
    for field in schema:
        columns.append((field.name, field))
        columns += _fields_inside(field.type, field.name)
    return columns


def _fields_inside(kind: pa.DataType, path: str) -> list[tuple[str, pa.Field]]:
    if pt.is_struct(kind):
        fields: list[tuple[str, pa.Field]] = []
        for field in kind:
            fields.append((f"{path}.{field.name}", field))
            fields += _fields_inside(field.type, f"{path}.{field.name}")
        return fields
    if pt.is_map(kind):
        return _fields_inside(kind.item_type, f"{path}.value")
    return _fields_inside(kind.value_type, f"{path}.element") if is_list(kind) else []


def _inside(
    fields: list[pa.Field], path: Sequence[str], at: str, edit: Callable[[list[pa.Field], str], list[pa.Field]]
) -> list[pa.Field]:
    """The fields, with those inside the column at the path edited."""
    if not path:
        return edit(fields, at)
    field = _find(fields, path[0], at)
    field_path = f"{at}.{field.name}" if at else field.name
    kind = _type_inside(field.type, path[1:], field_path, edit)
    return [f.with_type(kind) if f.name == field.name else f for f in fields]


def _type_inside(
    kind: pa.DataType, path: Sequence[str], at: str, edit: Callable[[list[pa.Field], str], list[pa.Field]]
) -> pa.DataType:
    if pt.is_struct(kind):
        return pa.struct(_inside(list(kind), path, at, edit))
    if pt.is_map(kind) and path[:1] == ["value"]:
        item = kind.item_field
        inner = _type_inside(item.type, path[1:], f"{at}.value", edit)
        return map_of(inner, nullable=item.nullable, metadata=item.metadata)
    if is_list(kind) and path[:1] == ["element"]:
        item = kind.value_field
        inner = _type_inside(item.type, path[1:], f"{at}.element", edit)
        return list_of(inner, nullable=item.nullable, metadata=item.metadata)
    inside = "; its structs are named with .value" if pt.is_map(kind) else ""
    inside = "; its structs are named with .element" if is_list(kind) and not pt.is_map(kind) else inside
    raise SchemaConflict(
        f"column {at} is {type_name(kind)}: it has no fields of its own{inside}", context={"column": at}
    )


def _find(fields: Sequence[pa.Field], name: str, parent: str) -> pa.Field:
    exact = [field for field in fields if field.name == name]
    folded = exact or [field for field in fields if field.name.lower() == name.lower()]
    if len(folded) == 1:
        return folded[0]
    where = f"column {parent} has no field" if parent else "the table has no column"
    hint_start = "its fields are" if parent else "the columns are"
    raise SchemaConflict(
        f"{where} {name!r}",
        hint=did_you_mean(name, [field.name for field in fields], hint_start),
        context={"column": f"{parent}.{name}" if parent else name},
    )


def _check_new(fields: Sequence[pa.Field], name: str, parent: str) -> None:
    for field in fields:
        if field.name.lower() == name.lower():
            where = f"column {parent} has a field" if parent else "the table has a column"
            raise SchemaConflict(
                f"{where} {field.name!r} already",
                hint="take another name; names are the same in any case",
                context={"column": name},
            )


def _placed(fields: list[pa.Field], field: pa.Field, parent: str, change: ColumnChange) -> list[pa.Field]:
    if change.first:
        return [field, *fields]
    if change.after is None:
        return [*fields, field]
    name = change.after.removeprefix(f"{parent}.") if parent else change.after
    at = fields.index(_find(fields, name, parent)) + 1
    return [*fields[:at], field, *fields[at:]]


_Edited = tuple[list[pa.Field], str, str]


def _add(fields: list[pa.Field], name: str, parent: str, change: ColumnChange) -> _Edited:
    _check_new(fields, name, parent)
    kind = column_type(change.type, change.column)
    field = normalise(pa.schema([pa.field(name, kind)])).field(0)
    text = f"column {change.column} is new ({name_of_type(field)})"
    return _placed(fields, field, parent, change), name, text


def _drop(fields: list[pa.Field], name: str, parent: str, change: ColumnChange) -> _Edited:
    field = _find(fields, name, parent)
    if len(fields) == 1:
        raise SchemaConflict(
            f"{field.name} is the only {'field of ' + parent if parent else 'column'}",
            hint=f"drop the column {parent}" if parent else "lakebed.drop(uri) takes the table away",
            context={"column": change.column},
        )
    return [f for f in fields if f.name != field.name], field.name, f"column {change.column} is dropped"


def _rename(fields: list[pa.Field], name: str, parent: str, change: ColumnChange) -> _Edited:
    field, new = _find(fields, name, parent), change.name
    if parent and new.startswith(f"{parent}."):
        new = new.removeprefix(f"{parent}.")
    if new == field.name:
        raise SchemaConflict(f"column {change.column} has that name already", context={"column": change.column})
    _check_new([f for f in fields if f.name != field.name], new, parent)
    new_path = f"{parent}.{new}" if parent else new
    return (
        [f.with_name(new) if f.name == field.name else f for f in fields],
        new,
        f"column {change.column} is {new_path} now",
    )


def _widen(fields: list[pa.Field], name: str, parent: str, change: ColumnChange) -> _Edited:
    field = _find(fields, name, parent)
    kind = column_type(change.type, change.column)
    have, want = type_name(field.type), type_name(kind)
    if not is_wider(field.type, kind):
        wider = [type_name(candidate) for candidate in _CANDIDATES if is_wider(field.type, candidate)]
        raise SchemaConflict(
            f"column {change.column} is {have} and cannot become {want}"
            f"{', which does not keep all of its values' if is_promotion(field.type, kind) else ''}",
            hint=f"it can become {', '.join(wider)}" if wider else "its type cannot change",
            context={"column": change.column, "table": have, "wanted": want},
        )
    after = pa.field(field.name, kind, field.nullable)
    text = f"column {change.column} is {want} now, it was {have}"
    return [after if f.name == field.name else f for f in fields], field.name, text


def _comment(fields: list[pa.Field], name: str, parent: str, change: ColumnChange) -> _Edited:
    field = _find(fields, name, parent)
    outcome = "has a new comment" if change.comment else "has no comment now"
    return fields, field.name, f"column {change.column} {outcome}"


def _move(fields: list[pa.Field], name: str, parent: str, change: ColumnChange) -> _Edited:
    field = _find(fields, name, parent)
    other_fields = [f for f in fields if f.name != field.name]
    where = "is the first now" if change.first else f"comes after {change.after} now" if change.after else "is the last"
    return _placed(other_fields, field, parent, change), field.name, f"column {change.column} {where}"


_VERBS: dict[Verb, Callable[[list[pa.Field], str, str, ColumnChange], _Edited]] = {
    "add": _add,
    "drop": _drop,
    "rename": _rename,
    "widen": _widen,
    "comment": _comment,
    "move": _move,
}
_CANDIDATES = (
    pa.int64(),
    pa.float64(),
    pa.decimal128(_INT_DIGITS, 0),
    pa.decimal128(_LONG_DIGITS, 0),
    pa.string(),
    pa.binary(),
)


def is_wider(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a column's type can become another one: Hudi's schema history allows it, and all values are preserved.

    >>> is_wider(pa.int32(), pa.float64()), is_wider(pa.int64(), pa.float64()), is_wider(pa.date32(), pa.string())
    (True, False, True)
    """
    if kind.equals(other) or pt.is_nested(kind) or pt.is_nested(other) or may_lose(kind, other):
        return False
    if pt.is_decimal(other) and pt.is_integer(kind):
        digits = _INT_DIGITS if pt.is_int32(kind) else _LONG_DIGITS
        return other.precision - other.scale >= digits
    if pt.is_date(kind):
        return pt.is_string(other)
    if pt.is_timestamp(kind) or pt.is_timestamp(other):
        return False
    return is_promotion(kind, other)

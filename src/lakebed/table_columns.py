"""`Table.columns`: the columns of a table, and the verbs that change them without writing its files again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.config.arguments import public_methods_check_arguments, refused
from lakebed.opened_table import OpenedTable
from lakebed.read.plan import data_columns
from lakebed.schema.column_changes import ColumnChange, column_paths
from lakebed.schema.spark import name_of_type
from lakebed.services.columns import ColumnsChanged, change_columns, set_default
from lakebed.slices.snapshot import Snapshot
from lakebed.table_views import EntriesView
from lakebed.timeline.schema_versions import comments_of
from lakebed.wording import Printed

_SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("type", pa.string()),
        ("nullable", pa.bool_()),
        ("comment", pa.string()),
        ("default", pa.string()),
        ("generated", pa.string()),
    ]
)


@dataclass(frozen=True, repr=False)
class ColumnFacts(Printed):
    """A column of a table. Prints in a line.

    `type` is its SQL name, `nullable` whether it may be null. `comment`, `default` and `generated`, the expression by
    which it is generated, are empty if it has none.
    """

    name: str
    type: str
    nullable: bool
    comment: str
    default: str = ""
    generated: str = ""

    def __str__(self) -> str:
        parts = [f"{self.name} {self.type}", "" if self.nullable else "NOT NULL"]
        parts += [f"DEFAULT {self.default}" if self.default else ""]
        parts += [f"GENERATED ALWAYS AS ({self.generated})" if self.generated else ""]
        return " ".join(filter(None, parts))


@public_methods_check_arguments
class ColumnsView(EntriesView[ColumnFacts]):
    """The columns of a table: iterable, and printed as a table. Its methods change them, each by one commit.

    No file is written again: columns get ids, as in Hudi's schema on read, and files of earlier instants are read by
    them. The name of a method's column may be a path (`address.city`). Readers with `as_of` before a change see the
    columns as they were. Raises `SchemaConflict`, with nothing written, for a change that does not fit the table.
    Names are found in any case.

    >>> t.columns.rename("fare", "price").change
    'column fare is price now'
    >>> t.scan().to_arrow().sort_by("id").column("price").to_pylist()
    [9.5, 12.0, 7.25]
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    def _entries(self) -> Sequence[ColumnFacts]:
        return self._opened.steadily(_facts)

    def to_arrow(self) -> pa.Table:
        """A table with the columns name, type, nullable, comment, default, generated. Fields inside a struct that have
        a comment follow their column.

        >>> t.columns.to_arrow().column("name").to_pylist()
        ['id', 'city', 'fare', 'ts']
        """
        return self._opened.steadily(_as_arrow)

    def add(
        self,
        name: str,
        type: Any,
        after: str | None = None,
        comment: str | None = None,
        *,
        first: bool = False,
        default: Any = None,
        options: Mapping[str, Any] | None = None,
    ) -> ColumnsChanged:
        """Add a column, which is null in the existing rows. `type` is an Arrow type or a SQL name. `default` is what
        `set_default` takes, for rows that are written afterwards.

        It comes last, or `after` another one, or with `first` before all. A name that the table once had gives no old
        values back.

        >>> print(t.columns.add("tip", "decimal(8, 2)", after="fare").change)
        column tip is new (DECIMAL(8,2))
        """
        change = ColumnChange("add", name, type, after=after, first=first, comment=comment, default=default)
        return self._change(change, options)

    def set_default(self, name: str, value: Any, *, options: Mapping[str, Any] | None = None) -> ColumnFacts:
        """Set the value that a column gets in rows of a write that lacks the column. Returns the column.

        `value` is a constant of Spark SQL ("0", "'unknown'", "current_timestamp()": one value for a write), or a
        number, a date or another Python constant. A column that a write has keeps its nulls. Partial rows and updates
        leave the values of stored rows that they do not name; rows of new keys get the default. Stored rows are left as
        they are.

        Raises `InvalidOption` for a text that is not a constant, and `SchemaConflict` for a type that the column does
        not take, a generated column and one of the key.

        >>> t.columns.set_default("fare", "0").default
        '0'
        >>> _ = t.upsert({"id": [9], "city": ["Oslo"], "ts": [9]})
        >>> t.scan(where="id = 9").to_arrow().column("fare").to_pylist()
        [0.0]
        """
        return self._with_default(name, value, options)

    def drop_default(self, name: str, *, options: Mapping[str, Any] | None = None) -> ColumnFacts:
        """Remove the default of a column, which is null again where a write lacks it. Returns the column. Raises
        `InvalidOption` if it has none.

        >>> _ = t.columns.set_default("fare", 0)
        >>> t.columns.drop_default("fare").default
        ''
        """
        return self._with_default(name, None, options)

    def _with_default(self, name: str, value: Any, options: Mapping[str, Any] | None) -> ColumnFacts:
        opened = self._opened
        column = opened.again(lambda: set_default(opened.context(None, options, "columns"), name, value))
        opened.reload()
        return next(fact for fact in self if fact.name == column)

    def drop(self, name: str, *, options: Mapping[str, Any] | None = None) -> ColumnsChanged:
        """Remove a column from the table. Its values stay in the files, for reads with `as_of`.

        >>> t.columns.drop("fare").change
        'column fare is dropped'
        """
        return self._change(ColumnChange("drop", name), options)

    def rename(self, old: str, new: str, *, options: Mapping[str, Any] | None = None) -> ColumnsChanged:
        """Give a column another name. Rows that are written afterwards have the new name.

        >>> t.columns.rename("fare", "price").change
        'column fare is price now'
        """
        return self._change(ColumnChange("rename", old, name=new), options)

    def widen(self, name: str, type: Any, *, options: Mapping[str, Any] | None = None) -> ColumnsChanged:
        """Give a column a wider type, which keeps every value: int to bigint, double or decimal, decimal to a wider
        one, numbers and dates to string, ...

        >>> t.columns.widen("fare", "string").change
        'column fare is STRING now, it was DOUBLE'
        """
        return self._change(ColumnChange("widen", name, type), options)

    def comment(self, name: str, text: str, *, options: Mapping[str, Any] | None = None) -> ColumnsChanged:
        """Set the comment of a column; an empty text removes the comment.

        >>> _ = t.columns.comment("fare", "in euro")
        >>> [column.comment for column in t.columns]
        ['', '', 'in euro', '']
        """
        return self._change(ColumnChange("comment", name, comment=text), options)

    def move(
        self,
        name: str,
        after: str | None = None,
        *,
        first: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> ColumnsChanged:
        """Move a column behind another one, or with `first` before all others.

        >>> _ = t.columns.move("ts", first=True)
        >>> t.schema.names
        ['ts', 'id', 'city', 'fare']
        """
        if first == (after is not None):
            raise refused("move", "after", after, "the name of a column, or first=True")
        return self._change(ColumnChange("move", name, after=after, first=first), options)

    def _change(self, change: ColumnChange, options: Mapping[str, Any] | None) -> ColumnsChanged:
        opened = self._opened
        return opened.committed(lambda: change_columns(opened.context(None, options, "columns"), change), options)


def _facts(view: Snapshot) -> list[ColumnFacts]:
    comments = comments_of(view.avro_schema)
    return [_fact(view, f.name, f, comments) for f in data_columns(view)]


def _as_arrow(view: Snapshot) -> pa.Table:
    comments = comments_of(view.avro_schema)
    listed = [
        _fact(view, path, field, comments)
        for path, field in column_paths(data_columns(view))
        if "." not in path or path in comments
    ]
    columns = [[getattr(fact, name) for fact in listed] for name in _SCHEMA.names]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def _fact(view: Snapshot, path: str, field: pa.Field, comments: Mapping[str, str]) -> ColumnFacts:
    default, expression = (values.get(path, "") for values in (view.config.defaults, view.config.generated))
    return ColumnFacts(path, name_of_type(field), field.nullable, comments.get(path, ""), default, expression)

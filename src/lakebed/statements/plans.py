"""The plans of statements that change a table, as texts: the files that they read, the index, and how they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakebed.operations.delete import Where
from lakebed.operations.merge import explain_merge
from lakebed.operations.merge_statement import update_statement
from lakebed.operations.upsert import explain_insert
from lakebed.table import Table
from lakebed.wording import Lines

if TYPE_CHECKING:
    from lakebed.operations.context import WriteContext


def plan_of_delete(table: Table, where: str) -> Lines:
    """The plan of `table.delete(where=...)`: the files in which it looks for rows, and the engine that deletes them."""

    def plan(context: WriteContext) -> Lines:
        read = _indented(table.scan(where=where).explain())
        return Lines(
            f"delete from table {table.name!r}, rows with {where}\n  engine      {context.engine.name}\n{read}"
        )

    return table.opened.plan_merge(plan, Where(where), None)


def plan_of_update(table: Table, values: Mapping[str, Any], where: str | None) -> Lines:
    """The plan of `table.update(values, where=...)`: the columns that it reads and writes, and the files."""
    rows = Where("true" if where is None else where)
    statement = update_statement(values, where)
    return table.opened.plan_merge(lambda context: explain_merge(context, None, statement), rows, None)


def plan_of_insert(table: Table, rows: Any) -> Lines:
    """The plan of `table.insert(rows)`: the index, the file groups and the engine. The rows are counted."""
    plan = table.opened.plan_merge(lambda context: explain_insert(context, rows), rows, None)
    return Lines(f"insert into table {table.name!r}\n{_indented(plan)}")


def _indented(plan: object) -> str:
    return "\n".join(f"  {line}" for line in str(plan).splitlines())

"""ALTER TABLE for the checks of a table: ADD and DROP CONSTRAINT, SET and DROP NOT NULL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lakebed.statements.commands import CommandCursor, Query, table_of
from lakebed.statements.sources import Sources
from lakebed.statements.statement import Reference


@dataclass(frozen=True, slots=True)
class AlterChecks:
    """ADD CONSTRAINT, DROP CONSTRAINT, SET NOT NULL and DROP NOT NULL: `name` is that of the constraint or the
    column."""

    table: Reference
    verb: Literal["add", "drop", "require", "drop_required"]
    name: str
    condition: str = ""
    missing_ok: bool = False

    def run(self, sources: Sources, query: Query) -> Any:
        checks = table_of(sources, self.table).checks
        match self.verb:
            case "add":
                return checks.add(self.name, self.condition)
            case "drop":
                named = {check.name.lower() for check in checks}
                return checks if self.missing_ok and self.name.lower() not in named else checks.drop(self.name)
            case "require":
                return checks.require(self.name)
            case "drop_required":
                return checks.drop_required(self.name)


def parse_constraint(cursor: CommandCursor, table: Reference) -> AlterChecks | None:
    """The change of checks that comes next in an ALTER TABLE; None, with the cursor where it was, if another change
    does."""
    start = cursor.at
    if cursor.takes("ADD", "CONSTRAINT"):
        name = cursor.name("constraint")
        cursor.needs("CHECK")
        condition = cursor.text(*cursor.enclosed("the condition"), "the condition")
        cursor.takes("ENFORCED")
        cursor.end()
        return AlterChecks(table, "add", name, condition)
    if cursor.takes("DROP", "CONSTRAINT"):
        missing_ok = cursor.takes("IF", "EXISTS")
        name = cursor.name("constraint")
        cursor.end()
        return AlterChecks(table, "drop", name, missing_ok=missing_ok)
    if cursor.takes_one("ALTER", "CHANGE"):
        cursor.takes("COLUMN")
        column = cursor.name()
        verb = cursor.takes_one("SET", "DROP")
        if verb and cursor.takes("NOT", "NULL"):
            cursor.end()
            return AlterChecks(table, "require" if verb == "SET" else "drop_required", column)
    cursor.at = start
    return None

"""Statements about a table as a whole, taken apart."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from lakebed.statements.definitions import ColumnText
from lakebed.statements.parts import QueryText
from lakebed.statements.run import parse_command
from lakebed.statements.sources import Sources, TableCalls
from lakebed.statements.statement import Reference, parse_statement


def _refuse(*_: object, **__: object) -> Any:
    raise AssertionError("a statement is taken apart, and no table is asked for")


NO_CALLS = TableCalls(_refuse, _refuse, _refuse, _refuse, _refuse)


def parts(text: str) -> tuple[str, dict[str, Any]]:
    """The name of a statement's command, and those of its fields that are no defaults. The table `t` is lakebed's."""
    sources = Sources({"t": "memory://statements/t"}, NO_CALLS, None)
    command = parse_command(parse_statement(text, is_spark=True), sources)
    return type(command).__name__, _fields(command)


def _fields(command: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for field in fields(command):
        value = getattr(command, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if value != default and value not in ((), {}):
            named[field.name] = _plain(value)
    return named


def _plain(value: Any) -> Any:
    if isinstance(value, Reference):
        return value.name
    if isinstance(value, QueryText):
        return value.text
    if isinstance(value, ColumnText):
        return (value.name, value.type, value.comment, value.nullable)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return _fields(value) if is_dataclass(value) else value

"""The values of `args=`: their markers `:name` and `?` in a statement, and the constants that they are in its texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral
from typing import Any

from sqlglot import TokenType

from lakebed.errors import InvalidOption
from lakebed.filters.coercion import constant_text
from lakebed.schema.column_names import did_you_mean
from lakebed.statements.statement import Statement, parse_statement

Arguments = Mapping[str, Any] | Sequence[Any] | None
# After one of these a colon is that of a slice, `list[first:last]`, of a struct, `{'a':b}`, or of a column's type.
_VALUES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET)
_NO_OPERAND = (*_VALUES, TokenType.STRING, TokenType.L_BRACKET)


@dataclass(frozen=True, slots=True)
class Marker:
    """A place in the text for a value: `name` is empty for `?`, `at` the token."""

    start: int
    end: int
    name: str
    at: int


def markers(statement: Statement, args: Arguments) -> Iterator[Marker]:
    """The markers of a statement. A colon and a name may have another meaning; a name in `args` counts as a marker
    rather than one that is not."""
    names = args if isinstance(args, Mapping) else ()
    tokens = statement.tokens
    for at, token in enumerate(tokens):
        if statement.text[token.start : token.end + 1] == "?":
            yield Marker(token.start, token.end + 1, "", at)
        elif token.token_type is TokenType.COLON and at + 1 < len(tokens):
            before, following = tokens[at - 1] if at else None, tokens[at + 1]
            name = statement.text[following.start : following.end + 1]
            if following.start != token.end + 1 or re.fullmatch(r"[^\W\d]\w*", name) is None:
                continue
            touches_value = before is not None and before.end + 1 == token.start and before.token_type in _VALUES
            is_operand = before is None or before.token_type not in _NO_OPERAND
            if is_operand or (name in names and not touches_value):
                yield Marker(token.start, following.end + 1, name, at)


def is_interval(statement: Statement, marker: Marker) -> bool:
    """Whether a marker is the number of an interval, as in `INTERVAL :n DAY`, which Spark takes without parentheses and
    DuckDB with them alone."""
    before = statement.words[: marker.at]
    has_sign = before[-1:] in (("-",), ("+",))
    return before[len(before) - 1 - has_sign : len(before) - has_sign] == ("INTERVAL",)


def check_arguments(statement: Statement, args: Arguments) -> None:
    """Raise `InvalidOption` if a marker has no value, or a value has no marker."""
    needed = list(markers(statement, args))
    numbered = any(
        dollar.text == "$" and following.token_type is TokenType.NUMBER
        for dollar, following in pairwise(statement.tokens)
    )
    if isinstance(args, Mapping):
        _check_names(statement, args, needed)
        return
    named = next((marker for marker in needed if marker.name), None)
    if named is not None:
        raise _lacking(statement, named, [])
    unnamed, count = [marker for marker in needed if not marker.name], len(args or ())
    if len(unnamed) > count:
        raise InvalidOption(
            f"args has too few values for ? in the SQL text near {statement.near(unnamed[count].at)}: {count} for"
            f" {len(unnamed)}",
            hint="give args= one value for each ?, in their order",
            context={"argument": "args"},
        )
    if len(unnamed) < count and not numbered:  # $1, $2 are DuckDB's to count
        raise InvalidOption(
            f"args has {count} values, and the SQL text has {len(unnamed)} places for them",
            hint="write ? for each value, or leave the others out",
            context={"argument": "args"},
        )


def _check_names(statement: Statement, args: Mapping[str, Any], needed: Sequence[Marker]) -> None:
    lacking = next((marker for marker in needed if marker.name not in args), None)
    if lacking is not None:
        raise _lacking(statement, lacking, list(args))
    used = {marker.name for marker in needed}
    used |= {following.text for dollar, following in pairwise(statement.tokens) if dollar.text == "$"}
    extra = next((name for name in args if name not in used), None)
    if extra is not None:
        raise InvalidOption(
            f"args has the value {extra!r}, and the SQL text has no :{extra}",
            hint=did_you_mean(str(extra), sorted(used), "it has") if used else "leave it out, or write :name for it",
            context={"argument": "args", "name": extra},
        )


def _lacking(statement: Statement, marker: Marker, names: list[str]) -> InvalidOption:
    return InvalidOption(
        f"args has no value for {f':{marker.name}' if marker.name else '?'} in the SQL text near"
        f" {statement.near(marker.at)}",
        hint=did_you_mean(marker.name, names, "it has")
        if names
        else "give args={'name': value} for :name, a list for ?",
        context={"argument": "args", "name": marker.name},
    )


def with_values(statement: Statement, args: Arguments) -> Statement:
    """A statement for Spark with the values of `:name` and `?` in place of the markers, as constants in parentheses, so
    that neighbouring text does not join with a value.

    >>> statement = parse_statement("update trips set n = 3-:by where city = :city", is_spark=True)
    >>> with_values(statement, {"by": -5, "city": "rome"}).text
    "update trips set n = 3-(-5) where city = ('rome')"
    """
    check_arguments(statement, args)
    positional = iter(args if isinstance(args, Sequence) else ())
    values: dict[tuple[int, int], Any] = {}
    constants: dict[tuple[int, int], str] = {}
    moved = 0
    for marker in markers(statement, args):  # in the order of the text
        value = args[marker.name] if isinstance(args, Mapping) else next(positional)
        # a value without a constant is for queries, which get it as it is; `Parts.text` refuses it elsewhere
        constant = f"({constant_text(value) or 'NULL'})"
        if is_interval(statement, marker) and not isinstance(value, bool) and isinstance(value, str | Integral):
            constant = f" {constant_text(str(value)) or 'NULL'} "
        constants[marker.start, marker.end] = constant
        values[marker.start + moved, marker.start + moved + len(constant)] = value
        moved += len(constant) - (marker.end - marker.start)
    if not constants:
        return statement
    return replace(parse_statement(statement.replaced(constants), is_spark=True), values=values)

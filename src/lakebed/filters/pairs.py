"""SQL over a pair of rows, a stored one (the target) and an incoming one (the source), as the clauses of a merge are.

Names are bound before anything is evaluated: `t.fare` is the target's column, a name without an alias is that of the
one side that has it. Each expression has two forms, with columns by the names of `Side.field`: an Arrow expression
where Arrow computes what Spark does, and its own text for Spark, untouched but for the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from lakebed.errors import InvalidOption
from lakebed.filters.coercion import SparkOnly, parse_zone
from lakebed.filters.predicates import Opaque, node_to_arrow, walk
from lakebed.filters.sql import (
    ConditionReader,
    SparkText,
    edits_of_constants,
    has_odd_escapes,
    outside_parentheses,
    parse_tree,
    plain_words,
    too_deep,
)
from lakebed.filters.text import quote_name
from lakebed.model import DERIVED
from lakebed.schema.column_names import nearest_name, unknown_in_sql


@dataclass(frozen=True)
class Side:
    """One of the two rows of a pair: its name in SQL, the prefix of its columns in a table of pairs, and its
    columns."""

    alias: str
    prefix: str
    schema: pa.Schema

    @classmethod
    def target(cls, schema: pa.Schema, alias: str = "t") -> Side:
        """The stored row."""
        return cls(alias, f"{DERIVED}t_", schema)

    @classmethod
    def source(cls, schema: pa.Schema, alias: str = "s") -> Side:
        """The incoming row."""
        return cls(alias, f"{DERIVED}s_", schema)

    def field(self, name: str) -> str:
        """The name of a column in a table of pairs."""
        return self.prefix + name

    @property
    def fields(self) -> list[pa.Field]:
        """The columns in the form that a table of pairs has."""
        return [f.with_name(self.field(f.name)).with_nullable(True) for f in self.schema]

    def column(self, name: str) -> str | None:
        """The column of that name, exactly or in another case; None if there is no such column."""
        names = self.schema.names
        return name if name in names else next((n for n in names if n.lower() == name.lower()), None)


@dataclass(frozen=True)
class PairExpression:
    """An expression over a pair. `target` and `source` are the columns that it names. `arrow` and `type` are None if
    only Spark can evaluate it, and `reason` is why; `spark` is its text for Spark."""

    text: str
    target: tuple[str, ...]
    source: tuple[str, ...]
    spark: str
    arrow: pc.Expression | None = None
    type: pa.DataType | None = None
    reason: str = ""

    @property
    def spark_enclosed(self) -> str:
        """The text for Spark in parentheses, as a part of another text: the line breaks keep a comment in it from the
        text after it."""
        return f"(\n{self.spark}\n)"


@dataclass(frozen=True)
class Equality:
    """A condition `target column = expression over the source`; `condition` is the complete condition. With `null_safe`
    it is `<=>`, under which nulls are equal."""

    column: str
    value: PairExpression
    condition: PairExpression
    null_safe: bool = False


@dataclass(frozen=True)
class OnCondition:
    """A join condition: the equalities of it, and all other conditions that must hold as well."""

    text: str
    equalities: tuple[Equality, ...]
    others: tuple[PairExpression, ...]

    def of_equalities(self, equalities: Sequence[Equality]) -> OnCondition:
        """This condition with only these equalities as equalities; the others become plain conditions."""
        remaining = [
            equality.condition
            for equality in self.equalities
            if not any(equality is selected for selected in equalities)
        ]
        return OnCondition(self.text, tuple(equalities), (*self.others, *remaining))

    @property
    def expressions(self) -> tuple[PairExpression, ...]:
        """The expressions of all its conditions: of the equalities the values."""
        return (*(equality.value for equality in self.equalities), *self.others)


_NO_TARGET = "a source row that matched none has no target row"
_NO_SOURCE = "a target row that no source row matched has no source row"


class PairReader:
    """A reader of expressions over a target and a source. `zone` is the time zone for times without one; the current
    time is that of the reader's creation."""

    def __init__(self, target: Side, source: Side, zone: str = "UTC") -> None:
        if target.alias.lower() == source.alias.lower():
            raise InvalidOption(
                f"target and source are both called {target.alias!r}",
                hint="give them two names: t.merge(source, target='t', source_alias='s')",
                context={"alias": target.alias},
            )
        self.target = target
        self.source = source
        self._zone = parse_zone(zone)
        self._now = datetime.now(UTC)

    def condition(self, text: str, sides: Sequence[Side], label: str) -> PairExpression:
        """A condition over columns of these sides."""
        return self._read(text, sides, label, is_condition=True)

    def value(self, text: str, sides: Sequence[Side], label: str) -> PairExpression:
        """A value over columns of these sides."""
        return self._read(text, sides, label, is_condition=False)

    def on(self, text: str) -> OnCondition:
        """The parts of a join condition, if it consists of conditions joined by AND."""
        sides = (self.target, self.source)
        equalities: list[Equality] = []
        other_conditions: list[PairExpression] = []
        try:
            parts = conjunct_texts(text)
        except RecursionError:
            raise too_deep(text, "join condition") from None
        for part in parts:
            condition = self.condition(part, sides, "join condition")
            equality = self._equality(part, condition)
            if equality is None:
                other_conditions.append(condition)
            else:
                equalities.append(equality)
        return OnCondition(text, tuple(equalities), tuple(other_conditions))

    def _equality(self, text: str, condition: PairExpression) -> Equality | None:
        """The condition as an equality of a target column with a value of the source; None if it is not one."""
        text = _without_parentheses(text)
        at = _at_top(text, ("=", "==", "<=>"))
        if len(at) != 1:
            return None
        tree = parse_tree(text, "join condition", "condition")
        if not isinstance(tree, exp.EQ | exp.NullSafeEQ):
            return None  # a = b OR c, too
        ((start, end),) = at
        for column_text, value_text in ((text[:start], text[end:]), (text[end:], text[:start])):
            column = self._target_column(column_text.strip())
            value = self.value(value_text.strip(), (self.target, self.source), "join condition")
            if column is not None and not value.target and value.source:
                return Equality(column, value, condition, isinstance(tree, exp.NullSafeEQ))
        return None

    def _target_column(self, text: str) -> str | None:
        tree = parse_tree(text, "join condition", "expression")
        while isinstance(tree, exp.Paren):
            tree = tree.this
        if not isinstance(tree, exp.Column):
            return None
        side, column, field_steps = self._bound([part.name for part in tree.parts], (self.target, self.source), text)
        return column if side is self.target and not field_steps else None

    def _read(self, text: str, sides: Sequence[Side], label: str, *, is_condition: bool) -> PairExpression:
        tree = parse_tree(text, label, "condition" if is_condition else "expression")
        try:
            return self._bound_expression(tree, text, sides, is_condition=is_condition)
        except RecursionError:
            raise too_deep(text, label) from None

    def _bound_expression(self, tree: Any, text: str, sides: Sequence[Side], *, is_condition: bool) -> PairExpression:
        tree, edits, named = self._bind(tree, sides, text)
        edits += edits_of_constants(text)
        spark = text
        for start, stop, new in sorted(edits, reverse=True):
            spark = spark[:start] + new + spark[stop:]
        target, source = (tuple(dict.fromkeys(c for s, c in named if s is side)) for side in (self.target, self.source))
        expression = PairExpression(text, target, source, spark)
        schema = pa.schema([field for side in sides for field in side.fields])
        reader = ConditionReader(schema, self._zone, self._now)
        try:
            if has_odd_escapes(text):
                raise SparkOnly("a backslash escape in a string")
            arrow, kind = _condition(reader, tree) if is_condition else _value(reader, tree)
        except SparkOnly as reason:
            return PairExpression(text, target, source, spark, reason=str(reason))
        return PairExpression(text, expression.target, expression.source, spark, arrow, kind)

    def _bind(self, tree: Any, sides: Sequence[Side], text: str) -> tuple[Any, list[Any], list[tuple[Side, str]]]:
        """The tree with the columns of a table of pairs, the edits that make the same change in the text, and the named
        columns."""
        edits: list[Any] = []
        named: list[tuple[Side, str]] = []
        for node in list(tree.find_all(exp.Column)):
            steps: list[Any] = list(node.parts)
            full_path: Any = node
            while isinstance(full_path.parent, exp.Dot) and full_path.parent.this is full_path:
                if not isinstance(full_path.parent.expression, exp.Identifier):
                    break
                full_path = full_path.parent
                steps.append(full_path.expression)
            side, column, field_steps = self._bound([step.name for step in steps], sides, text)
            named.append((side, column))
            bound: Any = exp.Column(this=exp.Identifier(this=side.field(column), quoted=True))
            for step in field_steps:
                bound = exp.Dot(this=bound, expression=exp.Identifier(this=step, quoted=True))
            if full_path is tree:
                tree = bound
            else:
                full_path.replace(bound)
            start, end = steps[0].meta.get("start"), steps[-1].meta.get("end")
            if start is None or end is None:
                continue
            edits.append((start, end + 1, ".".join(map(quote_name, (side.field(column), *field_steps)))))
        return tree, edits, named

    def _bound(self, steps: Sequence[str], sides: Sequence[Side], text: str) -> tuple[Side, str, Sequence[str]]:
        """The side and the column that a name means, and the steps into a struct after it."""
        first, *field_steps = steps
        context = {"text": text, "column": ".".join(steps)}
        for side in (self.target, self.source):
            if field_steps and first.lower() == side.alias.lower():
                column = side.column(field_steps[0])
                if column is None:
                    raise self._unknown(field_steps[0], [side], text)
                if side not in sides:
                    raise InvalidOption(
                        f"{'.'.join(steps)} in {text!r}: {_NO_TARGET if side is self.target else _NO_SOURCE}",
                        hint=f"use columns of {' and '.join(repr(s.alias) for s in sides)} alone",
                        context=context,
                    )
                return side, column, field_steps[1:]
        matches = [(side, column) for side in sides if (column := side.column(first)) is not None]
        if not matches:
            raise self._unknown(first, sides, text)
        if len(matches) > 1:
            choices = " or ".join(f"{side.alias}.{column}" for side, column in matches)
            raise InvalidOption(
                f"{first!r} in {text!r} is a column of both the target and the source",
                hint=f"write {choices}",
                context=context,
            )
        ((side, column),) = matches
        return side, column, field_steps

    def _unknown(self, name: str, sides: Sequence[Side], text: str) -> InvalidOption:
        names = list(dict.fromkeys(column for side in sides for column in side.schema.names))
        where = " or ".join("the table" if side is self.target else "the source" for side in sides)
        return InvalidOption(
            f"there is no column {name!r} in {where}: {text!r}",
            hint=unknown_in_sql(name, names, text),
            context={"column": name, "nearest": nearest_name(name, names), "text": text},
        )


def _condition(reader: ConditionReader, tree: Any) -> tuple[pc.Expression, pa.DataType]:
    node = reader.node(tree)
    for part in walk(node):
        if isinstance(part, Opaque):
            raise SparkOnly(part.reason)
    return node_to_arrow(node), pa.bool_()


def _value(reader: ConditionReader, tree: Any) -> tuple[pc.Expression, pa.DataType]:
    try:
        value = reader.values.read(tree)
    except SparkOnly:
        if not isinstance(tree, exp.Predicate | exp.Connector | exp.Not | exp.Paren):
            raise
        return _condition(reader, tree)
    return value.to_arrow(), value.type


def conjunct_texts(text: str) -> list[str]:
    """The conditions of a text that are joined by AND, each as it is written; only the text itself if it is one
    condition.

    >>> conjunct_texts("t.id = s.id AND (s.a > 1 or s.b in (1, 2)) and t.c between 1 and 2")
    ['t.id = s.id', '(s.a > 1 or s.b in (1, 2))', 't.c between 1 and 2']
    """
    stripped = _without_parentheses(text.strip())
    tree: Any = parse_tree(stripped, "join condition")
    count = sum(1 for _ in _parts(tree))
    spans = _at_top(stripped, ("AND",))
    edges = [0, *(edge for span in spans for edge in span), len(stripped)]
    texts = [stripped[edges[n] : edges[n + 1]].strip() for n in range(0, len(edges), 2)]
    return texts if len(texts) == count else [stripped]


def _parts(tree: Any) -> Iterator[Any]:
    if isinstance(tree, exp.And):
        yield from _parts(tree.this)
        yield from _parts(tree.expression)
    else:
        yield tree


def _at_top(text: str, signs: Sequence[str]) -> list[tuple[int, int]]:
    """The spans of these words in a text outside of all parentheses and CASE; the AND of a BETWEEN does not count."""
    between = 0
    spans: list[tuple[int, int]] = []
    tokens = SparkText().tokenize(text)
    token_texts = plain_words(tokens)
    for at in outside_parentheses(token_texts):
        if token_texts[at] == "BETWEEN":
            between += 1
        elif token_texts[at] == "AND" and between:
            between -= 1
        elif token_texts[at] in signs:
            spans.append((tokens[at].start, tokens[at].end + 1))
    return spans


def _without_parentheses(text: str) -> str:
    """The text without a pair of parentheses around all of it."""
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        tokens = SparkText().tokenize(text)
        for token in tokens[:-1]:
            kind = token.token_type.name
            depth += (kind == "L_PAREN") - (kind == "R_PAREN")
            if depth == 0:
                return text
        text = text[1:-1].strip()
    return text

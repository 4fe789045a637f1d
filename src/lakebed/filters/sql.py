"""`parse_filter`: a SQL condition or a pyarrow expression to a `Predicate`, with Spark's rules for types and nulls.

A condition is parsed as Spark SQL and read into lakebed's own tree. `session_text` writes it so that it means the
same in every Spark session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from functools import reduce
from math import isinf
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import Token, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.base import sql_literal
from lakebed.filters.coercion import SparkOnly, compare, membership, parse_zone
from lakebed.filters.functions import only
from lakebed.filters.predicates import (
    And,
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Node,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
    combine,
    node_to_spark,
    walk,
)
from lakebed.filters.text import quote_name, resolve_column, spark_literal
from lakebed.filters.values import ValueReader

if TYPE_CHECKING:
    from sqlglot.expressions.core import Expression

Edit = tuple[int, int, str]
_MOMENTS: dict[str, type[Expression]] = {
    "CURRENT_DATE": exp.CurrentDate,
    "CURDATE": exp.CurrentDate,
    "CURRENT_TIMESTAMP": exp.CurrentTimestamp,
    "NOW": exp.CurrentTimestamp,
}
_MOMENTS_AS_NAMES = ("CURRENT_DATE", "CURRENT_TIMESTAMP")
_TIMESTAMP = "TIMESTAMP"


def session_text(text: str, tree: Any, column: Callable[[Expression], Column], more: Sequence[Edit] = ()) -> str:
    """The condition with columns in the table's spelling, constants as `edits_of_constants` rewrites them, and `more`
    edits.

    A session may distinguish names by case (`spark.sql.caseSensitive`). `column` finds the column that a node names.
    """
    edits = [*_names(tree, column), *edits_of_constants(text), *more]
    for start, stop, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


def _edits_of_moments(text: str, values: ValueReader) -> Iterator[Edit]:
    """The edits that insert constants for the current time and date, which Spark would take from a later moment than
    the one at which files are chosen."""
    if not [name for name in _MOMENTS if name in text.upper()]:
        return
    tokens = SparkText().tokenize(text)
    token_texts = [*plain_words(tokens), "", ""]
    for at, token in enumerate(tokens):
        kind, has_parentheses = _MOMENTS.get(token_texts[at]), token_texts[at + 1 : at + 3] == ["(", ")"]
        if (
            kind is None
            or (at and token_texts[at - 1] == ".")
            or not (has_parentheses or token_texts[at] in _MOMENTS_AS_NAMES)
        ):
            continue
        value = values.read(kind())
        assert isinstance(value, Literal)
        end = tokens[at + 2 if has_parentheses else at].end + 1
        yield token.start, end, spark_literal(value.value, value.type).replace("TIMESTAMP ", "TIMESTAMP_LTZ ")


def _names(tree: Any, column: Callable[[Expression], Column]) -> Iterator[Edit]:
    for node in tree.find_all(exp.Column):
        steps = list(node.parts)
        full_path = node
        while isinstance(full_path.parent, exp.Dot) and full_path.parent.this is full_path:
            full_path = full_path.parent
            steps.append(full_path.expression)
        try:
            path = column(full_path).path
        except SparkOnly:  # a path into an array or a map: the column itself is found all the same
            steps = steps[:1]
            path = column(exp.column(steps[0].copy())).path
        for step, name in zip(steps, path, strict=True):
            start, end = step.meta.get("start"), step.meta.get("end")
            if start is not None and end is not None and step.name != name:
                yield start, end + 1, quote_name(name)


def edits_of_constants(text: str) -> Iterator[Edit]:
    """The edits by which constants mean the same in every session: `TIMESTAMP_LTZ` for the type name `TIMESTAMP`, in
    casts and before constants, whose meaning `spark.sql.timestampType` decides; texts with doubled quotes without
    these, which `spark.sql.legacy.consecutiveStringLiterals.enabled` would leave out."""
    if _TIMESTAMP not in text.upper() and "''" not in text and '""' not in text:
        return
    tokens = SparkText().tokenize(text)
    kinds = ["", *(token.token_type.name for token in tokens), ""]
    for at, token in enumerate(tokens):
        before, kind, after = kinds[at : at + 3]
        written = text[token.start : token.end + 1]
        if kind == "STRING" and written[0] * 2 in written[1:-1] and not has_odd_escapes(written):
            yield token.start, token.end + 1, sql_literal(token.text)
        # a column may have the name of the type, too
        is_type = token.text.upper() == _TIMESTAMP and kind not in ("IDENTIFIER", "STRING")
        if is_type and (before in ("ALIAS", "DCOLON") or after == "STRING"):
            yield token.start, token.end + 1, "TIMESTAMP_LTZ"


_OPERATORS: dict[type[Expression], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_TEXT_MATCH: dict[type[Expression], str] = {
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.Contains: "contains",
}
# Escapes that Spark and the parser read the same way; anything else after a backslash is left to Spark.
_EXPONENT = re.compile(r"[0-9.]+[eE][+-]?[0-9]+")
_ODD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?![\\'\"%_ntr])|\\\\[%_]")

_QUOTED = re.compile(r"STRING$|^IDENTIFIER$")
_OPENING, _CLOSING = ("(", "[", "CASE"), (")", "]", "END")


def _truncation(kind: type[Expression], value: int, unit: int) -> Callable[[list[Any]], Any]:
    """A function that reads the arguments of `trunc` and `date_trunc` with the unit as it is written: the parser takes
    Q for QUARTER, and a column for a unit."""

    def built(arguments: list[Any]) -> Any:
        if len(arguments) != 2:
            return exp.Anonymous(this="trunc", expressions=arguments)  # for Spark to refuse
        tree = kind(this=arguments[value], unit=exp.Literal.string(""))
        tree.set("unit", arguments[unit])
        return tree

    return built


class SparkText(Spark):
    """Spark's SQL, with the patterns of dates and times and the units unchanged, and two quotes in a text as one."""

    TIME_MAPPING: ClassVar[dict[str, str]] = {}

    class Parser(Spark.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            **Spark.Parser.FUNCTIONS,
            "TRUNC": _truncation(exp.DateTrunc, 0, 1),
            "DATE_TRUNC": _truncation(exp.TimestampTrunc, 1, 0),
        }

    class Tokenizer(Spark.Tokenizer):
        def tokenize(self, sql: str, *more: Any) -> list[Any]:
            """The tokens; a text with doubled quotes, which the parser splits into several adjacent texts, is one
            token."""
            tokens: list[Any] = []
            for token in super().tokenize(sql, *more):
                last = tokens[-1] if tokens else None
                is_more = last is not None and last.end + 1 == token.start and last.token_type is token.token_type
                if (
                    last is None
                    or not is_more
                    or token.token_type.name != "STRING"
                    or sql[last.end] != sql[token.start]
                ):
                    tokens.append(token)
                    continue
                text = f"{last.text}{sql[token.start]}{token.text}"
                tokens[-1] = Token(token.token_type, text, last.line, last.col, last.start, token.end, token.comments)
            return tokens


def too_deep(text: str, label: str) -> InvalidOption:
    """The error for a text that nests deeper than Python's stack."""
    return InvalidOption(
        f"the {label} of {len(text)} characters is nested too deeply",
        hint="write lists of values as `column IN (...)`, or join with a table of the values",
    )


def check_characters(text: str, label: str) -> None:
    """Raise `InvalidOption` for a text with half of a surrogate pair, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidOption(
            f"the {label} has half of a surrogate pair at character {error.start}: {ascii(text)[:80]}",
            hint="it is no Unicode text: decode its bytes anew, for example with errors='surrogatepass'",
            context={"position": error.start},
        ) from None


def check_numbers(numbers: Iterable[str], label: str) -> None:
    """Raise `InvalidOption` for a number in SQL that is too great for a DOUBLE, as Spark does."""
    for number in numbers:
        if _EXPONENT.fullmatch(number) and isinf(float(number)):
            raise InvalidOption(
                f"the {label} has {number}, which is too great for a DOUBLE",
                hint="write a smaller number, or CAST('Infinity' AS DOUBLE)",
                context={"value": number},
            )


def parse_tree(text: str, label: str = "condition", form: str = "condition") -> Any:
    """The parser's tree of an expression over the columns of a row. Raises `InvalidOption`, which names it by its
    `label`."""
    check_characters(text, label)
    try:
        tree: Any = sqlglot.parse_one(text, read=SparkText, into=exp.Condition)
    except RecursionError:
        raise too_deep(text, label) from None
    except (SqlglotError, LookupError, TypeError, AttributeError, ValueError) as error:
        why = _why(error) if isinstance(error, SqlglotError) else "a function has too few arguments"
        raise InvalidOption(
            f"the {label} {text!r} is no SQL {form}: {why}",
            hint="write it as you would after WHERE in Spark SQL, with texts in quotes",
            context={label: text},
        ) from None
    if isinstance(tree, exp.Query) or not isinstance(tree, exp.Condition):
        raise InvalidOption(f"the {label} {text!r} is no SQL {form}", hint=f"give one {form}, as after WHERE")
    _check_reach(tree, text, label)
    check_numbers([str(part.this) for part in tree.find_all(exp.Literal) if not part.is_string], label)
    return tree


def has_odd_escapes(text: str) -> bool:
    """Whether a text constant has a backslash escape that the parser and Spark may read differently."""
    return _ODD_ESCAPE.search(text) is not None


def plain_words(tokens: Sequence[Any]) -> tuple[str, ...]:
    """The tokens in upper case; empty for texts and quoted names."""
    return tuple("" if _QUOTED.search(token.token_type.name) else token.text.upper() for token in tokens)


def outside_parentheses(words: Sequence[str], start: int = 0) -> Iterator[int]:
    """The positions, from `start` on, of the words that are outside of all parentheses, brackets and CASE.

    >>> words = plain_words(SparkText().tokenize("a = ')' AND f(b, c) = CASE WHEN d THEN t.end END"))
    >>> [words[at] for at in outside_parentheses(words)]
    ['A', '=', '', 'AND', 'F', '(', '=', 'CASE']
    """
    opened: list[str] = []
    for at in range(start, len(words)):
        word = "" if at and words[at - 1] == "." else words[at]
        if word in _CLOSING and opened and (word != "END" or opened[-1] == "CASE"):
            opened.pop()
            continue
        if not opened:
            yield at
        if word in _OPENING:
            opened.append(word)


def _parsed(text: str, schema: pa.Schema, zone: str, now: datetime) -> Predicate:
    tree = parse_tree(text)
    # in Spark a column of that name goes before the constant
    is_column = not _MOMENTS.keys().isdisjoint([name.upper() for name in schema.names])
    reader = ConditionReader(schema, parse_zone(zone), None if is_column else now)
    odd = has_odd_escapes(text)
    root = reader.opaque(tree, "a backslash escape in a string") if odd else reader.node(tree)
    if isinstance(root, Constant):
        return Predicate(root, text, spark_sql=node_to_spark(root))
    moments = () if is_column else tuple(_edits_of_moments(text, reader.values))
    spark_sql = session_text(text, tree, reader.values.column, moments)
    return Predicate(root, text, spark_sql=spark_sql, named=reader.names(tree))


def condition_of_tree(tree: Expression, schema: pa.Schema, zone: str) -> Node | None:
    """The node of a condition that was parsed as a part of `SparkText`; None if lakebed cannot evaluate it."""
    try:
        _check_reach(tree, "", "condition")
        node = ConditionReader(schema, parse_zone(zone)).node(tree)
    except (InvalidOption, RecursionError, SparkOnly):
        return None
    return None if any(isinstance(part, Opaque) for part in walk(node)) else node


def _check_reach(tree: Any, text: str, label: str) -> None:
    """Raise `InvalidOption` for expressions that Spark would evaluate outside of the row: other tables, and code of the
    JVM."""
    if tree.find(exp.Query) is not None:
        construct = "a subquery"
    else:
        named = {str(function.name).lower() for function in tree.find_all(exp.Anonymous)} & _BEYOND_ROWS
        if not named:
            return
        construct = f"{min(named)}()"
    raise InvalidOption(
        f"the {label} {text!r} has {construct}: it is over the columns of one row",
        hint="look up the values first and give them as a list, or join with the other table in Spark",
        context={label: text},
    )


def _why(error: SqlglotError) -> str:
    """The error of the parser as a text: the part that cannot be parsed and its place, without the parser's own
    wording."""
    errors: list[dict[str, Any]] = getattr(error, "errors", [])
    if isinstance(error.__cause__, IndexError):
        return "it ends within quotes"
    if not errors:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error.__cause__ or error))
        return plain.strip().splitlines()[0].rstrip(". ")
    first = errors[0]
    described = str(first["description"])
    problem = "something is missing" if "<class" in described else described[:1].lower() + described[1:]
    return f"{problem} at character {first['col']}, {first['highlight']!r}"


# Functions of Spark that call what is in the JVM's class path.
_BEYOND_ROWS = frozenset({"java_method", "reflect", "try_reflect"})


def constant_of(text: str, zone: str = "UTC") -> Literal:
    """The constant that a text of Spark SQL means. Raises `InvalidOption` for a text that is not a constant.

    >>> constant_of("DATE '2024-01-31'").value
    datetime.date(2024, 1, 31)
    """
    tree = parse_tree(text, "constant", "constant")
    try:
        value = ConditionReader(pa.schema([]), parse_zone(zone), datetime.now(UTC)).values.read(tree)
    except SparkOnly as reason:
        raise InvalidOption(f"{text!r} is no constant: {reason}", hint="write it as DATE '2024-01-31'") from None
    if not isinstance(value, Literal):
        raise InvalidOption(f"{text!r} is no constant", hint="write a value without columns, as DATE '2024-01-31'")
    return value


class ConditionReader:
    """A reader that converts the parser's conditions into nodes; an unsupported one becomes `Opaque`."""

    def __init__(self, schema: pa.Schema, zone: tzinfo, now: datetime | None = None) -> None:
        self.schema = schema
        self.zone = zone
        self.values = ValueReader(schema, zone, resolve_column, self.node, now)

    def node(self, e: Expression) -> Node:
        if isinstance(e, exp.Paren):
            return self.node(e.this)
        if isinstance(e, exp.And | exp.Or):
            kind = And if isinstance(e, exp.And) else Or
            return kind(tuple(self.node(p) for p in _flatten(e)))
        if isinstance(e, exp.Not):
            return Not(self.node(e.this))
        try:
            return self._leaf(e)
        except SparkOnly as reason:
            return self.opaque(e, str(reason))

    def _leaf(self, e: Expression) -> Node:
        if type(e) in _OPERATORS:
            only(e, "this", "expression")
            return compare(self.values.read(e.this), _OPERATORS[type(e)], self.values.read(e.expression), self.zone)
        if isinstance(e, exp.NullSafeNEQ | exp.EqualNull):
            only(e, "this", "expression")
            equal = compare(self.values.read(e.this), "<=>", self.values.read(e.expression), self.zone)
            return Not(equal) if isinstance(e, exp.NullSafeNEQ) else equal
        if isinstance(e, exp.In):
            only(e, "this", "expressions")
            items = [self.values.read(x) for x in e.expressions]
            constants = [i for i in items if isinstance(i, Literal)]
            left = self.values.read(e.this)
            if len(constants) != len(items) or isinstance(left, Literal):
                raise SparkOnly("IN over anything but constants")
            return membership(left, constants, self.zone)
        if isinstance(e, exp.Between):
            only(e, "this", "low", "high")
            value = self.values.read(e.this)
            low, high = self.values.read(e.args["low"]), self.values.read(e.args["high"])
            return And((compare(value, ">=", low, self.zone), compare(value, "<=", high, self.zone)))
        if isinstance(e, exp.Is):
            return self._is(e)
        if isinstance(e, exp.Like | exp.ILike):
            return self._like(e)
        if type(e) in _TEXT_MATCH:
            only(e, "this", "expression")
            return self._text_match(e)
        return self._boolean(e)

    def _is(self, e: exp.Is) -> Node:
        only(e, "this", "expression")
        if isinstance(e.expression, exp.Null):
            value = self.values.read(e.this)
            return Constant(value.value is None) if isinstance(value, Literal) else IsNull(value)
        if isinstance(e.expression, exp.Boolean):
            value = self.values.read(e.this)
            if pa.types.is_boolean(value.type) and not isinstance(value, Literal):
                return Compare(value, "<=>", Literal(bool(e.expression.this), pa.bool_()))
        raise SparkOnly("IS with anything but NULL, TRUE or FALSE")

    def _like(self, e: exp.Like | exp.ILike) -> Node:
        only(e, "this", "expression", "negate")
        value, pattern = self.values.read(e.this), self.values.read(e.expression)
        if isinstance(pattern, Literal) and pattern.value is None:
            return Constant(None)
        if isinstance(value, Literal) or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise SparkOnly("LIKE with anything but a column and a constant pattern")
        if not pa.types.is_string(value.type):
            raise SparkOnly(f"LIKE on {value.type}")
        if re.search(r"\\(?![\\%_])|(?<!\\)(?:\\\\)*\\$", pattern.value):
            raise SparkOnly("a lone backslash in a LIKE pattern")
        like = Like(value, pattern.value, isinstance(e, exp.ILike))
        return Not(like) if e.args.get("negate") else like

    def _text_match(self, e: Expression) -> Node:
        value, part = self.values.read(e.this), self.values.read(e.expression)
        if isinstance(part, Literal) and part.value is None:
            return Constant(None)
        if isinstance(value, Literal) or not isinstance(part, Literal) or not isinstance(part.value, str):
            raise SparkOnly("text search with anything but a column and a constant")
        if not pa.types.is_string(value.type):
            raise SparkOnly(f"text search on {value.type}")
        return IsTrue(Call(_TEXT_MATCH[type(e)], (value,), pa.bool_(), (part.value,)))

    def _boolean(self, e: Expression) -> Node:
        if isinstance(e, exp.Null):
            return Constant(None)
        if isinstance(e, exp.Boolean):
            return Constant(bool(e.this))
        if isinstance(e, exp.IsNan):
            only(e, "this")
            value = self.values.read(e.this)
            if not pa.types.is_floating(value.type) or isinstance(value, Literal):
                raise SparkOnly("isnan of anything but a floating-point column")
            return IsTrue(Call("is_nan", (value,), pa.bool_()))
        if isinstance(e, exp.Anonymous) and len(e.expressions) == 1 and e.name.lower() in ("isnull", "isnotnull"):
            value = self.values.read(e.expressions[0])
            if isinstance(value, Literal):
                raise SparkOnly("isnull of a constant")
            return IsNull(value) if e.name.lower() == "isnull" else Not(IsNull(value))
        value = self.values.read(e)
        if not pa.types.is_boolean(value.type):
            raise InvalidOption(
                f"{e.sql('spark')} is {value.type}, not a condition", hint="compare it with something, e.g. = 1"
            )
        return Constant(value.value) if isinstance(value, Literal) else IsTrue(value)

    def opaque(self, e: Expression, reason: str) -> Node:
        """The node for a condition that is not looked into."""
        return Opaque(self.names(e), reason)

    def names(self, e: Any) -> tuple[str, ...]:
        """The table's columns that an expression names, each once."""
        columns = [self.values.resolve(column.parts[0].name, self.values.schema) for column in e.find_all(exp.Column)]
        return tuple(dict.fromkeys([column.name for column in columns]))


def _flatten(e: Expression) -> list[Expression]:
    kind = type(e)
    parts: list[Expression] = []
    stack: list[Any] = [e]
    while stack:
        top = stack.pop()
        if type(top) is kind:
            stack.extend((top.expression, top.this))
        else:
            parts.append(top)
    return parts


Condition = str | pc.Expression
"""A condition as callers give it as `where`: Spark SQL, or an expression of Arrow."""


def parse_conditions(conditions: Sequence[Condition], schema: pa.Schema, *, zone: str = "UTC") -> Predicate | None:
    """The conjunction of several conditions as one tree; None without conditions. Raises the errors of `parse_filter`,
    and `UnsupportedFeature` if SQL that only Spark evaluates is combined with an expression that cannot be written as
    SQL.

    >>> parse_conditions(["a > 1", "a < 5"], pa.schema({"a": pa.int64()})).text
    '(\\na > 1\\n) AND (\\na < 5\\n)'
    """
    parsed = [parse_filter(condition, schema, zone=zone) for condition in conditions]
    if len(parsed) < 2:
        return parsed[0] if parsed else None
    texts = [condition for condition in conditions if isinstance(condition, str)]
    expressions = [condition for condition in conditions if not isinstance(condition, str)]
    # the line breaks keep a comment in a text from swallowing what follows
    of_texts = parse_filter(" AND ".join(f"(\n{text}\n)" for text in texts), schema, zone=zone) if texts else None
    of_expressions = parse_filter(reduce(and_, expressions), schema) if expressions else None
    if of_texts is None or of_expressions is None:
        return of_texts or of_expressions
    for first, second in ((of_texts, of_expressions), (of_expressions, of_texts)):
        if not any(isinstance(node, Opaque) for node in walk(second.root)):
            return combine(first, [second.root])
    raise UnsupportedFeature(
        "a SQL condition that only Spark evaluates, and an Arrow expression that SQL cannot say, in one read",
        hint="give both as SQL, or both as expressions",
    )


def parse_filter(
    text_or_expression: str | pc.Expression, schema: pa.Schema, *, zone: str = "UTC", now: datetime | None = None
) -> Predicate:
    """The filter as a tree over the columns of `schema`.

    SQL is Spark's: names in any case, three-valued logic, constants cast to the column's type. `zone` is the time zone
    of times that name none, `now` (None: this moment) the current time. What only Spark can evaluate becomes `Opaque`
    inside the tree and does not stop the rest from pruning. Raises `InvalidOption` for SQL that does not parse and for
    unknown columns, naming the nearest.

    >>> parse_filter("a >= 2.5 and b in ('x', null)", pa.schema({"a": pa.int64(), "b": pa.string()})).root.parts[0]
    Compare(left=Column(path=('a',), type=DataType(int64)), op='>', right=Literal(value=2, type=DataType(int64)))
    """
    if isinstance(text_or_expression, pc.Expression):
        from lakebed.filters.arrow import predicate_of_expression

        return predicate_of_expression(text_or_expression, schema)
    if not isinstance(text_or_expression, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(
            f"a condition is SQL text or a pyarrow.compute.Expression, not {type(text_or_expression).__name__}",
            hint="for example where=\"city = 'Oslo' and ts >= '2024-01-01'\"",
        )
    try:
        return _parsed(text_or_expression, schema, zone, now or datetime.now(UTC))
    except RecursionError:
        raise too_deep(text_or_expression, "condition") from None

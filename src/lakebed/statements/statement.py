"""One SQL statement: its tokens, its kind, and the places of the tables that it reads.

Expressions are never written again from a tree: what is not a table's name reaches the engine as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import TokenType
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from lakebed.catalog.names import is_name
from lakebed.errors import InvalidOption
from lakebed.filters.sql import SparkText, check_characters, check_numbers, plain_words
from lakebed.sharing import once

_NEAR = 30
_QUERIES = frozenset(("SELECT", "FROM", "VALUES", "TABLE", "DESCRIBE", "DESC", "EXPLAIN", "SHOW", "SUMMARIZE", "PIVOT"))
# Words that end the list of tables of a query.
_AFTER_FROM = frozenset(
    [
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "WINDOW",
        "QUALIFY",
        "LIMIT",
        "OFFSET",
        "ON",
        "USING",
        "SELECT",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "MINUS",
        "LATERAL",
        "CLUSTER",
        "DISTRIBUTE",
        "SORT",
        "FETCH",
    ]
)
# What may be ahead of a parenthesis that is not that of a call.
_BEFORE_PARENTHESES = frozenset(("IN", "AND", "OR", "NOT", "(", "=", "<", ">", "<=", ">=", "<>", "!=", ","))
_TABLES = ("FROM", "JOIN")
_TABLES_AT_START = ("TABLE", "DESCRIBE", "DESC", "SUMMARIZE", "PIVOT")
# Words that are no names of tables and no aliases.
_RESERVED = _AFTER_FROM.union(
    [
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "OUTER",
        "CROSS",
        "NATURAL",
        "SEMI",
        "ANTI",
        "ASOF",
        "POSITIONAL",
        "FROM",
        "AS",
        "FOR",
        "PIVOT",
        "UNPIVOT",
        "TABLESAMPLE",
        "SET",
        "WHEN",
        "VALUES",
        "WITH",
        "TABLE",
        "UNNEST",
        "ALL",
        "INTO",
    ]
)
_NAME_PART = re.compile(r"[^\W\d]\w*")
_TIME_TRAVEL = ("VERSION", "TIMESTAMP", "SYSTEM_VERSION", "SYSTEM_TIME")
FUNCTIONS = {
    "lakebed_changes": 3,
    "lakebed_cdc": 3,
    "lakebed_timeline": 1,
    "lakebed_files": 1,
    "hudi_vector_search": 8,
    "hudi_vector_search_batch": 9,
    "hudi_text_search": 5,
}
"""The table functions, the rows of `t.changes`, `t.cdc`, `t.timeline`, `t.files` and `t.search`, with their most
arguments."""
_ARRAYS = ("ARRAY", "LIST_VALUE")


def _single_words(keywords: dict[str, Any]) -> dict[str, Any]:
    commands = (TokenType.COMMAND, TokenType.SHOW)
    return {word: kind for word, kind in keywords.items() if " " not in word and kind not in commands}


class _SparkTokenizer(SparkText.Tokenizer):
    """Spark's tokenizer with one token per word: without keywords of several words, and without commands that take the
    rest of the text."""

    COMMANDS: ClassVar[set[TokenType]] = set()
    KEYWORDS: ClassVar[dict[str, TokenType]] = _single_words(Spark.Tokenizer.KEYWORDS)


class _DuckDBTokenizer(DuckDB.Tokenizer):
    """DuckDB's tokenizer with one token per word, and with Spark's quotes of names in addition to its own."""

    COMMANDS: ClassVar[set[TokenType]] = set()
    KEYWORDS: ClassVar[dict[str, TokenType]] = _single_words(DuckDB.Tokenizer.KEYWORDS)
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A table in a statement, at `start` up to `end` of its text.

    `name` is what it is called there: a name, one with its database (`in_database`), or a URI. `function` is the table
    function over it with its `arguments`, `as_of` the text after TIMESTAMP or VERSION AS OF. `alias` is whether the
    statement goes on with a name of its own for it.
    """

    start: int
    end: int
    name: str
    is_uri: bool = False
    as_of: str | None = None
    alias: bool = False
    function: str = ""
    arguments: tuple[str, ...] = ()

    in_database: bool = False

    @property
    def short_name(self) -> str:
        """The name by which a statement refers to the table if no alias follows: the part after the database."""
        return self.name.rpartition(".")[2] if self.in_database else self.name


@dataclass(frozen=True, slots=True)
class Aggregates:
    """The columns of a query that only asks for the number of rows of one table, and for least and greatest values:
    `columns` are those of these values, `condition` the words after WHERE, all in lower case."""

    columns: frozenset[str]
    condition: frozenset[str]


@dataclass(frozen=True)
class Statement:
    """One statement. `is_spark` is whether it is written for Spark, otherwise for DuckDB. `values` are those of `args=`
    by the positions at which their constants begin and end in the text."""

    text: str
    tokens: tuple[Any, ...]
    is_spark: bool
    values: Mapping[tuple[int, int], Any] = field(default_factory=dict[tuple[int, int], Any])

    @once
    def kind(self) -> str:
        """The first word after the common table expressions, in upper case; QUERY for a statement that only reads."""
        depth, first = 0, ""
        for at, token in enumerate(self.tokens):
            word = self.word(at)
            if token.token_type is TokenType.L_PAREN:
                depth += 1
            elif token.token_type is TokenType.R_PAREN:
                depth -= 1
            elif not first and word != "WITH":
                first = word
                if self.word(0) != "WITH":
                    break
            elif depth == 0 and word in ("SELECT", "FROM", "VALUES", "TABLE", "INSERT", "MERGE", "UPDATE", "DELETE"):
                first = word
                break
        return "QUERY" if first in _QUERIES or not first else first

    def word(self, at: int) -> str:
        """The token as an unquoted word in upper case; empty for a quoted token, and after the end."""
        return self.words[at] if 0 <= at < len(self.tokens) else ""

    @once
    def words(self) -> tuple[str, ...]:
        """The tokens as unquoted words in upper case; empty for quoted tokens."""
        return plain_words(self.tokens)

    def value_at(self, at: int) -> tuple[Any, int] | None:
        """The value of `args=` whose position begins at a token, and the token after it; None if there is none."""
        start = self.tokens[at].start if 0 <= at < len(self.tokens) else -1
        for (begin, end), value in self.values.items():
            if begin == start:
                return value, next(
                    (n for n in range(at, len(self.tokens)) if self.tokens[n].start >= end), len(self.tokens)
                )
        return None

    def is_name(self, at: int) -> bool:
        """Whether the token is a name, quoted or not, and not a word of SQL."""
        if not 0 <= at < len(self.tokens):
            return False
        word = self.word(at)
        if not word:
            return self.tokens[at].token_type is TokenType.IDENTIFIER
        return word not in _RESERVED and re.fullmatch(r"[^\W\d]\w*", word) is not None

    def near(self, at: int) -> str:
        """The text around a token, for messages."""
        if at >= len(self.tokens):
            return "the end"
        start = self.tokens[at].start
        return repr(self.text[start : start + _NEAR])

    @once
    def references(self) -> tuple[Reference, ...]:
        """The tables that the statement names, in order: those after FROM and JOIN, table functions, and names that may
        not be tables."""
        return tuple(self._references())

    def _references(self) -> Iterator[Reference]:
        # of each open parenthesis: whether it is a query's, and whether its tables are listed now
        levels: list[list[bool]] = [[True, False]]
        for at, token in enumerate(self.tokens):
            word, kind = self.word(at), token.token_type
            listed = self._is(at - 1, TokenType.COMMA) or self._is(at - 1, TokenType.L_PAREN)
            is_table = levels[-1] == [True, True] and (listed or self._is_table_word(at - 1))
            if kind is TokenType.L_PAREN:
                inner = self.word(at + 1)
                groups_tables = self.word(at - 1) in _TABLES or self._is(at - 1, TokenType.L_PAREN)
                is_query = groups_tables or inner in ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
                levels.append([is_query, is_table and inner not in ("SELECT", "WITH", "VALUES")])
            elif kind is TokenType.R_PAREN:
                if len(levels) > 1:
                    levels.pop()
            elif word in _AFTER_FROM or self._is_table_word(at):
                levels[-1][1] = self._is_table_word(at)
            elif is_table:
                reference = self.reference_at(at)
                if reference is not None:
                    # DESCRIBE and such words take a table without an alias
                    is_alone = not listed and (self.word(at - 1) not in (*_TABLES, "USING") or self.word(0) == "SHOW")
                    yield replace(reference, alias=True) if is_alone else reference

    def _is_table_word(self, at: int) -> bool:
        """Whether a table may follow the token: FROM and JOIN, USING of a MERGE, and words such as DESCRIBE."""
        word, before = self.word(at), self.word(at - 1) if at else ""
        if word in _TABLES:
            # the one of IS [NOT] DISTINCT FROM compares values
            return not (before == "DISTINCT" and self.word(at - 2) in ("IS", "NOT"))
        if word == "USING":
            return self.kind == "MERGE" and self.word(at + 1) != "("
        if at == 1 and word == "TABLE":
            return before in ("DESCRIBE", "DESC")
        if at == 2 and word == "IN":
            return self.words[:2] == ("SHOW", "COLUMNS")
        return at == 0 and word in _TABLES_AT_START

    def _is(self, at: int, kind: TokenType) -> bool:
        return 0 <= at < len(self.tokens) and self.tokens[at].token_type is kind

    def reference_at(self, at: int, *, takes_columns: bool = False) -> Reference | None:
        """The table that is named at a token; None if there is none. With `takes_columns` a name may be followed by
        columns in parentheses."""
        if at >= len(self.tokens):
            return None
        token = self.tokens[at]
        if takes_columns and self.is_name(at) and self._is(at + 1, TokenType.L_PAREN):
            return Reference(token.start, token.end + 1, token.text, "/" in token.text)
        if token.token_type is TokenType.STRING:
            return self._with_rest(token.start, at, token.text, is_uri=True)
        if not self.is_name(at):
            return None
        if self._is(at + 1, TokenType.L_PAREN):
            return self._function(at) if token.text.lower() in FUNCTIONS else None
        if self._is(at + 1, TokenType.DOT):
            is_path = token.text.lower() in ("lakebed", "hudi") and self._is(at + 2, TokenType.IDENTIFIER)
            if not is_path or self._is(at + 3, TokenType.DOT):
                return self._in_database(at, takes_columns=takes_columns)
            return self._with_rest(token.start, at + 2, self.tokens[at + 2].text, is_uri=True)
        is_uri = token.token_type is TokenType.IDENTIFIER and "/" in token.text
        return self._with_rest(token.start, at, token.text, is_uri=is_uri)

    def names_in_databases(self) -> Iterator[str]:
        """All names of the form `database.table` in the statement, also those of columns."""
        for at in range(len(self.tokens)):
            last = self._last_of_name(at)
            if last is not None and last > at:
                yield self._dotted(at, last)

    def _in_database(self, at: int, *, takes_columns: bool) -> Reference | None:
        """The table whose name `database.table` begins at a token; None if it is no such name."""
        last = self._last_of_name(at)
        if last is None:
            return None
        name, start = self._dotted(at, last), self.tokens[at].start
        if self._is(last + 1, TokenType.L_PAREN):
            return Reference(start, self.tokens[last].end + 1, name, in_database=True) if takes_columns else None
        return replace(self._with_rest(start, last, name, is_uri=False), in_database=True)

    def _dotted(self, first: int, last: int) -> str:
        return ".".join(token.text for token in self.tokens[first : last + 1 : 2])

    def _last_of_name(self, at: int) -> int | None:
        """The last token of the name with dots that begins at a token; None if it is no such name."""
        last = at
        if not _NAME_PART.fullmatch(self.tokens[at].text):
            return None
        while self._is(last + 1, TokenType.DOT):
            last += 2
            # words of SQL are names after a dot
            if last >= len(self.tokens) or not _NAME_PART.fullmatch(self.tokens[last].text):
                return None
        return last

    def _with_rest(self, start: int, last: int, name: str, *, is_uri: bool) -> Reference:
        """The reference with the time travel that follows it, and whether an alias follows."""
        end, as_of = last, None
        at = last + 1 + (self.word(last + 1) == "FOR")
        if self.word(at) in _TIME_TRAVEL and (self.word(at + 1), self.word(at + 2)) == ("AS", "OF"):
            end = at + 3
            value = self.value_at(end)
            if value is not None:
                alias = self.word(value[1]) == "AS" or self.is_name(value[1])
                return Reference(start, self.tokens[value[1] - 1].end + 1, name, is_uri, str(value[0]), alias)
            while self.word(end) in ("TIMESTAMP", "DATE") and self._is(end + 1, TokenType.STRING):
                end += 1
            if not (self._is(end, TokenType.STRING) or self._is(end, TokenType.NUMBER)):
                raise InvalidOption(
                    f"what follows AS OF is no constant in the SQL text near {self.near(end)}",
                    hint="write an instant or a time in quotes: t TIMESTAMP AS OF '2026-11-21 10:00:00'",
                )
            as_of = self.tokens[end].text
        alias = self.word(end + 1) == "AS" or self.is_name(end + 1)
        return Reference(start, self.tokens[end].end + 1, name, is_uri, as_of, alias)

    def _function(self, at: int) -> Reference:
        """The reference of a table function of lakebed, whose arguments are constants or names."""
        arguments: list[str] = []
        end = at + 2
        while end < len(self.tokens) and not self._is(end, TokenType.R_PAREN):
            token = self.tokens[end]
            if token.token_type is TokenType.COMMA:
                end += 1
                continue
            array = self._array(end)
            if array is not None:
                arguments.append(array[0])
                end = array[1]
                continue
            is_negative = token.token_type is TokenType.DASH and self._is(end + 1, TokenType.NUMBER)
            is_constant = self.tokens[end].token_type in (TokenType.STRING, TokenType.NUMBER) or (
                self.is_name(end) and self.tokens[end].token_type is not TokenType.NULL
            )
            if not is_negative and not is_constant:
                name = self.tokens[at].text
                raise InvalidOption(
                    f"{name} takes constants, in the SQL text near {self.near(end)}",
                    hint=f"write each value as it is, as in {name}('table') or {name}('table', 'start')",
                )
            end += is_negative
            arguments.append(f"{'-' if is_negative else ''}{self.tokens[end].text}")
            end += 1
        function = self.tokens[at].text.lower()
        max_arguments = FUNCTIONS[function]
        if not arguments or not self._is(end, TokenType.R_PAREN) or len(arguments) > max_arguments:
            raise InvalidOption(
                f"{function} has another number of arguments in the SQL text near {self.near(at)}",
                hint=f"write {function}('table')" + (" or with a start and an end" if max_arguments > 1 else ""),
            )
        alias = self.word(end + 1) == "AS" or self.is_name(end + 1)
        return Reference(
            self.tokens[at].start,
            self.tokens[end].end + 1,
            arguments[0],
            "/" in arguments[0],
            alias=alias,
            function=function,
            arguments=tuple(arguments[1:]),
            in_database=is_name(arguments[0]),
        )

    def _array(self, at: int) -> tuple[str, int] | None:
        """An array of numbers, `array(1, -2.5)` or `[1, -2.5]`, as JSON, and the position after it; None if there is
        none. A cast of a number in it is the number."""
        start = at + 1 if self.word(at) in _ARRAYS else at
        if not (self._is(start, TokenType.L_PAREN) and start > at) and not self._is(start, TokenType.L_BRACKET):
            return None
        numbers: list[str] = []
        depth, end, type_depth = 0, start, 0
        while end < len(self.tokens):
            kind = self.tokens[end].token_type
            if self.word(end) == "AS":  # the type of a cast may have numbers of its own
                type_depth = depth
            if kind is TokenType.NUMBER and not type_depth:
                is_negative = self._is(end - 1, TokenType.DASH)
                numbers.append(f"{'-' if is_negative else ''}{float(self.tokens[end].text.rstrip('fFdDlL'))}")
            depth += (kind in (TokenType.L_PAREN, TokenType.L_BRACKET)) - (
                kind in (TokenType.R_PAREN, TokenType.R_BRACKET)
            )
            type_depth = type_depth if depth >= type_depth else 0
            end += 1
            if not depth:
                return f"[{', '.join(numbers)}]", end
        return None

    @once
    def aggregates(self) -> Aggregates | None:
        """The aggregates that the statement asks for, if it is `SELECT count(*), min(column), max(column) FROM table
        [WHERE ...]` or a part of it, and calls no other function; None for every other statement."""
        if len(self.references) != 1 or self.word(0) != "SELECT":
            return None
        columns: set[str] = set()
        at = 0
        while at == 0 or self._is(at, TokenType.COMMA):
            function, is_closed = (
                self.word(at + 1),
                self._is(at + 2, TokenType.L_PAREN) and self._is(at + 4, TokenType.R_PAREN),
            )
            if not is_closed:
                return None
            if function in ("MIN", "MAX") and self.is_name(at + 3):
                columns.add(self.tokens[at + 3].text.lower())
            elif function != "COUNT" or self.tokens[at + 3].token_type not in (TokenType.STAR, TokenType.NUMBER):
                return None
            at += 5
            at += self.word(at) == "AS"
            at += self.is_name(at)
        return self._aggregates_of(frozenset(columns), at)

    def _aggregates_of(self, columns: frozenset[str], at: int) -> Aggregates | None:
        """The aggregates of a query with these columns, by the rest of the statement from token `at` on; None if it
        asks for more."""
        reference = self.references[0]
        if self.word(at) != "FROM" or self.tokens[at + 1].start != reference.start:
            return None
        while at < len(self.tokens) and self.tokens[at].start < reference.end:
            at += 1
        at += self.word(at) == "AS"
        at += self.is_name(at)
        if at == len(self.tokens):
            return Aggregates(columns, frozenset())
        condition, condition_words = self.tokens[at + 1 :], self.words[at + 1 :]
        if self.word(at) != "WHERE" or _AFTER_FROM.intersection(condition_words):
            return None
        opened = (word for word, after in pairwise(condition_words) if after == "(")
        if not _BEFORE_PARENTHESES.issuperset(opened):
            return None  # a call, perhaps of random()
        return Aggregates(columns, frozenset(token.text.lower() for token in condition))

    def replaced(self, changes: dict[tuple[int, int], str]) -> str:
        """The text with other texts at these positions."""
        text = self.text
        for (start, end), new in sorted(changes.items(), reverse=True):
            text = text[:start] + new + text[end:]
        return text


def parse_statement(text: str, *, is_spark: bool) -> Statement:
    """The only statement of a text, without the semicolon at its end. Raises `InvalidOption` for several statements,
    and for none.

    >>> statement = parse_statement("select * from trips timestamp as of '2026-11-21' where id = 1;", is_spark=False)
    >>> statement.kind, [(one.name, one.as_of) for one in statement.references]
    ('QUERY', [('trips', '2026-11-21')])
    """
    check_characters(text, "SQL text")
    dialect = Spark() if is_spark else DuckDB()
    kind = _SparkTokenizer if is_spark else _DuckDBTokenizer
    try:
        tokens = list(kind(dialect=dialect).tokenize(text))
    except (SqlglotError, ValueError) as error:
        raise InvalidOption(
            f"the SQL text {text[:60]!r} cannot be read: {str(error).splitlines()[0]}", hint="close each quote"
        ) from None
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise InvalidOption("the SQL text has no statement", hint="for example lakebed.sql('select 1')")
    check_numbers((token.text for token in tokens if token.token_type is TokenType.NUMBER), "SQL text")
    end = tokens[-1].end + 1
    statement = Statement(text[:end], tuple(tokens), is_spark)
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            raise InvalidOption(
                f"the SQL text has more than one statement, the second near {statement.near(at + 1)}",
                hint="give each statement to a call of its own, and values as args=",
            )
    return statement

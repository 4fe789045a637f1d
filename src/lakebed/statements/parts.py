"""The parts of a statement between its words: names, lists, constants, and texts as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from sqlglot import TokenType

from lakebed.errors import InvalidOption
from lakebed.filters.coercion import constant_text
from lakebed.filters.sql import constant_of, has_odd_escapes, outside_parentheses
from lakebed.statements.statement import Reference, Statement

# Words after a table's name that are no alias of it.
_NO_ALIAS = ("USING", "SET", "WHERE", "ON", "WHEN", "VALUES", "SELECT")
_PAIRS = {")": "(", "]": "["}
# Words before a text, and before parentheses, that make a constant of a type.
_TYPED = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
_CASTS = ("CAST", "DATE")
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query that is part of a statement, for Spark or DuckDB: its text, and the values of `:name` in it."""

    text: str
    args: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Parts:
    """The parts of a statement by its tokens. `form` is the syntax of such a statement, for messages."""

    statement: Statement
    form: str

    @property
    def stop(self) -> int:
        """The position after the last token."""
        return len(self.statement.tokens)

    def check_parentheses(self) -> None:
        """Raise `InvalidOption` if a parenthesis is not closed, or closes none."""
        opened: list[int] = []
        for at, word in enumerate(self.statement.words):
            if word in _PAIRS.values():
                opened.append(at)
            elif word in _PAIRS:
                if not opened or self.statement.words[opened[-1]] != _PAIRS[word]:
                    raise self.wrong(at, "a parenthesis is closed that is not open")
                opened.pop()
        if opened:
            raise self.wrong(opened[-1], "a closing parenthesis is missing")

    def find(self, word: str, start: int, stop: int | None = None) -> int | None:
        """The next token outside of parentheses that is this word; None if there is none before `stop`."""
        return next(iter(self.all(word, start, self.stop if stop is None else stop)), None)

    def all(self, word: str, start: int, stop: int) -> list[int]:
        """All tokens outside of parentheses that are this word."""
        token_words = self.statement.words
        return [
            at
            for at in outside_parentheses(token_words[:stop], start)
            if token_words[at] == word and token_words[at - 1 : at] != (".",)
        ]

    def listed(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of a list that commas separate: the first token of each, and the position after it."""
        commas = self.all(",", start, stop)
        return zip([start, *(at + 1 for at in commas)], [*commas, stop], strict=True)

    def listed_with_types(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of a list with types, each as the numbers of its first token and of the token after its last. A
        comma inside `map<string, int>` does not separate parts."""
        depth, first = 0, start
        for at in range(start, stop):
            word = self.statement.word(at)
            depth += word.count("<") + word.count("(") - word.count(">") - word.count(")")
            if word == "," and depth == 0:
                yield first, at
                first = at + 1
        yield first, stop

    def closing(self, opening: int) -> int:
        """The position of the parenthesis that closes the one at a token."""
        depth = 0
        for at in range(opening, self.stop):
            depth += (self.statement.word(at) == "(") - (self.statement.word(at) == ")")
            if depth == 0:
                return at
        raise self.wrong(opening, "a closing parenthesis is missing")

    def text(self, start: int, stop: int, label: str) -> str:
        """The text from token `start` up to token `stop`."""
        if start >= stop:
            raise self.wrong(start, f"{label} is missing")
        for at in range(start, stop):
            value = self.statement.value_at(at)
            if value is not None and constant_text(value[0]) is None:  # only queries get values as they are
                raise self.wrong(
                    at, f"args gives a value of type {type(value[0]).__name__}, which has no constant here,"
                )
        return self._span(start, stop)

    def _span(self, start: int, stop: int) -> str:
        tokens = self.statement.tokens
        return self.statement.text[tokens[start].start : tokens[stop - 1].end + 1]

    def query(self, start: int, stop: int, values: Mapping[int, Any] | None = None) -> QueryText:
        """The query from token `start` up to token `stop`, with these values in place of some tokens."""
        if start >= stop:
            raise self.wrong(start, "the query is missing")
        text, first = self._span(start, stop), self.statement.tokens[start].start
        inside = {span: value for span, value in self.statement.values.items() if first <= span[0] < first + len(text)}
        for at, value in (values or {}).items():
            token = self.statement.tokens[at]
            inside[token.start, token.end + 1] = value
        names = {span: f"value_{span[0]}" for span in inside}
        for begin, end in sorted(inside, reverse=True):
            text = f"{text[: begin - first]} :{names[begin, end]} {text[end - first :]}"
        return QueryText(text, {names[span]: value for span, value in inside.items()})

    def wrong(self, at: int, problem: str) -> InvalidOption:
        """The error that something is wrong at a token."""
        kind = self.statement.kind
        return InvalidOption(
            f"{problem} in the {kind} near {self.statement.near(at)}", hint=self.form, context={"statement": kind}
        )

    def expect(self, at: int, *words: str) -> int:
        """The position after these words. Raises `InvalidOption` if they do not come next."""
        for word in words:
            if self.statement.word(at) != word:
                raise self.wrong(at, f"{word} is missing")
            at += 1
        return at

    def path(self, start: int, stop: int, label: str = "column") -> list[str]:
        """The names of a path `a.b`, which fills all tokens from `start` up to `stop`."""
        tokens = self.statement.tokens[start:stop]
        is_path = len(tokens) % 2 == 1
        for n, token in enumerate(tokens):
            word = self.statement.word(start + n)
            is_name = token.token_type is TokenType.IDENTIFIER or re.fullmatch(r"[^\W\d]\w*", word) is not None
            is_path = is_path and (word == "." if n % 2 else is_name)
        if not is_path:
            raise self.wrong(start, f"the name of a {label} is missing")
        return [token.text for token in tokens[::2]]

    def table(self, at: int) -> tuple[Reference, int]:
        """The table that is named at a token, which may be followed by columns in parentheses, and the position after
        it."""
        reference = self.statement.reference_at(at, takes_columns=True)
        if reference is None:
            raise self.wrong(at, "the name of a table is missing")
        tokens = self.statement.tokens
        return reference, next((n for n, token in enumerate(tokens) if token.start >= reference.end), len(tokens))

    def alias(self, at: int, otherwise: str) -> tuple[int, str]:
        """The place after an alias, and the alias, which may be missing."""
        if self.statement.word(at) == "AS":
            at += 1
        elif self.statement.word(at) in _NO_ALIAS or not self.statement.is_name(at):
            return at, otherwise
        if not self.statement.is_name(at):
            raise self.wrong(at, "the alias after AS is missing")
        return at + 1, self.statement.tokens[at].text


@dataclass
class Cursor(Parts):
    """The parts of a statement, read one after the other; `at` is the position of the next token, `zone` the time zone
    for times without one."""

    at: int = 0
    zone: str = "UTC"

    @property
    def word(self) -> str:
        """The next token as an unquoted word in upper case; empty at the end."""
        return self.statement.word(self.at)

    def takes(self, *words: str) -> bool:
        """Whether these words come next; if so `at` moves after them."""
        if any(self.statement.word(self.at + n) != word for n, word in enumerate(words)):
            return False
        self.at += len(words)
        return True

    def takes_one(self, *words: str) -> str:
        """The one of these words that comes next; `at` moves after it. Empty if none does."""
        word = self.word
        return word if word in words and self.takes(word) else ""

    def needs(self, *words: str) -> None:
        """Move `at` after these words. Raises `InvalidOption` if they do not come next."""
        self.at = self.expect(self.at, *words)

    def reference(self) -> Reference:
        """The table that is named next."""
        reference, self.at = self.table(self.at)
        if reference.as_of is not None:
            raise self.wrong(self.at - 1, "a statement that changes a table has no AS OF")
        return reference

    def name(self, label: str = "column") -> str:
        """The name that comes next, including a path such as `address.city`."""
        start = self.at
        self.at += 1
        while self.word == ".":
            self.at += 2
        return ".".join(self.path(start, min(self.at, self.stop), label))

    def literal(self, label: str) -> Any:
        """The constant that comes next: a text, a number, TRUE, FALSE, NULL, or one with its type, such as `DATE '...'`
        and `CAST('...' AS DATE)`."""
        start = self.at
        sign = -1 if self.takes("-") else 1
        argument = self.statement.value_at(self.at)
        if argument is not None:
            value, self.at = argument
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
                return sign * value
            if sign == 1 and (value is None or isinstance(value, str | bool | date)):
                return value
        elif (end := self._typed_end()) is not None:
            text, self.at = self.text(start, end, label), end
            try:
                return constant_of(text, self.zone).value
            except InvalidOption as error:
                raise self.wrong(start, f"{label}: {error.message}") from None
        elif self.at < self.stop:
            token, word = self.statement.tokens[self.at], self.word
            self.at += 1
            if token.token_type is TokenType.NUMBER:
                return sign * (int(token.text) if token.text.isdigit() else float(token.text))
            if token.token_type in (TokenType.STRING, TokenType.RAW_STRING) and sign == 1:
                written = self.statement.text[token.start : token.end + 1]
                if token.token_type is TokenType.STRING and has_odd_escapes(written):
                    raise self.wrong(start, f"{label} has a backslash that is no plain escape: write two for one")
                return token.text
            if word in _CONSTANTS and sign == 1:
                return _CONSTANTS[word]
        raise self.wrong(start, f"{label} is no constant")

    def _typed_end(self) -> int | None:
        """The position after a constant that names its type, if one comes next; otherwise None."""
        word, following = self.word, self.at + 1
        if following >= self.stop:
            return None
        token, after = self.statement.tokens[self.at : self.at + 2]
        if token.token_type is TokenType.NUMBER and after.start == token.start:  # `7L` is 7, `::` and its type
            return following + 2
        is_text = after.token_type is TokenType.STRING
        if word in _TYPED and is_text:
            return following + 1
        if word in _CASTS and self.statement.word(following) == "(":
            return self.closing(following) + 1
        return None

    def columns(self) -> list[str]:
        """The names in the parentheses that come next."""
        start, stop = self.enclosed("the columns")
        return [".".join(self.path(first, last, "column")) for first, last in self.listed(start, stop)]

    def enclosed(self, label: str) -> tuple[int, int]:
        """The first token in the parentheses that come next and the position of the closing one; `at` moves after
        that."""
        if self.word != "(":
            raise self.wrong(self.at, f"{label} in parentheses are missing")
        opening, self.at = self.at, self.closing(self.at) + 1
        if self.at - opening == 2:
            raise self.wrong(opening, f"{label} in parentheses are missing")
        return opening + 1, self.at - 1

    def pairs(self, label: str) -> dict[str, Any]:
        """The constants of `(key = value, ...)`, whose keys are texts or names with dots."""
        start, stop = self.enclosed(label)
        after = self.at
        values: dict[str, Any] = {}
        for first, last in self.listed(start, stop):
            self.at = first
            key = self.key()
            self.takes("=")
            value = self.literal(f"the value of {key!r}")
            if self.at != last:
                raise self.wrong(self.at, f"something follows the value of {key!r}")
            if key in values:
                raise self.wrong(first, f"{key!r} is given twice")
            values[key] = value
        self.at = after
        return values

    def key(self) -> str:
        """The key of a property that comes next: a text, or a name with dots."""
        if self.at < self.stop and self.statement.tokens[self.at].token_type is TokenType.STRING:
            self.at += 1
            return self.statement.tokens[self.at - 1].text
        return self.name("key")

    def end(self) -> None:
        """Raise `InvalidOption` if the statement continues."""
        if self.at < self.stop:
            raise self.wrong(self.at, "the statement goes on where it should end")

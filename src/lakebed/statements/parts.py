"""The parts of a statement between its words: names, lists, constants, and texts as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import TokenType

from lakebed.errors import InvalidOption
from lakebed.filters.sql import outside_parentheses
from lakebed.statements.statement import Reference, Statement

# Words after a table's name that are no alias of it.
_NO_ALIAS = ("USING", "SET", "WHERE", "ON", "WHEN", "VALUES", "SELECT")
_PAIRS = {")": "(", "]": "["}


@dataclass
class Parts:
    """The parts of a statement by its tokens. `form` is how such a statement is written, for messages."""

    statement: Statement
    form: str

    @property
    def stop(self) -> int:
        """The place after the last token."""
        return len(self.statement.tokens)

    def check_parentheses(self) -> None:
        """Raise `InvalidOption` where a parenthesis is not closed, or closes none."""
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
        """The next token outside of parentheses that is this word; None where there is none before `stop`."""
        return next(iter(self.all(word, start, self.stop if stop is None else stop)), None)

    def all(self, word: str, start: int, stop: int) -> list[int]:
        """All tokens outside of parentheses that are this word."""
        words = self.statement.words
        return [
            at for at in outside_parentheses(words[:stop], start) if words[at] == word and words[at - 1 : at] != (".",)
        ]

    def listed(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of a list that commas separate: the first token of each, and the place after it."""
        commas = self.all(",", start, stop)
        return zip([start, *(at + 1 for at in commas)], [*commas, stop], strict=True)

    def closing(self, opening: int) -> int:
        """The parenthesis that closes the one at a token."""
        depth = 0
        for at in range(opening, self.stop):
            depth += (self.statement.word(at) == "(") - (self.statement.word(at) == ")")
            if depth == 0:
                return at
        raise self.wrong(opening, "a closing parenthesis is missing")

    def text(self, start: int, stop: int, what: str) -> str:
        """The text from a token up to another one."""
        tokens = self.statement.tokens
        if start >= stop:
            raise self.wrong(start, f"{what} is missing")
        return self.statement.text[tokens[start].start : tokens[stop - 1].end + 1]

    def wrong(self, at: int, what: str) -> InvalidOption:
        """The error that something is wrong at a token."""
        kind = self.statement.kind
        return InvalidOption(
            f"{what} in the {kind} near {self.statement.near(at)}", hint=self.form, context={"statement": kind}
        )

    def expect(self, at: int, *words: str) -> int:
        """The place after these words. Raises `InvalidOption` where they are not there."""
        for word in words:
            if self.statement.word(at) != word:
                raise self.wrong(at, f"{word} is missing")
            at += 1
        return at

    def path(self, start: int, stop: int, what: str = "column") -> list[str]:
        """The names of a path `a.b` that is all there is from a token up to another one."""
        tokens = self.statement.tokens[start:stop]
        is_path = len(tokens) % 2 == 1 and all(
            self.statement.word(start + n) == "." if n % 2 else self._is_word(start + n) for n in range(len(tokens))
        )
        if not is_path:
            raise self.wrong(start, f"the name of a {what} is missing")
        return [token.text for token in tokens[::2]]

    def _is_word(self, at: int) -> bool:
        token = self.statement.tokens[at]
        return (
            token.token_type is TokenType.IDENTIFIER or re.fullmatch(r"[^\W\d]\w*", self.statement.word(at)) is not None
        )

    def table(self, at: int) -> tuple[Reference, int]:
        """The table that is named at a token, which may be followed by columns in parentheses, and the place after
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

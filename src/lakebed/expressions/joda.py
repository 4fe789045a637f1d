"""Joda-Time patterns, the notation of Hudi's timestamp key generator, taken apart into tokens.

Supported letters: `C` century, `y` `Y` year, `x` week-based year, `M` month (3 letters and more: text), `d` day, `D`
day of the year, `w` week, `e` `E` day of the week (number, text), `a` half of the day, `K` `h` `H` `k` hours, `m`
minute, `s` second, `S` fraction, `Z` `ZZ` offset, `ZZZ` zone id; `'quoted text'`, `''` for a quote. `z` (names of
zones) is refused.

Spark SQL has the common ones alone; a pattern with others is printed and read by Arrow on every engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from lakebed.errors import UnsupportedFeature

LETTERS = frozenset("CyYxMdDweEaKhHkmsSZ")
# What patterns of paths are made of; of texts of digits alone, so that SQL for it stays short.
_COMMON = frozenset("yMdHmsSZ")
_NUMBERS = frozenset("CxyYdhHmsSeDwkK")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Token:
    """A run of one pattern letter, or literal text (then `letter` is empty)."""

    letter: str
    count: int = 0
    text: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the token stands for digits only."""
        return self.letter in _NUMBERS or (self.letter == "M" and self.count <= 2)

    @property
    def has_sql(self) -> bool:
        """Whether Spark SQL has it: rare letters, names of months and years of two digits are left to Arrow."""
        if self.letter == "M":
            return self.count <= 2
        return not self.letter or (self.letter in _COMMON and not (self.letter == "y" and self.count == 2))


def tokens(pattern: str) -> tuple[Token, ...]:
    """The pattern's tokens; UnsupportedFeature naming a letter that lakebed does not have.

    >>> [t.text or t.letter * t.count for t in tokens("yyyy-MM'T'HH")]
    ['yyyy', '-', 'MM', 'T', 'HH']
    """
    found: list[Token] = []
    at = 0
    while at < len(pattern):
        if pattern[at].isascii() and pattern[at].isalpha():
            run = len(next(iter([list(g) for _, g in groupby(pattern[at:])])))
            if pattern[at] not in LETTERS:
                raise _refuse(pattern, pattern[at])
            found.append(Token(pattern[at], run))
            at += run
        else:
            text, at = _literal(pattern, at)
            if text:
                found.append(Token("", text=text))
    return tuple(found)


def _literal(pattern: str, at: int) -> tuple[str, int]:
    """Literal text from `at` on (quotes resolved), and where it ends."""
    text, quoted = "", False
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            if pattern[at + 1 : at + 2] == "'":
                text += "'"
                at += 1
            else:
                quoted = not quoted
        elif not quoted and char.isascii() and char.isalpha():
            break
        else:
            text += char
        at += 1
    return text, at


def _refuse(pattern: str, letter: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"the date pattern {pattern!r} uses the letter {letter!r}",
        hint=f"Supported letters: {' '.join(sorted(LETTERS))}",
        context={"pattern": pattern, "letter": letter},
    )

"""Joda-Time patterns, the notation of Hudi's timestamp key generator: taken apart into tokens, and printed by Arrow
for every letter, by Spark SQL for common ones.

Supported letters: `C` century, `y` `Y` year, `x` week-based year, `M` month (3 letters and more: text), `d` day, `D`
day of the year, `w` week, `e` `E` day of the week (number, text), `a` half of the day, `K` `h` `H` `k` hours, `m`
minute, `s` second, `S` fraction, `Z` `ZZ` offset, `ZZZ` zone id; `'quoted text'`, `''` for a quote. `z` (names of
zones) is refused. A pattern with letters that Spark SQL lacks is printed and read by Arrow on every engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import UnsupportedFeature
from lakebed.expressions.base import escape, sql_literal
from lakebed.expressions.zones import DAY_MILLIS, Int64s, civil_of_days, day_of_week, days_of_civil, iso_week
from lakebed.sharing import once

LETTERS = frozenset("CyYxMdDweEaKhHkmsSZ")
# What patterns of paths are made of; of texts of digits alone, so that SQL for it stays short.
_COMMON = frozenset("yMdHmsSZ")
_NUMBER_LETTERS = frozenset("CxyYdhHmsSeDwkK")
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
        """Whether the token matches digits only."""
        return self.letter in _NUMBER_LETTERS or (self.letter == "M" and self.count <= 2)

    @property
    def has_sql(self) -> bool:
        """Whether Spark SQL can print the token: rare letters, names of months and years of two digits are left to
        Arrow."""
        if self.letter == "M":
            return self.count <= 2
        return not self.letter or (self.letter in _COMMON and not (self.letter == "y" and self.count == 2))


def tokens(pattern: str) -> tuple[Token, ...]:
    """The pattern's tokens; UnsupportedFeature naming a letter that lakebed does not have.

    >>> [t.text or t.letter * t.count for t in tokens("yyyy-MM'T'HH")]
    ['yyyy', '-', 'MM', 'T', 'HH']
    """
    parts: list[Token] = []
    at = 0
    while at < len(pattern):
        if pattern[at].isascii() and pattern[at].isalpha():
            run = len(next(iter([list(g) for _, g in groupby(pattern[at:])])))
            if pattern[at] not in LETTERS:
                raise _refuse(pattern, pattern[at])
            parts.append(Token(pattern[at], run))
            at += run
        else:
            text, at = _literal(pattern, at)
            if text:
                parts.append(Token("", text=text))
    return tuple(parts)


def _literal(pattern: str, at: int) -> tuple[str, int]:
    """The literal text from `at` on (quotes resolved), and the position after it."""
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


# A placeholder for the wall-clock milliseconds until they are known.
_LOCAL = "lb_local"
_DAY = f"date_from_unix_date(CAST((lb_local - pmod(lb_local, {DAY_MILLIS}L)) DIV {DAY_MILLIS}L AS INT))"
_OF_DAY = f"pmod(lb_local, {DAY_MILLIS}L)"

_SQL_NUMBERS: dict[str, str] = {
    "y": f"year({_DAY})",
    "M": f"month({_DAY})",
    "d": f"day({_DAY})",
    "H": f"({_OF_DAY} DIV 3600000L)",
    "m": f"pmod({_OF_DAY} DIV 60000L, 60L)",
    "s": f"pmod({_OF_DAY} DIV 1000L, 60L)",
}

_NUMBERS: dict[str, Callable[[Fields], Int64s]] = {
    "y": lambda f: f.year,
    "Y": lambda f: f.year_of_era,
    "C": lambda f: np.abs(f.year) // 100,
    "x": lambda f: f.week[0],
    "w": lambda f: f.week[1],
    "M": lambda f: f.civil[1],
    "d": lambda f: f.civil[2],
    "D": lambda f: f.days - days_of_civil(f.year, np.ones_like(f.year), np.ones_like(f.year)) + 1,
    "e": lambda f: day_of_week(f.days),
    "H": lambda f: f.hour,
    "k": lambda f: (f.hour - 1) % 24 + 1,
    "K": lambda f: f.hour % 12,
    "h": lambda f: (f.hour - 1) % 12 + 1,
    "m": lambda f: f.of_day // 60_000 % 60,
    "s": lambda f: f.of_day // 1000 % 60,
}


class Fields:
    """The calendar fields of wall-clock milliseconds, each computed once."""

    def __init__(self, local: Int64s) -> None:
        self.days = local // DAY_MILLIS
        self.of_day = local - self.days * DAY_MILLIS
        self.hour = self.of_day // 3_600_000

    @once
    def civil(self) -> tuple[Int64s, Int64s, Int64s]:
        return civil_of_days(self.days)

    @once
    def week(self) -> tuple[Int64s, Int64s]:
        return iso_week(self.days)

    @property
    def year(self) -> Int64s:
        return self.civil[0]

    @property
    def year_of_era(self) -> Int64s:
        return np.where(self.year > 0, self.year, 1 - self.year)


@dataclass(frozen=True, slots=True)
class PrintPattern:
    """A Joda pattern to print by. `sql` and `arrow` take wall-clock milliseconds and, for `Z`, the offset from UTC."""

    pattern: str
    tokens: tuple[Token, ...]
    url_encode: bool = False

    @property
    def slashes(self) -> int:
        """The number of `/` in every printed text."""
        return 0 if self.url_encode else sum(token.text.count("/") for token in self.tokens)

    @property
    def has_sql(self) -> bool:
        """Whether `sql` can be called: every token is a common one."""
        return all(token.has_sql for token in self.tokens)

    def sql(self, local: str, offset: str = "0L", zone_id: str | None = None) -> str:
        """The Spark SQL of the printed text, which repeats `local` (bigint): generated code computes it once per row.
        `zone_id` is the text for `ZZZ`, None for the offset."""
        parts = [self._part_sql(token, local, offset, zone_id) for token in self.tokens]
        # null stays null even where the pattern holds no field
        return (
            f"concat({', '.join(parts)})"
            if any(t.letter for t in self.tokens)
            else (f"CASE WHEN {local} IS NOT NULL THEN concat({', '.join(parts) or sql_literal('')}) END")
        )

    def _part_sql(self, token: Token, local: str, offset: str, zone_id: str | None) -> str:
        if not token.letter:
            return sql_literal(self._shown(token.text))
        if token.letter == "Z" and token.count >= 3 and zone_id is not None:
            return sql_literal(self._shown(zone_id))
        return _token_sql(token, offset, self._shown(":")).replace(_LOCAL, f"({local})")

    def _part_arrow(self, token: Token, fields: Fields, offsets: Int64s | None, zone_id: str | None) -> pa.Array | str:
        if not token.letter:
            return self._shown(token.text)
        if token.letter == "Z" and token.count >= 3 and zone_id is not None:
            return self._shown(zone_id)
        return _token_arrow(token, fields, offsets, self._shown(":"))

    def _shown(self, text: str) -> str:
        return escape(text) if self.url_encode else text

    def arrow(self, local: pa.Array, offsets: pa.Array | None = None, zone_id: str | None = None) -> pa.Array:
        """The printed texts; null stays null."""
        fields = Fields(np.asarray(pc.fill_null(local, 0)))
        moved = None if offsets is None else np.asarray(pc.fill_null(offsets, 0))
        parts = [self._part_arrow(token, fields, moved, zone_id) for token in self.tokens]
        parts.append(pc.if_else(pc.is_valid(local), "", pa.scalar(None, pa.string())))
        return pc.binary_join_element_wise(*parts, "")


@lru_cache
def print_pattern(pattern: str, url_encode: bool = False) -> PrintPattern:
    """The parsed pattern for printing, escaped for a path if `url_encode`. Raises `UnsupportedFeature` for letters that
    lakebed does not support."""
    return PrintPattern(pattern, tokens(pattern), url_encode)


def _token_sql(token: Token, offset: str, colon: str) -> str:
    match token.letter:
        case "S":
            return _fraction_sql(token.count)
        case "Z":
            return _offset_sql(offset, token.count, colon)
        case letter:
            return _padded_sql(_SQL_NUMBERS[letter], token.count, is_year=letter == "y")


def _padded_sql(number: str, width: int, *, is_year: bool) -> str:
    """The SQL of a number with leading zeros; only years may be negative, or longer than the pattern."""
    if width <= 1:
        return f"CAST({number} AS STRING)"
    if not is_year:
        # lpad cuts what is too long, which two digits never are
        return f"lpad(CAST({number} AS STRING), {width}, '0')"
    digits = f"CAST(abs({number}) AS STRING)"
    padded = f"lpad({digits}, greatest({width}, length({digits})), '0')"
    return f"concat(CASE WHEN {number} < 0 THEN '-' ELSE '' END, {padded})"


def _fraction_sql(count: int) -> str:
    millis = "lpad(CAST(pmod(lb_local, 1000L) AS STRING), 3, '0')"
    return f"rpad({millis}, {count}, '0')"


def _offset_sql(offset: str, count: int, colon: str) -> str:
    minutes = f"(abs({offset}) DIV 60000L)"
    colon = sql_literal("" if count == 1 else colon)
    text = (
        f"concat(CASE WHEN {offset} < 0 THEN '-' ELSE '+' END, lpad(CAST({minutes} DIV 60L AS STRING), 2, '0'), "
        f"{colon}, lpad(CAST({minutes} % 60L AS STRING), 2, '0'))"
    )
    return text if count < 3 else f"CASE WHEN {offset} = 0 THEN 'UTC' ELSE {text} END"


def _token_arrow(token: Token, fields: Fields, offsets: Int64s | None, colon: str) -> pa.Array:
    match token.letter:
        case "S":
            millis = pc.utf8_lpad(pa.array(fields.of_day % 1000).cast(pa.string()), 3, "0")
            return pc.utf8_slice_codeunits(pc.utf8_rpad(millis, token.count, "0"), 0, token.count)
        case "a":
            return pc.if_else(pa.array(fields.hour < 12), "AM", "PM")
        case "E":
            return _names_arrow(WEEKDAYS, day_of_week(fields.days), short=token.count < 4)
        case "M" if token.count >= 3:
            return _names_arrow(MONTHS, fields.civil[1], short=token.count < 4)
        case "Z":
            return _offset_arrow(np.zeros_like(fields.days) if offsets is None else offsets, token.count, colon)
        case "y" | "Y" | "x" if token.count == 2:
            return _padded_arrow(np.abs(_NUMBERS[token.letter](fields)) % 100, 2)
        case letter:
            return _padded_arrow(_NUMBERS[letter](fields), token.count)


def _padded_arrow(numbers: Int64s, width: int) -> pa.Array:
    text = pc.utf8_lpad(pa.array(np.abs(numbers)).cast(pa.string()), max(width, 1), "0")
    if not (numbers < 0).any():
        return text
    return pc.binary_join_element_wise(pc.if_else(pa.array(numbers < 0), "-", ""), text, "")


def _names_arrow(names: tuple[str, ...], numbers: Int64s, *, short: bool) -> pa.Array:
    return pa.array([name[:3] if short else name for name in names]).take(pa.array(numbers - 1))


def _offset_arrow(offsets: Int64s, count: int, colon: str) -> pa.Array:
    minutes = np.abs(offsets) // 60_000
    sign = pc.if_else(pa.array(offsets < 0), "-", "+")
    parts = (_padded_arrow(minutes // 60, 2), "" if count == 1 else colon, _padded_arrow(minutes % 60, 2))
    text = pc.binary_join_element_wise(sign, *parts, "")
    return text if count < 3 else pc.if_else(pa.array(offsets == 0), "UTC", text)

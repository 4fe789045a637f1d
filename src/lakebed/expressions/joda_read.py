"""Reading wall-clock time by a Joda pattern: a regular expression, then arithmetic on its groups; Arrow for every
letter, Spark SQL for patterns of common ones.

What Joda accepts is accepted: fewer digits than letters, names in full or short, offsets with or without a colon.
Text that does not match, or names no real date, reads as null. Refused: patterns with no year, and `C x w z ZZZ`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import UnsupportedFeature
from lakebed.expressions.base import bind_sql, sql_literal
from lakebed.expressions.joda import MONTHS, WEEKDAYS, Token, tokens
from lakebed.expressions.zones import DAY_MILLIS, Int64s, day_of_week, days_of_civil
from lakebed.schema.plain_arrow import as_numpy

_READABLE = frozenset("yYMdDeEaKhHkmsSZ")
_ONCE = ("yY", "M", "d", "D", "eE", "a", "KhHk", "m", "s", "S", "Z")
_OFFSET = "[Zz]|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?"
_MAX_YEAR = 3_000_000
_PARTS = "lb_parts"
_END = "\\z"
_NO_OFFSET = "CAST(NULL AS BIGINT)"
_USUAL_WIDTHS = {"y": 4, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 3}


@dataclass(frozen=True, slots=True)
class ReadPattern:
    """A Joda pattern for reading. `sql` and `arrow` give wall-clock milliseconds; `offset_*` the offset in the text, if
    it has one."""

    pattern: str
    tokens: tuple[Token, ...]
    pivot_year: int

    @property
    def has_sql(self) -> bool:
        """Whether `branches_sql` can be called: every token is a common one."""
        return all(token.has_sql for token in self.tokens)

    def regex(self, *, named: bool = False) -> str:
        """The regular expression, with one group for each token that is not a literal (with `named` in RE2's syntax of
        named groups)."""
        text, group = "^", 0
        for number, token in enumerate(self.tokens):
            following = self.tokens[number + 1] if number + 1 < len(self.tokens) else None
            if token.letter:
                text += (f"(?P<g{group}>" if named else "(") + _token_regex(token, following) + ")"
                group += 1
            else:
                text += f"(?i:{_escape(token.text)})"
        return text + _END

    def branches_sql(self, text: str, then: Callable[[str, str], str]) -> list[str]:
        """The `WHEN ... THEN` parts of a CASE: `then(local, offset)` with the wall-clock milliseconds and the offset
        (null without one) of a text that matches."""
        branches = [f"WHEN {text} RLIKE {sql_literal(self.regex())} THEN {self._matched_sql(text, then)}"]
        positions = self._fixed_positions()
        if positions:
            shape = "".join(f"[0-9]{{{t.count}}}" if t.letter else _escape(t.text) for t in self.tokens)
            at = {letter: f"substr({text}, {start}, {width})" for letter, (start, width) in positions.items()}
            local = _SqlFields(at, digits_only=True).local_millis()
            fixed = f"WHEN {text} RLIKE {sql_literal(f'^{shape}{_END}')} THEN {then(local, _NO_OFFSET)}"
            # the usual text, cut by position; what else the pattern reads comes second
            branches.insert(0, fixed)
        return branches

    def _fixed_positions(self) -> dict[str, tuple[int, int]]:
        """The start (from 1) and width of each number, if the pattern has only numbers of usual widths."""
        positions: dict[str, tuple[int, int]] = {}
        start = 1
        for token in self.tokens:
            if token.letter and token.count != _USUAL_WIDTHS.get(token.letter):
                return {}
            if token.letter:
                positions[token.letter] = (start, token.count)
            start += token.count or len(token.text)
        return positions

    def _matched_sql(self, text: str, then: Callable[[str, str], str]) -> str:
        pattern = sql_literal(self.regex())
        groups = [f"regexp_extract({text}, {pattern}, {n})" for n in range(1, len(self._groups()) + 1)]
        return bind_sql(_PARTS, f"array({', '.join(groups)})", self._computed_sql(then))

    def arrow(self, texts: pa.Array) -> tuple[npt.NDArray[np.bool_], pa.Array, pa.Array]:
        """Flags of the texts that match, their wall-clock milliseconds (null if not a date), and their offsets (null
        without one)."""
        captures = pc.extract_regex(texts, self.regex(named=True))
        matched = as_numpy(captures.is_valid())
        groups = {letter: pc.struct_field(captures, [n]) for n, (letter, _) in enumerate(self._groups())}
        fields = _ArrowFields(groups, self._counts(), self.pivot_year, len(texts))
        local, valid = fields.local_millis()
        offset = _offset_arrow(groups["Z"]) if "Z" in groups else pa.nulls(len(texts), pa.int64())
        return matched, pa.array(local, mask=~(valid & matched)), offset

    def _groups(self) -> list[tuple[str, int]]:
        return [(token.letter, token.count) for token in self.tokens if token.letter]

    def _counts(self) -> dict[str, int]:
        return dict(self._groups())

    def _computed_sql(self, then: Callable[[str, str], str]) -> str:
        at = {letter: f"{_PARTS}[{n}]" for n, (letter, _) in enumerate(self._groups())}
        fields = _SqlFields(at)
        offset = _offset_sql(at["Z"]) if "Z" in at else _NO_OFFSET
        return then(fields.local_millis(), offset)


@lru_cache
def read_pattern(pattern: str, year_now: int | None = None) -> ReadPattern:
    """The parsed pattern for reading. Raises `UnsupportedFeature` for patterns that lakebed cannot read.

    Two-digit years are from 80 years before to 19 years after the present one, as in Joda.
    """
    pattern_tokens = tokens(pattern)
    letters = "".join(token.letter for token in pattern_tokens)
    reason = ""
    for token in pattern_tokens:
        if token.letter and (token.letter not in _READABLE or (token.letter == "Z" and token.count > 2)):
            reason = f"{token.letter * token.count!r} cannot be read"
    for group in _ONCE:
        if sum(letter in group for letter in letters) > 1:
            reason = f"it names the same part of a time twice ({'/'.join(group)})"
    if not reason and not set(letters) & {"y", "Y"}:
        reason = "it has no year"
    if not reason and "D" in letters and set(letters) & {"M", "d"}:
        reason = "it has both the day of the year and a month or day"
    if not reason and "a" in letters and not set(letters) & {"h", "K"}:
        reason = "it has `a` without `h` or `K`"
    if reason:
        raise UnsupportedFeature(
            f"the input date pattern {pattern!r} is not supported: {reason}",
            hint="Use a pattern of year, month, day, hour, minute, second, fraction and offset, each once",
            context={"pattern": pattern},
        )
    return ReadPattern(pattern, pattern_tokens, (year_now or datetime.now(UTC).year) - 30)


def _escape(text: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$-])", r"\\\1", text)


def _token_regex(token: Token, following: Token | None) -> str:
    joined = following is not None and following.is_number
    match token.letter:
        case "M" if token.count > 2:
            return _names_regex(MONTHS)
        case "E":
            return _names_regex(WEEKDAYS)
        case "a":
            return "AM|PM|am|pm"
        case "Z":
            return _OFFSET
        case "y" | "Y" if token.count == 2:
            return "[0-9]{2}" if joined else "[+-]?[0-9]{1,9}"
        case "y" | "Y":
            return f"[+-]?[0-9]{{{token.count}}}" if joined else "[+-]?[0-9]{1,9}"
        case letter:
            max_digits = max(token.count, {"D": 3, "e": 1, "S": 1}.get(letter, 2))
            # a number takes all digits it may before the next one gets any
            return f"[0-9]{{{max_digits}}}" if joined else f"[0-9]{{1,{max_digits}}}"


def _names_regex(names: tuple[str, ...]) -> str:
    forms = [form for name in names for form in (name, name[:3])]
    return "|".join(dict.fromkeys(cased for form in forms for cased in (form, form.lower(), form.upper())))


@dataclass(frozen=True, slots=True)
class _SqlFields:
    at: dict[str, str]
    digits_only: bool = False

    def number(self, letter: str, default: int) -> str:
        if letter not in self.at:
            return f"{default}L"
        if self.digits_only:
            return f"CAST({self.at[letter]} AS BIGINT)"
        return f"CAST(nullif(replace({self.at[letter]}, '+', ''), '') AS BIGINT)"

    def local_millis(self) -> str:
        year, month, day = self.number("y", 0), self.number("M", 1), self.number("d", 1)
        checks = [f"{year} BETWEEN -{_MAX_YEAR}L AND {_MAX_YEAR}L", f"{month} BETWEEN 1L AND 12L"]
        checks += [f"{self.number(a, b)} BETWEEN {b} AND {c}" for a, b, c in _ranges(self.at)]
        first = f"make_date(CAST({year} AS INT), CAST({month} AS INT), 1)"
        total = f"(unix_date({first}) + {day} - 1L) * {DAY_MILLIS}L + {self._of_day()}"
        inner = f"CASE WHEN {day} BETWEEN 1L AND day(last_day({first})) THEN {total} END"
        return f"CASE WHEN {' AND '.join(checks)} THEN {inner} END"

    def _of_day(self) -> str:
        fraction = "0L"
        if "S" in self.at:
            fraction = f"CAST(nullif(rpad({self.at['S']}, 3, '0'), '000') AS BIGINT)"
            fraction = f"coalesce({fraction}, 0L)"
        hour, minute, second = (self.number(letter, 0) for letter in "Hms")
        return f"{hour} * 3600000L + {minute} * 60000L + {second} * 1000L + {fraction}"


@dataclass(frozen=True, slots=True)
class _ArrowFields:
    groups: dict[str, pa.Array]
    counts: dict[str, int]
    pivot_year: int
    rows: int

    def number(self, letters: str, default: int) -> Int64s:
        for letter in letters:
            if letter in self.groups:
                digits = pc.replace_substring(pc.fill_null(self.groups[letter], "0"), "+", "")
                return np.asarray(digits.cast(pa.int64()))
        return np.full(self.rows, default, np.int64)

    def local_millis(self) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        year, month, day = self._year(), self._month(), self.number("d", 1)
        valid = (np.abs(year) <= _MAX_YEAR) & (month >= 1) & (month <= 12) & (day >= 1)
        for letter, low, high in _ranges(self.groups):
            number = self.number(letter, low)
            valid &= (number >= low) & (number <= high)
        year, month = np.where(valid, year, 1970), np.where(valid, month, 1)
        ones = np.ones_like(year)
        first = days_of_civil(year, month, ones)
        following = days_of_civil(year + month // 12, month % 12 + 1, ones)
        if "D" in self.groups:
            day, following = self.number("D", 1), days_of_civil(year + 1, ones, ones)
            valid &= day >= 1
        days = first + day - 1
        valid &= days < following
        if "e" in self.groups or "E" in self.groups:
            weekday = self.number("e", 1) if "e" in self.groups else _name_number(self.groups["E"], WEEKDAYS)
            days = days - day_of_week(days) + weekday
        return days * DAY_MILLIS + self._of_day(), valid

    def _year(self) -> Int64s:
        letter = "y" if "y" in self.groups else "Y"
        year = self.number(letter, 0)
        if self.counts[letter] != 2:
            return year
        low = self.pivot_year - 50
        short = pc.fill_null(pc.match_substring_regex(self.groups[letter], "^[0-9]{2}$"), False)
        return np.where(np.asarray(short), low + (year - low) % 100, year)

    def _month(self) -> Int64s:
        return _name_number(self.groups["M"], MONTHS) if self.counts.get("M", 0) > 2 else self.number("M", 1)

    def _of_day(self) -> Int64s:
        hour = self.number("HkKh", 0)
        if "k" in self.groups or "h" in self.groups:
            hour = hour % (24 if "k" in self.groups else 12)
        if "a" in self.groups:
            is_pm = pc.fill_null(pc.equal(pc.utf8_upper(self.groups["a"]), "PM"), False)
            hour = hour + 12 * np.asarray(is_pm)
        fraction = np.zeros(self.rows, np.int64)
        if "S" in self.groups:
            digits = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.fill_null(self.groups["S"], "0"), 3, "0"), 0, 3)
            fraction = np.asarray(digits.cast(pa.int64()))
        return hour * 3_600_000 + self.number("m", 0) * 60_000 + self.number("s", 0) * 1000 + fraction


def _ranges(present: object) -> list[tuple[str, int, int]]:
    """The allowed values of the parts of a day that the pattern has."""
    ranges = [("H", 0, 23), ("k", 1, 24), ("K", 0, 11), ("h", 1, 12), ("m", 0, 59), ("s", 0, 59), ("e", 1, 7)]
    return [entry for entry in ranges if entry[0] in present]  # pyright: ignore[reportOperatorIssue]


def _name_number(texts: pa.Array, names: tuple[str, ...]) -> Int64s:
    shorts = pa.array([name[:3].upper() for name in names])
    indices = pc.index_in(pc.utf8_upper(pc.utf8_slice_codeunits(texts, 0, 3)), shorts)
    return np.asarray(pc.fill_null(indices, -1)).astype(np.int64) + 1


def _offset_sql(text: str) -> str:
    digits = f"rpad(regexp_replace({text}, '[^0-9]', ''), 6, '0')"
    pairs = [f"CAST(substr({digits}, {at}, 2) AS BIGINT)" for at in (1, 3, 5)]
    millis = f"(({pairs[0]} * 60L + {pairs[1]}) * 60L + {pairs[2]}) * 1000L"
    checked = f"CASE WHEN {pairs[0]} < 24L AND {pairs[1]} < 60L AND {pairs[2]} < 60L THEN {millis} END"
    return f"CASE WHEN upper({text}) = 'Z' THEN 0L WHEN {text} LIKE '-%' THEN -1L * {checked} ELSE {checked} END"


def _offset_arrow(texts: pa.Array) -> pa.Array:
    digits = pc.utf8_rpad(pc.replace_substring_regex(texts, "[^0-9]", ""), 6, "0")
    hour, minute, second = (pc.utf8_slice_codeunits(digits, at, at + 2).cast(pa.int64()) for at in (0, 2, 4))
    millis = pc.multiply(pc.add(pc.multiply(pc.add(pc.multiply(hour, 60), minute), 60), second), 1000)
    real = pc.and_(pc.less(hour, 24), pc.and_(pc.less(minute, 60), pc.less(second, 60)))
    millis = pc.if_else(real, millis, pa.scalar(None, pa.int64()))
    return pc.if_else(pc.starts_with(texts, "-"), pc.negate(millis), millis)

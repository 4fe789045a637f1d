"""Printing dates and times by a pattern of Spark's `date_format`, for arrays and for expressions of a filter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import UnsupportedFeature

MICROS = pa.timestamp("us")
# What `from_unixtime` prints without a pattern of its own.
DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
_COUNTS: dict[str, tuple[int, ...]] = {
    "y": (1, 2, 4),
    **dict.fromkeys("MdHhms", (1, 2)),
    "S": (1, 2, 3, 4, 5, 6),
    "a": (1,),
}
_LAST_YEAR_WITHOUT_SIGN = 9999
_RESERVED = "[]{}#"


@dataclass(frozen=True, slots=True)
class Part:
    """A run of one pattern letter, or (without letter) a literal text."""

    letter: str
    count: int = 0
    text: str = ""


@lru_cache
def pattern_parts(pattern: str) -> tuple[Part, ...]:
    """The parts of a pattern. Raises `UnsupportedFeature` for letters and counts that lakebed cannot print.

    >>> [part.letter * part.count or part.text for part in pattern_parts("yyyy-MM'T'HH")]
    ['yyyy', '-', 'MM', 'T', 'HH']
    """
    parts: list[Part] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            text, at = _quoted(pattern, at)
            parts.append(Part("", text=text))
        elif char.isascii() and char.isalpha():
            end = at
            while end < len(pattern) and pattern[end] == char:
                end += 1
            if end - at not in _COUNTS.get(char, ()):
                raise _unknown(pattern, pattern[at:end])
            parts.append(Part(char, end - at))
            at = end
        elif char in _RESERVED:
            raise _unknown(pattern, char)
        else:
            parts.append(Part("", text=char))
            at += 1
    if not any(part.letter for part in parts):
        raise _unknown(pattern, pattern)
    return tuple(parts)


def printed(local: Any, pattern: str, more_years: Any = None) -> Any:
    """The texts of wall-clock times (timestamps without zone, or dates), null for null; array or expression as `local`.
    `more_years` are added to the year of each.

    >>> printed(pa.array([0, None], pa.timestamp("us")), "yyyy-MM-dd").to_pylist()
    ['1970-01-01', None]
    """
    times = local.cast(MICROS)
    pieces = [piece for part in pattern_parts(pattern) for piece in _pieces(part, times, more_years)]
    as_scalar = pc.scalar if isinstance(local, pc.Expression) else pa.scalar
    texts = [as_scalar(piece) if isinstance(piece, str) else piece for piece in [*pieces, ""]]
    return pc.binary_join_element_wise(*texts, null_handling="emit_null")


def _quoted(pattern: str, start: int) -> tuple[str, int]:
    """The text in the quotes that begin at `start` (two quotes are one), and the position after it. Raises
    `UnsupportedFeature` for quotes that do not end."""
    if pattern[start : start + 2] == "''":
        return "'", start + 2
    text, at = "", start + 1
    while at < len(pattern):
        if pattern[at] != "'":
            text, at = text + pattern[at], at + 1
        elif pattern[at : at + 2] == "''":
            text, at = text + "'", at + 2
        else:
            return text, at + 1
    raise _unknown(pattern, pattern[start:])


def _pieces(part: Part, times: Any, more_years: Any) -> list[Any]:
    match part.letter:
        case "":
            return [part.text]
        case "y":
            years = pc.year(times)
            return _year(years if more_years is None else pc.add(years, more_years), part.count)
        case "M":
            return [_padded(pc.month(times), part.count)]
        case "d":
            return [_padded(pc.day(times), part.count)]
        case "H":
            return [_padded(pc.hour(times), part.count)]
        case "h":
            of_half = _remainder(pc.add(pc.hour(times), 11), 12)
            return [_padded(pc.add(of_half, 1), part.count)]
        case "m":
            return [_padded(pc.minute(times), part.count)]
        case "s":
            return [_padded(pc.second(times), part.count)]
        case "a":
            return [pc.if_else(pc.less(pc.hour(times), 12), "AM", "PM")]
        case _:
            micros = pc.add(pc.multiply(pc.millisecond(times), 1000), pc.microsecond(times))
            return [pc.utf8_slice_codeunits(_padded(micros, 6), start=0, stop=part.count)]


def _year(years: Any, count: int) -> list[Any]:
    if count == 2:
        return [_padded(_remainder(years, 100), 2)]
    signs = pc.if_else(pc.less(years, 0), "-", "")
    if count == 4:
        signs = pc.if_else(pc.greater(years, _LAST_YEAR_WITHOUT_SIGN), "+", signs)
    return [signs, _padded(pc.abs(years), count)]


def _padded(numbers: Any, width: int) -> Any:
    return pc.utf8_lpad(numbers.cast(pa.string()), width=width, padding="0")


def _remainder(numbers: Any, by: int) -> Any:
    multiple = pc.multiply(pc.divide(numbers, by), by)
    return pc.subtract(numbers, multiple)


def _unknown(pattern: str, part: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"the pattern {pattern!r} has {part!r}, which lakebed does not print",
        hint=f"It prints {', '.join(letter * max(counts) for letter, counts in _COUNTS.items())} and quoted text.",
        context={"feature": "time pattern", "pattern": pattern},
    )

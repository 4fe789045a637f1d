"""Names that are nearly the same: what a caller may have meant, and new columns that may be a typo."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# A list of names in a message has so many at most.
_LISTED = 20
# Data with more new columns than this is of another kind, and none of them is looked at.
_MAX_NEW = 20
# A name this near to a column's, from 0 to 1, may be a typo even where it can be a text without quotes.
_CLOSE = 0.75
# A name after a comparison, or before one with another name; or nothing but the name.
_COMPARED = (
    r"(?:[=<>]|\b(?:in\s*\([^)]*|like|ilike|rlike|between|and))\s*[`\"]?{name}\b(?!\s*[.(=<>!])"
    r"|^[`\"]?{name}[`\"]?\s*[=<>!]+\s*[A-Za-z_]|^\s*[`\"]?{name}[`\"]?\s*$"
)


def nearest_name(name: str, names: Iterable[str], cutoff: float | None = None) -> str | None:
    """The name that is nearest to another one, in any case; None if none is near.

    >>> nearest_name("fair", ["city", "FARE"])
    'FARE'
    """
    from difflib import get_close_matches

    folded = {candidate.lower(): candidate for candidate in names}
    near = get_close_matches(name.lower(), folded, n=1, cutoff=cutoff or (0.5 if len(name) < 4 else 0.6))
    return folded[near[0]] if near else None


def did_you_mean(name: str, names: Sequence[str], introduction: str = "the columns are") -> str:
    """A hint with the nearest of the names, or with all of them if none is near.

    >>> did_you_mean("fair", ["city", "fare"]), did_you_mean("x", ["city", "fare"])
    ("did you mean 'fare'?", 'the columns are city, fare')
    """
    near = nearest_name(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    return f"{introduction} {', '.join(names[:_LISTED]) or 'none'}{', ...' if len(names) > _LISTED else ''}"


def unknown_in_sql(name: str, names: Sequence[str], text: str) -> str:
    """A hint about a name in SQL that is none of the columns: that a text is written in quotes, where it is compared
    with a column or is the whole text; otherwise, or if a column is called nearly so, what `did_you_mean` says.

    >>> unknown_in_sql("rome", ["city", "fare"], "city = rome")
    "a text is written in quotes: 'rome'"
    >>> unknown_in_sql("fair", ["city", "fare"], "fair > 1")
    "did you mean 'fare'?"
    """
    if re.search(_COMPARED.format(name=re.escape(name)), text, re.IGNORECASE) is None:
        return did_you_mean(name, names)
    in_quotes = f"a text is written in quotes: '{name}'"
    near = nearest_name(name, names, cutoff=_CLOSE)
    return in_quotes if near is None else f"did you mean {near!r}? Otherwise {in_quotes}"


def near_or_nothing(name: str, names: Iterable[str]) -> str:
    """The beginning of a hint that continues with another sentence: the nearest of the names, or an empty text.

    >>> near_or_nothing("fair", ["city", "fare"]), near_or_nothing("x", ["city", "fare"])
    ("Did you mean 'fare'? ", '')
    """
    near = nearest_name(name, names)
    return "" if near is None else f"Did you mean {near!r}? "


def in_any_case(name: str, names: Iterable[str]) -> str:
    """The name as it is spelled among these, in any case; for a path with dots its first part is looked up. The name
    unchanged if it is not among them.

    >>> in_any_case("id", ["ID", "city"]), in_any_case("at.day", ["At"])
    ('ID', 'At.day')
    """
    existing = frozenset(names)
    first, dot, inner_path = name.partition(".")
    if name in existing or first in existing:
        return name
    folded = {candidate.lower(): candidate for candidate in existing}
    if name.lower() in folded:
        return folded[name.lower()]
    return folded[first.lower()] + dot + inner_path if first.lower() in folded else name


@dataclass(frozen=True, slots=True)
class SimilarColumn:
    """A new column of the data whose name is nearly that of a column of the table; `is_absent` is whether the data has
    no column of that name, so that the new one may be meant for it."""

    new: str
    existing: str
    is_absent: bool


def similar_columns(table: Sequence[str], data: Sequence[str]) -> list[SimilarColumn]:
    """The new columns of the data that may be a column of the table with a typo in its name: some letters are wrong,
    missing, additional or in another order. Names that differ only in digits are different columns.

    >>> similar_columns(["city", "address1"], ["ctiy", "address2"])
    [SimilarColumn(new='ctiy', existing='city', is_absent=True)]
    """
    table_names, data_names = frozenset(table), frozenset(data)
    new = [name for name in data if name not in table_names]
    if len(new) > _MAX_NEW:
        return []
    similar: list[SimilarColumn] = []
    for name in new:
        near = sorted((existing in data_names, existing) for existing in table if is_typo(name, existing))
        if near:
            similar.append(SimilarColumn(name, near[0][1], not near[0][0]))
    return similar


def is_typo(name: str, existing: str) -> bool:
    """Whether few letters of a name must be changed to get another one, and not only digits. In short names no letter
    may be replaced: two are exchanged, or one is missing or additional.

    >>> is_typo("ctiy", "City"), is_typo("address1", "address2"), is_typo("qyt", "qty"), is_typo("lat", "lot")
    (True, False, True, False)
    """
    name, existing = name.lower(), existing.lower()
    longest = max(len(name), len(existing))
    if longest < _SHORT:
        return _is_short_typo(name, existing)
    allowed = 1 if longest < 8 else 2
    if abs(len(name) - len(existing)) > allowed or len({*name} ^ {*existing}) > 2 * allowed:
        return False
    return _DIGITS.sub("", name) != _DIGITS.sub("", existing) and _edits(name, existing) <= allowed


_DIGITS = re.compile("[0-9]+")
# Names with fewer letters are short: one letter of them may well make another word.
_SHORT = 4


def _is_short_typo(name: str, existing: str) -> bool:
    """Whether two adjacent letters are exchanged, or one is missing or additional."""
    if len(name) == len(existing):
        differ = [at for at, pair in enumerate(zip(name, existing, strict=True)) if pair[0] != pair[1]]
        first = differ[0] if differ else 0
        return differ == [first, first + 1] and name[first : first + 2] == existing[first : first + 2][::-1]
    short, long = sorted((name, existing), key=len)
    return (
        len(short) == len(long) - 1 > 0
        and any(long[:at] + long[at + 1 :] == short for at in range(len(long)))
        and _DIGITS.sub("", name) != _DIGITS.sub("", existing)
    )


def _edits(left: str, right: str) -> int:
    """The number of letters that must be inserted, deleted, replaced or exchanged with their neighbour."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for at, letter in enumerate(left, 1):
        earlier, before, row = before, row, [at]
        for to, other_letter in enumerate(right, 1):
            cost = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != other_letter))
            if at > 1 and to > 1 and letter == right[to - 2] and left[at - 2] == other_letter:
                cost = min(cost, earlier[to - 2] + 1)
            row.append(cost)
    return row[-1]

"""Names that are nearly the same: what a caller may have meant, and new columns that may be a typo."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

# A list of names in a message has so many at most.
_LISTED = 20
# Data with more new columns than this is of another kind, and none of them is looked at.
_MAX_NEW = 20


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The name of these that is nearest to another one, in any case; None where none is near.

    >>> nearest_name("fair", ["city", "FARE"])
    'FARE'
    """
    folded = {candidate.lower(): candidate for candidate in names}
    near = get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    return folded[near[0]] if near else None


def did_you_mean(name: str, names: Sequence[str], introduction: str = "the columns are") -> str:
    """A hint: the nearest of the names, or all of them where none is near.

    >>> did_you_mean("fair", ["city", "fare"]), did_you_mean("x", ["city", "fare"])
    ("did you mean 'fare'?", 'the columns are city, fare')
    """
    near = nearest_name(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    return f"{introduction} {', '.join(names[:_LISTED]) or 'none'}{', ...' if len(names) > _LISTED else ''}"


def near_or_nothing(name: str, names: Iterable[str]) -> str:
    """The beginning of a hint that goes on with a sentence of its own: the nearest of the names, or nothing.

    >>> near_or_nothing("fair", ["city", "fare"]), near_or_nothing("x", ["city", "fare"])
    ("Did you mean 'fare'? ", '')
    """
    near = nearest_name(name, names)
    return "" if near is None else f"Did you mean {near!r}? "


def in_any_case(name: str, names: Iterable[str]) -> str:
    """The name as it is among these, in any case; of a path with dots its first part is looked for. The same name where
    it is not there.

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
    """A new column of the data whose name is nearly that of a column of the table; `is_absent`: the data has no column
    of that name, so that the new one may be meant for it."""

    new: str
    existing: str
    is_absent: bool


def similar_columns(table: Sequence[str], data: Sequence[str]) -> list[SimilarColumn]:
    """The new columns of the data that may be a column of the table with a typo in its name: some letters are wrong,
    missing, too many or in another order. Names that differ in digits only are taken for columns of their own.

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
    """Whether few letters of a name have to be changed for another one, and not its digits alone. In short names no
    letter may be replaced: two are exchanged, or one is missing or too many.

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
    """Whether two letters next to each other are exchanged, or one is missing or too many."""
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
    """How many letters have to be put in, left out, replaced or exchanged with their neighbour."""
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

"""Large sets run as a part that is another one each day, and whole with a variable.

| variable, `all` | what it makes whole |
|---|---|
| `LAKEBED_CRASH` | writers that are struck at their calls of storage, killed, or frozen |
| `LAKEBED_FUZZ` | files and values with damage of every kind |
| `LAKEBED_HISTORIES` | random histories and filters, and tables of every shape, against a model |
| `LAKEBED_INTEROP` | turns with real Hudi |

After so many days as a set has parts, at most eight but for sets of damage, each of it has run.
`LAKEBED_DAY` names another day by a number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from itertools import product
from typing import Any, TypeVar
from zlib import crc32

T = TypeVar("T")
CRASH, FUZZ, INTEROP = "LAKEBED_CRASH", "LAKEBED_FUZZ", "LAKEBED_INTEROP"
HISTORIES = "LAKEBED_HISTORIES"


def whole(variable: str) -> bool:
    return os.environ.get(variable) == "all"


def today() -> int:
    """The number of the day, which says what part of a set runs."""
    return int(os.environ.get("LAKEBED_DAY") or date.today().toordinal())


def todays(items: Sequence[T], parts: int, variable: str) -> Sequence[T]:
    """Every one of so many `items`, from another one on each day; all of them where the variable says `all`.

    >>> sorted(todays(range(6), 1, FUZZ)) == list(range(6))
    True
    """
    return items if whole(variable) else items[today() % parts :: parts]


def todays_of(*axes: Sequence[Any], parts: int, variable: str) -> list[tuple[Any, ...]]:
    """The same of the product of `axes`: on each day every value of an axis meets some values of another one that has
    as many values as there are parts, or more.

    >>> len(todays_of("ab", range(3), parts=3, variable=HISTORIES)) in (2, 6)
    True
    """
    places = product(*(range(len(axis)) for axis in axes))
    return [
        tuple(axis[n] for axis, n in zip(axes, place, strict=True))
        for place in places
        if whole(variable) or (sum(place) + today()) % parts == 0
    ]


def is_todays(point: int, parts: int, variable: str, *case: object) -> bool:
    """Whether a point of a case is one of today's: every one of so many, in another case from another one on.

    >>> [is_todays(n, 1, CRASH, "upsert", 9) for n in range(2)]
    [True, True]
    """
    return whole(variable) or (point + crc32(repr(case).encode()) + today()) % parts == 0

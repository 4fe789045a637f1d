"""Large sets run as a part: `make test` takes the same small one each time, `make test-day` a larger one that is
another one each day. A variable makes them whole.

| variable, `all` | what it makes whole |
|---|---|
| `LAKEBED_CRASH` | writers that are struck at their calls of storage, killed, or frozen |
| `LAKEBED_FUZZ` | files and values with damage of every kind |
| `LAKEBED_HISTORIES` | random histories and filters, and tables of every shape, against a model |
| `LAKEBED_INTEROP` | turns with real Hudi |

After so many days as a set has parts, at most eight but for sets of damage, each of it has run by `make test-day`.
That is a run with `LAKEBED_DAY`, the number of a day (1 is the first of January of the year 1).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any, TypeVar
from zlib import crc32

T = TypeVar("T")
CRASH, FUZZ, INTEROP = "LAKEBED_CRASH", "LAKEBED_FUZZ", "LAKEBED_INTEROP"
HISTORIES = "LAKEBED_HISTORIES"
_EVERY_DAY = 739_945
# `make test` takes one of so many cases of a day's part.
_FEWER = 2


def whole(variable: str) -> bool:
    return os.environ.get(variable) == "all"


def is_of_a_day() -> bool:
    """Whether this run takes a day's part."""
    return bool(os.environ.get("LAKEBED_DAY"))


def today() -> int:
    """The number of the day, which says what part of a set runs; always the same one but in a day's run."""
    return int(os.environ.get("LAKEBED_DAY") or _EVERY_DAY)


def so_many(of_a_day: int) -> int:
    """How many cases run of a set that counts `of_a_day` of them in a day's run."""
    return of_a_day if is_of_a_day() else max(1, of_a_day // _FEWER)


def todays(items: Sequence[T], parts: int, variable: str) -> Sequence[T]:
    """Every one of so many `items`, from another one on each day, at least one; all of them where the variable says
    `all`.

    >>> len(todays(range(6), 3, FUZZ)) in (1, 2, 6)
    True
    """
    if whole(variable):
        return items
    parts = _parts(parts)
    return items[today() % parts :: parts] or items[:1]


def todays_of(*axes: Sequence[Any], parts: int, variable: str) -> list[tuple[Any, ...]]:
    """The same of the product of `axes`: on each day every value of an axis meets some values of another one that has
    as many values as there are parts, or more. There is at least one case.

    >>> len(todays_of("ab", range(12), parts=3, variable=HISTORIES)) in (4, 8, 24)
    True
    """
    places = product(*(range(len(axis)) for axis in axes))
    # with more parts than there are sums of places some days would have no case
    parts = min(_parts(parts), 1 + sum(len(axis) - 1 for axis in axes))
    return [
        tuple(axis[n] for axis, n in zip(axes, place, strict=True))
        for place in places
        if whole(variable) or (sum(place) + today()) % parts == 0
    ]


def is_todays(point: int, parts: int, variable: str, *case: object) -> bool:
    """Whether a point of a case is one of today's: every one of so many, in another case from another one on.

    >>> any(is_todays(n, 2, CRASH, "upsert", 9) for n in range(4))
    True
    """
    return whole(variable) or (point + crc32(repr(case).encode()) + today()) % _parts(parts) == 0


def todays_points(count: int, parts: int, variable: str, *case: object) -> list[int]:
    """Those of the points 1 to `count` of a case that are today's; at least one.

    >>> len(todays_points(5, 100, CRASH, "upsert", 9)) in (1, 5)
    True
    """
    found = [point for point in range(1, count + 1) if is_todays(point, parts, variable, *case)]
    return found or [1 + (crc32(repr(case).encode()) + today()) % count]


def _parts(of_a_day: int) -> int:
    return of_a_day if is_of_a_day() else of_a_day * _FEWER

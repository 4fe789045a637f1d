"""Which part of the tests a run takes. `LAKEBED_TESTS` names the run:

| `LAKEBED_TESTS` | run | what it takes |
|---|---|---|
| `small`, or unset | `make test` | each feature once: the same tests on every day and every machine |
| `rest` | `make test-rest` | the other cases of these tests; CI runs those of the layer `plain` |
| `day` | `make test-day` | all tests, and of large sets a larger part, another one each day |
| `full` | `make test-full` | all tests, and large sets as a whole |

The rule of `make test` and `make test-rest` together: every test runs, and every value of each of its parameters is in
a case (each index, table type, table version, verb, service and codec), but not every pair of values. Every path that
changes storage is struck at some of its steps. `make test` alone has one case of each test that needs a JVM or seconds
(the mark `one_case`), another value in each test, and all the cases of the quick ones. Tests with the mark `rest` are
in `make test-rest` alone: they take seconds for a detail, or show again on Spark what tests in process show of the same
code.

Two marks are exceptions. `full` is in neither: tests that add no feature but pairs, rounds or time, and tests whose
outcome hangs on the time at which processes are stopped, since whether a change lands must not hang on chance.
`every_case` has all its cases: they are quick, and each pair of values is a feature.

Large sets take their part by the functions here. A variable makes one kind of them whole in any run:

| variable, `all` | what it makes whole |
|---|---|
| `LAKEBED_CRASH` | writers that are struck at their calls of storage, killed, or frozen |
| `LAKEBED_FUZZ` | files and values with damage of every kind |
| `LAKEBED_HISTORIES` | random histories and filters, and tables of every shape, against a model |
| `LAKEBED_INTEROP` | turns with real Hudi |

After so many days as a set has parts, at most eight but for sets of damage, each of it has run by `make test-day`.
`LAKEBED_DAY` is the number of another day than today (1 is the first of January of the year 1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import date
from itertools import product
from typing import Any, TypeVar
from zlib import crc32

import pytest

T = TypeVar("T")
CRASH, FUZZ, INTEROP = "LAKEBED_CRASH", "LAKEBED_FUZZ", "LAKEBED_INTEROP"
HISTORIES = "LAKEBED_HISTORIES"
RUNS = ("small", "rest", "day", "full")
_FIXED_DAY = 739_945
# `make test` takes one of so many cases of a day's part.
_FEWER = 4


def run() -> str:
    """The run that this is: one of `RUNS`."""
    named = os.environ.get("LAKEBED_TESTS") or "small"
    if named not in RUNS:
        raise pytest.UsageError(f"LAKEBED_TESTS is one of {', '.join(RUNS)}, not {named!r}")
    return named


def is_small() -> bool:
    """Whether large sets are represented by a few of their cases: in the small run and its rest."""
    return run() in ("small", "rest")


def whole(variable: str) -> bool:
    """Whether this run takes the whole of each large set of a kind."""
    return run() == "full" or os.environ.get(variable) == "all"


def today() -> int:
    """The number of the day, which says what part of a set runs; always the same one but in a day's run."""
    return int(os.environ.get("LAKEBED_DAY") or date.today().toordinal()) if run() == "day" else _FIXED_DAY


def so_many(of_a_day: int, small: int) -> int:
    """How many cases run of a set that counts `of_a_day` of them in a day's run."""
    return small if is_small() else of_a_day


def rounds(count: int, small: int = 1) -> int:
    """How often a test goes through its steps: in the small run as often as each step needs."""
    return small if is_small() else count


def todays(items: Sequence[T], parts: int, variable: str) -> Sequence[T]:
    """One in so many `parts` of the items, at least one: others on each day; in the small run those that have the most
    values among them. All of them where the variable says `all`.

    >>> len(todays(range(6), 3, FUZZ)) in (1, 2, 6)
    True
    """
    if whole(variable):
        return items
    if is_small():
        return covering(items, max(1, len(items) // (parts * _FEWER)))
    return items[today() % parts :: parts] or items[:1]


def covering(items: Sequence[T], count: int) -> list[T]:
    """So many of the items, each of which has as many values as possible that those before it have not: indexes,
    versions, table types. Items without fields are taken at even distances.

    >>> covering([("cow", 9), ("cow", 8), ("mor", 9), ("mor", 6)], 2)
    [('cow', 9), ('mor', 6)]
    """
    if not any(len(_values(item)) > 1 for item in items):
        return [items[n * len(items) // count] for n in range(min(count, len(items)))]
    found: list[T] = []
    left = list(items)
    seen: set[tuple[int, str]] = set()
    while left and len(found) < count:
        best = max(left, key=lambda item: len(_values(item) - seen))
        seen |= _values(best)
        found.append(best)
        left.remove(best)
    return found


def todays_of(*axes: Sequence[Any], parts: int, variable: str) -> list[tuple[Any, ...]]:
    """The same of the product of `axes`: on each day every value of an axis meets some values of another one that has
    as many values as there are parts, or more. In the small run each value of each axis is in a case, and there are as
    many cases as the longest axis has values. There is at least one case.

    >>> len(todays_of("ab", range(12), parts=3, variable=HISTORIES)) in (12, 8, 24)
    True
    """
    if is_small() and not whole(variable):
        return [tuple(axis[n % len(axis)] for axis in axes) for n in range(max(map(len, axes)))]
    places = product(*(range(len(axis)) for axis in axes))
    # with more parts than there are sums of places some days would have no case
    parts = min(parts, 1 + sum(len(axis) - 1 for axis in axes))
    return [
        tuple(axis[n] for axis, n in zip(axes, place, strict=True))
        for place in places
        if whole(variable) or (sum(place) + today()) % parts == 0
    ]


def is_todays(point: int, parts: int, variable: str, *case: object) -> bool:
    """Whether a point of a case is one of today's: every one of so many, in another case from another one on.

    >>> any(is_todays(n, 2, CRASH, "upsert", 9) for n in range(8))
    True
    """
    parts = parts * _FEWER if is_small() else parts
    return whole(variable) or (point + crc32(repr(case).encode()) + today()) % parts == 0


def todays_points(count: int, parts: int, variable: str, *case: object) -> list[int]:
    """Those of the points 1 to `count` of a case that are today's; at least one.

    >>> len(todays_points(5, 100, CRASH, "upsert", 9)) in (1, 5)
    True
    """
    found = [point for point in range(1, count + 1) if is_todays(point, parts, variable, *case)]
    return found or [1 + (crc32(repr(case).encode()) + today()) % count]


def some(items: Sequence[T], *small: T) -> list[Any]:
    """All items as parameters of a test, of which the small run takes those that are named in `small`."""
    assert all(one in items for one in small)
    return [item if item in small else pytest.param(*_parameters(item), marks=pytest.mark.full) for item in items]


def _parameters(item: Any) -> Sequence[Any]:
    return item if isinstance(item, tuple) else (item,)


def _values(item: Any) -> set[tuple[int, str]]:
    """What an item has of each axis."""
    return {(n, repr(value)) for n, value in enumerate(_fields(item))}


def _fields(item: Any) -> Iterator[Any]:
    for part in item if isinstance(item, tuple) else (item,):
        if is_dataclass(part) and not isinstance(part, type):
            yield from (getattr(part, field.name) for field in fields(part))
        else:
            yield part

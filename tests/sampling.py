"""Large sets run as a part that is another one each day, and whole with a variable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from typing import TypeVar

T = TypeVar("T")
CRASH, FUZZ, INTEROP = "LAKEBED_CRASH", "LAKEBED_FUZZ", "LAKEBED_INTEROP"


def whole(variable: str) -> bool:
    return os.environ.get(variable) == "all"


def todays(items: Sequence[T], parts: int, variable: str) -> Sequence[T]:
    """Every one of so many `items`, from another one on each day; all of them where the variable says `all`.

    >>> sorted(todays(range(6), 1, FUZZ)) == list(range(6))
    True
    """
    return items if whole(variable) else items[date.today().toordinal() % parts :: parts]

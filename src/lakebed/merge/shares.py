"""Counts of a file group's rows by the upsert that they are of, where several upserts are one action."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
CountName = Literal[
    "rows_in",
    "num_inserts",
    "num_updates",
    "num_deletes",
    "num_unchanged",
    "num_combined",
    "num_blind_rows",
    "num_blind_deletes",
]
COUNTS: tuple[CountName, ...] = get_args(CountName)
"""The names of counted rows, which are fields of `WriteStatus`."""
_AT = {name: at for at, name in enumerate(COUNTS)}


class Shares:
    """Counts of rows by member, the number of the upsert that a row belongs to.

    `received` are the members of the rows as they came, `rows` those of the rows that are left once rows of a key are
    combined, and `before` counts how many other rows were combined into each received row. Counts of what becomes of
    the rows are added.

    >>> shares = Shares(np.array([0, 1, 1]), np.array([0, 1]))
    >>> shares.add("num_updates", np.array([1]))
    >>> shares.encoded()
    [0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 1, 0, 0, 1, 0, 0]
    """

    def __init__(self, received: Numbers, rows: Numbers, before: Numbers | None = None) -> None:
        self._counts = np.zeros((int(received.max(initial=-1)) + 1, len(COUNTS)), np.int64)
        self._members = np.unique(received)
        self.add("rows_in", received)
        if before is not None:
            np.add.at(self._counts[:, _AT["rows_in"]], received, before)
        self._counts[:, _AT["num_combined"]] = self._counts[:, _AT["rows_in"]]
        self.subtract("num_combined", rows)

    def add(self, name: CountName, members: Numbers) -> None:
        """Count one row of each of these members."""
        self._counts[:, _AT[name]] += np.bincount(members, minlength=len(self._counts))

    def subtract(self, name: CountName, members: Numbers) -> None:
        self._counts[:, _AT[name]] -= np.bincount(members, minlength=len(self._counts))

    def see_stored(self, new: Numbers, absent: Numbers) -> None:
        """Correct the counts of rows that were written to log files without a lookup, after stored rows were compared:
        `new` are the members of rows whose key is new, `absent` those of deletes without a stored row."""
        moves: tuple[tuple[CountName, CountName, CountName, Numbers], ...] = (
            ("num_blind_rows", "num_updates", "num_inserts", new),
            ("num_blind_deletes", "num_deletes", "num_unchanged", absent),
        )
        for blind, name, target_name, members in moves:
            if self._counts[:, _AT[blind]].any():
                self.subtract(name, members)
                self.add(target_name, members)
            self._counts[:, _AT[blind]] = 0

    def totals(self) -> Mapping[str, int]:
        """The counts of all members together."""
        return dict(zip(COUNTS, self._counts.sum(axis=0).tolist(), strict=True))

    def encoded(self) -> list[int]:
        """The number of each member, and its counts in the order of `COUNTS`, one member after the other."""
        return np.column_stack([self._members, self._counts[self._members]]).ravel().tolist()


def without_counts(shares: Sequence[int]) -> list[int]:
    """Encoded shares of these members with all counts 0: for further files of rows that are counted already.

    >>> without_counts([3, 5, 4, 1, 0, 0, 0, 0, 0])
    [3, 0, 0, 0, 0, 0, 0, 0, 0]
    """
    counts = np.array(shares, np.int64).reshape(-1, 1 + len(COUNTS))
    counts[:, 1:] = 0
    return counts.ravel().tolist()


def decoded(shares: Sequence[int]) -> Iterator[tuple[int, Mapping[CountName, int]]]:
    """The members and their counts, from the numbers that `Shares.encoded` made.

    >>> next(decoded([3, 5, 4, 1, 0, 0, 0, 0, 0]))[1]["num_inserts"]
    4
    """
    step = 1 + len(COUNTS)
    for start in range(0, len(shares), step):
        member, *counts = shares[start : start + step]
        yield member, dict(zip(COUNTS, counts, strict=True))

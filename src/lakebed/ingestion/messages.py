"""Messages of a source as rows: decoded many at a time, and those that are no rows found by halving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakebed.errors import InvalidRecord, SchemaConflict

# Messages of so many bytes are decoded at a time.
PART_BYTES = 64 << 20


class BadMessage(NamedTuple):
    """The number of a message that is no row, Hudi's name of the reason, and the error."""

    number: int
    reason: str
    error: str


@dataclass
class Decoded:
    """Rows, the number of the message of each, and the messages that are none."""

    rows: pa.Table
    numbers: np.ndarray
    bad: list[BadMessage] = field(default_factory=list[BadMessage])

    def of(self, numbers: np.ndarray) -> Decoded:
        """The same, of messages that have these numbers."""
        bad = [message._replace(number=int(numbers[message.number])) for message in self.bad]
        return Decoded(self.rows, numbers[self.numbers], bad)


class NoRow(Exception):
    """One message that is no row; the text says why."""


FAILURES = (pa.ArrowException, ValueError, NoRow, InvalidRecord, SchemaConflict)
Decode = Callable[[pa.Array], pa.Table]
"""A row for each message. Raises one of `FAILURES` where one or more are none."""


def decode_by_halving(
    messages: pa.Array, decode: Decode, decode_one: Decode, first: int, bad: list[BadMessage], reason: str
) -> list[tuple[pa.Table, int, int]]:
    """Rows of the messages in order, as parts with the numbers of their first and last message, from number `first` on.
    A message that `decode` refuses by itself is decoded by `decode_one`, and is bad where that refuses it too."""
    parts: list[tuple[pa.Table, int, int]] = []
    pending = [(0, len(messages))]
    while pending:
        start, end = pending.pop()
        part = messages.slice(start, end - start)
        is_one = end - start == 1
        try:
            rows = decode(part)
        except FAILURES:
            if not is_one:
                middle = (start + end) // 2
                pending += [(middle, end), (start, middle)]
                continue
            try:
                rows = decode_one(part)
            except Exception as error:  # whatever a hostile message leads to, it is this message
                bad.append(BadMessage(first + start, reason, str(getattr(error, "message", error))))
                continue
        parts.append((rows, first + start, first + end))
    return parts


def offsets_of(values: pa.Array) -> np.ndarray:
    """Where each of the binary values begins in their bytes, and where the last one ends."""
    if not len(values):
        return np.zeros(1, np.int64)
    kind = np.dtype(np.int64 if pa.types.is_large_binary(values.type) else np.int32)
    return np.frombuffer(values.buffers()[1], kind, len(values) + 1, values.offset * kind.itemsize).astype(np.int64)


def parts_of(messages: pa.Array, most: int) -> list[tuple[int, int]]:
    """Ranges of messages of about so many bytes; a longer message is a range by itself."""
    if not len(messages):
        return []
    ends = offsets_of(messages)
    cuts = [0]
    while cuts[-1] < len(messages):
        start = cuts[-1]
        end = int(np.searchsorted(ends, ends[start] + most, "right")) - 1
        cuts.append(max(start + 1, min(end, len(messages))))
    return list(pairwise(cuts))


def numbers_of(parts: list[tuple[pa.Table, int, int]]) -> np.ndarray:
    """The numbers of the messages of all parts."""
    return np.concatenate([np.arange(start, end) for _, start, end in parts] or [np.zeros(0, np.int64)])

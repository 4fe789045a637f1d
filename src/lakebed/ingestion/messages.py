"""Messages of a source as rows: decoded many at a time, and those that are no rows found by halving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.ingestion.columns import union_of
from lakebed.inputs.inference import unified

# Messages of so many bytes are decoded at a time.
PART_BYTES = 64 << 20
# The frame of a schema registry: a zero byte and the 4-byte id of a schema.
FRAME_BYTES = 5
_NO_FRAME = "the message does not begin with the frame of a schema registry"
_NO_NUMBERS = np.zeros(0, np.int64)


class BadMessage(NamedTuple):
    """The number of a bad message, Hudi's name for the reason, and the error."""

    number: int
    reason: str
    error: str


@dataclass
class Decoded:
    """Rows, the number of the message of each, and the bad messages."""

    rows: pa.Table
    numbers: np.ndarray
    bad: list[BadMessage] = field(default_factory=list[BadMessage])

    def of(self, numbers: np.ndarray) -> Decoded:
        """This result with the message numbers `numbers` in place of 0, 1, 2, ..."""
        bad = [message._replace(number=int(numbers[message.number])) for message in self.bad]
        return Decoded(self.rows, numbers[self.numbers], bad)


class NoRow(Exception):
    """The error for a message that cannot be a row; its text is the reason."""


FAILURES = (pa.ArrowException, ValueError, NoRow, InvalidRecord, SchemaConflict)
Decode = Callable[[pa.Array], pa.Table]
"""A row for each message. Raises one of `FAILURES` where one or more are none."""


def decode_by_halving(
    messages: pa.Array, decode: Decode, decode_one: Decode, first: int, bad: list[BadMessage], reason: str
) -> list[tuple[pa.Table, int, int]]:
    """The rows of the messages in order, as parts with the numbers of their first and last message, counted from
    `first`. A message that `decode` refuses alone is decoded by `decode_one`, and is bad if that refuses it too."""
    parts: list[tuple[pa.Table, int, int]] = []
    pending = [(0, len(messages))] if len(messages) else []
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
    """The position at which each of the binary values begins in their buffer, and at which the last one ends."""
    if not len(values):
        return np.zeros(1, np.int64)
    kind = np.dtype(np.int64 if pa.types.is_large_binary(values.type) else np.int32)
    return np.frombuffer(values.buffers()[1], kind, len(values) + 1, values.offset * kind.itemsize).astype(np.int64)


def parts_of(messages: pa.Array, limit: int) -> list[tuple[int, int]]:
    """Ranges of messages of about `limit` bytes; a longer message is its own range."""
    if not len(messages):
        return []
    ends = offsets_of(messages)
    cuts = [0]
    while cuts[-1] < len(messages):
        start = cuts[-1]
        end = int(np.searchsorted(ends, ends[start] + limit, "right")) - 1
        cuts.append(max(start + 1, min(end, len(messages))))
    return list(pairwise(cuts))


def numbers_of(parts: list[tuple[pa.Table, int, int]]) -> np.ndarray:
    """The numbers of the messages of all parts."""
    return np.concatenate([np.arange(start, end) for _, start, end in parts] or [np.zeros(0, np.int64)])


def spans(messages: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The buffer of binary values, and the positions at which each value starts and ends in it."""
    ends, data = offsets_of(messages), messages.buffers()[2]
    values = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return values, ends[:-1], ends[1:]


def slices(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.Array:
    """The bytes between these positions as binary values, copied at once."""
    edges = np.empty(2 * len(starts) + 1, np.int32)
    edges[:-1:2], edges[1::2] = starts, ends
    edges[-1] = edges[-2] if len(starts) else 0
    spans_and_gaps = pa.Array.from_buffers(
        pa.binary(), 2 * len(starts), [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    return spans_and_gaps.take(pa.array(np.arange(0, 2 * len(starts), 2)))


def by_schema(messages: pa.Array, bad: list[BadMessage], reason: str) -> Iterator[tuple[int, np.ndarray]]:
    """The ids of the schemas in the registry frames of messages, each with the numbers of its messages. Messages
    without a frame are bad."""
    data, starts, ends = spans(messages)
    framed = ends - starts >= FRAME_BYTES
    framed[framed] = data[starts[framed]] == 0
    bad += [BadMessage(number, reason, _NO_FRAME) for number in np.flatnonzero(~framed).tolist()]
    numbers = np.flatnonzero(framed)
    ids = np.zeros(len(numbers), np.int64)
    for at in range(1, FRAME_BYTES):
        ids = ids * 256 + data[starts[framed] + at]
    for identifier in np.unique(ids).tolist():
        yield identifier, numbers[ids == identifier]


@dataclass
class DecodedGroups:
    """The rows of groups of messages, each group with its own schema, and the bad messages."""

    reason: str
    parts: list[tuple[pa.Table, np.ndarray]] = field(default_factory=list[tuple[pa.Table, np.ndarray]])
    bad: list[BadMessage] = field(default_factory=list[BadMessage])

    def add(self, messages: pa.Array, numbers: np.ndarray, decode: Decode) -> None:
        """Decode the messages, whose numbers are `numbers`, and add their rows."""
        wrong: list[BadMessage] = []
        parts = decode_by_halving(messages, decode, decode, 0, wrong, self.reason)
        self.bad += [message._replace(number=int(numbers[message.number])) for message in wrong]
        self.parts += [(rows, numbers[start:end]) for rows, start, end in parts]

    def take(self, decoded: Decoded) -> None:
        """Add messages that are already decoded."""
        self.bad += decoded.bad
        if decoded.rows.num_columns:
            self.parts.append((decoded.rows, decoded.numbers))

    def refuse(self, numbers: np.ndarray, error: str) -> None:
        """Make bad messages of these numbers."""
        self.bad += [BadMessage(number, self.reason, error) for number in numbers.tolist()]

    def decoded(self) -> Decoded:
        """All rows as one table, in the order of their messages. Messages of a group whose types are incompatible with
        those of earlier groups are bad."""
        schema, parts = pa.schema([]), list[tuple[pa.Table, np.ndarray]]()
        for rows, numbers in self.parts:
            try:
                schema = unified([schema, rows.schema])
            except SchemaConflict as error:
                why = f"its schema does not go together with that of the messages before: {error.message}"
                self.refuse(numbers, why)
                continue
            parts.append((rows, numbers))
        self.bad.sort()
        if not parts:
            return Decoded(pa.table({}), _NO_NUMBERS, self.bad)
        rows, numbers = union_of([rows for rows, _ in parts]), np.concatenate([numbers for _, numbers in parts])
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            rows, numbers = rows.take(order), numbers[order]
        return Decoded(rows, numbers, self.bad)

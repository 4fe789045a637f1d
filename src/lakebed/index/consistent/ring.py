"""The ring of a partition path: which bucket takes which hash values, and how buckets split and merge on it.

A node covers the hash values after the node before it up to its own; what is after the last node belongs to the
first. Pure functions over nodes, and the bytes in which Hudi keeps them.

Where a key is on the ring: XXH32 of its hash fields' values, over whole Arrow columns.
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptFile, IndexInconsistent
from lakebed.format.hashes import Int32s, Int64s, UInt32s, joined_hash_values, plain_strings, value_buffer
from lakebed.sharing import once
from lakebed.timeline.bodies.encoding import pretty_json

# The numbers of the XXH32 specification.
_P1, _P2, _P3, _P4, _P5 = (np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))
_STRIPE = 16
_ROWS = 1 << 16
RING_SIZE = (1 << 31) - 1
"""The greatest value on the ring."""


def ring_hashes(keys: Any, fields: Sequence[str]) -> Int32s:
    """The position on the ring (0 to `RING_SIZE`) of every record key text, as Hudi's consistent hashing computes it.

    `fields` are the hash fields, a subset of the key fields (empty: all).

    >>> import pyarrow as pa
    >>> ring_hashes(pa.array(["k0", "id:1,ts:2"]), ["id"]).tolist()
    [1521402247, 921487538]
    """
    return (xxh32(joined_hash_values(keys, fields)) & np.uint32(RING_SIZE)).view(np.int32)


def xxh32(strings: Any, seed: int = 0) -> UInt32s:
    """XXH32 of the bytes of every value of a string column; a null counts as empty text.

    >>> import pyarrow as pa
    >>> [f"{h:08x}" for h in xxh32(pa.array(["", "abc"])).tolist()]
    ['02cc5d05', '32d153ff']
    """
    array = plain_strings(strings)
    data, offsets = value_buffer(array)
    result = np.empty(len(array), np.uint32)
    # words are read at any byte; the last ones begin up to three bytes before the end
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    words = np.ndarray(len(padded) - 3, "<u4", padded, strides=(1,))
    for first in range(0, len(array), _ROWS):
        last = min(first + _ROWS, len(array))
        result[first:last] = _hashed(padded, words, offsets[first : last + 1], np.uint32(seed))
    return result


def _hashed(data: npt.NDArray[np.uint8], words: npt.NDArray[Any], offsets: Int64s, seed: np.uint32) -> UInt32s:
    """XXH32 of each row. A step takes the next word, or byte, of all rows that have one: the rows are ordered by
    descending length, so that these are always the first ones."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    sizes, at = lengths[order], offsets[:-1][order].copy()
    with np.errstate(over="ignore"):
        total = _stripes(words, sizes, at, seed) + sizes.astype(np.uint32)
        left = sizes % _STRIPE
        for step in range(3):
            rows = np.flatnonzero(left >= 4 * (step + 1))
            next_words = words[at[rows] + 4 * step].astype(np.uint32)
            total[rows] = _turned(total[rows] + next_words * _P3, 17) * _P4
        at += left // 4 * 4
        for step in range(3):
            rows = np.flatnonzero(left % 4 > step)
            total[rows] = _turned(total[rows] + data[at[rows] + step].astype(np.uint32) * _P5, 11) * _P1
        total ^= total >> np.uint32(15)
        total *= _P2
        total ^= total >> np.uint32(13)
        total *= _P3
        total ^= total >> np.uint32(16)
    result = np.empty_like(total)
    result[order] = total
    return result


def _stripes(words: npt.NDArray[Any], sizes: Int64s, at: Int64s, seed: np.uint32) -> UInt32s:
    """The hash state after all full stripes of 16 bytes; `at` is moved to the bytes after them."""
    total = np.full(len(sizes), seed + _P5, np.uint32)
    long = int(np.searchsorted(-sizes, -_STRIPE, side="right"))
    if not long:
        return total
    starts = (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)
    lanes = [np.full(long, start, np.uint32) for start in starts]
    for stripe in range(int(sizes[0]) // _STRIPE):
        rows = int(np.searchsorted(-sizes, -_STRIPE * (stripe + 1), side="right"))
        for number, lane in enumerate(lanes):
            next_words = words[at[:rows] + 4 * number].astype(np.uint32)
            lane[:rows] = _turned(lane[:rows] + next_words * _P2, 13) * _P1
        at[:rows] += _STRIPE
    total[:long] = sum(
        (_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros(long, np.uint32)
    )
    return total


def _turned(values: UInt32s, by: int) -> UInt32s:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))


INITIAL = "0" * 14
"""The instant of a partition path's first ring."""

_VERSION = 0
_SUFFIX = "-0"
NodeTag = Literal["NORMAL", "REPLACE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Node:
    """A bucket: its greatest hash value, and the file group that has its rows. In a plan the tag decides whether the
    node replaces the node with its value, or removes it (a node without a prefix)."""

    value: int
    prefix: str | None
    tag: NodeTag = "NORMAL"

    @property
    def file_id(self) -> str:
        return f"{self.prefix}{_SUFFIX}"

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "fileIdPrefix": self.prefix, "tag": self.tag}


@dataclass(frozen=True)
class Ring:
    """The nodes of a partition path, by value, as an instant left them; `buckets` is how many nodes the first ring had,
    `sequence` how often it was changed."""

    partition: str
    instant: str
    buckets: int
    sequence: int
    nodes: tuple[Node, ...]

    @once
    def file_ids(self) -> pa.Array:
        return pa.array([node.file_id for node in self.nodes], pa.string())

    @once
    def _values(self) -> Int32s:
        return np.array([node.value for node in self.nodes], np.int32)

    def node_numbers(self, hashes: Int32s) -> Int32s:
        """The number of the node of each hash value."""
        numbers = np.searchsorted(self._values, hashes, side="left").astype(np.int32)
        numbers[numbers == len(self.nodes)] = 0
        return numbers

    def node_number(self, file_id: str) -> int | None:
        """The number of the node of a file group; None if no node has it."""
        return next((n for n, node in enumerate(self.nodes) if node.file_id == file_id), None)

    def changed(self, instant: str, children: Iterable[Node]) -> Ring:
        """The ring with the children in place of the nodes they replace, as `instant` leaves it."""
        nodes = {node.value: node for node in self.nodes}
        for child in children:
            if child.tag == "DELETE":
                nodes.pop(child.value, None)
            else:
                nodes[child.value] = replace(child, tag="NORMAL")
        ordered = tuple(nodes[value] for value in sorted(nodes))
        return replace(self, instant=instant, sequence=self.sequence + 1, nodes=ordered)

    def encode(self) -> bytes:
        """The bytes of the ring's file."""
        record = {
            "version": _VERSION,
            "partitionPath": self.partition,
            "instant": self.instant,
            "numBuckets": self.buckets,
            "seqNo": self.sequence,
            "nodes": [node.to_json() for node in self.nodes],
        }
        return pretty_json(record).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> Ring:
        """The ring in a file's bytes. Raises `CorruptFile` for bytes that are not a ring."""
        try:
            record = json.loads(data)
            nodes = nodes_of(record["nodes"])
            ring = cls(record["partitionPath"], record["instant"], record["numBuckets"], record["seqNo"], nodes)
        except (ValueError, KeyError, TypeError) as cause:
            raise _corrupt(path, f"is no ring of buckets ({cause!r})") from cause
        values = [node.value for node in nodes]
        if not nodes or sorted(set(values)) != values or not all(node.prefix for node in nodes):
            raise _corrupt(path, "has no nodes, nodes out of order or without a file group")
        return ring


def nodes_of(records: Iterable[dict[str, Any]]) -> tuple[Node, ...]:
    """The nodes, from their JSON objects."""
    return tuple(Node(int(record["value"]), record["fileIdPrefix"], record["tag"]) for record in records)


def _corrupt(path: str, problem: str) -> CorruptFile:
    return CorruptFile(f"{path} {problem}", hint="Restore the file from a copy.", context={"path": path})


@lru_cache(maxsize=256)
def default_ring(partition: str, buckets: int) -> Ring:
    """The first ring of a partition path, the same for every writer.

    >>> [(node.value, node.prefix) for node in default_ring("p0", 2).nodes]
    [(1073741824, 'dad73638-0699-3d64-9014-d55bccb9782d'), (2147483647, 'a13eb516-36a4-3dd9-8c1c-801a3ef285ac')]
    """
    step = -(-RING_SIZE // buckets)
    ends = [min(step * number, RING_SIZE) for number in range(1, buckets + 1)]
    starts = [0, *ends[:-1]]
    nodes = (
        Node(end, _name_uuid(struct.pack(">qq", start, end) + partition.encode()))
        for start, end in zip(starts, ends, strict=True)
    )
    return Ring(partition, INITIAL, buckets, 0, tuple(nodes))


def _name_uuid(data: bytes) -> str:
    """The text of Java's `UUID.nameUUIDFromBytes`: a UUID of version 3 without a namespace."""
    digest = bytearray(hashlib.md5(data, usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x30
    digest[8] = digest[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(digest)))


def split(ring: Ring, node_number: int, prefixes: Sequence[str]) -> tuple[Node, ...] | None:
    """The two children of a node that has become too large, each with half of its hash values; None for a node that has
    too few values."""
    end, before = ring.nodes[node_number].value, ring.nodes[node_number - 1].value
    middle = ((before + end + (RING_SIZE + 1 if before >= end else 0)) >> 1) & RING_SIZE
    if middle in (before, end):
        return None
    return Node(middle, prefixes[0], "REPLACE"), Node(end, prefixes[1], "REPLACE")


def merge(ring: Ring, node_numbers: Sequence[int], prefix: str) -> tuple[Node, ...]:
    """The merge of adjacent nodes: the last takes the values of all."""
    *merged_values, last = (ring.nodes[node_number].value for node_number in node_numbers)
    return (*(Node(value, None, "DELETE") for value in merged_values), Node(last, prefix, "REPLACE"))


def renewed(ring: Ring, node_number: int, prefix: str) -> tuple[Node, ...]:
    """A node with the same hash values in another file group."""
    return (Node(ring.nodes[node_number].value, prefix, "REPLACE"),)


@dataclass(frozen=True, slots=True)
class Children:
    """The nodes that the file groups of a clustering group become, with the `partition` and `sequence` of the ring for
    which it was planned."""

    partition: str
    sequence: int
    nodes: tuple[Node, ...]

    PARTITION = "clustering.group.partition"
    NODES = "clustering.group.child.node"
    SEQUENCE = "clustering.group.sequence.no"

    def to_metadata(self) -> dict[str, str]:
        """The nodes as extra metadata of a plan, under Hudi's names."""
        return {
            self.SEQUENCE: str(self.sequence),
            self.NODES: pretty_json([node.to_json() for node in self.nodes]),
            self.PARTITION: self.partition,
        }

    @classmethod
    def of_metadata(cls, extra: dict[str, str] | Any) -> Children | None:
        """The nodes in the extra metadata of a plan's group; None if it does not have any."""
        if not extra or cls.NODES not in extra:
            return None
        try:
            nodes = nodes_of(json.loads(extra[cls.NODES]))
            return cls(extra[cls.PARTITION], int(extra[cls.SEQUENCE]), nodes)
        except (ValueError, KeyError, TypeError) as cause:
            raise IndexInconsistent(
                f"a clustering plan names nodes of a ring in a way that cannot be read: {cause!r}",
                hint="Take it off the timeline with the engine that made it.",
            ) from cause

    @property
    def alive(self) -> tuple[Node, ...]:
        """The nodes with a file group, by value."""
        return tuple(sorted((n for n in self.nodes if n.tag != "DELETE"), key=lambda node: node.value))

    def node_numbers(self, hashes: Int32s) -> Int32s:
        """For each hash value of the group, the number of the node in `alive` that its rows are in."""
        values = [node.value for node in self.alive]
        numbers = np.searchsorted(np.array(values, np.int32), hashes, side="left").astype(np.int32)
        # values after the last node go round the ring to the first
        numbers[numbers == len(values)] = 0
        return numbers


def neighbours(ring: Ring, node_number: int) -> tuple[int, int]:
    """The number of the node before `node_number`, and the number of the node after it."""
    count = len(ring.nodes)
    return (node_number - 1) % count, (node_number + 1) % count

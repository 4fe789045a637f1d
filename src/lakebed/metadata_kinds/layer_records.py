"""The records of an index that has layers, in its partition of the metadata table.

They are records of bloom filters by their type, so that every writer of the metadata table carries them along: the name
of the filter's type is that of the index's format, its bytes are ours, its time is the instant that wrote the record.

| key | bytes |
|---|---|
| `B` | the witness of the base: a build, or a fold of layers into it |
| `E|<instant>|<n>` | a block of entries of a commit's layer; the base has 0 for the instant, a repair `<instant>+<n>` |
| `H|<instant>` | the head of that layer |
| `M` | the shape of the index |
| `W|<instant>` | the witness of a commit |

Blocks come before their heads in the order of keys, so that a fold writes both as it goes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.hashes import plain_strings
from lakebed.format.row_addresses import Hashes
from lakebed.metadata_kinds import bloom_filters
from lakebed.metadata_kinds.base import StoredTable
from lakebed.metadata_kinds.stored import COMPARED
from lakebed.metadata_kinds.vector_coverage import Coverage, Witness, coverage, instant_of_layer, repair_layer
from lakebed.metadata_records.definitions import IndexDefinition, load_definitions
from lakebed.metadata_records.records import RecordForm, Records
from lakebed.model import FileGroupId
from lakebed.sharing import once
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot
from lakebed.vector_index.layers import Changes, Groups

# The bytes of records that are written at a time, and the blocks of a layer that are read at a time.
_BATCH_BYTES = 4 << 20
_BLOCKS_TOGETHER = 16
SHAPE: Final = "M"
_BASE: Final = "B"
_HEADS: Final = "H|"
_BLOCKS: Final = "E|"
_WITNESSES: Final = "W|"
COMMIT = "commit"
"""The `entry` of a compared row that is a commit."""
BUILD: Final = "0"
"""The name of the layer of a build. Other layers are named after the instants of their commits."""
S = TypeVar("S", bound="StoredLayers")


@dataclass
class LayerRecords:
    """Collects records of an index, which an instant writes. `record_type` names the format of the index."""

    record_type: str
    instant: str
    _keys: list[str] = field(default_factory=list[str])
    _values: list[bytes] = field(default_factory=list[bytes])
    nbytes: int = 0

    def add(self, key: str, value: bytes) -> None:
        """A record with this key and these bytes."""
        self._keys.append(key)
        self._values.append(value)
        self.nbytes += len(value)

    def add_base(self, witness: Witness) -> None:
        """The witness of a base."""
        self.add(_BASE, witness.to_bytes())

    def add_shape(self, shape: bytes) -> None:
        """The shape of the index."""
        self.add(SHAPE, shape)

    def add_block(self, of: str, number: int, block: bytes) -> None:
        """A block of a layer."""
        self.add(block_key(of, number), block)

    def add_head(self, of: str, head: bytes) -> None:
        """The head of a layer."""
        self.add(_HEADS + of, head)

    def add_witness(self, of: str, witness: Witness) -> None:
        """The witness of a layer."""
        self.add(_WITNESSES + of, witness.to_bytes())

    def batch(self, form: RecordForm, min_bytes: int = 1) -> Iterator[tuple[pa.Array, pa.Array]]:
        """The keys and values of the records so far, which are forgotten then; nothing where these have fewer bytes
        than `min_bytes`."""
        if self.nbytes >= min_bytes:
            records = self.encoded(form)
            self._keys, self._values, self.nbytes = [], [], 0
            yield records.keys, records.values

    def encoded(self, form: RecordForm) -> Records:
        """The records as the metadata table stores them."""
        count = len(self._keys)
        columns = [
            pa.array(self._keys, pa.string()),
            pa.repeat(pa.scalar(self.record_type), count),
            pa.repeat(pa.scalar(self.instant), count),
            pa.array(self._values, pa.binary()),
            pa.repeat(pa.scalar(False), count),
        ]
        return Records.upserts(*bloom_filters.encode(pa.Table.from_arrays(columns, schema=bloom_filters.SCHEMA), form))


def block_key(of: str, number: int) -> str:
    """The key of a block of a layer."""
    return f"{_BLOCKS}{of}|{number:08x}"


class Head(Protocol):
    """The head of a layer: the number of its entries and of its blocks, their file groups, and what its commit
    changed."""

    @property
    def rows(self) -> int: ...
    @property
    def block_count(self) -> int: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def changes(self) -> Changes: ...
    def to_bytes(self) -> bytes: ...


class HeadAndBlocks(Protocol):
    """A layer: its head, and a function that reads blocks by their numbers."""

    @property
    def head(self) -> Head: ...
    @property
    def blocks(self) -> Callable[[Sequence[int]], Sequence[bytes | memoryview]]: ...


def blocks_in_order(layer: HeadAndBlocks) -> Generator[bytes, None, Head]:
    """The blocks of a layer one after the other; returns its head."""
    for number in range(layer.head.block_count):
        yield bytes(layer.blocks([number])[0])
    return layer.head


@dataclass(frozen=True, eq=False)
class LaterLayer:
    """A layer that stays beside a new base: its blocks are read when they are written."""

    name: str
    head: Head
    blocks: Iterable[bytes]
    witness: Witness | None


def batches_of_base(
    records: LayerRecords,
    form: RecordForm,
    blocks: Generator[bytes, None, Head],
    later: Sequence[LaterLayer],
    shape: bytes,
) -> Iterator[tuple[pa.Array, pa.Array]]:
    """All records of an index with a new base, whose blocks come one after the other, and with later layers: in batches
    of keys and values in ascending order of the keys. `records` has those that come before the blocks."""
    heads: list[tuple[str, Head]] = []
    for number in count():
        try:
            records.add_block(BUILD, number, next(blocks))
        except StopIteration as end:
            heads.append((BUILD, end.value))
            break
        yield from records.batch(form, _BATCH_BYTES)
    for layer in later:
        for number, data in enumerate(layer.blocks):
            records.add_block(layer.name, number, bytes(data))
            yield from records.batch(form, _BATCH_BYTES)
        heads.append((layer.name, layer.head))
    for of, head in heads:
        records.add_head(of, head.to_bytes())
        yield from records.batch(form, _BATCH_BYTES)
    records.add_shape(shape)
    for layer in later:
        if layer.witness is not None:
            records.add_witness(layer.name, layer.witness)
    yield from records.batch(form)


@dataclass(frozen=True, eq=False)
class StoredLayers(ABC):
    """The records of an index in a metadata table; each is read when it is needed."""

    descriptions: ClassVar[tuple[str, ...]] = (_BASE, SHAPE, _WITNESSES)
    """The first letters of the keys of records that every use of the index needs. They are read together."""

    metadata: MetadataLookups
    partition: str
    record_type: str

    @property
    @abstractmethod
    def layer_heads(self) -> Mapping[str, Head]:
        """The heads of the layers by name, in the order in which the layers count."""

    @abstractmethod
    def beginning(self, instant: str, witness: Witness) -> LayerRecords:
        """The records of a new base, which an instant writes, up to its blocks in the order of keys."""

    @abstractmethod
    def fold(self, names: tuple[str, ...], snapshot: Snapshot) -> Generator[bytes, None, Head]:
        """The entries of these layers that count as the blocks of one layer, block after block; returns its head. They
        have the file groups of a view."""

    @abstractmethod
    def shape_after_fold(self, instant: str, new_rows: int) -> bytes:
        """The shape of the index with a base as of this instant, to which a fold brought so many entries."""

    def reason_to_rebuild(self, snapshot: Snapshot, least_rows: int) -> str | None:
        """Why the index is to be built again: it does not fit the view, or of at least so many entries searches profit
        little. None if it is not."""
        covered = self.coverage(snapshot)
        return covered.reason or self.reason_by_entries(snapshot, covered, least_rows)

    @abstractmethod
    def counting(self, snapshot: Snapshot, covered: Coverage) -> tuple[int, int]:
        """How many entries count in a view, and of how many that is known. Entries of file groups that the index lacks
        do not count."""

    def cluster_sizes(self, snapshot: Snapshot) -> npt.NDArray[np.int64]:
        """The numbers of entries of the clusters in a view; none where the index has no clusters."""
        return np.empty(0, np.int64)

    @abstractmethod
    def reason_by_entries(self, snapshot: Snapshot, covered: Coverage, least_rows: int) -> str | None:
        """Why an index that fits the view is to be built again."""

    @once
    def base(self) -> Witness:
        """The witness of the build."""
        return Witness.of(self.described(_BASE))

    @once
    def witnesses(self) -> Mapping[str, Witness]:
        """The witnesses of layers, by the instant of the commit, for a repair with its number."""
        stored = {key: data for key, data in self._described.items() if key.startswith(_WITNESSES)}
        return {key.removeprefix(_WITNESSES): Witness.of(data) for key, data in stored.items()}

    def coverage(self, snapshot: Snapshot) -> Coverage:
        """The commits and file groups of a view that the index covers and lacks."""
        return coverage(snapshot, self.base, self.witnesses)

    def names_in(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The names of the layers that count in a view: the build, and commits that are in the view and not in the
        build."""
        built = {*self.base.instants}
        return tuple(
            of for of in self.heads if of == BUILD or (of not in built and snapshot.is_visible(instant_of_layer(of)))
        )

    @once
    def heads(self) -> Mapping[str, memoryview]:
        """The records of `layer_heads`."""
        stored = self._beginning_with([_HEADS])
        if _HEADS + BUILD not in stored:
            raise self._lost(_HEADS + BUILD)
        return {key.removeprefix(_HEADS): stored[key] for key in sorted(stored)}

    def name_of_repair(self, instant: str) -> str:
        """A name for a new layer of a repair after this instant."""
        used = [of for of in self.witnesses if instant_of_layer(of) == instant]
        return repair_layer(instant, len(used))

    def blocks(self, of: str, numbers: Sequence[int]) -> list[bytes]:
        """The blocks of a layer with these numbers, in their order."""
        keys = [block_key(of, number) for number in numbers]
        rows = self.metadata.lookup(self.partition, pa.array(keys, pa.string()))
        return self.records_of(self._bytes_by_key(rows), keys)

    def blocks_of(self, layer: str) -> Iterator[bytes]:
        """The blocks of a layer in their order, some read at a time."""
        total = self.layer_heads[layer].block_count
        for start in range(0, total, _BLOCKS_TOGETHER):
            yield from self.blocks(layer, range(start, min(start + _BLOCKS_TOGETHER, total)))

    def all_blocks(self, layers: Sequence[str]) -> dict[str, Any]:
        """All blocks of some layers by `block_key`."""
        return self._beginning_with([f"{_BLOCKS}{of}|" for of in layers])

    def records_of(self, stored: Mapping[str, bytes], keys: Sequence[str]) -> list[bytes]:
        """The records with these keys. Raises `CorruptFile` if one is missing."""
        for key in keys:
            if key not in stored:
                raise self._lost(key)
        return [stored[key] for key in keys]

    def described(self, key: str) -> bytes:
        """The record with this key, of those that every use of the index needs. Raises `CorruptFile` if it is
        missing."""
        return self.records_of(self._described, [key])[0]

    @once
    def _described(self) -> Mapping[str, Any]:
        return self._beginning_with(self.descriptions)

    def _beginning_with(self, prefixes: Sequence[str]) -> dict[str, Any]:
        return self._bytes_by_key(self.metadata.beginning_with(self.partition, prefixes))

    def _bytes_by_key(self, rows: pa.Table | None) -> dict[str, Any]:
        """The bytes of records by key."""
        if rows is None:
            return {}
        is_of_index: Any = pc.and_(pc.equal(rows["type"], self.record_type), pc.invert(rows["is_deleted"]))
        records: Any = rows.filter(is_of_index)
        keys = plain_strings(records["key"]).cast(pa.string()).to_pylist()
        values = (value for chunk in records["bloom"].chunks for value in chunk)
        return {key: memoryview(value.as_buffer()) for key, value in zip(keys, values, strict=True)}

    def _lost(self, key: str) -> CorruptFile:
        return CorruptFile(
            f"the index {self.partition} has lost the record {key!r}",
            hint=f"Build it again: t.indexes.repair({self.partition!r}).",
            context={"index": self.partition, "key": key},
        )

    def usable(self, snapshot: Snapshot) -> list[str]:
        """The commits that the index lacks. Raises `CorruptFile` for an index that must be built again."""
        covered = self.coverage(snapshot)
        if covered.reason is not None:
            raise CorruptFile(
                f"the index {self.partition} does not fit the table: {covered.reason}",
                hint=f"Build it again: t.indexes.repair({self.partition!r}).",
                context={"index": self.partition},
            )
        return [gap.instant for gap in covered.gaps]

    def lacking_commits(self, snapshot: Snapshot) -> pa.Table:
        """A row for each commit that the index lacks. Raises `CorruptFile` for an index that must be built again."""
        instants = self.usable(snapshot)
        labels = pa.array([f"{COMMIT} {time}" for time in instants], pa.string())
        entries, texts = (pa.repeat(pa.scalar(text), len(instants)) for text in (COMMIT, ""))
        return pa.Table.from_arrays([pa.array(instants, pa.string()), entries, labels, texts], schema=COMPARED)


def opened_once(metadata: MetadataLookups, kind: Callable[[MetadataLookups, str], S], partition: str) -> S:
    """The records of an index, with what was read of them from this view of the metadata table before."""
    key = (kind, partition)
    if key not in metadata.opened_indexes:
        metadata.opened_indexes[key] = kind(metadata, partition)
    return metadata.opened_indexes[key]


def metadata_of(table: StoredTable) -> MetadataLookups:
    """The metadata table of a table whose view does not use it."""
    snapshot = table.snapshot
    metadata = snapshot.metadata_opener(snapshot.storage, snapshot.config, snapshot.timeline)
    assert metadata is not None
    return metadata


def stored_definitions(table: StoredTable) -> dict[str, IndexDefinition]:
    """The index definitions of a table."""
    return load_definitions(table.snapshot.storage, table.snapshot.config)


def joined_hashes(parts: Sequence[Hashes]) -> Hashes:
    """The hashes of all parts, in order."""
    return np.concatenate([np.empty(0, np.uint64), *parts])


class NumberedGroups:
    """Numbers file groups in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[FileGroupId, int] = {}

    def number(self, group: FileGroupId) -> int:
        return self._numbers.setdefault(group, len(self._numbers))

    def listed(self) -> Groups:
        """The file groups in the order of their numbers."""
        paths, ids = [path for path, _ in self._numbers], [file_id for _, file_id in self._numbers]
        return Groups(pa.array(paths, pa.string()), pa.array(ids, pa.string()))

"""The log files of one file slice: the blocks that count for a view, in merge order, and their rows when they are
asked for.

Small blocks of one schema are read together, so that ten upserts of a few rows cost as much to read as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain, pairwise

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptFile
from lakebed.format.data_block import AvroBlock, DataBlock, JointBlock, open_data_block
from lakebed.format.delete_block import decode_deletes
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, decode_positions, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.merge.log_entries import (
    BlockView,
    KeyColumns,
    LogEntries,
    Positions,
    blocks_in_merge_order,
    data_entries,
    delete_entries,
    joined,
)
from lakebed.merge.rules import MergeRules
from lakebed.model import LogFile
from lakebed.sharing import once
from lakebed.storage.base import Storage
from lakebed.storage.parallel import is_remote, parallel_map

# Contents of blocks up to this size are read together, so many bytes at a time.
_JOINED_BYTES = 1 << 20
_UNIT_BYTES = 4 << 20
# Contents up to this size are decoded once: each reading of a few records costs as much as one of hundreds.
_SMALL_BYTES = 64 << 10
# Decoded records take so many times the bytes of their blocks, about, and twice that while they are merged.
_DECODED = 6
# Contents of any size that stay open are decoded once for at most this many columns: to find them costs as much as to
# decode them.
_MAX_COLUMNS = 4


@dataclass(frozen=True, eq=False)
class LogUnit:
    """Data blocks by their numbers, oldest first, with their rows concatenated."""

    numbers: tuple[int, ...]
    block: DataBlock

    @once
    def rows_of(self) -> dict[int, range]:
        """The range of rows of each of the blocks, by block number."""
        block = self.block.block if isinstance(self.block, DecodedBlock) else self.block
        counts = block.counts if isinstance(block, JointBlock) else [block.rows]
        return dict(
            zip(self.numbers, [range(*edges) for edges in pairwise(accumulate(counts, initial=0))], strict=True)
        )


def units_of(heads: Sequence[BlockHead], numbers: Sequence[int]) -> list[tuple[int, ...]]:
    """The numbers of data blocks that are read together, as tuples."""
    units: list[list[int]] = []
    open_units: dict[str | None, tuple[list[int], int]] = {}
    for number in numbers:
        head = heads[number]
        size, schema = head.content_length, head.header(HeaderKey.SCHEMA)
        unit, unit_bytes = open_units.get(schema, ([], 0))
        if head.type is not BlockType.AVRO_DATA or size > _JOINED_BYTES:
            units.append([number])
            continue
        if not unit or unit_bytes + size > _UNIT_BYTES:
            unit, unit_bytes = [], 0
            units.append(unit)
        unit.append(number)
        open_units[schema] = unit, unit_bytes + size
    return [tuple(unit) for unit in units]


def open_unit(heads: Sequence[BlockHead], numbers: tuple[int, ...], ahead: Sequence[str], *, stays: bool) -> LogUnit:
    """Open the blocks of these numbers. A small unit, or one that `stays` open and has few columns `ahead`, is decoded
    once, with these columns."""
    blocks = [open_data_block(heads[n], heads[n].source.name) for n in numbers]
    joint = [block for block in blocks if isinstance(block, AvroBlock)]
    block = blocks[0] if len(blocks) == 1 else JointBlock(joint)
    size = sum([heads[n].content_length for n in numbers])
    if size <= _SMALL_BYTES or (stays and len(ahead) <= _MAX_COLUMNS):
        block = DecodedBlock(block, ahead)
    return LogUnit(numbers, block)


class BlockOfUnit:
    """One data block of a unit."""

    def __init__(self, unit: LogUnit, number: int) -> None:
        self._unit, self._number = unit, number

    @property
    def schema(self) -> pa.Schema:
        return self._unit.block.schema

    @property
    def rows(self) -> int:
        return len(self._unit.rows_of[self._number])

    def read(self, columns: Sequence[str], rows: Positions | None = None) -> pa.RecordBatch:
        """The `columns` of this block's records at the positions `rows`, or of all its records if `rows` is None, read
        through the unit."""
        row_range = self._unit.rows_of[self._number]
        return self._unit.block.read(
            columns, np.arange(row_range.start, row_range.stop) if rows is None else rows + row_range.start
        )


class DecodedBlock:
    """A data block that keeps the columns that were decoded of `block`."""

    def __init__(self, block: DataBlock, ahead: Sequence[str]) -> None:
        self.block, self._ahead = block, ahead
        self.schema: pa.Schema = block.schema
        self._decoded: pa.RecordBatch | None = None

    @property
    def rows(self) -> int:
        return self.block.rows

    def read(self, columns: Sequence[str], rows: Positions | None = None) -> pa.RecordBatch:
        """The `columns` of the records at the positions `rows`, or of all records if `rows` is None: from the cached
        columns if they suffice, otherwise all columns so far and these are decoded and cached."""
        known_names = frozenset(self.schema.names)
        names = [name for name in columns if name in known_names]
        cached = self._decoded
        if cached is None or not set(names) <= set(cached.schema.names):
            before = [] if cached is None else cached.schema.names
            cached = self._decoded = self.block.read(list(dict.fromkeys([*before, *names, *self._ahead])))
        batch = cached.select(names)
        return batch if rows is None or len(rows) == self.rows else batch.take(pa.array(rows))


_READERS = 16
# Opened blocks whose contents have up to this share of the memory bound stay open.
_RETAINED_SHARE = 4


@dataclass(slots=True)
class MergeCounts:
    """The counts of a slice's log files, and of their effect on its rows: base rows that were `updated` or `deleted`,
    and rows that were `inserted` after them."""

    log_records: int = 0
    log_blocks: int = 0
    log_files: int = 0
    log_bytes: int = 0
    corrupt_blocks: int = 0
    rollback_blocks: int = 0
    updated: int = 0
    deleted: int = 0
    inserted: int = 0


@dataclass(eq=False)
class SliceLogs:
    """The data and delete blocks of a slice that a view shows, oldest first. `ahead` names columns that will be needed:
    small blocks, and all blocks if the columns are few, decode them with the first ones."""

    blocks: tuple[BlockHead, ...]
    counts: MergeCounts
    memory: int
    ahead: Sequence[str] = ()
    data: Sequence[int] = field(init=False)
    """The numbers of the data blocks."""
    data_bytes: int = field(init=False)
    """The bytes of the contents of the data blocks."""
    stays_open: bool = field(init=False)
    """Whether the contents of all data blocks are cached once they are read."""
    _units: Mapping[int, tuple[int, ...]] = field(init=False)
    _open: dict[int, LogUnit] = field(default_factory=dict[int, LogUnit])
    _retained: int = 0

    def __post_init__(self) -> None:
        self.data = [n for n, head in enumerate(self.blocks) if head.type is not BlockType.DELETE]
        self.data_bytes = sum([self.blocks[n].content_length for n in self.data])
        self.stays_open = self.data_bytes <= self.memory // _RETAINED_SHARE
        units = units_of(self.blocks, self.data) if self.stays_open else []
        self._units = {number: unit for unit in units for number in unit}

    @classmethod
    def scan(
        cls,
        storage: Storage,
        log_files: Sequence[LogFile],
        view: BlockView,
        memory: int,
        *,
        by_instant: bool = False,
    ) -> SliceLogs:
        """The blocks of the files, in the given order, or with `by_instant` in the order of their blocks' instants.
        Raises `CorruptFile` if a file is missing."""
        scanned = parallel_map(partial(_heads, storage), log_files, _READERS if is_remote(storage) else 1)
        heads = list(chain.from_iterable(scanned))
        types = [head.type for head in heads]
        blocks = tuple(blocks_in_merge_order(heads, view.shows, by_instant=by_instant))
        counts = MergeCounts(
            log_files=len(log_files),
            log_bytes=sum([log.size for log in log_files]),
            log_blocks=len(blocks),
            corrupt_blocks=types.count(BlockType.CORRUPT),
            rollback_blocks=types.count(BlockType.COMMAND),
        )
        return cls(blocks, counts, memory)

    @property
    def has_deletes(self) -> bool:
        """Whether there is a delete block."""
        return any(head.type is BlockType.DELETE for head in self.blocks)

    @property
    def decoded_bytes(self) -> int:
        """The approximate bytes of all columns of the data blocks in memory."""
        return self.data_bytes * _DECODED

    def is_partial(self, number: int) -> bool:
        """Whether the records of a data block have some of the columns only."""
        return (self.blocks[number].header(HeaderKey.IS_PARTIAL) or "").lower() == "true"

    def block(self, number: int) -> DataBlock:
        """A data block, opened. Blocks stay open as long as their contents take little memory."""
        unit = self.unit(number)
        return unit.block if len(unit.numbers) == 1 else BlockOfUnit(unit, number)

    def unit(self, number: int) -> LogUnit:
        """The blocks that are read together with a data block; only the block itself if contents are not cached."""
        unit = self._open.get(number)
        if unit is None:
            numbers = self._units.get(number, (number,))
            size = sum([self.blocks[n].content_length for n in numbers])
            stays = self._retained + size <= self.memory // _RETAINED_SHARE
            unit = open_unit(self.blocks, numbers, self.ahead, stays=stays)
            if stays:
                self._retained += size
                self._open |= dict.fromkeys(numbers, unit)
        return unit

    def entries(self, rules: MergeRules, kinds: Sequence[pa.DataType], keys: KeyColumns) -> LogEntries:
        """The keys, ordering values and deletes of all records; `kinds` are the types of the ordering fields."""
        parts: list[LogEntries] = []
        of_units: dict[int, LogEntries] = {}
        for number, head in enumerate(self.blocks):
            path = head.source.name
            if head.type is BlockType.DELETE:
                parts.append(delete_entries(decode_deletes(head.read(), path, head.offset), number, rules, kinds))
                continue
            unit = self.unit(number)
            if number == unit.numbers[0]:
                of_units[number] = data_entries(unit.block, number, rules, kinds, keys, path)
            parts.append(of_units[unit.numbers[0]].of_block(number, unit.rows_of[number]))
        entries = joined(parts, kinds)
        self.counts.log_records = len(entries)
        return entries

    def has_positions(self, base_instant: str) -> bool:
        """Whether every block has the row numbers in this base file that its records change."""
        of_base = HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS
        flags = [b.header(HeaderKey.RECORD_POSITIONS) and b.header(of_base) == base_instant for b in self.blocks]
        return bool(self.blocks) and all(flags)

    def positions(self, entries: LogEntries, base_instant: str) -> Positions | None:
        """The row number in the base file for each entry; None if a block does not have it."""
        if not self.has_positions(base_instant):
            return None
        positions: list[Positions] = []
        counts = np.bincount(entries.block, minlength=len(self.blocks)).tolist()
        for head, records in zip(self.blocks, counts, strict=True):
            header = head.header(HeaderKey.RECORD_POSITIONS) or ""
            rows = decode_positions(header, records, head.source.name, head.offset)
            if len(rows) != records:
                return None
            positions.append(rows)
        return np.concatenate(positions) if positions else None


def _heads(storage: Storage, log: LogFile) -> Iterable[BlockHead]:
    try:
        return scan_blocks(FileSource(storage, log.path, log.size or None))
    except FileNotFoundError as cause:
        raise CorruptFile(
            f"log file {log.path} is missing, and the table lists it",
            hint="Open the table again: it may have been cleaned since. Otherwise restore the file from a copy.",
            context={"path": log.path},
        ) from cause

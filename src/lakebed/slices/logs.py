"""The log files of one file slice: the blocks that count, in merge order, and their rows when they are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptFile
from lakebed.format.data_block import DataBlock
from lakebed.format.delete_block import decode_deletes
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, decode_positions, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.merge.log_entries import (
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
from lakebed.slices.block_view import BlockView
from lakebed.slices.log_units import BlockOfUnit, LogUnit, open_unit, units_of
from lakebed.storage.base import Storage
from lakebed.storage.parallel import is_remote, once, parallel_map

_READERS = 8
# Opened blocks whose contents have up to this share of the memory bound stay open.
_KEPT_SHARE = 4


@dataclass(slots=True)
class MergeCounts:
    """What a slice's log files held and what they did to its rows: base rows that were `updated` or `deleted`, rows
    that were `inserted` behind them."""

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
    """The data and delete blocks of a slice that a view shows, oldest first. `ahead` names columns that will be asked
    for: small blocks, and all where the columns are few, decode them with the first ones."""

    blocks: tuple[BlockHead, ...]
    counts: MergeCounts
    memory: int
    ahead: Sequence[str] = ()
    _open: dict[int, LogUnit] = field(default_factory=dict[int, LogUnit])
    _kept: int = 0

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
        """Scan the files, in the given order, or with `by_instant` in that of their blocks' instants. Raises
        `CorruptFile` for one that is gone."""
        scanned = parallel_map(lambda log: _heads(storage, log), log_files, _READERS if is_remote(storage) else 1)
        heads = list(chain.from_iterable(scanned))
        shown = tuple(blocks_in_merge_order(heads, view.shows, by_instant=by_instant))
        counts = MergeCounts(
            log_files=len(log_files),
            log_bytes=sum(log.size for log in log_files),
            log_blocks=len(shown),
            corrupt_blocks=sum(head.type is BlockType.CORRUPT for head in heads),
            rollback_blocks=sum(head.type is BlockType.COMMAND for head in heads),
        )
        return cls(shown, counts, memory)

    @property
    def data(self) -> list[int]:
        """The numbers of the data blocks."""
        return [n for n, head in enumerate(self.blocks) if head.type is not BlockType.DELETE]

    @property
    def has_deletes(self) -> bool:
        """Whether there is a delete block."""
        return any(head.type is BlockType.DELETE for head in self.blocks)

    @property
    def stays_open(self) -> bool:
        """Whether the contents of all data blocks are held once they were read."""
        return self.data_bytes <= self.memory // _KEPT_SHARE

    @property
    def data_bytes(self) -> int:
        """Bytes of the contents of the data blocks."""
        return sum(self.blocks[n].content_length for n in self.data)

    def schemas(self) -> list[pa.Schema]:
        """The schemas of the data blocks, oldest first."""
        return [self.block(n).schema for n in self.data]

    def is_partial(self, number: int) -> bool:
        """Whether the records of a data block have some of the columns only."""
        return (self.blocks[number].header(HeaderKey.IS_PARTIAL) or "").lower() == "true"

    def block(self, number: int) -> DataBlock:
        """A data block, opened. Blocks stay open as long as their contents take little memory."""
        unit = self.unit(number)
        return unit.block if len(unit.numbers) == 1 else BlockOfUnit(unit, number)

    def unit(self, number: int) -> LogUnit:
        """The blocks that are read together with a data block; itself alone where contents do not stay open."""
        found = self._open.get(number)
        if found is None:
            numbers = self._units.get(number, (number,))
            size = sum(self.blocks[n].content_length for n in numbers)
            stays = self._kept + size <= self.memory // _KEPT_SHARE
            found = open_unit(self.blocks, numbers, self.ahead, stays=stays)
            if stays:
                self._kept += size
                self._open |= dict.fromkeys(numbers, found)
        return found

    @once
    def _units(self) -> dict[int, tuple[int, ...]]:
        found = units_of(self.blocks, self.data) if self.stays_open else []
        return {number: unit for unit in found for number in unit}

    def entries(self, rules: MergeRules, kinds: Sequence[pa.DataType], keys: KeyColumns) -> LogEntries:
        """What tells which of the records stay: `kinds` are the types of the ordering fields."""
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
        found = joined(parts, kinds)
        self.counts.log_records = len(found)
        return found

    def has_positions(self, base_instant: str) -> bool:
        """Whether every block tells for which rows of this base file its records are."""
        of_base = HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS
        told = (b.header(HeaderKey.RECORD_POSITIONS) and b.header(of_base) == base_instant for b in self.blocks)
        return bool(self.blocks) and all(told)

    def positions(self, entries: LogEntries, base_instant: str) -> Positions | None:
        """The row of the base file that each entry is for; None where a block does not tell it."""
        if not self.has_positions(base_instant):
            return None
        found: list[Positions] = []
        counts = np.bincount(entries.block, minlength=len(self.blocks)).tolist()
        for head, records in zip(self.blocks, counts, strict=True):
            header = head.header(HeaderKey.RECORD_POSITIONS) or ""
            rows = decode_positions(header, records, head.source.name, head.offset)
            if len(rows) != records:
                return None
            found.append(rows)
        return np.concatenate(found) if found else None


def _heads(storage: Storage, log: LogFile) -> Iterable[BlockHead]:
    try:
        return scan_blocks(FileSource(storage, log.path, log.size or None))
    except FileNotFoundError as cause:
        raise CorruptFile(
            f"log file {log.path} is missing, and the table lists it",
            hint="Open the table again: it may have been cleaned since. Otherwise restore the file from a copy.",
            context={"path": log.path},
        ) from cause

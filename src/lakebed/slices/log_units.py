"""Data blocks of a slice that are read together: small ones of one schema, so that ten upserts of a few rows cost as
much to read as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from lakebed.format.data_block import AvroBlock, DataBlock, JointBlock, open_data_block
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey
from lakebed.merge.log_entries import Positions
from lakebed.storage.parallel import once

# Contents of blocks up to this size are read together, so many bytes at a time.
_JOINED_BYTES = 1 << 20
_UNIT_BYTES = 4 << 20
# Contents up to this size are decoded once: each reading of a few records costs as much as one of hundreds.
_SMALL_BYTES = 64 << 10
# And so are contents of any size where so many columns are wanted: to find them costs as much as to decode them.
_FEW_COLUMNS = 4


@dataclass(frozen=True, eq=False)
class LogUnit:
    """Data blocks by their numbers, oldest first, and their rows one behind the other."""

    numbers: tuple[int, ...]
    block: DataBlock

    @once
    def rows_of(self) -> dict[int, range]:
        """Where the rows of each of the blocks are."""
        whole = self.block.whole if isinstance(self.block, DecodedBlock) else self.block
        counts = whole.counts if isinstance(whole, JointBlock) else [whole.rows]
        return dict(
            zip(self.numbers, (range(*edges) for edges in pairwise(accumulate(counts, initial=0))), strict=True)
        )


def units_of(heads: Sequence[BlockHead], numbers: Sequence[int]) -> list[tuple[int, ...]]:
    """Which of the data blocks of these numbers are read together."""
    found: list[list[int]] = []
    open_units: dict[str | None, tuple[list[int], int]] = {}
    for number in numbers:
        head = heads[number]
        size, schema = head.content_length, head.header(HeaderKey.SCHEMA)
        unit, held = open_units.get(schema, ([], 0))
        if head.type is not BlockType.AVRO_DATA or size > _JOINED_BYTES:
            found.append([number])
            continue
        if not unit or held + size > _UNIT_BYTES:
            unit, held = [], 0
            found.append(unit)
        unit.append(number)
        open_units[schema] = unit, held + size
    return [tuple(unit) for unit in found]


def open_unit(heads: Sequence[BlockHead], numbers: tuple[int, ...], ahead: Sequence[str], *, stays: bool) -> LogUnit:
    """Open the blocks of these numbers. What is small, or of few columns where the unit `stays` open, is decoded once,
    with the columns `ahead`."""
    blocks = [open_data_block(heads[n], heads[n].source.name) for n in numbers]
    joint = [block for block in blocks if isinstance(block, AvroBlock)]
    block = blocks[0] if len(blocks) == 1 else JointBlock(joint)
    size = sum(heads[n].content_length for n in numbers)
    if size <= _SMALL_BYTES or (stays and len(ahead) <= _FEW_COLUMNS):
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
        """As `DataBlock.read`."""
        mine = self._unit.rows_of[self._number]
        return self._unit.block.read(columns, np.arange(mine.start, mine.stop) if rows is None else rows + mine.start)


class DecodedBlock:
    """A data block that keeps what was decoded; `whole` is the block."""

    def __init__(self, whole: DataBlock, ahead: Sequence[str]) -> None:
        self.whole, self._ahead = whole, ahead
        self._held: pa.RecordBatch | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.whole.schema

    @property
    def rows(self) -> int:
        return self.whole.rows

    def read(self, columns: Sequence[str], rows: Positions | None = None) -> pa.RecordBatch:
        """As `DataBlock.read`."""
        known_names = frozenset(self.schema.names)
        names = [name for name in columns if name in known_names]
        held = self._held
        if held is None or not set(names) <= set(held.schema.names):
            before = [] if held is None else held.schema.names
            held = self._held = self.whole.read(list(dict.fromkeys([*before, *names, *self._ahead])))
        found = held.select(names)
        return found if rows is None or len(rows) == self.rows else found.take(pa.array(rows))

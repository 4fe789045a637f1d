"""Data blocks whose content is Avro records: AVRO_DATA, CDC_DATA, and HFILE_DATA, where they are an HFile's values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptFile
from lakebed.format.avro.record_reader import Stretch, joint_places, read_records, record_places
from lakebed.format.avro.types import RecordSchema, record_schema
from lakebed.format.block_rows import DICTIONARY_COLUMNS, batch_of, corrupt, naming_block
from lakebed.format.hashes import value_buffer
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.log_scan import BlockHead
from lakebed.storage.once import once

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Records = tuple[Bytes, Int64s, Int64s]
_HEAD = struct.Struct(">ii")
_VERSIONS = (1, 2, 3)
# Hudi takes the value of a field of this name out of the records of an HFile: it is the key.
_KEY = "key"


class AvroBlock:
    """Records one behind the other. The content is read when rows or their number are asked for, and held."""

    def __init__(self, head: BlockHead, path: str, avro_schema: str) -> None:
        self._head, self._path = head, path
        with naming_block(head, path):
            self._record: RecordSchema = record_schema(avro_schema)
        self.schema: pa.Schema = self._record.arrow

    def content(self) -> tuple[bytes | memoryview, int]:
        """The content, and how many records it tells of."""
        content = self._head.read()
        if len(content) < _HEAD.size:
            raise corrupt(self._head, self._path, f"a content of {len(content)} bytes")
        version, count = _HEAD.unpack_from(content)
        if version not in _VERSIONS:
            raise corrupt(self._head, self._path, f"it has the format version {version}")
        return content, count

    def records(self) -> Records:
        """The content, and where each record starts and ends in it."""
        content, count = self.content()
        with naming_block(self._head, self._path):
            starts, ends = record_places(content, count, _HEAD.size)
        return np.frombuffer(content, np.uint8), starts, ends

    @once
    def _records(self) -> Records:
        return self.records()

    @property
    def rows(self) -> int:
        return len(self._records[1])

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        return self.rows_of(self._records, columns, rows)

    def rows_of(self, records: Records, columns: Sequence[str], rows: Int64s | None) -> pa.RecordBatch:
        """Columns of such records."""
        data, starts, ends = records
        if rows is not None:
            starts, ends = starts[rows], ends[rows]
        known_names = frozenset(self.schema.names)
        names = [name for name in columns if name in known_names]
        texts = {name for name in DICTIONARY_COLUMNS if name in names and self.schema.field(name).type == pa.string()}
        with naming_block(self._head, self._path):
            arrays = read_records(data, starts, ends, self._record, names, texts)
        return batch_of(arrays, [self.schema.field(name) for name in names], len(starts))


class JointBlock:
    """AVRO_DATA blocks of one schema, small ones, as one: a step over the records of all costs as much as over those
    of one. `counts` are the numbers of their rows."""

    def __init__(self, blocks: Sequence[AvroBlock]) -> None:
        self._blocks = blocks
        self.schema: pa.Schema = blocks[0].schema

    @property
    def rows(self) -> int:
        return sum(self.counts)

    @property
    def counts(self) -> list[int]:
        return self._records[1]

    @once
    def _records(self) -> tuple[Records, list[int]]:
        contents = [block.content() for block in self._blocks]
        data = np.concatenate([np.frombuffer(content, np.uint8) for content, _ in contents])
        edges = np.cumsum([0, *(len(content) for content, _ in contents)]).tolist()
        counts = [count for _, count in contents]
        stretches = [Stretch(a + _HEAD.size, b, n) for (a, b), n in zip(pairwise(edges), counts, strict=True)]
        found = joint_places(data.data, stretches)
        if found is None:
            each = [block.records() for block in self._blocks]
            parts = [(starts + at, ends + at) for (_, starts, ends), at in zip(each, edges, strict=False)]
            found = np.concatenate([starts for starts, _ in parts]), np.concatenate([ends for _, ends in parts])
        starts, ends = found
        return (data, starts, ends), counts

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        """As `DataBlock.read`: the rows of the blocks are numbered one behind the other."""
        try:
            return self._blocks[0].rows_of(self._records[0], columns, rows)
        except CorruptFile:
            for block in self._blocks:  # the broken one names itself
                block.read(columns)
            raise


class HFileBlock(AvroBlock):
    """A whole HFile: record keys, and the records as values."""

    _keys: pa.Array

    def records(self) -> Records:
        with naming_block(self._head, self._path):
            entries = open_hfile(self._head.content).read()
        self._keys = entries.keys
        data, offsets = value_buffer(entries.values)
        return data, offsets[:-1], offsets[1:]

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        found = super().read(columns, rows)
        at = found.schema.get_field_index(_KEY)
        if at < 0 or found.schema.field(at).type != pa.string():
            return found
        keys = self._keys
        with naming_block(self._head, self._path):
            values = (keys if rows is None else keys.take(pa.array(rows))).cast(pa.binary()).cast(pa.string())
        return found.set_column(at, found.schema.field(at), values)

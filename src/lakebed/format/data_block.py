"""Data blocks of log files to Arrow and back: Avro, Parquet, HFile and change-log contents behind one interface."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.reader import Stretch, joint_bounds, read_records, record_bounds
from lakebed.format.avro.types import RecordSchema, record_schema
from lakebed.format.avro.writer import write_records
from lakebed.format.block_rows import DICTIONARY_COLUMNS, batch_of, corrupt, naming_block
from lakebed.format.hashes import value_buffer
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, LogBlock, avro_block, scan_blocks
from lakebed.format.parquet_block import BLOCK_SETTINGS, ParquetBlock, write_parquet
from lakebed.format.parquet_writer import ParquetSettings
from lakebed.format.sources import FileSource
from lakebed.sharing import once
from lakebed.storage.base import Storage

__all__ = ["DICTIONARY_COLUMNS", "DataBlock", "encode_data_block", "open_data_block", "read_log_rows"]

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Records = tuple[Bytes, Int64s, Int64s]
_HEAD = struct.Struct(">ii")
_VERSIONS = (1, 2, 3)
# Hudi takes the value of a field of this name out of the records of an HFile: it is the key.
_KEY = "key"


class AvroBlock:
    """A data block of Avro records. The content is read and cached when rows or their number are requested."""

    def __init__(self, head: BlockHead, path: str, avro_schema: str) -> None:
        self._head, self._path = head, path
        with naming_block(head, path):
            self._record: RecordSchema = record_schema(avro_schema)
        self.schema: pa.Schema = self._record.arrow

    def content(self) -> tuple[bytes | memoryview, int]:
        """The content's bytes, and the number of records in them."""
        content = self._head.read()
        if len(content) < _HEAD.size:
            raise corrupt(self._head, self._path, f"a content of {len(content)} bytes")
        version, count = _HEAD.unpack_from(content)
        if version not in _VERSIONS:
            raise corrupt(self._head, self._path, f"it has the format version {version}")
        return content, count

    @once
    def records(self) -> Records:
        """The block's content as bytes, and the starts and ends of its records."""
        content, count = self.content()
        with naming_block(self._head, self._path):
            starts, ends = record_bounds(content, count, _HEAD.size)
        return np.frombuffer(content, np.uint8), starts, ends

    @property
    def rows(self) -> int:
        return len(self.records[1])

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        return self.rows_of(self.records, columns, rows)

    def rows_of(self, records: Records, columns: Sequence[str], rows: Int64s | None) -> pa.RecordBatch:
        """The `columns` of the records at the positions `rows`, or of all records if `rows` is None."""
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
    """Small AVRO_DATA blocks of one schema that are read as one block, since a step over the records of all blocks
    costs as much as a step over those of one. `counts` are the numbers of records of the blocks."""

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
        bounds = joint_bounds(data.data, stretches)
        if bounds is None:
            block_records = [block.records for block in self._blocks]
            parts = [(starts + at, ends + at) for (_, starts, ends), at in zip(block_records, edges, strict=False)]
            bounds = np.concatenate([starts for starts, _ in parts]), np.concatenate([ends for _, ends in parts])
        starts, ends = bounds
        return (data, starts, ends), counts

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        """The `columns` of the records at the positions `rows`, or of all records if `rows` is None; the records of all
        blocks are numbered consecutively."""
        try:
            return self._blocks[0].rows_of(self._records[0], columns, rows)
        except CorruptFile:
            for block in self._blocks:  # the broken one names itself
                block.read(columns)
            raise


class HFileBlock(AvroBlock):
    """A whole HFile: record keys, and the records as values."""

    _keys: pa.Array

    @once
    def records(self) -> Records:
        with naming_block(self._head, self._path):
            entries = open_hfile(self._head.content).read()
        self._keys = entries.keys
        data, offsets = value_buffer(entries.values)
        return data, offsets[:-1], offsets[1:]

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        batch = super().read(columns, rows)
        at = batch.schema.get_field_index(_KEY)
        if at < 0 or batch.schema.field(at).type != pa.string():
            return batch
        keys = self._keys
        with naming_block(self._head, self._path):
            values = (keys if rows is None else keys.take(pa.array(rows))).cast(pa.binary()).cast(pa.string())
        return batch.set_column(at, batch.schema.field(at), values)


_AVRO_HEAD = struct.Struct(">ii")
_AVRO_VERSION = 3
_OF_ROWS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA)


class DataBlock(Protocol):
    """An open data block. Until `read` is called, only its number of rows is read."""

    @property
    def schema(self) -> pa.Schema:
        """The block's schema in Arrow types, with the meta columns."""
        ...

    @property
    def rows(self) -> int: ...

    def read(self, columns: Sequence[str], rows: Int64s | None = None) -> pa.RecordBatch:
        """The `columns` in this order, without the columns that the block does not have, of the rows at the positions
        `rows` (ascending; None: all). Only the requested columns and rows are decoded. Raises `CorruptFile`.

        Commit time, partition path and file name come as dictionaries (int32 to string), all else in the types of the
        schema.
        """
        ...


def open_data_block(head: BlockHead, path: str) -> DataBlock:
    """The block of AVRO_DATA, CDC_DATA, PARQUET_DATA or HFILE_DATA; its content is read once, or by ranges.

    Raises `CorruptFile` with path and offset.
    """
    schema = head.header(HeaderKey.SCHEMA)
    if schema is None:
        raise corrupt(head, path, "it has no schema")
    opener = _KINDS.get(head.type)
    if opener is None:
        raise UnsupportedFeature(f"{path}: the block at offset {head.offset} of type {head.type.name} holds no rows")
    return opener(head, path, schema)


def read_log_rows(storage: Storage, path: str, size: int | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The `columns` of all rows in a log file's data blocks, as they were logged; a column that a block does not have
    is missing in its batch. Raises `CorruptFile`."""
    for head in scan_blocks(FileSource(storage, path, size)):
        if head.type in _OF_ROWS:
            yield open_data_block(head, path).read(columns)


def encode_data_block(
    rows: Sequence[pa.RecordBatch],
    avro_schema: str,
    headers: Mapping[int, str],
    kind: BlockType = BlockType.AVRO_DATA,
    settings: ParquetSettings = BLOCK_SETTINGS,
) -> LogBlock:
    """A block of these rows, which have the schema's columns (matched by name) in stored types; any column may be a
    dictionary. `headers` are written as given, and SCHEMA is added. `settings` are the settings of a Parquet block."""
    if kind is BlockType.PARQUET_DATA:
        content = write_parquet(rows, avro_schema, settings)
    elif kind in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
        return avro_block(*write_records(rows, avro_schema), avro_schema, headers, kind)
    else:
        raise UnsupportedFeature(f"blocks of type {kind.name} are not written")
    return LogBlock(kind, {**headers, int(HeaderKey.SCHEMA): avro_schema}, content)


_KINDS: dict[BlockType, Callable[[BlockHead, str, str], DataBlock]] = {
    BlockType.AVRO_DATA: AvroBlock,
    BlockType.CDC_DATA: AvroBlock,
    BlockType.PARQUET_DATA: ParquetBlock,
    BlockType.HFILE_DATA: HFileBlock,
}


LogMode = Literal["OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"]
"""The parts of each change that a change log holds: operation and record key, also the row before it, or both rows."""

OP, KEY, TIME, BEFORE, AFTER = "op", "record_key", "ts_ms", "before", "after"
INSERT, UPDATE, DELETE = "i", "u", "d"

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "OP_KEY_ONLY": (OP, KEY),
    "DATA_BEFORE": (OP, KEY, BEFORE),
    "DATA_BEFORE_AFTER": (OP, TIME, BEFORE, AFTER),
}
"""The fields of a change log's records by mode, in their order."""


def change_log_schema(mode: LogMode, table: str) -> str:
    """The Avro schema of a change log; `table` is that of the table's columns without meta columns.

    >>> change_log_schema("OP_KEY_ONLY", "{}")[:44]
    '{"type":"record","name":"Record","fields":[{'
    """
    if mode == "OP_KEY_ONLY":
        fields: list[dict[str, Any]] = [{"name": name, "type": ["string", "null"]} for name in COLUMNS[mode]]
        return _dump({"type": "record", "name": "Record", "fields": fields})
    record = cast("dict[str, Any]", json.loads(table))
    namespace = record.get("namespace") or ""
    image = {name: value for name, value in record.items() if name != "namespace"}
    kinds: dict[str, Any] = {BEFORE: image, AFTER: record["name"]}
    fields = [
        {"name": name, "type": ["null", kinds.get(name, "string")], "doc": "", "default": None}
        for name in COLUMNS[mode]
    ]
    return _dump({"type": "record", "name": "CDC", "namespace": namespace, "doc": "", "fields": fields})


def change_log_block(rows: Sequence[pa.RecordBatch], avro_schema: str, instant: str) -> LogBlock:
    """A block of changes, which have the columns of the schema."""
    headers = {int(HeaderKey.INSTANT_TIME): instant}
    return encode_data_block(rows, avro_schema, headers, BlockType.CDC_DATA)


def _dump(avro: Any) -> str:
    return json.dumps(avro, separators=(",", ":"), ensure_ascii=False)

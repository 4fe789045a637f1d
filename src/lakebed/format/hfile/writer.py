"""Writing HFiles as Hudi's own writer does, from columns of sorted keys and values."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from lakebed.errors import InvalidRecord
from lakebed.format.bloom import BloomFilter
from lakebed.format.hashes import plain_strings, value_buffer
from lakebed.format.hfile import blocks as blocks
from lakebed.format.hfile.blocks import KEY_TAIL, BlockHandle
from lakebed.format.hfile.entries import Int64s
from lakebed.storage.parallel import parallel_map

Codec = Literal["gzip", "none"]
Write = Callable[[bytes], Any]

BLOCK_BYTES: Final = 1 << 20
# Hudi's reader reads key lengths as signed.
MAX_KEY_BYTES: Final = 0x7FFF
# Hudi's reader skips entries that start within the checksums' size of a block's end: so one checksum a block.
_BYTES_PER_CHECKSUM: Final = 0x7FFFFFFF
_CHECKSUM: Final = bytes(4)
_GZIP_LEVEL: Final = 2
_FIXED_BYTES: Final = 21
# What is put together at a time: enough blocks for all threads, a small part of a large file's memory.
_BATCH_BYTES: Final = 8 << 20
_COMPARATOR: Final = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_KEY_TAIL: Final = pa.scalar(KEY_TAIL, pa.binary())
_VERSION: Final = pa.scalar(b"\0", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())
_NOWHERE: Final = 0xFFFFFFFFFFFFFFFF


def write_hfile(
    keys: Any,
    values: Any,
    *,
    schema_json: str,
    codec: Codec = "gzip",
    block_size: int = BLOCK_BYTES,
    bloom: BloomFilter | None = None,
    hbase_keys: bool = False,
    info: Mapping[bytes, bytes] | None = None,
) -> bytes:
    """The bytes of an HFile of these entries; the arguments are those of `HFileWriter`."""
    parts: list[bytes] = []
    writer = HFileWriter(
        parts.append,
        schema_json=schema_json,
        codec=codec,
        block_size=block_size,
        bloom=bloom,
        hbase_keys=hbase_keys,
        info=info,
    )
    writer.write(keys, values)
    writer.finish()
    return b"".join(parts)


class HFileWriter:
    """An HFile written as its entries come, in ascending byte order of their keys; `write_to` takes the bytes.

    - `schema_json`: the Avro schema of the values.
    - `block_size`: bytes of entries in a block, but that an entry is never split.
    - `bloom`: goes to the file as it is at the end, with the smallest and the largest key: the caller adds
      the keys.
    - `hbase_keys`: readers of Hudi before 1.0 can look up keys too (tables of version 6, and of 8 where they matter).
    - `info`: more entries of the file info, or others than those of its own.
    """

    def __init__(
        self,
        write_to: Write,
        *,
        schema_json: str,
        codec: Codec = "gzip",
        block_size: int = BLOCK_BYTES,
        bloom: BloomFilter | None = None,
        hbase_keys: bool = False,
        info: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self._write_to = write_to
        self._codec = {"gzip": blocks.GZIP, "none": blocks.NONE}[codec]
        self._block_size = block_size
        self._bloom = bloom
        self._tail = KEY_TAIL if hbase_keys else b""
        self._info = {b"schema": schema_json.encode(), **(info or {})}
        self._offset = 0
        self._index: list[BlockHandle] = []
        # of the block that is not full yet: its first key and bytes
        self._first_key = b""
        self._open_block: list[memoryview] = []
        self._begun_bytes = 0
        self._smallest: bytes | None = None
        self._greatest: bytes | None = None
        self._entries = self._key_bytes = self._value_bytes = 0

    def write(self, keys: Any, values: Any) -> None:
        """Append entries: any Arrow string or binary columns without nulls. Raises `ValueError` if the keys do not
        ascend, and `InvalidRecord` for a key of more than 32,767 bytes."""
        keys, values = _binary(keys), _binary(values)
        if len(keys) != len(values) or keys.null_count or values.null_count:
            raise ValueError("keys and values must be as many as each other, without nulls")
        if len(keys):
            self._check_order(keys)
            for first, count in runs_of_bytes(keys, values, _BATCH_BYTES, entry_bytes=_FIXED_BYTES):
                self._write_batch(keys.slice(first, count), values.slice(first, count))

    def finish(self) -> int:
        """Write the last block, the indexes and the trailer. Returns the size of the file."""
        if self._open_block:
            self._emit_blocks([(self._first_key, b"".join(self._open_block))])
        metas: list[BlockHandle] = []
        if self._bloom is not None:
            offset = self._offset
            metas.append(BlockHandle(b"bloomFilter", offset, self._emit(blocks.META, self._bloom.to_text().encode())))
        load_on_open = self._offset
        self._emit(
            blocks.ROOT_INDEX, _index([handle._replace(key=self._cell_key(handle.key)) for handle in self._index])
        )
        self._emit(blocks.ROOT_INDEX, _index(metas))
        info_offset = self._offset
        self._emit(blocks.FILE_INFO, blocks.file_info_payload(self._file_info()))
        trailer: dict[int, int | bytes] = {
            1: info_offset,
            2: load_on_open,
            3: self._key_bytes + self._value_bytes + _FIXED_BYTES * self._entries,
            5: len(self._index),
            6: len(metas),
            7: self._entries,
            8: 1,
            9: self._index[0].offset if self._index else _NOWHERE,
            10: self._index[-1].offset if self._index else 0,
            11: _COMPARATOR,
            12: self._codec,
        }
        self._write_to(blocks.trailer_bytes(trailer))
        self._offset += blocks.TRAILER_BYTES
        return self._offset

    def _check_order(self, keys: pa.Array) -> None:
        ascends = len(keys) < 2 or pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py()
        first = keys[0].as_py()
        if not ascends or (self._greatest is not None and first <= self._greatest):
            raise ValueError("an HFile's keys must ascend in byte order, each once")
        longest = pc.max(pc.binary_length(keys)).as_py()
        if longest > MAX_KEY_BYTES:
            raise InvalidRecord(
                f"a key has {longest} bytes",
                hint=f"Keys in the metadata table have at most {MAX_KEY_BYTES} bytes.",
            )
        self._smallest = first if self._smallest is None else self._smallest
        self._greatest = keys[len(keys) - 1].as_py()

    def _write_batch(self, keys: pa.Array, values: pa.Array) -> None:
        key_sizes, value_sizes = np.diff(value_buffer(keys)[1]), np.diff(value_buffer(values)[1])
        self._entries += len(keys)
        self._key_bytes += int(key_sizes.sum())
        self._value_bytes += int(value_sizes.sum())
        ends = np.cumsum(key_sizes + value_sizes + _FIXED_BYTES)
        data = memoryview(_entry_bytes(keys, values, key_sizes, value_sizes))
        full: list[tuple[bytes, bytes | memoryview]] = []
        start = 0
        for row in _block_starts(ends, self._begun_bytes, self._block_size):
            begin, end = (int(ends[at - 1]) if at else 0 for at in (start, row))
            if row:
                self._begin(keys, start, data[begin:end])
            full.append(
                (self._first_key, self._open_block[0] if len(self._open_block) == 1 else b"".join(self._open_block))
            )
            self._open_block, self._begun_bytes, start = [], 0, row
        self._emit_blocks(full)
        begin = int(ends[start - 1]) if start else 0
        self._begin(keys, start, memoryview(bytes(data[begin:])))

    def _begin(self, keys: pa.Array, row: int, data: memoryview) -> None:
        if not self._open_block:
            self._first_key = keys[row].as_py()
        self._open_block.append(data)
        self._begun_bytes += len(data)

    def _emit_blocks(self, payloads: list[tuple[bytes, bytes | memoryview]]) -> None:
        threads = min(4, os.cpu_count() or 1, len(payloads))
        plain = [data for _, data in payloads]
        one_by_one = threads < 2 or self._codec == blocks.NONE
        deflated = map(self._deflate, plain) if one_by_one else parallel_map(self._deflate, plain, threads)
        for (key, payload), stored in zip(payloads, deflated, strict=True):
            # as Hudi writes it: not the offset of the block before but that of this one
            previous = self._offset if self._index else -1
            offset = self._offset
            self._index.append(BlockHandle(key, offset, self._emit(blocks.DATA, payload, stored, previous)))

    def _deflate(self, payload: bytes | memoryview) -> bytes | memoryview:
        return isal_zlib.compress(payload, _GZIP_LEVEL, 31) if self._codec == blocks.GZIP else payload

    def _emit(
        self, magic: bytes, payload: bytes | memoryview, stored: bytes | memoryview | None = None, previous: int = -1
    ) -> int:
        """Write one block, which is compressed here unless `stored` has the compressed bytes. Returns its size."""
        stored = self._deflate(payload) if stored is None else stored
        size = blocks.HEADER.size + len(stored)
        on_disk = len(stored) + len(_CHECKSUM)
        head = blocks.HEADER.pack(magic, on_disk, len(payload), previous, 0, _BYTES_PER_CHECKSUM, size)
        self._write_to(b"".join([head, stored, _CHECKSUM]))
        self._offset += size + len(_CHECKSUM)
        return size + len(_CHECKSUM)

    def _cell_key(self, row: bytes) -> bytes:
        return struct.pack(">H", len(row)) + row + self._tail

    def _file_info(self) -> Mapping[bytes, bytes]:
        count = max(self._entries, 1)
        info = {b"MAX_MEMSTORE_TS_KEY": bytes(8)}
        if self._bloom is not None:
            info[b"bloomFilterTypeCode"] = self._bloom.type_code.encode()
            if self._smallest is not None and self._greatest is not None:
                info |= {b"minRecordKey": self._smallest, b"maxRecordKey": self._greatest}
        info |= {
            b"hfile.LASTKEY": b"" if self._greatest is None else self._cell_key(self._greatest),
            b"hfile.AVG_KEY_LEN": struct.pack(">i", self._key_bytes // count),
            b"hfile.CREATE_TIME_TS": struct.pack(">q", time.time_ns() // 1_000_000),
            b"hfile.AVG_VALUE_LEN": struct.pack(">i", self._value_bytes // count),
            b"KEY_VALUE_VERSION": struct.pack(">i", 1),
            **self._info,
        }
        if self._greatest is None and self._tail:
            # HBase's reader opens no file with an empty one
            del info[b"hfile.LASTKEY"]
        return info


def _binary(column: Any) -> pa.Array:
    array = plain_strings(column)
    if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        return array.cast(pa.large_binary())
    return array.cast(pa.binary())


def runs_of_bytes(
    keys: pa.Array, values: pa.Array, max_bytes: int, *, entry_bytes: int = 0
) -> Iterator[tuple[int, int]]:
    """Runs of entries (first entry, number of entries) of at most `max_bytes`, or with one entry; `entry_bytes` is what
    an entry takes beside its key and value.

    >>> list(runs_of_bytes(pa.array(["a", "b", "cc"]), pa.array([b"1", b"2", b"3"]), 4))
    [(0, 2), (2, 1)]
    """
    if keys.nbytes + values.nbytes + entry_bytes * len(keys) <= max_bytes:
        yield from [(0, len(keys))] if len(keys) else ()
        return
    sizes = np.diff(value_buffer(keys)[1]) + np.diff(value_buffer(values)[1]) + entry_bytes
    ends, first = np.cumsum(sizes), 0
    while first < len(ends):
        limit = (int(ends[first - 1]) if first else 0) + max_bytes
        last = max(int(np.searchsorted(ends, limit, side="right")), first + 1)
        yield first, last - first
        first = last


def _block_starts(ends: Int64s, open_bytes: int, size: int) -> Iterator[int]:
    """The numbers of the entries that begin a new block; the current block has `open_bytes` bytes at the start."""
    start, row = -open_bytes, 0
    while True:
        # a block takes one entry whatever its size
        first = row if open_bytes else row + 1
        row = max(int(np.searchsorted(ends, start + size, side="right")), first)
        if row >= len(ends):
            return
        yield row
        start, open_bytes = int(ends[row - 1]) if row else 0, 0


def _entry_bytes(keys: pa.Array, values: pa.Array, key_sizes: Int64s, value_sizes: Int64s) -> pa.Buffer:
    """The entries back to back: lengths, row, the rest of the cell key, value, version 0."""
    heads = np.empty(len(keys), [("key", ">i4"), ("value", ">i4"), ("row", ">u2")])
    heads["key"], heads["value"], heads["row"] = key_sizes + 12, value_sizes, key_sizes
    offsets = np.arange(0, 10 * len(keys) + 1, 10, dtype=np.int32)
    head = pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(offsets), pa.py_buffer(heads)])
    parts = head, keys.cast(pa.binary()), _KEY_TAIL, values.cast(pa.binary()), _VERSION
    cells = pc.binary_join_element_wise(*parts, _NOTHING)
    return cells.buffers()[2]


def _index(handles: list[BlockHandle]) -> bytes:
    """The bytes of a root index."""
    parts: list[bytes] = []
    for key, offset, size in handles:
        parts += [struct.pack(">qi", offset, size), blocks.vint(len(key)), key]
    return b"".join(parts)

"""Reading HFiles, the base files of the metadata table: all entries, some keys, or some prefixes, as Arrow columns.
The block index gives the blocks that can hold them.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import le
from threading import BoundedSemaphore
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.bloom import BloomFilter
from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.hfile import blocks as blocks
from lakebed.format.hfile.blocks import BlockHandle, Buffer, Damaged
from lakebed.format.hfile.entries import BLOCKS, Entries, EntryBlock, Int64s, joined, parse_entries
from lakebed.format.hfile.search import Queries
from lakebed.format.sources import BytesSource, ReadRange
from lakebed.sharing import once
from lakebed.storage.parallel import parallel_map

# UTF-8 and UTF-16 sort equally but for characters from U+E000 on, whose first byte is not below this one.
_FIRST_ODD_BYTE: Final = 0xEE
_Order = Callable[[bytes], bytes]


class Route:
    """The index keys of a file's blocks. They ascend in byte order, or, in files of real Hudi with rare characters, in
    the order of UTF-16. Keys without such characters have the same position in both orders. Other keys are sent to the
    blocks of each order in which the index is sorted, or to all blocks if it is sorted in neither."""

    def __init__(self, index: Sequence[bytes]) -> None:
        self._index = index
        odd = bool((np.frombuffer(b"".join(index), np.uint8) >= _FIRST_ODD_BYTE).any())
        self._orders: list[tuple[_Order, Sequence[bytes]]] = [(bytes, index)] if _ascends(index) else []
        if odd and _ascends(keys := [_utf16(key) for key in index]):
            self._orders.append((_utf16, keys))
        self._all_plain = not odd

    def keys(self, queries: Queries) -> Mapping[int, Int64s]:
        """The positions of the queries that each block may answer, by block number."""
        count = len(queries)
        if not count or not self._index:
            return {}
        if not self._orders:
            return self._everywhere(count)
        if not self._all_plain and bool((queries.data >= _FIRST_ODD_BYTE).any()):
            return self._one_by_one(queries, self._blocks_of_key)
        if count < len(self._index):
            return self._one_by_one(queries, self._blocks_of_key)
        # the queries ascend: each block's are a run of them
        cuts = [bisect_left(range(count), key, key=queries.__getitem__) for key in self._index]
        runs = enumerate(pairwise([*cuts, count]))
        return {number: np.arange(start, end) for number, (start, end) in runs if start < end}

    def few(self, keys: Sequence[bytes]) -> Mapping[int, Int64s]:
        """The positions of the keys that each block may have, by block number, for a few keys in any order."""
        return self._one_by_one(keys, self._blocks_of_key) if self._orders else self._everywhere(len(keys))

    def prefixes(self, queries: Queries) -> Mapping[int, Int64s]:
        """The positions of the prefixes with which keys of each block may begin, by block number."""
        if not self._orders:
            return self._everywhere(len(queries))
        return self._one_by_one(queries, self._blocks_of_prefix)

    def _everywhere(self, count: int) -> Mapping[int, Int64s]:
        return {number: np.arange(count) for number in range(len(self._index))}

    def _one_by_one(
        self, queries: Queries | Sequence[bytes], blocks: Callable[[bytes], set[int]]
    ) -> Mapping[int, Int64s]:
        positions_by_block: dict[int, list[int]] = {}
        for position in range(len(queries)):
            for number in blocks(queries[position]):
                positions_by_block.setdefault(number, []).append(position)
        return {number: np.array(positions, np.int64) for number, positions in positions_by_block.items()}

    def _blocks_of_key(self, key: bytes) -> set[int]:
        numbers = {bisect_right(keys, order(key)) - 1 for order, keys in self._orders}
        return numbers - {-1}

    def _blocks_of_prefix(self, prefix: bytes) -> set[int]:
        numbers: set[int] = set()
        for order, keys in self._orders:
            target = order(prefix)
            first = max(bisect_right(keys, target) - 1, 0)
            end = bisect_right(keys, target, key=lambda key: key[: len(target)])
            numbers.update(range(first, end))
        return numbers


def _utf16(key: bytes) -> bytes:
    return key.decode("utf-8", "ignore").encode("utf-16-be")


def _ascends(keys: Sequence[bytes]) -> bool:
    return all(map(le, keys, islice(keys, 1, None)))


# Files up to this size come in one request; of larger ones the end that most likely holds all that is read on opening.
_SMALL_FILE_BYTES: Final = 256 << 10
_END_BYTES: Final = 64 << 10
_SHORTER: Final = "it is shorter than it was"
# The indexes of large files that stay in memory.
_OPENINGS_BYTES: Final = 32 << 20
_MEMORY_OF_AN_OPENING: Final = 4 << 10
_MEMORY_OF_A_HANDLE: Final = 300
# What is fetched, and then inflated, at a time.
_WAVE_BYTES: Final = 32 << 20
_WAVE_BLOCKS: Final = 64
# So many keys are looked up one by one: two thirds of a lookup of one key are steps made for many.
_MAX_KEYS: Final = 32
_POOL_FROM_BYTES: Final = 256 << 10
_THREADS: Final = min(4, os.cpu_count() or 1)

# What a file was written from: its entries, and the schema of their values.
Written = tuple[Entries, str]
_Search = Callable[[EntryBlock, Queries, Int64s], tuple[Int64s, Int64s]]


@dataclass(frozen=True, slots=True)
class LookupMatches:
    """The entries of a lookup, in the file's order. `query` (int32) is, for each entry, the position of the requested
    key or prefix that it answers."""

    query: pa.Array
    entries: Entries

    def __len__(self) -> int:
        return len(self.query)


def open_hfile(source: ReadRange | bytes | memoryview, *, keep_entries: bool = False) -> HFileReader:
    """Open an HFile with one request, or two if the index is large. With `keep_entries` the result of `read` is cached.

    Raises `CorruptFile` for bytes that are no whole HFile, `UnsupportedFeature` for a codec other than gzip and none.
    """
    opened = BytesSource(source) if isinstance(source, bytes | memoryview) else source
    return HFileReader(opened, keep_entries=keep_entries)


class HFileReader:
    """An open HFile. Its indexes are in memory; blocks are read when needed and shared through the cache of blocks.

    `written` is given for a file that this process has just written, which is then read only for a lookup in it.

    >>> from lakebed.format.hfile.writer import write_hfile
    >>> data = write_hfile(pa.array(["a", "b"]), pa.array([b"1", b"2"]), schema_json='"bytes"')
    >>> file = open_hfile(data)
    >>> file.entry_count, file.schema_json
    (2, '"bytes"')
    >>> matches = file.lookup(pa.array(["c", "b"]))
    >>> matches.query.to_pylist(), matches.entries.values.to_pylist()
    ([1], [b'2'])
    """

    def __init__(self, source: ReadRange, *, keep_entries: bool = False, written: Written | None = None) -> None:
        self._source = source
        self._keep_entries = keep_entries
        self._entries: Entries | None = None
        # the cache key of this file's blocks, and the number of its blocks
        self.blocks: tuple[tuple[Any, ...], int] = source.key, 0
        if written is None:
            self.__dict__["_opening"] = self._open()
            self.entry_count = self._opening.trailer.entry_count
            self.blocks = source.key, len(self._opening.handles)
        else:
            self._entries, self.__dict__["schema_json"] = written
            self.entry_count = len(self._entries)

    @once
    def _opening(self) -> _Opening:
        """The file's trailer, index and info. Those of a file that this process wrote are read at first use."""
        return self._open()

    def _open(self) -> _Opening:
        """The file's trailer, index and info, of a large file from the cache."""
        key = self._source.key if self._source.size > _SMALL_FILE_BYTES else ()
        opening = OPENINGS.get(key) if key else None
        if opening is None:
            with self._damage():
                opening = _Opening(self._source)
            if key:
                OPENINGS.put(key, opening)
        return opening

    @property
    def info(self) -> Mapping[bytes, bytes]:
        """The file info."""
        return self._opening.info

    @once
    def schema_json(self) -> str:
        """The Avro schema of the values as JSON text; empty if the file does not have one."""
        return self._text(b"schema")

    @once
    def bloom(self) -> BloomFilter | None:
        """The bloom filter over the keys, read at first use; None if the file does not have one."""
        handle = next((handle for handle in self._opening.metas if handle.key == b"bloomFilter"), None)
        if handle is None:
            return None
        with self._damage(handle.offset):
            raw = self._source.read(handle.offset, handle.size)
            payload, _ = blocks.read_block(raw, 0, blocks.META, self._opening.trailer.codec)
        kind = self._text(b"bloomFilterTypeCode") or "DYNAMIC_V0"
        return BloomFilter.from_text(bytes(payload), kind, path=self._source.name)

    def read(self) -> Entries:
        """All entries of the file, in its order."""
        if self._entries is not None:
            return self._entries
        parts = list(self.batches())
        entries = parts[0] if len(parts) == 1 else joined(parts)
        if len(entries) != self.entry_count:
            raise blocks.corrupt(
                self._source.name, f"it has {len(entries)} entries, its trailer has {self.entry_count}"
            )
        if self._keep_entries:
            self._entries = entries
        return entries

    def batches(self) -> Iterator[Entries]:
        """All entries of the file, in its order, one `Entries` per block; the next blocks are decoded meanwhile."""
        for _, entries in self._each_block(
            range(len(self._opening.handles)), lambda _, block: block.entries(), keep=False
        ):
            yield entries

    def lookup(self, keys: Any) -> LookupMatches:
        """The entries with these keys (any Arrow string or binary column; sorted keys save a sort; a null key matches
        no entry).

        A key that occurs more than once in the file gives all its entries, one asked for twice is answered twice.
        """
        from lakebed.format.hfile.search import as_binary, exact

        if len(keys) <= _MAX_KEYS:
            return self._lookup_few(as_binary(keys).to_pylist())
        queries = Queries(keys)
        matches = self._search(queries, self._opening.route.keys(queries), exact)
        same = pc.equal(matches.entries.keys, queries.array.take(matches.query).cast(matches.entries.keys.type))
        if not pc.all(same).as_py():
            entries = Entries(matches.entries.keys.filter(same), matches.entries.values.filter(same))
            matches = LookupMatches(matches.query.filter(same), entries)
        return LookupMatches(pa.array(queries.positions).take(matches.query), matches.entries)

    def _lookup_few(self, keys: Sequence[bytes | None]) -> LookupMatches:
        """The entries with these keys, searched key by key: for a few keys this takes less time than the set-up for
        many. A null key matches no entry."""
        from lakebed.format.hfile.search import entries_of

        positions = [at for at, key in enumerate(keys) if key is not None]
        requested = [key for key in keys if key is not None]
        route = self._opening.route.few(requested)

        def hits(number: int, block: EntryBlock) -> tuple[list[int], Entries] | None:
            block_hits = sorted((entry, n) for n in route[number].tolist() for entry in entries_of(block, requested[n]))
            if not block_hits:
                return None
            return [positions[n] for _, n in block_hits], block.entries(np.array([entry for entry, _ in block_hits]))

        block_hits = [hit for _, hit in self._each_block(sorted(route), hits, keep=True) if hit is not None]
        return LookupMatches(
            pa.array([at for hit in block_hits for at in hit[0]], pa.int32()), joined([hit[1] for hit in block_hits])
        )

    def prefix(self, prefixes: Any) -> LookupMatches:
        """The entries whose keys begin with one of the prefixes."""
        from lakebed.format.hfile.search import with_prefix

        queries = Queries(prefixes)
        matches = self._search(queries, self._opening.route.prefixes(queries), with_prefix)
        return LookupMatches(pa.array(queries.positions).take(matches.query), matches.entries)

    def _search(self, queries: Queries, route: Mapping[int, Int64s], search: _Search) -> LookupMatches:
        def hits(number: int, block: EntryBlock) -> tuple[Int64s, Entries]:
            requested, positions = search(block, queries, route[number])
            return requested, block.entries(positions)

        block_hits = [hit for _, hit in self._each_block(sorted(route), hits, keep=True)]
        requested = [hit[0] for hit in block_hits] or [np.empty(0, np.int64)]
        return LookupMatches(
            pa.array(np.concatenate(requested).astype(np.int32)), joined([hit[1] for hit in block_hits])
        )

    def _each_block(
        self, numbers: Sequence[int], work: Callable[[int, EntryBlock], Any], *, keep: bool
    ) -> Iterator[tuple[int, Any]]:
        """Call `work` for each of these blocks and return its results in order. Uncached blocks are fetched in waves
        and parsed by several threads; with `keep` they go to the cache."""
        key, opening = self._source.key, self._opening
        for wave in self._waves(numbers):
            cached = {number: BLOCKS.get((*key, number)) if key else None for number in wave}
            missing = [number for number, block in cached.items() if block is None]
            handles = [opening.handles[number] for number in missing]
            stored = self._source.read_many([(handle.offset, handle.size) for handle in handles]) if missing else []
            raw = dict(zip(missing, stored, strict=True))

            # only to inflate pays in threads
            threads = 1 if opening.trailer.codec == blocks.NONE else min(_THREADS, len(missing))
            # NumPy's short steps in many threads hand the interpreter to and fro: some inflate while others parse
            turns = BoundedSemaphore(max(1, threads // 2))

            def make(
                number: int,
                cached: Mapping[int, EntryBlock | None] = cached,
                raw: Mapping[int, Buffer] = raw,
                turns: BoundedSemaphore = turns,
            ) -> tuple[int, Any]:
                block, handle = cached[number], opening.handles[number]
                if block is not None:
                    return number, work(number, block)
                with self._damage(handle.offset):
                    if len(raw[number]) != handle.size:
                        raise Damaged("the file ends within it")
                    payload, _ = blocks.read_block(raw[number], 0, blocks.DATA, opening.trailer.codec)
                with turns:
                    with self._damage(handle.offset):
                        block = parse_entries(payload, mvcc=opening.mvcc)
                    if keep and key:
                        BLOCKS.put((*key, number), block)
                    return number, work(number, block)

            if threads > 1 and sum(handle.size for handle in handles) > _POOL_FROM_BYTES:
                yield from parallel_map(make, wave, threads)
            else:
                yield from map(make, wave)

    def _waves(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        wave, size = list[int](), 0
        for number in numbers:
            block_bytes = self._opening.handles[number].size
            if wave and (size + block_bytes > _WAVE_BYTES or len(wave) == _WAVE_BLOCKS):
                yield wave
                wave, size = [], 0
            wave.append(number)
            size += block_bytes
        if wave:
            yield wave

    def _text(self, name: bytes) -> str:
        try:
            return self._opening.info.get(name, b"").decode()
        except UnicodeDecodeError as cause:
            raise blocks.corrupt(self._source.name, f"its {name.decode()} is no text") from cause

    @contextmanager
    def _damage(self, offset: int | None = None) -> Generator[None]:
        """Turns `Damaged` into `CorruptFile` with the file's name."""
        try:
            yield
        except Damaged as error:
            raise blocks.corrupt(self._source.name, error, offset) from error


class _Opening:
    """The opening of an HFile, which reads its trailer and everything between the last data block and the trailer."""

    def __init__(self, source: ReadRange) -> None:
        size = source.size
        if size < blocks.TRAILER_BYTES + 3 * blocks.HEADER.size:
            raise Damaged(f"it has {size} bytes")
        length = size if size <= _SMALL_FILE_BYTES else _END_BYTES
        end = source.read(size - length, length)
        if len(end) != length:
            raise Damaged(_SHORTER)
        self.trailer = blocks.read_trailer(end[-blocks.TRAILER_BYTES :], size)
        missing = size - length - self.trailer.load_on_open_offset
        if missing > 0:
            end = b"".join([source.read(self.trailer.load_on_open_offset, missing), end])
            if len(end) != length + missing:
                raise Damaged(_SHORTER)
        start = size - len(end)
        data = memoryview(end)[self.trailer.load_on_open_offset - start : -blocks.TRAILER_BYTES]
        codec, limit = self.trailer.codec, self.trailer.load_on_open_offset
        root, at = blocks.read_block(data, 0, blocks.ROOT_INDEX, codec)
        count, single = self.trailer.data_index_count, self.trailer.index_levels == 1
        self.handles = blocks.read_root_index(root, count, rows=True, is_complete=single)
        blocks.check_handles(self.handles, limit)
        if not single:
            self.handles = self._lowest(source, self.handles, limit)
        metas, _ = blocks.read_block(data, at, blocks.ROOT_INDEX, codec)
        self.metas = blocks.read_root_index(metas, self.trailer.meta_index_count, rows=False)
        blocks.check_handles(self.metas, limit)
        info, _ = blocks.read_block(data, self.trailer.file_info_offset - limit, blocks.FILE_INFO, codec)
        self.info: Mapping[bytes, bytes] = blocks.read_file_info(info)
        self.mvcc = self.info.get(b"KEY_VALUE_VERSION") == struct.pack(">i", 1)

    def _lowest(self, source: ReadRange, handles: list[BlockHandle], limit: int) -> list[BlockHandle]:
        """The data blocks' handles, through the levels below the root."""
        for level in range(self.trailer.index_levels - 1, 0, -1):
            magic = blocks.INTERMEDIATE_INDEX if level > 1 else blocks.LEAF_INDEX
            below: list[BlockHandle] = []
            for raw in source.read_many([(handle.offset, handle.size) for handle in handles]):
                payload, _ = blocks.read_block(raw, 0, magic, self.trailer.codec)
                below += blocks.read_lower_index(payload)
            handles = below
            blocks.check_handles(handles, limit)
        return handles

    @once
    def route(self) -> Route:
        """The blocks of keys, for lookups: who reads the whole file needs none."""
        return Route([handle.key for handle in self.handles])

    @property
    def nbytes(self) -> int:
        """The bytes of memory that it takes, about."""
        return _MEMORY_OF_AN_OPENING + _MEMORY_OF_A_HANDLE * len(self.handles)


OPENINGS = BoundedCache[_Opening](_OPENINGS_BYTES)

"""Writing the files of the metadata table's file groups: log files, base files, and the log that creates a group."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.bounded_cache import CacheEntry
from lakebed.format.delete_block import encode_deletes
from lakebed.format.file_names import log_file_name
from lakebed.format.hashes import plain_strings
from lakebed.format.hfile.entries import Entries
from lakebed.format.hfile.writer import HFileWriter, runs_of_bytes, write_hfile
from lakebed.format.log_file import WRITTEN_LOGS, WrittenBlock, block_bytes, delete_block, hfile_data_block
from lakebed.format.sources import MAX_REMEMBERED_FILE, remember_written
from lakebed.metadata_records.layout import BASE_FILE_EXTENSION, METADATA_FOLDER, HFileForm
from lakebed.metadata_records.records import GroupRecords, record_form, record_schema
from lakebed.model import WriteStat
from lakebed.storage.base import Durable, Storage
from lakebed.timeline.bodies.commit import NEW_FILE, stat_record

KeysAndValues = tuple[Any, Any]

# The token of the log that creates a group; others have another one.
CREATION_TOKEN = "0-0-0"
# Tables before this version are read by releases whose HFiles came from HBase.
_FIRST_NATIVE_VERSION = 9
# Bytes of keys and values in a data block; a log file takes as many blocks as it needs.
_LOG_BLOCK_BYTES = 64 << 20
# Bytes of entries in a block of a base file. Hudi's default is four times as many; a lookup inflates a block for each
# key of a large shard, and all blocks of a small one either way.
_BASE_BLOCK_BYTES = 256 << 10
# Bytes of a block in partitions of large records, of which a lookup needs few.
_SMALL_BLOCK_BYTES = 64 << 10
# Bytes of what is around a written log file in memory.
_MEMORY_OF_A_LOG = 2 << 10
# Bytes of keys and values up to which a log file is made before it is written.
_READY_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The data about a file group that a writer needs; small, so that it can be sent to tasks.

    `slice_instant` and `base_file` (a name, or empty) are those of its latest slice. On version 6 `log_files` has the
    slice's log files and `log_version` is what the next one gets; from version 8 on a delta commit's log is its own.
    """

    version: int
    partition: str
    file_id: str
    hfile: HFileForm
    slice_instant: str
    base_file: str = ""
    log_files: tuple[str, ...] = ()
    log_version: int = 1


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A log file that was written for an instant: records upserted, keys deleted, bytes, milliseconds."""

    group: FileGroup
    instant: str
    name: str
    size: int
    writes: int
    deletes: int
    millis: int

    def stat(self) -> dict[str, Any]:
        """The file's write stat in the form that Hudi writes into the commit."""
        group = self.group
        has_own_log = group.version >= 8
        stat = WriteStat(
            file_id=group.file_id,
            path=f"{group.partition}/{self.name}",
            partition=group.partition,
            prev_commit=self.instant if has_own_log else group.slice_instant,
            num_writes=self.writes,
            num_updates=self.writes,
            num_deletes=self.deletes,
            file_size=self.size,
            upsert_millis=self.millis,
            base_file="" if has_own_log else group.base_file,
            log_files=(self.name,) if has_own_log else (*group.log_files, self.name),
            log_version=group.log_version,
            log_offset=0,
        )
        return stat_record(stat)


@dataclass(frozen=True, slots=True)
class WrittenBase:
    """A base file that was written for an instant, with its number of entries."""

    partition: str
    file_id: str
    name: str
    size: int
    entries: int
    millis: int

    def stat(self, **more: object) -> dict[str, Any]:
        """The file's write stat, as that of a new file."""
        stat = WriteStat(
            file_id=self.file_id,
            path=f"{self.partition}/{self.name}",
            partition=self.partition,
            prev_commit=NEW_FILE,
            num_writes=self.entries,
            num_inserts=self.entries,
            file_size=self.size,
            create_millis=self.millis,
        )
        return stat_record(stat, **more)


@dataclass(frozen=True, slots=True)
class EncodedLog:
    """A log file that is not written yet: its name, its bytes in parts (which may be readable only once), and its
    counts. `blocks` are the blocks of a small one."""

    group: FileGroup
    instant: str
    name: str
    parts: Iterable[bytes]
    writes: int
    deletes: int
    blocks: Sequence[WrittenBlock] = ()


def write_log(
    storage: Storage,
    group: FileGroup,
    instant: str,
    keys: pa.StringArray,
    values: pa.BinaryArray,
    deleted: pa.StringArray,
    *,
    token: str | None = None,
) -> WrittenLog:
    """Write the records of a delta commit for one file group into a new log file, in the table with this storage.

    Keys come in any order, none twice and none both upserted and deleted; there must be some. `token` is the write
    token: three numbers, others for each attempt of a task; without one it is made up.
    """
    return put_log(storage, encode_log(group, instant, keys, values, deleted, token=token))


def encode_log(
    group: FileGroup,
    instant: str,
    keys: pa.StringArray,
    values: pa.BinaryArray,
    deleted: pa.StringArray,
    *,
    token: str | None = None,
) -> EncodedLog:
    """The log file that `write_log` writes. With few records its bytes are ready; otherwise they are made while the
    file is written."""
    log_instant = instant if group.version >= 8 else group.slice_instant
    name = log_file_name(group.file_id, log_instant, group.log_version, token or new_token())
    blocks = _blocks(group, instant, keys, values, deleted)
    size = keys.nbytes + values.nbytes + deleted.nbytes
    small = list(blocks) if size <= MAX_REMEMBERED_FILE else []
    parts: Iterable[bytes] = map(block_bytes, map(itemgetter(0), small or blocks))
    if size <= _READY_BYTES:
        parts = list(parts)
    return EncodedLog(group, instant, name, parts, len(keys), len(deleted), small)


def put_log(storage: Storage, log: EncodedLog, *, durable: Durable = True) -> WrittenLog:
    """Write a log file, in the table with this storage; a large one is durable when this returns."""
    started = time.monotonic()
    path = f"{METADATA_FOLDER}/{log.group.partition}/{log.name}"
    size = _put(storage, path, iter(log.parts), durable)
    if log.blocks and size <= MAX_REMEMBERED_FILE:
        # its name is its own, since the token is: the key of a source without a time of change
        WRITTEN_LOGS.put((storage.url(path), size, 0), CacheEntry(log.blocks, _MEMORY_OF_A_LOG + 2 * size))
    millis = int((time.monotonic() - started) * 1000)
    return WrittenLog(log.group, log.instant, log.name, size, log.writes, log.deletes, millis)


def write_base(
    storage: Storage,
    group: FileGroup,
    instant: str,
    batches: Iterable[KeysAndValues],
    *,
    token: str | None = None,
    schema_json: str | None = None,
) -> WrittenBase:
    """Write a file group's base file at `instant` from entries in ascending byte order of their keys, in the table with
    this storage. `schema_json` is the values' schema if it differs from that of the table's version."""
    started = time.monotonic()
    name = base_file_name(group.file_id, token or new_token(), instant)
    path = f"{METADATA_FOLDER}/{group.partition}/{name}"
    with storage.create(path) as upload:
        writer = HFileWriter(
            upload.write,
            schema_json=schema_json or record_schema(record_form(group.version)),
            codec=group.hfile.codec,
            block_size=_SMALL_BLOCK_BYTES if group.hfile.has_small_blocks else _BASE_BLOCK_BYTES,
            hbase_keys=group.version < _FIRST_NATIVE_VERSION,
        )
        count = 0
        for keys, values in batches:
            writer.write(keys, values)
            count += len(keys)
        size = writer.finish()
    millis = int((time.monotonic() - started) * 1000)
    return WrittenBase(group.partition, group.file_id, name, size, count, millis)


def write_creation_log(storage: Storage, group: FileGroup, instant: str) -> str:
    """Write the log file that creates a file group; it has no records. Returns its name."""
    name = log_file_name(group.file_id, instant, 1, CREATION_TOKEN)
    content = block_bytes(delete_block(encode_deletes(None), instant))
    storage.write(f"{METADATA_FOLDER}/{group.partition}/{name}", content)
    return name


def new_token() -> str:
    """A write token that no other attempt has, so that data cached by the path of a file stay valid."""
    return f"0-{uuid.uuid4().int % (1 << 30) + 1}-0"


def base_file_name(file_id: str, token: str, instant: str) -> str:
    """The name of a base file of the metadata table.

    >>> base_file_name("files-0000-0", "0-1-0", "20261121115958445")
    'files-0000-0_0-1-0_20261121115958445.hfile'
    """
    return f"{file_id}_{token}_{instant}.{BASE_FILE_EXTENSION}"


def sorted_by_key(keys: pa.Array, values: pa.Array) -> KeysAndValues:
    """The entries in ascending byte order of their keys."""
    if len(keys) < 2:
        return keys, values
    order = pc.sort_indices(keys)
    return keys.take(order), values.take(order)


def in_key_order(records: GroupRecords) -> Iterable[KeysAndValues]:
    """The first entries of a file group in ascending byte order of their keys."""
    return [sorted_by_key(records.keys, records.values)] if records.batches is None else records.batches


def _blocks(
    group: FileGroup, instant: str, keys: pa.StringArray, values: pa.BinaryArray, deleted: pa.StringArray
) -> Iterator[WrittenBlock]:
    schema = record_schema(record_form(group.version))
    keys, values = sorted_by_key(
        plain_strings(keys), plain_strings(values)
    )  # only the sorted entries are needed from here on
    hbase_keys = group.version < _FIRST_NATIVE_VERSION
    for first, count in runs_of_bytes(keys, values, _LOG_BLOCK_BYTES):
        entries = Entries(keys.slice(first, count).cast(pa.binary()), values.slice(first, count))
        hfile = write_hfile(
            entries.keys, entries.values, schema_json=schema, codec=group.hfile.codec, hbase_keys=hbase_keys
        )
        yield hfile_data_block(schema, hfile, instant), (entries, schema)
    if len(deleted):
        yield delete_block(encode_deletes(deleted, group.partition), instant, schema), None


def _put(storage: Storage, path: str, parts: Iterator[bytes], durable: Durable) -> int:
    """Write a file: in one request if it has one part, otherwise part by part. Returns its size."""
    first = next(parts)
    second = next(parts, None)
    if second is None or len(first) + len(second) <= _LOG_BLOCK_BYTES:
        data = first if second is None else b"".join([first, second, *parts])
        storage.write(path, data, durable=durable)
        remember_written(storage, path, data)
        return len(data)
    with storage.create(path) as upload:
        size = upload.write(first) + upload.write(second)
        return size + sum(upload.write(part) for part in parts)

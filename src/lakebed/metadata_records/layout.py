"""Keys of the metadata table's records, and the file group that a key lives in.

How the metadata table is laid out: names of Hudi's partitions, sizes of growing ones, files and properties.

What distinguishes the kinds of partitions is in `metadata_kinds`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lakebed.errors import CorruptFile
from lakebed.format.file_names import parse_log_file
from lakebed.format.hashes import plain_strings, record_index_shard, value_buffer
from lakebed.model import HOODIE, SECONDARY_INDEX, BaseFile, LogFile
from lakebed.properties.file import table_checksum
from lakebed.schema.plain_arrow import text_scalar
from lakebed.timeline.instants import INITIAL_INSTANT, INSTANT_DIGITS

ALL_PARTITIONS = "__all_partitions__"
UNPARTITIONED = "."
PARTITION_STAT = "__partition_stat__"
# A key of column stats: column, partition and file; without the file it is a partition's.
FILE_KEY_LENGTH = 48
_SEED = 0xFFFFFFFFDABADABA
_NULL = "\0"
_NO_TEXT = pa.scalar("", pa.string())
_BACKSLASH, _DOLLAR = 0x5C, 0x24
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


def partition_identifier(partition: str) -> str:
    """The name of a partition path in keys: the path itself, or `.` for the root of a table without partitions."""
    return partition or UNPARTITIONED


def partition_of(identifier: str) -> str:
    """The partition path of an identifier."""
    return "" if identifier == UNPARTITIONED else identifier


@lru_cache(maxsize=1 << 16)
def h64(text: str) -> str:
    """The 12 characters of a column or a partition in keys (XXH64, base64).

    >>> h64("part=a"), h64(".")
    ('yi5+vfp5LHI=', 'FXThHwelITM=')
    """
    return base64.b64encode(xxhash.xxh64_digest(text.encode(), seed=_SEED)).decode()


def md5(text: str) -> str:
    """The 24 characters of a file in keys (MD5, base64)."""
    return base64.b64encode(hashlib.md5(text.encode(), usedforsecurity=False).digest()).decode()


def column_prefix(column: str, partition: str | None = None) -> str:
    """The start of the column stats keys of a column (in one partition path)."""
    return h64(column) + ("" if partition is None else h64(partition_identifier(partition)))


def file_keys(partitions: Sequence[str], file_names: Sequence[str]) -> pa.StringArray:
    """The keys of files in `bloom_filters`, one per pair (partition path, file name); with a column's `h64` in front
    they are keys of `column_stats`.

    >>> file_keys([""], ["f.parquet"])[0].as_py()
    'FXThHwelITM=QXr1OuoMTENX8Qw34YLATA=='
    """
    pairs = zip(partitions, file_names, strict=True)
    return pa.array([h64(partition_identifier(p)) + md5(name) for p, name in pairs], pa.string())


def column_stats_keys(column: str, files: pa.StringArray) -> pa.StringArray:
    """The keys of a column's records in `column_stats`, from the `file_keys` of the files."""
    return pc.binary_join_element_wise(pa.scalar(h64(column), pa.string()), files, _NO_TEXT)


def partition_stats_keys(column: str, partitions: Sequence[str], *, of_expression: bool = False) -> pa.StringArray:
    """The keys of a column's records in `partition_stats`, or those for partition paths in an expression index."""
    start = h64(column) + (h64(PARTITION_STAT) if of_expression else "")
    return pa.array([start + h64(partition_identifier(p)) for p in partitions], pa.string())


def escape(values: Any) -> pa.StringArray:
    r"""Secondary values or record keys in the form that they have in secondary keys: `\`, `$` and NUL get a backslash,
    null is one NUL.

    >>> escape(pa.array(["a$b", None])).to_pylist()
    ['a\\$b', '\x00']
    """
    strings = _strings(values)
    for special in ("\\", "$", "\0"):
        strings = pc.replace_substring(strings, special, "\\" + special)
    return pc.fill_null(strings, _NULL)


def secondary_keys(values: Any, record_keys: Any) -> pa.StringArray:
    r"""The keys of a secondary index, one per pair of secondary value (or null) and record key.

    >>> secondary_keys(pa.array(["paris$x\\y"]), pa.array(["k0000"]))[0].as_py()
    'paris\\$x\\\\y$k0000'
    """
    return pc.binary_join_element_wise(escape(values), escape(record_keys), text_scalar("$"))


def secondary_prefixes(values: Any) -> pa.StringArray:
    """The start of the keys of each secondary value, with the `$`."""
    return pc.binary_join_element_wise(escape(values), text_scalar(""), text_scalar("$"))


def split_secondary_keys(keys: Any) -> tuple[pa.StringArray, pa.StringArray]:
    r"""The secondary values and the record keys in secondary keys.

    >>> [part.to_pylist() for part in split_secondary_keys(pa.array(["a\\$b$k1", "\0$k2"]))]
    [['a$b', None], ['k1', 'k2']]

    Raises `CorruptFile` for a key without an unescaped `$`.
    """
    array = _strings(keys)
    data, offsets = value_buffer(array)
    starts, ends = offsets[:-1], offsets[1:]
    at = _first_dollars(data, offsets)
    if (at >= ends).any():
        raise CorruptFile("a key of a secondary index has no $ between value and record key")
    values = _unescape(_slices(array, starts, at))
    is_null = pc.equal(values, _NULL)
    # an escaped NUL is a value, a bare one is null
    bare = pa.array((at - starts) == 1)
    values = pc.if_else(pc.and_(is_null, bare), pa.scalar(None, pa.string()), values)
    return values, _unescape(_slices(array, at + 1, ends))


def secondary_file_groups(keys: Any, file_groups: int, *, version: int) -> Int32s:
    """The number of the file group of each secondary key. Version 2 indexes (table version 9) hash the value with its
    `$`, older ones the complete key."""
    if version < 2 or file_groups == 1:
        return file_group(keys, file_groups)
    array = _strings(keys)
    data, offsets = value_buffer(array)
    ends = np.minimum(_first_dollars(data, offsets) + 1, offsets[1:])
    return file_group(_slices(array, offsets[:-1], ends), file_groups)


def file_group(keys: Any, file_groups: int) -> Int32s:
    """The number of the file group of each key among a partition's file groups, in the order of their ids.

    >>> file_group(pa.array(["k1", "k2"]), 10).tolist()
    [6, 7]
    """
    if file_groups == 1:
        return np.zeros(len(keys), np.int32)
    return record_index_shard(keys, file_groups)


def _strings(values: Any) -> pa.Array:
    strings = plain_strings(values)
    return strings if pa.types.is_string(strings.type) else strings.cast(pa.string())


def _first_dollars(data: npt.NDArray[np.uint8], offsets: Int64s) -> Int64s:
    """The position of the first unescaped `$` of each row; the end of the row (or beyond) if it has none."""
    first, last = int(offsets[0]), int(offsets[-1])
    used = data[first:last]
    dollars = np.flatnonzero(used == _DOLLAR)
    if (used == _BACKSLASH).any():
        dollars = dollars[_backslashes_before(used, dollars, offsets - first) % 2 == 0]
    positions = np.append(dollars + first, last)
    return positions[np.searchsorted(positions[:-1], offsets[:-1])]


def _backslashes_before(data: npt.NDArray[np.uint8], at: Int64s, offsets: Int64s) -> Int64s:
    """The length of the run of backslashes before each position, within its row."""
    last_plain = np.where(data == _BACKSLASH, -1, np.arange(len(data)))
    np.maximum.accumulate(last_plain, out=last_plain)
    before = np.append(last_plain, -1)[at - 1]
    row_starts = offsets[np.searchsorted(offsets, at, side="right") - 1]
    return at - 1 - np.maximum(np.where(at == 0, -1, before), row_starts - 1)


def _slices(strings: pa.Array, starts: Int64s, ends: Int64s) -> pa.StringArray:
    """A part of every row, given as positions in the rows' buffer."""
    edges = np.empty(2 * len(starts), np.int64)
    edges[::2], edges[1::2] = starts, ends
    edges = np.append(edges, edges[-1:] if len(edges) else [0]).astype(np.int32)
    spans_and_gaps = pa.StringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), strings.buffers()[2])
    return spans_and_gaps.take(pa.array(np.arange(0, len(edges) - 1, 2)))


def _unescape(strings: pa.StringArray) -> pa.StringArray:
    if not pc.any(pc.match_substring(strings, "\\")).as_py():
        return strings
    return pc.replace_substring_regex(strings, r"(?s)\\(.)", r"\1")


METADATA_FOLDER = f"{HOODIE}/metadata"
FILES = "files"
COLUMN_STATS = "column_stats"
BLOOM_FILTERS = "bloom_filters"
PARTITION_STATS = "partition_stats"
EXPRESSION_INDEX = "expr_index_"
VECTOR_INDEX = "vector_index_"
TEXT_INDEX = "text_index_"
LAYERED_INDEXES = (VECTOR_INDEX, TEXT_INDEX)
"""The beginnings of the partitions of indexes that are lakebed's own, and have a layer of each commit."""
BASE_FILE_EXTENSION = "hfile"
# In the partition metadata of a partition that is built during writes: the time from which writers log to it.
LOGGED_SINCE = "lakebed.logged.since"

_RECORD_BYTES = 48
GROUP_ID = re.compile(r"(.+)-(\d{4,})-0")
_BASE_FILE = re.compile(r"([^_]+)_([a-zA-Z0-9-]+)_(\d+)\.hfile")


@dataclass(frozen=True, slots=True)
class HFileForm:
    """How the HFiles of a partition are written: their codec, and whether base files have small blocks, for large
    records of which a lookup needs few."""

    codec: Literal["gzip", "none"] = "gzip"
    has_small_blocks: bool = False


@dataclass(frozen=True, slots=True)
class GroupSizing:
    """The number of file groups that a record or secondary index gets; the defaults are Hudi's for a global one.
    `max_bytes` is the size beyond which a group should not grow."""

    minimum: int = 10
    maximum: int = 10_000
    growth: float = 2.0
    max_bytes: int = 1 << 30

    def file_groups(self, records: int) -> int:
        """The number of file groups for an index that is built over `records` records.

        >>> GroupSizing().file_groups(1_000), GroupSizing().file_groups(1_000_000_000)
        (10, 89)
        """
        if self.minimum == self.maximum and self.minimum:
            return self.minimum
        # Hudi computes in 32-bit floats
        expected = int(np.ceil(np.float32(records) * np.float32(self.growth)))
        return min(max(expected // (self.max_bytes // _RECORD_BYTES), self.minimum), self.maximum)


PARTITIONED_SIZING = GroupSizing(minimum=1, maximum=10)


def group_number(file_id: str) -> int:
    """The number in a file id; -1 for an id of another kind."""
    match = GROUP_ID.fullmatch(file_id)
    return int(match[2]) if match else -1


@lru_cache(maxsize=1 << 14)  # the folders are listed at every commit
def parse_files(partition: str, name: str, size: int) -> BaseFile | LogFile | None:
    """The base or log file of a name in a partition's folder; None for any other name. Unlike ids of data files, its id
    may contain escapes."""
    match = _BASE_FILE.fullmatch(name)
    if match:
        return BaseFile(partition, match[1], match[2], match[3], name, size)
    return parse_log_file(partition, name, size)


def metadata_properties(table: str, version: int) -> dict[str, str]:
    """The `hoodie.properties` of the metadata table of the data table with this name, as Hudi writes them."""
    name = f"{table}_metadata"
    shared = {
        "hoodie.table.name": name,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(version),
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.table.recordkey.fields": "key",
        "hoodie.populate.meta.fields": "false",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.table.checksum": table_checksum(name),
    }
    return {**shared, **(_LAYOUT_2 | {"hoodie.table.initial.version": str(version)} if version >= 8 else _LAYOUT_1)}


def partition_metadata(instant: str) -> Mapping[str, str]:
    """The properties of `.hoodie_partition_metadata` in a partition's folder."""
    return {"commitTime": instant, "partitionDepth": "1"}


_LAYOUT_2 = {
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
    "hoodie.timeline.history.path": "history",
    "hoodie.archivelog.folder": "history",
    "hoodie.record.merge.mode": "CUSTOM",
    "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
    "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
}
_LAYOUT_1 = {
    "hoodie.timeline.layout.version": "1",
    "hoodie.archivelog.folder": "archived",
    "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    "hoodie.table.keygenerator.class": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
}


def is_of_data(instant: str) -> bool:
    """Whether an instant of the metadata table may be one of the data table: not the build of a partition, and without
    the digits that version 6 appends to the instants of the metadata table's services."""
    return len(instant) == INSTANT_DIGITS and not instant.startswith(INITIAL_INSTANT)


def secondary_index_name(column: str) -> str:
    """The partition of the index that lakebed makes on a column.

    >>> secondary_index_name("address.city")
    'secondary_index_address_city'
    """
    return SECONDARY_INDEX + "".join(c if c.isalnum() else "_" for c in column)

"""How the metadata table is laid out: names of Hudi's partitions, sizes of growing ones, files and properties.

What sets one kind of partition apart is in `kinds`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lakebed.format.file_names import parse_log_file
from lakebed.model import HOODIE, BaseFile, LogFile
from lakebed.properties.file import table_checksum
from lakebed.timeline.instants import INSTANT_DIGITS

METADATA_FOLDER = f"{HOODIE}/metadata"
FILES = "files"
COLUMN_STATS = "column_stats"
BLOOM_FILTERS = "bloom_filters"
PARTITION_STATS = "partition_stats"
SECONDARY_INDEX = "secondary_index_"
EXPRESSION_INDEX = "expr_index_"
BASE_FILE_EXTENSION = "hfile"
# Whole digits of an instant that Hudi gives to what it makes when it builds a partition.
INITIAL_INSTANT = "0" * 14
# In the partition metadata of a partition that was built beside writers: when they began to log to it.
LOGGED_SINCE = "lakebed.logged.since"

_RECORD_BYTES = 48
GROUP_ID = re.compile(r"(.+)-(\d{4,})-0")
_BASE_FILE = re.compile(r"([^_]+)_([a-zA-Z0-9-]+)_(\d+)\.hfile")


@dataclass(frozen=True, slots=True)
class GroupSizing:
    """How many file groups a record or secondary index gets; Hudi's defaults for a global one. `max_bytes` is the size
    that a group should not grow beyond."""

    minimum: int = 10
    maximum: int = 10_000
    growth: float = 2.0
    max_bytes: int = 1 << 30

    def file_groups(self, records: int) -> int:
        """File groups for an index that is built over so many records.

        >>> GroupSizing().file_groups(1_000), GroupSizing().file_groups(1_000_000_000)
        (10, 89)
        """
        if self.minimum == self.maximum and self.minimum:
            return self.minimum
        # Hudi reckons in 32-bit floats
        expected = int(np.ceil(np.float32(records) * np.float32(self.growth)))
        return min(max(expected // (self.max_bytes // _RECORD_BYTES), self.minimum), self.maximum)


PARTITIONED_SIZING = GroupSizing(minimum=1, maximum=10)


def group_number(file_id: str) -> int:
    """The number in a file id; -1 for an id of another kind."""
    found = GROUP_ID.fullmatch(file_id)
    return int(found[2]) if found else -1


@lru_cache(maxsize=1 << 14)  # the folders are listed at every commit
def parse_files(partition: str, name: str, size: int) -> BaseFile | LogFile | None:
    """The base or log file behind a name in a partition's folder; ids may hold escapes that data files' do not."""
    found = _BASE_FILE.fullmatch(name)
    if found:
        return BaseFile(partition, found[1], found[2], found[3], name, size)
    return parse_log_file(partition, name, size)


def metadata_properties(table: str, version: int) -> dict[str, str]:
    """`hoodie.properties` of the metadata table of the data table with this name, as Hudi writes them."""
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
    """Whether an instant of the metadata table may be one of the data table: not of a partition that was built, and
    without the digits that version 6 puts behind those of its own services."""
    return len(instant) == INSTANT_DIGITS and not instant.startswith(INITIAL_INSTANT)


def secondary_index_name(column: str) -> str:
    """The partition of the index that lakebed makes on a column.

    >>> secondary_index_name("address.city")
    'secondary_index_address_city'
    """
    return SECONDARY_INDEX + "".join(c if c.isalnum() else "_" for c in column)

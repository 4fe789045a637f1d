"""What an action says to the metadata partitions that describe files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.format.base_file import read_footer
from lakebed.format.column_ranges import from_stream
from lakebed.metadata.kinds.definitions import load_definitions
from lakebed.metadata.kinds.file_ranges import ranges_of_file
from lakebed.metadata.kinds.stats_columns import Kinds, index_version_of, stats_columns
from lakebed.metadata.kinds.updates import (
    NewFile,
    bloom_records_of,
    column_stats_records,
    file_records,
    partition_stats_records,
    stats_of,
)
from lakebed.metadata.layout import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
)
from lakebed.metadata.read.stats_lookup import Stats
from lakebed.metadata.routing import Records
from lakebed.metadata.schemas import form_of_version
from lakebed.model import CommitMetadata
from lakebed.schema.arrow import without_meta
from lakebed.schema.avro import avro_to_arrow
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.table_config import TableConfig
from lakebed.upkeep.expression_records import has_earlier_neighbour, live_after
from lakebed.upkeep.write_status import WriteStatus

_DELETES_ONLY = frozenset({"DELETE_PARTITION"})


@dataclass
class ActionRecords:
    """One action and what it says to the metadata partitions of files: their list, statistics and bloom filters.
    `snapshot` is the table before it."""

    snapshot: Snapshot
    settings: WriteSettings
    instant: str
    commit: CommitMetadata
    statuses: Sequence[WriteStatus]
    partitions: Sequence[str]

    def records(self) -> dict[str, Records]:
        version = self.snapshot.config.version
        form = form_of_version(version)
        files = self._files()
        paths = () if self.commit.operation in _DELETES_ONLY else tuple(self.commit.stats)
        said = {FILES: file_records(files, form, partitions=paths)}
        if COLUMN_STATS in self.partitions:
            index_version = index_version_of(version)
            new = stats_of(files, self.kinds, index_version)
            said[COLUMN_STATS] = column_stats_records(new, form, index_version)
            if PARTITION_STATS in self.partitions:
                said[PARTITION_STATS] = self._partition_stats(files, new, index_version)
        if BLOOM_FILTERS in self.partitions:
            said[BLOOM_FILTERS] = bloom_records_of(files, self.instant, form)
        return said

    @cached_property
    def kinds(self) -> Kinds:
        """The columns with stats; none where the table keeps none."""
        if COLUMN_STATS not in self.partitions:
            return {}
        schema = without_meta(avro_to_arrow(self.commit.schema))
        return columns_with_stats(self.snapshot.storage, self.snapshot.config, schema, self.settings)

    def _files(self) -> list[NewFile]:
        """The files written, with their ranges; those whose tasks did not tell them are read."""
        told = {s.path: s for s in self.statuses if s.path is not None}
        found: list[NewFile] = []
        for partition, stats in self.commit.stats.items():
            for stat in stats:
                status = told.get(stat.path)
                stream = status.ranges if status is not None else None
                ranges = from_stream(stream) if stream is not None else None
                if self.kinds and ranges is None:
                    ranges = ranges_of_file(self.snapshot.storage, stat.path, stat.file_size, self.kinds)
                bloom = None
                if BLOOM_FILTERS in self.partitions:
                    bloom = bloom_of_file(self.snapshot.storage, stat.path, stat.file_size)
                name = stat.path.rpartition("/")[2]
                found.append(NewFile(partition, name, stat.file_size, ranges, bloom))
        return found

    def _partition_stats(self, files: Sequence[NewFile], new: Stats, index_version: int) -> Records:
        snapshot, kinds = self.snapshot, self.kinds
        live = live_after(snapshot, self.commit)
        new_names = {file.name for file in files}
        old = [path for path, names in live.items() if names - new_names]
        known = {}
        if old and snapshot.metadata is not None:
            known = snapshot.metadata.column_stats(list(kinds), old, kinds)
        form = form_of_version(self.snapshot.config.version)
        tight = not has_earlier_neighbour(snapshot.timeline, self.instant)
        return partition_stats_records(known, new, live, kinds, form, index_version, tight=tight)


def columns_with_stats(storage: Storage, config: TableConfig, schema: pa.Schema, settings: WriteSettings) -> Kinds:
    """The columns whose ranges a file of this schema (without meta columns) must tell; none where the table keeps no
    stats."""
    kept = {*config.metadata_partitions, *config.metadata_partitions_inflight}
    return wanted_stats(storage, config, schema, settings) if COLUMN_STATS in kept else {}


def wanted_stats(storage: Storage, config: TableConfig, schema: pa.Schema, settings: WriteSettings) -> Kinds:
    """The columns that column stats have, or would have, for files of this schema."""
    definition = load_definitions(storage, config).get(COLUMN_STATS)
    return stats_columns(
        schema,
        definition,
        version=config.version,
        populate_meta=config.populate_meta_fields,
        named=settings.stats_columns,
        most=settings.stats_most_columns,
    )


def bloom_of_file(storage: Storage, path: str, size: int) -> tuple[str, str] | None:
    """Type code and text of the bloom filter in a base file's footer."""
    return read_footer(storage, path, size).stored_bloom

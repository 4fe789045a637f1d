"""What an action says to the expression indexes of a table, and what these begin with on a table with rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.base import Engine
from lakebed.engine.each import each
from lakebed.metadata.keys import partition_stats_keys
from lakebed.metadata.kinds import stats_records
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.expression_indexes import ExpressionIndex, kept_indexes
from lakebed.metadata.kinds.expression_results import (
    FileResults,
    by_index,
    filter_records_of,
    results_of_file,
    stats_of_results,
    stats_records_of,
)
from lakebed.metadata.kinds.updates import merged_partition_stats
from lakebed.metadata.layout import BLOOM_FILTERS, EXPRESSION_INDEX
from lakebed.metadata.read.stats_lookup import Stats
from lakebed.metadata.record_values import RecordType
from lakebed.metadata.routing import Records
from lakebed.metadata.schemas import form_of_version
from lakebed.model import BaseFile, CommitMetadata
from lakebed.schema.arrow import without_meta
from lakebed.schema.avro import avro_to_arrow
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS, Timeline

# Bytes of base files from which on a job reads them.
LARGE_BYTES = 256 << 20
_File = tuple[str, str, int]
Live = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class ExpressionRecords:
    """The expression indexes of one table, as one action keeps them: their definitions by partition. `snapshot` is the
    table before it. `engine` runs a job where an index begins on files of many bytes."""

    snapshot: Snapshot
    definitions: Mapping[str, IndexDefinition]
    engine: Engine | None = None

    @classmethod
    def of_partitions(
        cls, snapshot: Snapshot, definitions: Mapping[str, IndexDefinition], partitions: Collection[str]
    ) -> ExpressionRecords:
        """Those among some partitions of the metadata table."""
        names = sorted(p for p in partitions if p.startswith(EXPRESSION_INDEX) and p in definitions)
        return cls(snapshot, {name: definitions[name] for name in names})

    def of_action(self, instant: str, commit: CommitMetadata) -> dict[str, Records]:
        """What the action says to each of the indexes."""
        if not self.definitions:
            return {}
        schema = without_meta(avro_to_arrow(commit.schema)) if commit.schema else self.snapshot.schema
        indexes = {one.partition: one for one in kept_indexes(self.definitions, self.definitions, schema)}
        files = [(p, s.path.rpartition("/")[2], s.file_size) for p, stats in commit.stats.items() for s in stats]
        found = dict(by_index(results_of_files(self.snapshot, files, list(indexes.values()), schema)))
        live = live_after(self.snapshot, commit)
        said: dict[str, Records] = {}
        for name, definition in self.definitions.items():
            if name in indexes:
                said[name] = self._of_index(indexes[name], found.get(name, []), live, instant)
            elif definition.type != BLOOM_FILTERS:
                # of a column that this very action changed: what is known of whole partition paths ends
                keys = partition_stats_keys(definition.source_fields[0], sorted(live), of_expression=True)
                said[name] = Records.deletes(keys)
        return said

    def _of_index(self, index: ExpressionIndex, results: Sequence[FileResults], live: Live, instant: str) -> Records:
        form = form_of_version(self.snapshot.config.version)
        if index.has_filters:
            return filter_records_of(results, instant, form)
        new = stats_of_results(index, results)
        old = {path for path in live if set(live[path]) - {r.name for r in results if r.partition == path}}
        known: Stats = {}
        if old and self.snapshot.metadata is not None:
            kinds = {index.column: index.function.result}
            known, _ = self.snapshot.metadata.expression_stats(index.partition, kinds, sorted(old))
        tight = not has_earlier_neighbour(self.snapshot.timeline, instant)
        of_paths, gone = partition_stats_of(index, known, {index.column: new}, live, tight=tight)
        return self._joined(index, new, of_paths, gone)

    def _joined(self, index: ExpressionIndex, new: pa.Table, of_paths: Stats, gone: Sequence[str]) -> Records:
        """Records of files and of partition paths side by side."""
        form = form_of_version(self.snapshot.config.version)
        files = stats_records_of(index, new, form)
        kind, version = RecordType.PARTITION_STATS, index.definition.version
        keys, values = stats_records.encode(of_paths, form, index_version=version, record_type=kind)
        both = [pa.concat_arrays([files.keys, keys]), pa.concat_arrays([files.values, values])]
        return Records(both[0], both[1], deleted=pa.array(gone, pa.string()))

    def beginning(self, index: ExpressionIndex, instant: str) -> Records:
        """The records of the latest files, as real Hudi begins, and of the partition paths."""
        bases = self.snapshot.base_files()
        files = [(b.partition, b.name, b.size) for b in bases]
        if self.engine is not None and self.engine.is_distributed and sum(b.size for b in bases) >= LARGE_BYTES:
            found = each(self.engine, ResultsOf(self.snapshot.storage, (index,), self.snapshot.schema), files)
        else:
            found = results_of_files(self.snapshot, files, [index])
        results = dict(by_index(found)).get(index.partition, [])
        form = form_of_version(self.snapshot.config.version)
        if index.has_filters:
            return filter_records_of(results, instant, form)
        new = stats_of_results(index, results)
        of_paths, _ = partition_stats_of(index, {}, {index.column: new}, live_files(bases))
        return self._joined(index, new, of_paths, [])


@dataclass(frozen=True, slots=True)
class ResultsOf:
    """Sent to the tasks: `results_of_file` on a storage that they open themselves."""

    storage: Storage
    indexes: tuple[ExpressionIndex, ...]
    schema: pa.Schema

    def __call__(self, file: _File) -> dict[str, FileResults]:
        return results_of_file(self.storage, file, self.indexes, self.schema)


def results_of_files(
    snapshot: Snapshot, files: Sequence[_File], indexes: Sequence[ExpressionIndex], schema: pa.Schema | None = None
) -> list[dict[str, FileResults]]:
    """The results of the indexes over these base files (partition path, name, size), some files at a time."""
    if not indexes:
        return []
    columns = snapshot.schema if schema is None else schema
    return parallel_map(lambda file: results_of_file(snapshot.storage, file, indexes, columns), list(files))


def partition_stats_of(
    index: ExpressionIndex, known: Stats, new: Stats, live: Live, *, tight: bool = True
) -> tuple[Stats, list[str]]:
    """Stats of the partition paths in `live` by an index, and the keys of those paths that have none."""
    kinds = {index.column: index.function.result}
    return merged_partition_stats(known, new, live, kinds, of_expression=True, tight=tight)


def has_earlier_neighbour(timeline: Timeline, instant: str) -> bool:
    """Whether an action that was requested before this one may complete after it.

    Records of the metadata table merge in requested order: its statistics of partition paths, though they know more,
    would be lost behind a tight record of this one.
    """
    return any(i.time < instant and completes_as(i.action) in COMMITS for i in timeline.pending)


def live_files(files: Sequence[BaseFile]) -> dict[str, set[str]]:
    """The names of files by partition path."""
    live: dict[str, set[str]] = {}
    for file in files:
        live.setdefault(file.partition, set()).add(file.name)
    return live


def live_after(snapshot: Snapshot, commit: CommitMetadata) -> dict[str, set[str]]:
    """The files that the partition paths touched by an action have after it."""
    touched = {*commit.stats, *commit.replaced}
    gone = {(p, s.file_id) for p, stats in commit.stats.items() for s in stats}
    gone |= {(p, file_id) for p, ids in commit.replaced.items() for file_id in ids}
    live: dict[str, set[str]] = {path: set() for path in touched}
    for base in snapshot.base_files(touched):
        if (base.partition, base.file_id) not in gone:
            live[base.partition].add(base.name)
    for partition, stats in commit.stats.items():
        live[partition] |= {s.path.rpartition("/")[2] for s in stats}
    return live

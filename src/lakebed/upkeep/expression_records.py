"""The records of expression indexes, from the results of their functions over base files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.base import Engine, each
from lakebed.metadata.kinds import stats_records
from lakebed.metadata.kinds.expression_indexes import ExpressionIndex
from lakebed.metadata.kinds.expression_results import (
    FileResults,
    by_index,
    filter_records_of,
    results_of_file,
    stats_of_results,
    stats_records_of,
)
from lakebed.metadata.kinds.stats_records import Stats
from lakebed.metadata.kinds.updates import merged_partition_stats
from lakebed.metadata.record_values import RecordType
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm, form_of_version
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.stored_files import live_files

# Bytes of base files from which on a job reads them.
LARGE_BYTES = 256 << 20
_File = tuple[str, str, int]
Live = Mapping[str, Collection[str]]


def first_records(snapshot: Snapshot, index: ExpressionIndex, instant: str, engine: Engine | None = None) -> Records:
    """The records that a new index begins with: those of the latest base files, as real Hudi begins, and of the
    partition paths. `engine` runs a job where the files have many bytes."""
    slices = snapshot.file_slices()
    bases = [s.base_file for s in slices if s.base_file is not None]
    files = [(b.partition, b.name, b.size) for b in bases]
    if engine is not None and engine.is_distributed and sum(b.size for b in bases) >= LARGE_BYTES:
        found = each(engine, ResultsOf(snapshot.storage, (index,), snapshot.schema), files)
    else:
        found = results_of_files(snapshot, files, [index])
    results = dict(by_index(found)).get(index.partition, [])
    form = form_of_version(snapshot.config.version)
    if index.has_filters:
        return filter_records_of(results, instant, form)
    new = stats_of_results(index, results)
    of_paths, _ = partition_stats_of(index, {}, {index.column: new}, live_files(slices))
    return range_records(index, new, of_paths, [], form)


def range_records(
    index: ExpressionIndex, of_files: pa.Table, of_paths: Stats, deleted: Sequence[str], form: RecordForm
) -> Records:
    """Records of files and of partition paths side by side."""
    files = stats_records_of(index, of_files, form)
    kind, version = RecordType.PARTITION_STATS, index.definition.version
    keys, values = stats_records.encode(of_paths, form, index_version=version, record_type=kind)
    both = [pa.concat_arrays([files.keys, keys]), pa.concat_arrays([files.values, values])]
    return Records(both[0], both[1], deleted=pa.array(deleted, pa.string()))


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

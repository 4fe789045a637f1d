"""Search by a vector index: the index names candidates, their rows are read from the view, and file groups that the
index does not cover are searched exactly.

An answer holds rows of the view alone, with their exact distances. What is approximate is which rows are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.vector_definitions import vector_index_of
from lakebed.metadata_kinds.vector_store import OpenedIndex, open_index, stored_index
from lakebed.model import RECORD_KEY, FileGroupId, FileSlice
from lakebed.read.batches import row_readers
from lakebed.read.keys import IndexedKeys
from lakebed.read.lookup import KeySearch, LookupKeys
from lakebed.schema.plain_arrow import as_numpy
from lakebed.storage.parallel import parallel_map
from lakebed.vector_index.entries import row_hashes
from lakebed.vector_index.search import Allowed
from lakebed.wording import count_text

if TYPE_CHECKING:
    from lakebed.read.batches import RowReader
    from lakebed.read.scan import Scan
    from lakebed.read.search import SearchOptions, SearchTask
    from lakebed.slices.reader import SliceReader
    from lakebed.slices.snapshot import Snapshot

DISTANCE, QUERY_INDEX = "_hudi_distance", "_hudi_query_index"
"""The columns of a search, by Hudi's names: the distance, and in a batch the number of the query."""
PATH, FILE_ID = "_lakebed_path", "_lakebed_file"
"""The columns of the partition path and the file id of a row that was read for a candidate."""
# A search of fewer rows than this, which a condition leaves, compares all of them.
MIN_ROWS: Final = 20_000
# Rows that are read for each query: at least so many, or so many for each row of the answer.
_RERANK: Final = 50
_RERANK_OF_K: Final = 5
# A search that finds too few rows looks at so many times the clusters and rows.
_WIDER: Final = 4


@dataclass(frozen=True)
class CandidateRows:
    """Reads the rows of candidates from the file slices `readers` of a view, by the readers of a scan whose columns
    begin with the record key."""

    snapshot: Snapshot
    slices: SliceReader
    readers: Mapping[FileGroupId, tuple[FileSlice, RowReader]]
    schema: pa.Schema
    threads: int = 1

    def read(self, candidates: pa.Table) -> pa.Table:
        """The rows of the candidates (`key`, `partition`, `file_id`), with the partition path and the file id that they
        are in as the last columns.

        Rows that are not in the view, or do not fulfil the condition, are missing.
        """
        distinct = candidates.group_by(["partition", "file_id", "key"]).aggregate([])
        ids = pa.array([file_slice.file_id for file_slice in self.snapshot.file_slices()], pa.string())
        is_in_view = pc.is_in(distinct["file_id"], value_set=ids)
        groups = dict(IndexedKeys(distinct.filter(is_in_view).combine_chunks()).groups)
        elsewhere = distinct.filter(pc.invert(is_in_view))
        if elsewhere.num_rows:
            for group, keys in self._moved(elsewhere).items():
                keys = pa.concat_arrays([*([groups[group]] if group in groups else []), keys]).unique()
                groups[group] = keys.take(pc.sort_indices(keys))
        jobs = [(*self.readers[group], keys) for group, keys in groups.items() if group in self.readers]
        parts = parallel_map(lambda job: self._rows(*job), jobs, self.threads)
        return pa.concat_tables([self._empty, *parts])

    @property
    def _empty(self) -> pa.Table:
        return self.schema.append(pa.field(PATH, pa.string())).append(pa.field(FILE_ID, pa.string())).empty_table()

    def _rows(self, file_slice: FileSlice, reader: RowReader, keys: pa.Array) -> pa.Table:
        batches = reader.rows_of_keys(self.slices, file_slice, keys, use_bloom=False)
        table = pa.Table.from_batches(batches, self.schema)
        for name, value in ((PATH, file_slice.partition), (FILE_ID, file_slice.file_id)):
            table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), table.num_rows))
        return table

    def _moved(self, candidates: pa.Table) -> dict[FileGroupId, pa.Array]:
        """The keys of candidates whose file group is not in the view, by the file groups that may have them now: a
        clustering moves rows."""
        lookup = LookupKeys(candidates["key"].combine_chunks(), candidates["partition"].combine_chunks())
        search = KeySearch(self.snapshot, lookup, ())
        moved: dict[FileGroupId, pa.Array] = {}
        for file_slice in search.candidates.slices:
            group = (file_slice.partition, file_slice.file_id)
            keys = search.keys_in(file_slice) if group in self.readers else ()
            if len(keys):
                moved[group] = keys
        return moved


@dataclass
class SearchEffort:
    """How much a search by an index has looked at: clusters and entries of all queries, rows that were read."""

    clusters: int = 0
    entries: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass
class IndexSearch:
    """A search by a vector index in one view. `uncovered` are the file groups that are searched exactly, `allowed` the
    hashes of the rows that a condition leaves (ascending; None: all rows)."""

    index: OpenedIndex
    task: SearchTask
    candidates: CandidateRows
    uncovered: frozenset[FileGroupId]
    allowed: npt.NDArray[np.uint64] | None
    probes: int
    rerank: int
    effort: SearchEffort = field(default_factory=SearchEffort)

    def rows(self) -> pa.Table:
        """The nearest rows for each query, in ascending order of the distance."""
        self.effort = SearchEffort()
        nearest = self.task.nearest
        jobs = (job for job in self.task.jobs if (job.file_slice.partition, job.file_slice.file_id) in self.uncovered)
        parts = [replace(self.task, jobs=tuple(jobs)).rows()] if self.uncovered else []
        waiting = list(range(len(nearest.queries)))
        probes, rerank = self.probes, self.rerank
        while waiting:
            few: list[int] = []
            candidates = self._candidates(waiting, probes, rerank)
            rows = self.candidates.read(pa.concat_tables(candidates))
            rows = rows.filter(rows[nearest.column].is_valid())
            for query, named in zip(waiting, candidates, strict=True):
                of_query = rows
                if len(waiting) > 1:
                    pairs = _pairs(named["partition"], named["key"])
                    of_query = rows.filter(pc.is_in(_pairs(rows[PATH], rows[RECORD_KEY]), value_set=pairs))
                if len(of_query) < nearest.count and rerank < self.index.entries:
                    few.append(query)
                else:
                    parts.append(self._nearest(query, of_query))
            waiting, probes, rerank = few, probes * _WIDER, rerank * _WIDER
        return self._merged(parts)

    def _candidates(self, queries: Sequence[int], probes: int, rerank: int) -> list[pa.Table]:
        """The candidates for each of these queries: `key`, `partition` and `file_id`."""
        groups = None
        if self.uncovered:
            groups = ~self.index.groups_among(pa.array([file_id for _, file_id in self.uncovered], pa.string()))
        allowed = None if groups is None and self.allowed is None else Allowed(self.allowed, groups)
        matrix = self.task.nearest.queries[list(queries)]
        candidates = self.index.layered.search(matrix, rerank, probes, allowed)
        self.effort.clusters = max(self.effort.clusters, min(probes, self.index.clusters))
        self.effort.entries += len(candidates)
        return self.index.named(candidates, len(queries))

    def _nearest(self, query: int, rows: pa.Table) -> pa.Table:
        """The nearest of these rows, with the columns of the result."""
        self.effort.rows += rows.num_rows
        nearest = replace(self.task.nearest, queries=self.task.nearest.queries[query : query + 1])
        (best,) = nearest.of_batches(iter(rows.select([nearest.column]).combine_chunks().to_batches()))
        return self._result(rows.take(pa.array(best.rows)), best.distances, query)

    def _result(self, rows: pa.Table, distances: npt.NDArray[np.float64], query: int) -> pa.Table:
        columns: dict[str, Any] = {DISTANCE: pa.array(distances)}
        if QUERY_INDEX in self.task.schema.names:
            columns[QUERY_INDEX] = pa.array(np.full(len(distances), query, np.int64))
        arrays = [columns.get(f.name) if f.name in columns else rows[f.name] for f in self.task.schema]
        return pa.Table.from_arrays(arrays, schema=self.task.schema)

    def _merged(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The nearest rows of all parts, query after query."""
        rows = pa.concat_tables([self.task.schema.empty_table(), *parts]).combine_chunks()
        distances = as_numpy(rows[DISTANCE])
        queries = as_numpy(rows[QUERY_INDEX]) if QUERY_INDEX in rows.column_names else np.zeros(len(rows), np.int64)
        order = np.lexsort((distances, queries))
        ordered = queries[order]
        starts = np.searchsorted(ordered, ordered)
        return rows.take(pa.array(order[np.arange(len(order)) - starts < self.task.nearest.count]))

    def text(self) -> str:
        """Lines with the clusters, candidates and rows that the search looks at; it runs for that."""
        self.rows()
        effort, index = self.effort, self.index
        lines = [
            f"  by index    {index.partition}: {effort.clusters:,} of {count_text(index.clusters, 'cluster')},"
            f" {count_text(effort.entries, 'candidate')}, {count_text(effort.rows, 'row')} read"
        ]
        if self.uncovered:
            groups = count_text(len(self.uncovered), "file group")
            lines.append(f"  exactly     {groups} with commits of writers that do not know the index")
        return "\n".join(lines)


def index_search(scan: Scan, task: SearchTask, options: SearchOptions) -> IndexSearch | None:
    """The search by the table's vector index on the searched column; None where it has none for the metric, or none
    that covers the view, and where comparing all rows takes less."""
    snapshot, nearest = scan.snapshot, task.nearest
    definition = vector_index_of(snapshot, nearest.column, nearest.metric)
    metadata = snapshot.metadata
    if definition is None or metadata is None or snapshot.repeats_keys:
        return None
    if MergeRules.of_table(snapshot.config).merger is not None:
        return None
    stored = stored_index(metadata, definition.partition)
    covered = stored.coverage(snapshot)
    if covered.reason is not None:
        return None
    names = [f.name for f in task.schema if f.name not in (DISTANCE, QUERY_INDEX)]
    plan = scan.of_columns([RECORD_KEY, nearest.column, *names]).plan
    allowed = None
    if plan.predicate is not None or scan.parsed_filter() is not None:
        allowed = allowed_rows(scan)
        if len(allowed) < MIN_ROWS:
            return None
    by_group = {(s.partition, s.file_id): (s, reader) for s, reader in row_readers(plan, plan.predicate)}
    readers = {group: reader for group, reader in by_group.items() if group not in covered.groups}
    schema = pa.schema([plan.read_schema.field(name) for name in plan.columns])
    rows = CandidateRows(snapshot, scan.reader, readers, schema, task.threads)
    return IndexSearch(
        open_index(stored, snapshot),
        task,
        rows,
        covered.groups,
        allowed,
        options.probes or definition.probes,
        options.rerank or max(_RERANK, _RERANK_OF_K * nearest.count),
    )


def allowed_rows(scan: Scan) -> npt.NDArray[np.uint64]:
    """The hashes of the rows that fulfil the condition of a scan."""
    keys = scan.of_columns([RECORD_KEY]).plan
    parts = [np.empty(0, np.uint64)]
    for file_slice, reader in row_readers(keys, keys.predicate):
        batches = reader.read(scan.reader, file_slice)
        parts += [row_hashes(plain_strings(batch.column(RECORD_KEY)), file_slice.partition) for batch in batches]
    return np.concatenate(parts)


def _pairs(paths: pa.ChunkedArray, keys: pa.ChunkedArray) -> pa.Array:
    joined = pc.binary_join_element_wise(paths, plain_strings(keys).cast(pa.string()), "\0")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined

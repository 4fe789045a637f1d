"""Search by a vector index: the index names candidates, their rows are read from the view, and file groups that the
index does not cover are searched exactly.

An answer holds rows of the view alone, with their exact distances. What is approximate is which rows are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.hashes import plain_strings
from lakebed.format.key_order import Spans
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.vector_definitions import vector_index_of, vector_indexes
from lakebed.metadata_kinds.vector_store import OpenedIndex, open_index, stored_index
from lakebed.model import RECORD_KEY, FileGroupId, FileSlice
from lakebed.read.batches import row_readers
from lakebed.read.keyed_rows import moved_keys
from lakebed.read.placed_rows import is_placed, rows_at
from lakebed.schema.logical_types import vector_matrix
from lakebed.schema.plain_arrow import as_numpy, matching_rows
from lakebed.sharing import once
from lakebed.slices.key_rows import located_keys
from lakebed.storage.parallel import is_remote, parallel_map
from lakebed.vector_index.entries import row_hashes
from lakebed.vector_index.search import Allowed, Candidates, LayeredIndex
from lakebed.wording import count_text

if TYPE_CHECKING:
    from lakebed.read.batches import RowReader
    from lakebed.read.plan import ScanPlan
    from lakebed.read.scan import Scan
    from lakebed.read.search import SearchJob, SearchOptions, SearchTask
    from lakebed.slices.reader import SliceReader
    from lakebed.slices.snapshot import Snapshot

DISTANCE, QUERY_INDEX = "_hudi_distance", "_hudi_query_index"
"""The columns of a search, by Hudi's names: the distance, and in a batch the number of the query."""
_NUMBER: Final = "_lakebed_number"
Numbers = npt.NDArray[np.int64]
# A search of fewer rows than this, which a condition leaves, compares all of them.
MIN_ROWS: Final = 20_000
# Rows that are read for each query: at least so many, or so many for each row of the answer.
_RERANK: Final = 50
_RERANK_OF_K: Final = 5
# The bytes of rows of log files that stay in memory.
_LOGGED_BYTES: Final = 128 << 20
# A search that finds too few rows looks at so many times the clusters and rows.
_WIDER: Final = 4


@dataclass(frozen=True, eq=False)
class NamedRows:
    """The rows of candidates in one file slice: their vectors, and pairs of a candidate's number and one of these rows.
    `read` gives the columns of the result of some of the rows, by ascending numbers, with a flag for each whether it
    fulfils the condition of the search."""

    vectors: pa.Array
    candidates: Numbers
    rows: Numbers
    read: Callable[[Numbers], tuple[pa.Table, npt.NDArray[np.bool_]]]


@dataclass(frozen=True)
class CandidateRows:
    """Reads the rows of candidates from the file slices of a view. `jobs` are those of a search of all rows: rows whose
    positions are known are read by them. The others are read by `keyed`, the plan of a scan whose columns begin with
    the record key."""

    snapshot: Snapshot
    slices: SliceReader
    jobs: Mapping[FileGroupId, SearchJob]
    keyed: Callable[[], ScanPlan]
    column: str
    threads: int = 1

    def read(self, index: OpenedIndex, candidates: Candidates) -> list[NamedRows]:
        """The rows of the candidates. Rows that are not in the view are missing, and those of keyed slices that do not
        fulfil the condition."""
        groups: dict[FileGroupId, list[Numbers]] = {}
        elsewhere: list[Numbers] = []
        order = np.argsort(candidates.groups, kind="stable")
        numbers, starts = np.unique(candidates.groups[order], return_index=True)
        of_groups = index.layered.groups.taken(numbers)
        for group, of_group in zip(of_groups, np.split(order, starts)[1:], strict=True):
            if group in self._in_view:
                groups[group] = [of_group]
            else:
                elsewhere.append(of_group)
        if elsewhere:
            for group, of_group in self._moved(index, candidates, np.concatenate(elsewhere)).items():
                groups.setdefault(group, []).append(of_group)
        by_job = [(self.jobs[group], np.concatenate(parts)) for group, parts in groups.items() if group in self.jobs]
        parts = parallel_map(lambda job: self._rows(*job, index, candidates), by_job, self.threads)
        return [part for of_job in parts for part in of_job]

    @once
    def _in_view(self) -> frozenset[FileGroupId]:
        return frozenset((s.partition, s.file_id) for s in self.snapshot.file_slices())

    def _moved(self, index: OpenedIndex, candidates: Candidates, of: Numbers) -> dict[FileGroupId, Numbers]:
        """Candidates whose file group is not in the view, by the file groups that may have them now: a clustering moves
        rows."""
        keys = candidates.keys.take(pa.array(of))
        paths = index.layered.groups.partitions.take(pa.array(candidates.groups[of]))
        moved: dict[FileGroupId, Numbers] = {}
        for group, in_slice in moved_keys(self.snapshot, keys, paths, self.jobs).items():
            moved[group] = of[as_numpy(pc.is_in(keys, value_set=in_slice))]
        return moved

    def _rows(self, job: SearchJob, of: Numbers, index: OpenedIndex, candidates: Candidates) -> list[NamedRows]:
        """The rows of the candidates `of` in the slice of a job."""
        file_slice, keys, hints = job.file_slice, candidates.keys.take(pa.array(of)), candidates.rows[of]
        base = file_slice.base_file
        if base is not None and not base.is_skeleton:
            located = located_keys(self.slices, base, keys, hints)
            if located is not None and is_placed(file_slice):
                return [self._placed(file_slice, job.vectors, job.others, of[located[0]], located[1])]
            logged = None if located is None else self._logged(job, index.layered)
            if located is not None and logged is not None:
                keyed = self._keyed_readers[file_slice.partition, file_slice.file_id]
                sources = self._keyed_plan.base_sources[base.instant]
                reader = replace(keyed, sources=sources, columns=job.others.columns)
                is_stored = ~logged.is_replaced[located[1]]
                named, rows = located[0][is_stored], located[1][is_stored]
                stored = self._placed(file_slice.without_logs(), reader, reader, of[named], rows)
                return [stored, self._with_keys(job, of, keys, logged.rows)]
        reader = self._keyed_readers[file_slice.partition, file_slice.file_id]
        ordered = keys.unique()
        ordered = ordered.take(pc.sort_indices(ordered))
        batches = reader.rows_of_keys(self.slices, file_slice, ordered, use_bloom=False)
        schema = pa.schema([reader.read_schema.field(name) for name in reader.columns])
        return [self._with_keys(job, of, keys, pa.Table.from_batches(batches, schema).combine_chunks())]

    def _placed(
        self, file_slice: FileSlice, vectors: RowReader, others: RowReader, named: Numbers, positions: Numbers
    ) -> NamedRows:
        """Rows of a base file at positions, for each the row of one candidate."""
        rows, of_rows = np.unique(positions, return_inverse=True)
        stored = rows_at(self.slices, file_slice, vectors.unfiltered([self.column]), rows)

        def read(numbers: Numbers) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
            every = others.unfiltered(others.read_schema.names)
            return _fulfilling(others, rows_at(self.slices, file_slice, every, rows[numbers]))

        return NamedRows(stored[self.column].combine_chunks(), named, of_rows, read)

    def _with_keys(self, job: SearchJob, of: Numbers, keys: pa.Array, table: pa.Table) -> NamedRows:
        """The rows of a table that have the keys of the candidates `of`: for each candidate all rows with its key."""
        distinct = keys.unique()
        stored = as_numpy(pc.fill_null(pc.index_in(plain_strings(table[RECORD_KEY].combine_chunks()), distinct), -1))
        order = np.argsort(stored, kind="stable")
        of_keys = as_numpy(pc.index_in(keys, distinct))
        first, end = (np.searchsorted(stored[order], of_keys, side) for side in ("left", "right"))
        numbers_of_candidates, rows = Spans(order, first, end).pairs()
        return NamedRows(
            table[self.column].combine_chunks(),
            of[numbers_of_candidates],
            rows,
            lambda numbers: _fulfilling(job.others, table.take(pa.array(numbers))),
        )

    def _logged(self, job: SearchJob, layered: LayeredIndex) -> _LoggedRows | None:
        """The rows that the log files of a slice bring, and those of its base file that they replace; None where its
        base file has no rows that stay as they are."""
        file_slice, reader = job.file_slice, self._keyed_readers[job.file_slice.partition, job.file_slice.file_id]
        assert file_slice.base_file is not None
        every = reader.unfiltered(reader.read_schema.names)
        key = (layered.name, self.snapshot.as_of, file_slice, every.columns)
        logged = _LOGGED.get(key)
        if logged is None:
            touched = every.touched(self.slices, file_slice, file_slice.base_file)
            if not touched.has_untouched_rows:
                return None
            flags = touched.flags()
            batches = [rows for batch in touched.log_rows() for rows in every.shaped(batch, file_slice.partition)]
            logged = _LoggedRows(flags, pa.Table.from_batches(batches, every.read_schema).combine_chunks())
            _LOGGED.put(key, logged)
        return logged

    @once
    def _keyed_plan(self) -> ScanPlan:
        return self.keyed()

    @once
    def _keyed_readers(self) -> Mapping[FileGroupId, RowReader]:
        plan = self._keyed_plan
        return {(s.partition, s.file_id): reader for s, reader in row_readers(plan, plan.predicate)}


def _fulfilling(reader: RowReader, rows: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """The columns of a reader from rows that have all that it reads, and flags of those that fulfil its condition."""
    fulfils = np.ones(len(rows), np.bool_)
    if reader.condition is not None:
        fulfils[:] = False
        for batch in rows.append_column(_NUMBER, pa.array(np.arange(len(rows)))).to_batches():
            fulfils[as_numpy(matching_rows(batch, reader.condition).column(_NUMBER))] = True
    return rows.select(list(reader.columns)), fulfils


@dataclass(frozen=True, eq=False)
class _LoggedRows:
    """What log files change of a slice: flags of the rows of its base file that they replace or delete, and the rows
    that they bring."""

    is_replaced: npt.NDArray[np.bool_]
    rows: pa.Table

    @property
    def nbytes(self) -> int:
        return self.is_replaced.nbytes + self.rows.nbytes


_LOGGED = BoundedCache[_LoggedRows](_LOGGED_BYTES)


@dataclass
class SearchEffort:
    """How much a search by an index has looked at, for all queries together: clusters, entries whose distance was
    estimated, rows that were read, and the bytes of their vectors and of the entries that were not in memory."""

    clusters: int = 0
    entries: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, eq=False)
class _Ranked:
    """The rows that a search has found for one query, in ascending order of the distance: the number of the part that
    has each, and its number there."""

    distances: npt.NDArray[np.float64]
    parts: Numbers
    rows: Numbers

    def take(self, of: Any) -> _Ranked:
        return _Ranked(self.distances[of], self.parts[of], self.rows[of])


@dataclass
class IndexSearch:
    """A search by a vector index in one view. `uncovered` are the file groups that are searched exactly, `allowed` the
    hashes of the rows that a condition leaves (None: all rows)."""

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
        count = self.task.nearest.count
        parts: list[NamedRows] = []
        ranked: dict[int, _Ranked] = {}
        waiting = list(range(len(self.task.nearest.queries)))
        probes, rerank = self.probes, self.rerank
        while waiting:
            candidates = self._candidates(waiting, probes, rerank)
            of_round = self.candidates.read(self.index, candidates)
            few: list[int] = []
            for at, query in enumerate(waiting):
                is_of_query = candidates.queries == at
                nearest_rows = self._ranked(query, of_round, len(parts), is_of_query)
                # candidates whose rows may have another vector by now may have the places of nearer rows: the last row
                # of the answer is then farther than the last candidate was estimated to be
                is_short = len(nearest_rows.rows) < count or (
                    candidates.is_uncertain[is_of_query].any()
                    and nearest_rows.distances[count - 1] > candidates.distances[is_of_query].max()
                )
                if is_short and rerank < self.index.entries:
                    few.append(query)
                else:
                    ranked[query] = nearest_rows
            parts += of_round
            waiting, probes, rerank = few, probes * _WIDER, rerank * _WIDER
        nearest = self._nearest([ranked[query] for query in sorted(ranked)], parts)
        jobs = (job for job in self.task.jobs if (job.file_slice.partition, job.file_slice.file_id) in self.uncovered)
        exactly = [replace(self.task, jobs=tuple(jobs)).rows()] if self.uncovered else []
        return self._merged([nearest, *exactly]) if exactly else nearest

    def _candidates(self, queries: Sequence[int], probes: int, rerank: int) -> Candidates:
        """The candidates for each of these queries, which are numbered anew."""
        groups = None
        if self.uncovered:
            groups = ~self.index.groups_among(pa.array([file_id for _, file_id in self.uncovered], pa.string()))
        allowed = None if groups is None and self.allowed is None else Allowed(self.allowed, groups)
        matrix = self.task.nearest.queries[list(queries)]
        candidates = self.index.layered.search(matrix, rerank, probes, allowed)
        self.effort.clusters = max(self.effort.clusters, candidates.clusters)
        self.effort.entries += candidates.compared
        self.effort.bytes += candidates.bytes_read
        return candidates

    def _ranked(
        self, query: int, parts: Sequence[NamedRows], first: int, is_of_query: npt.NDArray[np.bool_]
    ) -> _Ranked:
        """The rows of the candidates of one query, `parts` being numbered from `first` on."""
        nearest = self.task.nearest
        distances, numbers, rows = [np.empty(0, np.float64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number, part in enumerate(parts, first):
            of_query = np.unique(part.rows[is_of_query[part.candidates]])
            vectors = part.vectors.take(pa.array(of_query))
            if vectors.null_count:
                of_query, vectors = of_query[as_numpy(vectors.is_valid())], vectors.drop_null()
            if not len(of_query):
                continue
            matrix = vector_matrix(vectors)
            distances += nearest.distances(matrix, [query])
            numbers.append(np.full(len(of_query), number))
            rows.append(of_query)
            self.effort.bytes += matrix.nbytes
        nearest_rows = _Ranked(np.concatenate(distances), np.concatenate(numbers), np.concatenate(rows))
        self.effort.rows += len(nearest_rows.rows)
        return nearest_rows.take(np.argsort(nearest_rows.distances, kind="stable"))

    def _nearest(self, ranked: Sequence[_Ranked], parts: Sequence[NamedRows]) -> pa.Table:
        """The nearest rows of each query that fulfil the condition, with the columns of the result."""
        nearest = self.task.nearest
        if nearest.max_distance is not None:
            ranked = [of_query.take(of_query.distances <= nearest.max_distance) for of_query in ranked]
        while True:
            failing: dict[int, Numbers] = {}

            def read(number: int, rows: Numbers, failing: dict[int, Numbers] = failing) -> pa.Table:
                table, fulfils = parts[number].read(rows)
                if not fulfils.all():
                    failing[number] = rows[~fulfils]
                return table

            first = [of_query.take(slice(nearest.count)) for of_query in ranked]
            task = replace(self.task, threads=self.candidates.threads)
            result = task.result([(f.distances, f.parts, f.rows) for f in first], read)
            if not failing:
                return result
            for number, rows in failing.items():
                ranked = [f.take(~((f.parts == number) & np.isin(f.rows, rows))) for f in ranked]

    def _merged(self, parts: Sequence[pa.Table]) -> pa.Table:
        """The nearest rows of all parts, query after query."""
        rows = pa.concat_tables(parts).combine_chunks()
        distances = as_numpy(rows[DISTANCE])
        queries = as_numpy(rows[QUERY_INDEX]) if QUERY_INDEX in rows.column_names else np.zeros(len(rows), np.int64)
        order = np.lexsort((distances, queries))
        ordered = queries[order]
        starts = np.searchsorted(ordered, ordered)
        return rows.take(pa.array(order[np.arange(len(order)) - starts < self.task.nearest.count]))

    def text(self) -> str:
        """Lines with what the search looks at; it runs for that."""
        self.rows()
        effort, index = self.effort, self.index
        lines = [
            f"  by index    {index.partition}: {effort.clusters:,} of {count_text(index.clusters, 'cluster')},"
            f" {count_text(effort.entries, 'code')} compared, {count_text(effort.rows, 'row')} read,"
            f" {count_text(effort.bytes, 'byte')}"
        ]
        if self.uncovered:
            groups = count_text(len(self.uncovered), "file group")
            lines.append(f"  exactly     {groups} with commits of writers that do not know the index")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """How a table is searched: by an index (`by_index`), or exactly by `task`, and the reason for that."""

    task: SearchTask
    by_index: IndexSearch | None = None
    reason: str = ""

    def text(self) -> str:
        """Lines that say so, with what a search by an index looks at; it runs for that."""
        return f"  exactly     {self.reason}" if self.by_index is None else self.by_index.text()


def search_plan(scan: Scan, task: SearchTask, options: SearchOptions) -> SearchPlan:
    """The search by the table's vector index on the searched column; an exact one where it has none for the metric, or
    none that covers the view, and where comparing all rows takes less."""
    snapshot, nearest = scan.snapshot, task.nearest
    reason = _reason_for_all_rows(snapshot, task, options)
    if reason is not None:
        return SearchPlan(task, reason=reason)
    definition, metadata = vector_index_of(snapshot, nearest.column, nearest.metric), snapshot.metadata
    assert definition is not None
    assert metadata is not None
    stored = stored_index(metadata, definition.partition)
    covered = stored.coverage(snapshot)
    if covered.reason is not None:
        return SearchPlan(task, reason=f"the vector index on {nearest.column} is left out: {covered.reason}")
    allowed = None
    if scan.parsed_filter() is not None:
        conditional = ConditionalRows.of(scan)
        if conditional.count < MIN_ROWS:
            rows = count_text(conditional.count, "row")
            return SearchPlan(conditional.narrowed(task), reason=f"the condition leaves {rows}, below {MIN_ROWS:,}")
        allowed = conditional.hashes()
    names = [f.name for f in task.schema if f.name not in (DISTANCE, QUERY_INDEX)]
    jobs = {(job.file_slice.partition, job.file_slice.file_id): job for job in task.jobs}
    rows = CandidateRows(
        snapshot,
        scan.reader,
        {group: job for group, job in jobs.items() if group not in covered.groups},
        lambda: scan.of_columns([RECORD_KEY, nearest.column, *names]).plan,
        nearest.column,
        # small reads of local files take less time than threads do that take turns
        task.threads if is_remote(snapshot.storage) else 1,
    )
    by_index = IndexSearch(
        open_index(stored, snapshot),
        task,
        rows,
        covered.groups,
        allowed,
        options.probes or definition.probes,
        options.rerank or max(_RERANK, _RERANK_OF_K * nearest.count),
    )
    return SearchPlan(task, by_index)


def _reason_for_all_rows(snapshot: Snapshot, task: SearchTask, options: SearchOptions) -> str | None:
    """Why no index of the table can be asked, whatever it covers; None if one can."""
    nearest = task.nearest
    if options.exact:
        return "as it was asked for"
    if vector_index_of(snapshot, nearest.column, nearest.metric) is None:
        others = [index for index in vector_indexes(snapshot) if index.column == nearest.column]
        if not others:
            return f"the table has no vector index on {nearest.column}"
        return f"the vector index on {nearest.column} is of the metric {others[0].metric}"
    if snapshot.repeats_keys:
        return "a key may have several rows"
    if MergeRules.of_table(snapshot.config).merger is not None:
        return "the table's own merge function makes new vectors as rows are read"
    return None


@dataclass(frozen=True, eq=False)
class ConditionalRows:
    """The rows that fulfil the condition of a scan, from one read of the columns of the condition: for each file slice
    the positions of its rows, or (None) the hashes of them. `readers` read the record keys."""

    slices: SliceReader
    readers: Sequence[tuple[FileSlice, RowReader]]
    positions: Sequence[Numbers | None]
    hashed: Sequence[npt.NDArray[np.uint64]]

    @classmethod
    def of(cls, scan: Scan) -> ConditionalRows:
        """The rows that fulfil the condition of this scan."""
        keys = scan.of_columns([RECORD_KEY]).plan
        readers = row_readers(keys, keys.predicate)
        positions = [reader.positions(scan.reader, file_slice) for file_slice, reader in readers]
        hashed = [
            np.empty(0, np.uint64) if rows is not None else _hashes_of(reader.read(scan.reader, file_slice), file_slice)
            for (file_slice, reader), rows in zip(readers, positions, strict=True)
        ]
        return cls(scan.reader, readers, positions, hashed)

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(len(rows) for rows in (*self.positions, *self.hashed) if rows is not None)

    def narrowed(self, task: SearchTask) -> SearchTask:
        """A search of all rows as one of these rows: where their positions are known the condition is not read
        again."""
        of_slices = {s: rows for (s, _), rows in zip(self.readers, self.positions, strict=True) if rows is not None}
        jobs = (job.at(of_slices[job.file_slice]) if job.file_slice in of_slices else job for job in task.jobs)
        return replace(task, jobs=tuple(job for job in jobs if job.rows is None or len(job.rows)))

    def hashes(self) -> npt.NDArray[np.uint64]:
        """The hashes of the rows."""
        parts = [np.empty(0, np.uint64), *self.hashed]
        for (file_slice, reader), rows in zip(self.readers, self.positions, strict=True):
            if rows is not None and len(rows):
                keys = rows_at(self.slices, file_slice, reader.unfiltered([RECORD_KEY]), rows)
                parts.append(_hashes_of(keys.to_batches(), file_slice))
        return np.concatenate(parts)


def _hashes_of(batches: Iterable[pa.RecordBatch], file_slice: FileSlice) -> npt.NDArray[np.uint64]:
    """The hashes of rows of a slice, of which batches have the record keys."""
    keys = (plain_strings(batch.column(RECORD_KEY)) for batch in batches)
    return np.concatenate([np.empty(0, np.uint64), *(row_hashes(part, file_slice.partition) for part in keys)])


def allowed_rows(scan: Scan) -> npt.NDArray[np.uint64]:
    """The hashes of the rows that fulfil the condition of a scan."""
    return ConditionalRows.of(scan).hashes()

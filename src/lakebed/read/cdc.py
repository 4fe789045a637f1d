"""Change data: which rows the commits of a range inserted, updated and deleted, with the row before and after.

A plan finds for each commit and file group a change log, or files that show the changes. On Spark the sources are
spread over tasks, which read them as this process does.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from lakebed.config.settings import ReadSettings
from lakebed.engine.spark_python import use_this_python
from lakebed.engine.spark_session import parallelism, require_spark
from lakebed.engine.spark_worker import for_workers
from lakebed.errors import CheckpointBehind, CorruptFile, InvalidOption
from lakebed.filters.text import resolve_columns
from lakebed.format.data_block import AFTER, BEFORE, OP, TIME
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.index.consistent.ring import Children
from lakebed.model import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    ERASED_ROWS,
    RECORD_KEY,
    SERVICE_OPERATIONS,
    Action,
    BaseFile,
    CommitMetadata,
    FileGroupId,
    FileSlice,
    Instant,
    LogFile,
    WriteStat,
    has_completion_times,
)
from lakebed.read.batches import RowReader, in_order, row_readers
from lakebed.read.cdc_rows import CLEANED, ChangeReader, ChangeSource, cleaned_error, structs
from lakebed.read.incremental import CommitRange, select_commits
from lakebed.read.moments import When
from lakebed.read.plan import data_columns, plan_scan
from lakebed.read.reopening import MISSING, in_task, missing_path, read_again, reopened
from lakebed.read.scan import Cells, Results, column_names_of, first_rows_html, refuse_cleaned
from lakebed.schema.json_rows import json_texts
from lakebed.schema.logical_types import logical_metadata
from lakebed.schema.spark import arrow_to_spark_ddl, as_spark_reads, read_by_spark
from lakebed.sharing import once
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.bodies.plans import planned_clustering
from lakebed.timeline.file_slices import goes_by_slice
from lakebed.timeline.history import being_cleaned
from lakebed.timeline.timeline import completed_at
from lakebed.wording import Lines, count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Files that are asked for at a time.
_HEADS = 16
CDC_ENABLED = "hoodie.table.cdc.enabled"


def select_changes(snapshot: Snapshot, start: When, end: When | None) -> CommitRange:
    """The commits whose changes are read. Raises `InvalidOption` if the table has no change log, or if some of these
    commits are archived."""
    if not snapshot.config.cdc_enabled:
        raise InvalidOption(
            f"table {snapshot.config.name!r} keeps no change log",
            hint=f"create it with properties={{'{CDC_ENABLED}': 'true'}}, or let it keep one from now on by"
            f" t.configure({{'{CDC_ENABLED}': True}}); t.changes() gives the rows that were written, in their latest"
            " state, without one",
            context={"property": CDC_ENABLED},
        )
    commits = select_commits(snapshot, start, end)
    if commits.archived:
        active = snapshot.commits
        oldest = _position(active[0], snapshot.config.version) if active else ""
        first = first_readable(snapshot, active, max(oldest, commits.archived_to)) if active else ""
        raise CheckpointBehind(
            f"changes of table {snapshot.config.name!r} from {commits.start or 'the beginning'} on are not known: some"
            " of these commits are archived",
            hint=f"read a snapshot, then go on from {first or 'its end'}, the first start whose changes are all there;"
            " hoodie.keep.min.commits sets how many commits stay",
            context={"start": commits.start, "checkpoint": first, "first_active": oldest},
        )
    return commits


def plan_changes(snapshot: Snapshot, commits: CommitRange) -> tuple[ChangeSource, ...]:
    """The sources of all changes in the order of their commits; within a commit deletes of complete file groups come
    first."""
    instants = commits.commits
    sources: list[ChangeSource] = []
    for instant, meta in zip(instants, snapshot.timeline.commits_metadata(instants), strict=True):
        if meta.operation in SERVICE_OPERATIONS or instant.action is Action.COMPACTION:
            continue
        if ERASED_ROWS in meta.extra and not _is_readable(snapshot, instant, meta):
            sources.append(ChangeSource("erased", instant.time, rows=int(meta.extra[ERASED_ROWS])))
        else:
            sources += _Commit(snapshot, instant, meta).sources()
    return tuple(sources)


def first_readable(snapshot: Snapshot, commits: Sequence[Instant], earliest: str = "") -> str:
    """The first start, not before `earliest`, after which all files exist that show the changes of these commits."""
    start = earliest
    instants = [i for i in commits if _position(i, snapshot.config.version) > earliest]
    for instant, meta in zip(instants, snapshot.timeline.commits_metadata(instants), strict=True):
        if meta.operation in SERVICE_OPERATIONS or instant.action is Action.COMPACTION or ERASED_ROWS in meta.extra:
            continue
        if not _is_readable(snapshot, instant, meta):
            start = max(start, _position(instant, snapshot.config.version))
    return start


def _is_readable(snapshot: Snapshot, instant: Instant, meta: CommitMetadata) -> bool:
    try:
        paths = {path for source in _Commit(snapshot, instant, meta).sources() for path in source.paths}
    except (InvalidOption, CorruptFile):
        return False
    return all(info is not None for info in parallel_map(snapshot.storage.head, sorted(paths), _HEADS))


def _position(instant: Instant, version: int) -> str:
    return (instant.completion_time or instant.time) if has_completion_times(version) else instant.time


class _Commit:
    """One commit's write stats, sorted by kind."""

    def __init__(self, snapshot: Snapshot, instant: Instant, meta: CommitMetadata) -> None:
        self._snapshot = snapshot
        self._time = instant.time
        self._meta = meta
        self._slices_before = cache(self._all_slices_before)
        self._written_before = cache(self._all_written_before)
        self._origins = cache(self._resized)
        self._is_taken_off = cache(snapshot.timeline.is_taken_off)

    def sources(self) -> Iterator[ChangeSource]:
        for partition, ids in self._meta.replaced.items():
            for file_id in ids:
                yield ChangeSource("deleted", self._time, before=self._replaced(partition, file_id))
        for partition, stats in self._meta.stats.items():
            logs: dict[str, list[WriteStat]] = {}
            for stat in stats:
                if parse_log_file(partition, stat.path.rpartition("/")[2], 0) is not None:
                    logs.setdefault(stat.file_id, []).append(stat)
                else:
                    yield from self._of_base_file(partition, stat)
            copies = self._copies(partition, logs)
            for file_id, appended in logs.items():
                if file_id not in copies:
                    yield self._of_log_files(partition, file_id, appended)

    def _of_base_file(self, partition: str, stat: WriteStat) -> Iterator[ChangeSource]:
        after = self._after(partition, stat)
        if stat.cdc_stats:
            files = tuple(_log_file(partition, path, size) for path, size in stat.cdc_stats.items())
            before = self._before(partition, stat) if self._snapshot.config.change_log == "OP_KEY_ONLY" else None
            yield ChangeSource("logged", self._time, before, after, files)
        elif stat.num_writes == 0 and stat.num_deletes:
            yield ChangeSource("deleted", self._time, before=self._before(partition, stat))
        elif not stat.num_updates and not stat.num_deletes and stat.num_writes == stat.num_inserts:
            if stat.num_writes:
                yield ChangeSource("inserted", self._time, after=after)
        else:
            raise InvalidOption(
                f"commit {self._time} of table {self._snapshot.config.name!r} changed rows of {stat.path} and logged no"
                " change",
                hint=f"it was written while the table kept no change log ({CDC_ENABLED}): read a snapshot, then go on"
                f" after it, from {self._time}",
                context={"instant": self._time, "path": stat.path},
            )

    def _of_log_files(self, partition: str, file_id: str, stats: list[WriteStat]) -> ChangeSource:
        sizes_by_name = {stat.path.rpartition("/")[2]: stat.file_size for stat in stats}
        files = tuple(_log_file(partition, path, size) for path, size in sizes_by_name.items())
        last = stats[-1]
        other_logs = [_log_file(partition, name, 0) for name in last.log_files or () if name not in sizes_by_name]
        earlier = [log for log in other_logs if not log.is_cdc]
        before: FileSlice | None
        if last.base_file:
            base = _base_file(partition, last.base_file)
            before = FileSlice(partition, file_id, base.instant, base, _in_order(earlier))
        else:
            before = self._without_base(partition, file_id, files, earlier)
        if before is None:
            alone = FileSlice(partition, file_id, self._time, None, files)
            return ChangeSource("appended", self._time, after=alone, files=files)
        after = FileSlice(partition, file_id, before.instant, before.base_file, _in_order([*before.log_files, *files]))
        return ChangeSource("appended", self._time, before, after, files)

    def _copies(self, partition: str, logs: Mapping[str, Sequence[WriteStat]]) -> set[str]:
        """The file groups with copies of rows that the commit wrote to other file groups: while a bucket of a
        consistent hashing index is being split or merged, writes go to it and to the resulting file groups, named after
        the clustering. If the clustering was removed from the timeline since, the copies are deleted."""
        copies: set[str] = set()
        for file_id, stats in logs.items():
            planned = _log_file(partition, stats[0].path, 0).instant
            if planned == self._time:
                continue
            origins = self._origins(planned).get((partition, file_id), set())
            if origins & logs.keys() or (not origins and self._is_taken_off(planned)):
                copies.add(file_id)
        return copies

    def _resized(self, planned: str) -> dict[tuple[str, str], set[str]]:
        """For each file group that a clustering creates, the ids of the file groups whose buckets it replaces."""
        timeline = self._snapshot.timeline
        instant = timeline.find(planned, Action.REPLACECOMMIT)
        origins: dict[tuple[str, str], set[str]] = {}
        if instant is None and timeline.is_completed(planned):
            return origins
        try:
            plan = timeline.plan(instant) if instant is not None else timeline.archived().plan(planned)
        except FileNotFoundError:
            return origins
        for operation in planned_clustering(plan).operations if plan.get("clusteringPlan") else ():
            children = Children.of_metadata(operation.extra)
            for node in children.alive if children is not None else ():
                origins[operation.slices[0].partition, node.file_id] = {
                    file_slice.file_id for file_slice in operation.slices
                }
        return origins

    def _without_base(
        self, partition: str, file_id: str, files: Sequence[LogFile], named: Sequence[LogFile]
    ) -> FileSlice | None:
        """The slice to which log files were appended, if their write stats name no base file of it but only the log
        files `named`; None if there is none.

        Names of version 6 have the instant of the slice, so the view shows log files that were written later: the
        versions in their names order them. A compaction that was pending then has begun a slice without a base file,
        which continues the slice before it. The view has no slice where a clustering that was requested before the
        commit has replaced the file group since.
        """
        before = self._slice_before(partition, file_id)
        earlier = [log for log in named if log.instant < self._time]
        if before is not None and (path := self._lacking(before, earlier)):
            raise cleaned_error(path, self._time)
        slice_instant, first = min((log.instant, log.version) for log in files)
        logs = (
            named
            if before is None
            else [o for o in before.log_files if (o.instant, o.version) < (slice_instant, first)]
        )
        base = None if before is None else before.base_file
        if base is None and slice_instant != self._time and self._is_compaction(slice_instant):
            raise cleaned_error(f"file group {file_id} of partition path {partition!r} as it was", self._time)
        if base is None and not logs:
            return None
        return FileSlice(partition, file_id, before.instant if before else logs[0].instant, base, _in_order(list(logs)))

    def _is_compaction(self, time: str) -> bool:
        """Whether a compaction of this instant completed."""
        timeline = self._snapshot.timeline
        if time in timeline.pending_writes:
            return False
        active = timeline.commit(time)
        instants = [active] if active is not None else [i for i in timeline.archived().instants if i.time == time]
        return any(i.is_completed and i.action is Action.COMMIT for i in instants)

    def _after(self, partition: str, stat: WriteStat) -> FileSlice:
        base = _base_file(partition, stat.path, stat.file_size) if stat.path else None
        return FileSlice(partition, stat.file_id, self._time, base)

    def _before(self, partition: str, stat: WriteStat) -> FileSlice | None:
        """The slice from which a base file was made."""
        if stat.prev_base_file and self._snapshot.config.table_type == "cow":
            base = _base_file(partition, stat.prev_base_file)
            return FileSlice(partition, stat.file_id, base.instant, base)
        return self._replaced(partition, stat.file_id)

    def _replaced(self, partition: str, file_id: str) -> FileSlice:
        file_slice = self._slice_before(partition, file_id)
        if file_slice is None:
            raise cleaned_error(f"file group {file_id} of partition path {partition!r} as it was", self._time)
        if path := self._missing_file(file_slice):
            raise cleaned_error(path, self._time)
        return file_slice

    def _slice_before(self, partition: str, file_id: str) -> FileSlice | None:
        """The slice of a file group when the commit began, None if it had none. A slice that is being cleaned may lack
        files."""
        file_slice = self._slices_before().get((partition, file_id))
        going = () if file_slice is None else being_cleaned(self._snapshot.timeline)
        if (
            file_slice is not None
            and going
            and (path := next((f.path for f in file_slice.files if f.path in going), ""))
        ):
            raise cleaned_error(path, self._time)
        return file_slice

    def _missing_file(self, file_slice: FileSlice) -> str:
        """A file of the earlier file group that the slice does not have: a clean has deleted it but not yet the older
        files in the slice, or a savepoint retains those. Empty if none is missing."""
        base_instant = _base_instant(file_slice)
        written = self._written_before()[file_slice.partition, file_slice.file_id]
        missing = self._lacking(file_slice, written)
        if missing or not base_instant or base_instant >= (self._snapshot.timeline.start or ""):
            return missing
        try:  # the commits that wrote such files may be archived
            refuse_cleaned(self._view_before())
        except InvalidOption:
            return f"a file of file group {file_slice.file_id} that is newer than {base_instant}"
        return ""

    def _lacking(self, file_slice: FileSlice, files: Iterable[BaseFile | LogFile]) -> str:
        """The first of the files, which earlier commits wrote to the group, that belongs to the slice or a newer one
        but is missing in the slice; empty if there is none."""
        base_instant, timeline = _base_instant(file_slice), self._snapshot.timeline
        names = {file.name for file in file_slice.files}
        by_completion = has_completion_times(self._snapshot.config.version)
        for file in files:
            since = file.instant
            if isinstance(file, LogFile) and by_completion and not goes_by_slice(file.instant, (base_instant,)):
                since = timeline.completion_time(file.instant) or file.instant
            if since >= base_instant and file.name not in names:
                return file.path
        return ""

    def _all_written_before(self) -> dict[FileGroupId, list[BaseFile | LogFile]]:
        """The files that earlier commits wrote, since the slices of that time began, to the file groups that this
        commit replaced or whose base files it wrote."""
        groups = {(partition, file_id) for partition, ids in self._meta.replaced.items() for file_id in ids}
        groups |= {(partition, stat.file_id) for partition, stats in self._meta.stats.items() for stat in stats}
        slices = self._slices_before()
        first = min((_base_instant(slices[group]) for group in groups if group in slices), default="")
        instants = [i for i in self._view_before().commits if completed_at(i) >= first]
        written: dict[FileGroupId, list[BaseFile | LogFile]] = {group: [] for group in groups}
        for meta in self._snapshot.timeline.commits_metadata(instants):
            for partition, stats in meta.stats.items():
                for stat in stats:
                    files = written.get((partition, stat.file_id))
                    if files is not None and stat.path:  # one without a path has emptied the group
                        name = stat.path.rpartition("/")[2]
                        files.append(parse_log_file(partition, name, 0) or _base_file(partition, name))
        return written

    def _all_slices_before(self) -> dict[FileGroupId, FileSlice]:
        """The slices, as they were when the commit began, of all file groups in the partition paths that it wrote."""
        partitions = {*self._meta.replaced, *self._meta.stats}
        return {(s.partition, s.file_id): s for s in self._view_before().file_slices(partitions)}

    def _view_before(self) -> Snapshot:
        """The table as of the instant before the commit."""
        return self._snapshot.at(str(int(self._time) - 1).zfill(len(self._time)))


def _base_instant(file_slice: FileSlice) -> str:
    """The instant of a slice's base file; empty for a slice without one."""
    return file_slice.base_file.instant if file_slice.base_file is not None else ""


def _base_file(partition: str, path: str, size: int = 0) -> BaseFile:
    base_file = parse_base_file(partition, path.rpartition("/")[2], size)
    if base_file is None:
        raise CorruptFile(f"{path!r} is no name of a base file", context={"path": path})
    return base_file


def _log_file(partition: str, path: str, size: int) -> LogFile:
    log_file = parse_log_file(partition, path.rpartition("/")[2], size)
    if log_file is None:
        raise CorruptFile(f"{path!r} is no name of a log file", context={"path": path})
    return log_file


def _in_order(logs: list[LogFile]) -> tuple[LogFile, ...]:
    """Log files of one slice in merge order."""
    return tuple(sorted(logs, key=lambda log: (log.instant, log.version, log.write_token)))


Images = Literal["rows", "json"]

ChangeJob = tuple[ChangeSource, RowReader | None, RowReader | None]
"""A source with the readers of its slices before and after."""


class ChangeLog(Results):
    """The changes that the commits in (start, end] made, in the order of the commits.

    Columns: `op` (`i`, `u` or `d`), `ts_ms` (the requested instant of the commit, as Hudi has it), `before` and
    `after`: the row's images, null where there is none. With `images="rows"` these are structs of the table's columns
    now (or of some of them), with "json" texts as real Hudi gives them. `end` is the checkpoint: the `start` of the
    next read.

    A row that several commits changed comes once for each of them. Within one commit the rows of a file group come in
    the order in which they are stored; deletes of whole file groups come first.
    """

    _plans = ("image_schema", "sources", "jobs")

    def __init__(
        self,
        snapshot: Snapshot,
        start: When,
        end: When | None = None,
        columns: Sequence[str] | None = None,
        images: Images = "rows",
        spark: SparkSession | None = None,
        reads: ReadSettings | None = None,
    ) -> None:
        if images not in ("rows", "json"):
            raise InvalidOption(f"there are no images {images!r}", hint="take 'rows' (structs) or 'json' (texts)")
        super().__init__(spark)
        self._snapshot = snapshot
        self._start = start
        self._end = end
        self._names = columns
        self._as_text = images == "json"
        self._reads = reads or ReadSettings()

    def select(self, *columns: str | Sequence[str]) -> Self:
        """These changes, with images of these columns: names, or a list of them. Reading raises `InvalidOption` for a
        column that the table does not have.

        >>> import lakebed
        >>> logged = {"hoodie.table.cdc.enabled": True}
        >>> t = lakebed.load("memory://docs/images", {"id": [1], "city": ["Oslo"]}, key="id", properties=logged)
        >>> t.cdc("000").select("city").to_arrow()["after"].to_pylist()
        [{'city': 'Oslo'}]
        """
        return self._with(_names=column_names_of(columns))

    @once
    def range(self) -> CommitRange:
        """The commits that are read, with the start and end of the range."""
        return read_again(self._storage(), lambda: select_changes(self._snapshot, self._start, self._end), self._renew)

    def _storage(self) -> Storage:
        return self._snapshot.storage

    def _renew(self) -> bool:
        cached_range: CommitRange | None = self.__dict__.get("range")
        fresh = reopened(self._snapshot)
        if fresh is None:
            return False
        if cached_range is not None:
            self._end = cached_range.end  # a checkpoint that was given stays
        self._snapshot = fresh
        for name in ("range", "image_schema", "sources", "jobs"):
            self.__dict__.pop(name, None)
        return True

    @property
    def start(self) -> str:
        """The checkpoint before these changes; empty for the beginning."""
        return self.range.start

    @property
    def end(self) -> str:
        """The checkpoint after these changes: pass it as `start` to read the changes that follow."""
        return self.range.end

    @once
    def image_schema(self) -> pa.Schema:
        """The columns of the images."""
        available = read_again(self._storage(), lambda: data_columns(self._snapshot), self._renew)
        names = available.names
        if self._names is not None:
            names = resolve_columns(self._names, available)
        fields = (available.field(name) for name in names)
        return pa.schema([pa.field(f.name, f.type, True, logical_metadata(f)) for f in fields])

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        image = pa.string() if self._as_text else pa.struct(list(self.image_schema))
        return pa.schema([(OP, pa.string()), (TIME, pa.string()), (BEFORE, image), (AFTER, image)])

    @once
    def sources(self) -> tuple[ChangeSource, ...]:
        """The sources of the changes, in the order of their commits."""
        with self._naming_checkpoint():
            return plan_changes(self._snapshot, self.range)

    @property
    def reader(self) -> ChangeReader:
        """The reader of the sources, which can be sent to tasks."""
        return ChangeReader(
            self._snapshot.reader,
            self.schema.field(BEFORE).type,
            json_texts if self._as_text else structs,
            max((i.time for i in self._snapshot.timeline.instants if i.action is Action.CLEAN), default=""),
        )

    @once
    def jobs(self) -> list[ChangeJob]:
        """The sources with the readers of their slices."""
        with self._naming_checkpoint():
            return self._jobs()

    @contextmanager
    def _naming_checkpoint(self) -> Generator[None]:
        """A file that was cleaned as `InvalidOption` with the first start that can be read."""
        try:
            yield
        except MISSING as error:
            last = self.reader.cleaned
            path, commits = missing_path(error, self._snapshot.storage), self._snapshot.commits
            first = first_readable(self._snapshot, commits) if path and last else ""
            unread = next((i.time for i in reversed(commits) if completed_at(i) == first), "")
            if not first or unread >= last:
                raise
            raise cleaned_error(path, unread, first) from error
        except InvalidOption as error:
            if CLEANED not in error.context:
                raise
            first = first_readable(self._snapshot, self._snapshot.commits)
            raise cleaned_error(error.context[CLEANED], error.context["instant"], first) from error

    def _jobs(self) -> list[ChangeJob]:
        slices = dict.fromkeys(s for source in self.sources for s in (source.before, source.after) if s is not None)
        compared = any(source.kind == "appended" for source in self.sources)
        meta = [COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY] if compared else [RECORD_KEY]
        plan = plan_scan(self._snapshot, None, [*self.image_schema.names, *meta], slices=list(slices))
        readers: dict[FileSlice | None, RowReader] = dict(row_readers(plan, None))
        return [(source, readers.get(source.before), readers.get(source.after)) for source in self.sources]

    def _read(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        reader = self.reader
        jobs = [partial(reader.read, *job) for job in self.jobs]
        with self._naming_checkpoint():
            for batch in in_order(jobs, min(8, os.cpu_count() or 1)):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def to_spark(self) -> DataFrame:
        """A lazy DataFrame; its tasks read the sources."""

        spark = self._session(self._snapshot.storage)

        def frame() -> DataFrame:
            return changes_frame(self.jobs, self.reader, self.schema, spark, tuning=self._reads.worker_tuning)

        return read_again(self._storage(), frame, self._renew)

    def explain(self) -> Lines:
        """The commits of the range, and the sources of their changes."""
        return read_again(self._storage(), self._explained, self._renew)

    def _repr_html_(self) -> str:
        return first_rows_html(self) if self._as_text else first_rows_html(self, self._cells)

    def _cells(self, changes: pa.Table) -> Cells:
        """The cells of a printed table of changes: the row, and where an update changed a value both values."""
        names, rows = self.image_schema.names, list[list[object]]()
        for change in changes.to_pylist():
            before, after = change[BEFORE] or change[AFTER] or {}, change[AFTER] or change[BEFORE] or {}
            pairs = ((before.get(name), after.get(name)) for name in names)
            values = (new if old == new else " → ".join(map(str, (old, new))) for old, new in pairs)
            rows.append([change[OP], change[TIME], *values])
        return [OP, TIME, *names], rows

    def _explained(self) -> Lines:
        commits, sources = self.range, self.sources
        span = f"({commits.start or 'beginning'}, {commits.end}]"
        lines = [
            f"changes of {self._snapshot.config.name}: {count_text(len(commits.commits), 'commit')} in {span}",
            f"  columns     {', '.join(self.image_schema.names)}",
        ]
        for kind, description in _KINDS.items():
            group = [source for source in sources if source.kind == kind]
            if group:
                lines.append(
                    f"  {kind:<11} {len(group)} {description} ({sum(s.size for s in group) / (1 << 20):.1f} MiB)"
                )
        return Lines("\n".join(lines))


_KINDS: dict[str, Any] = {
    "logged": "change logs",
    "inserted": "base files of new rows",
    "deleted": "file slices whose rows are all deleted",
    "appended": "file slices with new log files",
    "erased": "commits whose rows were deleted for good",
}


_TASKS_PER_CORE = 4
_SOURCES_PER_TASK = 64


def changes_frame(
    jobs: Sequence[ChangeJob],
    reader: ChangeReader,
    schema: pa.Schema,
    spark: SparkSession,
    *,
    tuning: bool,
) -> DataFrame:
    """The changes of all sources as a lazy DataFrame."""
    require_spark()
    use_this_python(spark)
    read_schema = read_by_spark(schema)
    ddl = arrow_to_spark_ddl(read_schema)
    if not jobs:
        return spark.createDataFrame([], schema=ddl)
    tasks = max(1, min(len(jobs), max(parallelism(spark) * _TASKS_PER_CORE, len(jobs) // _SOURCES_PER_TASK)))
    numbers = spark.range(0, len(jobs), 1, tasks)
    read = for_workers(partial(_read_sources, reader, list(jobs), read_schema), tuning=tuning)
    return numbers.mapInArrow(read, ddl)


def _read_sources(
    reader: ChangeReader, jobs: Sequence[ChangeJob], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():  # one a source
            rows = in_task(reader.slices.storage, reader.read(*jobs[number]))
            yield from (as_spark_reads(batch, schema) for batch in rows)

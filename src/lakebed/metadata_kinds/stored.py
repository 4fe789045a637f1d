"""The files that a metadata table describes, their rows, and the form in which a partition is compared with the
data.

A compared row has the `key` of its record, the `entry` within it (a file of a partition path; else empty), a `label`
for people and the content as `text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.markers import list_markers
from lakebed.format.file_names import BASE_EXTENSIONS, parse_base_file, parse_log_file
from lakebed.metadata_kinds.base import Removal, StoredTable
from lakebed.model import RECORD_KEY, Action, BaseFile, CommitMetadata, FileSlice, LogFile
from lakebed.sharing import once
from lakebed.slices.key_rows import rows_of_keys
from lakebed.slices.listing import Listing, list_table
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import clean_files
from lakebed.timeline.bodies.rollback import rollback_logs, rollback_target
from lakebed.timeline.history import rollback_record
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS, Timeline

F = TypeVar("F", BaseFile, LogFile, BaseFile | LogFile)


def pending_removal(table: StoredTable) -> Removal:
    """The files that pending cleans delete. They may exist or not. The metadata table lists them until the clean
    completes, even if its process died, and no view of the table needs them."""
    timeline = table.snapshot.timeline
    names_by_partition: dict[str, list[str]] = {}
    paths: set[str] = set()
    for plan in (timeline.plan(instant) for instant in timeline.pending if instant.action is Action.CLEAN):
        for partition, names in clean_files(plan).items():
            names_by_partition.setdefault(partition, []).extend(names)
        paths.update(plan.get("partitionsToBeDeleted") or ())
    return Removal(table.snapshot, names_by_partition, paths)


class StoredFiles:
    """The files of completed actions, without those that pending cleans delete; everything is read on demand."""

    def __init__(self, table: StoredTable) -> None:
        self._snapshot = table.snapshot
        self._removal = table.shared(pending_removal)

    @once
    def _listing(self) -> Listing:
        return list_table(self._snapshot.storage)

    @property
    def folders(self) -> Sequence[str]:
        """The partition paths in storage."""
        return self._listing.partitions

    @once
    def files(self) -> list[NewFile]:
        """All base and log files of completed actions."""
        listing, snapshot = self._listing, self._snapshot
        changes = [f for f in listing.log_files if f.is_cdc]
        logs = completed_logs(snapshot, [f for f in listing.log_files if not f.is_cdc])
        completed = [*completed_files(snapshot, [*listing.base_files, *changes]), *logs]
        removed = {(partition, name) for partition, names in self._removal.files.items() for name in names}
        return [NewFile(f.partition, f.name, f.size) for f in completed if (f.partition, f.name) not in removed]

    @property
    def base_files(self) -> list[NewFile]:
        """The base files of completed actions."""
        return [f for f in self.files if f.name.endswith(BASE_EXTENSIONS)]

    @once
    def live(self) -> dict[str, set[str]]:
        """The names of the latest files by partition path."""
        return live_files(self._snapshot.file_slices())

    @once
    def has_log_files(self) -> bool:
        """Whether a latest file slice has log files."""
        return any(file_slice.log_files for file_slice in self._snapshot.file_slices())


def completed_files(snapshot: Snapshot, files: Sequence[F]) -> list[F]:
    """The base files and change logs that completed actions wrote. If a commit is on the timeline, only files that it
    names count: other files with its instant were left by lost attempts."""
    timeline = snapshot.timeline
    named: dict[str, frozenset[str]] = {}
    for instant, meta in zip(timeline.commits, timeline.commits_metadata(timeline.commits), strict=True):
        paths = frozenset(meta.paths)
        if paths:
            named[instant.time] = paths
    return [
        file
        for file in files
        if snapshot.is_visible(file.instant) and (file.instant not in named or file.path in named[file.instant])
    ]


def completed_logs(snapshot: Snapshot, logs: Sequence[LogFile]) -> list[LogFile]:
    """The log files that completed actions wrote. During a pending clustering writes may name log files after the
    clustering; write stats identify these. Before version 8 log files are named after their slice; markers identify
    those of pending actions."""
    timeline = snapshot.timeline
    if snapshot.config.version < 8:
        unfinished = _unfinished_logs(snapshot) if timeline.pending else ()
        return [log for log in logs if log.path not in unfinished]
    pending = {i.time for i in timeline.pending if timeline.is_pending_clustering(i)}
    named: set[str] = set()
    if any(log.instant in pending for log in logs):
        bodies = timeline.commits_metadata(timeline.commits)
        named = {stat.path for meta in bodies for stats in meta.stats.values() for stat in stats}
    return [log for log in logs if snapshot.is_visible(log.instant) or log.path in named]


def _unfinished_logs(snapshot: Snapshot) -> set[str]:
    """The paths of the log files that pending actions write, and of log files with blocks that pending rollbacks hide:
    the metadata table lists them when the action completes."""
    timeline = snapshot.timeline
    times = {instant.time for instant in timeline.pending}
    paths: set[str] = set()
    for rollback in (instant for instant in timeline.pending if instant.action is Action.ROLLBACK):
        record = rollback_record(timeline, rollback)
        target = rollback_target(record)
        if not timeline.is_completed(target):
            times.add(target)
            paths.update(rollback_logs(record))
    markers = (marker for time in times if time for marker in list_markers(snapshot.storage, time))
    return paths | {marker.path for marker in markers if marker.kind == "APPEND"}


def is_base_file(path: str) -> bool:
    """Whether a file of a write stat is a base file; log files have the marks of Hudi's names."""
    return parse_log_file("", path.rpartition("/")[2], 0) is None


def live_files(slices: Iterable[FileSlice]) -> dict[str, set[str]]:
    """The names of the files of slices, base and log files, by partition path."""
    live: dict[str, set[str]] = {}
    for file_slice in slices:
        live.setdefault(file_slice.partition, set()).update(_names(file_slice))
    return live


class LiveFiles(NamedTuple):
    """The names of live files by partition path, before an action and after it."""

    before: dict[str, set[str]]
    after: dict[str, set[str]]


def live_after(snapshot: Snapshot, commit: CommitMetadata) -> dict[str, set[str]]:
    """The names of the live files, after an action, in each partition path that it changes."""
    return live_around(snapshot, commit).after


def live_around(snapshot: Snapshot, commit: CommitMetadata) -> LiveFiles:
    """The names of the live files, before and after an action, in each partition path that it changes: a new base file
    replaces its slice, except log files that completed after its action was requested (a compaction); a log file is
    added to its slice. Files in groups that another action has replaced meanwhile are not live."""
    touched = {*commit.stats, *commit.replaced}
    stats = [(partition, stat) for partition, stats in commit.stats.items() for stat in stats]
    bases = [parse_base_file(partition, stat.path.rpartition("/")[2], 0) for partition, stat in stats]
    base_instants = {(base.partition, base.file_id): base.instant for base in bases if base is not None}
    replaced = {(partition, file_id) for partition, ids in commit.replaced.items() for file_id in ids}
    live = LiveFiles({path: set() for path in touched}, {path: set() for path in touched})
    for file_slice in snapshot.file_slices(touched):
        partition, group = file_slice.partition, (file_slice.partition, file_slice.file_id)
        names = _names(file_slice)
        live.before[partition] |= names
        if group in base_instants:
            live.after[partition].update(_joining(file_slice, base_instants[group], snapshot.timeline))
        elif group not in replaced:
            live.after[partition] |= names
    replaced_groups = snapshot.timeline.replaced_files
    for partition, stat in stats:
        if (partition, stat.file_id) not in replaced_groups:
            live.after[partition].add(stat.path.rpartition("/")[2])
    return live


def has_earlier_neighbour(timeline: Timeline, instant: str) -> bool:
    """Whether an action that was requested before this one may complete after it.

    Records of the metadata table merge in requested order: a tight record of this action would replace the earlier
    action's statistics of partition paths.
    """
    earlier = {completes_as(i.action) for i in timeline.pending if i.time < instant}
    return not earlier.isdisjoint(COMMITS)


def _joining(file_slice: FileSlice, base_instant: str, timeline: Timeline) -> list[str]:
    """The log files of a slice that belong to the new slice which a base file of the instant `base_instant` begins."""
    if timeline.config.version < 8:
        return [log.name for log in file_slice.log_files if log.instant == base_instant]
    completed = [(log, timeline.completion_time(log.instant)) for log in file_slice.log_files]
    return [log.name for log, time in completed if time is not None and time >= base_instant]


def _names(file_slice: FileSlice) -> set[str]:
    base = {file_slice.base_file.name} if file_slice.base_file is not None else set[str]()
    return base | {log.name for log in file_slice.log_files}


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file of the data table that an action wrote. `ranges` is its row of `ColumnRanges`, `bloom` its filter's type
    code and text; None if it has none."""

    partition: str
    name: str
    size: int
    ranges: pa.RecordBatch | None = None
    bloom: tuple[str, str] | None = None


def stored_rows(
    reader: SliceReader, file_slice: FileSlice, columns: Sequence[str], keys: pa.Array | None = None
) -> pa.RecordBatch:
    """The columns of a file slice that are named, as one batch, of the rows with these `keys` or of all rows (None);
    columns that the slice does not have are missing."""
    if keys is None:
        batches = list(reader.read(file_slice, columns))
    else:
        batches = rows_of_keys(reader, file_slice, keys.take(pc.sort_indices(keys)), columns)
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=[RECORD_KEY])
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def base_slice(partition: str, file_id: str, path: str, size: int = 0) -> FileSlice:
    """The slice that consists of one base file; a size of 0 means that the size is looked up when it is read."""
    name = path.rpartition("/")[2]
    named = parse_base_file(partition, name, size)
    base = BaseFile(partition, file_id, "", named.instant if named else "", name, size)
    return FileSlice(partition, file_id, "", base)


COMPARED = pa.schema([(name, pa.string()) for name in ("key", "entry", "label", "text")])
DIFFERENCES = pa.schema(
    [(name, pa.string()) for name in ("index", "problem", "what", "expected", "found", "key", "entry")]
)


def comparable(keys: Sequence[str], entries: Sequence[str], labels: Sequence[str], texts: Sequence[str]) -> pa.Table:
    """A table of rows that can be compared, with the schema `COMPARED`."""
    columns = [pa.array(values, pa.string()) for values in (keys, entries, labels, texts)]
    return pa.Table.from_arrays(columns, schema=COMPARED)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of several tables as one table."""
    return pa.concat_tables([COMPARED.empty_table(), *tables]).combine_chunks()

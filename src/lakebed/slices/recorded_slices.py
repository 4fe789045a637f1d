"""`RecordedSlices`: the latest file slices of a table as this process left them with its last commit, so that its next
commit lists no files.

They are those of the table as long as its timeline shows that commit and nothing newer: another writer, a service, a
rollback or a restore leaves a file on the timeline, and then files are listed as always. Cleans do not count, which
delete no file of a latest slice. The metadata table is a table as well. Only writers use them, under the table lock: a
reader lists files, which shows it damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from lakebed.format.bounded_cache import BoundedCache
from lakebed.model import Action, BaseFile, FileSlice, Instant, LogFile, has_completion_times
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Storage
from lakebed.timeline.file_slices import in_merge_order
from lakebed.timeline.instants import suffix_of
from lakebed.timeline.timeline import Timeline, TimelineFiles

Slices = Mapping[str, tuple[FileSlice, ...] | None]
"""The latest file slices of some partition paths, by path, in the order of their file ids; None where they are more
than `MAX_SLICES`, or its files are more than `MAX_FILES`."""

_CACHED_BYTES = 32 << 20
# Of partition paths with more file slices, each commit looks for those that it touches.
MAX_SLICES = 1_000
MAX_FILES = 2_000
# Statistics of more columns and partition paths are looked up.
MAX_RANGES = 10_000
# After so many commits to a table a process collects the file slices of whole partition paths.
MIN_COMMITS = 2
_BYTES_A_FILE, _BYTES_A_NAME = 500, 100
_CLEAN = f".{Action.CLEAN}"


@dataclass(frozen=True, slots=True)
class RecordedSlices:
    """File slices of a table with these properties, at the moment when its timeline had these files (those of cleans
    apart), of which `newest` are those of the last commit, after `commits` commits of this process."""

    config: TableConfig
    files: TimelineFiles
    slices: Slices
    newest: frozenset[str] = frozenset()
    commits: int = 1
    ranges: frozenset[str] = frozenset()
    """Keys of `partition_stats` that have a record, for a metadata table."""

    @property
    def nbytes(self) -> int:
        """The approximate bytes in memory."""
        files = sum([len(s.log_files) + 1 for slices in self.slices.values() for s in slices or ()])
        return _BYTES_A_FILE * files + _BYTES_A_NAME * (len(self.files) + len(self.ranges))

    @staticmethod
    def of(storage: Storage, config: TableConfig, timeline: Timeline) -> RecordedSlices | None:
        """The file slices that this process recorded for a table with this timeline; None if the last action on it,
        cleans apart, is no commit of this process."""
        recorded = _RECORDED.get(storage.url())
        if recorded is None or recorded.config != config:
            return None
        timeline_files = _without_cleans(timeline.files)
        # older commits may be archived
        is_last = recorded.newest <= timeline_files.keys() and timeline_files.items() <= recorded.files.items()
        return recorded if is_last else None

    @staticmethod
    def after_commit(
        storage: Storage,
        config: TableConfig,
        timeline: Timeline,
        instants: Iterable[Instant],
        before: RecordedSlices | None,
        files: Iterable[BaseFile | LogFile],
    ) -> None:
        """Keep what a commit of this process left: `files` are those that it wrote, `before` what was recorded.
        `instants` are the states of its action that `timeline`, read under the same lock, does not show. No other
        action may be pending or come in between."""
        if not has_completion_times(config.version):
            return
        names: TimelineFiles = dict.fromkeys([instant.file_name for instant in instants])
        slices = {} if before is None else _with_files(before.slices, files)
        url = storage.url()
        earlier = _RECORDED.get(url)
        commits = 1 if earlier is None else earlier.commits + 1
        timeline_files = {**_without_cleans(timeline.files), **names}
        ranges = frozenset[str]() if before is None or len(before.ranges) > MAX_RANGES else before.ranges
        _RECORDED.put(url, RecordedSlices(config, timeline_files, slices, frozenset(names), commits, ranges))

    @staticmethod
    def forget(storage: Storage) -> None:
        """Forget what this process knows of a table."""
        _RECORDED.drop(storage.url())


def _without_cleans(files: TimelineFiles) -> TimelineFiles:
    return {name: info for name, info in files.items() if _CLEAN not in name}


def _with_files(slices: Slices, files: Iterable[BaseFile | LogFile]) -> Slices:
    """The file slices with more files, each of which is newer than all that are there. A partition path whose slices
    do not follow from that is left out."""
    result = {path: its if its is not None and len(its) <= MAX_SLICES else None for path, its in slices.items()}
    partition_of = attrgetter("partition")
    for path, written in groupby(sorted(files, key=partition_of), key=partition_of):
        before = result.get(path)
        if before is not None:
            del result[path]
            after = {file_slice.file_id: file_slice for file_slice in before}
            certain = [_add(after, file) for file in written]
            if all(certain):
                result[path] = tuple([after[file_id] for file_id in sorted(after)])
    return result


def _add(slices: dict[str, FileSlice], file: BaseFile | LogFile) -> bool:
    """Put a file into the file slice to which it belongs; whether that is certain."""
    newest = slices.get(file.file_id)
    if suffix_of(file.instant) or (newest is not None and newest.instant >= file.instant):
        return False
    if isinstance(file, BaseFile):
        slices[file.file_id] = FileSlice(file.partition, file.file_id, file.instant, file)
    elif newest is None:
        slices[file.file_id] = FileSlice(file.partition, file.file_id, file.instant, None, (file,))
    else:
        # instants ascend, so that only log files of one commit have to be put in order
        logs = (*newest.log_files, file)
        if newest.log_files and newest.log_files[-1].instant >= file.instant:
            logs = tuple(in_merge_order(logs))
        slices[file.file_id] = replace(newest, log_files=logs)
    return True


_RECORDED = BoundedCache[RecordedSlices](_CACHED_BYTES, "file slices")

"""From listed files to file slices, of the data table and of the metadata table: pure functions over names."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from lakebed.model import BaseFile, FileGroupId, FileSlice, Instant, LogFile
from lakebed.timeline.instants import suffix_of


@dataclass(slots=True)
class _GroupFiles:
    """All files of one file group, whatever their state."""

    base: list[BaseFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SliceFiles:
    """All files of one file slice. It has several base files if a task was tried more than once; log files are in merge
    order."""

    instant: str
    base_files: tuple[BaseFile, ...]
    log_files: tuple[LogFile, ...]

    @property
    def files(self) -> tuple[BaseFile | LogFile, ...]:
        return (*self.base_files, *self.log_files)


@dataclass(frozen=True, slots=True)
class GroupSlices:
    """A file group with all its file slices, oldest first."""

    partition: str
    file_id: str
    slices: tuple[SliceFiles, ...]

    @property
    def id(self) -> FileGroupId:
        return self.partition, self.file_id


def _by_group(base: Iterable[BaseFile], logs: Iterable[LogFile]) -> dict[FileGroupId, _GroupFiles]:
    groups: dict[FileGroupId, _GroupFiles] = defaultdict(_GroupFiles)
    for b in base:
        groups[b.partition, b.file_id].base.append(b)
    for log in logs:
        groups[log.partition, log.file_id].logs.append(log)
    return dict(groups)


def all_slices(
    base: Iterable[BaseFile],
    logs: Iterable[LogFile],
    *,
    version: int,
    completion_time: Callable[[str], str | None],
) -> Iterator[GroupSlices]:
    """All file groups with all their slices, including files of pending and failed instants."""
    for (partition, file_id), files in _by_group(base, logs).items():
        slices = _assemble(files.base, files.logs, version=version, completion_time=completion_time)
        yield GroupSlices(partition, file_id, tuple(slices))


def latest_slices(
    base: Iterable[BaseFile],
    logs: Iterable[LogFile],
    *,
    version: int,
    is_visible: Callable[[str], bool],
    completion_time: Callable[[str], str | None],
    replaced: Container[FileGroupId],
    pending_compactions: Mapping[FileGroupId, Instant],
    is_named: Callable[[BaseFile], bool] = lambda _: True,
) -> Iterator[FileSlice]:
    """The newest slice that a view shows of each file group that is not replaced, by partition and file id.

    `is_visible(instant)` is whether the instant's files count, `is_named(base_file)` whether its write stats name the
    file: a file of a failed task attempt is not named. A pending compaction hides nothing: its new slice is merged with
    the one before.
    """
    for group, files in sorted(_by_group(base, logs).items()):
        if group in replaced:
            continue
        planned = pending_compactions.get(group)
        if not files.logs and planned is None:  # only the newest of many versions is examined
            ordered = sorted(files.base, key=attrgetter("instant"))
            for b in reversed(ordered):
                if is_visible(b.instant) and is_named(b):
                    yield FileSlice(*group, b.instant, b)
                    break
            continue
        slices = _assemble(
            [b for b in files.base if is_visible(b.instant) and is_named(b)],
            # below version 8 a log has the instant of its slice: its blocks have that of their writer
            [log for log in files.logs if not log.is_cdc and (version < 8 or is_visible(log.instant))],
            version=version,
            completion_time=completion_time,
            pending_compaction=planned.time if planned else None,
        )
        if not slices:
            continue
        newest, logs = slices[-1], slices[-1].log_files
        if planned is not None and newest.instant == planned.time and not newest.base_files and len(slices) > 1:
            newest = slices[-2]
            logs = tuple(sorted((*newest.log_files, *logs), key=_merge_order))
        yield FileSlice(*group, newest.instant, newest.base_files[-1] if newest.base_files else None, logs)


def _assemble(
    base: Iterable[BaseFile],
    logs: Iterable[LogFile],
    *,
    version: int,
    completion_time: Callable[[str], str | None],
    pending_compaction: str | None = None,
) -> list[SliceFiles]:
    """The slices of one file group that have files, oldest first. A pending compaction has already begun a slice."""
    bases: dict[str, list[BaseFile]] = defaultdict(list)
    for file in base:
        bases[file.instant].append(file)
    slice_instants = sorted({*bases, pending_compaction} if pending_compaction else bases)
    slice_logs: dict[str, list[LogFile]] = defaultdict(list)
    for log in sorted(logs, key=_merge_order):
        is_named = version < 8 or goes_by_slice(log.instant, bases)
        instant = log.instant if is_named else _slice_of(log.instant, slice_instants, completion_time)
        if not slice_logs[instant] and instant not in slice_instants:
            insort(slice_instants, instant)
        slice_logs[instant].append(log)
    return [
        SliceFiles(instant, tuple(bases.get(instant, ())), tuple(slice_logs.get(instant, ())))
        for instant in sorted({*bases, *slice_logs})
    ]


def goes_by_slice(instant: str, bases: Container[str]) -> bool:
    """Whether a log file of this instant is named after its slice, as on version 6, and not after its delta commit.
    Upgrades of Hudi do not rename such files. `bases` are the instants of the file group's base files."""
    return instant in bases or bool(suffix_of(instant))


def _slice_of(instant: str, slice_instants: list[str], completion_time: Callable[[str], str | None]) -> str:
    """The slice, among `slice_instants`, to which a log file of this instant belongs: from version 8 on the newest
    slice that was begun before the log file completed. Completion times, which may be archived, are read only if the
    instant itself does not decide it."""
    if not slice_instants:
        return instant
    completed = instant if instant >= slice_instants[-1] else completion_time(instant)
    if completed is None:
        return slice_instants[-1]
    at = bisect_right(slice_instants, completed)
    return slice_instants[at - 1] if at else instant


def in_merge_order(logs: Iterable[LogFile]) -> list[LogFile]:
    """The log files of one slice in the order in which their blocks are merged."""
    return sorted(logs, key=_merge_order)


def _merge_order(log: LogFile) -> tuple[str, int, str, bool]:
    """The sort key for the merge order of a slice's log files: instant, version, then the write token as text, as in
    Hudi: `10-0-1` is before `2-0-1`."""
    return log.instant, log.version, log.write_token, log.is_cdc

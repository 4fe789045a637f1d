"""What a rollback removes: files that its target wrote, and on version 6 blocks that it added to others' log files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from lakebed.format.file_names import parse_log_file
from lakebed.model import BaseFile, Instant, LogFile
from lakebed.timeline.actions import RollbackPlan
from lakebed.timeline.written_files import is_written_by

DataFile = TypeVar("DataFile", bound=BaseFile | LogFile)

# Hudi's size of a log file of which nothing but the name is known.
_UNKNOWN_BYTES = 1


def is_void(target: str, is_committed: Callable[[str], bool]) -> bool:
    """Whether a pending rollback is taken off the timeline instead of being run; `target` is the instant that its plan
    names.

    Hudi refuses some rollbacks of completed commits after it has written their plan, which stays behind. What undoes a
    completed commit takes its completed file away first: where that is still there nothing was deleted. A plan that
    names no instant goes too: whatever it was meant for is still pending, and gets a plan of its own.
    """
    return not target or is_committed(target)


def files_of_instant(files: Iterable[DataFile], instant: str, *, logs: bool = True) -> list[DataFile]:
    """Of all files those whose names carry the instant; without `logs` base files alone, where the name of a log file
    tells the instant of its slice and not of who wrote it."""
    return [file for file in files if file.instant == instant and (logs or isinstance(file, BaseFile))]


def plan_rollback_by_paths(
    target: Instant, paths: Iterable[str], logs: Iterable[str], *, resizes: Collection[str] = frozenset()
) -> RollbackPlan:
    """The rollback of a write whose markers (or an earlier plan) name these files; `logs` are those that it may have
    appended to.

    Only what carries the target's instant in its name is deleted, whatever else is named, and log files with that of
    one of the `resizes`: a delta commit that goes on beside one adds them to the new file groups. Blocks that were
    appended to log files of other instants, before version 8, are to be hidden by command blocks: the plan's `logs`.
    """
    files = sorted(
        path
        for path in set(paths)
        if is_written_by(path, [target.time]) or (is_log_path(path) and is_written_by(path, resizes))
    )
    appended = [path for path in logs if _is_of_other(path, target.time) and path not in files]
    return RollbackPlan(target, tuple(files), dict.fromkeys(appended, _UNKNOWN_BYTES))


def is_log_path(path: str) -> bool:
    """Whether a path is that of a log file."""
    return ".log." in path.rpartition("/")[2]


def _is_of_other(path: str, instant: str) -> bool:
    partition, _, name = path.rpartition("/")
    file = parse_log_file(partition, name, 0)
    return file is not None and file.instant != instant and is_written_by(path, [file.instant])

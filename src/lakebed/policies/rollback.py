"""What a rollback removes: files that its target wrote, and on version 6 blocks that it added to others' log files.
What a restore takes back: everything after its instant, newest first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from lakebed.format.file_names import is_written_by, parse_log_file
from lakebed.model import Action, BaseFile, Instant, LogFile, has_completion_times
from lakebed.timeline.bodies.rollback import RollbackPlan
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS, completed_at

DataFile = TypeVar("DataFile", bound=BaseFile | LogFile)

# Hudi's size of a log file of which nothing but the name is known.
_UNKNOWN_BYTES = 1


def is_void(target: str, is_committed: Callable[[str], bool]) -> bool:
    """Whether a pending rollback is removed from the timeline instead of being run; `target` is the instant that its
    plan names.

    Hudi refuses some rollbacks of completed commits after it has written their plan, which it leaves. What undoes a
    completed commit takes its completed file away first: where that is still there nothing was deleted. A plan that
    names no instant goes too: whatever it was meant for is still pending, and gets a plan of its own.
    """
    return not target or is_committed(target)


def files_of_instant(files: Iterable[DataFile], instant: str, *, logs: bool = True) -> list[DataFile]:
    """The files with the instant in their names. Without `logs` only base files: on version 6 the name of a log file
    has the instant of its slice and not that of its writer."""
    return [file for file in files if file.instant == instant and (logs or isinstance(file, BaseFile))]


def plan_rollback_by_paths(
    target: Instant, paths: Iterable[str], logs: Iterable[str], *, resizes: Collection[str] = frozenset()
) -> RollbackPlan:
    """The rollback of a write whose markers (or an earlier plan) name these files; `logs` are log files to which it may
    have appended.

    Only what has the target's instant in its name is deleted, whatever else is named, and log files with that of
    one of the `resizes`: a delta commit during a resize adds them to the new file groups. Blocks that were
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


def later_actions(instants: Iterable[Instant], to: Instant, *, version: int, is_mor: bool) -> list[Instant]:
    """The actions of writers and services, including pending ones, that a restore to the completed commit `to` takes
    back.

    What is later goes by completion, but for compactions, which change no row: those go by when they were requested,
    as on version 6 everything does (it has no completion times). Pending ones come first: what they begin has no
    reader. On version 6 log files go by their slice's instant, so each is taken back before the slice that it wrote to.
    """
    by_completion = has_completion_times(version)

    def is_later(instant: Instant) -> bool:
        merges = is_mor and Action.COMMIT in (completes_as(instant.action), to.action)
        if not by_completion or merges or not instant.is_completed:
            return instant.time > to.time
        return completed_at(instant) > completed_at(to)

    def place(instant: Instant) -> tuple[bool, bool, str]:
        if not by_completion:
            return False, False, instant.time
        is_pending = not instant.is_completed
        return is_pending, is_pending and instant.action is Action.CLUSTERING, completed_at(instant)

    return sorted((i for i in instants if completes_as(i.action) in COMMITS and is_later(i)), key=place, reverse=True)

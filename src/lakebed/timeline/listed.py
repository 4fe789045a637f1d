"""`Listed`: what the files of a timeline's folder say. The next one is made from the one before: of a long timeline
little is new, and what is known is not looked at again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from copy import copy
from dataclasses import replace
from typing import Any

from lakebed.model import Action, Instant, State, has_completion_times
from lakebed.storage.base import FileInfo
from lakebed.timeline.instants import completes_as, format_millis, parse_instant_file, says_all
from lakebed.timeline.table_config import TableConfig

COMMITS = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)

TimelineFiles = Mapping[str, FileInfo | None]
"""Files of the timeline's folder by name; None where size and time were not asked for."""

Key = tuple[str, Action]
"""What tells one action from another: its requested time, and what it completes as."""

# A name, its place in the mappings, and a share of the instant that three files are about.
_BYTES_A_FILE = 500


class Listed:
    """Each action once, in its highest state, by requested time: all of them, and those of a kind. Never changes."""

    def __init__(self, files: TimelineFiles, config: TableConfig, before: Listed | None = None) -> None:
        """`before`: what the folder said last; where nothing of it is gone, only files that came since are parsed."""
        new: Collection[str] = files
        if before is not None:
            known = before.files
            new = [name for name in files if name not in known]
            if not before._is_within(files, len(new)):
                before, new = None, files
        self.files = files
        requested: dict[Key, str] = dict(before.requested) if before else {}
        highest: dict[Key, Instant] = dict(before.highest) if before else {}
        changed: set[Key] = set()
        for name in new:
            instant = parse_instant_file(name, config.version)
            if instant is None:
                continue
            key = key_of(instant)
            if instant.state is State.REQUESTED:
                requested[key] = name
            known = highest.get(key)
            if known is None or known.state < instant.state:
                highest[key] = _with_completion_time(instant, files[name], config)
                changed.add(key)
        self.requested: Mapping[Key, str] = requested
        self.highest: Mapping[Key, Instant] = highest
        self._divide([highest[key] for key in sorted(changed)], before)

    def _divide(self, changed: list[Instant], before: Listed | None) -> None:
        """The instants by kind: those of before, and what changed, in ascending order."""
        completed = [i for i in changed if i.is_completed]
        commits = [i for i in completed if i.action in COMMITS]
        pending = [] if before is None else [i for i in before.pending if self.highest[key_of(i)] is i]
        self.instants = _joined(before.instants if before else (), changed)
        self.completed = _joined(before.completed if before else (), completed)
        self.commits = _joined(before.commits if before else (), commits)
        self.pending = _joined(pending, [i for i in changed if not i.is_completed])
        self.commits_by_completion = _joined(
            before.commits_by_completion if before else (), sorted(commits, key=_by_completion), _by_completion
        )
        self.commit_times: Set[str] = {*(before.commit_times if before else ()), *(i.time for i in commits)}
        saved = (i.time for i in changed if i.action is Action.SAVEPOINT)
        self.savepoints: Set[str] = {*(before.savepoints if before else ()), *saved}
        times = dict(before.completion_times) if before else {}
        for i in completed:
            if i.completion_time and (i.action in COMMITS or i.time not in self.commit_times):
                times[i.time] = i.completion_time
        self.completion_times: Mapping[str, str] = times
        greatest = before.greatest_time if before else ""
        self.greatest_time = max((greatest, *(max(i.time, i.completion_time or "") for i in changed)))

    def without_files(self) -> Listed:
        """The instants alone, as tasks on other machines need them: the next folder is not told from this."""
        bare = copy(self)
        bare.files, bare.requested = {}, {}
        return bare

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        return _BYTES_A_FILE * len(self.files)

    def _is_within(self, files: TimelineFiles, new: int) -> bool:
        """Whether all files are still there, and the same; so many of the others are new."""
        all_there = len(files) - new == len(self.files)
        return all_there and (not any(self.files.values()) or self.files.items() <= files.items())


def key_of(instant: Instant) -> Key:
    return instant.time, completes_as(instant.action)


def completed_at(instant: Instant) -> str:
    """When a completed instant completed; its requested time where it has no completion time."""
    return instant.completion_time or instant.time


def _by_completion(instant: Instant) -> tuple[str, Key]:
    return completed_at(instant), key_of(instant)


def _joined(
    known: Iterable[Instant], changed: list[Instant], place: Callable[[Instant], Any] = key_of
) -> tuple[Instant, ...]:
    """Instants in ascending order, with the changed ones in place of what they were or in between."""
    found = [*known]
    for instant in changed:
        key = place(instant)
        if not found or place(found[-1]) < key:
            found.append(instant)
            continue
        at = bisect_left(found, key, key=place)
        found[at : at + (place(found[at]) == key)] = [instant]
    return tuple(found)


def _with_completion_time(instant: Instant, info: FileInfo | None, config: TableConfig) -> Instant:
    """Completed files that an upgrade left without completion time completed when they were last modified."""
    if info is None or says_all(instant.file_name, config.version) or not has_completion_times(config.version):
        return instant
    return replace(instant, completion_time=format_millis(info.modified, config.timezone))

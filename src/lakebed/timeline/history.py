"""The past of a timeline: the extent of the last clean, from when on views are complete, which instants rollbacks undo,
and inserts of other writers that may have stored keys a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakebed.errors import CorruptFile
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.model import WRITER_ID, Action, Instant, State, path_in
from lakebed.storage.parallel import parallel_map
from lakebed.timeline.bodies.rollback import planned_rollbacks, rollback_target
from lakebed.timeline.timeline import Timeline, completed_at

_CACHED_BYTES = 1 << 20
_BYTES_OF_ONE = 500


@dataclass(frozen=True, slots=True)
class Clean:
    """One clean. `earliest` is the first commit that it retained completely, empty if it retained file versions.
    `last_completed` is the last commit that it saw, `savepoints` are those that prevented deletions."""

    time: str
    earliest: str
    last_completed: str
    savepoints: tuple[str, ...] = ()


def last_clean(timeline: Timeline) -> Clean | None:
    """The last completed clean, None if there is none; its body is read once per process."""
    instant = next((i for i in reversed(timeline.completed) if i.action is Action.CLEAN), None)
    return None if instant is None else _completed(timeline, instant)


def cleans_after(timeline: Timeline, time: str) -> Iterator[Clean]:
    """The cleans of the active timeline after a time, newest first, including those that have only begun."""
    for instant in reversed(timeline.instants):
        if instant.time <= time:
            return
        if instant.action is Action.CLEAN:
            yield _completed(timeline, instant) if instant.is_completed else planned_clean(timeline, instant)


def planned_clean(timeline: Timeline, instant: Instant) -> Clean:
    """The contents of a clean's plan."""
    plan = timeline.plan(instant)
    return _clean(instant.time, (plan.get("earliestInstantToRetain") or {}).get("timestamp") or "", plan)


def being_cleaned(timeline: Timeline) -> frozenset[str]:
    """The paths of the files that begun cleans delete. Until such a clean completes the metadata table lists them, and
    the folders have some of them."""
    inflight = [i for i in timeline.pending if i.action is Action.CLEAN and i.state is State.INFLIGHT]
    if not inflight:
        return frozenset()
    from lakebed.timeline.bodies.plans import clean_files

    plans = [clean_files(timeline.plan(instant)) for instant in inflight]
    return frozenset(path_in(partition, name) for plan in plans for partition in plan for name in plan[partition])


def archived_cleans(timeline: Timeline) -> Iterator[Clean]:
    """The cleans of the archived timeline, newest first."""
    archived = timeline.archived()
    for instant in reversed(archived.instants):
        if instant.action is Action.CLEAN:
            plan = archived.plan(instant.time)
            yield _clean(instant.time, (plan.get("earliestInstantToRetain") or {}).get("timestamp") or "", plan)


def _completed(timeline: Timeline, instant: Instant) -> Clean:
    path = f"{timeline.config.timeline_path}/{instant.file_name}"
    key = timeline.storage.url(path), timeline.files.get(instant.file_name)
    cached = _CLEANS.get(key)
    if cached is None:
        body = timeline.metadata(instant)
        cached = CacheEntry(_clean(instant.time, body.get("earliestCommitToRetain") or "", body), _BYTES_OF_ONE)
        _CLEANS.put(key, cached)
    return cached.content


def _clean(time: str, earliest: str, body: Mapping[str, Any]) -> Clean:
    from lakebed.timeline.bodies.plans import SAVEPOINTED

    savepoints = (body.get("extraMetadata") or {}).get(SAVEPOINTED) or ""
    names = tuple(name.strip() for name in savepoints.split(",") if name.strip())
    return Clean(time, earliest, body.get("lastCompletedCommitTimestamp") or "", names)


_CLEANS = BoundedCache[CacheEntry[Clean]](_CACHED_BYTES)
"""Completed cleans by their file. A file of this name is written once."""


def rollback_record(timeline: Timeline, rollback: Instant) -> Mapping[str, Any]:
    """The decoded plan of a rollback; empty if it cannot be read."""
    try:
        return timeline.plan(rollback)
    except CorruptFile:
        return {}


def rolled_back(timeline: Timeline, since: str) -> Iterator[tuple[Instant, str]]:
    """Pairs of a rollback after a time, including pending ones, and the instant that it undoes, and of a restore and
    each of its instants; their plans are read."""
    rollbacks = [i for i in timeline.instants if i.action is Action.ROLLBACK and i.time > since]
    yield from zip(rollbacks, parallel_map(lambda i: rollback_target(timeline.plan(i)), rollbacks), strict=True)
    restores = [i for i in timeline.instants if i.action is Action.RESTORE and i.time > since]
    for restore, plan in zip(restores, parallel_map(timeline.plan, restores), strict=True):
        yield from ((restore, undone.time) for undone in planned_rollbacks(plan))


_OPERATIONS = frozenset(
    (
        "INSERT",
        "INSERT_PREPPED",
        "BULK_INSERT",
        "BULK_INSERT_PREPPED",
        "INSERT_OVERWRITE",
        "INSERT_OVERWRITE_TABLE",
    )
)


def has_unchecked_inserts(timeline: Timeline, checked: str = "") -> bool:
    """Whether a writer other than lakebed has inserted rows since the last commit of lakebed, which considered all
    earlier commits, and since the time `checked`, up to which keys are known to be unique.

    Archived commits are not checked.
    """
    for instant in reversed(timeline.commits_by_completion):
        if completed_at(instant) <= checked:
            return False
        commit = timeline.commit_metadata(instant)
        if WRITER_ID in commit.extra:
            return False
        if commit.operation in _OPERATIONS:
            return True
    return False

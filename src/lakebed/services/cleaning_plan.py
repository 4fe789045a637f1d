"""The plan of a clean: whether one is due, told from the timeline alone, and which files it deletes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from lakebed.config.settings import CleaningSettings
from lakebed.errors import InvalidOption
from lakebed.format.file_names import parse_base_file
from lakebed.model import Action, BaseFile, FileGroupId, Instant, LogFile, State
from lakebed.policies.cleaning import (
    Protected,
    Retention,
    passing_at_most,
    plan_cleaning,
    retain_commits,
    retain_since,
    retain_versions,
    superseded_partitions,
)
from lakebed.slices.listing import Listing, list_metadata, list_table
from lakebed.slices.metadata_view import naming_metadata
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import CleaningPolicy, CleanPlan, compaction_operations
from lakebed.timeline.bodies.rollback import savepointed_paths
from lakebed.timeline.file_slices import all_slices
from lakebed.timeline.history import Clean, last_clean
from lakebed.timeline.instants import completes_as, format_time, parse_time
from lakebed.timeline.timeline import COMMITS, Timeline

# What holds cleaning back while it is pending: nothing goes that was there when it was requested.
_HOLDS = (*COMMITS, Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING, Action.SAVEPOINT)


@dataclass(frozen=True)
class Cleanable:
    """What a clean may find: what it keeps, and the partition paths that it looks at (None: all)."""

    retention: Retention
    partitions: frozenset[str] | None


def find_cleanable(
    timeline: Timeline, commits: Sequence[Instant], settings: CleaningSettings, now: str, *, when_due: bool
) -> Cleanable | str:
    """What there may be to clean after these completed commits, or why there is nothing; `now` is an instant time.

    With `when_due` only where there are commits enough since the last clean, and a commit left something behind.
    """
    check_filters(settings)
    last = last_clean(timeline)
    since = sum(i.time > last.time for i in commits) if last else len(commits)
    if when_due and since < settings.trigger_commits:
        return f"no clean is due: {since} of {settings.trigger_commits} commits since the last one"
    retention = retention_of(timeline, commits, settings, now)
    if isinstance(retention, str):
        return retention
    if last is not None and last.earliest:
        retention = passing_at_most(retention, commits, last.earliest, settings.most_commits)
    if not settings.incremental and (settings.partitions or settings.partition_regex):
        return Cleanable(retention, None)
    goes_on = settings.incremental and _goes_on(timeline, last)
    if retention.earliest is None:
        behind = [i for i in commits if last is None or i.time > last.last_completed]
        return Cleanable(retention, None) if not when_due or _changed(timeline, behind) else _nothing(retention)
    start = last.earliest if goes_on and last is not None else ""
    changed = _changed(timeline, [i for i in commits if start <= i.time < retention.earliest.time])
    if changed or not (goes_on or when_due):
        return Cleanable(retention, changed if goes_on else None)
    forgotten = last is not None and not goes_on and not _savepoints_stay(timeline, last)
    return Cleanable(retention, None) if forgotten else _nothing(retention)


def plan_clean(snapshot: Snapshot, found: Cleanable, settings: CleaningSettings) -> CleanPlan:
    """The files that go, of the table as it is under the lock."""
    paths = _filtered(snapshot, found.partitions, settings)
    listing = _listing(snapshot, paths)
    timeline, version = snapshot.timeline, snapshot.config.version
    savepoints = savepointed_files(timeline)
    groups = all_slices(
        [file for file in listing.base_files if snapshot.is_visible(file.instant)],
        # before version 8 a log file goes by its slice's instant
        [file for file in listing.log_files if version < 8 or snapshot.is_visible(file.instant)],
        version=version,
        completion_time=timeline.completion_time,
    )
    kept = frozenset(path for files in savepoints.values() for path in files)
    protected = Protected(kept, savepoints.keys(), planned_slices(timeline))
    plan = plan_cleaning(groups, timeline.commits, found.retention, timeline.replaced_files(), protected)
    emptied = tuple(_emptied(snapshot, plan, listing))
    return CleanPlan(plan.files, plan.earliest, plan.last_completed, plan.policy, emptied, tuple(sorted(savepoints)))


def savepointed_files(timeline: Timeline) -> dict[str, frozenset[str]]:
    """The paths of the files that each savepoint names, by its instant."""
    saved = [i for i in timeline.completed if i.action is Action.SAVEPOINT]
    return {i.time: frozenset(savepointed_paths(timeline.metadata(i))) for i in saved}


def planned_slices(timeline: Timeline) -> dict[FileGroupId, str]:
    """The oldest slice of each file group that a pending plan works on, by the slice's instant."""
    found: dict[FileGroupId, str] = {}

    def add(group: FileGroupId, instant: str) -> None:
        found[group] = min(found.get(group, instant), instant)

    for instant in timeline.pending:
        if instant.action in (Action.COMPACTION, Action.LOGCOMPACTION):
            for one in compaction_operations(timeline.plan(instant)):
                add((one.partition, one.file_id), one.instant)
        elif timeline.is_pending_clustering(instant):
            for group in (timeline.plan(instant).get("clusteringPlan") or {}).get("inputGroups") or ():
                for one in group.get("slices") or ():
                    name = (one.get("dataFilePath") or "").rpartition("/")[2]
                    base = parse_base_file("", name, 0)
                    add((one.get("partitionPath") or "", one.get("fileId") or ""), base.instant if base else "")
    return found


def check_filters(settings: CleaningSettings) -> None:
    """Raise `InvalidOption` for partition paths that are chosen, but not for good: others would never be cleaned."""
    if settings.incremental and (settings.partitions or settings.partition_regex):
        raise InvalidOption(
            "hoodie.clean.partition.filter.* chooses partition paths, and an incremental clean looks at those that"
            " changed",
            hint="set hoodie.clean.incremental.enabled=false with it",
        )


def _is_read_for_an_index(instant: Instant) -> bool:
    return instant.action is Action.INDEXING and instant.state is State.INFLIGHT


def retention_of(
    timeline: Timeline, commits: Sequence[Instant], settings: CleaningSettings, now: str
) -> Retention | str:
    """What these completed commits make cleaning keep, or why it keeps all; `now` is an instant time."""
    pending = [i for i in timeline.pending if i.action in _HOLDS or _is_read_for_an_index(i)]
    match CleaningPolicy(settings.policy):
        case CleaningPolicy.KEEP_LATEST_COMMITS:
            found = retain_commits(commits, pending, settings.commits)
            why = f"the last {settings.commits} commits are kept, and there are {len(commits)}"
        case CleaningPolicy.KEEP_LATEST_BY_HOURS:
            zone = timeline.config.timezone
            first = format_time(parse_time(now, zone) - timedelta(hours=settings.hours), zone)
            found = retain_since(commits, pending, first)
            why = f"what commits of the last {settings.hours} hours see is kept, and there are none"
        case CleaningPolicy.KEEP_LATEST_FILE_VERSIONS:
            found = retain_versions(settings.versions)
            why = ""
    if found is None and pending:
        why += f" (pending: {pending[0].action} {pending[0].time})"
    return found if found is not None else f"nothing to clean: {why}"


def _goes_on(timeline: Timeline, last: Clean | None) -> bool:
    """Whether what the last clean left behind it was clean, and still is."""
    if last is None or not last.earliest or (timeline.start is not None and last.earliest < timeline.start):
        return False
    return _savepoints_stay(timeline, last)


def _savepoints_stay(timeline: Timeline, last: Clean) -> bool:
    """Whether all savepoints are there yet that kept files from the last clean."""
    return set(last.savepoints) <= {i.time for i in timeline.completed if i.action is Action.SAVEPOINT}


def _changed(timeline: Timeline, commits: Sequence[Instant]) -> frozenset[str]:
    """The partition paths where these commits left something behind."""
    known = [i for i in commits if timeline.commit(i.time) is not None]
    return frozenset[str]().union(*map(superseded_partitions, timeline.commits_metadata(known)))


def _nothing(retention: Retention) -> str:
    before = f"before {retention.earliest.time}" if retention.earliest else "since the last clean"
    return f"nothing to clean: no commit {before} has left anything behind"


def _filtered(
    snapshot: Snapshot, partitions: frozenset[str] | None, settings: CleaningSettings
) -> frozenset[str] | None:
    if not settings.partitions and not settings.partition_regex:
        return partitions
    known = snapshot.partitions()
    pattern = re.compile(settings.partition_regex) if settings.partition_regex else None
    return frozenset(p for p in known if p in settings.partitions or (pattern is not None and pattern.fullmatch(p)))


def _listing(snapshot: Snapshot, partitions: frozenset[str] | None) -> Listing:
    """Every file of some partition paths, or of all."""
    if snapshot.metadata is None:
        return list_table(snapshot.storage, partitions)
    with naming_metadata(snapshot.storage):
        return list_metadata(snapshot.metadata, snapshot.storage, partitions)


def _emptied(snapshot: Snapshot, plan: CleanPlan, listing: Listing) -> Iterator[str]:
    """The partition paths of which nothing is left, whatever a folder holds that is not listed; none while somebody
    may be writing to one."""
    if any(completes_as(i.action) in COMMITS for i in snapshot.timeline.pending):
        return
    left: set[str] = {f.partition for f in _files(listing) if f.name not in plan.files.get(f.partition, ())}
    for partition in sorted(plan.files.keys() - left - {""}):
        going = set(plan.files[partition])
        if all(file.name in going for file in _files(list_table(snapshot.storage, [partition]))):
            yield partition


def _files(listing: Listing) -> tuple[BaseFile | LogFile, ...]:
    return (*listing.base_files, *listing.log_files)

"""Cleaning: file slices that no retained view needs are deleted, by plans on the timeline.

The plan decides whether a clean is due and which files it deletes, from the timeline and the files. It is made under
the table lock and carried out outside it, while writes go on. The plan of a runner that died is carried out again: a
file that is already missing counts as deleted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from lakebed.config.settings import CleaningSettings
from lakebed.errors import InvalidOption
from lakebed.format.file_names import is_data_path, parse_base_file, parse_log_file
from lakebed.model import Action, BaseFile, FileGroupId, Instant, LogFile, State, path_in
from lakebed.operations.context import WriteContext
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
from lakebed.progress import progress
from lakebed.services.consumers import needs_of_consumers
from lakebed.services.driver import (
    NothingToDo,
    PlannedService,
    ServiceResult,
    ServiceRun,
    ServiceState,
)
from lakebed.services.service import ServiceTransaction
from lakebed.slices.listing import PARTITION_METADATA, Listing, list_metadata, list_table
from lakebed.slices.snapshot import Snapshot, metadata_damage_named
from lakebed.storage.base import Storage
from lakebed.storage.parallel import delete_files
from lakebed.timeline.bodies.plans import (
    RETAINED_FOR,
    CleaningPolicy,
    CleanPlan,
    RequestedBody,
    clean_body,
    clean_files,
    compaction_operations,
    encode_clean_metadata,
    retained_text,
)
from lakebed.timeline.bodies.rollback import savepointed_paths
from lakebed.timeline.consumers import ConsumerNeed
from lakebed.timeline.file_slices import GroupSlices, all_slices
from lakebed.timeline.history import Clean, last_clean
from lakebed.timeline.instants import by_this_clock, completes_as, format_time, parse_time
from lakebed.timeline.timeline import COMMITS, Timeline
from lakebed.wording import count_text

# Actions that hold cleaning back while they are pending: no file is deleted that was current when one was requested.
_HOLDS = (*COMMITS, Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING, Action.SAVEPOINT)


@dataclass(frozen=True)
class CleanCandidates:
    """The files among which a clean looks for files to delete: the retention, the partition paths that it examines
    (None: all), and the consumers for which it retains more."""

    retention: Retention
    partitions: frozenset[str] | None
    needs: tuple[ConsumerNeed, ...] = ()


def find_cleanable(
    timeline: Timeline,
    commits: Sequence[Instant],
    settings: CleaningSettings,
    now: str,
    *,
    when_due: bool,
    needs: Sequence[ConsumerNeed] = (),
) -> CleanCandidates | NothingToDo:
    """The candidates for cleaning after these completed commits, or the reason why there are none; `now` is an instant
    time, `needs` are the commits that consumers have not read.

    With `when_due` a clean needs enough commits since the last clean, and a commit that left files to clean.
    """
    candidates = _find_cleanable(timeline, commits, settings, now, (), when_due=when_due)
    if isinstance(candidates, NothingToDo) or not needs:
        return candidates
    earliest = candidates.retention.earliest
    holding = tuple(need for need in needs if earliest is None or need.commit.time < earliest.time)
    if not holding:
        return candidates
    retained = (
        candidates if earliest is None else _find_cleanable(timeline, commits, settings, now, needs, when_due=when_due)
    )
    if isinstance(retained, NothingToDo):
        return NothingToDo(f"nothing to clean: {holding[0]}, and lakebed.consumers.max_lag is not over")
    return replace(retained, needs=holding)


def _find_cleanable(
    timeline: Timeline,
    commits: Sequence[Instant],
    settings: CleaningSettings,
    now: str,
    needs: Sequence[ConsumerNeed],
    *,
    when_due: bool,
) -> CleanCandidates | NothingToDo:
    check_filters(settings)
    last = last_clean(timeline)
    since = sum(i.time > last.time for i in commits) if last else len(commits)
    if when_due and since < settings.trigger_commits:
        return NothingToDo(f"no clean is due: {since} of {settings.trigger_commits} commits since the last one")
    retention = retention_of(timeline, commits, settings, now, needs)
    if isinstance(retention, NothingToDo):
        return retention
    if last is not None and last.earliest:
        retention = passing_at_most(retention, commits, last.earliest, settings.max_commits)
    if not settings.incremental and (settings.partitions or settings.partition_regex):
        return CleanCandidates(retention, None)
    goes_on = settings.incremental and _continues(timeline, last)
    if retention.earliest is None:
        new_commits = [i for i in commits if last is None or i.time > last.last_completed]
        return (
            CleanCandidates(retention, None) if not when_due or _changed(timeline, new_commits) else _nothing(retention)
        )
    start = last.earliest if goes_on and last is not None else ""
    changed = _changed(timeline, [i for i in commits if start <= i.time < retention.earliest.time])
    if changed or not (goes_on or when_due):
        return CleanCandidates(retention, changed if goes_on else None)
    forgotten = last is not None and not goes_on and not _savepoints_stay(timeline, last)
    return CleanCandidates(retention, None) if forgotten else _nothing(retention)


def plan_clean(snapshot: Snapshot, candidates: CleanCandidates, settings: CleaningSettings) -> CleanPlan:
    """The files to delete, for the table as read under the lock."""
    paths = _filtered(snapshot, candidates.partitions, settings)
    names = tuple(sorted(need.consumer for need in candidates.needs))
    unread = candidates.needs[0].commit if candidates.needs and candidates.retention.earliest is None else None
    return replace(plan_retention(snapshot, candidates.retention, paths, unread=unread), consumers=names)


def plan_retention(
    snapshot: Snapshot,
    retention: Retention,
    paths: frozenset[str] | None,
    only: Collection[FileGroupId] | None = None,
    unread: Instant | None = None,
    *,
    later_logs_go: bool = False,
) -> CleanPlan:
    """The files that a retention releases in these partition paths (None: all), of all file groups or of those in
    `only`. Files that commits from `unread` on show are retained, and slices of savepoints; with `later_logs_go` of
    these only what the savepoints show."""
    listing = _listing(snapshot, paths)
    timeline = snapshot.timeline
    savepoints = savepointed_files(timeline)
    groups = visible_slices(snapshot, listing)
    savepoint_paths = frozenset(path for files in savepoints.values() for path in files)
    protected = Protected(savepoint_paths, savepoints.keys(), planned_slices(timeline), unread, later_logs_go)
    selected_groups = (group for group in groups if only is None or group.id in only)
    plan = plan_cleaning(selected_groups, timeline.commits, retention, timeline.replaced_files, protected)
    emptied = tuple(_emptied(snapshot, plan, listing))
    return CleanPlan(plan.files, plan.earliest, plan.last_completed, plan.policy, emptied, tuple(sorted(savepoints)))


def visible_slices(snapshot: Snapshot, listing: Listing) -> Iterator[GroupSlices]:
    """All slices of each file group, with files of completed instants only."""
    timeline, version = snapshot.timeline, snapshot.config.version
    return all_slices(
        [file for file in listing.base_files if snapshot.is_visible(file.instant)],
        # before version 8 a log file is named after its slice's instant
        [
            file
            for file in listing.log_files
            if (timeline.begins_slices if version < 8 else snapshot.is_visible)(file.instant)
        ],
        version=version,
        completion_time=timeline.completion_time,
    )


def savepointed_files(timeline: Timeline) -> dict[str, frozenset[str]]:
    """The paths of the files that each savepoint names, by its instant."""
    saved = [i for i in timeline.completed if i.action is Action.SAVEPOINT]
    return {i.time: frozenset(savepointed_paths(timeline.metadata(i))) for i in saved}


def planned_slices(timeline: Timeline) -> dict[FileGroupId, str]:
    """The oldest slice of each file group that a pending plan works on, by the slice's instant."""
    oldest_instants: dict[FileGroupId, str] = {}

    def add(group: FileGroupId, instant: str) -> None:
        oldest_instants[group] = min(oldest_instants.get(group, instant), instant)

    for instant in timeline.pending:
        if instant.action in (Action.COMPACTION, Action.LOGCOMPACTION):
            for planned_slice in compaction_operations(timeline.plan(instant)):
                add((planned_slice.partition, planned_slice.file_id), planned_slice.instant)
        elif timeline.is_pending_clustering(instant):
            for group in (timeline.plan(instant).get("clusteringPlan") or {}).get("inputGroups") or ():
                for planned_slice in group.get("slices") or ():
                    name = (planned_slice.get("dataFilePath") or "").rpartition("/")[2]
                    base = parse_base_file("", name, 0)
                    add(
                        (planned_slice.get("partitionPath") or "", planned_slice.get("fileId") or ""),
                        base.instant if base else "",
                    )
    return oldest_instants


def check_filters(settings: CleaningSettings) -> None:
    """Raise `InvalidOption` for a partition filter together with incremental cleaning: the other partition paths would
    never be cleaned."""
    if settings.incremental and (settings.partitions or settings.partition_regex):
        raise InvalidOption(
            "hoodie.clean.partition.filter.* chooses partition paths, and an incremental clean looks at those that"
            " changed",
            hint="set hoodie.clean.incremental.enabled=false with it",
        )


def _is_read_for_an_index(instant: Instant) -> bool:
    return instant.action is Action.INDEXING and instant.state is State.INFLIGHT


def retention_of(
    timeline: Timeline,
    commits: Sequence[Instant],
    settings: CleaningSettings,
    now: str,
    needs: Sequence[ConsumerNeed] = (),
) -> Retention | NothingToDo:
    """The retention of a clean after these completed commits, or the reason why it retains everything; `now` is an
    instant time. A commit that a consumer needs holds files back like a pending one."""
    pending = [i for i in timeline.pending if i.action in _HOLDS or _is_read_for_an_index(i)]
    pending += [need.commit for need in needs]
    match CleaningPolicy(settings.policy):
        case CleaningPolicy.KEEP_LATEST_COMMITS:
            retention = retain_commits(commits, pending, settings.commits)
            why = f"the last {settings.commits} commits are kept, and there are {len(commits)}"
        case CleaningPolicy.KEEP_LATEST_BY_HOURS:
            zone = timeline.config.timezone
            first = format_time(parse_time(now, zone) - timedelta(hours=settings.hours), zone)
            retention = retain_since(commits, pending, first)
            why = f"what commits of the last {settings.hours} hours see is kept, and there are none"
        case CleaningPolicy.KEEP_LATEST_FILE_VERSIONS:
            retention = retain_versions(settings.versions)
            why = ""
    if retention is None and pending:
        why += f" (pending: {pending[0].action} {pending[0].time})"
    return retention if retention is not None else NothingToDo(f"nothing to clean: {why}")


def _continues(timeline: Timeline, last: Clean | None) -> bool:
    """Whether incremental cleaning may continue after the last clean: nothing is left before its earliest commit."""
    if last is None or not last.earliest or (timeline.start is not None and last.earliest < timeline.start):
        return False
    return _savepoints_stay(timeline, last)


def _savepoints_stay(timeline: Timeline, last: Clean) -> bool:
    """Whether all savepoints that kept files from the last clean still exist."""
    return set(last.savepoints) <= {i.time for i in timeline.completed if i.action is Action.SAVEPOINT}


def _changed(timeline: Timeline, commits: Sequence[Instant]) -> frozenset[str]:
    """The partition paths in which these commits left files to clean."""
    active = [i for i in commits if timeline.commit(i.time) is not None]
    return frozenset[str]().union(*map(superseded_partitions, timeline.commits_metadata(active)))


def _nothing(retention: Retention) -> NothingToDo:
    before = f"before {retention.earliest.time}" if retention.earliest else "since the last clean"
    return NothingToDo(f"nothing to clean: no commit {before} has left files to delete")


def _filtered(
    snapshot: Snapshot, partitions: frozenset[str] | None, settings: CleaningSettings
) -> frozenset[str] | None:
    if not settings.partitions and not settings.partition_regex:
        return partitions
    paths = snapshot.partitions()
    pattern = re.compile(settings.partition_regex) if settings.partition_regex else None
    return frozenset(p for p in paths if p in settings.partitions or (pattern is not None and pattern.fullmatch(p)))


def _listing(snapshot: Snapshot, partitions: frozenset[str] | None) -> Listing:
    """All files of some partition paths, or of all (None)."""
    if snapshot.metadata is None:
        return list_table(snapshot.storage, partitions)
    with metadata_damage_named(snapshot.storage):
        return list_metadata(snapshot.metadata, snapshot.storage, partitions)


def _emptied(snapshot: Snapshot, plan: CleanPlan, listing: Listing) -> Iterator[str]:
    """The partition paths in which the plan leaves no base or log file, neither listed nor in the folder. Empty while a
    writer may be writing to one."""
    if any(completes_as(i.action) in COMMITS for i in snapshot.timeline.pending):
        return
    left: set[str] = {f.partition for f in _files(listing) if f.name not in plan.files.get(f.partition, ())}
    for partition in sorted(plan.files.keys() - left - {""}):
        going = set(plan.files[partition])
        if all(file.name in going for file in _files(list_table(snapshot.storage, [partition]))):
            yield partition


def _files(listing: Listing) -> tuple[BaseFile | LogFile, ...]:
    return (*listing.base_files, *listing.log_files)


@dataclass(frozen=True, repr=False)
class CleanRun(ServiceRun):
    """One run of a clean: the names of the deleted `files` by partition path, the deleted partition paths, and the
    first commit that was retained completely (empty if versions are retained). `checkpoint` is when it completed,
    `consumers` are the consumers for which more files were retained."""

    files: Mapping[str, Sequence[str]]
    partitions: tuple[str, ...] = ()
    earliest: str = ""
    consumers: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of files that were deleted."""
        return sum(map(len, self.files.values()))

    def counts(self) -> Mapping[str, int]:
        """The counts of the run by name, for metrics."""
        return {"files_deleted": self.count}

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "instant": self.instant,
            "checkpoint": self.checkpoint,
            "files": self.count,
            "partitions": len(self.files),
            "deleted_partitions": list(self.partitions),
            "earliest_kept": self.earliest,
            "consumers": list(self.consumers),
            "seconds": round(self.seconds, 4),
            "rolled_back": list(self.rolled_back),
        }

    def __str__(self) -> str:
        partitions_text = f", {count_text(len(self.partitions), 'partition')} deleted" if self.partitions else ""
        earliest_text = f", what {self.earliest} and later commits see is kept" if self.earliest else ""
        return (
            f"clean {self.instant}: {count_text(self.count, 'file')} in {count_text(len(self.files), 'partition')}"
            f" deleted{partitions_text}{earliest_text}{retained_text(self.consumers)} ({self.seconds:.2f} s)"
        )


class CleanResult(ServiceResult[CleanPlan, CleanRun]):
    """The result of `clean`: the `runs`, one per plan; `plan`, a plan that was made but not run, and its instant (None
    for a dry run); and `notes`, the reasons why something was not done."""

    _preview = "would be a "

    @property
    def files(self) -> int:
        """The number of files that were deleted."""
        return sum(run.count for run in self.runs)


class Cleaning(PlannedService[CleanPlan, CleanRun, CleanResult]):
    """The service that deletes the files that no retained commit needs."""

    name = "clean"
    title = "cleaning"
    noun = "clean"
    action = Action.CLEAN
    operation = "CLEAN"
    after_write = ("cleaning.automatic",)
    due_over = "cleaning.due_over"
    is_one_at_a_time = True
    resumes = True
    left = "was left"
    result = CleanResult

    def admit(self, context: WriteContext) -> None:
        check_filters(context.services.cleaning)
        context.check_write("clean")

    def due(self, state: ServiceState) -> str | None:
        if why := state.waiting(self.pending(state.timeline)):
            return why
        settings = state.settings.cleaning
        if CleaningPolicy(settings.policy) is CleaningPolicy.KEEP_LATEST_FILE_VERSIONS:
            state.reload()  # the write itself may have left something
        now = state.now
        candidates = find_cleanable(state.timeline, state.commits, settings, now, when_due=True)
        if isinstance(candidates, NothingToDo):
            return None
        if needs := needs_of_consumers(state.timeline, state.settings.consumers, now):
            candidates = find_cleanable(state.timeline, state.commits, settings, now, when_due=True, needs=needs)
        if isinstance(candidates, NothingToDo):
            return None
        earliest = candidates.retention.earliest
        if earliest is None:
            return f"older than {count_text(candidates.retention.versions, 'file slice')}"
        return f"what only commits before {earliest.time} see"

    def plan(
        self, context: WriteContext, snapshot: Snapshot, instant: str, *, when_due: bool
    ) -> CleanPlan | NothingToDo:
        settings, timeline = context.services.cleaning, snapshot.timeline
        now = by_this_clock(instant, snapshot.config.timezone)
        needs = needs_of_consumers(timeline, context.services.consumers, now)
        candidates = find_cleanable(timeline, timeline.commits, settings, now, when_due=when_due, needs=needs)
        if isinstance(candidates, NothingToDo):
            return candidates
        plan = plan_clean(snapshot, candidates, settings)
        if not plan.files:
            retained = retained_text(plan.consumers)
            return NothingToDo(f"nothing to clean: commits that are kept see every file{retained}")
        return plan

    def body(self, snapshot: Snapshot, plan: CleanPlan) -> RequestedBody:
        return clean_body(snapshot.storage.url(), plan)

    def run(self, context: WriteContext, tx: ServiceTransaction, plan: Mapping[str, Any]) -> CleanRun:
        started = time.monotonic()
        files = {partition: _data_files(partition, names) for partition, names in clean_files(plan).items()}
        count = sum(map(len, files.values()))
        with progress(f"deleting {count_text(count, 'file')}", count) as advance:
            for partition, names in files.items():
                delete_files(tx.storage, partition, names, lambda _: advance(1))
        done, deleted_paths = finish_clean(tx, plan, files, int((time.monotonic() - started) * 1000))
        return CleanRun(
            tx.instant,
            done.completion_time or tx.instant,
            {partition: tuple(names) for partition, names in files.items() if names},
            tuple(deleted_paths),
            (plan.get("earliestInstantToRetain") or {}).get("timestamp") or "",
            tuple(filter(None, ((plan.get("extraMetadata") or {}).get(RETAINED_FOR) or "").split(","))),
        )


def _data_files(partition: str, names: Sequence[str]) -> list[str]:
    """The names in a plan that are base or log files in this folder: nothing else is deleted, whatever the plan
    names."""
    return [
        name
        for name in names
        if is_data_path(path_in(partition, name))
        and (parse_base_file(partition, name, 0) or parse_log_file(partition, name, 0)) is not None
    ]


def finish_clean(
    tx: ServiceTransaction, plan: Mapping[str, Any], files: Mapping[str, Sequence[str]], millis: int
) -> tuple[Instant, Sequence[str]]:
    """Update the metadata table, delete the remaining files of partition paths without data files, and complete the
    clean. Returns the completed instant and these paths."""
    with tx.locked() as (config,):
        timeline = tx.load()
        tx.require_pending(timeline)
        tx.use(config)
        upkeep = tx.metadata_upkeep(timeline)
        empty_paths = _empty_paths(tx.storage, timeline, plan)
        upkeep.record_removal(tx.instant, files, empty_paths)
        for partition in empty_paths:
            tx.refuse_lost("complete")
            tx.storage.delete_folder(partition)
        tx.refuse_lost("complete")
        done = tx.publish(timeline, encode_clean_metadata(tx.instant, plan, millis, deleted_partitions=empty_paths))
    tx.remove_heartbeat()
    return done, empty_paths


def _empty_paths(storage: Storage, timeline: Timeline, plan: Mapping[str, Any]) -> list[str]:
    """The partition paths of the plan that have no data files now. A writer that began after the plan has seen the
    folder, so folders stay while a writer is active, and in paths to which one has written."""
    if any(completes_as(i.action) in COMMITS for i in timeline.pending):
        return []
    candidates = [p for p in plan.get("partitionsToBeDeleted") or () if p and is_data_path(p)]
    return [p for p in candidates if _is_empty(storage, p)]


def _is_empty(storage: Storage, partition: str) -> bool:
    names = (info.path.removeprefix(f"{partition}/") for info in storage.list(partition))
    return all(name.startswith(PARTITION_METADATA) for name in names)

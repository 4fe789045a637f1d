"""Whether a write may commit after what others committed since it began: pure rules over two views of the timeline.

- Two commits that touch the same file groups conflict, and so do a write and a pending service of the same groups.
- If concurrent non-blocking writers log a delete and partial rows to one file group, they conflict: a partial record
  takes its other columns from the base file, which still has the deleted row. Every reader of Hudi's format merges so.
- An instant that was published after its writer had lost the table lock may have to be taken back.
- Early conflicts are found before rows are written, by the markers of writers that began before. Two writers that
  reach a file group at the same moment may miss each other there; their commits find it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakebed.concurrency.heartbeat import heartbeat_path, is_dead
from lakebed.concurrency.markers import Marker, list_markers_in
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind
from lakebed.format.file_names import bucket_of_file_id, parse_base_file, parse_log_file
from lakebed.format.log_file import HeaderKey, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.model import Action, CommitMetadata, FileGroupId, Instant, State, WriteStat, has_completion_times
from lakebed.properties.table_config import TableConfig
from lakebed.sharing import once
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.commit import NEW_FILE
from lakebed.timeline.bodies.plans import clean_files, compaction_operations, planned_clustering
from lakebed.timeline.bodies.rollback import rollback_target
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import Timeline, completed_at

CLUSTER_OPERATION = "CLUSTER"
COMPACT_OPERATION = "COMPACT"
LOG_COMPACT_OPERATION = "LOG_COMPACT"
_COMPACTS = (COMPACT_OPERATION, LOG_COMPACT_OPERATION)


@dataclass(frozen=True, slots=True)
class StartedAt:
    """The state of the timeline when a write began."""

    last_completed: str
    pending: frozenset[tuple[str, Action]]
    timeline: Timeline

    @staticmethod
    def of(timeline: Timeline) -> StartedAt:
        last = timeline.last_completed
        pending = frozenset({(i.time, completes_as(i.action)) for i in timeline.pending})
        return StartedAt(last.time if last else "", pending, timeline)

    def is_unchanged(self, now: Timeline, instant: str) -> bool:
        """Whether no other action was pending when the write of `instant` began, and none has come since."""
        is_alone = not self.pending and all(i.time == instant for i in now.pending)
        return is_alone and now.completed == self.timeline.completed


@dataclass(frozen=True, slots=True)
class TouchedFiles:
    """The file groups a write has written or replaced, as (partition, file id), or (partition, bucket) where two file
    ids of one bucket mean the same group.

    `appended` are groups to which a non-blocking write added only log files: others may append to them as well.
    `rewritten` are existing groups whose base file is written again.
    """

    groups: frozenset[FileGroupId]
    by_bucket: bool = False
    appended: frozenset[FileGroupId] = frozenset()
    rewritten: frozenset[FileGroupId] = frozenset()

    @staticmethod
    def of(metadata: CommitMetadata, *, by_bucket: bool = False, non_blocking: bool = False) -> TouchedFiles:
        groups = frozenset(_groups(metadata))
        appended = groups - frozenset(_groups(metadata, appended=False)) if non_blocking else frozenset[FileGroupId]()
        return TouchedFiles(groups, by_bucket, appended, frozenset(_rewritten(metadata)))

    def overlap(self, others: frozenset[FileGroupId]) -> list[FileGroupId]:
        """The file groups of `others` that this write has touched as well, sorted."""
        return self.common(self.groups, others)

    def conflicts(self, other: CommitMetadata) -> list[FileGroupId]:
        """The groups that another commit touched in a way that this write does not allow, sorted."""
        met = set(self.common(self.groups - self.appended, frozenset(_groups(other))))
        if self.appended:
            met.update(self.common(self.appended, frozenset(_groups(other, appended=False))))
        return sorted(met)

    def common(self, touched: frozenset[FileGroupId], others: frozenset[FileGroupId]) -> list[FileGroupId]:
        """The file groups that are in both `touched` and `others`, sorted."""
        if not self.by_bucket:
            return sorted(touched & others)
        buckets = {_bucket(group) for group in touched}
        return sorted(group for group in others if _bucket(group) in buckets)


@dataclass(frozen=True)
class Attempt:
    """A write that asks whether it may commit: what it touched, the timeline under the lock, and when it began.

    - `instant` is the write's own, `schema` the one that it would commit; both empty where they are not known yet.
    - `giving_way` are pending clusterings (instants) that do not stop the write.
    - `resized` names the file groups that this write changed in a way that fits the clustering of the given instant,
      pending or completed by now.
    - `named_after`: in these file groups the write's log files are named after the clustering of the given instant. A
      compaction planned meanwhile would lose them. If the clustering was removed from the timeline meanwhile, their
      file groups will never exist.
    - `appended` is the commit of a non-blocking write.
    """

    touched: TouchedFiles
    now: Timeline
    started: StartedAt
    instant: str = ""
    schema: str = ""
    giving_way: Collection[str] = ()
    resized: Mapping[FileGroupId, str] = field(default_factory=dict[FileGroupId, str])
    named_after: Mapping[FileGroupId, str] = field(default_factory=dict[FileGroupId, str])
    appended: CommitMetadata | None = None

    @once
    def since(self) -> list[tuple[Instant, CommitMetadata]]:
        """The commits that completed since the write began, with their bodies: see `commits_since`."""
        commits = list(commits_since(self.now, self.started))
        return list(zip(commits, self.now.commits_metadata(commits), strict=True))


def check_conflicts(write: Attempt) -> str:
    """Raise `CommitConflict` if another writer has touched the same file groups since this write began, in a way that
    one of the `CHECKS` refuses.

    Gives the schema the commit must carry: that of the write, or the table's where only another writer has changed it
    since.
    """
    for check in CHECKS:
        check(write)
    return resolve_schema(write.schema, write.started.timeline, write.now, write.instant)


def resolve_schema(schema: str, at_start: Timeline, now: Timeline, instant: str = "") -> str:
    """The schema to commit, given the table's schema when the write began and now.

    Raises `CommitConflict` if this write and another one changed it in different ways, if another one changed a type
    (a commit's files are read by its schema), or where a commit that was requested after this one's `instant`
    would hide the change: the table's schema is that of the last requested one.
    """
    if not schema or at_start.last_completed == now.last_completed:
        return schema
    current = table_schema(now)
    before = table_schema(at_start)
    if not current or _same(schema, current):
        return schema
    if _same(before, current):
        newest = _schema_commit(now)
        if newest is None or not instant or newest.time < instant:
            return schema
        raise CommitConflict(
            f"this write changes the table's schema, and instant {newest.time}, which was requested after it, has"
            " committed under the old one by now",
            hint="Run the write again: its change then comes last.",
            context={"schema": current, "instant": newest.time},
            kind=ConflictKind.SCHEMA,
        )
    if _same(schema, before) and _only_adds(before, current):
        return current
    raise CommitConflict(
        "another writer has changed the table's schema since this write began, in a way that its files do not fit",
        hint="Run the write again: it will start from the new schema.",
        context={"schema": current},
        kind=ConflictKind.SCHEMA,
    )


def table_schema(timeline: Timeline) -> str:
    """The Avro schema of the newest commit that has one, otherwise the one given at the table's creation, or empty."""
    newest = _schema_commit(timeline)
    return timeline.config.create_schema if newest is None else timeline.commit_metadata(newest).schema


def _schema_commit(timeline: Timeline) -> Instant | None:
    for instant in reversed(timeline.commits):
        if timeline.commit_metadata(instant).table_schema:
            return instant
    return None


def commits_since(timeline: Timeline, started: StartedAt) -> Iterator[Instant]:
    """Commits that completed after the write began, whenever they were requested: real Hudi chooses an instant under
    the lock and requests it later, when others may have committed. Commits that were archived since are included:
    archival looks at requested times, and may archive a commit that was requested before the first pending write. On
    version 8 and later compactions of a merge-on-read table do not disturb writers: log files find their file slice by
    completion time."""
    skips_compactions = has_completion_times(timeline.config.version) and timeline.config.table_type == "mor"
    commit_times = started.timeline.commit_times
    new = [i for i in timeline.commits if i.time not in commit_times]
    for instant in (*_archived_since(timeline, started), *new):
        if not (skips_compactions and instant.action is Action.COMMIT):
            yield instant


def _archived_since(timeline: Timeline, started: StartedAt) -> list[Instant]:
    """The commits that were pending when the write began and are archived by now. Commits that were rolled back are in
    neither timeline."""
    missing = {key for key in started.pending if timeline.find(*key) is None and key[0] < (timeline.start or "")}
    if not missing:
        return []
    return [i for i in timeline.archived_commits() if (i.time, i.action) in missing]


def refuse_undone(write: Attempt) -> None:
    """Raise `CommitConflict` if a commit that existed when the write began was rolled back since then."""
    check_nothing_undone(write.started.timeline, write.now)


def refuse_committed(write: Attempt) -> None:
    """Raise `CommitConflict` if a commit that completed since the write began, by requested time or because it was
    pending then, changed file groups that this write changed too. A compaction requested before this write is not a
    conflict."""
    for other, metadata in write.since:
        if metadata.operation == COMPACT_OPERATION and write.instant and other.time < write.instant:
            continue
        for group in write.touched.conflicts(metadata):
            if write.resized.get(group) != other.time:
                _refuse(group, other, f"another writer ({metadata.operation})", ConflictKind.COMMITTED)


def refuse_planned(write: Attempt) -> None:
    """Raise `CommitConflict` if a pending clustering, on version 6 also a pending compaction, has planned file groups
    of this write."""
    clusterings = write.now.pending_clustering.items()
    pending = [{g: i for g, i in clusterings if i.time not in write.giving_way}]
    if not has_completion_times(write.now.config.version):
        # if a compaction was planned before this write began, the write's log files are named after it
        compactions = write.now.pending_compaction.items()
        pending.append({g: i for g, i in compactions if (i.time, completes_as(i.action)) not in write.started.pending})
    for groups in pending:
        for group in write.touched.overlap(frozenset(groups)):
            if write.resized.get(group) != groups[group].time:
                _refuse(group, groups[group], f"a pending {_service(groups[group])}", ConflictKind.PLANNED)


def refuse_rolled_back(write: Attempt) -> None:
    """Another writer has begun to roll this write back."""
    for rollback in write.now.pending if write.instant else ():
        if rollback.action is Action.ROLLBACK and rollback_target(write.now.plan(rollback)) == write.instant:
            raise CommitConflict(
                f"instant {write.instant} is being rolled back by another writer (instant {rollback.time})",
                hint="Run the write again.",
                context={"instant": write.instant},
                kind=ConflictKind.TAKEN_BACK,
            )


def refuse_taken_off(write: Attempt) -> None:
    """Raise `CommitConflict` if a clustering that creates a file group of this write is not on the timeline any
    more."""
    existing_times = {i.time for i in write.now.instants} if write.named_after else ()
    for (partition, file_id), clustering in sorted(write.named_after.items()):
        if clustering not in existing_times and (partition, file_id) in write.touched.groups:
            raise CommitConflict(
                f"clustering {clustering}, which was to make file group {file_id} in partition {partition!r}, was taken"
                " off the timeline while this write brought rows there",
                hint="Nothing of this write is visible; run it again.",
                context={"partition": partition, "file_id": file_id, "instant": clustering},
                kind=ConflictKind.TAKEN_BACK,
            )


def refuse_compacted(write: Attempt) -> None:
    """Raise `CommitConflict` if a compaction merges file groups that this write rewrote, or whose log files are named
    after a clustering: by their names such log files are older than any compaction of the new file group. A compaction
    merges only the commits before its plan, and its files have newer names, so the files that this write adds would be
    lost. The log file of a log compaction would merge after them."""
    copied = write.touched.groups & frozenset(write.named_after)
    for groups, after in ((copied, ""), (write.touched.rewritten, write.instant)):
        if not groups:
            continue
        plans = {group: plan for group, plan in write.now.pending_compaction.items() if plan.time > after}
        plans = {**write.now.pending_log_compaction, **plans}
        for group in write.touched.common(groups, frozenset(plans)):
            _refuse(group, plans[group], f"a pending {plans[group].action.value}", ConflictKind.PLANNED)
        for other in write.now.commits_after(write.started.last_completed):
            metadata = write.now.commit_metadata(other)
            if metadata.operation in _COMPACTS and other.time > after:
                for group in write.touched.common(groups, frozenset(_groups(metadata))):
                    _refuse(group, other, f"another writer ({metadata.operation})", ConflictKind.COMMITTED)


def refuse_lost_deletes(write: Attempt) -> None:
    """Raise `CommitConflict` if this write, or a write that completed since it began, deleted rows of a file group in
    which the other of the two logged partial rows. A later delete of this write is not a conflict: every reader applies
    it after these rows."""
    logs = {} if write.appended is None else _logs(write.appended)
    storage = write.now.storage
    for other, metadata in write.since if logs else ():
        if metadata.operation == LOG_COMPACT_OPERATION:  # the deletes that it merges have commits of their own
            continue
        other_logs = _logs(metadata)
        for group in sorted(logs.keys() & other_logs.keys()):
            other_deletes = _deletes(other_logs[group]) and _lacks_columns(storage, logs[group])
            this_deletes = (
                write.instant < other.time and _deletes(logs[group]) and _lacks_columns(storage, other_logs[group])
            )
            if other_deletes or this_deletes:
                _refuse_lost_delete(group, other, deletes_concurrently=other_deletes)


CHECKS: tuple[Callable[[Attempt], None], ...] = (
    refuse_undone,
    refuse_committed,
    refuse_planned,
    refuse_rolled_back,
    refuse_taken_off,
    refuse_compacted,
    refuse_lost_deletes,
)
"""The rules by which two actions conflict, in the order in which they are asked."""


def _service(plan: Instant) -> str:
    """The name of a pending service in messages; on version 6 a clustering is a replacecommit."""
    return Action.CLUSTERING.value if plan.action is Action.REPLACECOMMIT else plan.action.value


def _refuse(group: FileGroupId, other: Instant, writer: str, kind: ConflictKind) -> None:
    partition, file_id = group
    raise CommitConflict(
        f"file group {file_id} in partition {partition!r} was changed by {writer} at instant {other.time} as well",
        hint="Nothing of this write is visible; run it again.",
        context={"partition": partition, "file_id": file_id, "instant": other.time},
        kind=kind,
    )


def _rewritten(metadata: CommitMetadata) -> Iterator[FileGroupId]:
    for partition, stats in metadata.stats.items():
        for stat in stats:
            if stat.log_version is None and stat.prev_commit not in ("", NEW_FILE):
                yield partition, stat.file_id


def _groups(metadata: CommitMetadata, *, appended: bool = True) -> Iterator[FileGroupId]:
    """The file groups of a commit; without `appended` only those that got more than log files."""
    for partition, stats in metadata.stats.items():
        for stat in stats:
            if appended or stat.log_version is None:
                yield partition, stat.file_id
    for partition, file_ids in metadata.replaced.items():
        for file_id in file_ids:
            yield partition, file_id


def _bucket(group: FileGroupId) -> tuple[str, int | str]:
    partition, file_id = group
    return partition, _bucket_or_file(file_id)


def _same(schema: str, other: str) -> bool:
    """Whether two schema texts are equal, apart from spacing and the order of keys."""
    return schema == other or (bool(schema) and bool(other) and json.loads(schema) == json.loads(other))


def _only_adds(before: str, after: str) -> bool:
    """Whether a schema has every column of an older schema with an unchanged type."""
    old, new = ({f["name"]: f["type"] for f in json.loads(text).get("fields", ())} for text in (before, after))
    return all(new.get(name) == kind for name, kind in old.items())


def reason_to_take_back(
    instant: str, action: Action, config: TableConfig, timeline: Timeline, checked: Timeline
) -> str | None:
    """The reason why an instant that was published without the lock must be taken back, as a phrase to be followed by
    "while"; None if it can stay.

    It cannot stay if another writer rolled it back, or committed or planned after the timeline was `checked` without
    seeing it. It stays if other writers that saw it have built on it.
    """
    # if its rollback was cut off, its requested file still exists
    if not is_requested(timeline, instant, action) or is_rolled_back(instant, timeline, checked):
        return "another writer rolled it back"
    published = timeline.find(instant, action)
    since = [i for i in commits_since(timeline, StartedAt.of(checked)) if i.time != instant]
    if published is None or not published.is_completed or _is_built_on(published, since, timeline, checked):
        return None
    if since:
        return f"instant {since[0].time} was committed"
    if config.table_type != "mor" or not has_completion_times(config.version):
        return None
    if passed := completed_before_publication(published, timeline, checked):
        return f"instant {passed.time} was completed"
    plan = plan_without(published, timeline, checked)
    return None if plan is None else f"compaction {plan.time} was planned without its log files"


def completed_before_publication(instant: Instant, timeline: Timeline, checked: Timeline) -> Instant | None:
    """A commit with a later completion time that completed before `instant` was published, None if there is none: a
    reader of changes that has read up to it would never read this one."""
    later = timeline.commits_completed_after(completed_at(instant))
    return next((i for i in later if not checked.is_completed(i.time)), None)


def _is_built_on(instant: Instant, since: Sequence[Instant], timeline: Timeline, checked: Timeline) -> bool:
    """Whether other writers have built on the instant since the timeline was `checked`, so that their work would lose
    files without it: a commit added to its file groups, a clustering moved its rows, or a compaction or clean was
    planned with its files or with those that it superseded."""
    stats = [stat for group in timeline.commit_metadata(instant).stats.values() for stat in group]
    file_names = {path.rpartition("/")[2] for stat in stats for path in stat.paths}
    superseded = {stat.prev_base_file for stat in stats if stat.log_version is None and stat.prev_base_file}
    replaced = {(path, i) for path, ids in timeline.commit_metadata(instant).replaced.items() for i in ids}
    for commit in timeline.commits_metadata(since):
        if any(stat.prev_commit == instant.time for group in commit.stats.values() for stat in group):
            return True
    before = {i.time for i in checked.instants}
    for new in (i for i in timeline.instants if i.time not in before and i.time != instant.time):
        plan = timeline.plan(new) if new.action in _PLANNING else {}
        if new.action is Action.CLEAN:
            cleaned = {(path, name) for path, names in clean_files(plan).items() for name in names}
            if any(name in superseded or (path, _file_id(name)) in replaced for path, name in cleaned):
                return True
        # a pending clustering gives way
        merged = [*compaction_operations(plan)]
        if new.is_completed:
            merged += [
                merged_slice for operation in planned_clustering(plan).operations for merged_slice in operation.slices
            ]
        if any(
            name in file_names for merged_slice in merged for name in (merged_slice.base_file, *merged_slice.log_files)
        ):
            return True
    return False


# Their requested files hold plans. A compaction completes as a commit, a log compaction as a delta commit.
_PLANNING = (
    Action.CLEAN,
    Action.COMPACTION,
    Action.LOGCOMPACTION,
    Action.COMMIT,
    Action.DELTACOMMIT,
    Action.REPLACECOMMIT,
)


def _file_id(name: str) -> str:
    file = parse_base_file("", name, 0) or parse_log_file("", name, 0)
    return "" if file is None else file.file_id


def check_nothing_undone(began: Timeline, now: Timeline) -> None:
    """Raise `CommitConflict` if a commit on the timeline `began` was taken back since: an action that began from it may
    have read its rows, and may have added to its files."""
    for instant in began.commits:
        if not now.is_committed(instant.time):
            raise CommitConflict(
                f"instant {instant.time}, which was there when this began, was taken back by its writer, which had"
                " published it after it had lost the table lock",
                hint="Nothing of this is visible; run it again.",
                context={"instant": instant.time},
                kind=ConflictKind.TAKEN_BACK,
            )


def is_requested(timeline: Timeline, instant: str, action: Action) -> bool:
    """Whether the requested file of an instant exists. A rollback deletes it, and no writer creates it again."""
    return (instant, completes_as(action)) in timeline.requested


def plan_without(instant: Instant | None, timeline: Timeline, checked: Timeline) -> Instant | None:
    """A compaction that was planned after the timeline was `checked`, for a file group to which `instant` appended,
    without its log file; None if there is none. Readers would look for the log file in the previous slice, and miss
    it."""
    if instant is None or not instant.is_completed:
        return None
    stats = (stat for group in timeline.commit_metadata(instant).stats.values() for stat in group)
    logs = {(s.partition, s.file_id): s.path.rpartition("/")[2] for s in stats if s.log_version is not None}
    before = {i.time for i in checked.instants}
    for plan in timeline.instants if logs else ():
        if plan.time in before or not _is_compaction(timeline, plan):
            continue
        for op in compaction_operations(timeline.plan(plan)):
            if logs.get((op.partition, op.file_id), "") not in ("", *op.log_files):
                return plan
    return None


def _is_compaction(timeline: Timeline, instant: Instant) -> bool:
    if instant.action is Action.COMMIT and instant.is_completed:
        return timeline.commit_metadata(instant).operation == COMPACT_OPERATION
    return instant.action is Action.COMPACTION


def is_rolled_back(instant: str, timeline: Timeline, checked: Timeline) -> bool:
    """Whether another writer has begun to take the instant back since the timeline was `checked`."""
    before = {i.time for i in checked.instants}
    rollbacks = [i for i in timeline.instants if i.action is Action.ROLLBACK and i.time not in before]
    return any(timeline.undone_by(i) == instant for i in rollbacks)


def _logs(metadata: CommitMetadata) -> dict[FileGroupId, list[WriteStat]]:
    """The log files that a commit wrote, by file group."""
    logs: dict[FileGroupId, list[WriteStat]] = {}
    for partition, stats in metadata.stats.items():
        for stat in stats:
            if stat.log_version is not None:
                logs.setdefault((partition, stat.file_id), []).append(stat)
    return logs


def _deletes(logs: Sequence[WriteStat]) -> bool:
    return any(stat.num_deletes for stat in logs)


def _lacks_columns(storage: Storage, logs: Sequence[WriteStat]) -> bool:
    heads = (head for s in logs for head in scan_blocks(FileSource(storage, s.path, s.file_size or None)))
    return any((head.headers.get(HeaderKey.IS_PARTIAL) or "").lower() == "true" for head in heads)


def _refuse_lost_delete(group: FileGroupId, other: Instant, *, deletes_concurrently: bool) -> None:
    partition, file_id = group
    written, deleted = "rows that lack columns were written to", "rows were deleted from"
    local, concurrent = (written, deleted) if deletes_concurrently else (deleted, written)
    raise CommitConflict(
        f"{local} file group {file_id} in partition {partition!r} while, by instant {other.time}, {concurrent} it",
        hint="Nothing of this write is visible; run it again: it then sees them.",
        context={"partition": partition, "file_id": file_id, "instant": other.time},
        kind=ConflictKind.DELETE,
    )


@dataclass(frozen=True, slots=True)
class EarlyConflicts:
    """A check, made in tasks, for conflicts with concurrent writers. `concurrent_writers` are the instants that were
    pending when this write began; `by_bucket` is whether two file ids of one bucket mean the same file group."""

    concurrent_writers: tuple[str, ...]
    by_bucket: bool = False

    def check(self, storage: Storage, partition: str, file_id: str) -> None:
        """Raise `CommitConflict` if a live concurrent writer writes to this file group. It takes one storage request
        per writer."""
        for rival in self.concurrent_writers:
            markers = list_markers_in(storage, rival, partition)
            if any(self._is_at(marker, file_id) for marker in markers) and not is_dead(storage, rival):
                raise CommitConflict(
                    f"file group {file_id} in partition {partition!r} is being changed by another writer (instant"
                    f" {rival})",
                    hint="Nothing of this write is visible; run it again when that one is done.",
                    context={"partition": partition, "file_id": file_id, "instant": rival},
                    kind=ConflictKind.BUSY,
                )

    def _is_at(self, marker: Marker, file_id: str) -> bool:
        name = marker.file_name
        file = parse_base_file(marker.partition, name, 0) or parse_log_file(marker.partition, name, 0)
        if file is None:
            return False
        return file.file_id == file_id or (self.by_bucket and _bucket_or_file(file.file_id) == _bucket_or_file(file_id))


def _bucket_or_file(file_id: str) -> int | str:
    number = bucket_of_file_id(file_id)
    return file_id if number is None else number


GIVES_WAY = "SparkAllowUpdateStrategy"
"""Value of `hoodie.clustering.updates.strategy` under which a write goes first."""


def clusterings_that_give_way(storage: Storage, timeline: Timeline, settings: WriteSettings) -> frozenset[str]:
    """The instants of the pending clusterings that are cancelled in favour of a write: all of them if the settings
    choose so, otherwise those whose process has died."""
    pending = {i.time: i for i in timeline.pending_clustering.values()}
    if settings.clustering_updates == GIVES_WAY:
        return frozenset(pending)
    # a plan that no process has begun has no dead runner, however old it is
    started = (
        time
        for time, plan in pending.items()
        if plan.state is not State.REQUESTED or storage.head(heartbeat_path(time)) is not None
    )
    return frozenset(time for time in started if is_dead(storage, time))

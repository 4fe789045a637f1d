"""Taking back completed actions, one or many, under the table lock from the first look to the last file. It stops if
the earlier state needs files that a cleaning has deleted or is about to delete.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from lakebed.errors import CommitConflict, ConflictKind, CorruptFile, InvalidOption
from lakebed.format.file_names import is_data_path, parse_base_file, parse_log_file
from lakebed.metadata.lookups import snapshot_of
from lakebed.metadata_upkeep.maintain import metadata_settings
from lakebed.metadata_upkeep.rollback import remove_instant
from lakebed.metadata_upkeep.services import finish_services
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.model import FIRST_LAYOUT_2_VERSION, Action, BaseFile, FileGroupId, FileSlice, Instant, LogFile, path_in
from lakebed.operations.context import WriteContext
from lakebed.operations.transaction import Transaction
from lakebed.sharing import once
from lakebed.slices.listing import list_table
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.plans import clean_files
from lakebed.timeline.commit_names import CLONE_NAME, savepoint_names
from lakebed.timeline.file_slices import all_slices, latest_slices
from lakebed.timeline.instants import completes_as
from lakebed.timeline.timeline import COMMITS, Timeline, completed_at


class StateWithout:
    """The state of the table without some of its instants: its file slices, including files that a cleaning deleted
    from them. It lists the whole table."""

    def __init__(self, snapshot: Snapshot, without: Collection[str]) -> None:
        self._timeline = snapshot.timeline
        self._without = frozenset(without)
        self._first = first_commit(snapshot.timeline)
        listing = list_table(snapshot.storage)
        self._existing: dict[str, BaseFile | LogFile] = {f.path: f for f in (*listing.base_files, *listing.log_files)}
        self._going, deleted = _cleaned(snapshot.timeline)
        self._deleted = {path: file for path, file in {**deleted, **self._going}.items() if path not in self._existing}
        self._unavailable = self._deleted.keys() | self._going.keys()

    @once
    def file_slices(self) -> Sequence[FileSlice]:
        """The latest file slice of each file group, including files that are missing."""
        replaced = self._replaced()
        slices = self._latest(replaced)
        # the archive is opened only if the active timeline does not explain why files are missing
        if any(file.path in self._unavailable for file_slice in slices for file in file_slice.files):
            slices = self._latest(replaced | self._replaced_in_archive())
        return slices

    def _latest(self, replaced: set[FileGroupId]) -> list[FileSlice]:
        files = [*self._existing.values(), *self._deleted.values()]
        timeline = self._timeline
        return list(
            latest_slices(
                [f for f in files if isinstance(f, BaseFile)],
                [f for f in files if isinstance(f, LogFile)],
                version=timeline.config.version,
                is_visible=self._is_visible,
                completion_time=timeline.completion_time,
                replaced=replaced,
                pending_compactions={
                    group: i for group, i in timeline.pending_compaction.items() if i.time not in self._without
                },
                is_named=self._is_named,
            )
        )

    def _is_visible(self, time: str) -> bool:
        """Whether the instant is part of the state. If a savepointed commit is the first of the timeline, later
        instants may be missing because a restore undid them or because they are archived. Only the archive
        distinguishes the two."""
        if time in self._without or not self._timeline.is_committed(time):
            return False
        return self._timeline.is_completed(time) or time < self._first or time in self._archived

    @once
    def _archived(self) -> frozenset[str]:
        return frozenset(i.time for i in self._timeline.archived().instants)

    def full_slices(self) -> list[FileSlice]:
        """The slices with the log files of later commits that exist."""
        timeline = self._timeline
        slices_by_group = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in self.file_slices}
        files = [f for f in self._existing.values() if (f.partition, f.file_id) in slices_by_group]
        every = all_slices(
            [f for f in files if isinstance(f, BaseFile) and timeline.is_committed(f.instant) and self._is_named(f)],
            [f for f in files if isinstance(f, LogFile) and self._is_committed_log(f)],
            version=timeline.config.version,
            completion_time=timeline.completion_time,
        )
        slices: list[FileSlice] = []
        for group in every:
            file_slice = slices_by_group[group.id]
            logs = next(
                (part.log_files for part in group.slices if part.instant == file_slice.instant), file_slice.log_files
            )
            slices.append(replace(file_slice, log_files=tuple(log for log in logs if not log.is_cdc)))
        return sorted(slices, key=lambda file_slice: (file_slice.partition, file_slice.file_id))

    def _is_committed_log(self, log: LogFile) -> bool:
        return self._timeline.config.version < FIRST_LAYOUT_2_VERSION or self._timeline.is_committed(log.instant)

    def lost(self) -> list[str]:
        """The files that this state needs and that are deleted or about to be, as paths or as file groups."""
        slices = self.file_slices
        missing = {file.path for file_slice in slices for file in file_slice.files if file.path in self._unavailable}
        groups = {(file_slice.partition, file_slice.file_id) for file_slice in slices}
        missing |= set(self._lost_before(groups))
        return sorted(missing)

    def _lost_before(self, groups: Collection[FileGroupId]) -> Iterator[str]:
        """The missing files that the excluded instants superseded; they show files whose cleaning is archived."""
        undone = [i for i in self._timeline.commits if i.time in self._without]
        for body in self._timeline.commits_metadata(undone):
            for partition, ids in body.replaced.items():
                yield from (f"file group {path_in(partition, i)}" for i in ids if self._is_lost(partition, i, groups))
            for partition, stats in body.stats.items():
                for stat in stats:
                    before = parse_base_file(partition, stat.prev_base_file or "", 0)
                    if before is not None and before.instant not in self._without and before.path not in self._existing:
                        yield before.path

    def _is_lost(self, partition: str, file_id: str, groups: Collection[FileGroupId]) -> bool:
        """Whether a file group that the state shows again has no files any more. False if an excluded instant created
        it, or if an instant that is not excluded replaced it first."""
        group = (partition, file_id)
        first = self._timeline.replaced_files.get(group)
        if group in groups or first is None or first.time not in self._without:
            return False
        return not any((f.partition, f.file_id) == group for f in self._existing.values()) and not self._made_since(
            group
        )

    def _made_since(self, group: FileGroupId) -> bool:
        undone = [i for i in self._timeline.commits if i.time in self._without]
        bodies = self._timeline.commits_metadata(undone)
        stats = [s for body in bodies for s in body.stats.get(group[0], ()) if s.file_id == group[1]]
        return any(s.prev_commit in ("null", *self._without) for s in stats)

    def _replaced(self) -> set[FileGroupId]:
        groups: set[FileGroupId] = set()
        commits = [
            i for i in self._timeline.commits if i.action is Action.REPLACECOMMIT and i.time not in self._without
        ]
        for body in self._timeline.commits_metadata(commits):
            groups |= {(partition, file_id) for partition, ids in body.replaced.items() for file_id in ids}
        return groups

    def _replaced_in_archive(self) -> set[FileGroupId]:
        """The file groups replaced by archived commits that completed before the last commit that is retained. No
        restore takes an archived commit back."""
        archived = self._timeline.archived()
        last = max((completed_at(i) for i in self._timeline.commits if i.time not in self._without), default="")
        groups: set[FileGroupId] = set()
        for instant in archived.instants:
            if instant.action is Action.REPLACECOMMIT and instant.is_completed and completed_at(instant) < last:
                body = archived.commit_metadata(instant.time)
                groups |= {(partition, file_id) for partition, ids in body.replaced.items() for file_id in ids}
        return groups

    def _is_named(self, file: BaseFile) -> bool:
        """Whether a write stat names the file; the file of a lost task attempt has none."""
        instant = self._timeline.commit(file.instant)
        if instant is None:
            return True
        stats = self._timeline.commit_metadata(instant).stats.get(file.partition, ())
        return not stats or any(s.path == file.path for s in stats)


def _cleaned(timeline: Timeline) -> tuple[dict[str, BaseFile | LogFile], dict[str, BaseFile | LogFile]]:
    """The files that pending cleanings will delete, and those that completed cleanings on the timeline deleted."""
    going: dict[str, BaseFile | LogFile] = {}
    deleted: dict[str, BaseFile | LogFile] = {}
    for instant in timeline.instants:
        if instant.action is not Action.CLEAN:
            continue
        paths = _deleted(timeline, instant) if instant.is_completed else _planned(timeline.plan(instant))
        for path in paths:
            partition, _, name = path.rpartition("/")
            file = parse_base_file(partition, name, 0) or parse_log_file(partition, name, 0)
            if file is not None and is_data_path(path):
                (deleted if instant.is_completed else going)[path] = file
    return going, deleted


def _deleted(timeline: Timeline, clean: Instant) -> list[str]:
    try:
        parts: Mapping[str, Mapping[str, Any]] = timeline.metadata(clean).get("partitionMetadata") or {}
    except CorruptFile:
        return []
    return [
        path_in(part.get("partitionPath") or "", name.rpartition("/")[2])
        for part in parts.values()
        for name in (*(part.get("deletePathPatterns") or ()), *(part.get("successDeleteFiles") or ()))
    ]


def _planned(plan: Mapping[str, Any]) -> list[str]:
    return [path_in(partition, name) for partition, names in clean_files(plan).items() for name in names]


def retained_from(timeline: Timeline) -> str:
    """The requested time of the oldest commit that the last cleaning retained completely; older commits may lack files.
    Empty if no cleaning records one."""
    for instant in reversed(timeline.instants):
        if instant.action is Action.CLEAN:
            if instant.is_completed:
                return str(timeline.metadata(instant).get("earliestCommitToRetain") or "")
            return str((timeline.plan(instant).get("earliestInstantToRetain") or {}).get("timestamp") or "")
    return ""


def first_commit(timeline: Timeline) -> str:
    """The requested time of the oldest commit on the active timeline."""
    return next((i.time for i in timeline.instants if i.is_completed and i.action in COMMITS), "")


class UndoTransaction(Transaction):
    """A transaction that takes completed actions back while it holds the lock. With `during_restore` an unfinished
    restore is allowed."""

    @classmethod
    def of(
        cls, context: WriteContext, action: Action, operation: str, *, during_restore: bool = False
    ) -> UndoTransaction:
        """The transaction for this table; `operation` is its name in messages."""
        if action is not Action.SAVEPOINT:
            context.check_write(operation)
        return cls(context, action, operation, during_restore=during_restore)

    @contextmanager
    def locked_view(self) -> Generator[Snapshot]:
        """The table, under the lock, after leftovers of dead writers are rolled back in it and in its metadata
        table."""
        _ = self.index  # read from the files while all of them exist
        with self.begin():
            store = self.metadata_store()
            if self.config.metadata_partitions and store.exists():
                finish_services(store)
                for instant in store.orphan_instants():
                    remove_instant(store, instant)
            self.timeline = self.load()
            yield snapshot_of(self.storage, self.config, self.timeline)

    def metadata_store(self) -> MetadataStore:
        """The metadata table in its present state."""
        settings = metadata_settings(self.settings)
        return MetadataStore(self.storage, self.config, self.timeline, settings, lock_is_held=self.lock_is_held)

    def take_back(self, target: Instant, *, with_plan: bool = False, doomed: Collection[str] = frozenset()) -> str:
        """Roll an instant back (see `Rollbacks.roll_back`); returns the rollback's instant."""
        rollbacks = replace(self.rollbacks(self.forget), corrects=False)  # a restore does so once, at its end
        done = rollbacks.roll_back(self.timeline, target, with_plan=with_plan, doomed=doomed)
        self.timeline = self.load()
        return done


def completed_commit(timeline: Timeline, instant: str, verb: str) -> Instant:
    """The completed commit with this requested time. Raises `InvalidOption` if the active timeline has none."""
    commit = timeline.commit(instant)
    if commit is not None:
        return commit
    same = [i for i in timeline.instants if i.time == instant]
    context = {"instant": instant}
    if any(completes_as(i.action) in COMMITS for i in same):
        problem = f"{same[0].action} {instant} is pending: there is nothing completed to {verb}"
        hint = "What a dead writer leaves the next write undoes; a living one is left alone."
    elif same:
        problem = f"{instant} is a {same[0].action}, which cannot be a place to {verb}"
        hint = "Name a commit; `lakebed timeline show URI` lists them."
    elif instant.isdigit() and timeline.start is not None and instant < timeline.start:
        problem = f"instant {instant} is older than the active timeline, which begins at {timeline.start}"
        hint = "It is archived, or was never there. Savepoints keep commits from being archived."
    else:
        problem = f"there is no instant {instant!r} on the timeline of {timeline.storage.url()}"
        names = ", ".join(map(repr, savepoint_names(timeline)))
        hint = "`lakebed timeline show URI` lists them." + (f" Savepoints are named {names}." if names else "")
    raise InvalidOption(problem, hint=hint, context=context)


def check_not_savepointed(timeline: Timeline, target: Instant) -> None:
    """Raise `InvalidOption` if a savepoint protects the instant."""
    saved = timeline.find(target.time, Action.SAVEPOINT)
    if saved is not None:
        comment = str(timeline.metadata(saved).get("comments") or "") if saved.is_completed else ""
        name = f" named {comment!r}" if comment else ""
        clone = "A clone may read the files that it keeps. " if comment.startswith(CLONE_NAME) else ""
        raise InvalidOption(
            f"{target.action} {target.time} has a savepoint{name}, it cannot be rolled back",
            hint=f"{clone}Delete the savepoint first: t.savepoints.delete({target.time!r}), or restore to it.",
            context={"instant": target.time},
        )


def check_no_file_lost(snapshot: Snapshot, without: set[str], operation: str) -> None:
    """Raise `InvalidOption` if files were cleaned that the table needs without these instants."""
    lost = StateWithout(snapshot, without).lost()
    if lost:
        raise InvalidOption(
            f"{operation} is not possible: cleaning has deleted {len(lost)} files that are needed then, {lost[0]} among"
            " them (or a pending clean is about to)",
            hint="Choose a later instant. Savepoints keep the files of a commit: t.savepoints.create().",
            context={"files": lost[:20]},
        )


def check_not_running(timeline: Timeline, instant: str, operation: str) -> None:
    """Raise `CommitConflict` if a pending action was requested after the instant."""
    waiting = next((i for i in timeline.pending if i.time > instant and completes_as(i.action) in COMMITS), None)
    if waiting is not None:
        raise CommitConflict(
            f"{operation} is not possible while {waiting.action} {waiting.time}, which began after it, is pending",
            hint="Try again when it is done; t.restore() takes back what is pending, too.",
            context={"instant": waiting.time},
            kind=ConflictKind.BUSY,
        )

"""Upgrade and downgrade: a table of another version with the same rows, never unless asked.

A plan that prints shows what it takes, or why the table stays unchanged. Log files, which the other version would read
differently, are compacted first, while writes go on. Then, under the table lock and with nothing pending, the timeline
is written in the other layout next to the old one, and one write of the properties makes the table one of the other
version. If interrupted before that write, the table keeps its old version. If interrupted afterwards, it has the new
version and is complete. Running the change again then removes the old timeline and builds the noted indexes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakebed.concurrency.heartbeat import is_dead
from lakebed.config.options import resolve_options
from lakebed.errors import (
    CommitConflict,
    CommitStateUnknown,
    ConflictKind,
    InvalidOption,
    LakebedError,
    UnsupportedFeature,
)
from lakebed.expressions.key_generators import NAMED, PLAIN
from lakebed.metadata.lookups import open_snapshot, snapshot_of
from lakebed.metadata_kinds.expression_results import noting
from lakebed.metadata_kinds.key_changes import is_partitioned, record_index_definition
from lakebed.metadata_kinds.registry import REQUESTED_PROPERTY, find_kind, remembered_indexes, remembered_property
from lakebed.metadata_records.definitions import IndexDefinition, load_definitions, write_definitions
from lakebed.metadata_records.layout import (
    BLOOM_FILTERS,
    FILES,
    LAYERED_INDEXES,
    METADATA_FOLDER,
    PARTITION_STATS,
    GroupSizing,
)
from lakebed.metadata_upkeep.comparison import build_as_defined, sizings_of
from lakebed.metadata_upkeep.creation import PARTITIONS, PARTITIONS_INFLIGHT
from lakebed.model import RECORD_INDEX, Action, LogFile, State, has_completion_times
from lakebed.operations.context import WriteContext
from lakebed.policies.rollback import is_log_path
from lakebed.properties.file import SUPPORTED_VERSIONS, update_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.services.cleaning import Cleaning, savepointed_files, visible_slices
from lakebed.services.compaction import Compaction
from lakebed.services.consumers import move_to_requested_times
from lakebed.services.driver import run_plan, run_service
from lakebed.services.undo import UndoTransaction
from lakebed.services.upgrade_properties import changed_properties, other_layout, with_changes
from lakebed.services.upgrade_timeline import copy_timeline, remove_timeline
from lakebed.slices.listing import list_table
from lakebed.slices.newest_files import NAMED_VERSION, stored_key_forms
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.folder import FolderStorage
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.wording import Printed, count_text

# The indexes to be built again. They are noted before the first one is dropped and until all are built, so that the
# next run of an interrupted change builds them.
NOTED_PROPERTY = "lakebed.upgrade.indexes"
# Metadata partitions that have the same form in versions 8 and 9.
_OF_BOTH = (FILES, BLOOM_FILTERS, RECORD_INDEX)


@dataclass(frozen=True, repr=False)
class VersionPlan(Printed):
    """The plan of the change of a table from version `source` to `target`.

    `slices` with log files are compacted first. `cleans` is whether files that only earlier views need are cleaned,
    because log files would get another meaning. `instants` of the timeline and `archived` ones are written in the other
    layout. Partitions of the metadata table are `rebuilt` or, with the reason, `dropped`. `properties` are the keys of
    `hoodie.properties` that change, with their new values.
    """

    source: int
    target: int
    slices: int = 0
    cleans: bool = False
    instants: int = 0
    archived: int = 0
    rebuilt: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict[str, str])
    properties: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])

    @property
    def is_crossing(self) -> bool:
        """Whether the change crosses version 8, where the timeline has another layout."""
        return has_completion_times(self.source) != has_completion_times(self.target)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "from": self.source,
            "to": self.target,
            "slices_to_compact": self.slices,
            "cleans_history": self.cleans,
            "instants": self.instants,
            "archived_instants": self.archived,
            "indexes_rebuilt": list(self.rebuilt),
            "indexes_dropped": dict(self.dropped),
            "properties": dict(self.properties),
        }

    def __str__(self) -> str:
        lines = [f"table version {self.source} -> {self.target}"]
        if self.slices:
            lines.append(f"compaction of {count_text(self.slices, 'file slice')} with log files")
        if self.cleans:
            lines.append("files of earlier file slices are deleted: the past cannot be read any more")
        if self.is_crossing:
            lines.append(
                f"{count_text(self.instants, 'instant')} and {self.archived:,} archived ones get the other layout"
            )
        if self.rebuilt:
            lines.append(f"built again in the metadata table: {', '.join(self.rebuilt)}")
        lines += [f"dropped: {name} ({reason})" for name, reason in self.dropped.items()]
        lines += [f"{key}: {'(removed)' if text is None else text}" for key, text in self.properties.items()]
        return "\n".join(lines)


def check_direction(version: int, to: int, verb: str) -> None:
    """Raise `InvalidOption` for a version that does not exist, or that is in the other direction."""
    if to not in SUPPORTED_VERSIONS:
        versions = ", ".join(map(str, SUPPORTED_VERSIONS))
        raise InvalidOption(f"there is no table version {to} that lakebed writes", hint=f"It is one of {versions}.")
    up = verb == "upgrade"
    if to != version and (to > version) != up:
        raise InvalidOption(
            f"the table has version {version}: version {to} is {'before' if up else 'after'} that",
            hint=f"Use t.maintenance.downgrade(to={to})." if up else f"Use t.maintenance.upgrade(to={to}).",
            context={"version": version, "to": to},
        )


def plan_version(snapshot: Snapshot, to: int) -> VersionPlan:
    """The plan for the table's present state. Raises `UnsupportedFeature` or `InvalidOption` if it cannot have that
    version, and `CommitConflict` while an action is pending that has to be finished first."""
    config = snapshot.config
    if to == config.version:
        return VersionPlan(to, to)
    _check_indexes(config, to)
    changes = changed_properties(config, to) | _requested(config, to)
    rebuilt, dropped = sorted_partitions(config, load_definitions(snapshot.storage, config), to)
    for name in dropped:
        changes |= noting(config.properties, name, None)
    plan = VersionPlan(config.version, to, rebuilt=tuple(rebuilt), dropped=dropped, properties=changes)
    _check_timeline(snapshot, plan)
    plan = replace(plan, slices=_slices(snapshot))
    if not plan.is_crossing:
        return plan
    return replace(
        plan,
        cleans=to < config.version and config.table_type == "mor",
        instants=len(snapshot.timeline.completed),
        archived=sum(i.is_completed for i in snapshot.timeline.archived().instants),
    )


def sorted_partitions(
    config: TableConfig, definitions: Mapping[str, IndexDefinition], to: int
) -> tuple[list[str], dict[str, str]]:
    """The partitions of the metadata table to build again, and those to drop, with the reasons. Partitions that stay
    unchanged, because version 8 and 9 store them equally, are in neither."""
    crossing = has_completion_times(config.version) != has_completion_times(to)
    rebuilt: list[str] = []
    dropped: dict[str, str] = {}
    for name in dict.fromkeys([*config.metadata_partitions, *noted_indexes(config)]):
        reason = _reason_to_drop(name, definitions.get(name), to)
        if reason is not None:
            dropped[name] = reason
        elif crossing or name not in _OF_BOTH or name not in config.metadata_partitions:
            rebuilt.append(name)
    return rebuilt, dropped


def noted_indexes(config: TableConfig) -> list[str]:
    """The indexes that an interrupted change has dropped and that must be built again."""
    return [name for name in config.properties.get(NOTED_PROPERTY, "").split(",") if name]


def _reason_to_drop(name: str, definition: IndexDefinition | None, to: int) -> str | None:
    if find_kind(name) is None:
        return "lakebed does not know it"
    if name.startswith("expr_index_"):
        return "expression indexes are bound to the version that they were made in"
    if to < 9 and name == RECORD_INDEX and is_partitioned(definition):
        return "one for each partition path is for version 9"
    if to < 8 and (name == PARTITION_STATS or name.startswith(("secondary_index_", *LAYERED_INDEXES))):
        return "version 6 has no such index"
    return None


def _requested(config: TableConfig, to: int) -> dict[str, str | None]:
    """The requested indexes of the table, as a property without those that the version does not have; empty if nothing
    changes."""
    names = remembered_indexes(config.properties)
    supported = [n for n in names if not (to < 9 and n.partitioned) and not (to < 8 and n.column is not None)]
    return {} if len(supported) == len(names) else {REQUESTED_PROPERTY: None, **remembered_property(supported)}


def _check_indexes(config: TableConfig, to: int) -> None:
    settings = config.index_settings
    if to < 9 and settings.get("type") == "record" and settings.get("partitioned", "").lower() == "true":
        raise UnsupportedFeature(
            f"writes to table {config.name!r} go by a record index for each partition path, which only version 9 has",
            hint="Give the table another index first, e.g. t.indexes.adopt('simple').",
            context={"feature": "partitioned record index"},
        )


def _check_timeline(snapshot: Snapshot, plan: VersionPlan) -> None:
    timeline = snapshot.timeline
    for pending in timeline.pending:
        if timeline.is_pending_clustering(pending):
            raise CommitConflict(
                f"clustering {pending.time} of table {snapshot.config.name!r} is pending: the log files of its file"
                " groups cannot be compacted before it is finished",
                hint="Run it with t.maintenance.cluster(), or take it off with real Hudi, then try again.",
                context={"instant": pending.time},
                kind=ConflictKind.BUSY,
            )
        if pending.action is Action.INDEXING:
            raise CommitConflict(
                f"an index of table {snapshot.config.name!r} is being built (instant {pending.time})",
                hint="Try again when it is done.",
                context={"instant": pending.time},
                kind=ConflictKind.BUSY,
            )
    if plan.is_crossing and plan.target < plan.source and snapshot.config.table_type == "mor":
        saved = _savepoint_with_logs(snapshot)
        if saved is not None:
            raise InvalidOption(
                f"savepoint {saved} of table {snapshot.config.name!r} keeps log files that version {plan.target}"
                " would read otherwise",
                hint=f'Delete it first: t.savepoints.delete("{saved}"). Savepoints stay whose file slices have no log'
                " files.",
                context={"instant": saved},
            )


def _savepoint_with_logs(snapshot: Snapshot) -> str | None:
    """The instant of the first savepoint that names a log file, or a base file of a slice that has log files today.
    None if no savepoint does."""
    savepoints = savepointed_files(snapshot.timeline)
    named = {path for paths in savepoints.values() for path in paths}
    with_logs = {path for path in named if is_log_path(path)}
    for group in visible_slices(snapshot, list_table(snapshot.storage)) if named else ():
        for part in group.slices:
            if any(not file.is_cdc for file in part.log_files):
                with_logs |= {file.path for file in part.base_files} & named
    return next((time for time, paths in savepoints.items() if with_logs & paths), None)


def _slices(snapshot: Snapshot) -> int:
    if snapshot.config.table_type != "mor":
        return 0
    return sum(bool(file_slice.log_files) for file_slice in snapshot.file_slices())


def _refuse_plain_keys(snapshot: Snapshot) -> None:
    """Raise `UnsupportedFeature` if complex keys of one field are stored as `1`, not `id:1`: the next job of real Hudi
    would store a second row of each key, so it refuses such an upgrade as well."""
    config = snapshot.config
    if not config.has_two_key_forms:
        return
    forms = stored_key_forms(snapshot.file_slices(), snapshot.reader)
    if PLAIN not in forms:
        return
    field, mixed = config.key_fields[0], NAMED in forms
    raise UnsupportedFeature(
        f"the keys of table {config.name!r} are stored as '1', {'some as' if mixed else 'not as'} '{field}:1', which"
        " real Hudi writes from version 9 on: it would store a second row of each key",
        hint='t.maintenance.repair(["keys"], options={"hoodie.write.complex.keygen.new.encoding": "false"})'
        " stores all of them so"
        " first. With hoodie.write.complex.keygen.validation.enable=false they stay, and lakebed alone may write.",
        context={"feature": "complex key of one field", "table": config.name},
    )


# Writers may log between the compaction and the lock this many times.
_ATTEMPTS = 3
_EVERYTHING = {
    "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy.UnBoundedCompactionStrategy",
    "hoodie.table.services.incremental.enabled": False,
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.clean.fileversions.retained": 1,
    "hoodie.clean.incremental.enabled": False,
    "lakebed.consumers.max_lag": 0,
}


@dataclass(frozen=True, repr=False)
class VersionChange(Printed):
    """The result of an upgrade or downgrade, or a preview: its `plan`; `notes` name the further steps that were
    done."""

    plan: VersionPlan
    done: bool = True
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        outcome = {"done": self.done, "notes": list(self.notes), "seconds": round(self.seconds, 4)}
        return self.plan.to_dict() | outcome

    def __str__(self) -> str:
        if self.plan.source == self.plan.target:
            return "\n".join([f"the table has version {self.plan.target}", *self.notes])
        end = f"({self.seconds:.2f} s)" if self.done else "(nothing was done)"
        return "\n".join([str(self.plan), *self.notes, end])


def upgrade(context: WriteContext, to: int, *, dry_run: bool = False) -> VersionChange:
    """Change the table to a later version; see `change_version`."""
    check_direction(context.config.version, to, "upgrade")
    return change_version(context, to, "upgrade", dry_run=dry_run)


def downgrade(context: WriteContext, to: int, *, dry_run: bool = False) -> VersionChange:
    """Change the table to an earlier version; see `change_version`."""
    check_direction(context.config.version, to, "downgrade")
    return change_version(context, to, "downgrade", dry_run=dry_run)


def change_version(context: WriteContext, to: int, verb: str, *, dry_run: bool = False) -> VersionChange:
    """Change the table to another version; with `dry_run` only report the work. If the table has that version already,
    leftovers of an interrupted change are removed.

    Raises `UnsupportedFeature` or `InvalidOption` if the table cannot have that version, `CommitConflict` where
    a writer is active; the version is unchanged then.
    """
    context.check_write(verb)
    plan = plan_version(context.opened, to)
    if context.settings.check_key_form and plan.source < NAMED_VERSION <= to:
        _refuse_plain_keys(context.opened)
    if dry_run:
        return VersionChange(plan, done=False)
    started = time.monotonic()
    notes: list[str] = []
    attempts = _ATTEMPTS if to != context.config.version else 0
    for attempt in range(attempts):
        notes += _finish_interrupted(context, plan, verb)
        context = _reopened(context)
        flip: _Flip | None = None
        try:
            with UndoTransaction.of(context, Action.COMMIT, verb) as tx, tx.locked_view() as snapshot:
                blocked = _reason_to_wait(snapshot, plan)
                if blocked is None:
                    flip = _change(tx, snapshot, to)
                    if tx.lock_is_held():
                        notes += _finish(tx, flip.new, flip.sizings)
                        return VersionChange(plan, notes=tuple(notes), seconds=time.monotonic() - started)
                elif attempt == _ATTEMPTS - 1:
                    raise blocked
        except CommitConflict:  # the lock ran out
            if flip is None:
                raise
        if flip is not None:
            notes += _finish_flip(_reopened(context), flip, verb)
            return VersionChange(plan, notes=tuple(notes), seconds=time.monotonic() - started)
    with UndoTransaction.of(context, Action.COMMIT, verb) as tx, tx.locked_view() as snapshot:
        notes += _finish(tx, snapshot.config, {})
    return VersionChange(plan, notes=tuple(notes), seconds=time.monotonic() - started)


# while writes go on


def _finish_interrupted(context: WriteContext, plan: VersionPlan, verb: str) -> list[str]:
    """Finish planned services, and compact every log file that the other version would read differently. Returns a line
    of text about each."""
    waiting = [i for i in context.opened.timeline.pending if i.action is Action.CLEAN]
    notes = [str(run_plan(context, Cleaning(), instant.time)) for instant in waiting]
    if context.config.table_type != "mor":
        return notes
    everything = resolve_options({**context.options.explicit, **_EVERYTHING})
    context = _reopened(replace(context, options=everything))
    _take_log_compactions_back(context, verb)
    done = run_service(_reopened(context), Compaction())
    notes += [str(run) for run in done.runs]
    if plan.cleans and next(_other_logs(context.storage), None) is not None:
        cleaned = run_service(_reopened(context), Cleaning())
        notes += [str(run) for run in cleaned.runs]
    return notes


def _reopened(context: WriteContext) -> WriteContext:
    """The context with the table's present state."""
    return replace(context, opened=open_snapshot(context.storage))


def _take_log_compactions_back(context: WriteContext, verb: str) -> None:
    """Remove pending log compactions, since compactions skip their file groups. Nothing is lost with their plans."""
    if all(i.action is not Action.LOGCOMPACTION for i in context.opened.timeline.pending):
        return
    with UndoTransaction.of(context, Action.COMMIT, verb) as tx, tx.locked_view():
        for instant in [i for i in tx.timeline.pending if i.action is Action.LOGCOMPACTION]:
            if instant.state is State.INFLIGHT and not is_dead(tx.storage, instant.time):
                raise _conflict(f"log compaction {instant.time} is being run by another process")
            tx.take_back(instant, with_plan=True)


# under the lock


def _reason_to_wait(snapshot: Snapshot, plan: VersionPlan) -> LakebedError | None:
    """The error that tells why the table cannot change now: a writer is active, or has written since everything was
    finished. None if it can."""
    pending = next(iter(snapshot.timeline.pending), None)
    if pending is not None:
        return _conflict(f"{pending.action} {pending.time} is pending")
    if snapshot.config.table_type != "mor":
        return None
    if any(file_slice.log_files for file_slice in snapshot.file_slices()):
        return _conflict("writers log to it faster than it is compacted")
    left = next(_other_logs(snapshot.storage), None) if plan.cleans else None
    return _conflict(f"log file {left.path} could not be cleaned away") if left is not None else None


def _other_logs(storage: Storage) -> Iterator[LogFile]:
    """The log files that version 6 would read as separate file slices: all except change logs written with a base file,
    which have the base file's instant in every version."""
    listing = list_table(storage)
    bases = {(base.partition, base.file_id, base.instant) for base in listing.base_files}
    for log in listing.log_files:
        if not (log.is_cdc and (log.partition, log.file_id, log.instant) in bases):
            yield log


@dataclass(frozen=True)
class _Flip:
    """The state after the properties were written: the old and the new ones, and the timeline that was copied
    before."""

    plan: VersionPlan
    copied: Timeline
    old: TableConfig
    new: TableConfig
    sizings: Mapping[str, GroupSizing | None]


def _change(tx: UndoTransaction, snapshot: Snapshot, to: int) -> _Flip:
    """Write the other timeline, and then the properties."""
    storage = tx.storage
    plan = plan_version(snapshot, to)
    definitions = load_definitions(storage, snapshot.config)
    sizings = sizings_of(snapshot, plan.rebuilt, definitions)
    config = _set_aside(tx, snapshot.config, plan, definitions)
    _check_lock(tx)
    if plan.is_crossing:
        if not has_completion_times(to):
            move_to_requested_times(snapshot.timeline)
        storage.delete_folder(METADATA_FOLDER)
        copy_timeline(snapshot.timeline, with_changes(config, plan.properties), tx.lock_is_held)
    else:
        _change_metadata_table(tx, config, to)
    _check_lock(tx)
    new = update_table_config(storage, plan.properties, tx.lock_is_held)
    return _Flip(plan, snapshot.timeline, config, new, sizings)


def _check_lock(tx: UndoTransaction) -> None:
    if not tx.lock_is_held():
        raise _conflict("the lock was lost while it was changed")


def _finish_flip(context: WriteContext, flip: _Flip, verb: str) -> list[str]:
    """Resolve a change of version whose lock ran out while the properties were written. If a writer has meanwhile
    written to the old timeline, which was copied before, the table gets its old version again. If another writer has
    already written in the new version, an error is raised."""
    with UndoTransaction.of(context, Action.COMMIT, verb) as tx, tx.locked_view() as snapshot:
        if snapshot.config.version != flip.plan.target:
            raise _conflict("another process changed it while this one was suspended")
        missed = load_timeline(tx.storage, flip.old).files.keys() - flip.copied.files.keys()
        if not missed or not flip.plan.is_crossing:
            return _finish(tx, snapshot.config, flip.sizings)
        if any(i.time > flip.copied.latest_time for i in snapshot.timeline.completed):
            raise CommitStateUnknown(
                f"table {flip.old.name!r} was written to in versions {flip.plan.source} and {flip.plan.target} while"
                " the process that changed its version was suspended without the table lock",
                hint=f"The table has version {flip.plan.target}. What was written to the other one is on the timeline"
                f" in {flip.old.timeline_path}; nothing was cleaned up.",
                context={"files": sorted(missed)},
            )
        earlier = {key: flip.old.properties.get(key) for key in flip.plan.properties}
        update_table_config(tx.storage, earlier, tx.lock_is_held)
        raise _conflict("it was written to while this process was suspended without the table lock")


def _set_aside(
    tx: UndoTransaction, config: TableConfig, plan: VersionPlan, definitions: Mapping[str, IndexDefinition]
) -> TableConfig:
    """Drop the partitions of the metadata table that cannot be retained, and record those that are built again. Returns
    the new settings."""
    storage = tx.storage
    removed = {*plan.rebuilt, *plan.dropped} & {*config.metadata_partitions, *noted_indexes(config)}
    remaining = [name for name in config.metadata_partitions if name not in removed]
    changes: dict[str, str | None] = {NOTED_PROPERTY: ",".join(plan.rebuilt) or None}
    if config.metadata_partitions or config.metadata_partitions_inflight:
        changes |= {PARTITIONS: ",".join(sorted(remaining)), PARTITIONS_INFLIGHT: ""}
    stay = {name: definition for name, definition in definitions.items() if name not in plan.dropped}
    if plan.target >= 9 and RECORD_INDEX in (*remaining, *plan.rebuilt) and RECORD_INDEX not in stay:
        record_index = record_index_definition(plan.target, partitioned=False)
        stay |= {RECORD_INDEX: record_index} if record_index is not None else {}
    config = update_table_config(storage, changes, tx.lock_is_held)
    if stay or definitions:
        # with explicit index versions, which table version 9 needs and version 8 can read
        version = 2 if plan.target >= 9 else 1
        again = set(plan.rebuilt) - {RECORD_INDEX}
        versioned = [
            replace(definition, version=version) if name in again else definition for name, definition in stay.items()
        ]
        changes = write_definitions(storage, config, versioned, version=9)
        config = update_table_config(storage, changes, tx.lock_is_held) if changes else config
    for name in removed:
        _check_lock(tx)
        storage.delete_folder(f"{METADATA_FOLDER}/{name}")
    return config


def _change_metadata_table(tx: UndoTransaction, config: TableConfig, to: int) -> None:
    """Change the metadata table's version before the table's: between 8 and 9 readers accept a metadata table of the
    other version."""
    if config.metadata_partitions:
        changes = {"hoodie.table.version": str(to)}
        update_table_config(FolderStorage(tx.storage, METADATA_FOLDER), changes, tx.lock_is_held)
    else:  # the folder has nothing of this table
        tx.storage.delete_folder(METADATA_FOLDER)


def _finish(tx: UndoTransaction, config: TableConfig, sizings: Mapping[str, GroupSizing | None]) -> list[str]:
    """Run the steps after the new properties, now or in the next run: remove the old timeline and build the recorded
    indexes. Returns a line of text about each."""
    storage = tx.storage
    removed = remove_timeline(storage, other_layout(config), tx.lock_is_held)
    notes = [f"{count_text(removed, 'file')} of the old timeline removed"] if removed else []
    noted = noted_indexes(config)
    if not noted:
        return notes
    missing = [name for name in noted if name not in config.metadata_partitions]
    if not config.metadata_partitions:  # its build was cut off, and it misses later commits
        storage.delete_folder(METADATA_FOLDER)
    if missing:
        snapshot = snapshot_of(storage, config, load_timeline(storage, config))
        build_as_defined(snapshot, missing, load_definitions(storage, config), sizings, tx.settings, tx.lock_is_held)
        notes.append(f"built: {', '.join(missing)}")
    update_table_config(storage, {NOTED_PROPERTY: None}, tx.lock_is_held)
    return notes


def _conflict(why: str) -> CommitConflict:
    return CommitConflict(
        f"the table's version was not changed: {why}",
        hint="Try again when its writers are done.",
        kind=ConflictKind.BUSY,
    )

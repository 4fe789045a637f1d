"""Sends the rows of a write to the file groups that the table's index determines, in one of three ways:

- The index hashes keys: the file group is a column of the rows, one shuffle by it brings them together.
- The index tags rows: file groups are assigned to keys that it did not find, then the rows are routed and shuffled.
- Keys are not looked up and every task may open files of its own (bulk insert): nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Rows, count_rows, distinct_values, persisted
from lakebed.errors import LakebedError
from lakebed.expressions.base import Column, RowExpression
from lakebed.handles.base import HashedTargets, NamedTargets, Target
from lakebed.handles.bulk_writer import BulkWriter
from lakebed.index.base import Hashed, Hashing, KeyHash, KeyLookup, Numbered, Tagged, pending_resizes
from lakebed.index.changed_locations import may_come_back, restore_reappearing_keys
from lakebed.index.key_repetitions import KeyRepetitions
from lakebed.merge.combine import combine_by_key
from lakebed.merge.locations import NO_LOCATION, BooleanLiteral, Either, IsNull, Not, Zero
from lakebed.merge.rules import MergeRules
from lakebed.model import (
    COMBINED,
    DELETE,
    DERIVED,
    FILE_ID,
    IS_DELETED_COLUMN,
    MEMBER,
    MOVED,
    OPENED,
    OPERATION_COLUMN,
    PARTITION_PATH,
    RECORD_KEY,
    FileGroupId,
    has_completion_times,
)
from lakebed.operations.assign import Assignment, PlannedGroup, assign
from lakebed.operations.plan import (
    WritePlan,
    plan_of_assignment,
    plan_of_hashed,
    plan_of_numbered,
    plan_of_tasks,
    with_absent,
    with_splits,
)
from lakebed.operations.write import Write
from lakebed.sharing import once
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.row_size import SAMPLE_ROWS, from_commits, from_sample
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.commit import PartitionProfile, encode_inflight
from lakebed.write_status import LOOKUP_COUNTS, STATUS_SCHEMA, WriteStatus

# Whether a row is written, if an insert skips rows of existing keys. Skipped rows are counted as well.
_RETAINED = f"{DERIVED}kept"
# Columns that are summed when rows are counted, and are not written.
_SUMMED = (_RETAINED, MOVED, OPENED)


class Layout(Protocol):
    """The complete plan of a write: it can be printed, written to the timeline, and run."""

    def plan(self) -> WritePlan: ...

    def profile(self) -> bytes:
        """The body of the inflight instant; empty if file groups are known only at run time."""
        ...

    def run(self) -> list[WriteStatus]:
        """Send the rows to their file groups and write these. Returns the statuses."""
        ...

    def lookup(self, statuses: Sequence[WriteStatus]) -> KeyLookup | None:
        """The counts of the index's search for the keys, known after the write; None if keys were not looked up."""
        return None

    def appends_within(self, max_groups: int) -> bool:
        """Whether the rows certainly go to no more than `max_groups` file groups, whose stored rows are not read."""
        return False

    def repetitions(self, count: KeyRepetitions) -> int | None:
        """The number of rows of this insert whose key the table already has, or another row of the insert has. None if
        that is not counted."""
        return None

    @property
    def skipped(self) -> Sequence[WriteStatus]:
        """The counts of incoming rows that were sent to no task, because an insert skips rows of stored keys."""
        return ()

    @property
    def moved(self) -> int:
        """The number of rows that only delete a key at its old location, because it moves to another partition path."""
        return 0

    @property
    def moved_of(self) -> Mapping[int, int]:
        """The number of moved rows of each upsert, by the upsert's number."""
        return {}

    @property
    def sizes(self) -> Mapping[FileGroupId, int]:
        """The bytes before the write of the file groups in which rows have a fixed location."""
        return {}


class Placed(Protocol):
    """Rows with their locations, before new rows have file groups."""

    def assign(self) -> Layout:
        """The layout, in which rows without a file group have one."""
        ...


def log_instants(snapshot: Snapshot) -> dict[FileGroupId, str]:
    """The instants by which log files of file groups in a pending compaction are named before table version 8."""
    if snapshot.config.table_type == "cow" or has_completion_times(snapshot.config.version):
        return {}
    return {group: planned.time for group, planned in snapshot.timeline.pending_compaction.items()}


@contextmanager
def placed(write: Write, prepared: Rows) -> Generator[Placed]:
    """Yields the rows at the locations that the table's index chooses. Rows that are cached for this are released at
    the end of the block."""
    context = write.context
    if context.index.hashing is not None:
        yield _placed_by_key(write, prepared, context.index.hashing)
        return
    with _tagged(write, prepared) as (tagged, lookup):
        tagged_rows = TaggedRows(write, tagged, lookup)
        adds = write.match.looks_up and not (write.match.deletes or write.new_groups_only)
        if not adds or not may_come_back(context.index, write.snapshot):
            yield tagged_rows
            return
        with restore_reappearing_keys(
            tagged_rows.written_rows, tagged_rows.new_in, context.index, write.snapshot, context.engine
        ) as back:
            tagged_rows = tagged_rows.reading(back.lookup)
            if back.renewed:
                skipped = tagged_rows.skipped
                tagged_rows = TaggedRows(write, back.rows, tagged_rows.reported, back.renewed, left_out=skipped)
            yield tagged_rows


def _placed_by_key(write: Write, prepared: Rows, hashing: Hashing) -> HashedLayout | NumberedLayout:
    if hashing.key_hash is not None:
        return HashedLayout(write, prepared, hashing.key_hash)
    index = write.context.index
    if write.new_groups_only and index.resizing is not None:
        index = index.resizing.for_new_groups(write.instant)
    answer = index.place(prepared, write.snapshot, write.context.engine)
    if not isinstance(answer, Numbered):
        raise _wrong_answer(index.name, "has hashing without a key_hash, and yet gives rows without numbers")
    return NumberedLayout(write, answer)


@contextmanager
def _tagged(write: Write, prepared: Rows) -> Generator[tuple[Rows, KeyLookup | None]]:
    """The rows with the file id and instant of their keys; null for new keys, and for all keys if nothing is looked up.
    If an insert skips existing keys, `_RETAINED` marks the rows that it writes. The rows are evaluated once."""
    match, engine = write.match, write.context.engine
    if not match.looks_up:
        with persisted(engine, engine.derive(prepared, NO_LOCATION)) as tagged:
            yield tagged, None
        return
    with _looked_up(write, prepared) as (rows, lookup):
        if match.on_match == "skip":
            rows = engine.derive(rows, {_RETAINED: _is_new_key(write.context.rules)})
        with persisted(engine, rows) as tagged:
            yield tagged, lookup


def _is_new_key(rules: MergeRules) -> RowExpression:
    """The expression for rows that an insert which skips existing keys must still consider: rows of new keys, and rows
    whose key text a stored row may have with other key fields. The task that reads the stored row decides about
    these."""
    fields = rules.key_fields
    return IsNull(FILE_ID) if fields is None else Either(IsNull(FILE_ID), fields.shared)


@contextmanager
def _looked_up(write: Write, prepared: Rows) -> Generator[tuple[Rows, KeyLookup | None]]:
    """Yields the rows as the index returns them (a global index returns one row for each key), and the counts of the
    lookup, None if the index did not look keys up."""
    match, engine, index = write.match, write.context.engine, write.context.index
    rules = None
    if index.is_global and match.combine:
        # rows of a delete hold keys, no ordering values: any of them will do
        rules = write.context.rules.of_deletes if match.deletes else write.context.rules
        if rules.merger is not None:  # which may make a delete of several rows
            prepared = engine.derive(prepared, {DELETE: BooleanLiteral(False)})
        prepared = engine.derive(prepared, {COMBINED: Zero()})
    # a key that is stored in another partition path is an existing key, too
    stays = match.on_match in ("skip", "fail") or write.clauses is not None
    index = index.for_existence_checks() if stays else index
    stored = index.stored_locations
    at_once = None if stored is None else stored.place_in_one(prepared, rules, write.snapshot, engine)
    if at_once is not None:
        with at_once.released(engine) as rows:
            yield rows, at_once.lookup or KeyLookup()
        return
    if rules is not None:
        prepared = combine_by_key(engine, prepared, rules)
    with persisted(engine, prepared) as incoming:
        answer = index.place(incoming, write.snapshot, engine)
        if not isinstance(answer, Tagged):
            raise _wrong_answer(index.name, "has no hashing, and yet places rows by it")
        with answer.released(engine) as rows:
            yield rows, answer.lookup or KeyLookup()


@dataclass(frozen=True)
class HashedLayout(Layout):
    """Rows whose column `GROUP` has the number of their file group. Nothing is assigned; which file groups get rows is
    known only while the write runs."""

    write: Write
    rows: Rows
    key_hash: KeyHash

    def assign(self) -> Layout:
        return self

    def plan(self) -> WritePlan:
        write = self.write
        plan = plan_of_hashed(write.context, write.snapshot, self.rows, self._placed, write.operation)
        if write.growth is not None:
            plan = with_splits(plan, write.growth, write.snapshot)
        return with_absent(plan, write.context, write.absent)

    def profile(self) -> bytes:
        return b""

    def run(self) -> list[WriteStatus]:
        write, placed = self.write, self._placed
        existing = {} if write.new_groups_only else dict(placed.existing)
        several = {} if write.new_groups_only and placed.several is not None else placed.several
        fixed = write.context.is_non_blocking and not write.new_groups_only
        replaced = frozenset(write.snapshot.timeline.replaced_files) if fixed else frozenset[FileGroupId]()
        targets = HashedTargets(
            write.instant,
            existing,
            fixed_ids=fixed,
            log_instants=log_instants(write.snapshot),
            several=several,
            replaced=replaced,
            splits={} if write.growth is None else write.growth.splits,
        )
        # an unknown number of partition paths has so many groups each
        groups = None if write.context.keys.partition_fields else self.key_hash.groups
        statuses = write.run_grouped(self.rows, write.group_writer(targets), groups=groups)
        if write.growth is None:
            return statuses
        return statuses + write.growth.move_others(write.context.engine, write.group_job(), write.snapshot, statuses)

    def appends_within(self, max_groups: int) -> bool:
        context = self.write.context
        if not context.has_appended_groups or self._placed.several is not None or self._may_read_stored:
            return False
        return context.engine.aggregate(self.rows, [PARTITION_PATH, GROUP]).num_rows <= max_groups

    @property
    def _may_read_stored(self) -> bool:
        """Whether the tasks may read stored rows: for rows that lack columns, for deletes, or to compare rows."""
        write, settings = self.write, self.write.context.settings
        flags = {IS_DELETED_COLUMN, OPERATION_COLUMN, write.snapshot.config.delete_field}
        deletes = write.match.deletes or bool(flags & set(write.context.engine.schema(self.rows).names))
        looks_up = deletes and settings.delete_lookup and bool(write.context.rules.ordering)
        is_plain = write.match.on_match in ("keys", "none") and write.clauses is None and write.growth is None
        return looks_up or not is_plain or bool(write.absent) or settings.skip_unchanged

    def lookup(self, statuses: Sequence[WriteStatus]) -> KeyLookup | None:
        if self._placed.several is None:
            return KeyLookup(keys=sum([status.rows_in for status in statuses]), by_hash=True)
        return looked_up_in_tasks(statuses) if self.write.match.looks_up else None

    def repetitions(self, count: KeyRepetitions) -> int | None:
        return 0 if self.write.begins_with_logs else count.of_hashed(self.rows, self._placed)

    @property
    def sizes(self) -> Mapping[FileGroupId, int]:
        return {
            (file_slice.partition, file_slice.file_id): file_slice.size for file_slice in self._placed.existing.values()
        }

    @once
    def _placed(self) -> Hashed:
        context = self.write.context
        answer = context.index.place(self.rows, self.write.snapshot, context.engine)
        if not isinstance(answer, Hashed):
            raise _wrong_answer(context.index.name, "has a key_hash, and yet gives rows tagged")
        return answer


@dataclass(frozen=True)
class NumberedLayout(Layout):
    """Rows that have the number of their file group, which exists or has a known name. Nothing is assigned."""

    write: Write
    numbered: Numbered

    def assign(self) -> Layout:
        return self

    def plan(self) -> WritePlan:
        write = self.write
        plan = plan_of_numbered(write.context, write.snapshot, self.numbered, write.operation)
        return with_absent(plan, write.context, write.absent)

    def profile(self) -> bytes:
        return b""

    def run(self) -> list[WriteStatus]:
        write, numbered = self.write, self.numbered
        instants = {**log_instants(write.snapshot), **pending_resizes(write.context.index, write.snapshot).children}
        targets: dict[tuple[str, int], Target] = {}
        for group in {*numbered.existing, *numbered.parents}:
            file_id, file_slice = numbered.names.file_id(*group), numbered.existing.get(group)
            at, parents = instants.get((group[0], file_id)), numbered.parents.get(group, ())
            targets[group] = Target(file_id, file_slice, size_limited=False, log_instant=at, parents=parents)
        # an unknown number of partition paths has so many groups each
        groups = None if write.context.keys.partition_fields else numbered.names.count("")
        writer = write.group_writer(NamedTargets(targets, numbered.names))
        return write.run_grouped(numbered.rows, writer, groups=groups)

    def lookup(self, statuses: Sequence[WriteStatus]) -> KeyLookup | None:
        return KeyLookup(keys=sum(status.rows_in for status in statuses), by_hash=True)

    def repetitions(self, count: KeyRepetitions) -> int | None:
        return 0 if self.write.begins_with_logs else None


@dataclass(frozen=True)
class TaggedRows:
    """Rows that the index tagged, or whose location was already known. File groups in `renewed` are rewritten.
    `counted` has the counts of these rows by location if they were counted before, `left_out` the counts of rows that
    an insert skips, if they are no longer among these rows."""

    write: Write
    tagged: Rows
    lookup: KeyLookup | None = None
    renewed: frozenset[FileGroupId] = frozenset()
    counted: pa.Table | None = None
    left_out: Sequence[WriteStatus] = ()

    @once
    def _names(self) -> Sequence[str]:
        return self.write.context.engine.schema(self.tagged).names

    @once
    def _counted(self) -> pa.Table:
        """The counts of rows by location, with the sums of their `_SUMMED` columns."""
        if self.counted is not None:
            return self.counted
        sums = [name for name in _SUMMED if name in self._names]
        return self.write.context.engine.aggregate(self.tagged, [PARTITION_PATH, FILE_ID], sums)

    @once
    def profile(self) -> pa.Table:
        """The counts of the written rows by location."""
        counted = self._counted
        if _RETAINED in counted.column_names:
            counted = counted.set_column(counted.schema.get_field_index("rows"), "rows", counted.column(_RETAINED))
            counted = counted.filter(pc.greater(counted["rows"], 0))
        return counted.select([PARTITION_PATH, FILE_ID, "rows"])

    @property
    def written_rows(self) -> Rows:
        """The rows that are written."""
        engine = self.write.context.engine
        rows = engine.filter(self.tagged, Column(_RETAINED)) if _RETAINED in self._names else self.tagged
        if not set(_SUMMED) & set(self._names):
            return rows
        return engine.derive(rows, {}, keep=[name for name in self._names if name not in _SUMMED])

    @once
    def skipped(self) -> Sequence[WriteStatus]:
        """The counts of the rows that an insert skips, since their keys are stored."""
        rows = int(pc.sum(self._counted.column("rows")).as_py() or 0)
        if _RETAINED not in self._names or rows == self._sum(_RETAINED):
            return self.left_out
        engine, has_combined = self.write.context.engine, COMBINED in self._names
        skipped = engine.filter(self.tagged, Not(Column(_RETAINED)))
        rows -= self._sum(_RETAINED)
        if has_combined:
            combined = int(engine.aggregate(skipped, [], [COMBINED]).column(COMBINED)[0].as_py())
            rows += combined
        else:
            keys = engine.derive(skipped, {}, keep=[RECORD_KEY, PARTITION_PATH])
            combined = rows - count_rows(engine, engine.distinct(keys))
        counts = WriteStatus("", rows_in=rows, num_unchanged=rows - combined, num_combined=combined)
        return [*self.left_out, counts]

    @property
    def moved(self) -> int:
        return self._sum(MOVED)

    @property
    def moved_of(self) -> Mapping[int, int]:
        """The number of `moved` rows of each of several upserts, by upsert number."""
        if not {MEMBER, MOVED} <= set(self._names):
            return {}
        counted = self.write.context.engine.aggregate(self.tagged, [MEMBER], [MOVED])
        return dict(zip(counted[MEMBER].to_pylist(), counted[MOVED].to_pylist(), strict=True))

    def _sum(self, name: str) -> int:
        counted = self._counted
        return int(pc.sum(counted.column(name)).as_py() or 0) if name in counted.column_names else 0

    def reading(self, more: KeyLookup) -> TaggedRows:
        """These rows, with the additional reads `more` in their lookup. Rows that were counted are not counted
        again."""
        return replace(
            self, lookup=self.lookup and self.lookup.with_reads(more.opened, more.bytes), counted=self._counted
        )

    @property
    def reported(self) -> KeyLookup | None:
        """The counts of the index's search for the keys, completed by the counts in the columns of the rows; None if
        the index did not search."""
        if self.lookup is None:
            return None
        lookup = self.lookup
        if OPENED in self._counted.column_names:
            lookup = replace(lookup, index_files=self._sum(OPENED))
        if lookup.keys:
            return lookup
        tagged_counts = self._counted.filter(pc.is_valid(self._counted[FILE_ID]))
        keys, tagged = (int(pc.sum(counts["rows"]).as_py() or 0) for counts in (self._counted, tagged_counts))
        return replace(lookup, keys=keys - self.moved, tagged=tagged)

    @property
    def new_in(self) -> Sequence[str]:
        """The partition paths of rows without a place."""
        new = self.profile.filter(pc.is_null(self.profile[FILE_ID]))
        return distinct_values(new, PARTITION_PATH)[0]

    def assign(self) -> AssignedRows:
        """The rows with the complete layout, in which new rows have planned file groups."""
        write, context, profile = self.write, self.write.context, self.profile
        partitions, ids = distinct_values(profile, PARTITION_PATH, FILE_ID)
        inserts = profile.column(FILE_ID).null_count > 0
        small = context.settings.max_small_file_size if inserts else 0
        resizes = pending_resizes(context.index, write.snapshot)
        groups = groups_of_ids(ids, or_smaller_than=small)
        plan = assign(
            profile,
            () if write.new_groups_only else write.snapshot.file_slices(partitions, groups),
            instant=write.instant,
            record_size=self._record_size(inserts=inserts),
            settings=context.settings,
            avoid=self._groups_of_services(),
            fill_small_files=not write.new_groups_only and write.snapshot.config.writes_base_files,
            appends=write.snapshot.config.table_type == "mor",
            renewed=self.renewed,
            log_instants={**log_instants(write.snapshot), **resizes.children},
            origins=resizes.origins,
        )
        return AssignedRows(write, self.written_rows, plan, self.reported, self.moved, self.moved_of, self.skipped)

    def _groups_of_services(self) -> frozenset[FileGroupId]:
        """The file groups that take no new rows, because a service is about to rewrite them. File groups in a
        compaction have log files. Such groups take rows only if small files are deferred, so they are listed only
        then."""
        snapshot, context = self.write.snapshot, self.write.context
        groups = file_groups_in_clustering(snapshot) | snapshot.timeline.pending_log_compaction.keys()
        deferred = context.settings.small_files == "deferred"
        return groups | (snapshot.timeline.pending_compaction.keys() - self.renewed) if deferred else groups

    def _record_size(self, *, inserts: bool) -> float:
        """The mean bytes of a row in a file, from the last commits or else from some of the inserted rows."""
        context, engine = self.write.context, self.write.context.engine
        size = from_commits(self.write.snapshot, context.settings)
        if size is not None or not inserts:
            return size or 1.0
        names = set(self.write.schema.data.names)
        sample = engine.collect(engine.head(self.written_rows, SAMPLE_ROWS))
        stored = [n for n in sample.column_names if n in names or n.startswith("_hoodie")]
        return from_sample(sample.select(stored), context.settings)


@dataclass(frozen=True)
class AssignedRows:
    """Tagged rows with a file group for each location."""

    write: Write
    tagged: Rows
    assignment: Assignment
    reported: KeyLookup | None = None
    moved: int = 0
    moved_of: Mapping[int, int] = field(default_factory=dict[int, int])
    skipped: Sequence[WriteStatus] = ()

    def appends_within(self, max_groups: int) -> bool:
        return False  # rows of new keys may be written to base files

    def lookup(self, statuses: Sequence[WriteStatus]) -> KeyLookup | None:
        return self.reported

    def repetitions(self, count: KeyRepetitions) -> int | None:
        return count.of_rows(self.tagged, self.assignment.rows)

    @property
    def sizes(self) -> Mapping[FileGroupId, int]:
        return {}  # the table's index places keys, not numbers

    def plan(self) -> WritePlan:
        write = self.write
        plan = plan_of_assignment(write.context, write.snapshot, self.assignment, write.operation, self.reported)
        return with_absent(replace(plan, twice=self.moved), write.context, write.absent)

    def profile(self) -> bytes:
        return _workload_profile(self.write, self.assignment)

    def run(self) -> list[WriteStatus]:
        write, groups = self.write, self.assignment.groups
        if not groups:
            return []
        routed = write.context.engine.route(self.tagged, self.assignment.updates, self.assignment.inserts)
        existing_paths = frozenset(g.partition for g in groups if g.target.slice is not None)
        return write.run_grouped(
            routed,
            write.group_writer(self.assignment.targets, existing_paths),
            groups=len(groups),
            expected=self.assignment.rows,
        )


@dataclass(frozen=True)
class TaskLayout(Layout):
    """Rows that stay in the task that reads them, sorted as the session requests; each task opens its own file
    groups."""

    write: Write
    prepared: Rows

    def assign(self) -> Layout:
        return self

    def plan(self) -> WritePlan:
        return plan_of_tasks(self.write.context, self.write.operation)

    def profile(self) -> bytes:
        return b""

    def run(self) -> list[WriteStatus]:
        write, context, engine = self.write, self.write.context, self.write.context.engine
        rows, mode = self.prepared, context.settings.sort_mode
        if mode == "NONE" and context.config.sorts_by_key:
            mode = "PARTITION_SORT"
        if write.match.combine:
            rows = combine_by_key(engine, engine.derive(rows, {COMBINED: Zero()}), context.rules)
        if mode != "NONE":
            rows = engine.sort(rows, [PARTITION_PATH, RECORD_KEY], "table" if mode == "GLOBAL_SORT" else "task")
        gathered = engine.gathered(rows, PARTITION_PATH) if mode == "NONE" else rows
        single = replace(write, match=replace(write.match, combine=False))
        writer = BulkWriter(single.group_job(), sorted=gathered is not None)
        sent_rows = rows if gathered is None else gathered
        return write.run_counted(sent_rows, lambda sent: engine.map(sent, writer, STATUS_SCHEMA))


@dataclass(frozen=True)
class EmptyLayout(Layout):
    """The layout of a write without rows."""

    write: Write

    def assign(self) -> Layout:
        return self

    def plan(self) -> WritePlan:
        write = self.write
        return WritePlan(
            write.operation, write.context.index.explain_for(write.snapshot), write.context.engine.name, ()
        )

    def profile(self) -> bytes:
        return b""

    def run(self) -> list[WriteStatus]:
        return []


def looked_up_in_tasks(statuses: Sequence[WriteStatus]) -> KeyLookup:
    """The summed counts of the searches for keys by writing tasks."""
    counts = [status.lookup for status in statuses if status.lookup is not None]
    summed = (sum(lookup_counts[at] for lookup_counts in counts) for at in range(len(LOOKUP_COUNTS)))
    return replace(KeyLookup(), **dict(zip(LOOKUP_COUNTS, summed, strict=True)))


def _workload_profile(write: Write, plan: Assignment) -> bytes:
    """The body of an inflight instant: per partition the inserts, per file group the updates."""
    by_partition: dict[str, list[PlannedGroup]] = {}
    for group in plan.groups:
        by_partition.setdefault(group.partition, []).append(group)
    profile = [
        PartitionProfile(
            partition,
            sum(g.inserts for g in groups),
            [(g.target.file_id, g.target.slice.instant, g.updates) for g in groups if g.target.slice is not None],
        )
        for partition, groups in sorted(by_partition.items())
    ]
    return encode_inflight(write.operation, profile, write.context.config.version)


def _wrong_answer(index: str, problem: str) -> LakebedError:
    return LakebedError(
        f"the index {index!r} {problem}",
        hint="An index with a key_hash gives Hashed, with hashing alone Numbered, without it Tagged: see"
        " lakebed.index.base.Index.place.",
        context={"index": index},
    )


def file_groups_in_clustering(snapshot: Snapshot) -> frozenset[FileGroupId]:
    """The (partition path, file id) of every file group that a pending clustering will replace."""
    return frozenset(snapshot.timeline.pending_clustering)

"""The row function of every write: all rows of one file group in, through a handle to its files, status rows out.

Where key texts are not unique, it checks that incoming rows and the stored rows they replace have the same key
fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.conflicts import EarlyConflicts
from lakebed.concurrency.markers import write_markers
from lakebed.engine.base import GroupOfRows, Task
from lakebed.engine.spill import Spill
from lakebed.errors import LakebedError
from lakebed.handles.append import AppendHandle, are_small, ingest_groups, max_block_bytes
from lakebed.handles.base import GroupJob, GroupWrite, Handle, HandleType, Target, Targets
from lakebed.handles.bucket_groups import BucketHandle
from lakebed.handles.create import CreateHandle
from lakebed.handles.log_writer import mark_all
from lakebed.handles.merge import MergeHandle
from lakebed.handles.reappearing import revealing
from lakebed.handles.rebucket import SplitHandle
from lakebed.merge.incoming import Incoming, Intake
from lakebed.merge.shares import COUNTS, Shares, without_counts
from lakebed.merge.unchanged import Comparison
from lakebed.metadata_kinds.stored import stored_rows
from lakebed.model import MEMBER, OPERATION_COLUMN, POSITION, RECORD_KEY
from lakebed.schema.conversion import project
from lakebed.schema.plain_arrow import as_numpy
from lakebed.write_status import WriteStatus, to_batch

# What becomes of a row that comes to a file group.
_OUTCOMES = ("num_inserts", "num_updates", "num_deletes", "num_unchanged", "num_combined")


def check_stored_key_fields(group: GroupWrite, incoming: Incoming) -> None:
    """Raise `InvalidRecord` if a stored row has the key text of an incoming row but other key fields. Stored rows are
    read only for key texts that several key fields can have."""
    fields, slices = group.job.rules.key_fields, group.target.stored_in
    if fields is None or group.job.on_match == "none" or not slices:
        return
    at = fields.may_share(incoming.keys)
    names = [] if not len(at) else fields.columns(incoming.take(at[:0]).schema)
    if not names:
        return
    keys = incoming.keys.take(pa.array(at))
    for file_slice in slices:
        stored = stored_rows(group.job.reader, file_slice, [RECORD_KEY, *names], keys=keys)
        if stored.num_rows:
            texts = stored.column(RECORD_KEY)
            indices = as_numpy(pc.index_in(texts, value_set=keys)).astype(np.int64)
            fields.check_equal(texts, stored, incoming.take(at[indices], names))


def compare_with_stored(group: GroupWrite, incoming: Incoming) -> Comparison:
    """The incoming rows compared with the stored rows of their keys, some of which are in memory at a time."""
    compared = Comparison(group.job.rules, incoming)
    table = group.job.intake.schema
    columns = pa.schema([table.field(name).with_nullable(True) for name in incoming.columns if name in table.names])
    schema = pa.schema([pa.field(RECORD_KEY, pa.string()), *columns])
    keys = incoming.keys.take(pc.sort_indices(incoming.keys))
    for start in range(0, len(keys), incoming.batch_rows):
        key_batch = keys.slice(start, incoming.batch_rows)
        for file_slice in group.target.stored_in:
            compared.see(project(stored_rows(group.job.reader, file_slice, schema.names, keys=key_batch), schema))
    return compared


def counted_as_looked_up(statuses: Sequence[WriteStatus], inserts: int, absent_deletes: int) -> list[WriteStatus]:
    """The statuses of log files whose rows were not looked up, corrected by the number of rows that are new and of
    deletes without a stored row."""
    counted: list[WriteStatus] = []
    for status in statuses:
        if status.num_blind_rows:
            new = min(inserts, status.num_updates)
            inserts -= new
            changed = {"num_inserts": status.num_inserts + new, "num_updates": status.num_updates - new}
            status = replace(status, num_blind_rows=0, **changed)
        if status.num_blind_deletes:
            absent = min(absent_deletes, status.num_deletes)
            absent_deletes -= absent
            changed = {"num_deletes": status.num_deletes - absent, "num_unchanged": status.num_unchanged + absent}
            status = replace(status, num_blind_deletes=0, **changed)
        counted.append(status)
    return counted


def with_shares(statuses: list[WriteStatus], shares: Shares | None) -> list[WriteStatus]:
    """The statuses of a file group with the counts of each upsert that its rows belong to, if there are several."""
    if shares is None:
        return statuses
    totals = {name: sum(getattr(status, name) for status in statuses) for name in COUNTS}
    if totals != shares.totals():
        raise LakebedError(
            f"the rows of several upserts cannot be counted apart: {totals} in all, {shares.totals()} of them",
            context={"partition": statuses[0].partition},
        )
    first, *other_statuses = statuses
    counted = shares.encoded()
    return [
        replace(first, shares=counted),
        *(replace(status, shares=without_counts(counted)) for status in other_statuses),
    ]


def accounted(statuses: list[WriteStatus], received: int) -> list[WriteStatus]:
    """The statuses of a file group, the first of which notes that the group got `received` rows. Raises `LakebedError`
    unless each row was inserted, updated, deleted, combined with another or without effect. A row whose key is stored
    several times counts for each stored row."""
    rows = sum([status.rows_in for status in statuses])
    outcomes = {name: sum([getattr(status, name) for status in statuses]) for name in _OUTCOMES}
    if rows > sum(outcomes.values()):
        raise LakebedError(
            f"{rows} rows came to file group {statuses[0].file_id} in partition {statuses[0].partition!r}, and"
            f" {sum(outcomes.values())} are accounted for",
            hint="Nothing of this write is visible. Please report it with the counts.",
            context={"partition": statuses[0].partition, "rows": rows, **outcomes},
        )
    first, *other_statuses = statuses
    return [replace(first, received=received), *other_statuses]


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """A task function that writes one file group: called with partition path, group number and the group's batches.

    `insert_handle` writes the rows of new file groups. With `early` it looks for concurrent writers of a file group
    before it writes. The batches of groups that were `started` before are ignored. The status carries an error of the
    rows, so that the driver can raise it unchanged.
    """

    job: GroupJob
    targets: Targets
    existing_partitions: frozenset[str]
    insert_handle: HandleType = CreateHandle
    early: EarlyConflicts | None = None
    started: Mapping[tuple[str, int], tuple[AppendHandle, Incoming, int]] | None = None
    prepared: set[str] = field(default_factory=set[str], compare=False)
    marked: bool = False

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        try:
            statuses = self.write(partition, group, batches, task)
        except LakebedError as error:
            statuses = [WriteStatus(partition, error=error.to_json())]
        yield to_batch(statuses)

    def write(self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task) -> list[WriteStatus]:
        """Collect the group's rows and write them by its handle."""
        if self.started is not None:
            log_handle, incoming, received = self.started[partition, group]
            return accounted(with_shares(log_handle.write(incoming), incoming.shares), received)
        to = self._group(partition, group, task)
        self._check_concurrent_writers(to)
        handle = self._handle_type(to.target)(to)
        appends = isinstance(handle, AppendHandle)
        numbered = appends and to.base_of_positions is not None
        # rows of a new file group are written as they come
        in_batches = not to.target.stored_in and not self.job.format.sort
        intake = replace(self.job.intake, numbered=numbered, in_batches=in_batches)
        clauses = self.job.clauses
        if clauses is not None:
            intake = clauses.intake(intake)
        elif type(handle) is CreateHandle and in_batches and not (intake.collects or self.job.skip_unchanged):
            first = next(batches, None)
            if first is not None and MEMBER not in first.schema.names:
                return self._as_they_come(handle, intake, chain([first], batches), task)
            batches = chain([] if first is None else [first], batches)
        with Spill(intake.memory) as spill:
            incoming = intake.collect(batches, spill, task)
            received = spill.rows
            counts: list[int] | None = None
            if clauses is not None:
                incoming, counts = clauses.apply(to, incoming, appends=appends)
            check_stored_key_fields(to, incoming)
            if appends and self.job.reveals:
                handle = revealing(to, incoming, handle)
            if self.job.skip_unchanged:
                statuses = with_shares(self._write_changes(to, incoming, handle), incoming.shares)
            else:
                statuses = with_shares(self._handed_over(incoming, handle), incoming.shares)
        first, *other_statuses = accounted(statuses, received)
        return [replace(first, clauses=counts), *other_statuses]

    def _as_they_come(
        self, handle: CreateHandle, intake: Intake, batches: Iterator[pa.RecordBatch], task: Task
    ) -> list[WriteStatus]:
        """Write the rows of a new file group without collecting them."""
        received = 0

        def parts() -> Iterator[Incoming]:
            nonlocal received
            for batch in batches:
                received += batch.num_rows
                yield intake.split(pa.Table.from_batches(intake.checked(iter([batch]), task)))

        statuses = handle.write_parts(parts())
        return accounted(statuses, received)

    def _handed_over(self, incoming: Incoming, handle: Handle) -> list[WriteStatus]:
        return handle.write(incoming.by_key() if self.job.format.sort else incoming)

    def _write_changes(self, to: GroupWrite, incoming: Incoming, handle: Handle) -> list[WriteStatus]:
        """Write the rows that change stored rows. The others count as unchanged, and no row counts as written without a
        lookup."""
        compared = compare_with_stored(to, incoming)
        to_write = compared.to_write
        skipped = int((~to_write).sum())
        changes = replace(incoming.where(to_write), received=incoming.received - skipped)
        if not changes.rows and to.target.split is None:
            status = WriteStatus(
                to.partition, to.target.file_id, rows_in=changes.received, num_combined=changes.combined
            )
            statuses = [status]
        else:
            statuses = self._handed_over(changes, handle)
        new = to_write & ~compared.stored
        absent = new & incoming.deletes  # deletes that wait for a row that may follow
        statuses = counted_as_looked_up(statuses, int((new & ~absent).sum()), int(absent.sum()))
        incoming.count("num_unchanged", np.flatnonzero(~to_write))
        members = incoming.members
        if incoming.shares is not None and members is not None:
            incoming.shares.see_stored(members[new & ~absent], members[absent])
        first, *other_statuses = statuses
        return [
            replace(first, rows_in=first.rows_in + skipped, num_unchanged=first.num_unchanged + skipped),
            *other_statuses,
        ]

    def with_all(self, rows: pa.Table, groups: Sequence[GroupOfRows]) -> GroupWriter:
        """The writer of these groups. Small groups of log files are ingested and begun together, which is faster. If
        that fails they are tried again group by group, so that the error names the group. The markers of new base files
        are written together: those of a partition path are names of one file. A marker whose file is not written is
        removed with the other markers of the write."""
        if not are_small(groups):
            return self
        writes = [self._group(group.partition, group.number, group.task) for group in groups]
        handles = {self._handle_type(to.target) for to in writes}
        if handles == {CreateHandle}:
            partitions = {to.partition for to in writes if to.new_partition}
            if self.early is not None or any(self.job.path_check.fault(partition) for partition in partitions):
                return self
            name = self.job.format.next_file_name
            files = [(to.partition, name(to.target.file_id, to.task, to.instant)) for to in writes]
            write_markers(self.job.storage, self.job.instant, files, "CREATE")
            return replace(self, marked=True)
        if (
            self.job.clauses is not None
            or self.job.reveals
            or handles != {AppendHandle}
            or not self._takes_in_together(rows)
        ):
            return self
        try:
            return replace(self, started=self._begin(rows, groups, writes))
        except LakebedError:
            return self

    def _begin(
        self, rows: pa.Table, groups: Sequence[GroupOfRows], writes: Sequence[GroupWrite]
    ) -> dict[tuple[str, int], tuple[AppendHandle, Incoming, int]]:
        ingested_groups = ingest_groups(
            rows, groups, [to.target.file_id for to in writes], self.job.intake, self.job.format, self.job.instant
        )
        handles = [AppendHandle(to, ingested.encoded) for to, ingested in zip(writes, ingested_groups, strict=True)]
        for to, ingested in zip(writes, ingested_groups, strict=True):
            check_stored_key_fields(to, ingested.incoming)
            self._check_concurrent_writers(to)
        logs = [
            handle.begin() for handle, ingested in zip(handles, ingested_groups, strict=True) if ingested.encoded.rows
        ]
        mark_all(logs)
        return {
            (to.partition, to.number): (handle, ingested.incoming, group.rows)
            for to, handle, ingested, group in zip(writes, handles, ingested_groups, groups, strict=True)
        }

    def _check_concurrent_writers(self, to: GroupWrite) -> None:
        if self.early is not None:
            self.early.check(self.job.storage, to.partition, to.target.file_id)

    def _takes_in_together(self, rows: pa.Table) -> bool:
        """Whether the log file of every group will have exactly the group's rows, in one block, whatever is stored."""
        intake, format_ = self.job.intake, self.job.format
        in_one_block = rows.nbytes <= max_block_bytes(format_, intake.memory)
        has_full_rows = not intake.absent and intake.auto_keys is None and POSITION not in rows.column_names
        has_full_rows = has_full_rows and OPERATION_COLUMN not in format_.schema.names  # each group has its own
        in_input_order = intake.picks_winners and self.job.on_match in ("keys", "none") and not format_.sort
        has_full_rows = has_full_rows and not self.job.skip_unchanged
        return in_one_block and has_full_rows and in_input_order and format_.log_blocks == "avro"

    def _handle_type(self, target: Target) -> HandleType:
        if target.split is not None:
            return SplitHandle
        if target.among is not None:
            return BucketHandle
        if target.slice is None:
            return self.insert_handle
        return AppendHandle if self.job.reader.config.table_type == "mor" and not target.rewrites else MergeHandle

    def _group(self, partition: str, number: int, task: Task) -> GroupWrite:
        return GroupWrite(
            self.job,
            partition,
            number,
            self.targets.of(partition, number),
            task,
            new_partition=partition not in self.existing_partitions,
            prepared=self.prepared,
            marked=self.marked,
        )

"""The rows of one file group as a write task receives them: collected, checked, projected, combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Task
from lakebed.engine.spill import Spill
from lakebed.errors import InvalidRecord, LakebedError, SchemaConflict
from lakebed.format.key_order import key_order
from lakebed.merge.combine import merged_duplicates, winners
from lakebed.merge.meta_columns import sequence_numbers
from lakebed.merge.pairs import Side
from lakebed.merge.row_checks import RowChecks
from lakebed.merge.rules import MergeRules
from lakebed.merge.shares import CountName, Shares
from lakebed.model import COMBINED, DELETE, DERIVED, MEMBER, PARTITION_PATH, POSITION, RECORD_KEY
from lakebed.properties.checks import BrokenRows
from lakebed.schema.assignment import project_incoming
from lakebed.schema.conversion import can_cast, cast_column
from lakebed.schema.plain_arrow import as_numpy, gather, one_array

Positions = npt.NDArray[np.int64]

# What rows have in addition to their data.
_CARRIED = (RECORD_KEY, DELETE, POSITION, COMBINED, MEMBER)
# A key that a base file has several times: each of its rows is updated.
_RECORD = (RECORD_KEY, POSITION)
# Before the names of ordering columns that the caller gave with keys to delete.
INCOMING_ORDERING = f"{DERIVED}given_"
_BATCH_ROWS = 1 << 17
_BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Incoming:
    """The incoming rows of one group: their record keys, their data, and flags of the rows that are deletes.

    The data may be a mapped file, so it is never copied at once: `take` and `batches` give the rows that are needed.
    `forced` marks deletes that win whatever the ordering value is (the delete operation, a move to another location).
    `absent` are columns of the table that the rows lack: existing keys keep their stored values. `required` are columns
    that the rows may lack and that are not to be null. `positions` are the rows of the group's base file that these are
    for, as an index found them, -1 where it did not. `before` counts for each incoming row how many other rows of its
    key were combined into it; `received` counts those as well. Where several upserts are one action, `shares` has the
    counts of each.
    """

    keys: pa.Array
    deletes: npt.NDArray[np.bool_]
    forced: npt.NDArray[np.bool_]
    received: int
    _data: pa.Table
    _row_numbers: Positions | None
    absent: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    positions: Positions | None = None
    before: Positions | None = None
    shares: Shares | None = None
    _members: Positions | None = None

    @property
    def combined(self) -> int:
        """The number of received rows that were combined into other rows of their key."""
        return self.received - self.rows

    @property
    def rows(self) -> int:
        return len(self.keys)

    @property
    def row_numbers(self) -> Positions | None:
        """The numbers of these rows among the received rows; None if no received row is missing."""
        return self._row_numbers

    @property
    def members(self) -> Positions | None:
        """The number of the upsert that each row belongs to; None for a single upsert."""
        if self._members is None or self._row_numbers is None:
            return self._members
        return self._members[self._row_numbers]

    def count(self, name: CountName, rows: Positions | None = None) -> None:
        """Count these rows (None: all) for the upserts that they belong to; does nothing for a single upsert."""
        members = self.members
        if self.shares is not None and members is not None:
            self.shares.add(name, members if rows is None else members[rows])

    def with_shares(self, received: Positions | None) -> Incoming:
        """These rows with their `Shares`; `received` has the upsert number of each received row."""
        members = self.members
        if received is None or members is None:
            return self
        return replace(self, shares=Shares(received, members, self.before))

    def part(self, start: int, stop: int, first: int, last: int) -> Incoming:
        """The rows from `start` to `stop`, which remain of the received rows from `first` to `last`."""
        part = replace(
            self,
            keys=self.keys.slice(start, stop - start),
            deletes=self.deletes[start:stop],
            forced=self.forced[start:stop],
            received=last - first + (0 if self.before is None else int(self.before[first:last].sum())),
            before=None if self.before is None else self.before[first:last],
            positions=None if self.positions is None else self.positions[start:stop],
            _data=self._data.slice(first, last - first),
            _row_numbers=None if self._row_numbers is None else self._row_numbers[start:stop] - first,
            _members=None if self._members is None else self._members[first:last],
        )
        return part.with_shares(part._members)

    @property
    def alive(self) -> int:
        return int(self.rows - self.deletes.sum())

    @property
    def data_bytes(self) -> int:
        """The bytes of the data in memory."""
        return self._data.nbytes

    @property
    def row_bytes(self) -> float:
        """The mean bytes of a row in memory, in its present columns."""
        present = [name for name in self._data.column_names if name not in self.absent]
        return self._data.select(present).nbytes / max(1, self._data.num_rows)

    @property
    def columns(self) -> list[str]:
        return self._data.column_names

    def by_key(self) -> Incoming:
        """These rows in the order of their keys. The data is not copied."""
        order = key_order(self.keys)
        return self if order is None else self.at(order)

    def by_position(self) -> Incoming:
        """These rows in the order of the base-file rows that they change. The data is not copied."""
        if self.positions is None or (np.diff(self.positions) >= 0).all():
            return self
        return self.at(np.argsort(self.positions, kind="stable"))

    def with_rows(self, data: pa.Table, deletes: npt.NDArray[np.bool_]) -> Incoming:
        """These rows with `data` in place of their data, and `deletes` as the flags of deletes."""
        incoming = replace(self, deletes=deletes, _data=data, _row_numbers=None, absent=(), required=())
        return replace(incoming, _members=self.members)

    def where(self, mask: npt.NDArray[np.bool_]) -> Incoming:
        """The rows that `mask` selects. The data is not copied."""
        return self.at(np.flatnonzero(mask))

    def at(self, rows: Positions) -> Incoming:
        """The rows at these positions, in this order. The data is not copied."""
        return replace(
            self,
            keys=self.keys.take(pa.array(rows)),
            deletes=self.deletes[rows],
            forced=self.forced[rows],
            positions=None if self.positions is None else self.positions[rows],
            _row_numbers=rows if self._row_numbers is None else self._row_numbers[rows],
        )

    def take(self, rows: Positions, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The data of these rows, in the order of `rows`."""
        data = self._data if columns is None else self._data.select(list(columns))
        return gather(data, rows if self._row_numbers is None else self._row_numbers[rows])

    def side(self, rows: Positions, columns: Sequence[str] | None = None) -> Side:
        """The rows at `rows` as the newer side of a merge, with these columns (None: all)."""
        none = np.zeros(len(rows), dtype=bool)
        absent = [name for name in self.absent if columns is None or name in columns]
        present = dict.fromkeys(absent, none) if self.absent else None
        return Side(self.take(rows, columns), self.deletes[rows], self.forced[rows], present)

    def require_complete(self, rows: Positions | None = None) -> None:
        """Raise `SchemaConflict` if a required column is missing in these rows (None: in all rows except deletes),
        whose keys are new."""
        if not self.required:
            return
        rows = np.flatnonzero(~self.deletes) if rows is None else rows
        data = self.take(rows, self.required)
        lacking = [name for name in self.required if data.column(name).null_count]
        if lacking:
            at = pc.indices_nonzero(data.column(lacking[0]).is_null())[0].as_py()
            key = self.keys[int(rows[at])].as_py()
            raise SchemaConflict(
                f"record key {key!r} is new, and the data lacks {', '.join(lacking)}, which may not be null",
                hint="give new keys all such columns, or update known keys only",
                context={"record_key": key, "columns": lacking},
            )

    def batches(self, rows: Positions) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """The keys and data of these rows, in batches of limited size."""
        for start in range(0, len(rows), self.batch_rows):
            part = rows[start : start + self.batch_rows]
            yield self.keys.take(pa.array(part)), self.take(part)

    def alive_batches(self) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """The keys and data of all rows except deletes; without a copy if there are no deletes."""
        if self._row_numbers is not None or self.deletes.any():
            yield from self.batches(np.flatnonzero(~self.deletes))
            return
        at = 0
        for batch in self._data.to_batches(max_chunksize=self.batch_rows):
            yield self.keys.slice(at, batch.num_rows), batch
            at += batch.num_rows

    @property
    def batch_rows(self) -> int:
        """How many rows of the group's mean width make a batch of bounded size."""
        mean = self._data.nbytes / max(1, self._data.num_rows)
        return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES / max(1.0, mean))))


@dataclass(frozen=True, slots=True)
class Intake:
    """The settings for the collection of incoming rows: the columns to retain, the merge rules, and the memory limit.

    `absent` are columns that the caller's rows lack, if that means that existing keys keep their stored values. With
    `numbered` the rows of the base file that an index found are kept. With `null_ordering` "lowest" ordering values may
    be null, but those of rows that are deletes. With `in_batches` rows stay in the batches they come in, for a group
    whose rows are all written as they come. With `once_a_file` a row comes once, although an index has found its key in
    several rows of a file. `checks` are those of the table that the rows have to pass. `new_values` has the values that
    rows of new keys get in absent columns; in a column without one they have null.
    """

    schema: pa.Schema
    rules: MergeRules
    combine: bool
    all_deletes: bool
    memory: int
    auto_keys: str | None = None
    absent: tuple[str, ...] = ()
    numbered: bool = False
    null_ordering: Literal["refuse", "lowest"] = "refuse"
    in_batches: bool = False
    once_a_file: bool = False
    checks: RowChecks | None = None
    new_values: Mapping[str, pa.Scalar] = field(default_factory=dict[str, pa.Scalar])

    def checked(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        """The batches in the form that a merge reads: the columns of lakebed that a row carries (key, delete flag,
        position, member of a group commit), then the table's columns in the table's types; if all rows are deletes,
        only what a delete needs. Generated keys are made here. Raises an error for a null key or ordering value, and,
        after the last batch, `CheckFailed` for the rows of all batches that break a check."""
        broken = None if self.checks is None else BrokenRows(self.checks.table)
        for batch in batches:
            if self.auto_keys is not None:
                batch = batch.set_column(
                    batch.schema.get_field_index(RECORD_KEY),
                    RECORD_KEY,
                    sequence_numbers(self.auto_keys, task, batch.num_rows),
                )
            keys = batch.column(RECORD_KEY)
            if keys.null_count:
                raise null_key(batch)
            carried = [RECORD_KEY, *([DELETE] if DELETE in batch.schema.names else [])]
            carried += [POSITION] if self.numbered and POSITION in batch.schema.names else []
            carried += [name for name in (COMBINED, MEMBER) if name in batch.schema.names]
            data = self._of_delete(batch) if self.all_deletes else self._whole(batch)
            names = data.schema.names if self.all_deletes else self.schema.names
            if not self.all_deletes:
                self._check_ordering(keys, data)
                if self.checks is not None and broken is not None:
                    self._look(self.checks, data, batch, broken)
            yield pa.RecordBatch.from_arrays(
                [*[batch.column(c) for c in carried], *[data.column(n) for n in names]], names=[*carried, *names]
            )

        if broken is not None and broken.counts:
            raise broken.error()

    def _look(self, checks: RowChecks, data: pa.RecordBatch, batch: pa.RecordBatch, broken: BrokenRows) -> None:
        """Note the rows that break a check; deletes break none."""
        rows, deletes = pa.Table.from_batches([data]), self.rules.is_delete(data)
        flagged = None if deletes is None else as_numpy(deletes)
        if DELETE in batch.schema.names:  # rows that leave a location
            leaves = as_numpy(pc.fill_null(batch.column(DELETE), False))
            flagged = leaves if flagged is None else flagged | leaves
        displayed = rows.drop_columns([name for name in self.absent if name in rows.column_names])
        for check, flags in checks.flags(rows, flagged):
            broken.note(check.check, displayed, flags, None)

    def _check_ordering(self, keys: pa.Array, data: pa.RecordBatch) -> None:
        if not self.rules.ordering:
            return
        rows = pa.RecordBatch.from_arrays([keys, *data.columns], names=[RECORD_KEY, *data.schema.names])
        if self.null_ordering == "refuse":
            self.rules.check_ordering(rows)
            return
        marked = self.rules.is_delete(
            data
        )  # for which log files have no form: null is that of a delete that always wins
        if marked is not None and pc.any(marked).as_py():
            self.rules.check_ordering(rows.filter(marked))

    def _of_delete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of deletes in addition to the keys: the key fields, if two rows can share a key text, and the
        ordering columns, in the table's types; null in a row without such a value."""
        fields = self.rules.key_fields
        columns = {name: batch.column(name) for name in ([] if fields is None else fields.columns(batch.schema))}
        for name in self.rules.ordering_columns:
            if (ordering_name := INCOMING_ORDERING + name) in batch.schema.names:
                columns[ordering_name] = _cast_or_null(batch.column(ordering_name), self.schema.field(name).type)
        rows = pa.RecordBatch.from_pydict({RECORD_KEY: batch.column(RECORD_KEY), **columns})
        return rows.select(list(columns))

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the table's columns in its types; in an absent column the value of rows of new keys."""
        if not self.absent:
            return project_incoming(batch, self.schema)
        for name, value in self.new_values.items():
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return project_incoming(
            batch, pa.schema([f.with_nullable(f.nullable or f.name in self.absent) for f in self.schema])
        )

    def collect(self, batches: Iterator[pa.RecordBatch], spill: Spill, task: Task) -> Incoming:
        """All rows of the group; above the memory limit they are in a mapped file."""
        spill.extend(self.checked(batches, task))
        table = spill.table()
        if not self.in_batches and not spill.spilled and table.nbytes <= self.memory // 4:
            table = table.combine_chunks()
        return self.split(table)

    @property
    def collects(self) -> bool:
        """Whether it takes all rows of a group to tell which of them are written."""
        return self.combine or self.once_a_file

    @property
    def picks_winners(self) -> bool:
        """Whether one of the rows of a key is retained unchanged (instead of a new row made of several)."""
        return not self.combine or self._rules_in_batch.picks_winners

    @property
    def _rules_in_batch(self) -> MergeRules:
        return self.rules.of_deletes if self.all_deletes else self.rules.in_batch

    def split(self, table: pa.Table, edges: Positions | None = None) -> Incoming:
        """Checked rows as an `Incoming`; of several rows with one key only the winner is retained, if rows are
        combined. `edges` are the limits of several consecutive groups: a key in two groups is two keys."""
        forced = np.full(table.num_rows, self.all_deletes)
        if DELETE in table.column_names:
            forced |= as_numpy(pc.fill_null(table.column(DELETE), False))
        marked = None if self.all_deletes else self.rules.is_delete(table)
        deletes = forced if marked is None else forced | as_numpy(marked)
        keys = one_array(table.column(RECORD_KEY))
        data = table.select([n for n in table.column_names if n not in _CARRIED])
        needed = () if self.checks is None else self.checks.required
        required = tuple([n for n in self.absent if n in needed or not self.schema.field(n).nullable])
        # where stored values replace nulls, a null stands for a missing column
        absent = () if self.rules.partial == "IGNORE_DEFAULTS" else self.absent
        positions: Positions | None = None
        if POSITION in table.column_names:
            positions = as_numpy(pc.fill_null(table.column(POSITION), -1))
        before: Positions | None = None
        received = table.num_rows
        if COMBINED in table.column_names:
            counts: Positions = as_numpy(pc.fill_null(table.column(COMBINED), 0))
            before, received = counts, received + int(counts.sum())
        members = _members(table)
        incoming = Incoming(keys, deletes, forced, received, data, None, absent, required, positions, before)
        incoming = replace(incoming, _members=members)
        if self.combine:
            incoming = self._combined(table, incoming, edges)
        elif self.once_a_file and positions is None:
            different = _winners_of_groups(table, MergeRules(), edges)
            if different is not None:
                incoming = replace(incoming.at(different), received=len(different))
        return incoming.with_shares(members)

    def _combined(self, table: pa.Table, incoming: Incoming, edges: Positions | None) -> Incoming:
        rules = self._rules_in_batch
        if rules.picks_winners or incoming.absent:  # rows of the same columns: the winner has all that there is
            # a key of two groups is two keys, with fields of their own
            row_numbers = _winners_of_groups(table, rules, edges)
            if row_numbers is not None and incoming.positions is not None:
                row_numbers = winners(table, _RECORD, rules)
            return incoming if row_numbers is None else incoming.at(row_numbers)
        combined = merged_duplicates(table, [RECORD_KEY], rules, incoming.forced)
        if combined is not None and incoming.positions is not None:
            combined = merged_duplicates(table, _RECORD, rules, incoming.forced)
        if combined is None:
            return incoming
        names = [n for n in table.column_names if n not in _CARRIED]
        return replace(
            incoming,
            keys=incoming.keys.take(pa.array(combined.last)),
            deletes=combined.deletes,
            forced=combined.forced,
            positions=None if incoming.positions is None else incoming.positions[combined.last],
            _data=combined.rows.select(names),
            _row_numbers=combined.row_numbers,
            _members=None if incoming.members is None else combined.in_rows(incoming.members),
        )


def _winners_of_groups(table: pa.Table, rules: MergeRules, edges: Positions | None) -> Positions | None:
    """The positions of the winning row of each key, where equal keys in two groups are two keys; None if all rows are
    retained."""
    row_numbers = winners(table, [RECORD_KEY], rules if edges is None else replace(rules, key_fields=None))
    if row_numbers is None or edges is None:
        return row_numbers
    groups = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    return winners(table.append_column(GROUP, pa.array(groups)), [RECORD_KEY, GROUP], rules)


def _members(table: pa.Table) -> Positions | None:
    """The upsert that each row belongs to; None for a single upsert."""
    if MEMBER not in table.column_names:
        return None
    members = table.column(MEMBER)
    if members.null_count:
        raise LakebedError("rows of several upserts were merged into others, and of which upsert they are is unknown")
    return as_numpy(members).astype(np.int64)


def _cast_or_null(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return cast_column(column, kind) if can_cast(column.type, kind) else column.cast(kind)
    except (LakebedError, pa.ArrowException):
        return pa.nulls(len(column), kind)


def null_key(batch: pa.RecordBatch) -> InvalidRecord:
    """The error for a null or empty record key."""
    first = pc.index(batch.column(RECORD_KEY).is_null(), True).as_py()
    partition = batch.column(PARTITION_PATH)[first].as_py() if PARTITION_PATH in batch.schema.names else None
    return InvalidRecord(
        f"{batch.column(RECORD_KEY).null_count} row(s) have a null or empty record key",
        hint="every row needs a value in its key field(s): filter such rows out or fill the key before writing",
        context={"partition": partition},
    )

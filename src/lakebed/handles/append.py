"""The append handle: the incoming rows of a file group go to log files, and no stored row is read to write them.

In a log, a delete without an ordering value gives way to any row that follows it. If that row is older than the base
file's row, readers would show the deleted row again. So such a delete carries the ordering value of the row that it
deletes. Many small file groups of one process are encoded together: a thousand rows for 256 buckets cost about what
they cost for one. Rows that lack columns become partial blocks where the table's version has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GroupOfRows, Task
from lakebed.errors import InvalidRecord, UnsupportedFeature
from lakebed.expressions.plain_keys import PlainKeys
from lakebed.format.avro.wrappers import encode_ordering
from lakebed.format.avro.writer import encode_records
from lakebed.format.column_ranges import ranges_by_group
from lakebed.format.data_block import encode_data_block
from lakebed.format.delete_block import encode_ordered_deletes
from lakebed.format.file_names import parse_log_file
from lakebed.format.hashes import value_buffer
from lakebed.format.log_file import BlockType, HeaderKey, LogBlock, avro_block, delete_block, encode_positions
from lakebed.handles.base import GroupWrite
from lakebed.handles.file_writer import FileFormat
from lakebed.handles.log_writer import LogWriter, WrittenLogFile
from lakebed.merge.combine import winners
from lakebed.merge.incoming import INCOMING_ORDERING, Incoming, Intake, Positions
from lakebed.merge.meta_columns import MetaOfGroups, constant
from lakebed.merge.pairs import Side, merge_into, stacked
from lakebed.merge.row_merge import refuse_stored
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.key_changes import KeyChanges, note_differences, report_changes
from lakebed.metadata_kinds.stored import stored_rows
from lakebed.model import (
    FILE_NAME,
    IS_DELETED_COLUMN,
    RECORD_KEY,
    FileSlice,
    LogFile,
    LogWeight,
    has_completion_times,
    path_in,
)
from lakebed.schema.arrow import without_meta
from lakebed.schema.avro import without_fields
from lakebed.schema.conversion import project
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.key_rows import rows_of_keys
from lakebed.timeline.file_slices import in_merge_order
from lakebed.write_status import WriteStatus


def without_stored(group: GroupWrite, incoming: Incoming) -> Incoming:
    """The rows whose keys the slice does not hold, for an insert that skips stored keys. Raises `InvalidRecord` for an
    insert that refuses stored keys. For every other write all rows are returned, and nothing is read."""
    if not group.job.takes_new_keys_only:
        return incoming
    is_stored = np.zeros(incoming.rows, bool)
    for file_slice in group.target.stored_in:
        stored = stored_rows(group.job.reader, file_slice, [RECORD_KEY], keys=incoming.keys).column(RECORD_KEY)
        is_stored |= as_numpy(pc.is_in(incoming.keys, value_set=stored))
    if not is_stored.any():
        return incoming
    if group.job.on_match == "fail":
        raise refuse_stored(incoming.keys[int(np.argmax(is_stored))].as_py(), group.partition)
    return incoming.where(~is_stored)


def appended_changes(group: GroupWrite, incoming: Incoming, written: Sequence[LogFile]) -> KeyChanges | None:
    """The keys that new log files add to the slice and remove from it; None if key changes are not requested.

    A key that an index found is stored already: a new row keeps it, and a delete that wins whatever the ordering value
    is removes it. In all other cases (a delete that may lose, a key that was not looked up, a value of an indexed
    field) the rows of the keys are merged without these files and with them, and compared.
    """
    changes = group.job.format.key_changes()
    if changes is None:
        return None
    before = group.target.slice
    if before is None:
        alive = np.flatnonzero(~incoming.deletes)
        changes.added(_rows(incoming, alive, changes.columns))
        return changes
    keys = incoming.keys
    if group.job.located and not changes.fields:
        certain = incoming.forced if group.job.rules.ordering else np.ones(incoming.rows, bool)
        changes.removed(_rows(incoming, np.flatnonzero(incoming.deletes & certain), [RECORD_KEY]))
        keys = keys.filter(pa.array(incoming.deletes & ~certain))
    if len(keys):
        after = with_logs(before, written)
        reader_at_instant = replace(group.job.reader, blocks=group.job.reader.blocks.with_writer_of(group.instant))
        sides = (stored_rows(reader_at_instant, side, changes.columns, keys=keys) for side in (before, after))
        note_differences(changes, *sides)
    return changes


def _rows(incoming: Incoming, rows: np.ndarray, columns: Sequence[str]) -> pa.RecordBatch:
    """The keys and the columns `columns` of the incoming rows at the positions `rows`, as one batch."""
    keys = incoming.keys.take(pa.array(rows))
    data_columns = [name for name in columns if name in incoming.columns]
    data = incoming.take(rows, data_columns) if data_columns else None
    arrays = [data.column(name) for name in data_columns] if data is not None else []
    return pa.RecordBatch.from_arrays([keys, *arrays], names=[RECORD_KEY, *data_columns])


def with_logs(file_slice: FileSlice, logs: Sequence[LogFile]) -> FileSlice:
    """The slice with `logs` added to its log files, in merge order."""
    return replace(file_slice, log_files=tuple(in_merge_order((*file_slice.log_files, *logs))))


Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The record keys and ordering fields of stored rows that are deleted, one row per key, in the table's types."""

    rules: MergeRules
    rows: pa.Table

    def has(self, keys: pa.Array) -> Flags:
        """Flags of the keys that have a deleted row."""
        return as_numpy(pc.is_in(keys, value_set=self._keys))

    def ordering_of(self, keys: pa.Array) -> list[pa.Array]:
        """The ordering values of the deleted rows with these keys, null for a key without a deleted row."""
        at = pc.index_in(keys, value_set=self._keys)
        return [values.take(at) for values in self.rules.ordering_of(self.rows)]

    @property
    def _keys(self) -> pa.Array:
        return self.rows.column(RECORD_KEY).combine_chunks()


def without_absent(group: GroupWrite, incoming: Incoming) -> tuple[Incoming, DeletedRows | None]:
    """The rows without deletes of keys that the file group does not hold, and the stored rows that the remaining
    deletes remove.

    Nothing is read, and None is returned, where every delete has an ordering value, or where ordering values do not
    matter: under commit time, by the rules of payload classes whose delete blocks always win, and under
    `lakebed.delete.lookup=false`.
    """
    rules, slices = group.job.rules, group.target.stored_in
    counts = bool(rules.ordering) and not rules.delete_blocks_win and group.job.delete_lookup
    if not counts or not slices or not incoming.forced.any():
        return incoming, None
    keys = incoming.keys.filter(pa.array(incoming.forced))
    stored = _stored(group, slices, keys.take(pc.sort_indices(keys)))
    if stored is None:
        return incoming, None
    deleted_rows = DeletedRows(rules, stored)
    remaining = ~incoming.forced
    remaining[incoming.forced] = deleted_rows.has(keys)
    return (incoming if remaining.all() else incoming.where(remaining)), deleted_rows


def delete_ordering(
    rules: MergeRules, incoming: Incoming, deletes: npt.NDArray[np.int64], stored: DeletedRows | None
) -> tuple[list[pa.Array], Flags]:
    """The ordering values of the deletes at the positions `deletes`, and flags of the deletes that win whatever the
    ordering value is."""
    forced = incoming.forced[deletes]
    ordering: list[pa.Array] = []
    if not forced.all():
        ordering = [_plain(values) for values in rules.ordering_of(incoming.take(deletes, rules.ordering_columns))]
    if stored is None or not forced.any():
        return ordering, forced
    values = stored.ordering_of(incoming.keys.take(pa.array(deletes)))
    incoming_names = [INCOMING_ORDERING + name for name in rules.ordering_columns]
    if set(incoming_names) <= set(incoming.columns):
        values = _greater(rules, values, incoming.take(deletes, incoming_names).rename_columns(rules.ordering_columns))
    lacking = np.zeros(len(deletes), np.bool_)
    for column in values:
        lacking |= as_numpy(pc.is_null(column))
    if not _can_be_encoded(values, lacking):
        return ordering, forced
    if ordering:
        pairs = zip(ordering, values, strict=True)
        values = [pc.if_else(pa.array(forced), looked_up.cast(value.type), value) for value, looked_up in pairs]
    return values, forced & lacking


def _stored(group: GroupWrite, slices: Sequence[FileSlice], keys: pa.Array) -> pa.Table | None:
    """The keys and ordering fields of the stored rows with these keys (ascending); None if a file does not have one of
    the fields."""
    names = [RECORD_KEY, *group.job.rules.ordering_columns]
    fields = {field.name: field.with_nullable(True) for field in group.job.format.schema}
    fields[RECORD_KEY] = pa.field(RECORD_KEY, pa.string())
    if not set(names) <= fields.keys():
        return None
    schema = pa.schema([fields[name] for name in names])
    batches = [
        batch
        for file_slice in slices
        for batch in rows_of_keys(group.job.reader, file_slice, keys, names, schema=schema)
    ]
    if any(not set(names) <= set(batch.schema.names) for batch in batches):
        return None
    rows = pa.Table.from_batches([project(batch, schema) for batch in batches], schema)
    rules = replace(group.job.rules, key_fields=None)  # compared before
    greatest = winners(rows, [RECORD_KEY], rules) if rows.num_rows else None
    return rows if greatest is None else rows.take(pa.array(greatest))


def _greater(rules: MergeRules, stored: Sequence[pa.Array], incoming: pa.RecordBatch) -> list[pa.Array]:
    """The greater of the stored and the caller's ordering values."""
    incoming_values = [_plain(values) for values in rules.ordering_of(incoming)]
    greater = rules.newer_wins(stored, incoming_values)
    for values in incoming_values:
        greater = pc.and_(greater, pc.is_valid(values))
    return [pc.if_else(greater, new, old) for new, old in zip(incoming_values, stored, strict=True)]


def _can_be_encoded(values: Sequence[pa.Array], lacking: Flags) -> bool:
    """Whether delete blocks can encode the values: they cannot encode decimals with more than 15 places."""
    if not any(pa.types.is_decimal(column.type) for column in values):
        return True
    try:
        encode_ordering(values, lacking, len(lacking))
    except (InvalidRecord, UnsupportedFeature):
        return False
    return True


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


# From about this many rows in each file group on, threads that each ingest one group are as fast.
_MAX_ROWS = 4096


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows in the form of a log file: the encoded Avro records, the row of their columns' ranges, and whether no key
    can be misread (None: not requested)."""

    rows: int
    records: bytes
    ranges: pa.RecordBatch | None
    plain_keys: bool | None = None


@dataclass(frozen=True, slots=True)
class IngestedGroup:
    """The incoming rows of one file group, and the encoding for a log file of those rows that are not deletes."""

    incoming: Incoming
    encoded: EncodedRows


def are_small(groups: Sequence[GroupOfRows]) -> bool:
    """Whether there are several file groups that are so small that ingesting them together saves time."""
    return len(groups) > 1 and sum([group.rows for group in groups]) <= _MAX_ROWS * len(groups)


def ingest_groups(
    rows: pa.Table,
    groups: Sequence[GroupOfRows],
    file_ids: Sequence[str],
    intake: Intake,
    format_: FileFormat,
    instant: str,
) -> list[IngestedGroup]:
    """The incoming rows of each group, ingested together, for log files with Avro blocks of these file ids. Of several
    rows of a key one wins. Raises `InvalidRecord` and `SchemaConflict`, which do not name the group."""
    batches = rows.combine_chunks().to_batches()
    checked = pa.Table.from_batches(list(intake.checked(iter(batches), Task())))
    edges = np.array([0, *[group.stop for group in groups]], np.int64)
    incoming = intake.split(checked, edges)
    ends = edges if incoming.row_numbers is None else np.searchsorted(incoming.row_numbers, edges)
    codes = np.repeat(np.arange(len(groups), dtype=np.int32), np.diff(ends))
    encoded = _encoded(incoming, codes, groups, file_ids, format_, instant)
    return [
        IngestedGroup(incoming.part(*ends[at : at + 2].tolist(), *edges[at : at + 2].tolist()), encoded[at])
        for at in range(len(groups))
    ]


def _encoded(
    incoming: Incoming,
    codes: npt.NDArray[np.int32],
    groups: Sequence[GroupOfRows],
    file_ids: Sequence[str],
    format_: FileFormat,
    instant: str,
) -> list[EncodedRows]:
    alive = np.flatnonzero(~incoming.deletes)
    if not len(alive):
        return [EncodedRows(0, b"", None)] * len(groups)
    codes = codes[alive]
    meta = MetaOfGroups(format_.schema, instant, groups, file_ids, format_.populate_meta)
    rows = meta.with_meta(codes, incoming.keys.take(pa.array(alive)), incoming.take(alive))
    data, offsets = value_buffer(encode_records(rows, format_.avro_schema))
    ranges: dict[int, pa.RecordBatch] = {}
    if format_.range_columns:
        ranges = ranges_by_group(rows, codes, format_.schema, format_.range_columns)
    edges = list(pairwise(np.searchsorted(codes, np.arange(len(groups) + 1)).tolist()))
    plain = _plain_keys(rows, edges, format_)
    return [
        EncodedRows(stop - start, data[int(offsets[start]) : int(offsets[stop])].tobytes(), ranges.get(at), plain[at])
        for at, (start, stop) in enumerate(edges)
    ]


def _plain_keys(rows: pa.RecordBatch, edges: Sequence[tuple[int, int]], format_: FileFormat) -> list[bool] | list[None]:
    """For each group, whether none of its keys can be misread; a list of None if it is not requested."""
    all_keys = format_.key_texts()
    if all_keys is None:
        return [None] * len(edges)
    all_keys.add(rows)
    if all_keys.hold:
        return [True] * len(edges)
    flags: list[bool] = []
    for start, stop in edges:
        group_keys = PlainKeys(format_.plain_keys)
        group_keys.add(rows.slice(start, stop - start))
        flags.append(group_keys.hold)
    return flags


def appendable(group: GroupWrite, incoming: Incoming) -> tuple[Incoming, tuple[str, ...]]:
    """The incoming rows for a log file, and the columns that its blocks omit.

    Blocks leave no columns out in five cases. Before table version 8 there are no partial blocks. Real Hudi misreads
    them in slices without a base file, and where they lack the column that marks deletes. And where a key was deleted,
    a record after the delete takes its missing columns from the base file, where the deleted row still is. And rows of
    new keys get the defaults of the columns that they lack. In these
    cases the rows are filled from the stored rows, and rows that lose to them are left out.
    """
    if not incoming.absent and not incoming.required:
        return incoming, ()
    file_slice = group.target.slice
    if file_slice is None:
        if group.target.stored_in:
            return _filled(group, incoming), ()
        incoming.require_complete()
        return incoming, ()
    blocks = has_partial_blocks(group.job.reader.config.version, group.job.rules, incoming.absent)
    if not blocks or not incoming.absent or file_slice.base_file is None:
        return _filled(group, incoming), ()
    deletes = group.job.reader.logs(file_slice).has_deletes
    new_values = bool(group.job.intake.new_values)  # which partial blocks have no place for
    if incoming.required or deletes or new_values:
        stored_keys = stored_rows(group.job.reader, file_slice, [RECORD_KEY], keys=incoming.keys).column(RECORD_KEY)
        is_stored = as_numpy(pc.is_in(incoming.keys, value_set=stored_keys))
        incoming.require_complete(np.flatnonzero(~is_stored & ~incoming.deletes))
        if (deletes or new_values) and not is_stored.all():
            return _filled(group, incoming), ()
    return incoming, incoming.absent


def has_partial_blocks(version: int, rules: MergeRules, absent: Sequence[str]) -> bool:
    """Whether log blocks may leave out these columns."""
    return has_completion_times(version) and not {IS_DELETED_COLUMN, rules.delete_field} & set(absent)


def _filled(group: GroupWrite, incoming: Incoming) -> Incoming:
    """The incoming rows completed: rows of stored keys are merged with the stored rows."""
    schema = without_meta(group.job.format.schema)
    loose = pa.schema([f.with_nullable(True) for f in schema])
    names = [RECORD_KEY, *schema.names]
    parts = [
        stored_rows(group.job.reader, file_slice, names, keys=incoming.keys) for file_slice in group.target.stored_in
    ]
    stored = pa.concat_batches([project(part, loose) for part in parts])
    stored_keys = pa.concat_arrays([part.column(RECORD_KEY) for part in parts])
    row_numbers = as_numpy(pc.fill_null(pc.index_in(incoming.keys, value_set=stored_keys), -1))
    updates = np.flatnonzero((row_numbers >= 0) & ~incoming.forced)
    new = np.flatnonzero(row_numbers < 0)
    incoming.require_complete(new[~incoming.deletes[new]])
    older = Side.of(stored.take(pa.array(row_numbers[updates])))
    merged, changed = merge_into(group.job.rules, older, incoming.side(updates))
    every = np.arange(incoming.rows)
    indices = every.copy()
    indices[updates] = incoming.rows + np.arange(len(updates))
    stacked_rows = stacked(incoming.take(every), merged.rows)
    data = pa.Table.from_batches([stacked_rows.take(pa.array(indices))])
    deletes = incoming.deletes.copy()
    deletes[updates] = merged.deletes
    remaining = np.ones(incoming.rows, dtype=bool)
    remaining[updates[~changed]] = False
    return incoming.with_rows(data, deletes).where(remaining)


# A data block takes no more than this share of the memory of a task.
_SHARE = 4


def max_block_bytes(format_: FileFormat, memory: int) -> int:
    """How many bytes of rows a data block takes at most."""
    return min(format_.settings.log_block_bytes, memory // _SHARE)


class AppendHandle:
    """A handle that writes data blocks, then one delete block. Readers of the slice decide which row of a key counts.

    Rows that came `encoded` are not encoded again. Rows for an existing file group count as updates even if their keys
    are new: there is no lookup. Rows of a new file group, which non-blocking writers begin with a log file, count as
    inserts. A delete counts if it is written. A delete without an ordering value is written only if a row is stored for
    it. Rows of `undeleted` keys count whatever deletes of their key the log files have: a delete without an ordering
    value, which ends those, comes before them."""

    def __init__(
        self, group: GroupWrite, encoded: EncodedRows | None = None, undeleted: pa.Array | None = None
    ) -> None:
        self._group = group
        self._encoded = encoded
        self._undeleted = undeleted
        self._version = group.job.reader.config.version
        self._started_log: LogWriter | None = None

    def begin(self) -> LogWriter:
        """Open the log file for the rows that are not deletes; the caller writes its marker."""
        self._started_log = self._log_writer(())
        self._started_log.begin(marked=True)
        return self._started_log

    def write(self, incoming: Incoming) -> list[WriteStatus]:
        group, received, combined, members = self._group, incoming.received, incoming.combined, incoming.members
        incoming, absent = appendable(group, without_stored(group, incoming))
        incoming, stored = without_absent(group, incoming.by_position())
        # of a file group that a pending clustering makes, readers see more rows than those written here
        is_new = group.target.slice is None and group.target.log_instant is None
        # a new file group stores no row that a forced delete could remove
        deletes = np.flatnonzero(incoming.deletes & ~incoming.forced if is_new else incoming.deletes)
        unchanged = received - combined - incoming.alive - len(deletes)
        counts: dict[str, Any] = {"rows_in": received, "num_unchanged": unchanged, "num_combined": combined}
        if members is not None:
            self._share_counts(members, incoming, deletes, stored)
        if not incoming.alive and not len(deletes):
            return [WriteStatus(group.partition, group.target.file_id, **counts)]
        if is_new:
            group.prepare_partition()
        log = self._started_log or self._log_writer(absent)
        try:
            if self._undeleted is not None:
                every = np.ones(len(self._undeleted), np.bool_)
                content = encode_ordered_deletes(self._undeleted, group.partition, [], every)
                log.append(delete_block(content, group.instant, group.job.format.avro_schema))
            self._append_rows(log, incoming, absent)
            if len(deletes):
                self._append_deletes(log, incoming, deletes, stored)
            log.close()
        except BaseException:
            log.abort()
            raise
        return self._statuses(incoming, counts, log.done)

    def _share_counts(
        self, members: Positions, incoming: Incoming, deletes: Positions, stored: DeletedRows | None
    ) -> None:
        """Count the rows for each of the several upserts that they belong to; `members` are the upsert numbers of all
        rows."""
        left, shares, job = incoming.members, incoming.shares, self._group.job
        assert left is not None
        assert shares is not None
        alive = left[~incoming.deletes]
        shares.add("num_unchanged", members)
        shares.subtract("num_unchanged", np.concatenate([alive, left[deletes]]))
        is_insert = self._group.target.slice is None or job.takes_new_keys_only
        shares.add("num_inserts" if is_insert else "num_updates", alive)
        if not is_insert and not job.located:
            shares.add("num_blind_rows", alive)
        shares.add("num_deletes", left[deletes])
        if not (job.located or job.stored):
            shares.add("num_blind_deletes", left[deletes if stored is None else deletes[~incoming.forced[deletes]]])

    def _log_writer(self, absent: Sequence[str]) -> LogWriter:
        group, file_slice = self._group, self._group.target.slice
        columns = tuple([n for n in group.job.format.range_columns if n not in absent])
        log_instant, version = group.instant, 1
        if file_slice is None and group.target.log_instant is not None:
            log_instant = group.target.log_instant
            names = group.job.storage.list_names(group.partition)
            version = next_log_version(group.partition, names, group.target.file_id, log_instant)
        if not has_completion_times(self._version) and file_slice is not None:
            log_instant = group.target.log_instant or file_slice.instant
            versions = (log.version for log in file_slice.log_files if log.instant == log_instant)
            version = max(versions, default=0) + 1
        return LogWriter(
            storage=group.job.storage,
            format=replace(group.job.format, range_columns=columns),
            table_version=self._version,
            instant=group.instant,
            log_instant=log_instant,
            partition=group.partition,
            file_id=group.target.file_id,
            task=group.task,
            next_version=version,
            durable=group.job.durable,
        )

    def _append_rows(self, log: LogWriter, incoming: Incoming, absent: Sequence[str]) -> None:
        """Append the rows that are not deletes, in one or more data blocks."""
        if self._encoded is not None:
            self._append_encoded(log, self._encoded)
            return
        limit = max_block_bytes(self._group.job.format, self._group.job.memory)
        positions = self._positions(incoming, ~incoming.deletes)
        parts: list[pa.RecordBatch] = []
        size = 0
        for batch in self._rows(incoming):
            for part in pieces(batch, limit):
                if parts and size + part.nbytes > limit:
                    positions = self._append_block(log, parts, absent, positions)
                    parts, size = [], 0
                parts.append(part)
                size += part.nbytes
        if parts:
            self._append_block(log, parts, absent, positions)

    def _rows(self, incoming: Incoming) -> Iterator[pa.RecordBatch]:
        """The rows with their meta columns as a log file has them: with the file id in place of the file name."""
        group, fresh = self._group, self._group.fresh_meta
        at = group.job.format.schema.get_field_index(FILE_NAME)
        for keys, data in incoming.alive_batches():
            batch = fresh.with_meta(keys, data, group.operation)
            if group.job.format.populate_meta:
                batch = batch.set_column(at, FILE_NAME, constant(group.target.file_id, batch.num_rows))
            yield batch

    def _positions(self, incoming: Incoming, mask: npt.NDArray[np.bool_]) -> Positions | None:
        """The positions in the base file of the rows that `mask` selects; None if one of them is unknown."""
        if incoming.positions is None:
            return None
        positions = incoming.positions[mask]
        return positions if (positions >= 0).all() else None

    def _position_headers(self, positions: Positions | None) -> dict[int, str]:
        """The block headers with row positions, as in Hudi's blocks; if a row occurs twice they only name the base
        file."""
        base = self._group.base_of_positions
        if positions is None or base is None:
            return {}
        headers = {int(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS): base}
        if (np.diff(positions) > 0).all():
            headers[int(HeaderKey.RECORD_POSITIONS)] = encode_positions(positions)
        return headers

    def _append_block(
        self, log: LogWriter, rows: list[pa.RecordBatch], absent: Sequence[str], positions: Positions | None
    ) -> Positions | None:
        """Append one block. Returns the `positions` for the rows of later blocks; None if there are no positions."""
        format_ = self._group.job.format
        count = sum(part.num_rows for part in rows)
        headers = {int(HeaderKey.INSTANT_TIME): self._group.instant}
        headers |= self._position_headers(None if positions is None else positions[:count])
        schema = format_.avro_schema
        if absent:
            headers[int(HeaderKey.IS_PARTIAL)] = "true"
            schema = without_fields(schema, absent)
            names = [name for name in rows[0].schema.names if name not in absent]
            rows = [part.select(names) for part in rows]
        block = encode_data_block(rows, schema, headers, _BLOCK_TYPES[format_.log_blocks])
        for part in rows:
            log.see(part)
        self._append_data(log, block, count)
        return None if positions is None else positions[count:]

    def _append_encoded(self, log: LogWriter, encoded: EncodedRows) -> None:
        if encoded.rows:
            headers = {int(HeaderKey.INSTANT_TIME): self._group.instant}
            block = avro_block([encoded.records], encoded.rows, self._group.job.format.avro_schema, headers)
            log.add_statistics(encoded.ranges, encoded.plain_keys)
            self._append_data(log, block, encoded.rows)

    def _append_data(self, log: LogWriter, block: LogBlock, rows: int) -> None:
        group = self._group
        if group.target.slice is None or group.job.takes_new_keys_only:
            log.file.inserts += rows
        else:
            log.file.updates += rows
            log.file.blind_rows += 0 if group.job.located else rows
        log.append(block)

    def _append_deletes(
        self, log: LogWriter, incoming: Incoming, deletes: npt.NDArray[np.int64], stored: DeletedRows | None
    ) -> None:
        """Append one block with all deletes. A delete that wins whatever the ordering value is has the ordering value
        of its `stored` row."""
        group = self._group
        ordering, forced = delete_ordering(group.job.rules, incoming, deletes, stored)
        content = encode_ordered_deletes(incoming.keys.take(pa.array(deletes)), group.partition, ordering, forced)
        log.file.deletes += len(deletes)
        if not (group.job.located or group.job.stored):
            looked_up = 0 if stored is None else int(incoming.forced[deletes].sum())
            log.file.blind_deletes += len(deletes) - looked_up
        block = delete_block(content, group.instant, group.job.format.avro_schema)
        position_headers = self._position_headers(self._positions(incoming, incoming.deletes))
        log.append(replace(block, headers={**block.headers, **position_headers}))

    def _statuses(self, incoming: Incoming, counts: dict[str, Any], files: list[WrittenLogFile]) -> list[WriteStatus]:
        """One status for each file. The first status has the counts and the key changes of all rows."""
        statuses = [self._status(file, files[: n + 1]) for n, file in enumerate(files)]
        changes = appended_changes(self._group, incoming, [self._log_file(file) for file in files])
        if changes is not None:
            reported = report_changes(self._group.job.storage, self._group.instant, statuses[0].path or "", changes)
            none = {} if len(statuses) == 1 else {"changes": b""}
            statuses = [replace(s, **(none if n else reported)) for n, s in enumerate(statuses)]
        statuses[0] = replace(statuses[0], **counts)
        return statuses

    def _log_file(self, file: WrittenLogFile) -> LogFile:
        group = self._group
        log_file = parse_log_file(group.partition, file.name, file.size)
        assert log_file is not None
        return log_file

    def _status(self, file: WrittenLogFile, written: list[WrittenLogFile]) -> WriteStatus:
        group, file_slice = self._group, self._group.target.slice
        names = [log.name for log in written]
        prev_commit, base = group.instant, ""
        # readers of changes, and all readers below version 8, learn from the write stat what the file is based on
        if file_slice is not None and (not has_completion_times(self._version) or group.job.reader.config.cdc_enabled):
            log_instant = group.target.log_instant  # a slice that a pending compaction has begun has no base file yet
            prev_commit = log_instant or file_slice.instant
            base = file_slice.base_file.name if file_slice.base_file is not None and log_instant is None else ""
            earlier = (log for log in file_slice.log_files if log_instant is None or log.instant == log_instant)
            names = [*(log.name for log in earlier), *names]
        weight = LogWeight() if file_slice is None else file_slice.log_weight
        for log in written:
            weight = weight.with_file(log.size, self._log_file(log).instant)
        return WriteStatus(
            group.partition,
            group.target.file_id,
            path=path_in(group.partition, file.name),
            prev_commit=prev_commit,
            base_file=base,
            log_files=names,
            log_version=file.version,
            log_offset=0,
            log_weight=(weight.base_bytes, weight.log_files, weight.log_bytes),
            oldest_log=weight.oldest,
            num_writes=file.rows,
            num_inserts=file.inserts,
            num_updates=file.updates,
            num_deletes=file.deletes,
            num_blind_rows=file.blind_rows,
            num_blind_deletes=file.blind_deletes,
            file_size=file.size,
            millis=file.millis,
            ranges=file.ranges,
            plain_keys=file.plain_keys,
        )


_BLOCK_TYPES = {"avro": BlockType.AVRO_DATA, "parquet": BlockType.PARQUET_DATA}


def next_log_version(partition: str, names: Iterable[str], file_id: str, instant: str) -> int:
    """The version of the next log file of a file group with `instant` in its name; `names` are the names of the files
    in its folder."""
    parsed = (parse_log_file(partition, name, 0) for name in names)
    versions = (p.version for p in parsed if p is not None and (p.file_id, p.instant) == (file_id, instant))
    return max(versions, default=0) + 1


def pieces(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Yields a batch in parts of about `limit` bytes, each of at least one row."""
    rows = max(1, int(batch.num_rows * limit / max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)

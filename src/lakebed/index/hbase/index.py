"""The HBase index: the place of every key in a table of HBase, shared with real Hudi up to 1.0.x.

What a write records in HBase, and how it is undone.

Nothing in HBase counts before its instant is complete (see `client`), and what it replaces is noted with it. A side
file among the instant's markers names the keys whose place changes or ends: a rollback puts those back, so that real
Hudi, which does not know the notes, finds them as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.markers import list_marker_files, marker_folder
from lakebed.engine.base import Engine, Rows, Task
from lakebed.errors import IndexInconsistent
from lakebed.expressions.base import Column, Constant
from lakebed.index.base import Index, IndexOptions, KeyLookup, StoredLocations, Tagged
from lakebed.index.changed_locations import changed_locations
from lakebed.index.hbase.client import (
    DELETED,
    LOCATIONS,
    Client,
    HBaseTable,
    IsVisible,
    client_of,
    is_of_a_job,
    job_texts,
    notes_of,
    row_keys,
    split_notes,
    visible_locations,
)
from lakebed.index.simple import (
    PlacedRows,
    at_locations,
    columns_of_names,
    moved_from_locations,
    require_stored_keys,
    with_slices,
)
from lakebed.merge.locations import NO_LOCATION, STORED_LOCATION, BooleanLiteral, Case, IsNotNull
from lakebed.metadata.lookups import snapshot_of
from lakebed.metadata_kinds.stored import stored_rows
from lakebed.model import (
    DELETE,
    DERIVED,
    FILE_ID,
    FILE_NAME,
    INSTANT,
    OLD_PARTITION,
    PARTITION_PATH,
    RECORD_KEY,
    Action,
    FileSlice,
)
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.write_status import WriteStatus

_SIDE_FILE = "hbase.rows"
_DAY_MS = 24 * 60 * 60 * 1000


class Changes:
    """Changes rows of one table in HBase, under the table's lock."""

    def __init__(self, table: HBaseTable, snapshot: Snapshot) -> None:
        self._table = table
        self._snapshot = snapshot

    @property
    def _client(self) -> Client:
        return client_of(self._table)

    def tell(
        self, statuses: Sequence[WriteStatus], instant: str, replaced: Mapping[str, Sequence[str]]
    ) -> pa.BinaryArray:
        """Write the locations of added keys, and a note for each removed key. Returns the HBase rows of the removed
        keys."""
        changed = changed_locations(statuses, replaced, self._snapshot, instant)
        added, removed_keys = changed.added.combine_chunks(), changed.removed
        if not added.num_rows and not len(removed_keys):
            return pa.array([], pa.binary())
        keys = _array(added, "key")
        rows = row_keys(keys, self._table.buckets)
        removed_rows = row_keys(removed_keys, self._table.buckets)
        notes = self._notes(keys, rows, instant)
        is_noted = pc.fill_null(pc.not_equal(notes, b""), False)
        self._note_rows(instant, pa.concat_arrays([rows.filter(is_noted), removed_rows]))
        if len(removed_keys):
            self._client.put(removed_rows, {"note": instant.encode()})
        file_ids, partitions = (_array(added, name).cast(pa.binary()) for name in ("file_id", "partition"))
        for part, note in ((notes.is_null(), False), (notes.is_valid(), True)):
            cells = {
                "instant": instant.encode(),
                "file_id": file_ids.filter(part),
                "partition": partitions.filter(part),
            }
            if note:
                cells["note"] = notes.filter(part)
            self._client.put(rows.filter(part), cells)
        return removed_rows

    def remove(self, rows: pa.BinaryArray, instant: str) -> None:
        """Delete the rows that are noted as deleted by the instant and were not written since."""
        stored_cells = self._client.get(rows)
        cells_of_instant = stored_cells.filter(pc.equal(stored_cells["note"], instant.encode()))
        self._client.delete(_array(cells_of_instant, "row"), _array(cells_of_instant, "note.time"))

    def undo(self, instant: str) -> None:
        """Restore the locations that an instant removed, whether it is recorded or not; may be repeated."""
        timeline = self._snapshot.timeline
        done = timeline.commit(instant)
        if done is not None:
            body = timeline.commit_metadata(done)
            written = {(p, stat.file_id) for p, stats in body.stats.items() for stat in stats}
            self.put_again({*written, *((p, file_id) for p, ids in body.replaced.items() for file_id in ids)})
            return
        side_file = f"{marker_folder(instant)}/{_SIDE_FILE}"
        markers = {info.path for info in list_marker_files(self._snapshot.storage, instant)}
        if not markers and self._is_cut_off(instant):
            self.put_again(None)  # of a completed instant, whose body is missing now
        elif self._table.rollback_sync:
            for scanned in self._client.scan(_millis(instant) - _DAY_MS):
                self._undo_rows(_array(scanned, "row"), instant, sync=True)
        elif side_file in markers:
            with pa.ipc.open_stream(self._snapshot.storage.read(side_file)) as stream:
                rows = stream.read_all()["row"].combine_chunks()
            self._undo_rows(rows, instant, sync=False)

    def put_again(self, groups: Collection[tuple[str, str]] | None) -> None:
        """Compare the keys stored in file groups (None: in all) with the rows of HBase, and write the rows that
        differ."""
        old = self._snapshot
        snapshot = snapshot_of(old.storage, old.config, load_timeline(old.storage, old.config), use_metadata=False)
        slices = snapshot.file_slices(None if groups is None else {partition for partition, _ in groups})
        for file_slice in slices:
            if groups is None or (file_slice.partition, file_slice.file_id) in groups:
                self._put_slice(file_slice, snapshot)

    def _put_slice(self, file_slice: FileSlice, snapshot: Snapshot) -> None:
        keys = stored_rows(snapshot.reader, file_slice, [RECORD_KEY]).column(RECORD_KEY).cast(pa.string())
        rows = row_keys(keys, self._table.buckets)
        locations = visible_locations(keys, self._client.get(rows), self._table.buckets, snapshot.is_visible)
        same = pc.and_(
            pc.equal(locations[FILE_ID], file_slice.file_id), pc.equal(locations[OLD_PARTITION], file_slice.partition)
        )
        same = pc.and_(same, pc.invert(locations[DELETED]))
        rows = rows.filter(pc.invert(pc.fill_null(same, False)).combine_chunks())
        location = {"instant": file_slice.instant, "file_id": file_slice.file_id, "partition": file_slice.partition}
        self._client.put(rows, {**{name: text.encode() for name, text in location.items()}, "note": b""})

    def _notes(self, keys: pa.Array, rows: pa.BinaryArray, instant: str) -> pa.BinaryArray:
        """The notes to write with the new locations: the present locations of the keys, null if HBase has no location
        that needs a note."""
        snapshot = self._snapshot
        if not snapshot.commits:
            return pa.nulls(len(keys), pa.binary())
        stored_cells = self._client.get(rows)
        locations = visible_locations(keys, stored_cells, self._table.buckets, snapshot.is_visible)
        noted = stored_cells.filter(pc.and_(stored_cells["note"].is_valid(), pc.not_equal(stored_cells["note"], b"")))
        needs = pc.or_(locations[FILE_ID].is_valid(), pc.is_in(rows, value_set=_array(noted, "row")))
        return pc.if_else(needs, notes_of(instant, locations), pa.scalar(None, pa.binary())).combine_chunks()

    def _note_rows(self, instant: str, rows: pa.BinaryArray) -> None:
        if not len(rows):
            return
        table = pa.table({"row": rows})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        path = f"{marker_folder(instant)}/{_SIDE_FILE}"
        self._snapshot.storage.write(path, sink.getvalue().to_pybytes())

    def _undo_rows(self, rows: pa.BinaryArray, instant: str, *, sync: bool) -> None:
        """Restore the rows as they were before the instant; with `sync` the rows that it created are deleted."""
        stored_cells = self._client.get(rows)
        notes = _array(stored_cells, "note").cast(pa.string())
        noted, before, file_id, partition = split_notes(notes)
        wrote_location = pc.fill_null(pc.equal(_array(stored_cells, "instant"), instant.encode()), False)
        wrote_note = pc.fill_null(pc.equal(noted, instant), False)
        goes_back = pc.and_(pc.and_(wrote_location, wrote_note), before.is_valid())
        location = {"instant": before, "file_id": file_id, "partition": partition}
        cells = {name: values.filter(goes_back).cast(pa.binary()) for name, values in location.items()}
        row = _array(stored_cells, "row")
        self._client.put(row.filter(goes_back), {**cells, "note": b""})
        deleted = pc.and_(wrote_note, before.is_null())
        self._client.put(row.filter(deleted), {"note": b""})
        if sync:
            is_new = pc.and_(wrote_location, pc.invert(goes_back))
            self._client.delete(row.filter(is_new), _array(stored_cells, "instant.time").filter(is_new))

    def _is_cut_off(self, instant: str) -> bool:
        """Whether a restore, or a rollback of the instant, was cut off."""
        timeline = self._snapshot.timeline
        for pending in timeline.pending:
            if pending.action is Action.RESTORE:
                return True
            if pending.action is Action.ROLLBACK and timeline.undone_by(pending) == instant:
                return True
        return False


def _array(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _millis(instant: str) -> int:
    """The approximate time of an instant, in milliseconds since 1970."""
    try:
        return int(datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return _DAY_MS


_DOUBTED, _STORED, _THERE = (f"{DERIVED}{name}" for name in ("doubted", "stored", "there"))
_SAMPLED_SLICES, _SAMPLED_KEYS = 8, 100


class HBaseIndex(Index, StoredLocations):
    """An index that looks keys up in an HBase table, which its user has made with the column family `_s`.

    A key exists once in the table. A row that names another partition path than its key is stored in is written where
    the key is, or moves there with `update_partition_path`. The table's properties remember where HBase is. Needs the
    extra `lakebed[hbase]`; Kerberos is not spoken.

    >>> from lakebed.index.hbase.client import HBaseTable
    >>> HBaseIndex(HBaseTable("zk1,zk2", "keys")).settings()["hbase.zkquorum"]
    'zk1,zk2'
    """

    name: ClassVar[str] = "hbase"
    is_global = True

    def __init__(self, table: HBaseTable, update_partition_path: bool = False) -> None:
        self.table = table
        self.update_partition_path = update_partition_path
        self._deleted: dict[str, pa.Array] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> HBaseIndex:
        """The index that `settings()` describes."""
        moves = settings.get("update_partition", "false").strip().lower() == "true"
        return cls(HBaseTable.of_texts(settings), moves)

    @classmethod
    def from_options(cls, options: IndexOptions) -> HBaseIndex:
        """The index that a caller's options name; an option that is not given has the value recorded in the table."""
        options.refuse_all_but("update_partition_path")
        table = HBaseTable.of_texts({**options.defaults, **job_texts(options.hbase)})
        moves = options.update_partition_path
        if moves is None:
            moves = options.defaults.get("update_partition") == "true"
        return cls(table, moves)

    def settings(self) -> Mapping[str, str]:
        return {"type": self.name, "update_partition": str(self.update_partition_path).lower(), **self.table.texts()}

    def identity(self) -> Mapping[str, str]:
        return {key: text for key, text in self.settings().items() if not is_of_a_job(key)}

    def for_existence_checks(self) -> HBaseIndex:
        return HBaseIndex(self.table)

    def check(self, snapshot: Snapshot) -> None:
        """Raise `IndexInconsistent` if HBase does not have a sample of the stored keys, or has other locations for
        them."""
        slices = snapshot.file_slices() if snapshot.commits else ()
        for file_slice in slices[:: max(1, len(slices) // _SAMPLED_SLICES)]:
            keys = stored_rows(snapshot.reader, file_slice, [RECORD_KEY]).column(RECORD_KEY)[:_SAMPLED_KEYS]
            locations = self._places(keys.cast(pa.string()), snapshot.is_visible)
            lost = np.flatnonzero(pc.fill_null(pc.not_equal(locations[FILE_ID], file_slice.file_id), True))
            if len(lost):
                key, group = (locations[name][int(lost[0])].as_py() for name in (RECORD_KEY, FILE_ID))
                raise IndexInconsistent(
                    f"{self.table.where} has {'no place' if group is None else f'file group {group}'} for key {key!r},"
                    f" which is stored in file group {file_slice.file_id}",
                    hint="Name the HBase table that the table's writers used, or another index.",
                    context={"key": key, "file_id": file_slice.file_id},
                )

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """Place rows by the locations in HBase. The result has the column `DELETE` if rows may move."""
        require_stored_keys(snapshot)
        names = engine.schema(rows).names
        row_columns = [n for n in names if n != PARTITION_PATH]
        moving = self.update_partition_path and bool(snapshot.config.partition_fields)
        if not snapshot.commits:
            flag = {DELETE: BooleanLiteral(False)} if moving and DELETE not in row_columns else {}
            return Tagged(engine.derive(rows, {**NO_LOCATION, **flag}))
        located_rows = engine.persist(self._found(rows, snapshot, engine))
        placed, doubted = _where_it_is_stored(located_rows, names, snapshot, engine)
        lookup = with_slices(KeyLookup(), doubted)
        if not moving:
            return Tagged(at_locations(placed, row_columns, engine), persisted=located_rows, lookup=lookup)
        rows, read = moved_from_locations(placed, row_columns, snapshot, engine)
        return Tagged(rows, persisted=located_rows, lookup=with_slices(lookup, read))

    @property
    def stored_locations(self) -> HBaseIndex:
        return self

    def locate(self, keys: Rows, snapshot: Snapshot, engine: Engine) -> Rows | None:
        """The locations of these keys; None for a view of the past, since HBase only has the present locations."""
        if not snapshot.is_latest:
            return None
        located_rows = engine.persist(self._found(engine.distinct(keys), snapshot, engine))
        placed, _ = _where_it_is_stored(located_rows, engine.schema(keys).names, snapshot, engine)
        location_columns = {PARTITION_PATH: Column(OLD_PARTITION), **columns_of_names(FILE_ID, INSTANT)}
        return engine.derive(engine.filter(placed, IsNotNull(FILE_ID)), location_columns, keep=[RECORD_KEY])

    def update(
        self,
        statuses: Sequence[WriteStatus],
        instant: str,
        snapshot: Snapshot,
        replaced: Mapping[str, Sequence[str]],
    ) -> None:
        """Write the new places, which count once the instant is complete."""
        self._deleted[instant] = Changes(self.table, snapshot).tell(statuses, instant, replaced)

    def committed(self, instant: str, snapshot: Snapshot) -> None:
        """Delete the HBase rows of deleted keys. If this does not happen, their notes mark them."""
        deleted = self._deleted.pop(instant, None)
        if deleted is not None:
            Changes(self.table, snapshot).remove(deleted, instant)

    def rollback(self, instant: str, snapshot: Snapshot) -> None:
        """Restore the locations that the instant removed. The locations that it added are ignored by readers, and
        deleted with `rollback_sync`."""
        self._deleted.pop(instant, None)
        Changes(self.table, snapshot).undo(instant)

    def explain(self) -> str:
        where = "rows move to their new partition" if self.update_partition_path else "rows stay where their key is"
        return f"hbase: looks keys up in {self.table.where}; no data file is read to tag; {where}"

    def _places(self, keys: pa.Array, is_visible: IsVisible) -> pa.Table:
        return locations_of(self.table, keys, is_visible)

    def _found(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Rows:
        """The rows with the locations that HBase has for their keys, requested in the tasks that have the rows."""
        schema = pa.schema([*engine.schema(rows), *list(LOCATIONS)[1:]])
        timeline = snapshot.timeline.without_files()
        return engine.map(rows, LookUp(self.table, timeline, snapshot.as_of, schema), schema)


@dataclass(frozen=True, slots=True)
class LookUp:
    """A task function that adds the location of each row's key."""

    table: HBaseTable
    timeline: Timeline
    as_of: str | None
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            locations = locations_of(self.table, batch.column(RECORD_KEY), self._is_visible)
            columns = [*batch.columns, *(locations[name].combine_chunks() for name in LOCATIONS.names[1:])]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _is_visible(self, instant: str) -> bool:
        return (self.as_of is None or instant <= self.as_of) and self.timeline.is_committed(instant)


def locations_of(table: HBaseTable, keys: pa.Array, is_visible: IsVisible) -> pa.Table:
    """The location of each key, in the schema `client.LOCATIONS`; null for a key that HBase does not have, or whose
    location the timeline does not show."""
    rows = row_keys(keys, table.buckets)
    return visible_locations(keys, client_of(table).get(pc.unique(rows)), table.buckets, is_visible)


def _where_it_is_stored(located_rows: Rows, names: Sequence[str], snapshot: Snapshot, engine: Engine) -> PlacedRows:
    """The rows with their locations, which are null for file groups that no longer exist and for deleted keys.

    Such locations are rare. Real Hudi leaves them when it overwrites partitions, and so does a writer that dies between
    its commit and its last request to HBase. The file group shows whether a deleted key is stored nevertheless.
    """
    names_with_location = [*names, OLD_PARTITION, FILE_ID, INSTANT]
    pairs = engine.aggregate(located_rows, [OLD_PARTITION, FILE_ID, DELETED]).to_pylist()
    pairs = [pair for pair in pairs if pair[FILE_ID] is not None]
    slices = {(s.partition, s.file_id): s for s in snapshot.file_slices({pair[OLD_PARTITION] for pair in pairs})}
    doubted = [p for p in pairs if p[DELETED] or (p[OLD_PARTITION], p[FILE_ID]) not in slices]
    if not doubted:
        return PlacedRows(engine.derive(located_rows, {}, keep=names_with_location))
    columns = {name: pa.array([p[name] for p in doubted]) for name in (OLD_PARTITION, FILE_ID, DELETED)}
    marked = engine.from_arrow(pa.table({**columns, _DOUBTED: pa.array([True] * len(doubted))}))
    rows = engine.join(located_rows, marked, [OLD_PARTITION, FILE_ID, DELETED], "left", small=True)
    doubted_slices = [s for p in doubted if (s := slices.get((p[OLD_PARTITION], p[FILE_ID]))) is not None]
    empty = pa.schema([(_STORED, pa.bool_()), (FILE_ID, pa.string()), (RECORD_KEY, pa.string())]).empty_table()
    stored = engine.from_arrow(empty)
    if doubted_slices:
        keys = engine.read_columns(snapshot, doubted_slices, [RECORD_KEY, FILE_NAME])
        mark = {_STORED: BooleanLiteral(True), FILE_ID: STORED_LOCATION[FILE_ID]}
        stored = engine.distinct(engine.derive(keys, mark, keep=[RECORD_KEY]))
    rows = engine.join(rows, stored, [RECORD_KEY, FILE_ID], "left")
    rows = engine.derive(
        rows, {_THERE: Case(_DOUBTED, BooleanLiteral(True), Column(_STORED))}, keep=names_with_location
    )
    none = Constant(None)
    location_columns = {name: Case(_THERE, none, Column(name)) for name in (OLD_PARTITION, FILE_ID, INSTANT)}
    return PlacedRows(engine.derive(rows, location_columns, keep=names), doubted_slices)

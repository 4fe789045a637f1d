"""What a write tells HBase, and how it is taken back.

Nothing that HBase is told counts before the instant is complete (see `places`), and what it hides is noted beside it. A
side file among the instant's markers names the keys whose place changes or ends: a rollback puts those back, so that
real Hudi, which does not know the notes, finds them as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.concurrency.markers import list_marker_files, marker_folder
from lakebed.index.changed_places import changed_places
from lakebed.index.hbase.client import Client, client_of
from lakebed.index.hbase.places import DELETED, notes_of, row_keys, split_notes, visible_places
from lakebed.index.hbase.settings import HBaseTable
from lakebed.model import FILE_ID, OLD_PARTITION, RECORD_KEY, Action, FileSlice
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.bodies.rollback import rollback_target
from lakebed.timeline.history import rollback_record
from lakebed.timeline.timeline import load_timeline
from lakebed.upkeep.stored_rows import stored_rows
from lakebed.write_status import WriteStatus

_SIDE_FILE = "hbase.rows"
_DAY_MS = 24 * 60 * 60 * 1000


class Changes:
    """The rows of one table in HBase, changed under the table's lock."""

    def __init__(self, table: HBaseTable, snapshot: Snapshot) -> None:
        self._table = table
        self._snapshot = snapshot

    @property
    def _client(self) -> Client:
        return client_of(self._table)

    def tell(
        self, statuses: Sequence[WriteStatus], instant: str, replaced: Mapping[str, Sequence[str]]
    ) -> pa.BinaryArray:
        """Write the places of keys that were added, and a note on those that are gone; gives the rows of the latter."""
        changed = changed_places(statuses, replaced, self._snapshot, instant)
        added, gone = changed.added.combine_chunks(), changed.gone
        if not added.num_rows and not len(gone):
            return pa.array([], pa.binary())
        keys = _array(added, "key")
        rows = row_keys(keys, self._table.buckets)
        gone_rows = row_keys(gone, self._table.buckets)
        notes = self._notes(keys, rows, instant)
        taken = pc.fill_null(pc.not_equal(notes, b""), False)
        self._note_rows(instant, pa.concat_arrays([rows.filter(taken), gone_rows]))
        if len(gone):
            self._client.put(gone_rows, {"note": instant.encode()})
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
        return gone_rows

    def remove(self, rows: pa.BinaryArray, instant: str) -> None:
        """Delete rows that are noted as deleted by the instant, and were not written since."""
        found = self._client.get(rows)
        mine = found.filter(pc.equal(found["note"], instant.encode()))
        self._client.delete(_array(mine, "row"), _array(mine, "note.time"))

    def undo(self, instant: str) -> None:
        """Put back what an instant took away, told or not, once or again."""
        timeline = self._snapshot.timeline
        done = timeline.commit(instant)
        if done is not None:
            body = timeline.commit_metadata(done)
            written = {(p, stat.file_id) for p, stats in body.stats.items() for stat in stats}
            self.put_anew({*written, *((p, file_id) for p, ids in body.replaced.items() for file_id in ids)})
            return
        side_file = f"{marker_folder(instant)}/{_SIDE_FILE}"
        markers = {info.path for info in list_marker_files(self._snapshot.storage, instant)}
        if not markers and self._is_cut_off(instant):
            self.put_anew(None)  # of a completed instant, whose body is gone by now
        elif self._table.rollback_sync:
            for scanned in self._client.scan(_millis(instant) - _DAY_MS):
                self._undo_rows(_array(scanned, "row"), instant, sync=True)
        elif side_file in markers:
            with pa.ipc.open_stream(self._snapshot.storage.read(side_file)) as stream:
                rows = stream.read_all()["row"].combine_chunks()
            self._undo_rows(rows, instant, sync=False)

    def put_anew(self, groups: Collection[tuple[str, str]] | None) -> None:
        """Compare the keys stored in file groups (None: in all) with what HBase has, and write what differs."""
        old = self._snapshot
        snapshot = Snapshot(old.storage, old.config, load_timeline(old.storage, old.config), use_metadata=False)
        slices = snapshot.file_slices(None if groups is None else {partition for partition, _ in groups})
        for file_slice in slices:
            if groups is None or (file_slice.partition, file_slice.file_id) in groups:
                self._put_slice(file_slice, snapshot)

    def _put_slice(self, file_slice: FileSlice, snapshot: Snapshot) -> None:
        keys = stored_rows(snapshot.reader, file_slice, [RECORD_KEY]).column(RECORD_KEY).cast(pa.string())
        rows = row_keys(keys, self._table.buckets)
        known = visible_places(keys, self._client.get(rows), self._table.buckets, snapshot.is_visible)
        same = pc.and_(
            pc.equal(known[FILE_ID], file_slice.file_id), pc.equal(known[OLD_PARTITION], file_slice.partition)
        )
        same = pc.and_(same, pc.invert(known[DELETED]))
        rows = rows.filter(pc.invert(pc.fill_null(same, False)).combine_chunks())
        place = {"instant": file_slice.instant, "file_id": file_slice.file_id, "partition": file_slice.partition}
        self._client.put(rows, {**{name: text.encode() for name, text in place.items()}, "note": b""})

    def _notes(self, keys: pa.Array, rows: pa.BinaryArray, instant: str) -> pa.BinaryArray:
        """What to note beside the new places: where keys are by now, null where HBase has nothing that needs a note."""
        snapshot = self._snapshot
        if not snapshot.commits:
            return pa.nulls(len(keys), pa.binary())
        found = self._client.get(rows)
        known = visible_places(keys, found, self._table.buckets, snapshot.is_visible)
        noted = found.filter(pc.and_(found["note"].is_valid(), pc.not_equal(found["note"], b"")))
        needs = pc.or_(known[FILE_ID].is_valid(), pc.is_in(rows, value_set=_array(noted, "row")))
        return pc.if_else(needs, notes_of(instant, known), pa.scalar(None, pa.binary())).combine_chunks()

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
        """Rows as they were before the instant; with `sync` those that it made are deleted."""
        found = self._client.get(rows)
        notes = _array(found, "note").cast(pa.string())
        noted, before, file_id, partition = split_notes(notes)
        own = pc.fill_null(pc.equal(_array(found, "instant"), instant.encode()), False)
        mine = pc.fill_null(pc.equal(noted, instant), False)
        goes_back = pc.and_(pc.and_(own, mine), before.is_valid())
        place = {"instant": before, "file_id": file_id, "partition": partition}
        cells = {name: values.filter(goes_back).cast(pa.binary()) for name, values in place.items()}
        row = _array(found, "row")
        self._client.put(row.filter(goes_back), {**cells, "note": b""})
        deleted = pc.and_(mine, before.is_null())
        self._client.put(row.filter(deleted), {"note": b""})
        if sync:
            made = pc.and_(own, pc.invert(goes_back))
            self._client.delete(row.filter(made), _array(found, "instant.time").filter(made))

    def _is_cut_off(self, instant: str) -> bool:
        """Whether a restore, or a rollback of the instant, was cut off."""
        timeline = self._snapshot.timeline
        for pending in timeline.pending:
            if pending.action is Action.RESTORE:
                return True
            if pending.action is Action.ROLLBACK and rollback_target(rollback_record(timeline, pending)) == instant:
                return True
        return False


def _array(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _millis(instant: str) -> int:
    """About the time of an instant, in milliseconds since 1970."""
    try:
        return int(datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return _DAY_MS

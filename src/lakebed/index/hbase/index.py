"""The HBase index: the place of every key in a table of HBase, shared with real Hudi up to 1.0.x."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, Task
from lakebed.errors import IndexInconsistent
from lakebed.expressions.base import Column, Constant
from lakebed.index.base import Index, IndexOptions, KeyLookup, Tagged
from lakebed.index.hbase.changes import Changes
from lakebed.index.hbase.client import client_of
from lakebed.index.hbase.places import DELETED, PLACES, IsVisible, row_keys, visible_places
from lakebed.index.hbase.settings import HBaseTable, is_of_a_job, said
from lakebed.index.known_places import at_places, moved_from_places
from lakebed.index.pair_moves import PlacedRows
from lakebed.index.simple import columns_of_names, require_stored_keys, with_slices
from lakebed.merge.locations import NO_LOCATION, STORED_LOCATION, BooleanLiteral, Case, IsNotNull
from lakebed.model import DELETE, DERIVED, FILE_ID, FILE_NAME, INSTANT, OLD_PARTITION, PARTITION_PATH, RECORD_KEY
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.timeline import Timeline
from lakebed.upkeep.stored_rows import stored_rows
from lakebed.write_status import WriteStatus

_DOUBTED, _STORED, _THERE = (f"{DERIVED}{name}" for name in ("doubted", "stored", "there"))
_SAMPLED_SLICES, _SAMPLED_KEYS = 8, 100


class HBaseIndex(Index):
    """Looks keys up in an HBase table, which its user has made with the column family `_s`.

    A key exists once in the table. A row that names another partition path than its key is stored in is written where
    the key is, or moves there with `update_partition_path`. The table's properties remember where HBase is. Needs the
    extra `lakebed[hbase]`; Kerberos is not spoken.

    >>> from lakebed.index.hbase.settings import HBaseTable
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
        """The index that a caller names; what the options leave open is as the table has it."""
        options.refuse_all_but("update_partition_path")
        table = HBaseTable.of_texts({**options.defaults, **said(options.hbase)})
        moves = options.update_partition_path
        if moves is None:
            moves = options.defaults.get("update_partition") == "true"
        return cls(table, moves)

    def settings(self) -> Mapping[str, str]:
        return {"type": self.name, "update_partition": str(self.update_partition_path).lower(), **self.table.texts()}

    def identity(self) -> Mapping[str, str]:
        return {key: text for key, text in self.settings().items() if not is_of_a_job(key)}

    def without_moves(self) -> HBaseIndex:
        return HBaseIndex(self.table)

    def check(self, snapshot: Snapshot) -> None:
        """Raise `IndexInconsistent` where HBase does not know a sample of the stored keys, or has them elsewhere."""
        slices = snapshot.file_slices() if snapshot.commits else ()
        for file_slice in slices[:: max(1, len(slices) // _SAMPLED_SLICES)]:
            keys = stored_rows(snapshot.reader, file_slice, [RECORD_KEY]).column(RECORD_KEY)[:_SAMPLED_KEYS]
            places = self._places(keys.cast(pa.string()), snapshot.is_visible)
            lost = np.flatnonzero(pc.fill_null(pc.not_equal(places[FILE_ID], file_slice.file_id), True))
            if len(lost):
                key, other = (places[name][int(lost[0])].as_py() for name in (RECORD_KEY, FILE_ID))
                raise IndexInconsistent(
                    f"{self.table.where} has {'no place' if other is None else f'file group {other}'} for key {key!r},"
                    f" which is stored in file group {file_slice.file_id}",
                    hint="Name the HBase table that the table's writers used, or another index.",
                    context={"key": key, "file_id": file_slice.file_id},
                )

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """By HBase; `DELETE` is there if rows may move."""
        require_stored_keys(snapshot)
        names = engine.schema(rows).names
        own = [n for n in names if n != PARTITION_PATH]
        moving = self.update_partition_path and bool(snapshot.config.partition_fields)
        if not snapshot.commits:
            flag = {DELETE: BooleanLiteral(False)} if moving and DELETE not in own else {}
            return Tagged(engine.derive(rows, {**NO_LOCATION, **flag}))
        found = engine.persist(self._found(rows, snapshot, engine))
        placed, doubted = _where_it_is_stored(found, names, snapshot, engine)
        lookup = with_slices(KeyLookup(), doubted)
        if not moving:
            return Tagged(at_places(placed, own, engine), held=found, lookup=lookup)
        rows, read = moved_from_places(placed, own, snapshot, engine)
        return Tagged(rows, held=found, lookup=with_slices(lookup, read))

    def locate(self, keys: Rows, snapshot: Snapshot, engine: Engine) -> Rows | None:
        """None for a view of the past: HBase has the places of today."""
        if not snapshot.is_latest:
            return None
        found = engine.persist(self._found(engine.distinct(keys), snapshot, engine))
        placed, _ = _where_it_is_stored(found, engine.schema(keys).names, snapshot, engine)
        place = {PARTITION_PATH: Column(OLD_PARTITION), **columns_of_names(FILE_ID, INSTANT)}
        return engine.derive(engine.filter(placed, IsNotNull(FILE_ID)), place, keep=[RECORD_KEY])

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
        """Delete the rows of deleted keys. Where that does not happen, the notes beside them say what they are."""
        deleted = self._deleted.pop(instant, None)
        if deleted is not None:
            Changes(self.table, snapshot).remove(deleted, instant)

    def rollback(self, instant: str, snapshot: Snapshot) -> None:
        """Put back what the instant took away. What it added counts for nothing by itself, and is deleted with
        `rollback_sync`."""
        self._deleted.pop(instant, None)
        Changes(self.table, snapshot).undo(instant)

    def explain(self) -> str:
        where = "rows move to their new partition" if self.update_partition_path else "rows stay where their key is"
        return f"hbase: looks keys up in {self.table.where}; no data file is read to tag; {where}"

    def _places(self, keys: pa.Array, is_visible: IsVisible) -> pa.Table:
        return places_of(self.table, keys, is_visible)

    def _found(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Rows:
        """The rows with the places that HBase has for their keys, asked in the tasks that have them."""
        schema = pa.schema([*engine.schema(rows), *list(PLACES)[1:]])
        timeline = snapshot.timeline
        bare = replace(timeline, listed=timeline.listed.without_files())
        return engine.map(rows, LookUp(self.table, bare, snapshot.as_of, schema), schema)


@dataclass(frozen=True, slots=True)
class LookUp:
    """Sent to the tasks: adds the places of their keys to rows."""

    table: HBaseTable
    timeline: Timeline
    as_of: str | None
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places = places_of(self.table, batch.column(RECORD_KEY), self._is_visible)
            columns = [*batch.columns, *(places[name].combine_chunks() for name in PLACES.names[1:])]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _is_visible(self, instant: str) -> bool:
        return (self.as_of is None or instant <= self.as_of) and self.timeline.is_committed(instant)


def places_of(table: HBaseTable, keys: pa.Array, is_visible: IsVisible) -> pa.Table:
    """The place of each key as HBase and the timeline have it (`places.PLACES`)."""
    rows = row_keys(keys, table.buckets)
    return visible_places(keys, client_of(table).get(pc.unique(rows)), table.buckets, is_visible)


def _where_it_is_stored(found: Rows, names: Sequence[str], snapshot: Snapshot, engine: Engine) -> PlacedRows:
    """The rows without places in file groups that are no more, and without those of deleted keys.

    Such rows are rare: real Hudi leaves them behind when it overwrites partitions, and a writer that died between its
    commit and the last word to HBase. Whether a key that was deleted is there after all, its file group says.
    """
    kept = [*names, OLD_PARTITION, FILE_ID, INSTANT]
    pairs = engine.aggregate(found, [OLD_PARTITION, FILE_ID, DELETED]).to_pylist()
    pairs = [pair for pair in pairs if pair[FILE_ID] is not None]
    slices = {(s.partition, s.file_id): s for s in snapshot.file_slices({pair[OLD_PARTITION] for pair in pairs})}
    doubted = [p for p in pairs if p[DELETED] or (p[OLD_PARTITION], p[FILE_ID]) not in slices]
    if not doubted:
        return PlacedRows(engine.derive(found, {}, keep=kept))
    columns = {name: pa.array([p[name] for p in doubted]) for name in (OLD_PARTITION, FILE_ID, DELETED)}
    marked = engine.from_arrow(pa.table({**columns, _DOUBTED: pa.array([True] * len(doubted))}))
    rows = engine.join(found, marked, [OLD_PARTITION, FILE_ID, DELETED], "left", small=True)
    there = [found for p in doubted if (found := slices.get((p[OLD_PARTITION], p[FILE_ID]))) is not None]
    empty = pa.schema([(_STORED, pa.bool_()), (FILE_ID, pa.string()), (RECORD_KEY, pa.string())]).empty_table()
    stored = engine.from_arrow(empty)
    if there:
        keys = engine.read_columns(snapshot, there, [RECORD_KEY, FILE_NAME])
        mark = {_STORED: BooleanLiteral(True), FILE_ID: STORED_LOCATION[FILE_ID]}
        stored = engine.distinct(engine.derive(keys, mark, keep=[RECORD_KEY]))
    rows = engine.join(rows, stored, [RECORD_KEY, FILE_ID], "left")
    rows = engine.derive(rows, {_THERE: Case(_DOUBTED, BooleanLiteral(True), Column(_STORED))}, keep=kept)
    none = Constant(None)
    place = {name: Case(_THERE, none, Column(name)) for name in (OLD_PARTITION, FILE_ID, INSTANT)}
    return PlacedRows(engine.derive(rows, place, keep=names), there)

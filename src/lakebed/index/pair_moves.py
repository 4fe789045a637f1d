"""Rows that may leave their partition path where a merge makes a third row of two: the stored row is read, and what the
two make says where it goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, Task
from lakebed.expressions.base import Column, RowExpression
from lakebed.merge.combine import side_of
from lakebed.merge.locations import STORED_LOCATION, BooleanLiteral, Coalesce, Differ, Promoted
from lakebed.merge.pairs import Side, merge_into
from lakebed.merge.rules import MergeRules
from lakebed.model import (
    COMBINED,
    DELETE,
    DERIVED,
    FILE_ID,
    FILE_NAME,
    INSTANT,
    META_COLUMNS,
    MOVED,
    OLD_PARTITION,
    PARTITION_PATH,
    RECORD_KEY,
    FileSlice,
)
from lakebed.schema.arrow import normal_type
from lakebed.schema.conversion import cast_column
from lakebed.schema.evolution import is_promotion
from lakebed.slices.keys import table_keys
from lakebed.slices.snapshot import Snapshot

_STORED = f"{DERIVED}stored_"


class PlacedRows(NamedTuple):
    """Rows at their places, and the file slices of which more than keys was read to place them."""

    rows: Rows
    read: Sequence[FileSlice] = ()


def merges_in_pairs(rules: MergeRules, own: Sequence[str]) -> bool:
    """Whether it takes whole rows to tell which rows move, and as what. Rows of a delete have none."""
    return any(n not in META_COLUMNS and not n.startswith(DERIVED) for n in own) and not (
        rules.picks_winners and rules.compares_columns
    )


def moved_in_pairs(
    joined: Rows,
    own: Sequence[str],
    snapshot: Snapshot,
    engine: Engine,
    rules: MergeRules,
    position: Sequence[str] = (),
) -> PlacedRows:
    """Every row at its place, and for those that leave it a delete there, which is `MOVED`.

    `joined` has the rows' `own` columns and the place of their key, with its `POSITION` where that is named. A row that
    goes to another partition path goes there as the merge with the stored row has it. The stored rows are read from the
    file groups that such rows come from.
    """
    kept = [n for n in own if n != DELETE]
    place: dict[str, RowExpression] = {
        PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)),
        FILE_ID: Column(FILE_ID),
        INSTANT: Column(INSTANT),
        **{name: Column(name) for name in position},
        DELETE: Column(DELETE) if DELETE in own else BooleanLiteral(False),
    }
    leaving = engine.filter(joined, Differ(OLD_PARTITION, PARTITION_PATH))
    pairs = engine.aggregate(leaving, [OLD_PARTITION, FILE_ID])
    groups = set(zip(*(pairs.column(name).to_pylist() for name in (OLD_PARTITION, FILE_ID)), strict=True))
    if not groups:
        return PlacedRows(engine.derive(joined, place, keep=kept))
    schema = engine.schema(joined)
    stored = frozenset(snapshot.schema.names)
    data = [n for n in kept if n != RECORD_KEY and n in stored]
    slices = [s for s in snapshot.file_slices({p for p, _ in groups}) if (s.partition, s.file_id) in groups]
    stored = _stored_rows(snapshot, slices, engine, data)
    compared = engine.join(joined, stored, [RECORD_KEY, FILE_ID], "left")
    types = {n: schema.field(n).type for n in kept}
    types |= {n: _wider(normal_type(types[n], n), snapshot.schema.field(n).type) for n in data}
    place_types = [(FILE_ID, pa.string()), (INSTANT, pa.string()), *((name, pa.int64()) for name in position)]
    flags = [(DELETE, pa.bool_()), (MOVED, pa.bool_())]
    result = pa.schema([(PARTITION_PATH, pa.string()), *place_types, *flags, *types.items()])
    path = table_keys(snapshot).partition_path
    known = set(snapshot.config.partition_fields) <= set(data)
    place_columns = tuple(name for name, _ in place_types)
    moves = _PairMoves(rules, result, place_columns, tuple(data), path if known else None)
    return PlacedRows(engine.map(compared, moves, result), slices)


def _stored_rows(snapshot: Snapshot, slices: Sequence[FileSlice], engine: Engine, data: Sequence[str]) -> Rows:
    """Key, file id and data columns of some file slices, in the table's types of today."""
    parts: list[Rows] = []
    for file_slice in slices:
        types = {f.name: f.type for f in snapshot.schema_of(file_slice)}
        present = [name for name in data if name in types]
        rows = engine.read_columns(snapshot, [file_slice], [RECORD_KEY, FILE_NAME, *present])
        columns: dict[str, RowExpression] = {FILE_ID: STORED_LOCATION[FILE_ID]}
        for name in data:
            columns[_STORED + name] = Promoted(name, types.get(name), snapshot.schema.field(name).type)
        parts.append(engine.derive(rows, columns, keep=[RECORD_KEY]))
    return parts[0] if len(parts) == 1 else engine.union(parts)


def _wider(incoming: pa.DataType, stored: pa.DataType) -> pa.DataType:
    return stored if is_promotion(incoming, stored) else incoming


@dataclass(frozen=True, slots=True)
class _PairMoves:
    """Sent to the tasks: joined rows in, rows at their places out."""

    rules: MergeRules
    schema: pa.Schema
    place: tuple[str, ...]
    data: tuple[str, ...]
    path: RowExpression | None

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._placed(batch)

    def _placed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        old, new = (cast_column(batch.column(n), pa.string()) for n in (OLD_PARTITION, PARTITION_PATH))
        place = [cast_column(batch.column(n), self.schema.field(n).type) for n in self.place]
        own_columns = {PARTITION_PATH, *self.place, DELETE, MOVED, COMBINED}
        names = [f.name for f in self.schema if f.name not in own_columns]
        own = pa.RecordBatch.from_arrays(
            [cast_column(batch.column(n), self.schema.field(n).type) for n in names], names=names
        )
        none = pa.repeat(pa.scalar(False), batch.num_rows)
        forced = pc.fill_null(batch.column(DELETE), False) if DELETE in batch.schema.names else none
        at = np.flatnonzero(pc.fill_null(pc.not_equal(old, new), False).to_numpy(zero_copy_only=False))
        goes, merged, path = self._merged(batch, own, forced, old, new, at)
        stays = np.ones(batch.num_rows, dtype=bool)
        stays[at[goes]] = False
        left = np.flatnonzero(stays)
        zeros = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
        before = batch.column(COMBINED) if COMBINED in batch.schema.names else zeros
        yield self._rows(own, left, pc.coalesce(old, new), place, forced, before, moved=False)
        if goes.any():
            gone = pa.repeat(pa.scalar(True), batch.num_rows)
            yield self._rows(own, at[goes], old, place, gone, zeros, moved=True)
            where = np.flatnonzero(goes)
            nowhere = [pa.nulls(len(at), values.type) for values in place]
            stay = pa.repeat(pa.scalar(False), len(at))
            yield self._rows(merged, where, path, nowhere, stay, before.take(pa.array(at)), moved=False)

    def _merged(
        self,
        batch: pa.RecordBatch,
        own: pa.RecordBatch,
        forced: pa.Array,
        old: pa.Array,
        new: pa.Array,
        at: np.ndarray,
    ) -> tuple[np.ndarray, pa.RecordBatch, pa.Array]:
        """Of the rows `at`: which leave their place, what the merge makes of all of them, and their new paths."""
        places = pa.array(at)
        incoming = own.take(places)
        stored = [cast_column(batch.column(_STORED + n), self.schema.field(n).type).take(places) for n in self.data]
        names = own.schema.names
        absent = {f.name: pa.nulls(len(at), f.type) for f in own.schema}
        columns = {**absent, RECORD_KEY: incoming.column(RECORD_KEY), **dict(zip(self.data, stored, strict=True))}
        older = pa.RecordBatch.from_arrays([columns[n] for n in names], names=names)
        newer = side_of(self.rules, incoming, forced.take(places).to_numpy(zero_copy_only=False))
        made, changed = merge_into(self.rules, Side.of(older), newer)
        path = new.take(places) if self.path is None else cast_column(self.path.arrow(made.rows), pa.string())
        goes = changed & ~made.deletes & pc.not_equal(path, old.take(places)).to_numpy(zero_copy_only=False)
        return goes, made.rows, path

    def _rows(
        self,
        data: pa.RecordBatch,
        at: np.ndarray,
        path: pa.Array,
        place: Sequence[pa.Array],
        gone: pa.Array,
        before: pa.Array,
        *,
        moved: bool,
    ) -> pa.RecordBatch:
        places = pa.array(at)
        columns = [column.take(places) for column in (path, *place, gone)]
        columns.append(pa.repeat(pa.scalar(moved), len(at)))
        others = [f.name for f in list(self.schema)[len(columns) :]]
        columns += [(before if name == COMBINED else data.column(name)).take(places) for name in others]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

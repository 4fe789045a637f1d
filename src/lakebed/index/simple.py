"""The simple indexes: the stored keys, read from the file slices and joined with the rows. Right for every key.

Rows whose partition path can change when a merge makes a new row of the stored and the incoming one: the stored row is
read, and the merged row decides where it goes.

Moving rows whose locations are known, for every index that looks keys up over all partition paths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, Task, count_rows
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.expressions.base import Column, RowExpression
from lakebed.format.read_tally import ReadTally
from lakebed.index.base import Index, IndexOptions, KeyLookup, Tagged
from lakebed.merge.combine import side_of
from lakebed.merge.locations import (
    NO_LOCATION,
    STORED_LOCATION,
    BooleanLiteral,
    Case,
    Coalesce,
    Differ,
    IsNull,
    Moves,
    Promoted,
    Zero,
    delete_columns,
)
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
    POSITION,
    RECORD_KEY,
    FileSlice,
)
from lakebed.schema.arrow import normal_type
from lakebed.schema.conversion import cast_column
from lakebed.schema.evolution import is_promotion
from lakebed.schema.plain_arrow import as_numpy
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot, table_keys
from lakebed.storage.base import Storage

_STORED_COLUMN = f"{DERIVED}stored_"


class PlacedRows(NamedTuple):
    """Rows with their locations, and the file slices of which columns other than the key were read to place them."""

    rows: Rows
    read: Sequence[FileSlice] = ()


def merges_in_pairs(rules: MergeRules, incoming_columns: Sequence[str]) -> bool:
    """Whether complete rows are needed to decide which rows move, and with which values. Deletes have no complete
    rows."""
    return any(n not in META_COLUMNS and not n.startswith(DERIVED) for n in incoming_columns) and not (
        rules.picks_winners and rules.compares_columns
    )


def moved_in_pairs(
    joined: Rows,
    incoming_columns: Sequence[str],
    snapshot: Snapshot,
    engine: Engine,
    rules: MergeRules,
    position: Sequence[str] = (),
) -> PlacedRows:
    """Every row with its location, and for a row that moves also a delete at the old location, marked `MOVED`.

    `joined` has the rows' `incoming_columns` and the location of their key, with its `POSITION` where that is named. A
    row that moves to another partition path is written there as merged with the stored row. The stored rows are read
    from the file groups that such rows come from.
    """
    row_columns = [n for n in incoming_columns if n != DELETE]
    location_columns: dict[str, RowExpression] = {
        PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)),
        FILE_ID: Column(FILE_ID),
        INSTANT: Column(INSTANT),
        **{name: Column(name) for name in position},
        DELETE: Column(DELETE) if DELETE in incoming_columns else BooleanLiteral(False),
    }
    leaving = engine.filter(joined, Differ(OLD_PARTITION, PARTITION_PATH))
    pairs = engine.aggregate(leaving, [OLD_PARTITION, FILE_ID])
    groups = set(zip(*(pairs.column(name).to_pylist() for name in (OLD_PARTITION, FILE_ID)), strict=True))
    if not groups:
        return PlacedRows(engine.derive(joined, location_columns, keep=row_columns))
    schema = engine.schema(joined)
    stored = frozenset(snapshot.schema.names)
    data = [n for n in row_columns if n != RECORD_KEY and n in stored]
    slices = [s for s in snapshot.file_slices({p for p, _ in groups}) if (s.partition, s.file_id) in groups]
    stored = _stored_rows(snapshot, slices, engine, data)
    compared = engine.join(joined, stored, [RECORD_KEY, FILE_ID], "left")
    types = {n: schema.field(n).type for n in row_columns}
    types |= {n: _wider(normal_type(types[n], n), snapshot.schema.field(n).type) for n in data}
    location_types = [(FILE_ID, pa.string()), (INSTANT, pa.string()), *((name, pa.int64()) for name in position)]
    flags = [(DELETE, pa.bool_()), (MOVED, pa.bool_())]
    result = pa.schema([(PARTITION_PATH, pa.string()), *location_types, *flags, *types.items()])
    path = table_keys(snapshot).partition_path
    has_partition_fields = set(snapshot.config.partition_fields) <= set(data)
    location_names = tuple(name for name, _ in location_types)
    moves = _PairMoves(rules, result, location_names, tuple(data), path if has_partition_fields else None)
    return PlacedRows(engine.map(compared, moves, result), slices)


def _stored_rows(snapshot: Snapshot, slices: Sequence[FileSlice], engine: Engine, data: Sequence[str]) -> Rows:
    """The key, file id and data columns of some file slices, in the table's present types."""
    parts: list[Rows] = []
    for file_slice in slices:
        types = {f.name: f.type for f in snapshot.schema_of(file_slice)}
        present = [name for name in data if name in types]
        rows = engine.read_columns(snapshot, [file_slice], [RECORD_KEY, FILE_NAME, *present])
        columns: dict[str, RowExpression] = {FILE_ID: STORED_LOCATION[FILE_ID]}
        for name in data:
            columns[_STORED_COLUMN + name] = Promoted(name, types.get(name), snapshot.schema.field(name).type)
        parts.append(engine.derive(rows, columns, keep=[RECORD_KEY]))
    return parts[0] if len(parts) == 1 else engine.union(parts)


def _wider(incoming: pa.DataType, stored: pa.DataType) -> pa.DataType:
    return stored if is_promotion(incoming, stored) else incoming


@dataclass(frozen=True, slots=True)
class _PairMoves:
    """A task function: joined rows in, rows with their locations out."""

    rules: MergeRules
    schema: pa.Schema
    location_columns: tuple[str, ...]
    data: tuple[str, ...]
    path: RowExpression | None

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._placed(batch)

    def _placed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        old, new = (cast_column(batch.column(n), pa.string()) for n in (OLD_PARTITION, PARTITION_PATH))
        location = [cast_column(batch.column(n), self.schema.field(n).type) for n in self.location_columns]
        own_columns = {PARTITION_PATH, *self.location_columns, DELETE, MOVED, COMBINED}
        names = [f.name for f in self.schema if f.name not in own_columns]
        incoming = pa.RecordBatch.from_arrays(
            [cast_column(batch.column(n), self.schema.field(n).type) for n in names], names=names
        )
        none = pa.repeat(pa.scalar(False), batch.num_rows)
        forced = pc.fill_null(batch.column(DELETE), False) if DELETE in batch.schema.names else none
        at = np.flatnonzero(as_numpy(pc.fill_null(pc.not_equal(old, new), False)))
        goes, merged, path = self._merged(batch, incoming, forced, old, new, at)
        stays = np.ones(batch.num_rows, dtype=bool)
        stays[at[goes]] = False
        left = np.flatnonzero(stays)
        zeros = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
        before = batch.column(COMBINED) if COMBINED in batch.schema.names else zeros
        yield self._rows(incoming, left, pc.coalesce(old, new), location, forced, before, moved=False)
        if goes.any():
            deletes = pa.repeat(pa.scalar(True), batch.num_rows)
            yield self._rows(incoming, at[goes], old, location, deletes, zeros, moved=True)
            where = np.flatnonzero(goes)
            nowhere = [pa.nulls(len(at), values.type) for values in location]
            stay = pa.repeat(pa.scalar(False), len(at))
            yield self._rows(merged, where, path, nowhere, stay, before.take(pa.array(at)), moved=False)

    def _merged(
        self,
        batch: pa.RecordBatch,
        incoming_rows: pa.RecordBatch,
        forced: pa.Array,
        old: pa.Array,
        new: pa.Array,
        at: np.ndarray,
    ) -> tuple[np.ndarray, pa.RecordBatch, pa.Array]:
        """Three results for the rows `at`: flags of the rows that move, the merged rows, and their new partition
        paths."""
        indices = pa.array(at)
        incoming = incoming_rows.take(indices)
        stored = [
            cast_column(batch.column(_STORED_COLUMN + n), self.schema.field(n).type).take(indices) for n in self.data
        ]
        names = incoming_rows.schema.names
        absent = {f.name: pa.nulls(len(at), f.type) for f in incoming_rows.schema}
        columns = {**absent, RECORD_KEY: incoming.column(RECORD_KEY), **dict(zip(self.data, stored, strict=True))}
        older = pa.RecordBatch.from_arrays([columns[n] for n in names], names=names)
        newer = side_of(self.rules, incoming, as_numpy(forced.take(indices)))
        merged, changed = merge_into(self.rules, Side.of(older), newer)
        path = new.take(indices) if self.path is None else cast_column(self.path.arrow(merged.rows), pa.string())
        goes = changed & ~merged.deletes & as_numpy(pc.not_equal(path, old.take(indices)))
        return goes, merged.rows, path

    def _rows(
        self,
        data: pa.RecordBatch,
        at: np.ndarray,
        path: pa.Array,
        location: Sequence[pa.Array],
        deletes: pa.Array,
        before: pa.Array,
        *,
        moved: bool,
    ) -> pa.RecordBatch:
        indices = pa.array(at)
        columns = [column.take(indices) for column in (path, *location, deletes)]
        columns.append(pa.repeat(pa.scalar(moved), len(at)))
        data_columns = [f.name for f in list(self.schema)[len(columns) :]]
        columns += [(before if name == COMBINED else data.column(name)).take(indices) for name in data_columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


_MOVES = f"{DERIVED}moves"
_STORED = f"{DERIVED}stored_ordering_"


class SimpleIndex(Index):
    """An index that looks a key up among the stored keys of its partition path. A key may exist once in every
    partition.

    Costs the key column of every latest file slice of the partitions that the rows name.
    """

    name: ClassVar[str] = "simple"
    is_global = False
    ignores_log_deletes = True

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """Place rows by the keys of the stored rows. The rows are evaluated twice, hence persisted."""
        require_stored_keys(snapshot)
        if not snapshot.commits:
            return Tagged(engine.derive(rows, NO_LOCATION))
        rows = engine.persist(rows)
        paths = engine.aggregate(rows, [PARTITION_PATH]).column(PARTITION_PATH)
        touched = set(paths.drop_null().to_pylist()) & set(snapshot.partitions())
        slices = snapshot.file_slices(touched)
        if not slices:
            return Tagged(engine.derive(rows, NO_LOCATION))
        position, source = positions_of(snapshot), CountedSource.of(snapshot, engine)
        stored = engine.read_columns(source, slices, [RECORD_KEY, PARTITION_PATH, FILE_NAME, *position])
        location_rows = engine.derive(stored, STORED_LOCATION, keep=[RECORD_KEY, PARTITION_PATH, *position])
        joined = engine.join(rows, location_rows, [RECORD_KEY, PARTITION_PATH], "left")
        return Tagged(joined, lookup=source.lookup(slices))

    def explain(self) -> str:
        return "simple: reads the keys of the base files in the partitions that the rows touch, and joins on them"


class SimpleIndexForFlink(SimpleIndex):
    """The simple index of a table that Flink made and that records no index. Flink's default stores a key once in the
    table, but a job may store one in every partition path: if that makes a difference the write is refused.

    Costs the keys of the table besides, where rows have new keys.
    """

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """Place rows by the keys of the stored rows. Raises `InvalidOption` if a key is not stored in the partition
        path of its row but in another one."""
        placed = super().place(rows, snapshot, engine)
        tagged = engine.persist(placed.rows)
        new_keys = engine.distinct(
            engine.derive(engine.filter(tagged, IsNull(FILE_ID)), {}, keep=[RECORD_KEY, PARTITION_PATH])
        )
        slices = snapshot.file_slices() if snapshot.commits and count_rows(engine, new_keys) else ()
        if slices:
            stored = engine.read_columns(snapshot, slices, [RECORD_KEY, PARTITION_PATH])
            elsewhere = engine.derive(stored, {OLD_PARTITION: Column(PARTITION_PATH)}, keep=[RECORD_KEY])
            joined = engine.join(new_keys, elsewhere, [RECORD_KEY], "inner")
            pairs = engine.aggregate(engine.filter(joined, Differ(OLD_PARTITION, PARTITION_PATH)), LOCATION_PAIR)
            if pairs.num_rows:
                self._refuse(snapshot, pairs)
        return replace(placed, rows=tagged)

    def _refuse(self, snapshot: Snapshot, pairs: pa.Table) -> None:
        old, new = (pairs.column(name)[0].as_py() for name in LOCATION_PAIR)
        name = snapshot.config.name
        raise InvalidOption(
            f"rows for partition path {new!r} of table {name!r} have keys that are stored in {old!r}: they would be"
            " second rows of these keys. Flink made the table, and by its default (index.global.enabled=true) a key is"
            " there once, but the table does not record it",
            hint="say which it is, once: t.indexes.adopt('global_simple') moves such rows, as Flink does by default;"
            " t.indexes.adopt('simple') if the Flink job has index.global.enabled=false",
            context={"table": name, "partition": new, "stored": old},
        )


class GlobalSimpleIndex(Index):
    """An index that looks a key up among the stored keys of the whole table, so that a key exists once.

    A row that names another partition path than its key is stored in moves there (it wins over the stored row: deleted
    at the old place, inserted at the new one), or is written where the key is (`update_partition_path=False`, and every
    row that loses or is a delete). A key that is stored in several file groups, which only an insert can cause, is
    written at each. Costs the key column of every latest base file, and with event-time ordering the ordering fields.
    """

    name: ClassVar[str] = "global_simple"
    is_global = True
    ignores_log_deletes = True

    def __init__(self, update_partition_path: bool = True) -> None:
        self.update_partition_path = update_partition_path

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> GlobalSimpleIndex:
        """The index that `settings()` describes."""
        return cls(settings.get("update_partition", "true").strip().lower() != "false")

    @classmethod
    def from_options(cls, options: IndexOptions) -> GlobalSimpleIndex:
        """The index that a caller names."""
        options.refuse_all_but("update_partition_path")
        return cls(True if options.update_partition_path is None else options.update_partition_path)

    def for_existence_checks(self) -> GlobalSimpleIndex:
        """This index for writes that only ask whether a key exists: each row gets the location of its key."""
        return GlobalSimpleIndex(update_partition_path=False)

    def settings(self) -> Mapping[str, str]:
        return {"type": self.name, "update_partition": str(self.update_partition_path).lower()}

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """Place rows by the keys of all stored rows. If rows may move the result has `DELETE`, and the rows are
        persisted."""
        require_stored_keys(snapshot)
        slices = snapshot.file_slices() if snapshot.commits else ()
        source = CountedSource.of(snapshot, engine)
        placed, read = self._tagged(rows, snapshot, slices, source, engine)
        return Tagged(placed, lookup=source.lookup(slices, read))

    def _tagged(
        self,
        rows: Rows,
        snapshot: Snapshot,
        slices: Sequence[FileSlice],
        source: CountedSource,
        engine: Engine,
    ) -> PlacedRows:
        rules = MergeRules.of_table(snapshot.config)
        moving = self.update_partition_path and bool(snapshot.config.partition_fields)
        schema = engine.schema(rows)
        row_columns = [n for n in schema.names if n != PARTITION_PATH]
        if not slices:
            flag = {DELETE: BooleanLiteral(False)} if moving and DELETE not in row_columns else {}
            return PlacedRows(engine.derive(rows, {**NO_LOCATION, **flag}))
        position = positions_of(snapshot)
        if not moving:
            joined = engine.join(rows, _stored_locations(source, slices, engine, {}, position), [RECORD_KEY], "left")
            file_columns = columns_of_names(FILE_ID, INSTANT, *position)
            location_columns = {PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)), **file_columns}
            return PlacedRows(engine.derive(joined, location_columns, keep=row_columns))
        if merges_in_pairs(rules, row_columns):
            joined = engine.join(rows, _stored_locations(source, slices, engine, {}, position), [RECORD_KEY], "left")
            return moved_in_pairs(joined, row_columns, snapshot, engine, rules, position)
        # a row that carries no ordering value (a delete by key) is not compared
        fields = rules.ordering if set(rules.ordering) <= set(row_columns) else ()
        ordering = {name: schema.field(name).type for name in fields}
        rows = engine.persist(rows)
        joined = engine.join(rows, _stored_locations(source, slices, engine, ordering, position), [RECORD_KEY], "left")
        return PlacedRows(moved(joined, engine, rules, row_columns, len(ordering), position))

    def explain(self) -> str:
        where = "moves rows to their new partition" if self.update_partition_path else "rows stay where their key is"
        return f"global_simple: reads the keys of all base files and joins on them; {where}"


def moved(
    joined: Rows,
    engine: Engine,
    rules: MergeRules,
    incoming_columns: Sequence[str],
    fields: int,
    position: Sequence[str] = (),
) -> Rows:
    """Every row with its location, and for a row that moves also a delete at the old location, marked `MOVED`.

    `joined` has the rows' `incoming_columns`, the location of their key (with its `POSITION` where that is named), and
    the stored values of the table's ordering fields, whose number is `fields`.
    """
    stored = tuple(f"{_STORED}{i}" for i in range(fields))
    moves = Moves(PARTITION_PATH, OLD_PARTITION, rules, stored, delete_columns(incoming_columns, rules))
    marked = engine.derive(joined, {_MOVES: moves})
    row_columns = [n for n in incoming_columns if n != DELETE]
    new_location: dict[str, RowExpression] = {
        PARTITION_PATH: Case(_MOVES, Coalesce((OLD_PARTITION, PARTITION_PATH)), Column(PARTITION_PATH)),
        FILE_ID: Case(_MOVES, Column(FILE_ID)),
        INSTANT: Case(_MOVES, Column(INSTANT)),
        **{name: Case(_MOVES, Column(name)) for name in position},
        DELETE: Column(DELETE) if DELETE in incoming_columns else BooleanLiteral(False),
        MOVED: BooleanLiteral(False),
    }
    old_location: dict[str, RowExpression] = {
        PARTITION_PATH: Column(OLD_PARTITION),
        **columns_of_names(FILE_ID, INSTANT, *position),
        DELETE: BooleanLiteral(True),
        MOVED: BooleanLiteral(True),
        **({COMBINED: Zero()} if COMBINED in incoming_columns else {}),
    }
    leaving = engine.filter(marked, Column(_MOVES))
    left = engine.derive(leaving, old_location, keep=[n for n in row_columns if n != COMBINED])
    return engine.union([engine.derive(marked, new_location, keep=row_columns), left])


def positions_of(snapshot: Snapshot) -> list[str]:
    """The column with a stored row's number in its base file, as a list; empty if log blocks of the table do not have
    positions."""
    return [POSITION] if snapshot.config.has_record_positions else []


@dataclass(frozen=True, slots=True)
class CountedSource:
    """A view whose file slices are read for their keys. The reads of this process are counted in `tally`."""

    snapshot: Snapshot
    tally: ReadTally | None

    @classmethod
    def of(cls, snapshot: Snapshot, engine: Engine) -> CountedSource:
        return cls(snapshot, None if engine.is_distributed else ReadTally())

    @property
    def storage(self) -> Storage:
        return self.snapshot.storage

    @property
    def reader(self) -> SliceReader:
        return self.snapshot.reader if self.tally is None else replace(self.snapshot.reader, tally=self.tally)

    def schema_of(self, file_slice: FileSlice) -> pa.Schema:
        return self.snapshot.schema_of(file_slice)

    def lookup(self, slices: Sequence[FileSlice], read: Sequence[FileSlice] = ()) -> KeyLookup:
        """The counts of a search that read the keys of all these slices, and more columns of the slices in `read`."""
        lookup = KeyLookup(files=len(slices), searched=len(slices))
        size = self.tally.total("bytes") if self.tally is not None else None
        return with_slices(lookup.with_reads(files_of(slices), size if slices else 0), read)


def files_of(slices: Sequence[FileSlice]) -> int:
    """How many base and log files some file slices have."""
    return sum(len(file_slice.files) for file_slice in slices)


def with_slices(lookup: KeyLookup, read: Sequence[FileSlice]) -> KeyLookup:
    """The counts of a search, plus the slices of which some columns were read in addition: their bytes are unknown."""
    return lookup.with_reads(files_of(read), None) if read else lookup


def _stored_locations(
    snapshot: CountedSource,
    slices: Sequence[FileSlice],
    engine: Engine,
    ordering: Mapping[str, pa.DataType],
    position: Sequence[str] = (),
) -> Rows:
    """The key, old partition path, file id, instant (and number in the base file) and ordering values of every stored
    row.

    Slices whose ordering columns were written with another type are read by themselves and cast.
    """
    parts: list[Rows] = []
    for types, slices_of_types in _by_types(snapshot, slices, ordering).items():
        present = [name for name, kind in zip(ordering, types, strict=True) if kind is not None]
        stored = engine.read_columns(
            snapshot, slices_of_types, [RECORD_KEY, PARTITION_PATH, FILE_NAME, *present, *position]
        )
        columns: dict[str, RowExpression] = {OLD_PARTITION: Column(PARTITION_PATH), **STORED_LOCATION}
        for i, ((name, target), kind) in enumerate(zip(ordering.items(), types, strict=True)):
            columns[f"{_STORED}{i}"] = Column(name) if kind == target else Promoted(name, kind, target)
        parts.append(engine.derive(stored, columns, keep=[RECORD_KEY, *position]))
    return parts[0] if len(parts) == 1 else engine.union(parts)


def stored_ordering(
    snapshot: Snapshot, slices: Sequence[FileSlice], engine: Engine, ordering: Mapping[str, pa.DataType]
) -> Rows:
    """The key, file id and ordering values of every row of some file slices, for `moved`."""
    locations = _stored_locations(CountedSource(snapshot, None), slices, engine, ordering)
    values = {f"{_STORED}{i}": Column(f"{_STORED}{i}") for i in range(len(ordering))}
    return engine.derive(locations, {FILE_ID: Column(FILE_ID), **values}, keep=[RECORD_KEY])


def _by_types(
    snapshot: CountedSource, slices: Sequence[FileSlice], ordering: Mapping[str, pa.DataType]
) -> dict[tuple[pa.DataType | None, ...], list[FileSlice]]:
    """Slices by the types with which their ordering columns were written (None: the slice does not have the column)."""
    groups: dict[tuple[pa.DataType | None, ...], list[FileSlice]] = defaultdict(list)
    for file_slice in slices:
        types: tuple[pa.DataType | None, ...] = ()
        if ordering:
            written = {f.name: f.type for f in snapshot.schema_of(file_slice)}
            types = tuple(written.get(name) for name in ordering)
        groups[types].append(file_slice)
    return dict(groups)


def columns_of_names(*names: str) -> dict[str, RowExpression]:
    return {name: Column(name) for name in names}


def require_stored_keys(snapshot: Snapshot) -> None:
    if not snapshot.config.populate_meta_fields:
        raise UnsupportedFeature(
            f"table {snapshot.config.name!r} stores no record keys (hoodie.populate.meta.fields=false),"
            " so no stored row can be found",
            hint="such a table takes insert and bulk_insert only",
            context={"feature": "no meta fields"},
        )


LOCATION_PAIR = [OLD_PARTITION, PARTITION_PATH]
LOCATION = pa.schema([(name, pa.string()) for name in (OLD_PARTITION, FILE_ID, INSTANT)])
"""The columns that an index adds to rows whose keys it looks up: partition path, file id and commit, null for new
keys."""


def at_locations(joined: Rows, incoming_columns: Sequence[str], engine: Engine, position: Sequence[str] = ()) -> Rows:
    """The rows of a global index at the locations of their keys, whatever partition path they name. `joined` has the
    rows' `incoming_columns` without the partition path, and the location of their key, with its `POSITION` if
    `position` names it."""
    location_columns = {
        PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)),
        **columns_of_names(FILE_ID, INSTANT, *position),
    }
    return engine.derive(joined, location_columns, keep=[name for name in incoming_columns if name != PARTITION_PATH])


def moved_from_locations(
    joined: Rows, incoming_columns: Sequence[str], snapshot: Snapshot, engine: Engine, position: Sequence[str] = ()
) -> PlacedRows:
    """The rows at their locations; a row that names another partition path is there if it wins over the stored row.
    `joined` is as for `at_locations`, and evaluated several times.

    What they have to win over is read from the file groups that such rows come from, and from no other.
    """
    rules = MergeRules.of_table(snapshot.config)
    if merges_in_pairs(rules, incoming_columns):
        return moved_in_pairs(joined, incoming_columns, snapshot, engine, rules, position)
    ordering = rules.ordering if set(rules.ordering) <= set(incoming_columns) else ()
    if not ordering:
        return PlacedRows(moved(joined, engine, rules, incoming_columns, 0, position))
    leaving = engine.filter(joined, Differ(OLD_PARTITION, PARTITION_PATH))
    pairs = engine.aggregate(leaving, [OLD_PARTITION, FILE_ID])
    groups = set(zip(*(pairs.column(name).to_pylist() for name in (OLD_PARTITION, FILE_ID)), strict=True))
    if not groups:
        location_columns: dict[str, RowExpression] = {
            PARTITION_PATH: Coalesce((OLD_PARTITION, PARTITION_PATH)),
            **columns_of_names(FILE_ID, INSTANT, *position),
            DELETE: Column(DELETE) if DELETE in incoming_columns else BooleanLiteral(False),
        }
        return PlacedRows(engine.derive(joined, location_columns, keep=[n for n in incoming_columns if n != DELETE]))
    slices = [s for s in snapshot.file_slices({p for p, _ in groups}) if (s.partition, s.file_id) in groups]
    types = engine.schema(joined)
    values = stored_ordering(snapshot, slices, engine, {name: types.field(name).type for name in ordering})
    compared = engine.join(joined, values, [RECORD_KEY, FILE_ID], "left")
    return PlacedRows(moved(compared, engine, rules, incoming_columns, len(ordering), position), slices)

"""Building an index of record keys by jobs: tasks read key columns, a shuffle by file group, tasks write base files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import GROUP, Engine, Rows, Task
from lakebed.errors import IndexInconsistent
from lakebed.expressions.base import Column, Constant, RowExpression
from lakebed.format.hashes import plain_strings
from lakebed.merge.locations import STORED_LOCATION, ShardOf
from lakebed.metadata.lookups import slice_by_keys
from lakebed.metadata_kinds.key_changes import record_index_definition, secondary_index_definition, secondary_text
from lakebed.metadata_kinds.record_index import encoded_locations, latest_locations
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_kinds.routing import split_by_group
from lakebed.metadata_kinds.secondary_index import entries, indexed_pairs
from lakebed.metadata_records.definitions import IndexDefinition, IndexName, index_version
from lakebed.metadata_records.group_files import FileGroup, WrittenBase, in_key_order, sorted_by_key, write_base
from lakebed.metadata_records.layout import (
    FILE_KEY_LENGTH,
    PARTITIONED_SIZING,
    GroupSizing,
    group_number,
    secondary_file_groups,
    secondary_keys,
)
from lakebed.metadata_records.merge_records import alive
from lakebed.metadata_records.records import GroupRecords, RecordForm, Records, record_form
from lakebed.metadata_upkeep.creation import NewPartition, complete_partition, start_partition
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.model import (
    FILE_ID,
    FILE_NAME,
    INSTANT,
    OLD_PARTITION,
    PARTITION_PATH,
    RECORD_INDEX,
    RECORD_KEY,
    SECONDARY_INDEX,
    FileSlice,
)
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map

# Rows of a table from which on a job reads its keys.
LARGE_ROWS = 4_000_000
WRITTEN = pa.schema(
    [
        ("file_id", pa.string()),
        ("name", pa.string()),
        ("size", pa.int64()),
        ("entries", pa.int64()),
        ("millis", pa.int64()),
        ("twice", pa.string()),
    ]
)
# Keys, values, and a key that is stored twice although it must be unique.
Encoded = tuple[pa.StringArray, pa.BinaryArray, str | None]
Encode = Callable[[pa.Table, RecordForm], Encoded]
Counts = int | Mapping[str, int]
Build = tuple[Rows, Encode, IndexDefinition | None]
_PAIRS = pa.schema(
    [("value", pa.string()), ("record_key", pa.string()), (PARTITION_PATH, pa.string()), (GROUP, pa.int32())]
)


def can_build(partition: str) -> bool:
    """Whether a job can build this partition of the metadata table."""
    return kind_of(partition).name in _BUILDS


def is_large(snapshot: Snapshot, engine: Engine) -> bool:
    """Whether the table has so many rows, by the footers, that a job reads its keys."""
    return engine.is_distributed and sum(_rows_by_path(snapshot).values()) >= LARGE_ROWS


def build_by_job(
    store: MetadataStore, snapshot: Snapshot, name: IndexName, sizing: GroupSizing | None, engine: Engine
) -> TableConfig:
    """Build an index of record keys, with base files that tasks write. Returns the table's new settings."""
    new = start_partition(store, name.partition, file_group_counts(snapshot, name, sizing))
    definition = kind_of(name.partition).definition(name, snapshot, WriteSettings())
    return complete_partition(store, new, written_by_job(snapshot, name, new, engine), definition)


def file_group_counts(snapshot: Snapshot, name: IndexName, sizing: GroupSizing | None) -> Counts:
    """The number of file groups of a new index, from the row counts in the footers; by partition path for a partitioned
    index."""
    kind = kind_of(name.partition)
    if not kind.grows:
        return kind.file_groups
    rows = _rows_by_path(snapshot)
    if name.partitioned:
        return {path: (sizing or PARTITIONED_SIZING).file_groups(n) for path, n in rows.items()}
    return (sizing or GroupSizing()).file_groups(sum(rows.values()))


def written_by_job(snapshot: Snapshot, name: IndexName, new: NewPartition, engine: Engine) -> list[WrittenBase]:
    """Write the base files of an index whose file groups exist, by tasks. Returns the files."""
    counts: Counts = len(new.groups)
    if name.partitioned:
        kind = kind_of(name.partition)
        counts = Counter(kind.data_partition_of(group.file_id) or "" for group in new.groups)
    stored, encode, _ = _BUILDS[kind_of(name.partition).name](snapshot, engine, name, counts)
    write = BaseWriter(snapshot.storage, new.instant, new.groups, encode)
    tasks = max(1, len(new.groups))
    done = engine.collect(engine.group_map(stored, write, WRITTEN, groups=tasks, one_group_per_task=True))
    _refuse_twice(done, snapshot)
    written = done.select(WRITTEN.names[:-1]).to_pylist()  # one a file group
    return [WrittenBase(name.partition, *row.values()) for row in written]


def written_here(
    store: MetadataStore,
    new: NewPartition,
    records: Sequence[GroupRecords],
    definition: IndexDefinition | None,
) -> list[WrittenBase]:
    """Write the base files of an index whose file groups exist, in this process: the records of a first build,
    distributed over the file groups. Returns the files. Ranges of files that writers have already logged there are left
    out: both would be united, and their counts added."""
    if len(records) == 1 and records[0].batches is not None:
        return [write_base(store.data_storage, new.groups[0], new.instant, in_key_order(records[0]))]
    version = index_version(definition, store.version)
    unites = kind_of(new.partition).union is not None
    all_records = _together(records)
    if all_records is None:
        return []
    parts = split_by_group(new.partition, all_records, [group.file_id for group in new.groups], version)

    def write(item: tuple[int, tuple[pa.StringArray, pa.BinaryArray, pa.StringArray]]) -> WrittenBase:
        at, (keys, values, _) = item
        if unites:
            keys, values = _not_logged(store, new.groups[at], keys, values)
        return write_base(store.data_storage, new.groups[at], new.instant, [sorted_by_key(keys, values)])

    return parallel_map(write, list(parts.items()))


def _not_logged(
    store: MetadataStore, group: FileGroup, keys: pa.StringArray, values: pa.BinaryArray
) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The keys and values without those that the group's log files already have; only keys that name files are
    compared."""
    slices = store.slices.file_slices(group.partition)
    file_slice = next((file_slice for file_slice in slices if file_slice.file_id == group.file_id), None)
    of_files = pc.equal(pc.binary_length(keys), FILE_KEY_LENGTH)
    layers = [] if file_slice is None else slice_by_keys(store.slices, file_slice, keys.filter(of_files))
    logged = alive(layers)
    if logged is None:
        return keys, values
    stays = pc.invert(pc.and_(of_files, pc.is_in(keys, value_set=plain_strings(logged["key"]).cast(keys.type))))
    return keys.filter(stays), values.filter(stays)


def _together(groups: Sequence[GroupRecords]) -> Records | None:
    filled = [group for group in groups if len(group.keys)]
    if not filled:
        return None
    keys, values = (pa.concat_arrays([getattr(group, part) for group in filled]) for part in ("keys", "values"))
    if filled[0].data_partition is None:
        return Records.upserts(keys, values)
    paths = [pa.repeat(pa.scalar(group.data_partition), len(group.keys)) for group in filled]
    return Records.upserts(keys, values, pa.concat_arrays(paths))


@dataclass(frozen=True, slots=True)
class BaseWriter:
    """A task function that writes the base file of one file group. It is called with a partition path (empty unless the
    index is partitioned), the group's number and all its rows, which `encode` converts to entries."""

    storage: Storage
    instant: str
    groups: tuple[FileGroup, ...]
    encode: Encode

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        group = next(
            g
            for g in self.groups
            if group_number(g.file_id) == number
            and (kind_of(g.partition).data_partition_of(g.file_id) or "") == partition
        )
        table, form = pa.Table.from_batches(list(batches)), record_form(group.version)
        keys, values, twice = self.encode(table, form)
        entries = [sorted_by_key(keys, values)]
        base = write_base(self.storage, group, self.instant, entries, token=task.write_token)
        row = [base.file_id, base.name, base.size, base.entries, base.millis, twice]
        columns = [pa.array([value], field.type) for value, field in zip(row, WRITTEN, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=WRITTEN)


def _encoded_locations(table: pa.Table, form: RecordForm) -> Encoded:
    locations = table.select([RECORD_KEY, OLD_PARTITION, FILE_ID, INSTANT])
    locations = locations.rename_columns(["key", "partition", "file_id", "instant"])
    latest, twice = latest_locations(locations, partitioned=False), None
    if latest.num_rows < locations.num_rows:
        twice = pc.first(pc.value_counts(locations["key"]).filter(_repeated(locations["key"])).field(0)).as_py()
    return *encoded_locations(latest, form), twice


def _encoded_pairs(table: pa.Table, form: RecordForm) -> Encoded:
    return *entries(table.select(["value", "record_key"]), form), None


def _repeated(keys: pa.ChunkedArray) -> pa.Array:
    return pc.greater(pc.value_counts(keys).field(1), 1)


def _placed(snapshot: Snapshot, engine: Engine, name: IndexName, counts: Counts) -> Build:
    """The key, location and file group of every stored row, with the encoder and the definition of the record index."""
    definition = record_index_definition(snapshot.config.version, partitioned=name.partitioned)
    return _all_locations(snapshot, engine, counts), _encoded_locations, definition


def _all_locations(snapshot: Snapshot, engine: Engine, counts: Counts) -> Rows:
    slices = snapshot.file_slices()
    if isinstance(counts, int):
        return _locations_of(snapshot, engine, slices, counts, Constant(""))
    by_count: dict[int, list[FileSlice]] = {}
    for file_slice in slices:
        if file_slice.partition in counts:
            by_count.setdefault(counts[file_slice.partition], []).append(file_slice)
    parts = [
        _locations_of(snapshot, engine, counted_slices, n, Column(PARTITION_PATH))
        for n, counted_slices in by_count.items()
    ]
    return engine.union(parts) if parts else _locations_of(snapshot, engine, (), 1, Column(PARTITION_PATH))


def _locations_of(
    snapshot: Snapshot, engine: Engine, slices: Sequence[FileSlice], shards: int, path: RowExpression
) -> Rows:
    stored = engine.read_columns(snapshot, slices, [RECORD_KEY, PARTITION_PATH, FILE_NAME])
    columns: dict[str, RowExpression] = {
        OLD_PARTITION: Column(PARTITION_PATH),
        **STORED_LOCATION,
        GROUP: ShardOf(RECORD_KEY, shards),
    }
    # the file group's path is added last, since the location uses the stored path
    placed = engine.derive(stored, columns, keep=[RECORD_KEY, PARTITION_PATH])
    return engine.derive(placed, {PARTITION_PATH: path}, keep=[RECORD_KEY, *columns])


@dataclass(frozen=True, slots=True)
class _PairTexts:
    """A task function that reads the keys and values of stored rows in the form of a secondary index, with their file
    groups."""

    column: str
    index_version: int
    shards: int

    def __call__(self, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = secondary_text(Column(self.column).arrow(batch))
            pairs = indexed_pairs(texts, batch.column(RECORD_KEY), self.index_version)
            keys = secondary_keys(pairs["value"], pairs["record_key"])
            groups = secondary_file_groups(keys, self.shards, version=self.index_version)
            path = pa.repeat(pa.scalar(""), len(keys))
            table = pa.Table.from_arrays([*pairs.columns, path, pa.array(groups)], schema=_PAIRS)
            yield from table.combine_chunks().to_batches()


def _paired(snapshot: Snapshot, engine: Engine, name: IndexName, counts: Counts) -> Build:
    """The value, key and file group of every stored row, with the encoder and the definition of the secondary index."""
    assert name.column is not None
    assert isinstance(counts, int)
    definition = secondary_index_definition(name.partition, name.column, snapshot.config.version)
    stored = engine.read_columns(snapshot, snapshot.file_slices(), [RECORD_KEY, name.column.partition(".")[0]])
    pairs = engine.map(stored, _PairTexts(name.column, definition.version, counts), _PAIRS)
    return pairs, _encoded_pairs, definition


def _rows_by_path(snapshot: Snapshot) -> dict[str, int]:
    """The number of stored rows of each partition path, from the footers."""
    slices = snapshot.file_slices()
    counts: dict[str, int] = {}
    for file_slice, count in zip(slices, parallel_map(snapshot.reader.count, slices), strict=True):
        counts[file_slice.partition] = counts.get(file_slice.partition, 0) + count
    return counts


def _refuse_twice(done: pa.Table, snapshot: Snapshot) -> None:
    twice = done["twice"].drop_null()
    if len(twice):
        key = twice[0].as_py()
        raise IndexInconsistent(
            f"record key {key!r} of table {snapshot.config.name!r} is stored in several file groups",
            hint="A record index has one place for a key: make the keys unique first, or (keys that are unique within"
            " their partition path) create it with partitioned=True.",
            context={"record_key": key},
        )


# The kinds that a job can build, by name: functions for the rows of all entries, for their records, for the definition.
_BUILDS: dict[str, Callable[[Snapshot, Engine, IndexName, Counts], Build]] = {
    RECORD_INDEX: _placed,
    SECONDARY_INDEX: _paired,
}

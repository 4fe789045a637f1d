"""Finding the places of rows' keys in a record index: here for few keys, else by tasks that open a file group each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import Engine, Rows, Task
from lakebed.engine.groups import GROUP
from lakebed.expressions.base import Column, Constant, RowExpression
from lakebed.index.locations import ShardOf
from lakebed.index.simple import OLD_PARTITION
from lakebed.metadata.kinds.record_index import data_partition_of
from lakebed.metadata.layout import RECORD_INDEX
from lakebed.metadata.read.lookup import keys_by_group
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.store.slices import MetadataSlices
from lakebed.model import FILE_ID, INSTANT, PARTITION_PATH, RECORD_KEY
from lakebed.timeline.timeline import Timeline

# Up to so many rows their keys are looked up in this process.
IN_PROCESS_ROWS = 50_000
_PLACES = pa.schema([(n, pa.string()) for n in (RECORD_KEY, OLD_PARTITION, FILE_ID, INSTANT)])
_PLACES_IN_PATH = pa.schema([(n, pa.string()) for n in (RECORD_KEY, PARTITION_PATH, FILE_ID, INSTANT)])


@dataclass(frozen=True, slots=True)
class Places:
    """The places of keys as rows; `small` says that they are few enough to be sent to every task."""

    rows: Rows
    small: bool


def find_places(rows: Rows, metadata: MetadataTable, engine: Engine) -> Places:
    """Record key, old partition path, file id and instant of the rows' keys that a global record index
    knows."""
    few = _few(rows, [RECORD_KEY], engine)
    if few is not None:
        found = _named(metadata.record_locations(few.column(RECORD_KEY)), _PLACES)
        return Places(engine.from_arrow(found), small=True)
    shards = max(1, len(metadata.slices.file_slices(RECORD_INDEX)))
    routed: dict[str, RowExpression] = {PARTITION_PATH: Constant(""), GROUP: ShardOf(RECORD_KEY, shards)}
    return Places(_looked_up(rows, routed, metadata, engine, shards, in_path=False), small=False)


def find_places_in_partitions(rows: Rows, metadata: MetadataTable, engine: Engine) -> Places:
    """Record key, partition path, file id and instant of the rows' keys that a partitioned
    record index knows in the rows' own partition paths."""
    few = _few(rows, [RECORD_KEY, PARTITION_PATH], engine)
    if few is not None:
        found = [_named(metadata.record_locations(keys, path), _PLACES_IN_PATH) for path, keys in _by_path(few)]
        return Places(engine.from_arrow(pa.concat_tables([_PLACES_IN_PATH.empty_table(), *found])), small=True)
    slices = metadata.slices.file_slices(RECORD_INDEX)
    most = max(pc.value_counts(pa.array([data_partition_of(s.file_id) for s in slices])).field(1).to_pylist())
    # a path with fewer file groups than others has each of them opened by several tasks
    routed: dict[str, RowExpression] = {PARTITION_PATH: Column(PARTITION_PATH), GROUP: ShardOf(RECORD_KEY, most)}
    return Places(_looked_up(rows, routed, metadata, engine, len(slices), in_path=True), small=False)


def _few(rows: Rows, columns: list[str], engine: Engine) -> pa.Table | None:
    """These columns of the rows, if they are few enough to look their keys up in this process."""
    chosen = engine.derive(rows, {}, keep=columns)
    if not engine.is_distributed:
        return engine.collect(chosen)
    table = engine.collect(engine.head(chosen, IN_PROCESS_ROWS + 1))
    return table if table.num_rows <= IN_PROCESS_ROWS else None


@dataclass(frozen=True, slots=True)
class ShardLookup:
    """Sent to the tasks: looks the keys of one file group up. Called with all its rows."""

    metadata: MetadataTable
    in_path: bool

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        keys = pa.chunked_array([b.column(RECORD_KEY) for b in batches], pa.string())
        schema = _PLACES_IN_PATH if self.in_path else _PLACES
        found = self.metadata.record_locations(keys, partition if self.in_path else None)
        yield from _named(found, schema).to_batches()


def _looked_up(
    rows: Rows,
    routed: dict[str, RowExpression],
    metadata: MetadataTable,
    engine: Engine,
    shards: int,
    *,
    in_path: bool,
) -> Rows:
    keyed = engine.derive(rows, routed, keep=[RECORD_KEY])
    lookup = ShardLookup(to_be_sent(metadata), in_path)
    schema = _PLACES_IN_PATH if in_path else _PLACES
    return engine.group_map(keyed, lookup, schema, groups=shards, one_group_per_task=True)


def to_be_sent(metadata: MetadataTable) -> MetadataTable:
    """The metadata table with no more than looking record keys up takes: timelines and the index's file slices."""
    slices = metadata.slices
    listed = slices.file_slices(RECORD_INDEX)
    bare = MetadataSlices(
        slices.storage,
        slices.config,
        _bare(slices.timeline),
        slices.data_storage,
        slices.data_config,
        _bare(slices.data_timeline),
        {RECORD_INDEX: listed},
    )
    return MetadataTable(bare)


def _bare(timeline: Timeline) -> Timeline:
    """A timeline without what it has read and listed: its instants alone."""
    return replace(timeline, listed=timeline.listed.without_files())


def _named(found: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [found[name].cast(pa.string()) for name in ("key", "partition", "file_id", "instant")]
    return pa.Table.from_arrays(columns, schema=schema)


def _by_path(pairs: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """The keys of each partition path; rows without one have none."""
    pairs = pairs.filter(pairs.column(PARTITION_PATH).is_valid())
    keys, paths = (pairs.column(name).combine_chunks() for name in (RECORD_KEY, PARTITION_PATH))
    encoded = paths.dictionary_encode()
    by_path = keys_by_group(keys, encoded.indices.to_numpy(), len(encoded.dictionary))
    yield from zip(encoded.dictionary.to_pylist(), by_path, strict=True)

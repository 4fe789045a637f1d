"""Finding the places of rows' keys in a record index: in this process, or by tasks that open one file group each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import GROUP, Engine, Rows, Task
from lakebed.expressions.base import Column, Constant, RowExpression
from lakebed.index.simple import OLD_PARTITION
from lakebed.merge.combine import combine
from lakebed.merge.locations import IsNotNull, ShardOf
from lakebed.merge.rules import MergeRules
from lakebed.metadata.kinds.record_index import data_partition_of
from lakebed.metadata.layout import RECORD_INDEX
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.read.sent import to_be_sent
from lakebed.model import DERIVED, FILE_ID, INSTANT, OPENED, PARTITION_PATH, RECORD_KEY

# Up to so many keys are looked up in this process.
IN_PROCESS_KEYS = 50_000
# So many groups of rows at least, however few file groups the index has: each is a task of its own.
_LEAST_GROUPS = 8
_BATCH_ROWS = 1 << 16
_PLACES = pa.schema([(n, pa.string()) for n in (RECORD_KEY, OLD_PARTITION, FILE_ID, INSTANT)])
# The rows' own partition path, while they stand by file groups of the index.
_NAMED_PATH = f"{DERIVED}named_path"


def find_places(keys: Rows, metadata: MetadataTable, engine: Engine) -> Rows:
    """Record key, old partition path, file id and instant of those keys that a global record index knows."""
    few = engine.collect(engine.head(keys, IN_PROCESS_KEYS + 1) if engine.is_distributed else keys)
    if few.num_rows <= IN_PROCESS_KEYS or not engine.is_distributed:
        return engine.from_arrow(_named(metadata.record_locations(few.column(RECORD_KEY))))
    placed = with_places(engine.derive(keys, {PARTITION_PATH: Constant("")}), None, metadata, engine)
    return engine.derive(engine.filter(placed, IsNotNull(FILE_ID)), {}, keep=_PLACES.names)


def with_places(
    rows: Rows, rules: MergeRules | None, metadata: MetadataTable, engine: Engine, *, in_path: bool = False
) -> Rows:
    """The rows with file id and instant of their keys and the `OLD_PARTITION` that they live in (the rows' own with
    `in_path`, where each partition path has an index); null where the index does not know a key. `OPENED` has the files
    of the index that were asked.

    With `rules` the rows of a key are made one first: they meet in the task that looks the key up.
    """
    schema = engine.schema(rows)
    if not engine.is_distributed:
        return engine.from_arrow(AddPlaces(metadata, rules, schema, in_path).to_table(engine.collect(rows)))
    add = AddPlaces(to_be_sent(metadata, RECORD_INDEX), rules, schema, in_path)
    slices = metadata.slices.file_slices(RECORD_INDEX)
    routed: dict[str, RowExpression] = {}
    if in_path:
        shards = max(pc.value_counts(pa.array([data_partition_of(s.file_id) for s in slices])).field(1).to_pylist())
    else:
        shards = max(1, len(slices))
        routed = {_NAMED_PATH: Column(PARTITION_PATH), PARTITION_PATH: Constant("")}
    # a multiple of the file groups' number: a group of rows asks one of them
    groups = shards * -(-_LEAST_GROUPS // shards)
    grouped = engine.derive(rows, {**routed, GROUP: ShardOf(RECORD_KEY, groups)})
    return engine.group_map(
        grouped, add, add.schema, groups=None if in_path else groups, one_group_per_task=not in_path
    )


@dataclass(frozen=True, slots=True)
class AddPlaces:
    """Sent to the tasks: adds their places to the rows of one group."""

    metadata: MetadataTable
    rules: MergeRules | None
    rows: pa.Schema
    in_path: bool

    @property
    def schema(self) -> pa.Schema:
        """Of the rows with their places."""
        return pa.schema([*self.rows, *list(_PLACES)[1:], (OPENED, pa.int64())])

    def __call__(
        self, partition: str, group: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        if not self.in_path:
            table = table.drop_columns([PARTITION_PATH]).rename_columns({_NAMED_PATH: PARTITION_PATH})
        table = table.select(self.rows.names)
        yield from self._added(table, partition if self.in_path else None).to_batches(max_chunksize=_BATCH_ROWS)

    def to_table(self, table: pa.Table) -> pa.Table:
        """All rows of a write."""
        if not self.in_path:
            return self._added(table, None)
        parts = [self._added(some, path) for path, some in _by_path(table)]
        return pa.concat_tables(parts) if parts else self._placed(table, _PLACES.empty_table(), 0)

    def _added(self, table: pa.Table, path: str | None) -> pa.Table:
        if self.rules is not None:
            table = combine(table, [RECORD_KEY], self.rules.in_batch)
        if self.in_path and path is None:
            return self._placed(table, _PLACES.empty_table(), 0)
        places, files = self.metadata.counted_locations(table.column(RECORD_KEY), path)
        return self._placed(table, _named(places), files)

    def _placed(self, table: pa.Table, places: pa.Table, files: int) -> pa.Table:
        at = pc.index_in(table.column(RECORD_KEY), value_set=places.column(RECORD_KEY).combine_chunks())
        columns = [places.column(name).combine_chunks().take(at) for name in _PLACES.names[1:]]
        opened = np.zeros(len(table), np.int64)
        opened[:1] = files
        return pa.table([*table.select(self.rows.names).columns, *columns, pa.array(opened)], schema=self.schema)


def _named(found: pa.Table) -> pa.Table:
    columns = [found[name].cast(pa.string()) for name in ("key", "partition", "file_id", "instant")]
    return pa.Table.from_arrays(columns, schema=_PLACES)


def _by_path(rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows of each partition path; None for those that have none."""
    codes = rows.column(PARTITION_PATH).combine_chunks().dictionary_encode(null_encoding="encode")
    for number, path in enumerate(codes.dictionary.to_pylist()):
        yield path, rows.filter(pc.equal(codes.indices, number))

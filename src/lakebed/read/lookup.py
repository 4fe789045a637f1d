"""Point lookups in this process: which file holds a key, and its rows, with as few bytes read as the index allows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import InvalidOption
from lakebed.format.file_names import bucket_of_file_id
from lakebed.model import META_COLUMNS, RECORD_KEY, BaseFile, FileSlice
from lakebed.read.arrow_scan import FileReader
from lakebed.read.columns import resolve_column
from lakebed.read.plan import ScanPlan, plan_scan, table_columns
from lakebed.read.table_keys import bucket_layout, key_generator_of
from lakebed.slices.keys import table_keys
from lakebed.slices.snapshot import Snapshot

# Row groups beyond this many bytes are read by batches.
_LARGE_ROW_GROUP = 256 << 20
LOCATION_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("partition_path", pa.string()),
        ("file_id", pa.string()),
        ("instant", pa.string()),
    ]
)


class KeyText:
    """Record keys as the table stores them (`_hoodie_record_key`), for `get`, `exists`, `locate` and `delete`.

    >>> len(KeyText(["id:1,code:x"]))
    1
    """

    def __init__(self, keys: Any) -> None:
        self.keys: pa.Array = _plain(
            keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(list(keys), pa.string())
        )

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class WantedKeys:
    """Keys to look for: `texts` one for each key asked (null: no such key can exist), `partitions` the partition path
    of each where the caller gave the partition columns."""

    texts: pa.Array
    partitions: pa.Array | None = None


def get(snapshot: Snapshot, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of these keys, as they are found; all data columns, or `columns` (meta columns by name).

    `keys`: a list or array for a single key field, tuples or a table for several (with partition columns, if known),
    or `KeyText`. On a table that is not global every partition is searched unless the partition columns are given.
    """
    wanted = wanted_keys(snapshot, keys)
    available = table_columns(snapshot)
    chosen = [n for n in available.names if n not in META_COLUMNS] if columns is None else list(columns)
    chosen = [resolve_column(c, available).name for c in chosen]
    extra = [c for c in _key_columns(snapshot) if c not in chosen]
    search = _Search(snapshot, wanted, [*chosen, *extra])
    tables = [t for _, t in search.run() if t.num_rows]
    schema = search.plan.schema
    found = pa.concat_tables(tables) if tables else schema.empty_table()
    return found.select(chosen)


def exists(snapshot: Snapshot, keys: Any) -> pa.BooleanArray:
    """For each key asked whether the table holds it, in the order of the keys."""
    wanted = wanted_keys(snapshot, keys)
    found = _found(snapshot, wanted)
    if wanted.partitions is None:
        return pc.is_in(wanted.texts, value_set=_plain(found.column("key")))
    asked = _pair(wanted.partitions, wanted.texts)
    held = _pair(_plain(found.column("partition_path")), _plain(found.column("key")))
    return pc.is_in(asked, value_set=held)


def locate(snapshot: Snapshot, keys: Any) -> pa.Table:
    """Where the keys are: key text, partition path, file id and instant of the base file, one row for each place."""
    return _found(snapshot, wanted_keys(snapshot, keys))


def _found(snapshot: Snapshot, wanted: WantedKeys) -> pa.Table:
    search = _Search(snapshot, wanted, list(_key_columns(snapshot)))
    tables: list[pa.Table] = []
    for file, rows in search.run():
        if rows.num_rows:
            texts = _plain(search.texts(rows))
            constant = [
                pa.repeat(pa.scalar(v, pa.string()), len(texts)) for v in (file.partition, file.file_id, file.instant)
            ]
            tables.append(pa.Table.from_arrays([texts, *constant], schema=LOCATION_SCHEMA))
    return pa.concat_tables(tables) if tables else LOCATION_SCHEMA.empty_table()


def _key_columns(snapshot: Snapshot) -> tuple[str, ...]:
    return (RECORD_KEY,) if snapshot.config.populate_meta_fields else tuple(snapshot.config.key_fields)


# -- what is asked


def wanted_keys(snapshot: Snapshot, keys: Any) -> WantedKeys:
    """Key texts (and partition paths, where the caller's table has the partition columns) of what the user gave."""
    config = snapshot.config
    if isinstance(keys, KeyText):
        return WantedKeys(keys.keys)
    if not config.key_fields:
        raise InvalidOption(
            f"the keys of table {config.name!r} are made by the writer, not from columns",
            hint="give stored keys: lakebed.KeyText([...])",
        )
    schema = snapshot.schema
    table = _key_table(keys, tuple(config.key_fields), schema)
    texts = _plain(table_keys(snapshot).key_text_of(table, schema))
    return WantedKeys(texts, _partitions_of(snapshot, table))


def _partitions_of(snapshot: Snapshot, table: pa.Table) -> pa.Array | None:
    config = snapshot.config
    fields = [f.partition(".")[0] for f in config.partition_fields]
    if not fields or any(f not in table.column_names for f in fields):
        return None
    generator = key_generator_of(config)
    columns = [
        table.column(f).cast(snapshot.schema.field(f).type) if f in snapshot.schema.names else table.column(f)
        for f in fields
    ]
    plain = pa.Table.from_arrays(columns, names=fields).combine_chunks()
    paths = [generator.partition_path.arrow(b) for b in plain.to_batches()]
    return pa.concat_arrays(paths) if paths else pa.array([], pa.string())


def _key_table(keys: Any, fields: tuple[str, ...], schema: pa.Schema) -> pa.Table:
    if isinstance(keys, pa.RecordBatch):
        return pa.Table.from_batches([keys])
    if isinstance(keys, pa.Table):
        return keys
    if hasattr(keys, "__arrow_c_stream__") and not isinstance(keys, pa.ChunkedArray):
        return pa.RecordBatchReader.from_stream(keys).read_all()
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        columns: list[Any] = [keys]
    else:
        listed: list[Any] = list(keys) if not isinstance(keys, str | bytes) else [keys]
        columns = [listed] if len(fields) == 1 else _transposed(listed, fields)
    if len(columns) != len(fields):
        raise InvalidOption(
            f"keys of one value given, but the record key is made of {', '.join(fields)}",
            hint="give tuples in that order, or a table with these columns",
        )
    return pa.table({f: _typed(c, f, schema) for f, c in zip(fields, columns, strict=True)})


def _transposed(keys: list[Any], fields: tuple[str, ...]) -> list[list[Any]]:
    if any(not isinstance(k, tuple | list) or len(k) != len(fields) for k in keys):
        raise InvalidOption(
            f"every key has to be a tuple of {len(fields)} values: {', '.join(fields)}",
            hint="or give a table with these columns, or lakebed.KeyText([...])",
        )
    return [[k[i] for k in keys] for i in range(len(fields))]


def _typed(values: Any, field: str, schema: pa.Schema) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    type_ = schema.field(field).type if field in schema.names else None
    try:
        return pa.array(values, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise InvalidOption(
            f"these keys do not fit the key column {field!r} of type {type_}: {error}",
            hint="give values of the column's type, or stored keys as lakebed.KeyText([...])",
        ) from None


# -- the search


class _Search:
    """The files that can hold the keys, and the matching rows of each."""

    def __init__(self, snapshot: Snapshot, wanted: WantedKeys, columns: list[str]) -> None:
        self.snapshot = snapshot
        self.wanted = wanted
        self.keys = _plain(wanted.texts.drop_null().unique())
        self.meta = snapshot.config.populate_meta_fields
        slices = self._slices()
        self.plan: ScanPlan = plan_scan(snapshot, None, columns, slices=slices)

    def _slices(self) -> list[FileSlice]:
        if not len(self.keys):
            return []
        partitions: Collection[str] | None = None
        if self.wanted.partitions is not None:
            partitions = {p for p in self.wanted.partitions.unique().to_pylist() if p is not None}
        slices = self.snapshot.file_slices(partitions)
        bucketed = bucket_layout(self.snapshot.config, table_columns(self.snapshot))
        if bucketed is None:
            return list(slices)
        numbers = set(bucketed[0].buckets_of(self.keys).to_pylist())
        return [s for s in slices if (b := bucket_of_file_id(s.file_id)) is None or b in numbers]

    def texts(self, rows: pa.Table) -> pa.Array:
        """The key text of found rows."""
        if self.meta:
            return _plain(rows.column(RECORD_KEY))
        return _plain(
            key_generator_of(self.snapshot.config).key_text_of(rows.select(list(self.snapshot.config.key_fields)))
        )

    def run(self) -> Iterator[tuple[BaseFile, pa.Table]]:
        """Every file that was opened, with its matching rows."""
        if not len(self.keys):
            return
        jobs = [(file, group) for group in self.plan.groups for file in group.files]
        readers = {
            id(g): FileReader(g.sources, self.plan.read_schema, self.plan.columns, None, self.plan.partition_values)
            for g in self.plan.groups
        }

        def search(job: tuple[BaseFile, Any]) -> tuple[BaseFile, pa.Table]:
            file, group = job
            return file, self._rows(file, readers[id(group)])

        if len(jobs) < 2:
            yield from map(search, jobs)
            return
        with ThreadPoolExecutor(min(8, 2 * (os.cpu_count() or 1), len(jobs))) as pool:
            yield from pool.map(search, jobs)

    def _rows(self, file: BaseFile, reader: FileReader) -> pa.Table:
        keys = self._keys_in(file)
        found = self._from_row_groups(file, reader, keys) if self.meta else self._from_all(file, reader, keys)
        return pa.Table.from_batches(found, self.plan.schema)

    def _keys_in(self, file: BaseFile) -> pa.Array:
        if self.wanted.partitions is None:
            return self.keys
        here = pc.and_(pc.equal(self.wanted.partitions, file.partition), pc.is_valid(self.wanted.texts))
        return _plain(self.wanted.texts.filter(here).unique())

    def _from_all(
        self, file: BaseFile, reader: FileReader, keys: pa.Array, row_groups: Sequence[int] | None = None
    ) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        for batch in reader.read(self.snapshot.storage, file, row_groups):
            mask = pc.is_in(self.texts(pa.Table.from_batches([batch])), value_set=keys)
            batches.append(batch.filter(mask))
        return batches

    def _from_row_groups(self, file: BaseFile, reader: FileReader, keys: pa.Array) -> list[pa.RecordBatch]:
        """The key column of the row groups whose range fits, then the other columns of those that hold a key."""
        batches: list[pa.RecordBatch] = []
        with self.snapshot.storage.open_input(file.path, file.size) as source, pq.ParquetFile(source) as parquet:
            metadata = parquet.metadata
            at = _key_column(metadata)
            for number in range(metadata.num_row_groups):
                row_group = metadata.row_group(number)
                if not _may_hold(row_group, at, keys):
                    continue
                if row_group.total_byte_size > _LARGE_ROW_GROUP:
                    batches += self._from_all(file, reader, keys, [number])
                    continue
                stored = parquet.read_row_group(number, columns=[RECORD_KEY]).column(0)
                hits = pc.indices_nonzero(pc.is_in(_plain(stored), value_set=keys))
                if len(hits) and self.plan.read_schema.names == [RECORD_KEY]:
                    batches.append(pa.RecordBatch.from_arrays([_plain(stored.take(hits))], names=[RECORD_KEY]))
                elif len(hits):
                    batches += reader.take(parquet, number, hits, file)
        return batches


def _key_column(metadata: Any) -> int:
    schema = metadata.schema
    return next((i for i in range(len(schema)) if schema.column(i).path == RECORD_KEY), -1)


def _may_hold(row_group: Any, column: int, keys: pa.Array) -> bool:
    statistics = row_group.column(column).statistics if column >= 0 else None
    if statistics is None or not statistics.has_min_max:
        return True
    low, high = statistics.min, statistics.max
    if not isinstance(low, str) or not isinstance(high, str):
        return True
    inside = pc.and_(pc.greater_equal(keys, low), pc.less_equal(keys, high))
    return bool(pc.any(inside).as_py())


def _plain(values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def _pair(left: pa.Array, right: pa.Array) -> pa.Array:
    """Both texts as one that no other pair gives."""
    size = pc.utf8_length(left).cast(pa.string())
    return pc.binary_join_element_wise(size, left, right, "/")

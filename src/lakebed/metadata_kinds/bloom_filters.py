"""The partition `bloom_filters`: the bloom filter of each base file, as its footer has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.avro.columns import encode_binaries, encode_fixed, join_pieces
from lakebed.format.base_file import read_footer
from lakebed.format.hashes import plain_strings
from lakebed.metadata_kinds.base import (
    FirstBuild,
    NewPartition,
    PartitionKind,
    Removal,
    StoredTable,
    TableAction,
)
from lakebed.metadata_kinds.routing import grouped
from lakebed.metadata_kinds.stored import (
    COMPARED,
    NewFile,
    StoredFiles,
    comparable,
    completed_files,
    is_base_file,
    joined,
)
from lakebed.metadata_records.definitions import IndexName
from lakebed.metadata_records.layout import (
    BLOOM_FILTERS,
    GroupSizing,
    file_keys,
)
from lakebed.metadata_records.records import (
    RecordForm,
    Records,
    RecordType,
    SubRecord,
    enter,
    leave,
    value_head,
    value_tail,
)
from lakebed.model import path_in
from lakebed.schema.plain_arrow import as_numpy
from lakebed.sharing import once
from lakebed.slices.listing import list_table
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("type", pa.string()),
        ("timestamp", pa.string()),
        ("bloom", pa.binary()),
        ("is_deleted", pa.bool_()),
    ]
)
_FIELD = SubRecord.BLOOM_FILTER


def encode(table: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """The keys and values of records, one per row of `table`: `key`, the filter's `type` code, `timestamp` (the
    instant), `bloom` (the text of `BloomFilter.to_text` as bytes), `is_deleted`. A tombstone has an empty type and
    filter."""
    rows = table.select(SCHEMA.names).combine_chunks()
    pieces: list[pa.BinaryArray | bytes] = [
        value_head(RecordType.BLOOM_FILTER, _FIELD),
        encode_binaries(plain_strings(rows["type"])),
        encode_binaries(plain_strings(rows["timestamp"])),
        encode_binaries(plain_strings(rows["bloom"])),
        encode_fixed(as_numpy(rows["is_deleted"])),
    ]
    return plain_strings(rows["key"]), join_pieces([*pieces, value_tail(form, _FIELD)])


def decode(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """Decode records that `encode` made, rows in the given order. Raises `CorruptFile`."""
    cursors, form = enter(values, schema_json, _FIELD)
    columns = [cursors.texts(), cursors.texts(), cursors.binaries(), pa.array(cursors.booleans())]
    leave(cursors, form, _FIELD)
    return pa.Table.from_arrays([keys.cast(pa.string()), *columns], schema=SCHEMA)


def bloom_records_of(files: Sequence[NewFile], instant: str, form: RecordForm) -> Records:
    """The records of `bloom_filters` for those files that have a filter."""
    having = [(f, f.bloom) for f in files if f.bloom is not None]
    columns = [
        file_keys([f.partition for f, _ in having], [f.name for f, _ in having]),
        pa.array([kind for _, (kind, _) in having], pa.string()),
        pa.repeat(pa.scalar(instant), len(having)),
        pa.array([text.encode() for _, (_, text) in having], pa.binary()),
        pa.repeat(pa.scalar(False), len(having)),
    ]
    return Records.upserts(*encode(pa.Table.from_arrays(columns, schema=SCHEMA), form))


class BloomFiltersKind(PartitionKind):
    def records_of_action(self, partition: str, action: TableAction) -> Records:
        written = [
            NewFile(path, stat.path.rpartition("/")[2], stat.file_size)
            for path, stats in action.commit.stats.items()
            for stat in stats
            if is_base_file(stat.path)
        ]
        files = [_with_filter(action.snapshot.storage, file) for file in written]
        return bloom_records_of(files, action.instant, action.form)

    def records_of_clean(self, partition: str, removal: Removal) -> Records:
        return Records.deletes(removal.keys)

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        snapshot = build.snapshot
        bases = completed_files(snapshot, list_table(snapshot.storage).base_files)
        files = [_with_filter(snapshot.storage, NewFile(b.partition, b.name, b.size)) for b in bases]
        return grouped(name.partition, bloom_records_of(files, snapshot.instant or "0" * 17, build.form)), None

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        having = [(f, f.bloom) for f in table.shared(_StoredFilters).files if f.bloom is not None]
        keys = file_keys([f.partition for f, _ in having], [f.name for f, _ in having])
        texts = [f"{kind} {text}" for _, (kind, text) in having]
        return comparable(keys.to_pylist(), [""] * len(having), [_path(f) for f, _ in having], texts)

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        return joined([_comparable(t.filter(pc.invert(t["is_deleted"]))) for t in metadata.entries(partition)])

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        labels = set(rows["what"].to_pylist())
        files = [f for f in table.shared(_StoredFilters).files if _path(f) in labels]
        return bloom_records_of(files, table.snapshot.instant, table.form)


class _StoredFilters:
    """The base files of completed actions with their filters."""

    def __init__(self, table: StoredTable) -> None:
        self._storage, self._stored = table.snapshot.storage, table.shared(StoredFiles)

    @once
    def files(self) -> Sequence[NewFile]:
        return parallel_map(lambda file: _with_filter(self._storage, file), self._stored.base_files)


def _with_filter(storage: Storage, file: NewFile) -> NewFile:
    return replace(file, bloom=read_footer(storage, _path(file), file.size).stored_bloom)


def _comparable(table: pa.Table) -> pa.Table:
    keys = table["key"].combine_chunks()
    text = pc.binary_join_element_wise(table["type"], table["bloom"].cast(pa.string()), " ")
    empty = pa.repeat(pa.scalar(""), len(keys))
    return pa.Table.from_arrays([keys, empty, keys, text], schema=COMPARED)


def _path(file: NewFile) -> str:
    return path_in(file.partition, file.name)


KIND = BloomFiltersKind(
    BLOOM_FILTERS,
    file_id_start="bloom-filters",
    file_groups=4,
    decode=decode,
    build_position=20,
    requested_by=("bloom_filters_index",),
)

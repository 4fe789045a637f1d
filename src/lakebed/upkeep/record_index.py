"""Keeps `record_index` right: where each record key lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.errors import IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.format.hashes import plain_strings
from lakebed.metadata.keys import file_group
from lakebed.metadata.kinds import record_index
from lakebed.metadata.kinds.definitions import IndexDefinition, IndexName
from lakebed.metadata.kinds.key_changes import GroupChanges
from lakebed.metadata.kinds.key_indexes import KeyIndexes, is_partitioned, record_index_definition
from lakebed.metadata.kinds.record_index import data_partition_of
from lakebed.metadata.kinds.record_index_updates import (
    encoded_places,
    key_records,
    latest_places,
    located,
    place_codes,
    places_of,
)
from lakebed.metadata.layout import GroupSizing
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.records import GroupRecords, Records
from lakebed.metadata.schemas import RecordForm
from lakebed.metadata.store.group_files import FileGroup
from lakebed.model import FILE_ID, RECORD_INDEX, RECORD_KEY, FileSlice
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.action_keys import ActionKeys, stored_key_indexes
from lakebed.upkeep.comparison import COMPARED, joined
from lakebed.upkeep.grouping import grouped
from lakebed.upkeep.key_kind import GROUPED, KeyIndexUpkeep
from lakebed.upkeep.kind import FirstBuild, NewIndex, NewPartition, StoredTable, TableAction
from lakebed.upkeep.stored_rows import stored_rows

_OLD_PARTITION = "old_partition"
_FIELDS = [("key", pa.string()), (_OLD_PARTITION, pa.string()), (FILE_ID, pa.string()), ("added", pa.bool_())]


class RecordIndexUpkeep(KeyIndexUpkeep):
    kind = record_index.KIND
    changes_schema = pa.schema([*_FIELDS, *GROUPED])

    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        return record_index_definition(snapshot.config.version, partitioned=name.partitioned)

    def of_action(self, partition: str, action: TableAction) -> Records:
        keys = action.shared(ActionKeys)
        return key_records(keys.changes, action.instant, action.form, partitioned=keys.indexes.partitioned)

    def initial(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        """Raises `IndexInconsistent` where keys are not unique."""
        places = stored_places(build.snapshot, partitioned=name.partitioned, unique=True)
        groups = _groups(places, build.form, sizing, partitioned=name.partitioned)
        return groups, record_index_definition(build.snapshot.config.version, partitioned=name.partitioned)

    def check_new(self, index: NewIndex) -> None:
        index.require_stored_keys("a record index")
        if index.name.partitioned and index.config.version < 9:
            raise UnsupportedFeature(
                f"a record index for each partition path on a table of version {index.config.version}",
                hint="Versions before 9 have a global one only.",
                context={"feature": "partitioned record index"},
            )
        if not index.name.partitioned:
            index.require_one_place("a global record index has one place for it")

    def check_drop(self, storage: Storage, config: TableConfig) -> None:
        needing = KeyIndexes.of(storage, config).secondary
        if needing:
            raise InvalidOption(
                f"secondary indexes need the record index: {', '.join(needing)}",
                hint="Drop them first.",
                context={"indexes": list(needing)},
            )

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        return _comparable(table.shared(_stored), partitioned=table.shared(stored_key_indexes).partitioned)

    def found(self, partition: str, metadata: MetadataTable, table: StoredTable) -> pa.Table:
        partitioned = table.shared(stored_key_indexes).partitioned
        return joined([_comparable(t, partitioned=partitioned) for t in metadata.entries(partition)])

    def missing_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        places = table.shared(_stored)
        if not table.shared(stored_key_indexes).partitioned:
            chosen = places.filter(pc.is_in(places["key"], value_set=rows["key"].combine_chunks()))
            return Records.upserts(*encoded_places(chosen, table.form))
        mine = pc.binary_join_element_wise(rows["key"], rows["entry"], "\0")
        theirs = pc.binary_join_element_wise(places["key"], places["partition"].cast(pa.string()), "\0")
        chosen = places.filter(pc.is_in(theirs, value_set=mine.combine_chunks()))
        return Records.upserts(*encoded_places(chosen, table.form), plain_strings(chosen["partition"]))

    def extra_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        partitioned = table.shared(stored_key_indexes).partitioned
        return Records.deletes(rows["key"].combine_chunks(), rows["entry"].combine_chunks() if partitioned else None)

    def index_name(self, partition: str, definition: IndexDefinition | None) -> IndexName:
        return IndexName(partition, partitioned=is_partitioned(definition))

    def requested(self, settings: WriteSettings, config: TableConfig) -> IndexName | None:
        index = config.index_settings
        if index.get("type") == "record":
            return IndexName(RECORD_INDEX, partitioned=index.get("partitioned", "").lower() == "true")
        if settings.record_index or settings.partitioned_record_index:
            return IndexName(RECORD_INDEX, partitioned=settings.partitioned_record_index)
        return None

    # in jobs

    def grouped_changes(
        self, partition: str, part: GroupChanges, indexes: KeyIndexes, groups: Sequence[FileGroup]
    ) -> pa.Table:
        keys, added = places_of(part.changes)
        path = part.partition if indexes.partitioned else ""
        mine = [g for g in groups if (data_partition_of(g.file_id) or "") == path]
        first = groups.index(mine[0])
        n = len(keys)
        texts = [pa.repeat(pa.scalar(text), n) for text in (part.partition, part.file_id)]
        shards = pa.array(file_group(keys, len(mine)) + first, pa.int32())
        columns = [keys, *texts, added, pa.repeat(pa.scalar(""), n), shards]
        return pa.Table.from_arrays(columns, schema=self.changes_schema)

    def group_records(self, rows: pa.Table, instant: str, form: RecordForm) -> Records:
        added, removed = rows.filter(rows["added"]), rows.filter(pc.invert(rows["added"]))
        places = added.select(["key", _OLD_PARTITION, FILE_ID]).rename_columns(["key", "partition", "file_id"])
        places = places.append_column("instant", pa.repeat(pa.scalar(instant), places.num_rows))
        keys, values = encoded_places(latest_places(places, partitioned=False), form)
        return Records(keys, values, pc.unique(removed["key"]))


def _stored(table: StoredTable) -> pa.Table:
    return stored_places(table.snapshot, partitioned=table.shared(stored_key_indexes).partitioned)


def stored_places(snapshot: Snapshot, *, partitioned: bool, unique: bool = False) -> pa.Table:
    """Where every stored record key is (see `record_index_records.SCHEMA`), read from the latest file slices.

    A key that stands in several file groups is where it came last. With `unique` that raises `IndexInconsistent`.
    """
    places = _all_places(snapshot)
    latest = latest_places(places, partitioned)
    if unique and latest.num_rows < places.num_rows:
        raise _several_places(snapshot, places, partitioned=partitioned)
    return latest


def repeated_keys(snapshot: Snapshot, *, everywhere: bool) -> pa.Table:
    """The keys that stand more than once in the latest file slices, `everywhere` or in one partition path: `key`,
    `partition` (all of them, where there are several) and the file ids in `files`."""
    places = _all_places(snapshot)
    codes = place_codes(places, partitioned=not everywhere)
    rows = places.filter(pa.array(np.bincount(codes, minlength=1)[codes] > 1))
    names = ("key", "partition", "file_id")
    found = pa.table({name: plain_strings(rows[name]).cast(pa.string()) for name in names})
    by = ["key"] if everywhere else ["key", "partition"]
    lists = [("file_id", "list"), *([("partition", "list")] if everywhere else [])]
    found = found.sort_by("key").group_by(by, use_threads=False).aggregate(lists)
    paths = pc.binary_join(found["partition_list"], ", ") if everywhere else found["partition"]
    return pa.table({"key": found["key"], "partition": paths, "files": pc.binary_join(found["file_id_list"], ", ")})


def _all_places(snapshot: Snapshot) -> pa.Table:
    """The place of every stored key, in the order in which the slices began."""
    slices = sorted(snapshot.file_slices(), key=lambda s: (s.instant, s.partition, s.file_id))

    def read(file_slice: FileSlice) -> tuple[str, str, str, pa.Array]:
        keys = stored_rows(snapshot.reader, file_slice, [RECORD_KEY]).column(0)
        return file_slice.partition, file_slice.file_id, file_slice.instant, keys

    return located(parallel_map(read, slices))


def _groups(places: pa.Table, form: RecordForm, sizing: GroupSizing, *, partitioned: bool) -> list[GroupRecords]:
    """What the file groups of a new index begin with; as many of them as Hudi would make."""
    keys, values = encoded_places(places, form)
    if not partitioned:
        count = sizing.file_groups(len(keys))
        return grouped(RECORD_INDEX, Records.upserts(keys, values), [(None, n) for n in range(count)])
    paths = places["partition"].cast(pa.string()).combine_chunks()
    counts = paths.value_counts()
    rows = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
    sizes: Mapping[str, int] = {path: sizing.file_groups(n) for path, n in sorted(rows.items())}
    groups = [(path, n) for path, count in sizes.items() for n in range(count)]
    return grouped(RECORD_INDEX, Records.upserts(keys, values, paths), groups)


def _comparable(places: pa.Table, *, partitioned: bool) -> pa.Table:
    keys, paths, ids = (plain_strings(places[name]).cast(pa.string()) for name in ("key", "partition", "file_id"))
    entry = paths if partitioned else pa.repeat(pa.scalar(""), len(keys))
    text = pc.binary_join_element_wise(paths, ids, "/")
    return pa.Table.from_arrays([keys, entry, keys, text], schema=COMPARED)


def _several_places(snapshot: Snapshot, places: pa.Table, *, partitioned: bool) -> IndexInconsistent:
    counts = places.group_by(["key", "partition"] if partitioned else "key").aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    key = twice["key"][0].as_py()
    return IndexInconsistent(
        f"{twice.num_rows} record key(s) of table {snapshot.config.name!r} stand in several file groups, e.g. {key!r}",
        hint="A record index has one place for a key: make the keys unique first, or (keys that are unique within"
        " their partition path) create it with partitioned=True.",
        context={"record_key": key, "keys": twice.num_rows},
    )

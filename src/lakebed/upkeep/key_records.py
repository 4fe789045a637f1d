"""What an action says to the record index and secondary indexes, and what these begin with on a table with rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import IndexInconsistent
from lakebed.expressions.base import Column
from lakebed.format.hashes import plain_strings
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.metadata.kinds.key_changes import secondary_text
from lakebed.metadata.kinds.key_indexes import (
    KeyIndexes,
    indexed_field,
    record_index_definition,
    secondary_index_definition,
)
from lakebed.metadata.kinds.record_index_updates import (
    GroupChanges,
    encoded_places,
    key_records,
    latest_places,
    located,
    place_codes,
)
from lakebed.metadata.kinds.secondary_updates import entries, indexed_pairs, secondary_index_records
from lakebed.metadata.layout import PARTITIONED_SIZING, RECORD_INDEX, GroupSizing, file_id
from lakebed.metadata.routing import Records, split_by_group
from lakebed.metadata.schemas import form_of_version
from lakebed.metadata.store.creation import GroupRecords
from lakebed.model import RECORD_KEY, BaseFile, CommitMetadata
from lakebed.slices.listing import groups_of_ids
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.storage.parallel import parallel_map
from lakebed.upkeep.changed_keys import group_changes, removed_changes, stored_keys
from lakebed.upkeep.write_status import WriteStatus

NewIndex = tuple[list[GroupRecords], IndexDefinition | None]


@dataclass(frozen=True)
class KeyRecords:
    """The indexes of record keys of one table, as one action keeps them. `snapshot` is the table before it."""

    snapshot: Snapshot
    indexes: KeyIndexes

    @property
    def storage(self) -> Storage:
        return self.snapshot.storage

    def of_action(self, instant: str, commit: CommitMetadata, statuses: Sequence[WriteStatus]) -> dict[str, Records]:
        """What the action says to each of the indexes."""
        if not self.indexes:
            return {}
        return self.of_changes(instant, self.changes(commit, statuses))

    def changes(self, commit: CommitMetadata, statuses: Sequence[WriteStatus]) -> list[GroupChanges]:
        """The key changes of all file groups: first those that are replaced, which are read."""
        replaced = self.replaced_files(commit)
        gone = removed_changes(self.storage, replaced, self.indexes.fields) if replaced else []
        return [*gone, *group_changes(self.storage, statuses, self.indexes.fields)]

    def replaced_files(self, commit: CommitMetadata) -> list[BaseFile]:
        """The base files of the file groups that the action replaces."""
        ids = {(partition, name) for partition, names in commit.replaced.items() for name in names}
        if not ids:
            return []
        files = self.snapshot.base_files({p for p, _ in ids}, groups_of_ids({name for _, name in ids}))
        return [f for f in files if (f.partition, f.file_id) in ids]

    def of_changes(self, instant: str, changes: Sequence[GroupChanges]) -> dict[str, Records]:
        """The same from key changes that are known."""
        form = form_of_version(self.snapshot.config.version)
        said: dict[str, Records] = {}
        if self.indexes.record_index:
            said[RECORD_INDEX] = key_records(changes, instant, form, partitioned=self.indexes.partitioned)
        for name, one in self.indexes.secondary.items():
            said[name] = secondary_index_records(changes, indexed_field(one), form, index_version=one.version)
        return said


def stored_places(snapshot: Snapshot, *, partitioned: bool, unique: bool = False) -> pa.Table:
    """Where every stored record key is (see `record_index_records.SCHEMA`), read from the latest base files.

    A key that stands in several file groups is where it came last. With `unique` that raises `IndexInconsistent`.
    """
    places = _all_places(snapshot)
    latest = latest_places(places, partitioned)
    if unique and latest.num_rows < places.num_rows:
        raise _several_places(snapshot, places, partitioned=partitioned)
    return latest


def repeated_keys(snapshot: Snapshot, *, everywhere: bool) -> pa.Table:
    """The keys that stand more than once in the latest base files, `everywhere` or in one partition path: `key`,
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
    """The place of every stored key, in the order in which the files were written."""
    files = sorted(snapshot.base_files(), key=lambda f: (f.instant, f.partition, f.file_id))

    def read(file: BaseFile) -> tuple[str, str, str, pa.Array]:
        keys = stored_keys(snapshot.storage, file.path, [RECORD_KEY], file.size).column(0)
        return file.partition, file.file_id, file.instant, keys

    return located(parallel_map(read, files))


def stored_pairs(snapshot: Snapshot, field: str, index_version: int) -> pa.Table:
    """`value` and `record_key` of every stored row, read from the latest base files."""

    def read(file: BaseFile) -> pa.Table:
        rows = stored_keys(snapshot.storage, file.path, [RECORD_KEY, field.partition(".")[0]], file.size)
        missing = field.partition(".")[0] not in rows.schema.names
        texts = pa.nulls(rows.num_rows, pa.string()) if missing else secondary_text(Column(field).arrow(rows))
        return indexed_pairs(texts, rows.column(RECORD_KEY), index_version)

    empty = pa.table({"value": pa.array([], pa.string()), "record_key": pa.array([], pa.string())})
    return pa.concat_tables([empty, *parallel_map(read, list(snapshot.base_files()))])


def key_index_groups(snapshot: Snapshot, name: IndexName, sizing: GroupSizing | None = None) -> NewIndex:
    """What an index of record keys begins with, made in this process, and its definition.

    Raises `IndexInconsistent` for a record index on keys that are not unique.
    """
    version = snapshot.config.version
    if name.column is None:
        places = stored_places(snapshot, partitioned=name.partitioned, unique=True)
        groups = record_index_groups(places, version, partitioned=name.partitioned, sizing=sizing)
        return groups, record_index_definition(version, partitioned=name.partitioned)
    definition = secondary_index_definition(name.partition, name.column, version)
    pairs = stored_pairs(snapshot, name.column, definition.version)
    return secondary_index_groups(pairs, definition, version, sizing), definition


def record_index_groups(
    places: pa.Table, version: int, *, partitioned: bool, sizing: GroupSizing | None = None
) -> list[GroupRecords]:
    """What the file groups of a new record index begin with; as many of them as Hudi would make."""
    keys, values = encoded_places(places, form_of_version(version))
    if not partitioned:
        count = (sizing or GroupSizing()).file_groups(len(keys))
        return grouped(RECORD_INDEX, Records.upserts(keys, values), [(None, n) for n in range(count)])
    paths = places["partition"].cast(pa.string()).combine_chunks()
    counts = paths.value_counts()
    rows = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
    sizes = {path: (sizing or PARTITIONED_SIZING).file_groups(n) for path, n in sorted(rows.items())}
    groups = [(path, n) for path, count in sizes.items() for n in range(count)]
    return grouped(RECORD_INDEX, Records.upserts(keys, values, paths), groups)


def secondary_index_groups(
    pairs: pa.Table, definition: IndexDefinition, version: int, sizing: GroupSizing | None = None
) -> list[GroupRecords]:
    """What the file groups of a new secondary index begin with."""
    keys, values = entries(pairs, form_of_version(version))
    count = (sizing or GroupSizing()).file_groups(len(keys))
    records = Records.upserts(keys, values)
    return grouped(definition.name, records, [(None, n) for n in range(count)], definition.version)


def grouped(
    partition: str, records: Records, groups: Sequence[tuple[str | None, int]], index_version: int = 1
) -> list[GroupRecords]:
    """Records by file group; the groups are (partition path of the data, number)."""
    ids = {file_id(partition, number, path): (path, number) for path, number in groups}
    ordered = sorted(ids)
    parts: Mapping[int, tuple[pa.StringArray, pa.BinaryArray, pa.StringArray]] = {}
    if len(records.keys):
        parts = split_by_group(partition, records, ordered, index_version)
    none = (pa.array([], pa.string()), pa.array([], pa.binary()), None)
    filled = {id_: GroupRecords(*parts.get(at, none)[:2], ids[id_][0]) for at, id_ in enumerate(ordered)}
    return [filled[file_id(partition, number, path)] for path, number in groups]


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

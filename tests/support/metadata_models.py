"""A table whose metadata table is written by `MetadataStore`, and plain dictionaries of what it must say."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.metadata.lookups import MetadataTable, open_metadata
from lakebed.metadata_kinds import files as files_module
from lakebed.metadata_kinds import record_index
from lakebed.metadata_records import stats_codec
from lakebed.metadata_records.definitions import IndexDefinition
from lakebed.metadata_records.layout import (
    ALL_PARTITIONS,
    column_stats_keys,
    file_keys,
    partition_identifier,
    partition_stats_keys,
)
from lakebed.metadata_records.records import GroupRecords, Records, RecordType, record_form
from lakebed.metadata_records.stats_codec import stats_schema
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.creation import create, initialise
from lakebed.metadata_upkeep.rollback import roll_back
from lakebed.metadata_upkeep.store import MetadataSettings, MetadataStore
from lakebed.model import Action, CommitMetadata
from lakebed.properties.file import create_table, load_table_config
from lakebed.properties.new_table import new_table_properties
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.commit import encode_commit
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.locks import held

Files = dict[str, dict[str, int]]
COLUMN = "price"
NO_KEYS = pa.array([], pa.string())


@dataclass
class Content:
    """What the metadata table says: files by partition path, their stats of one column, locations of record keys."""

    files: Files = field(default_factory=dict)
    stats: dict[str, tuple[int, int]] = field(default_factory=dict)
    partition_stats: dict[str, tuple[int, int]] = field(default_factory=dict)
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)

    def copy(self) -> Content:
        return copy.deepcopy(self)


@dataclass
class Change:
    """One commit: files added and removed, ranges of partitions, keys put and deleted."""

    added: Files = field(default_factory=dict)
    removed: dict[str, list[str]] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    put: dict[str, tuple[str, str]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    def on(self, content: Content) -> Content:
        new = content.copy()
        for partition, files in self.added.items():
            new.files.setdefault(partition, {}).update(files)
            new.stats |= {name: (size, size + 5) for name, size in files.items()}
        for partition, names in self.removed.items():
            for name in names:
                del new.files[partition][name]
                new.stats.pop(name, None)
        new.partition_stats |= self.ranges
        for key in self.deleted:
            new.keys.pop(key, None)
        new.keys |= self.put
        return new


def new_table(storage: Storage, version: int) -> TableConfig:
    properties = new_table_properties(name="t", version=version, key_fields=["id"], partition_fields=["city"])
    return create_table(storage, properties)


class Maintained:
    """A table on a storage, its own instants made by hand."""

    def __init__(self, storage: Storage, version: int, settings: MetadataSettings | None = None) -> None:
        self.storage = storage
        self.version = version
        self.settings = settings or MetadataSettings()
        self.clock = InstantClock("UTC")
        self.form = record_form(version)

    @property
    def config(self) -> TableConfig:
        return load_table_config(self.storage)

    @property
    def timeline(self) -> Timeline:
        return load_timeline(self.storage, self.config)

    def store(self) -> MetadataStore:
        return MetadataStore(self.storage, self.config, self.timeline, self.settings, lock_is_held=held)

    def opened(self) -> MetadataTable:
        metadata = open_metadata(self.storage, self.config, self.timeline)
        assert metadata is not None
        return metadata

    def next_time(self) -> str:
        return self.clock.next(after=self.timeline.greatest_time)

    # the data table's own instants

    def begin(self) -> str:
        instant = self.next_time()
        steps = TimelineWriter(self.storage, self.config)
        steps.request(Action.COMMIT, instant)
        steps.inflight(Action.COMMIT, instant)
        return instant

    def complete(self, instant: str) -> None:
        body = encode_commit(CommitMetadata("UPSERT", extra={"schema": ""}), self.version, Action.COMMIT)
        TimelineWriter(self.storage, self.config).complete(Action.COMMIT, instant, self.next_time(), body)

    def undo(self, instant: str) -> None:
        """As a rollback of the data table's instant: the metadata table first, then the pending files."""
        at = self.next_time()
        roll_back(self.store(), instant, at)
        pending = next(i for i in self.timeline.pending if i.time == instant)
        TimelineWriter(self.storage, self.config).remove_pending(pending)

    def commit(self, change: Change) -> str:
        instant = self.begin()
        apply_delta(self.store(), instant, self.records(change, instant))
        self.complete(instant)
        return instant

    def archive_data(self, keep: int) -> None:
        """Take the oldest instants off the data table's timeline, as archival does."""
        timeline = self.timeline
        gone = {i.time for i in timeline.completed[:-keep]}
        for name in timeline.files:
            if name.split(".")[0].split("_")[0] in gone:
                self.storage.delete(f"{self.config.timeline_path}/{name}")

    # records

    def initialise(self, content: Content, shards: int = 3) -> None:
        store = self.store()
        create(store)
        first = Change(added=content.files, ranges=content.partition_stats, put=content.keys)
        records = self.records(first, "20200101000000000")
        for partition, groups in (("files", 1), ("column_stats", 2), ("record_index", shards), ("partition_stats", 1)):
            if partition in records:
                initialise(store, partition, self.groups(records[partition], groups), self.definition(partition))

    def definition(self, partition: str) -> IndexDefinition | None:
        if partition == "column_stats":
            version = 2 if self.version >= 9 else 1
            return IndexDefinition(partition, partition, partition, (COLUMN,), version=version)
        if partition == "record_index":
            return IndexDefinition(partition, partition, options={"isPartitioned": "false"})
        return None

    def groups(self, records: Records, count: int) -> list[GroupRecords]:
        from lakebed.metadata_kinds.routing import split_by_group

        ids = [f"x-{n:04d}" for n in range(count)]
        parts = split_by_group("any", records, ids, 1)
        empty = GroupRecords(NO_KEYS, pa.array([], pa.binary()))
        return [GroupRecords(*parts[n][:2]) if n in parts else empty for n in range(count)]

    def records(self, change: Change, instant: str) -> dict[str, Records]:
        found = {"files": self._files(change), "column_stats": self._stats(change)}
        found["record_index"] = self._keys(change, instant)
        if self.version >= 8:
            found["partition_stats"] = self._partition_stats(change)
        return found

    def _files(self, change: Change) -> Records:
        rows: list[dict[str, Any]] = []
        partitions = sorted({*change.added, *change.removed})
        rows += [_entry(ALL_PARTITIONS, partition_identifier(p), 0) for p in partitions]
        rows = rows or [{"key": ALL_PARTITIONS, "name": None, "size": None, "is_deleted": None}]
        for p in partitions:
            rows += [_entry(partition_identifier(p), name, size) for name, size in change.added.get(p, {}).items()]
            rows += [_entry(partition_identifier(p), name, 0, gone=True) for name in change.removed.get(p, [])]
        keys, values = files_module.encode(pa.Table.from_pylist(rows, files_module.SCHEMA), self.form)
        return Records.upserts(keys, values)

    def _stats(self, change: Change) -> Records:
        added = [(p, name, size) for p, files in change.added.items() for name, size in files.items()]
        gone = [(p, name) for p, names in change.removed.items() for name in names]
        places = file_keys([p for p, _, _ in added], [n for _, n, _ in added])
        rows = {
            "key": column_stats_keys(COLUMN, places),
            "file_name": [name for _, name, _ in added],
            "min": [size for _, _, size in added],
            "max": [size + 5 for _, _, size in added],
        }
        keys, values = self._encoded(rows, RecordType.COLUMN_STATS, tight=False)
        deleted = column_stats_keys(COLUMN, file_keys([p for p, _ in gone], [n for _, n in gone]))
        if self.version >= 8:
            return Records(keys, values, deleted)
        tombs = {
            "key": deleted,
            "file_name": [n for _, n in gone],
            "min": [None] * len(gone),
            "max": [None] * len(gone),
        }
        more = self._encoded(tombs, RecordType.COLUMN_STATS, tight=False, deleted=True)
        return Records.upserts(pa.concat_arrays([keys, more[0]]), pa.concat_arrays([values, more[1]]))

    def _partition_stats(self, change: Change) -> Records:
        paths = list(change.ranges)
        rows = {
            "key": partition_stats_keys(COLUMN, paths),
            "file_name": paths,
            "min": [low for low, _ in change.ranges.values()],
            "max": [high for _, high in change.ranges.values()],
        }
        return Records.upserts(*self._encoded(rows, RecordType.PARTITION_STATS, tight=True))

    def _encoded(self, rows: dict[str, Any], kind: RecordType, *, tight: bool, deleted: bool = False) -> Any:
        n = len(rows["file_name"])
        more = {"null_count": [0] * n, "value_count": [9] * n, "total_size": [1] * n, "total_uncompressed": [1] * n}
        flags = {"is_deleted": [deleted] * n, "is_tight": [tight] * n}
        table = pa.table({**rows, **more, **flags}, schema=stats_schema(pa.int64()))
        version = 2 if self.version >= 9 else 1
        return stats_codec.encode({COLUMN: table}, self.form, index_version=version, record_type=kind)

    def _keys(self, change: Change, instant: str) -> Records:
        deleted = pa.array(change.deleted, pa.string())
        if not change.put:
            return Records.deletes(deleted)
        table = pa.table(
            {
                "key": list(change.put),
                "partition": [p for p, _ in change.put.values()],
                "file_id": [f for _, f in change.put.values()],
                "instant": [instant] * len(change.put),
            }
        )
        keys, values = record_index.encode(table, self.form)
        return Records(keys, values, deleted)

    # what it says

    def content(self) -> Content:
        metadata = self.opened()
        files: Files = {partition: {} for partition in metadata.partitions()}
        for row in metadata.files().to_pylist():
            files[row["partition"]][row["name"]] = row["size"]
        found = Content(files)
        for table in metadata.column_stats([COLUMN]).values():
            found.stats = {r["file_name"]: (r["min"], r["max"]) for r in table.to_pylist()}
        if self.version >= 8:
            for table in metadata.partition_stats([COLUMN]).values():
                found.partition_stats = {r["file_name"]: (r["min"], r["max"]) for r in table.to_pylist()}
        for table in metadata.entries("record_index"):
            found.keys |= {r["key"]: (r["partition"], r["file_id"]) for r in table.to_pylist()}
        return found


def lookups(table: Maintained, keys: list[str]) -> dict[str, tuple[str, str]]:
    rows = table.opened().record_locations(pa.array(keys, pa.string())).to_pylist()
    return {row["key"]: (row["partition"], row["file_id"]) for row in rows}


def _entry(key: str, name: str, size: int, *, gone: bool = False) -> dict[str, Any]:
    return {"key": key, "name": name, "size": size, "is_deleted": gone}


class Random:
    """Random changes of a table."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.made = 0

    def file_id(self) -> str:
        self.made += 1
        return f"{self.made:08x}-0000-4000-8000-{self.made:012x}-0"

    def change(self, content: Content) -> Change:
        rng = self.rng
        change = Change()
        for p in rng.choice(["a", "b", "c/d", "é"], size=rng.integers(1, 3), replace=False).tolist():
            file_ids = [self.file_id() for _ in range(rng.integers(0, 3))]
            change.added[p] = {f"{f}_0-0-0_1.parquet": int(rng.integers(1, 1 << 20)) for f in file_ids}
            known = list(content.files.get(p, {}))
            change.removed[p] = [name for name in known if rng.random() < 0.2]
            change.ranges[p] = (int(rng.integers(0, 10)), int(rng.integers(10, 99)))
            for file_id in file_ids:
                change.put |= {f"k{n}": (p, file_id) for n in rng.integers(0, 200, 8).tolist()}
        change.deleted = [key for key in content.keys if key not in change.put and rng.random() < 0.1]
        return change

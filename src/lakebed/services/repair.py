"""Making a metadata table say what the data says: only the records that differ are written, to their file groups."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, LakebedError
from lakebed.format.hashes import plain_strings
from lakebed.metadata.keys import ALL_PARTITIONS, partition_of
from lakebed.metadata.kinds import stats_records
from lakebed.metadata.kinds.record_index_updates import encoded_places
from lakebed.metadata.kinds.secondary_updates import entries
from lakebed.metadata.kinds.stats_columns import index_version_of
from lakebed.metadata.kinds.updates import NewFile, bloom_records_of, file_records
from lakebed.metadata.layout import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    is_expression_index,
)
from lakebed.metadata.read.stats_lookup import Stats
from lakebed.metadata.record_values import RecordType
from lakebed.metadata.routing import Records
from lakebed.metadata.schemas import form_of_version
from lakebed.metadata.store.slices import open_slices
from lakebed.metadata.store.suffixes import REPAIRS
from lakebed.metadata.store.writer import MetadataWriter
from lakebed.model import path_in
from lakebed.services.rebuilding import rebuild_damaged
from lakebed.services.verification import DIFFERENCES, Verification, verify_partitions
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.clock import InstantClock
from lakebed.timeline.instants import INSTANT_DIGITS, without_suffix
from lakebed.timeline.locks.lock import default_lock
from lakebed.timeline.properties_file import load_table_config
from lakebed.timeline.table_config import TableConfig
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.upkeep.expected_expressions import ExpectedExpressions
from lakebed.upkeep.expected_records import ExpectedRecords


def repair(storage: Storage, partitions: Sequence[str] | None = None) -> Verification:
    """Verify, and write what differs: the records that are wrong are deleted in one delta commit of the metadata table,
    then they and the missing ones are written in a second. Gives what was found (and is right now).

    What cannot be read is built again before, the whole metadata table where its timeline or its list of files is
    damaged; the differences name it as "damaged".

    Raises `CommitConflict` while a write to the table is pending.
    """
    settings = WriteSettings()
    with default_lock(storage, wait_seconds=settings.lock_wait_seconds):
        config = load_table_config(storage)
        timeline = load_timeline(storage, config)
        snapshot = Snapshot(storage, config, timeline)
        wanted = config.metadata_partitions if partitions is None else partitions
        if FILES not in config.metadata_partitions:
            return Verification(DIFFERENCES.empty_table(), ())
        if timeline.pending:
            raise CommitConflict(
                f"the metadata table cannot be repaired while instant {timeline.pending[0].time} is pending",
                hint="Try again when the writers are done; what dead ones left is undone by the next write.",
            )
        damage = rebuild_damaged(snapshot, wanted, settings)
        if damage.num_rows:
            config = load_table_config(storage)
            snapshot = Snapshot(storage, config, timeline)
        assert snapshot.metadata is not None
        found = verify_partitions(snapshot, snapshot.metadata, wanted)
        if found.ok:
            return Verification(damage, found.checked, found.left_out)
        fix = _Repair(snapshot, found)
        for records in (fix.deletes(), fix.upserts()):
            if records:
                MetadataWriter(storage, config, timeline).apply(_instant(storage, config, timeline), records)
        return Verification(pa.concat_tables([damage, found.differences]), found.checked, found.left_out)


class _Repair:
    """The records that put the differences right."""

    def __init__(self, snapshot: Snapshot, found: Verification) -> None:
        self._found = found
        self._data = ExpectedRecords(Snapshot(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False))
        self._expressions = ExpectedExpressions(self._data)
        self._form = form_of_version(snapshot.config.version)
        self._version = index_version_of(snapshot.config.version)
        self._instant = snapshot.instant

    def deletes(self) -> dict[str, Records]:
        """What is wrong or too much goes."""
        said: dict[str, Records] = {}
        for partition in self._found.checked:
            gone = self._rows(partition, "extra", "wrong")
            if not gone.num_rows:
                continue
            if partition == FILES:
                said[FILES] = self._unlisted(gone)
                continue
            keys = gone["key"].combine_chunks()
            paths = None
            if partition == RECORD_INDEX and self._data.indexes.partitioned:
                paths = gone["entry"].combine_chunks()
            said[partition] = Records.deletes(keys, paths)
        return said

    def upserts(self) -> dict[str, Records]:
        """What is missing or was wrong comes."""
        said: dict[str, Records] = {}
        for partition in self._found.checked:
            rows = self._rows(partition, "missing", "wrong")
            if rows.num_rows:
                said[partition] = self._records(partition, rows)
        return said

    def _rows(self, partition: str, *problems: str) -> pa.Table:
        rows = self._found.of(partition)
        return rows.filter(pc.is_in(rows["problem"], value_set=pa.array(problems)))

    def _records(self, partition: str, rows: pa.Table) -> Records:
        keys = rows["key"].combine_chunks()
        if partition == FILES:
            return self._listed(rows)
        if partition == COLUMN_STATS:
            return Records.upserts(*self._stats(self._data.stats, keys, RecordType.COLUMN_STATS))
        if partition == PARTITION_STATS:
            return Records.upserts(*self._stats(self._data.partition_stats, keys, RecordType.PARTITION_STATS))
        if partition == BLOOM_FILTERS:
            labels = set(rows["what"].to_pylist())
            files = [f for f in self._data.files if (path_in(f.partition, f.name)) in labels]
            return bloom_records_of(files, self._instant, self._form)
        if partition == RECORD_INDEX:
            return self._places(rows)
        if is_expression_index(partition):
            return self._expressions.records(partition, keys, self._instant)
        pairs = self._data.pairs(partition)
        whole = entries(pairs, self._form)
        chosen = pc.is_in(whole[0], value_set=keys)
        return Records.upserts(whole[0].filter(chosen), whole[1].filter(chosen))

    def _places(self, rows: pa.Table) -> Records:
        places = self._data.places
        if not self._data.indexes.partitioned:
            chosen = places.filter(pc.is_in(places["key"], value_set=rows["key"].combine_chunks()))
            return Records.upserts(*encoded_places(chosen, self._form))
        mine = pc.binary_join_element_wise(rows["key"], rows["entry"], "\0")
        theirs = pc.binary_join_element_wise(places["key"], places["partition"].cast(pa.string()), "\0")
        chosen = places.filter(pc.is_in(theirs, value_set=mine.combine_chunks()))
        return Records.upserts(*encoded_places(chosen, self._form), plain_strings(chosen["partition"]))

    def _stats(self, stats: Stats, keys: pa.Array, kind: RecordType) -> tuple[pa.StringArray, pa.BinaryArray]:
        chosen = {column: table.filter(pc.is_in(table["key"], value_set=keys)) for column, table in stats.items()}
        some = {column: table for column, table in chosen.items() if len(table)}
        return stats_records.encode(some, self._form, index_version=self._version, record_type=kind)

    def _listed(self, rows: pa.Table) -> Records:
        sizes = {(f.partition, f.name): f.size for f in self._data.listed[0]}
        files: list[NewFile] = []
        partitions: list[str] = []
        for row in rows.to_pylist():  # one a file that differs
            if row["key"] == ALL_PARTITIONS:
                partitions.append(partition_of(row["entry"]))
            else:
                path = partition_of(row["key"])
                files.append(NewFile(path, row["entry"], sizes[path, row["entry"]]))
        return file_records(files, self._form, partitions=partitions)

    def _unlisted(self, rows: pa.Table) -> Records:
        removed: dict[str, list[str]] = {}
        gone: list[str] = []
        for row in rows.to_pylist():  # one a file that differs
            if row["key"] == ALL_PARTITIONS:
                gone.append(partition_of(row["entry"]))
            else:
                removed.setdefault(partition_of(row["key"]), []).append(row["entry"])
        return file_records([], self._form, removed={p: n for p, n in removed.items() if p not in gone}, gone=gone)


def _instant(storage: Storage, config: TableConfig, timeline: Timeline) -> str:
    """An instant for a commit of the metadata table alone."""
    own = open_slices(storage, config, timeline)
    assert own is not None
    times = {i.time for i in own.timeline.instants}
    if config.version >= 8:
        return InstantClock(config.timezone).next(after=max(timeline.greatest_time, own.timeline.greatest_time))
    last = without_suffix(max((i.time for i in own.timeline.commits), default="0" * INSTANT_DIGITS))
    for suffix in REPAIRS:
        if f"{last}{suffix}" not in times and f"{last}{suffix}" > max(times):
            return f"{last}{suffix}"
    raise LakebedError(
        "the metadata table was repaired several times since the last commit",
        hint="Write to the table, then repair it again.",
    )

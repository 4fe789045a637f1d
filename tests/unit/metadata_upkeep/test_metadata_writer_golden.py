"""Delta commits, compaction and re-sharding on the metadata tables that real Hudi wrote."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.metadata.lookups import MetadataTable, open_metadata
from lakebed.metadata_kinds import files as files_module
from lakebed.metadata_kinds import record_index
from lakebed.metadata_kinds.record_index import data_partition_of
from lakebed.metadata_records.layout import ALL_PARTITIONS, FILES, partition_identifier
from lakebed.metadata_records.records import Records, record_form
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.resharding import reshard
from lakebed.metadata_upkeep.services import run_services
from lakebed.metadata_upkeep.store import MetadataSettings, MetadataStore
from lakebed.model import RECORD_INDEX, SECONDARY_INDEX, Action, CommitMetadata
from lakebed.properties.file import load_table_config
from lakebed.testing import CountingStorage
from lakebed.timeline.bodies.commit import encode_commit
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.golden_tables import golden
from support.locks import held
from support.opened_tables import WITH_INDEXES, unpacked

COMPACT = MetadataSettings(compact_after=1)
NEW_FILE = "0a000000-0000-4000-8000-00000000000a-0_0-0-0_20990101000000000.parquet"
FILE_ID = NEW_FILE.split("_")[0]


class Table:
    """A golden table in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.storage: CountingStorage = unpacked(name)
        self.config = load_table_config(self.storage)

    def store(self, settings: MetadataSettings | None = None) -> MetadataStore:
        return MetadataStore(
            self.storage, self.config, load_timeline(self.storage, self.config), settings, lock_is_held=held
        )

    def opened(self) -> MetadataTable:
        metadata = open_metadata(self.storage, self.config, load_timeline(self.storage, self.config))
        assert metadata is not None
        return metadata

    def everything(self) -> dict[str, list[str]]:
        """Each partition's content as sorted texts."""
        metadata, found = self.opened(), dict[str, list[str]]()
        for partition in metadata.slices.partitions:
            rows: list[Any] = []
            if partition == "column_stats":
                stats = [metadata.column_stats()]
            elif partition == "partition_stats":
                stats = [metadata.partition_stats()]
            elif partition.startswith("expr_index") and self.is_of_stats(partition):
                stats = list(metadata.expression_stats(partition))
            elif partition.startswith("expr_index"):
                files = [(row["partition"], row["name"]) for row in metadata.files().to_pylist()]
                rows, stats = metadata.expression_bloom_filters(partition, files).to_pylist(), []
            else:
                rows, stats = [row for table in metadata.entries(partition) for row in table.to_pylist()], []
            rows += [(c, row) for part in stats for c, table in part.items() for row in table.to_pylist()]
            found[partition] = sorted(map(str, rows))
        return found

    def is_of_stats(self, partition: str) -> bool:
        return self.opened().slices.definitions[partition].type == "column_stats"

    def commit(self, records: dict[str, Records], instant: str) -> None:
        steps = TimelineWriter(self.storage, self.config)
        action = Action.DELTACOMMIT if self.config.table_type == "mor" else Action.COMMIT
        steps.request(action, instant)
        steps.inflight(action, instant)
        apply_delta(self.store(), instant, records)
        body = encode_commit(CommitMetadata("UPSERT", extra={"schema": ""}), self.config.version, action)
        steps.complete(action, instant, InstantClock("UTC").next(after=instant), body)

    def next_instant(self) -> str:
        return InstantClock("UTC").next(after=load_timeline(self.storage, self.config).greatest_time)


def delta(table: Table, before: dict[str, list[str]], instant: str) -> tuple[dict[str, Records], dict[str, list[str]]]:
    """Records of one new file and, where there is a record index, of a new key and a deleted one; the content then."""
    metadata, form = table.opened(), record_form(table.config.version)
    after = dict(before)
    path = metadata.partitions()[0]
    rows = [
        {"key": ALL_PARTITIONS, "name": partition_identifier(path), "size": 0, "is_deleted": False},
        {"key": partition_identifier(path), "name": NEW_FILE, "size": 77, "is_deleted": False},
    ]
    records = {FILES: Records.upserts(*files_module.encode(pa.Table.from_pylist(rows, files_module.SCHEMA), form))}
    after[FILES] = sorted([*before[FILES], str(rows[1])])
    if RECORD_INDEX in before:
        old = next(metadata.entries(RECORD_INDEX)).slice(0, 1).to_pylist()[0]
        new = pa.table({"key": ["new-key"], "partition": [path], "file_id": [FILE_ID], "instant": [instant]})
        parts = (pa.array([path]), pa.array([old["partition"]])) if is_partitioned(metadata) else (None, None)
        keys, values = record_index.encode(new, form)
        records[RECORD_INDEX] = Records(keys, values, pa.array([old["key"]]), *parts)
        kept = [text for text in before[RECORD_INDEX] if text != str(old)]
        after[RECORD_INDEX] = sorted([*kept, str(new.to_pylist()[0])])
    return records, after


def is_partitioned(metadata: MetadataTable) -> bool:
    return data_partition_of(metadata.slices.file_slices(RECORD_INDEX)[0].file_id) is not None


@pytest.mark.parametrize("name", WITH_INDEXES)
def test_a_delta_commit_then_compaction(name: str) -> None:
    table = Table(name)
    before = table.everything()
    instant = table.next_instant()
    records, after = delta(table, before, instant)
    table.commit(records, instant)
    assert table.everything() == after
    done = run_services(table.store(COMPACT))
    assert any("compaction" in text for text in done)
    assert table.everything() == after
    slices = table.opened().slices
    for partition in slices.partitions:
        assert all(s.base_file and not s.log_files for s in slices.file_slices(partition))


@pytest.mark.parametrize(
    "name", [name for name in WITH_INDEXES if RECORD_INDEX in golden(name).entry["metadata_partitions"]]
)
def test_resharding_a_golden_table_changes_no_record(name: str) -> None:
    table = Table(name)
    before = table.everything()
    slices = table.opened().slices
    for partition in slices.partitions:
        if partition == RECORD_INDEX and is_partitioned(table.opened()):
            paths = {data_partition_of(s.file_id) or "" for s in slices.file_slices(partition)}
            assert reshard(table.store(), partition, {path: 2 + n for n, path in enumerate(sorted(paths))})
        elif partition == RECORD_INDEX or partition.startswith(SECONDARY_INDEX):
            assert reshard(table.store(), partition, len(slices.file_slices(partition)) + 3)
    assert table.everything() == before
    keys = [row["key"] for part in table.opened().entries(RECORD_INDEX) for row in part.to_pylist()]
    assert set(table.opened().record_locations(pa.array(keys))["key"].to_pylist()) == set(keys)
    instant = table.next_instant()
    records, after = delta(table, before, instant)
    table.commit(records, instant)
    assert table.everything() == after
    for partition in slices.partitions:
        if partition.startswith(SECONDARY_INDEX):
            values = {row["value"] for part in table.opened().entries(partition) for row in part.to_pylist()}
            found = table.opened().record_keys_of_secondary(partition, pa.array(sorted(values, key=str), pa.string()))
            assert set(found["value"].to_pylist()) == values

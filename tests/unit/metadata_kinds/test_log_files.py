"""Log files among what an action wrote: they join their slices, and nothing opens them as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from lakebed.config.settings import WriteSettings
from lakebed.errors import CorruptFile
from lakebed.format.column_ranges import COUNTS, as_stream
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.base import TableAction
from lakebed.metadata_kinds.key_changes import compared
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_kinds.stored import live_after, live_files
from lakebed.metadata_records import stats_codec
from lakebed.metadata_records.layout import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS
from lakebed.metadata_records.records import record_schema
from lakebed.model import BaseFile, CommitMetadata, FileSlice, LogFile, WriteStat
from lakebed.properties.table_config import TableConfig
from lakebed.slices.reader import SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.write_status import WriteStatus, from_table, of_slice, to_batch
from support.write_tables import last_commit, rows

Make = Callable[..., Table]
INSTANT = "20990101000000000"
PARTITIONS = (FILES, COLUMN_STATS, PARTITION_STATS, BLOOM_FILTERS)


def written(table: Table) -> tuple[Snapshot, WriteStat]:
    """A table of two rows in one file group, and the stat of a log file on top of it; nothing of it is in storage."""
    table.upsert(rows((1, "c1", "a", 10), (2, "c1", "b", 20)))
    snapshot = open_snapshot(open_storage(table.uri))
    (file_slice,) = snapshot.file_slices()
    assert file_slice.base_file is not None
    name = f".{file_slice.file_id}_{INSTANT}.log.1_0-1-0"
    base = file_slice.base_file.name
    status = WriteStatus("c1", file_slice.file_id, f"c1/{name}", base_file=base, log_files=[name], log_version=1)
    return snapshot, replace(status, log_offset=0, file_size=99, num_updates=1, num_writes=1).stat()


def action_of(table: Table, *, ranges: bytes | None = None) -> TableAction:
    snapshot, stat = written(table)
    commit = CommitMetadata("UPSERT", {"c1": (stat,)}, extra={"schema": last_commit(table).schema})
    status = WriteStatus("c1", stat.file_id, stat.path, log_files=stat.log_files, ranges=ranges)
    return TableAction(snapshot, WriteSettings(), INSTANT, commit, [status], PARTITIONS)


def test_a_log_file_leaves_its_base_file_live(make: Make) -> None:
    action = action_of(make(indexes=["bloom_filters"]))
    (stat,), (file_slice,) = action.commit.stats["c1"], action.snapshot.file_slices()
    assert file_slice.base_file is not None
    both = {file_slice.base_file.name, stat.path.rpartition("/")[2]}
    assert live_after(action.snapshot, action.commit) == {"c1": both}
    new_base = replace(stat, path=f"c1/{stat.file_id}_0-1-0_{INSTANT}.parquet", log_files=None)
    commit = CommitMetadata("UPSERT", {"c1": (new_base,)})
    assert live_after(action.snapshot, commit) == {"c1": {f"{stat.file_id}_0-1-0_{INSTANT}.parquet"}}
    log = LogFile("c1", "f", INSTANT, 1, "0-1-0", "log", 5)
    assert live_files([FileSlice("c1", "f", INSTANT, None, (log,))]) == {"c1": {"log"}}


def test_ranges_that_no_write_reported_are_unknown(make: Make) -> None:
    action = action_of(make(indexes=["bloom_filters"]))
    records = {p: kind_of(p).records_of_action(p, action) for p in PARTITIONS}
    blooms = records[BLOOM_FILTERS]
    assert blooms is not None
    assert len(blooms.keys) == 0
    found = column_ranges(action, COLUMN_STATS)["ts"]
    assert (found["min"], found["max"]) == (-(2**63), 2**63 - 1)
    of_path = column_ranges(action, PARTITION_STATS)["ts"]
    assert (of_path["min"], of_path["max"]) == (-(2**63), 2**63 - 1)


def test_reported_ranges_widen_those_of_the_partition_path(make: Make) -> None:
    bounds = {"min": pa.array([15]), "max": pa.array([70])}
    counts = {name: pa.array([1 if name == "value_count" else 0]) for name in COUNTS}
    struct = pa.StructArray.from_arrays([*bounds.values(), *counts.values()], names=[*bounds, *counts])
    batch = pa.RecordBatch.from_arrays([struct], names=["ts"])
    action = action_of(make(), ranges=as_stream(batch))
    found = column_ranges(action, COLUMN_STATS)["ts"]
    assert (found["min"], found["max"]) == (15, 70)
    of_path = column_ranges(action, PARTITION_STATS)["ts"]
    assert (of_path["min"], of_path["max"]) == (10, 70)


def column_ranges(action: TableAction, partition: str) -> dict[str, dict[str, int]]:
    """The ranges by column of the one record each that an action says to a partition of statistics."""
    records = kind_of(partition).records_of_action(partition, action)
    assert records is not None
    tables = stats_codec.decode(records.keys, records.values, record_schema(action.form))
    return {column: table.to_pylist()[0] for column, table in tables.items() if len(table)}


def test_statuses_and_stats_carry_the_files_of_a_slice() -> None:
    base = BaseFile("p", "f", "", "", "f_0-1-0_20240101000000000.parquet", 7)
    names = [f".f_2024010200000000{n}.log.1_0-1-0" for n in range(2)]
    status = WriteStatus("p", "f", f"p/{names[1]}", base_file=base.name, log_files=names, log_version=1, log_offset=0)
    (back,) = from_table(pa.Table.from_batches([to_batch([status])]))
    assert back == status
    before, after = back.slices()
    assert before is not None
    assert [log.name for log in before.log_files] == names[:1]
    assert [log.name for log in after.log_files] == names
    assert before.base_file is not None
    assert before.base_file.name == base.name
    assert of_slice(after).slices()[1] == after
    assert back.stat().log_files == tuple(names)
    config = TableConfig({"hoodie.table.name": "t", "hoodie.table.type": "MERGE_ON_READ"})
    reader = SliceReader(open_storage("memory://log-files/t"), config)
    with pytest.raises(CorruptFile, match="is missing"):
        compared(reader, status, ())

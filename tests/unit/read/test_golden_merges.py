"""Golden merge-on-read tables, read without Spark: the rows that real Hudi read, by every kind of query."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.config.settings import ReadSettings
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import META_COLUMNS
from lakebed.read.incremental import Changes
from lakebed.read.lookup import KeyText, exists, get
from lakebed.read.moments import to_instant_time
from lakebed.read.scan import Scan
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from support.golden_tables import GoldenTable, golden_mor_tables, some_tables
from support.same_rows import assert_same_rows

AS_HUDI = ReadSettings(filter_before_merge=True)
# Answers of real Hudi that lakebed does not repeat, and why.
OTHER = {
    ("v6_mor_overwrite_latest", "timetravel"): "0.15.0 lets the greater ordering value win in the log",
    ("v6_mor_overwrite_latest", "incremental"): "0.15.0 lets the greater ordering value win in the log",
    ("v6_mor_overwrite_non_defaults", "timetravel"): "0.15.0 lets the greater ordering value win in the log",
    ("v6_mor_overwrite_non_defaults", "incremental"): "0.15.0 lets the greater ordering value win in the log",
    ("v8_mor_debezium_postgres", "snapshot"): "1.2.0 shows the marker where 1.0.2 and lakebed fill the older value",
    ("v6_mor_event_time", "000.."): "0.15.0 lets every delete record win",
    ("v9_mor_archival", "20261121112608041..20261121112618829"): "1.2.0 falls back to the newest state of rows",
}
# 1.0.2 takes the beginning of a range as inclusive. These tables of it were read by 1.2.0.
INCLUSIVE = "1.0.2"
READ_BY_NEWER = ("v8_mor_compaction", "v8_mor_delete_blocks")

# The rest is the same by shape; a larger set is read whole.
SOME = (
    "v6_mor_compaction",
    "v6_mor_corrupt_log",
    "v6_mor_event_time",
    "v6_mor_partial_update_payload",
    "v6_mor_rollback",
    "v8_mor_bucket_consistent",
    "v8_mor_compaction_pending",
    "v8_mor_mdt_secondary",
    "v8_mor_partial_update_payload",
    "v8_mor_partial_update_sql",
    "v9_mor_archival",
    "v9_mor_bucket_consistent_split",
    "v9_mor_delete_blocks",
    "v9_mor_debezium_postgres",
    "v9_mor_delete_marker",
    "v9_mor_event_time",
    "v9_mor_evolve_read",
    "v9_mor_evolve_write",
    "v9_mor_insert_overwrite",
    "v9_mor_log_compaction",
    "v9_mor_multi_ordering",
    "v9_mor_nbcc",
    "v9_mor_partial_update_payload",
    "v9_mor_rich_types",
    "w6_mor_delete_blocks",
)
every_table = pytest.mark.parametrize("table", some_tables(golden_mor_tables(), SOME), ids=str)


@every_table
def test_reads_what_hudi_read(table: GoldenTable, tmp_path: Path) -> None:
    snapshot = open_snapshot(open_storage(str(table.unpack(tmp_path))))
    _snapshot_and_lookups(table, snapshot)
    read_optimized = table.more("ro.parquet")
    if read_optimized is not None:
        scan = Scan(snapshot, meta=True, query="read_optimized")
        assert_same_rows(scan.to_arrow(), read_optimized)
        assert scan.count() == read_optimized.num_rows
    _time_travel(table, snapshot)
    _changes(table, snapshot)


def _snapshot_and_lookups(table: GoldenTable, snapshot: Snapshot) -> None:
    scan = Scan(snapshot, meta=True)
    found = scan.to_arrow()
    if (table.name, "snapshot") not in OTHER:
        assert_same_rows(found, table.expected)
    assert scan.count() == table.expected.num_rows
    keys = found["_hoodie_record_key"].combine_chunks()
    assert_same_rows(get(snapshot, KeyText(keys), columns=found.column_names), found)
    assert exists(snapshot, KeyText(["nobody", *keys.to_pylist()])).to_pylist() == [False] + [True] * len(keys)


def _time_travel(table: GoldenTable, snapshot: Snapshot) -> None:
    answers = table.more("timetravel.parquet")
    for query in (table.entry["expectations"].get("timetravel") or {}).get("queries", []):
        if "rows" not in query or (table.name, "timetravel") in OTHER:
            continue
        cut = open_snapshot(
            snapshot.storage, as_of=to_instant_time(query["instant"], snapshot.config.timezone, option="as_of")
        )
        scan = Scan(cut, meta=True)
        found, expected = scan.to_arrow(), _rows(answers, query["q"])
        newer = tuple(c for c in expected.column_names if c not in found.column_names)
        assert_same_rows(found, expected, without=newer)
        assert scan.count() == expected.num_rows


def _changes(table: GoldenTable, snapshot: Snapshot) -> None:
    answers = table.more("incremental.parquet")
    for query in (table.entry["expectations"].get("incremental") or {}).get("queries", []):
        if "rows" not in query or {(table.name, query["q"]), (table.name, "incremental")} & OTHER.keys():
            continue
        begin = query["begin"]
        if table.entry["hudi"] == INCLUSIVE and begin != "000" and table.name not in READ_BY_NEWER:
            begin = str(int(begin) - 1)
        expected = _rows(answers, query["q"])
        found = Changes(snapshot, begin, query.get("end"), meta=True, reads=AS_HUDI).to_arrow()
        assert set(found.column_names) == set(expected.column_names)
        assert_same_rows(found, expected)
        _are_of_a_snapshot(snapshot, Changes(snapshot, begin, query.get("end"), meta=True))


def _are_of_a_snapshot(snapshot: Snapshot, changes: Changes) -> None:
    """The changes are the rows of the snapshot at their end that the commits of the range wrote."""
    commits = [i.time for i in changes.range.commits]
    if not commits or changes.range.archived:
        return
    whole = Scan(snapshot.at(commits[-1]), meta=True).to_arrow()
    expected = whole.filter(pc.is_in(whole["_hoodie_commit_time"], value_set=pa.array(commits)))
    assert_same_rows(changes.to_arrow(), expected.select(META_COLUMNS))


def _rows(answers: pa.Table, query: str) -> pa.Table:
    return answers.filter(pc.equal(answers["_q"], query)).drop_columns(["_q"])

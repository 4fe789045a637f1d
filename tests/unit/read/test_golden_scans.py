"""Golden copy-on-write tables, scanned without Spark: the rows that real Hudi read, meta columns included."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.metadata.lookups import open_snapshot
from lakebed.read.incremental import Changes
from lakebed.read.moments import to_instant_time
from lakebed.read.scan import Scan
from lakebed.schema.spark import spark_type
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from support.golden_tables import GoldenTable, golden, golden_cow_tables, some_tables
from support.same_rows import assert_same_rows

# Real Hudi shows what the path says, lakebed what is stored: a row that stayed where it was when its partition
# column changed, and a path-encoded value.
FROM_PATH = {"v9_cow_global_no_move": ("region",)}
FROM_PATH_IN_CHANGES = FROM_PATH | {"v9_cow_hive_odd": ("region",), "v6_cow_hive_odd": ("region",)}
# Ranges for which real Hudi gives other rows, and why lakebed does not.
OTHER_CHANGES = {
    ("v6_cow_archival", "000.."): "0.15.0 leaves archived commits out",
    ("v9_cow_archival", "20261121111318518..20261121111331879"): "1.2.0 falls back to the newest state of rows",
}
# 1.0.2 takes the beginning of a range as inclusive.
INCLUSIVE = "1.0.2"

# The rest is the same by shape; a larger set is read whole.
SOME = (
    "v6_cow_archival",
    "v6_cow_hive_odd",
    "v6_cow_rich_types",
    "v6_cow_ts_unix",
    "v8_cow_evolve_write",
    "v8_cow_insert_overwrite",
    "v9_cow_archival",
    "v9_cow_clustering_inline",
    "v9_cow_evolve_read",
    "v9_cow_evolve_write",
    "v9_cow_global_no_move",
    "v9_cow_hive_odd",
    "v9_cow_no_meta",
    "v9_cow_rich_types",
    "v9_cow_savepoint_restore",
    "down_v9_to_v8_cow",
)
every_table = pytest.mark.parametrize("table", some_tables(golden_cow_tables(), SOME), ids=str)


def snapshot_of(table: GoldenTable, folder: Path) -> Snapshot:
    return open_snapshot(open_storage(str(table.unpack(folder))))


@every_table
def test_reads_what_hudi_read(table: GoldenTable, tmp_path: Path) -> None:
    snapshot = snapshot_of(table, tmp_path)
    scan = Scan(snapshot, meta=True)
    expected = table.expected
    assert_same_rows(scan.to_arrow(), expected, without=FROM_PATH.get(table.name, ()))
    assert scan.count() == expected.num_rows

    _time_travel(table, snapshot)
    if snapshot.config.populate_meta_fields:
        _changes(table, snapshot)


def _time_travel(table: GoldenTable, snapshot: Snapshot) -> None:
    answers = table.more("timetravel.parquet")
    for query in (table.entry["expectations"].get("timetravel") or {}).get("queries", []):
        if "rows" not in query:
            continue
        cut = open_snapshot(
            snapshot.storage, as_of=to_instant_time(query["instant"], snapshot.config.timezone, option="as_of")
        )
        found = Scan(cut, meta=True).to_arrow()
        expected = answers.filter(_is(answers, query["q"])).drop_columns(["_q"])
        newer = tuple(c for c in expected.column_names if c not in found.column_names)
        assert_same_rows(found, expected, without=(*newer, *FROM_PATH.get(table.name, ())))


def _changes(table: GoldenTable, snapshot: Snapshot) -> None:
    answers = table.more("incremental.parquet")
    for query in (table.entry["expectations"].get("incremental") or {}).get("queries", []):
        if "rows" not in query or (table.name, query["q"]) in OTHER_CHANGES:
            continue
        begin = query["begin"]
        if table.entry["hudi"] == INCLUSIVE and begin != "000":
            begin = str(int(begin) - 1)
        found = Changes(snapshot, begin, query.get("end"), meta=True).to_arrow()
        expected = answers.filter(_is(answers, query["q"])).drop_columns(["_q"])
        assert set(found.column_names) == set(expected.column_names)
        assert _nested(found.schema) == _nested(expected.schema)
        assert_same_rows(found, expected, without=FROM_PATH_IN_CHANGES.get(table.name, ()))


def _nested(schema: pa.Schema) -> dict[str, str]:
    """Columns that hold others, as the text of their Spark types."""
    return {f.name: spark_type(f.type) for f in schema if pa.types.is_nested(f.type)}


def _is(answers, query: str):
    import pyarrow.compute as pc

    return pc.equal(answers.column("_q"), query)


def test_stored_partition_value_wins_over_the_path(tmp_path: Path) -> None:
    snapshot = snapshot_of(golden("v9_cow_hive_odd"), tmp_path)
    found = Scan(snapshot, columns=["_hoodie_partition_path", "region"]).to_arrow().to_pylist()
    assert {"_hoodie_partition_path": "region=sl%2Fash", "region": "sl/ash"} in found
    assert {"_hoodie_partition_path": "region=__HIVE_DEFAULT_PARTITION__", "region": None} in found


def test_an_archived_table_gives_all_rows_since_the_beginning(tmp_path: Path) -> None:
    table = golden("v6_cow_archival")
    snapshot = snapshot_of(table, tmp_path)
    changes = Changes(snapshot, "000", meta=True)
    assert_same_rows(changes.to_arrow(), table.expected)
    assert changes.end == snapshot.instant

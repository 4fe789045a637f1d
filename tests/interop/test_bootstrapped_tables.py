"""Tables over files of another folder (metadata-only bootstrap): real Hudi and lakebed make them, read them, and write
to those of the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from oracle.client import HudiOracle
from support.bootstrapped import digests, flat_folder, hive_folder, rows_by_key, rows_of
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

FILE_NAME = "_hoodie_file_name"
CASES = (("mor", 9, "hive"), ("cow", 9, "flat"), ("cow", 9, "hive"), ("mor", 8, "hive"), ("cow", 6, "hive"))


def agree(table: lakebed.Table, oracle: HudiOracle) -> pa.Table:
    """What both read of the table, which is the same."""
    hudi = oracle.read(table.uri)
    assert_same_rows(lakebed.open(table.uri).scan(columns=hudi.column_names).to_arrow(), hudi)
    return hudi


@pytest.mark.parametrize(("kind", "version", "layout"), todays(CASES, 2, INTEROP))
def test_hudi_reads_and_updates_a_table_that_was_converted_in_place(
    kind: str, version: int, layout: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    source = (hive_folder if layout == "hive" else flat_folder)(tmp_path / "source")
    before, day = digests(source), "a" if layout == "hive" else "x"
    table = lakebed.convert(
        source, str(tmp_path / "table"), key="id", ordering="ts", type=kind, table_version=version, in_place=True
    )
    expected = rows_by_key(table)
    assert agree(table, oracle).num_rows == len(expected)

    oracle.write(table.uri, rows_of([1, 12, 700], day, 5000), options=hudi_job(table), keep_indexes=False)
    expected |= {row["id"]: row for row in rows_of([1, 12, 700], day, 5000).to_pylist()}
    agree(table, oracle)
    assert rows_by_key(lakebed.open(table.uri)) == expected

    table = lakebed.open(table.uri)
    table.upsert(rows_of([2, 12, 701], day, 7000))
    table.delete(["k003"])
    expected |= {row["id"]: row for row in rows_of([2, 12, 701], day, 7000).to_pylist()}
    del expected["k003"]
    agree(table, oracle)
    assert rows_by_key(table) == expected
    if kind == "mor":
        table.maintenance.compact()
        agree(table, oracle)
    table.maintenance.cluster()
    agree(table, oracle)
    assert rows_by_key(table) == expected
    assert digests(source) == before


@pytest.mark.parametrize(("kind", "version"), todays((("mor", 9), ("cow", 9)), 1, INTEROP))
def test_a_table_that_hudi_bootstrapped_takes_writes_of_both(
    kind: str, version: int, tmp_path: Path, oracle: HudiOracle
) -> None:
    source, uri = hive_folder(tmp_path / "source"), tmp_path / "table"
    job = {
        "hoodie.table.name": "bootstrapped",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ" if kind == "mor" else "COPY_ON_WRITE",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.index.type": "SIMPLE",
        "hoodie.compact.inline": "false",
    }
    selector = "org.apache.hudi.client.bootstrap.selector.MetadataOnlyBootstrapModeSelector"
    bootstrap = {"hoodie.bootstrap.base.path": f"file://{source}", "hoodie.bootstrap.mode.selector": selector}
    options = {**job, **bootstrap, "hoodie.bootstrap.keygen.class": job["hoodie.datasource.write.keygenerator.class"]}
    oracle.write(uri, rows_of([0], "a"), "bootstrap", options, "overwrite", keep_indexes=False)
    table = lakebed.open(str(uri))
    table.indexes.adopt("simple")
    expected = rows_by_key(table)
    assert len(expected) == 60
    for turn in range(2):
        first, later = turn * 2, 1000 * (turn + 1)
        table.upsert(rows_of([first, 14, 800 + turn], "a", later))
        expected |= {row["id"]: row for row in rows_of([first, 14, 800 + turn], "a", later).to_pylist()}
        agree(table, oracle)
        oracle.write(uri, rows_of([first + 1, 15, 900 + turn], "a", later), options=job, keep_indexes=False)
        expected |= {row["id"]: row for row in rows_of([first + 1, 15, 900 + turn], "a", later).to_pylist()}
        agree(table, oracle)
        table = lakebed.open(str(uri))
        assert rows_by_key(table) == expected

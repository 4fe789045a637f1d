"""The oracle itself: real Hudi reads what real Hudi wrote, and says so when it cannot."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from oracle.client import HudiOracle, OracleError
from support.golden_tables import golden


def test_reads_a_golden_table_as_it_was_written(oracle: HudiOracle, tmp_path: Path):
    table = golden("v9_cow_simple")
    assert oracle.read(table.unpack(tmp_path)).equals(table.expected)


def test_upserts_into_a_copy_without_metadata_table_and_leaves_it_without(oracle: HudiOracle, tmp_path: Path):
    table = golden("v8_cow_bloom")
    copy = table.unpack_without_metadata_table(tmp_path)
    rows = table.more("inputs/step_00.parquet").slice(0, 1)
    later = rows.set_column(rows.schema.get_field_index("ts"), "ts", pa.array([10**15], rows.schema.field("ts").type))
    new = oracle.write(copy, later)
    assert [i["action"] for i in new if i["state"] == "COMPLETED"] == ["commit"]
    read = oracle.read(copy, where="ts = 1000000000000000")
    assert read.column("_hoodie_commit_time").to_pylist() == [new[0]["instant"]]
    assert not (copy / ".hoodie" / "metadata").exists()
    assert oracle.ask("properties", table=copy)["hoodie.table.version"] == "8"


def test_an_error_of_hudi_comes_back_as_one(oracle: HudiOracle, tmp_path: Path):
    with pytest.raises(OracleError):
        oracle.read(tmp_path / "nothing")
    assert oracle.version == "1.2.0"

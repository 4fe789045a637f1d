"""Real Hudi reads and writes a table with checks, which it does not know; lakebed names the rows that break them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job
from interop.metadata_jobs import keeping_metadata
from lakebed.errors import CheckFailed
from oracle.client import HudiOracle

SCHEMA = pa.schema([("id", pa.int64()), ("grp", pa.string()), ("a", pa.int64()), ("b", pa.string())])
KINDS: list[tuple[Literal[6, 8, 9], Literal["cow", "mor"]]] = [(9, "mor"), (8, "cow"), (6, "cow")]


def data(*rows: tuple[int, str | None, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_hudi_reads_and_writes_a_table_with_checks(
    version: Literal[6, 8, 9], kind: Literal["cow", "mor"], tmp_path: Path, oracle: HudiOracle
) -> None:
    table = lakebed.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition_by="grp",
        type=kind,
        index="bucket",
        buckets=1,
        merge="commit_time",
        table_version=version,
        properties={"hoodie.metadata.enable": version > 6},
    )
    table.upsert(data((1, "x", 10, "one"), (2, "y", 20, None)))
    table.checks.add("positive", "a >= 0 AND coalesce(b, '=:#!') <> 'it''s \\\\ bad'")
    table.checks.add("cheap", "a < 100", on_failure="quarantine")
    table.checks.require("grp")
    assert table.upsert(data((3, "x", 30, "three"), (4, "x", 400, "four"))).quarantined == 1
    read = {"option": {"hoodie.metadata.enable": str(version > 6).lower()}}
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)
    job = hudi_job(table) | (keeping_metadata(table) if version > 6 else {})
    oracle.write(table.uri, data((2, "y", -5, "hudi"), (5, "y", 7, "hudi")), options=job)
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)
    table = lakebed.open(table.uri)
    assert [check.name for check in table.checks] == ["cheap", "grp_not_null", "positive"]
    broken = {run.check.name: (run.rows, dict(run.partitions)) for run in table.checks.run() if not run}
    assert broken == {"positive": (1, {"y": 1})}
    errors = [one.text for one in table.maintenance.doctor().of_check("checks") if one.severity.name == "ERROR"]
    assert len(errors) == 1
    assert errors[0].startswith("positive")
    with pytest.raises(CheckFailed, match="positive"):
        table.upsert(data((6, "y", -1, None)))
    table.upsert(data((2, "y", 5, "right")))
    assert table.checks.run()
    assert [kept["row"]["id"] for kept in table.rejects.scan().to_arrow().to_pylist()] == [4]
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)

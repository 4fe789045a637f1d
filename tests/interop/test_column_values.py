"""Real Hudi reads and writes a table with defaults and generated columns, which it does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import assert_both_read, hudi_job
from interop.metadata_jobs import keeping_metadata
from oracle.client import HudiOracle

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("n", pa.int64()), ("loud", pa.string())])
KINDS: list[tuple[Literal[6, 8, 9], Literal["cow", "mor"]]] = [(9, "mor"), (8, "cow"), (6, "cow")]


@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_hudi_reads_and_writes_a_table_with_defaults_and_generated_columns(
    version: Literal[6, 8, 9], kind: Literal["cow", "mor"], tmp_path: Path, oracle: HudiOracle
) -> None:
    table = lakebed.create(
        str(tmp_path / "t"),
        SCHEMA,
        key="id",
        partition_by="loud",
        type=kind,
        index="bucket",
        buckets=1,
        merge="commit_time",
        table_version=version,
        properties={"hoodie.metadata.enable": version > 6},
        defaults={"n": "7", "word": "'w=:#! ü'"},
        generated={"loud": "upper(substring(word, 1, 1))"},
    )
    table.upsert({"id": [1, 2], "word": ["x", "y"]})
    read = {"option": {"hoodie.metadata.enable": str(version > 6).lower()}}
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)
    job = hudi_job(table) | (keeping_metadata(table) if version > 6 else {})
    of_hudi = [{"id": 2, "word": "yes", "n": None, "loud": "Y"}, {"id": 3, "word": "no", "n": 1, "loud": "wrong"}]
    oracle.write(table.uri, pa.Table.from_pylist(of_hudi, SCHEMA), options=job)
    table = lakebed.open(table.uri)
    facts = {column.name: (column.default, column.generated) for column in table.columns}
    assert facts["n"] == ("7", "")
    assert facts["loud"] == ("", "upper(substring(word, 1, 1))")
    broken = {run.check.name: (run.rows, dict(run.partitions)) for run in table.checks.run() if not run}
    assert broken == {"loud_generated": (1, {"wrong": 1})}
    table.upsert({"id": [4], "n": [None]})
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "word": "x", "n": 7, "loud": "X"},
        *of_hudi,
        {"id": 4, "word": "w=:#! ü", "n": None, "loud": "W"},
    ]
    assert_both_read(oracle, table, table.scan().to_arrow(), **read)

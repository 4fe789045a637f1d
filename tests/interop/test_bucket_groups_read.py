"""Buckets of several file groups: real Hudi reads the rows, and its bucket writer leaves such a table alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import READ_CONF, hudi_job
from lakebed.format.file_names import bucket_of_file_id
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from oracle.client import HudiOracle, OracleError
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

SMALL = {
    "hoodie.parquet.max.file.size": 12_000,
    "hoodie.parquet.small.file.limit": 6_000,
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.index.bloom.num_entries": 200,
    "hoodie.bloom.index.filter.dynamic.max.entries": 200,
}

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])


def rows(numbers: range, turn: int) -> pa.Table:
    columns: dict[str, Any] = {
        "id": list(numbers),
        "city": [f"c{n % 2}" for n in numbers],
        "v": [f"{turn}-{n:040}" for n in numbers],
        "ts": [turn] * len(numbers),
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.mark.parametrize("kind", todays(("cow", "mor"), 2, INTEROP))
def test_real_hudi_reads_buckets_of_several_files_and_does_not_write_to_them(
    kind: Literal["cow", "mor"], tmp_path: Path, oracle: HudiOracle
) -> None:
    table = lakebed.create(
        str(tmp_path / "grown"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        index="bucket_groups",
        buckets=2,
        properties={"hoodie.compact.inline": False},
    )
    table.upsert(rows(range(600), 0), options=SMALL)
    table.upsert(rows(range(500, 700), 1), options=SMALL)
    table.delete([3, 650])
    expected = pa.concat_tables([rows(range(500), 0), rows(range(500, 700), 1)])
    expected = expected.filter(pa.array([n not in (3, 650) for n in expected["id"].to_pylist()]))
    groups = Counter((f["partition"], bucket_of_file_id(f["file_id"])) for f in table.files.to_arrow().to_pylist())
    assert len(groups) == 4
    assert min(groups.values()) > 1, groups
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), expected)
    for listed in ("true", "false"):
        assert_same_rows(oracle.read(table.uri, option={"hoodie.metadata.enable": listed}, conf=READ_CONF), expected)
    some = oracle.read(table.uri, where="id = 510", conf=READ_CONF)
    assert [(row["id"], row["ts"]) for row in some.to_pylist()] == [(510, 1)]
    # a job that knows the number of buckets, and nothing of there being several files to each
    assert load_table_config(open_storage(table.uri)).index_settings["type"] == "bucket_groups"
    bucket_job = hudi_job(table) | {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.bucket.index.hash.field": "id",
    }
    with pytest.raises(OracleError):
        oracle.write(table.uri, rows(range(5), 9), options=bucket_job)
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), expected)
    table.upsert(rows(range(5), 2), options=SMALL)
    assert lakebed.open(table.uri).scan(where="ts = 2").count() == 5

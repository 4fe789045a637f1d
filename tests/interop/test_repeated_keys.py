"""A key with two rows in one base file: real Hudi reads what deletes and upserts, also its own, leave of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from lakebed.table import Table
from oracle.client import HudiOracle

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
# By kind of table, index and change: what is left of the values a and b of key 1, and c of key 2.
LEFT = {
    ("cow", "bucket"): {"keys": "c", "where": "c", "upsert": "czz", "hudi delete": "bc", "hudi upsert": "bcz"},
    ("cow", "simple"): {"keys": "c", "where": "c", "upsert": "czz", "hudi delete": "bc", "hudi upsert": "bcz"},
    ("mor", "bucket"): {"keys": "bc", "where": "c", "upsert": "bcz", "hudi delete": "bc", "hudi upsert": "bcz"},
    ("mor", "simple"): {"keys": "c", "where": "c", "upsert": "czz", "hudi delete": "c", "hudi upsert": "czz"},
}


def rows(*given: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in given], SCHEMA)


def change(table: Table, what: str, oracle: HudiOracle) -> None:
    if what == "keys":
        table.delete([1])
    elif what == "where":
        table.delete(where="id = 1")
    elif what == "upsert":
        table.upsert(rows((1, "z", 2)))
    else:
        oracle.write(table.uri, rows((1, "z", 2)), what.removeprefix("hudi "), options=hudi_job(table))


@pytest.mark.parametrize(("kind", "index"), LEFT)
def test_real_hudi_reads_what_changes_leave_of_a_repeated_key(
    tmp_path: Path, oracle: HudiOracle, kind: Any, index: str
) -> None:
    buckets: dict[str, Any] = {"buckets": 1} if index == "bucket" else {}
    for what, left in LEFT[kind, index].items():
        table = lakebed.create(
            str(tmp_path / what), SCHEMA, key="id", ordering="ts", type=kind, index=index, **buckets,
            properties={"hoodie.metadata.enable": False},
        )  # fmt: skip
        table.insert(rows((1, "a", 1), (1, "b", 1), (2, "c", 1)))
        change(table, what, oracle)
        read = lakebed.open(table.uri).scan().to_arrow(), oracle.read(table.uri)
        assert ["".join(sorted(part["v"].to_pylist())) for part in read] == [left, left], what

"""Ray and Dask read tables of lakebed in an environment of their own, a task for each file slice."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from conftest import unavailable

from .service import ServiceError, installed_environment

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.full

READ = """
import json, sys
import lakebed
engine, uri, where = sys.argv[1:]
scan = lakebed.open(uri).scan(where=where or None)
if engine == "dask":
    frame = scan.to_dask()
    parts, rows = frame.npartitions, frame.compute()
    import pyarrow as pa
    rows = pa.Table.from_pandas(rows, preserve_index=False)
    total = int(frame.id.sum().compute())
else:
    import ray
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    data = scan.to_ray()
    rows = data.take_all()
    import pyarrow as pa
    rows = pa.Table.from_pylist(rows, scan.schema)
    parts, total = None, data.sum("id")
print(json.dumps({"parts": parts, "total": total, "rows": [repr(row) for row in rows.cast(scan.schema).to_pylist()]}))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return installed_environment("frames", ROOT / "locks" / "frames.txt", "Ray and Dask")
    except ServiceError as error:
        unavailable(str(error))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Table:
    """Rows of many types with nulls, in three partitions of which two have log files."""
    count = 300
    rows = pa.table(
        {
            "id": range(count),
            "city": [("Oslo", "Rome", "a/b")[n % 3] for n in range(count)],
            "n": pa.array([None if n % 5 else n for n in range(count)], pa.int64()),
            "day": [date(2026, 1, 1 + n % 28) for n in range(count)],
            "cost": pa.array([Decimal(n) / 4 for n in range(count)], pa.decimal128(12, 2)),
            "tags": pa.array([["x", None] if n % 2 else None for n in range(count)], pa.list_(pa.string())),
            "raw": pa.array([bytes([n % 256]) for n in range(count)], pa.binary()),
        }
    )
    uri = str(tmp_path_factory.mktemp("frames") / "t")
    table = lakebed.load(uri, rows, key="id", partition_by="city", type="mor", index="simple", progress=False)
    table.upsert(rows.slice(0, 2).set_column(2, "n", pa.array([-1, -2], pa.int64())))
    table.delete([3, 4])
    return table


def read(python: Path, engine: str, table: lakebed.Table, where: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    command = [str(python), "-c", READ, engine, table.uri, where]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("where", ["", "city <> 'Oslo' and id > 10", "id < 0", "city = 'nowhere'"])
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_every_row_of_a_scan_is_read_by_tasks(python: Path, table: lakebed.Table, engine: str, where: str) -> None:
    expected = table.scan(where=where or None)
    found = read(python, engine, table, where)
    rows = expected.to_arrow()
    assert sorted(found["rows"]) == sorted(repr(row) for row in rows.to_pylist())
    assert (found["total"] or 0) == sum(rows["id"].to_pylist())
    if engine == "dask":
        assert found["parts"] == max(1, len(expected.plan.slices))

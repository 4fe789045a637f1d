"""Exact search beside a plain computation, Lance's brute force and real Hudi's `hudi_vector_search`: CPU seconds and
memory of one query, which is asked a second time.

usage: search.py ROWS [DIMENSION]; each side runs in a process of its own, on a table that is made first. BLAS has one
thread. Hudi runs on Spark in the environment of the interop tests; its memory is that of the JVM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from cpu import TreeMeter

import lakebed

_STEP = 100_000
_SIDES = ("lakebed", "scan", "lance")


def made(folder: Path, rows: int, dimension: int) -> None:
    """The table, and a dataset of Lance with the same vectors where Lance is installed."""
    columns = pa.schema([("id", pa.int64()), ("text", pa.string()), ("emb", lakebed.vector(dimension))])
    table = lakebed.create(str(folder / "table"), columns, key="id")
    random = np.random.default_rng(7)
    for start in range(0, rows, _STEP):
        numbers = np.arange(start, min(start + _STEP, rows))
        vectors = random.normal(size=(len(numbers), dimension)).astype(np.float32)
        batch = pa.table({"id": numbers, "text": [f"text {n}" for n in numbers], "emb": pa.array(list(vectors))})
        table.insert(batch)
        try:
            import lance
        except ImportError:
            continue
        fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dimension)
        lance.write_dataset(batch.set_column(2, "emb", fixed), str(folder / "lance"), mode="append")


def measured(side: str, folder: Path, dimension: int) -> dict[str, float]:
    """The CPU seconds of a second query, and the greatest memory of the process in MB (Linux)."""
    query = np.ones(dimension, np.float32)

    def ask() -> None:
        table = lakebed.open(str(folder / "table"))
        if side == "lakebed":
            table.search(query, 10).to_arrow()
        elif side == "scan":
            vectors = table.scan(["emb"]).to_arrow()["emb"].combine_chunks()
            matrix = np.asarray(vectors.flatten()).reshape(-1, dimension)
            np.argsort(1 - matrix @ query / np.linalg.norm(matrix, axis=1))[:10]
        else:
            import lance

            nearest = {"column": "emb", "q": query, "k": 10, "metric": "cosine"}
            lance.dataset(str(folder / "lance")).to_table(nearest=nearest)

    ask()
    before = time.process_time()
    ask()
    # what getrusage tells begins with the memory of the process that started this one
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    memory = int(peak.split()[1]) / 1024
    return {"cpu": round(time.process_time() - before, 3), "mb": round(memory)}


def by_hudi(folder: Path, dimension: int) -> dict[str, float]:
    """The same query of real Hudi, on lakebed's table."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from oracle.client import HudiOracle
    from oracle.environment import RELEASE, oracle_environment

    query = ", ".join(["cast(1 as float)"] * dimension)
    statement = f"select id, _hudi_distance from hudi_vector_search('{{t}}', 'emb', array({query}), 10)"
    oracle = HudiOracle(oracle_environment(RELEASE), folder / "hudi.log")
    try:
        request = {"table": folder / "table", "sql": statement, "out": str(folder / "nearest.parquet")}
        oracle.ask("sql", **request)
        with TreeMeter(os.getpid()) as meter:
            oracle.ask("sql", **request)
    finally:
        oracle.close()
    return {"cpu": round(meter.spent.total, 3), "mb": round(meter.spent.memory / (1 << 20))}


def main() -> None:
    if sys.argv[1] in _SIDES:
        print(json.dumps(measured(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
        return
    rows, dimension = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 128
    with tempfile.TemporaryDirectory() as name:
        made(Path(name), rows, dimension)
        for side in _SIDES:
            command = [sys.executable, __file__, side, name, str(dimension)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            print(f"{side:8} {rows:,} x {dimension}: {done.stdout.strip() or done.stderr.strip()[-200:]}")
        print(f"{'hudi':8} {rows:,} x {dimension}: {json.dumps(by_hudi(Path(name), dimension))}")


if __name__ == "__main__":
    main()

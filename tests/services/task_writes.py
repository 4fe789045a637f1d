"""A process of Ray or Dask that writes tables: `task_writes.py ENGINE CASE FOLDER`. The test that starts it knows the
same steps, and compares the tables with their model."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed

KINDS: dict[str, dict[str, Any]] = {
    f"{kind}_{index}": {"type": kind, "index": index, **({"buckets": 3} if index == "bucket" else {})}
    for kind in ("cow", "mor")
    for index in ("simple", "bloom", "bucket", "record", "global_simple")
}
COUNT = 600
FLAG = "TASK_WRITES_FLAG"


def rows_of(ids: list[int], value: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{n:04}" for n in ids],
            "city": [("oslo", "rome", "bonn")[n % 3] for n in ids],
            "v": pa.array([value] * len(ids), pa.int64()),
            "at": pa.array([value] * len(ids), pa.int64()),
        }
    )


def steps(name: str) -> Iterator[tuple[str, pa.Table]]:
    """The writes of a table, in order: a verb and its rows."""
    draw = random.Random(name)
    yield "load", rows_of(list(range(COUNT)), 1)
    yield "upsert", rows_of(draw.sample(range(COUNT + 200), 300), 2)
    yield "delete", rows_of(draw.sample(range(COUNT), 100), 0).select(["id", "city"])
    yield "insert", rows_of(list(range(2000, 2100)), 3)
    yield "bulk_insert", rows_of(list(range(3000, 3100)), 4)


class KillsOnce(lakebed.Merger):
    """A merge that takes the newer row, and kills the first process that calls it while it writes a file."""

    strategy_id = "6e0b8f2c-6f0a-4b39-9f6b-0f4d1f3f7a51"

    def __init__(self, flag: str = "") -> None:
        self.flag = flag

    def merge(self, old: pa.RecordBatch, new: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        flag = Path(self.flag or os.environ[FLAG])
        if not flag.exists():
            flag.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return new, None


def begin(engine: str, flag: str, *, prepared: bool) -> Callable[[pa.Table], Any]:
    """A function that makes a Dataset or DataFrame of three parts, in a cluster whose workers have lakebed if they are
    prepared."""
    if engine == "ray":
        import logging

        import ray

        paths = {} if prepared else {"PYTHONPATH": ""}
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": {FLAG: flag, **paths}},
        )
        logging.getLogger("ray.data").setLevel("ERROR")
        return lambda rows: ray.data.from_arrow([rows.slice(at, size) for at, size in thirds(rows)])
    import dask.dataframe as dd
    import pandas as pd

    if engine == "distributed":
        from distributed import Client

        client = Client(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR", env={FLAG: flag}
        )
        if not prepared:
            client.run(forget)
    return lambda rows: dd.from_pandas(rows.to_pandas(types_mapper=pd.ArrowDtype), npartitions=3)


def forget() -> None:
    """Let this worker have no lakebed."""
    sys.path[:] = [path for path in sys.path if not path.endswith("/src")]
    for name in [name for name in sys.modules if name.partition(".")[0] == "lakebed"]:
        del sys.modules[name]


def thirds(rows: pa.Table) -> list[tuple[int, int]]:
    size = -(-rows.num_rows // 3)
    return [(at, size) for at in range(0, rows.num_rows, size)]


def histories(data: Callable[[pa.Table], Any], folder: str) -> dict[str, Any]:
    for name, options in KINDS.items():
        table: Any = None
        for verb, rows in steps(name):
            if verb == "load":
                table = lakebed.load(
                    f"{folder}/{name}",
                    data(rows),
                    key="id",
                    partition_by="city",
                    ordering="at",
                    progress=False,
                    **options,
                )
            else:
                getattr(table, verb)(data(rows), progress=False)
    return {}


def killed(data: Callable[[pa.Table], Any], folder: str) -> dict[str, Any]:
    table = lakebed.load(
        f"{folder}/t", rows_of(list(range(COUNT)), 1), key="id", partition_by="city", merge=KillsOnce(), index="bucket",
        buckets=2, progress=False,
    )  # fmt: skip
    done = table.upsert(data(rows_of(list(range(COUNT + 100)), 2)), progress=False)
    return {
        "updated": done.updated,
        "inserted": done.inserted,
        "engine": table.explain(upsert=data(rows_of([1], 3))).engine,
    }


def changing(data: Callable[[pa.Table], Any], folder: str) -> dict[str, Any]:
    """An upsert of rows that are others each time they are evaluated, of which a worker loses some meanwhile."""
    import dask.dataframe as dd
    import pandas as pd

    def part(number: int) -> Any:
        with open(f"{folder}/evaluations", "a") as file:
            file.write(".")
        value = Path(f"{folder}/evaluations").stat().st_size
        rows = rows_of(list(range(number * 300, (number + 1) * 300)), value)
        return rows.to_pandas(types_mapper=pd.ArrowDtype)

    meta = rows_of([], 0).to_pandas(types_mapper=pd.ArrowDtype)
    table = lakebed.load(
        f"{folder}/t",
        rows_of(list(range(COUNT)), 0),
        key="id",
        merge=KillsOnce(),
        index="bucket",
        buckets=2,
        progress=False,
    )
    frame = dd.from_map(part, [0, 1], meta=meta, enforce_metadata=False)
    table.upsert(frame, progress=False)
    return {}


def unprepared(data: Callable[[pa.Table], Any], folder: str) -> dict[str, Any]:
    table = lakebed.load(f"{folder}/t", rows_of(list(range(COUNT)), 1), key="id", index="simple", progress=False)
    try:
        table.upsert(data(rows_of([1], 2)), progress=False)
    except lakebed.errors.LakebedError as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {}


if __name__ == "__main__":
    engine, case, folder = sys.argv[1:]
    data = begin(engine, f"{folder}/flag", prepared=case != "unprepared")
    print(json.dumps(globals()[case](data, folder)), flush=True)
    os._exit(0)  # the end of a cluster takes seconds

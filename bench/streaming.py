"""CPU seconds of a micro-batch by `stream_into`, by `foreachBatch` with `t.upsert`, and by `format("lakebed")`.

    python bench/streaming.py [--rows 2000 100000] [--batches 8] [--type mor cow]

Each way runs in a process of its own. The first batches of a process warm it up and are left out. The bar of the small
batches is `stream_into` with at most 0.6 CPU seconds of 2,000 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cpu import TreeMeter

WAYS = ("stream_into", "foreachBatch", "format")
WARM = 3
BAR = 0.6


def batch(number: int, rows: int) -> pa.Table:
    """Two thirds of the keys are new."""
    ids = np.arange(rows, dtype=np.int64) + number * rows * 2 // 3
    text = pa.array(np.char.add("row-", ids.astype(str)), pa.string())
    return pa.table({"id": ids, "city": text, "fare": ids * 0.5, "at": pa.array(np.full(rows, number))})


def side(way: str, rows: int, batches: int, kind: str) -> None:
    """Run one way, and print the CPU seconds of each batch."""
    from pyspark.sql import SparkSession

    import lakebed

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        incoming = Path(folder, "in")
        incoming.mkdir()
        schema = batch(0, 1).schema
        t = lakebed.create(f"{folder}/t", schema, key="id", ordering="at", type=kind, index="bucket", buckets=4)  # pyright: ignore[reportArgumentType]
        stream = spark.readStream.schema("id long, city string, fare double, at long").parquet(str(incoming))
        checkpoint = f"{folder}/checkpoint"
        writer = stream.writeStream.option("checkpointLocation", checkpoint)
        if way == "stream_into":
            query: Any = lakebed.stream_into(stream, t, checkpoint=checkpoint)
        elif way == "foreachBatch":
            query = writer.foreachBatch(lambda frame, _: t.upsert(frame, progress=False)).start()
        else:
            query = writer.format("lakebed").option("path", t.uri).start()
        seconds: list[float] = []
        for number in range(batches + WARM):
            pq.write_table(batch(number, rows), f"{folder}/next.parquet")
            with TreeMeter(os.getpid()) as meter:
                os.replace(f"{folder}/next.parquet", incoming / f"{number:05}.parquet")
                query.processAllAvailable()
            seconds.append(meter.spent.total)
        query.stop()
        assert len([i for i in t.timeline if i.action.value in ("commit", "deltacommit")]) >= batches
        print("RESULT " + json.dumps(seconds[WARM:]))
    spark.stop()


def measured(way: str, rows: int, batches: int, kind: str) -> list[float]:
    command = [sys.executable, __file__, "--side", way, "--rows", str(rows), "--batches", str(batches), "--type", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(lines[-1].removeprefix("RESULT "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 100_000])
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--type", nargs="+", default=["mor", "cow"])
    parser.add_argument("--side", choices=WAYS)
    given = parser.parse_args()
    if given.side:
        side(given.side, given.rows[0], given.batches, given.type[0])
        return
    for kind in given.type:
        for rows in given.rows:
            medians: dict[str, float] = {}
            for way in WAYS:
                began = time.monotonic()
                seconds = measured(way, rows, given.batches, kind)
                medians[way] = float(np.median(seconds))
                took = time.monotonic() - began
                print(f"{kind} {rows:>8,} rows {way:>13}: {medians[way]:.2f} CPU s a batch ({took:.0f} s in all)")
            if rows <= 2_000 and medians["stream_into"] > BAR:
                print(f"  above the bar of {BAR} CPU s")


if __name__ == "__main__":
    main()

"""CPU seconds of a micro-batch by `stream_into`, by `foreachBatch` with `t.upsert`, by `format("lakebed")`, by Spark's
sink that writes nothing (`noop`), and by the sink of real Hudi.

    python bench/streaming.py [--rows 2000 100000] [--batches 8] [--warm 3] [--type mor cow] [--ways stream_into hudi]

Each way runs in a process of its own. The first batches of a process (`--warm`) are left out. Over half of what the
JVM spends on a batch after three of them is its compiler, with each sink: `--warm 60` shows a stream that has run for
a while. The bars of `stream_into` are 0.6 CPU seconds of 2,000 rows and 1.0 of 100,000, and an eighth and a tenth of
Hudi's.
"""

from __future__ import annotations

import argparse
import json
import math
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
from sides import hudi_place

LAKEBED = ("stream_into", "foreachBatch", "format")
HUDI = "hudi"
SPARK = "noop"
WAYS = (*LAKEBED, SPARK, HUDI)
COLUMNS = "id long, city string, fare double, at long"
# By rows of a batch: the most CPU seconds of `stream_into`, and how many times less than Hudi's they are.
BARS = {2_000: (0.6, 8), 100_000: (1.0, 10)}


def batch(number: int, rows: int) -> pa.Table:
    """Two thirds of the keys are new."""
    ids = np.arange(rows, dtype=np.int64) + number * rows * 2 // 3
    text = pa.array(np.char.add("row-", ids.astype(str)), pa.string())
    return pa.table({"id": ids, "city": text, "fare": ids * 0.5, "at": pa.array(np.full(rows, number))})


def lakebed_query(way: str, folder: str, kind: str) -> Any:
    """A running query of the files in the folder's `in` by one of the ways of lakebed, or into nothing."""
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
    schema = batch(0, 1).schema
    t = lakebed.create(f"{folder}/t", schema, key="id", ordering="at", type=kind, index="bucket", buckets=4)  # pyright: ignore[reportArgumentType]
    stream = spark.readStream.schema(COLUMNS).parquet(f"{folder}/in")
    checkpoint = f"{folder}/checkpoint"
    writer = stream.writeStream.option("checkpointLocation", checkpoint)
    if way == SPARK:
        return writer.format("noop").start()
    if way == "stream_into":
        return lakebed.stream_into(stream, t, checkpoint=checkpoint)
    if way == "foreachBatch":

        def upsert(frame: Any, _: int) -> None:
            t.upsert(frame, progress=False)

        return writer.foreachBatch(upsert).start()
    return writer.format("lakebed").option("path", t.uri).start()


def hudi_query(folder: str, kind: str) -> Any:
    """The same by the sink of real Hudi, in its environment."""
    from hudi_side import hudi_session

    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind],
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "at",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": "4",
        "hoodie.bucket.index.hash.field": "id",
        "hoodie.upsert.shuffle.parallelism": "4",
        "hoodie.datasource.compaction.async.enable": "false",
        "hoodie.compact.inline": str(kind == "mor").lower(),
        "checkpointLocation": f"{folder}/checkpoint",
    }
    stream = hudi_session().readStream.schema(COLUMNS).parquet(f"{folder}/in")
    return stream.writeStream.format("hudi").options(**options).outputMode("append").start(f"{folder}/t")


def side(way: str, rows: int, batches: int, kind: str, warm: int) -> None:
    """Run one way, and print the CPU seconds of each batch after the first ones."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        incoming = Path(folder, "in")
        incoming.mkdir()
        query = hudi_query(folder, kind) if way == HUDI else lakebed_query(way, folder, kind)
        seconds: list[float] = []
        for number in range(batches + warm):
            pq.write_table(batch(number, rows), f"{folder}/next.parquet")
            with TreeMeter(os.getpid()) as meter:
                os.replace(f"{folder}/next.parquet", incoming / f"{number:05}.parquet")
                query.processAllAvailable()
            seconds.append(meter.spent.total)
        query.stop()
        written = [p for p in Path(folder, "t/.hoodie/timeline").glob("*_*") if p.suffix in (".commit", ".deltacommit")]
        assert len(written) >= batches or way == SPARK
        print("RESULT " + json.dumps(seconds[warm:]))
        SparkSession.builder.getOrCreate().stop()


def measured(way: str, rows: int, batches: int, kind: str, warm: int) -> list[float]:
    python, place = hudi_place() if way == HUDI else (sys.executable, dict[str, str]())
    place["BENCH_MEMORY"] = "2g"
    command = [python, __file__, "--side", way, "--rows", str(rows), "--batches", str(batches), "--type", kind]
    command += ["--warm", str(warm)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **place})
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(lines[-1].removeprefix("RESULT "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 100_000])
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--type", nargs="+", default=["mor", "cow"])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--side", choices=WAYS)
    given = parser.parse_args()
    if given.side:
        side(given.side, given.rows[0], given.batches, given.type[0], given.warm)
        return
    for kind in given.type:
        for rows in given.rows:
            medians: dict[str, float] = {}
            for way in given.ways:
                began = time.monotonic()
                seconds = measured(way, rows, given.batches, kind, given.warm)
                medians[way] = float(np.median(seconds))
                took = time.monotonic() - began
                print(f"{kind} {rows:>8,} rows {way:>13}: {medians[way]:.2f} CPU s a batch ({took:.0f} s in all)")
            bar, times = BARS.get(rows, (math.inf, 0))
            seconds = medians.get("stream_into", 0.0)
            if seconds > bar:
                print(f"  above the bar of {bar} CPU s")
            if seconds and HUDI in medians:
                print(f"  {medians[HUDI] / seconds:.1f} times less than Hudi (bar {times})")


if __name__ == "__main__":
    main()

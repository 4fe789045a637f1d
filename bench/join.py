"""Joins and group-bys of bucketed tables on Spark, with and without their buckets: seconds and shuffled bytes.

    python bench/join.py [--rows 3000000] [--rounds 3]

Two tables of so many rows in 8 buckets, their files sorted by key. Each query runs over ordinary DataFrames of them
and over `to_spark(bucketed=True)`, in turn; shuffled bytes are those that Spark's own listener counts. Nothing is
broadcast: the tables stand for ones that are too large for it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakebed

QUERIES = {
    "join": "SELECT sum(a.x + b.y) FROM a JOIN b ON a.id = b.id",
    "join and group": "SELECT max(s) FROM (SELECT a.id, sum(x + y) AS s FROM a JOIN b ON a.id = b.id GROUP BY a.id)",
    "group": "SELECT max(s) FROM (SELECT id, sum(x) AS s FROM a GROUP BY id)",
}


def load(uri: str, rows: int, column: str, seed: int) -> None:
    """A table of these keys in any order, with a value each and a text."""
    random = np.random.default_rng(seed)
    ids = random.permutation(rows)
    texts = np.char.add("key-", np.char.zfill(ids.astype(str), 12))
    data = pa.table({"id": pa.array(texts), column: pa.array(random.integers(0, 1000, rows)), "note": pa.array(texts)})
    table = lakebed.create(uri, data, key="id", index="bucket", buckets=8, sort="key")
    table.bulk_insert(data)


def shuffled(spark: Any) -> int:
    """Bytes that shuffles of this application have written so far."""
    context, jvm = spark.sparkContext._jsc.sc(), spark.sparkContext._jvm
    context.listenerBus().waitUntilEmpty()
    no_quantiles = spark.sparkContext._gateway.new_array(jvm.double, 0)
    stages = context.statusStore().stageList(None, False, False, no_quantiles, jvm.java.util.ArrayList())
    found = [stages.apply(n) for n in range(stages.size())]
    return sum(int(stage.shuffleWriteBytes()) for stage in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    spark = builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.memory", "3g")
    spark = spark.config("spark.sql.shuffle.partitions", "8").config("spark.sql.autoBroadcastJoinThreshold", "-1")
    spark = spark.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        for seed, (name, column) in enumerate((("a", "x"), ("b", "y"))):
            load(str(Path(folder) / name), given.rows, column, seed)
        scans = {
            n: lakebed.open(str(Path(folder) / n), spark=spark).scan(["id", c]) for n, c in (("a", "x"), ("b", "y"))
        }
        missed = 0
        for name, query in QUERIES.items():
            seconds: dict[bool, list[float]] = {False: [], True: []}
            bytes_: dict[bool, int] = {}
            answers: set[Any] = set()
            for turn in range(given.rounds + 1):
                for bucketed in (False, True):
                    before, began = shuffled(spark), time.monotonic()
                    for view, scan in scans.items():
                        scan.to_spark(bucketed=bucketed).createOrReplaceTempView(view)
                    frame = lakebed.spark.by_buckets(spark.sql(query)) if bucketed else spark.sql(query)
                    answers.add(frame.collect()[0][0])
                    if turn:
                        seconds[bucketed].append(time.monotonic() - began)
                    bytes_[bucketed] = shuffled(spark) - before
            assert len(answers) == 1, answers
            with_, without = statistics.median(seconds[True]), statistics.median(seconds[False])
            # the last exchange brings a row a partition together for the answer
            missed += without / with_ < 2 if name == "join" else 0
            print(
                f"{name:15} shuffle {without:6.2f} s {bytes_[False] / 2**20:8.1f} MiB   buckets {with_:6.2f} s"
                f" {bytes_[True] / 2**20:8.4f} MiB   {without / with_:.1f}x",
                flush=True,
            )
    return missed


if __name__ == "__main__":
    raise SystemExit(main())

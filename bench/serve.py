"""The loop of a measured process: one JSON request a line in, one answer a line out."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Commands = Mapping[str, Callable[..., Any]]


def serve(start: Callable[[], Commands]) -> None:
    """Start, say so, and answer until standard input ends. Only answers go to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()

    commands = start()
    say({"ok": True, "result": sorted(commands)})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say({"ok": True, "result": commands[request.pop("cmd")](**request)})
        except Exception as error:
            say({"ok": False, "error": str(error)[:2000], "trace": traceback.format_exc()[-4000:]})


def local_session(settings: Mapping[str, str]) -> Any:
    """A local Spark session as both sides have it: the same cores, memory and codec level, default JIT."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": os.environ.get("BENCH_MEMORY", "4g"),
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(os.environ.get("BENCH_MASTER", "local[2]")).appName("bench")
    for key, value in {**common, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def shuffled_bytes(spark: Any) -> int:
    """Bytes that the session's tasks have written for shuffles so far."""
    summary = spark._jsc.sc().statusStore().executorSummary("driver")
    return int(summary.totalShuffleWrite())


def hadoop_bytes(spark: Any) -> int:
    """Bytes that the session's JVM has read so far of local files through Hadoop's file systems; shuffles and classes
    are not among them."""
    statistics = spark._jvm.org.apache.hadoop.fs.FileSystem.getGlobalStorageStatistics().get("file")
    return int(statistics.getLong("bytesRead")) if statistics else 0

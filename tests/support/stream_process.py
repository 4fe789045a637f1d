"""A driver of a stream as a process of its own, to be killed: `python stream_process.py FACE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def main(face: str, folder: Path) -> None:
    """Write what is in the folder's `in`, files or for the face `source` a table, to the folder's table until
    the source is at its end. The folder's file `ready` shows that the stream is about to start."""
    from pyspark.sql import SparkSession

    import lakebed

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        # it does not live long enough for the second compiler
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    t = lakebed.open(str(folder / "t"))
    source = str(folder / "in")
    if face == "source":
        reader = spark.readStream.format("lakebed").option("consumer", "copy").option("query", "cdc")
        stream = reader.option("maxCommitsPerTrigger", 1).load(source).select("after.*")
    else:
        stream = spark.readStream.schema("id long, n long").option("maxFilesPerTrigger", 1).parquet(source)
    checkpoint = str(folder / "checkpoint")
    now: dict[str, Any] = {"availableNow": True}
    (folder / "ready").touch()
    if face == "source":  # Spark 4.1 ends such a query of a table after one batch: this one is ended below
        query = lakebed.stream_into(stream, t, checkpoint=checkpoint, operation="insert")
        query.processAllAvailable()
        query.stop()
    elif face == "stream_into":
        query = lakebed.stream_into(stream, t, checkpoint=checkpoint, operation="insert", trigger=now)
    else:
        writer = stream.writeStream.format("lakebed").option("path", t.uri).option("operation", "insert")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    print("DONE", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

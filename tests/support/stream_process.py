"""A driver of a stream as a process of its own, to be killed: `python stream_process.py FACE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path


def main(face: str, folder: Path) -> None:
    """Write what is in the folder's `in` to its table until the source is at its end."""
    from pyspark.sql import SparkSession

    import lakebed

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    t = lakebed.open(str(folder / "t"))
    stream = spark.readStream.schema("id long, n long").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    checkpoint = str(folder / "checkpoint")
    if face == "stream_into":
        now = {"availableNow": True}
        query = lakebed.stream_into(stream, t, checkpoint=checkpoint, operation="insert", trigger=now)
    else:
        writer = stream.writeStream.format("lakebed").option("path", t.uri).option("operation", "insert")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    print("DONE", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

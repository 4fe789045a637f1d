"""Delta Lake as a process, in the environment of real Hudi: `{"table": PATH, "sql": TEXT}` a line in, the rows of the
table after the statement a line out. `{t}` in the text is the table."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def session(jars: str, scratch: str) -> Any:
    """A local session with Delta Lake's catalog."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": scratch,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.ansi.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session(*sys.argv[1:])
    for line in sys.stdin:
        request = json.loads(line)
        table = f"delta.`{request['table']}`"
        spark.sql(request["sql"].replace("{t}", table))
        rows = [list(row) for row in spark.sql(f"SELECT * FROM {table}").collect()]
        answers.write(json.dumps(rows) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()

"""The Spark session of tests: two cores, UTC, ANSI as the version has it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def small_session(folder: Path) -> SparkSession:
    """A session whose files are below the folder."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("lakebed-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config(
            "spark.driver.extraJavaOptions", f"-Dderby.system.home={folder} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session

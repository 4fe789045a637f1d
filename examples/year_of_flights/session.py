"""The demo's own Spark session: small, quiet, in this process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""


@contextmanager
def demo_session(scratch: Path) -> Generator[SparkSession]:
    """A local session that is stopped at the end. Raises `UnsupportedFeature` where there is no Java."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise UnsupportedFeature(
            "Spark needs Java, and there is none on this machine",
            hint="install a JDK 17 or 21, e.g. `apt install openjdk-17-jre-headless` or `brew install openjdk@17`",
        )
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING)
    spark = (
        SparkSession.builder.master(f"local[{min(4, os.cpu_count() or 2)}]")
        .appName("lakebed demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging.as_uri()}")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()

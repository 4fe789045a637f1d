"""PySpark looks through packages named `pyspark_*` for a `DefaultSource`: this one makes `format("lakebed")` known."""

from __future__ import annotations

from lakebed.spark_source.source import LakebedSource as DefaultSource

__all__ = ["DefaultSource"]

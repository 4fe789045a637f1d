"""The plans that Spark ran."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from lakebed.engine.spark import SparkEngine


def recorded_plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The physical plan of every DataFrame that an engine collects from now on."""
    seen: list[str] = []
    collect = SparkEngine.collect

    def recording(self: SparkEngine, rows: DataFrame) -> pa.Table:
        table = collect(self, rows)
        execution = rows._jdf.queryExecution()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        # adaptive execution prints the plan that ran, then the one it began with
        seen.append(execution.executedPlan().toString().partition("== Initial Plan ==")[0])
        return table

    monkeypatch.setattr(SparkEngine, "collect", recording)
    return seen

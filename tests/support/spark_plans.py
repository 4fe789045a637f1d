"""The plans that Spark ran."""

from __future__ import annotations

from typing import Any

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


def rows_from_python(frame: Any) -> list[int]:
    """How many rows each step in Python gave to the JVM, in the plan that ran; not in its subqueries."""
    found: list[int] = []

    def look(plan: Any) -> None:
        kind = plan.getClass().getSimpleName()
        if kind == "MapInArrowExec":
            found.append(plan.metrics().get("pythonNumRowsReceived").get().value())
        if kind == "AdaptiveSparkPlanExec":
            look(plan.executedPlan())
        elif kind.endswith("QueryStageExec"):
            look(plan.plan())
        for number in range(plan.children().size()):
            look(plan.children().apply(number))

    look(frame._jdf.queryExecution().executedPlan())
    return found

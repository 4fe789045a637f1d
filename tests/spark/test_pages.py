"""An example of docs/ that no page runs: it needs tables on a disk. The pages with Spark run in test_new_user.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from support.documented_examples import ROOT


def test_the_example_of_joins_on_spark(spark: Any, tmp_path: Path) -> None:
    section = (ROOT / "docs/queries.md").read_text().partition("## Joins and group-bys without a shuffle")[2]
    (block,) = re.findall(r"^```py\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    made, queries = block.split("\n\n")
    rows = {
        "orders": pa.table({"id": ["o1", "o2", "o3"], "city": ["Oslo", "Rome", "Rome"]}),
        "payments": pa.table({"id": ["o2", "o3", "o4"], "paid": [20.0, 5.0, 40.0]}),
    }
    names: dict[str, Any] = {"spark": spark, "lakebed": lakebed}
    for name, buckets in (("orders", 2), ("payments", 4)):
        names[name] = lakebed.create(
            str(tmp_path / name), rows[name], key="id", index="bucket", buckets=buckets, spark=spark
        )
        names[name].upsert(rows[name])
    exec(made, names)
    joined, grouped = (eval(query, names) for query in queries.splitlines())
    assert [tuple(row) for row in joined.select("id", "paid").collect()] == [("o2", 20.0)]
    assert sorted(tuple(row)[:2] for row in grouped.collect()) == [("o2", 20.0), ("o4", 40.0)]
    for frame in (joined, grouped):
        assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()

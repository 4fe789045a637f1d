"""Search by a vector index from Spark sessions: the rows are those of a search in this process, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed

ROWS, DIMENSION = 300, 4
VECTORS = np.random.default_rng(7).normal(size=(ROWS, DIMENSION)).astype(np.float32)


@pytest.fixture
def warehouse(spark: Any, tmp_path: Path) -> Iterator[lakebed.Warehouse]:
    """A warehouse with a table that has a vector index, attached to the session for one test."""
    w = lakebed.Warehouse(str(tmp_path / "lake"))
    rows = pa.table({"id": range(ROWS), "emb": pa.array(list(VECTORS), lakebed.vector(DIMENSION))})
    table = w.load("docs.notes", rows, key="id", progress=False)
    table.indexes.create("vector", column="emb", clusters=8)
    lakebed.spark.attach(spark, w)
    yield w
    lakebed.spark.detach(spark)


def found(rows: list[Any]) -> list[tuple[int, float]]:
    return [(row["id"], row["_hudi_distance"]) for row in rows]


def test_a_session_searches_by_the_index(spark: Any, warehouse: lakebed.Warehouse) -> None:
    table = lakebed.open(warehouse.open("docs.notes").uri, spark=spark)
    # one cluster and few rows: an exact search finds others
    options: dict[str, Any] = {"columns": ["id"], "probes": 1, "rerank": 20}
    for query in (VECTORS[3], VECTORS[:4] + 0.01):
        search = table.search(query, 20, **options)
        assert search.plan.by_index is not None
        assert [row.asDict() for row in search.to_spark().collect()] == search.to_arrow().to_pylist()
    exact = table.search(VECTORS[3], 20, columns=["id"], exact=True)
    rows = exact.to_spark().collect()
    assert found(rows) == found(exact.to_arrow().to_pylist())
    assert found(rows) != found(table.search(VECTORS[3], 20, **options).to_arrow().to_pylist())


def test_statements_search_by_the_index(spark: Any, warehouse: lakebed.Warehouse) -> None:
    table = warehouse.open("docs.notes")
    query = ", ".join(f"{number:.4f}" for number in VECTORS[5])
    expected = found(table.search([float(f"{n:.4f}") for n in VECTORS[5]], 3, columns=["id"]).to_arrow().to_pylist())
    statement = (
        f"SELECT id, _hudi_distance FROM hudi_vector_search('{{}}', 'emb', array({query}), 3, 'cosine', 'index')"
    )
    of_session = lakebed.sql(statement.format("notes"), spark=spark, tables={"notes": table})
    assert found(of_session.collect()) == expected
    attached = spark.sql(statement.format("docs.notes"))
    assert found(attached.collect()) == expected
    lakebed.spark.create_views(spark, {"notes": table})
    by_function = spark.sql(statement.format("notes") + " ORDER BY _hudi_distance")
    assert found(by_function.collect()) == expected
    with pytest.raises(Exception, match="no vector index on emb for the metric l2"):
        spark.sql(statement.format("notes").replace("cosine", "l2")).collect()

"""Projects of dbt-spark whose session has a warehouse of lakebed attached."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import lakebed
from conftest import unavailable

from .dbt_projects import DbtProject, install_dbt
from .service import ServiceError

pytest.importorskip("pyspark", reason="pyspark is not installed")

PROFILE = """
shop:
  target: dev
  outputs:
    dev: {type: spark, method: session, host: NA, schema: mart, threads: 2}
"""
HUDI = "file_format='hudi', unique_key='id'"
QUERY = "select id, total, customer from {{ source('sales', 'orders') }}"
MODELS = {
    "profiles.yml": PROFILE,
    "packages.yml": "packages: []",
    "models/sources.yml": """
sources: [{name: sales, tables: [{name: orders}]}]
models: [{name: customers, columns: [{name: customer, data_tests: [unique, not_null]}]}]
""",
    "models/customers.sql": """{{ config(materialized='table', file_format='hudi', unique_key='customer') }}
        select customer, sum(total) as total, count(*) as orders
        from {{ source('sales', 'orders') }} group by customer""",
    "models/dear.sql": """{{ config(materialized='table', file_format='hudi', unique_key='customer') }}
        select customer from {{ ref('customers') }} where total > 8""",
    "models/merged.sql": f"""{{{{ config(materialized='incremental', incremental_strategy='merge', {HUDI}) }}}}
        {QUERY} {{% if is_incremental() %}} where id > (select max(id) from {{{{ this }}}}) {{% endif %}}""",
    "models/added.sql": f"""{{{{ config(materialized='incremental', incremental_strategy='append', {HUDI}) }}}}
        {QUERY} {{% if is_incremental() %}} where customer = 9 {{% endif %}}""",
    "models/replaced.sql": f"""{{{{ config(materialized='incremental', incremental_strategy='insert_overwrite',
            partition_by=['customer'], {HUDI}) }}}}
        {QUERY} {{% if is_incremental() %}} where customer = 7 {{% endif %}}""",
}


@pytest.fixture
def project(tmp_path: Path) -> DbtProject:
    try:
        python = install_dbt()
    except ServiceError as error:
        unavailable(str(error))
    folder = tmp_path / "shop"
    folder.mkdir()
    return DbtProject(python, folder, str(tmp_path / "lake"))


def build(project: DbtProject, *arguments: str) -> None:
    """Run `dbt build` in a process with a session to which the warehouse is attached."""
    before = f"""
sys.path.append({sysconfig.get_path("purelib")!r})
import lakebed.spark
from pyspark.sql import SparkSession
settings = {{"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": {str(project.folder / "of-spark")!r}}}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
lakebed.spark.attach(spark, warehouse={project.warehouse!r})
"""
    done = project.command("build", *arguments, before=before, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def rows(project: DbtProject, name: str) -> list[tuple[Any, ...]]:
    table = lakebed.Warehouse(project.warehouse).open(f"mart.{name}")
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


@pytest.mark.rest
def test_models_of_dbt_spark_are_tables_of_the_warehouse_that_follow_their_sources(project: DbtProject) -> None:
    warehouse = lakebed.Warehouse(project.warehouse)
    orders = {"id": [1, 2, 3], "customer": [7, 8, 7], "total": [5.0, 9.0, 6.0]}
    warehouse.load("sales.orders", orders, key="id", progress=False)
    project.write(MODELS)
    build(project)
    first = [(1, 5.0, 7), (2, 9.0, 8), (3, 6.0, 7)]
    assert rows(project, "customers") == [(7, 11.0, 2), (8, 9.0, 1)]
    assert rows(project, "dear") == [(7,), (8,)]
    assert rows(project, "merged") == rows(project, "added") == rows(project, "replaced") == first

    warehouse.open("sales.orders").upsert({"id": [3, 4], "customer": [7, 9], "total": [60.0, 1.0]})
    build(project)
    assert rows(project, "customers") == [(7, 65.0, 2), (8, 9.0, 1), (9, 1.0, 1)]
    assert rows(project, "merged") == rows(project, "added") == [*first, (4, 1.0, 9)]
    assert rows(project, "replaced") == [*first[:2], (3, 60.0, 7)]
    assert warehouse.open("mart.merged").timeline.to_arrow().num_rows == 2  # the second build has not made it again

    build(project, "--full-refresh", "--select", "merged")
    assert rows(project, "merged") == [*first[:2], (3, 60.0, 7), (4, 1.0, 9)]

"""Real projects of dbt on DuckDB with sources and models of lakebed, run again and again as their sources change."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lakebed
from conftest import unavailable

from .dbt_projects import DbtProject, install_dbt
from .service import ServiceError

pytest.importorskip("duckdb", reason="duckdb is not installed")

SOURCES = """
sources:
  - name: sales
    meta: {plugin: lakebed}
    tables:
      - name: orders
        columns:
          - name: id
            data_tests: [unique, not_null]
      - name: new_orders
        meta: {table: sales.orders, consumer: lines}
      - name: first_orders
        meta: {table: sales.orders, as_of: "FIRST"}
models:
  - name: customers
    columns:
      - name: customer
        description: the number of the customer
        data_tests: [unique, not_null]
"""
ONE_SOURCE = "sources: [{name: sales, meta: {plugin: lakebed}, tables: [{name: orders}]}]"
MODELS = {
    "models/sources.yml": SOURCES,
    "seeds/names.csv": "customer,name\n7,Ann\n8,Bo\n9,Cy\n",
    "models/staged.sql": "{{ config(materialized='view') }} select * from {{ source('sales', 'new_orders') }}",
    "models/lines.sql": """{{ config(materialized='lakebed', verb='insert', create={'index': 'simple'}) }}
        select id, customer, total from {{ ref('staged') }} where total > 0""",
    "models/customers.sql": """{{ config(materialized='lakebed', key='customer') }}
        select customer, name, sum(total) as total, count(*) as orders
        from {{ source('sales', 'orders') }} join {{ ref('names') }} using (customer) group by all""",
    "models/newest.sql": """
        {{ config(materialized='lakebed', key='id', table='other.newest', partition_by='customer') }}
        select * from {{ source('sales', 'orders') }}
        {% if lakebed.is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}""",
    "models/first.sql": """{{ config(materialized='lakebed') }}
        select id from {{ source('sales', 'first_orders') }}""",
    "models/rich.sql": """{{ config(materialized='table') }}
        select name from {{ ref('customers') }} where total > 8""",
    "snapshots/history.sql": """{% snapshot history %}
        {{ config(unique_key='id', strategy='check', check_cols=['total'], schema='past') }}
        select * from {{ source('sales', 'orders') }}
        {% endsnapshot %}""",
}


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return install_dbt()
    except ServiceError as error:
        unavailable(str(error))


@pytest.fixture
def project(python: Path, tmp_path: Path) -> DbtProject:
    folder = tmp_path / "shop"
    folder.mkdir()
    return DbtProject(python, folder, str(tmp_path / "lake"))


def lake(project: DbtProject) -> lakebed.Warehouse:
    return lakebed.Warehouse(project.warehouse)


def order(project: DbtProject, *rows: tuple[int, int, float], partition_by: str | None = None) -> Any:
    data = {"id": [r[0] for r in rows], "customer": [r[1] for r in rows], "total": [r[2] for r in rows]}
    warehouse = lake(project)
    if not warehouse.exists("sales.orders"):
        warehouse.create("sales.orders", data, key="id", partition_by=partition_by)
    return warehouse.open("sales.orders").upsert(data)


def rows(project: DbtProject, table: str, *columns: str) -> list[tuple[Any, ...]]:
    content = lake(project).open(table).to_arrow(columns=list(columns))
    return sorted(tuple(row.values()) for row in content.to_pylist())


def test_a_project_follows_its_sources_through_three_builds(project: DbtProject) -> None:
    first = order(project, (1, 7, 5.0), (2, 8, 2.0))
    project.write({name: text.replace("FIRST", first.instant) for name, text in MODELS.items()})
    project.dbt("deps")
    lines = [(1, 7, 5.0), (2, 8, 2.0)]

    project.dbt("build")
    assert rows(project, "mart.customers", "customer", "name", "total", "orders") == [
        (7, "Ann", 5.0, 1),
        (8, "Bo", 2.0, 1),
    ]
    assert project.duckdb("from mart.rich") == []
    assert rows(project, "mart.lines", "id", "customer", "total") == lines
    assert rows(project, "other.newest", "id", "customer", "total") == lines

    order(project, (2, 8, 9.0), (3, 9, 1.0))
    order(project, (4, 9, -1.0))
    project.dbt("build")
    assert project.results()["lines"] == ("success", "insert: 2 rows")
    assert project.results()["customers"] == ("success", "upsert: 1 inserted, 2 updated")
    assert rows(project, "mart.customers", "customer", "name", "total", "orders") == [
        (7, "Ann", 5.0, 1),
        (8, "Bo", 9.0, 1),
        (9, "Cy", 0.0, 2),
    ]
    assert project.duckdb("from mart.rich") == [("Bo",)]
    assert rows(project, "mart.lines", "id", "customer", "total") == [*lines[:1], (2, 8, 2.0), (2, 8, 9.0), (3, 9, 1.0)]
    # only rows after the greatest id, by is_incremental
    assert rows(project, "other.newest", "id", "total") == [(1, 5.0), (2, 2.0), (3, 1.0), (4, -1.0)]
    assert project.duckdb("select id, total, dbt_valid_to is null from mart_past.history order by all") == [
        (1, 5.0, True),
        (2, 2.0, False),
        (2, 9.0, True),
        (3, 1.0, True),
        (4, -1.0, True),
    ]

    project.dbt("build")
    assert project.results()["lines"] == ("success", "insert: nothing new")
    assert rows(project, "mart.first", "id") == [(1,), (2,)]
    assert len(rows(project, "mart.lines", "id")) == 4

    # a model that is not run again is read from its table, also in a database that is not there yet
    project.dbt("run", "-s", "rich", SHOP_DB=":memory:")
    project.dbt("test", "-s", "customers")
    assert "Bo" in project.dbt("show", "-s", "rich")
    assert '"id": 4' in project.dbt("show", "--inline", "select id from {{ ref('newest') }}", "--output", "json")
    project.dbt("docs", "generate")
    catalog: Mapping[str, Any] = json.loads((project.folder / "target" / "catalog.json").read_text())
    assert list(catalog["nodes"]["model.shop.customers"]["columns"]) == ["customer", "name", "total", "orders"]
    assert list(catalog["sources"]["source.shop.sales.orders"]["columns"]) == ["id", "customer", "total"]

    project.dbt("build", "--full-refresh")
    assert rows(project, "mart.lines", "id", "total") == [(1, 5.0), (2, 9.0), (3, 1.0)]
    assert rows(project, "other.newest", "id", "total") == [(1, 5.0), (2, 9.0), (3, 1.0), (4, -1.0)]


KILLS = {
    "before the batch is recorded": ("lakebed.timeline.consumers", "ConsumerFiles.read_to", False),
    "before the table's first commit": ("lakebed.dbt_plugin.models", "Model.write", False),
    "between the commit and the consumer": ("lakebed.timeline.consumers", "ConsumerFiles.move", False),
    "after the consumer moved": ("lakebed.timeline.consumers", "ConsumerFiles.move", True),
}


@pytest.mark.parametrize("at", list(KILLS))
def test_a_dbt_that_is_killed_leaves_each_row_to_be_written_once(project: DbtProject, at: str) -> None:
    order(project, (1, 7, 5.0), (2, 8, 2.0))
    models = {name: MODELS[name] for name in ("models/staged.sql", "models/lines.sql")}
    project.write({**models, "models/sources.yml": SOURCES.partition("models:")[0].replace("FIRST", "20260101")})
    project.dbt("deps")
    module, name, is_after = KILLS[at]
    killed = f"""
import os, importlib
owner = importlib.import_module({module!r}).{name.partition(".")[0]}
original = owner.{name.partition(".")[2]}
def dying(*arguments, **options):
    {"original(*arguments, **options)" if is_after else "pass"}
    os._exit(9)
owner.{name.partition(".")[2]} = dying
"""
    for number in (1, 2):
        assert project.command("run", before=killed).returncode == 9
        order(project, (1, 7, 5.0 + number), (2 + number, 9, 1.0))
    project.dbt("run")
    project.dbt("run")
    values = rows(project, "mart.lines", "id", "total")
    assert {row: values.count(row) for row in values} == dict.fromkeys(values, 1)
    newest = dict(values)
    assert newest == {1: 7.0, 2: 2.0, 3: 1.0, 4: 1.0}


@pytest.mark.rest
def test_models_of_many_threads_read_one_source(project: DbtProject) -> None:
    order(project, *((n, n % 5, float(n)) for n in range(100)))
    models = {
        f"models/m{n}.sql": "{{ config(materialized='lakebed', key='id') }}"
        f" select * from {{{{ source('sales', 'orders') }}}} where customer = {n % 5} and total >= {n}"
        for n in range(16)
    }
    project.write({**models, "models/sources.yml": ONE_SOURCE})
    project.dbt("deps")
    for _ in range(2):
        project.dbt("run", "--threads", "12")
        for n in range(16):
            expected = [(i, float(i)) for i in range(n, 100) if i % 5 == n % 5]
            assert rows(project, f"mart.m{n}", "id", "total") == expected


@pytest.mark.rest
def test_conditions_of_models_rule_out_files_of_sources_and_of_models(project: DbtProject) -> None:
    order(project, (1, 7, 5.0), (2, 8, 2.0), partition_by="customer")
    project.write(
        {
            "models/sources.yml": ONE_SOURCE,
            "models/copy.sql": "{{ config(materialized='lakebed', key='id', partition_by='customer') }}"
            " select * from {{ source('sales', 'orders') }}",
            "models/of_source.sql": "{{ config(materialized='lakebed', key='id') }}"
            " select * from {{ source('sales', 'orders') }} where customer = 7",
            "models/of_model.sql": "{{ config(materialized='table') }}"
            " select * from {{ ref('copy') }} where customer = 7",
        }
    )
    project.dbt("deps")
    project.dbt("run")
    for table in ("sales/orders", "mart/copy"):
        for path in Path(project.warehouse, table, "8").glob("*.parquet"):
            path.write_bytes(b"damaged")
    project.dbt("run", "-s", "of_source", "of_model")
    assert rows(project, "mart.of_source", "id", "total") == [(1, 5.0)]
    assert project.duckdb("from mart.of_model") == [(1, 7, 5.0)]
    assert "in model copy (models/copy.sql)" in project.refused("run", "-s", "copy")


@pytest.mark.rest
def test_errors_name_the_model_and_the_table(project: DbtProject) -> None:
    order(project, (1, 7, 5.0))
    lakebed_model = "{{ config(materialized='lakebed', key='id'%s) }} select * from {{ source('sales', 'orders') }}"
    project.write(
        {
            "models/sources.yml": ONE_SOURCE.replace("{name: orders}", "{name: orders}, {name: order}"),
            "models/lacking.sql": "{{ config(materialized='lakebed') }} select * from {{ source('sales', 'order') }}",
            "models/of_file.sql": "{{ config(materialized='external', plugin='lakebed') }} select 1 as id",
            "models/Capital.sql": lakebed_model % "",
            "models/null_key.sql": "{{ config(materialized='lakebed', key='id') }} select null::int as id",
            "models/wrong_verb.sql": lakebed_model % ", verb='append'",
            "models/no_column.sql": lakebed_model.replace("*", "ident") % "",
            "models/good.sql": lakebed_model % "",
        }
    )
    project.dbt("deps")
    project.refused("run")
    messages = {name: message for name, (_, message) in project.results().items()}
    assert "the source sales.order: " in messages["lacking"]
    assert "materialized='lakebed' from the dbt package" in messages["of_file"]
    assert "table mart.Capital: 'Capital' is no name of a table: it has capital letters" in messages["Capital"]
    assert "the model null_key, table mart.null_key: 1 row(s) have a null or empty record key" in messages["null_key"]
    assert "the model wrong_verb: there is no verb 'append' of models" in messages["wrong_verb"]
    assert "ident" in messages["no_column"]
    assert project.results()["good"][0] == "success"
    assert lake(project).list("mart") == ["mart.good", "mart.null_key"]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (
            {"a": "materialized='lakebed', key='id'", "b": "materialized='lakebed', key='id'"},
            "the models a and b both read with the consumer 'lines' of the source sales.new_orders",
        ),
        (
            {"a": "materialized='table'"},
            "is materialized as table: only models with materialized='lakebed' move a consumer on",
        ),
        ({"a": "materialized='lakebed'"}, "insert_overwrite would leave nothing but the newest rows"),
    ],
)
def test_a_consumer_whose_rows_would_be_lost_is_refused(
    project: DbtProject, models: dict[str, str], message: str
) -> None:
    order(project, (1, 7, 5.0))
    files = {
        f"models/{name}.sql": f"{{{{ config({config}) }}}} select * from {{{{ source('sales', 'new_orders') }}}}"
        for name, config in models.items()
    }
    project.write({**files, "models/sources.yml": SOURCES.partition("models:")[0].replace("FIRST", "20260101")})
    project.dbt("deps")
    assert message in " ".join(project.refused("run").split())
    assert len(lake(project).open("sales.orders").consumers) == 0


@pytest.mark.rest
def test_hooks_contracts_and_models_in_python(project: DbtProject) -> None:
    order(project, (1, 7, 5.0), (2, 8, 2.0))
    project.write(
        {
            "models/sources.yml": """
sources: [{name: sales, meta: {plugin: lakebed}, tables: [{name: orders}]}]
models:
  - name: promised
    config: {contract: {enforced: true}}
    columns: [{name: id, data_type: bigint}, {name: total, data_type: double}]
""",
            "models/promised.sql": """{{ config(
                materialized='lakebed', key='id',
                pre_hook="create or replace table mart.limits as select 3 as least",
                post_hook="create or replace table mart.counted as select count(*) as n from {{ this }}") }}
                select id, total from {{ source('sales', 'orders') }} where total > (select least from mart.limits)""",
            "models/by_python.py": """
def model(dbt, session):
    dbt.config(materialized="lakebed", key="id")
    return dbt.ref("promised").project("id, total * 2 as twice")
""",
        }
    )
    project.dbt("deps")
    for _ in range(2):
        project.dbt("run")
        assert rows(project, "mart.promised", "id", "total") == [(1, 5.0)]
        assert rows(project, "mart.by_python", "id", "twice") == [(1, 10.0)]
        assert project.duckdb("from mart.counted") == [(1,)]
        order(project, (2, 8, 1.0))
    (project.folder / "models/promised.sql").write_text(
        "{{ config(materialized='lakebed', key='id') }} select id, customer from {{ source('sales', 'orders') }}"
    )
    assert "This model has an enforced contract that failed" in project.refused("run", "-s", "promised")


@pytest.mark.rest
def test_a_model_changes_between_a_table_of_duckdb_and_one_of_lakebed(project: DbtProject) -> None:
    order(project, (1, 7, 5.0))
    model = "{{ config(materialized='%s', key='id') }} select * from {{ source('sales', 'orders') }}"
    project.write({"models/sources.yml": ONE_SOURCE})
    for number, kind in enumerate(("table", "lakebed", "table", "lakebed", "view", "lakebed"), 2):
        project.write(
            {
                "models/sources.yml": ONE_SOURCE,
                "models/copy.sql": model % kind,
                "models/counted.sql": "{{ config(materialized='table') }} select count(*) as n from {{ ref('copy') }}",
            }
        )
        if number == 2:
            project.dbt("deps")
        order(project, (number, 8, 1.0))
        project.dbt("run")
        assert project.duckdb("from mart.counted") == [(number,)], kind


_FILES = re.compile(r"```(?:yaml|sql)\n(?:#|--) ([\w./]+)\n(.*?)```", re.DOTALL)


def test_the_project_of_the_page_runs(project: DbtProject) -> None:
    page = (Path(__file__).parents[2] / "docs" / "dbt.md").read_text()
    files = dict(_FILES.findall(page))
    assert set(files) == {
        *("profiles.yml", "packages.yml", "dbt_project.yml", "models/sources.yml", "models/customers.sql"),
        *("models/order_log.sql", "models/best.sql"),
    }
    order(project, (1, 7, 5.0), (2, 8, 2.5), (3, 7, 4.0))
    project.write({name: text.replace("/data/lake", project.warehouse) for name, text in files.items()})
    project.dbt("deps")
    project.dbt("build")
    order(project, (2, 8, 3.0))
    project.dbt("build")
    assert rows(project, "mart.customers", "customer", "total", "orders") == [(7, 9.0, 2), (8, 3.0, 1)]
    assert rows(project, "mart.order_log", "id", "total") == [(1, 5.0), (2, 2.5), (2, 3.0), (3, 4.0)]
    assert project.duckdb("from mart.best") == [(7,)]


def test_the_module_prints_the_folder_of_the_package(python: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [str(python), "-m", "lakebed.dbt_plugin"], env=environment, capture_output=True, text=True, check=True
    )
    assert (Path(done.stdout.strip()) / "dbt_project.yml").is_file()

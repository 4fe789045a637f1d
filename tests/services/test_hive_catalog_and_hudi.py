"""Entries next to those of real Hudi's own sync in one metastore, and rows through Spark with Hive support."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from conftest import unavailable
from lakebed.catalog.hive import HiveMetastore as Store
from oracle.client import HudiOracle
from oracle.environment import Unavailable, oracle_environment
from support.catalog_entries import entry_values

from .hive_metastore import HiveMetastore
from .test_hive_catalog import ROWS
from .test_lock_services import running

SYNC = "hoodie.datasource.hive_sync."
WRITE = "hoodie.datasource.write."
TABLES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "cow": ({WRITE + "partitionpath.field": "City"}, {}),
    "mor": ({WRITE + "partitionpath.field": "City,id", WRITE + "table.type": "MERGE_ON_READ"}, {}),
    "hive_style": (
        {
            WRITE + "partitionpath.field": "City",
            WRITE + "hive_style_partitioning": "true",
            WRITE + "partitionpath.urlencode": "true",
        },
        {SYNC + "support_timestamp": "true", SYNC + "sync_comment": "true"},
    ),
}


@pytest.fixture(scope="module")
def uris() -> Iterator[str]:
    with running(HiveMetastore()) as info:
        yield info["uris"]


@pytest.fixture(scope="module")
def hudi(uris: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiOracle]:
    """Real Hudi in a session with the metastore's tables."""
    try:
        environment = replace(oracle_environment(), metastore=uris)
        hudi = HudiOracle(environment, tmp_path_factory.mktemp("oracle") / "oracle.log")
    except Unavailable as reason:
        unavailable(str(reason))
        return
    yield hudi
    hudi.close()


@pytest.fixture
def store(uris: str) -> Iterator[Store]:
    store = Store(uris, 30)
    yield store
    store.close()


def names(table: str) -> list[str]:
    return [f"{table}_ro", f"{table}_rt", table] if table == "mor" else [table]


def entries(store: Store, database: str, table: str) -> list[dict[str, Any]]:
    return [entry_values(store, f"{database}.{name}") for name in names(table)]


@pytest.mark.rest
@pytest.mark.every_case
@pytest.mark.parametrize("name", TABLES)
def test_entries_equal_those_of_real_hudis_sync(
    hudi: HudiOracle, uris: str, store: Store, name: str, tmp_path: Path
) -> None:
    write, sync = TABLES[name]
    options = {
        **write,
        **sync,
        "hoodie.table.name": name,
        WRITE + "recordkey.field": "id",
        SYNC + "enable": "true",
        SYNC + "mode": "hms",
        SYNC + "metastore.uris": uris,
        SYNC + "database": "real",
        SYNC + "table": name,
    }
    rows = ROWS
    if name == "hive_style":
        rows = rows.set_column(1, "City", pa.array(["Oslo", "a b/c=d"]))
    uri = tmp_path / name
    hudi.write(uri, rows, options=options)
    catalog = uris.replace("thrift://", "hive://")
    table = lakebed.open(str(uri))
    table.catalogs.register(catalog, f"lake.{name}", options=sync)
    assert entries(store, "lake", name) == entries(store, "real", name)
    # Hudi finds lakebed's entries as they are to be, and lakebed Hudi's
    hudi.write(uri, rows.slice(0, 1), options={**options, SYNC + "database": "lake"})
    again = table.catalogs.register(catalog, f"lake.{name}", options=sync)
    assert {entry.action for entry in again.entries} == {"unchanged"}
    table.catalogs.register(catalog, f"real.{name}", options=sync)
    assert entries(store, "lake", name) == entries(store, "real", name)
    # a column and a partition come, by lakebed, and by Hudi's sync after the next commit
    table.columns.add("note", "string")
    table.upsert({"id": [7], "City": ["Lima"], "note": ["new"]}, partial=True)
    table.catalogs.register(catalog, f"lake.{name}", options=sync)
    lake = entries(store, "lake", name)
    full = pa.table({**{c: table.get([1]).column(c) for c in table.schema.names}})
    hudi.write(uri, full, options={**options, SYNC + "database": "real"})
    table.catalogs.register(catalog, f"lake.{name}", options=sync)
    assert entries(store, "lake", name) == entries(store, "real", name)
    assert [one["partitions"] for one in entries(store, "lake", name)] == [one["partitions"] for one in lake]


@pytest.mark.rest
def test_spark_with_hive_support_reads_the_rows_of_an_entry(hudi: HudiOracle, uris: str, tmp_path: Path) -> None:
    table = lakebed.create(
        str(tmp_path / "t"), ROWS, key="id", partition_by="City", type="mor", index="bucket", buckets=1
    )
    table.upsert(ROWS)
    table.upsert({"id": [2], "City": ["Rome"], "tags": [["new"]]}, partial=True)
    table.catalogs.register(uris.replace("thrift://", "hive://"), "spark.trips")
    for name, tags in (("trips", ["new"]), ("trips_rt", ["new"])):
        found = hudi.ask("sql", sql=f"select id, City, tags, st.Km from spark.{name} order by id")
        assert found["data"] == [
            {"id": 1, "City": "Oslo", "tags": ["a"], "Km": 1},
            {"id": 2, "City": "Rome", "tags": tags, "Km": 1},
        ]
    found = hudi.ask("sql", sql="select id from spark.trips where City = 'Rome'")
    assert found["data"] == [{"id": 2}]

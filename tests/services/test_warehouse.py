"""A warehouse on a real S3 server, and one in AWS Glue, by moto: names, creation by two processes, renames."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, TableExists, TableNotFound, UnsupportedFeature
from lakebed.model import WAREHOUSE
from lakebed.model import WAREHOUSE_LOCATION as LOCATION

from .s3_server import ACCESS_KEY, REGION, S3, SECRET_KEY
from .test_lock_services import running

pytest.importorskip("moto")

ROWS = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", "Rome"]})


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch, running(S3()) as info:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("LAKEBED_GLUE_ENDPOINT", info["endpoint"])
        yield info


@pytest.fixture
def w(s3: dict[str, Any]) -> lakebed.Warehouse:
    return lakebed.Warehouse(f"s3://lake/{uuid.uuid4().hex}", storage_options=s3["options"])


def ids(table: lakebed.Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def test_names_on_s3_are_created_read_listed_renamed_and_dropped(w: lakebed.Warehouse) -> None:
    w.create_database("hr")
    w.load("sales.orders", ROWS, key="id", partition_by="city", type="mor", progress=False)
    w.sql("create table sales.items (id bigint) using lakebed tblproperties (primaryKey = 'id')")
    w.sql("insert into sales.items values (2), (3)")
    assert (w.databases(), w.list()) == (["hr", "sales"], ["sales.items", "sales.orders"])
    joined = w.sql("select o.city from sales.orders o join sales.items i using (id) order by id")
    assert joined.to_arrow().column("city").to_pylist() == ["Rome", "Rome"]
    table = w.rename("sales.orders", "hr.orders")
    assert (ids(table), w.list()) == ([1, 2, 3], ["hr.orders", "sales.items"])
    assert table.upsert({"id": [4], "city": ["Oslo"]}).rows == 1
    assert ids(w.open("hr.orders")) == [1, 2, 3, 4]
    with pytest.raises(TableNotFound):
        w.open("sales.orders")
    with pytest.raises(TableExists):
        w.create("hr.orders", ROWS, key="id")
    w.drop("sales.items")
    assert (w.databases(), w.list("sales")) == (["hr", "sales"], [])
    for text in ("sales.orders/x", "../lake.x", "sales..orders"):
        with pytest.raises(InvalidOption):
            w.create(text, ROWS, key="id")


PROGRAM = """
import json, sys, lakebed, pyarrow as pa
uri, options, which = sys.argv[1:]
w = lakebed.Warehouse(uri, storage_options=json.loads(options))
schema = pa.schema([("id", pa.int64()), (f"of_{which}", pa.int64())])
print("ready", flush=True)
sys.stdin.readline()
try:
    w.create("sales.shared", schema, key="id")
    print("created")
except lakebed.TableExists:
    print("exists")
"""


def test_of_two_processes_that_create_one_name_on_s3_one_wins(w: lakebed.Warehouse, s3: dict[str, Any]) -> None:
    arguments = [sys.executable, "-c", PROGRAM, w.uri, json.dumps(s3["options"])]
    workers = [
        subprocess.Popen([*arguments, which], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for which in "ab"
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline().strip() == "ready"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = [worker.communicate(timeout=120)[0].strip() for worker in workers]
    assert sorted(said) == ["created", "exists"]
    winner = "ab"[said.index("created")]
    assert w.open("sales.shared").schema.names == ["id", f"of_{winner}"]


def test_a_warehouse_in_glue_has_the_entries_of_its_tables(
    s3: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, hr = f"shop_{uuid.uuid4().hex[:8]}", f"hr_{uuid.uuid4().hex[:8]}"
    w = lakebed.Warehouse(f"glue://{REGION}", location=str(tmp_path))
    w.create_database(hr)
    with pytest.raises(TableExists):
        w.create_database(hr)
    table = w.load(f"{shop}.trips", ROWS, key="id", progress=False)
    assert table.uri == f"{tmp_path}/{shop}/trips"
    assert w.sql(f"select count(*) as n from {shop}.trips").to_pylist() == [{"n": 3}]
    assert w.list(shop) == [f"{shop}.trips"]
    assert {shop, hr} <= {*w.databases()}
    assert lakebed.open(f"glue://{REGION}/{shop}/trips").count() == 3
    with pytest.raises(TableExists):
        w.create(f"{shop}.trips", ROWS, key="id")
    with pytest.raises(UnsupportedFeature):
        w.rename(f"{shop}.trips", f"{shop}.rides")
    monkeypatch.setenv(WAREHOUSE, f"glue://{REGION}")
    with pytest.raises(InvalidOption, match=LOCATION):
        lakebed.create(f"{shop}.rides", ROWS, key="id")
    monkeypatch.setenv(LOCATION, str(tmp_path))
    lakebed.create(f"{shop}.rides", ROWS, key="id", type="mor").upsert(ROWS)
    assert ids(lakebed.open(f"{shop}.rides")) == [1, 2, 3]
    lakebed.drop(f"{shop}.rides")
    assert w.drop(f"{shop}.trips") == []
    assert (w.list(shop), w.exists(f"{shop}.trips")) == ([], False)
    assert not (tmp_path / shop / "trips" / ".hoodie").exists()
    with pytest.raises(TableNotFound):
        w.list("nowhere")


def test_clients_read_tables_on_s3_through_the_catalog(w: lakebed.Warehouse, s3: dict[str, Any]) -> None:
    from pyiceberg.catalog import load_catalog

    from lakebed.catalog.warehouses import FolderNames
    from lakebed.catalog_server.server import CatalogServer
    from lakebed.catalog_server.tables import ServedTables

    table = w.load("sales.orders", ROWS, key="id", partition_by="city", progress=False)
    for vends in (True, False):
        tables = ServedTables(FolderNames(w.uri, s3["options"]), s3["options"], publishes=True, vends=vends)
        server = CatalogServer(tables)
        thread = server.start()
        try:
            settings = {} if vends else {"s3.endpoint": s3["endpoint"], "s3.region": REGION}
            loaded = load_catalog("lakebed", type="rest", uri=server.url, **settings).load_table("sales.orders")
            assert ("s3.secret-access-key" in loaded.io.properties) == vends
            assert loaded.metadata_location.startswith(f"{w.uri}/sales/orders/metadata/v")
            assert sorted(loaded.scan().to_arrow().column("id").to_pylist()) == ids(table)
        finally:
            server.stop()
            thread.join(10)
        table.upsert({"id": [4], "city": ["Bern"]})

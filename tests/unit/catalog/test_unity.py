"""What Unity Catalog's entries say of a table's Delta list, and when they are written again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CatalogError, UnsupportedFeature
from support.catalog_server import CatalogServer, catalog_server

NAME = "main.shop.trips"
KEY = ("main", "shop", "trips")
ROWS = pa.table(
    {
        "id": pa.array([1, 2]),
        "City": ["Oslo", "Rome"],
        "d": pa.array([date(2020, 1, 1)] * 2),
        "at": pa.array([datetime(2020, 1, 1)] * 2, pa.timestamp("us", "UTC")),
        "n": pa.array([1, 2], pa.int32()),
        "price": pa.array([Decimal("1.50")] * 2, pa.decimal128(10, 2)),
        "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
        "st": [{"Km": 1, "z": ["q"]}] * 2,
    }
)
COLUMNS = [
    ("id", "bigint", "LONG", "long"),
    ("City", "string", "STRING", "string"),
    ("d", "date", "DATE", "date"),
    ("at", "timestamp", "TIMESTAMP", "timestamp"),
    ("n", "int", "INT", "integer"),
    ("price", "decimal(10,2)", "DECIMAL", "decimal(10,2)"),
    ("m", "map<string,int>", "MAP", None),
    ("st", "struct<km:bigint,z:array<string>>", "STRUCT", None),
]


@pytest.fixture
def server() -> Iterator[CatalogServer]:
    with catalog_server() as started:
        yield started


def new_table(folder: Path) -> lakebed.Table:
    table = lakebed.create(str(folder / "trips"), ROWS, key="id", partition_by="City")
    table.upsert(ROWS)
    return table


def test_the_entry_is_an_external_delta_table_with_the_columns_of_the_list(
    server: CatalogServer, tmp_path: Path
) -> None:
    table, uri = new_table(tmp_path), f"unity://{server.address}"
    with pytest.raises(UnsupportedFeature, match="is not published as Delta, and Unity Catalog has no Hudi tables"):
        table.catalogs.register(uri, NAME)
    assert not server.requests
    table.catalogs.publish("delta")
    table.catalogs.register(uri, NAME)
    entry = server.tables[KEY]
    assert (entry["table_type"], entry["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert entry["storage_location"] == f"file://{table.uri}"
    columns = entry["columns"]
    assert [(c["name"], c["type_text"], c["type_name"]) for c in columns] == [one[:3] for one in COLUMNS]
    lines = (tmp_path / "trips/_delta_log/00000000000000000000.json").read_text().splitlines()
    (listed,) = (json.loads(line)["metaData"] for line in lines if '"metaData"' in line)
    schema = json.loads(listed["schemaString"])["fields"]
    assert [json.loads(c["type_json"])["type"] for c in columns] == [field["type"] for field in schema]
    assert [one[3] for one in COLUMNS if one[3]] == [f["type"] for f in schema if isinstance(f["type"], str)]
    assert [c["position"] for c in columns] == list(range(8))
    assert [c["name"] for c in columns if c.get("partition_index") == 0] == ["City"]
    assert (columns[5]["type_precision"], columns[5]["type_scale"]) == (10, 2)


def test_an_entry_is_written_again_for_new_columns_unless_that_would_lose_grants(
    server: CatalogServer, tmp_path: Path
) -> None:
    table, uri = new_table(tmp_path), f"unity://{server.address}"
    table.catalogs.publish("delta")
    table.catalogs.register(uri, NAME)
    table.columns.add("note", "string", comment="of the driver")
    server.grants = ["analysts"]
    with pytest.raises(CatalogError, match="analysts would lose privileges on it") as error:
        table.catalogs.register(uri, NAME)
    assert "--full" in error.value.hint
    assert len(server.tables[KEY]["columns"]) == 8
    (change,) = table.catalogs.register(uri, NAME, full=True).entries
    assert str(change) == f"updated {NAME}: new columns"
    assert server.tables[KEY]["columns"][-1]["comment"] == "of the driver"
    server.grants = []
    table.columns.add("more", "int")
    assert [one.action for one in table.catalogs.register(uri, NAME).entries] == ["updated"]


def test_an_entry_whose_files_the_catalog_manages_is_never_deleted(server: CatalogServer, tmp_path: Path) -> None:
    table, uri = new_table(tmp_path), f"unity://{server.address}"
    table.catalogs.publish("delta")
    table.catalogs.register(uri, NAME)
    changed: dict[str, Any] = {**server.tables[KEY], "table_type": "MANAGED", "properties": {}}
    server.tables[KEY] = changed
    with pytest.raises(UnsupportedFeature, match=r"is no external table but MANAGED"):
        table.catalogs.register(uri, NAME)
    assert server.tables[KEY] == changed

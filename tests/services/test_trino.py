"""Trino reads lakebed's tables by its Hudi connector, and their published lists by those of Delta Lake and Iceberg."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conftest import unavailable

from .hive_metastore import HiveMetastore
from .service import ServiceError, java_home
from .test_lock_services import running
from .test_other_readers import LISTS, SCHEMA, written
from .trino_server import JAVA, Trino, trino_rows

pytestmark = pytest.mark.full
TIMESTAMPS = {"hoodie.datasource.hive_sync.support_timestamp": "true"}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    """The URI of a metastore, and the URL of a Trino over it."""
    try:
        java_home(*JAVA)
    except ServiceError as reason:
        pytest.skip(str(reason))
    with running(HiveMetastore(release=2)) as hive:
        try:
            trino = Trino(metastore=hive["uris"]).start()
        except ServiceError as reason:
            unavailable(str(reason))
        yield hive["uris"].replace("thrift://", "hive://"), trino.info["url"]
        trino.stop()


def as_trino_shows(found: pa.Table) -> list[dict[str, Any]]:
    """Rows by their keys, as the JSON of Trino's answers has them."""

    def value(name: str, cell: Any) -> Any:
        if isinstance(cell, dt.datetime):
            return f"{cell:%Y-%m-%d %H:%M:%S}.{cell.microsecond // 1000:03d} UTC"
        if isinstance(cell, dt.date | Decimal):
            return str(cell)
        if isinstance(cell, bytes):
            return base64.b64encode(cell).decode()
        if name == "attrs":
            return dict(cell)
        return list(cell.values()) if name == "pos" else cell

    rows = [{name: value(name, line[name]) for name in SCHEMA.names} for line in found.to_pylist()]
    return sorted(rows, key=lambda line: line["id"])


def answer_rows(url: str, name: str, where: str = "") -> list[dict[str, Any]]:
    rows = trino_rows(url, f"SELECT {', '.join(SCHEMA.names)} FROM {name} {where}")
    for line in rows:  # Trino 476 casts to milliseconds for clients that ask for no more
        line["at"] = line["at"].replace(" UTC", "")[:23] + " UTC"
    return sorted(rows, key=lambda line: line["id"])


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_trino_reads_the_base_files_of_tables_and_lists(
    version: int, kind: Any, tmp_path: Path, servers: tuple[str, str]
):
    catalog, url = servers
    table = written(str(tmp_path / "table"), version, kind)
    table.configure(TIMESTAMPS)
    name = f"v{version}_{kind}"
    table.catalogs.register(catalog, f"default.{name}")
    expected = as_trino_shows(table.scan(query="read_optimized").to_arrow())
    assert len(expected) >= 30
    assert answer_rows(url, f"hudi.default.{name}") == expected
    some = [line for line in expected if line["city"] == "oslo" and line["id"] > 3]
    assert answer_rows(url, f"hudi.default.{name}", "WHERE city = 'oslo' AND id > 3") == some
    for form in LISTS:
        connector = "delta_lake" if form == "delta" else form
        listed = f"{name}_{form}"
        place = f"file://{table.uri}" if form == "delta" else table.uri  # as the list itself has it
        trino_rows(url, f"CALL {connector}.system.register_table('default', '{listed}', '{place}')")
        assert answer_rows(url, f"{connector}.default.{listed}") == expected, form
        assert answer_rows(url, f"{connector}.default.{listed}", "WHERE city = 'oslo' AND id > 3") == some, form

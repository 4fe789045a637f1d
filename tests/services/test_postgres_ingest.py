"""Tables of a real PostgreSQL as a source: its types, changes, and a server that goes away."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import lakebed
from lakebed.errors import SourceError

from .postgres_server import Postgres

adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="adbc-driver-postgresql is not installed")


def execute(server: Postgres, *statements: str) -> None:
    with adbc.connect(server.info["uri"]) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def job_of(server: Postgres, table: str, column: str, **source: Any) -> dict[str, Any]:
    settings = {"kind": "sql", "uri": server.info["uri"], "table": table, "column": column, **source}
    return {"source": settings, "target": {"uri": f"memory://postgres/{uuid.uuid4().hex}", "create": {"key": "id"}}}


def rows(job: dict[str, Any]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lakebed.open(job["target"]["uri"]).to_arrow().to_pylist())


def test_rows_of_a_table_are_read_by_each_type_of_column(server: Postgres) -> None:
    execute(
        server,
        "CREATE TABLE rides(id bigint, city text, fare numeric(10,2), at timestamptz, day date)",
        "INSERT INTO rides VALUES (1, 'it''s', 9.50, '2024-01-01 10:00:00.000001+00', '2024-01-01'),"
        " (2, null, null, '2024-01-01 10:00:00.000002+00', '2024-01-02')",
    )
    for column in ("at", "id", "day", "fare"):
        job = job_of(server, "rides", column, columns={"fare": "decimal(10,2)"}, on_null="skip")
        lakebed.ingest(job, once=True)
        assert lakebed.ingest(job, once=True).commits == 0
        first = rows(job)[0]
        assert first[:3] == (1, "it's", Decimal("9.50"))
        assert first[3] == datetime(2024, 1, 1, 10, 0, 0, 1, tzinfo=UTC)
    job = job_of(server, "rides", "at") | {"max_rows": 1}
    assert lakebed.ingest(job, once=True).commits == 2
    execute(server, "UPDATE rides SET city = 'Rome', at = '2024-01-02 00:00:00+00' WHERE id = 1")
    assert lakebed.ingest(job, once=True).commits == 1
    assert [row[:2] for row in rows(job)] == [(1, "Rome"), (2, None)]


def test_a_row_with_the_value_of_the_last_one_is_new(server: Postgres) -> None:
    execute(server, "CREATE TABLE same(id bigint, at timestamp)", "INSERT INTO same VALUES (1, '2024-01-01')")
    job = job_of(server, "same", "at")
    lakebed.ingest(job, once=True)
    execute(server, "INSERT INTO same VALUES (2, '2024-01-01')")
    assert lakebed.ingest(job, once=True).commits == 1
    assert [row[0] for row in rows(job)] == [1, 2]


def test_a_query_that_fails_ends_the_job_and_a_server_that_is_down_may_pass(server: Postgres) -> None:
    with pytest.raises(SourceError, match="nothing"):
        lakebed.ingest(job_of(server, "nothing", "at"), once=True)
    job = job_of(server, "same", "at")
    job["source"]["uri"] = "postgresql://postgres@127.0.0.1:1/postgres"
    with pytest.raises(SourceError) as error:
        lakebed.ingest(job, once=True)
    assert error.value.retryable

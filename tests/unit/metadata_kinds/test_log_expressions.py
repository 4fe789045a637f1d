"""Expression indexes know the rows of log files: a filter on the function finds what was appended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

import lakebed
from lakebed.metadata.lookups import MetadataTable, open_snapshot
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from support.write_tables import SCHEMA, rows


@pytest.fixture
def table() -> Iterator[Table]:
    name = f"log-expressions-{uuid.uuid4().hex}"
    yield lakebed.create(f"memory://{name}/t", SCHEMA, key="id", ordering="ts", type="mor", index="bucket", buckets=1)
    MemoryStorage.drop(name)


def metadata(table: Table) -> MetadataTable:
    found = open_snapshot(open_storage(table.uri)).metadata
    assert found is not None
    return found


def test_ranges_of_log_files_are_those_of_their_rows(table: Table) -> None:
    table.upsert(rows((1, "a", "low", 1)))
    table.indexes.create("v_upper", column="v", function="upper")
    table.upsert(rows((1, "a", "zebra", 2), (2, "a", "yak", 2)))
    table.delete([2])
    schema = open_snapshot(open_storage(table.uri)).schema
    of_files, _ = metadata(table).expression_stats("expr_index_v_upper", {"v": schema.field("v").type})
    found = sorted((row["min"], row["max"], row["value_count"]) for row in of_files["v"].to_pylist())
    assert found == [("LOW", "LOW", 1), ("YAK", "ZEBRA", 2)]
    assert [r["id"] for r in table.scan(where="upper(v) = 'ZEBRA'").to_arrow().to_pylist()] == [1]
    assert table.scan(where="upper(v) = 'LOW'").to_arrow().num_rows == 0
    assert table.indexes.verify().ok


def test_filters_of_log_files_hold_their_rows(table: Table) -> None:
    table.upsert(rows((1, "a", "Low", 1)))
    table.indexes.create("v_lower", column="v", function="lower", kind="bloom_filters")
    table.upsert(rows((2, "a", "Zebra", 2)))
    assert [r["id"] for r in table.scan(where="lower(v) = 'zebra'").to_arrow().to_pylist()] == [2]
    assert [r["id"] for r in table.scan(where="lower(v) = 'low'").to_arrow().to_pylist()] == [1]
    assert table.indexes.verify().ok

"""`explain(upsert=...)` says what tagging the batch costs under the table's index and under others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import lakebed
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from support.write_tables import SCHEMA, rows

FIRST = [(n, f"c{n % 3}", f"v{n % 4}", 10) for n in range(30)]


@pytest.fixture
def place() -> Iterator[str]:
    name = f"costs-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def new_table(place: str, index: str, **more: Any) -> Table:
    return lakebed.create(place, SCHEMA, key="id", partition_by="city", ordering="ts", index=index, **more)


@pytest.mark.parametrize(
    ("index", "simple"),
    [
        ("record", "global_simple"),
        ("global_simple", "global_simple"),
        ("simple", "simple"),
        ("record_level_index", "simple"),
    ],
)
def test_both_ways_of_looking_keys_up_are_named(place: str, index: str, simple: str) -> None:
    table = new_table(place, index)
    assert table.explain(upsert=rows(*FIRST)).tagging is None
    table.upsert(rows(*FIRST))
    plan = table.explain(upsert=rows((1, "c1", "x", 20), (99, "c0", "x", 20)))
    assert plan.tagging is not None
    assert set(plan.tagging.seconds) == {"record", simple, "bucket"}
    assert plan.tagging.seconds["bucket"] == 0
    assert all(0 < plan.tagging.seconds[name] < 1 for name in ("record", simple))
    assert f"{simple} 0." in str(plan)
    assert "tagging: record 0." in str(plan)
    assert plan.to_dict()["tagging_seconds"] == plan.tagging.seconds


def test_explain_names_the_cheaper_index(place: str) -> None:
    table = new_table(place, "global_simple")
    table.upsert(rows(*((n, f"c{n:03d}", "v", 1) for n in range(120))))
    plan = table.explain(upsert=rows((1, "c001", "x", 20)))
    assert plan.tagging is not None
    assert plan.tagging.cheaper == plan.to_dict()["cheaper_index"] == "record"
    assert "for this batch the record index would be cheaper than global_simple" in str(plan)
    # a simple index looks into the one partition path that the rows name
    assert plan.tagging.seconds["global_simple"] > 120 * 0.001


def test_only_the_partition_paths_of_the_rows_count_for_indexes_that_are_not_global(place: str) -> None:
    table = new_table(place, "simple")
    table.upsert(rows(*((n, f"c{n:03d}", "v", 1) for n in range(120))))
    one, all_ = (
        table.explain(upsert=rows(*((n, f"c{n:03d}", "x", 20) for n in range(count)))).tagging for count in (1, 120)
    )
    assert one is not None
    assert all_ is not None
    assert all_.seconds["simple"] > 4 * one.seconds["simple"]


def test_a_bucket_index_looks_nothing_up(place: str) -> None:
    table = new_table(place, "bucket", buckets=2)
    table.upsert(rows(*FIRST))
    plan = table.explain(upsert=rows((1, "c1", "x", 20)))
    assert "tagging: nothing is looked up; otherwise record" in str(plan)
    assert plan.to_dict()["cheaper_index"] is None

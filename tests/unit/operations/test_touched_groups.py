"""A small write looks at the file groups that it touches: what it costs does not grow with the table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format import file_names
from lakebed.slices import listing
from support.same_rows import assert_same_rows

GROUPS = 30
NO_SMALL_FILES = {"hoodie.parquet.small.file.limit": 0}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of base files that a listing takes apart."""
    names: list[str] = []

    def parse(partition: str, name: str, size: int) -> Any:
        names.append(name)
        return file_names.parse_base_file(partition, name, size)

    monkeypatch.setattr(listing, "parse_base_file", parse)
    return names


def rows(first: int, count: int, v: int) -> pa.Table:
    return pa.table({"id": list(range(first, first + count)), "v": [v] * count})


@pytest.mark.parametrize("partitioned", [False, True])
def test_an_upsert_under_a_bucket_index_parses_only_touched_groups(partitioned: bool, parsed: list[str]) -> None:
    data = rows(0, 400, 1).append_column("p", pa.array(["a", "b"] * 200))
    options: dict[str, Any] = {"partition_by": "p"} if partitioned else {}
    table = lakebed.create(f"memory://touched-{partitioned}", data, key="id", index="bucket", buckets=GROUPS, **options)
    table.upsert(data)
    plan = table.explain(upsert=data.slice(7, 1))
    assert (len(plan.files), plan.rewritten) == (1, 1)
    parsed.clear()
    result = table.upsert(data.slice(7, 1))
    assert (result.inserted, result.updated) == (0, 1)
    # the ranges of the row's partition path are those of all its files
    assert len(parsed) == 1 + partitioned * GROUPS
    parsed.clear()
    assert_same_rows(table.scan().to_arrow(), data)
    assert len(parsed) >= GROUPS


@pytest.mark.rest
def test_an_upsert_under_a_record_index_parses_only_touched_groups(parsed: list[str]) -> None:
    """Inserts look at small files as well, of which there are none."""
    table = lakebed.create("memory://touched-record", rows(0, 1, 1), key="id", index="record")
    for n in range(GROUPS):
        table.upsert(rows(n * 10, 10, 1), options=NO_SMALL_FILES)
    assert len(table.files) == GROUPS
    for change, counts in ((rows(55, 1, 2), (0, 1)), (rows(10 * GROUPS, 1, 2), (1, 0))):
        parsed.clear()
        result = table.upsert(change, options=NO_SMALL_FILES)
        assert (result.inserted, result.updated) == counts
        assert len(parsed) <= 2
    parsed.clear()
    table.delete([56])
    assert len(parsed) <= 2
    left = pa.concat_tables([rows(0, 55, 1), rows(55, 1, 2), rows(57, 10 * GROUPS - 57, 1), rows(10 * GROUPS, 1, 2)])
    assert_same_rows(table.scan(["id", "v"]).to_arrow(), left)

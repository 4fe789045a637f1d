"""Options of a job that say how its metadata table is: which statistics, how many file groups, when it is compacted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.errors import UnsupportedFeature
from lakebed.storage import open_storage
from lakebed.table import Table
from support.write_tables import content, refused, rows

Make = Callable[..., Table]
ROWS = [(n, f"c{n % 2}", f"v{n % 3}", 1) for n in range(40)]


def groups(table: Table) -> dict[str, int]:
    return {facts.name: facts.file_groups for facts in lakebed.open(table.uri).indexes.list()}


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("wanted", [True, False, None])
def test_statistics_are_kept_as_the_option_says(make: Make, version: int, wanted: bool | None) -> None:
    table = make(index="bucket", buckets=1, table_version=version)
    options = {} if wanted is None else {"hoodie.metadata.index.column.stats.enable": wanted}
    table.upsert(rows(*ROWS), options=options)
    expected = {"files"}
    if wanted or (wanted is None and version == 9):
        expected |= {"column_stats", *(["partition_stats"] if version >= 8 else [])}
    assert set(groups(table)) == expected
    assert table.indexes.verify().ok
    table.upsert(rows((1, "c1", "new", 2)), options={"hoodie.metadata.index.column.stats.enable": True})
    assert "column_stats" in groups(table), "asked for later, it is built then"
    found = table.indexes.verify()
    assert found.ok, found
    assert len(content(table)) == len(ROWS)


def test_options_set_the_number_of_file_groups_of_new_indexes(make: Make) -> None:
    table = make(index="record", indexes=["v"])
    sizes: dict[str, Any] = {
        "hoodie.metadata.global.record.level.index.min.filegroup.count": 3,
        "hoodie.metadata.record.index.max.filegroup.count": 4,
    }
    table.upsert(rows(*ROWS), options=sizes)
    found = groups(table)
    assert (found["record_index"], found["secondary_index_v"]) == (3, 3)
    assert table.indexes.verify().ok


def test_file_groups_of_a_partition_path(make: Make) -> None:
    table = make(index="record_level_index")
    few = {"hoodie.metadata.record.level.index.min.filegroup.count": 2}
    table.upsert(rows(*ROWS), options=few)
    assert groups(table)["record_index"] == 4
    table.upsert(rows((100, "c7", "new path", 1)), options=few)
    assert groups(table)["record_index"] == 6
    assert table.indexes.verify().ok


def test_compaction_and_log_compaction(make: Make) -> None:
    table = make(index="bucket", buckets=1)
    soon = {"hoodie.metadata.compact.max.delta.commits": 2}
    merged = {
        "hoodie.metadata.compact.max.delta.commits": 100,
        "hoodie.metadata.log.compaction.enable": True,
        "hoodie.metadata.log.compaction.blocks.threshold": 3,
    }
    for options, action in ((soon, ".compaction."), (merged, ".logcompaction.")):
        before = instants(table, action)
        for n in range(8):
            table.upsert(rows((n, "c1", f"v{n}", n)), options=options)
        assert instants(table, action) > before, options
    found = table.indexes.verify()
    assert found.ok, found


@pytest.mark.parametrize(
    "option",
    ["hoodie.metadata.index.expression.column", "hoodie.metadata.dir.filter.regex", "hoodie.expression.index.function"],
)
def test_hudis_options_for_indexes_made_otherwise_are_refused(make: Make, option: str) -> None:
    table = make(index="bucket", buckets=1)
    with refused(table.uri, UnsupportedFeature, option):
        table.upsert(rows(*ROWS), options={option: "city"})


def instants(table: Table, action: str) -> int:
    """Timeline files of the metadata table with this word in their name."""
    found = open_storage(table.uri).list(".hoodie/metadata/.hoodie/timeline")
    return sum(action in info.path for info in found)

"""`t.maintenance`: services of one table, and those that are due."""

from __future__ import annotations

import pickle

import lakebed
from lakebed.table import Table


def table_with_logs(name: str) -> Table:
    off = {"hoodie.compact.inline": False, "hoodie.log.compaction.blocks.threshold": 2, "hoodie.clean.automatic": False}
    uri = f"memory://maintenance-view/{name}"
    table = lakebed.create(uri, {"id": [1], "v": [0]}, key="id", type="mor", index="bucket", buckets=1, properties=off)
    for n in range(4):
        table.upsert({"id": [1], "v": [n]})
    return table


def test_logs_are_merged_with_each_other_or_into_base_files() -> None:
    table = table_with_logs("logs")
    (before,) = table.files
    assert len(before.log_files) == 3
    assert table.maintenance.compact(logs=True).runs
    (merged,) = table.files
    assert (len(merged.log_files), merged.base_file) == (4, before.base_file)
    assert table.maintenance.compact().runs
    (compacted,) = table.files
    assert compacted.log_files == ()
    assert compacted.base_file != before.base_file
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": 3}]


def test_what_is_due_is_run_and_nothing_else() -> None:
    table = table_with_logs("due")
    assert list(table.maintenance.run(once=True)) == []
    settings = {"hoodie.clean.automatic": True, "hoodie.clean.commits.retained": 1, "hoodie.compact.inline": True}
    table.configure(settings | {"hoodie.compact.inline.max.delta.commits": 2})
    due = [(event.kind, event.table, event.service) for event in table.maintenance.run(dry_run=True)]
    assert ("due", table.uri, "compact") in due
    ran = [event.service for event in table.maintenance.run(once=True) if event.kind == "ran"]
    assert "compact" in ran
    assert list(table.maintenance.run(dry_run=True)) == []


def test_a_table_is_pickled_without_its_views() -> None:
    table = table_with_logs("pickled")
    table.count()
    again: Table = pickle.loads(pickle.dumps(table))
    assert (again.opened.spark, again.uri, again.count()) == (None, table.uri, 1)

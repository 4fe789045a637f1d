"""Whatever a table remembers of its writes, the first write after a change of its index or version takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakebed.errors import InvalidOption
from lakebed.table import Table
from support.write_tables import content, rows

Make = Callable[..., Table]
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
REMEMBERED: dict[str, Any] = {
    **NON_BLOCKING,
    "hoodie.compact.inline": False,
    "hoodie.clustering.updates.strategy": "SparkConsistentBucketDuplicateUpdateStrategy",
}
CHANGES: dict[str, Callable[[Table], Any]] = {
    "use simple": lambda t: t.indexes.use("simple"),
    "use global_simple": lambda t: t.indexes.use("global_simple"),
    "use bloom": lambda t: t.indexes.use("bloom"),
    "use record": lambda t: t.indexes.use("record"),
    "use bucket_groups": lambda t: t.indexes.use("bucket_groups", buckets=2),
    "rescale": lambda t: t.maintenance.rescale(4),
    "create record_index": lambda t: t.indexes.create("record_index"),
    "downgrade to 8": lambda t: t.maintenance.downgrade(8),
    "downgrade to 6": lambda t: t.maintenance.downgrade(6),
    "downgrade and upgrade": lambda t: (t.maintenance.downgrade(6), t.maintenance.upgrade()),
    "simple and bucket again": lambda t: (t.indexes.use("simple"), t.indexes.use("bucket", buckets=2)),
}


def new_table(make: Make) -> Table:
    table = make(index="bucket", buckets=2, type="mor", properties=REMEMBERED)
    table.upsert(rows((1, "c1", "a", 1), (2, "c0", "a", 1)))
    return table


@pytest.mark.parametrize("change", list(CHANGES))
def test_the_next_write_commits_after_a_change_of_index_or_version(make: Make, change: str) -> None:
    table = new_table(make)
    CHANGES[change](table)
    table.upsert(rows((1, "c1", "b", 2), (3, "c1", "b", 2)))
    table.insert(rows((4, "c0", "c", 3)))
    table.delete([2])
    assert content(table) == [(1, "c1", "b", 2), (3, "c1", "b", 2), (4, "c0", "c", 3)]
    assert table.indexes.verify().ok


def test_a_job_that_asks_for_what_the_table_cannot_do_is_refused(make: Make) -> None:
    table = new_table(make)
    table.indexes.use("simple")
    with pytest.raises(InvalidOption, match="non-blocking"):
        table.upsert(rows((1, "c1", "b", 2)), options=NON_BLOCKING)


def test_auto_chooses_no_index_of_a_table_with_rows(make: Make) -> None:
    table = new_table(make)
    for change in (table.indexes.use, table.indexes.adopt):
        with pytest.raises(InvalidOption, match="auto"):
            change("auto")
    with pytest.raises(InvalidOption, match=r"'auto' chooses the index of a new table.*t.indexes.advise\(\)"):
        table.indexes.use(" Auto ")
    assert table.indexes.index.name == "bucket"

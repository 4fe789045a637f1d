"""Indexes get other numbers of file groups, by hand and as they grow; what they say stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidOption
from lakebed.metadata_kinds.record_index import data_partition_of
from lakebed.metadata_records.layout import file_group, group_number
from lakebed.metadata_upkeep.skew import SHARDS, summed_up
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.transitions import TimelineWriter
from support.write_tables import content, files, rows

Make = Callable[..., Table]
FIRST = [(n, f"c{n % 3}", f"v{n % 4}", 10) for n in range(90)]


def groups(table: Table) -> dict[str, int]:
    return {facts.name: facts.file_groups for facts in table.indexes.list()}


@contextmanager
def refused(uri: str, error: type[lakebed.LakebedError], *words: str) -> Generator[None]:
    """The block raises `error` with the words, and nothing but the lock changes."""
    before = files(uri)
    with pytest.raises(error) as raised:
        yield
    assert [word for word in words if word not in str(raised.value)] == []
    after = files(uri)
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    assert {path for path in changed if "lock" not in path} == set()


def commits(table: Table, count: int, **options: Any) -> None:
    given = {f"lakebed.metadata.index.{name.replace('_', '.')}": value for name, value in options.items()}
    for n in range(count):
        table.upsert(rows((1000 + n, "c1", "more", 20)), options=given)


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_global_record_index(make: Make, version: int) -> None:
    table = make(table_version=version)
    table.upsert(rows(*FIRST))
    before, asked = content(table), list(range(0, 120, 7))
    assert groups(table)["record_index"] == 10
    for count in (17, 3, 1):
        instant = table.indexes.reshard("record_index", count)
        assert instant is not None
        assert table.indexes.reshard("record", file_groups=count) is None
        assert groups(table)["record_index"] == count
        assert content(table) == before
        assert table.exists(asked).to_pylist() == [n < 90 for n in asked]
        assert table.indexes.verify().ok
        table.upsert(rows((1, "c1", "again", 99 - count), (500 + count, "c2", "new", 30)))
        before = sorted(
            [*(r for r in before if r[0] != 1), (1, "c1", "again", 99 - count), (500 + count, "c2", "new", 30)]
        )
        assert content(table) == before
        assert table.indexes.verify().ok


def test_a_partitioned_record_index(make: Make) -> None:
    table = make(index="record_level_index")
    table.upsert(rows(*FIRST))
    assert table.indexes.reshard("record_index", 2)
    assert groups(table)["record_index"] == 6
    assert table.indexes.reshard("record_index", {"c1": 4})
    shards = table.indexes.skew().shards.to_pylist()
    assert Counter(row["partition_path"] for row in shards) == {"c0": 2, "c1": 4, "c2": 2}
    assert [(row["partition_path"], row["shards"]) for row in table.indexes.skew().to_arrow().to_pylist()] == [
        ("c0", 2),
        ("c1", 4),
        ("c2", 2),
    ]
    table.upsert(rows((1, "c1", "again", 30), (1, "c0", "its own", 30), (2, "c7", "a new path", 30)))
    assert table.indexes.verify().ok
    assert len(content(table)) == 92
    with refused(table.uri, InvalidOption, "nowhere", "partitioned"):
        table.indexes.reshard("record_index", {"nowhere": 2})


@pytest.mark.rest
def test_a_secondary_index_is_resharded_under_each_of_its_names(make: Make) -> None:
    table = make(indexes=["v"])
    table.upsert(rows(*FIRST))
    for name, count in (("v", 3), ("secondary_index_v", 12), ("secondary:v", 2)):
        assert table.indexes.reshard(name, count)
        assert groups(table)["secondary_index_v"] == count
        table.upsert(rows((count, "c1", "v1", 30 + count)))
        assert table.indexes.verify().ok
        expected = [row for row in content(table) if row[2] == "v1"]
        found = lakebed.open(table.uri).scan(where="v = 'v1'").to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in found) == expected


def test_reshardings_that_cannot_be_done_are_refused(make: Make) -> None:
    table = make(table_version=8, indexes=["v"])
    table.upsert(rows(*FIRST))
    for name, count, words in (
        ("files", 3, ("fixed",)),
        ("column_stats", 3, ("fixed",)),
        ("ts", 3, ("has no index", "record_index")),
        ("record_index", 0, ("file_groups=0", "4096")),
        ("record_index", 5000, ("file_groups=5000",)),
        ("record_index", {}, ("file_groups={}",)),
        ("record_index", {"c1": 2}, ("global", "c1")),
    ):
        with refused(table.uri, InvalidOption, *words):
            table.indexes.reshard(name, count)
    storage = open_storage(table.uri)
    steps = TimelineWriter(storage, load_table_config(storage))
    steps.request(Action.COMMIT, "20990101000000000")
    with refused(table.uri, CommitConflict, "pending", "Try again"):
        table.indexes.reshard("record_index", 3)


def test_an_index_that_outgrows_its_file_groups_is_doubled(make: Make) -> None:
    table = make(table_version=8)
    many = [(10_000 + n * 6364136223846793005 % 2**62, "c0", "many", 1) for n in range(4000)]
    table.upsert(rows(*FIRST, *many))
    assert table.indexes.reshard("record_index", 2)
    commits(table, 10, max_filegroup_size=0)
    assert groups(table)["record_index"] == 2
    commits(table, 11, max_filegroup_size=4_000)
    assert groups(table)["record_index"] in (4, 8, 16)
    assert table.indexes.verify().ok
    commits(table, 1)
    assert table.indexes.verify().ok
    assert content(table)[:90] == FIRST


def test_shards_hold_what_the_hash_gives_them(make: Make) -> None:
    table = make(indexes=["v"])
    table.upsert(rows(*FIRST))
    assert table.indexes.reshard("record_index", 4)
    assert table.indexes.reshard("v", 3)
    expected = Counter(file_group(pa.array([str(n) for n in range(90)]), 4).tolist())
    report = table.indexes.skew("record_index")
    shards = report.shards.to_pylist()
    assert report.shards.schema == SHARDS
    first = min(group_number(row["file_id"]) for row in shards)
    assert {group_number(row["file_id"]) - first: row["entries"] for row in shards} == expected
    assert all(row["bytes"] > 0 and data_partition_of(row["file_id"]) is None for row in shards)
    (told,) = report.to_arrow().to_pylist()
    assert (told["shards"], told["entries_min"], told["entries_max"]) == (
        4,
        min(expected.values()),
        max(expected.values()),
    )
    assert told["entries_mean"] == round(90 / 4)
    assert told["skew"] == round(max(expected.values()) / (90 / 4), 2)
    assert "entries_max" in repr(report)
    assert ">record_index</td>" in getattr(report, "_repr_html_")()  # noqa: B009
    both = table.indexes.skew().shards
    assert pc.sum(both.filter(pc.equal(both["index"], "secondary_index_v"))["entries"]).as_py() == 90
    table.upsert(rows(*((n, "c0", "log", 50) for n in range(200, 205))))
    assert pc.sum(table.indexes.skew("record_index").shards["entries"]).as_py() == 95


def test_a_table_without_indexes_of_keys(make: Make) -> None:
    table = make(index="simple")
    assert summed_up(table.indexes.skew().shards).num_rows == 0
    table.upsert(rows(*FIRST))
    assert table.indexes.skew().to_arrow().num_rows == 0
    with pytest.raises(InvalidOption, match="has no index"):
        table.indexes.skew("record_index")

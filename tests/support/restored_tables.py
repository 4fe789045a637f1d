"""What tests of savepoints, restores and rollbacks share: tables with a history, cleanings, what a table looks like."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lakebed
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.bodies.plans import CleanPlan, clean_body, encode_clean_metadata
from lakebed.timeline.instants import InstantClock
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.compaction_tables import snapshot
from support.write_tables import content, files, rows

OPTIONS = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False}  # views of the past stay whole
KINDS = (
    (9, "cow", "record"),
    (9, "mor", "record"),
    (8, "cow", "simple"),
    (8, "mor", "bucket"),
    (6, "cow", "record"),
    (6, "mor", "record"),
)


def first_commits(table: Table) -> str:
    """Two commits; gives the instant of the second."""
    table.upsert(rows(*[(i, f"c{i % 2}", "a", 1) for i in range(8)]), options=OPTIONS)
    return table.upsert(rows(*[(i, f"c{i % 2}", "b", 2) for i in range(0, 8, 2)]), options=OPTIONS).instant


def every_action(table: Table) -> None:
    """A commit of each kind that the table can have; the last one pending on a merge-on-read table."""
    table.upsert(rows((1, "c1", "z", 3), (100, "c3", "z", 3)), options=OPTIONS)
    table.delete([2, 3], options=OPTIONS)
    if "MERGE" in table.properties["hoodie.table.type"]:
        table.maintenance.compact(options=OPTIONS)
        table.upsert(rows((1, "c1", "y", 4), (101, "c3", "z", 3)), options=OPTIONS)
        table.maintenance.compact(logs=True, options={**OPTIONS, "hoodie.log.compaction.blocks.threshold": 1})
        table.maintenance.compact(plan_only=True, options=OPTIONS)
        table.upsert(rows((1, "c1", "x", 5), (102, "c3", "z", 3)), options=OPTIONS)
    table.insert_overwrite(rows((7, "c1", "o", 9)), options=OPTIONS)
    table.delete_partitions(["c3"], options=OPTIONS)


def timeline(table: Table) -> Timeline:
    storage = open_storage(table.uri)
    return load_timeline(storage, load_table_config(storage))


def actions(table: Table) -> list[tuple[str, str]]:
    return [(i.time, i.action.value) for i in timeline(table).instants]


def located(table: Table, *ids: int) -> list[tuple[Any, ...]]:
    """The rows of these keys as the index finds them."""
    return sorted(tuple(row.values()) for row in table.get(list(ids)).to_pylist())


def is_whole(table: Table) -> bool:
    """Whether rows are what the index says, and the metadata table what the table says."""
    everything = content(table)
    keys = [row[0] for row in everything]
    return located(table, *keys) == everything and bool(table.indexes.verify())


def cleaned(table: Table, which: Callable[[str], bool], earliest: str = "") -> list[str]:
    """Clean the files whose paths `which` chooses, as a clean that leaves a plan and a result; gives their paths."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    now = load_timeline(storage, config)
    paths = [info.path for info in storage.list() if not info.path.startswith(".hoodie") and which(info.path)]
    names: dict[str, list[str]] = {}
    for path in paths:
        partition, _, name = path.rpartition("/")
        names.setdefault(partition, []).append(name)
    plan = CleanPlan(names, now.commit(earliest) if earliest else None, now.commits[-1].time)
    clock = InstantClock(config.timezone)
    instant = clock.next(after=now.greatest_time)
    writer = TimelineWriter(storage, config)
    writer.request(Action.CLEAN, instant, clean_body(storage.url(), plan).encode())
    writer.inflight(Action.CLEAN, instant)
    for path in paths:
        storage.delete(path)
    decoded = load_timeline(storage, config)
    found = next(i for i in decoded.pending if i.time == instant)
    body = encode_clean_metadata(instant, decoded.plan(found), 1)
    writer.complete(Action.CLEAN, instant, clock.next(after=instant), body)
    return paths


@contextmanager
def refused(uri: str, error: type[lakebed.LakebedError], *words: str) -> Iterator[None]:
    """The block raises `error` with the words in message or hint, and nothing changes but that the lock was taken."""
    before = _without_lock(files(uri))
    with pytest.raises(error) as raised:
        yield
    for word in words:
        assert word in str(raised.value)
    assert _without_lock(files(uri)) == before


def _without_lock(found: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in found.items() if not path.startswith(".hoodie/.locks/")}


def files_of(table: Table) -> set[str]:
    """The paths of the files that the table is made of now."""
    return {
        file.path
        for one in snapshot(table).file_slices()
        for file in (one.base_file, *one.log_files)
        if file is not None
    }

"""The metadata table is compacted after a write, or by the process that maintains tables; a write does it itself only
where nothing else has for long."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.metadata_upkeep.store import MAX_OVERDUE
from lakebed.model import Action
from lakebed.policies.compaction import delta_commits_since_compaction
from lakebed.properties.file import load_table_config
from lakebed.services.daemon import run
from lakebed.storage import open_storage
from lakebed.storage.folder import FolderStorage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation, crash_at
from lakebed.timeline.timeline import Timeline, load_table

EVERY = 6
DUE = {"hoodie.metadata.compact.max.delta.commits": EVERY}
WITHOUT_SERVICES = DUE | {"hoodie.table.services.enabled": False}


def rows(version: int) -> pa.Table:
    return pa.table({"id": [version % 5, 7], "v": [version, version]})


def new_table(uri: str, version: int = 9) -> Table:
    return lakebed.create(uri, rows(0), key="id", type="mor", index="bucket", buckets=1, table_version=version)


def metadata_timeline(table: Table) -> Timeline:
    return load_table(FolderStorage(open_storage(table.uri), METADATA_FOLDER))[1]


def waiting(table: Table) -> int:
    return delta_commits_since_compaction(metadata_timeline(table).commits)


def compactions(table: Table) -> int:
    return sum(i.action is Action.COMMIT for i in metadata_timeline(table).commits)


def upsert_until(table: Table, commits: int, options: Mapping[str, Any]) -> None:
    """Write until so many delta commits wait for a compaction of the metadata table."""
    for version in count(1):
        table.upsert(rows(version), options=options)
        if waiting(table) >= commits:
            return


def check(table: Table) -> None:
    verified = table.indexes.verify()
    assert verified.ok, verified
    assert lakebed.open(table.uri).count() == len(set(table.to_arrow()["id"].to_pylist()))


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_write_compacts_the_metadata_table_after_its_commit(version: int, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"), version)
    most = 0
    for n in range(1, 2 * EVERY):
        done = table.upsert(rows(n), options=DUE)
        assert not any("metadata" in line for line in done.services)
        most = max(most, waiting(table))
    assert (compactions(table) > 0, most) == (True, EVERY - 1)
    check(table)


def test_without_services_a_write_compacts_where_it_is_long_overdue(tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    upsert_until(table, MAX_OVERDUE * EVERY - 1, WITHOUT_SERVICES)
    table.upsert(rows(1), options=WITHOUT_SERVICES)
    assert (waiting(table), compactions(table)) == (MAX_OVERDUE * EVERY, 0)
    table.upsert(rows(2), options=WITHOUT_SERVICES)
    assert (waiting(table), compactions(table)) == (1, 1)
    check(table)


def test_the_process_that_maintains_tables_compacts_it(tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    upsert_until(table, EVERY, WITHOUT_SERVICES)
    events = [(event.kind, event.service) for event in run(table.uri, once=True, options=DUE)]
    assert {("due", "metadata"), ("ran", "metadata")} <= set(events)
    assert (waiting(table), compactions(table)) == (0, 1)
    assert not [event for event in run(table.uri, once=True, options=DUE) if event.service == "metadata"]
    check(table)


def test_a_compaction_that_dies_after_a_write_is_finished_by_the_next(tmp_path: Path) -> None:
    def completes(mutation: Mutation) -> bool:
        name = mutation.path.rpartition("/")[2]
        return METADATA_FOLDER in mutation.path and "_" in name and name.endswith(".commit")

    table = new_table(str(tmp_path / "t"))
    upsert_until(table, EVERY - 1, WITHOUT_SERVICES)
    with crash_at(completes), pytest.raises(Killed):
        lakebed.open(table.uri).upsert(rows(3), options=DUE)
    assert lakebed.open(table.uri).get([3])["v"].to_pylist() == [3]
    assert (waiting(table), compactions(table)) == (EVERY, 0)
    lakebed.open(table.uri).upsert(rows(4), options=DUE)
    assert (waiting(table), compactions(table)) == (1, 1)
    assert load_table_config(open_storage(table.uri)).metadata_partitions
    check(lakebed.open(table.uri))

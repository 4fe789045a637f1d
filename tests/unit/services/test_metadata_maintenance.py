"""The metadata table is compacted by the process that maintains tables, else by the write that finds it due, before
that write's own commit: the last commit can be rolled back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.model import Action
from lakebed.policies.compaction import delta_commits_since_compaction
from lakebed.services.daemon import run
from lakebed.storage import open_storage
from lakebed.storage.folder import FolderStorage
from lakebed.table import Table
from lakebed.timeline.timeline import Timeline, load_table

EVERY = 6
DUE = {"hoodie.metadata.compact.max.delta.commits": EVERY}
NOT_DUE = {"hoodie.metadata.compact.max.delta.commits": 100}


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
def test_a_write_compacts_the_metadata_table_before_its_commit_and_can_be_rolled_back(
    version: int, tmp_path: Path
) -> None:
    table = new_table(str(tmp_path / "t"), version)
    upsert_until(table, EVERY, NOT_DUE)
    assert compactions(table) == 0
    done = table.upsert(rows(11), options=DUE)
    assert (waiting(table), compactions(table)) == (1, 1)
    before = lakebed.open(table.uri).get([7])["v"].to_pylist()
    assert before == [11]
    assert done.instant is not None
    lakebed.open(table.uri).rollback(done.instant)
    assert lakebed.open(table.uri).get([7])["v"].to_pylist() != before
    check(lakebed.open(table.uri))


def test_the_process_that_maintains_tables_compacts_it(tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    upsert_until(table, EVERY, NOT_DUE)
    events = [(event.kind, event.service) for event in run(table.uri, once=True, options=DUE)]
    assert ("due", "metadata") in events
    assert (waiting(table), compactions(table)) == (0, 1)
    assert not [event for event in run(table.uri, once=True, options=DUE) if event.service == "metadata"]
    check(table)

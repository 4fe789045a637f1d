"""Incremental reads of a history that both wrote: real Hudi gives over lakebed's commits what `changes` gives."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from interop.test_tables_for_hudi import make, rows
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline
from oracle.client import HudiOracle
from support.same_rows import assert_same_rows
from support.sampling import some


@pytest.mark.parametrize(
    ("version", "index"), some([(9, "bucket"), (8, "simple"), (6, "simple")], (9, "bucket"), (6, "simple"))
)
def test_changes_equal_hudis_incremental_query(version: int, index: str, tmp_path: Path, oracle: HudiOracle):
    table = make(tmp_path, index=index, table_version=version)
    table.bulk_insert(rows(range(12), "a", 1))
    table.upsert(rows(range(6, 18), "b", 2))
    oracle.write(table.uri, rows(range(15, 24), "c", 3), options=hudi_job(table))
    table.delete([1, 7, 16])
    table.insert_overwrite(rows(range(1, 30, 6), "d", 4))
    table.upsert(rows(range(2, 5), "late", 0))
    marks = checkpoints(table)
    assert len(marks) == 6
    first, second, third, fourth, fifth, last = marks
    ranges = [
        ("000", None),
        ("000", third),
        (first, None),
        (second, fifth),
        (third, fourth),
        (fifth, last),
        (last, None),
    ]
    for start, end in ranges:
        changes = lakebed.open(table.uri).changes(start, end, meta=True)
        theirs = oracle.incremental(table.uri, start, end)
        assert_same_rows(changes.to_arrow(), theirs)
        assert changes.end == (end or last)
    assert lakebed.open(table.uri).changes("000").count() == table.count()
    assert lakebed.open(table.uri).changes(second, third).count() == 9


def checkpoints(table: lakebed.Table) -> list[str]:
    """Where a commit ends: its completion time, on version 6 its instant."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    commits = load_timeline(storage, config).commits
    return [c.time if config.version == 6 else str(c.completion_time) for c in commits]

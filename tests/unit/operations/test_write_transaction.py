"""The steps of a write in storage, in their order, and what is left of one that was undone."""

from __future__ import annotations

import re

import pytest

import lakebed
from lakebed.errors import CommitConflict, StorageError
from lakebed.model import Action
from lakebed.operations.upsert import upsert
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage, FaultPlan, FaultyStorage
from support.tables import context_of, new_table
from support.write_tables import content, files, rows

VERSIONS = (6, 8, 9)
# What a path is to a commit; the first pattern that fits.
KINDS = {
    r"\.hoodie/metadata/.*\.(delta)?commit$": "metadata commit",
    r"\.hoodie/metadata/": "",
    r"\.hoodie/\.heartbeat/": "heartbeat",
    r"\.hoodie/\.temp/.*\.marker\.|\.hoodie/\.temp/.*MARKERS": "marker",
    r"\.hoodie/(timeline/)?\w+\.commit\.requested$": "requested",
    r"\.hoodie/(timeline/)?\w+\.(commit\.)?inflight$": "inflight",
    r"\.hoodie/(timeline/)?\w+\.commit$": "completed",
    r"[^.].*\.parquet$": "data file",
}


def counted(name: str, version: int) -> tuple[lakebed.Table, CountingStorage]:
    """A table with one row, and its storage from now on."""
    MemoryStorage.drop(name)
    table = new_table(rows((1, "oslo", "old", 1)), uri=f"memory://{name}", table_version=version)
    return table, CountingStorage(MemoryStorage(name))


def kind_of(path: str) -> str:
    return next((kind for pattern, kind in KINDS.items() if re.match(pattern, path)), "")


def test_a_write_is_requested_then_inflight_then_marked_then_written_and_completed_after_the_metadata_table() -> None:
    steps = ["heartbeat", "requested", "inflight", "marker", "data file", "metadata commit", "completed"]
    for version in VERSIONS:
        table, storage = counted(f"steps-{version}", version)
        upsert(context_of(storage), rows((1, "oslo", "new", 2)))
        seen = [kind for kind in map(kind_of, storage.written) if kind]
        assert list(dict.fromkeys(seen)) == steps, (version, storage.written)
        assert seen.count("completed") == 1, version
        assert content(table) == [(1, "oslo", "new", 2)], version


def test_a_write_whose_step_fails_leaves_the_rows_and_files_that_were_there_and_nothing_pending() -> None:
    for version in (6, 9):
        for step in ("requested", "inflight", "data file", "metadata commit", "completed"):
            case = f"version {version}, {step}"
            table, storage = counted(f"undone-{version}", version)
            before = files(table.uri)
            faulty = FaultyStorage(storage, FaultPlan(lambda m, step=step: kind_of(m.path) == step, "fail"))
            with pytest.raises(StorageError, match="failed as planned"):
                upsert(context_of(faulty), rows((1, "oslo", "new", 2)))
            assert faulty.crash.fired, case
            assert content(table) == [(1, "oslo", "old", 1)], case
            assert not lakebed.open(table.uri).timeline.pending, case
            after = files(table.uri)
            assert {p for p in after if not p.startswith(".")} == {p for p in before if not p.startswith(".")}, case


def test_a_write_that_was_planned_for_another_index_is_not_even_requested() -> None:
    for version in VERSIONS:
        table, storage = counted(f"other-index-{version}", version)
        context = context_of(storage)
        planned = {**context.opened.index_settings, "type": "bucket"}
        write = WriteTransaction(context, Action.COMMIT, "UPSERT", planned_index=planned)
        with pytest.raises(CommitConflict, match=r"the index of table .* was changed") as refused, write.begin():
            write.request()
        assert refused.value.context["planned"] == planned, version
        assert "requested" not in map(kind_of, storage.written), version
        assert content(table) == [(1, "oslo", "old", 1)], version

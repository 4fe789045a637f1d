"""A writer that stands still after it chose its instant, and before it showed it: where clocks are behind the timeline
another process chooses the same one, and what that did is not taken for the writer's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import time_machine

import lakebed
from lakebed.errors import CommitConflict
from lakebed.table import Table
from lakebed.testing import Mutation
from support.crash_tables import OPTIONS, Model, copied, prepared, put, rows, state
from support.frozen import FrozenWriter

OURS = [(0, "c0", "ours", 9), (20, "c0", "ours", 9)]
THEIRS = [(1, "c1", "theirs", 9), (21, "c1", "theirs", 9)]
LAST = [(2, "c0", "last", 11)]
CLEANS = {**OPTIONS, "hoodie.clean.commits.retained": 1}


def is_first_beat(mutation: Mutation) -> bool:
    return mutation.path.startswith(".hoodie/.heartbeat/")


def is_request(mutation: Mutation) -> bool:
    return mutation.path.endswith("commit.requested") and "metadata" not in mutation.path


def rolled_back(table: Table) -> None:
    table.rollback(max(i.time for i in table.timeline), options=OPTIONS)


OTHERS: dict[str, Callable[[Table], Any]] = {
    "clean": lambda t: t.maintenance.clean(options=CLEANS),
    "upsert": lambda t: t.upsert(rows(*THEIRS), options=OPTIONS),
    "rollback": rolled_back,
}


@pytest.mark.parametrize(("index", "version"), [("bucket", 9), ("mor-bucket", 9), ("record", 8), ("simple", 6)])
@pytest.mark.parametrize("stands", [is_first_beat, is_request])
@pytest.mark.parametrize("other", list(OTHERS))
def test_files_of_another_process_at_the_same_instant_are_not_deleted(
    other: str, stands: Callable[[Mutation], bool], index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        lakebed.open(uri).upsert(rows((0, "c0", "third", 3), (1, "c1", "third", 3)), options=OPTIONS)
        before = put(old, (0, "c0", "third", 3), (1, "c1", "third", 3))
        with time_machine.travel(time.time() - 3600, tick=True):
            frozen = FrozenWriter(uri, lambda t: t.upsert(rows(*OURS), options=OPTIONS), stands, monkeypatch)
            assert frozen.freeze()
            frozen.time_is_over()
            OTHERS[other](lakebed.open(uri))
            after: dict[str, Model] = {"clean": before, "upsert": put(before, *THEIRS), "rollback": old}
            frozen.thaw()
            assert isinstance(frozen.error, CommitConflict), frozen.error
            assert state(uri) == after[other]
            found = lakebed.open(uri).indexes.verify()
            assert found.ok, found
            lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
            assert state(uri) == put(after[other], *LAST)

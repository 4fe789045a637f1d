"""Every storage mutation of `t.clone` as the place where it fails, dies, is torn, or gets no answer.

Whatever is struck, the clone has all rows or there is none; another call finishes, and the source keeps its rows.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

import lakebed
from lakebed.errors import TableNotFound
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import OPTIONS, copied, place, prepared, put, rows, state, strike_each
from support.sampling import CRASH, whole

FAULTS: tuple[Mode, ...] = ("unacknowledged", "fail", "doubtful", "lost")
CASES = list(product((("simple", 9), ("bloom", 6), ("bucket", 8)), (False, True), FAULTS))
_ALL = whole(CRASH)
BATCH = [(1, "c1", "later", 9), (77, "c0", "later", 9)]


@pytest.mark.parametrize(
    ("table", "deep", "mode"), CASES if _ALL else [case for n, case in enumerate(CASES) if n % 5 == 0]
)
def test_a_clone_is_complete_or_absent_after_a_crash(table: tuple[str, int], deep: bool, mode: Mode) -> None:
    assert strike_each(lambda at: _crash(table, deep, mode, at), 29, "clone", *table, deep, mode) >= 10


def _crash(table: tuple[str, int], deep: bool, mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    files, model = prepared(*table)
    with copied("memory", files) as source, place("memory") as uri:
        with crash_at(at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            lakebed.open(source).clone(uri, deep=deep, options=OPTIONS)
        if not crash.fired:
            return len(crash.mutations)
        try:
            try:
                found = state(uri)
            except TableNotFound:
                found = {}
            assert found in ({}, model)
            if not found:
                if lakebed.list_tables(uri, depth=0) and not len(lakebed.open(uri).timeline):
                    lakebed.drop(uri)  # a table that was just created, which only its user knows to be of no use
                lakebed.open(source).clone(uri, deep=deep, options=OPTIONS)
            assert state(uri) == model
            lakebed.open(source).upsert(rows((0, "c0", "other", 9)), options=OPTIONS)
            lakebed.open(uri).upsert(rows(*BATCH), options=OPTIONS)
            assert state(source) == put(model, (0, "c0", "other", 9))
            assert state(uri) == put(model, *BATCH)
            assert lakebed.open(uri).indexes.verify().ok
            assert len(lakebed.open(source).savepoints) <= 1
        except Exception as error:
            error.add_note(f"{table} {deep} {mode} {at}: {crash}")
            raise
    return None

"""A small write on a slow store keeps the table lock to its commit. One that stood still meanwhile, and lost the lock,
commits or is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.table import Table
from lakebed.testing import Mutation, crash_at
from support.crash_tables import OPTIONS, Model, copied, leftovers, prepared, put, rows, state
from support.frozen import FrozenWriter
from support.request_rounds import request_rounds
from support.sampling import CRASH, todays_points

OURS = [(0, "c0", "ours", 9), (20, "c0", "ours", 9)]
THEIRS = [(1, "c1", "theirs", 9), (21, "c1", "theirs", 9)]
LATER = [(1, "c1", "later", 10), (0, "c0", "later", 10), (20, "c0", "later", 10)]


def write(table: Table) -> Any:
    return table.upsert(rows(*OURS), options=OPTIONS)


def changes(files: Mapping[str, bytes]) -> list[Mutation]:
    """The changes of storage of the write, in their order."""
    with copied("memory", files) as uri, request_rounds(), crash_at(0) as counted:
        write(lakebed.open(uri))
    return counted.mutations


def goes_on(uri: str, expected: Model) -> None:
    """The table has these rows, the next write leaves nothing behind, and every index agrees."""
    assert state(uri) == expected
    with request_rounds():
        lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
    assert state(uri) == put(expected, *LATER)
    assert leftovers(uri) == []
    found = lakebed.open(uri).indexes.verify()
    assert found.ok, found


def test_a_small_write_takes_the_lock_once() -> None:
    files, _ = prepared("mor-bucket", 9)
    locks = [m for m in changes(files) if m.path.endswith("table_lock.json")]
    assert len(locks) == 2, "it is taken and given back"


@pytest.mark.parametrize("of_heartbeat", [True, False], ids=["rolled back", "alive"])
def test_frozen_before_any_change_of_a_small_write(of_heartbeat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer takes the lock, and rolls it back where its heartbeat has ended as well."""
    files, old = prepared("mor-bucket", 9)
    last, ends = len(changes(files)), set[str]()
    for at in sorted({2, *todays_points(last - 1, 3, CRASH, str(of_heartbeat)), last - 1}):
        with copied("memory", files) as uri, monkeypatch.context() as patch:
            with request_rounds():
                frozen = FrozenWriter(uri, write, at, patch)
                assert frozen.freeze()
                try:
                    frozen.time_is_over(of_heartbeat=of_heartbeat)
                    expected = old
                    with_theirs = True
                    try:
                        lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
                    except CommitConflict:
                        with_theirs = False
                    frozen.thaw()
                    assert frozen.error is None or isinstance(frozen.error, CommitConflict), frozen.error
                except BaseException as error:
                    error.add_note(f"frozen before {frozen.mutation}; it ended with {frozen.error!r}\n{frozen.crash}")
                    raise
            expected = put(expected, *OURS) if frozen.error is None else expected
            expected = put(expected, *THEIRS) if with_theirs else expected
            ends.add("raised" if frozen.error else "committed")
            try:
                goes_on(uri, expected)
            except BaseException as error:
                error.add_note(f"frozen before {frozen.mutation}; it ended with {frozen.error!r}\n{frozen.crash}")
                raise
    assert ends == {"raised", "committed"}


def test_a_small_write_that_lost_the_lock_without_a_rival_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the lock again, like a write that let it go, and makes its delta commit again."""
    files, old = prepared("mor-bucket", 9)
    with copied("memory", files) as uri:
        with request_rounds():
            frozen = FrozenWriter(uri, write, lambda m: m.path.endswith("deltacommit.inflight"), monkeypatch)
            assert frozen.freeze()
            frozen.time_is_over(of_heartbeat=False)
            frozen.thaw()
        assert frozen.error is None
        goes_on(uri, put(old, *OURS))

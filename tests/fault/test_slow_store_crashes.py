"""A write on a store whose answers are slow, where requests go side by side, is old or new wherever it is struck."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import NEXT, OPERATIONS, copied, leftovers, prepared, state, strike_each
from support.request_rounds import request_rounds


def struck(operation: str, index: str, mode: Mode, at: int, *, late: bool) -> int | None:
    """Strike one mutation and look at all that follows; where the write has none, the number that it has."""
    files, old = prepared(index, 9)
    verb = OPERATIONS[operation]
    new = verb.model(old)
    with copied("memory", files) as uri:
        with request_rounds(late=late), crash_at(at, mode) as crash:
            allowed = (new,)
            try:
                verb.run(lakebed.open(uri))
            except Killed:
                allowed = (old, new)
            except lakebed.LakebedError:
                allowed = (old,)
        if not crash.fired:
            return len(crash.mutations)
        found = state(uri)
        assert found in allowed, crash
        with request_rounds():
            NEXT.run(lakebed.open(uri))
        assert state(uri) == NEXT.model(found), crash
        assert leftovers(uri) == [], crash
        indexes = lakebed.open(uri).indexes.verify()
        assert indexes.ok, (indexes, crash)
    return None


@pytest.mark.parametrize("late", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("mode", ["unacknowledged", "fail"])
@pytest.mark.parametrize(("operation", "index"), [("upsert", "mor-bucket"), ("upsert", "bucket"), ("delete", "record")])
def test_a_write_on_a_slow_store_is_old_or_new_and_leaves_nothing(
    operation: str, index: str, mode: Mode, late: bool
) -> None:
    """Of two requests that go side by side either may come first: what is in the background is done before the next
    step, or when it is needed."""
    case = "slow", operation, index, mode, str(late)
    assert strike_each(lambda at: struck(operation, index, mode, at, late=late), 9, *case) >= 8

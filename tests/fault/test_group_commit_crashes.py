"""Every storage mutation of upserts that are one commit as the place where it fails, dies, or gets no answer.

The rows of each upsert are all there or none, as its result or error says, and those of one commit come together. The
next writer finds nothing that it could not remove. Some mutations are struck, others each day; `LAKEBED_CRASH=all`
strikes all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import lakebed
from lakebed.testing import Killed, Mode
from support.crash_tables import MOR, NEXT, OPTIONS, copied, leftovers, prepared, put, rows, state, strike_each
from support.joined_upserts import Outcome, Upserts
from support.sampling import CRASH, whole

INDEXES = ("bucket", f"{MOR}bucket", "record", f"{MOR}simple")
FAULTS: tuple[Mode, ...] = ("unacknowledged", "fail", "doubtful", "lost")
# The first is alone, the others are one commit: known keys and new ones, in both partition paths.
BATCHES = [
    [(0, "c0", "first", 9)],
    [(1, "c1", "joined", 9), (100, "c0", "joined", 9)],
    [(2, "c0", "joined", 9), (3, "c1", "joined", 9)],
    [(101, "c1", "joined", 9)],
]


def _cases() -> Iterator[tuple[str, Mode]]:
    for at, mode in enumerate(FAULTS):
        for index in INDEXES if whole(CRASH) else [INDEXES[at]]:
            yield index, mode


@pytest.mark.parametrize(("index", "mode"), list(_cases()))
def test_joined_upserts_are_there_as_their_results_say(index: str, mode: Mode) -> None:
    assert strike_each(lambda at: _crash(index, mode, at), 15, "group commit", mode) >= 25


def _crash(index: str, mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    files, model = prepared(index, 9)
    with copied("memory", files) as uri:
        upserts = Upserts(uri, [rows(*batch) for batch in BATCHES], strike=at, mode=mode, options=OPTIONS)
        upserts.begin()
        outcomes = upserts.finish()
        if not upserts.crash.fired:
            assert [result.joined for result in upserts.results] == [1, 3, 3, 3]
            return upserts.later
        try:
            _look(uri, model, outcomes, are_dead=mode == "unacknowledged")
        except Exception as error:
            error.add_note(f"{index} {mode} {at}: {upserts.crash}\n{outcomes}")
            raise
    return None


def _look(
    uri: str, model: dict[int, tuple[str, str, int]], outcomes: Sequence[Outcome | None], *, are_dead: bool
) -> None:
    found = state(uri)
    present = [all(found.get(key) == (city, v, ts) for key, city, v, ts in batch) for batch in BATCHES]
    expected = model
    for batch, is_there in zip(BATCHES, present, strict=True):
        expected = put(expected, *batch) if is_there else expected
    assert found == expected, "an upsert is there in part"
    for outcome, is_there in zip(outcomes, present, strict=True):
        if isinstance(outcome, lakebed.WriteResult):
            assert is_there, "an upsert returned, and its rows are not there"
        elif not isinstance(outcome, Killed | lakebed.errors.CommitStateUnknown):
            assert not is_there, f"an upsert raised {outcome!r}, and its rows are there"
    if are_dead:
        assert len({*present[1:]}) == 1, "a commit is there in part"
    NEXT.run(lakebed.open(uri))
    assert state(uri) == NEXT.model(found)
    assert leftovers(uri) == []
    assert lakebed.open(uri).indexes.verify().ok

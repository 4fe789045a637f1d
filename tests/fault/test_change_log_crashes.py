"""Every storage mutation of a write that logs its changes as the place where it fails or dies.

A part of them each day, all with `LAKEBED_CRASH=all`.
"""

from __future__ import annotations

from itertools import count

import pytest

import lakebed
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import NEXT, OPERATIONS, Model, copied, leftovers, prepared, state
from support.sampling import CRASH, is_todays


@pytest.mark.parametrize("mode", ["unacknowledged", "fail"])
@pytest.mark.parametrize("operation", ["upsert", "delete"])
@pytest.mark.parametrize(("index", "version"), [("cdc-simple", 9), ("cdc-bucket", 6)])
def test_changes_lead_to_the_rows_wherever_a_writer_dies(index: str, version: int, operation: str, mode: Mode) -> None:
    files, old = prepared(index, version)
    for at in (n for n in count(1) if is_todays(n, 9, CRASH, index, version, operation, mode)):
        with copied("memory", files) as uri:
            with crash_at(at, mode) as struck:
                try:
                    OPERATIONS[operation].run(lakebed.open(uri))
                    allowed = (OPERATIONS[operation].model(old),)
                except Killed:
                    allowed = (old, OPERATIONS[operation].model(old))
                except lakebed.LakebedError:
                    allowed = (old,)
            if not struck.fired:
                break
            try:
                found = state(uri)
                assert found in allowed
                assert changed_to(uri) == found
                NEXT.run(lakebed.open(uri))
                assert changed_to(uri) == state(uri) == NEXT.model(found)
                assert leftovers(uri) == []
                assert lakebed.open(uri).indexes.verify().ok
            except Exception as error:
                error.add_note(str(struck))
                raise
    assert at > 10


def changed_to(uri: str) -> Model:
    """The rows that all changes together lead to."""
    rows: Model = {}
    for change in lakebed.open(uri).cdc("000").to_arrow().to_pylist():
        before, after = change["before"], change["after"]
        if before is not None:
            assert rows.pop(before["id"]) == (before["city"], before["v"], before["ts"])
        if after is not None:
            assert after["id"] not in rows
            rows[after["id"]] = after["city"], after["v"], after["ts"]
    return rows

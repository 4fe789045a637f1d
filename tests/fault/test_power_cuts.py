"""The power goes at any sync of a write: what was not synced is lost, or some of it is. The write is old or new."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from support.crash_tables import LAST, NEXT, OPERATIONS, OPTIONS, Model, copied, leftovers, prepared, state
from support.power_cuts import Files, unsynced_lost
from support.sampling import CRASH, is_todays

_SERVICES: dict[str, Callable[[lakebed.Table], Any]] = {
    "compact": lambda t: t.maintenance.compact(options=OPTIONS),
    "clean": lambda t: t.maintenance.clean(options=OPTIONS | {"hoodie.clean.commits.retained": 1}),
}


def after(files: Files) -> Model:
    """The rows after a power cut. The next write goes on from them, and the table is tidy then."""
    with copied("local", files) as uri:
        for path in files:
            os.utime(f"{uri}/{path}", (0, 0))  # a writer without a heartbeat gets some minutes from its last file on
        rows = state(uri)
        NEXT.run(lakebed.open(uri))
        assert state(uri) == NEXT.model(rows)
        assert leftovers(uri) == []
        indexes = lakebed.open(uri).indexes.verify()
        assert indexes.ok, indexes
    return rows


@pytest.mark.parametrize(
    ("action", "index"),
    [
        ("upsert", "mor-bucket"),
        ("upsert", "bucket"),
        ("upsert", "mor-record"),
        ("delete", "record"),
        ("insert_overwrite", "simple"),
        ("compact", "mor-bucket"),
        ("clean", "bucket"),
    ],
)
def test_a_power_cut_during_a_write_leaves_the_table_before_or_after_it(action: str, index: str) -> None:
    files, old = prepared(index, 9)
    run, new = _SERVICES.get(action), old
    if run is None:
        run, new = OPERATIONS[action].run, OPERATIONS[action].model(old)
    with copied("local", files) as uri:
        table = lakebed.open(uri)
        if action == "clean":  # which has something to clean after one more commit
            LAST.run(table)
            old = new = LAST.model(old)
        with unsynced_lost(uri) as disk:
            run(table)
    assert len(disk.cuts) > 12
    seen: list[Model] = []
    for at, (nothing, some) in enumerate(zip(disk.cuts, disk.survivors, strict=True), 1):
        if at < len(disk.cuts) and not is_todays(at, 9, CRASH, "power", action, index):
            continue
        for left in (nothing, some):
            found = after(left)
            assert found in (old, new), f"sync {at}"
        seen.append(after(nothing))
    assert seen[-1] == new, "a write that returned lasts"
    if new != old:
        assert seen == sorted(seen, key=lambda rows: rows == new), "what lasted goes on to last"

"""A writer that stood still while another one rolled it back and went on: it commits or it is gone, never both."""

from __future__ import annotations

from typing import Any

import pytest

import lakebed
from crash_tables import OPTIONS, copied, prepared, put, rows, state
from frozen import FrozenWriter
from lakebed.errors import CommitConflict
from lakebed.table import Table

OURS = [(0, "c0", "ours", 9), (20, "c0", "ours", 9)]
THEIRS = [(1, "c1", "theirs", 9), (21, "c1", "theirs", 9)]
LATER = [(1, "c1", "later", 10), (0, "c0", "later", 10), (20, "c0", "later", 10)]
KINDS = [("simple", 9), ("record", 8), ("record", 6), ("bucket", 6)]
# the metadata table is compacted as the frozen writer begins
COMPACTS = OPTIONS | {"hoodie.metadata.compact.max.delta.commits": 1}


def write(table: Table) -> Any:
    return table.upsert(rows(*OURS), options=COMPACTS)


@pytest.mark.parametrize(("index", "version"), KINDS)
def test_frozen_before_any_change_of_storage(index: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files, old = prepared(index, version)
    at, ends = 0, set[str]()
    while True:
        at += 1
        with copied("memory", files) as uri, monkeypatch.context() as patch:
            frozen = FrozenWriter(uri, write, at, patch)
            if not frozen.freeze():
                break
            try:
                frozen.time_is_over()
                expected = old
                try:
                    lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)
                    theirs_stands = True
                except CommitConflict:
                    theirs_stands = False
                frozen.thaw()
                assert frozen.error is None or isinstance(frozen.error, CommitConflict), frozen.error
                if frozen.error is None:
                    expected = put(expected, *OURS)
                if theirs_stands:
                    expected = put(expected, *THEIRS)
                ends.add("raised" if frozen.error else "committed")
                assert state(uri) == expected
                found = lakebed.open(uri).indexes.verify()
                assert found.ok, found
                lakebed.open(uri).upsert(rows(*LATER), options=OPTIONS)
                assert state(uri) == put(expected, *LATER)
                found = lakebed.open(uri).indexes.verify()
                assert found.ok, found
            except BaseException as error:
                error.add_note(
                    f"frozen before mutation {at}: {frozen.mutation}; it ended with {frozen.error!r}\n{frozen.crash}"
                )
                raise
    assert at > 20
    assert ends == {"raised", "committed"}

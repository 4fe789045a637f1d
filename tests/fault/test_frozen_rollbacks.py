"""A process that stands still while it rolls back a writer that is not dead: the writer commits or it is rolled back,
and what it committed nobody deletes."""

from __future__ import annotations

from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.table import Table
from lakebed.testing import Mutation
from support.crash_tables import OPTIONS, copied, prepared, put, rows, state
from support.frozen import FrozenWriter
from support.sampling import CRASH, todays_points

OURS = [(0, "c0", "ours", 9), (20, "c0", "ours", 9)]
THEIRS = [(1, "c1", "theirs", 9), (21, "c1", "theirs", 9)]
LAST = [(2, "c0", "last", 11)]
KINDS = [("bucket", 9), ("record", 8), ("mor-bucket", 6)]
# The changes of storage of the other process; before two of them files of the writer were deleted once.
_CHANGES, _ALWAYS = 30, {5, 13}
_OF_CHANGES = 15


def roll_back_as_lakebed(table: Table) -> Any:
    return table.upsert(rows(*OURS), options=OPTIONS)


def roll_back_as_other(table: Table) -> Any:
    return table.upsert(rows(*THEIRS), options=OPTIONS)


def is_data(mutation: Mutation) -> bool:
    return not mutation.path.startswith(".hoodie") and "ition_metadata" not in mutation.path


@pytest.mark.parametrize(("index", "version"), KINDS)
def test_a_writer_that_is_being_rolled_back_does_not_commit(
    index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, old = prepared(index, version)
    for at in sorted(_ALWAYS | {*todays_points(_CHANGES, _OF_CHANGES, CRASH, index, version)}):
        with copied("memory", files) as uri, monkeypatch.context() as patch:
            writer = FrozenWriter(uri, roll_back_as_lakebed, is_data, patch)
            assert writer.freeze()
            writer.time_is_over()
            other = FrozenWriter(uri, roll_back_as_other, at, patch)
            assert other.freeze() or at > max(_ALWAYS)
            try:
                other.time_is_over()
                writer.thaw()
                other.thaw()
                for one in (writer, other):
                    assert one.error is None or isinstance(one.error, CommitConflict), one.error
                expected = old
                for one, given in ((writer, OURS), (other, THEIRS)):
                    expected = expected if one.error else put(expected, *given)
                assert state(uri) == expected
                lakebed.open(uri).upsert(rows(*LAST), options=OPTIONS)
                assert state(uri) == put(expected, *LAST)
                found = lakebed.open(uri).indexes.verify()
                assert found.ok, found
            except BaseException as error:
                error.add_note(f"frozen before mutation {at}: {other.mutation}; {writer.error!r}, {other.error!r}")
                raise

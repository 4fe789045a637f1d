"""A process that stands still while it finishes a compaction of the metadata table leaves alone what others made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakebed
from lakebed.testing import Killed, Mutation, crash_at
from support.crash_tables import OPTIONS, Model, copied, leftovers, prepared, put, rows, state
from support.frozen import FrozenWriter

OFTEN = OPTIONS | {"hoodie.metadata.compact.max.delta.commits": 1}
TIMELINE = ".hoodie/metadata/.hoodie/"


def completes(mutation: Mutation) -> bool:
    return mutation.path.startswith(TIMELINE) and mutation.path.endswith(".commit")


def deletes_a_leftover(mutation: Mutation) -> bool:
    """Of the first partition; those of the others are looked for after it."""
    return mutation.verb == "delete" and mutation.path.endswith(".hfile")


def overtaken(uri: str, at: Callable[[Mutation], bool], monkeypatch: pytest.MonkeyPatch) -> Model:
    """A write stands still at this change of storage, another one finishes the compaction, and the first one goes on
    without effect; gives the rows."""
    frozen = FrozenWriter(uri, lambda table: table.upsert(rows((0, "c0", "ours", 10)), options=OFTEN), at, monkeypatch)
    assert frozen.freeze()
    frozen.time_is_over()
    lakebed.open(uri).upsert(rows((2, "c0", "theirs", 11)), options=OFTEN)
    expected = state(uri)
    frozen.thaw()
    assert frozen.error is not None
    assert state(uri) == expected
    return expected


@pytest.mark.parametrize("version", [9, 8, 6])
def test_base_files_of_a_compaction_that_another_process_finished_stay(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, old = prepared("record", version)
    with copied("memory", files) as uri:
        with crash_at(completes), pytest.raises(Killed):
            lakebed.open(uri).upsert(rows((1, "c1", "first", 9)), options=OFTEN)
        expected = overtaken(uri, deletes_a_leftover, monkeypatch)
        assert expected[2] == put(old, (2, "c0", "theirs", 11))[2]
        assert lakebed.open(uri).indexes.verify().ok


def writes_a_base_file(mutation: Mutation) -> bool:
    return (
        mutation.verb != "delete" and mutation.path.startswith(".hoodie/metadata/") and mutation.path.endswith(".hfile")
    )


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_process_takes_its_files_off_a_compaction_that_another_one_finished(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ = prepared("record", version)
    with copied("memory", files) as uri:
        overtaken(uri, writes_a_base_file, monkeypatch)
        assert leftovers(uri) == []
        assert lakebed.open(uri).indexes.verify().ok

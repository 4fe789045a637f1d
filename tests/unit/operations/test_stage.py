"""The write of a stage lives as long as the stage: its heartbeat is renewed, and a dropped stage is rolled back."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lakebed
from lakebed.concurrency.heartbeat import heartbeat_path, is_dead
from lakebed.errors import CommitConflict, InvalidOption
from support.crash_tables import leftovers

ROWS = {"id": [1, 2], "v": [1, 1]}
QUICK = {"hoodie.client.heartbeat.interval_in_ms": 100}


def created(folder: Path) -> lakebed.Table:
    t = lakebed.create(str(folder / "t"), ROWS, key="id", partition_by="v", type="mor", index="bucket", buckets=1)
    t.upsert(ROWS)
    return t


def pending(t: lakebed.Table) -> list[str]:
    return [i.time for i in t.timeline if not i.is_completed]


def test_an_open_stage_beats_and_another_writer_leaves_it_alone(tmp_path: Path) -> None:
    t = created(tmp_path)
    with t.stage() as staged:
        staged.upsert({"id": [3], "v": [3]}, options=QUICK)
        (instant,) = pending(t)
        beat = t.opened.storage.head(heartbeat_path(instant))
        deadline = time.monotonic() + 5
        while t.opened.storage.head(heartbeat_path(instant)) == beat:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert not is_dead(t.opened.storage, instant)
        code = f"import lakebed; lakebed.open({t.uri!r}).upsert({{'id': [9], 'v': [9]}})"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        assert pending(t) == [instant]
        staged.commit()
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 9]
    assert leftovers(t.uri) == []


def test_a_stage_that_is_dropped_is_rolled_back_by_the_next_writer(tmp_path: Path) -> None:
    t = created(tmp_path)
    staged = t.stage()
    staged.upsert({"id": [3], "v": [3]})
    (instant,) = pending(t)
    assert not is_dead(t.opened.storage, instant)
    del staged
    gc.collect()
    assert is_dead(t.opened.storage, instant)
    assert t.upsert({"id": [9], "v": [9]}).rolled_back == (instant,)
    assert (pending(t), leftovers(t.uri)) == ([], [])
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 9]


def test_a_stage_of_a_process_that_died_is_rolled_back_by_the_next_writer(tmp_path: Path) -> None:
    t = created(tmp_path)
    code = f"""
import lakebed, os
staged = lakebed.open({t.uri!r}).stage()
staged.upsert({{"id": [3], "v": [3]}})
assert staged.count() == 3
os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 7
    (instant,) = pending(t)
    assert t.count() == 2
    assert t.upsert({"id": [9], "v": [9]}).rolled_back == (instant,)
    assert (pending(t), leftovers(t.uri)) == ([], [])
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 9]


def test_a_stage_that_others_took_for_dead_does_not_commit(tmp_path: Path) -> None:
    t = created(tmp_path)
    with t.stage() as staged:
        staged.upsert({"id": [3], "v": [3]})
        staged.opened.stage.has_ended = True  # what others see when the process does not beat any more
        t.upsert({"id": [9], "v": [9]})
        staged.opened.stage.has_ended = False
        with pytest.raises(CommitConflict, match="rolled back by another writer"):
            staged.commit()
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2, 9]
    assert leftovers(t.uri) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_neither_commits_nor_rolls_back(tmp_path: Path) -> None:
    t = created(tmp_path)
    staged = t.stage()
    staged.upsert({"id": [3], "v": [3]})
    child = os.fork()
    if child == 0:
        try:
            staged.commit()
        except InvalidOption:
            staged.__exit__(None, None, None)
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    staged.commit()
    assert t.count() == 3


def test_a_stage_that_a_restore_removed_says_so(tmp_path: Path) -> None:
    t = created(tmp_path)
    first = t.timeline[-1].time
    t.upsert({"id": [4], "v": [4]})
    with t.stage() as staged:
        staged.upsert({"id": [3], "v": [3]})
        (instant,) = pending(t)
        restored = lakebed.open(t.uri).restore(first)
        assert instant in [rolled.time for rolled in restored.rolled_back]
        with pytest.raises(
            CommitConflict, match=rf"a restore of the table \({restored.instant}\) removed instant {instant}"
        ):
            staged.commit()
    assert sorted(t.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert leftovers(t.uri) == []

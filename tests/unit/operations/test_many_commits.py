"""A process that commits again and again: the late commit does no more than the early one, and little stays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.hfile.entries import BLOCKS
from lakebed.metadata import expected_files
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import BaseFile, FileSlice
from lakebed.slices.listing import Listing, groups_of_ids
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import atomic_file, open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.timeline import timeline

KEYS = 50


@contextmanager
def table(name: str) -> Generator[Table]:
    uri = f"memory://{name}/t"
    yield lakebed.create(uri, rows(0), key="id", ordering="ts", index="bucket", buckets=1)
    MemoryStorage.drop(name)


def rows(version: int) -> pa.Table:
    numbers = list(range(KEYS)) if version < 2 else [version % KEYS]
    return pa.table({"id": numbers, "ts": [version] * len(numbers), "v": [f"{n}-{version}" for n in numbers]})


@pytest.mark.rest
def test_a_late_commit_looks_at_no_more_than_an_early_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"instants parsed": 0, "bodies decoded": 0, "base files": 0}

    def spy(module: Any, name: str, what: str) -> None:
        whole = getattr(module, name)

        def counted(*given: Any, **named: Any) -> Any:
            seen[what] += 1
            return whole(*given, **named)

        monkeypatch.setattr(module, name, counted)

    spy(timeline, "parse_instant_file", "instants parsed")
    spy(timeline, "decode_commit", "bodies decoded")
    in_view = Snapshot.file_slices

    def slices(self: Snapshot, *given: Any) -> tuple[FileSlice, ...]:
        found = in_view(self, *given)
        seen["base files"] += len(found)
        return found

    monkeypatch.setattr(Snapshot, "file_slices", slices)
    with table("late-commits") as t:
        for n in range(1, 35):  # with the first archival of the metadata table
            t.upsert(rows(n))
        windows: list[dict[str, int]] = []
        for start in (35, 105):  # compaction, cleaning and archival of both tables come again after so many
            before = dict(seen)
            for n in range(start, start + 70):
                t.upsert(rows(n))
            windows.append({what: seen[what] - before[what] for what in seen})
        early, late = windows
        # a listing has a few instants more or less, by when the archivals of both tables fall
        assert late.pop("instants parsed") <= 1.05 * early.pop("instants parsed")
        assert late == early
        assert t.get([42]).to_pylist() == [{"id": 42, "ts": 142, "v": "42-142"}]


@pytest.mark.rest
def test_blocks_of_base_files_that_a_compaction_replaced_are_forgotten() -> None:
    BLOCKS.clear()
    with table("replaced-blocks") as t:
        for n in range(1, 36):
            t.upsert(rows(n))
        held = {cast("tuple[str, ...]", key)[0] for key in BLOCKS._entries}  # pyright: ignore[reportPrivateUsage]
        assert held
        groups = [url.rpartition("/")[2].partition("_")[0] for url in held]
        assert len(groups) == len(set(groups)), "two base files of one file group"
    BLOCKS.clear()


@pytest.mark.rest
def test_bodies_of_commits_that_were_archived_are_forgotten() -> None:
    bodies = timeline._BODIES  # pyright: ignore[reportPrivateUsage]
    bodies.clear()
    with table("archived-bodies") as t:
        held: list[int] = []
        for n in range(1, 160):
            t.upsert(rows(n))
            if n % 20 == 19 and n > 20:  # after the first archivals
                storage = open_storage(t.uri)
                names = {info.path.rpartition("/")[2] for info in storage.list() if "/timeline/" in info.path}
                known = {cast("tuple[str, Any]", key)[0].rpartition("/")[2] for key in bodies._entries}  # pyright: ignore[reportPrivateUsage]
                # of what the last archival took off at most, which the next listing shows
                assert len(known - names) <= 11
                held.append(len(known))
                folder = storage.url(".hoodie/metadata/.hoodie/timeline")
                written = expected_files._WRITTEN.get(folder)  # pyright: ignore[reportPrivateUsage]
                assert written is not None
                assert len(written.content) > 10
                assert len({name for name, _ in written.content} - names) <= 11
        assert 20 < max(held[3:]) <= max(held[:3])
    bodies.clear()


def test_a_small_commit_waits_five_times_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def counted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(f"{tmp_path}/t").removesuffix(" (deleted)"))
        if re.search(r"/(files|column_stats)/#\d+$", synced[-1]):
            begun.wait()
        fsync(fd)

    begun = threading.Barrier(3, timeout=60)  # the log files of the metadata table are written side by side
    t = lakebed.create(str(tmp_path / "t"), rows(0), key="id", ordering="ts", type="mor", index="bucket", buckets=1)
    t.upsert(rows(1))
    t.upsert(rows(2))
    monkeypatch.setattr(atomic_file.os, "fsync", counted)
    t.upsert(rows(3))
    # a file without a name is `#` and a number; names are synced with the bytes of the next file
    paths = [re.sub(r"#\d+$|\d{17}$", "*", path) for path in synced]
    metadata = "/.hoodie/metadata"
    steps: list[dict[str, int]] = [
        {"/*": 1, "/.hoodie/timeline": 1, "/.hoodie/.temp": 1, "/.hoodie/.temp/*": 1},  # log file, inflight, marker
        {f"{metadata}/files/*": 1, f"{metadata}/column_stats/*": 2, "": 1, f"{metadata}/.hoodie/timeline": 1},
        {f"{metadata}/.hoodie/timeline/*": 1, f"{metadata}/files": 1, f"{metadata}/column_stats": 1},
        {"/.hoodie/timeline/*": 1, f"{metadata}/.hoodie/timeline": 1},
        {"/.hoodie/timeline": 1},  # the commit is durable
    ]
    for step in steps:
        count = sum(step.values())
        assert Counter(paths[:count]) == step
        del paths[:count]
    assert paths == []


def test_only_files_of_a_group_that_may_count_are_examined() -> None:
    with table("old-slices") as t:
        for n in range(1, 8):
            t.upsert(rows(n))
        snapshot = open_snapshot(open_storage(t.uri))
        [whole] = snapshot.file_slices()
        assert isinstance(whole.base_file, BaseFile)
        assert whole.instant == snapshot.instant
        fresh = open_snapshot(open_storage(t.uri))
        chosen = groups_of_ids([whole.file_id])
        assert fresh.file_slices(None, chosen) == (whole,)
        listing: Listing = fresh._listing(None, chosen)  # pyright: ignore[reportPrivateUsage]
        assert listing.base_files == (whole.base_file,)
        # of an older view the newest file does not count, those before it do
        past = open_snapshot(open_storage(t.uri), as_of=snapshot.commits[2].time)
        [then] = past.file_slices(None, chosen)
        assert then.instant == snapshot.commits[2].time


# Of Python, and of C from Python, in the thread of the caller.
MAX_CALLS_OF_A_SMALL_COMMIT = 13_500


_SMALL_COMMITS = """
import json, sys
import lakebed, pyarrow as pa
from support.calls import calls_of

def of(first, count):
    columns = {f"c{n}": [float(n)] * count for n in range(8)}
    return pa.table({"id": [f"k{n:04d}" for n in range(first, first + count)], "ts": [first] * count, **columns})

t = lakebed.create(sys.argv[1], of(0, 200), key="id", ordering="ts", type="mor", index="bucket", buckets=1)
t.upsert(of(0, 200))
print(json.dumps([calls_of(lambda first=first: t.upsert(of(first, 10))) for first in range(1, 14)]))
"""


def test_a_small_commit_calls_few_functions(tmp_path: Path) -> None:
    """In a process of its own: what others left in caches and hooks would change the number."""
    paths = os.pathsep.join([str(Path(lakebed.__file__).parents[1]), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", _SMALL_COMMITS, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    calls: list[int] = json.loads(done.stdout.splitlines()[-1])
    assert sorted(calls[6:])[len(calls[6:]) // 2] <= MAX_CALLS_OF_A_SMALL_COMMIT, calls

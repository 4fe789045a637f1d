"""A timeline that is archived while it is listed has no hole: a listing that showed an old commit and missed one after
it would hide the rows of the second one, since only what is older than all commits counts as archived."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import pytest

import lakebed
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline import timeline as timeline_module
from lakebed.timeline.timeline import load_timeline
from support.changing_tables import QUIET
from support.crash_tables import OPTIONS, copied, rows
from support.torn_listings import before_each_size, paged, paged_each

COMMITS, LEFT = 8, 3
SETTINGS = {
    "hoodie.compact.inline": False,
    "hoodie.compact.inline.max.delta.commits": 1,
    "hoodie.metadata.compact.max.delta.commits": 2,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.clean.commits.retained": 1,
}
Rows = dict[int, str]


@cache
def archivable(kind: str, version: int) -> tuple[Mapping[str, bytes], Rows]:
    """The files of a table whose commits updated one row each, and most of which can be archived; its rows."""
    name = f"archivable-{uuid.uuid4().hex}"
    table = lakebed.create(
        f"memory://{name}/t",
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        index="simple",
        table_version=version,
        properties={**QUIET, **SETTINGS},
    )
    table.upsert(rows(*((n, "c0", "v", 0) for n in range(COMMITS))), options=OPTIONS)
    for n in range(1, COMMITS):
        table.upsert(rows((n, "c0", f"v{n}", n)), options=OPTIONS)
    storage = open_storage(table.uri)
    files = {info.path: storage.read(info.path) for info in storage.list() if "/.locks/" not in info.path}
    MemoryStorage.drop(name)
    return files, {0: "v"} | {n: f"v{n}" for n in range(1, COMMITS)}


def archive(uri: str) -> None:
    assert len(lakebed.open(uri).maintenance.archive(options=OPTIONS).instants) == COMMITS - LEFT


def read_rows(uri: str) -> Rows:
    return {row["id"]: row["v"] for row in lakebed.open(uri).scan(["id", "v"]).to_arrow().to_pylist()}


def timeline_files(files: Mapping[str, bytes], folder: str) -> set[str]:
    """Names of the files directly in the folder."""
    return {Path(path).name for path in files if Path(path).parent.as_posix() == folder}


def commits(uri: str) -> list[str]:
    storage = open_storage(uri)
    return [i.time for i in load_timeline(storage, load_table_config(storage)).commits]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_files_that_go_before_their_size_is_known_leave_no_hole(kind: str) -> None:
    """Names of version 6 have no completion times: its files are listed with size and time."""
    files, expected = archivable(kind, 6)
    count = len(timeline_files(files, ".hoodie"))
    for at in range(4, count, 7):
        with copied("local", files) as uri:
            asked: list[str] = []

            def do(path: str, uri: str = uri, at: int = at, asked: list[str] = asked) -> None:
                asked.append(path)
                if len(asked) == at:
                    archive(uri)

            with before_each_size(f"{uri}/.hoodie", do):
                answer = read_rows(uri)
            assert len(commits(uri)) == LEFT
            assert answer == expected, f"before the size of {asked[at - 1]}"


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 8), ("mor", 6)])
def test_files_that_go_between_two_answers_of_a_listing_leave_no_hole(
    kind: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_module, "_FILES_AN_ANSWER", 2)
    files, expected = archivable(kind, version)
    folder = ".hoodie" if version == 6 else ".hoodie/timeline"
    count = len(timeline_files(files, folder))
    for at in range(4, count, 7):
        with copied("memory", files) as uri:
            with paged(folder, at, lambda uri=uri: archive(uri)):
                answer = read_rows(uri)
            assert len(commits(uri)) == LEFT
            assert answer == expected, f"after {at} files"


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 6)])
def test_a_timeline_is_read_although_an_archive_run_deletes_a_file_during_each_of_many_listings(
    kind: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_module, "_FILES_AN_ANSWER", 2)
    files, expected = archivable(kind, version)
    folder = ".hoodie" if version == 6 else ".hoodie/timeline"
    with copied("memory", files) as uri:
        archive(uri)
        assert len(commits(uri)) == LEFT  # what this process has listed last
        storage = open_storage(uri)
        left = set(storage.list_names(folder))
        archived = sorted(timeline_files(files, folder) - left)
        assert len(archived) == 3 * (COMMITS - LEFT)
        for name in archived:
            storage.write(f"{folder}/{name}", files[f"{folder}/{name}"])
        with paged_each(folder, 4, iter([partial(storage.delete, f"{folder}/{name}") for name in archived])):
            assert read_rows(uri) == expected
        assert set(storage.list_names(folder)) == left

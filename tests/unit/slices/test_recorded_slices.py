"""A commit builds on the file slices that the last commit of this process left, and on listed files where anything else
has happened to the table since."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata.slices import MetadataSlices, open_slices
from lakebed.slices import recorded_slices, snapshot
from lakebed.slices.recorded_slices import RecordedSlices, Slices
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage, Killed, Mutation, crash_at

Rows = dict[int, tuple[str, int]]
INDEXES: dict[str, dict[str, Any]] = {
    "bucket": {"index": "bucket", "buckets": 2},
    "record": {"index": "record_index"},
}
OTHER_PROCESS = """
import sys, lakebed, pyarrow as pa
ids, version = [int(n) for n in sys.argv[2].split(",")], int(sys.argv[3])
columns = {"id": ids, "path": ["ab"[n % 2] for n in ids], "v": [version] * len(ids)}
lakebed.open(sys.argv[1]).upsert(pa.table(columns))
"""


def rows(ids: list[int], version: int) -> pa.Table:
    columns = {"id": ids, "path": ["ab"[n % 2] for n in ids], "v": [version] * len(ids)}
    return pa.table(columns, pa.schema([("id", pa.int64()), ("path", pa.string()), ("v", pa.int64())]))


class Followed:
    """A table, and the rows that it must have."""

    def __init__(self, uri: str, kind: Literal["cow", "mor"], index: str) -> None:
        self.uri, self.kind, self.version = uri, kind, 0
        self.table: Table = lakebed.create(uri, rows([], 0), key="id", partition_by="path", type=kind, **INDEXES[index])
        self.rows: Rows = {}
        self.upsert(list(range(6)))

    def upsert(self, ids: list[int], table: Table | None = None) -> None:
        self.version += 1
        (table or self.table).upsert(rows(ids, self.version))
        self.put(ids)

    def put(self, ids: list[int]) -> None:
        self.rows |= {n: ("ab"[n % 2], self.version) for n in ids}

    def check(self) -> None:
        """The table has its rows, its metadata table fits it, and the recorded file slices are those of a listing."""
        found = lakebed.open(self.uri).to_arrow().select(["id", "path", "v"]).to_pylist()
        assert {row["id"]: (row["path"], row["v"]) for row in found} == self.rows
        assert len(found) == len(self.rows)
        verified = lakebed.open(self.uri).indexes.verify()
        assert verified.ok, verified
        recorded, listed = recorded_of(self.uri)
        assert recorded == {path: listed.file_slices([path]) for path in recorded}
        recorded, metadata = recorded_of_metadata(self.uri)
        assert recorded == {partition: metadata.file_slices(partition) for partition in recorded}


def slices_in(recorded: RecordedSlices | None) -> Slices:
    return {} if recorded is None else {path: its for path, its in recorded.slices.items() if its is not None}


def recorded_of(uri: str) -> tuple[Slices, Snapshot]:
    """What this process knows of a table, and a view that lists the files."""
    view = open_snapshot(open_storage(uri)).of_folders()
    return slices_in(RecordedSlices.of(view.storage, view.config, view.timeline)), view


def recorded_of_metadata(uri: str) -> tuple[Slices, MetadataSlices]:
    view = open_snapshot(open_storage(uri))
    slices = open_slices(view.storage, view.config, view.timeline)
    assert slices is not None
    return slices_in(RecordedSlices.of(slices.storage, slices.config, slices.timeline)), slices


@pytest.fixture(params=["cow", "mor"])
def kind(request: pytest.FixtureRequest) -> Literal["cow", "mor"]:
    return request.param


@pytest.fixture(params=list(INDEXES))
def followed(request: pytest.FixtureRequest, kind: Literal["cow", "mor"], tmp_path: Path) -> Followed:
    return Followed(str(tmp_path / "t"), kind, request.param)


def in_another_process(t: Followed) -> None:
    t.version += 1
    arguments = [t.uri, "1,2,20", str(t.version)]
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, *arguments], check=True, timeout=120)
    t.put([1, 2, 20])


def by_a_second_table(t: Followed) -> None:
    t.upsert([2, 3, 21], lakebed.open(t.uri))


def rolled_back(t: Followed) -> None:
    before = dict(t.rows)
    written = t.table.upsert(rows([0, 22], 98))
    t.table.rollback(written.instant)
    t.rows = before


def restored(t: Followed) -> None:
    before, savepoint = dict(t.rows), t.table.savepoints.create()
    t.upsert([1, 23])
    t.upsert([4])
    t.table.restore(savepoint)
    t.rows = before


def killed(t: Followed) -> None:
    """A commit that dies before its completed instant: its files, and its delta commit, are there."""

    def of_table(mutation: Mutation) -> bool:
        return mutation.verb == "put_if_absent" and "/metadata/" not in mutation.path and is_completed(mutation.path)

    with crash_at(of_table), pytest.raises(Killed):
        lakebed.open(t.uri).upsert(rows([2, 24], 99))


def failed(t: Followed) -> None:
    def of_metadata(mutation: Mutation) -> bool:
        return "/metadata/.hoodie/timeline/" in mutation.path and is_completed(mutation.path)

    with crash_at(of_metadata, "fail"), pytest.raises(lakebed.LakebedError):
        lakebed.open(t.uri).upsert(rows([2, 25], 99))


def is_completed(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(("commit", "deltacommit")) and "_" in name


def compacted(t: Followed) -> None:
    if t.kind == "mor":
        t.table.maintenance.compact()


def cleaned(t: Followed) -> None:
    t.table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})


def archived(t: Followed) -> None:
    keep = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 1}
    t.table.maintenance.archive(options=keep)


def deleted_partition(t: Followed) -> None:
    t.table.delete_partitions("b")
    t.rows = {n: row for n, row in t.rows.items() if row[0] != "b"}


def index_dropped_and_built(t: Followed) -> None:
    t.table.indexes.drop("column_stats")
    t.table.indexes.create("column_stats")


def built_again(t: Followed) -> None:
    t.table.indexes.repair()


EVENTS: list[Callable[[Followed], None]] = [
    *(in_another_process, by_a_second_table, rolled_back, restored, killed, failed, compacted, cleaned, archived),
    *(deleted_partition, index_dropped_and_built, built_again),
]


@pytest.mark.parametrize("event", EVENTS)
def test_a_commit_after_something_else_happened_sees_it(followed: Followed, event: Callable[[Followed], None]) -> None:
    for ids in ([0, 1, 2, 3], [4, 5, 6], [0, 7]):
        followed.upsert(ids)
    event(followed)
    for ids in ([1, 8], [2, 3, 8], [0, 9, 8]):
        followed.upsert(ids)
        followed.check()
    event(followed)
    followed.upsert([0, 1, 2, 3, 4, 5])
    followed.check()


@pytest.mark.parametrize("index", list(INDEXES))
def test_the_next_commit_lists_no_files_of_the_table(tmp_path: Path, index: str, kind: Literal["cow", "mor"]) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.create(uri, rows([], 0), key="id", type=kind, **INDEXES[index])
    for version in range(4):  # the first two list what they touch, the third the whole table
        table.upsert(rows([0, 1, 2], version))
    seen: list[CountingStorage] = []

    def wrap(storage: Any) -> CountingStorage:
        seen.append(CountingStorage(storage))
        return seen[-1]

    with wrapping(wrap):
        lakebed.open(uri).upsert(rows([0, 1], 4))
    assert [path for storage in seen for path in storage.opened if "/metadata/files/" in path] == []
    recorded, listed = recorded_of(uri)
    assert recorded == {"": listed.file_slices([""])}
    recorded, metadata = recorded_of_metadata(uri)
    assert recorded == {name: metadata.file_slices(name) for name in metadata.partitions}
    assert sorted(lakebed.open(uri).to_arrow()["v"].to_pylist()) == [3, 4, 4]


@pytest.mark.parametrize("event", [cleaned, archived])
def test_cleans_and_archival_change_nothing_of_what_is_recorded(
    followed: Followed, event: Callable[[Followed], None]
) -> None:
    for ids in ([0, 1, 2, 3], [4, 5, 6], [0, 7], [1], [2], [0, 3]):
        followed.upsert(ids)
    before, timeline = recorded_of(followed.uri)[0], followed.table.timeline.to_arrow()
    event(followed)
    if (followed.kind, event) != ("mor", cleaned):  # which has nothing to clean
        assert followed.table.timeline.to_arrow() != timeline
    assert before
    assert recorded_of(followed.uri)[0] == before
    followed.check()


@pytest.mark.parametrize(("max_files", "is_recorded"), [(6, True), (5, False)])
def test_partition_paths_with_many_files_are_not_looked_at_for_few_groups(
    max_files: int, is_recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record index asks for few groups of a path; the third commit of a process sees six files."""
    monkeypatch.setattr(snapshot, "MAX_FILES", max_files)
    uri = str(tmp_path / "t")
    table = lakebed.create(uri, rows([], 0), key="id", index="record_index")
    options = {"hoodie.parquet.small.file.limit": 0}
    for first in range(0, 40, 10):
        table.upsert(rows([*range(first, first + 10)], 0), options=options)
    RecordedSlices.forget(open_storage(uri))
    for version in (1, 2, 3, 4):
        table.upsert(rows([5], version), options=options)
    assert (recorded_of(uri)[0] != {}) == is_recorded
    assert lakebed.open(uri).get([5])["v"].to_pylist() == [4]


@pytest.mark.parametrize(("buckets", "is_recorded"), [(3, True), (4, False)])
def test_partition_paths_with_many_file_slices_are_not_kept(
    buckets: int, is_recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_slices, "MAX_SLICES", 3)
    uri, every = str(tmp_path / "t"), list(range(0, 200, 2))
    table = lakebed.create(uri, rows([], 0), key="id", partition_by="path", index="bucket", buckets=buckets)
    for version in range(4):
        table.upsert(rows(every, version))
    recorded, listed = recorded_of(uri)
    assert len(listed.file_slices(["a"])) == buckets
    assert ("a" in recorded) == is_recorded
    assert lakebed.open(uri).to_arrow()["v"].to_pylist() == [3] * len(every)

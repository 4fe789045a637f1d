"""Snapshots by the metadata table: the file slices that the folders show, in few requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from random import Random
from threading import Barrier
from uuid import UUID

import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.model import HOODIE, Action
from lakebed.slices.listing import groups_of_ids, list_table, newest_base_files
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import FileInfo
from lakebed.testing import CountingStorage
from lakebed.timeline.instants import inflight_name, requested_name
from support.tables_in_memory import WITH_METADATA, in_memory


@cache
def storage_of(name: str) -> CountingStorage:
    return in_memory(name, "slices")


def test_file_slices_are_those_of_the_folders() -> None:
    assert len(WITH_METADATA) > 20
    for name in WITH_METADATA:
        storage = in_memory(name, "slices")
        by_folders, by_metadata = (open_snapshot(storage, use_metadata=use) for use in (False, True))
        assert by_folders.metadata is None, name
        assert by_metadata.metadata is not None, name
        everything = by_folders.file_slices()
        assert by_metadata.file_slices() == everything, name
        for partition in by_folders.partitions():
            own = tuple(s for s in everything if s.partition == partition)
            assert by_metadata.file_slices([partition]) == own, (name, partition)
            ids = {s.file_id for s in own}
            of_ids = tuple(s for s in everything if s.file_id in ids)
            groups = groups_of_ids(ids)
            assert by_metadata.file_slices(groups=groups) == of_ids, (name, partition)
            assert by_folders.file_slices(groups=groups) == of_ids, (name, partition)
        for commit in by_folders.commits:
            then = by_folders.at(commit.time).file_slices()
            assert by_metadata.at(commit.time).file_slices() == then, (name, commit.time)


def test_small_files_are_chosen_with_ids() -> None:
    ids, sizes = pa.array(["a", "b", "a", "c", "d"]), pa.array([9, 9, 5, 9, 6])
    assert groups_of_ids(["c"], or_smaller_than=6)(ids, sizes).to_pylist() == [True, False, True, True, False]
    assert groups_of_ids(["c", "x"])(ids, sizes).to_pylist() == [False, False, False, True, False]
    storage = storage_of("v9_cow_mdt_all")
    for snapshot in (open_snapshot(storage, use_metadata=use) for use in (False, True)):
        everything = snapshot.file_slices()
        assert snapshot.file_slices(groups=groups_of_ids([], or_smaller_than=1 << 40)) == everything
        assert snapshot.file_slices(groups=groups_of_ids([], or_smaller_than=1)) == ()


def test_the_newest_file_that_counts_is_found_in_every_group() -> None:
    for seed in range(20):
        newest_files_are_found(seed)


def newest_files_are_found(seed: int) -> None:
    draw = Random(seed)
    ids = [f"{UUID(int=draw.getrandbits(128))}-0" for _ in range(40)]
    files = [("ab"[n % 2], id_, version) for n, id_ in enumerate(ids) for version in range(1, draw.randint(2, 6))]
    draw.shuffle(files)
    rows = pa.Table.from_pylist(
        [{"partition": p, "name": f"{id_}_0-1-2_2026010100000000{v}.parquet", "size": v} for p, id_, v in files]
    )
    found = newest_base_files(rows, pa.array([id_ for _, id_, _ in files]), lambda file: file.size <= 3)
    read = [(file.partition, file.file_id, file.size) for file in found]
    looked_at = {id_: max(v for _, i, v in files if i == id_) for id_ in ids}
    expected = [
        ("ab"[n % 2], id_, v)
        for n, id_ in enumerate(ids)
        for v in range(looked_at[id_], min(looked_at[id_], 3) - 1, -1)
    ]
    assert sorted(read) == sorted(expected), f"seed {seed}"


def test_a_snapshot_lists_each_timeline_and_each_metadata_partition_once() -> None:
    storage = in_memory("v9_cow_mdt_all", "slices-counted")
    snapshot = open_snapshot(storage)
    snapshot.file_slices()
    snapshot.file_slices(["eu"])
    snapshot.partitions()
    snapshot.at(snapshot.commits[0].time).file_slices()
    assert storage.counts["list"] == 3  # two timelines, `files`
    assert storage.counts["list_folders"] == 0
    assert not [path for path in storage.opened if not path.startswith(HOODIE)]
    opened = Counter(path for path in storage.opened if path.startswith(f"{METADATA_FOLDER}/files/"))
    assert set(opened.values()) == {1}


def test_folders_far_away_are_listed_side_by_side() -> None:
    together = Barrier(2, timeout=30)  # two at a time get through, one alone never does

    class Far(CountingStorage):
        def url(self, path: str = "") -> str:
            return f"s3://bucket/{path}"

        def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
            if not recursive:
                together.wait()
            return super().list(prefix, recursive=recursive)

    inner = storage_of("v9_cow_mdt_all")
    expected = list_table(inner)
    assert len(expected.partitions) == 2
    found = list_table(Far(inner), expected.partitions)
    assert set(found.base_files) == set(expected.base_files)
    assert found.partitions == expected.partitions


def test_without_the_metadata_table_folders_are_listed_and_nothing_of_it_is_read() -> None:
    storage = in_memory("v9_cow_mdt_all", "slices-listed")
    open_snapshot(storage, use_metadata=False).file_slices()
    assert storage.counts["list"] == 3  # the timeline, the folders, and whether the timeline is the same
    assert not [path for path in storage.opened if path.startswith(METADATA_FOLDER)]


@pytest.mark.parametrize("damage", ["gone", "properties gone", "no hfile"])
def test_damage_names_the_metadata_table_and_the_way_around(damage: str) -> None:
    storage = in_memory("v9_cow_mdt_basic", "slices-damaged")
    files = [i.path for i in storage.list(f"{METADATA_FOLDER}/files") if i.path.endswith(".hfile")]
    if damage == "gone":
        storage.delete_folder(METADATA_FOLDER)
    elif damage == "properties gone":
        storage.delete(f"{METADATA_FOLDER}/{HOODIE}/hoodie.properties")
    else:
        storage.write(files[-1], b"nothing of the kind")
    with pytest.raises(CorruptFile, match=r"metadata table of memory:.*hoodie\.metadata\.enable"):
        open_snapshot(storage).file_slices()
    assert open_snapshot(storage, use_metadata=False).file_slices()


def newest_and_older(name: str) -> tuple[CountingStorage, Snapshot]:
    storage = in_memory(name, "slices-race")
    return storage, open_snapshot(storage)


def test_an_index_speaks_of_the_newest_view_only() -> None:
    _, snapshot = newest_and_older("v9_cow_mdt_all")
    assert snapshot.is_latest
    assert snapshot.at(snapshot.commits[-1].time).is_latest
    assert not snapshot.at(snapshot.commits[-2].time).is_latest


def test_a_commit_between_the_two_listings_is_noticed() -> None:
    """The data timeline was listed first: the metadata table then knows more than the view shows."""
    storage, snapshot = newest_and_older("v9_cow_mdt_all")
    last = snapshot.timeline.commits[-1]
    kept = {info.path: storage.read(info.path) for info in storage.list(".hoodie/timeline", recursive=False)}
    own = [path for path in kept if path.rpartition("/")[2].startswith(last.time)]
    later = [path for path in kept if path.rpartition("/")[2][:17] > last.time]
    for path in own + later:
        storage.delete(path)
    before = open_snapshot(storage)
    for path in own + later:
        storage.write(path, kept[path])
    assert not before.is_latest
    assert open_snapshot(storage).is_latest


def test_an_instant_of_the_metadata_table_alone_is_not_taken_for_a_commit() -> None:
    storage, snapshot = newest_and_older("v9_cow_mdt_all")
    last = snapshot.timeline.commits[-1]
    for path in [i.path for i in storage.list(".hoodie/timeline") if i.path.rpartition("/")[2][:17] >= last.time]:
        storage.delete(path)
    assert open_snapshot(storage).is_latest


def test_a_pending_commit_that_was_compacted_into_the_metadata_table_is_noticed() -> None:
    storage, snapshot = newest_and_older("v9_cow_mdt_compacted")
    assert snapshot.is_latest
    metadata = snapshot.metadata
    assert metadata is not None
    compaction = max(i.time for i in metadata.slices.timeline.commits if i.action is Action.COMMIT)
    before = [i for i in snapshot.timeline.commits if i.time < compaction][-1]
    storage.delete(f".hoodie/timeline/{before.file_name}")
    storage.write(f".hoodie/timeline/{requested_name(before.action, before.time, 9)}", b"")
    storage.write(f".hoodie/timeline/{inflight_name(before.action, before.time, 9)}", b"")
    assert not open_snapshot(storage).is_latest

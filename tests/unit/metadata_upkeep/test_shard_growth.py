"""Indexes whose file groups are too large on average get twice as many, with compaction, once for each growth."""

from __future__ import annotations

import uuid
from hashlib import md5

import pytest

from lakebed.metadata_upkeep.services import grown, run_services
from lakebed.metadata_upkeep.store import MetadataSettings
from lakebed.model import BaseFile, FileSlice, LogFile
from lakebed.storage.memory import MemoryStorage
from support.metadata_models import Change, Content, Maintained, lookups, new_table

MAX_SHARDS = 4096
# Schema, header and trailer, which every file has.
FIXED = 16 << 10
BOUND = 20_000


def a_slice(file_id: str, size: int, *logs: int, partition: str = "record_index") -> FileSlice:
    base = BaseFile(partition, file_id, "0-0-0", "1", f"{file_id}_0-0-0_1.hfile", FIXED + size)
    found = tuple(LogFile(partition, file_id, "1", n, "0-0-0", f"l{n}", FIXED + log) for n, log in enumerate(logs))
    return FileSlice(partition, file_id, "1", base if size else None, found)


def of_sizes(*sizes: int, path: str = "") -> list[FileSlice]:
    start = f"record-index-{path}-" if path else "record-index-"
    return [a_slice(f"{start}{n:04d}-0", size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "bound", "expected"),
    [
        ((10, 10), 10, {}),
        ((10, 11), 10, {None: 4}),
        ((0, 0, 31), 10, {None: 6}),
        ((100,), 10, {None: 16}),
        ((100,), 100, {}),
        ((1 << 40,), 1, {None: MAX_SHARDS}),
        ((), 10, {}),
    ],
)
def test_so_often_doubled_that_the_mean_is_within_the_bound(
    sizes: tuple[int, ...], bound: int, expected: dict[str | None, int]
) -> None:
    assert grown(of_sizes(*sizes), bound) == expected


def test_log_files_count_and_partition_paths_grow_by_themselves() -> None:
    logged = [a_slice("record-index-0000-0", 5, 3, 4), a_slice("record-index-0001-0", 0, 9)]
    assert grown(logged, 10) == {None: 4}
    assert grown(of_sizes(9, 9, path="a") + of_sizes(25, path="b") + of_sizes(11, path="c"), 10) == {"b": 4, "c": 2}
    secondary = [a_slice("secondary-index-by-name-0000-0", 21, partition="secondary_index_by_name")]
    assert grown(secondary, 10) == {None: 4}


@pytest.mark.parametrize("version", [9, 8, 6])
def test_an_index_is_resharded_once_for_each_growth(version: int) -> None:
    storage = MemoryStorage(f"growth-{uuid.uuid4().hex}")
    new_table(storage, version)
    table = Maintained(storage, version, MetadataSettings(compact_after=3, clean_commits=2, shard_max_bytes=BOUND))
    content = Content()
    table.initialise(content)
    counts: list[int] = []
    told: list[str] = []
    for number in range(18):
        keys = [md5(f"{number} {n}".encode()).hexdigest() for n in range(1500 if number < 10 else 1)]
        change = Change(put={key: ("a", file_id(number)) for key in keys})
        table.commit(change)
        content = change.on(content)
        told += [text for text in run_services(table.store()) if text.startswith("re-sharding")]
        assert lookups(table, list(change.put)) == change.put
        counts.append(len(table.opened().slices.file_slices("record_index")))
    assert table.content().keys == content.keys
    assert counts == sorted(counts)
    assert counts[0] == 3
    assert counts[-1] == counts[13] == 12
    assert len(told) == len(set(counts)) - 1
    assert all(text.endswith("of record_index") for text in told)
    assert not table.opened().slices.timeline.pending


def file_id(number: int) -> str:
    return f"{number * 2654435761 % 2**32:08x}-0000-4000-8000-{number:012x}-0"

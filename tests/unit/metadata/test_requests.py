"""What lookups ask of storage: listings and files opened, counted."""

from __future__ import annotations

import time
from collections import Counter

import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.sources import BytesSource, SliceSource
from lakebed.metadata.lookups import MetadataTable, open_metadata
from lakebed.metadata.slices import HFILES, LOGS, SmallFiles
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.model import HOODIE, Action
from lakebed.properties.file import load_table_config
from lakebed.testing import CountingStorage
from lakebed.timeline.timeline import load_timeline
from support.golden_tables import golden
from support.opened_tables import unpacked


def fresh(name: str) -> tuple[CountingStorage, MetadataTable]:
    storage = unpacked(name)
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    HFILES.clear()
    LOGS.clear()
    storage.reset()
    metadata = open_metadata(storage, config, timeline)
    assert metadata is not None
    return storage, metadata


def opened_folders(storage: CountingStorage) -> set[str]:
    return {path.removeprefix(METADATA_FOLDER + "/").partition("/")[0] for path in files_opened(storage)}


def files_opened(storage: CountingStorage) -> list[str]:
    """What was opened but for the bodies of instants, which say what there must be."""
    return [path for path in storage.opened if not path.startswith(f"{METADATA_FOLDER}/{HOODIE}/")]


def bodies(metadata: MetadataTable) -> int:
    """How many bodies tell that: of all but the delta commits that a compaction has put into base files."""
    own = metadata.slices.timeline.commits
    compacted = max((i.time for i in own if i.action is Action.COMMIT), default="")
    late = [i for i in own if (i.completion_time or "") >= compacted or i.time.startswith("0" * 14)]
    return len({*late, *(i for i in own if i.action is not Action.DELTACOMMIT)})


def test_opening_reads_the_properties_and_lists_the_timeline() -> None:
    storage, _ = fresh("v9_cow_mdt_compacted")
    assert storage.counts == {"read": 1, "list": 1}


def test_listing_files_is_one_listing_and_one_request_a_file() -> None:
    storage, metadata = fresh("v9_cow_mdt_compacted")
    storage.reset()
    metadata.files()
    metadata.partitions()
    metadata.files(["eu"])
    slices = metadata.slices.file_slices("files")
    files = sum(len(s.log_files) + (s.base_file is not None) for s in slices)
    assert storage.counts == {"list": 1, "read_ranges": files, "read": bodies(metadata)}
    assert len(set(files_opened(storage))) == files


def test_a_key_is_looked_for_in_its_file_group_alone() -> None:
    storage, metadata = fresh("v9_mor_mdt_many_shards")
    storage.reset()
    key = golden("v9_mor_mdt_many_shards").expected["_hoodie_record_key"][0].as_py()
    assert metadata.record_locations(pa.array([key]))["key"].to_pylist() == [key]
    assert opened_folders(storage) == {"record_index"}
    assert storage.counts["list"] == 1
    assert len({path.rpartition("/")[2].partition("_")[0].removeprefix(".") for path in files_opened(storage)}) == 1
    assert storage.counts["read_ranges"] == len(set(files_opened(storage)))
    before = storage.counts.copy()
    assert metadata.record_locations(pa.array([key])).num_rows == 1
    assert storage.counts["list"] == before["list"]


def test_a_secondary_value_is_looked_for_in_one_file_group() -> None:
    storage, metadata = fresh("v9_cow_mdt_secondary")
    assert metadata.slices.definitions["secondary_index_idx_name"].version == 2
    storage.reset()
    value = next(name for name in golden("v9_cow_mdt_secondary").expected["name"].to_pylist() if name)
    assert metadata.record_keys_of_secondary("secondary_index_idx_name", pa.array([value])).num_rows
    assert storage.counts["list"] == 1
    assert len({path.rpartition("/")[2].partition("_")[0].removeprefix(".") for path in files_opened(storage)}) == 1


def test_stats_of_a_column_open_each_file_once() -> None:
    storage, metadata = fresh("v9_cow_mdt_compacted")
    storage.reset()
    assert metadata.column_stats(["ts"])["ts"].num_rows
    files = sum(len(s.log_files) + (s.base_file is not None) for s in metadata.slices.file_slices("column_stats"))
    assert storage.counts - Counter(read=bodies(metadata)) == {"list": 1, "read_ranges": files}


def test_a_small_file_is_read_once_for_all_views() -> None:
    storage, metadata = fresh("v9_cow_mdt_compacted")
    listed = metadata.files()
    storage.reset()
    again = open_metadata(storage, load_table_config(storage), metadata.slices.data_timeline)
    assert again is not None
    assert again.files().equals(listed)
    assert storage.counts["read_ranges"] == 0


def test_the_cache_of_a_large_file_holds_no_reader_of_its_storage() -> None:
    large, small = 300 << 10, 1 << 10
    for size, held in ((large, False), (small, True)):
        opened = SmallFiles[object](lambda _: object())
        whole = BytesSource(bytes(size), key=("log", size))
        stretch = SliceSource(whole, 10, 100)
        assert (opened.of(stretch, whole.size) is opened.of(stretch, whole.size)) == held
        assert (opened.of(whole) is opened.of(whole)) == held


def test_a_file_that_replaces_another_is_read_again() -> None:
    storage, metadata = fresh("v9_cow_mdt_compacted")
    listed = metadata.files()
    (base,) = [s.base_file for s in metadata.slices.file_slices("files") if s.base_file]
    path = f"{METADATA_FOLDER}/{base.path}"
    damaged = bytearray(storage.read(path))
    damaged[0] ^= 0xFF
    while storage.head(path).modified == time.time_ns() // 1_000_000:  # pyright: ignore[reportOptionalMemberAccess]
        time.sleep(0.001)
    storage.write(path, bytes(damaged))
    again = open_metadata(storage, load_table_config(storage), metadata.slices.data_timeline)
    assert again is not None
    with pytest.raises(CorruptFile, match="hfile"):
        again.files()
    assert len(listed)

"""The metadata tables of the golden tables: lakebed reads what real Hudi shows, and what the data tables hold."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakebed.errors import CorruptFile, InvalidOption
from lakebed.format.bloom import BloomFilter
from lakebed.metadata.lookups import open_metadata
from lakebed.metadata_records.layout import parse_files, partition_of
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline
from support.golden_tables import HudiRsTable, hudi_rs_tables
from support.opened_tables import WITH_INDEXES, WITH_METADATA, Opened, opened, unpacked

every_table = pytest.mark.parametrize("name", WITH_METADATA)
indexed_table = pytest.mark.parametrize("name", WITH_INDEXES)


@cache
def dump(name: str) -> pa.Table:
    """The merged records of the metadata table as real Hudi shows them."""
    return opened(name).table.more("metadata.parquet")


def records_of(table: Opened, partition: str, form: str) -> list[tuple[str, Any]]:
    """Keys and data of the records of a metadata partition that have data of this form."""
    rows = dump(table.table.name)
    if form not in rows.schema.names:
        return []
    rows = rows.filter(pc.and_(pc.equal(rows["metadata_partition"], partition), rows[form].is_valid()))
    data = rows[form].combine_chunks()
    columns = {f.name: pc.struct_field(data, f.name) for f in data.type} if pa.types.is_struct(data.type) else {}
    if not columns:
        return list(zip(rows["key"].to_pylist(), data.to_pylist(), strict=True))
    plain = [bounds(c) if name in ("minValue", "maxValue") else c.to_pylist() for name, c in columns.items()]
    infos = [dict(zip(columns, values, strict=True)) for values in zip(*plain, strict=True)]
    return list(zip(rows["key"].to_pylist(), infos, strict=True))


def bounds(wrapped: pa.StructArray) -> list[Any]:
    """The value in the one wrapper that is set."""
    values = [
        pc.struct_field(wrapped, [f.name, "value"]).to_pylist() for f in wrapped.type if f.type[0].name == "value"
    ]
    return [next((value for value in row if value is not None), None) for row in zip(*values, strict=True)]


@every_table
def test_files_are_as_hudi_shows_them(name: str) -> None:
    table = opened(name)
    expected = {key: dict(entries) for key, entries in records_of(table, "files", "filesystemMetadata")}
    all_partitions = expected.pop("__all_partitions__")
    assert table.metadata.partitions() == tuple(
        sorted(partition_of(p) for p, info in all_partitions.items() if not info["isDeleted"])
    )
    found: dict[str, dict[str, int]] = {partition_of(key): {} for key in expected}
    for row in table.metadata.files().to_pylist():
        found[row["partition"]][row["name"]] = row["size"]
    assert found == {
        partition_of(key): {file: info["size"] for file, info in entries.items() if not info["isDeleted"]}
        for key, entries in expected.items()
    }


@indexed_table
def test_record_index_entries_are_as_hudi_shows_them(name: str) -> None:
    table = opened(name)
    expected = records_of(table, "record_index", "recordIndexMetadata")
    if not expected:
        return
    found = [row for part in table.metadata.entries("record_index") for row in part.to_pylist()]
    assert len(found) == len(expected)
    by_key = {(key, info["partitionName"]): info for key, info in expected}
    for row in found:
        info = by_key[row["key"], row["partition"]]
        high = f"{info['fileIdHighBits'] % 2**64:016x}"
        assert row["file_id"].replace("-", "").startswith(high)
    locations = table.metadata.record_locations(pa.array([row["key"] for row in found]))
    assert sorted(map(str, locations.to_pylist())) == sorted(map(str, found))


@every_table
def test_listing_equals_the_directories(name: str) -> None:
    """Every committed file with its size, but for what an instant left behind that was rolled back."""
    table = opened(name)
    in_folders = {
        info.path: info.size
        for info in table.storage.list()
        if not info.path.startswith(".hoodie/") and not info.path.rpartition("/")[2].startswith(".hoodie_partition")
    }
    listed = {
        f"{row['partition']}/{row['name']}".removeprefix("/"): row["size"] for row in table.metadata.files().to_pylist()
    }
    wrong = {path: size for path, size in listed.items() if in_folders.get(path) != size}
    # 0.15.0 notes the log files that a rollback undid with a size of 1
    assert {path: size for path, size in wrong.items() if size != 1 or table.table.version > 6} == {}
    assert wrong.keys() <= in_folders.keys()
    for path in in_folders.keys() - listed.keys():
        file = parse_files("", path.rpartition("/")[2], 0)
        assert file is None or not table.timeline.is_committed(file.instant), path


def location_of(row: dict[str, Any]) -> tuple[str, str, str]:
    name = row["_hoodie_file_name"]
    return row["_hoodie_record_key"], row["_hoodie_partition_path"], name.partition("_")[0]


@indexed_table
def test_record_index_equals_the_rows(name: str) -> None:
    table = opened(name)
    if not table.metadata.has("record_index"):
        return
    rows = table.table.expected.to_pylist()
    expected = sorted(location_of(row) for row in rows)
    found = [row for part in table.metadata.entries("record_index") for row in part.to_pylist()]
    assert sorted((row["key"], row["partition"], row["file_id"]) for row in found) == expected
    locations = table.metadata.record_locations(pa.array([key for key, _, _ in expected] + ["no such key"]))
    assert sorted((r["key"], r["partition"], r["file_id"]) for r in locations.to_pylist()) == expected
    for partition in {path for _, path, _ in expected}:
        own = table.metadata.record_locations(pa.array([key for key, _, _ in expected]), partition).to_pylist()
        wanted = [e for e in expected if e[1] == partition]
        definition = table.metadata.slices.definitions.get("record_index")
        if definition and definition.options.get("isPartitioned") == "true":
            assert sorted((r["key"], r["partition"], r["file_id"]) for r in own) == wanted


@pytest.mark.parametrize("name", [n for n in WITH_INDEXES if "secondary" in str(opened(n).config.metadata_partitions)])
def test_secondary_index_equals_the_rows(name: str) -> None:
    table = opened(name)
    rows = table.table.expected.to_pylist()
    index = next(p for p in table.config.metadata_partitions if p.startswith("secondary_index_"))
    (column,) = table.metadata.slices.definitions[index].source_fields
    expected = {(row[column], row["_hoodie_record_key"]) for row in rows if table.table.version > 8 or row[column]}
    found = [row for part in table.metadata.entries(index) for row in part.to_pylist()]
    assert {(row["value"], row["record_key"]) for row in found} == expected
    assert len(found) == len(expected)
    for value in {value for value, _ in expected}:
        answer = table.metadata.record_keys_of_secondary(index, pa.array([value, "nothing has this"], pa.string()))
        assert {(r["value"], r["record_key"]) for r in answer.to_pylist()} == {e for e in expected if e[0] == value}


def bound_shown(raw: Any, info: dict[str, Any] | None, value: Any) -> bool:
    """Whether a bound is the one that real Hudi shows in a wrapper."""
    if value is None or raw is None:
        return value is raw
    if isinstance(value, Decimal) and isinstance(raw, bytes):
        return value == Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(
            -int(info["additionalInfo"].split(",")[1])
        )
    if isinstance(value, datetime):
        return pa.scalar(value, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py() == raw
    if isinstance(value, date) and isinstance(raw, int):
        return value == date.fromordinal(date(1970, 1, 1).toordinal() + raw)
    return value == raw or (value != value and raw != raw)


@indexed_table
def test_statistics_are_as_hudi_shows_them(name: str) -> None:
    table = opened(name)
    for partition in table.config.metadata_partitions:
        expected = dict(records_of(table, partition, "ColumnStatsMetadata"))
        if not expected:
            continue
        found = stats_of(table, partition)
        assert sorted(row["key"] for table in found for row in table.to_pylist()) == sorted(expected)
        for stats in found:
            for row in stats.to_pylist():
                info = expected[row["key"]]
                assert row["file_name"] == info["fileName"]
                assert (row["value_count"], row["null_count"]) == (info["valueCount"], info["nullCount"])
                assert (row["total_size"], row["is_tight"]) == (info["totalSize"], bool(info.get("isTightBound")))
                if table.table.version > 6:
                    assert bound_shown(info["minValue"], info.get("valueType"), row["min"])
                    assert bound_shown(info["maxValue"], info.get("valueType"), row["max"])


def stats_of(table: Opened, partition: str) -> list[pa.Table]:
    metadata = table.metadata
    if partition.startswith("expr_index"):
        return [stats for part in metadata.expression_stats(partition) for stats in part.values()]
    read = metadata.column_stats if partition == "column_stats" else metadata.partition_stats
    everything = read()
    by_column = read(list(everything))
    # as texts: NaN is not itself
    assert {column: str(stats.sort_by("key").to_pylist()) for column, stats in by_column.items()} == {
        column: str(stats.sort_by("key").to_pylist()) for column, stats in everything.items()
    }
    return list(everything.values())


@indexed_table
def test_stats_of_one_column_and_partition(name: str) -> None:
    table = opened(name)
    if not table.metadata.has("column_stats"):
        return
    everything = table.metadata.column_stats()
    column = "ts" if "ts" in everything else sorted(everything)[0]
    files = {row["name"]: row["partition"] for row in table.metadata.files().to_pylist()}
    for partition in table.metadata.partitions():
        found = table.metadata.column_stats([column], [partition])[column].to_pylist()
        assert found == [r for r in everything[column].to_pylist() if files.get(r["file_name"]) == partition]
        assert table.metadata.column_stats(None, [partition])[column].to_pylist() == found


def test_v6_values_are_read_by_the_column_s_type() -> None:
    """0.15.0's compaction leaves dates as ints and decimals as bytes."""
    table = opened("v6_mor_mdt_basic")
    types = {"amount": pa.decimal128(12, 2), "day": pa.date32(), "at": pa.timestamp("us", "UTC")}
    stats = table.metadata.column_stats(types=types)
    rows = table.table.expected
    for column in types:
        assert stats[column]["min"].type == types[column]
        lowest, highest = pc.min(stats[column]["min"]).as_py(), pc.max(stats[column]["max"]).as_py()
        values = rows[column]
        assert lowest <= pc.min(values).as_py() <= pc.max(values).as_py() <= highest


@indexed_table
def test_bloom_filters_are_as_hudi_shows_them(name: str) -> None:
    table = opened(name)
    files = [(row["partition"], row["name"]) for row in table.metadata.files().to_pylist()]
    for partition in table.config.metadata_partitions:
        expected = [info for _, info in records_of(table, partition, "BloomFilterMetadata") if not info["isDeleted"]]
        if not expected:
            continue
        if partition == "bloom_filters":
            found = table.metadata.bloom_filters(files)
        else:
            found = table.metadata.expression_bloom_filters(partition, files)
        theirs = sorted((row["type"], row["timestamp"], row["bloomFilter"]) for row in expected)
        ours = sorted((row["type"], row["timestamp"], row["bloom"]) for row in found.to_pylist())
        assert set(ours) <= set(theirs)
        base_files = [file for file in files if file[1].endswith(".parquet")]
        assert len(ours) == len(base_files)
        keys = [row["_hoodie_record_key"] for row in table.table.expected.to_pylist()]
        in_files = {row["_hoodie_record_key"]: row["_hoodie_file_name"] for row in table.table.expected.to_pylist()}
        if partition == "bloom_filters":
            for row in found.to_pylist():
                filter_ = BloomFilter.from_text(row["bloom"].decode(), row["type"])
                held = [key for key in keys if in_files[key] == row["file_name"]]
                assert all(filter_.might_contain(pa.array(held, pa.string())).to_pylist())


def test_a_lookup_in_a_partition_that_is_not_there_is_refused() -> None:
    table = opened("v9_cow_simple")
    assert not table.metadata.has("record_index")
    with pytest.raises(InvalidOption, match="no partition 'record_index'"):
        table.metadata.record_locations(pa.array(["a"]))


def test_a_table_without_metadata_table() -> None:
    storage = unpacked("v9_cow_no_metadata")
    config = load_table_config(storage)
    assert open_metadata(storage, config, load_timeline(storage, config)) is None


def test_a_metadata_table_that_is_missing_is_named() -> None:
    storage = unpacked("v9_cow_simple")
    storage.delete_folder(".hoodie/metadata")
    config = load_table_config(storage)
    with pytest.raises(CorruptFile, match="its properties name it"):
        open_metadata(storage, config, load_timeline(storage, config))


@pytest.mark.parametrize("sample", hudi_rs_tables(), ids=str)
def test_samples_of_hudi_rs(sample: HudiRsTable, tmp_path: Path) -> None:
    """Tables of other writers and options: the listing is the directories', the record index has each key once."""
    storage = open_storage(str(sample.unpack(tmp_path)))
    config = None if int(sample.entry.get("table_version") or 6) < 6 else load_table_config(storage)
    metadata = config and open_metadata(storage, config, load_timeline(storage, config))
    if not metadata:
        return
    listed = {f"{r['partition']}/{r['name']}".lstrip("/"): r["size"] for r in metadata.files().to_pylist()}
    assert listed
    for path, size in listed.items():
        info = storage.head(path)
        assert info is not None
        assert info.size == size
    if metadata.has("record_index") and sample.expected is not None:
        found = [key for part in metadata.entries("record_index") for key in part["key"].to_pylist()]
        assert sorted(found) == sorted(set(sample.expected["_hoodie_record_key"].to_pylist()))


@pytest.mark.parametrize("partition", ["files", "record_index", "secondary_index_idx_name", "column_stats"])
def test_a_partition_that_is_lost_is_no_empty_index(partition: str) -> None:
    storage = unpacked("v9_cow_mdt_all")
    storage.delete_folder(f".hoodie/metadata/{partition}")
    config = load_table_config(storage)
    metadata = open_metadata(storage, config, load_timeline(storage, config))
    assert metadata is not None
    ask = {
        "files": metadata.files,
        "record_index": lambda: metadata.record_locations(pa.array(["k0001"])),
        "secondary_index_idx_name": lambda: metadata.record_keys_of_secondary(partition, pa.array(["elm-5"])),
        "column_stats": metadata.column_stats,
    }
    with pytest.raises(CorruptFile, match=r"has no file groups|is missing, which its completed instant"):
        ask[partition]()


@every_table
def test_the_files_of_one_partition_path_are_looked_up(name: str) -> None:
    table = opened(name)
    whole = table.metadata.files()
    for path in (*table.metadata.partitions(), "no such path"):
        alone = open_metadata(table.storage, table.config, table.timeline)
        assert alone is not None
        expected = whole.filter(pc.equal(whole["partition"], path)).to_pylist()
        assert sorted(map(str, alone.files([path]).to_pylist())) == sorted(map(str, expected))
        assert "_all_files" not in alone.__dict__

"""Names, ids, keys and definitions, compared with those of the golden tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.text import parse_properties
from lakebed.metadata_kinds.registry import in_build_order, kind_of
from lakebed.metadata_records.definitions import DEFINITIONS_PATH, dump_definitions, load_definitions
from lakebed.metadata_records.layout import (
    PARTITIONED_SIZING,
    GroupSizing,
    column_prefix,
    column_stats_keys,
    file_group,
    file_keys,
    group_number,
    h64,
    metadata_properties,
    parse_files,
    partition_stats_keys,
    secondary_file_groups,
    secondary_keys,
    split_secondary_keys,
)
from support.opened_tables import WITH_INDEXES, WITH_METADATA, opened

every_table = pytest.mark.parametrize("name", WITH_METADATA)
indexed_table = pytest.mark.parametrize("name", WITH_INDEXES)


@indexed_table
def test_file_ids_are_hudis(name: str) -> None:
    table = opened(name)
    for partition in table.config.metadata_partitions:
        slices = table.metadata.slices.file_slices(partition)
        for number, file_slice in enumerate(slices):
            path = kind_of(partition).data_partition_of(file_slice.file_id)
            expected = group_number(file_slice.file_id) if path is not None else number
            assert file_slice.file_id == kind_of(partition).file_id(partition, expected, path)
            assert kind_of(partition).is_file_id_of(partition, file_slice.file_id)
        # the golden tables' writers asked for two file groups of bloom filters
        kind = kind_of(partition)
        assert partition == "bloom_filters" or kind.grows or kind.file_groups == len(slices)


@every_table
def test_the_properties_of_the_metadata_table_are_hudis(name: str) -> None:
    table = opened(name)
    theirs = parse_properties(table.storage.read(".hoodie/metadata/.hoodie/hoodie.properties"))
    ours = metadata_properties(table.config.name, table.table.version)
    if name.startswith("v"):
        assert {k: v for k, v in ours.items() if theirs.get(k) != v} == {}
        assert theirs.keys() - ours.keys() == set()


@indexed_table
def test_index_definitions_have_hudis_bytes(name: str) -> None:
    table = opened(name)
    if not table.storage.head(DEFINITIONS_PATH):
        return
    definitions = load_definitions(table.storage, table.config)
    if name.startswith("v"):
        assert dump_definitions(definitions.values(), table.table.version) == table.storage.read(DEFINITIONS_PATH)


def test_broken_definitions_are_named() -> None:
    table = opened("v9_cow_mdt_all")
    body = table.storage.read(DEFINITIONS_PATH)
    table.storage.write(DEFINITIONS_PATH, body[:-20])
    with pytest.raises(CorruptFile, match="holds no index definitions"):
        load_definitions(table.storage, table.config)
    table.storage.write(DEFINITIONS_PATH, body)


@indexed_table
def test_keys_of_stats_and_blooms(name: str) -> None:
    table = opened(name)
    files = table.metadata.files()
    keys = file_keys(files["partition"].to_pylist(), files["name"].to_pylist())
    key_of = dict(zip(files["name"].to_pylist(), keys.to_pylist(), strict=True))
    if table.metadata.has("column_stats"):
        for column, stats in table.metadata.column_stats().items():
            names = stats["file_name"].to_pylist()
            known = pa.array([key_of.get(n) for n in names], pa.string())
            made = column_stats_keys(column, known).to_pylist()
            theirs = zip(stats["key"].to_pylist(), names, strict=True)
            assert [key for key in made if key] == [key for key, file in theirs if file in key_of]
            assert all(key.startswith(column_prefix(column)) for key in stats["key"].to_pylist())
    if table.metadata.has("partition_stats"):
        for column, stats in table.metadata.partition_stats().items():
            assert partition_stats_keys(column, stats["file_name"].to_pylist()).to_pylist() == stats["key"].to_pylist()


@indexed_table
def test_every_key_is_in_the_file_group_of_its_hash(name: str) -> None:
    table = opened(name)
    slices = table.metadata.slices
    for partition in ("column_stats", "bloom_filters", "record_index"):
        if not table.metadata.has(partition):
            continue
        groups: dict[str | None, list[pa.Array]] = {}
        for file_slice in slices.file_slices(partition):
            base = slices.base_file(file_slice)
            keys = [base.read().strings()] if base is not None else []
            blocks = [b for b in slices.log_blocks(file_slice) if b.type.name == "HFILE_DATA"]
            keys += [slices.data_block(block).read().strings() for block in blocks]
            path = kind_of(partition).data_partition_of(file_slice.file_id)
            groups.setdefault(path, []).append(pa.concat_arrays([*keys, pa.array([], pa.string())]))
        for members in groups.values():
            for number, keys in enumerate(members):
                assert set(file_group(keys, len(members)).tolist()) <= {number}


def test_check_values_of_hashes() -> None:
    assert h64("l") == "3FQGdeKPobc="
    assert h64("__partition_stat__") == "2CMHrhWVE9w="


def test_secondary_keys_of_any_text_split_into_value_and_record_key() -> None:
    values = ["a$b", None, "\\", "", "\0", "x\0y", "\\$", "plain", "a\nb$", "$", "日$\\"]
    records = ["k1", "$", "\\\\", "k\\$", "", "z", "\0", "p", "q", "r", "s"]
    keys = secondary_keys(pa.array(values), pa.array(records))
    assert [part.to_pylist() for part in split_secondary_keys(keys)] == [values, records]
    assert [part.to_pylist() for part in split_secondary_keys(keys.slice(3))] == [values[3:], records[3:]]
    assert secondary_keys(pa.array([None], pa.string()), pa.array(["k0011"]))[0].as_py() == "\0$k0011"
    key, prefix = pa.array(["ab$k"]), pa.array(["ab$"])
    assert secondary_file_groups(key, 7, version=2).tolist() == file_group(prefix, 7).tolist()
    assert secondary_file_groups(key, 7, version=1).tolist() == file_group(key, 7).tolist()


def test_keys_without_a_dollar_are_refused() -> None:
    with pytest.raises(CorruptFile, match=r"no \$"):
        split_secondary_keys(pa.array(["a$b", "nothing", "c$d"]))


def test_file_group_counts_follow_hudis_sizing() -> None:
    assert GroupSizing().file_groups(0) == 10
    assert GroupSizing().file_groups(22_369_621 * 20) == 39
    assert PARTITIONED_SIZING.file_groups(5) == 1
    assert PARTITIONED_SIZING.file_groups(10**12) == 10
    assert GroupSizing(minimum=4, maximum=4).file_groups(10**9) == 4


def test_file_ids_of_odd_partition_paths_are_taken_apart() -> None:
    kind = kind_of("record_index")
    assert kind.data_partition_of(kind.file_id("record_index", 7, "a/b-c=d_e")) == "a/b-c=d_e"
    assert parse_files("record_index", "record-index-x%2D1-0000-0_1-2-3_20261121115804206.hfile", 5).file_id == (
        "record-index-x%2D1-0000-0"
    )
    assert in_build_order(["secondary_index_a", "record_index", "files", "partition_stats", "expr_index_b"]) == [
        "files",
        "record_index",
        "expr_index_b",
        "secondary_index_a",
        "partition_stats",
    ]
    assert not kind_of("column_stats").is_file_id_of("column_stats", "expr-index-idx-0000-0")

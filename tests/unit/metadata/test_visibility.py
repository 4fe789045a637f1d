"""Which of the metadata table's records count, by its own timeline and the data table's; log blocks in merge order."""

from __future__ import annotations

import io
import json

import fastavro
import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, LogBlock, block_bytes, rollback_block, scan_blocks
from lakebed.format.sources import BytesSource
from lakebed.merge.log_entries import blocks_in_merge_order
from lakebed.metadata.lookups import MetadataTable, open_metadata
from lakebed.metadata_kinds import record_index
from lakebed.metadata_records import stats_codec
from lakebed.metadata_records.records import V9, record_form_of, record_schema
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.testing import CountingStorage
from lakebed.timeline.instants import inflight_name, requested_name
from lakebed.timeline.timeline import Timeline, load_timeline
from support.metadata_hfiles import hfiles
from support.opened_tables import unpacked

TIMELINE = ".hoodie/timeline"
METADATA_TIMELINE = ".hoodie/metadata/.hoodie/timeline"


def opened_again(storage: CountingStorage) -> tuple[MetadataTable, Timeline]:
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    metadata = open_metadata(storage, config, timeline)
    assert metadata is not None
    return metadata, timeline


def names(metadata: MetadataTable) -> set[str]:
    return set(metadata.files()["name"].to_pylist())


def file_of(timeline: Timeline, instant: str) -> str:
    return next(i.file_name for i in timeline.instants if i.time == instant)


def pending_again(storage: CountingStorage, folder: str, timeline: Timeline, instant: str, action: Action) -> None:
    """Take back the instant's completion."""
    storage.delete(f"{folder}/{file_of(timeline, instant)}")
    storage.write(f"{folder}/{requested_name(action, instant, 9)}", b"")
    storage.write(f"{folder}/{inflight_name(action, instant, 9)}", b"")


def last_commit(storage: CountingStorage) -> tuple[str, set[str], set[str]]:
    """The last instant, all files of the table, and those of that instant."""
    metadata, timeline = opened_again(storage)
    assert timeline.last_completed is not None
    instant = timeline.last_completed.time
    everything = names(metadata)
    own = {name for name in everything if instant in name}
    assert own
    return instant, everything, own


@pytest.mark.parametrize("name", ["v9_cow_simple", "v9_mor_avro_log"])
def test_records_of_a_pending_data_instant_are_not_visible(name: str) -> None:
    storage = unpacked(name)
    instant, everything, own = last_commit(storage)
    action = Action.DELTACOMMIT if "mor" in name else Action.COMMIT
    pending_again(storage, TIMELINE, opened_again(storage)[1], instant, action)
    assert names(opened_again(storage)[0]) == everything - own


def test_records_of_an_instant_that_is_not_on_the_data_timeline_are_visible() -> None:
    storage = unpacked("v9_cow_simple")
    instant, everything, _ = last_commit(storage)
    for info in list(storage.list(TIMELINE, recursive=False)):
        if instant in info.path:
            storage.delete(info.path)
    assert names(opened_again(storage)[0]) == everything


def test_records_of_a_deltacommit_that_is_not_completed_are_not_visible() -> None:
    storage = unpacked("v9_cow_simple")
    instant, everything, own = last_commit(storage)
    metadata, _ = opened_again(storage)
    pending_again(storage, METADATA_TIMELINE, metadata.slices.timeline, instant, Action.DELTACOMMIT)
    pending_again(storage, TIMELINE, opened_again(storage)[1], instant, Action.COMMIT)
    assert names(opened_again(storage)[0]) == everything - own


def test_a_completed_commit_without_its_deltacommit_is_damage() -> None:
    storage = unpacked("v9_cow_simple")
    instant, _, _ = last_commit(storage)
    metadata, _ = opened_again(storage)
    pending_again(storage, METADATA_TIMELINE, metadata.slices.timeline, instant, Action.DELTACOMMIT)
    with pytest.raises(CorruptFile, match=f"no delta commit of the table's commit {instant}"):
        opened_again(storage)[0].files()


def test_on_version_6_blocks_are_judged_by_their_own_instant() -> None:
    storage = unpacked("v6_cow_bloom")
    instant, everything, own = last_commit(storage)
    storage.delete(f".hoodie/{instant}.commit")
    assert names(opened_again(storage)[0]) == everything - own


def block(kind: BlockType, instant: str, **headers: str) -> LogBlock:
    known = {HeaderKey[name.upper()]: value for name, value in headers.items()}
    return LogBlock(kind, {HeaderKey.INSTANT_TIME: instant, **known})


def in_order(blocks: list[LogBlock | bytes], hidden: str = "") -> list[str]:
    data = b"".join(block if isinstance(block, bytes) else block_bytes(block) for block in blocks)
    heads: list[BlockHead] = scan_blocks(BytesSource(data))
    found = blocks_in_merge_order(heads, lambda instant: instant != hidden)
    return [f"{head.instant}{head.type.name[0]}" for head in found]


DATA, DELETE = BlockType.HFILE_DATA, BlockType.DELETE


def test_blocks_come_in_their_order_and_damage_is_left_out() -> None:
    blocks = [block(DATA, "1"), block(DELETE, "1"), b"#HUDI#junk", block(DATA, "2"), block(DELETE, "1")]
    assert in_order(blocks) == ["1H", "1D", "1D", "2H"]
    assert in_order(blocks, hidden="1") == ["2H"]


def test_a_rollback_takes_the_blocks_in_front_of_it() -> None:
    blocks = [block(DATA, "1"), block(DATA, "2"), rollback_block("2", "3"), block(DATA, "4"), block(DATA, "2")]
    assert in_order(blocks) == ["1H", "4H", "2H"]


def test_a_log_compacted_block_replaces_its_blocks() -> None:
    blocks = [
        block(DATA, "1"),
        block(DATA, "2"),
        block(DATA, "3"),
        block(DATA, "4", compacted_block_times="1,2"),
        block(DATA, "5"),
        block(DATA, "6", compacted_block_times="4,3"),
        block(DATA, "7"),
    ]
    assert in_order(blocks) == ["6H", "5H", "7H"]
    assert in_order(blocks[:5]) == ["4H", "3H", "5H"]
    assert in_order(blocks, hidden="6") == ["4H", "3H", "5H", "7H"]


def test_a_group_of_another_index_makes_lookups_go_everywhere() -> None:
    """Real Hudi's cleaner leaves file groups of an expression index in `bloom_filters`."""
    storage = unpacked("v9_cow_mdt_all")
    metadata, _ = opened_again(storage)
    files = [(row["partition"], row["name"]) for row in metadata.files().to_pylist()]
    before = sorted(map(str, metadata.bloom_filters(files).to_pylist()))
    folder = ".hoodie/metadata/bloom_filters"
    creation = next(i.path for i in storage.list(folder) if i.path.endswith(".log.1_0-0-0"))
    foreign = creation.replace("bloom-filters-0001", "expr-index-idx-lower-0000").replace(
        "bloom-filters-0000", "expr-index-idx-lower-0000"
    )
    storage.write(foreign, storage.read(creation))
    again, _ = opened_again(storage)
    assert len(again.slices.file_slices("bloom_filters")) == len(metadata.slices.file_slices("bloom_filters")) + 1
    assert sorted(map(str, again.bloom_filters(files).to_pylist())) == before


def test_a_schema_that_was_not_met_before_is_read_by_its_own_names() -> None:
    """A release to come may add fields: values are read one by one then."""
    schema = json.loads(record_schema(V9))
    schema["fields"].append({"name": "more", "type": ["null", "long"], "default": None})
    text = json.dumps(schema)
    assert record_form_of(text) is None
    for partition, decode in (("record_index", record_index.decode), ("column_stats", stats_codec.decode)):
        file = next(f for f in hfiles("v9_cow_mdt_all") if f.partition == partition and len(f.keys))
        written, later = (fastavro.parse_schema(json.loads(s)) for s in (file.schema, text))
        values: list[bytes] = []
        for value in file.values.to_pylist():
            record = fastavro.schemaless_reader(io.BytesIO(value), written, None, return_record_name=True)
            out = io.BytesIO()
            fastavro.schemaless_writer(out, later, {**record, "more": 5})
            values.append(out.getvalue())
        found = decode(file.keys, pa.array(values, pa.binary()), text)
        expected = decode(file.keys, file.values, file.schema)
        assert str(found) == str(expected)

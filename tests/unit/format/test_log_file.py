"""Log blocks: bytes as Hudi writes them, damage survived, every golden log file rebuilt."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.file_names import parse_log_file
from lakebed.format.log_file import (
    MAGIC,
    BlockType,
    HeaderKey,
    LogBlock,
    avro_data_block,
    avro_records,
    block_bytes,
    raw_records,
    read_blocks,
    rollback_block,
)
from support.golden_tables import GoldenTable, golden_tables, spread

ROLLBACK = rollback_block("20261121113548380", "20261121113550707")
SCHEMA: Any = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
SCHEMA_TEXT = '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'


def encoded(value: str) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, {"a": value})
    return out.getvalue()


DATA = avro_data_block(SCHEMA_TEXT, [encoded("x"), encoded("yy")], "20261121113550707")


def test_a_rollback_block_is_105_bytes() -> None:
    data = block_bytes(ROLLBACK)
    assert len(data) == 105
    assert data[:6] == b"#HUDI#"
    assert struct.unpack_from(">qiii", data, 6) == (91, 1, 0, 3)
    assert struct.unpack_from(">q", data, 97) == (97,)
    assert read_blocks(data)[0].headers == {1: "20261121113548380", 0: "20261121113550707", 3: "0"}


def test_avro_records_of_a_block_come_back() -> None:
    (block,) = read_blocks(block_bytes(DATA))
    assert block.type is BlockType.AVRO_DATA
    assert block.header(HeaderKey.INSTANT_TIME) == "20261121113550707"
    assert avro_records(block) == [{"a": "x"}, {"a": "yy"}]


@pytest.mark.parametrize("cut", [1, 6, 13, 14, 40, 104])
def test_a_cut_off_block_is_corrupt_and_the_next_is_read(cut: int) -> None:
    data = block_bytes(ROLLBACK)[:cut] + block_bytes(DATA)
    first, second = read_blocks(data)
    assert (first.type, first.offset, first.content) == (BlockType.CORRUPT, 0, block_bytes(ROLLBACK)[:cut])
    assert (second.type, second.offset) == (BlockType.AVRO_DATA, cut)
    assert avro_records(second) == [{"a": "x"}, {"a": "yy"}]


def test_bytes_after_a_good_block_do_not_cost_the_block() -> None:
    good = block_bytes(DATA)
    first, junk, last = read_blocks(good + b"junk" + good)
    assert [b.type for b in (first, junk, last)] == [BlockType.AVRO_DATA, BlockType.CORRUPT, BlockType.AVRO_DATA]
    assert (junk.content, last.offset) == (b"junk", len(good) + 4)


def test_a_cut_off_end_is_corrupt() -> None:
    good = block_bytes(DATA)
    blocks = read_blocks(good + good[:-1])
    assert [b.type for b in blocks] == [BlockType.AVRO_DATA, BlockType.CORRUPT]


def test_an_unreadable_record_names_path_and_offset() -> None:
    broken = LogBlock(BlockType.AVRO_DATA, DATA.headers, DATA.content[:-1], offset=7)
    with pytest.raises(CorruptFile, match=r"p/x\.log: the data block at offset 7"):
        avro_records(broken, "p/x.log")


def test_an_old_block_format_is_refused_by_name() -> None:
    data = bytearray(block_bytes(ROLLBACK))
    data[14:18] = struct.pack(">i", 0)
    with pytest.raises(UnsupportedFeature, match="log format version 0"):
        read_blocks(bytes(data), "x.log")


def test_an_empty_file_has_no_blocks() -> None:
    assert read_blocks(b"") == []


@pytest.mark.parametrize("table", spread(golden_tables(lambda t: t.type == "mor")), ids=str)
def test_golden_log_files_are_rebuilt_byte_for_byte(table: GoldenTable) -> None:
    for name, data in table.files().items():
        if name.startswith(".hoodie/") or not parse_log_file("", name.rpartition("/")[2], 0):
            continue
        blocks = read_blocks(data, name)
        if "corrupt" in table.name:
            assert sum(len(b.content) for b in blocks) < len(data)
            continue
        assert b"".join(map(block_bytes, blocks)) == data
        assert data.count(MAGIC) == len(blocks)
        for block in blocks:
            assert block.header(HeaderKey.INSTANT_TIME)
            if block.type is BlockType.AVRO_DATA and block.header(HeaderKey.IS_PARTIAL) != "true":
                records = avro_records(block, name)
                assert len(records) == len(list(raw_records(block.content))) > 0
                assert all("_hoodie_record_key" in record for record in records)

"""Scanning a log file by ranges gives the blocks that reading it whole gives, in few requests."""

from __future__ import annotations

import random
import struct

import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format import log_file, sources
from lakebed.format.log_file import (
    BlockHead,
    BlockType,
    LogBlock,
    block_bytes,
    read_blocks,
    rollback_block,
    scan_blocks,
)
from lakebed.format.sources import BytesSource, FileSource
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import CountingStorage
from support.golden_tables import GoldenTable, golden_tables, spread
from support.outcomes import Outcomes

with_logs = pytest.mark.parametrize("table", spread(golden_tables(lambda t: t.type == "mor")), ids=str)


def complete_block(head: BlockHead) -> LogBlock:
    return LogBlock(head.type, head.headers, bytes(head.read()), head.offset)


@with_logs
def test_the_blocks_of_real_log_files(table: GoldenTable) -> None:
    for name, data in table.files().items():
        if ".log." in name:
            assert [complete_block(head) for head in scan_blocks(BytesSource(data))] == read_blocks(data, name)


def blocks(count: int, size: int) -> bytes:
    made = [LogBlock(BlockType.HFILE_DATA, {0: str(i), 2: "s" * 300}, bytes([i]) * size) for i in range(count)]
    return b"".join(map(block_bytes, made))


def test_small_logs_cost_one_request_and_large_ones_only_their_heads() -> None:
    storage = CountingStorage(MemoryStorage("log-scan"))
    small = blocks(5, 1000)
    storage.write("small", small)
    storage.write("large", blocks(4, 200_000))
    storage.reset()
    heads = scan_blocks(FileSource(storage, "small", len(small)))
    assert [head.instant for head in heads] == ["0", "1", "2", "3", "4"]
    assert [bytes(head.read()) for head in heads] == [bytes([i]) * 1000 for i in range(5)]
    assert storage.counts == {"read_ranges": 1}
    storage.reset()
    heads = scan_blocks(FileSource(storage, "large"))
    assert len(heads) == 4
    assert storage.counts == {"head": 1, "read_ranges": 5}
    assert heads[2].content.read(5, 3) == b"\x02\x02\x02"
    MemoryStorage.drop("log-scan")


@pytest.mark.parametrize("whole_bytes", [256 << 10, 100])
def test_damage_is_taken_as_reading_the_whole_file_takes_it(whole_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "SMALL_FILE_BYTES", whole_bytes)
    monkeypatch.setattr(sources, "SMALL_FILE_BYTES", whole_bytes)
    monkeypatch.setattr(sources, "AHEAD_BYTES", 64)
    random.seed(7)
    good = blocks(3, 40) + block_bytes(rollback_block("1", "2")) + blocks(2, 90)
    outcomes = Outcomes()
    for _ in range(400):
        data = bytearray(good)
        if random.random() < 0.5:
            del data[random.randrange(len(data)) :]
        for _ in range(random.randint(0, 3)):
            if data:
                data[random.randrange(len(data))] = random.choice([0, 35, random.randrange(256)])
        try:
            expected = read_blocks(bytes(data))
        except (CorruptFile, UnsupportedFeature) as cause:
            with pytest.raises(type(cause)):
                scan_blocks(BytesSource(bytes(data)))
            outcomes.refused += 1
            continue
        if any(block.offset + len(block.content) > len(data) for block in expected):
            continue
        # refused: a content length that reaches beyond the block, which reading the whole file cuts off
        with outcomes.counted():
            assert [complete_block(head) for head in scan_blocks(BytesSource(bytes(data)))] == expected
    outcomes.assert_both()


def test_an_old_block_format_is_refused_by_name() -> None:
    data = bytearray(blocks(1, 3))
    data[14:18] = struct.pack(">i", 0)
    with pytest.raises(UnsupportedFeature, match="log format version 0"):
        scan_blocks(BytesSource(bytes(data)))

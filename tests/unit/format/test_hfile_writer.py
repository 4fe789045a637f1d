"""Writing HFiles: real Hudi's rebuilt, blocks cut where Hudi cuts them, what is refused."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import InvalidRecord
from lakebed.format.bloom import BloomFilter
from lakebed.format.hfile.reader import open_hfile
from lakebed.format.hfile.writer import HFileWriter, write_hfile
from support.golden_tables import GoldenTable, golden_tables, spread
from support.hfile_model import TAIL, Entry, golden_hfiles, parse

CREATED = b"hfile.CREATE_TIME_TS"


def columns(entries: list[Entry]) -> tuple[pa.Array, pa.Array]:
    return pa.array([key for key, _ in entries], pa.binary()), pa.array([value for _, value in entries], pa.binary())


def some_entries(count: int, seed: int = 0) -> list[Entry]:
    rng = random.Random(seed)
    keys = sorted({rng.randbytes(rng.randrange(1, 12)).hex().encode() for _ in range(count)})
    return [(key, rng.randbytes(rng.randrange(50))) for key in keys]


@pytest.mark.parametrize("table", spread(golden_tables()), ids=str)
def test_hudis_own_files_are_rebuilt(table: GoldenTable) -> None:
    """Payload by payload: deflate's choices and checksums aside."""
    for _, data in golden_hfiles(table):
        model = parse(data)
        keys = [key for key, _ in model.entries]
        if keys != sorted(set(keys)):
            continue
        bloom = None
        if b"bloomFilter" in model.metas:
            code: Any = model.info[b"bloomFilterTypeCode"].decode()
            bloom = BloomFilter.from_text(model.metas[b"bloomFilter"].decode(), code)
        schema = model.info[b"schema"].decode()
        hbase = bool(model.index) and model.index[0].endswith(TAIL)
        info = {CREATED: model.info[CREATED]}
        ours = parse(write_hfile(*columns(model.entries), schema_json=schema, bloom=bloom, hbase_keys=hbase, info=info))
        assert ours.blocks == model.blocks
        assert ours.index == model.index
        assert ours.metas == model.metas
        if model.native:
            assert list(ours.info.items()) == list(model.info.items())
            assert ours.counts == model.counts
        else:
            assert {**ours.info, **averages(12)(ours.info)} == model.info


def averages(more: int) -> Any:
    """HBase counts the whole cell key."""

    def adjusted(info: dict[bytes, bytes]) -> dict[bytes, bytes]:
        (average,) = struct.unpack(">i", info[b"hfile.AVG_KEY_LEN"])
        return {b"hfile.AVG_KEY_LEN": struct.pack(">i", average + more)}

    return adjusted


@pytest.mark.parametrize("size", [1, 60, 500, 3000, 1 << 20])
def test_a_block_is_closed_before_the_entry_that_does_not_fit(size: int) -> None:
    entries = some_entries(400)
    model = parse(write_hfile(*columns(entries), schema_json="{}", block_size=size))
    wanted: list[int] = []
    filled = size
    for key, value in entries:
        taken = len(key) + len(value) + 21
        if filled + taken > size or not wanted:
            wanted.append(0)
            filled = 0
        wanted[-1] += taken
        filled += taken
    assert [len(block) for block in model.blocks] == wanted
    assert model.entries == entries


@pytest.mark.parametrize("step", [1, 7, 100])
@pytest.mark.parametrize("size", [1, 100, 1000, 1 << 20])
def test_batches_make_the_same_file(step: int, size: int) -> None:
    entries = some_entries(400)
    keys, values = columns(entries)
    info = {CREATED: bytes(8)}
    parts: list[bytes] = []
    writer = HFileWriter(parts.append, schema_json="{}", codec="none", block_size=size, info=info)
    writer.write(keys.slice(0, 0), values.slice(0, 0))
    for at in range(0, len(keys), step):
        writer.write(keys.slice(at, step).cast(pa.large_binary()), values.slice(at, step))
    assert writer.finish() == sum(map(len, parts))
    # not with gzip: what isal finds to compress is not the same each time
    assert b"".join(parts) == write_hfile(keys, values, schema_json="{}", codec="none", block_size=size, info=info)


def test_more_than_is_put_together_at_a_time() -> None:
    keys, values = columns([(b"%d" % n, bytes([n]) * (5 << 20)) for n in range(10, 25)])
    file = open_hfile(write_hfile(keys, values, schema_json="{}"))
    assert file.read().values.equals(values)


def test_header_fields_as_hudi_has_them() -> None:
    data = write_hfile(*columns(some_entries(50)), schema_json="{}", codec="none", block_size=400)
    at, fields = 0, []
    while data[at : at + 8] == b"DATABLK*":
        fields.append(struct.unpack_from(">8siiqBii", data, at))
        assert fields[-1][3] == (at if at else -1)
        at += 33 + fields[-1][1]
    assert len(fields) > 3
    # one checksum a block: Hudi's reader skips what starts within the checksums' size of a block's end
    assert {(on_disk - plain, kind, chunk) for _, on_disk, plain, _, kind, chunk, _ in fields} == {(4, 0, 0x7FFFFFFF)}


def test_key_range_beside_a_bloom_filter() -> None:
    bloom = BloomFilter.dynamic(100, 0.01)
    bloom.add(pa.array(["a", "b", "c"]))
    file = open_hfile(write_hfile(pa.array(["a", "b", "c"]), pa.array([b""] * 3), schema_json="{}", bloom=bloom))
    assert (file.info[b"minRecordKey"], file.info[b"maxRecordKey"]) == (b"a", b"c")
    assert file.bloom is not None
    assert file.bloom.to_text() == bloom.to_text()


def test_files_for_readers_that_seek_by_cell_keys() -> None:
    model = parse(write_hfile(*columns(some_entries(40)), schema_json="{}", hbase_keys=True, block_size=300))
    assert all(key.endswith(TAIL) for key in [*model.index, model.info[b"hfile.LASTKEY"]])
    empty = parse(write_hfile(*columns([]), schema_json="{}", hbase_keys=True))
    assert b"hfile.LASTKEY" not in empty.info


@pytest.mark.parametrize("keys", [["b", "a"], ["a", "a"], ["\U0001f600", "\uffff"], ["a", None]])
def test_keys_must_ascend_in_byte_order(keys: list[str]) -> None:
    with pytest.raises(ValueError):
        write_hfile(pa.array(keys), pa.array([b"", b""]), schema_json="{}")
    writer = HFileWriter(bytearray().extend, schema_json="{}")
    writer.write(pa.array(keys[:1]), pa.array([b""]))
    with pytest.raises(ValueError):
        writer.write(pa.array(keys[1:], pa.string()), pa.array([b""]))


def test_a_key_that_hudi_could_not_read_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="32768 bytes"):
        write_hfile(pa.array(["k" * 32_768]), pa.array([b""]), schema_json="{}")
    longest = pa.array(["k" * 32_767])
    assert open_hfile(write_hfile(longest, pa.array([b"v"]), schema_json="{}")).read().strings().equals(longest)

"""Delete blocks: what real Hudi wrote, decoded as columns and encoded again; broken ones."""

from __future__ import annotations

import random
import struct
import zipfile
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from golden_tables import GoldenTable, golden_tables
from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.wrappers import DATE, INT, LOCAL_DATE, LONG, STRING, Wrapped, decimals
from lakebed.format.delete_block import ARRAY, decode_deletes, encode_deletes, framed_deletes
from lakebed.format.log_file import BlockType, block_bytes, delete_block, read_blocks
from outcomes import Outcomes

with_logs = pytest.mark.parametrize("table", golden_tables(lambda t: t.type == "mor"), ids=str)


def delete_contents(table: GoldenTable) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    with zipfile.ZipFile(table.folder / f"{table.name}.zip") as archive:
        for name in archive.namelist():
            if ".log." in name:
                blocks = read_blocks(archive.read(name), name)
                found += [(name, block.content) for block in blocks if block.type is BlockType.DELETE]
    return found


@with_logs
def test_deletes_of_real_tables(table: GoldenTable) -> None:
    for name, content in delete_contents(table):
        deletes = decode_deletes(content, name)
        assert len(deletes) == len(deletes.partitions) == len(deletes.ordering.branch)
        values = deletes.ordering.values
        if not len(deletes):
            assert content == encode_deletes(None)
        elif set(values) == {INT} and not any(values[INT][1].to_pylist()):
            assert encode_deletes(deletes.keys, deletes.partitions) == content


def values(wrapped: Wrapped) -> dict[int, list[Any]]:
    return {branch: column.to_pylist() for branch, (_, column) in wrapped.values.items()}


def test_ordering_values_are_decoded() -> None:
    deletes = decode_deletes(bytes.fromhex("00000003000000090202026102000604" + "00"))
    assert (deletes.keys.to_pylist(), deletes.partitions.to_pylist()) == (["a"], [""])
    assert values(deletes.ordering) == {LONG: [2]}


def test_deletes_with_several_ordering_fields_are_decoded() -> None:
    content = "000000030000001e0402026502001802040 60a0e026e00020264020018020406 0a0e026100" + "00"
    deletes = decode_deletes(bytes.fromhex(content.replace(" ", "")))
    assert deletes.keys.to_pylist() == ["e", "d"]
    assert deletes.ordering.branch.tolist() == [ARRAY, ARRAY]
    assert [values(field) for field in deletes.fields] == [{LONG: [5, 5]}, {STRING: ["n", "a"]}]


def test_dates_and_decimals_within_an_array() -> None:
    ordering = bytes.fromhex("180204" + "18dcb402" + "120e07fe5cf2bea000" + "00")
    content = framed_deletes(pa.array(["k"]), b"\x00", ordering)
    day, number = decode_deletes(content).fields
    assert values(day) == {LOCAL_DATE: [date.fromordinal(date(1970, 1, 1).toordinal() + 19758)]}
    assert [str(d) for d in decimals(number.values[9][1], pa.decimal128(38, 15)).to_pylist()] == ["2.250000000000000"]
    assert values(decode_deletes(framed_deletes(pa.array(["k"]), b"\x00", b"\x10\x02")).ordering) == {
        DATE: [date(1970, 1, 2)]
    }


def test_deletes_of_several_ordering_types_are_decoded() -> None:
    ordering = pa.array([b"\x04\x00", b"\x18\x02\x02\x06\x0a\x00", b"\x00", b"\x0a" + bytes(8)], pa.binary())
    content = framed_deletes(pa.array(["a", "b", "c", "d"]), b"\x00", ordering)
    deletes = decode_deletes(content)
    assert deletes.ordering.branch.tolist() == [2, ARRAY, 0, 5]
    assert values(deletes.fields[0]) == {LONG: [5]}
    assert deletes.partitions.to_pylist() == [None] * 4


def test_the_block_that_creates_a_file_group() -> None:
    data = block_bytes(delete_block(encode_deletes(None), "00000000000000000"))
    assert len(data) == 80
    assert len(decode_deletes(read_blocks(data)[0].content)) == 0


@pytest.mark.parametrize(("version", "name"), [(1, "HoodieKey"), (2, "DeleteRecord")])
def test_empty_lists_of_old_versions(version: int, name: str) -> None:
    # as Hudi's serializer writes an array without elements
    body = b"\x01\x00[Lorg.apache.hudi.common.model." + name.encode() + bytes([ord(";") | 0x80, 1, 1])
    deletes = decode_deletes(struct.pack(">ii", version, len(body)) + body)
    assert (len(deletes), deletes.fields) == (0, ())


def test_old_versions_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="format version 2"):
        decode_deletes(bytes.fromhex("0000000200000001") + b"\x00", "p/x.log")


def test_damaged_delete_blocks_decode_or_are_refused_by_name() -> None:
    random.seed(5)
    keys = pa.array([f"k{i}" for i in range(9)])
    mixed = framed_deletes(keys, b"\x02\x02p", pa.array([b"\x18\x02\x04\x06\x0a\x0e\x02n\x00"] * 9, pa.binary()))
    outcomes = Outcomes()
    for _ in range(3000):
        data = bytearray(random.choice([encode_deletes(keys, "files"), mixed]))
        for _ in range(random.randint(1, 3)):
            data[random.randrange(len(data))] = random.randrange(256)
        with outcomes.counted((CorruptFile, UnsupportedFeature)):
            decode_deletes(bytes(data[: random.choice([len(data), random.randrange(len(data))])]), "x")
    outcomes.assert_both()


@pytest.mark.parametrize("seed", range(12))
def test_long_lists_of_many_shapes(seed: int) -> None:
    random.seed(seed)
    shapes = [b"\x04\x00", b"\x06\x80\x01", b"\x0e\x04ab", b"\x18\x02\x02\x06\x0a\x00", b"\x02\x01"]
    keys: list[str] = []
    ordering: list[bytes] = []
    while len(keys) < 3000:
        run, length = random.choice([1, 3, 20, 200, 900]), random.randint(0, 200)
        keys += [f"{random.randrange(10**9):0{length}d}é" for _ in range(run)]
        ordering += [random.choice(shapes)] * run
    column = pa.array(ordering, pa.binary())
    deletes = decode_deletes(framed_deletes(pa.array(keys), b"\x02\x02p", column))
    assert deletes.keys.to_pylist() == keys
    assert deletes.ordering.branch.tolist() == [value[0] >> 1 for value in ordering]
    longs = [at for at, value in enumerate(ordering) if value[0] == 6]
    if longs:
        assert deletes.ordering.values[LONG][0].tolist() == longs
        assert deletes.ordering.values[LONG][1].to_pylist() == [64] * len(longs)

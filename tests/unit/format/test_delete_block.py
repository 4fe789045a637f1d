"""Delete blocks: what real Hudi wrote, decoded as columns and encoded again; broken ones."""

from __future__ import annotations

import random
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile, InvalidRecord, UnsupportedFeature
from lakebed.format.avro.wrappers import (
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    LOCAL_DATE,
    LONG,
    STRING,
    Wrapped,
    decimals,
)
from lakebed.format.delete_block import ARRAY, decode_deletes, encode_deletes, encode_ordered_deletes, framed_deletes
from lakebed.format.log_file import BlockType, block_bytes, delete_block, read_blocks
from support.golden_tables import GoldenTable, golden_tables, spread
from support.outcomes import Outcomes

with_logs = pytest.mark.parametrize("table", spread(golden_tables(lambda t: t.type == "mor")), ids=str)


def delete_contents(table: GoldenTable) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for name, data in table.files().items():
        if ".log." in name:
            blocks = read_blocks(data, name)
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


def column_of(wrapped: Wrapped, rows: int) -> pa.Array | None:
    """An ordering field as a column, null where it is a commit-time delete; None where it has other forms."""
    columns = {branch: found for branch, found in wrapped.values.items() if branch != INT or any(found[1].to_pylist())}
    if len(columns) != 1 or set(columns) & {DATE, LOCAL_DATE}:
        return None
    ((branch, (at, column)),) = columns.items()
    column = decimals(column, pa.decimal128(38, 15)) if branch == DECIMAL else column
    places = np.full(rows, -1)
    places[at] = np.arange(len(at))
    return column.take(pa.array(places, mask=places < 0))


@with_logs
def test_ordered_deletes_are_written_as_hudi_writes_them(table: GoldenTable) -> None:
    for name, content in delete_contents(table):
        deletes = decode_deletes(content, name)
        if deletes.fields:
            columns = [column_of(field, len(deletes)) for field in deletes.fields]
            is_whole = (deletes.ordering.branch == ARRAY).all()
        else:
            columns, is_whole = [column_of(deletes.ordering, len(deletes))], True
        known = [column for column in columns if column is not None]
        if is_whole and len(known) == len(columns):
            assert encode_ordered_deletes(deletes.keys, deletes.partitions, known) == content


def test_ordering_values_of_every_type_are_wrapped_as_readers_compare_them() -> None:
    noon = datetime(2024, 1, 2, 12, tzinfo=UTC)
    cases: list[tuple[pa.Array, int, Any]] = [
        (pa.array([True]), BOOLEAN, True),
        (pa.array([7], pa.int32()), INT, 7),
        (pa.array([-(1 << 40)]), LONG, -(1 << 40)),
        (pa.array([1.5], pa.float32()), FLOAT, 1.5),
        (pa.array([2.25]), DOUBLE, 2.25),
        (pa.array([b"ab"]), BYTES, b"ab"),
        (pa.array(["n"]), STRING, "n"),
        (pa.array(["n"]).dictionary_encode(), STRING, "n"),
        (pa.array([date(1970, 1, 11)]), INT, 10),
        (pa.array([noon], pa.timestamp("us", "UTC")), LONG, int(noon.timestamp() * 10**6)),
        (pa.array([noon], pa.timestamp("ms", "UTC")), LONG, int(noon.timestamp() * 10**3)),
    ]
    for column, branch, value in cases:
        found = decode_deletes(encode_ordered_deletes(pa.array(["k"]), "p", [column]))
        assert values(found.ordering) == {branch: [value]}
    price = encode_ordered_deletes(pa.array(["k"]), "p", [pa.array([Decimal("2.25")])])
    raw = decode_deletes(price).ordering.values[DECIMAL][1]
    assert int.from_bytes(raw[0].as_py(), "big") == 2_250_000_000_000_000


def test_forced_deletes_and_nulls_win_by_commit_time() -> None:
    keys, numbers = pa.array(["a", "b", "c"]), pa.array([5, None, 7])
    found = decode_deletes(encode_ordered_deletes(keys, "p", [numbers], np.array([False, False, True])))
    assert found.ordering.branch.tolist() == [LONG, INT, INT]
    assert values(found.ordering) == {LONG: [5], INT: [0, 0]}
    both = [pa.array([1, 2, 3]), pa.array(["x", None, "z"])]
    with pytest.raises(InvalidRecord, match="null in one of its ordering fields"):
        encode_ordered_deletes(keys, "p", both)
    found = decode_deletes(encode_ordered_deletes(keys, "p", both, pa.array([False, True, False])))
    assert found.ordering.branch.tolist() == [ARRAY, INT, ARRAY]
    assert [values(field) for field in found.fields] == [{LONG: [1, 3]}, {STRING: ["x", "z"]}]
    assert encode_ordered_deletes(keys, "p", both, True) == encode_ordered_deletes(keys, "p", [])
    assert encode_ordered_deletes(keys, "p", []) == encode_deletes(keys, "p")
    assert encode_ordered_deletes(keys[:0], "p", both) == encode_deletes(None)


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


def test_what_is_no_java_object_is_refused_with_path_and_offset() -> None:
    for body in (b"\x00", b"\x01\x00", b"\x01\x00[Lx\xbb\x01\x01", b"\x7f" * 40):
        with pytest.raises(CorruptFile, match=r"p/x\.log: the delete block at offset 40") as error:
            decode_deletes(struct.pack(">ii", 2, len(body)) + body, "p/x.log", 40)
        assert error.value.context == {"path": "p/x.log", "offset": 40}


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

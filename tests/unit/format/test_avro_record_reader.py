"""Avro records read column by column: what fastavro reads, of every type, some columns, some rows; broken ones."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.avro.cursors import Damage
from lakebed.format.avro.encoder import encode_long
from lakebed.format.avro.reader import read_records, record_bounds
from lakebed.format.avro.types import record_schema
from lakebed.format.data_block import encode_data_block, open_data_block
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey, LogBlock, block_bytes, read_blocks, scan_blocks
from lakebed.format.sources import BytesSource
from support.avro_oracle import read_records as read_slowly
from support.avro_values import MAKERS, NULL, ORDERS, batch_of, by_fastavro, column, record
from support.golden_tables import GoldenTable, golden_tables, spread

with_logs = pytest.mark.parametrize("table", spread(golden_tables(lambda t: t.type == "mor")), ids=str)


def read(data: bytes, count: int, schema: str, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    tree = record_schema(schema)
    starts, ends = record_bounds(data, count, 0)
    names = tree.arrow.names if columns is None else list(columns)
    arrays = read_records(np.frombuffer(data, np.uint8), starts, ends, tree, names)
    for array in arrays:
        array.validate(full=True)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([tree.arrow.field(name) for name in names]))


def block_of(rows: pa.RecordBatch, schema: str) -> BlockHead:
    (head,) = scan_blocks(BytesSource(block_bytes(encode_data_block([rows], schema, {})), "a.log"))
    return head


def with_lengths(records: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(one)) + one for one in records)


@pytest.mark.every_case
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", list(MAKERS))
def test_values_of_every_type_are_read_as_they_were_written(name: str, order: str) -> None:
    schema, rows = column(name, order, 300)
    wanted = batch_of(rows, schema)
    data = by_fastavro(rows, schema)
    assert read(data, 300, schema).equals(wanted)
    assert read(data, 300, schema, ["after", "before"]).equals(wanted.select(["after", "before"]))
    head = block_of(wanted, schema)
    some = np.array([0, 3, 4, 151, 299])
    assert open_data_block(head, "a.log").read(["v"], some).equals(wanted.select(["v"]).take(pa.array(some)))
    assert open_data_block(head, "a.log").read(["v"], some[:0]).num_rows == 0


@pytest.mark.parametrize("name", ["list", "lists", "map", "points"])
def test_arrays_of_many_items_and_of_several_blocks(name: str) -> None:
    kind, make = MAKERS[name]
    schema = record(("v", kind), ("after", "string"))
    rows: list[dict[str, Any]] = []
    for length in (0, 1, 5000, 17, 0, 400):
        made = [make() for _ in range(length)]
        items = {f"{i}": v for i, one in enumerate(made) for v in one.values()} if name == "map" else list(chain(*made))
        rows.append({"v": items, "after": "x"})
    assert read(by_fastavro(rows, schema), len(rows), schema).equals(batch_of(rows, schema))


def test_blocks_of_an_array_with_their_size() -> None:
    schema = record(("v", {"type": "array", "items": "long"}), ("after", "long"))
    items = [encode_long(n) for n in (1, 2, 3)]
    plain = encode_long(3) + b"".join(items) + b"\x00"
    sized = encode_long(-2) + encode_long(2) + b"".join(items[:2]) + encode_long(1) + items[2] + b"\x00"
    rows = read(with_lengths([plain + b"\x0e", sized + b"\x10"] * 30), 60, schema)
    assert rows.to_pylist() == [{"v": [1, 2, 3], "after": 7}, {"v": [1, 2, 3], "after": 8}] * 30


def test_numbers_of_every_length() -> None:
    schema = record(("v", "long"), ("w", [NULL, "long"]))
    edges = [0, -1, *(s * ((1 << b) + d) for b in range(5, 63) for d in (-1, 0, 1) for s in (1, -1))]
    edges += [(1 << 63) - 1, -(1 << 63)]
    rows = [{"v": v, "w": None if i % 5 == 0 else -v - 1} for i, v in enumerate(edges)]
    assert read(by_fastavro(rows, schema), len(rows), schema).to_pylist() == rows
    one_by_one = [read(by_fastavro([row], schema), 1, schema).to_pylist()[0] for row in rows]
    assert one_by_one == rows


def test_a_union_of_several_types_becomes_a_struct_of_members() -> None:
    schema = record(("v", [NULL, "string", "long"]), ("w", ["long", "string"]))
    rows = [{"v": "a", "w": 1}, {"v": None, "w": "x"}, {"v": 300, "w": 2}, {"v": "b", "w": 3}]
    found = read(by_fastavro(rows, schema), 4, schema).to_pylist()
    assert [row["v"] for row in found] == [
        {"member0": "a", "member1": None},
        None,
        {"member0": None, "member1": 300},
        {"member0": "b", "member1": None},
    ]
    assert [row["w"]["member0"] for row in found] == [1, None, 2, 3]


def meta_rows(count: int, chance: random.Random) -> tuple[str, pa.RecordBatch]:
    names = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_partition_path", "_hoodie_file_name", "text")
    schema = record(*((name, [NULL, "string"]) for name in names), ("number", [NULL, "long"]))
    files = ["f-0" if i < count // 2 else "f-1" for i in range(count)]
    columns = {
        "_hoodie_commit_time": pa.array(["20261121015401717"] * count),
        "_hoodie_commit_seqno": pa.array([f"20261121015401717_3_{i}" for i in range(count)]),
        "_hoodie_partition_path": pa.array([None if i % 7 == 0 else "p" for i in range(count)], pa.string()),
        "_hoodie_file_name": pa.array(files),
        "text": pa.array(["x" * min(300, int(chance.expovariate(0.1))) for _ in range(count)]),
        "number": pa.array([chance.choice([None, i * i, -i]) for i in range(count)], pa.int64()),
    }
    return schema, pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("count", [1, 4095, 40_000])
def test_large_blocks_give_back_their_rows_and_their_meta_columns_as_dictionaries(count: int) -> None:
    schema, rows = meta_rows(count, random.Random(count))
    block = open_data_block(block_of(rows, schema), "a.log")
    assert block.rows == count
    found = block.read(rows.schema.names)
    for name in rows.schema.names:
        is_dictionary = name in ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name")
        assert pa.types.is_dictionary(found[name].type) == is_dictionary
        assert found[name].cast(rows[name].type).equals(rows[name])
    assert len(found["_hoodie_commit_time"].dictionary) == 1
    picked = np.arange(0, count, 3)
    some = block.read(["number", "_hoodie_file_name"], picked)
    assert some["number"].equals(rows["number"].take(pa.array(picked)))
    assert some["_hoodie_file_name"].cast(pa.string()).equals(rows["_hoodie_file_name"].take(pa.array(picked)))


@pytest.mark.parametrize("decoys", [0, 1, 30])
def test_places_of_records_are_found_where_texts_look_like_records(decoys: int) -> None:
    chance = random.Random(decoys)
    mark = b"\x02\x2220261121015401717"
    records = [
        mark + chance.randbytes(chance.randrange(60)) + mark * (chance.random() * decoys > 0.9) for _ in range(9000)
    ]
    data = with_lengths(records)
    starts, ends = record_bounds(data, len(records), 0)
    assert (ends - starts).tolist() == [len(one) for one in records]
    assert starts.tolist() == list(accumulate((len(one) + 4 for one in records[:-1]), initial=4))
    for lie in (len(records) - 1, len(records) + 1, -1, 1 << 30):
        with pytest.raises(Damage):
            record_bounds(data, lie, 0)


def test_places_of_records_are_found_where_some_are_longer_than_two_bytes_can_say() -> None:
    mark = b"\x02\x2220261121015401717"
    records = [mark + bytes(70_000 * (number % 500 == 7) + number % 40) for number in range(2000)]
    starts, ends = record_bounds(with_lengths(records), len(records), 0)
    assert (ends - starts).tolist() == [len(one) for one in records]


@pytest.mark.every_case
@pytest.mark.parametrize(
    "number", [0, -1, 63, -64, 64, 8191, -8192, 8192, *(s << n for n in range(13, 63, 5) for s in (1, -1))]
)
@pytest.mark.parametrize("kind", ["long", ["null", "long"]], ids=["plain", "nullable"])
def test_numbers_of_one_width_are_read_and_skipped(kind: Any, number: int) -> None:
    schema = record(("v", kind), ("after", "string"))
    for off in ([0] * 5, [1, 0, 1, 0, 0], [1 << 40, 0, 0, 0, 0], [0, 0, 0, 0, -1]):
        rows = [{"v": number ^ bits, "after": f"{n}"} for n, bits in enumerate(off)]
        data = by_fastavro(rows, schema)
        assert read(data, 5, schema).equals(batch_of(rows, schema))
        assert read(data, 5, schema, ["after"]).equals(batch_of(rows, schema).select(["after"]))


@pytest.mark.parametrize("kind", ["string", "bytes", ["null", "string"]], ids=["string", "bytes", "nullable"])
@pytest.mark.parametrize("length", [0, 1, 2, 62, 63, 64, 65, 300])
def test_texts_of_one_length_are_read_and_skipped(kind: Any, length: int) -> None:
    schema = record(("v", kind), ("after", "string"))
    for last in ("\u00e9" if length > 1 else "", "x" * (length > 0), "longer"):
        texts = ["y" * length] * 3 + ["y" * (length - len(last.encode())) + last]
        rows = [{"v": t.encode() if kind == "bytes" else t, "after": f"{n}"} for n, t in enumerate(texts)]
        data = by_fastavro(rows, schema)
        assert read(data, 4, schema).equals(batch_of(rows, schema))
        assert read(data, 4, schema, ["after"]).equals(batch_of(rows, schema).select(["after"]))


def test_short_texts_with_wrong_lengths_are_refused() -> None:
    schema = record(("v", "string"))
    for text in (b"\x06ab\xff", b"\x06\xe9ab", b"\x08abc", b"\x04abc", b"\x05abc"):
        with pytest.raises((Damage, IndexError)):
            read(with_lengths([text] * 3), 3, schema)


def data_heads(table: GoldenTable, *kinds: BlockType) -> Iterator[tuple[str, BlockHead]]:
    for name, data in table.files().items():
        if ".log." in name and "/metadata/" not in name:
            for head in scan_blocks(BytesSource(data, name)):
                if head.type in kinds:
                    yield name, head


@with_logs
def test_blocks_of_real_tables_are_read_and_written_again_byte_for_byte(table: GoldenTable) -> None:
    for name, head in data_heads(table, BlockType.AVRO_DATA, BlockType.CDC_DATA):
        schema = head.headers[HeaderKey.SCHEMA]
        block = open_data_block(head, name)
        rows = block.read(block.schema.names)
        content = bytes(head.read())
        again = encode_data_block([rows], schema, head.headers, head.type)
        assert again.content == content
        assert read_blocks(block_bytes(again))[0].headers == head.headers
        starts, ends = record_bounds(content, block.rows, 8)
        for found, wanted in zip(
            rows.columns, read_slowly(content, starts, ends, schema, rows.schema.names), strict=True
        ):
            assert repr(found.to_pylist()) == repr(wanted.to_pylist())


@pytest.mark.rest
@pytest.mark.larger_set
def test_no_block_of_a_real_table_is_left_to_fastavro(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in real tables is too much for the columnar codec, and there is no other behind it."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a record went through fastavro")

    for name in ("schemaless_reader", "schemaless_writer", "reader", "writer"):
        monkeypatch.setattr(fastavro, name, refuse)
    taken: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for table in golden_tables(lambda _: True):
        for name, head in data_heads(table, BlockType.AVRO_DATA, BlockType.CDC_DATA, BlockType.HFILE_DATA):
            try:
                block = open_data_block(head, name)
                rows = block.read(block.schema.names)
                if head.type is not BlockType.HFILE_DATA:
                    encode_data_block([rows], head.headers[HeaderKey.SCHEMA], head.headers, head.type)
            except UnsupportedFeature as refused:
                left[f"{table}: {refused}"] += 1
            else:
                taken[head.type.name] += 1
    assert not left
    assert taken["AVRO_DATA"] > 0


@pytest.mark.rest
def test_broken_records_raise_or_give_complete_rows() -> None:
    chance = random.Random(5)
    kinds = {name: kind for name, (kind, _) in MAKERS.items()}
    schema = record(*((name, [NULL, kind]) for name, kind in kinds.items()))
    made = {name: make for name, (_, make) in MAKERS.items()}
    rows = [{name: make() if chance.random() < 0.8 else None for name, make in made.items()} for _ in range(40)]
    whole = by_fastavro(rows, schema)
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        content = struct.pack(">ii", 3, len(rows)) + bytes(data)
        log = block_bytes(LogBlock(BlockType.AVRO_DATA, {HeaderKey.SCHEMA: schema}, content))
        (head,) = scan_blocks(BytesSource(log, "a.log"))
        names = chance.sample(list(kinds), 5) if chance.random() < 0.3 else list(kinds)
        try:
            found = open_data_block(head, "a.log").read(names)
        except CorruptFile as error:
            if error.context != {"path": "a.log", "offset": 0}:
                raise
        else:
            found.validate(full=True)
            assert found.num_rows == len(rows)


@pytest.mark.parametrize(("kind", "day"), [("time-millis", 86_400_000), ("time-micros", 86_400_000_000)])
def test_a_time_beyond_its_day_is_refused(kind: str, day: int) -> None:
    schema = record(("v", {"type": "int" if kind == "time-millis" else "long", "logicalType": kind}))
    within = read(with_lengths([encode_long(n) for n in (0, 1, day - 1)]), 3, schema)
    assert within.column(0).cast(pa.int32() if kind == "time-millis" else pa.int64()).to_pylist() == [0, 1, day - 1]
    for beyond in (-1, day, day + 1, -(1 << 31)):
        with pytest.raises(Damage, match="a time is not within a day"):
            read(with_lengths([encode_long(0), encode_long(beyond)]), 2, schema)


def test_wrong_counts_take_no_memory() -> None:
    schema = record(("v", {"type": "array", "items": "double"}), ("m", {"type": "map", "values": "boolean"}))
    for count in (1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 63)):
        for one in (encode_long(count) + b"\x00" * 40, b"\x00" + encode_long(count) + b"\x00" * 40):
            with pytest.raises(Damage):
                read(with_lengths([one]), 1, schema)


@pytest.mark.rest
def test_nulls_of_wide_structs_are_bounded() -> None:
    fields = [{"name": f"f{i}", "type": [NULL, "long"]} for i in range(3000)]
    schema = record(("v", [NULL, {"type": "record", "name": "wide", "fields": fields}]))
    data = with_lengths([b"\x00"] * 100_000)
    with pytest.raises(Damage, match="256 times"):
        read(data, 100_000, schema)

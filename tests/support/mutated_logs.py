"""Log files with damage of every kind, case by case: a number makes the same file each time."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.format.avro.encoder import encode_long
from lakebed.format.data_block import encode_data_block
from lakebed.format.delete_block import encode_deletes, encode_ordered_deletes
from lakebed.format.hfile.writer import write_hfile
from lakebed.format.log_file import (
    BlockType,
    HeaderKey,
    LogBlock,
    block_bytes,
    encode_positions,
    read_blocks,
    rollback_block,
)
from support.avro_values import MAKERS, NULL, batch_of, by_fastavro, record
from support.golden_tables import golden_tables

MAX_BYTES = 48 << 10
_EVIL_INTS = (0, 1, -1, 7, 255, 65_536, 1 << 20, (1 << 31) - 1, -(1 << 31))
_EVIL_LONGS = (*_EVIL_INTS, 1 << 32, 1 << 40, (1 << 63) - 1, -(1 << 63))
_RICH = {name: kind for name, (kind, _) in MAKERS.items() if name != "wide"}


@dataclass(frozen=True)
class Damaged:
    """A damaged file. Bytes before `first` and from `behind` on (counted from the file's end) are those of `whole`;
    `kind` is what was done."""

    whole: bytes
    data: bytes
    first: int
    behind: int
    kind: str


@cache
def logs() -> tuple[bytes, ...]:
    """Small logs of real tables, and some with all kinds of blocks."""
    found: list[bytes] = []
    for table in golden_tables(lambda t: t.type == "mor"):
        files = table.files()
        names = [name for name in files if ".log." in name and "/metadata/" not in name]
        found += [files[name] for name in sorted(names)[:3] if 0 < len(files[name]) <= MAX_BYTES]
    return (*found, *_originals())


def _originals() -> list[bytes]:
    chance = random.Random(17)
    schema = record(*((name, [NULL, kind]) for name, kind in _RICH.items()))
    rows = batch_of(
        [{name: MAKERS[name][1]() if chance.random() < 0.8 else None for name in _RICH} for _ in range(60)], schema
    )
    headers: dict[int, str] = {0: "20261121015401717", 5: encode_positions([*range(30), *range(40, 70)])}
    avro = encode_data_block([rows.slice(0, 30), rows.slice(30)], schema, headers)
    parquet = encode_data_block([rows], schema, headers, BlockType.PARQUET_DATA)
    small = record(("key", "string"), ("n", [NULL, "long"]))
    values = [by_fastavro([{"key": "", "n": n}], small)[4:] for n in range(200)]
    hfile = write_hfile(
        pa.array([f"k{n:04}" for n in range(200)]), pa.array(values, pa.binary()), schema_json=small, block_size=1024
    )
    keys = pa.array([f"k{n}" for n in range(40)])
    ordered = encode_ordered_deletes(keys, "p", [pa.array(range(40)), pa.array(["x", "yy"] * 20)], np.arange(40) < 5)
    blocks = [
        avro,
        LogBlock(BlockType.DELETE, {0: "2", 2: schema}, encode_deletes(keys, "p")),
        LogBlock(BlockType.HFILE_DATA, {0: "3", 2: small}, hfile),
        rollback_block("2", "4"),
        parquet,
        LogBlock(BlockType.DELETE, {0: "5", 2: schema}, ordered),
    ]
    return [b"".join(block_bytes(one) for one in (*blocks[n:], *blocks[:n])) for n in range(6)] * 3


def damaged(number: int) -> Damaged:
    chance = random.Random(number)
    whole = chance.choice(logs())
    return chance.choice(_MUTATIONS)(whole, chance)


def _flipped(whole: bytes, chance: random.Random) -> Damaged:
    data = bytearray(whole)
    at = [chance.randrange(len(data)) for _ in range(chance.randint(1, 4))]
    for place in at:
        data[place] ^= 1 << chance.randrange(8)
    return Damaged(whole, bytes(data), min(at), len(data) - max(at) - 1, "flipped")


def _overwritten(whole: bytes, chance: random.Random) -> Damaged:
    start = chance.randrange(len(whole))
    size = min(chance.choice([1, 2, 4, 8, 60, 2000]), len(whole) - start)
    new = chance.choice([bytes(size), b"\xff" * size, chance.randbytes(size)])
    return Damaged(whole, whole[:start] + new + whole[start + size :], start, len(whole) - start - size, "overwritten")


def _cut(whole: bytes, chance: random.Random) -> Damaged:
    end = chance.randrange(len(whole))
    return Damaged(whole, whole[:end], end, 0, "cut")


def _shortened(whole: bytes, chance: random.Random) -> Damaged:
    start = chance.randrange(len(whole))
    size = min(chance.choice([1, 4, 50, 3000]), len(whole) - start)
    return Damaged(whole, whole[:start] + whole[start + size :], start, len(whole) - start - size, "shortened")


def _lengthened(whole: bytes, chance: random.Random) -> Damaged:
    start = chance.randrange(len(whole) + 1)
    other = chance.choice(logs())
    place = chance.randrange(len(other))
    size = chance.choice([1, 4, 50, 3000])
    new = chance.choice([bytes(size), chance.randbytes(size), other[place : place + size] or b"x"])
    return Damaged(whole, whole[:start] + new + whole[start:], start, len(whole) - start, "lengthened")


def _lied(whole: bytes, chance: random.Random) -> Damaged:
    """A length or count in a block's frame, or in its content, that is not so."""
    places = _fields(whole)
    data = bytearray(whole)
    place, form = chance.choice(places)
    value = chance.choice(_EVIL_LONGS if form == ">q" else _EVIL_INTS)
    if chance.random() < 0.3:
        (old,) = struct.unpack_from(form, data, place)
        value = old + chance.choice([-8, -4, -1, 1, 4, 8])
    with_value = struct.pack(form, max(-(1 << 31), min(value, (1 << 31) - 1)) if form == ">i" else value)
    data[place : place + len(with_value)] = with_value
    return Damaged(whole, bytes(data), place, len(data) - place - len(with_value), "lied")


@cache
def _fields(whole: bytes) -> list[tuple[int, str]]:
    """Where the numbers of a log file's frames and contents stand."""
    found: list[tuple[int, str]] = []
    for block in read_blocks(whole):
        if block.type is BlockType.CORRUPT:
            continue
        at = block.offset + 6
        found += [(at, ">q"), (at + 8, ">i"), (at + 12, ">i"), (at + 16, ">i")]
        at += 20
        for value in block.headers.values():
            found += [(at, ">i"), (at + 4, ">i")]
            at += 8 + len(value.encode())
        content = at + 8
        end = content + len(block.content)
        found += [(at, ">q"), (end, ">i"), (end + 4, ">q")]
        if block.content:
            found += [(content, ">i"), (content + 4, ">i")] * 4
        if block.type in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
            place = content + 8
            while place < end:
                found.append((place, ">i"))
                place += 4 + struct.unpack_from(">i", whole, place)[0]
    return found


def _reframed(whole: bytes, chance: random.Random) -> Damaged:
    """A block with other content, type or headers in a frame that is right."""
    blocks = [block for block in read_blocks(whole) if block.type is not BlockType.CORRUPT]
    number = chance.randrange(len(blocks))
    block = blocks[number]
    data = block_bytes(chance.choice(_REFRAMINGS)(block, chance))
    start = block.offset
    end = start + len(block_bytes(block))
    return Damaged(whole, whole[:start] + data + whole[end:], start, len(whole) - end, "reframed")


def _content_damaged(block: LogBlock, chance: random.Random) -> LogBlock:
    if not block.content:
        return LogBlock(block.type, block.headers, chance.randbytes(chance.randrange(50)))
    change = chance.choice([_flipped, _overwritten, _cut, _shortened, _lengthened])
    return LogBlock(block.type, block.headers, change(block.content, chance).data)


def _type_changed(block: LogBlock, chance: random.Random) -> LogBlock:
    kinds = [kind for kind in BlockType if kind is not BlockType.CORRUPT]
    return LogBlock(chance.choice(kinds), block.headers, block.content)


def _schema_changed(block: LogBlock, chance: random.Random) -> LogBlock:
    return LogBlock(block.type, {**block.headers, HeaderKey.SCHEMA: chance.choice(_schemas())}, block.content)


def _positions_changed(block: LogBlock, chance: random.Random) -> LogBlock:
    header = chance.choice([encode_positions(range(10_000_000)), "AAAA", "%%%", encode_positions([1]) + "="])
    return LogBlock(block.type, {**block.headers, HeaderKey.RECORD_POSITIONS: header}, block.content)


def _bomb(block: LogBlock, chance: random.Random) -> LogBlock:
    kind, schema, content = chance.choice(bombs())
    return LogBlock(kind, {**block.headers, HeaderKey.SCHEMA: schema}, content)


@cache
def _schemas() -> tuple[str, ...]:
    """Of other tables, and such as would make much of little."""
    others = [block.headers.get(HeaderKey.SCHEMA, "{}") for log in logs()[::7] for block in read_blocks(log)[:1]]
    deep: Any = "long"
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    doubled: list[dict[str, Any]] = [{"name": "f0", "type": "null"}]
    for n in range(1, 40):
        inner = {"type": "record", "name": f"r{n}", "fields": doubled}
        doubled = [{"name": "a", "type": inner}, {"name": "b", "type": f"r{n}"}]
    own = {"type": "record", "name": "r", "fields": [{"name": "v", "type": [NULL, "r"]}]}
    many = [{"name": f"f{n}", "type": NULL} for n in range(200_000)]
    evil = [
        record(("v", {"type": "array", "items": NULL})), "{", "[]", '"long"', "", "null",
        json.dumps(own), json.dumps({"type": "record", "name": "r", "fields": doubled}),
        json.dumps({"type": "record", "name": "r", "fields": many}),
        record(("v", {"type": "fixed", "name": "f", "size": 1 << 40})),
        record(("v", {"type": "enum", "name": "e", "symbols": []})), record(("v", "long"), ("v", "string")),
        record(("v", {"type": "bytes", "logicalType": "decimal", "precision": 99, "scale": -3})),
    ]  # fmt: skip
    with_deep = '{"type":"record","name":"r","fields":[{"name":"v","type":' + _text_of(3000) + "}]}"
    return (*others, *evil, with_deep)


def _text_of(depth: int) -> str:
    return '{"type":"array","items":' * depth + '"long"' + "}" * depth


@cache
def bombs() -> tuple[tuple[BlockType, str, bytes], ...]:
    """Contents that become very large. Another process makes them: that takes memory too, and ours is measured."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_bombs).result()


def _bombs() -> tuple[tuple[BlockType, str, bytes], ...]:
    """Small contents that would become large ones."""
    text = record(("v", [NULL, "string"]))
    numbers = record(("v", {"type": "array", "items": "double"}))
    wide = [{"name": f"f{i}", "type": [NULL, "long"]} for i in range(3000)]
    nulls = record(("v", [NULL, {"type": "record", "name": "wide", "fields": wide}]))
    lengths = b"".join(struct.pack(">i", 1) + b"\x00" for _ in range(100_000))
    found = [
        (BlockType.PARQUET_DATA, text, _parquet({"v": ["x" * (1 << 20)] * 400}, use_dictionary=False)),
        (BlockType.PARQUET_DATA, text, _parquet({"v": ["x" * (1 << 19)] * 2000})),
        (BlockType.AVRO_DATA, nulls, struct.pack(">ii", 3, 100_000) + lengths),
        (BlockType.HFILE_DATA, text, _hfile_bomb()),
    ]
    for count in (1 << 28, 1 << 62, -(1 << 62)):
        one = encode_long(count) + bytes(60)
        found.append((BlockType.AVRO_DATA, numbers, struct.pack(">iii", 3, 1, len(one)) + one))
    return tuple(found)


def _parquet(columns: dict[str, list[Any]], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd", store_schema=False, write_statistics=False, **options)
    return sink.getvalue()


def _hfile_bomb() -> bytes:
    """An HFile whose first block inflates to far more than it says."""
    values = pa.array([bytes(1000)] * 2000, pa.binary())
    data = bytearray(write_hfile(pa.array([f"k{n:04}" for n in range(2000)]), values, schema_json='"bytes"'))
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packed.compress(bytes(1 << 28)) + packed.flush()
    size = min(len(bomb), len(data) - 33)
    data[33 : 33 + size] = bomb[:size]
    return bytes(data)


_Mutation = Callable[[bytes, random.Random], Damaged]
_MUTATIONS: tuple[_Mutation, ...] = (
    _flipped,
    _flipped,
    _overwritten,
    _cut,
    _shortened,
    _lengthened,
    _lied,
    _lied,
    _reframed,
    _reframed,
)
_REFRAMINGS: tuple[Callable[[LogBlock, random.Random], LogBlock], ...] = (
    _content_damaged,
    _content_damaged,
    _content_damaged,
    _content_damaged,
    _type_changed,
    _schema_changed,
    _positions_changed,
    _bomb,
)

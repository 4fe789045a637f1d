"""Row addresses give the rows of every key of their file, few others, and are not used where they are broken."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lakebed.format.row_addresses import (
    ADDRESSES_KEY,
    AddressWriter,
    RowAddresses,
    addresses_text,
    fingerprints,
)

NAME = "file.parquet"


def random_keys(dice: random.Random, count: int) -> pa.Array:
    lengths = dice.choice([(8, 8), (36, 36), (0, 20), (1, 300), (250, 260)])
    return pa.array(["".join(dice.choices("abé€0123", k=dice.randint(*lengths))) for _ in range(count)])


def encoded(keys: pa.Array, name: str = NAME, parts: int = 3) -> bytes:
    writer = AddressWriter()
    for at in range(0, len(keys), max(1, len(keys) // parts)):
        writer.add(fingerprints(keys.slice(at, max(1, len(keys) // parts))))
    assert writer.rows == len(keys)
    return bytes(writer.encoded(name))


class Bytes:
    """Gives ranges of bytes, and counts them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def __call__(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked += ranges
        return [self.data[start : start + length] for start, length in ranges]


def rows_by_scan(keys: pa.Array, wanted: Sequence[str]) -> list[int]:
    chosen = set(wanted)
    return [row for row, key in enumerate(keys.to_pylist()) if key in chosen]


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.rest) for n in range(6, 60))])
def test_rows_are_those_of_a_scan(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.choice([1, 2, 510, 511, 512, 5000])
    keys = random_keys(dice, count)
    addresses = RowAddresses(NAME, 7, count)
    read = Bytes(b"before " + encoded(keys))
    known = keys.to_pylist()
    wanted = dice.sample(known, min(count, dice.choice([1, 5, 400])))
    wanted += random_keys(dice, 5).to_pylist()
    found = addresses.find(read, pa.array(wanted))
    assert found is not None
    rows = found.tolist()
    assert set(rows_by_scan(keys, wanted)) <= set(rows)
    assert rows == sorted(set(rows))
    assert len(rows) <= len(rows_by_scan(keys, wanted)) + 1
    texts = addresses.fingerprints(read)
    assert texts is not None
    assert texts.tolist() == fingerprints(keys).tolist()


def test_few_blocks_are_read_for_few_keys() -> None:
    keys = pa.array([f"key-{n:09d}" for n in range(300_000)])
    read = Bytes(encoded(keys))
    addresses = RowAddresses(NAME, 0, len(keys))
    found = addresses.find(read, pa.array(["key-000000017", "key-000299999", "another"]))
    assert found is not None
    assert found.tolist() == [17, 299_999]
    assert sum(length for _, length in read.asked) < len(read.data) / 20
    everything = Bytes(read.data)
    many = addresses.find(everything, keys.slice(0, 1000))
    assert many is not None
    assert many.tolist() == list(range(1000))
    assert everything.asked == [(0, len(read.data))]


def test_keys_whose_fingerprints_are_not_spread_evenly_are_looked_up_in_all_blocks() -> None:
    writer = AddressWriter()
    key = fingerprints(pa.array(["the key"]))
    crowd = np.full(200_000, int(key[0]) - 1, np.uint32)
    writer.add(crowd)
    writer.add(key)
    read = Bytes(bytes(writer.encoded(NAME)))
    addresses = RowAddresses(NAME, 0, writer.rows)
    found = addresses.find(read, pa.array(["the key"]))
    assert found is not None
    assert found.tolist() == [200_000]
    assert read.asked[-1] == (0, len(read.data))


@pytest.mark.parametrize("length", [255, 256, 257])
def test_long_and_short_keys_have_one_fingerprint_alone_and_among_others(length: int) -> None:
    texts = ["x" * length, "y" * length, "", "z", "x" * 8, "x" * 9]
    together = fingerprints(pa.array(texts)).tolist()
    assert together == [fingerprints(pa.array([text])).tolist()[0] for text in texts]
    assert fingerprints(pa.array(texts).slice(1, 3)).tolist() == together[1:4]
    assert fingerprints(pa.array(texts).dictionary_encode()).tolist() == together
    assert len(set(together)) == len(texts)


def test_fingerprints_stay_what_files_have() -> None:
    texts = ["a", "key-000000000001", "é€", "x" * 300]
    assert fingerprints(pa.array(texts)).tolist() == [3915325677, 3448932512, 2518034076, 3017934090]


def test_a_million_absent_keys_hit_few_rows() -> None:
    keys = pa.array([f"key-{n}" for n in range(100_000)])
    held = np.sort(fingerprints(keys))
    absent = fingerprints(pa.array([f"no-{n}" for n in range(200_000)]))
    assert len(np.unique(held)) > 99_990
    assert np.isin(absent, held).sum() < 30


@pytest.mark.parametrize("how", ["bit", "name", "rows", "moved", "truncated"])
def test_broken_addresses_are_not_used(how: str) -> None:
    keys = pa.array([f"key-{n}" for n in range(3000)])
    data = encoded(keys, "another.parquet" if how == "name" else NAME)
    addresses = RowAddresses(NAME, 0, len(keys))
    if how == "bit":
        data = data[:9] + bytes([data[9] ^ 4]) + data[10:]
    if how == "rows":
        addresses = RowAddresses(NAME, 0, len(keys) - 1)
    if how == "moved":
        data = data[4096:] + data[:4096]
    if how == "truncated":
        data = data[:-1]
    assert addresses.find(Bytes(data), keys) is None
    assert addresses.fingerprints(Bytes(data)) is None


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        (addresses_text(100, 511), True),
        ("1 100 511", True),
        ("2 100 511", False),
        ("1 100 510", False),
        ("1 4001 511", False),
        ("1 4000 511", True),
        ("1 -5 511", False),
        ("1 100", False),
        ("1 100 ٥١١", False),
        ("", False),
    ],
)
def test_texts_of_a_footer_that_cannot_be_right_show_no_addresses(text: str, is_known: bool) -> None:
    found = RowAddresses.of({ADDRESSES_KEY: text}, f"region/{NAME}", 511, 8096)
    assert (found is not None) is is_known
    assert found is None or found.name == NAME
    assert RowAddresses.of({}, NAME, 511, 8096) is None
    assert RowAddresses.of({ADDRESSES_KEY: "1 0 0"}, NAME, 0, 8096) is None

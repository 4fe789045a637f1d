"""Row addresses give the rows of every key of their file, few others, and are not used where they are broken."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakebed.format.row_addresses import (
    ADDRESSES_KEY,
    AddressWriter,
    RowAddresses,
    StoredFingerprints,
    bits_of,
    fingerprints,
)

NAME = "file.parquet"


def random_keys(dice: random.Random, count: int) -> pa.Array:
    lengths = dice.choice([(8, 8), (36, 36), (0, 20), (1, 300), (250, 260)])
    return pa.array(["".join(dice.choices("abé€0123", k=dice.randint(*lengths))) for _ in range(count)])


SIZE = 1 << 20
"""Bytes of rows: so many that fingerprints have all their bits."""


def encoded(keys: pa.Array, name: str = NAME, parts: int = 3, size: int = SIZE) -> tuple[RowAddresses, bytes]:
    writer = AddressWriter()
    for at in range(0, len(keys), max(1, len(keys) // parts)):
        writer.add(fingerprints(keys.slice(at, max(1, len(keys) // parts))))
    return writer.encoded(name, 0, size)


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


def stored(addresses: RowAddresses, data: bytes) -> StoredFingerprints:
    found = addresses.read(Bytes(data))
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.rest) for n in range(6, 60))])
def test_rows_are_those_of_a_scan(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.choice([1, 2, 7, 8, 9, 5000])
    keys = random_keys(dice, count)
    addresses, data = encoded(keys)
    held = stored(replace(addresses, offset=7), b"before " + data)
    known = keys.to_pylist()
    wanted = dice.sample(known, min(count, dice.choice([1, 5, 8, 9, 400])))
    wanted += random_keys(dice, 5).to_pylist()
    rows = held.find(pa.array(wanted)).tolist()
    assert set(rows_by_scan(keys, wanted)) <= set(rows)
    assert rows == sorted(set(rows))
    assert len(rows) <= len(rows_by_scan(keys, wanted)) + 20
    assert held.all().tolist() == (fingerprints(keys) & ((1 << held.bits) - 1)).tolist()


def test_fingerprints_are_read_by_one_request_and_give_nearly_only_the_rows_of_the_keys() -> None:
    keys = pa.array([f"key-{n:09d}" for n in range(300_000)])
    addresses, data = encoded(keys, size=50 * len(keys))
    read = Bytes(data)
    held = addresses.read(read)
    assert held is not None
    assert read.asked == [(0, len(data))]
    few = held.find(pa.array(["key-000000017", "key-000299999", "another"])).tolist()
    assert {17, 299_999} <= set(few)
    assert len(few) <= 4
    many = held.find(keys.slice(0, 1000)).tolist()
    assert set(many) >= set(range(1000))
    assert len(many) < 1_050
    assert held.find(pa.array([], pa.string())).tolist() == []


@pytest.mark.parametrize(
    ("rows", "size", "bits"),
    [
        (1, 1_000, 16),
        (1_000, 100_000, 16),
        (1_000, 36_666, 16),
        (20_000, 1 << 40, 21),
        (250_000, 12_500_001, 24),
        (250_000, 12_499_999, 23),
        (250_000, 11_979_167, 23),
        (250_000, 11_979_166, 22),
        (250_000, 1, 19),
        ((1 << 31) - 1, 1 << 60, 32),
    ],
)
def test_fingerprints_have_as_many_bits_as_are_a_small_part_of_the_file(rows: int, size: int, bits: int) -> None:
    assert bits_of(rows, size) == bits
    least = max(16, rows.bit_length() + 1)
    assert bits == least or bits * rows / 8 <= 0.06 * size


@pytest.mark.parametrize(("size", "share"), [(50, 0.06), (100, 0.03), (20, 0.13)])
def test_fingerprints_take_a_small_part_of_the_file(size: int, share: float) -> None:
    keys = pa.array([f"key-{n:09d}" for n in range(200_000)])
    _, data = encoded(keys, size=size * len(keys))
    assert len(data) <= share * size * len(keys) + 8


def test_a_file_has_no_more_bits_than_all_its_rows_show() -> None:
    keys = pa.array([f"key-{n}" for n in range(3_000)])
    writer = AddressWriter()
    writer.add(fingerprints(keys.slice(0, 1_000)), 17)
    writer.add(fingerprints(keys.slice(1_000)))
    addresses, data = writer.encoded(NAME, 0, SIZE)
    assert addresses.bits == 17
    assert 5 in stored(addresses, data).find(keys.slice(5, 1)).tolist()


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


@pytest.mark.parametrize("how", ["bit", "end", "name", "rows", "bits", "moved", "truncated"])
def test_broken_addresses_are_not_used(how: str) -> None:
    keys = pa.array([f"key-{n}" for n in range(3000)])
    addresses, data = encoded(keys)
    if how == "bit":
        data = data[:9] + bytes([data[9] ^ 4]) + data[10:]
    if how == "end":
        data = data[:-1] + bytes([data[-1] ^ 4])
    if how == "name":
        addresses = replace(addresses, name="another.parquet")
    if how == "rows":
        addresses = replace(addresses, rows=len(keys) - 1)
    if how == "bits":
        addresses = replace(addresses, bits=addresses.bits - 1)
    if how == "moved":
        data = data[4096:] + data[:4096]
    if how == "truncated":
        data = data[:-1]
    assert addresses.read(Bytes(data)) is None


@pytest.mark.parametrize(
    ("text", "is_known"),
    [
        (RowAddresses(NAME, 100, 511, 16).text, True),
        ("2 100 511 16", True),
        ("2 100 511 15", False),
        ("2 100 511 32", True),
        ("2 100 511 33", False),
        ("1 100 511", False),
        ("2 100 510 16", False),
        ("2 7070 511 16", True),
        ("2 7071 511 16", False),
        ("2 7006 511 17", True),
        ("2 7007 511 17", False),
        ("2 -5 511 16", False),
        ("2 100 511", False),
        ("2 100 ٥١١ 16", False),
        ("", False),
    ],
)
def test_texts_of_a_footer_that_cannot_be_right_show_no_addresses(text: str, is_known: bool) -> None:
    found = RowAddresses.of({ADDRESSES_KEY: text}, f"region/{NAME}", 511, 8096)
    assert (found is not None) is is_known
    assert found is None or found.name == NAME
    assert RowAddresses.of({}, NAME, 511, 8096) is None
    assert RowAddresses.of({ADDRESSES_KEY: "2 0 0 16"}, NAME, 0, 8096) is None


@pytest.mark.parametrize("hint", ["right", "stale", "none", "beyond"])
def test_keys_are_located_with_hints_that_may_be_wrong(hint: str) -> None:
    dice = random.Random(hint)
    keys = pa.array([f"key {n}" for n in dice.sample(range(100_000), 3_000)])
    found = stored(*encoded(keys))
    at = np.array(dice.sample(range(3_000), 40))
    requested = pa.concat_arrays([keys.take(pa.array(at)), pa.array(["nobody", "key 1x"])])
    hints = {"right": at, "stale": at[::-1], "none": np.full(40, -1), "beyond": at + 3_000}[hint]
    numbers, rows = found.locate(requested, np.append(hints, [5, -1]))
    pairs = set(zip(numbers.tolist(), rows.tolist(), strict=True))
    assert pairs >= set(enumerate(at.tolist()))
    # others have a fingerprint in common with a key
    prints = fingerprints(keys) & np.uint32((1 << found.bits) - 1)
    of_keys = fingerprints(requested) & np.uint32((1 << found.bits) - 1)
    assert all(prints[row] == of_keys[number] for number, row in pairs)
    assert len(pairs) == len(rows)


def test_all_rows_of_a_key_that_was_inserted_again_are_located_whatever_the_hint() -> None:
    located = stored(*encoded(pa.array(["a", "b", "a", "c"]))).locate(pa.array(["a", "b", "a"]), np.array([2, 1, -1]))
    assert sorted(zip(*(part.tolist() for part in located), strict=True)) == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2)]


def test_no_keys_are_located_nowhere() -> None:
    found = stored(*encoded(pa.array(["a", "b"])))
    numbers, rows = found.locate(pa.array([], pa.string()), np.empty(0, np.int64))
    assert (len(numbers), len(rows)) == (0, 0)

"""Ranges of keys: one sort finds what comparing every range with every key finds."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lakebed.format.bloom import BloomFilter, ChainedHashes
from lakebed.format.key_order import KeyRanges, orders_agree

LETTERS = ("", "a", "b", "ab", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "z")


def java(text: str) -> bytes:
    return text.encode("utf-16-be")


@pytest.mark.parametrize("java_order", [True, False])
@pytest.mark.parametrize(("keys", "ranges"), [(300, 40), (3, 500), (0, 5), (50, 0), (40, 1)])
def test_the_sorted_search_finds_what_every_comparison_finds(keys: int, ranges: int, java_order: bool) -> None:
    order = java if java_order else str.encode
    chance = random.Random(f"{keys} {ranges}")

    def text() -> str:
        return "".join(chance.choice(LETTERS) for _ in range(chance.randrange(4)))

    wanted = [text() for _ in range(keys)]
    held = [None if chance.random() < 0.1 else tuple(sorted((text(), text()), key=order)) for _ in range(ranges)]
    spans = KeyRanges(held, java_order=java_order).spans(pa.array(wanted, pa.string()))  # type: ignore[arg-type]
    if ranges > 1:
        assert [order(wanted[i]) for i in spans.order] == sorted(map(order, wanted))
    for number, one in enumerate(held):
        expected = [i for i, k in enumerate(wanted) if one is None or order(one[0]) <= order(k) <= order(one[1])]
        assert sorted(spans.of(number).tolist()) == expected
        assert spans.counts[number] == len(expected)
    at, own = spans.pairs()
    assert sorted(zip(at.tolist(), own.tolist(), strict=True)) == [
        (n, i) for n in range(ranges) for i in sorted(spans.of(n).tolist())
    ]


def test_a_slice_of_an_array_is_swept_as_itself() -> None:
    keys = pa.array(["x", "b\U00010000", "\ue000", "a"]).slice(1, 2)
    spans = KeyRanges([("b", "\U0010ffff"), ("\ue000", "\ue000")]).spans(keys)
    assert [spans.of(n).tolist() for n in (0, 1)] == [[0], [1]]


@pytest.mark.parametrize(("text", "same"), [("", True), ("\ud7ff", True), ("a\ue000", False), ("\U00010000", False)])
def test_orders_agree_on_texts_with_the_same_position_in_both(text: str, same: bool) -> None:
    assert orders_agree(text) is same


@pytest.mark.parametrize("entries", [20, 50])
def test_hashes_are_shared_by_filters_of_every_size(entries: int) -> None:
    chance = random.Random(entries)
    texts = [f"{'k' * chance.randrange(9)}{i}" for i in range(400)]
    hashes = ChainedHashes(pa.array(texts))
    for filter_ in (
        BloomFilter.simple(entries, 0.1),
        BloomFilter.simple(entries, 1e-9),
        BloomFilter.dynamic(entries, 1e-6, 90),
    ):
        held = pa.array(texts[:entries] if filter_.type_code == "SIMPLE" else texts[:120])
        filter_.add(held)
        rows = np.array(sorted(chance.sample(range(400), 300)))
        alone = [bool(filter_.might_contain(pa.array([texts[i]]))[0].as_py()) for i in rows]
        assert filter_.holds(hashes, rows).tolist() == alone
        assert all(found for found, i in zip(alone, rows, strict=True) if i < len(held))
        assert not all(alone)


def test_the_rate_of_a_filter_says_how_much_it_lets_through() -> None:
    filter_ = BloomFilter.simple(1000, 0.01)
    assert filter_.rate == 0
    filter_.add(pa.array([f"in{i}" for i in range(1000)]))
    let_through = sum(filter_.might_contain(pa.array([f"out{i}" for i in range(20_000)])).to_pylist()) / 20_000
    assert 0.006 < filter_.rate < 0.014
    assert abs(filter_.rate - let_through) < 0.003
    filter_.add(pa.array([f"more{i}" for i in range(20_000)]))
    assert filter_.rate > 0.99

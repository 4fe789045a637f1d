"""The order of record keys: that of their UTF-8 bytes, whatever is in them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format.key_order import KeyRange, in_order, insertion_points, key_order, shared_prefix

ODD = ["", "\0", "\0\0", "a", "a\0", "a\0b", "é", "\uffff", "\U0001f600", "a" * 8, "a" * 8 + "\0", "a" * 9, "ab" * 40]
texts = st.lists(st.one_of(st.sampled_from(ODD), st.text("ab\0é\U0001f600", max_size=20)), max_size=60)


def as_bytes(keys: list[str]) -> list[bytes]:
    return [key.encode() for key in keys]


@settings(deadline=None)
@given(texts)
def test_keys_are_put_in_the_order_of_their_bytes(keys: list[str]) -> None:
    array = pa.array(keys, pa.string())
    order = key_order(array)
    model = sorted(range(len(keys)), key=lambda n: (keys[n].encode(), n))
    assert (list(range(len(keys))) if order is None else order.tolist()) == model
    assert in_order(array) == (order is None)
    assert in_order(array.take(pa.array(model, pa.int64())))


@settings(deadline=None)
@given(texts, texts)
def test_positions_are_after_the_keys_that_are_not_greater(keys: list[str], wanted: list[str]) -> None:
    stored = sorted(as_bytes(keys))
    found = insertion_points(pa.array(stored, pa.binary()).cast(pa.string()), pa.array(wanted, pa.string()))
    assert found.tolist() == [sum(key <= one for key in stored) for one in as_bytes(wanted)]


@pytest.mark.parametrize("width", [3, 8, 11, 36])
def test_many_keys_are_ordered_by_their_bytes(width: int) -> None:
    dice = random.Random(width)
    keys = [f"key-{dice.randrange(10**6):0{width}d}" for _ in range(20_000)]
    array = pa.array(keys)
    order = key_order(array)
    assert order is not None
    assert order.tolist() == sorted(range(len(keys)), key=lambda n: (keys[n].encode(), n))
    some = array[:500]
    ordered = array.take(pa.array(order))
    assert insertion_points(ordered, some).tolist() == np.searchsorted(sorted(keys), some.to_pylist(), "right").tolist()


def test_slices_count_from_their_start() -> None:
    keys = pa.array(["zz", "b", "a", "c", "aa"])
    order = key_order(keys[1:4])
    assert order is not None
    assert order.tolist() == [1, 0, 2]
    assert insertion_points(keys[2:4], keys[1:2]).tolist() == [1]


def test_equal_keys_are_in_order_but_not_strictly() -> None:
    assert in_order(pa.array(["a", "a"]))
    assert not in_order(pa.array(["a", "a"]), strictly=True)
    assert in_order(pa.array([], pa.string()), strictly=True)


def test_the_order_is_not_that_of_java_strings() -> None:
    """Hudi's smallest and greatest key of a file are by UTF-16 code units, where characters beyond the basic plane come
    before the last ones of it."""
    keys = pa.array(["\uffff", "\U0001f600"])
    assert in_order(keys)
    java = KeyRange()
    java.add(keys)
    assert java.range() == ("\U0001f600", "\uffff")


def test_shared_prefixes_are_counted_in_bytes() -> None:
    assert shared_prefix(pa.array(["éa", "éb"])) == 2
    assert shared_prefix(pa.array(["x"]), pa.array(["xy"])) == 1
    assert shared_prefix(pa.array([], pa.string())) == 0

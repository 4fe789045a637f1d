"""Traces of rows: how many texts are searched at a time, and which values count as those of a row."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

from lakebed.read import row_traces
from lakebed.read.row_traces import MAX_TEXT, MIN_TEXT, RowKeys, TextSearch, ValueSet


def search(*texts: str) -> TextSearch:
    return TextSearch(pa.array([text.encode() for text in texts], pa.binary()))


@pytest.mark.parametrize("stretch", [8, 16, 1 << 20])
def test_texts_are_found_wherever_they_are(monkeypatch: pytest.MonkeyPatch, stretch: int) -> None:
    monkeypatch.setattr(row_traces, "_STRETCH_BYTES", stretch)
    generator = random.Random(5)
    texts = sorted({f"text-{generator.randrange(300):05d}{'x' * generator.randrange(9)}" for _ in range(60)})
    searched = search(*texts)
    for _ in range(20):
        there = generator.sample(texts, 3)
        data = b"".join(part for text in there for part in (os.urandom(generator.randrange(20)), text.encode()))
        expected = {text for text in texts if text.encode() in data}
        assert {searched.text(n).decode() for n in searched.found_in(data)} == expected
        assert {searched.text(n).decode() for n in searched.found_in(memoryview(data))} == expected


def test_a_text_at_the_end_and_one_that_is_cut_off() -> None:
    searched = search("eight888", "nine-9999")
    assert [searched.text(n) for n in searched.found_in(b"..eight888")] == [b"eight888"]
    assert searched.found_in(b"..nine-999") == searched.found_in(b"") == searched.found_in(b"eight88") == set()


def test_the_first_bytes_of_a_long_text_are_searched_and_texts_with_equal_ends_are_distinguished() -> None:
    long = "x" * MAX_TEXT + "rest"
    assert search(long).found_in(long[:-4].encode()) == {0}
    alike = [f"begin---{middle}---ends-" for middle in ("one", "two", "six")]
    searched = search(*alike)
    for text in alike:
        assert [searched.text(n).decode() for n in searched.found_in(f"..{text}..{text}".encode())] == [text]
    everything = "".join(alike).encode()
    assert searched.found_in(everything) == {0, 1, 2}
    assert len(searched.found_in(everything, only_one=True)) >= 1
    assert searched.found_in(b"begin---any---ends-") == set()


def test_only_texts_of_enough_bytes_are_searched() -> None:
    assert len(search("1" * (MIN_TEXT - 1))) == 0
    assert len(search("1" * MIN_TEXT)) == 1
    assert search("short").found_in(b"short") == set()


def test_a_value_that_another_row_has_is_not_the_own_one_of_a_row() -> None:
    values = ValueSet()
    values.add("a", pa.array(["1", "2"]))
    values.add("a", pa.array(["2", "3"]))
    values.add("b", pa.array([b"x"], pa.binary()))
    own = values.without({"a": pa.array(["2"])})
    assert (own.columns["a"].to_pylist(), len(own)) == (["1", "3"], 3)
    assert own.have("a", pa.array(["3", "2", "9"])) == own.have("b", pa.array(["x"])) == 1
    assert own.have("c", pa.array(["3"])) == 0


def test_keys_count_in_their_partition_path_where_one_is_named() -> None:
    texts = pa.array(["a", "b", None])
    anywhere, named = RowKeys(pa.array(["a"])), RowKeys(pa.array(["a", "b"]), pa.array(["p", "q"]))
    assert anywhere.among(texts, "p").to_pylist() == anywhere.among(texts, "q").to_pylist() == [True, False, False]
    assert named.among(texts, "p").to_pylist() == [True, False, False]
    assert named.among(texts, "q").to_pylist() == [False, True, False]

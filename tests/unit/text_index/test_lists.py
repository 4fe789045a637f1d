"""Inverted lists are written as blocks and read again, and damage is named."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.text_index import lists
from lakebed.text_index.lists import InvertedLists, LayerHead, TextLayer, TextRows, matching_rows, write_layer
from lakebed.text_index.words import Words, words_of
from lakebed.vector_index.entries import row_hashes
from lakebed.vector_index.layers import Changes, Groups

TEXTS = ["red green", "", "green green blue", "blue", "zebra red red red"]
KEYS = ["k4", "k1", "k3", "k0", "k2"]


def part(keys: list[str], texts: list[str], group: int = 0) -> tuple[TextRows, Words]:
    words = words_of(pa.array(texts, pa.string()))
    names = pa.array(keys, pa.string())
    return TextRows(names, row_hashes(names, "p"), np.full(len(keys), group), words.lengths), words


def stored(parts: list, groups: int = 2) -> tuple[LayerHead, list[bytes]]:
    blocks: list[bytes] = []
    named = Groups(pa.array(["p"] * groups, pa.string()), pa.array([f"f{n}" for n in range(groups)], pa.string()))
    changes = Changes(np.array([5, 3, 5], np.uint64), np.array([9], np.uint64), pa.array(["gone"]))
    head = write_layer(InvertedLists.of(parts), named, changes, np.array([1]), blocks.append)
    return head, blocks


def layer_of(head: LayerHead, blocks: list[bytes]) -> TextLayer:
    return TextLayer(LayerHead.from_bytes(head.to_bytes()), lambda numbers: [blocks[n] for n in numbers])


def entries_of(layer: TextLayer, words: list[str]) -> dict[str, dict[str, int]]:
    keys = layer.keys(np.arange(layer.head.rows)).to_pylist()
    found = layer.entries(words)
    return {word: {keys[row]: n for row, n in zip(*map(np.ndarray.tolist, found[word]), strict=True)} for word in words}


@pytest.mark.parametrize(("rows", "entries"), [(1, 1), (2, 3), (5, 7), (1 << 15, 1 << 13)])
def test_a_layer_is_read_as_it_was_written_whatever_the_size_of_its_blocks(
    rows: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "ROWS_IN_BLOCK", rows)
    monkeypatch.setattr(lists, "KEYS_IN_BLOCK", max(1, rows - 1))
    monkeypatch.setattr(lists, "ENTRIES_IN_BLOCK", entries)
    layer = layer_of(*stored([part(KEYS[:3], TEXTS[:3]), part(KEYS[3:], TEXTS[3:], 1)]))
    assert layer.keys(np.arange(5)).to_pylist() == sorted(KEYS)
    assert layer.keys(np.array([3, 0])).to_pylist() == ["k3", "k0"]
    of_rows = layer.rows()
    by_key = dict(zip(KEYS, TEXTS, strict=True))
    assert of_rows.lengths.tolist() == [len(by_key[key].split()) for key in sorted(KEYS)]
    assert of_rows.hashes.tolist() == row_hashes(pa.array(sorted(KEYS)), "p").tolist()
    assert of_rows.groups.tolist() == [1, 0, 1, 0, 0]
    words = sorted({word for text in TEXTS for word in text.split()})
    counts = {word: {k: Counter(t.split())[word] for k, t in by_key.items() if word in t.split()} for word in words}
    assert entries_of(layer, [*words, "a", "ma", "zz"]) == {**counts, "a": {}, "ma": {}, "zz": {}}
    total = sum(len(codes) for _, codes, _, _ in layer.every_entry())
    assert total == sum(map(len, counts.values()))
    head = layer.head
    assert (head.changes.replaced.tolist(), head.changes.possible.tolist()) == ([3, 5], [9])
    assert (head.changes.partitions.to_pylist(), head.rewritten.tolist()) == (["gone"], [1])


def test_a_layer_without_rows_has_no_blocks() -> None:
    head, blocks = stored([], groups=0)
    assert blocks == []
    layer = layer_of(head, blocks)
    assert len(layer.rows()) == 0
    assert entries_of(layer, ["red"]) == {"red": {}}


def test_a_word_that_comes_very_often_counts_up_to_a_bound() -> None:
    for times, counted in ((65_535, 65_535), (65_536, 65_535)):
        layer = layer_of(*stored([part(["k"], ["w " * times])]))
        assert entries_of(layer, ["w"]) == {"w": {"k": counted}}
        assert layer.rows().lengths.tolist() == [times]


def test_rows_with_searched_words_are_taken_and_the_others_counted() -> None:
    rows, words = part(KEYS, TEXTS)
    taken, of_taken, others = matching_rows(rows, words, ["red", "blue", "no"])
    assert taken.keys.to_pylist() == ["k4", "k3", "k0", "k2"]
    assert taken.lengths.tolist() == [2, 3, 1, 4]
    assert of_taken.different.take(pa.array(of_taken.codes)).to_pylist() == ["red", "blue", "blue", *["red"] * 3]
    assert (others.texts, others.words) == (1, 0)


def test_damage_is_named() -> None:
    head, blocks = stored([part(KEYS, TEXTS)])
    for number, block in enumerate(blocks):
        broken = [*blocks[:number], block[:-1], *blocks[number + 1 :]]
        layer = layer_of(head, broken)
        with pytest.raises(CorruptFile, match="text index"):
            assert len(layer.rows()) == len(entries_of(layer, ["red"]))
    small_head, small_blocks = stored([part(KEYS[:2], TEXTS[:2])])
    with pytest.raises(CorruptFile, match="a block of rows is of another layer"):
        TextLayer(head, lambda numbers: [small_blocks[n] for n in numbers]).rows()
    with pytest.raises(CorruptFile, match="a block of keys is of another layer"):
        TextLayer(head, lambda numbers: [small_blocks[n] for n in numbers]).keys(np.array([4]))
    with pytest.raises(CorruptFile, match="a block of words is of another layer"):
        TextLayer(small_head, lambda numbers: [blocks[n] for n in numbers]).entries(["red"])
    with pytest.raises(CorruptFile, match="the head of a layer of a text index"):
        LayerHead.from_bytes(head.to_bytes()[:-1])
    newer = bytearray(head.to_bytes())
    newer[4] += 1
    with pytest.raises(UnsupportedFeature, match="text index has version 2"):
        LayerHead.from_bytes(bytes(newer))

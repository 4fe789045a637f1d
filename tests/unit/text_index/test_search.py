"""Which entries of layers count, and which rows have to be read from the table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakebed.text_index.lists import InvertedLists, TextLayer, TextRows, memory_layer, write_layer
from lakebed.text_index.search import StoredText
from lakebed.text_index.words import Words, query_words, words_of
from lakebed.vector_index.entries import row_hashes
from lakebed.vector_index.layers import Changes, Groups


def hashes(*keys: str) -> np.ndarray:
    return row_hashes(pa.array(keys, pa.string()), "p")


def layer(
    texts: dict[str, str | None],
    *,
    replaced: tuple[str, ...] = (),
    possible: tuple[str, ...] = (),
    group: str = "f",
    rewritten: bool = False,
) -> TextLayer:
    """A layer with texts by key, None for a row that is to be read."""
    keys = pa.array(list(texts), pa.string())
    words = words_of(pa.array([text or "" for text in texts.values()], pa.string()))
    is_read = np.array([text is None for text in texts.values()], bool)
    rows = TextRows(keys, row_hashes(keys, "p"), np.zeros(len(texts), np.int64), np.where(is_read, -1, words.lengths))
    part: tuple[TextRows, Words] = (rows, words)
    blocks: list[bytes] = []
    groups = Groups(pa.array(["p"]), pa.array([group]))
    changes = Changes(hashes(*replaced), hashes(*possible))
    numbers = np.arange(1 if rewritten else 0)
    head = write_layer(InvertedLists.of([part]), groups, changes, numbers, blocks.append)
    return TextLayer(head, lambda wanted: [blocks[number] for number in wanted])


def view(*layers: TextLayer, uncovered: tuple[str, ...] = (), existing: tuple[str, ...] | None = None) -> StoredText:
    ids = None if existing is None else pa.array(existing, pa.string())
    return StoredText.of(layers, pa.array(uncovered, pa.string()), ids)


def counting(text: StoredText) -> list[str]:
    return sorted(text.marked_rows()[0]["key"].to_pylist())


def read(text: StoredText) -> list[str]:
    return sorted(set(text.uncertain_rows()["key"].to_pylist()))


def test_an_entry_counts_until_a_later_layer_replaces_its_row() -> None:
    first = layer({"a": "x", "b": "x y", "c": "y"})
    text = view(first, layer({"a": "z"}, replaced=("a", "b")))
    assert (counting(text), read(text)) == (["a", "c"], [])
    found = text.with_rows(memory_layer(InvertedLists.of([]), Groups()))
    assert found.search(found.query(query_words("x y z")), 9).rows["key"].to_pylist() == ["a", "c"]
    assert (found.statistics.texts, found.statistics.words) == (2, 2)
    assert counting(view(first, layer({}, rewritten=True))) == []
    assert counting(view(first, layer({"a": "z"}, replaced=("a",), rewritten=True))) == ["a"]


def test_a_row_that_may_have_changed_is_read_until_a_later_layer_replaces_it() -> None:
    first, late = layer({"a": "x", "b": "y"}), layer({"a": None}, possible=("a",))
    text = view(first, late)
    assert (counting(text), read(text)) == (["b"], ["a"])
    assert (counting(view(first, layer({}, possible=("a",)))), read(view(first, layer({}, possible=("a",))))) == (
        ["b"],
        ["a"],
    )
    text = view(first, late, layer({"a": "z"}, replaced=("a",)))
    assert (counting(text), read(text)) == (["a", "b"], [])
    both = view(first, layer({"a": None}, replaced=("a",), possible=("a",)))
    assert (counting(both), read(both)) == (["b"], ["a"])


def test_a_key_that_was_inserted_again_is_read() -> None:
    text = view(layer({"a": "x", "b": "y"}), layer({"a": "z"}, group="g"))
    assert (counting(text), read(text)) == (["b"], ["a"])
    assert text.uncertain_rows()["file_id"].to_pylist() == ["f", "g"]
    later = view(layer({"a": "x"}), layer({"a": "z"}), layer({"a": "y"}, replaced=("a",)))
    assert (counting(later), read(later)) == ([], ["a"])


def test_a_key_with_two_rows_in_one_layer_counts_twice_until_it_is_written_again() -> None:
    keys = pa.array(["a", "a", "b"])
    words = words_of(pa.array(["x", "y", "x"]))
    rows = TextRows(keys, hashes("a", "a", "b"), np.zeros(3, np.int64), words.lengths)
    first = memory_layer(InvertedLists.of([(rows, words)]), Groups(pa.array(["p"]), pa.array(["f"])))
    assert counting(view(first, layer({"c": "x"}))) == ["a", "a", "b", "c"]
    later = view(first, layer({"a": "z"}, replaced=("a",)))
    assert (counting(later), read(later)) == (["b"], ["a"])


def test_entries_of_file_groups_that_are_not_covered_do_not_count_and_moved_rows_are_read() -> None:
    layers = layer({"a": "x", "b": "y"}), layer({"c": "z"}, group="g"), layer({"d": "z"}, group="h")
    assert counting(view(*layers)) == ["a", "b", "c", "d"]
    text = view(*layers, uncovered=("f",), existing=("f", "g"))
    assert (counting(text), read(text)) == (["c"], ["d"])
    text = view(*layers, existing=("f", "g"))  # a commit without a layer wrote no file group: it deleted a partition
    assert (counting(text), read(text)) == (["a", "b", "c"], ["d"])


def test_rows_that_were_read_are_searched_with_the_others() -> None:
    text = view(layer({"a": "x", "b": "x y"}), layer({"a": None}, possible=("a",)))
    keys = pa.array(["a"])
    words = words_of(pa.array(["y y"]))
    rows = TextRows(keys, hashes("a"), np.zeros(1, np.int64), words.lengths)
    groups = Groups(pa.array(["p"]), pa.array(["new"]))
    found = text.with_rows(memory_layer(InvertedLists.of([(rows, words)]), groups))
    best = found.search(found.query(query_words("y")), 9)
    assert best.rows.to_pylist() == [
        {"key": "a", "partition": "p", "file_id": "new"},
        {"key": "b", "partition": "p", "file_id": "f"},
    ]
    assert found.query(query_words("x y")).having == {"x": 1, "y": 2}

"""The fold of the layers of a text index into one: what counts before it counts after it, also once later commits
come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from lakebed.metadata_kinds.layer_fold import Locations
from lakebed.text_index import fold, lists
from lakebed.text_index.fold import folded
from lakebed.text_index.lists import InvertedLists, LayerHead, TextLayer, TextRows, write_layer
from lakebed.text_index.search import StoredText
from lakebed.text_index.words import words_of
from lakebed.vector_index.entries import row_hashes
from lakebed.vector_index.layers import Changes, Groups

Texts = list[tuple[str, str, str | None]]
"""The key, the file group and the text of rows; None for a row that is to be read."""


def hashes_of(keys: str) -> np.ndarray:
    return row_hashes(pa.array(list(keys), pa.string()), "p")


def layer(texts: Texts, *, replaced: str = "", possible: str = "") -> TextLayer:
    """A layer with the rows of texts; keys are letters."""
    keys = pa.array([key for key, _, _ in texts], pa.string())
    names = list(dict.fromkeys(group for _, group, _ in texts))
    numbers = np.array([names.index(group) for _, group, _ in texts], np.int64)
    words = words_of(pa.array([text or "" for *_, text in texts], pa.string()))
    is_read = np.array([text is None for *_, text in texts], np.bool_)
    rows = TextRows(keys, row_hashes(keys, "p"), numbers, np.where(is_read, -1, words.lengths))
    groups = Groups(pa.array(["p"] * len(names), pa.string()), pa.array(names, pa.string()))
    blocks: list[bytes] = []
    changes = Changes(hashes_of(replaced), hashes_of(possible))
    head = write_layer(InvertedLists.of([(rows, words)]), groups, changes, np.empty(0, np.int64), blocks.append)
    return TextLayer(head, lambda numbers: [blocks[number] for number in numbers])


@dataclass(frozen=True)
class Moved:
    """The relocation of rows: the file groups that have each key now."""

    text: StoredText
    now: dict[str, str]

    @property
    def groups(self) -> Groups:
        ids = ["f", "g", "h"]
        return Groups(pa.array(["p"] * 3), pa.array(ids))

    def locations(self, hashes: np.ndarray, groups: np.ndarray) -> Locations:
        keys = {int(hashes_of(key)[0]): ids for key, ids in self.now.items()}
        old: list[str] = self.text.groups.ids.cast(pa.string()).to_pylist()  # pyright: ignore[reportAssignmentType]
        listed = [
            (at, "fgh".index(group), group != old[number])
            for at, (row, number) in enumerate(zip(hashes.tolist(), groups.tolist(), strict=True))
            for group in (keys[row] if row in keys else old[number])
        ]
        columns = [np.array(column) for column in zip(*listed, strict=True)] or [np.empty(0)] * 3
        at, numbers, is_moved = (column.astype(kind) for column, kind in zip(columns, "qq?", strict=True))
        return Locations(at, numbers, is_moved, is_moved, np.full(len(at), 0xFFFFFFFF, np.uint32))


def fold_of(*layers: TextLayer, now: dict[str, str] | None = None) -> TextLayer:
    text = StoredText.of(layers)
    generator, blocks = folded(text, Moved(text, now or {})), list[bytes]()
    while True:
        try:
            blocks.append(next(generator))
        except StopIteration as end:
            head: LayerHead = end.value
            # a head that was stored and read again
            head = LayerHead.from_bytes(head.to_bytes())
            assert head.block_count == len(blocks)
            return TextLayer(head, lambda numbers: [blocks[number] for number in numbers])


def counting(*layers: TextLayer) -> list[tuple[str, str, int]]:
    """The key, the file group and the mark of the words of each row that counts."""
    rows, marks = StoredText.of(layers).marked_rows()
    return sorted(zip(rows["key"].to_pylist(), rows["file_id"].to_pylist(), marks.tolist(), strict=True))


def read(*layers: TextLayer) -> set[tuple[str, str]]:
    """The key and the file group of each row that a search reads."""
    rows = StoredText.of(layers).uncertain_rows()
    return set(zip(rows["key"].to_pylist(), rows["file_id"].to_pylist(), strict=True))


FIRST = layer([("a", "f", "red cat"), ("b", "f", "red"), ("c", "g", "dog dog"), ("d", "g", "")])


@pytest.mark.parametrize("entries", [1, 2, 3, 100])
@pytest.mark.parametrize("together", [1, 64])
def test_the_layer_of_a_fold_has_the_entries_that_count(
    entries: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "ENTRIES_IN_BLOCK", entries)
    monkeypatch.setattr(fold, "_BLOCKS_TOGETHER", together)
    first = layer([("a", "f", "red cat"), ("b", "f", "red"), ("c", "g", "dog dog red"), ("d", "g", "")])
    second = layer([("b", "f", "Été cat red"), ("e", "h", "zoo cat")], replaced="bx")
    third = layer([("f", "h", "ant")], replaced="cf")
    base = fold_of(first, second, third)
    assert counting(base) == counting(first, second, third)
    assert [key for key, _, _ in counting(base)] == ["a", "b", "d", "e", "f"]
    assert base.head.rows == 5
    assert base.head.firsts[0].as_py() == "ant"
    assert base.head.lasts[-1].as_py() == "été"
    assert read(base) == set()
    later = layer([("a", "f", "new")], replaced="a")
    assert counting(base, later) == counting(first, second, third, later)


def test_rows_that_a_search_reads_stay_so_until_they_are_replaced() -> None:
    second = layer([("a", "f", None)], possible="az")
    base = fold_of(FIRST, second)
    assert (read(base), counting(base)) == ({("a", "f")}, counting(FIRST, second))
    # a row of which a delete with a late ordering value is known is read, when it is inserted
    inserted = layer([("z", "f", "zoo")])
    assert read(base, inserted) == read(FIRST, second, inserted) == {("a", "f"), ("z", "f")}
    replaced = layer([("a", "f", "new"), ("z", "f", "zoo")], replaced="az")
    assert read(base, replaced) == set()
    assert counting(base, replaced) == counting(FIRST, second, replaced)
    again = fold_of(base, replaced)
    assert counting(again) == counting(base, replaced)
    assert len(again.head.changes.possible) == 0


def test_rows_of_keys_that_were_inserted_twice_are_read_after_later_updates() -> None:
    second = layer([("a", "h", "again")])
    later = layer([("a", "f", "new")], replaced="a")
    assert read(FIRST, second) == {("a", "f"), ("a", "h")}
    base = fold_of(FIRST, second)
    assert read(base) == {("a", "f"), ("a", "h")}
    assert read(base, later) == read(FIRST, second, later) == {("a", "f"), ("a", "h")}
    assert counting(base, later) == counting(FIRST, second, later)
    again = fold_of(base, later)
    assert again.head.rows == base.head.rows
    assert read(again) == {("a", "f"), ("a", "h")}


def test_moved_rows_have_their_file_groups_of_today() -> None:
    base = fold_of(FIRST, now={"a": "h", "b": "", "c": "g"})
    assert [(key, group) for key, group, _ in counting(base)] == [("a", "h"), ("c", "g"), ("d", "g")]
    assert read(base) == set()


def test_a_moved_row_whose_key_is_in_several_file_groups_is_read() -> None:
    base = fold_of(FIRST, now={"a": "gh"})
    assert read(base) == {("a", "g"), ("a", "h")}
    assert "a" not in {key for key, _, _ in counting(base)}
    later = layer([("a", "g", "new")], replaced="a")
    assert read(base, later) == {("a", "g"), ("a", "h")}


def test_an_index_without_rows_is_folded() -> None:
    base = fold_of(layer([]), layer([], replaced="a"))
    assert (base.head.rows, base.head.block_count, counting(base)) == (0, 0, [])
    assert counting(fold_of(base, FIRST)) == counting(FIRST)

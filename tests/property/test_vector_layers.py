"""Random histories of layers against a dictionary: no deleted, doubled or stale row, and none is lost, after each
commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.vector_index.codes import Coder
from lakebed.vector_index.entries import WrittenRows, row_hashes
from lakebed.vector_index.layers import Changes, Groups, Layer
from lakebed.vector_index.search import Allowed, LayeredIndex
from lakebed.vector_index.shape import METRICS
from support.sampling import so_many
from support.vector_layers import exact_distances, folded_layer, memory_layer, small_coder

PATHS = ("", "p=1", "p=2")
DIMENSION = 6
Row = tuple[str, str]
"""The partition path and the key of a row."""


@dataclass
class Version:
    """A version of a row: its vector (None for null), its ordering value, and a number of its own, which is its
    position in the index."""

    vector: Any
    ordering: int
    number: int


@dataclass
class History:
    """Layers of random commits, and what the table has after each of them."""

    seed: int
    layers: list[Layer] = field(default_factory=list)
    states: list[dict[Row, Version]] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        sample = self.random.normal(size=(60, DIMENSION)).astype(np.float32)
        metric = METRICS[self.seed % 3]
        self.coder: Coder = small_coder(sample, 5, metric=metric, bits=(8, 4)[self.seed // 3 % 2])

    def versions(self, count: int) -> dict[Row, Version]:
        """Random versions of random rows, one in eight without a vector."""
        versions: dict[Row, Version] = {}
        for _ in range(count):
            vector = self.random.normal(size=DIMENSION).astype(np.float32)
            self.number += 1
            version = Version(
                None if self.random.random() < 0.125 else vector, int(self.random.integers(100)), self.number
            )
            versions[self.row()] = version
        return versions

    def row(self) -> Row:
        return PATHS[self.random.integers(3)], f"k{self.random.integers(30)}"

    def commit(self) -> None:
        """One more commit of a random kind."""
        state = dict(self.states[-1]) if self.states else {}
        kinds = ("write", "delete", "late write", "late delete", "drop", "overwrite", "mixed")
        kind = self.random.choice(kinds) if self.layers else "write"
        sure: dict[Row, Version] = {}
        late: dict[Row, Version] = {}
        deleted: list[Row] = []
        possible: list[Row] = []
        paths: list[str] = []
        if kind in ("write", "overwrite", "mixed"):
            sure = self.versions(int(self.random.integers(0, 25)))
        if kind in ("delete", "mixed"):
            deleted = [row for row in {self.row() for _ in range(6)} if row not in sure]
        if kind in ("late write", "mixed"):
            late = {row: v for row, v in self.versions(8).items() if row not in sure and row not in deleted}
        if kind == "late delete":
            possible = list({self.row() for _ in range(6)})
        if kind in ("drop", "overwrite"):
            paths = [PATHS[self.random.integers(3)]]
        for row in [row for row in state if row[0] in paths]:
            del state[row]
        state.update(sure)
        for row in deleted:
            state.pop(row, None)
        for row, version in late.items():
            if row not in state or version.ordering >= state[row].ordering:
                state[row] = version
        for row in possible:
            if row in state and self.random.random() < 0.5:
                del state[row]
        self.states.append(state)
        changes = Changes(hashes([*sure, *deleted]), hashes([*late, *possible]), pa.array(paths, pa.string()))
        self.layers.append(self.layer({**sure, **late}, changes))

    def layer(self, versions: dict[Row, Version], changes: Changes) -> Layer:
        """The layer of a commit, whose list of file groups is in an order of its own."""
        rows = {row: version for row, version in versions.items() if version.vector is not None}
        paths = self.random.permutation(np.array(PATHS)).tolist()
        numbers = np.array([version.number for version in rows.values()], np.int64)
        written = WrittenRows(
            np.array([v.vector for v in rows.values()], np.float32).reshape(-1, DIMENSION),
            pa.array([key for _, key in rows], pa.string()),
            hashes(list(rows)),
            np.array([paths.index(path) for path, _ in rows], np.int64),
            numbers,
            self.random.random(len(rows)) < 0.5,
        )
        groups = Groups(pa.array(paths, pa.string()), pa.array([f"group {path}" for path in paths]))
        return memory_layer(self.coder, str(len(self.layers)), written, groups, changes)


def hashes(rows: list[Row]) -> Any:
    keys, paths = pa.array([key for _, key in rows], pa.string()), pa.array([path for path, _ in rows], pa.string())
    return row_hashes(keys, paths)


def resolved(index: LayeredIndex, state: dict[Row, Version], query: Any, **limits: Any) -> dict[Row, Any]:
    """The rows that a search of all clusters finds with their vectors; who finds an uncertain one looks at the row."""
    found = index.search(query[None], 10_000, 5, **limits)
    rows: dict[Row, Any] = {}
    paths = index.groups.partitions.take(pa.array(found.groups)).to_pylist()
    for at, row in enumerate(zip(paths, found.keys.to_pylist(), strict=True)):
        assert row not in rows, "doubled"
        if found.is_uncertain[at]:
            if row in state and state[row].vector is not None:
                rows[row] = state[row].vector
            continue
        assert row in state, "deleted"
        assert state[row].number == found.rows[at], "stale"
        if found.vector_rows[at] >= 0:
            assert (found.vectors[found.vector_rows[at]] == state[row].vector).all()
        rows[row] = state[row].vector
    return rows


def check(index: LayeredIndex, state: dict[Row, Version], random: np.random.Generator, metric: str) -> None:
    query = random.normal(size=DIMENSION).astype(np.float32)
    expected = {row: version.vector for row, version in state.items() if version.vector is not None}
    rows = resolved(index, state, query)
    assert set(rows) == set(expected), "lost"
    if rows:
        names = sorted(rows)
        distances = exact_distances(np.array([rows[name] for name in names]), query, metric)
        exact = exact_distances(np.array([expected[name] for name in names]), query, metric)
        assert np.array_equal(np.argsort(distances, kind="stable"), np.argsort(exact, kind="stable"))
    some = [row for row in expected if random.random() < 0.3]
    assert set(resolved(index, state, query, allowed=Allowed(hashes(some)))) == set(some)
    flags = random.random(len(index.groups)) < 0.5
    paths = {path for path, is_allowed in zip(index.groups.partitions.to_pylist(), flags, strict=True) if is_allowed}
    in_groups = resolved(index, state, query, allowed=Allowed(groups=flags))
    assert set(in_groups) == {row for row in expected if row[0] in paths}


@pytest.mark.every_case
@pytest.mark.parametrize("seed", range(so_many(150, small=18)))
def test_each_moment_of_a_history_has_the_rows_of_the_model(seed: int) -> None:
    history = History(seed)
    random = np.random.default_rng(1000 + seed)
    for _ in range(int(random.integers(2, 9))):
        history.commit()
    metric = history.coder.shape.metric
    index = LayeredIndex(history.coder, history.layers)
    for number, state in enumerate(history.states):
        check(index.of_instants({layer.instant for layer in history.layers[: number + 1]}), state, random, metric)
        check(LayeredIndex(history.coder, history.layers[: number + 1]), state, random, metric)
    # a fold in the middle is the base of the later layers
    middle = int(random.integers(len(history.layers)))
    base = folded_layer(LayeredIndex(history.coder, history.layers[: middle + 1]), str(middle))
    for number in range(middle, len(history.layers)):
        folded = LayeredIndex(history.coder, [base, *history.layers[middle + 1 : number + 1]])
        check(folded, history.states[number], random, metric)

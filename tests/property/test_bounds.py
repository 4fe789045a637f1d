"""The same reads and writes of small tables with every bound of the code crossed and not crossed, under every index and
from each index to each.

Each case draws for every bound a low or a high value, and the next one has the other value of each. A case that fails
says which: `LAKEBED_BOUNDS=<case>` runs it again and looks for the fewest bounds with which it fails.
"""

from __future__ import annotations

import ast
import os
import random
from collections.abc import Iterator, Mapping
from itertools import product
from tempfile import TemporaryDirectory

import pytest

import lakebed
from lakebed.errors import UnsupportedFeature
from lakebed.storage.memory import MemoryStorage
from property import bounds, other_numbers
from property.test_long_histories import _alone  # pyright: ignore[reportPrivateUsage, reportUnusedImport]  # noqa: F401
from property.walks import CITIES, HASHED, QUIET, Walk, as_table
from support.sampling import HISTORIES, rounds, today, todays
from support.source_trees import without_collections

ONLY = os.environ.get("LAKEBED_BOUNDS")
INDEXES = (
    "bucket",
    "bucket_groups",
    "consistent",
    "simple",
    "global_simple",
    "bloom",
    "global_bloom",
    "record",
    "record_level_index",
)
# Their rows cannot be moved: they are a table's from its first write on.
FIXED = ("bucket_groups", "consistent")


def may_follow(index: str, other: str) -> bool:
    """Whether a table with rows under one index can get the other."""
    fits = index == "bucket" and other == "bucket_groups"
    return index == other or fits or (index not in FIXED and other not in FIXED)


PAIRS = [pair for pair in product(INDEXES, INDEXES) if may_follow(*pair)]


class Case:
    """One table by its number: `0` and `1` are a pair, with the other value of each bound."""

    def __init__(self, number: int, pair: tuple[str, str]) -> None:
        dice = random.Random(number // 2)
        self.index, self.other = pair
        self.version = 9 if "record_level_index" in pair else dice.choice([9, 9, 8, 6])
        self.kind = "mor" if "consistent" in pair else dice.choice(["cow", "mor"])
        self.is_partitioned = dice.random() < 0.7
        self.in_tasks = (dice.random() < 0.5) != bool(number % 2)
        self.is_local = dice.random() < 0.2
        self.seed = number // 2
        values = bounds.drawn(dice)
        self.values = bounds.others(values) if number % 2 else values

    def run(self, values: Mapping[str, float]) -> None:
        with TemporaryDirectory() as folder:
            self._run(folder if self.is_local else "memory://walks", values)

    def _run(self, uri: str, values: Mapping[str, float]) -> None:
        settings = {name: value for name, value in values.items() if name in bounds.OPTIONS}
        with pytest.MonkeyPatch.context() as patch:
            if self.in_tasks:
                bounds.use_tasks(patch)
            for name, value in values.items():
                if name in bounds.BOUNDS:
                    bounds.patch(patch, name, value)
            try:
                walk = Walk(
                    uri,
                    self.index,
                    self.kind,
                    self.version,
                    settings,
                    is_partitioned=self.is_partitioned,
                    seed=self.seed,
                )
                walk.run(self.other)
            finally:
                MemoryStorage.drop("walks")

    def fails(self, names: list[str]) -> bool:
        try:
            self.run({name: self.values[name] for name in names})
        except Exception:
            return True
        return False

    def fewest(self) -> dict[str, float]:
        """The bounds without any of which it does not fail."""
        names, parts = list(self.values), 2
        while len(names) > 1:
            size = -(-len(names) // parts)
            pieces = [names[at : at + size] for at in range(0, len(names), size)]
            rest = next((r for p in pieces if self.fails(r := [n for n in names if n not in p])), None)
            if rest is None and size == 1:
                break
            names, parts = (rest, max(parts - 1, 2)) if rest is not None else (names, min(len(names), 2 * parts))
        return {name: self.values[name] for name in names}


@pytest.mark.rest
@pytest.mark.skipif(ONLY is not None, reason="one case is run")
@pytest.mark.parametrize("pair", todays(PAIRS, 4, HISTORIES), ids="-to-".join)
def test_rows_are_the_same_on_both_sides_of_every_bound(pair: tuple[str, str]) -> None:
    for number in range(rounds(2)):
        case = 2 * (today() * 100 + PAIRS.index(pair)) + number
        try:
            made = Case(case, pair)
            made.run(made.values)
        except Exception as error:
            name = f"{case},{pair[0]},{pair[1]}"
            raise AssertionError(f"case {name}: run it again with LAKEBED_BOUNDS={name}") from error


@pytest.mark.skipif(ONLY is None, reason="LAKEBED_BOUNDS names the case")
def test_the_case_that_the_variable_names() -> None:
    number, *pair = str(ONLY).split(",")
    case = Case(int(number), (pair[0], pair[1]))
    if case.fails(list(case.values)):
        fewest = case.fewest()
        print(f"{case.index} to {case.other}, {case.kind}, version {case.version}: {fewest}")
        case.run(fewest)


# -- the lists of bounds


_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def numbers_of_src() -> Iterator[str]:
    """The names of the modules' numbers, below "lakebed."."""
    for name, (module, source) in bounds.modules().items():
        with without_collections():
            tree = ast.parse(source)
        for node in tree.body:
            given = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in given:
                for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(one, ast.Name) and type(getattr(module, one.id, None)) in (int, float):
                        yield f"{name}.{one.id}".removeprefix("lakebed.")


def comparisons_of_src() -> Iterator[tuple[str, str]]:
    """Comparisons with a plain number beyond 2, by module; not those of formats and texts, nor those of a version."""
    for name, (_, source) in bounds.modules().items():
        if name.split(".")[1] in ("format", "schema", "expressions", "cli"):
            continue
        with without_collections():
            tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and any(isinstance(one, _ORDERS) for one in node.ops):
                constants = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
                if any(type(n) in (int, float) and abs(n) > 2 for n in constants):
                    text = ast.unparse(node)
                    if "version" not in text and not text.startswith(("to <", "plan.target")):
                        yield name.removeprefix("lakebed."), text


def test_every_number_of_src_is_a_tested_bound_or_says_why_it_is_none() -> None:
    found = set(numbers_of_src())
    listed = bounds.BOUNDS.keys() | other_numbers.other_numbers()
    assert sorted(found - listed) == [], "put it into BOUNDS of bounds.py with two values, or into other_numbers.py"
    assert sorted(listed - found) == []
    assert sorted(bounds.BOUNDS.keys() & other_numbers.other_numbers()) == []


def test_every_number_in_a_comparison_is_listed() -> None:
    found = set(comparisons_of_src())
    listed = {(module, text) for module, texts in other_numbers.INLINE.items() for text in texts}
    assert found == listed


@pytest.mark.parametrize("name", bounds.BOUNDS)
def test_a_patched_bound_has_its_value_wherever_it_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = bounds.BOUNDS[name]
    before = [getattr(owner, attribute) for owner, attribute in bounds.targets(name)]
    assert low < high
    assert all(type(value) in (int, float) for value in before)
    bounds.patch(monkeypatch, name, low)
    assert [getattr(owner, attribute) for owner, attribute in bounds.targets(name)] == [low] * len(before)
    monkeypatch.undo()
    assert [getattr(owner, attribute) for owner, attribute in bounds.targets(name)] == before


# -- from each index to each


@pytest.mark.parametrize(("index", "other"), [pair for pair in product(INDEXES, INDEXES) if not may_follow(*pair)])
def test_an_index_that_may_not_follow_is_refused_by_name_and_changes_nothing(index: str, other: str) -> None:
    schema = as_table([]).schema
    table = lakebed.create(
        f"memory://walks/{index}-{other}",
        schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor",
        index=index,
        buckets=2 if index in HASHED else None,
        properties=QUIET,
    )
    table.upsert(as_table([{"id": f"k{n}", "city": CITIES[n % 3], "v": n, "ts": 1} for n in range(9)]))
    old, new = (name.removesuffix("_level_index") for name in (index, other))
    fixed = old if old in FIXED else new
    with pytest.raises(UnsupportedFeature, match=f"'{new}' from '{old}': '{fixed}' is that of a table from its first"):
        table.indexes.use(other, buckets=3 if other in HASHED else None)
    table = lakebed.open(table.uri)
    assert (table.indexes.index.name, len(table.timeline), table.count()) == (old, 1, 9)
    MemoryStorage.drop("walks")

"""Random MERGE statements give the rows that DuckDB gives; what is refused would change or insert a key twice."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest

import lakebed
from lakebed.errors import AmbiguousMerge, InvalidRecord
from support.merges import (
    DELETE,
    INSERT,
    SCHEMA,
    STALE_DELETE,
    STALE_UPDATE,
    UPDATE,
    Case,
    by_duckdb,
    content,
    data,
    in_order,
    run,
    statement,
)
from support.sampling import so_many, today

ON = [
    None,
    "t.id = s.id",
    "t.id = s.id AND s.a > 20",
    "t.id = s.id AND t.grp = s.grp",
    "t.id = s.id + 1",
    "t.grp = s.grp",
    "t.a = s.a",
    "t.id = s.id AND t.a IS NOT DISTINCT FROM s.a",
    "t.id < s.id AND s.a = 30",
]
CONDITIONS = [
    "s.a > 15",
    "s.b IS NULL",
    "s.grp = 'x' OR s.a IN (10, 30)",
    "s.id % 2 = 0",
    "NOT s.a = 20",
    "s.a BETWEEN 5 AND 25",
]
OF_TARGET = ["t.a > 15", "t.b IS NULL", "t.grp = 'y'", "t.id <= 3 AND t.a < 40"]
VALUES = {
    "a": ["s.a", "t.a + 1", "coalesce(t.a, 0) + s.a", "NULL", "7", "CASE WHEN t.a > s.a THEN t.a ELSE s.a END"],
    "b": ["s.b", "t.b || 'x'", "'c'", "upper(s.b)"],
    "grp": ["s.grp", "'w'"],
}
OF_STORED = {"a": ["t.a * 2", "0", "NULL"], "b": ["'stale'", "t.b || '?'"]}
INDEXES = ["bucket", "simple", "record", "bloom", "global_bloom", "global_simple"]
COUNT = so_many(400, small=60)


def rows(dice: random.Random, ids: list[int]) -> list[tuple[Any, ...]]:
    return [
        (
            number,
            dice.choice(["x", "y", "z", None]),
            dice.choice([None, 10, 20, 30, 40]),
            dice.choice([None, "p", "q", "r"]),
        )
        for number in ids
    ]


def clauses(dice: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Some clauses; only the last of its kind has no condition."""
    found: list[tuple[str, dict[str, Any]]] = []
    for kind in dice.sample(["matched", "new", "stale"], dice.randrange(1, 4)):
        for at in range(count := dice.randrange(1, 3)):
            conditions = {"matched": CONDITIONS + OF_TARGET, "new": CONDITIONS, "stale": OF_TARGET}[kind]
            condition = dice.choice(conditions) if at + 1 < count or dice.random() < 0.4 else None
            words: dict[str, Any] = {"condition": condition}
            if kind == "new":
                method = INSERT
                if dice.random() < 0.4:
                    words["values"] = {"id": "s.id", "a": "s.a", "b": "'new'"}
            elif dice.random() < 0.35:
                method = DELETE if kind == "matched" else STALE_DELETE
            else:
                method = UPDATE if kind == "matched" else STALE_UPDATE
                choices = VALUES if kind == "matched" else OF_STORED
                names = dice.sample(sorted(choices), dice.randrange(1, len(choices) + 1))
                words["set"] = {name: dice.choice(choices[name]) for name in names}
            found.append((method, words))
    return found


def case_of(seed: int) -> Case:
    dice = random.Random(seed)
    stored = rows(dice, dice.sample(range(10), dice.randrange(1, 8)))
    ids = [dice.randrange(12) for _ in range(6)] if dice.random() < 0.2 else dice.sample(range(12), 6)
    return Case(str(seed), rows(dice, ids), dice.choice(ON), clauses(dice), stored=stored)


def meets_twice(case: Case) -> bool:
    """Whether several source rows match one stored row, or a key would be there twice."""
    connection = duckdb.connect()
    for name, given in (("t", data(case.stored)), ("s", data(case.source))):
        connection.register(name, given)
    on = statement(case).partition(" ON (")[2].partition(") WHEN")[0]
    matched = f"SELECT t.id FROM t JOIN s ON ({on}) GROUP BY t.id HAVING count(*) > 1"
    keys = "SELECT id FROM s GROUP BY id HAVING count(*) > 1 UNION ALL SELECT s.id FROM s JOIN t ON t.id = s.id"
    return bool(connection.execute(f"{matched} UNION ALL {keys}").fetchall())


@pytest.mark.parametrize("shard", range(4))
def test_random_merges_are_those_of_duckdb(shard: int) -> None:
    refused = 0
    first = today() * 10_000
    for seed in range(first + shard, first + COUNT, 4):
        case = case_of(seed)
        dice = random.Random(seed)
        kind, index, version = dice.choice(["cow", "mor"]), dice.choice(INDEXES), dice.choice([9, 9, 8, 6])
        uri = f"memory://random-merges/{seed}"
        table = lakebed.create(uri, SCHEMA, key="id", type=kind, index=index, table_version=version)  # pyright: ignore
        table.upsert(data(case.stored))
        said = f"seed {seed}, {kind}, {index}, version {version}: {statement(case)}"
        try:
            run(table, case)
        except (AmbiguousMerge, InvalidRecord):
            refused += 1
            assert meets_twice(case), said
            assert content(table) == in_order(case.stored), said
        else:
            try:
                expected = by_duckdb(case)
            except duckdb.InvalidInputException:  # which refuses that several source rows delete one row
                assert meets_twice(case), said
                assert any(method == DELETE for method, _ in case.clauses), said
            else:
                assert content(table) == expected, said
        lakebed.drop(table.uri)
    assert refused < COUNT // 4

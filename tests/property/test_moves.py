"""Random histories of rows that move between partition paths, there and back, with ordering values: what a dictionary
of rows says under the same rules, under every index, type and version."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord, UnsupportedFeature
from support.sampling import so_many, today

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
PATHS = ("a", "b")
KEYS = range(3)
# of each: whether a key is unique in the table, and whether rows move to another partition path
INDEXES = {
    "bucket": (False, True),
    "consistent": (False, True),
    "simple": (False, True),
    "bloom": (False, True),
    "bucket_groups": (False, True),
    "record_level_index": (False, True),
    "global_simple": (True, True),
    "global_bloom": (True, True),
    "record": (True, False),
}
COUNT = so_many(400, small=12)
Row = tuple[int, int]  # ts, v


@dataclass
class Model:
    """The rows by key and partition path. `deleted` has the greatest ordering value that was deleted in each place."""

    is_global: bool
    moves: bool
    rows: dict[tuple[int, str], Row] = field(default_factory=dict[tuple[int, str], Row])
    deleted: dict[tuple[int, str], int] = field(default_factory=dict[tuple[int, str], int])

    def content(self) -> list[tuple[int, str, int, int]]:
        return sorted((key, path, *row) for (key, path), row in self.rows.items())

    def of_key(self, key: int) -> list[str]:
        return [path for k, path in self.rows if k == key]

    def delete(self, key: int) -> None:
        for path in self.of_key(key):
            ts, _ = self.rows.pop((key, path))
            self.deleted[key, path] = max(ts, self.deleted.get((key, path), 0))

    def update(self, changes: list[tuple[tuple[int, str], str, int, int]]) -> type[Exception] | None:
        """Each of the rows gets a path and values, or loses; the error where that is refused."""
        wins = [(place, path, row) for place, path, *row in changes if row[0] >= self.rows[place][0]]
        going = [(place, path) for place, path, _ in wins if path != place[1]]
        if going and not self.moves:
            return UnsupportedFeature
        to = [(place[0], path) for place, path in going]
        if not self.is_global and (len(set(to)) < len(to) or set(to) & self.rows.keys()):
            return InvalidRecord
        for place, _ in going:
            ts, _ = self.rows.pop(place)
            self.deleted[place] = max(ts, self.deleted.get(place, 0))
        for place, path, row in wins:
            self.rows[place[0], path] = (row[0], row[1])
        return None


def table_of(*rows: tuple[int, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def content(table: lakebed.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().select(SCHEMA.names).to_pylist())


class History:
    """One table and the model of it."""

    def __init__(self, seed: int, kind: Any, index: str, version: Any) -> None:
        self.dice = random.Random(seed)
        self.kind = kind
        options: dict[str, Any] = {"buckets": 2} if index in ("bucket", "consistent", "bucket_groups") else {}
        self.table = lakebed.create(
            f"memory://moves/{seed}/{kind}/{index}/{version}",
            SCHEMA,
            key="id",
            partition_by="p",
            ordering="ts",
            type=kind,
            index=index,
            table_version=version,
            **options,
        )
        self.model = Model(*INDEXES[index])
        self.value = 0

    def step(self) -> str:
        name = self.dice.choice(["upsert", "delete", "delete", "update", "update", "merge", "merge", "back", "compact"])
        return name + str(getattr(self, name)())

    def new_value(self) -> int:
        self.value += 1
        return self.value

    def upsert(self) -> Any:
        """A row of a key that the place has, or had; a late one only of a key that is there."""
        return self.put(self.dice.choice(KEYS), self.dice.choice(PATHS), self.dice.randrange(1, 9))

    def put(self, key: int, path: str, ts: int) -> Any:
        stored = self.model.of_key(key)
        if self.model.is_global and stored and not self.model.moves:
            (path,) = stored
        place = key, path
        if place not in self.model.rows:
            ts = max(ts, self.model.deleted.get(place, 0))
        row = key, path, ts, self.new_value()
        self.table.upsert(table_of(row))
        if self.model.is_global and stored:
            assert self.model.update([((key, stored[0]), path, ts, row[3])]) is None
        elif ts >= self.model.rows.get(place, (0, 0))[0]:
            self.model.rows[place] = ts, row[3]
        return row

    def delete(self) -> Any:
        key = self.dice.choice(KEYS)
        self.table.delete([key])
        self.model.delete(key)
        return key

    def update(self) -> Any:
        key, path, of = self.dice.choice(KEYS), self.dice.choice(PATHS), self.dice.choice([None, *PATHS])
        return self.set(key, path, self.dice.choice([None, self.dice.randrange(1, 9)]), of)

    def set(self, key: int, path: str, ts: int | None, of: str | None) -> Any:
        value = self.new_value()
        values = {"p": f"'{path}'", "v": str(value)} | ({} if ts is None else {"ts": str(ts)})
        where = f"id = {key}" + ("" if of is None else f" AND p = '{of}'")
        places = [place for place in self.model.rows if place[0] == key and of in (None, place[1])]
        changes = [(place, path, self.model.rows[place][0] if ts is None else ts, value) for place in places]
        self.expect(self.model.update(changes), lambda: self.table.update(values, where=where))
        return values, where

    def merge(self) -> Any:
        source = [
            (key, self.dice.choice(PATHS), self.dice.randrange(1, 9), self.new_value())
            for key in self.dice.sample(KEYS, 2)
        ]
        changes = [
            (place, path, ts, value) for key, path, ts, value in source for place in self.model.rows if place[0] == key
        ]
        new = [row for row in source if not self.model.of_key(row[0])]
        refused = self.model.update(changes)
        if refused is None:
            self.model.rows |= {(key, path): (ts, value) for key, path, ts, value in new}
        merge = self.table.merge(table_of(*source), "id").when_matched_update().when_not_matched_insert()
        self.expect(refused, merge.execute)
        return source

    def back(self) -> Any:
        """A key is deleted, put elsewhere, and moved to where it was deleted."""
        key, path = self.dice.choice(KEYS), self.dice.choice(PATHS)
        other = PATHS[1 - PATHS.index(path)]
        self.put(key, path, self.dice.randrange(5, 9))
        self.table.delete([key])
        self.model.delete(key)
        self.put(key, other, self.dice.randrange(1, 9))
        return key, self.set(key, path, None, other)

    def compact(self) -> Any:
        if self.kind == "mor":
            self.table.maintenance.compact()

    def expect(self, refused: type[Exception] | None, run: Any) -> None:
        if refused is None:
            run()
            return
        with pytest.raises(refused):
            run()


def test_rows_move_there_and_back_as_a_dictionary_of_rows_does() -> None:
    kinds = [
        (kind, index, version)
        for version in (9, 8, 6)
        for index in INDEXES
        for kind in ("mor", "cow")
        if (kind, index) != ("cow", "consistent") and not (index == "record_level_index" and version < 9)
    ]
    for number in range(COUNT):
        kind, index, version = kinds[number % len(kinds)]
        history = History(today() * 10_000 + number, kind, index, version)
        steps: list[str] = []
        said = ""
        for _ in range(8):
            steps.append(history.step())
            said = f"{kind}, {index}, version {version}, number {number}: {steps}"
            assert content(history.table) == history.model.content(), said
        assert history.table.indexes.verify().ok, said
        lakebed.drop(history.table.uri)

"""Random histories of a table with an index that has layers: every verb, services, and a writer that does not know the
index. After each step `compare` is called, for the newest commit and for an earlier one."""

from __future__ import annotations

import itertools
import os
import random
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import lakebed
from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from support.sampling import so_many, today
from support.vector_tables import another_writer

STEPS = 18
KEYS = range(40)
HASHED = ("bucket", "consistent")
OPTIONS = {
    "lakebed.write.tasks": 1,
    "hoodie.metadata.compact.max.delta.commits": 4,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.clean.commits.retained": 4,
    "hoodie.keep.min.commits": 6,
    "hoodie.keep.max.commits": 8,
    "hoodie.parquet.small.file.limit": 4_000,
}
_numbers = itertools.count()


ONLY = os.environ.get("LAKEBED_HISTORY")
COUNT = int(os.environ.get("LAKEBED_HISTORY_COUNT") or so_many(300, small=8))
SHARDS = 8
FIRST = today() * 10_000


class IndexHistory:
    """One history of a table with the columns id, city, v, ts and `column`, which is indexed."""

    schema: ClassVar[pa.Schema]
    column: ClassVar[str]
    partition: ClassVar[str]

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.random = np.random.default_rng(seed)
        self.steps: list[str] = []
        self.uri = f"memory://{self.partition}-{seed}-{next(_numbers)}/t"
        self.index = dice.choice(["simple", "bucket", "record", "global_simple", "consistent", "bloom"])
        self.kind = "mor" if self.index == "consistent" else dice.choice(["cow", "mor"])
        self.ordering = dice.choice(["ts", None])
        self.number = 0
        self.past: list[str] = []
        self.saved: str | None = None
        lakebed.create(
            self.uri,
            self.schema,
            key="id",
            partition_by="city",
            ordering=self.ordering,
            type=self.kind,  # pyright: ignore[reportArgumentType]
            index=self.index,
            buckets=dice.randrange(1, 3) if self.index in HASHED else None,
            properties=OPTIONS,
        )
        self.upsert()
        self.upsert()
        self.make_index()

    def make_index(self) -> None:
        raise NotImplementedError

    def value(self) -> Any:
        """A value of the indexed column."""
        raise NotImplementedError

    def compare(self, as_of: str | None) -> None:
        """Compare searches by the index with exact ones."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.kind}, {self.index}, ordering {self.ordering}: {self.steps}"

    def run(self) -> None:
        verbs = [self.upsert] * 4 + [self.late, self.delete, self.insert, self.partial, self.overwrite, self.foreign]
        verbs += [self.foreign, self.compact, self.cluster, self.clean, self.archive, self.save, self.restore]
        verbs += [self.roll_back, self.rebuild, self.drop_city]
        for _ in range(STEPS):
            verb = self.dice.choice(verbs)
            self.steps.append(verb.__name__)
            verb()
            self.look()
        table = self.table()
        if self.dice.random() < 0.5:
            self.upsert()
        else:
            table.indexes.repair()
        self.look()
        verified = self.table().indexes.verify(self.partition)
        assert verified.ok, verified

    def look(self) -> None:
        self.compare(None)
        if self.past:
            self.compare(self.dice.choice(self.past[-5:]))

    def table(self) -> lakebed.Table:
        return lakebed.open(self.uri)

    def batch(self, keys: list[int], *, age: int = 0) -> pa.Table:
        self.number += 1
        rows: list[dict[str, Any]] = [
            {
                "id": key,
                "city": f"c{key % 2}",
                self.column: None if self.dice.random() < 0.1 else self.value(),
                "v": self.number,
                "ts": self.number - age,
            }
            for key in keys
        ]
        return pa.Table.from_pylist(rows, self.schema)

    def some(self, most: int = 14) -> list[int]:
        return self.dice.sample(KEYS, self.dice.randrange(1, most))

    def done(self, result: lakebed.WriteResult) -> None:
        if result.instant:
            self.past.append(result.instant)

    def upsert(self) -> None:
        self.done(self.table().upsert(self.batch(self.some())))

    def late(self) -> None:
        self.done(self.table().upsert(self.batch(self.some(), age=5)))

    def insert(self) -> None:
        self.done(self.table().insert(self.batch(self.some(6))))

    def partial(self) -> None:
        if self.index == "global_simple":  # a row without its other columns cannot move
            return
        self.number += 1
        stored = self.table().scan(["id", "city"]).to_arrow().to_pylist()
        rows = [{**row, "v": self.number, "ts": self.number} for row in stored if row["id"] % 3 == self.number % 3]
        if rows:
            schema = pa.schema([f for f in self.schema if f.name != self.column])
            batch = pa.Table.from_pylist(list({row["id"]: row for row in rows}.values()), schema)
            self.done(self.table().upsert(batch, options={"lakebed.write.partial": True}))

    def delete(self) -> None:
        self.done(self.table().delete(self.some()))

    def overwrite(self) -> None:
        self.done(self.table().insert_overwrite(self.batch([key for key in self.some() if key % 2] or [1])))

    def drop_city(self) -> None:
        self.done(self.table().delete_partitions(["c0"]))

    def foreign(self) -> None:
        verbs = [self.upsert, self.late, self.delete, self.overwrite, self.compact, self.cluster, self.drop_city]
        verb = self.dice.choice(verbs)
        self.steps.append(f"of another {verb.__name__}")
        with another_writer():
            verb()

    def compact(self) -> None:
        if self.kind == "mor":
            self.table().maintenance.compact()

    def cluster(self) -> None:
        if self.index not in ("bucket",):
            self.table().maintenance.cluster()

    def clean(self) -> None:
        self.table().maintenance.clean()

    def archive(self) -> None:
        self.table().maintenance.archive()

    def save(self) -> None:
        if self.past and self.saved is None:
            self.saved = self.past[-1]
            with suppress(InvalidOption):
                self.table().savepoints.create(self.saved)

    def restore(self) -> None:
        if len(self.past) > 2:
            back = self.dice.randrange(1, 3)
            with suppress(InvalidOption, CommitConflict):
                self.table().restore(self.past[-1 - back])
                self.past = self.past[:-back]

    def roll_back(self) -> None:
        with suppress(InvalidOption, CommitConflict, UnsupportedFeature, IndexError):
            self.table().rollback(self.past[-1])
            self.past.pop()

    def rebuild(self) -> None:
        self.table().indexes.rebuild(self.column)


def run_history(kind: type[IndexHistory], seed: int) -> None:
    """Run one history. An error has a note with its seed and its steps."""
    run: IndexHistory | None = None
    try:
        run = kind(seed)
        run.run()
    except Exception as error:
        error.add_note(f"LAKEBED_HISTORY={seed} {run or ''}")
        raise


def run_histories(kind: type[IndexHistory], shard: int) -> None:
    """Run the histories of one of `SHARDS` shards."""
    for number in range(shard, COUNT, SHARDS):
        run_history(kind, FIRST + number)

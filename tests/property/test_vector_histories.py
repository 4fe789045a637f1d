"""Random histories of tables with a vector index: after each step a search that looks at all clusters finds what an
exact search finds, and one that looks at few finds rows of the table with their distances, now and at earlier commits.

Some commits are made as by a writer that does not know the index. A seed that fails is in the message:
`LAKEBED_HISTORY=<seed>` runs it again.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from support.sampling import so_many, today
from support.vector_tables import another_writer

ONLY = os.environ.get("LAKEBED_HISTORY")
COUNT = int(os.environ.get("LAKEBED_HISTORY_COUNT") or so_many(300, small=8))
SHARDS = 8
FIRST = today() * 10_000
STEPS = 18
DIMENSION = 6
KEYS = range(40)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("emb", lakebed.vector(DIMENSION)),
        ("v", pa.int64()),
        ("ts", pa.int64()),
    ]
)
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


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["id"], row["city"], row["v"], round(row["_hudi_distance"], 9)


class VectorHistory:
    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.random = np.random.default_rng(seed)
        self.steps: list[str] = []
        self.uri = f"memory://vector-{seed}-{next(_numbers)}/t"
        self.index = dice.choice(["simple", "bucket", "record", "global_simple", "consistent", "bloom"])
        self.kind = "mor" if self.index == "consistent" else dice.choice(["cow", "mor"])
        self.metric = dice.choice(["cosine", "l2", "dot_product"])
        self.ordering = dice.choice(["ts", None])
        self.number = 0
        self.past: list[str] = []
        self.saved: str | None = None
        lakebed.create(
            self.uri,
            SCHEMA,
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
        self.table().indexes.create(
            "vector", column="emb", metric=self.metric, bits=dice.choice([4, 8]), clusters=dice.randrange(1, 8)
        )

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
        verified = self.table().indexes.verify("vector_index_emb")
        assert verified.ok, verified

    def look(self) -> None:
        self.compare(None)
        if self.past:
            self.compare(self.dice.choice(self.past[-5:]))

    def compare(self, as_of: str | None) -> None:
        table, query, k = self.table(), self.random.standard_normal(DIMENSION), self.dice.randrange(1, 12)
        try:
            exact = table.search(query, k, "emb", self.metric, as_of=as_of, exact=True).to_arrow()
        except InvalidOption:
            assert as_of is not None  # its files were cleaned, or it is archived
            return
        every = table.search(query, k, "emb", self.metric, as_of=as_of, probes=1000, rerank=10_000).to_arrow()
        assert every["_hudi_distance"].to_pylist() == pytest.approx(exact["_hudi_distance"].to_pylist(), abs=1e-12)
        few = table.search(query, k, "emb", self.metric, as_of=as_of, probes=1, rerank=k).to_arrow()
        whole = table.search(query, 1000, "emb", self.metric, as_of=as_of, exact=True).to_arrow()
        assert Counter(map(identity, few.to_pylist())) <= Counter(map(identity, whole.to_pylist()))
        assert len(few) == len(exact)

    def table(self) -> lakebed.Table:
        return lakebed.open(self.uri)

    def batch(self, keys: list[int], *, age: int = 0) -> pa.Table:
        self.number += 1
        rows: list[dict[str, Any]] = [
            {
                "id": key,
                "city": f"c{key % 2}",
                "emb": None if self.dice.random() < 0.1 else self.random.standard_normal(DIMENSION).tolist(),
                "v": self.number,
                "ts": self.number - age,
            }
            for key in keys
        ]
        return pa.Table.from_pylist(rows, SCHEMA)

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
            schema = pa.schema([f for f in SCHEMA if f.name != "emb"])
            batch = pa.Table.from_pylist(list({row["id"]: row for row in rows}.values()), schema)
            self.done(self.table().upsert(batch, options={"lakebed.write.partial": True}))

    def delete(self) -> None:
        self.done(self.table().delete(self.some()))

    def overwrite(self) -> None:
        self.done(self.table().insert_overwrite(self.batch([key for key in self.some() if key % 2] or [1])))

    def drop_city(self) -> None:
        self.done(self.table().delete_partitions(["c0"]))

    def foreign(self) -> None:
        verb = self.dice.choice([self.upsert, self.late, self.delete, self.overwrite, self.compact, self.cluster])
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
        self.table().indexes.rebuild("emb")


def history(seed: int) -> None:
    run: VectorHistory | None = None
    try:
        run = VectorHistory(seed)
        run.run()
    except Exception as error:
        made = f"{run.kind}, {run.index}, {run.metric}, ordering {run.ordering}: {run.steps}" if run else ""
        error.add_note(f"LAKEBED_HISTORY={seed} {made}")
        raise


@pytest.mark.skipif(ONLY is not None, reason="one history is run")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_searches_by_an_index_find_what_exact_searches_find(shard: int) -> None:
    for number in range(shard, COUNT, SHARDS):
        history(FIRST + number)


@pytest.mark.skipif(ONLY is None, reason="LAKEBED_HISTORY names the history")
def test_the_vector_history_that_the_variable_names() -> None:
    history(int(ONLY or 0))

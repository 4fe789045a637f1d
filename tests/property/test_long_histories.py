"""500 random histories of 30 steps a day over all indexes, versions and services, against a dict; other ones each day.

What `test_histories.py` looks at after every step is looked at here now and then, and all of it at the end. A seed that
fails is in the message: `LAKEBED_HISTORY=<seed>` runs it again; `LAKEBED_HISTORY_COUNT` says how many are run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.concurrency import heartbeat, lock
from lakebed.errors import InvalidOption
from lakebed.read import batches
from lakebed.storage import parallel
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.timeline import COMMITS
from support.crash_tables import leftovers
from support.sampling import so_many, today

COUNT = int(os.environ.get("LAKEBED_HISTORY_COUNT") or so_many(500, small=40))
ONLY = os.environ.get("LAKEBED_HISTORY")
STEPS = 30
SHARDS = 10
FIRST = today() * 10_000
KEYS = range(20)
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
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
# The file group of a key follows from its hash.
HASHED = ("bucket", "bucket_groups", "consistent")
OPTIONS = {
    "lakebed.write.tasks": 1,
    "hoodie.metadata.global.record.level.index.min.filegroup.count": 2,
    "hoodie.metadata.compact.max.delta.commits": 4,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 6,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.parquet.small.file.limit": 4_000,
    "hoodie.index.bloom.num_entries": 100,
}
Rows = dict[int, int]


class LongHistory:
    """One table; each key has its city for good, so that the last one who writes it is right under every index."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.looks = random.Random(seed)
        self.steps: list[str] = []
        self.name = f"long-{seed}"
        self.version = dice.choice([9, 9, 8, 6])
        self.index = dice.choice([name for name in INDEXES if name != "record_level_index" or self.version == 9])
        self.kind = "mor" if self.index == "consistent" else dice.choice(["cow", "mor"])
        self.metadata = self.index.startswith("record") or dice.random() < 0.3
        stats = dice.random() < 0.3
        self.sort = dice.choice(["key", "none"])
        self.rows: Rows = {}
        self.past: list[tuple[str, Rows]] = []
        self.saved: tuple[str, Rows] | None = None
        self.number = 0
        lakebed.create(
            self.uri,
            SCHEMA,
            key="id",
            partition_by="city",
            ordering="ts",
            type=self.kind,  # pyright: ignore[reportArgumentType]
            index=self.index,
            sort=self.sort,  # pyright: ignore[reportArgumentType]
            buckets=dice.randrange(1, 4) if self.index in HASHED else None,
            table_version=self.version,
            properties={
                **OPTIONS,
                "hoodie.metadata.enable": self.metadata,
                "hoodie.metadata.index.column.stats.enable": self.metadata and stats,
            },
        )

    @property
    def uri(self) -> str:
        return f"memory://{self.name}/t"

    def run(self) -> None:
        verbs = [self.upsert] * 5 + [self.delete, self.delete_where, self.insert, self.partial, self.overwrite]
        verbs += [self.compact, self.cluster, self.clean, self.archive, self.save, self.restore, self.roll_back]
        for _ in range(STEPS):
            verb = self.dice.choice(verbs)
            self.steps.append(verb.__name__)
            verb()
            if self.looks.random() < 0.1 or ONLY:
                self.look()
        self.look()
        table = self.table()
        table.upsert(self.batch([0]))
        table.maintenance.clean()
        assert [path for path in leftovers(self.uri) if "history/" not in path] == []
        verified = lakebed.open(self.uri).indexes.verify()
        assert verified.ok, verified

    def look(self) -> None:
        table = self.table()
        found = table.scan(["id", "v"]).to_arrow().to_pylist()
        assert sorted((row["id"], row["v"]) for row in found) == sorted(self.rows.items())
        some = self.looks.sample(KEYS, 3) + list(range(100, 100 + self.looks.choice([0, 0, 0, 997, 998])))
        assert {row["id"]: row["v"] for row in table.get(some).to_pylist()} == {
            key: self.rows[key] for key in some if key in self.rows
        }
        if self.past:
            instant, rows = self.past[-1]
            old = table.scan(["id", "v"], as_of=instant).to_arrow().to_pylist()
            assert {row["id"]: row["v"] for row in old} == rows

    def table(self) -> lakebed.Table:
        return lakebed.open(self.uri)

    def batch(self, keys: list[int]) -> pa.Table:
        """New values for keys; the model has them at once."""
        self.number += 1
        made = [{"id": key, "city": f"c{key % 2}", "v": self.number, "ts": self.number} for key in keys]
        self.rows = self.rows | dict.fromkeys(keys, self.number)
        return pa.Table.from_pylist(made, SCHEMA)

    def some(self, most: int = 6) -> list[int]:
        return self.dice.sample(KEYS, self.dice.randrange(1, most))

    def done(self, result: lakebed.WriteResult) -> None:
        if result.instant:  # not of a delete that finds nothing
            self.past.append((result.instant, self.rows))

    # -- writes

    def upsert(self) -> None:
        self.done(self.table().upsert(self.batch(self.some())))

    def insert(self) -> None:
        keys = [key for key in self.some() if key not in self.rows]
        if keys:
            self.done(getattr(self.table(), self.dice.choice(["insert", "bulk_insert"]))(self.batch(keys)))

    def partial(self) -> None:
        keys = [key for key in self.some() if key in self.rows]
        if keys and not self.index.startswith("global_"):
            self.done(self.table().upsert(self.batch(keys), options={"lakebed.write.partial": True}))

    def delete(self) -> None:
        keys = self.some()
        self.rows = {key: v for key, v in self.rows.items() if key not in keys}
        self.done(self.table().delete(keys))

    def delete_where(self) -> None:
        low = self.number - self.dice.randrange(3)
        self.rows = {key: v for key, v in self.rows.items() if v < low}
        self.done(self.table().delete(where=f"v >= {low}"))

    def overwrite(self) -> None:
        if "global" in self.index or self.index == "record":
            return
        keys = [key for key in self.some() if key % 2] or [1]
        self.rows = {key: v for key, v in self.rows.items() if not key % 2}
        self.done(self.table().insert_overwrite(self.batch(keys)))

    # -- services

    def compact(self) -> None:
        if self.kind == "mor":
            self.table().maintenance.compact(logs=self.dice.choice([False, True]))

    def cluster(self) -> None:
        if self.index == "consistent":
            self.table().maintenance.cluster(options={"hoodie.parquet.max.file.size": self.dice.randrange(1000, 4000)})
        elif self.index not in HASHED:
            self.table().maintenance.cluster(self.dice.choice([None, ["v"]]) if self.sort == "none" else None)

    def clean(self) -> None:
        self.table().maintenance.clean()
        self.past = self.past[-1:]
        if self.past and self.is_cleanable(self.past[0][0]):
            self.past = []

    def is_cleanable(self, instant: str) -> bool:
        """Whether so many commits of services came after a write that a clean need not keep what it shows."""
        later = [i for i in self.table().timeline if i.is_completed and i.time > instant and i.action in COMMITS]
        return len(later) >= OPTIONS["hoodie.clean.commits.retained"]

    def archive(self) -> None:
        self.clean()
        self.table().maintenance.archive()

    def save(self) -> None:
        if self.past and self.saved is None:
            with suppress(InvalidOption):  # files that cleaning may have taken stand in its way
                self.saved = self.table().savepoints.create().instant, self.rows

    def restore(self) -> None:
        if self.saved is not None:
            instant, rows = self.saved
            with suppress(InvalidOption):
                self.table().restore(instant)
                self.rows, self.past = rows, []
            self.table().savepoints.delete(instant)
            self.saved = None

    def roll_back(self) -> None:
        if len(self.past) > 1 and self.steps[-2:][0] in ("upsert", "delete", "partial") and self.saved is None:
            instant, _ = self.past.pop()
            if max(i.time for i in self.table().timeline) == instant:
                self.table().rollback(instant)
                self.rows = self.past[-1][1]
            else:
                self.past.append((instant, self.rows))


def history(seed: int, make: Callable[[int], Any] = LongHistory) -> None:
    one = make(seed)
    try:
        one.run()
    except BaseException as error:
        said = f"{one.index}, {one.kind}, version {one.version}: {', '.join(one.steps)}"
        raise AssertionError(f"history {seed} ({said}): run it again with LAKEBED_HISTORY={seed}") from error
    finally:
        MemoryStorage.drop(one.name)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for memory: threads, also those that renew what is held for milliseconds, are an eighth of the
    time."""
    queue = SimpleNamespace(submit=lambda work: SimpleNamespace(cancel=lambda: True))
    # the one place where threads of this process begin
    monkeypatch.setattr(parallel, "_threads", lambda: queue)
    monkeypatch.setattr(batches, "os", SimpleNamespace(cpu_count=lambda: 1))
    for module in (heartbeat, lock):
        never = SimpleNamespace(start=lambda: None, stop=lambda: None)
        monkeypatch.setattr(module, "PeriodicTask", lambda *_, never=never, **_options: never)


@pytest.mark.skipif(ONLY is not None, reason="one history is run")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_long_histories_are_those_of_a_dict(shard: int) -> None:
    for seed in range(FIRST + shard, FIRST + COUNT, SHARDS):
        history(seed)


@pytest.mark.skipif(ONLY is None, reason="LAKEBED_HISTORY names the history")
def test_the_history_that_the_variable_names() -> None:
    history(int(ONLY or 0))

"""The same world under whole writes: Parquet and log files, indexes, the metadata table, compaction by
`t.maintenance.compact()`.

A schedule takes some fifty times longer than one of tiny files, so there are few; `LAKEBED_HISTORIES=all` runs 600.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, CommitStateUnknown, LakebedError
from lakebed.storage.memory import MemoryStorage, _Bucket, _buckets
from lakebed.storage.opening import wrapping
from property.simulation.schedules import CLOCKS
from property.simulation.world import LONG, Actor, Installed, SimulatedStorage, World
from support.sampling import HISTORIES, today, whole

KINDS = [("cow", "simple", 9), ("mor", "bucket", 9), ("cow", "bucket", 6), ("mor", "simple", 8), ("mor", "bucket", 6)]
FIRST = today() * 10_000
COUNT = 600 if whole(HISTORIES) else 20
OPTIONS = {
    "lakebed.write.tasks": 1,
    "hoodie.compact.inline": False,
    "hoodie.write.lock.wait_time_ms": 100_000_000,
    "hoodie.metadata.compact.max.delta.commits": 3,
}
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
Rows = dict[int, str]


def rows(values: Mapping[int, str]) -> pa.Table:
    columns = [list(values), list(values.values()), [1] * len(values)]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@cache
def prepared(kind: str, index: str, version: int) -> Mapping[str, Any]:
    name = f"whole-{kind}-{index}-{version}"
    uri = f"memory://{name}/t"
    lakebed.create(
        uri,
        SCHEMA,
        key="id",
        type=kind,  # type: ignore[arg-type]
        index=index,
        buckets=2 if index == "bucket" else None,
        table_version=version,
    )
    for first in (0, 4):
        values = dict.fromkeys(range(first, first + 4), "first")
        lakebed.open(uri).upsert(rows(values), options={**OPTIONS, "hoodie.parquet.small.file.limit": 0})
    objects = dict(_buckets[name].objects)
    MemoryStorage.drop(name)
    return objects


class WholeSchedule:
    """Two writers and a service; every row must be one that was acknowledged last, or may have come."""

    def __init__(self, installed: Installed, seed: int) -> None:
        self.kind = KINDS[seed % len(KINDS)]
        installed.begin(World(0))
        objects = prepared(*self.kind)
        self.world = World(seed)
        installed.begin(self.world)
        self._bucket = f"whole-{seed}"
        _buckets[self._bucket] = _Bucket(objects=dict(objects))
        self.uri = f"memory://{self._bucket}/t"
        self.tried: dict[str, Rows] = {}
        self.refused: set[str] = set()
        self.done: list[str] = []

    def run(self) -> None:
        try:
            with wrapping(lambda _: SimulatedStorage(self._bucket, "t").of(self.world)):
                actors = [self._drawn("w1", self._writes), self._drawn("w2", self._writes)]
                if self.kind[0] == "mor":
                    actors.append(self._drawn("s", self._compacts))
                self.world.run(actors)
                for actor in actors:
                    if actor.error is not None and not isinstance(actor.error, LakebedError):
                        raise actor.error
                self.world.doubts = 0.0
                later = Actor("later", self._settles)
                self.world.run([later])
                if later.error is not None:
                    raise later.error
            self._check()
        finally:
            MemoryStorage.drop(self._bucket)

    def _drawn(self, name: str, run: Callable[[], None]) -> Actor:
        draw = self.world.random
        actor = Actor(name, run, offset=draw.choice(CLOCKS))
        fate = draw.random()
        if fate < 0.3:
            actor.dies_at = draw.randint(1, 200)
            actor.acts_before_death = draw.random() < 0.5
        elif fate < 0.4:
            actor.freezes_at = draw.randint(1, 200)
        return actor

    def _writes(self) -> None:
        draw = self.world.random
        for _ in range(2):
            mark = f"m{len(self.tried)}"
            self.tried[mark] = dict.fromkeys(draw.sample(range(12), 3), mark)
            try:
                lakebed.open(self.uri).upsert(rows(self.tried[mark]), options=OPTIONS)
                self.done.append(mark)
            except CommitStateUnknown:
                return
            except CommitConflict:
                self.refused.add(mark)

    def _compacts(self) -> None:
        lakebed.open(self.uri).maintenance.compact(options=OPTIONS)

    def _settles(self) -> None:
        for number in range(3):
            self.world.pause(LONG - 1)
            lakebed.open(self.uri).upsert(rows({100 + number: "later"}), options=OPTIONS)
        if self.kind[0] == "mor":
            lakebed.open(self.uri).maintenance.compact(options=OPTIONS)

    def _check(self) -> None:
        found = self._rows({})
        assert found == self._rows({"hoodie.metadata.enable": False}), "the metadata table shows other rows"
        for mark, values in self.tried.items():
            shown = {key for key in values if found.get(key) == mark}
            assert not (shown and mark in self.refused), f"write {mark} was refused and is there"
        # every row is the last acknowledged one, or that of a write whose end nobody knows
        unknown = set(self.tried) - set(self.done) - self.refused
        for key in range(12):
            mark = found.get(key)
            writers = [m for m in self.done if key in self.tried[m]]
            assert mark is not None or (not writers and key >= 8), f"row {key} is gone"
            allowed = {"first"} if not writers else set(writers)
            assert mark is None or mark in allowed | unknown, f"row {key} is {mark}, acknowledged were {writers}"
        verdict = lakebed.open(self.uri).indexes.verify()
        assert verdict.ok, verdict

    def _rows(self, options: dict[str, Any]) -> Rows:
        table = lakebed.open(self.uri, options=options).scan(["id", "v"]).to_arrow()
        pairs = list(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
        assert len(dict(pairs)) == len(pairs), f"keys come twice: {pairs}"
        return dict(pairs)


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with Installed().here() as one:
        yield one


@pytest.mark.parametrize("part", range(10))
def test_every_schedule_of_whole_writes_leaves_a_table_that_is_right(part: int, installed: Installed) -> None:
    for seed in range(FIRST + part, FIRST + COUNT, 10):
        try:
            WholeSchedule(installed, seed).run()
        except Exception as error:
            raise AssertionError(f"whole schedule {seed}") from error

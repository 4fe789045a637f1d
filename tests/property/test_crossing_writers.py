"""Random histories of two and three writers that cross, under every index and version, against a dict."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping
from functools import cache

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidRecord
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from property.crossing import CITIES, COLUMNS, Draw, Model, Row, Writer, held_writers, table_of, upsert
from support.sampling import HISTORIES, so_many, todays

KINDS = [
    *(
        (index, version)
        for index in ("bucket", "simple", "global_simple", "record", "bloom", "global_bloom")
        for version in (9, 8, 6)
    ),
    ("record_level_index", 9),
]
SEEDS = range(so_many(300, small=60))
SHARDS = 12
# Replays one history: LAKEBED_CROSSING=17 pytest tests/property/test_crossing_writers.py
ONLY = os.environ.get("LAKEBED_CROSSING")


@cache
def prepared(index: str, version: int) -> tuple[Mapping[str, bytes], Model]:
    """The files of a table with two files in each partition, and its rows."""
    uri = f"memory://crossing-{index}-{version}/t"
    is_global = index in ("global_simple", "global_bloom", "record")
    options = {"hoodie.record.index.update.partition.path": True} if index == "record" else {}
    table = lakebed.create(
        uri,
        table_of([], {}).schema,
        key="id",
        partition_by="city",
        index=index,
        buckets=2 if index == "bucket" else None,
        indexes=[
            *(["v"] if index == "record" and version > 6 else []),
            *(["column_stats", "partition_stats"] if version == 8 else []),
        ],
        table_version=version,
        properties=options,
    )
    model = Model(is_global)
    draw = Draw(1, index, version)
    for half in range(2):
        rows = [draw.row(key, CITIES[key % 3]) for key in range(half * 15, half * 15 + 15)]
        write = upsert("first", rows, {}, {"hoodie.parquet.small.file.limit": 0, "lakebed.write.tasks": 1})
        write.run(lakebed.open(uri))
        write.change(model).apply(model)
    if version == 9:
        table = lakebed.open(uri)
        table.indexes.create("length", column="s", function="length")
        table.indexes.create(
            "upper",
            column="s",
            function="upper",
            kind="bloom_filters",
            function_options={"numentries": 20, "fpp": 0.01},
        )
    storage = open_storage(uri)
    return {info.path: storage.read(info.path) for info in storage.list()}, model


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.index, self.version = KINDS[seed % len(KINDS)]
        self.draw = Draw(seed, self.index, self.version)
        files, model = prepared(self.index, self.version)
        self.model = Model(model.is_global, dict(model.rows), dict(model.columns))
        self.name = f"crossing-{seed}"
        self.uri = f"memory://{self.name}/t"
        storage = open_storage(self.uri)
        for path, data in files.items():
            storage.write(path, data)
        self.log: list[str] = [f"{self.index} {self.version}"]

    def run(self) -> None:
        options = self.draw.options()
        writers = [
            Writer(
                self.uri,
                self.draw.write(options | {"hoodie.parquet.small.file.limit": self.random.choice([0, 0, 1 << 20])}),
            )
            for _ in range(self.random.randint(2, 3))
        ]
        while waiting := [w for w in writers if w.waiting_for]:
            if self.random.random() < 0.1:
                self.build_index()
            self.step(self.random.choice(waiting))
        self.check(verify=True)
        last = upsert("last", [self.draw.row(key) for key in (0, 1, 2, 31, 100)], {}, options)
        change = last.change(self.model)
        last.run(lakebed.open(self.uri))
        change.apply(self.model)
        self.log.append("last")
        self.check(verify=self.random.random() < 0.25)

    def step(self, writer: Writer) -> None:
        step = writer.step(self.model)
        done = writer.waiting_for is None
        self.log.append(
            f"{writer.write.name}@{id(writer) % 1000}: {step}" + (f" -> {writer.error!r:.90}" if done else "")
        )
        if not done:
            return
        if writer.error is not None:
            expected = (
                CommitConflict if not (writer.change and writer.change.is_refused) else (CommitConflict, InvalidRecord)
            )
            if step != "commit" and isinstance(
                writer.error, lakebed.errors.InvalidOption | lakebed.errors.SchemaConflict
            ):
                return  # of what another one has dropped, or widened
            if not isinstance(writer.error, expected):
                raise writer.error
        else:
            if writer.change is None:  # a delete that finds nothing ends before it begins a commit
                assert writer.write.name.startswith("delete")
                writer.change = writer.write.change(self.model)
            assert not writer.change.is_refused, "a key came twice"
            assert not writer.change.collides(self.model), "what another one wrote was lost"
            writer.change.apply(self.model)
        self.same_rows(lakebed.open(self.uri))

    def build_index(self) -> None:
        table = lakebed.open(self.uri)
        have = {facts.name for facts in table.indexes.list()}
        kinds = [name for name in ("bloom_filters", "column_stats", "partition_stats") if name not in have]
        kinds += ["record_index"] if self.model.is_global and "record_index" not in have else []
        kinds += ["trim"] if self.version == 9 and "expr_index_trim" not in have else []
        if not kinds or (self.version == 6 and any(not i.is_completed for i in table.timeline)):
            return  # on version 6 none is built while a write is pending
        chosen = self.random.choice(kinds)
        if chosen == "partition_stats" and (self.version == 6 or "column_stats" not in have):
            return
        if chosen == "trim":
            table.indexes.create("trim", column="s", function="trim")
        else:
            table.indexes.create(chosen)
        self.log.append(f"index {chosen}")

    def same_rows(self, table: Table) -> None:
        names = list(self.model.columns)
        assert {f.name: f.type for f in table.schema} == self.model.columns
        assert texts(table.scan().to_arrow().to_pylist(), names) == texts(list(self.model.rows.values()), names)

    def check(self, *, verify: bool) -> None:
        table = lakebed.open(self.uri)
        self.same_rows(table)
        names, rows = list(self.model.columns), list(self.model.rows.values())
        asked = filters(self.random, rows, self.model.columns)
        for where, holds in asked if verify else self.random.sample(asked, min(3, len(asked))):
            found = table.scan(where=where).to_arrow().to_pylist()
            assert texts(found, names) == texts([r for r in rows if holds(r)], names), where
        ids = [0, 5, 31, *self.draw.new_keys]
        wanted = [r for r in rows if r["id"] in ids]
        assert texts(table.get(ids).to_pylist(), names) == texts(wanted, names), "get"
        if verify:
            found = table.indexes.verify()
            assert found.ok, found


def texts(rows: list[Row], names: list[str]) -> list[str]:
    return sorted(repr([row.get(name) for name in names]) for row in rows)


def filters(
    r: random.Random, rows: list[Row], columns: Mapping[str, pa.DataType]
) -> list[tuple[str, Callable[[Row], bool]]]:
    one = r.choice(rows) if rows else {}
    v, f, s, key, city = one.get("v"), one.get("f"), one.get("s"), one.get("id", 0), r.choice(CITIES)
    found: list[tuple[str, Callable[[Row], bool]]] = [
        (f"city = '{city}'", lambda row: row["city"] == city),
        (f"id = {key}", lambda row: row["id"] == key),
    ]
    if v is not None:
        found.append((f"v = {v}", lambda row: row["v"] == v))
        found.append(
            (f"v > {v} and city = '{city}'", lambda row: row["v"] is not None and row["v"] > v and row["city"] == city)
        )
    if f is not None and not math.isnan(f):
        found.append((f"f >= {f!r}", lambda row: row["f"] is not None and (math.isnan(row["f"]) or row["f"] >= f)))
    if s is not None:
        found.append((f"s = '{s}'", lambda row: row["s"] == s))
        found.append((f"length(s) = {len(s)}", lambda row: row["s"] is not None and len(row["s"]) == len(s)))
    for name in columns.keys() - COLUMNS.keys():
        value = next((row[name] for row in rows if row.get(name)), None)
        found.append(
            (f"{name} = '{value}'", lambda row, name=name, value=value: value is not None and row.get(name) == value)
        )
    return found


def run(seed: int) -> list[str]:
    history = History(seed)
    try:
        history.run()
    except BaseException as error:
        error.add_note(f"LAKEBED_CROSSING={seed}\n" + "\n".join(history.log))
        raise
    finally:
        MemoryStorage.drop(history.name)
    return history.log


@pytest.mark.parametrize("shard", [0] if ONLY else todays(range(SHARDS), 6, HISTORIES))
def test_crossing_writers_leave_what_each_of_them_said(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.read.skip._MAX_SLICES", 0)  # small tables are skipped by everything, too
    seeds = [int(ONLY)] if ONLY else SEEDS[shard::SHARDS]
    with held_writers():
        for seed in seeds:
            run(seed)

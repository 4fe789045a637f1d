"""A feed of changes as a database sends it: thirty batches with late, repeated and deleting events, and the table that
a reader of it should have after each of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.table import Table

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("amount", pa.int64()),
        ("at", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
CITIES = ("rome", "oslo", "lima")
BATCHES = 30
# What runs after a batch, in turn; what a table has no use for does nothing.
SERVICES = ("clean", "compact", "cluster", "archive")
Row = tuple[str, int, int]


@dataclass
class Feed:
    """Batches of events, drawn from `seed`. `rows` is the source's table: city, amount and time of the newest event by
    key; `seen` the time of each key's newest event, deletes too."""

    seed: int
    keys: int = 40
    rows: dict[int, Row] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    def batches(self) -> Iterator[pa.Table]:
        dice, now = random.Random(self.seed), 1_000
        homes = {key: dice.choice(CITIES) for key in range(self.keys)}
        ended = dict[int, int]()  # a stored row that is deleted leaves no time that a later event could be late for
        for _ in range(BATCHES):
            events = list[tuple[int, str, int, int, bool]]()
            for _ in range(dice.randint(1, 25)):
                now += 1
                key = dice.randrange(self.keys)
                late = now - dice.randint(1, 60)
                at = late if dice.random() < 0.2 and late > ended.get(key, 0) else now
                is_delete = dice.random() < 0.2
                events.append((key, homes[key], dice.randrange(1_000), at, is_delete))
                if is_delete:
                    ended[key] = max(at, ended.get(key, 0))
                if dice.random() < 0.1:
                    events.append(events[-1])  # delivered twice
            dice.shuffle(events)
            for event in events:
                self._take(*event)
            yield pa.Table.from_pylist([dict(zip(SCHEMA.names, event, strict=True)) for event in events], SCHEMA)

    def _take(self, key: int, city: str, amount: int, at: int, is_delete: bool) -> None:
        """The newest event by `at` is the row; of equal ones the last delivered."""
        if at < self.seen.get(key, 0):
            return
        self.seen[key] = at
        if is_delete:
            self.rows.pop(key, None)
        else:
            self.rows[key] = (city, amount, at)


def create(uri: str, kind: str, index: str, version: int, spark: Any = None) -> Table:
    return lakebed.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="at",
        type=kind,  # type: ignore[arg-type]
        index=index,
        table_version=version,
        spark=spark,
        properties={"hoodie.table.cdc.enabled": True},
    )


def serve(table: Table, number: int) -> None:
    """One service after each batch."""
    name = SERVICES[number % len(SERVICES)]
    if name != "compact" or table.properties["hoodie.table.type"] == "MERGE_ON_READ":
        getattr(table.maintenance, name)()


def content(table: Table) -> dict[int, Row]:
    stored = table.scan().to_arrow().to_pylist()
    assert len({row["id"] for row in stored}) == len(stored)
    return {row["id"]: (row["city"], row["amount"], row["at"]) for row in stored}


def sums(rows: dict[int, Row]) -> dict[str, tuple[int, int]]:
    """Count and sum of the amounts by city."""
    return {
        city: (len(found), sum(found))
        for city in CITIES
        if (found := [amount for one, amount, _ in rows.values() if one == city])
    }


@dataclass
class Readers:
    """Two readers behind a table: a copy made from `changes` and deletes of `cdc`, and sums by city made from `cdc`."""

    copy: dict[int, Row] = field(default_factory=dict)
    sums: dict[str, tuple[int, int]] = field(default_factory=dict)
    checkpoint: str = "000"

    def read(self, table: Table) -> None:
        log = table.cdc(self.checkpoint)
        for change in log.to_arrow().to_pylist():
            before, after = change["before"], change["after"]
            assert (before is None) == (change["op"] == "i")
            assert (after is None) == (change["op"] == "d")
            if before is not None:
                key = before["id"]
                assert self.copy.pop(key) == (before["city"], before["amount"], before["at"])
                self._add(before, -1)
            if after is not None:
                assert after["id"] not in self.copy
                self.copy[after["id"]] = (after["city"], after["amount"], after["at"])
                self._add(after, 1)
        self.checkpoint = log.end

    def _add(self, row: dict[str, Any], sign: int) -> None:
        count, total = self.sums.get(row["city"], (0, 0))
        self.sums[row["city"]] = (count + sign, total + sign * row["amount"])

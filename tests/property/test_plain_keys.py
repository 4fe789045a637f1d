"""Hash fields alone rule out files: over random histories with texts that confuse Hudi's key parser no row is lost."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.operations.context import WriteContext
from support.sampling import HISTORIES, todays_of

# Of values with one text in a key there is one: the text beside a null is refused.
CITIES = ("oslo", "rome", "bern", "lima", "x,id:oslo", "a:b,c", "a,city:rome", "__null__", "")
PLAIN_IDS = ("1", "2", "a,b", "a:b", "__empty__", ":", ",", "city:oslo", None)
HOSTILE_IDS = ("x,city:oslo", ",city:rome", "q,id:z", "a,b:c", "1,city:bern,city:lima", ",:", "k,city:__null__")
SCHEMA = pa.schema([("city", pa.string()), ("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
KINDS = ("cow", "mor", "consistent", "sorted")
STEPS = 10
_numbers = itertools.count()

Row = tuple[str | None, str | None, str, int]


def text(value: str | None) -> str:
    return "__null__" if value is None else value or "__empty__"


class History:
    """A table and a dict of its rows, by partition path and the texts of the key."""

    def __init__(self, seed: int, kind: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(f"{seed} {kind} {version}")
        self.patch = monkeypatch
        self.rows: dict[tuple[str, str, str], Row] = {}
        self.seen: list[tuple[str, list[Row]]] = []
        self.pruned = 0
        self.instant = ""
        self.kind = kind
        key = ["city", "id"] if self.random.random() < 0.5 else ["id", "city"]
        self.table = lakebed.create(
            f"memory://property/plain/{next(_numbers)}",
            SCHEMA,
            key=key,
            partition_by="day",
            index="consistent" if kind == "consistent" else "bucket",
            buckets=8,
            hash_fields="city",
            type="cow" if kind in ("cow", "sorted") else "mor",
            sort="key" if kind == "sorted" else None,
            table_version=version,
        )

    def batch(self) -> list[Row]:
        ids = PLAIN_IDS + (HOSTILE_IDS if self.random.random() < 0.4 else ())
        rows: list[Row] = []
        for _ in range(self.random.randint(1, 12)):
            city, name = self.random.choice(CITIES), self.random.choice(ids)
            if city or name:
                rows.append((city, name, self.random.choice("ab"), self.random.randint(0, 99)))
        return list({(text(r[0]), text(r[1]), r[2]): r for r in rows}.values())

    def upsert(self) -> None:
        batch = self.batch()
        if not batch:
            return
        names = SCHEMA.names
        columns = {n: [r[at] for r in batch] for at, n in enumerate(names)}
        self.instant = self.table.upsert(pa.table(columns, schema=SCHEMA)).instant
        self.rows |= {(text(r[0]), text(r[1]), r[2]): r for r in batch}

    def upsert_without_note(self) -> None:
        """As a writer does that knows nothing of notes."""
        with self.patch.context() as patch:
            patch.setattr(WriteContext, "watched_keys", lambda *_: ())
            self.upsert()

    def delete(self) -> None:
        if not self.rows:
            return
        gone = self.random.sample(sorted(self.rows), min(3, len(self.rows)))
        rows = [self.rows.pop(one) for one in gone]
        columns = {n: [r[at] for r in rows] for at, n in enumerate(SCHEMA.names[:3])}
        self.table.delete(pa.table(columns, schema=pa.schema(list(SCHEMA)[:3])))

    def serve(self) -> None:
        if self.kind in ("mor", "consistent"):
            self.table.maintenance.compact(logs=self.random.choice([False, True]))
        elif self.kind == "cow":
            self.table.maintenance.cluster()

    def rescale(self) -> None:
        if self.kind != "consistent" and self.rows:
            self.table.maintenance.rescale(self.random.choice([4, 8, 16]))

    def check(self) -> None:
        for city in self.random.sample(CITIES, 4):
            condition = "city IS NULL" if city is None else f"city = '{city}'"
            expected = sorted((r for r in self.rows.values() if r[0] == city), key=str)
            found = self.table.scan(where=condition)
            assert rows_of(found) == expected, (condition, found.explain())
            self.pruned += "by bucket" in str(found.explain())
        for instant, rows in self.seen[-3:]:
            found = self.table.scan(where="city = 'oslo'", as_of=instant)
            assert rows_of(found) == [r for r in rows if r[0] == "oslo"], found.explain()


def rows_of(scan: Any) -> list[Row]:
    return sorted((tuple(r[n] for n in SCHEMA.names) for r in scan.to_arrow().to_pylist()), key=str)  # type: ignore[misc]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("kind", "version", "seed"), todays_of(KINDS, (9, 8, 6), range(4), parts=8, variable=HISTORIES)
)
def test_no_filter_on_a_hash_field_loses_a_row(
    kind: str, version: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(seed, kind, version, monkeypatch)
    steps = [history.upsert] * 5 + [history.upsert_without_note, history.delete, history.serve, history.rescale]
    history.upsert()
    for _ in range(STEPS):
        step = history.random.choice(steps)
        step()
        history.check()
        if step == history.upsert:
            history.seen.append((history.instant, sorted(history.rows.values(), key=str)))
    assert history.pruned, "no filter ruled out anything"

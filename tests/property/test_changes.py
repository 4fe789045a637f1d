"""Random histories read by changes between every two checkpoints: the rows are those of a dict, and of a read that
merges whole file slices and then takes the rows of the range.

The ways in which file slices are read are counted: a test fails if one of them is never taken.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.read.batches import scan_batches
from lakebed.read.incremental import Changes
from lakebed.slices import changed_rows
from lakebed.slices.merged import MergedSlice
from lakebed.storage.memory import MemoryStorage
from support.sampling import HISTORIES, todays_of

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("v", pa.int64()),
        ("ts", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
CITIES = ("oslo", "rome")
KINDS = [("cow", 9), ("mor", 8), ("mor", 6), ("mor", 9), ("cow", 6)]
INDEXES = ("bucket", "simple", "global_simple", "record", "bloom", "bucket_groups", "consistent")
MERGES = ("commit_time", "fills", "sums", "event_time")
HASHED = ("bucket", "bucket_groups", "consistent")
KEYS = 40
STEPS = 9
QUIET = {
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.parquet.small.file.limit": 3_000,
}
# Keys are always searched, or never.
SEARCHED = (0, 1 << 40)
CASES = todays_of(KINDS, INDEXES, MERGES, SEARCHED, parts=8, variable=HISTORIES)
Rows = dict[int, tuple[int, int, int]]
_numbers = itertools.count()


class Sums(lakebed.Merger):
    """Adds the values of two rows."""

    strategy_id = "0f0ce6a1-52a5-4f2c-9d3e-5d8f3f9f6c11"

    def merge(self, old: pa.RecordBatch, new: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        columns = {**dict(zip(new.schema.names, new.columns, strict=True)), "v": pc.add(old["v"], new["v"])}
        return pa.RecordBatch.from_pydict(columns), pa.array([False] * new.num_rows)


SETTINGS: dict[str, dict[str, Any]] = {
    "commit_time": {"merge": "commit_time"},
    "event_time": {"ordering": "ts"},
    "fills": {"ordering": "ts", "properties": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}},
    "sums": {"merge": Sums},
}


class History:
    """A table, and the rows that it had after each write: value, ordering value and the number of the last write."""

    def __init__(self, kind: str, version: int, index: str, merge: str, number: int) -> None:
        self.dice = dice = random.Random(f"{kind} {version} {index} {merge} {number}")
        self.kind, self.merge, self.index = kind, merge, index
        self.rows: Rows = {}
        self.states: list[Rows] = [{}]
        self.checkpoints = ["000"]
        self.clock = 0
        is_partitioned = dice.random() < 0.7
        settings = SETTINGS[merge]
        properties = {
            **QUIET,
            **settings.get("properties", {}),
            "hoodie.datasource.write.drop.partition.columns": is_partitioned and dice.random() < 0.3,
            "hoodie.logfile.data.block.format": dice.choice(["avro", "avro", "parquet"]),
            "hoodie.metadata.index.column.stats.enable": dice.random() < 0.5,
        }
        options: dict[str, Any] = {
            "key": ["id", "city"] if dice.random() < 0.3 else "id",
            "partition_by": "city" if is_partitioned else None,
            "type": kind,
            "index": index,
            "buckets": 2 if index in HASHED else None,
            "table_version": version,
            **settings,
            "properties": properties,
        }
        self.table = lakebed.create(f"memory://changes/t{next(_numbers)}", SCHEMA, **options)

    def run(self) -> None:
        self.insert(range(0, KEYS, 2))
        self.upsert(3, 6)
        verbs = [self.upsert_some] * 6 + [self.upsert_late] * 3 + [self.delete, self.delete_by_flag, self.insert_new]
        verbs += [self.compact, self.compact_logs, self.cluster, self.insert_new]
        for _ in range(STEPS):
            self.dice.choice(verbs)()

    # -- writes

    def insert(self, ids: range | list[int]) -> None:
        self._write(list(ids), "insert")

    def insert_new(self) -> None:
        new = [n for n in range(KEYS) if n not in self.rows]
        if new:
            self._write(self.dice.sample(new, min(4, len(new))), "insert")

    def upsert(self, *ids: int) -> None:
        self._write(list(ids), "upsert")

    def upsert_some(self) -> None:
        self._write(self.dice.sample(range(KEYS), self.dice.choice([1, 3, 12])), "upsert")

    def upsert_late(self) -> None:
        """Rows that lose against the stored ones where ordering values decide, next to some that win."""
        known = self.dice.sample(sorted(self.rows), min(5, len(self.rows)))
        self._write([*known, *self.dice.sample(range(KEYS), 2)], "upsert", late=frozenset(known))

    def delete_by_flag(self) -> None:
        """Deletes that have ordering values, of which some lose."""
        known = self.dice.sample(sorted(self.rows), min(3, len(self.rows)))
        self._write([*known, *self.dice.sample(range(KEYS), 1)], "upsert", late=frozenset(known), are_deletes=True)

    def delete(self) -> None:
        if not self.rows:
            return
        ids = self.dice.sample(sorted(self.rows), min(3, len(self.rows)))
        self._note(self.table.delete(where=f"id in ({', '.join(map(str, ids))})"), dict.fromkeys(ids))

    def _write(
        self, ids: list[int], verb: str, late: frozenset[int] = frozenset(), *, are_deletes: bool = False
    ) -> None:
        self.clock += 1
        written: dict[int, tuple[int, int, int] | None] = {}
        rows = []
        for number in dict.fromkeys(ids):
            before = self.rows.get(number)
            moment = self.clock - (self.dice.choice([0, 1, 5]) if number in late else 0)
            value = None if self.merge == "fills" and self.dice.random() < 0.4 else self.dice.randrange(1_000)
            is_delete = are_deletes and number in late
            row = {"id": number, "city": CITIES[number % 2], "v": value, "ts": moment}
            rows.append({**row, "_hoodie_is_deleted": is_delete or None})
            if before is None or self.merge == "commit_time" or moment >= before[1]:
                written[number] = None if is_delete else (value or 0, moment, len(self.states))
        result = getattr(self.table, verb)(pa.Table.from_pylist(rows, SCHEMA))
        self._note(result, written)

    def _note(self, result: lakebed.WriteResult, written: dict[int, Any]) -> None:
        rows = {**self.rows, **written}
        self.rows = {number: row for number, row in rows.items() if row is not None}
        self.states.append(self.rows)
        self.checkpoints.append(result.checkpoint)

    # -- services

    def compact(self) -> None:
        if self.kind == "mor":
            self.table.maintenance.compact()

    def compact_logs(self) -> None:
        if self.kind == "mor":
            self.table.maintenance.compact(logs=True)

    def cluster(self) -> None:
        if self.index not in HASHED and self.dice.random() < 0.5:
            self.table.maintenance.cluster()

    # -- reads

    def check(self) -> None:
        table = lakebed.open(self.table.uri)
        for at, start in enumerate(self.checkpoints):
            for number in range(at, len(self.checkpoints)):
                end = self.checkpoints[number]
                if at == number and start == "000":
                    continue
                changes = table.changes(start, end, meta=True)
                rows = in_order(changes.to_arrow())
                assert rows == in_order(merged_whole(changes)), (start, end)
                if self.merge in ("commit_time", "event_time"):
                    expected = {n: row[:2] for n, row in self.states[number].items() if at < row[2] <= number}
                    assert {row["id"]: (row["v"], row["ts"]) for row in rows} == expected, (at, number)
                if number == at + 2:
                    assert table.changes(start, end).count() == len(rows)


def merged_whole(changes: Changes) -> pa.Table:
    """The same rows, of file slices that are merged as a whole."""
    plan = replace(changes.plan, since="")
    return pa.Table.from_batches(list(scan_batches(plan, changes.reader)), plan.schema)


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: (row["_hoodie_record_key"], row["_hoodie_commit_seqno"]))


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    yield
    MemoryStorage.drop("changes")


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often file slices were read in each way."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str, way: str) -> None:
        original = getattr(owner, name)

        def counted(*values: Any, **named: Any) -> Any:
            counts[way] += 1
            return original(*values, **named)

        monkeypatch.setattr(owner, name, counted)

    count(changed_rows, "changed_rows", "changed rows")
    count(MergedSlice, "changed", "log records alone")
    count(MergedSlice, "batches", "whole slice")
    count(changed_rows.OlderBaseRows, "of", "compared")
    count(changed_rows, "rows_of_keys", "searched")
    return counts


@pytest.mark.parametrize(("kind", "version", "index", "merge", "searched"), [(*kind, *rest) for kind, *rest in CASES])
def test_changes_between_checkpoints_are_the_rows_of_the_model(
    kind: str, version: int, index: str, merge: str, searched: int, monkeypatch: pytest.MonkeyPatch, ways: Counter[str]
) -> None:
    monkeypatch.setattr(changed_rows, "_SEARCHED", searched)
    merge = "event_time" if merge == "fills" and version < 9 else merge
    history = History("mor" if index == "consistent" else kind, version, index, merge, searched)
    history.run()
    history.check()
    if history.kind == "mor":
        assert ways["changed rows"] > 0
        assert ways["whole slice"] > 0
        alone, by_key = ways["log records alone"] > 0, ways["searched"] > 0
        assert alone == (merge in ("commit_time", "event_time"))
        assert alone or not (by_key and searched)

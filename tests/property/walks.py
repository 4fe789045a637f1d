"""A small table that is written, looked into and given another index, held against a dict after each step."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.table import Table

CITIES = ("oslo", "rome", "é x")
DROP_KNOWN = {"hoodie.datasource.write.insert.drop.duplicates": True}
GLOBAL = ("global_simple", "global_bloom", "record")
# The file group of a key follows from its hash.
HASHED = ("bucket", "bucket_groups", "consistent")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("v", pa.int64()),
        ("ts", pa.int64()),
        ("note", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
QUIET = {
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.datasource.write.partitionpath.urlencode": True,
}
Row = tuple[str, str, int]
_numbers = itertools.count()


def key(number: int) -> str:
    """Keys that share a beginning, of several lengths, some beyond ASCII."""
    return f"k{number:03d}" + ("" if number % 7 else "é𝄞" if number % 2 else "-and-more-than-eight-bytes")


class Walk:
    """One table and what must be in it: a key has its partition path for good, so that the last write of it counts."""

    def __init__(
        self,
        uri: str,
        index: str,
        kind: str,
        version: int,
        settings: Mapping[str, Any],
        *,
        is_partitioned: bool,
        seed: int,
    ) -> None:
        self.dice = random.Random(seed)
        self.rows: dict[str, Row] = {}
        self.past: list[tuple[str, dict[str, Row]]] = []
        self.index, self.kind, self.is_partitioned = index, kind, is_partitioned
        self.clock = 0
        self.has_cdc = version == 9 and self.dice.random() < 0.3
        self.is_sorted = self.dice.random() < 0.5
        logs = self.dice.choice(["avro", "parquet"])
        more = {"hoodie.logfile.data.block.format": logs, "hoodie.table.cdc.enabled": self.has_cdc}
        more["hoodie.metadata.index.column.stats.enable"] = self.dice.random() < 0.5
        more["lakebed.index.bucket.grow"] = self.dice.random() < 0.5
        more["lakebed.small_files"] = self.dice.choice(["fill", "deferred"])
        self.table: Table = lakebed.create(
            f"{uri}/t{next(_numbers)}",
            SCHEMA,
            key="id",
            partition_by="city" if is_partitioned else None,
            ordering="ts",
            type=kind,  # pyright: ignore[reportArgumentType]
            merge=self.dice.choice(["event_time", "commit_time"]),
            index=index,
            indexes=["bloom_filters"] if self.dice.random() < 0.5 else [],
            buckets=2 if index in HASHED else None,
            sort="key" if self.is_sorted else "none",
            table_version=version,
            properties={**QUIET, **settings, **more},
        )
        self.version = version
        self.checkpoint = "000"

    def run(self, other: str) -> None:
        """Several files whose keys interleave, logs, another index, and every verb after it."""
        once = {"hoodie.parquet.small.file.limit": 0}
        self.insert(range(20, 60, 2), once)
        self.insert(range(31, 71, 2), once)
        self.check_keys()
        self.upsert([*range(5, 9), *range(34, 46), *range(80, 84)])
        self.delete([21, 36, 37, 80, 99])
        self.check()
        self.use(other)
        self.upsert([*range(12), *range(20, 71), *range(78, 90)])
        self.check()
        self.delete_where()
        self.insert_new(range(0, 95, 5))
        self.serve()
        self.check_keys()
        self.upsert(self.dice.sample(range(95), 1))
        self.upsert(self.dice.sample(range(95), 40), deletes=10)
        self.check()
        if self.version < 9 and self.dice.random() < 0.5:
            self.table.maintenance.upgrade()
            self.check_keys()
            self.upsert(self.dice.sample(range(95), 20))
            self.check()
        verified = lakebed.open(self.table.uri).indexes.verify()
        assert verified.ok, verified

    # -- writes

    def batch(self, numbers: Iterable[int], deletes: int = 0) -> list[dict[str, Any]]:
        self.clock += 1
        rows = [
            {
                "id": key(n),
                "city": CITIES[n % 3],
                "v": 100 * self.clock + n,
                "ts": self.clock,
                "note": [None, "", "same", f"note {n}", "ü" * n][n % 5],
                "_hoodie_is_deleted": at < deletes or None,
            }
            for at, n in enumerate(numbers)
        ]
        self.dice.shuffle(rows)
        return rows

    def insert(self, numbers: Iterable[int], options: dict[str, Any]) -> None:
        rows = self.batch(numbers)
        self._put(rows)
        self._done(self.table.insert(as_table(rows), options=options))

    def insert_new(self, numbers: Iterable[int]) -> None:
        rows = self.batch(numbers)
        self._put([row for row in rows if row["id"] not in self.rows])
        self._done(self.table.insert(as_table(rows), options=DROP_KNOWN))

    def upsert(self, numbers: Iterable[int], deletes: int = 0) -> None:
        rows = self.batch(numbers, deletes)
        known = len(self.rows.keys() & {row["id"] for row in rows if not row["_hoodie_is_deleted"]})
        new = sum(not row["_hoodie_is_deleted"] for row in rows) - known
        self._put(rows)
        result = self.table.upsert(as_table(rows))
        if self.kind == "cow":
            assert (result.inserted, result.updated) == (new, known)
        self._done(result)

    def delete(self, numbers: Iterable[int]) -> None:
        keys = [key(n) for n in numbers]
        before = len(self.rows)
        self.rows = {k: row for k, row in self.rows.items() if k not in keys}
        result = self.table.delete(keys)
        if self.kind == "cow":
            assert result.deleted == before - len(self.rows)
        self._done(result)

    def delete_where(self) -> None:
        low = sorted(v for _, _, v in self.rows.values())[-3]
        self.rows = {k: row for k, row in self.rows.items() if row[2] < low}
        self._done(self.table.delete(where=f"v >= {low}"))

    def use(self, other: str) -> None:
        if other == self.index:
            return
        if {self.index, other} == {"record", "record_level_index"}:
            # the two are one partition of the metadata table: what the message says is done
            with pytest.raises(InvalidOption, match=r"t\.indexes\.drop\('record_index'\), after"):
                self.table.indexes.use(other)
            self.table.indexes.use("simple")
            self.table.indexes.drop("record_index")
        self.table.indexes.use(other, buckets=3 if other == "bucket" else 2 if other in HASHED else None)
        self.index = other

    def serve(self) -> None:
        """What the table's services do to its files."""
        if self.kind == "mor":
            if self.dice.random() < 0.5:
                self.table.maintenance.compact(logs=True, options={"hoodie.log.compaction.blocks.threshold": 2})
                self.check_keys()
            self.table.maintenance.compact()
        if self.index == "bucket":
            self.table.maintenance.rescale(self.dice.choice([1, 2, 4]))
        elif self.index == "consistent":
            self.table.maintenance.cluster(options={"hoodie.parquet.max.file.size": 2_000})
        elif self.index != "bucket_groups":
            self.table.maintenance.cluster(self.dice.choice([None, ["v"]]) if not self.is_sorted else None)
        if self.dice.random() < 0.3:
            self.table.maintenance.clean(options={"hoodie.clean.commits.retained": 2})
            self.table.maintenance.archive(options={"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4})
            self.past = self.past[-1:]

    def _put(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["_hoodie_is_deleted"]:
                self.rows = {k: other for k, other in self.rows.items() if k != row["id"]}
            else:
                self.rows = {**self.rows, row["id"]: (row["id"], row["city"], row["v"])}

    def _done(self, result: lakebed.WriteResult) -> None:
        if result.instant:  # not of a delete that finds nothing
            self.past.append((result.instant, self.rows))

    # -- reads

    def check(self) -> None:
        """Everything that can be read, by the table opened before or by one opened now."""
        self.check_keys()
        table = self.dice.choice([self.table, lakebed.open(self.table.uri)])
        assert self._rows(table.scan()) == sorted(self.rows.values())
        assert table.scan().count() == len(self.rows)
        self.check_filters()
        self.check_changes()
        instant, rows = self.dice.choice(self.past)
        assert self._rows(self.table.scan(as_of=instant)) == sorted(rows.values())

    def check_keys(self) -> None:
        """Lookups of few and of many keys: below, inside and above those that there are, known and not known."""
        for numbers in ([self.dice.randrange(95)], [3, 39, 91, 42, 43], range(100)):
            keys = [key(n) for n in numbers] + ["", "é"] * (len(numbers) > 1)
            self.dice.shuffle(keys)
            known = sorted(self.rows[k] for k in keys if k in self.rows)
            assert sorted(as_row(row) for row in self.table.get(keys).to_pylist()) == known
            assert self.table.exists(keys).to_pylist() == [k in self.rows for k in keys]
            assert sorted(self.table.locate(keys).column("key").to_pylist()) == [row[0] for row in known]

    def check_filters(self) -> None:
        values = sorted(v for _, _, v in self.rows.values())
        low, high = values[len(values) // 3], values[-5]
        some = [key(n) for n in range(25, 45)]
        filters = {
            f"v >= {low} and v < {high}": lambda row: low <= row[2] < high,
            f"id = '{key(42)}'": lambda row: row[0] == key(42),
            f"id in ({', '.join(map(repr, some))})": lambda row: row[0] in some,
            f"(id = '{key(34)}' or v = {high}) and city <> 'rome'": lambda row: (
                (row[0] == key(34) or row[2] == high) and row[1] != "rome"
            ),
            f"id > '{key(60)}' or note = 'same'": lambda row: row[0] > key(60) or self._number(row) % 5 == 2,
        }
        for text, holds in self.dice.sample(list(filters.items()), 3):
            assert self._rows(self.table.scan(where=text)) == sorted(filter(holds, self.rows.values())), text

    def check_changes(self) -> None:
        changed = self.table.changes(self.checkpoint)
        since = self.past if self.checkpoint == "000" else [one for one in self.past if one[0] > self.checkpoint]
        stored = self.table.scan(meta=True).to_arrow().to_pylist()
        instants = {instant for instant, _ in since}
        expected = sorted(as_row(r) for r in stored if self.checkpoint == "000" or r["_hoodie_commit_time"] in instants)
        assert sorted(as_row(row) for row in changed.to_arrow().to_pylist()) == expected
        self.checkpoint = changed.end

    def _rows(self, scan: Any) -> list[Row]:
        return sorted(as_row(row) for row in scan.to_arrow().to_pylist())

    @staticmethod
    def _number(row: Row) -> int:
        return int(row[0][1:4])


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def as_row(row: Mapping[str, Any]) -> Row:
    return row["id"], row["city"], row["v"]

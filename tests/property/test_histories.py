"""Random histories of a table against a dict: every operation, index and version, on the in-process engine."""

from __future__ import annotations

import itertools
from copy import deepcopy
from functools import partial
from typing import Any, Literal

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import lakebed
from lakebed.errors import UnsupportedFeature
from lakebed.format.hashes import bucket_ids
from property.model import DictTable, LoggedTable, RingTable, as_tuple
from support.sampling import so_many

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("v", pa.int64()),
        ("ts", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
INDEXES = [
    "bucket",
    "simple",
    "global_simple",
    "global_simple_stay",
    "bloom",
    "global_bloom",
    "global_bloom_stay",
    "record",
    "record_move",
    "record_level_index",
    "consistent",
    "bucket_groups",
]
# The file group of a key follows from its hash.
HASHED = ("bucket", "consistent", "bucket_groups")
CITIES = ("oslo", "rome", "é/x")
# How many keys are asked for at once: few are searched one by one, more by their ranges.
ASKED = (4, 4, 4, 1, 2, 999, 1_000, 1_001, 5_000)
DROP_KNOWN = {"hoodie.datasource.write.insert.drop.duplicates": True}
_numbers = itertools.count()

rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 25),
        "city": st.sampled_from(CITIES),
        "v": st.integers(0, 99),
        "ts": st.integers(0, 9),
        "_hoodie_is_deleted": st.sampled_from([False, False, False, None, True]),
    }
)
batches = st.lists(rows, min_size=1, max_size=30)


def distinct(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A batch with each key once, in one place: operations that do not combine would keep both."""
    return list({r["id"]: {**r, "_hoodie_is_deleted": False} for r in batch}.values())


def bucket_of(buckets: int, number: int) -> int:
    return int(bucket_ids(pa.array([str(number)]), ("id",), buckets)[0])


class History(RuleBasedStateMachine):
    """One table; each rule is one write, each invariant a way to read it."""

    @initialize(
        index=st.sampled_from(INDEXES),
        version=st.sampled_from([9, 8, 6]),
        partitioned=st.booleans(),
        event_time=st.booleans(),
        buckets=st.integers(1, 5),
        sort=st.sampled_from(["key", "none"]),
        kind=st.sampled_from(["cow", "mor"]),
        logs=st.sampled_from(["avro", "parquet"]),
        asked=st.sampled_from(ASKED),
    )
    def create(
        self,
        index: str,
        version: int,
        partitioned: bool,
        event_time: bool,
        buckets: int,
        sort: str,
        kind: Literal["cow", "mor"],
        logs: str,
        asked: int,
    ) -> None:
        if index == "record_level_index" and version < 9:
            index = "record"  # only version 9 has one for each partition path
        if index == "consistent":
            kind = "mor"
        is_global = index.startswith("global") or index in ("record", "record_move")
        options = {"hoodie.datasource.write.partitionpath.urlencode": True}
        if index.endswith("_stay"):
            looked_up = index.removesuffix("_stay").removeprefix("global_")
            options[f"hoodie.{looked_up}.index.update.partition.path"] = False
        if index == "record_move":
            options["hoodie.record.index.update.partition.path"] = True
        self.table = lakebed.create(
            f"memory://histories/t{next(_numbers)}",
            SCHEMA,
            key="id",
            partition_by="city" if partitioned else None,
            ordering="ts",
            type=kind,
            merge="event_time" if event_time else "commit_time",
            index="record" if index == "record_move" else index.removesuffix("_stay"),
            indexes=["bloom_filters", *(["v"] if index.startswith("record") and is_global and version > 6 else [])],
            buckets=buckets if index in HASHED else None,
            table_version=version,
            properties=options
            | {
                "lakebed.sort": sort,
                "hoodie.compact.inline": False,
                "hoodie.logfile.data.block.format": logs,
            },
        )
        if version == 9:
            self.table.indexes.create("city_length", column="city", function="length")
            few = {"numentries": 20, "fpp": 0.01}
            self.table.indexes.create(
                "unix", column="ts", function="from_unixtime", function_options=few, kind="bloom_filters"
            )
            self.table = lakebed.open(self.table.uri)
        self.is_global = is_global
        self.asked = asked
        self.buckets = index == "bucket"
        # what is appended without a look at the stored row counts as an update or a delete, whatever comes of it
        self.counts_rows = kind == "cow" or (index not in ("bucket", "consistent") and not event_time)
        self.sorts = sort == "key" and kind == "cow"
        self.stays = (index.endswith("_stay") or index == "record") and partitioned
        self.logs_rows = kind == "mor"
        # where rows are compared, what a split leaves behind depends on which buckets it took
        self.resizes = index == "consistent" and not event_time
        if self.logs_rows and index == "bucket":
            # a log remembers what a base file forgets; under other indexes a key that was deleted is a new one
            of_key = partial(bucket_of, buckets)
            self.model = LoggedTable(event_time, partitioned=partitioned, bucket_of=of_key, dated_deletes=True)
        elif index == "consistent":
            self.model = RingTable(event_time, partitioned=partitioned, dated_deletes=True)
        else:
            self.model = DictTable(
                event_time=event_time,
                is_global=is_global,
                moves=index in ("global_simple", "global_bloom", "record_move") and partitioned,
                partitioned=partitioned,
            )
        self.past: list[tuple[str, list[tuple[Any, ...]]]] = []
        self.checkpoint = "000"

    def _done(self, result: lakebed.WriteResult) -> None:
        if result.instant:  # not of a delete that finds nothing
            self.past.append((result.instant, self.model.state()))
        self.last = result

    def _run_plans(self) -> None:
        """What replaces file groups is refused while a clustering of theirs is pending."""
        if self.resizes:
            self.table.maintenance.cluster(options={"hoodie.bucket.index.max.num.buckets": 1})

    @rule(batch=batches)
    def upsert(self, batch: list[dict[str, Any]]) -> None:
        before = set(self.model.rows)
        self.model.upsert(batch)
        result = self.table.upsert(pa.Table.from_pylist(batch, SCHEMA))
        if self.counts_rows:
            assert result.inserted is not None
            assert result.deleted is not None
            assert len(self.model.rows) - len(before) == result.inserted - result.deleted
        self._done(result)

    @rule(batch=batches)
    def insert_new(self, batch: list[dict[str, Any]]) -> None:
        plain = distinct(batch)
        self.model.insert_new(plain)
        self._done(self.table.insert(pa.Table.from_pylist(plain, SCHEMA), options=DROP_KNOWN))

    @rule(batch=batches)
    def bulk_insert_new(self, batch: list[dict[str, Any]]) -> None:
        fresh = [r for r in distinct(batch) if self.model.find(r) is None]
        if not fresh:
            return
        self.model.insert_new(fresh)
        self._done(self.table.bulk_insert(pa.Table.from_pylist(fresh, SCHEMA)))

    @rule(batch=batches, commits=st.booleans())
    def stage(self, batch: list[dict[str, Any]], commits: bool) -> None:
        """Its own reads show the upsert, others do not; without a commit nothing happened."""
        before, after = self.model, deepcopy(self.model)
        after.upsert(batch)
        with self.table.stage() as staged:
            staged.upsert(pa.Table.from_pylist(batch, SCHEMA))
            assert sorted(map(as_tuple, staged.scan().to_arrow().to_pylist())) == after.state()
            assert staged.count(where="v >= 50") == sum(row[2] >= 50 for row in after.state())
            held = {p[1] for p in after.rows}
            assert staged.exists([7, 3, 0, 29]).to_pylist() == [i in held for i in (7, 3, 0, 29)]
            assert sorted(map(as_tuple, self.table.scan().to_arrow().to_pylist())) == before.state()
            if commits:
                self.model = after
                self._done(staged.commit())

    @rule(ids=st.lists(st.integers(0, 30), min_size=1, max_size=8))
    def delete_ids(self, ids: list[int]) -> None:
        held = len(self.model.rows)
        self.model.delete_ids(ids)
        result = self.table.delete(ids)
        assert not self.counts_rows or result.deleted == held - len(self.model.rows)
        self._done(result)

    @precondition(lambda self: self.asked >= 999)
    @rule(first=st.integers(0, 25))
    def delete_many_ids(self, first: int) -> None:
        self.delete_ids([*range(first, 26), *range(1_000, 1_000 + self.asked - 26 + first)])

    @precondition(lambda self: self.asked in (999, 1_001) and len(self.model.rows) < 100)
    @rule(city=st.sampled_from(CITIES), first=st.integers(0, 25))
    def upsert_many(self, city: str, first: int) -> None:
        """Known keys and so many new ones that a request of all of them is a large one."""
        numbers = range(first, first + self.asked)
        self.upsert([{"id": n, "city": city, "v": n % 50, "ts": n % 10, "_hoodie_is_deleted": None} for n in numbers])

    @rule(low=st.integers(50, 99))
    def delete_where(self, low: int) -> None:
        held = len(self.model.rows)
        self.model.delete_where(low)
        result = self.table.delete(where=f"v >= {low}")
        assert result.deleted == held - len(self.model.rows)
        self._done(result)

    @precondition(lambda self: not self.is_global and bool(self.past))
    @rule(batch=batches)
    def merge(self, batch: list[dict[str, Any]]) -> None:
        """Known keys get the sum of both values, new ones come in addition."""
        source = [row | {"_hoodie_is_deleted": None} for row in distinct(batch)]
        rows, known = [], 0
        for row in source:
            found = self.model.find(row)
            known += found is not None
            stored = None if found is None else self.model.rows[found]
            rows.append(row if stored is None else stored | {"v": stored["v"] + row["v"]})
        self.model.upsert(rows)
        on = ["id", "city"] if self.model.partitioned else ["id"]
        merge = self.table.merge(pa.Table.from_pylist(source, SCHEMA), on)
        done = merge.when_matched_update({"v": "t.v + s.v"}).when_not_matched_insert().execute()
        assert (done.updated, done.inserted, done.path) == (known, len(source) - known, "key")
        self._done(done)

    @precondition(lambda self: bool(self.past))
    @rule(high=st.integers(0, 60))
    def update(self, high: int) -> None:
        changed = [row | {"v": row["v"] + 1} for row in self.model.rows.values() if row["v"] < high]
        self.model.upsert(changed)
        done = self.table.update({"v": "v + 1"}, where=f"v < {high}")
        assert done.updated == len(changed)
        self._done(done)

    @precondition(lambda self: not self.is_global)
    @rule(batch=batches, whole=st.booleans())
    def overwrite(self, batch: list[dict[str, Any]], whole: bool) -> None:
        self._run_plans()
        plain = distinct(batch)
        self.model.overwrite(plain, whole or not self.model.partitioned)
        scope = "table" if whole else "partitions"
        self._done(self.table.insert_overwrite(pa.Table.from_pylist(plain, SCHEMA), scope))

    @precondition(lambda self: self.model.partitioned and not self.stays and bool(self.model.rows))
    @rule(data=st.data())
    def drop_partition(self, data: st.DataObject) -> None:
        self._run_plans()
        city = data.draw(st.sampled_from(sorted({p[0] for p in self.model.rows})))
        self.model.drop_partition(city)
        self._done(self.table.delete_partitions([city.replace("/", "%2F")]))

    @precondition(lambda self: self.logs_rows and bool(self.past))
    @rule()
    def compact(self) -> None:
        if isinstance(self.model, LoggedTable):
            self.model.compact()
        self.table.maintenance.compact()

    @precondition(lambda self: self.resizes and bool(self.past))
    @rule(largest=st.integers(1000, 4000), least=st.integers(1, 3), planned=st.booleans())
    def resize(self, largest: int, least: int, planned: bool) -> None:
        """Buckets split and merge; what is only planned is run by a later call, with writes in between."""
        sizes = {"hoodie.bucket.index.max.num.buckets": 8, "hoodie.bucket.index.min.num.buckets": least}
        options = {**sizes, "hoodie.parquet.max.file.size": largest, "hoodie.bucket.index.merge.threshold": 1.5}
        self.table.maintenance.cluster(plan_only=planned, options=options)

    @precondition(lambda self: self.logs_rows and bool(self.past))
    @rule()
    def compact_logs(self) -> None:
        self.table.maintenance.compact(logs=True, options={"hoodie.log.compaction.blocks.threshold": 2})

    @precondition(lambda self: self.buckets)
    @rule(buckets=st.integers(1, 8))
    def rescale(self, buckets: int) -> None:
        done = self.table.maintenance.rescale(buckets)
        if done.instant is None:
            return
        if isinstance(self.model, LoggedTable):
            self.model.rescale(partial(bucket_of, buckets))
        self.past.append((done.instant, self.model.state()))

    @precondition(lambda self: bool(self.past))
    @rule(deep=st.booleans(), batch=batches)
    def clone(self, deep: bool, batch: list[dict[str, Any]]) -> None:
        """A clone has the rows of the table, and what is written to it stays there."""
        try:
            trial = self.table.clone(f"{self.table.uri}-clone", deep=deep, progress=False)
        except UnsupportedFeature:
            assert not deep
            return
        assert sorted(map(as_tuple, trial.scan().to_arrow().to_pylist())) == self.model.state()
        fresh = [row for row in distinct(batch) if self.model.find(row) is None]
        trial.delete(where="v < 50")
        trial.upsert(pa.Table.from_pylist(fresh, SCHEMA))
        kept = [row for row in self.model.state() if row[2] >= 50]
        assert sorted(map(as_tuple, trial.scan().to_arrow().to_pylist())) == sorted([*kept, *map(as_tuple, fresh)])
        lakebed.drop(trial.uri)
        for saved in self.table.savepoints.list():
            self.table.savepoints.delete(saved.instant)

    @invariant()
    def scan_agrees(self) -> None:
        assert sorted(map(as_tuple, self.table.scan().to_arrow().to_pylist())) == self.model.state()

    @invariant()
    def counts_agree(self) -> None:
        """Numbers of rows, least and greatest values, which may come from what is recorded of files."""
        states = [(self.table, None, self.model.state())]
        states += [(self.table, *self.past[len(self.past) // 2])] if self.past else []
        for table, instant, rows in states:
            scan = table.scan(as_of=instant)
            values = [row[2] for row in rows]
            found: Any = lakebed.sql("select count(*) as n, min(v) as a, max(v) as b from t", tables={"t": scan})
            assert scan.count() == len(rows)
            assert found.to_pylist() == [
                {"n": len(rows), "a": min(values, default=None), "b": max(values, default=None)}
            ]
            for city in CITIES:
                matching = sum(row[1] == city for row in rows)
                assert table.scan(where=f"city = '{city}'", as_of=instant).count() == matching

    @invariant()
    def lookups_agree(self) -> None:
        some = [7, 3, 0, 29][: self.asked]
        ids = [*some, *range(30, 30 + self.asked - len(some))]
        held = {p[1] for p in self.model.rows}
        assert self.table.exists(ids).to_pylist() == [i in held for i in ids]
        wanted = [as_tuple(r) for p, r in self.model.rows.items() if p[1] in ids]
        assert sorted(map(as_tuple, self.table.get(ids).to_pylist())) == sorted(wanted)

    @invariant()
    def files_are_sorted(self) -> None:
        if not self.sorts:
            return
        rows = self.table.scan(columns=["_hoodie_file_name", "_hoodie_record_key"]).to_arrow().to_pylist()
        for _, held in itertools.groupby(rows, lambda row: row["_hoodie_file_name"]):
            keys = [row["_hoodie_record_key"] for row in held]
            assert keys == sorted(keys)

    @invariant()
    def indexes_agree(self) -> None:
        found = self.table.indexes.verify()
        assert found.ok, found

    @invariant()
    def changes_agree(self) -> None:
        """What was written since the last look, by the commit time stored in the rows."""
        if not self.past:
            return
        changed = self.table.changes(self.checkpoint)
        got = sorted(map(as_tuple, changed.to_arrow().to_pylist()))
        stored = self.table.scan(meta=True).to_arrow().to_pylist()
        since = {instant for instant, _ in self.past[self.seen :]} if self.checkpoint != "000" else None
        wanted = [as_tuple(r) for r in stored if since is None or r["_hoodie_commit_time"] in since]
        assert got == sorted(wanted)
        self.checkpoint, self.seen = changed.end, len(self.past)

    @invariant()
    def the_past_stays(self) -> None:
        if not self.past:
            return
        instant, state = self.past[len(self.past) // 2]
        got = self.table.scan(as_of=instant).to_arrow().to_pylist()
        assert sorted(map(as_tuple, got)) == state


TestHistories = History.TestCase
TestHistories.settings = settings(
    max_examples=so_many(40, small=3),
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

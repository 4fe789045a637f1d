"""Writes of merge-on-read tables: what goes where, what is read for it, what is counted, and writers that cross."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidOption, InvalidRecord
from lakebed.format.hashes import bucket_ids
from lakebed.model import Action
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage
from property.crossing import Change, Model, Write, Writer, held_writers
from support.write_tables import content, files, last_commit, refused, rows

Make = Callable[..., Table]
INDEXES = ("bucket", "simple", "global_simple", "record")
NON_BLOCKING = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
FIRST = [(n, f"c{n % 2}", "a", 1) for n in range(12)]


@pytest.fixture
def mor(make: Make) -> Make:
    return lambda **given: make(type="mor", **given)


def data_files(table: Table) -> tuple[list[str], list[str]]:
    """Paths of base files and log files."""
    paths = [p for p in files(table.uri) if not p.startswith(".hoodie") and "hoodie_partition" not in p]
    return [p for p in paths if p.endswith(".parquet")], [p for p in paths if ".log." in p]


@pytest.mark.parametrize(("index", "version"), list(product(INDEXES, (9, 8, 6))))
def test_every_verb_under_every_index(mor: Make, index: str, version: int) -> None:
    table = mor(index=index, table_version=version)
    assert table.upsert(rows(*FIRST)).inserted == 12
    bases, logs = data_files(table)
    assert (len(bases) >= 2, logs) == (True, [])
    result = table.upsert(rows((0, "c0", "b", 2), (1, "c1", "b", 2), (2, "c0", "old", 0)))
    assert (result.updated, result.inserted) == ((None, None) if index == "bucket" else (3, 0))
    after, logs = data_files(table)
    assert after == bases
    assert len(logs) == 2 if index != "bucket" else 2 <= len(logs) <= 3
    model = {r[0]: r for r in FIRST} | {0: (0, "c0", "b", 2), 1: (1, "c1", "b", 2)}
    assert content(table) == sorted(model.values())
    assert table.delete([3, 4]).deleted == 2
    assert table.delete(where="v = 'b' and city = 'c1'").deleted == 1
    model = {k: r for k, r in model.items() if k not in (1, 3, 4)}
    assert content(table) == sorted(model.values())
    table.insert(rows((50, "c0", "new", 1), (51, "c9", "new", 1)))
    table.upsert(rows((0, "c0", "c", 3), (60, "c1", "new", 1)))
    model |= {50: (50, "c0", "new", 1), 51: (51, "c9", "new", 1), 0: (0, "c0", "c", 3), 60: (60, "c1", "new", 1)}
    assert content(table) == sorted(model.values())
    table.bulk_insert(rows((70, "c0", "bulk", 1)))
    table.insert_overwrite(rows((80, "c1", "over", 1)))
    model = {k: r for k, r in model.items() if r[1] != "c1"} | {70: (70, "c0", "bulk", 1), 80: (80, "c1", "over", 1)}
    assert content(table) == sorted(model.values())
    table.delete_partitions(["c0"])
    assert content(table) == [r for r in sorted(model.values()) if r[1] != "c0"]
    assert table.indexes.verify().ok
    actions = {i.action for i in table.timeline if i.is_completed}
    assert actions - {Action.COMMIT} == {Action.DELTACOMMIT, Action.REPLACECOMMIT}


@pytest.mark.parametrize(("index", "version"), list(product(("bucket", "record"), (9, 8, 6))))
def test_updates_and_deletes_without_a_lookup_read_no_data_file(mor: Make, uri: str, index: str, version: int) -> None:
    table = mor(index=index, table_version=version, partition_by=None)
    table.upsert(rows(*FIRST))
    counted: list[CountingStorage] = []

    def count(inner: Any) -> Any:
        counted.append(CountingStorage(inner))
        return counted[-1]

    with wrapping(count):
        opened = lakebed.open(uri)
        opened.upsert(rows((0, "c0", "b", 2), (5, "c1", "b", 2)))
        opened.delete([3, 4], options={"lakebed.delete.lookup": False})
    opened_files = [path for storage in counted for path in storage.opened]
    assert [path for path in opened_files if not path.startswith(".hoodie")] == []
    assert len(content(table)) == 10


@pytest.mark.parametrize("kind", ["mor", "cow"])
@pytest.mark.parametrize("version", [9, 6])
def test_keys_without_their_partition_are_looked_for_in_their_buckets_alone(
    make: Make, uri: str, kind: str, version: int
) -> None:
    table = make(type=kind, index="bucket", buckets=4, table_version=version)
    stored = [(n, f"c{n % 3}", "a", 1) for n in range(60)] + [(7, "c2", "a", 1)]
    for _ in range(2):
        table.upsert(rows(*stored))
    bucket = f"{int(bucket_ids(pa.array(['7']), ('id',), 4)[0]):08}"

    def looked_in(look: Callable[[Table], Any]) -> Any:
        """What a call gives; all data files that it opens are of the key's bucket."""
        counted: list[CountingStorage] = []

        def count(inner: Any) -> Any:
            counted.append(CountingStorage(inner))
            return counted[-1]

        with wrapping(count):
            found = look(lakebed.open(uri))
        opened = {path for storage in counted for path in storage.opened if not path.startswith(".hoodie")}
        assert opened
        assert {path.rpartition("/")[2].lstrip(".").partition("-")[0] for path in opened} == {bucket}
        assert {path.partition("/")[0] for path in opened} <= {"c0", "c1", "c2"}
        return found

    here = [(7, "c1", "a", 1), (7, "c2", "a", 1)]
    for look in (
        lambda t: t.get([7]),
        lambda t: t.scan(where="id = 7").to_arrow(),
        lambda t: t.scan(where="_hoodie_record_key = '7'").to_arrow(),
    ):
        assert sorted(tuple(row.values()) for row in looked_in(look).to_pylist()) == here
    assert looked_in(lambda t: t.exists([7])).to_pylist() == [True]
    assert looked_in(lambda t: t.locate([7])).num_rows == 2
    assert looked_in(lambda t: t.delete([7])).deleted == 2
    assert content(table) == [row for row in sorted(stored) if row[0] != 7]
    eleven = int(bucket_ids(pa.array(["11"]), ("id",), 4)[0])
    same = next(
        n for n in range(60) if n not in (7, 11) and int(bucket_ids(pa.array([str(n)]), ("id",), 4)[0]) == eleven
    )
    bucket = f"{eleven:08}"
    assert looked_in(lambda t: t.delete(pa.table({"id": [11, same]}))).deleted == 2
    assert content(table) == [row for row in sorted(stored) if row[0] not in (7, 11, same)]


@pytest.mark.parametrize("index", ["simple", "record"])
def test_the_smallest_file_without_logs_takes_new_rows_in(mor: Make, index: str) -> None:
    table = mor(index=index, partition_by=None, properties={"lakebed.small_files": "fill"})
    table.bulk_insert(rows(*((n, "c", "large " * 50, 1) for n in range(100))))
    table.bulk_insert(rows((200, "c", "small", 1), (201, "c", "small", 1)))
    before = {f.file_id: f for f in table.files}
    smallest = min(before.values(), key=lambda f: f.size)
    result = table.upsert(rows((0, "c", "b", 2), (200, "c", "b", 2), (300, "c", "new", 1)))
    assert (result.updated, result.inserted) == (2, 1)
    stats = {s.file_id: s for group in last_commit(table).stats.values() for s in group}
    assert set(stats) == set(before)
    rewritten = stats.pop(smallest.file_id)
    assert (rewritten.num_updates, rewritten.num_inserts, rewritten.log_version) == (1, 1, None)
    (appended,) = stats.values()
    assert (appended.num_updates, appended.log_version) == (1, 1)
    # the other file has logs now: it takes none in, and the first one is as good as before
    result = table.upsert(rows((301, "c", "new", 1)))
    assert [s.file_id for g in last_commit(table).stats.values() for s in g] == [smallest.file_id]
    assert len(content(table)) == 104
    assert table.indexes.verify().ok


def test_inserts_that_drop_or_refuse_known_keys_look_at_log_rows(mor: Make) -> None:
    table = mor(index="bucket")
    table.upsert(rows(*FIRST))
    table.delete([0])
    table.upsert(rows((20, "c0", "logged", 1)))
    given = rows((0, "c0", "again", 9), (2, "c0", "dropped", 9), (20, "c0", "dropped", 9))
    result = table.insert(given, options={"hoodie.datasource.write.insert.drop.duplicates": True})
    assert (result.unchanged, result.inserted, result.updated) == (2, 1, 0)
    assert content(table) == sorted([(0, "c0", "again", 9), (20, "c0", "logged", 1), *FIRST[1:]])
    with pytest.raises(InvalidRecord, match="in the table already"):
        table.insert(rows((20, "c0", "no", 9)), options={"hoodie.datasource.insert.dup.policy": "fail"})


def test_rows_move_between_partitions_by_a_delete_and_an_insert(mor: Make) -> None:
    table = mor(index="global_simple")
    table.upsert(rows(*FIRST))
    table.upsert(rows((0, "c1", "moved", 5), (1, "c0", "stays", 0)))
    assert content(table) == sorted([(0, "c1", "moved", 5), *FIRST[1:]])
    table.upsert(rows((0, "c0", "back", 6)))
    assert content(table) == sorted([(0, "c0", "back", 6), *FIRST[1:]])


ORDERINGS: list[tuple[pa.DataType, Sequence[Any]]] = [
    (pa.int32(), [5, 6, 7]),
    (pa.int64(), [-1, 0, 1]),
    (pa.float32(), [-0.5, 0.5, float("nan")]),
    (pa.float64(), [-1e300, 0.25, float("inf")]),
    (pa.decimal128(12, 5), [Decimal("-1.00001"), Decimal("0.00001"), Decimal("1234567.00000")]),
    (pa.string(), ["Z", "a", "é"]),
    (pa.bool_(), [False, True, True]),
    (pa.date32(), [datetime(1969, 12, 30), datetime(1969, 12, 31), datetime(2024, 5, 6)]),
    *(
        (pa.timestamp(unit, zone), [datetime(2024, 5, 6), datetime(2024, 5, 6, 0, 0, 1), datetime(2030, 1, 1)])
        for unit in ("ms", "us", "ns")
        for zone in (None, "UTC")
    ),
]


@pytest.mark.parametrize("several", [False, True], ids=["alone", "beside another"])
@pytest.mark.parametrize(("kind", "values"), ORDERINGS, ids=[str(kind) for kind, _ in ORDERINGS])
def test_a_row_outlives_an_older_delete_whatever_the_type_of_its_ordering_values(
    mor: Make, kind: pa.DataType, values: Sequence[Any], several: bool
) -> None:
    first, second, third = values

    def row(at: Any, deleted: bool) -> pa.Table:
        named = {"id": pa.array([1]), "at": pa.array([at], kind), "n": pa.array([1])}
        return pa.table({**named, "_hoodie_is_deleted": pa.array([deleted])})

    ordering = ["at", "n"] if several else "at"
    table = mor(schema=row(first, False).schema, partition_by=None, ordering=ordering, index="bucket", buckets=1)
    table.upsert(row(first, False))
    table.upsert(row(second, False))
    table.upsert(row(first, True))
    assert len(data_files(table)[1]) == 2
    assert table.scan(["n"]).to_arrow().to_pylist() == [{"n": 1}]
    table.upsert(row(third, True))
    assert table.count() == 0


def test_explain_says_what_is_appended(mor: Make) -> None:
    table = mor(index="bucket")
    table.upsert(rows(*FIRST))
    plan = table.explain(upsert=rows((0, "c0", "b", 2)))
    assert (plan.appended, plan.rewritten, plan.to_dict()["file_groups_appended"]) == (1, 0, 1)
    assert "1 appended to" in str(plan)
    assert "append: 1 row" in str(plan)


class TestNonBlocking:
    @pytest.fixture
    def crossing(self) -> Callable[..., list[BaseException | None]]:
        """Begins writes in their order, commits them the other way round, and gives what they raised."""

        def crossed(uri: str, *given: tuple[pa.Table, dict[str, Any]]) -> list[BaseException | None]:
            model = Model(False)

            def write(data: pa.Table, options: dict[str, Any]) -> Write:
                return Write("upsert", lambda t: t.upsert(data, options=options), lambda _: Change())

            with held_writers():
                writers = [Writer(uri, write(*one)) for one in given]
                for writer in writers:
                    writer.step(model)
                    writer.step(model)
                for writer in reversed(writers):
                    writer.step(model)
            return [writer.error for writer in writers]

        return crossed

    @pytest.mark.parametrize("version", [9, 8])
    def test_writers_of_the_same_file_groups_both_commit(self, mor: Make, crossing: Any, version: int) -> None:
        table = mor(index="bucket", table_version=version, buckets=1)
        one = rows((0, "c0", "one", 3), (1, "c0", "one", 1), (2, "c0", "one", 1))
        two = rows((0, "c0", "two", 2), (1, "c0", "two", 2), (3, "c0", "two", 1))
        assert crossing(table.uri, (one, NON_BLOCKING), (two, NON_BLOCKING)) == [None, None]
        bases, logs = data_files(table)
        assert (bases, len(logs)) == ([], 2)
        assert {path.rpartition("/")[2].split("_")[0] for path in logs} == {".00000000-0000-0000-0000-000000000000-0"}
        first = [(0, "c0", "one", 3), (1, "c0", "two", 2), (2, "c0", "one", 1), (3, "c0", "two", 1)]
        assert content(table) == first
        three, four = rows((0, "c0", "three", 9)), rows((0, "c0", "four", 8), (5, "c1", "four", 1))
        assert crossing(table.uri, (three, NON_BLOCKING), (four, NON_BLOCKING)) == [None, None]
        assert content(table) == sorted([(0, "c0", "three", 9), *first[1:], (5, "c1", "four", 1)])
        table.upsert(rows((0, "c0", "last", 10)))
        assert content(table)[0] == (0, "c0", "last", 10)
        assert table.indexes.verify().ok

    def test_inserts_of_a_new_file_group_are_counted_as_such(self, mor: Make) -> None:
        table = mor(index="bucket", buckets=1)
        result = table.upsert(rows((0, "c0", "a", 1)), options=NON_BLOCKING)
        assert (result.inserted, result.updated) == (1, 0)
        result = table.upsert(rows((0, "c0", "b", 2), (1, "c0", "b", 2)), options=NON_BLOCKING)
        assert (result.rows, result.inserted, result.updated) == (2, None, None)
        assert content(table) == [(0, "c0", "b", 2), (1, "c0", "b", 2)]

    def test_a_writer_that_is_not_waits_for_its_turn(self, mor: Make, crossing: Any) -> None:
        table = mor(index="bucket", buckets=1)
        table.upsert(rows((0, "c0", "a", 1)))
        one, two = rows((0, "c0", "one", 2)), rows((0, "c0", "two", 3))
        error, none = crossing(table.uri, (one, {}), (two, NON_BLOCKING))
        assert isinstance(error, CommitConflict)
        assert none is None
        assert content(table) == [(0, "c0", "two", 3)]

    def test_no_row_is_appended_to_an_overwritten_file_group(self, mor: Make) -> None:
        table = mor(index="bucket", buckets=1)
        table.upsert(rows((0, "c0", "a", 1)))
        model = Model(False)
        appended = Write(
            "upsert", lambda t: t.upsert(rows((0, "c0", "b", 2)), options=NON_BLOCKING), lambda _: Change()
        )
        with held_writers():
            writer = Writer(table.uri, appended)
            writer.step(model)
            writer.step(model)
        lakebed.open(table.uri).insert_overwrite(rows((1, "c0", "over", 1)))
        with held_writers():
            writer.step(model)
        assert isinstance(writer.error, CommitConflict)
        assert content(table) == [(1, "c0", "over", 1)]

    @pytest.mark.parametrize(
        "words",
        [
            {"index": "simple", "type": "mor"},
            {"index": "bucket"},
            {"index": "bucket", "type": "mor", "table_version": 6},
        ],
        ids=str,
    )
    def test_other_tables_refuse_such_writers(self, make: Make, uri: str, words: dict[str, Any]) -> None:
        table = make(**words)
        with refused(uri, InvalidOption, "non-blocking", "OPTIMISTIC_CONCURRENCY_CONTROL"):
            table.upsert(rows((0, "c0", "a", 1)), options=NON_BLOCKING)

    def test_indexes_of_keys_and_such_writers_do_not_go_together(self, mor: Make, uri: str) -> None:
        table = mor(index="bucket", indexes=["record_index"], partition_by=None)
        table.upsert(rows((0, "c0", "a", 1)))
        with refused(uri, InvalidOption, "record_index"):
            table.upsert(rows((0, "c0", "a", 1)), options=NON_BLOCKING)


@pytest.mark.parametrize("version", [9, 8, 6])
def test_parquet_log_blocks_hold_keys_of_one_length_with_nothing_in_common(version: int) -> None:
    """UUIDs are stored with their lengths apart, and are no dictionary."""
    random = Random(1)
    keys = [str(uuid.UUID(int=random.getrandbits(128))) for _ in range(100)]
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = lakebed.create(
        f"memory://uuid-keys-{version}",
        schema,
        key="id",
        type="mor",
        index="bucket",
        buckets=1,
        table_version=version,
        properties={"hoodie.logfile.data.block.format": "parquet", "hoodie.compact.inline": False},
    )
    table.insert(pa.table({"id": keys[:50], "v": pa.nulls(50, pa.int64())}))
    table.upsert(pa.table({"id": keys, "v": range(100)}))
    rows = table.scan().to_arrow().to_pylist()
    assert sorted((row["v"], row["id"]) for row in rows) == list(enumerate(keys))
    assert table.get(keys[60:62]).num_rows == 2
    table.maintenance.compact()
    assert lakebed.open(table.uri).count() == 100
    MemoryStorage.drop(f"uuid-keys-{version}")

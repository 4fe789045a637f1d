"""Tables that look after themselves: after a write old files and old instants go by Hudi's defaults, in any kind of
table; where nothing is due a write asks storage for no more than without."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lakebed
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.errors import InvalidOption, StorageError
from lakebed.model import Action
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage
from lakebed.timeline.transitions import TimelineWriter
from support.cleaning_tables import data_files, timeline
from support.sampling import HISTORIES, todays
from support.storage_requests import before_requests
from support.write_tables import content, rows

Make = Callable[..., Table]
CITIES = "abc"


def put(table: Table, number: int) -> Any:
    return table.upsert(rows(*((k, city, f"{k}-{number}", number) for k, city in enumerate(CITIES))))


def after(number: int) -> list[tuple[Any, ...]]:
    return [(k, city, f"{k}-{number}", number) for k, city in enumerate(CITIES)]


@pytest.fixture
def bucket(make: Make) -> Make:
    def create(**given: Any) -> Table:
        return make(**({"index": "bucket", "buckets": 1} | given))

    return create


@pytest.mark.rest
@pytest.mark.parametrize(
    ("kind", "version"), todays([("cow", 9), ("mor", 8), ("cow", 6), ("mor", 9), ("mor", 6)], 4, HISTORIES)
)
def test_a_table_that_is_written_for_long_stays_as_it_is(kind: str, version: int, bucket: Make) -> None:
    counted: list[CountingStorage] = []

    def counting(inner: Storage) -> Storage:
        counted.append(CountingStorage(inner))
        return counted[-1]

    table = bucket(type=kind, table_version=version)
    first = put(table, 0)
    requests: list[int] = []
    lengths: list[int] = []
    files: list[int] = []
    for n in range(1, 66):
        if n % 13 in (4, 9):  # in the middle, and at the end
            counted.clear()
            with wrapping(counting):
                put(lakebed.open(table.uri), n)
            requests.append(sum(sum(one.counts.values()) for one in counted))
        else:
            put(table, n)
        lengths.append(len(timeline(table).instants))
        files.append(len(data_files(table)))
    assert max(lengths) <= 65
    assert max(lengths[40:]) <= max(lengths[:41]) + 2
    assert max(files) <= (36 if kind == "cow" else 60)
    assert max(files[30:]) <= max(files[:31])
    assert len({i.time for i in timeline(table).commits}) <= 31
    assert max(requests[6:]) <= 1.5 * max(requests[:6])  # with a compaction, an archival, or without
    _check(table, first, 65)


def _check(table: Table, first: Any, number: int) -> None:
    fresh = lakebed.open(table.uri)
    assert content(fresh) == after(number)
    assert sorted(tuple(r.values()) for r in fresh.get([0, 2]).to_pylist()) == [after(number)[0], after(number)[2]]
    verified = fresh.indexes.verify()
    assert verified.ok, verified
    # the first commits are archived, and their files are gone
    assert timeline(fresh).start > first.instant
    assert first.instant in {i.time for i in timeline(fresh).archived().instants}
    with pytest.raises(InvalidOption, match="cleaned away"):
        fresh.scan(as_of=first.instant)
    for one in timeline(fresh).commits[-8:]:
        assert fresh.scan(as_of=one.time).count() == len(CITIES)
    changed = fresh.changes(first.checkpoint)
    assert sorted(tuple(r.values()) for r in changed.to_arrow().to_pylist()) == after(number)
    assert fresh.changes(changed.end).count() == 0


@pytest.mark.rest
def test_a_write_with_nothing_due_makes_no_further_requests(bucket: Make) -> None:
    def requests(on: bool) -> list[Counter[str]]:
        properties = {"hoodie.clean.automatic": on, "hoodie.archive.automatic": on}
        table = bucket(properties=properties)
        found: list[Counter[str]] = []
        for n in range(14):
            counted: list[CountingStorage] = []

            def counting(inner: Storage, counted: list[CountingStorage] = counted) -> Storage:
                counted.append(CountingStorage(inner))
                return counted[-1]

            with wrapping(counting):
                table = lakebed.open(table.uri)
                table.insert(rows((100 + n, f"new{n}", "", 1)))
            found.append(sum((one.counts for one in counted), Counter[str]()))
        open_storage(table.uri).delete_folder("")
        return found

    requests(True)  # a process knows a place of tables better from the third commit on
    assert requests(True) == requests(False)


def test_a_table_remembers_what_is_kept_and_a_job_says_otherwise(bucket: Make) -> None:
    table = bucket(properties={"hoodie.clean.commits.retained": 1, "hoodie.archive.automatic": False})
    assert table.properties["lakebed.clean.commits.retained"] == "1"
    for n in range(4):
        done = put(table, n)
    assert any("files in 3 partitions deleted" in line for line in done.services)
    assert len(data_files(table)) == 6
    given = rows((0, "a", "kept", 9))
    assert table.upsert(given, options={"hoodie.clean.automatic": False}).services == ()
    assert table.upsert(given, options={"hoodie.table.services.enabled": False}).services == ()
    assert len(data_files(table)) == 8
    versions = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    table.upsert(given, options=versions)
    assert len(data_files(table)) == 3


def test_a_clean_that_fails_leaves_the_write_alone(bucket: Make, caplog: pytest.LogCaptureFixture) -> None:
    table = bucket(properties={"hoodie.clean.commits.retained": 1})
    put(table, 0)

    def refuse(verb: str, path: str) -> None:
        if verb == "delete" and path.endswith(".parquet") and not path.startswith("."):
            raise StorageError(f"{path} cannot be deleted")

    with caplog.at_level(logging.WARNING, logger="lakebed"), before_requests(refuse):
        without_right = lakebed.open(table.uri)
        for n in range(1, 4):
            put(without_right, n)
    assert "cleaning after it failed" in caplog.text
    assert content(table) == after(3)
    done = put(table, 4)  # carries out what is pending, and cleans on
    assert sum(line.startswith("clean ") for line in done.services) == 2
    assert timeline(table).pending == ()
    assert len(data_files(table)) == 6
    assert table.indexes.verify().ok


@pytest.mark.rest
def test_a_savepoint_stops_archival_and_keeps_its_files(bucket: Make) -> None:
    table = bucket()
    for n in range(3):
        put(table, n)
    saved = timeline(table).commits[1]
    table.savepoints.create(saved.time)
    for n in range(3, 40):
        put(table, n)
    now = timeline(table)
    assert now.start == now.commits[0].time or now.commits[0].time == saved.time
    assert saved.time in {i.time for i in now.commits}
    assert len(now.commits) == 39  # the one before it is archived
    held = table.maintenance.archive(dry_run=True)
    assert "it has a savepoint" in str(held)
    then = table.scan(as_of=saved.time).to_arrow().to_pylist()
    assert sorted(tuple(r.values()) for r in then) == after(1)
    table.savepoints.delete(saved.time)
    put(table, 40)
    assert len(timeline(table).commits) <= 31
    assert table.indexes.verify().ok
    assert content(table) == after(40)


@pytest.mark.rest
def test_pending_writes_and_replaced_files_hold_archival_back(bucket: Make) -> None:
    table = bucket(properties={"hoodie.clean.automatic": False, "hoodie.metadata.enable": False})
    for n in range(3):
        put(table, n)
    table.insert_overwrite(rows((0, "a", "over", 9)))
    overwrite = timeline(table).commits[-1]
    for n in range(4, 34):
        put(table, n)
    assert timeline(table).commits[0] == overwrite  # no clean has come to what it replaced
    storage, config = open_storage(table.uri), timeline(table).config
    table.maintenance.clean()
    put(table, 34)
    assert overwrite.time not in {i.time for i in timeline(table).commits}
    assert content(table) == after(34)
    time = str(int(timeline(table).greatest_time) + 1)
    with Heartbeat(storage, time, "alive"):
        TimelineWriter(storage, config).request(Action.COMMIT, time)
        before = timeline(table).commits[-1]
        for n in range(35, 75):
            put(table, n)
        assert before.time in {i.time for i in timeline(table).commits}
    assert content(table) == after(74)


@pytest.mark.rest
def test_change_logs_are_read_across_the_archive(bucket: Make) -> None:
    table = bucket(properties={"hoodie.table.cdc.enabled": True})
    first = put(table, 0)
    for n in range(1, 45):
        put(table, n)
    commits = timeline(table).commits
    late = commits[-4]
    found = lakebed.open(table.uri).cdc(str(late.completion_time)).to_arrow().to_pylist()
    assert sorted((r["op"], r["before"]["v"], r["after"]["v"]) for r in found) == sorted(
        ("u", f"{k}-{n - 1}", f"{k}-{n}") for n in range(42, 45) for k in range(3)
    )
    with pytest.raises(lakebed.LakebedError, match=r"clean|archiv"):
        lakebed.open(table.uri).cdc(first.checkpoint).to_arrow()


@pytest.fixture
def place() -> Iterator[str]:
    name = f"tidy-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


@pytest.mark.rest
def test_jobs_of_hudi_keep_their_tables_short_too(place: str) -> None:
    options = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.cleaner.commits.retained": "2",
        "hoodie.keep.min.commits": "4",
        "hoodie.keep.max.commits": "6",
    }
    for n in range(30):
        lakebed.write(rows(*after(n)), place, options)
    table = lakebed.open(place)
    assert len(timeline(table).commits) <= 16  # the metadata table is compacted every ten delta commits
    assert len(data_files(table)) == 9
    assert content(table) == after(29)

"""Partition TTL: what is over its time goes, nothing else does, whoever else is at work."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from lakebed.model import Action, State
from lakebed.operations.write import Write
from lakebed.services.partition_ttl import ExpirePartitions, expire_partitions
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.bodies.rollback import decode_action
from support.cleaning_tables import data_files, snapshot, timeline
from support.compaction_tables import log_files
from support.tables import context_of
from support.write_tables import SCHEMA, content, files, last_commit, rows

Make = Callable[..., Table]
BUCKET: dict[str, Any] = {
    "index": "bucket",
    "buckets": 1,
    "properties": {"hoodie.compact.inline": False, "hoodie.metadata.enable": False},
}
LISTED: dict[str, Any] = {"properties": {"hoodie.compact.inline": False}}
DAYS = "hoodie.partition.ttl.strategy.days.retain"
STRATEGY = "hoodie.partition.ttl.management.strategy.type"
INLINE = "hoodie.partition.ttl.inline"


@contextmanager
def day(number: int) -> Generator[None]:
    """In the block it is that day of November 2026."""
    with time_machine.travel(datetime(2026, 11, number, 12, tzinfo=UTC), tick=True):
        yield


def aged(make: Make, **given: Any) -> Table:
    """Partition a of day 1, written to on day 5; b of day 1; c of day 5."""
    with day(1):
        table = make(**(BUCKET | given))
        table.upsert(rows((1, "a", "a1", 1), (2, "b", "b1", 1)))
    with day(5):
        table.upsert(rows((1, "a", "a5", 5), (3, "c", "c5", 5)))
    return table


A, B, C = (1, "a", "a5", 5), (2, "b", "b1", 1), (3, "c", "c5", 5)


# -- what goes


@pytest.mark.parametrize(("index", "version"), [("bucket", 9), ("simple", 6), ("record", 9), ("record", 8)])
def test_a_partition_without_writes_expires(make: Make, index: str, version: int) -> None:
    given: dict[str, Any] = LISTED | {"index": index, "table_version": version}
    table = aged(make, **given, **({"buckets": None} if index != "bucket" else {}))
    past = timeline(table).commits[-1].time
    with day(7):
        assert table.maintenance.expire_partitions(5).paths.keys() == {"b"}
        assert content(table) == [A, C]
        assert table.get([1, 2, 3])["v"].to_pylist() == ["a5", "c5"]
        done = timeline(table).commits[-1]
        assert (done.action, done.state) == (Action.REPLACECOMMIT, State.COMPLETED)
        commit = last_commit(table)
        assert commit.operation == "DELETE_PARTITION"
        assert {path: len(ids) for path, ids in commit.replaced.items()} == {"b": 1}
        assert sorted(table.scan(as_of=past).to_arrow()["id"].to_pylist()) == [1, 2, 3]
        verified = table.indexes.verify()
        assert verified.ok, verified
        # its keys are new ones where they come again
        table.upsert(rows((2, "b", "b7", 7), (2, "c", "c7", 7)) if index != "record" else rows((2, "c", "c7", 7)))
    again = [(2, "b", "b7", 7)] if index != "record" else []
    assert content(table) == sorted([A, C, (2, "c", "c7", 7), *again])


def test_the_requested_instant_says_what_it_is(make: Make) -> None:
    table = aged(make)
    with day(7):
        done = table.maintenance.expire_partitions(5)
    storage = open_storage(table.uri)
    (path,) = [i.path for i in storage.list(".hoodie") if i.path.endswith(f"{done.instant}.replacecommit.requested")]
    assert decode_action(storage.read(path))["operationType"] == "DELETE_PARTITION"


def test_log_files_do_not_renew_a_partition(make: Make) -> None:
    table = aged(make, type="mor")
    assert log_files(table) == 1
    with day(7):
        done = table.maintenance.expire_partitions(5)
        assert done.paths.keys() == {"a", "b"}
        assert done.file_groups == 2
    assert content(table) == [C]


def test_a_compaction_renews_the_time_of_a_partition(make: Make) -> None:
    table = aged(make, type="mor", **LISTED)
    with day(5):
        table.maintenance.compact()
    with day(7):
        assert table.maintenance.expire_partitions(5).paths.keys() == {"b"}
    assert content(table) == [A, C]


def test_a_write_does_not_renew_a_partition_path_under_creation_time(make: Make) -> None:
    table = aged(make)
    first = timeline(table).commits[0].time
    with day(7):
        done = table.maintenance.expire_partitions(5, options={STRATEGY: "KEEP_BY_CREATION_TIME"})
    assert done.paths == {"a": first, "b": first}
    assert content(table) == [C]


def test_by_creation_time_a_path_without_a_date_stays(make: Make) -> None:
    table = aged(make)
    open_storage(table.uri).delete("b/.hoodie_partition_metadata")
    with day(7):
        done = table.maintenance.expire_partitions(5, options={STRATEGY: "KEEP_BY_CREATION_TIME"})
    assert done.paths.keys() == {"a"}
    assert content(table) == [B, C]


def test_only_selected_partition_paths_expire(make: Make) -> None:
    table = aged(make)
    with day(20):
        assert table.maintenance.expire_partitions(5, partitions=["c", "nowhere"]).paths.keys() == {"c"}
        assert content(table) == [A, B]
        selected = {"hoodie.partition.ttl.strategy.partition.selected": "a,d", DAYS: 5}
        assert table.maintenance.expire_partitions(options=selected).paths.keys() == {"a"}
    assert content(table) == [B]


def test_a_partition_path_with_a_comma_goes_alone_and_an_empty_list_is_refused(make: Make) -> None:
    table = aged(make)
    with day(6):
        table.upsert(rows((7, "a,b", "v", 1)))
    for call in (table.maintenance.expire_partitions, table.maintenance.cluster):
        with pytest.raises(InvalidOption, match=r"the list of partitions for (expire_partitions|cluster) is empty"):
            call(partitions=[])
    with day(20):
        assert table.maintenance.expire_partitions(5, partitions="").paths == {}
        assert table.maintenance.expire_partitions(5, partitions=["a,b"], dry_run=True).paths.keys() == {"a,b"}
        assert table.maintenance.expire_partitions(5, partitions="a,b").paths.keys() == {"a,b"}
    assert content(table) == [A, B, C]


def test_a_limited_number_of_partitions_expires_at_once_the_oldest_first(make: Make) -> None:
    table = aged(make)
    most = {"hoodie.partition.ttl.strategy.max.delete.partitions": 1}
    with day(20):
        gone = [list(table.maintenance.expire_partitions(5, options=most).paths) for _ in range(4)]
    assert gone == [["b"], ["a"], ["c"], []]
    assert content(table) == []


def test_a_deleted_partition_does_not_expire_again(make: Make) -> None:
    """Its folder and its files are there until a clean takes them."""
    table = aged(make)
    with day(20):
        assert len(table.maintenance.expire_partitions(5).paths) == 3
        assert any(path.startswith("b/") for path in data_files(table))
        before = files(table.uri)
        for strategy in ("KEEP_BY_TIME", "KEEP_BY_CREATION_TIME"):
            assert not table.maintenance.expire_partitions(5, options={STRATEGY: strategy}).paths
        assert files(table.uri) == before


def test_the_days_count_in_the_zone_of_the_table(make: Make) -> None:
    """Instants of a table in local time are hours off from UTC: what is young in its own zone stays."""
    table = aged(make, properties={"hoodie.table.timeline.timezone": "LOCAL"})
    with time_machine.travel(datetime(2026, 11, 6, 11, 59, tzinfo=UTC), tick=True):
        assert not table.maintenance.expire_partitions(5).paths
    with time_machine.travel(datetime(2026, 11, 6, 12, 1, tzinfo=UTC), tick=True):
        assert table.maintenance.expire_partitions(5).paths.keys() == {"b"}


def test_a_partition_path_that_one_of_two_clocks_takes_for_young_does_not_expire(make: Make) -> None:
    """Instants come after all others. Once the clock of a host was ahead they do not show how old a partition is, and
    what has expired does not come back."""
    table = aged(make)
    with day(25):
        table.upsert(rows((4, "d", "d25", 25)))
    for number in (1, 3):
        with day(number):
            assert not table.maintenance.expire_partitions(3).paths
    with day(6):
        done = table.maintenance.expire_partitions(3)
    assert done.paths.keys() == {"b"}
    assert done.instant > timeline(table).commits[-2].time
    assert content(table) == [A, C, (4, "d", "d25", 25)]


# -- when nothing goes


def test_an_expiry_of_no_partition_writes_no_instant(make: Make) -> None:
    table = aged(make)
    before = files(table.uri)
    with day(6):
        done = table.maintenance.expire_partitions(7)
        assert (done.paths, done.instant) == ({}, "")
        assert str(done) == "no partition path is older than 7 days"
        never = table.maintenance.expire_partitions()
        assert "hoodie.partition.ttl.strategy.days.retain" in str(never)
    assert files(table.uri) == before


def test_a_table_without_partitions_has_nothing_to_expire(make: Make) -> None:
    with day(1):
        table = make(**(BUCKET | {"partition_by": None}))
        table.upsert(rows((1, "a", "x", 1)))
    before = files(table.uri)
    with day(20):
        assert "has no partitions" in str(table.maintenance.expire_partitions(5))
        assert files(table.uri) == before
        table.upsert(rows((2, "b", "y", 2)), options={INLINE: True, DAYS: 5})
    assert content(table) == [(1, "a", "x", 1), (2, "b", "y", 2)]


def test_a_dry_run_reports_and_changes_nothing(make: Make) -> None:
    table = aged(make)
    before = files(table.uri)
    with day(7):
        done = table.maintenance.expire_partitions(5, dry_run=True)
    assert str(done) == "would expire 1 partition path of 1 file group: 'b'"
    assert files(table.uri) == before


def test_a_table_that_cannot_be_kept_right_is_refused(make: Make) -> None:
    with day(1):
        table = make(
            **(BUCKET | {"properties": {"hoodie.populate.meta.fields": False}, "index": "simple", "buckets": None})
        )
        table.insert(rows((1, "a", "x", 1)))
    before = files(table.uri)
    with day(20), pytest.raises(UnsupportedFeature, match="delete_partition"):
        table.maintenance.expire_partitions(5)
    assert files(table.uri) == before


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({DAYS: "long"}, InvalidOption),
        ({STRATEGY: "KEEP_FOR_FUN"}, InvalidOption),
        ({STRATEGY: "CUSTOM"}, UnsupportedFeature),
        ({"hoodie.partition.ttl.strategy.class": "org.example.Mine"}, UnsupportedFeature),
    ],
)
def test_other_ways_are_refused_by_name(make: Make, given: dict[str, str], error: type[Exception]) -> None:
    table = make(**BUCKET)
    with pytest.raises(error):
        table.maintenance.expire_partitions(5, options=given)


# -- beside services and writers


@pytest.mark.parametrize("plan", ["compact", "cluster"])
def test_a_partition_in_a_plan_is_left_to_the_next_run(make: Make, plan: str) -> None:
    table = aged(make, type="mor" if plan == "compact" else "cow", index="simple", buckets=None)
    with day(5):
        if plan == "compact":
            table.upsert(rows((2, "b", "b5", 5)))
        run = table.maintenance.compact if plan == "compact" else table.maintenance.cluster
        how: dict[str, Any] = {} if plan == "compact" else {"partitions": ["b"], "sort_columns": ["v"]}
        assert run(plan_only=True, **how).planned
    with day(20):
        done = table.maintenance.expire_partitions(5, partitions=["b", "c"])
        assert done.paths.keys() == {"c"}
        assert done.notes == ("left to the next run, a planned service works there: b",)
        run()
    with day(30):
        assert "b" in table.maintenance.expire_partitions(5).paths
    assert content(table) == []


def test_a_partition_written_before_the_expiry_begins_stays(make: Make) -> None:
    table = aged(make)
    with day(7):
        stale = context_of(table, **{DAYS: 5})
        table.upsert(rows((2, "b", "b7", 7)))
        with pytest.raises(CommitConflict, match="'b' was to expire, and has been written to meanwhile"):
            expire_partitions(stale)
        assert content(table) == [A, (2, "b", "b7", 7), C]
        assert timeline(table).pending == ()
        assert not table.maintenance.expire_partitions(5).paths


@pytest.mark.parametrize("row", [(2, "b", "b7", 7), (8, "b", "new", 7)], ids=["update", "insert"])
def test_a_write_during_an_expiry_is_not_lost(make: Make, row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = aged(make)
    before = ExpirePartitions.prepare

    def beside(self: ExpirePartitions, write: Write) -> None:
        before(self, write)
        with monkeypatch.context() as once:
            once.undo()
            lakebed.open(table.uri).upsert(rows(row))

    monkeypatch.setattr(ExpirePartitions, "prepare", beside)
    with day(7):
        with pytest.raises(CommitConflict):
            table.maintenance.expire_partitions(5)
        monkeypatch.undo()
        assert content(table) == sorted({B[0]: B, row[0]: row, 1: A, 3: C}.values())
        assert timeline(table).pending == ()


# -- after a write


def test_a_write_expires_partitions_where_the_table_says_so(make: Make) -> None:
    table = aged(make, **LISTED)
    assert table.configure({INLINE: True, DAYS: 5}).changes.keys() == {
        "lakebed.partition.ttl.inline",
        "lakebed.partition.ttl.strategy.days.retain",
    }
    with day(7):
        done = table.upsert(rows((9, "d", "d7", 7)))
        assert [line.split(":")[0].split()[0] for line in done.services] == ["expire"]
        assert content(table) == [A, C, (9, "d", "d7", 7)]
        assert table.upsert(rows((9, "d", "d8", 8))).services == ()
        # an option of the call comes before it
        off = table.upsert(rows((9, "d", "d9", 9)), options={DAYS: 1})
        assert [line.split()[0] for line in off.services] == ["expire"]
    assert content(table) == [(9, "d", "d9", 9)]


def test_without_services_a_write_does_not(make: Make) -> None:
    table = aged(make)
    with day(20):
        quiet = {INLINE: True, DAYS: 5, "hoodie.table.services.enabled": False}
        assert table.upsert(rows((1, "a", "a9", 9)), options=quiet).services == ()
    assert content(table) == [(1, "a", "a9", 9), B, C]


def test_a_write_stays_where_its_expiry_fails(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = aged(make)

    def broken(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(ExpirePartitions, "prepare", broken)
    with day(7):
        table.upsert(rows((9, "d", "d7", 7)), options={INLINE: True, DAYS: 5})
    assert content(table) == [A, B, C, (9, "d", "d7", 7)]
    assert timeline(table).pending == ()


def test_cleaning_takes_the_files_and_the_folder(make: Make) -> None:
    table = aged(make, **LISTED)
    with day(7):
        table.maintenance.expire_partitions(5)
        for n in range(3):
            table.upsert(rows((1, "a", f"a{n}", 10 + n)))
        table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    assert not any(path.startswith("b/") for path in files(table.uri))
    assert content(table) == [(1, "a", "a2", 12), C]


def test_a_savepoint_keeps_the_files_of_an_expired_partition(make: Make) -> None:
    table = aged(make)
    table.savepoints.create()
    with day(7):
        table.maintenance.expire_partitions(5)
        for n in range(3):
            table.upsert(rows((1, "a", f"a{n}", 10 + n)))
        table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
        table.restore(table.savepoints.list()[0])
    assert content(table) == [A, B, C]


# -- faces


def test_the_command_line_expires_partitions(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    table = aged(make)
    with day(7):
        assert invoke(["maintenance", "expire-partitions", table.uri, "--days", "5", "--dry-run"]) == 0
        first = timeline(table).commits[0].time
        shown = f"would expire 1 partition path of 1 file group: 'b'\n  b since {first}\n"
        assert capsys.readouterr().out == shown
        assert (
            invoke(["maintenance", "expire-partitions", table.uri, "--days", "5", "-o", "json", "--partition", "b"])
            == 0
        )
        said = json.loads(capsys.readouterr().out)
        assert said["partitions"] == [{"path": "b", "since": first}]
        assert said["instant"] == timeline(table).commits[-1].time
        assert (said["file_groups"], said["dry_run"]) == (1, False)
    assert content(table) == [A, C]
    assert snapshot(table).file_slices(["b"]) == ()


def test_names_with_anything_in_them(make: Make) -> None:
    """Paths that are encoded, and of several fields."""
    with day(1):
        table = make(**(BUCKET | {"partition_by": ["city", "v"]}))
        table.upsert(rows((1, "a b", "x=1", 1), (2, "ü", "y", 1)))
    with day(20):
        table.upsert(rows((3, "ü", "z", 1)))
        assert len(table.maintenance.expire_partitions(5).paths) == 2
    assert content(table) == [(3, "ü", "z", 1)]
    assert SCHEMA.names == table.schema.names

"""What a consumer has not read: cleaning and archival retain it, by whatever path they run, for a bounded time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import lakebed
from lakebed.errors import CheckpointBehind
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage
from lakebed.timeline.consumers import FOLDER
from lakebed.timeline.instants import InstantClock, format_time, parse_time
from property.crossing import Change, Model, Write, Writer, held_writers
from support.cleaning_tables import data_files, timeline
from support.write_tables import rows

TIGHT: dict[str, Any] = {
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 3,
    "hoodie.keep.max.commits": 4,
    "hoodie.metadata.compact.max.delta.commits": 1,
    "hoodie.compact.inline.max.delta.commits": 2,
}
VERSIONS = {**TIGHT, "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
POLICIES = [TIGHT, VERSIONS]
SHAPES = [("cow", 9), ("mor", 8), ("cow", 6), ("mor", 6)]
MakeTable = Callable[..., Table]


def table_of(make: MakeTable, kind: str, version: int, settings: dict[str, Any]) -> Table:
    properties = {"hoodie.table.cdc.enabled": True, **settings}
    return make(type=kind, table_version=version, index="simple", properties=properties)


def update(table: Table, count: int, first: int = 1) -> list[str]:
    """So many commits that each update one row; the values that they write."""
    for n in range(first, first + count):
        table.upsert(rows((1, "a", str(n), n)))
    return [str(n) for n in range(first, first + count)]


def read_all(table: Table, name: str = "daily") -> list[str]:
    """The values that a consumer of changes reads, commit by commit."""
    found: list[str] = []
    while True:
        with table.consume(name, cdc=True, max_commits=1) as batch:
            changes = batch.to_arrow().column("after").to_pylist()
        if batch.end == batch.start:
            return found
        found += [row["v"] for row in changes]


@pytest.mark.parametrize("settings", POLICIES, ids=["commits", "versions"])
@pytest.mark.parametrize(("kind", "version"), SHAPES)
def test_services_after_writes_retain_every_change_that_a_consumer_has_not_read(
    make: MakeTable, kind: str, version: int, settings: dict[str, Any]
) -> None:
    table = table_of(make, kind, version, settings)
    table.upsert(rows((1, "a", "0", 0)))
    table.consumers.start("daily", "latest")
    values = update(table, 8)
    assert len(timeline(table).commits) >= 9, "archival has left what the consumer reads"
    assert read_all(table) == values
    before = data_files(table)
    update(table, 3, first=20)
    read_all(table)
    table.maintenance.clean()
    assert not before <= data_files(table), "what it has read is cleaned"


@pytest.mark.rest
def test_without_a_consumer_the_same_writes_are_cleaned_and_archived(make: MakeTable) -> None:
    table = table_of(make, "cow", 9, TIGHT)
    table.upsert(rows((1, "a", "0", 0)))
    update(table, 8)
    assert len(timeline(table).commits) < 9
    with pytest.raises(CheckpointBehind):
        table.cdc("000").to_arrow()


@pytest.mark.rest
@pytest.mark.parametrize("verb", ["clean", "archive", "daemon"])
def test_services_that_are_called_retain_it_too(make: MakeTable, verb: str) -> None:
    off = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
    table = table_of(make, "cow", 9, TIGHT)
    table.upsert(rows((1, "a", "0", 0)), options=off)
    table.consumers.start("daily", "latest")
    for n in range(1, 8):
        table.upsert(rows((1, "a", str(n), n)), options=off)
    if verb == "daemon":
        list(lakebed.maintenance.run([table.uri], once=True))
    else:
        getattr(table.maintenance, verb)()
    assert read_all(table) == [str(n) for n in range(1, 8)]


def test_a_clean_names_the_consumer_that_holds_files_back(make: MakeTable) -> None:
    table = table_of(make, "cow", 9, {**TIGHT, "hoodie.clean.automatic": False, "hoodie.archive.automatic": False})
    update(table, 4)
    table.consumers.start("daily", "latest")
    unread = table.upsert(rows((1, "a", "5", 5)))
    update(table, 3, first=6)
    preview = table.maintenance.clean(dry_run=True)
    assert preview.plan is not None
    assert preview.plan.consumers == ("daily",)
    done = table.maintenance.clean()
    assert done.runs[0].consumers == ("daily",)
    assert done.runs[0].to_dict()["consumers"] == ["daily"]
    assert "more is retained for consumer 'daily'" in str(done)
    assert str(table.maintenance.clean()) == (
        f"nothing to clean: consumer 'daily' has not read commit {unread.instant} yet, and lakebed.consumers.max_lag is"
        " not over"
    )
    assert f"consumer 'daily' has not read commit {unread.instant} yet" in str(table.maintenance.archive(dry_run=True))
    read_all(table)
    assert table.maintenance.clean().runs[0].consumers == ()


def test_a_consumer_that_has_read_everything_holds_nothing_back(make: MakeTable) -> None:
    table = table_of(make, "mor", 9, {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False})
    update(table, 6)
    table.maintenance.compact()
    update(table, 2, first=6)
    table.consumers.start("daily", "latest")
    table.maintenance.compact()
    plan = table.maintenance.clean(dry_run=True, options=TIGHT).plan
    assert plan is not None
    assert plan.consumers == ()


@pytest.mark.rest
def test_max_lag_ends_what_is_retained_and_the_consumer_gets_the_error(
    make: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(make, "cow", 9, TIGHT)
    table.upsert(rows((1, "a", "0", 0)))
    table.consumers.start("daily", "latest")
    table.configure({"lakebed.consumers.max_lag": 3600})
    update(table, 6)
    assert read_all_later(table, monkeypatch, timedelta(minutes=59)) == [str(n) for n in range(1, 7)] + ["99"]
    update(table, 6, first=100)
    with pytest.raises(CheckpointBehind) as raised:
        read_all_later(table, monkeypatch, timedelta(hours=3))
    table.consumers.move("daily", raised.value.context["checkpoint"])
    assert read_all(table)[-1] == "99"


def read_all_later(table: Table, monkeypatch: pytest.MonkeyPatch, passed: timedelta) -> list[str]:
    """What the consumer reads after further writes, the first of them so much later by the table's clock."""
    ahead = format_time(parse_time(InstantClock(timeline(table).config.timezone).next(), "UTC") + passed, "UTC")
    moment = parse_time(ahead, timeline(table).config.timezone).timestamp()
    with monkeypatch.context() as patch:
        patch.setattr("lakebed.timeline.instants.time.time", lambda: moment)
        table.upsert(rows((1, "a", "99", 1000)))
        table.maintenance.clean()
        table.maintenance.archive()
    return read_all(table)


@pytest.mark.rest
def test_a_max_lag_of_zero_retains_nothing(make: MakeTable) -> None:
    table = table_of(make, "cow", 9, {**TIGHT, "lakebed.consumers.max_lag": 0})
    table.upsert(rows((1, "a", "0", 0)))
    table.consumers.start("daily", "latest")
    update(table, 8)
    with pytest.raises(CheckpointBehind):
        read_all(table)


def test_an_erasure_purges_what_a_consumer_has_not_read(make: MakeTable) -> None:
    table = table_of(make, "cow", 9, {})
    table.upsert(rows((1, "a", "secret", 0), (2, "a", "x", 0)))
    table.consumers.start("daily")
    table.upsert(rows((2, "a", "y", 1)))
    assert table.erase([1]).is_clean
    with table.consume("daily") as batch:
        assert sorted(batch.to_arrow().column("v").to_pylist()) == ["y"]


def commit_late(table: lakebed.Table, count: int) -> None:
    """A write of another process is requested before so many updates, which the consumer reads, and completes after."""
    with held_writers():
        write = Write("late", lambda t: t.upsert(rows((7, "b", "late", 1))), lambda _: Change())
        writer, model = Writer(table.uri, write), Model(False)
        writer.step(model)
        writer.step(model)
        values = update(table, count)
        assert read_all(table) == values
        writer.step(model)
        assert writer.error is None


@pytest.mark.rest
def test_a_pending_write_of_another_process_is_read_when_it_completes_later(make: MakeTable) -> None:
    """Positions are completion times: a commit that was requested earlier and completes later is a batch of its own."""
    table = table_of(make, "cow", 9, TIGHT)
    table.upsert(rows((1, "a", "0", 0)))
    table.consumers.start("daily", "latest")
    commit_late(table, 3)
    update(table, 5, first=10)
    assert read_all(table) == ["late", "10", "11", "12", "13", "14"]


@pytest.mark.rest
def test_writes_to_a_table_without_consumers_list_none(make: MakeTable) -> None:
    table = table_of(make, "cow", 9, TIGHT)
    update(table, 3)
    counted: list[CountingStorage] = []

    def count(inner: Any) -> CountingStorage:
        counted.append(CountingStorage(inner))
        return counted[-1]

    with wrapping(count):
        other = lakebed.open(table.uri)
        update(other, 3, first=10)
    assert not [path for storage in counted for path in storage.opened if FOLDER in path]
    table.consumers.start("daily", "latest")
    assert table.properties["lakebed.consumers"] == "true"


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_an_upgrade_and_a_downgrade_lose_nothing_that_is_not_read(make: MakeTable, kind: str) -> None:
    """Positions of version 6 are requested times: a late commit is before them."""
    table = table_of(make, kind, 9, {"hoodie.metadata.enable": False})
    table.upsert(rows((1, "a", "0", 0)))
    table.consumers.start("daily", "latest")
    commit_late(table, 2)
    table.maintenance.downgrade(6)
    table = lakebed.open(table.uri)
    if kind == "mor":  # version 6 cannot have the log files that earlier views need
        with pytest.raises(CheckpointBehind) as raised, table.consume("daily"):
            pass
        table.consumers.move("daily", raised.value.context["checkpoint"])
    with table.consume("daily") as batch:
        assert sorted(batch.to_arrow().column("v").to_pylist()) == (["2", "late"] if kind == "cow" else [])
    update(table, 1, first=10)
    table.maintenance.upgrade(9)
    table = lakebed.open(table.uri)
    update(table, 1, first=11)
    with table.consume("daily") as batch:
        assert batch.to_arrow().column("v").to_pylist() == ["11"]
    assert table.consumers.get("daily").lag_commits == 0


@pytest.mark.parametrize(("kind", "version"), SHAPES)
def test_a_batch_of_one_commit_is_the_same_when_it_is_read_again(make: MakeTable, kind: str, version: int) -> None:
    table = table_of(make, kind, version, TIGHT)
    table.upsert(rows((1, "a", "0", 0)))
    table.consumers.start("sums", "latest")
    update(table, 2)
    with suppress(KeyError), table.consume("sums", cdc=True, max_commits=1) as batch:
        end, first = batch.end, batch.to_arrow()
        raise KeyError("the write of the batch fails")
    update(table, 6, 3)
    with table.consume("sums", cdc=True, max_commits=1) as batch:
        assert (batch.end, batch.to_arrow().to_pylist()) == (end, first.to_pylist())
    assert first.num_rows == 1
    with table.consume("sums", cdc=True, max_commits=1) as batch:
        assert int(batch.end) > int(end)

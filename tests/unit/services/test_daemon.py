"""`lakebed.maintenance.run`: what is due is run once, by whoever has the lease; what fails does not stop the rest."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from rich.console import Console

import lakebed
from lakebed.cli.daemon import ServicesView
from lakebed.cli.main import invoke
from lakebed.concurrency.lock import lock_body
from lakebed.concurrency.providers import LEASE_FILE, LEASE_SECONDS, ServicesLease
from lakebed.errors import InvalidOption, StorageError, TableNotFound, UnsupportedFeature
from lakebed.metadata_kinds.registry import parse_index_name, remembered_property
from lakebed.model import Action
from lakebed.properties.file import update_table_config
from lakebed.services import daemon
from lakebed.services.daemon import ServiceEvent
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, crash_at
from support.cleaning_tables import data_files, timeline
from support.compaction_tables import log_files, pending
from support.locks import held
from support.steady_time import later
from support.storage_requests import before_requests
from support.write_tables import content, files, rows

Make = Callable[..., Table]
QUIET: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
}
BUCKET: dict[str, Any] = {"index": "bucket", "buckets": 1}
# As small as it gets: where it matters little which service it is.
PLAIN = QUIET | {"hoodie.metadata.enable": False}
SHORT_RETENTION = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4}
DUE = {"hoodie.compact.inline.max.delta.commits": 2}


def put(table: Table, *numbers: int) -> None:
    for n in numbers:
        table.upsert(rows((1, "a", f"a{n}", n), (2, "b", f"b{n}", n)))


def after(n: int) -> list[Any]:
    return [(1, "a", f"a{n}", n), (2, "b", f"b{n}", n)]


def once(*tables: Table, **given: Any) -> list[tuple[str, str]]:
    """What happens, and in which service."""
    events = lakebed.maintenance.run([table.uri for table in tables], once=True, **given)
    return [(event.kind, event.service) for event in events]


def settled(table: Table) -> None:
    """Nothing is due any more, and the table is whole."""
    assert list(lakebed.maintenance.run(table.uri, dry_run=True)) == []
    assert once(table) == []
    verified = table.indexes.verify()
    assert verified.ok, verified


# -- what is due


def test_cleaning_and_archival_run_when_they_are_due(make: Make) -> None:
    table = make(**BUCKET, properties=PLAIN | SHORT_RETENTION)
    put(table, *range(5))
    assert once(table) == [("due", "clean"), ("ran", "clean"), ("due", "archive"), ("ran", "archive")]
    now = timeline(table)
    assert [i.action for i in now.completed].count(Action.CLEAN) == 1
    assert len(now.commits) == 3
    assert len(data_files(table)) == 4
    assert content(table) == after(4)
    settled(table)


def test_compaction_and_then_cleaning_run(make: Make) -> None:
    three = {"hoodie.compact.inline.max.delta.commits": 3, "hoodie.clean.commits.retained": 1}
    table = make(**BUCKET, type="mor", properties=QUIET | three)
    put(table, 0, 1)
    assert once(table) == []
    put(table, 2)
    assert once(table) == [("due", "compact"), ("ran", "compact")]
    assert log_files(table) == 0
    assert content(table) == after(2)
    put(table, 3, 4)
    assert ("ran", "clean") in once(table)  # the slices before the compaction
    put(table, 5)
    assert ("ran", "compact") in once(table)
    assert content(table) == after(5)
    settled(table)


def test_log_compaction_where_the_table_asks_for_it(make: Make) -> None:
    logs = {"hoodie.log.compaction.blocks.threshold": 3, "hoodie.compact.inline.max.delta.commits": 9}
    table = make(**BUCKET, type="mor", properties=QUIET | logs)
    put(table, *range(5))
    assert once(table) == []
    table.configure({"hoodie.log.compaction.enable": True})
    assert once(table) == [("due", "log_compact"), ("ran", "log_compact")]
    assert content(table) == after(4)
    settled(table)


def test_clustering_where_the_table_leaves_it_to_services(make: Make) -> None:
    table = make(index="simple", properties=QUIET | {"hoodie.clustering.async.max.commits": 3})
    for n in range(3):
        table.insert(rows((n, "a", f"a{n}", n)), options={"hoodie.parquet.small.file.limit": 0})
    assert once(table) == []
    table.configure({"hoodie.clustering.async.enabled": True})
    assert once(table) == [("due", "cluster"), ("ran", "cluster")]
    assert table.files.to_arrow().num_rows == 1
    assert content(table) == [(n, "a", f"a{n}", n) for n in range(3)]
    table.insert(rows((7, "b", "b", 7)))
    assert once(table) == []
    settled(table)


def test_partitions_that_are_over_their_time(make: Make) -> None:
    with time_machine.travel(datetime(2020, 1, 1, tzinfo=UTC), tick=True):
        table = make(**BUCKET, properties=PLAIN)
        put(table, 0)
    table.upsert(rows((1, "a", "new", 9)))
    assert once(table) == []
    table.configure({"hoodie.partition.ttl.strategy.days.retain": 100})
    assert once(table) == [("due", "expire_partitions"), ("ran", "expire_partitions")]
    assert content(table) == [(1, "a", "new", 9)]
    settled(table)


def test_an_index_that_waits_to_be_built(make: Make) -> None:
    table = make(**BUCKET, properties=QUIET)
    put(table, 0)
    update_table_config(open_storage(table.uri), remembered_property([parse_index_name("v")]), held)
    assert once(table) == [("due", "indexing"), ("ran", "indexing")]
    assert "secondary_index_v" in {facts.name for facts in table.indexes.list()}
    settled(table)


def test_leftovers_of_a_dead_writer_are_rolled_back(make: Make) -> None:
    table = make(**BUCKET, properties=QUIET)
    put(table, 0)
    with crash_at(12, "kill"), pytest.raises(Killed):
        put(lakebed.open(table.uri), 1)
    (left,) = pending(table)
    assert once(table) == [("due", "rollback"), ("ran", "rollback")]
    assert pending(table) == []
    assert not any(left.time in path for path in data_files(table))
    assert content(table) == after(0)
    settled(table)


@pytest.mark.parametrize("plan", ["compact", "compact_logs", "cluster", "clean"])
def test_plans_that_wait_are_run_and_no_new_ones_made(make: Make, plan: str) -> None:
    """Of services that the table does not ask for."""
    never = {"hoodie.compact.inline.max.delta.commits": 99, "hoodie.log.compaction.blocks.threshold": 2}
    kind = "mor" if plan.startswith("compact") else "cow"
    table = make(index="bucket", buckets=1, type=kind, properties=QUIET | never)
    put(table, *range(6))
    how: dict[str, Any] = {
        "compact_logs": {"logs": True},
        "cluster": {"sort_columns": ["v"]},
        "clean": {"options": {"hoodie.clean.commits.retained": 1}},
    }
    serve = getattr(table.maintenance, plan.removesuffix("_logs"))
    planned = serve(plan_only=True, **how.get(plan, {})).planned
    assert planned
    name = {"compact_logs": "log_compact"}.get(plan, plan)
    assert once(table)[:2] == [("due", name), ("ran", name)]
    assert pending(table) == []
    assert planned in [i.time for i in timeline(table).completed]
    assert content(table) == after(5)
    settled(table)


def test_options_come_before_the_settings_of_the_table(make: Make) -> None:
    table = make(**BUCKET, properties=PLAIN)
    put(table, *range(4))
    assert once(table) == []
    assert ("ran", "clean") in once(table, options={"hoodie.clean.commits.retained": 1})


def test_a_dry_run_reports_and_changes_nothing(make: Make) -> None:
    table = make(**BUCKET, type="mor", properties=PLAIN | DUE)
    put(table, 0, 1)
    before = files(table.uri)
    (event,) = lakebed.maintenance.run(table.uri, dry_run=True)
    assert str(event) == f"{table.uri}: compact is due: 2 delta commits since the last compaction, due from 2 on"
    assert files(table.uri) == before


def test_a_service_without_work_is_not_tried_again_before_the_table_changes(make: Make) -> None:
    table = make(
        index="simple", properties=PLAIN | {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 1}
    )
    table.insert(rows((1, "a", "x", 1)), options={"hoodie.clustering.inline": False})
    events = lakebed.maintenance.run(table.uri, interval=0)
    kinds = [next(events).kind for _ in range(4)]
    assert kinds == ["due", "nothing", "waiting", "waiting"]
    table.insert(rows((2, "b", "y", 1)), options={"hoodie.clustering.inline": False})
    assert [next(events).kind for _ in range(3)] == ["due", "nothing", "waiting"]


def test_the_daemon_checks_its_tables_repeatedly(make: Make) -> None:
    table = make(**BUCKET, type="mor", properties=PLAIN | DUE)
    events = lakebed.maintenance.run([table.uri, table.uri], interval=0)
    assert next(events).kind == "waiting"
    for n in range(3):
        put(table, 2 * n, 2 * n + 1)
        assert [next(events).kind for _ in range(3)] == ["due", "ran", "waiting"]
        assert content(table) == after(2 * n + 1)


# -- whose turn it is


def test_two_do_not_look_after_one_table(make: Make) -> None:
    table = make(**BUCKET, type="mor", properties=PLAIN | DUE)
    put(table, 0, 1)
    first = lakebed.maintenance.run(table.uri, once=True)
    assert next(first).kind == "due"
    (event,) = lakebed.maintenance.run(table.uri, once=True)
    assert event.kind == "held"
    assert "process" in event.text
    put(table, 2)  # writers do not ask for it
    assert [e.kind for e in first] == ["ran"]
    assert content(table) == after(2)
    settled(table)
    assert ServicesLease(open_storage(table.uri)).holder() == ""


def test_the_lease_of_another_host_goes_when_it_is_not_renewed(make: Make) -> None:
    table = make(**BUCKET, type="mor", properties=PLAIN | DUE)
    put(table, 0, 1)
    storage = open_storage(table.uri)
    body = json.loads(lock_body("theirs", 9e9, LEASE_SECONDS, expired=False)) | {"host": "elsewhere", "boot": "other"}
    storage.write(LEASE_FILE, json.dumps(body).encode())
    assert once(table) == [("held", "")]
    with later(LEASE_SECONDS - 5):
        assert once(table) == [("held", "")]
        storage.write(LEASE_FILE, json.dumps(body | {"validUntil": 1}).encode())  # renewed
        assert once(table) == [("held", "")]
    with later(2 * LEASE_SECONDS):
        assert once(table) == [("due", "compact"), ("ran", "compact")]
    assert content(table) == after(1)


def test_a_lease_that_is_lost_ends_the_turn(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(**BUCKET, properties=PLAIN | SHORT_RETENTION)
    put(table, *range(5))
    events = lakebed.maintenance.run(table.uri, once=True)
    assert (next(events).kind, next(events).kind) == ("due", "ran")
    monkeypatch.setattr(ServicesLease, "lock_is_held", lambda _: False)
    assert list(events) == []
    monkeypatch.undo()
    assert once(table) == [("due", "archive"), ("ran", "archive")]


def test_a_process_that_stops_asking_gives_the_lease_back(make: Make) -> None:
    table = make(**BUCKET, type="mor", properties=PLAIN | DUE)
    put(table, 0, 1)
    events: Any = lakebed.maintenance.run(table.uri)
    assert next(events).kind == "due"
    events.close()
    assert once(table) == [("due", "compact"), ("ran", "compact")]


def test_after_a_stop_no_other_service_begins(make: Make) -> None:
    table = make(**BUCKET, properties=PLAIN | SHORT_RETENTION)
    put(table, *range(5))
    stop = threading.Event()
    kinds: list[str] = []
    for event in lakebed.maintenance.run([table.uri, "memory://none/at/all"], interval=3600, stop=stop):
        stop.set()
        kinds.append(event.kind)
    assert kinds == ["due", "ran", "stopped"]


def test_a_waiting_one_ends_at_once(make: Make) -> None:
    table = make(**BUCKET)
    stop = threading.Event()
    events = lakebed.maintenance.run(table.uri, interval=3600, stop=stop)
    assert next(events).kind == "waiting"
    threading.Timer(0.1, stop.set).start()
    assert [event.kind for event in events] == ["stopped"]


# -- what fails


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock that retries go by, to be set forward."""
    shown = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(daemon, "time", SimpleNamespace(monotonic=lambda: shown.now))
    return shown


def test_a_table_that_fails_does_not_stop_the_others(make: Make, clock: SimpleNamespace) -> None:
    table = make(**BUCKET, type="mor", properties=PLAIN | DUE)
    put(table, 0, 1)
    missing = "memory://none/at/all"
    events = lakebed.maintenance.run([missing, table.uri], interval=0)
    failed = next(events)
    assert (failed.kind, failed.table, failed.service, failed.seconds) == ("failed", missing, "opening", 10.0)
    assert isinstance(failed.error, TableNotFound)
    assert [next(events).kind for _ in range(5)] == ["due", "ran", "waiting", "waiting", "waiting"]
    clock.now += 11
    assert (next(events).seconds, next(events).kind) == (20.0, "waiting")
    clock.now += 11
    assert next(events).kind == "waiting"
    for _ in range(20):
        clock.now += 10_000
        assert next(events).kind == "failed"
        last = next(events)
        assert last.kind == "waiting"
    clock.now += 899
    assert next(events).kind == "waiting"
    clock.now += 2
    assert next(events).seconds == 900.0


def test_a_service_that_fails_does_not_stop_the_others(make: Make, clock: SimpleNamespace) -> None:
    table = make(**BUCKET, properties=PLAIN | SHORT_RETENTION)
    put(table, *range(5))
    may_delete: list[bool] = []

    def deny(verb: str, path: str) -> None:
        if verb == "delete" and path.endswith(".parquet") and not may_delete:
            raise StorageError("no right to delete", hint="ask for it")

    with before_requests(deny):
        events = lakebed.maintenance.run(table.uri, interval=0)
        found = [next(events) for _ in range(5)]
        assert [(e.kind, e.service) for e in found] == [
            *[("due", "clean"), ("failed", "clean"), ("due", "archive"), ("ran", "archive"), ("waiting", "")]
        ]
        assert found[1].to_dict()["error"] == {
            "type": "StorageError",
            "message": "no right to delete",
            "hint": "Ask for it.",
        }
        assert next(events).kind == "waiting"
        clock.now += 11
        may_delete.append(True)
        assert [(next(events)).kind for _ in range(3)] == ["due", "ran", "waiting"]
    assert content(table) == after(4)


def test_an_unexpected_error_is_reported(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(**BUCKET, properties=PLAIN | {"hoodie.clean.commits.retained": 1})
    put(table, *range(4))

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("lakebed.services.cleaning.find_cleanable", broken)
    (event,) = lakebed.maintenance.run(table.uri, once=True)
    assert (event.kind, event.text, event.seconds) == ("failed", "ZeroDivisionError: by zero", None)


def test_wrong_arguments_are_refused_at_once(make: Make) -> None:
    table = make(**BUCKET)
    with pytest.raises(InvalidOption, match="no tables"):
        lakebed.maintenance.run([])
    with pytest.raises(InvalidOption, match="interval"):
        lakebed.maintenance.run(table.uri, interval=-1)
    with pytest.raises(InvalidOption, match="unknown option"):
        lakebed.maintenance.run(table.uri, options={"hoodie.clean.polic": "x"})
    with pytest.raises(UnsupportedFeature):
        lakebed.maintenance.run(table.uri, options={"hoodie.clean.multiple.enabled": True})


# -- on the command line


def test_events_are_lines_for_programs(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    table = make(**BUCKET, type="mor", properties=PLAIN | DUE)
    put(table, 0, 1)
    assert invoke(["maintenance", "run", table.uri, "--dry-run", "-o", "json"]) == 0
    (due,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (due["event"], due["table"], due["service"]) == ("due", table.uri, "compact")
    assert log_files(table) == 2
    assert invoke(["maintenance", "run", table.uri, "--once", "--output=json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["event"] for one in said] == ["due", "ran"]
    (run,) = said[1]["detail"]["runs"]
    assert (run["instant"], run["rows"]) == (timeline(table).commits[-1].time, 2)
    assert content(table) == after(1)
    assert invoke(["maintenance", "run", table.uri, "memory://none/at/all", "--once"]) == TableNotFound.exit_code
    assert "opening failed: there is no table at memory://none/at/all" in capsys.readouterr().out
    assert (
        invoke(["maintenance", "run", table.uri, "--once", "--option", "hoodie.clean.polic=x"])
        == InvalidOption.exit_code
    )


def test_a_terminal_shows_the_state_of_each_table() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    error = TableNotFound("no table")
    with ServicesView(["/a", "/b", "/c"], console) as view:
        view.show(ServiceEvent("due", "/a", "clean", "3 commits"))
        view.show(ServiceEvent("ran", "/a", "clean", "clean 1: 3 files deleted"))
        view.show(ServiceEvent("failed", "/b", "opening", "no table", seconds=10.0, error=error))
        view.show(ServiceEvent("waiting", seconds=60.0))
    shown = out.getvalue()
    assert "/a: clean is due: 3 commits" in shown
    assert "/b: opening failed: no table (tried again in 10 s)" in shown
    table = [line.split() for line in shown.partition("last service")[2].splitlines()]
    states = {words[0]: words[1:] for words in table if words and words[0] in ("/a", "/b", "/c")}
    assert (states["/a"][:3], states["/a"][-1]) == (["in", "shape", "clean"], "1")
    assert states["/b"][:2] == ["failed", "opening"]
    assert states["/c"][:2] == ["in", "shape"]
    assert "looking again in 60 s" in shown

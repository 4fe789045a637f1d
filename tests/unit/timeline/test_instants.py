"""Names of timeline files in both layouts, and the times inside them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from lakebed.errors import InvalidOption
from lakebed.model import Action, Instant, State
from lakebed.timeline.instants import (
    completed_name,
    completes_as,
    format_millis,
    format_time,
    inflight_name,
    parse_instant_file,
    parse_time,
    requested_name,
)

T, C = "20261121110149683", "20261121110150908"

NAMES = {
    Action.COMMIT: (f"{T}.commit.requested", f"{T}.inflight", f"{T}_{C}.commit"),
    Action.DELTACOMMIT: (f"{T}.deltacommit.requested", f"{T}.deltacommit.inflight", f"{T}_{C}.deltacommit"),
    Action.COMPACTION: (f"{T}.compaction.requested", f"{T}.compaction.inflight", f"{T}_{C}.commit"),
    Action.LOGCOMPACTION: (f"{T}.logcompaction.requested", f"{T}.logcompaction.inflight", f"{T}_{C}.deltacommit"),
    Action.REPLACECOMMIT: (f"{T}.replacecommit.requested", f"{T}.replacecommit.inflight", f"{T}_{C}.replacecommit"),
    Action.CLUSTERING: (f"{T}.clustering.requested", f"{T}.clustering.inflight", f"{T}_{C}.replacecommit"),
    Action.CLEAN: (f"{T}.clean.requested", f"{T}.clean.inflight", f"{T}_{C}.clean"),
    Action.ROLLBACK: (f"{T}.rollback.requested", f"{T}.rollback.inflight", f"{T}_{C}.rollback"),
    Action.RESTORE: (f"{T}.restore.requested", f"{T}.restore.inflight", f"{T}_{C}.restore"),
    Action.SAVEPOINT: (f"{T}.savepoint.requested", f"{T}.savepoint.inflight", f"{T}_{C}.savepoint"),
    Action.INDEXING: (f"{T}.indexing.requested", f"{T}.indexing.inflight", f"{T}_{C}.indexing"),
}


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("action", list(Action))
def test_names_of_layout_2(action: Action, version: int) -> None:
    requested, inflight, completed = NAMES[action]
    assert requested_name(action, T, version) == requested
    assert inflight_name(action, T, version) == inflight
    assert completed_name(action, T, C, version) == completed
    assert parse_instant_file(requested, version) == Instant(T, action, State.REQUESTED, None, requested)
    assert parse_instant_file(inflight, version) == Instant(T, action, State.INFLIGHT, None, inflight)
    done = Instant(T, completes_as(action), State.COMPLETED, C, completed)
    assert parse_instant_file(completed, version) == done


@pytest.mark.parametrize("action", list(Action))
def test_names_of_layout_1(action: Action) -> None:
    shown = Action.REPLACECOMMIT if action is Action.CLUSTERING else action
    requested, inflight, _ = NAMES[shown]
    completed = f"{T}.{completes_as(action).value}"
    assert requested_name(action, T, 6) == requested
    assert inflight_name(action, T, 6) == inflight
    assert completed_name(action, T, C, 6) == completed
    assert parse_instant_file(requested, 6) == Instant(T, shown, State.REQUESTED, None, requested)
    assert parse_instant_file(completed, 6) == Instant(T, completes_as(action), State.COMPLETED, None, completed)


@pytest.mark.parametrize(
    "name",
    [
        f"{T}.commit.requested.0b5e9d0c-4c4e-4b1c-8c53-6f2a3a0d8a70",
        f".{T}.commit.crc",
        f"{T}_{C}.commit.crc",
        f"{T}_{C}.commit.requested",
        f"{T}.schemacommit",
        f"{T}.compaction",
        f"{T}.unknown.requested",
        "hoodie.properties",
        "history",
        "_version_",
        f"{T}.commit.done",
        f"{T}_.commit",
        "",
    ],
)
def test_strays_are_no_instants(name: str) -> None:
    assert parse_instant_file(name, 9) is None
    assert parse_instant_file(name, 6) is None


def test_layout_1_knows_no_completion_time() -> None:
    assert parse_instant_file(f"{T}_{C}.commit", 6) is None


def test_a_completed_file_an_upgrade_left() -> None:
    assert parse_instant_file(f"{T}.commit", 9) == Instant(T, Action.COMMIT, State.COMPLETED, None, f"{T}.commit")


@pytest.mark.parametrize("old", ["20210101120000", "00000000000000", T + "001"])
def test_times_of_other_lengths_are_kept(old: str) -> None:
    instant = parse_instant_file(f"{old}.deltacommit", 6)
    assert instant is not None
    assert instant.time == old


@pytest.fixture
def berlin() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_the_zone_of_the_table_counts() -> None:
    when = datetime(2026, 7, 1, 22, 30, 0, 123999, tzinfo=UTC)
    assert format_time(when, "UTC") == "20260701223000123"
    assert format_time(when, "LOCAL") == "20260702003000123"
    assert format_time(when.astimezone(timezone(timedelta(hours=-5))), "UTC") == "20260701223000123"
    for zone in ("UTC", "LOCAL"):
        assert parse_time(format_time(when, zone), zone) == when.replace(microsecond=123000)
    assert format_millis(1782945000123, "UTC") == "20260701223000123"


def test_fourteen_digits_are_the_end_of_their_second() -> None:
    assert parse_time("20260701223000", "UTC") == datetime(2026, 7, 1, 22, 30, 0, 999000, tzinfo=UTC)


def test_digits_beyond_seventeen_say_nothing() -> None:
    assert parse_time(T + "001", "UTC") == parse_time(T, "UTC")


@pytest.mark.parametrize("text", ["", "2026", "2026070122300012", "20261321110149683", "earliest"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="not an instant time"):
        parse_time(text, "UTC")

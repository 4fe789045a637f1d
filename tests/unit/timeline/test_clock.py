"""Instant times ascend, whatever clocks and zones do."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from datetime import UTC, datetime

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidOption
from lakebed.timeline.instants import InstantClock, following


@pytest.fixture
def oslo(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setenv("TZ", "Europe/Oslo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# seconds, not datetimes, tell time-machine when it is: with an aware one it would change the zone as well


def test_instant_times_are_milliseconds_in_utc() -> None:
    with time_machine.travel(datetime(2026, 3, 4, 5, 6, 7, 89_999, tzinfo=UTC).timestamp(), tick=False):
        assert InstantClock().next() == "20260304050607090"


def test_local_is_the_zone_of_the_process(oslo: None) -> None:
    with time_machine.travel(datetime(2026, 7, 4, 23, 6, 7, 89_000, tzinfo=UTC).timestamp(), tick=False):
        assert InstantClock("LOCAL").next() == "20260705010607089"
        assert InstantClock("UTC").next() == "20260704230607089"


def test_a_clock_that_steps_back_does_not_take_times_back() -> None:
    clock = InstantClock("UTC")
    with time_machine.travel(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp(), tick=False):
        first = clock.next()
    with time_machine.travel(datetime(2026, 1, 1, 11, tzinfo=UTC).timestamp(), tick=False):
        times = [clock.next() for _ in range(3)]
    with time_machine.travel(datetime(2026, 1, 1, 13, tzinfo=UTC).timestamp(), tick=False):
        later = clock.next()
    assert [first, *times, later] == [
        "20260101120000000",
        "20260101120000001",
        "20260101120000002",
        "20260101120000003",
        "20260101130000000",
    ]


def test_instant_times_grow_through_the_hour_that_comes_twice(oslo: None) -> None:
    clock = InstantClock("LOCAL")
    times: list[str] = []
    for hour in (0, 1, 2):
        with time_machine.travel(datetime(2026, 10, 25, hour, 30, tzinfo=UTC).timestamp(), tick=False):
            times.append(clock.next())
    # 02:30 comes twice that night
    assert times == ["20261025023000000", "20261025023000001", "20261025033000000"]


def test_past_the_timeline_of_a_machine_ahead() -> None:
    with time_machine.travel(datetime(2026, 1, 1, tzinfo=UTC).timestamp(), tick=False):
        assert InstantClock().next(after="20270101000000999") == "20270101000001000"
        assert InstantClock().next(after="20250101000000000") == "20260101000000000"
        for special in ("00000000000000", "00000000000000002", "", None):
            assert InstantClock().next(after=special) == "20260101000000000"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("20261231235959999", "20270101000000000"),
        ("20261231235959", "20270101000000000"),
        ("20240228235959999", "20240229000000000"),
        ("20240101000000000001", "20240101000000001"),
        ("not a time", ""),
    ],
)
def test_the_following_instant_is_a_millisecond_later(before: str, after: str) -> None:
    assert following(before) == after


@given(
    st.lists(st.floats(1e9, 2e9), min_size=1, max_size=20),
    st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)),
    st.sampled_from(["UTC", "LOCAL"]),
)
def test_instants_grow_whatever_the_clock_reads(readings: list[float], timeline: datetime, zone: str) -> None:
    left = list(readings)
    clock = InstantClock(zone, now=left.pop)
    greatest = timeline.strftime("%Y%m%d%H%M%S000")
    for _ in readings:
        time_text = clock.next(after=greatest)
        assert time_text > greatest
        assert len(time_text) == 17
        greatest = time_text


def test_threads_get_different_times() -> None:
    clock = InstantClock(now=lambda: 1_700_000_000.0)
    times: list[str] = []
    threads = [threading.Thread(target=lambda: times.extend(clock.next() for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(times)) == 200


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Mars"):
        InstantClock("Mars")

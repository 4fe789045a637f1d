"""Which partition paths are over their time: to the millisecond, the oldest first, so many at once."""

from __future__ import annotations

import pytest

from lakebed.services.partition_ttl import PartitionTtl

NOW = "20261110120000000"


@pytest.mark.parametrize(
    ("since", "is_over"),
    [
        ("20261105115959999", True),
        ("20261105120000000", False),  # to the millisecond
        ("20261105120000001", False),
        ("20261105115958", True),  # fourteen digits: the last millisecond of that second
        ("20261105115959", True),
        ("20261105120000", False),
        ("20261110120000000", False),
        ("00000000000000000", False),  # the metadata table's own, and what is no time, never get old
        ("", False),
        ("early", False),
    ],
)
def test_a_path_is_over_when_so_many_days_have_passed(since: str, is_over: bool) -> None:
    assert PartitionTtl(5).expired({"a": since}, NOW) == ({"a": since} if is_over else {})


def test_a_day_has_24_hours_whatever_the_clocks_on_the_wall_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")  # set back on 2026-10-25 at 03:00
    time.tzset()
    try:
        ttl = PartitionTtl(1)
        assert ttl.expired({"a": "20261024120000000"}, "20261025120000000") == {}
        assert ttl.expired({"a": "20261024120000000"}, "20261025120000001") == {"a": "20261024120000000"}
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("days", [0, -1, -7])
def test_without_days_nothing_expires(days: int) -> None:
    assert PartitionTtl(days).expired({"a": "20010101000000000"}, NOW) == {}


def test_days_without_end_are_no_error() -> None:
    assert PartitionTtl(10**9).expired({"a": "20010101000000000"}, NOW) == {}


def test_the_oldest_go_first() -> None:
    since = {"c": "20260103000000000", "a": "20260102000000000", "b": "20260101000000000", "new": NOW}
    assert list(PartitionTtl(5, limit=2).expired(since, NOW)) == ["b", "a"]
    assert list(PartitionTtl(5).expired(since, NOW)) == ["b", "a", "c"]

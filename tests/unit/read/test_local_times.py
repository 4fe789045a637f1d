"""Times without a zone are those of the machine, where no session says otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pandas as pd
import pytest
import time_machine

import lakebed
from lakebed.read.moments import in_local_zone
from lakebed.table import Table

ROWS = {"id": [1], "v": ["old"]}


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    """A row of March 1st 12:00 in UTC, another one of March 2nd 12:00."""
    made = lakebed.create(f"memory://local-times/{request.node.name}", ROWS, key="id", index="bucket", buckets=1)
    for day, key in ((1, 1), (2, 2)):
        with time_machine.travel(datetime(2026, 3, day, 12, tzinfo=UTC), tick=True):
            made.upsert({"id": [key], "v": ["old"]})
    return made


def test_naive_datetimes_are_local(table: Table, tokyo: None) -> None:
    at_nine = datetime(2026, 3, 2, 20, 59)  # 11:59 in UTC
    assert table.scan(as_of=at_nine).count() == 1
    assert table.scan(as_of=pd.Timestamp(at_nine)).count() == 1
    assert table.scan(as_of=pd.Timestamp(at_nine + timedelta(minutes=2))).count() == 2
    assert table.scan(as_of=at_nine + timedelta(minutes=2)).count() == 2
    assert table.changes(at_nine).count() == 1
    assert table.changes(at_nine + timedelta(minutes=2)).count() == 0
    assert table.changes("000", at_nine).count() == 1


def test_a_date_is_its_local_midnight(table: Table, tokyo: None) -> None:
    assert table.scan(as_of=date(2026, 3, 2)).count() == 1
    assert table.scan(as_of=date(2026, 3, 3)).count() == 2


def test_texts_and_times_with_a_zone_do_not_depend_on_it(table: Table, tokyo: None) -> None:
    assert table.scan(as_of="2026-03-02 11:59:00").count() == 1
    assert table.scan(as_of="20260302120100").count() == 2
    assert table.scan(as_of=datetime(2026, 3, 2, 11, 59, tzinfo=UTC)).count() == 1


def test_a_sessions_zone_comes_before_the_machines(tokyo: None) -> None:
    noon = datetime(2026, 7, 1, 12)
    assert in_local_zone(noon, "America/New_York").astimezone(UTC).hour == 16  # pyright: ignore[reportAttributeAccessIssue]
    assert in_local_zone(noon).astimezone(UTC).hour == 3  # pyright: ignore[reportAttributeAccessIssue]

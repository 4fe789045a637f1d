"""Time travel to a time at which there was no table yet, or that is still to come, is an error that names the range."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.timeline.instants import following
from support.write_tables import SCHEMA, files, rows

_KEEP = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.metadata.compact.max.delta.commits": 1,
}


def _table(name: str, version: int) -> tuple[lakebed.Table, list[str]]:
    table = lakebed.create(f"memory://{name}-{version}", SCHEMA, key="id", index="simple", table_version=version)
    return table, [table.upsert(rows((n, "a", "v", n))).instant for n in range(3)]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_times_outside_of_the_commits_are_refused_and_the_range_is_named(version: int) -> None:
    table, instants = _table("outside", version)
    before = f"{int(instants[0]) - 1}"
    soon = datetime.now(UTC) + timedelta(days=1)
    for when, where in (
        (before, "before its first commit"),
        ("1970-01-01", "before its first"),
        (soon, "in the future"),
    ):
        with pytest.raises(InvalidOption, match=where) as raised:
            table.scan(as_of=when)
        assert f"from {instants[0]} to {instants[-1]}" in raised.value.hint


@pytest.mark.parametrize("version", [9, 8, 6])
def test_times_from_the_first_commit_to_now_are_read(version: int) -> None:
    table, instants = _table("inside", version)
    counts = [table.scan(as_of=when).count() for when in (*instants, following(instants[0]), datetime.now(UTC))]
    assert counts == [1, 2, 3, 1, 3]


def test_the_first_commit_may_be_archived() -> None:
    table = lakebed.create("memory://outside-archived", SCHEMA, key="id", index="simple")
    instants = [table.upsert(rows((n, "a", "v", n)), options=_KEEP).instant for n in range(9)]
    table.maintenance.archive(options={**_KEEP, "hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4})
    active = [path.rpartition("/")[2] for path in files(table.uri) if path.startswith(".hoodie/timeline/2")]
    assert active
    assert not any(name.startswith(instants[0]) for name in active)
    assert table.scan(as_of=instants[0]).count() == 1
    with pytest.raises(InvalidOption, match="before its first commit") as raised:
        table.scan(as_of="2001-01-01")
    assert f"from {instants[0]} to" in raised.value.hint


def test_a_table_without_commits_is_empty_at_any_time() -> None:
    table = lakebed.create("memory://outside-none", SCHEMA, key="id")
    assert table.scan(as_of="1970-01-01").count() == 0

"""Which instants are archived: the oldest beyond the bounds, up to the first that must stay."""

from __future__ import annotations

import pytest

from lakebed.policies.archival import (
    ArchivalBounds,
    ArchivalLimit,
    before_pending,
    is_archival_due,
    plan_archival,
)
from support.instants_in_words import completed, pending, times

COMMITS = completed("d01 d02 c03 d04 r05 d06")
COMPLETED = completed("clean:005 d01 d02 rollback:025 c03 d04 clean:045 r05 d06")


@pytest.mark.parametrize(
    ("above", "down_to", "limits", "archived", "others"),
    [
        (6, 2, [], "", ""),  # not more than the bound
        (5, 4, [], "01 02", "005"),
        (5, 2, [], "01 02 03 04", "005 025"),
        (3, 0, [], "01 02 03 04 05 06", "005 025 045"),
        (5, 2, ["03"], "01 02", "005"),
        (5, 2, ["04", "02"], "01", "005"),  # the first of all limits
        (5, 2, ["09"], "01 02 03 04", "005 025"),
        (5, 2, ["01"], "", ""),
        (5, 2, [""], "", ""),  # nothing may go yet
    ],
)
def test_the_oldest_commits_beyond_the_bounds_are_archived(
    above: int, down_to: int, limits: list[str], archived: str, others: str
) -> None:
    bounds = ArchivalBounds(above, down_to)
    given = [None, *(ArchivalLimit(time, "said so") for time in limits)]
    plan = plan_archival(COMMITS, COMPLETED, bounds, given)
    assert (times(plan.commits), times(plan.others)) == (archived, others)
    assert plan.instants == (*plan.commits, *plan.others)
    assert is_archival_due(COMMITS, bounds) is (above < len(COMMITS))


@pytest.mark.parametrize(
    ("unfinished", "limit"),
    [("", None), ("d07", "06"), ("compaction:04 d07", "03"), ("clustering:035", "03"), ("d00", "")],
)
def test_no_instant_after_a_pending_one_is_archived(unfinished: str, limit: str | None) -> None:
    found = before_pending(COMMITS, pending(unfinished))
    assert (None if found is None else found.time) == limit


def test_limits_are_not_asked_for_where_nothing_is_due() -> None:
    def limits() -> ArchivalLimit:
        raise AssertionError

    assert plan_archival(COMMITS, COMPLETED, ArchivalBounds(9, 2), (limits() for _ in range(1))).instants == ()


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (None, "archival of 4 commits up to 04"),
        ("03", "archival of 2 commits up to 02; from 03 on: a savepoint"),
        ("09", "archival of 4 commits up to 04"),  # it holds nothing back
        ("", "archival of nothing; from the start on: a savepoint"),
    ],
)
def test_plans_print_what_holds_back_more(limit: str | None, text: str) -> None:
    limits = [] if limit is None else [ArchivalLimit(limit, "a savepoint")]
    assert str(plan_archival(COMMITS, COMPLETED, ArchivalBounds(5, 2), limits)) == text

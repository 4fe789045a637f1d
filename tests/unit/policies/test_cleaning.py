"""What cleaning keeps and deletes: the table's last commits, hours or versions, savepoints, pending plans, replaced
groups."""

from __future__ import annotations

import pytest

from lakebed.model import Action, FileGroupId, Instant, State
from lakebed.policies.cleaning import (
    Protected,
    Retention,
    has_expired_since,
    plan_cleaning,
    retain_commits,
    retain_since,
    retain_versions,
)
from lakebed.timeline.bodies.plans import CleaningPolicy
from support.instants_in_words import completed, group_of, pending

COMMITS = completed("d01 d02 c03 d04 r05 d06")


@pytest.mark.parametrize(
    ("count", "unfinished", "earliest"),
    [
        (6, "", None),  # no more commits than are kept
        (5, "", "02"),
        (2, "", "05"),
        (2, "d07", "05"),
        (2, "compaction:05", "05"),  # it is not before the earliest itself
        (2, "d041", "04"),  # the last commit that it may have begun with
        (2, "clustering:031 d041", "03"),
        (2, "d00", None),  # nothing completed before it
        (1, "", "06"),
        (0, "", None),
    ],
)
def test_slices_of_the_last_commits_stay(count: int, unfinished: str, earliest: str | None) -> None:
    found = retain_commits(COMMITS, pending(unfinished), count)
    assert (found and found.earliest and found.earliest.time) == earliest
    assert found is None or found.policy is CleaningPolicy.KEEP_LATEST_COMMITS


@pytest.mark.parametrize(
    ("since", "unfinished", "earliest"),
    [
        ("03", "", "03"),
        ("035", "", "04"),
        ("00", "", "01"),
        ("07", "", None),  # nothing since: what is there stays, however old
        ("05", "d02", "01"),
        ("05", "d00", None),
    ],
)
def test_slices_of_the_last_hours_stay(since: str, unfinished: str, earliest: str | None) -> None:
    found = retain_since(COMMITS, pending(unfinished), since)
    assert (found and found.earliest and found.earliest.time) == earliest


def test_retaining_zero_versions_gives_no_retention() -> None:
    assert retain_versions(0) is None
    assert retain_versions(2) == Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, None, 2)


def from_commit(time: str) -> Retention:
    return Retention(CleaningPolicy.KEEP_LATEST_COMMITS, Instant(time, Action.DELTACOMMIT, State.COMPLETED))


def deleted(
    slices: str,
    retention: Retention,
    *,
    replaced_at: str = "",
    planned: str | None = None,
    savepointed: str = "",
    saved: str = "",
) -> list[str]:
    """The instants of the slices of one file group that are deleted."""
    group = group_of("f", slices)
    replaced: dict[FileGroupId, Instant] = {}
    if replaced_at:
        replaced[group.id] = Instant(replaced_at, Action.REPLACECOMMIT, State.COMPLETED)
    kept = {part.files[-1].path for part in group.slices if part.instant in savepointed.split()}
    protected = Protected(kept, saved.split(), {} if planned is None else {group.id: planned})
    plan = plan_cleaning([group], COMMITS, retention, replaced, protected)
    names = set(plan.files.get("p", ()))
    gone = [part for part in group.slices if names & {file.name for file in part.files}]
    # a slice goes with all its files or stays with all
    assert names == {file.name for part in gone for file in part.files}
    return [part.instant for part in gone]


@pytest.mark.parametrize(
    ("slices", "earliest", "gone"),
    [
        ("01 02 03", "04", ["01", "02"]),  # the newest stays, however old
        ("01 02 03", "03", ["01"]),  # a reader at the earliest commit may have begun before it completed
        ("01+2 03+1 05", "04", ["01"]),  # 03 is what the earliest commit sees
        ("01 05", "04", []),
        ("04", "06", []),
        ("05 06", "02", []),
        ("01+2- 03", "04", ["01"]),  # log files alone
        ("", "04", []),
    ],
)
def test_slices_that_no_retained_commit_sees(slices: str, earliest: str, gone: list[str]) -> None:
    assert deleted(slices, from_commit(earliest)) == gone


@pytest.mark.parametrize(
    ("slices", "versions", "gone"),
    [
        ("01 02 03", 1, ["01", "02"]),
        ("01 02 03", 2, ["01"]),
        ("01 02 03", 3, []),
        ("01 02 03", 9, []),
    ],
)
def test_the_newest_versions_of_a_file_group_stay(slices: str, versions: int, gone: list[str]) -> None:
    found = retain_versions(versions)
    assert found is not None
    assert deleted(slices, found) == gone


@pytest.mark.parametrize(
    ("planned", "versions", "gone"),
    [
        ("", None, []),  # the whole file group, as the metadata table has it
        ("02", None, ["01"]),  # the slice that the plan compacts, and newer ones
        ("04", None, ["01", "02", "03"]),
        (None, None, ["01", "02", "03"]),
        ("03", 2, ["01"]),  # slices of the plan together count as one version
        ("03", 1, ["01", "02"]),
        ("", 1, []),
    ],
)
def test_pending_compactions_keep_their_slices(planned: str | None, versions: int | None, gone: list[str]) -> None:
    retention = from_commit("06") if versions is None else retain_versions(versions)
    assert retention is not None
    assert deleted("01 02 03 04", retention, planned=planned) == gone


@pytest.mark.parametrize(
    ("retention", "replaced_at", "gone"),
    [
        (from_commit("04"), "03", ["01", "02"]),  # the newest slice goes, too
        (from_commit("04"), "04", []),
        (from_commit("04"), "05", []),
        (Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, versions=5), "05", ["01", "02"]),
    ],
)
def test_replaced_file_groups_are_deleted_when_no_view_shows_them(
    retention: Retention, replaced_at: str, gone: list[str]
) -> None:
    assert deleted("01 02", retention, replaced_at=replaced_at) == gone


@pytest.mark.parametrize("retention", [from_commit("06"), Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, None, 1)])
@pytest.mark.parametrize("replaced_at", ["", "05"])
def test_savepoints_retain_complete_slices(retention: Retention, replaced_at: str) -> None:
    without = deleted("01 02+2 03 04", retention, replaced_at=replaced_at)
    kept = deleted("01 02+2 03 04", retention, replaced_at=replaced_at, savepointed="02")
    assert kept == [time for time in without if time != "02"]
    assert "02" in without


@pytest.mark.parametrize("retention", [from_commit("06"), Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, None, 1)])
@pytest.mark.parametrize(
    ("saved", "replaced_at", "gone"),
    [
        ("", "", ["01", "03"]),
        ("02", "", ["03"]),  # the slice that the savepoint shows, though its files do not say so
        ("03", "", ["01"]),
        ("00", "", ["01", "03"]),
        ("01 03", "", []),
        ("03", "04", ["01", "05"]),
        ("04", "03", ["01", "03", "05"]),  # it shows what replaced the file group
    ],
)
def test_the_slice_that_a_savepoint_shows_stays(
    retention: Retention, saved: str, replaced_at: str, gone: list[str]
) -> None:
    assert deleted("01 03 05", retention, saved=saved, replaced_at=replaced_at) == gone


def test_plans_name_files_by_partition_and_print() -> None:
    groups = [group_of("b", "01+1 02 03", partition="x"), group_of("a", "01 02", partition="x"), group_of("c", "03")]
    plan = plan_cleaning(groups, COMMITS, from_commit("04"), {}, Protected())
    names = [".b_01.log.1_0-1-0", "a_0-1-0_01.parquet", "b_0-1-0_01.parquet", "b_0-1-0_02.parquet"]
    assert plan.files == {"x": names}
    assert plan.last_completed == "06"
    assert str(plan) == (
        "clean of 4 files in 1 partition by KEEP_LATEST_COMMITS, what 04 and later commits see is kept"
    )


@pytest.mark.parametrize(
    ("last_clean", "earliest", "kept", "expected"),
    [
        ("", "02", 2, True),  # nothing was cleaned yet
        ("045", "04", 2, True),  # the compaction 03 has fallen behind 04
        ("045", "03", 2, False),
        ("065", "05", 2, False),  # 05 itself is the earliest
        ("065", "06", 2, True),
    ],
)
def test_whether_a_slice_may_have_expired(last_clean: str, earliest: str, kept: int, expected: bool) -> None:
    assert has_expired_since(last_clean, COMMITS, from_commit(earliest), kept) is expected


def test_versions_may_always_have_expired() -> None:
    assert has_expired_since("065", COMMITS, Retention(CleaningPolicy.KEEP_LATEST_FILE_VERSIONS, None, 1), 2)

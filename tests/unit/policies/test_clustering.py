"""Which partition paths and file slices a clustering takes, as real Hudi's strategies do."""

from __future__ import annotations

from datetime import datetime

import pytest

from lakebed.model import Action, BaseFile, FileSlice, Instant, LogFile, State
from lakebed.policies.clustering import GroupSizes, PartitionChoice, commits_since_clustering, replaced_ids

MIB = 1 << 20
NOW = datetime(2026, 3, 4, 5, 6)
DAYS = [f"2026-03-{day:02d}" for day in range(1, 31)]


def slice_of(partition: str, name: str, size: int | None, *, logs: int = 0) -> FileSlice:
    base = None
    if size is not None:
        base = BaseFile(partition, f"{name}_0-0-0_{name}.parquet", name, "0-0-0", "20260101000000000", size)
    log = LogFile(partition, f".{name}_1.log.1_0-0-0", name, "20260101000000001", 1, "0-0-0", "", 10)
    return FileSlice(partition, name, "20260101000000000", base, (log,) * logs)


@pytest.mark.parametrize(
    ("choice", "taken", "left"),
    [
        (PartitionChoice(), DAYS, []),
        (PartitionChoice(selected=("2026-03-02", "elsewhere")), DAYS[1:2], []),
        (PartitionChoice(pattern=r"2026-03-1\d"), DAYS[9:19], []),
        (PartitionChoice(pattern="2026"), [], []),
        (PartitionChoice(filter="RECENT_DAYS"), DAYS[-2:], []),
        (PartitionChoice(filter="RECENT_DAYS", recent_days=3, skipped_days=1), DAYS[-4:-1], DAYS[-1:]),
        (PartitionChoice(filter="SELECTED_PARTITIONS", first="2026-03-05", last="2026-03-07"), DAYS[4:7], []),
        (PartitionChoice(filter="SELECTED_PARTITIONS", first="2026-03-29"), DAYS[28:], []),
        (PartitionChoice(filter="DAY_ROLLING"), [DAYS[5], DAYS[29]], []),
    ],
)
def test_partition_paths_are_selected_by_name_pattern_and_filter(
    choice: PartitionChoice, taken: list[str], left: list[str]
) -> None:
    assert choice.of(reversed(DAYS), NOW) == (taken, left)


def test_the_largest_come_first_and_a_group_ends_where_the_next_does_not_fit() -> None:
    slices = [slice_of("p", name, size * MIB) for name, size in (("a", 10), ("b", 40), ("c", 25), ("d", 30))]
    groups, left = GroupSizes(group_bytes=70 * MIB, file_bytes=30 * MIB).groups(slices)
    assert [[one.file_id for one in group.slices] for group in groups] == [["b", "d"], ["c", "a"]]
    assert [group.outputs for group in groups] == [3, 2]
    assert left == []
    by_time, _ = GroupSizes(group_bytes=70 * MIB, order="INSTANT_TIME").groups(slices)
    assert [[one.file_id for one in group.slices] for group in by_time] == [["a", "b"], ["c", "d"]]


def test_large_files_and_those_of_pending_plans_are_left_alone() -> None:
    slices = [slice_of("p", "large", 300 * MIB), slice_of("p", "busy", 1), slice_of("p", "a", 1), slice_of("p", "b", 2)]
    (group,), _ = GroupSizes().groups(slices, {("p", "busy")})
    assert [one.file_id for one in group.slices] == ["b", "a"]


def test_a_slice_without_base_file_counts_as_what_it_will_become() -> None:
    slices = [slice_of("p", "a", 100 * MIB), slice_of("p", "logged", None, logs=1)]
    groups, _ = GroupSizes(group_bytes=200 * MIB, new_file_bytes=120 * MIB).groups(slices)
    assert [[one.file_id for one in group.slices] for group in groups] == [["logged"], ["a"]]


def test_a_file_that_stays_alone_is_left_out_where_that_is_asked_for() -> None:
    slices = [slice_of("p", "alone", 5), slice_of("q", "logged", 5, logs=2), slice_of("r", "x", 5)]
    assert [g.partition for g in GroupSizes(singles=False).groups(slices)[0]] == ["q"]
    assert [g.partition for g in GroupSizes(singles=True).groups(slices)[0]] == ["p", "q", "r"]


def test_partition_paths_that_do_not_fit_any_more_are_named() -> None:
    slices = [slice_of(f"p{n}", f"f{n}{m}", 5) for n in range(4) for m in range(2)]
    groups, left = GroupSizes(max_groups=2).groups(slices)
    assert [g.partition for g in groups] == ["p0", "p1"]
    assert left == ["p2", "p3"]


def test_each_slice_is_a_group_of_its_own_where_file_groups_stay() -> None:
    slices = [slice_of("p", name, size) for name, size in (("a", 1), ("b", 2))]
    groups, _ = GroupSizes(single_file=True).groups(slices)
    assert [[one.file_id for one in group.slices] for group in groups] == [["b"], ["a"]]


def test_commits_count_from_the_last_clustering_on() -> None:
    instants = [Instant(f"{n}", Action.COMMIT, State.COMPLETED, f"{n}", "") for n in range(1, 7)]
    pending = Instant("8", Action.COMMIT, State.INFLIGHT, None, "")
    clean = Instant("7", Action.CLEAN, State.COMPLETED, "7", "")
    assert commits_since_clustering([*instants, pending, clean], ["2", "4"]) == 2
    assert commits_since_clustering(instants, []) == 6


def test_replaced_file_groups_are_named_by_partition_path() -> None:
    assert replaced_ids([("q", "2"), ("p", "1"), ("q", "1")]) == {"p": ("1",), "q": ("1", "2")}

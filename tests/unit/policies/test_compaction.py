"""When a compaction is due, and what compactions and log compactions take."""

from __future__ import annotations

from datetime import date

import pytest

from lakebed.model import CommitMetadata, FileGroupId, FileSlice
from lakebed.policies.compaction import (
    Selection,
    StrategyName,
    changed_partitions,
    delta_commits_since_compaction,
    last_compaction,
    most_log_bytes,
    plan_compaction,
    plan_log_compaction,
)
from support.instants_in_words import completed, file_slice

MB = 1 << 20


@pytest.mark.parametrize(
    ("commits", "last", "count"),
    [
        ("", None, 0),
        ("d01 d02", None, 2),
        ("d01 c02 d03 d04", "02", 2),
        ("d01 c02 d03 c04", "04", 0),
        ("d01>05 c02 d03", "02", 2),  # requested before the compaction, completed after its plan was made
        ("d01>02 c02 d03", "02", 1),
        ("d01 c02>06 d03>04", "02", 1),  # counted from when the compaction was requested
        ("c02 r03 d04", "02", 1),  # a replacement is no delta commit
    ],
)
def test_delta_commits_since_the_last_compaction(commits: str, last: str | None, count: int) -> None:
    instants = completed(commits)
    found = last_compaction(instants)
    assert (found.time if found else None) == last
    assert delta_commits_since_compaction(instants) == count


SLICES = [
    file_slice("a", "01", base=5 * MB, logs={"02": 2 * MB}),
    file_slice("b", "01", base=9 * MB),
    file_slice("c", "01", partition="q", base=MB, logs={"02": MB, "03": 7 * MB}),
    file_slice("d", "02", partition="q", logs={"02": 3 * MB}),
]


def taken(slices: tuple[FileSlice, ...]) -> list[str]:
    return [one.file_id for one in slices]


def test_a_compaction_takes_every_slice_with_log_files() -> None:
    plan = plan_compaction(SLICES)
    assert taken(plan.slices) == ["a", "c", "d"]
    assert plan.missing == ()
    assert str(plan) == f"compaction of 3 file slices with 4 log files, {13 * MB} bytes"


@pytest.mark.parametrize(
    ("least", "target", "busy", "expected", "missing"),
    [
        (0, 512_000, [], ["c", "d", "a"], ()),
        (3 * MB, 512_000, [], ["c", "d"], ("p",)),
        (0, 1, [], ["c"], ("p", "q")),  # the first goes in whatever it costs
        (0, 10, [], ["c"], ("p", "q")),  # 9 MB read and 1 MB written use it up
        (0, 11, [], ["c", "d"], ("p",)),
        (0, 512_000, [("q", "c")], ["d", "a"], ("q",)),
        (0, 512_000, [("p", "b")], ["c", "d", "a"], ()),  # it has nothing to compact
    ],
)
def test_slices_with_the_most_log_bytes_come_first(
    least: int, target: int, busy: list[FileGroupId], expected: list[str], missing: tuple[str, ...]
) -> None:
    strategy = most_log_bytes(at_least=least, target_megabytes=target)
    plan = plan_compaction(SLICES, busy=set(busy), strategy=strategy)
    assert (taken(plan.slices), plan.missing) == (expected, missing)


@pytest.mark.parametrize(
    ("least", "before", "blocks", "expected"),
    [
        (1, None, {"a": 1, "c": 2, "d": 1}, {"a": 1, "c": 2, "d": 1}),
        (2, None, {"c": 2}, {"c": 2}),
        (2, None, {"c": 1}, {}),  # files whose blocks are rolled back
        (
            1,
            "03",
            {"a": 1, "c": 1, "d": 1},
            {"a": 1, "c": 1, "d": 1},
        ),  # 03 may still get an older one behind it
        (2, "03", {}, {}),
        (1, "02", {}, {}),
    ],
)
def test_a_log_compaction_takes_slices_with_many_blocks(
    least: int, before: str | None, blocks: dict[str, int], expected: dict[str, int]
) -> None:
    counted: list[str] = []

    def count_blocks(one: FileSlice) -> int:
        counted.append(one.file_id)
        return blocks[one.file_id]

    plan = plan_log_compaction(SLICES, min_blocks=least, count_blocks=count_blocks, before=before)
    assert {one.file_id: len(one.log_files) for one in plan.slices} == expected
    assert plan.is_log_compaction
    assert counted == list(blocks)  # only slices with enough files are looked into


def test_log_compaction_leaves_busy_groups() -> None:
    plan = plan_log_compaction(SLICES, min_blocks=1, count_blocks=lambda _: 1, busy={("q", "c")})
    assert taken(plan.slices) == ["a", "d"]
    assert str(plan).startswith("log compaction of 2 ")


@pytest.mark.parametrize(
    ("name", "options", "expected", "missing"),
    [
        ("LogFileNumBased", {}, ["c", "a", "d"], ()),
        ("LogFileNumBased", {"min_log_files": 2}, ["c"], ("p", "q")),
        ("LogFileNumBased", {"target_megabytes": 1}, ["c"], ("p", "q")),
        ("LogFileSizeBased", {"target_megabytes": 1}, ["c"], ("p", "q")),
        ("BoundedIO", {"target_megabytes": 1}, ["a"], ("q",)),
        ("BoundedIO", {"target_megabytes": 13}, ["a", "c"], ("q",)),  # 7 MB read, 5 written, one left
        ("UnBounded", {"target_megabytes": 1}, ["a", "c", "d"], ()),
    ],
)
def test_strategies_order_and_cut(
    name: StrategyName, options: dict[str, int], expected: list[str], missing: tuple[str, ...]
) -> None:
    plan = plan_compaction(SLICES, strategy=Selection(name, **options).slices)
    assert (taken(plan.slices), plan.missing) == (expected, missing)


def test_empty_log_files_cost_nothing() -> None:
    """As for real Hudi: slices of no megabyte go in as long as anything of the target is left."""
    small = [file_slice(group, "01", base=1, logs={"02": 1}) for group in "abc"]
    assert taken(plan_compaction(small, strategy=Selection("BoundedIO", target_megabytes=1).slices).slices) == [*"abc"]


TODAY = date(2026, 11, 23)
PATHS = ["2026/11/23", "2026/11/01", "2026/11/22", "2025/12/31", "year=2026/month=11/day=21", "odd"]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("LogFileSizeBased", {}, sorted(PATHS)),
        ("DayBased", {"days": 3}, ["2026/11/23", "2026/11/22", "year=2026/month=11/day=21"]),
        ("DayBased", {"days": 9}, [*PATHS[:1], PATHS[2], PATHS[4], PATHS[1], PATHS[3], "odd"]),
        ("BoundedPartitionAware", {"days": 10}, ["2026/11/23", "2026/11/22", "year=2026/month=11/day=21"]),
        ("BoundedPartitionAware", {"days": 1}, ["2026/11/23", "2026/11/22"]),
        ("UnBoundedPartitionAware", {"days": 10}, ["2026/11/01", "2025/12/31", "odd"]),
        ("PartitionRegexBased", {"partition_regex": r"2026/.*"}, ["2026/11/01", "2026/11/22", "2026/11/23"]),
        ("PartitionRegexBased", {"partition_regex": r"2026"}, []),  # the whole path has to match
    ],
)
def test_partition_paths_of_strategies(name: StrategyName, options: dict[str, object], expected: list[str]) -> None:
    assert Selection(name, **options).partitions(PATHS, TODAY) == expected  # pyright: ignore[reportArgumentType]


def test_bounded_and_unbounded_strategies_take_every_path_once() -> None:
    parts = [Selection(name).partitions(PATHS, TODAY) for name in ("BoundedPartitionAware", "UnBoundedPartitionAware")]
    assert sorted(parts[0] + parts[1]) == sorted(PATHS)


def test_paths_that_were_passed_over_are_missing() -> None:
    assert plan_compaction(SLICES, passed_over=["z"]).missing == ("z",)
    assert plan_compaction(SLICES, passed_over=["z"], remembers=False).missing is None


def test_partition_paths_since_a_compaction() -> None:
    written = {"01": ("a",), "02": ("b",), "05": ("c",), "06": ("d",), "07": ("e",)}
    instants = completed("d01 d02>04 c03 d05 r06 c07")
    bodies = [CommitMetadata("UPSERT", dict.fromkeys(written.get(i.time, ()), ())) for i in instants]
    bodies[4] = CommitMetadata("INSERT_OVERWRITE", {}, {"d": ("f",)})
    found = changed_partitions(zip(instants, bodies, strict=True), instants[2], ["m"])
    # 02 completed behind the plan of the compaction, which had left m
    assert found == {"b", "c", "d", "m"}

"""When compactions and log compactions are due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakebed.model import BaseFile, FileSlice, Instant, LogFile, LogWeight
from lakebed.policies.compaction import (
    LIGHT_LOG_BYTES,
    CompactionTrigger,
    LogBounds,
    TriggerName,
    log_compaction_verdict,
    plan_compaction,
)
from support.instants_in_words import completed, pending

# Times of the cases are seconds within a minute.
_MINUTE = "202611231200"


def instants(done: str, waiting: str = "") -> list[Instant]:
    found = [*completed(_long(done)), *pending(_long(waiting))]
    return sorted(found)


def at(seconds: int) -> str:
    return f"{_MINUTE}{seconds:02d}000"


def _long(words: str) -> str:
    """`d01>05` with whole instant times."""
    found: list[str] = []
    for word in words.split():
        kind, times = (word.partition(":")[0] + ":", word.partition(":")[2]) if ":" in word else (word[0], word[1:])
        found.append(kind + ">".join(at(int(time)) for time in times.split(">")))
    return " ".join(found)


@pytest.mark.parametrize(
    ("name", "done", "waiting", "due"),
    [
        ("NUM_COMMITS", "d01 d02", "", False),
        ("NUM_COMMITS", "d01 d02 d03", "", True),
        ("NUM_COMMITS", "d01 d02 d03 c04 d05 d06", "", False),
        ("NUM_COMMITS", "d01 d02 d03>06 c04>05 d07 d08", "", True),  # 03 completed behind the plan of 04
        ("NUM_COMMITS", "", "d01", False),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", "d01 d02 d03", "", True),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", "d01 d02 d03 d05 d06", "compaction:04", False),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", "d01 d02 d03 d05 d06", "compaction:04 d07", True),  # pending ones count
        ("NUM_COMMITS_AFTER_LAST_REQUEST", "d01 c02 d03 d04", "", False),
        ("TIME_ELAPSED", "d10", "", False),
        ("TIME_ELAPSED", "d10 d25", "", False),
        ("TIME_ELAPSED", "d09", "", True),  # 30 seconds after the first delta commit
        ("TIME_ELAPSED", "d01 c20", "", False),
        ("TIME_ELAPSED", "d01 c09", "", True),
        ("TIME_ELAPSED", "", "", False),
        ("NUM_OR_TIME", "d20 d21", "", False),
        ("NUM_OR_TIME", "d20 d21 d22", "", True),
        ("NUM_OR_TIME", "d05", "", True),
        ("NUM_AND_TIME", "d20 d21 d22", "", False),
        ("NUM_AND_TIME", "d05", "", False),
        ("NUM_AND_TIME", "d05 d06 d07", "", True),
    ],
)
def test_a_compaction_is_due_by_commits_or_seconds(name: TriggerName, done: str, waiting: str, due: bool) -> None:
    trigger = CompactionTrigger(name, delta_commits=3, delta_seconds=30)
    verdict = trigger.verdict(instants(done, waiting), at(39), "UTC")
    assert verdict.is_due == due, verdict.why


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("NUM_COMMITS", "2 delta commits since the last compaction, due from 3 on"),
        ("TIME_ELAPSED", "29 s since the last compaction, due from 30 s on"),
        (
            "NUM_AND_TIME",
            "2 delta commits since the last compaction, due from 3 on; "
            "29 s since the last compaction, due from 30 s on",
        ),
    ],
)
def test_a_verdict_says_why(name: TriggerName, why: str) -> None:
    trigger = CompactionTrigger(name, delta_commits=3, delta_seconds=30)
    assert trigger.verdict(instants("d01 c10 d11 d12"), at(39), "UTC").why == why


@pytest.mark.parametrize(
    ("done", "log_compactions", "waiting", "due"),
    [
        ("d01 d02", "", "", False),
        ("d01 d02 d03", "", "", True),
        ("d01 d02 c03 d04 d05 d06", "", "", True),
        ("d01 d02 d03 c04 d05", "", "", False),
        ("d01 d02 d03 d04 d05", "d03", "", False),
        ("d01 d02 d03 d04 d05 d06", "d03", "", True),
    ],
)
def test_a_log_compaction_is_due(done: str, log_compactions: str, waiting: str, due: bool) -> None:
    verdict = log_compaction_verdict(instants(done, waiting), completed(_long(log_compactions)), 3)
    assert verdict.is_due == due, verdict.why


BOUNDS = LogBounds(percent=10, files=3, seconds=30)


@pytest.mark.parametrize(
    ("weight", "exceeded"),
    [
        (LogWeight(10_000_000, 1, 1_000_000, at(20)), None),
        (LogWeight(10_000_000, 1, 1_000_001, at(20)), "bytes"),
        (LogWeight(0, 1, LIGHT_LOG_BYTES, at(20)), None),
        (LogWeight(0, 1, LIGHT_LOG_BYTES + 1, at(20)), "bytes"),
        (LogWeight(10_000_000, 3, 1_000, at(20)), None),
        (LogWeight(10_000_000, 4, 1_000, at(20)), "number"),
        (LogWeight(10_000_000, 1, 1_000, at(9)), None),
        (LogWeight(10_000_000, 1, 1_000, at(8)), "age"),
        (LogWeight(10_000_000, 4, 1_000_001, at(8)), "bytes"),
        (LogWeight(10_000_000), None),
    ],
)
def test_a_file_slice_is_due_by_bytes_number_or_age_of_its_logs(weight: LogWeight, exceeded: str | None) -> None:
    assert BOUNDS.exceeded(weight, BOUNDS.oldest(at(39), "UTC")) == exceeded


def logged(name: str, sizes: list[int], second: int = 20, base: int = 1_000_000) -> FileSlice:
    logs = [LogFile("", name, at(second), 1, "0-0-0", f".{name}_{number}", size) for number, size in enumerate(sizes)]
    return FileSlice("", name, at(1), BaseFile("", name, "0-0-0", at(1), name, base), tuple(logs))


def test_only_slices_that_exceed_a_bound_are_due_and_the_verdict_counts_them() -> None:
    slices = [
        logged("heavy", [LIGHT_LOG_BYTES, 1]),
        logged("light", [10]),
        logged("many", [1, 1, 1, 1]),
        logged("old", [1], second=2),
        logged("none", []),
    ]
    due, verdict = BOUNDS.due(slices, at(39), "UTC")
    assert [file_slice.file_id for file_slice in due] == ["heavy", "many", "old"]
    assert verdict.is_due
    assert verdict.why == (
        "3 of 4 file slices with log files: 1 with more than 10 % of the base file's bytes in log files, 1 with more"
        " than 3 log files, 1 with a log file that is older than 30 s"
    )
    due, verdict = BOUNDS.due(slices[1:2], at(39), "UTC")
    assert (due, verdict.is_due) == ([], False)
    assert verdict.why == (
        "none of 1 file slice with log files has more than 10 % of the base file's bytes in log files, more than"
        " 3 log files, a log file that is older than 30 s"
    )
    assert BOUNDS.due(slices[4:], at(39), "UTC")[1].why == "no file slice has log files"


def test_a_plan_has_the_due_slices_and_names_the_partition_paths_of_the_others() -> None:
    slices = [replace(logged(name, [1]), partition=name) for name in ("a", "b", "c")]
    plan = plan_compaction(slices, due={("b", "b")}, busy={("c", "c")})
    assert [file_slice.file_id for file_slice in plan.slices] == ["b"]
    assert plan.missing == ("a", "c")
    assert plan_compaction(slices, due=set()).slices == ()

"""When compactions and log compactions are due."""

from __future__ import annotations

import pytest

from lakebed.model import Instant
from lakebed.policies.compaction import CompactionTrigger, TriggerName, log_compaction_verdict
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

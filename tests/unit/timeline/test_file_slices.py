"""Which file slice a file belongs to, and which slice a view shows: one assembly for the data table and its metadata
table."""

from __future__ import annotations

import pytest

from lakebed.model import Action, BaseFile, Instant, LogFile, State
from lakebed.timeline.file_slices import all_slices, latest_slices
from support.instants_in_words import base_file, log_file

# what completed when: 02 began before the compaction 03 and completed after it
COMPLETED = {"01": "01", "02": "05", "03": "04", "06": "07"}


def files(words: str) -> tuple[list[BaseFile], list[LogFile]]:
    """`b01` is a base file of instant 01, `l02` a log file."""
    base = [base_file("f", word[1:]) for word in words.split() if word[0] == "b"]
    return base, [log_file("f", word[1:], n) for n, word in enumerate(words.split()) if word[0] == "l"]


def in_words(base: tuple[BaseFile, ...], logs: tuple[LogFile, ...]) -> str:
    return " ".join([*(f"b{file.instant}" for file in base), *(f"l{log.instant}" for log in logs)])


@pytest.mark.parametrize(
    ("version", "given", "slices"),
    [
        (9, "b01", ["b01"]),
        (9, "b01 l02", ["b01 l02"]),
        (9, "b01 l02 b03", ["b01", "b03 l02"]),  # completed behind the compaction: on top of it
        (9, "b01 l02 b03 l06", ["b01", "b03 l02 l06"]),
        (9, "b02 l02 l02 b03", ["b02 l02 l02", "b03"]),  # upgraded from version 6: still named after its slice
        (9, "b00 l00 b03", ["b00 l00", "b03"]),  # also where nothing tells any more when that completed
        (9, "l02 l06", ["l02 l06"]),  # the first log begins the slice
        (9, "l01 b03", ["l01", "b03"]),
        (9, "b01 l08", ["b01 l08"]),  # one that is pending belongs to the newest
        (9, "b03 l02 b06", ["b03 l02", "b06"]),
        (6, "b01 l01 l01 b03 l03", ["b01 l01 l01", "b03 l03"]),  # logs are named after their slice
        (6, "l02", ["l02"]),
        (9, "b03 b03", ["b03 b03"]),  # a task that was tried twice
        (9, "", []),
    ],
)
def test_all_slices_of_a_group(version: int, given: str, slices: list[str]) -> None:
    groups = list(all_slices(*files(given), version=version, completion_time=COMPLETED.get))
    found = [in_words(part.base_files, part.log_files) for group in groups for part in group.slices]
    assert found == slices


@pytest.mark.parametrize(
    ("given", "planned", "hidden", "instant", "shown"),
    [
        ("b01 b03", "", "", "03", "b03"),
        ("b01 b03", "", "03", "01", "b01"),
        ("b01", "", "01", None, ""),
        ("b01 l02 b03", "", "", "03", "b03 l02"),
        ("b01 l02 l06", "03", "", "01", "b01 l02 l06"),  # a pending compaction hides nothing
        ("b01 l02 b03", "03", "03", "01", "b01 l02"),  # nor does the base file that it has written already
        ("l06", "03", "", "03", "l06"),
        ("b01", "03", "", "01", "b01"),
        ("", "03", "", None, ""),
        ("b01 l02", "", "02", "01", "b01"),
    ],
)
def test_the_slice_that_is_shown(given: str, planned: str, hidden: str, instant: str | None, shown: str) -> None:
    pending = {("p", "f"): Instant(planned, Action.COMPACTION, State.REQUESTED)} if planned else {}
    found = latest_slices(
        *files(given),
        version=9,
        is_visible=lambda time: time not in hidden.split(),
        completion_time=COMPLETED.get,
        replaced=(),
        pending_compactions=pending,
    )
    slices = [(one.instant, in_words((one.base_file,) if one.base_file else (), one.log_files)) for one in found]
    assert slices == ([] if instant is None else [(instant, shown)])


def test_replaced_groups_are_left_out_and_the_others_ordered() -> None:
    base = [base_file(group, "01", partition=path) for path, group in [("q", "a"), ("p", "c"), ("p", "b")]]
    found = latest_slices(
        base,
        [],
        version=9,
        is_visible=lambda _: True,
        completion_time=COMPLETED.get,
        replaced={("p", "c")},
        pending_compactions={},
    )
    assert [(one.partition, one.file_id) for one in found] == [("p", "b"), ("q", "a")]


def test_files_of_failed_attempts_are_not_shown() -> None:
    named, failed = base_file("f", "01"), base_file("f", "01", token="1-1-0")
    for logs in ([], [log_file("f", "06")]):
        (found,) = latest_slices(
            [named, failed],
            logs,
            version=9,
            is_visible=lambda _: True,
            is_named=lambda file: file == named,
            completion_time=COMPLETED.get,
            replaced=(),
            pending_compactions={},
        )
        assert found.base_file == named


def test_completion_times_are_asked_for_only_where_they_matter() -> None:
    requested: list[str] = []

    def completion_time(instant: str) -> str | None:
        requested.append(instant)
        return COMPLETED.get(instant)

    list(all_slices(*files("b01 l02 b03 l06"), version=9, completion_time=completion_time))
    assert requested == ["02"]

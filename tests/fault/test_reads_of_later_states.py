"""A read that stood still at a call of storage, while others did everything that tables have, shows the table as it was
at some moment since it began."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata_records.layout import file_group
from support.changing_tables import QUIET
from support.crash_tables import OPTIONS, rows
from support.table_states import States, jumping, short_metadata_timelines

SETTINGS = {
    **QUIET,
    "hoodie.compact.inline": False,
    "hoodie.compact.inline.max.delta.commits": 1,
    "hoodie.metadata.compact.max.delta.commits": 3,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.clean.commits.retained": 1,
}
Rows = dict[int, tuple[str, str]]


def create(
    kind: str, version: int, index: str, settings: Mapping[str, Any] = SETTINGS, indexes: Sequence[str] | None = None
) -> States:
    states = States.new()
    lakebed.create(
        states.uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        index=index,
        buckets=2 if index == "bucket" else None,
        indexes=indexes,
        table_version=version,
        properties=settings,
    )
    return states


def upsert(states: States, *keys: int, verb: str = "upsert") -> None:
    number = len(states.files)
    given = rows(*((key, f"c{key % 2}", f"v{number}", number) for key in keys))
    getattr(lakebed.open(states.uri), verb)(given, options=OPTIONS)
    states.note(verb)


def read_rows(table: Any) -> Rows:
    return {row["id"]: (row["city"], row["v"]) for row in table.select(["id", "city", "v"]).to_pylist()}


def met(states: States, first: int, last: int, read: Callable[[], Any]) -> list[tuple[str, Any]]:
    """What a read gives that meets the later state at each of its calls of storage, with the call."""
    states.enter(first)
    with jumping(0, lambda: None) as counted:
        read()
    answers: list[tuple[str, Any]] = []
    for at in range(1, counted.calls + 1):
        states.enter(first)
        with jumping(at, lambda: states.enter(last)) as jumped:
            answer = read()
        answers.append((f"call {at}, {jumped.call}", answer))
    return answers


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("verb", ["insert_overwrite", "cluster"])
def test_a_replacement_that_was_taken_back_hides_no_rows(verb: str, version: int) -> None:
    """The view shows what it replaced as replaced: without its own files their rows would be nowhere."""
    states = create("cow", version, "simple")
    upsert(states, *range(8))
    before = read_rows(lakebed.open(states.uri).scan().to_arrow())
    table = lakebed.open(states.uri)
    if verb == "cluster":
        table.maintenance.cluster(["v"], options=OPTIONS)
    else:
        table.insert_overwrite(rows(*((key, "c0", "over", 1) for key in (0, 2))), options=OPTIONS)
    states.note(verb)
    after = read_rows(lakebed.open(states.uri).scan().to_arrow())
    replacement = max(i.time for i in lakebed.open(states.uri).timeline)
    lakebed.open(states.uri).rollback(replacement, options=OPTIONS)
    states.note("rollback")
    for call, answer in met(states, 1, 2, lambda: read_rows(lakebed.open(states.uri).scan().to_arrow())):
        assert answer in (before, after), call


@pytest.mark.rest
@pytest.mark.parametrize("version", [9, 8, 6])
def test_an_index_whose_files_were_cleaned_and_archived_is_not_taken_for_a_smaller_one(version: int) -> None:
    """Keys are shared out by the number of file groups: without one of them the others would be asked."""
    numbers = pa.array(map(str, range(400)), pa.string())
    groups = file_group(numbers, 2).tolist()
    first = [n for n in range(400) if groups[n] == 0]
    kept = [n for n in range(400) if groups[n] == 1][:3]
    with short_metadata_timelines():
        states = create("cow", version, "record")
        upsert(states, *first[:3], *kept)
        for n in range(14):
            upsert(states, first[3 + n])
        table = lakebed.open(states.uri)
        table.maintenance.clean(options=OPTIONS)
        table.maintenance.archive(options=OPTIONS)
        upsert(states, first[20])
    keys = first[:3]

    def read() -> Rows:
        return read_rows(lakebed.open(states.uri).scan(where=f"id in {tuple(keys)}").to_arrow())

    begin = 5  # both file groups were compacted once
    states.enter(begin)
    expected = read()
    assert sorted(expected) == sorted(keys)
    for call, answer in met(states, begin, len(states.files) - 1, read):
        assert answer == expected, call

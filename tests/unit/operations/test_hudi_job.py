"""A write that lost is run again with the table of that moment, so often as the options say, and no oftener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.config.options import resolve_options
from lakebed.engine.local import LocalEngine
from lakebed.errors import CommitConflict, SourceError
from lakebed.operations.context import WriteContext
from lakebed.operations.hudi_job import RETRIES, choose_engine, run_again, with_partial, with_retries, write_context
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import upsert
from support.pauses import in_place_of_pauses
from support.tables import context_of, new_table
from support.write_tables import SCHEMA, content, rows

ROW = (1, "oslo", "ours", 2)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between runs, which take no time here."""
    seen: list[float] = []
    in_place_of_pauses(monkeypatch, seen.append)
    return seen


@pytest.fixture
def table() -> lakebed.Table:
    return new_table()


def contexts(table: lakebed.Table, retries: int) -> tuple[list[WriteContext], Callable[[], WriteContext]]:
    """What makes the context of each run, and those that it made."""
    made = list[WriteContext]()

    def make() -> WriteContext:
        made.append(context_of(table, **{RETRIES: retries}))
        return made[-1]

    return made, make


def losing(times: int, before: Callable[[], Any] = lambda: None) -> Callable[[WriteContext, Any], WriteResult]:
    """An upsert that reads its rows and then loses so many times."""
    left = [times]

    def verb(context: WriteContext, data: Any) -> WriteResult:
        read = data.read_all() if isinstance(data, pa.RecordBatchReader) else data
        if left[0]:
            left[0] -= 1
            before()
            raise CommitConflict("another writer was first")
        return upsert(context, read)

    return verb


def test_a_write_is_run_as_often_as_it_lost_and_the_retries_allow(table: lakebed.Table, pauses: list[float]) -> None:
    for retries in (0, 1, 3):
        for lost in range(retries + 2):
            made, make = contexts(table, retries)
            pauses.clear()
            row = (retries, "oslo", f"{lost} lost", 10 + lost)
            if lost <= retries:
                context, result = run_again(make, losing(lost), rows(row), "upsert")
                assert (context, result.retries) == (made[-1], lost), (retries, lost)
                assert row in content(table), (retries, lost)
            else:
                with pytest.raises(CommitConflict) as raised:
                    run_again(make, losing(lost), rows(row), "upsert")
                assert raised.value.context.get("retries", 0) == retries, (retries, lost)
                assert row not in content(table), (retries, lost)
            assert len(made) == min(lost, retries) + 1, (retries, lost)
            assert len(pauses) == min(lost, retries), (retries, lost)


def test_each_pause_is_up_to_twice_the_one_before_and_ten_seconds_at_most(
    table: lakebed.Table, pauses: list[float]
) -> None:
    _, make = contexts(table, 10)
    run_again(make, losing(10), rows(ROW), "upsert")
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]
    assert [most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True)] == [True] * 10


def test_a_run_begins_with_what_others_wrote_meanwhile(table: lakebed.Table) -> None:
    made, make = contexts(table, 1)
    run_again(make, losing(1, lambda: lakebed.open(table.uri).upsert(rows((2, "rome", "theirs", 1)))), rows(ROW), "")
    assert [len(context.opened.commits) for context in made] == [0, 1]
    assert content(table) == [ROW, (2, "rome", "theirs", 1)]


def test_rows_that_can_be_read_once_are_kept_for_the_next_run(table: lakebed.Table) -> None:
    read = list[int]()

    def batches() -> Iterator[pa.RecordBatch]:
        read.append(1)
        yield from rows(ROW, (2, "rome", "b", 1)).to_batches()

    _, make = contexts(table, 2)
    run_again(make, losing(2), pa.RecordBatchReader.from_batches(SCHEMA, batches()), "upsert")
    assert read == [1]
    assert content(table) == [ROW, (2, "rome", "b", 1)]


def test_a_source_that_failed_is_not_run_again_where_no_session_evaluates_it(table: lakebed.Table) -> None:
    made, make = contexts(table, 3)

    def verb(context: WriteContext, data: Any) -> WriteResult:
        raise SourceError("the rows changed", context={"input": "changed"})

    with pytest.raises(SourceError, match="the rows changed"):
        run_again(make, verb, rows(ROW), "upsert")
    assert len(made) == 1
    assert content(table) == []


def test_arguments_of_a_call_are_options_only_where_they_were_given() -> None:
    given = {"a": 1}
    assert with_retries(None, given) is given
    assert with_retries(0, given) == {"a": 1, RETRIES: 0}
    assert with_retries(2, None) == {RETRIES: 2}
    assert with_partial(False, given) is given
    assert with_partial(True, None) == {"lakebed.write.partial": True}
    assert given == {"a": 1}


def test_without_a_session_rows_are_written_in_this_process_by_the_given_tasks() -> None:
    engine = choose_engine(rows(ROW), None, resolve_options({"lakebed.write.tasks": 3}))
    assert isinstance(engine, LocalEngine)
    assert not engine.is_distributed


def test_a_context_is_of_the_table_that_was_just_read(table: lakebed.Table) -> None:
    _, make = contexts(table, 0)
    context = make()
    again = write_context(context.storage, context.config, context.engine, context.options, snapshot=context.opened)
    assert again.opened is context.opened

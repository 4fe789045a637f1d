"""A write that lost against a concurrent one is planned anew and run again, as often as caller or table say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.operations.hudi_job import RETRIES
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.table import Table
from support.crash_tables import OPTIONS, Model, copied, leftovers, prepared, put, rows, state
from support.pauses import in_place_of_pauses

Given = tuple[int, str, str, int]
OURS: Given = (0, "c0", "ours", 90)
Verb = Callable[..., Any]


def _without_c0(model: Model) -> Model:
    return {key: row for key, row in model.items() if row[0] != "c0"}


VERBS: dict[str, tuple[Verb, Callable[[Model], Model]]] = {
    "upsert": (lambda t, **how: t.upsert(rows(OURS), **how), lambda m: put(m, OURS)),
    "delete": (lambda t, **how: t.delete(where="city = 'c0'", **how), _without_c0),
    "overwrite": (lambda t, **how: t.insert_overwrite(rows(OURS), **how), lambda m: put(_without_c0(m), OURS)),
    "delete_partitions": (lambda t, **how: t.delete_partitions("c0", **how), _without_c0),
}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between runs, which take no time here."""
    seen: list[float] = []
    in_place_of_pauses(monkeypatch, seen.append)
    return seen


@contextmanager
def overtaken(uri: str, *others: Given) -> Iterator[None]:
    """So many commits in the block find, each as it begins, that another writer has just committed one of these."""
    waiting, commit, busy = list(others), WriteTransaction.commit, []

    def held(self: WriteTransaction, *given: Any, **more: Any) -> Any:
        if waiting and not busy:
            busy.append(True)
            lakebed.open(uri).upsert(rows(waiting.pop(0)), options=OPTIONS)
            busy.clear()
        return commit(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteTransaction, "commit", held)
        yield
    assert not waiting, "the other writers never had their turn"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("index", "version"), [("simple", 9), ("bucket", 6), ("mor-record", 9)])
def test_a_write_that_lost_begins_from_what_the_others_wrote(
    verb: str, index: str, version: int, pauses: list[float]
) -> None:
    files, old = prepared(index, version)
    theirs: list[Given] = [(2, "c0", "theirs", 9), (4, "c0", "theirs", 10)]
    run, model = VERBS[verb]
    with copied("memory", files) as uri:
        with overtaken(uri, *theirs):
            done = run(lakebed.open(uri), retries=2, options=OPTIONS)
        assert done.retries == 2
        assert "run 3 times" in str(done)
        assert done.to_dict()["retries"] == 2
        assert state(uri) == model(put(old, *theirs))
        assert leftovers(uri) == []
    assert 0.05 <= pauses[0] <= 0.1 <= pauses[1] <= 0.2


def test_a_write_that_lost_too_often_is_refused_and_nothing_of_it_stays(pauses: list[float]) -> None:
    files, old = prepared("simple", 9)
    theirs: list[Given] = [(2, "c0", "theirs", 9), (4, "c0", "theirs", 10)]
    with copied("memory", files) as uri:
        with overtaken(uri, *theirs), pytest.raises(CommitConflict) as refused:
            lakebed.open(uri).upsert(rows(OURS), retries=1, options=OPTIONS)
        assert refused.value.context["retries"] == 1
        assert state(uri) == put(old, *theirs)
        assert leftovers(uri) == []
    assert len(pauses) == 1


def test_without_retries_a_conflict_is_raised_at_once(pauses: list[float]) -> None:
    files, old = prepared("simple", 9)
    with copied("memory", files) as uri:
        with overtaken(uri, (2, "c0", "theirs", 9)), pytest.raises(CommitConflict):
            lakebed.open(uri).upsert(rows(OURS), options=OPTIONS)
        assert state(uri) == put(old, (2, "c0", "theirs", 9))
    assert pauses == []


def by_the_table(table: Table) -> Any:
    table.configure({RETRIES: 1})
    return table.upsert(rows(OURS), options=OPTIONS)


def by_a_job(table: Table) -> Any:
    return lakebed.write(
        rows(OURS), table.uri, {**OPTIONS, RETRIES: "1", "hoodie.datasource.write.operation": "upsert"}
    )


def by_the_call(table: Table) -> Any:
    table.configure({RETRIES: 0})
    return table.upsert(rows(OURS), retries=1, options=OPTIONS)


def of_a_stream(table: Table) -> Any:
    return table.upsert(rows(OURS).to_reader(), retries=1, options=OPTIONS)


@pytest.mark.parametrize("write", [by_the_table, by_a_job, by_the_call, of_a_stream])
def test_the_call_the_job_and_the_table_say_how_often(write: Callable[[Table], Any]) -> None:
    files, old = prepared("simple", 9)
    with copied("memory", files) as uri:
        with overtaken(uri, (2, "c0", "theirs", 9)):
            assert write(lakebed.open(uri)).retries == 1
        assert state(uri) == put(old, (2, "c0", "theirs", 9), OURS)


def test_errors_in_the_data_are_raised_without_a_retry(pauses: list[float]) -> None:
    files, old = prepared("simple", 9)
    with copied("memory", files) as uri:
        with pytest.raises(lakebed.SchemaConflict):
            lakebed.open(uri).upsert(pa.table({"id": [1]}), retries=5)
        assert state(uri) == old
    assert pauses == []

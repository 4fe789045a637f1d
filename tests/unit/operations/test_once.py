"""Batches of streams that are written once: which writes are skipped, and what commits record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import lakebed
from lakebed import Once, Table
from lakebed.errors import CommitConflict, CorruptFile, InvalidOption
from lakebed.model import WRITER_ID
from lakebed.storage import open_storage
from lakebed.storage.base import Durable, Storage
from lakebed.storage.opening import wrapping
from lakebed.testing import Killed, crash_at
from lakebed.timeline import timeline as timeline_module
from lakebed.timeline.bodies.commit import encode_commit
from lakebed.timeline.streams import ROLLING_KEYS, SINK_CHECKPOINT, STREAMS, newest_first
from lakebed.timeline.timeline import load_timeline
from support.steady_time import later

KINDS = [(kind, version) for kind in ("cow", "mor") for version in (9, 8, 6)]
ROWS = {"id": [1, 2], "n": [1, 1]}


def created(uri: str, kind: str = "cow", version: int = 9, index: str = "simple", **more: Any) -> Table:
    if index == "bucket":
        more["buckets"] = 1
    return lakebed.create(uri, ROWS, key="id", type=kind, table_version=version, index=index, **more)


def records(t: Table) -> list[tuple[dict[str, str], dict[str, int]]]:
    """Of each commit Hudi's record and lakebed's, the newest commit first."""
    timeline = load_timeline(t.opened.storage, t.opened.config)
    bodies = [timeline.commit_metadata(i).extra for i in newest_first(timeline)]
    return [(json.loads(e.get(SINK_CHECKPOINT, "{}")), json.loads(e.get(STREAMS, "{}"))) for e in bodies]


def as_hudi_left_it(t: Table, checkpoint: str | None, *, rolling: bool = False) -> None:
    """Make the newest commit one of real Hudi, with its own record of batches, or without any."""
    storage, config = t.opened.storage, t.opened.config
    timeline = load_timeline(storage, config)
    last = next(newest_first(timeline))
    body = timeline.commit_metadata(last)
    left_out = {WRITER_ID, SINK_CHECKPOINT} | (set() if rolling else {STREAMS})
    extra = {key: text for key, text in body.extra.items() if key not in left_out}
    if checkpoint is not None:
        extra[SINK_CHECKPOINT] = checkpoint
    path = f"{config.timeline_path}/{last.file_name}"
    storage.write(path, encode_commit(replace(body, extra=extra, raw={}), config.version, last.action))
    timeline_module._BODIES.clear()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_a_batch_is_written_once_and_later_commits_keep_its_record(kind: str, version: int) -> None:
    t = created("memory://once/kinds", kind, version, index="bucket")
    first = t.insert(ROWS, once=Once("q", 0))
    again = t.insert({"id": [3], "n": [3]}, once=Once("q", 0))
    assert (first.skipped, again.skipped, again.instant, again.rows) == (False, True, first.instant, 0)
    assert str(again) == f"insert: skipped, the batch is written by {first.instant}"
    t.upsert({"id": [1], "n": [5]})
    second = t.upsert({"id": [2], "n": [7]}, once=Once("q", 4, identifier="other"))
    t.delete([1])
    assert t.scan(["id", "n"]).to_arrow().to_pylist() == [{"id": 2, "n": 7}]
    both = ({"default_single_writer": "0", "other": "4"}, {"q": 4})
    assert records(t) == [both, both, *[({"default_single_writer": "0"}, {"q": 0})] * 2]
    assert t.upsert(ROWS, once=Once("q", 0)).instant == first.instant
    assert t.upsert(ROWS, once=Once("q", 3)).instant == second.instant
    assert t.properties[ROLLING_KEYS] == f"{SINK_CHECKPOINT},{STREAMS}"
    lakebed.drop(t.uri)


WRITES: dict[str, Callable[[Table, Once], Any]] = {
    "upsert": lambda t, once: t.upsert({"id": [1], "n": [3]}, once=once),
    "insert": lambda t, once: t.insert({"id": [5], "n": [3]}, once=once),
    "bulk_insert": lambda t, once: t.bulk_insert({"id": [5], "n": [3]}, once=once),
    "delete": lambda t, once: t.delete([1], once=once),
    "delete where": lambda t, once: t.delete(where="id = 1", once=once),
    "insert_overwrite": lambda t, once: t.insert_overwrite({"id": [5], "n": [3]}, once=once),
    "delete_partitions": lambda t, once: t.delete_partitions([""], once=once),
    "update": lambda t, once: t.update({"n": "n + 1"}, once=once),
    "merge": lambda t, once: (
        t.merge({"id": [1], "n": [2]})
        .when_matched_update({"n": "t.n + s.n"})
        .when_not_matched_insert()
        .execute(once=once)
    ),
    "write": lambda t, once: lakebed.write({"id": [1], "n": [3]}, t.uri, {}, once=once),
}
REPEATABLE = {"upsert", "delete", "delete where", "insert_overwrite", "delete_partitions", "write"}


@pytest.mark.every_case
@pytest.mark.parametrize("verb", WRITES)
def test_every_write_method_takes_once(verb: str) -> None:
    t = created("memory://once/verbs")
    t.upsert(ROWS)
    done = WRITES[verb](t, Once("q", 7))
    rows = t.scan(["id", "n"]).to_arrow().sort_by("id").to_pylist()
    again = WRITES[verb](t, Once("q", 7))
    assert (done.skipped, again.skipped, again.instant) == (False, True, done.instant)
    assert type(again) is type(done)
    assert t.scan(["id", "n"]).to_arrow().sort_by("id").to_pylist() == rows
    assert records(t)[0] == ({"default_single_writer": "7"}, {"q": 7})
    lakebed.drop(t.uri)


@pytest.mark.every_case
@pytest.mark.parametrize("verb", WRITES)
def test_a_batch_that_real_hudi_may_have_written_is_repeated_only_where_that_does_no_harm(verb: str) -> None:
    t = created("memory://once/of_hudi")
    t.upsert(ROWS)
    as_hudi_left_it(t, '{"default_single_writer":"8","b":"3"}')
    t.upsert(ROWS)  # a commit of lakebed that takes Hudi's record over
    if verb in REPEATABLE:
        assert not WRITES[verb](t, Once("q", 8)).skipped
        assert records(t)[0] == ({"default_single_writer": "8", "b": "3"}, {"q": 8})
    else:
        with pytest.raises(InvalidOption, match="real Hudi has recorded batch 8 of 'default_single_writer'"):
            WRITES[verb](t, Once("q", 8))
        assert len(t.timeline) == 2
        assert not WRITES[verb](t, Once("q", 8, identifier="mine")).skipped
        assert records(t)[0] == ({"default_single_writer": "8", "b": "3", "mine": "8"}, {"q": 8})
    lakebed.drop(t.uri)


def test_a_stream_goes_on_after_real_hudi_and_a_new_one_after_lakebed() -> None:
    t = created("memory://once/turns")
    t.insert(ROWS, once=Once("q", 8))
    assert not t.insert({"id": [3], "n": [1]}, once=Once("new checkpoint location", 0)).skipped
    assert t.insert(ROWS, once=Once("q", 8)).skipped
    t.upsert(ROWS)
    as_hudi_left_it(t, '{"default_single_writer":"12"}', rolling=True)
    assert t.insert(ROWS, once=Once("q", 8)).skipped
    with pytest.raises(InvalidOption, match="real Hudi has recorded batch 12"):
        t.insert({"id": [4], "n": [1]}, once=Once("q", 9))  # real Hudi may have gone on with this stream
    assert not t.upsert({"id": [4], "n": [1]}, once=Once("q", 9)).skipped
    assert not t.insert({"id": [5], "n": [1]}, once=Once("r", 13)).skipped
    assert records(t)[0] == (
        {"default_single_writer": "13"},
        {"new checkpoint location": 0, "q": 9, "r": 13},
    )
    assert t.count() == 5
    lakebed.drop(t.uri)


@pytest.mark.parametrize("version", [9, 6])
def test_records_outlive_commits_of_writers_that_do_not_take_them_over(version: int) -> None:
    t = created("memory://once/foreign", version=version)
    first = t.insert(ROWS, once=Once("q", 1))
    t.upsert(ROWS)
    as_hudi_left_it(t, None)
    t.upsert(ROWS)
    assert records(t)[0] == ({"default_single_writer": "1"}, {"q": 1})
    assert t.insert(ROWS, once=Once("q", 1)).instant == first.instant
    lakebed.drop(t.uri)


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 8), ("cow", 6)])
def test_records_outlive_archival_and_services(kind: str, version: int) -> None:
    t = created("memory://once/archived", kind, version, index="bucket")
    options = {
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
        "hoodie.clean.commits.retained": 1,
        "hoodie.compact.inline.max.delta.commits": 2,
    }
    first = t.insert(ROWS, once=Once("q", 0))
    for n in range(7):
        t.upsert({"id": [1], "n": [n]}, options=options)
    assert first.instant not in [i.time for i in t.timeline]
    assert {tuple(map(str, found)) for found in records(t)} == {("{'default_single_writer': '0'}", "{'q': 0}")}
    again = t.insert(ROWS, once=Once("q", 0))
    assert (again.skipped, again.instant, t.count()) == (True, first.instant, 2)
    lakebed.drop(t.uri)


def test_compaction_and_clustering_commits_keep_the_records() -> None:
    t = created("memory://once/services", "mor", index="bucket")
    t.upsert(ROWS, once=Once("q", 2))
    t.upsert(ROWS)
    t.maintenance.compact()
    t.columns.add("more", "long")
    assert records(t) == [({"default_single_writer": "2"}, {"q": 2})] * 4
    lakebed.drop(t.uri)
    t = created("memory://once/services")
    t.bulk_insert(ROWS, once=Once("q", 2))
    t.bulk_insert({"id": [3], "n": [3]})
    t.maintenance.cluster()
    assert records(t) == [({"default_single_writer": "2"}, {"q": 2})] * 3
    lakebed.drop(t.uri)


def test_a_batch_that_was_rolled_back_is_written_again() -> None:
    t = created("memory://once/rolled_back")
    t.insert(ROWS, once=Once("q", 0))
    second = t.insert({"id": [3], "n": [1]}, once=Once("q", 1))
    t.rollback(second.instant)
    assert records(t) == [({"default_single_writer": "0"}, {"q": 0})]
    assert not t.insert({"id": [3], "n": [1]}, once=Once("q", 1)).skipped
    assert t.count() == 3
    lakebed.drop(t.uri)


class _Racing:
    """A storage that lets another writer commit when the write inside shows that it is inflight."""

    def __init__(self, inner: Storage, other: Callable[[], object]) -> None:
        self._inner = inner
        self._other: Callable[[], object] | None = other

    def __getattr__(self, name: str) -> Any:
        if name == "put_if_absent" and self._other is not None:

            def put_if_absent(path: str, data: bytes, *, durable: Durable = True) -> bool:
                done = self._inner.put_if_absent(path, data, durable=durable)
                if path.endswith(".inflight") and self._other is not None:
                    other, self._other = self._other, None
                    other()
                return done

            return put_if_absent
        return getattr(self._inner, name)


@pytest.mark.parametrize(
    ("kind", "version", "index"), [("cow", 9, "simple"), ("mor", 9, "bucket"), ("cow", 6, "simple")]
)
def test_the_second_driver_of_one_query_finds_the_batch_under_the_lock(kind: str, version: int, index: str) -> None:
    uri = "memory://once/two_drivers"
    t = created(uri, kind, version, index=index)
    t.upsert({"id": [9], "n": [9]})
    winners: list[Any] = []
    with wrapping(lambda inner: _Racing(inner, lambda: winners.append(t.insert(ROWS, once=Once("q", 5))))):  # pyright: ignore[reportArgumentType]
        slow = lakebed.open(uri)
    lost = slow.insert(ROWS, once=Once("q", 5))
    (winner,) = winners
    assert (winner.skipped, lost.skipped, lost.instant) == (False, True, winner.instant)
    assert t.count() == 3
    assert not [i for i in t.timeline if not i.is_completed]
    lakebed.drop(uri)


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 8), ("mor", 6)])
def test_a_batch_that_is_retried_after_a_crash_at_any_step_is_in_one_commit(kind: str, version: int) -> None:
    step = 0
    while True:
        step += 1
        uri = f"memory://once/crash-{kind}-{version}-{step}"
        t = created(uri, kind, version, index="bucket")
        died = False
        with crash_at(step):
            try:
                lakebed.open(uri).insert(ROWS, once=Once("q", 3))
            except Killed:
                died = True
        with later(400):
            retried = lakebed.open(uri).insert(ROWS, once=Once("q", 3))
        of_batch = [i for i in t.timeline if i.is_completed and i.action.value in ("commit", "deltacommit")]
        assert (len(of_batch), t.count()) == (1, 2), step
        assert retried.skipped or died
        lakebed.drop(uri)
        if not died:
            break
    assert step > 5


def test_the_table_remembers_the_sixteen_streams_that_wrote_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.timeline.streams._MAX_STREAMS", 2)
    t = created("memory://once/many")
    for name in ("a", "b", "a", "c"):
        t.upsert(ROWS, once=Once(name, len(records(t))))
    assert records(t)[0] == ({"default_single_writer": "3"}, {"a": 2, "c": 3})
    lakebed.drop(t.uri)


def test_more_keys_are_taken_over_where_they_are_named() -> None:
    t = created("memory://once/rolling")
    extra = {"hoodie.datasource.write.commitmeta.key.prefix": "_my_", "_my_mark": "17"}
    t.upsert(ROWS, options=extra)
    t.upsert(ROWS, options={"hoodie.write.rolling.metadata.keys": "_my_mark"})
    t.upsert(ROWS)
    commits = load_timeline(t.opened.storage, t.opened.config)
    bodies = commits.commits_metadata(commits.commits)
    assert [body.extra.get("_my_mark") for body in bodies] == ["17", "17", None]
    lakebed.drop(t.uri)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("", 1), "Once\\(\\) takes a text as stream"),
        (("q", -1), "a whole number of at least 0 as batch, not -1"),
        (("q", True), "a whole number of at least 0 as batch"),
        (("q", 1, ""), "a text as identifier"),
    ],
)
def test_a_batch_without_a_name_or_a_number_is_refused(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Once(*given)


def test_once_takes_a_batch_alone() -> None:
    t = created("memory://once/wrong")
    with pytest.raises(InvalidOption, match=r"upsert\(\) takes a lakebed.Once as once, not True"):
        t.upsert(ROWS, once=True)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidOption, match="makes the table again"):
        lakebed.write(ROWS, t.uri, {"hoodie.datasource.write.recordkey.field": "id"}, "overwrite", once=Once("q", 0))
    lakebed.drop(t.uri)


def test_records_that_cannot_be_read_stop_a_write_of_a_batch() -> None:
    t = created("memory://once/damaged")
    t.upsert(ROWS, options={"hoodie.datasource.write.commitmeta.key.prefix": "lakebed.str", STREAMS: "no JSON"})
    t.upsert(ROWS)
    with pytest.raises(CorruptFile, match="records batches of streams as 'no JSON'"):
        t.upsert(ROWS, once=Once("q", 0))
    lakebed.drop(t.uri)


def test_a_new_table_records_the_batch_that_made_it() -> None:
    uri = "memory://once/new"
    options = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.table.name": "new"}
    written = [lakebed.write(ROWS, uri, options, once=Once("q", 0)) for _ in range(2)]
    assert [result is not None and result.skipped for result in written] == [False, True]
    assert open_storage(uri).spec.uri == uri
    lakebed.drop(uri)


def test_a_conflict_of_another_stream_is_still_a_conflict() -> None:
    uri = "memory://once/conflict"
    t = created(uri)
    t.upsert(ROWS)
    other: Callable[[], object] = lambda: t.upsert({"id": [1], "n": [8]}, once=Once("other", 5))  # noqa: E731
    with wrapping(lambda inner: _Racing(inner, other)):  # pyright: ignore[reportArgumentType]
        slow = lakebed.open(uri)
    with pytest.raises(CommitConflict):
        slow.upsert(ROWS, once=Once("q", 5))
    lakebed.drop(uri)

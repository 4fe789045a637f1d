"""Rounds of ingest: rows and checkpoint in one commit, bad rows in a table of their own, and what may go wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict, StorageError, TableNotFound
from lakebed.ingestion.source import BadRow, IngestPoll, IngestSource, bad_table
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline

V2 = "streamer.checkpoint.key.v2"


class Numbers(IngestSource):
    """Rows 0, 1, ... up to `end`, so many a poll; the checkpoint is the next number. `bad` numbers are no rows."""

    def __init__(self, end: int = 0, step: int = 2, bad: Sequence[int] = ()) -> None:
        self.end, self.step, self.bad = end, step, set(bad)
        self.polled: list[str | None] = []

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        self.polled.append(checkpoint)
        start = int(checkpoint or 0)
        stop = min(self.end, start + min(self.step, limit))
        if stop <= start:
            return IngestPoll(None, None, checkpoint)
        good = [n for n in range(start, stop) if n not in self.bad]
        bad = [BadRow(f"n/{n}", b"%d" % n, "JSON_ROW_DESERIALIZATION_FAILURE", "odd") for n in range(start, stop)]
        bad = [row for row in bad if int(row.payload or b"") in self.bad]
        rows = pa.table({"id": pa.array(good, pa.int64()), "text": [f"row {n}" for n in good]}) if good else None
        return IngestPoll(rows, bad_table(bad), str(stop), more=stop < self.end, lag={"messages": self.end - stop})


@pytest.fixture
def uri(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"memory://rounds/{request.node.name}"
    yield name
    lakebed.drop(name, missing_ok=True)


def job_of(source: Any, uri: str, **more: Any) -> dict[str, Any]:
    return {"source": source, "target": {"uri": uri, "create": {"key": "id"}}, "interval": 0} | more


def ids(uri: str) -> list[int]:
    return sorted(lakebed.open(uri).to_arrow()["id"].to_pylist())


def commits(uri: str) -> list[tuple[str | None, int]]:
    """The checkpoint and the number of rows of each completed commit."""
    t = lakebed.open(uri)
    timeline = load_timeline(open_storage(uri), t.opened.config)
    bodies = [timeline.commit_metadata(commit) for commit in timeline.commits]
    return [(b.extra.get(V2), sum(s.num_writes for part in b.stats.values() for s in part)) for b in bodies]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_each_round_is_a_commit_of_rows_and_checkpoint(uri: str, kind: str, operation: str) -> None:
    target = {"uri": uri, "operation": operation, "create": {"key": "id", "type": kind}}
    result = lakebed.ingest(job_of(Numbers(5), uri, target=target), once=True)
    assert (result.rows, result.commits, result.checkpoint) == (5, 3, "5")
    assert ids(uri) == [0, 1, 2, 3, 4]
    assert [checkpoint for checkpoint, _ in commits(uri)] == ["2", "4", "5"]


def test_nothing_new_makes_no_commit_and_the_next_run_goes_on_from_the_checkpoint(uri: str) -> None:
    lakebed.ingest(job_of(Numbers(3), uri), once=True)
    again = Numbers(3)
    assert lakebed.ingest(job_of(again, uri), once=True).commits == 0
    assert again.polled == ["3"]
    more = Numbers(4)
    assert lakebed.ingest(job_of(more, uri), once=True).rows == 1
    assert (more.polled, ids(uri), len(commits(uri))) == (["3"], [0, 1, 2, 3], 3)


def test_a_source_without_rows_creates_no_table(uri: str) -> None:
    assert lakebed.ingest(job_of(Numbers(0), uri), once=True).commits == 0
    assert not lakebed.list_tables(uri, depth=0)


def test_max_rows_bounds_a_round(uri: str) -> None:
    assert lakebed.ingest(job_of(Numbers(6, step=100), uri, max_rows=4), once=True).commits == 2
    assert [checkpoint for checkpoint, _ in commits(uri)] == ["4", "6"]


def test_a_bad_row_ends_the_job_by_its_position_and_nothing_is_committed(uri: str) -> None:
    with pytest.raises(InvalidRecord, match=r"n/1 is no row of the table: odd") as error:
        lakebed.ingest(job_of(Numbers(2, bad=[1]), uri), once=True)
    assert error.value.context["position"] == "n/1"
    assert not lakebed.list_tables(uri, depth=0)


def test_bad_rows_are_in_the_table_of_errors_once_and_the_others_in_the_table(uri: str) -> None:
    errors = {"table": f"{uri}-errors"}
    result = lakebed.ingest(job_of(Numbers(5, bad=[1, 4]), uri, errors=errors), once=True)
    assert (result.rows, result.bad_rows, ids(uri)) == (3, 2, [0, 2, 3])
    rows = lakebed.open(errors["table"]).to_arrow().sort_by("position")
    assert rows.select(["position", "payload", "reason", "error"]).to_pylist() == [
        {"position": f"n/{n}", "payload": b"%d" % n, "reason": "JSON_ROW_DESERIALIZATION_FAILURE", "error": "odd"}
        for n in (1, 4)
    ]
    assert rows["seen_at"].null_count == 0
    lakebed.ingest(job_of(Numbers(5, bad=[1, 4]), uri, errors=errors), once=True, ignore_checkpoint="once")
    assert lakebed.open(errors["table"]).count() == 2


def test_a_round_of_bad_rows_alone_moves_the_checkpoint(uri: str) -> None:
    errors = {"table": f"{uri}-errors"}
    lakebed.ingest(job_of(Numbers(2), uri, errors=errors), once=True)
    lakebed.ingest(job_of(Numbers(4, bad=[2, 3]), uri, errors=errors), once=True)
    assert commits(uri)[1:] == [("4", 0)]
    assert ids(uri) == [0, 1]


def test_bad_rows_before_there_is_a_table_are_passed_by_until_rows_come(uri: str) -> None:
    errors = {"table": f"{uri}-errors"}
    source = Numbers(4, bad=[0, 1])
    result = lakebed.ingest(job_of(source, uri, errors=errors), once=True)
    assert (result.rows, result.bad_rows, source.polled, ids(uri)) == (2, 2, [None, "2"], [2, 3])


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_without_a_key_or_ordering_value_are_bad(uri: str, kind: str) -> None:
    class Rows(IngestSource):
        def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
            rows = pa.table({"id": [1, None, 3], "at": [1, 1, None]})
            return IngestPoll(rows if checkpoint is None else None, None, "1")

    target = {"uri": uri, "create": {"key": "id", "ordering": "at", "type": kind}}
    with pytest.raises(InvalidRecord, match=r"1#1 is no row of the table"):
        lakebed.ingest(job_of(Rows(), uri, target=target), once=True)
    job = job_of(Rows(), uri, target=target, errors={"table": f"{uri}-errors"})
    assert lakebed.ingest(job, once=True).bad_rows == 2
    assert ids(uri) == [1]
    rows = lakebed.open(f"{uri}-errors").to_arrow()
    assert (rows["position"].to_pylist(), set(rows["reason"].to_pylist())) == (["1#1", "1#2"], {"RECORD_CREATION"})


def test_a_null_in_the_ordering_is_the_smallest_value_where_the_writes_say_so(uri: str) -> None:
    class Rows:
        def poll(self, checkpoint: str | None, limit: int) -> tuple[pa.Table, None, str]:
            return pa.table({"id": [1, 2], "at": [None, 5]}), None, "1"

    options = {"lakebed.write.null.ordering": "lowest"}
    target = {"uri": uri, "create": {"key": "id", "ordering": "at"}, "options": options}
    assert lakebed.ingest(job_of(Rows(), uri, target=target), once=True).rows == 2
    assert ids(uri) == [1, 2]


def test_a_transform_is_a_query_over_input(uri: str) -> None:
    sql = "SELECT id * 10 AS id, upper(text) AS text FROM input WHERE id <> 1"
    assert lakebed.ingest(job_of(Numbers(3), uri, transform=sql), once=True).rows == 2
    assert sorted(map(str, lakebed.open(uri).to_arrow().to_pylist())) == [
        "{'id': 0, 'text': 'ROW 0'}",
        "{'id': 20, 'text': 'ROW 2'}",
    ]


def test_a_transform_that_fails_on_a_row_makes_it_a_bad_row(uri: str) -> None:
    sql = "SELECT *, CAST(CASE WHEN id = 2 THEN 'x' ELSE '1' END AS INT) AS n FROM input"
    with pytest.raises(InvalidRecord, match="the transform fails"):
        lakebed.ingest(job_of(Numbers(4, step=4), uri, transform=sql), once=True)
    job = job_of(Numbers(4, step=4), uri, transform=sql, errors={"table": f"{uri}-errors"})
    assert lakebed.ingest(job, once=True).bad_rows == 1
    assert ids(uri) == [0, 1, 3]
    (bad,) = lakebed.open(f"{uri}-errors").to_arrow().to_pylist()
    assert (bad["position"], bad["reason"]) == ("transform#2", "CUSTOM_TRANSFORMER_FAILURE")


@pytest.mark.parametrize("sql", ["SELEC * FROM input", "SELECT nothing FROM input", "SELECT * FROM other"])
def test_a_transform_that_is_no_query_of_the_input_is_refused(uri: str, sql: str) -> None:
    with pytest.raises(InvalidOption, match="the transform is refused"):
        lakebed.ingest(job_of(Numbers(2), uri, transform=sql), once=True)


def test_a_table_that_is_dropped_meanwhile_is_an_error_by_its_name(uri: str) -> None:
    events: list[str] = []

    def drop_after_the_first(event: lakebed.IngestEvent) -> None:
        events.append(event.kind)
        if event.kind == "committed":
            lakebed.drop(uri)

    with pytest.raises(TableNotFound, match="was dropped while the job"):
        lakebed.ingest(job_of(Numbers(4), uri), once=True, on_event=drop_after_the_first)
    assert events == ["committed", "failed"]
    assert not lakebed.list_tables(uri, depth=0)
    # started again, the job reads the source from its start
    assert lakebed.ingest(job_of(Numbers(4), uri), once=True).rows == 4


class Meanwhile(Numbers):
    """Something happens after the second poll, before what that gave is written."""

    def __init__(self, end: int, happens: Callable[[], Any]) -> None:
        super().__init__(end)
        self.happens = happens

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        poll = super().poll(checkpoint, limit)
        if len(self.polled) == 2:
            self.happens()
        return poll


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
@pytest.mark.parametrize("again", [True, False])
def test_a_table_that_is_dropped_between_poll_and_write_does_not_get_the_rows(
    uri: str, again: bool, operation: str, kind: str
) -> None:
    create = {"key": "id", "type": kind, "index": "simple"}
    target = {"uri": uri, "operation": operation, "create": create}

    def drop() -> None:
        lakebed.drop(uri)
        if again:
            t = lakebed.create(uri, pa.schema([("id", pa.int64()), ("text", pa.string())]), **create)
            t.insert({"id": [100], "text": ["other"]}, once=lakebed.Once("other", 7))

    what = "was dropped and created again while" if again else "was dropped while"
    with pytest.raises(TableNotFound, match=what):
        lakebed.ingest(job_of(Meanwhile(6, drop), uri, target=target), once=True)
    assert ids(uri) == [100] if again else not lakebed.list_tables(uri, depth=0)
    assert lakebed.ingest(job_of(Numbers(6), uri, target=target), once=True).rows == 6
    assert ids(uri) == [*range(6), *([100] if again else [])]


def test_a_table_that_is_created_again_is_none_that_hudi_streamer_filled(uri: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])

    def drop() -> None:
        lakebed.drop(uri)
        lakebed.create(uri, schema, key="id")

    streamed = lakebed.create(uri, schema, key="id")
    streamed.upsert({"id": [0, 1], "text": ["a", "b"]}, options={V2: "2"})
    source = Meanwhile(6, drop)
    source.polled.append(None)  # the poll after the one that was Hudi Streamer's
    with pytest.raises(TableNotFound, match="was dropped and created again"):
        lakebed.ingest(job_of(source, uri), once=True)
    assert (source.polled, ids(uri)) == ([None, "2"], [])


def test_a_table_that_is_restored_between_poll_and_write_is_read_after_its_own_checkpoint(uri: str) -> None:
    lakebed.ingest(job_of(Numbers(2), uri), once=True)
    first = lakebed.open(uri).timeline.to_arrow()["time"][0].as_py()
    lakebed.open(uri).savepoints.create(first)
    source = Meanwhile(6, lambda: lakebed.open(uri).restore(first))
    lakebed.ingest(job_of(source, uri), once=True)
    assert (source.polled, ids(uri)) == (["2", "4", "2", "4"], [0, 1, 2, 3, 4, 5])


def test_a_table_that_is_not_there_and_is_not_created_is_an_error(uri: str) -> None:
    with pytest.raises(TableNotFound, match="Create it, or let the job do so"):
        lakebed.ingest({"source": Numbers(1), "target": {"uri": uri}}, once=True)


def test_new_columns_of_the_source_are_added_and_missing_ones_are_null(uri: str) -> None:
    class Rows(IngestSource):
        def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
            tables = [pa.table({"id": [1], "a": ["x"]}), pa.table({"id": [2], "b": [5]})]
            at = int(checkpoint or 0)
            return IngestPoll(tables[at], None, str(at + 1), more=at == 0) if at < 2 else IngestPoll(None, None, "2")

    lakebed.ingest(job_of(Rows(), uri), once=True)
    assert sorted(map(str, lakebed.open(uri).to_arrow().to_pylist())) == [
        "{'id': 1, 'a': 'x', 'b': None}",
        "{'id': 2, 'a': None, 'b': 5}",
    ]


def test_rows_of_another_type_are_an_error_with_the_rows_and_nothing_is_committed(uri: str) -> None:
    lakebed.create(uri, pa.schema([("id", pa.int64()), ("text", pa.int64())]), key="id")
    with pytest.raises(SchemaConflict, match="rows after checkpoint None up to 2") as error:
        lakebed.ingest(job_of(Numbers(2), uri), once=True)
    assert error.value.context["checkpoint"] is None
    assert commits(uri) == []


def test_an_error_that_may_pass_is_tried_again_and_other_errors_end_the_job(uri: str) -> None:
    class Failing(Numbers):
        errors = [StorageError("no answer", context={"retryable": True}), None, StorageError("refused")]

        def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
            error = self.errors.pop(0)
            if error is not None:
                raise error
            return super().poll(checkpoint, limit)

    events: list[tuple[str, float | None]] = []
    source = Failing(4)
    stop = threading.Event()
    waits: list[float] = []
    stop.wait = lambda timeout=None: not waits.append(timeout or 0.0)  # type: ignore[method-assign]
    job = job_of(source, uri)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lakebed.ingestion.run._FIRST_RETRY_SECONDS", 0.001)
        with pytest.raises(StorageError, match="refused"):
            lakebed.ingest(job, stop=stop, on_event=lambda e: events.append((e.kind, e.seconds)))
    assert [kind for kind, _ in events if kind != "waiting"] == ["failed", "committed", "failed"]
    assert events[-1] == ("failed", None)
    assert ids(uri) == [0, 1]


def test_a_continuous_job_runs_until_it_is_stopped_and_completes_the_round(uri: str) -> None:
    source, stop = Numbers(2), threading.Event()
    kinds: list[str] = []

    def see(event: lakebed.IngestEvent) -> None:
        kinds.append(event.kind)
        if event.kind == "nothing":
            source.end += 2
            if source.end > 6:
                stop.set()

    result = lakebed.ingest(job_of(source, uri), stop=stop, on_event=see)
    assert (result.rows, ids(uri), kinds[-1]) == (6, [0, 1, 2, 3, 4, 5], "stopped")


def test_services_of_the_table_run_between_the_rounds(uri: str) -> None:
    source, stop = Numbers(6), threading.Event()
    settings = {"hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 1}
    target = {"uri": uri, "create": {"key": "id", "index": "bucket", "buckets": 1, "properties": settings}}
    lines: list[str] = []

    def see(event: lakebed.IngestEvent) -> None:
        lines.extend(event.services)
        if event.kind == "nothing":
            stop.set()

    lakebed.ingest(job_of(source, uri, target=target), stop=stop, on_event=see)
    assert any("clean" in line and "deleted" in line for line in lines), lines


def test_several_jobs_run_and_one_that_fails_does_not_end_the_others(uri: str) -> None:
    jobs = {"jobs": {"bad": job_of(Numbers(2, bad=[0]), f"{uri}/a"), "good": job_of(Numbers(4), f"{uri}/b")}}
    events: list[tuple[str, str]] = []
    with pytest.raises(InvalidRecord, match="bad: n/0"):
        lakebed.ingest(jobs, once=True, on_event=lambda event: events.append((event.job, event.kind)))
    assert ids(f"{uri}/b") == [0, 1, 2, 3]
    assert events == [("bad", "failed"), ("good", "committed"), ("good", "committed")]
    with pytest.raises(InvalidOption, match="several jobs"):
        lakebed.ingest(jobs, once=True, checkpoint="1")


def test_two_jobs_of_one_table_each_go_on_from_their_own_checkpoint(uri: str) -> None:
    class Later(Numbers):
        def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
            poll = super().poll(checkpoint, limit)
            if poll.rows is None:
                return poll
            later = pa.array([n + 100 for n in poll.rows["id"].to_pylist()])
            return IngestPoll(poll.rows.set_column(0, "id", later), None, poll.checkpoint, more=poll.more)

    for end in (2, 3):
        one, two = Numbers(end), Later(end)
        parts = {"one": job_of(one, uri, identifier="one"), "two": job_of(two, uri, identifier="two")}
        lakebed.ingest({"jobs": parts}, once=True)
    assert ids(uri) == [0, 1, 2, 100, 101, 102]
    assert (one.polled, two.polled) == (["2"], ["2"])
    with pytest.raises(InvalidOption, match="one, two"):
        lakebed.ingest(job_of(Numbers(9), uri), once=True)


def test_a_result_prints_and_has_plain_values(uri: str) -> None:
    events: list[lakebed.IngestEvent] = []
    result = lakebed.ingest(job_of(Numbers(2), uri, name="n"), once=True, on_event=events.append)
    assert str(result) == "n: 2 rows in 1 commit, checkpoint 2"
    assert result.to_dict()["jobs"][0] | {"seconds": 0} == {
        "job": "n",
        "table": uri,
        "rounds": 1,
        "commits": 1,
        "rows": 2,
        "bad_rows": 0,
        "checkpoint": "2",
        "lag": {"messages": 0},
        "seconds": 0,
        "error": None,
    }
    record = events[0].to_dict()
    assert (record["event"], record["rows"], record["write"]["inserted"]) == ("committed", 2, 2)
    assert str(events[0]) == "n: 2 rows, checkpoint 2"


@pytest.mark.parametrize("operation", ["upsert", "insert"])
@pytest.mark.parametrize("exists", [True, False])
def test_one_of_two_jobs_that_read_the_same_rows_writes_them(uri: str, operation: str, exists: bool) -> None:
    target = {"uri": uri, "operation": operation, "create": {"key": "id", "type": "mor"}}
    if exists:
        lakebed.ingest(job_of(Numbers(2), uri, target=target), once=True)

    class Overtaken(Numbers):
        """Another job runs after the first poll, before what that gave is written."""

        def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
            poll = super().poll(checkpoint, limit)
            if len(self.polled) == 1:
                lakebed.ingest(job_of(Numbers(4, step=4), uri, target=target), once=True)
            return poll

    source = Overtaken(5, step=4)
    assert lakebed.ingest(job_of(source, uri, target=target), once=True).rows == 1
    assert source.polled == ["2" if exists else None, "4"]
    assert ids(uri) == [0, 1, 2, 3, 4]
    assert [checkpoint for checkpoint, _ in commits(uri)] == ["2", "4", "5"][0 if exists else 1 :]


def test_a_job_that_loses_each_time_is_an_error_that_may_pass(uri: str) -> None:
    lakebed.ingest(job_of(Numbers(1), uri), once=True)

    class Overtaken(Numbers):
        def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
            poll = super().poll(checkpoint, limit)
            lakebed.ingest(job_of(Numbers(int(poll.checkpoint or 0)), uri), once=True)
            return poll

    with pytest.raises(lakebed.CommitConflict, match="5 times") as error:
        lakebed.ingest(job_of(Overtaken(100, step=1), uri), once=True)
    assert error.value.retryable


class Once(IngestSource):
    """One poll of these rows, which come from the lines of a file."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        def origin(numbers: Sequence[int]) -> tuple[list[str], list[bytes]]:
            return [f"f:{number}" for number in numbers], [b"line %d" % number for number in numbers]

        return IngestPoll(None if checkpoint else self.rows, None, "1", origin=origin)


REFUSED = {
    "an empty key": ({"k": ["a", "", "c", "d"]}, {"key": "k"}, "empty record key"),
    "a partition path": ({"city": ["rome", "..", "oslo", "oslo"]}, {"partition_by": "city"}, "another one"),
    "a value": ({"n": pa.array([1, 2**40 + 1, 3, 4])}, {}, "which does not keep"),
}


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_the_write_refuses_are_bad_rows_and_all_others_are_written(
    uri: str, case: str, operation: str, kind: str
) -> None:
    more, create, error = REFUSED[case]
    columns = {"id": pa.array([1, 2, 3, None]), "k": ["a", "b", "c", None]} | more
    rows = pa.table(columns)
    schema = pa.schema([f.with_type(pa.float32()) if f.name == "n" else f for f in rows.schema])
    lakebed.create(uri, schema, type=kind, index="simple", **({"key": "id"} | create))
    target = {"uri": uri, "operation": operation}
    with pytest.raises(InvalidRecord, match=error) as raised:
        lakebed.ingest(job_of(Once(rows.slice(0, 3)), uri, target=target), once=True)
    assert (raised.value.context["position"], raised.value.context["reason"]) == ("f:1", "HUDI_WRITE_FAILURES")
    assert commits(uri) == []
    # a row without a key goes first: the positions are those of the source nevertheless
    job = job_of(Once(rows.take([3, 0, 1, 2])), uri, target=target, errors={"table": f"{uri}-errors"})
    lakebed.ingest(job, once=True)
    assert sorted(filter(None, lakebed.open(uri).to_arrow()["id"].to_pylist())) == [1, 3]
    bad = lakebed.open(f"{uri}-errors").to_arrow().filter(pc.field("reason") == "HUDI_WRITE_FAILURES")
    assert bad.select(["position", "payload"]).to_pylist() == [{"position": "f:2", "payload": b"line 2"}]
    assert error in bad["error"][0].as_py()
    assert [checkpoint for checkpoint, _ in commits(uri)] == ["1"]


@pytest.mark.rest
def test_rows_that_are_refused_one_and_all_move_the_checkpoint(uri: str) -> None:
    lakebed.create(uri, pa.schema([("id", pa.int64()), ("city", pa.string())]), key="id", partition_by="city")
    rows = pa.table({"id": range(1000), "city": [".."] * 1000})
    job = job_of(Once(rows), uri, target={"uri": uri}, errors={"table": f"{uri}-errors"})
    result = lakebed.ingest(job, once=True)
    assert (result.rows, result.bad_rows, commits(uri)) == (0, 1000, [("1", 0)])


def test_rows_that_cannot_be_written_together_are_an_error_with_their_checkpoint(uri: str) -> None:
    lakebed.create(uri, pa.schema([("a", pa.string()), ("b", pa.string())]), key=["a", "b"])
    rows = pa.table({"a": ["x", "x,b:y"], "b": ["y,b:z", "z"]})
    job = job_of(Once(rows), uri, target={"uri": uri}, errors={"table": f"{uri}-errors"})
    with pytest.raises(InvalidRecord, match="rows after checkpoint None up to 1: two rows have the record key"):
        lakebed.ingest(job, once=True)
    assert (commits(uri), lakebed.list_tables(f"{uri}-errors", depth=0)) == ([], [])


def test_rows_that_break_a_check_go_to_the_table_of_errors() -> None:
    table = lakebed.load("memory://ingest/checked", {"id": [1], "fare": [1.0]}, key="id")
    table.checks.add("positive", "fare >= 0")

    class Fares(lakebed.IngestSource):
        def poll(self, checkpoint: str | None, limit: int) -> lakebed.IngestPoll:
            rows = pa.table({"id": [2, 3, 4], "fare": [1.0, -1.0, 2.0]}) if checkpoint is None else None
            return lakebed.IngestPoll(rows, None, "3")

    errors = {"on_failure": "table", "table": "memory://ingest/checked_errors"}
    try:
        result = lakebed.ingest({"source": Fares(), "target": {"uri": table.uri}, "errors": errors}, once=True)
        assert (result.rows, result.bad_rows) == (2, 1)
        assert sorted(row["id"] for row in table.scan().to_arrow().to_pylist()) == [1, 2, 4]
        (bad,) = lakebed.open(errors["table"]).scan(["position", "error"]).to_arrow().to_pylist()
        assert bad["position"] == "3#1"
        assert bad["error"].startswith("rows break checks of table 'checked': positive (fare >= 0)")
    finally:
        for uri in (table.uri, errors["table"]):
            lakebed.drop(uri, missing_ok=True)

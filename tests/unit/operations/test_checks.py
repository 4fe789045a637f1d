"""Checks of rows at the gate of each write: which writes are refused, what is left, and what is written."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CheckFailed, CommitConflict, InvalidOption, InvalidRecord, SchemaConflict, from_json
from lakebed.operations import checks as module
from support.checks import files_below, rows_and_instants

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64()), ("tip", pa.float64())])
STORED = [(1, "Oslo", 1.0, 0.5), (2, "Rome", None, None)]


def data(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def content(table: lakebed.Table) -> list[tuple[Any, ...]]:
    rows = table.scan(["id", "city", "fare", "tip"]).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=lambda row: row[0])


def new_table(folder: Path, **arguments: Any) -> lakebed.Table:
    settings: dict[str, Any] = {"partition_by": "city", **arguments}
    table = lakebed.create(str(folder / "trips"), SCHEMA, key="id", **settings)
    table.upsert(data(*STORED))
    table.checks.add("positive", "fare >= 0")
    return table


BAD = data((1, "Oslo", 2.0, 0.0), (3, "Oslo", -1.0, 0.0), (4, "Rome", -2.0, 0.0))
WRITES: dict[str, Callable[[lakebed.Table], Any]] = {
    "upsert": lambda t: t.upsert(BAD),
    "insert": lambda t: t.insert(BAD),
    "bulk_insert": lambda t: t.bulk_insert(BAD),
    "insert_overwrite": lambda t: t.insert_overwrite(BAD),
    "insert_overwrite_table": lambda t: t.insert_overwrite(BAD, "table"),
    "write": lambda t: lakebed.write(BAD, t.uri, {"hoodie.table.name": "trips"}),
    "sql": lambda t: lakebed.sql("INSERT INTO trips VALUES (3, 'Oslo', -1, 0), (4, 'Rome', -2, 0)", {"trips": t.uri}),
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("arguments", [{}, {"type": "mor", "index": "bucket", "buckets": 1}], ids=["cow", "mor"])
def test_a_write_of_bad_rows_is_refused_before_it_begins(verb: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    table = new_table(tmp_path, **arguments)
    before = files_below(table.uri)
    with pytest.raises(CheckFailed) as caught:
        WRITES[verb](table)
    assert caught.value.checks == {"positive": 2}
    assert caught.value.conditions == {"positive": "fare >= 0"}
    assert [(row["check"], row["row"]["id"], row["row"]["fare"]) for row in caught.value.rows] == [
        ("positive", 3, -1.0),
        ("positive", 4, -2.0),
    ]
    positions = [row["position"] for row in caught.value.rows]
    assert positions == ([0, 1] if verb == "sql" else [1, 2])
    assert files_below(table.uri) == before
    assert content(table) == STORED


@pytest.mark.parametrize("on_failure", ["quarantine", "warn"])
@pytest.mark.parametrize("form", ["table", "stream", "default"])
def test_columns_that_hold_no_nulls_pass_checks_that_let_a_write_go_on(
    form: str, on_failure: str, tmp_path: Path
) -> None:
    table = new_table(tmp_path)
    table.checks.add("short_city", "length(city) < 5", on_failure=on_failure)
    rows = data((3, "Bergen", 1.0, 0.0), (4, "Rome", 2.0, 0.0))
    required = pa.schema([field.with_nullable(False) for field in SCHEMA])
    if form == "default":
        table.columns.add("seats", "int", default="4")
        table.upsert(rows)
    else:
        table.upsert(rows.cast(required) if form == "table" else rows.cast(required).to_reader())
    good = (4, "Rome", 2.0, 0.0)
    broken = [(3, "Bergen", 1.0, 0.0)] if on_failure == "warn" else []
    assert content(table) == [*STORED, *broken, good]
    if on_failure == "quarantine":
        assert [row["row"]["city"] for row in table.rejects.scan(["row"]).to_arrow().to_pylist()] == ["Bergen"]


def test_null_passes_and_so_does_what_fulfils_the_condition(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(data((2, "Rome", 0.0, None), (5, "Rome", None, None)))
    assert content(table) == [STORED[0], (2, "Rome", 0.0, None), (5, "Rome", None, None)]


def test_values_are_judged_in_the_types_of_the_table(tmp_path: Path) -> None:
    table = lakebed.create(
        str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), key="id"
    )
    table.checks.add("recent", "at >= '2024-01-01'")
    old = pa.table({"id": pa.array([1, 2], pa.int32()), "at": pa.array([0, 1_800_000_000], pa.timestamp("s", "UTC"))})
    with pytest.raises(CheckFailed) as caught:
        table.upsert(old)
    assert [row["position"] for row in caught.value.rows] == [0]
    table.upsert(old.slice(1))
    assert table.count() == 1


def test_the_counts_are_of_all_rows_and_the_first_five_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    table.checks.add("low", "id < 900", validate=False)
    rows = data(*((number, "Oslo", -1.0 if number % 10 == 7 else 1.0, None) for number in range(1000)))
    for size in (1000, 64):
        monkeypatch.setattr(module, "_BATCH_ROWS", size)
        with pytest.raises(CheckFailed, match="of 1,000 rows") as caught:
            table.upsert(rows)
        assert caught.value.checks == {"low": 100, "positive": 100}
        named = [(row["check"], row["position"]) for row in caught.value.rows]
        assert sorted(named) == [
            *(("low", position) for position in (900, 901, 902, 903, 904)),
            *(("positive", position) for position in (7, 17, 27, 37, 47)),
        ]


def test_the_error_crosses_processes(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed) as caught:
        new_table(tmp_path).upsert(BAD)
    for again in (from_json(caught.value.to_json()), pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(again, CheckFailed)
        assert isinstance(again, InvalidRecord)
        assert (again.checks, again.rows, str(again)) == (caught.value.checks, caught.value.rows, str(caught.value))


def test_deletes_are_not_judged(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_())), key="id")
    table.upsert(data((1, "a", 1.0, 0.0, False), (2, "a", 2.0, 0.0, False), schema=table.schema))
    table.checks.add("positive", "fare >= 0")
    table.checks.add("kept", "id < 2", validate=False)
    table.upsert(data((2, "a", -5.0, 0.0, True), schema=table.schema))
    assert [row[0] for row in content(table)] == [1]
    with pytest.raises(CheckFailed):
        table.upsert(data((1, "a", -5.0, 0.0, False), (2, "a", 5.0, 0.0, True), schema=table.schema))
    table.delete([1])
    assert table.count() == 0


def _stream(*batches: pa.Table, after: Callable[[], Any] = lambda: None) -> pa.RecordBatchReader:
    def parts() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number:
                after()
            yield from batch.to_batches()

    return pa.RecordBatchReader.from_batches(SCHEMA, parts())


@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_a_stream_is_judged_in_the_tasks_and_leaves_no_rows(verb: str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    before = rows_and_instants(table.uri)
    with pytest.raises(CheckFailed, match="positive"):
        getattr(table, verb)(_stream(data((7, "Oslo", 1.0, 0.0)), BAD))
    assert rows_and_instants(table.uri) == before
    getattr(table, verb)(_stream(data((7, "Oslo", 1.0, 0.0)), data((8, "Oslo", None, None))))
    assert {7, 8} <= {row[0] for row in content(table)}


def test_a_write_that_was_judged_by_other_checks_does_not_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    other = lakebed.open(table.uri)
    rows = _stream(data((7, "Oslo", 1.0, 9.0)), data((8, "Oslo", 1.0, 9.0)), after=lambda: other.checks.add("tip < 5"))
    with pytest.raises(CommitConflict, match="checks of table 'trips' were changed"):
        table.bulk_insert(rows)
    assert content(table) == STORED
    with pytest.raises(CheckFailed, match="tip_check"):
        table.bulk_insert(data((7, "Oslo", 1.0, 9.0)))


class TestPartialRows:
    def test_columns_that_are_given_are_judged(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        fares = pa.table({"id": [1], "city": ["Oslo"], "fare": [-4.0]})
        with pytest.raises(CheckFailed):
            table.upsert(fares, partial=True)
        table.upsert(pa.table({"id": [1], "city": ["Oslo"], "fare": [4.0]}), partial=True)
        table.upsert(pa.table({"id": [1], "city": ["Oslo"], "tip": [-4.0]}), partial=True)
        assert content(table)[0] == (1, "Oslo", 4.0, -4.0)

    def test_a_check_of_a_given_and_a_lacking_column_refuses_the_rows(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        table.checks.add("honest", "tip <= fare")
        with pytest.raises(SchemaConflict, match="compares fare with tip"):
            table.upsert(pa.table({"id": [1], "city": ["Oslo"], "fare": [4.0]}), partial=True)
        table.checks.add("generous", "tip >= fare", on_failure="warn")
        table.checks.drop("honest")
        table.upsert(pa.table({"id": [1], "city": ["Oslo"], "fare": [4.0]}), partial=True)
        table.checks.add("honest", "tip <= fare")
        both = pa.table({"id": [1], "city": ["Oslo"], "fare": [4.0], "tip": [5.0]})
        with pytest.raises(CheckFailed, match="honest"):
            table.upsert(both, partial=True)

    @pytest.mark.parametrize("kind", ["cow", "mor"])
    def test_a_new_key_has_the_columns_that_are_required(self, kind: str, tmp_path: Path) -> None:
        table = new_table(tmp_path, type=kind)
        table.checks.require("tip", validate=False)
        table.upsert(pa.table({"id": [1], "city": ["Oslo"], "fare": [4.0]}), partial=True)
        with pytest.raises(SchemaConflict, match="record key '9' is new, and the data lacks tip"):
            table.upsert(pa.table({"id": [9], "city": ["Oslo"], "fare": [4.0]}), partial=True)
        assert content(table) == [(1, "Oslo", 4.0, 0.5), STORED[1]]


ON = ["id", "t.id = s.id AND t.tip IS NOT NULL", "t.city = s.city"]


class TestMerges:
    @pytest.mark.parametrize("on", ON)
    def test_rows_that_a_merge_makes_are_judged(self, on: str, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        before = rows_and_instants(table.uri)
        source = {"id": [1], "city": ["Oslo"], "fare": [-3.0]}
        with pytest.raises(CheckFailed, match="positive") as caught:
            table.merge(source, on).when_matched_update({"fare": "s.fare"}).execute()
        assert caught.value.checks == {"positive": 1}
        with pytest.raises(CheckFailed, match="positive"):
            table.merge(
                {"id": [9], "city": ["Bern"], "fare": [-3.0], "tip": [0.0]}, on
            ).when_not_matched_insert().execute()
        with pytest.raises(CheckFailed, match="positive"):
            table.update({"fare": "fare - 10"}, where="fare > 0")
        assert rows_and_instants(table.uri) == before

    @pytest.mark.parametrize("on", ON)
    def test_a_check_of_a_set_and_another_column_uses_the_stored_value(self, on: str, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        table.checks.add("honest", "tip <= fare")
        source = {"id": [1], "city": ["Oslo"], "fare": [0.25]}
        with pytest.raises(CheckFailed, match="honest"):
            table.merge(source, on).when_matched_update({"fare": "s.fare"}).execute()
        table.merge({**source, "fare": [0.75]}, on).when_matched_update({"fare": "s.fare"}).execute()
        assert content(table)[0] == (1, "Oslo", 0.75, 0.5)

    def test_rows_that_a_merge_leaves_are_not_judged(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        table.checks.add("high", "fare > 100", validate=False)
        table.update({"tip": "tip + 1"})
        assert content(table) == [(1, "Oslo", 1.0, 1.5), STORED[1]]

    def test_a_merge_stops_at_a_check_that_quarantines(self, tmp_path: Path) -> None:
        table = new_table(tmp_path)
        table.checks.add("cheap", "fare < 100", on_failure="quarantine")
        table.checks.add("warned", "fare < 50", on_failure="warn")
        with pytest.raises(CheckFailed) as caught:
            table.update({"fare": "500"})
        assert caught.value.checks == {"cheap": 2}


def test_conditions_that_no_write_could_evaluate_are_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for condition, error in {
        "farre > 1": "no column 'farre'",
        "1 > 2": "names no column",
        "fare": "not a condition",
        "fare >": "no SQL condition",
        "soundex(city) = 'x'": "runs on Spark only: SOUNDEX",
        "fare > (SELECT 1)": "subquery",
    }.items():
        with pytest.raises(InvalidOption, match=error.replace("(", r"\(")):
            table.checks.add("odd", condition)
    assert [check.name for check in table.checks] == ["positive"]


def test_upserts_that_wait_for_one_another_are_judged_each(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    table = new_table(tmp_path, type="mor", index="bucket", buckets=1)
    options = {"lakebed.write.group.commit": True}

    def upsert(number: int) -> str:
        try:
            table.upsert(data((number, "Oslo", -1.0 if number % 3 == 0 else 1.0, None)), options=options)
        except CheckFailed:
            return "refused"
        return "written"

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(upsert, range(10, 26)))
    assert [number for number, done in zip(range(10, 26), outcomes, strict=True) if done == "refused"] == [
        12,
        15,
        18,
        21,
        24,
    ]
    assert {row[0] for row in content(table)} == {1, 2, *(n for n in range(10, 26) if n % 3)}


@pytest.mark.parametrize("arguments", [{}, {"type": "mor", "index": "bucket", "buckets": 1}], ids=["cow", "mor"])
def test_an_update_shows_the_columns_that_it_sets_and_no_others(arguments: dict[str, Any], tmp_path: Path) -> None:
    table = lakebed.load(str(tmp_path / "plain"), data(*STORED), key="id", **arguments)
    table.checks.add("positive", "fare >= 0")
    with pytest.raises(CheckFailed) as caught:
        table.update({"fare": "-7.0"}, where="id = 1")
    assert [row["row"] for row in caught.value.rows] == [{"id": 1, "fare": -7.0}]


def test_the_message_counts_rows_among_all_that_were_given(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(CheckFailed, match=r"of table 'trips': positive \(fare >= 0\): 2 of 3 rows; the first is row 1"):
        table.upsert(BAD)
    with pytest.raises(CheckFailed, match=r"of table 'trips': positive \(fare >= 0\): 2 rows; the first is row 0"):
        table.upsert(BAD.slice(1))
    with pytest.raises(CheckFailed, match=r"of table 'trips': positive \(fare >= 0\): 1 row; the first is row 0"):
        table.upsert(BAD.slice(2))

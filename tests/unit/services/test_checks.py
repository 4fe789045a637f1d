"""Adding, dropping and running the checks of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import (
    CheckFailed,
    CommitConflict,
    InvalidOption,
    SchemaConflict,
    UnsupportedFeature,
)
from lakebed.properties.file import update_table_config
from lakebed.services import checks as module
from support.checks import files_below

ROWS = {
    "id": [1, 2, 3],
    "city": ["Oslo", "Rome", "Rome"],
    "fare": [1.0, None, -2.0],
    "at": [{"x": 1}, {"x": None}, None],
}


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    return lakebed.load(str(tmp_path / "trips"), ROWS, key="id", partition_by="city")


def test_a_check_that_stored_rows_break_is_refused_with_counts_by_partition(table: lakebed.Table) -> None:
    before = files_below(table.uri)
    with pytest.raises(CheckFailed, match=r"broken by 1 row of the table \(Rome: 1\)") as caught:
        table.checks.add("fare >= 0")
    assert caught.value.checks == {"fare_check": 1}
    assert caught.value.context["partitions"] == {"Rome": 1}
    assert [row["row"]["id"] for row in caught.value.rows] == [3]
    assert files_below(table.uri) == before


def test_a_check_without_validation_is_for_later_writes(table: lakebed.Table) -> None:
    table.checks.add("fare >= 0", validate=False)
    with pytest.raises(CheckFailed):
        table.upsert({**ROWS, "fare": [1.0, 1.0, -2.0]})
    (run,) = table.checks.run()
    assert (run.rows, dict(run.partitions), [row["id"] for row in run.first]) == (1, {"Rome": 1}, [3])
    assert not table.checks.run("FARE_CHECK")
    table.delete([3])
    assert table.checks.run()
    assert str(table.checks.run()) == "fare_check (fare >= 0): no row breaks it"


@pytest.mark.parametrize("broken", [4, 5, 6])
def test_an_error_names_five_rows_and_counts_them_all(table: lakebed.Table, broken: int) -> None:
    ids = list(range(10, 10 + broken))
    rows = {"id": ids, "city": ["Rome"] * broken, "fare": [-1.0] * broken, "at": [None] * broken}
    table.checks.add("positive", "fare >= 0", validate=False)
    with pytest.raises(CheckFailed) as caught:
        table.upsert(rows)
    assert caught.value.checks == {"positive": broken}
    assert [row["row"]["id"] for row in caught.value.rows] == ids[:5]
    table.delete([3])
    table.checks.drop("positive")
    table.upsert(rows)
    with pytest.raises(CheckFailed) as caught:
        table.checks.add("positive", "fare >= 0")
    assert caught.value.checks == {"positive": broken}
    assert sorted(row["row"]["id"] for row in caught.value.rows) == ids[:5]


def test_a_check_that_only_warns_takes_the_stored_rows_as_they_are(table: lakebed.Table) -> None:
    table.checks.add("positive", "fare >= 0", on_failure="warn")
    result = table.upsert({**ROWS, "fare": [1.0, -1.0, -2.0]})
    assert (result.rows, dict(result.broken_checks), result.quarantined) == (3, {"positive": 2}, 0)
    assert "2 rows broke the check positive" in str(result)
    assert result.to_dict()["broken_checks"] == {"positive": 2}
    assert table.checks.run("positive").runs[0].rows == 2


def test_names_follow_from_the_columns_and_stay_apart(table: lakebed.Table) -> None:
    names = [
        table.checks.add(condition).name for condition in ("id < 10", "id > 0", "id < 10 OR city = 'x'", "at.x < 9")
    ]
    assert names == ["id_check", "id_check_2", "id_city_check", "at_check"]
    assert [check.name for check in table.checks] == ["at_check", "id_check", "id_check_2", "id_city_check"]


def test_another_check_of_a_name_is_refused_and_the_same_one_is_left(table: lakebed.Table) -> None:
    table.checks.add("low", "id < 10")
    assert table.checks.add("low", "id < 10").name == "low"
    with pytest.raises(InvalidOption, match="has a check low already: id < 10"):
        table.checks.add("LOW", "id < 5")
    for arguments, error in {
        ("a b", "id < 5"): "is no name of a check",
        ("", "id < 5"): "is no name of a check",
    }.items():
        with pytest.raises(InvalidOption, match=error):
            table.checks.add(*arguments)
    wrong: Any = "stop"
    with pytest.raises(InvalidOption, match="on_failure"):
        table.checks.add("low2", "id < 5", on_failure=wrong)
    assert len(table.checks) == 1


def test_a_column_that_requires_values(table: lakebed.Table) -> None:
    assert table.checks.require("CITY").condition == "`city` IS NOT NULL"
    assert table.checks.require("city").name == "city_not_null"
    with pytest.raises(CheckFailed, match="fare_not_null"):
        table.checks.require("fare")
    with pytest.raises(CheckFailed, match="at_x_not_null") as caught:
        table.checks.require("at.x")
    assert caught.value.checks == {"at_x_not_null": 2}
    with pytest.raises(CheckFailed) as caught:
        table.upsert({**ROWS, "city": ["Oslo", None, None]})
    assert caught.value.checks == {"city_not_null": 2}
    assert table.checks.drop_required("city").name == "city_not_null"
    with pytest.raises(InvalidOption, match="no check of table 'trips' requires a value in column 'city'"):
        table.checks.drop_required("city")


def test_dropping_a_check_ends_it(table: lakebed.Table) -> None:
    table.checks.add("low", "id < 10")
    with pytest.raises(InvalidOption, match="has no check 'lov'"):
        table.checks.drop("lov")
    with pytest.raises(InvalidOption, match="has no check 'lov'"):
        table.checks.run("lov")
    assert table.checks.drop("LOW").name == "low"
    table.upsert({**ROWS, "id": [10, 20, 30]})
    assert len(table.checks) == 0
    assert str(table.checks.run()) == "the table has no checks"


def test_a_column_of_a_check_is_neither_dropped_nor_renamed(table: lakebed.Table) -> None:
    table.checks.add("low", "id + length(city) < 100")
    for change in (lambda: table.columns.drop("city"), lambda: table.columns.rename("city", "town")):
        with pytest.raises(SchemaConflict):
            change()
    table.checks.add("x", "at.x < 9")
    with pytest.raises(SchemaConflict, match="the check x"):
        table.columns.drop("at")
    table.columns.widen("fare", "string")
    table.checks.drop("x")
    table.columns.drop("at")
    assert "at" not in table.schema.names


def test_a_check_is_no_setting(table: lakebed.Table) -> None:
    table.checks.add("low", "id < 10")
    for value in (None, '{"condition": "id < 5"}'):
        with pytest.raises(InvalidOption, match=r"lakebed\.check\.low is a check of table 'trips'"):
            table.configure({"lakebed.check.low": value})
    assert table.checks.run()


def test_a_table_without_columns_has_no_checks(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path / "empty"), pa.schema([]), key="id")
    with pytest.raises((SchemaConflict, InvalidOption)):
        table.checks.add("id > 0")


def test_a_check_of_a_later_version_stops_writes_and_can_be_dropped(table: lakebed.Table) -> None:
    update_table_config(table.opened.storage, {"lakebed.check.odd": '{"condition": "id > 0", "new": 1}'}, lambda: True)
    with pytest.raises(UnsupportedFeature, match=r"lakebed\.check\.odd is no check"):
        table.upsert(ROWS)
    assert table.count() == 3


def test_rows_that_are_written_meanwhile_are_read_as_well(
    table: lakebed.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, run, calls = lakebed.open(table.uri), module.run_check, list[int]()

    def run_beside_a_writer(*arguments: Any) -> Any:
        result = run(*arguments)
        calls.append(len(calls))
        if len(calls) <= writes:
            other.upsert({**ROWS, "id": [100 + len(calls), 2, 3], "fare": [5.0, 5.0, bad]})
        return result

    monkeypatch.setattr(module, "run_check", run_beside_a_writer)
    writes, bad = 1, -7.0
    table.delete([3])
    with pytest.raises(CheckFailed, match="broken by 1 row"):
        table.checks.add("fare >= 0")
    assert calls == [0, 1]
    table.delete([3])
    writes, bad = 99, 1.0
    with pytest.raises(CommitConflict, match="committed to table 'trips' 5 times"):
        table.checks.add("fare >= 0")
    assert len(table.checks) == 0


class TestQuarantine:
    def test_rejected_rows_are_kept_whole_and_once(self, table: lakebed.Table) -> None:
        table.checks.add("cheap", "fare < 100", on_failure="quarantine")
        table.checks.add("near", "length(city) < 6", on_failure="quarantine")
        rows = {
            "id": [1, 7, 8, 9],
            "city": ["Oslo", "Trondheim", "Trondheim", "Rome"],
            "fare": [500.0, 700.0, 1.0, 2.0],
            "at": [{"x": 5}, None, {"x": 6}, {"x": 7}],
        }
        result = table.upsert(rows)
        assert (result.quarantined, dict(result.broken_checks)) == (3, {"cheap": 2, "near": 2})
        assert (result.rows, result.inserted) == (1, 1)
        for _ in range(2):
            found = table.rejects.scan(["check", "row"]).to_arrow().to_pylist()
            assert sorted(found, key=lambda one: one["row"]["id"]) == [
                {"check": "cheap", "row": {"id": 1, "city": "Oslo", "fare": 500.0, "at": {"x": 5}}},
                {"check": "cheap, near", "row": {"id": 7, "city": "Trondheim", "fare": 700.0, "at": None}},
                {"check": "near", "row": {"id": 8, "city": "Trondheim", "fare": 1.0, "at": {"x": 6}}},
            ]
            table.upsert(rows)
        table.upsert({**rows, "at": [{"x": 50}, None, {"x": 6}, {"x": 7}]})
        assert table.rejects.count() == 4
        assert sorted(row["id"] for row in table.scan(["id"]).to_arrow().to_pylist()) == [1, 2, 3, 9]

    @pytest.mark.parametrize("verb", ["insert", "bulk_insert", "insert_overwrite"])
    def test_each_write_of_rows_puts_them_aside(self, verb: str, table: lakebed.Table) -> None:
        table.checks.add("cheap", "fare < 100", on_failure="quarantine")
        batch = pa.RecordBatch.from_pylist(
            [{"id": 8, "city": "Oslo", "fare": 800.0, "at": None}, {"id": 9, "city": "Oslo", "fare": 1.0, "at": None}],
            table.schema,
        )
        stream = pa.RecordBatchReader.from_batches(batch.schema, iter([batch, batch.slice(0, 1)]))
        result = getattr(table, verb)(stream)
        assert result.quarantined == 2
        assert [row["row"]["id"] for row in table.rejects.scan().to_arrow().to_pylist()] == [8]
        assert {row["id"] for row in table.scan(["id"]).to_arrow().to_pylist()} & {8, 9} == {9}

    def test_a_row_that_is_put_aside_does_not_refuse_the_write(self, table: lakebed.Table) -> None:
        table.checks.add("cheap", "fare < 100", on_failure="quarantine")
        table.checks.add("short", "length(city) < 6")
        table.upsert({**ROWS, "city": ["Oslo", "Rome", "Trondheim"], "fare": [1.0, 1.0, 700.0]})
        assert table.rejects.count() == 1

    def test_rows_of_new_columns_and_without_dropped_ones_are_put_aside(self, table: lakebed.Table) -> None:
        table.checks.add("cheap", "fare < 100", on_failure="quarantine")
        table.upsert({**ROWS, "fare": [200.0, 1.0, 1.0]})
        table.upsert({**ROWS, "fare": [300.0, 1.0, 1.0], "tip": [0.5, None, None]})
        table.columns.drop("at")
        table.upsert({"id": [5], "city": ["Rome"], "fare": [400.0], "tip": [1.5]})
        found = sorted(table.rejects.scan(["row"]).to_arrow()["row"].to_pylist(), key=lambda row: row["fare"])
        assert [(row["fare"], row["tip"], row["at"]) for row in found] == [
            (200.0, None, {"x": 1}),
            (300.0, 0.5, {"x": 1}),
            (400.0, 1.5, None),
        ]

    def test_a_table_of_generated_keys_puts_rows_aside(self, tmp_path: Path) -> None:
        table = lakebed.load(str(tmp_path / "log"), {"n": [1, 2]})
        table.checks.add("low", "n < 10", on_failure="quarantine")
        assert table.insert({"n": [3, 30, 31]}).quarantined == 2
        assert sorted(row["row"]["n"] for row in table.rejects.scan().to_arrow().to_pylist()) == [30, 31]
        assert table.count() == 3

    def test_an_explanation_puts_no_row_aside(self, table: lakebed.Table) -> None:
        table.checks.add("cheap", "fare < 100", on_failure="quarantine")
        before = files_below(table.uri)
        table.explain(upsert={**ROWS, "fare": [200.0, 1.0, 1.0]})
        assert files_below(table.uri) == before

    def test_the_rejects_are_gone_with_the_table(self, table: lakebed.Table) -> None:
        table.checks.add("cheap", "fare < 100", on_failure="quarantine")
        table.upsert({**ROWS, "fare": [200.0, 1.0, 1.0]})
        assert lakebed.list_tables(str(Path(table.uri).parent)) == [table.uri]
        assert lakebed.drop(table.uri) == []
        assert [path for path in Path(table.uri).rglob("*") if path.is_file()] == []

    @pytest.mark.parametrize("by_keys", [True, False])
    def test_an_erasure_erases_the_rejected_rows_of_the_same_keys(self, tmp_path: Path, by_keys: bool) -> None:
        first = {
            "id": [1, 2, 1],
            "city": ["Oslo"] * 2 + ["Rome"],
            "name": ["Ann Onymous", "Bo", "Cy"],
            "fare": [1.0] * 3,
        }
        table = lakebed.load(str(tmp_path / "t"), first, key="id", partition_by="city", index="simple")
        table.checks.add("cheap", "fare < 10", on_failure="quarantine")
        late = {
            "id": [1, 2, 1, 7],
            "city": ["Oslo"] * 2 + ["Rome"] * 2,
            "name": ["Ann Onymous", "B", "C", "Dee Ceased"],
        }
        table.upsert({**late, "fare": [100.0] * 4})
        assert table.rejects.count() == 4
        selected: dict[str, Any] = {"keys": [1]} if by_keys else {"where": "id = 1 and city = 'Oslo'"}
        assert "the table of rejects has" in str(table.erase(**selected, dry_run=True))
        assert table.rejects.count() == 4
        report = table.erase(**selected)
        erased = 2 if by_keys else 1
        assert (report.is_clean, report.rows, f"rejects: {erased} row" in str(report)) == (True, erased, True)
        left = table.rejects.scan(["row"]).to_arrow()["row"].to_pylist()
        expected = [("Oslo", 2), ("Rome", 7)] if by_keys else [("Oslo", 2), ("Rome", 1), ("Rome", 7)]
        assert sorted((row["city"], row["id"]) for row in left) == expected
        report = table.erase([7, 8])  # 7 is in no row but a rejected one, 8 nowhere
        assert (report.rows, report.tables[0].missing, report.is_clean) == (0, 1, True)
        assert "rejects: 1 row erased" in str(report)
        files = [path.read_bytes() for path in Path(table.uri).rglob("*") if path.is_file()]
        assert not [data for data in files if b"Onymous" in data or b"Ceased" in data]
        assert table.count() == (1 if by_keys else 2)

    def test_the_rejects_follow_columns_that_are_widened_renamed_and_dropped(self, tmp_path: Path) -> None:
        types = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("city", pa.string())])
        first = pa.table({"id": [1], "n": [1], "city": ["Oslo"]}, types)
        table = lakebed.load(str(tmp_path / "narrow"), first, key="id")
        table.checks.add("small", "n < 100", on_failure="quarantine")
        assert table.upsert(pa.table({"id": [2], "n": [200], "city": ["Rome"]}, types)).quarantined == 1
        table.columns.widen("n", "bigint")
        table.columns.rename("city", "town")
        assert table.upsert({"id": [3], "n": [2**40], "town": ["Bern"]}).quarantined == 1
        table.columns.drop("town")
        assert table.upsert({"id": [4], "n": [2**41]}).quarantined == 1
        rows = [row["row"] for row in table.rejects.scan().to_arrow().sort_by("id").to_pylist()]
        assert rows == [
            {"id": 2, "n": 200, "city": "Rome", "town": None},
            {"id": 3, "n": 2**40, "city": None, "town": "Bern"},
            {"id": 4, "n": 2**41, "city": None, "town": None},
        ]
        assert table.count() == 1

    def test_rejects_of_another_type_are_an_error_that_names_their_table(self, tmp_path: Path) -> None:
        table = lakebed.load(str(tmp_path / "typed"), {"id": [1], "n": [1], "code": [5]}, key="id")
        table.checks.add("small", "n < 100", on_failure="quarantine")
        table.upsert({"id": [2], "n": [200], "code": [6]})
        table.columns.drop("code")
        table.columns.add("code", "boolean")
        bad = {"id": [3], "n": [300], "code": [True]}
        with pytest.raises(SchemaConflict, match=r"do not fit into its table of rejects, .*lakebed_rejects") as caught:
            table.upsert(bad)
        assert "lakebed.drop(t.rejects.uri)" in caught.value.hint
        lakebed.drop(table.rejects.uri)
        assert table.upsert(bad).quarantined == 1
        assert table.rejects.scan(["row"]).to_arrow().to_pylist() == [{"row": {"id": 3, "n": 300, "code": True}}]


def test_the_words_of_a_check_of_the_table_fit_stored_rows(table: lakebed.Table) -> None:
    with pytest.raises(CheckFailed, match="table 'trips' breaks checks of the table as a whole") as caught:
        table.checks.add("few", "count(*) < 2", on="table")
    assert "Nothing was changed" in caught.value.hint
    with pytest.raises(InvalidOption, match='on="table" cannot quarantine'):
        table.checks.add("few", "count(*) < 2", on="table", on_failure="quarantine")
    with pytest.raises(InvalidOption, match='takes on="table"'):
        table.checks.add("few", "count(*) > 2")


def test_the_count_of_a_table_without_partitions_names_no_partition(tmp_path: Path) -> None:
    table = lakebed.load(str(tmp_path / "t"), {"id": [1], "n": [-1]}, key="id")
    table.checks.add("some", "n > 0", validate=False)
    assert str(table.checks.run()) == "some (n > 0): broken by 1 row of the table"

"""Functions of SQL conditions in process: rows that match, files that are skipped, and forms that are left to Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import dataset

import lakebed
from lakebed.errors import InvalidOption
from lakebed.filters.predicates import Compare, Constant, Literal, Opaque
from lakebed.filters.sql import parse_filter
from lakebed.merge.clauses import evaluate

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "s": ["a-1", "Ünï-22", "", None],
        "d": [2.675, -0.5, 1e300, None],
        "x": pa.array([Decimal("9.95"), Decimal("-2.50"), Decimal("0.05"), None], pa.decimal128(10, 2)),
        "day": [date(2024, 1, 31), date(2024, 2, 29), date(2023, 12, 31), None],
        "at": pa.array(
            [datetime(2024, 3, 31, h, 30, tzinfo=UTC) for h in (0, 1, 2)] + [None], pa.timestamp("us", "UTC")
        ),
    }
)
NOW = datetime(2026, 11, 27, 23, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def table() -> lakebed.Table:
    made = lakebed.create("memory://filters/functions", ROWS, key="id", index="simple")
    made.upsert(ROWS)
    return made


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("round(d, 2) = 2.68D", [1]),
        ("round(d) = -1D", [2]),
        ("bround(d) = 0D", [2]),
        ("ceil(d) = 9223372036854775807", [3]),
        ("floor(x) = -3 or ceil(x, 1) = 0.1", [2, 3]),
        ("round(x, 1) = 10.0", [1]),
        ("greatest(d, 1D) = 1", [2, 4]),
        ("least(x, 1) = 0.05", [3]),
        ("sign(x) = -1", [2]),
        ("concat_ws('/', s, null, 'x') in ('a-1/x', 'x', '/x')", [1, 3, 4]),
        ("instr(s, '-') = 4", [2]),
        ("split_part(s, '-', -1) = '22'", [2]),
        ("lpad(s, 4, '0') in ('0a-1', '0000', 'Ünï-')", [1, 2, 3]),
        ("replace(s, '-', '') = 'Ünï22' or reverse(s) = '1-a'", [1, 2]),
        ("regexp_extract(s, '([0-9]+)', 1) = '' or regexp_replace(s, '[0-9]', '#') = 'a-#'", [1, 3]),
        ("left(s, 1) = 'Ü' or right(s, 1) = '1'", [1, 2]),
        ("add_months(day, 1) = '2024-02-29'", [1]),
        ("last_day(day) = day", [1, 2, 3]),
        ("next_day(day, 'Thu') = date'2024-03-07'", [2]),
        ("months_between(day, date'2023-12-31') between 1 and 2", [1, 2]),
        ("day + interval 1 day = date'2024-03-01' or day - 30 = '2024-01-01'", [1, 2]),
        ("extract(quarter from day) = 4", [3]),
        ("date_trunc('hour', at) = '2024-03-31 01:00:00'", [2]),
        ("at + interval 30 minutes = '2024-03-31 03:00:00'", [3]),
        ("s IS DISTINCT FROM 'a-1'", [2, 3, 4]),
        ("id & 1 = 0 and pmod(id, 3) = 1", [4]),
        ("day < current_date and at < now()", [1, 2, 3]),
        ("day > current_date()", []),
        ("abs(null) = 1 or upper(null) = 'X' or null + id = 1 or year(null) = 2024", []),
        ("coalesce(null + id, 7) = 7", [1, 2, 3, 4]),
    ],
)
def test_a_condition_by_functions_matches_the_rows(table: lakebed.Table, condition: str, ids: list[int]) -> None:
    assert sorted(table.scan(["id"], condition).to_arrow()["id"].to_pylist()) == ids


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("day = current_date", date(2026, 11, 28)),
        ("day = current_date() - 3", date(2026, 11, 25)),
        ("day = curdate() - interval 1 month", date(2026, 10, 28)),
        ("at = current_timestamp", NOW),
        ("at = now() - interval 90 minutes", NOW - timedelta(minutes=90)),
        ("at = current_timestamp() - interval 2 days", NOW - timedelta(days=2)),
    ],
)
def test_the_current_moment_is_one_constant_for_files_and_for_spark(text: str, value: date) -> None:
    predicate = parse_filter(text, ROWS.schema, zone="Asia/Tokyo", now=NOW)
    assert isinstance(predicate.root, Compare)
    assert isinstance(predicate.root.right, Literal)
    assert predicate.root.right.value == value
    assert "2026-11-2" in predicate.to_spark_sql()
    again = parse_filter(predicate.to_spark_sql().replace("TIMESTAMP_LTZ", "TIMESTAMP"), ROWS.schema, zone="Asia/Tokyo")
    assert again.root == predicate.root


def test_a_column_goes_before_a_constant_of_its_name() -> None:
    schema = pa.schema([("current_date", pa.date32()), ("day", pa.date32())])
    predicate = parse_filter("day = current_date", schema, now=NOW)
    assert isinstance(predicate.root, Opaque)
    assert predicate.to_spark_sql() == "day = current_date"
    named = parse_filter("s = 'now()' and day = current_date", ROWS.schema, now=NOW)
    assert named.to_spark_sql() == "s = 'now()' and day = DATE '2026-11-27'"


def test_days_before_a_change_of_clocks_have_the_same_wall_clock_time() -> None:
    text = "at = timestamp'2024-03-31 12:00:00' - interval 1 day"
    predicate = parse_filter(text, ROWS.schema, zone="Europe/Berlin")
    assert isinstance(predicate.root, Compare)
    assert predicate.root.right == Literal(datetime(2024, 3, 30, 11, tzinfo=UTC), pa.timestamp("us", "UTC"))


def test_partitions_are_skipped_by_the_current_date(tmp_path: Path) -> None:
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=n) for n in range(5)]
    rows = pa.table({"id": range(5), "day": days})
    table = lakebed.create(str(tmp_path / "t"), rows, key="id", partition_by="day")
    table.upsert(rows)
    scan = table.scan(where="day >= date_sub(current_date, 1)")
    expected = {day for day in days if day >= datetime.now(UTC).date() - timedelta(days=1)}
    assert set(scan.to_arrow()["day"].to_pylist()) in (expected, set(days[:2]))
    assert len(scan.files) <= 2


@pytest.mark.parametrize(
    "text",
    [
        "round(d, 16) = 1",
        "round(d, -1) = 1",
        "ceil(d, 1) = 1",
        "power(d, 2) = 1",
        "sqrt(x) = 1",
        "initcap(s) = ''",
        "lpad(s, 3, 'ab') = ''",
        "lpad(s, id) = ''",
        "regexp_replace(s, 'a*', 'x') = ''",
        "regexp_replace(s, 'a|', 'x') = ''",
        "regexp_replace(s, '(a)', '$1') = ''",
        "regexp_replace(s, 'a$', '') = ''",
        "regexp_extract(s, '(a)', 2) = ''",
        "split_part(s, '', 1) = ''",
        "split_part(s, 'a', 0) = ''",
        "locate('a', s, 2) = 1",
        "make_date(2024, 2, 30) = day",
        "next_day(day, 'noday') = day",
        "day + interval 1 hour = at",
        "at + interval 1 month = at",
        "date_trunc('century', at) = at",
        "months_between(at, day) = 1",
        "pmod(id, 0) = 1",
        "greatest(s, id) = 1",
    ],
)
def test_functions_that_arrow_computes_otherwise_are_left_to_spark(table: lakebed.Table, text: str) -> None:
    assert isinstance(parse_filter(text, ROWS.schema).root, Opaque)
    with pytest.raises(InvalidOption, match="runs on Spark only"):
        table.scan(where=text).to_arrow()


def test_arithmetic_with_null_is_null() -> None:
    for text in ("id + null = 1", "null * 2 = id", "5 / null = id", "id % null = 1", "cast(null as int) + 1 = id"):
        assert parse_filter(text, ROWS.schema).root == Constant(None), text


def test_doubles_round_as_they_are_printed_up_to_fifteen_places(table: lakebed.Table) -> None:
    values = pa.table({"d": [0.1234567890123455, 0.12345678901234549, 99999999999999.995, 1e17, 5e-16, 4.9e-16]})
    for places, expected in (
        (15, [0.123456789012346, 0.123456789012345, 99999999999999.995, 1e17, 1e-15, 0.0]),
        (2, [0.12, 0.12, 100000000000000.0, 1e17, 0.0, 0.0]),
    ):
        predicate = parse_filter(f"round(d, {places}) = 0D", values.schema)
        assert isinstance(predicate.root, Compare)
        found = dataset.dataset(values).to_table(columns={"d": predicate.root.left.to_arrow()})["d"].to_pylist()
        assert found == expected


def test_concat_ws_over_nulls_alone_is_empty() -> None:
    rows = pa.table(
        {"a": [None, "x", None, ""], "b": [None, None, "y", None]}, pa.schema([("a", pa.string()), ("b", pa.string())])
    )
    for text, expected in (
        ("concat_ws('-', a, b)", ["", "x", "y", ""]),
        ("concat_ws('-', a)", ["", "x", "", ""]),
        ("concat_ws('-', null, b, a, null)", ["", "x", "y", ""]),
        ("concat_ws('', a, 'z', b)", ["z", "xz", "zy", "z"]),
        ("concat_ws('-', a, b, a)", ["", "x-x", "y", "-"]),
    ):
        node = parse_filter(f"{text} = ''", rows.schema).root
        assert isinstance(node, Compare)
        (found,) = evaluate(rows, [node.left.to_arrow()])
        assert found.to_pylist() == expected, text
        (none,) = evaluate(rows.slice(0, 0), [node.left.to_arrow()])
        assert len(none) == 0


def test_a_unit_is_taken_as_it_is_written() -> None:
    schema = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("month", pa.string())])
    for text in (
        "trunc(day, 'Q')",
        "trunc(day, 'Y')",
        "trunc(day, 'W')",
        "trunc(day, 'day')",
        "trunc(day, month)",
        "trunc(day, 'QTR')",
        "trunc(day)",
    ):
        assert not parse_filter(f"{text} = date'2024-01-01'", schema).runs_in_process, text
    for unit in ("Q", "Y", "M", "H", "S", "MS"):
        assert not parse_filter(f"date_trunc('{unit}', at) = timestamp'2024-01-01'", schema).runs_in_process, unit
    assert not parse_filter("date_trunc(month, at) = timestamp'2024-01-01'", schema).runs_in_process
    for unit in ("quarter", "YEAR", "yyyy", "Yy", "MON", "mm", "week"):
        assert parse_filter(f"trunc(day, '{unit}') = date'2024-01-01'", schema).runs_in_process, unit

"""Dates and times of a form that the caller names: read as such, checked, and told from text and ISO dates."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.inputs.date_formats import DateFormat

FORMS: list[tuple[str, str, Any]] = [
    ("%d.%m.%Y", "31.12.2007", date(2007, 12, 31)),
    ("%m/%d/%Y", "2/1/2007", date(2007, 2, 1)),
    ("%b %d %Y", "Jan 1 2000", date(2000, 1, 1)),
    ("%d %B %Y", "4 july 1999", date(1999, 7, 4)),
    ("%d.%m.%y", "31.12.07", date(2007, 12, 31)),
    ("%Y/%m/%d %H:%M", "2010/01/01 13:05", datetime(2010, 1, 1, 13, 5)),
    ("%d.%m.%Y um %H Uhr", "01.02.2010 um 7 Uhr", datetime(2010, 2, 1, 7)),
    ("%m/%d/%Y %I:%M %p", "12/31/2007 12:30 AM", datetime(2007, 12, 31, 0, 30)),
    ("%d/%b/%Y:%T %z", "10/Oct/2000:13:55:36 -0700", datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC)),
    ("%Y-%j", "2024-366", date(2024, 12, 31)),
]
LONG = pytest.mark.parametrize("long", [True, False])


def short_blocks(monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    if long:
        monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", 8)
        monkeypatch.setattr("lakebed.inputs.csv_rows._BLOCK_BYTES", 64)


def loaded(path: Path, **settings: Any) -> lakebed.Table:
    return lakebed.load(f"memory://date-formats/{uuid.uuid4().hex}", lakebed.DataFiles(path, **settings), key="id")


@pytest.mark.parametrize(("form", "text", "value"), FORMS)
def test_a_text_of_the_form_is_its_date(form: str, text: str, value: Any) -> None:
    read = DateFormat.of(form)
    assert read.read(pa.array([text, f" {text} ", None, "never"])).to_pylist() == [value, value, None, None]


@pytest.mark.parametrize("text", ["31.02.2007", "00.01.2007", "1.13.2007", "31.12.07", "31.12.2007 10:00", ""])
def test_what_is_no_real_date_of_the_form_is_null(text: str) -> None:
    assert DateFormat.of("%d.%m.%Y").read(pa.array([text])).to_pylist() == [None]


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("%d.%m.%Q", "has %Q"),
        ("%d.%m", "it has no year"),
        ("%Y %Y", "twice"),
        ("%H:%M:%S.%f %Y", "has %f"),
        ("%Y %", "has %"),
    ],
)
def test_a_form_that_cannot_be_read_is_refused(form: str, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        lakebed.DataFiles("rows.csv", date_format=form)


def texts(values: list[str], ending: str) -> str:
    """A file with these dates, a text, and a date in ISO form in each row."""
    if ending == "csv":
        return "id,d,name,iso\n" + "".join(f"{n},{v},rome,2024-01-{n + 1:02}\n" for n, v in enumerate(values))
    rows = [{"id": n, "d": v or None, "name": "rome", "iso": f"2024-01-{n + 1:02}"} for n, v in enumerate(values)]
    return "\n".join(map(json.dumps, rows))


@LONG
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_column_of_the_form_is_one_of_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, long: bool
) -> None:
    short_blocks(monkeypatch, long)
    path = tmp_path / f"rows.{ending}"
    days = [date(2007, 12, n) for n in range(1, 21)]
    path.write_text(texts(["", *(day.strftime("%d.%m.%Y") for day in days)], ending))
    table = loaded(path, date_format="%d.%m.%Y")
    rows = table.to_arrow().sort_by("id")
    assert rows["d"].to_pylist() == [None, *days]
    assert rows["name"].to_pylist() == ["rome"] * 21
    assert str(rows["iso"][4].as_py())[:10] == "2024-01-05"
    assert table.upsert(lakebed.DataFiles(path, date_format="%d.%m.%Y")).updated == 21
    assert table.to_arrow().sort_by("id").equals(rows)


@LONG
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_the_form_wins_over_iso_where_all_texts_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, long: bool
) -> None:
    short_blocks(monkeypatch, long)
    path = tmp_path / f"rows.{ending}"
    path.write_text(texts(["2024-02-01", "2024-03-01"], ending))
    rows = loaded(path, date_format="%Y-%d-%m").to_arrow().sort_by("id")
    assert rows["d"].to_pylist() == [date(2024, 1, 2), date(2024, 1, 3)]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_text_that_is_no_date_among_dates_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rows.{ending}"
    path.write_text(texts(["31.12.2007", "31.02.2007"], ending))
    with pytest.raises(InvalidRecord, match=r"column d: '31\.02\.2007' is no date of the form '%d\.%m\.%Y'"):
        loaded(path, date_format="%d.%m.%Y")
    rows = loaded(path, date_format="%Y-%m-%d", columns={"d": "string"}).to_arrow().sort_by("id")
    assert rows["d"].to_pylist() == ["31.12.2007", "31.02.2007"]
    assert rows["iso"].to_pylist() == [date(2024, 1, 1), date(2024, 1, 2)]


def test_a_form_that_no_column_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,name,at\n1,rome,2010/01/01 00:00\n")
    with pytest.raises(InvalidRecord, match=r"no column of dates .*column at has '2010/01/01 00:00'"):
        loaded(path, date_format="%Y/%m/%d")


def test_digits_alone_are_dates_where_the_type_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id,d,at\n10000101,20240131,20240131\n")
    (row,) = loaded(path, date_format="%Y%m%d", columns={"d": "date", "at": "timestamp_ntz"}).to_arrow().to_pylist()
    assert row == {"id": 10000101, "d": date(2024, 1, 31), "at": datetime(2024, 1, 31)}


@pytest.mark.parametrize(
    ("kind", "form", "text", "problem"),
    [
        ("timestamp", "%d.%m.%Y %H", "31.12.2007 10", "lacks the offset %z"),
        ("timestamp_ntz", "%d.%m.%Y %z", "31.12.2007 +02:00", "has an offset, %z"),
        ("date", "%d.%m.%Y %H", "31.12.2007 10", "has a time of day, and column d has dates"),
    ],
)
def test_a_form_with_other_parts_than_the_columns_type_is_refused(
    tmp_path: Path, kind: str, form: str, text: str, problem: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"id,d\n1,{text}\n")
    with pytest.raises(InvalidRecord, match=problem):
        loaded(path, date_format=form, columns={"d": kind})

"""Record keys on the command line: field by field, and times as dates."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.cli.main import invoke


@pytest.fixture
def life(tmp_path: Path) -> str:
    """A table with a key of two fields."""
    uri = str(tmp_path / "life")
    rows = {"country": ["Norway", "Norway", "Oman, East"], "year": [2002, 2007, 2007], "life": [79.05, 80.2, 75.6]}
    lakebed.load(uri, rows, key=["country", "year"])
    return uri


@pytest.fixture
def temps(tmp_path: Path) -> str:
    """A table whose key is a local time."""
    uri = str(tmp_path / "temps")
    at = pa.array([datetime(2010, 1, 1), datetime(2010, 1, 1, 1)], pa.timestamp("us"))
    lakebed.load(uri, pa.table({"at": at, "temp": [39.4, 39.2]}), key="at")
    return uri


def rows(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert invoke([*arguments, "--output", "json"]) == code
    return json.loads(capsys.readouterr().out)


def of(**fields: object) -> list[str]:
    return [part for name, value in fields.items() for part in ("--key", f"{name}={value}")]


def test_a_row_is_found_by_the_fields_of_its_key(capsys: pytest.CaptureFixture[str], life: str) -> None:
    norway = {"country": "Norway", "year": 2007, "life": 80.2}
    assert rows(capsys, "get", life, *of(country="Norway", year=2007)) == [norway]
    assert rows(capsys, "get", life, *of(year=2007, country="Norway")) == [norway]
    several = rows(capsys, "get", life, *of(country="Oman, East", year=2007), *of(country="Norway", year=2002))
    assert {(row["country"], row["year"]) for row in several} == {("Oman, East", 2007), ("Norway", 2002)}
    assert rows(capsys, "get", life, *of(country="Peru", year=1), code=20) == []
    assert len(rows(capsys, "locate", life, *of(country="Norway", year=2007))) == 1
    assert rows(capsys, "history", life, *of(country="Norway", year=2007))[0]["after"] == norway


def test_rows_are_deleted_and_erased_by_the_fields_of_their_keys(capsys: pytest.CaptureFixture[str], life: str) -> None:
    assert rows(capsys, "delete", life, *of(country="Norway", year=2002))["deleted"] == 1
    assert invoke(["erase", life, *of(country="Oman, East", year=2007), "--yes"]) == 0
    assert lakebed.open(life).to_arrow().to_pylist() == [{"country": "Norway", "year": 2007, "life": 80.2}]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (["country=Norway"], "the key is country, year: give --key year=VALUE, too"),
        (["contry=Norway", "year=2007"], "'contry' is no field of the key, which is country, year"),
        (["country=Norway", "country=Oman"], "give --key year=VALUE, too"),
        ([], "give a record key, or its fields: --key NAME=VALUE"),
    ],
)
def test_a_key_that_lacks_a_field_is_refused(
    capsys: pytest.CaptureFixture[str], life: str, key: list[str], problem: str
) -> None:
    assert invoke(["get", life, *[part for text in key for part in ("--key", text)]]) == 2
    assert problem in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_key_of_one_field_is_given_with_or_without_its_name(capsys: pytest.CaptureFixture[str], temps: str) -> None:
    expected = [{"at": "2010-01-01T01:00:00", "temp": 39.2}]
    for key in (["2010-01-01 01:00"], of(at="2010-01-01T01:00:00"), ["--key", "2010-01-01 01:00:00"]):
        assert rows(capsys, "get", temps, *key) == expected
    assert [row["temp"] for row in rows(capsys, "get", temps, *of(at="2010-01-01"))] == [39.4]

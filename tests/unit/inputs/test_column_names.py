"""Settings of data files: names of columns that no table can have, types, codes of digits, and guessed delimiters."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, LakebedError, SchemaConflict

ROWS = [{"Ride Id": 1, "fareTotal": 9.5, "Zip (5)": "01234"}, {"Ride Id": 2, "fareTotal": None, "Zip (5)": "99999"}]
EXPECTED = [
    {"ride_id": 1, "fare_total": 9.5, "zip_5": "01234"},
    {"ride_id": 2, "fare_total": None, "zip_5": "99999"},
]
LONG = pytest.mark.parametrize("long", [True, False])


def short_blocks(monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    if long:
        monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", 8)
        monkeypatch.setattr("lakebed.inputs.csv_rows._BLOCK_BYTES", 64)


def loaded(data: lakebed.DataFiles, key: str) -> lakebed.Table:
    return lakebed.load(f"memory://column-names/{uuid.uuid4().hex}", data, key=key)


def rows_of(table: lakebed.Table, key: str) -> list[dict[str, Any]]:
    return table.to_arrow().sort_by(key).to_pylist()


def written(folder: Path, ending: str) -> str:
    path, table = folder / f"rows.{ending}", pa.Table.from_pylist(ROWS)
    if ending == "parquet":
        pq.write_table(table, path)
    elif ending == "arrow":
        pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
    elif ending == "csv":
        path.write_text("Ride Id,fareTotal,Zip (5)\n1,9.5,01234\n2,,99999\n")
    elif ending == "json":
        path.write_text(json.dumps(ROWS))
    else:
        path.write_text("\n".join(map(json.dumps, ROWS)))
    return str(path)


@LONG
@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "parquet", "arrow"])
def test_a_file_with_spaces_in_its_names_loads_by_the_argument_that_the_error_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, long: bool
) -> None:
    if ending != "json":
        short_blocks(monkeypatch, long)
    path = written(tmp_path, ending)
    with pytest.raises(SchemaConflict) as refused:
        loaded(lakebed.DataFiles(path), "Ride Id")
    assert "lakebed.DataFiles(path, rename='snake')" in str(refused.value)
    files = lakebed.DataFiles(path, rename="snake")
    table = loaded(files, "ride_id")
    assert rows_of(table, "ride_id") == EXPECTED
    assert table.upsert(files).updated == 2  # the table's types go to the columns by their new names
    assert rows_of(table, "ride_id") == EXPECTED


def test_a_dict_renames_some_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    files = lakebed.DataFiles(path, rename={"Ride Id": "id", "Zip (5)": "zip"})
    assert rows_of(loaded(files, "id"), "id") == [
        {"id": 1, "fareTotal": 9.5, "zip": "01234"},
        {"id": 2, "fareTotal": None, "zip": "99999"},
    ]


@pytest.mark.parametrize("name", ["Zip (5)", "zip_5", "ZIP_5"])
def test_types_are_named_by_the_old_or_the_new_name_of_a_column(tmp_path: Path, name: str) -> None:
    files = lakebed.DataFiles(written(tmp_path, "csv"), rename="snake", columns={name: "int"})
    rows = loaded(files, "ride_id").to_arrow().sort_by("ride_id")
    assert (rows.schema.field("zip_5").type, rows["zip_5"].to_pylist()) == (pa.int32(), [1234, 99999])


def test_the_index_that_pandas_writes_gets_a_name(tmp_path: Path) -> None:
    path = tmp_path / "index.csv"
    path.write_text(",x\n0,a\n1,b\n")
    with pytest.raises(SchemaConflict, match=r"index\.csv: a column has no name.*index_column='row'"):
        loaded(lakebed.DataFiles(path), "x")
    files = lakebed.DataFiles(path, index_column="row")
    assert rows_of(loaded(files, "row"), "row") == [{"row": 0, "x": "a"}, {"row": 1, "x": "b"}]


@pytest.mark.parametrize("head", ['"x","y"\n', '\n\n"x","y"\n'])
def test_the_names_of_rows_that_r_writes_without_a_name_get_one(tmp_path: Path, head: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(head + '"1","a",2.5\n"2","b",NA\n')
    with pytest.raises(InvalidRecord, match=r"r\.csv, line \d: 3 fields, the header has 2.*R .*index_column='row'"):
        loaded(lakebed.DataFiles(path), "x")
    rows = rows_of(loaded(lakebed.DataFiles(path, index_column="row", columns={"row": "int"}), "row"), "row")
    assert rows == [{"row": 1, "x": "a", "y": 2.5}, {"row": 2, "x": "b", "y": None}]
    path.write_text(head + "1,2,3,4\n")
    with pytest.raises(InvalidRecord, match="4 fields, the header has 2"):
        loaded(lakebed.DataFiles(path, index_column="row"), "x")


def test_an_error_names_the_line_below_a_header_that_lacks_a_name(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("x,y\n1,a,2\n2,b,two\n")
    with pytest.raises(InvalidRecord, match=r"r\.csv, line 3, column y: 'two' is no int"):
        loaded(lakebed.DataFiles(path, index_column="row", columns={"y": "int"}), "x")


@pytest.mark.parametrize(
    ("text", "settings", "problem"),
    [
        ("Ride Id,x\n1,2\n", {"rename": {"ride": "id"}}, "rename= names 'ride', which .* does not have"),
        ("Ride Id,x\n1,2\n", {"index_column": "row"}, "names the column without a name, and .* has none"),
        ("Ride Id,ride_id\n1,2\n", {"rename": "snake"}, "'Ride Id' and 'ride_id' are both called 'ride_id'"),
        ("Ride Id,x\n1,2\n", {"rename": "camel"}, "rename='camel' is unknown"),
        ("id,x\n1,2\n", {"columns": {"y": "int"}}, "columns= names 'y', which .* does not have"),
        ("id,x\n1,2\n", {"columns": {"x": "array<int>"}}, "says that 'x' is list"),
        ("id,x\n1,2\n", {"columns": {"x": "integers"}}, "integers"),
        ("id,x\n1,2\n", {"columns": ["x"]}, "columns= is a dict"),
    ],
)
def test_a_setting_that_does_not_go_with_the_file_is_refused(
    tmp_path: Path, text: str, settings: dict[str, Any], problem: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(LakebedError, match=problem):
        lakebed.DataFiles(path, **settings).read({})


def test_settings_of_texts_are_refused_for_other_files(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet")
    for settings in ({"columns": {"x": "int"}}, {"date_format": "%Y"}, {"encoding": "latin-1"}):
        with pytest.raises(InvalidOption, match=r"does not go with .*rows\.parquet"):
            lakebed.DataFiles(path, **settings).read({})  # pyright: ignore[reportArgumentType]


@LONG
def test_digits_that_begin_with_a_zero_stay_text_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, long: bool
) -> None:
    short_blocks(monkeypatch, long)
    path = tmp_path / "rows.csv"
    path.write_text("id,zip,n,t,f,minus\n" + "".join(f"{n},{n + 10000},{n},0{n % 10}:30,0.5,-07\n" for n in range(30)))
    plain = loaded(lakebed.DataFiles(path), "id")
    assert plain.to_arrow().schema.field("zip").type == pa.int64()
    assert not caplog.records
    with path.open("a") as file:
        file.write("30,01234,30,00:30,0.5,-07\n")
    table = loaded(lakebed.DataFiles(path), "id")
    (warning,) = caplog.messages
    assert "column zip stays text, because '01234' begins with a zero" in warning
    rows = table.to_arrow().sort_by("id")
    assert rows["zip"].to_pylist() == [*(str(n + 10000) for n in range(30)), "01234"]
    assert rows["minus"].to_pylist() == [-7] * 31
    assert rows.schema.field("f").type == pa.float64()
    caplog.clear()
    numbers = loaded(lakebed.DataFiles(path, columns={"zip": "bigint"}), "id").to_arrow().sort_by("id")
    assert (numbers["zip"].to_pylist()[-1], caplog.messages) == (1234, [])


@LONG
def test_a_code_of_digits_is_text_in_all_files_where_one_begins_with_a_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, long: bool
) -> None:
    short_blocks(monkeypatch, long)
    for name, text in (("a", "1,99999"), ("b", "2,01234"), ("c", "3,5.25")):
        (tmp_path / f"{name}.csv").write_text(f"id,zip\n{text}\n")
    table = loaded(lakebed.DataFiles(tmp_path), "id")
    assert table.to_arrow().sort_by("id")["zip"].to_pylist() == ["99999", "01234", "5.25"]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_delimiter_is_guessed_from_the_header_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mark: str
) -> None:
    for name, number in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.csv").write_text(f"id{mark}city\n{number}{mark}rome, italy\n".replace(", italy", " x"))
    table = loaded(lakebed.DataFiles(tmp_path), "id")
    assert rows_of(table, "id") == [{"id": 1, "city": "rome x"}, {"id": 2, "city": "rome x"}]
    (warning,) = caplog.messages
    assert f"separated by {mark!r}" in warning
    assert f"delimiter={mark!r}" in warning

"""Texts as values of columns, by every way in: digits beyond a type are no infinity, and a time without an offset is no
moment."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, LakebedError
from lakebed.ingestion.debezium import Envelopes, decode_debezium_json
from lakebed.ingestion.json_messages import decode_json

Read = Callable[[Path, str, pa.DataType], Any]


def table_of(kind: pa.DataType) -> lakebed.Table:
    columns = pa.schema([("id", pa.int64()), ("v", kind)])
    return lakebed.create(f"memory://values-of-texts/{uuid.uuid4().hex}", columns, key="id")


def by_file(name: str, content: Callable[[str], str]) -> Read:
    def read(folder: Path, text: str, kind: pa.DataType) -> Any:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content(text))
        table = table_of(kind)
        table.upsert(lakebed.DataFiles(path))
        return table.scan().to_arrow().to_pylist()[0]["v"]

    return read


def by_folder(folder: Path, text: str, kind: pa.DataType) -> Any:
    path = folder / uuid.uuid4().hex / f"v={text.replace(':', '%3A')}" / "rows.csv"
    path.parent.mkdir(parents=True)
    path.write_text("id\n1\n")
    table = table_of(kind)
    table.upsert(lakebed.DataFiles(path.parent.parent))
    return table.scan().to_arrow().to_pylist()[0]["v"]


def by_ingest(name: str, content: Callable[[str], str]) -> Read:
    def read(folder: Path, text: str, kind: pa.DataType) -> Any:
        path = folder / uuid.uuid4().hex / name
        path.parent.mkdir()
        path.write_text(content(text))
        table = table_of(kind)
        source = {"kind": "files", "path": str(path.parent)}
        lakebed.ingest({"source": source, "target": {"uri": table.uri}}, once=True)
        return table.scan().to_arrow().to_pylist()[0]["v"]

    return read


def by_message(_: Path, text: str, kind: pa.DataType) -> Any:
    message = json.dumps({"id": 1, "v": text}).encode()
    decoded = decode_json(pa.array([message], pa.binary()), {"id": pa.int64(), "v": kind})
    if decoded.bad:
        raise InvalidRecord(decoded.bad[0].error)
    return decoded.rows["v"][0].as_py()


def by_change(_: Path, text: str, kind: pa.DataType) -> Any:
    message = json.dumps({"op": "c", "after": {"id": 1, "v": text}, "source": {"lsn": 1}}).encode()
    types = {"id": pa.int64(), "v": kind}
    decoded = decode_debezium_json(pa.array([message], pa.binary()), Envelopes(types, hudi=False))
    if decoded.bad:
        raise InvalidRecord(decoded.bad[0].error)
    return decoded.rows["v"][0].as_py()


TEXTS: dict[str, Read] = {
    "CSV": by_file("rows.csv", lambda text: f"id,v\n1,{text}\n"),
    "CSV, quoted": by_file("rows.csv", lambda text: f'id,v\n1,"{text}"\n'),
    "JSON lines": by_file("rows.jsonl", lambda text: json.dumps({"id": 1, "v": text})),
    "JSON array": by_file("rows.json", lambda text: json.dumps([{"id": 1, "v": text}])),
    "folder": by_folder,
    "ingest of CSV": by_ingest("rows.csv", lambda text: f"id,v\n1,{text}\n"),
    "ingest of JSON": by_ingest("rows.json", lambda text: json.dumps({"id": 1, "v": text})),
    "message": by_message,
    "change": by_change,
}
NUMBERS: dict[str, Read] = {
    "JSON lines": by_file("rows.jsonl", lambda text: f'{{"id": 1, "v": {text}}}'),
    "JSON array": by_file("rows.json", lambda text: f'[{{"id": 1, "v": {text}}}]'),
    "ingest of JSON": by_ingest("rows.json", lambda text: f'{{"id": 1, "v": {text}}}'),
}


def read_by_all(folder: Path, ways: Mapping[str, Read], text: str, kind: pa.DataType) -> dict[str, Any]:
    """The value by every way; of an error its class and whether it names the column and the text."""
    results: dict[str, Any] = {}
    for name, way in ways.items():
        try:
            results[name] = way(folder, text, kind)
        except LakebedError as error:
            is_named = text.rstrip("0") in error.message and "v" in error.message
            results[name] = (type(error).__name__, is_named)
    return results


REFUSED = ("InvalidRecord", True)


def test_digits_beyond_a_floating_type_are_refused_by_every_way_in_and_infinity_stays(tmp_path: Path) -> None:
    most, most_float = "1.7976931348623157e308", "3.4028234e38"
    cases: list[tuple[pa.DataType, str, Any]] = [
        (pa.float64(), "1e400", REFUSED),
        (pa.float64(), "-1e400", REFUSED),
        (pa.float64(), "1.8e308", REFUSED),
        (pa.float64(), most, float(most)),
        (pa.float64(), "1e39", 1e39),
        (pa.float64(), "1e-400", 0.0),
        (pa.float32(), "1e39", REFUSED),
        (pa.float32(), "-3.5e38", REFUSED),
        (pa.float32(), most_float, pa.scalar(float(most_float), pa.float32()).as_py()),
        (pa.float64(), "Infinity", math.inf),
        (pa.float64(), "-Infinity", -math.inf),
        (pa.float32(), "inf", math.inf),
    ]
    for kind, text, expected in cases:
        results = read_by_all(tmp_path, TEXTS, text, kind)
        assert results == dict.fromkeys(TEXTS, expected), (str(kind), text)
        if text != "inf":  # which is no word of JSON
            results = read_by_all(tmp_path, NUMBERS, text, kind)
            assert results == dict.fromkeys(NUMBERS, expected), (str(kind), text, "number")


def test_digits_beyond_a_double_in_a_column_that_no_table_has_are_refused(tmp_path: Path) -> None:
    contents = {
        "a.csv": "id,v\n1,1.5\n2,1e400\n",
        "b.jsonl": '{"id": 1, "v": 1.5}\n{"id": 2, "v": 1e400}\n',
        "c.json": '[{"id": 1, "v": {"x": [1e400]}}]',
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidRecord, match=r"(line 3|row [12]), column v.*1e400"):
            lakebed.load(f"memory://values-of-texts/new-{name}", tmp_path / name, key="id")


def test_a_float_inside_of_a_column_is_no_infinity_of_digits(tmp_path: Path) -> None:
    number = pa.float32()
    kinds: dict[str, tuple[pa.DataType, str, Any]] = {
        "struct": (pa.struct([("x", number)]), '{"x": %s}', {"x": math.inf}),
        "list": (pa.list_(number), "[1.5, %s]", [1.5, math.inf]),
        "list of structs": (pa.list_(pa.struct([("x", number)])), '[{"x": %s}]', [{"x": math.inf}]),
        "map": (pa.map_(pa.string(), number), '{"k": %s}', [("k", math.inf)]),
    }
    for name, (kind, text, infinite) in kinds.items():
        results = read_by_all(tmp_path, {"JSON": NUMBERS["JSON lines"]}, text % "1e39", kind)["JSON"]
        assert results[0] == "InvalidRecord", name
        assert NUMBERS["JSON lines"](tmp_path, text % "Infinity", kind) == infinite, name


def test_numbers_of_python_beyond_a_float_are_refused_and_name_the_column() -> None:
    kinds: dict[str, tuple[pa.DataType, Any, str]] = {
        "plain": (pa.float32(), 1e39, "v"),
        "struct": (pa.struct([("x", pa.float32())]), {"x": -1e39}, "v.x"),
        "list": (pa.list_(pa.float32()), [1.5, 1e39], "v.element"),
        "map": (pa.map_(pa.string(), pa.float32()), {"k": 1e39}, "v.value"),
    }
    for name, (kind, value, column) in kinds.items():
        table = table_of(kind)
        for data in ([{"id": 1, "v": value}], {"id": [1], "v": [value]}):
            with pytest.raises(InvalidRecord, match=rf"column {column} is FLOAT in the table, .* -?1e\+39"):
                table.upsert(data)
        assert table.count() == 0, name
    table = table_of(pa.float32())
    table.upsert([{"id": 1, "v": math.inf}, {"id": 2, "v": 0.1}, {"id": 3, "v": math.nan}, {"id": 4, "v": None}])
    values = table.scan().to_arrow().sort_by("id")["v"].to_pylist()
    assert (values[0], values[1], values[3]) == (math.inf, pa.scalar(0.1, pa.float32()).as_py(), None)
    assert math.isnan(values[2])


def test_a_number_in_sql_beyond_a_double_is_refused_as_spark_does() -> None:
    table = table_of(pa.float64())
    table.upsert([{"id": 1, "v": math.inf}, {"id": 2, "v": 1.5}])
    for condition in ("v = 1e400", "v > -1e400", "v < 1.8E308"):
        with pytest.raises(InvalidOption, match=r"the condition has 1\.?8?[eE]\d+, which is too great for a DOUBLE"):
            table.scan(where=condition).count()
    for text in (
        "UPDATE t SET v = 1e400",
        "INSERT INTO t VALUES (3, 1e400)",
        "SELECT 1e400",
        "DELETE FROM t WHERE v = 1e400",
    ):
        with pytest.raises(InvalidOption, match="the SQL text has 1e400, which is too great for a DOUBLE"):
            lakebed.sql(text, {"t": table})
    assert table.scan(where="v = CAST('Infinity' AS DOUBLE)").to_arrow()["id"].to_pylist() == [1]
    assert table.scan(where="v < 1.7e308").to_arrow()["id"].to_pylist() == [2]


def test_a_time_without_an_offset_is_no_moment_by_any_way_in(tmp_path: Path) -> None:
    moment, local = pa.timestamp("us", "UTC"), pa.timestamp("us")
    at = datetime(2024, 1, 1, 10)
    cases: list[tuple[pa.DataType, str, Any]] = [
        (moment, "2024-01-01T10:00:00", REFUSED),
        (moment, "2024-01-01 10:00:00.5", REFUSED),
        (moment, "2024-01-01", REFUSED),
        (moment, "2024-01-01T10:00:00Z", at.replace(tzinfo=UTC)),
        (moment, "2024-01-01 12:00:00+02:00", at.replace(tzinfo=UTC)),
        (local, "2024-01-01T10:00:00Z", REFUSED),
        (local, "2024-01-01T10:00:00+02:00", REFUSED),
        (local, "2024-01-01T10:00:00", at),
    ]
    for kind, text, expected in cases:
        results = read_by_all(tmp_path, TEXTS, text, kind)
        assert results == dict.fromkeys(TEXTS, expected), (str(kind), text)


def test_a_time_without_an_offset_inside_of_a_column_is_no_moment(tmp_path: Path) -> None:
    moment = pa.timestamp("us", "UTC")
    for kind, value in ((pa.struct([("t", moment)]), '{"t": "%s"}'), (pa.list_(moment), '["%s"]')):
        results = read_by_all(tmp_path, {"JSON": NUMBERS["JSON lines"]}, value % "2024-01-01 10:00:00", kind)["JSON"]
        assert results[0] == "InvalidRecord", str(kind)
        stored = NUMBERS["JSON lines"](tmp_path, value % "2024-01-01 10:00:00Z", kind)
        assert str(stored).count("2024, 1, 1, 10, 0") == 1, str(kind)


def test_a_decimal_of_csv_that_its_type_does_not_keep_is_named_by_line_and_column(tmp_path: Path) -> None:
    path, table = tmp_path / "rows.csv", table_of(pa.decimal128(5, 2))
    for text in ("1.234", "1234.5", "x", "1e400", "1.2.3", "9" * 40):
        path.write_text(f"id,v\n1,1.5\n\n2,{text}\n")
        with pytest.raises(InvalidRecord) as refused:
            table.upsert(path)
        assert f"rows.csv, line 4, column v: '{text}' is no decimal128(5, 2)" in refused.value.message
    path.write_text("id,v\n1,999.99\n2,1.50\n")
    table.upsert(path)
    assert table.scan().to_arrow().sort_by("id")["v"].to_pylist() == [Decimal("999.99"), Decimal("1.50")]

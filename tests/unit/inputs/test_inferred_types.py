"""Types that follow from the values of CSV and JSON files: whole digits are no floating numbers, texts are no bytes,
moments are no local times, and quoted empty fields are null in columns of numbers."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict
from lakebed.ingestion.json_messages import decode_json

U64 = 2**64 - 1
MOMENT = datetime(2024, 1, 1, 1, tzinfo=UTC)
LONG = pytest.mark.parametrize("long", [True, False])


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    def written(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return written


def short_blocks(monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    if long:
        monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", 8)
        monkeypatch.setattr("lakebed.inputs.csv_rows._BLOCK_BYTES", 64)


def loaded(path: Path | str, **options: Any) -> lakebed.Table:
    return lakebed.load(f"memory://inferred/{uuid.uuid4().hex}", lakebed.DataFiles(path, **options), key="id")


def column(path: Path, name: str = "v", **options: Any) -> tuple[str, list[Any]]:
    """The type of a column of the new table, and its values by the keys."""
    rows = loaded(path, **options).scan(columns=["id", name]).to_arrow().sort_by("id")
    return str(rows.schema.field(name).type), rows[name].to_pylist()


CSV_COLUMNS: list[tuple[list[str], str, list[Any]]] = [
    (["18446744073709551615", "1"], "decimal128(20, 0)", [U64, 1]),
    (["-9223372036854775809", "+7"], "decimal128(20, 0)", [-(2**63) - 1, 7]),
    (["9223372036854775807", "-9223372036854775808"], "int64", [2**63 - 1, -(2**63)]),
    (["9" * 20, "1"], "decimal128(20, 0)", [10**20 - 1, 1]),
    (["9" * 21, "1"], "decimal128(38, 0)", [10**21 - 1, 1]),
    (["9" * 38, ""], "decimal128(38, 0)", [10**38 - 1, None]),
    (["9" * 39, "1"], "string", ["9" * 39, "1"]),
    (["+5", "-7"], "int64", [5, -7]),
    (["+5", "2.5"], "double", [5.0, 2.5]),
    (["9007199254740993", "0.5"], "string", ["9007199254740993", "0.5"]),
    (["9007199254740992", "0.5"], "double", [9007199254740992.0, 0.5]),
    (["1.0", "2"], "double", [1.0, 2.0]),
    (["1e300", "2.5"], "double", [1e300, 2.5]),
    (["0x10", "7"], "string", ["0x10", "7"]),
    (["true", "1"], "string", ["true", "1"]),
    (["true", "FALSE"], "bool", [True, False]),
    (['"5"', '""'], "int64", [5, None]),
    (['"2.5"', '""'], "double", [2.5, None]),
    (['"2024-01-31"', '""'], "date32[day]", [date(2024, 1, 31), None]),
    (['"true"', '""'], "bool", [True, None]),
    (['"a"', '""'], "string", ["a", ""]),
    (['""', ""], "string", ["", None]),
    (['"NA"', ""], "string", ["NA", None]),
    (["2024-01-01T01:00:00Z", "2024-01-01T03:00:00+02:00"], "timestamp[us, tz=UTC]", [MOMENT, MOMENT]),
    (["2024-01-01 01:00:00", "2024-01-01"], "timestamp[us]", [MOMENT.replace(tzinfo=None), datetime(2024, 1, 1)]),
    (["2024-01-01T01:00:00Z", "2024-01-01T01:00:00"], "string", ["2024-01-01T01:00:00Z", "2024-01-01T01:00:00"]),
]


@LONG
def test_a_column_of_a_csv_file_has_a_type_that_keeps_its_values(
    file: Any, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    short_blocks(monkeypatch, long)
    for texts, kind, values in CSV_COLUMNS:
        path = file("rows.csv", "id,v\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts)))
        assert column(path) == (kind, values), texts


def test_a_type_that_comes_late_in_a_long_csv_file_is_that_of_its_column(
    file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_blocks(monkeypatch, True)
    columns: list[tuple[str, str, str, Any]] = [
        ("1", "2.5", "double", 2.5),
        ("1", "18446744073709551615", "decimal128(20, 0)", U64),
        ("1", "a", "string", "a"),
        ("", "7", "int64", 7),
        ("", "0.5", "double", 0.5),
        ("", "a", "string", "a"),
        ("0.5", "a", "string", "a"),
        ("2024-01-01", "never", "string", "never"),
        ("true", "maybe", "string", "maybe"),
        ("1", "+7", "int64", 7),
        ("a", '""', "string", ""),
    ]
    for early, last, kind, value in columns:
        path = file("rows.csv", "id,v\n" + "".join(f"{n},{early}\n" for n in range(40)) + f"40,{last}\n")
        read, values = column(path)
        assert (read, values[40]) == (kind, value), (early, last)
        kinds = {"int64": int, "double": float, "string": str, "decimal128(20, 0)": Decimal}
        assert values[:40] == [kinds[kind](early) if early else None] * 40, (early, last)


def test_files_of_a_folder_have_types_that_keep_the_values_of_all(file: Any, tmp_path: Path) -> None:
    file("a.csv", "id,v\n1,+1\n")
    file("b.csv", "id,v\n18446744073709551615,2.5\n")
    rows = loaded(tmp_path).to_arrow().sort_by("id")
    assert (rows["id"].to_pylist(), rows["v"].to_pylist()) == ([1, U64], [1.0, 2.5])
    file("c.csv", "id,v\n2,9007199254740993\n")
    with pytest.raises(SchemaConflict, match=r"c\.csv: column v is int64, in other files double"):
        loaded(tmp_path)


def test_folders_name_texts_where_no_number_keeps_their_digits(tmp_path: Path) -> None:
    for number, value in enumerate(("0.5", "9007199254740993")):
        (tmp_path / f"v={value}").mkdir()
        (tmp_path / f"v={value}" / "a.csv").write_text(f"id\n{number}\n")
    assert column(tmp_path) == ("string", ["0.5", "9007199254740993"])


JSON_COLUMNS: list[tuple[list[str], str, list[Any]]] = [
    (["18446744073709551615", "1"], "decimal128(20, 0)", [U64, 1]),
    (["9223372036854775807", "-9223372036854775808"], "int64", [2**63 - 1, -(2**63)]),
    (["9" * 38, "null"], "decimal128(38, 0)", [10**38 - 1, None]),
    (["9007199254740991", "0.5"], "double", [9007199254740991.0, 0.5]),
    (["9007199254740992", "0.5"], "double", [9007199254740992.0, 0.5]),
    (["1e300", "0.5"], "double", [1e300, 0.5]),
    (["1e20", "3"], "double", [1e20, 3.0]),
    (['"2024-01-01T01:00:00Z"', '"2024-01-01T03:00:00+02:00"'], "timestamp[us, tz=UTC]", [MOMENT, MOMENT]),
    (['"2024-01-01T01:00:00"', "null"], "timestamp[us]", [MOMENT.replace(tzinfo=None), None]),
    (['"2024-01-01T01:00:00Z"', '"2024-01-01"'], "string", ["2024-01-01T01:00:00Z", "2024-01-01"]),
    (["[null,1]", "[null,null,2]"], "list<element: int64>", [[None, 1], [None, None, 2]]),
    (
        ['{"t":["2024-01-01T01:00:00Z"],"n":18446744073709551615}', "null"],
        "struct<t: list<element: timestamp[us, tz=UTC]>, n: decimal128(20, 0)>",
        [{"t": [MOMENT], "n": U64}, None],
    ),
]


@LONG
def test_a_field_of_json_objects_has_a_type_that_keeps_its_values(
    file: Any, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    short_blocks(monkeypatch, long)
    for values, kind, expected in JSON_COLUMNS:
        if long:  # a part has several lines
            monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", 400)
        lines = [f'{{"id":{n},"v":{value}}}' for n, value in enumerate(values)]
        filling = "\n".join(f'{{"id":{n},"v":null}}' for n in range(2, 40 if long else 2))
        for name, text in (("rows.jsonl", "\n".join([*lines, filling])), ("rows.json", f"[{','.join(lines)}]")):
            read, found = column(file(name, text))
            assert (read, found[:2]) == (kind, expected), (name, values)
        messages = decode_json(pa.array([line.encode() for line in lines], pa.binary()), {})
        assert messages.rows["v"].to_pylist() == expected, values
        assert messages.bad == []


def test_whole_numbers_without_a_type_are_refused_or_bad_messages(file: Any) -> None:
    for values, why in (
        (["9" * 39, "1"], "column v has numbers of 39 digits"),
        (["9007199254740993", "0.5"], "column v has fractions and whole numbers that DOUBLE does not keep"),
    ):
        lines = [f'{{"id":{n},"v":{value}}}' for n, value in enumerate(values)]
        with pytest.raises(InvalidRecord, match=rf"rows\.jsonl: {why}"):
            loaded(file("rows.jsonl", "\n".join(lines)))
        decoded = decode_json(pa.array([line.encode() for line in lines], pa.binary()), {})
        assert [len(decoded.bad), decoded.rows.num_rows] == [1, 1]


def test_a_moment_is_no_value_of_a_column_of_local_times(file: Any) -> None:
    types = {"id": pa.int64(), "v": pa.timestamp("us"), "s": pa.struct([("t", pa.list_(pa.timestamp("us")))])}
    target = lakebed.create(f"memory://inferred/{uuid.uuid4().hex}", pa.schema(list(types.items())), key="id")
    local = '{"id":1,"v":"2024-01-01T01:00:00.5","s":{"t":["2024-01-01"]}}'
    target.upsert(str(file("rows.jsonl", local)))
    half = datetime(2024, 1, 1, 1, 0, 0, 500000)
    assert target.to_arrow().to_pylist() == [{"id": 1, "v": half, "s": {"t": [datetime(2024, 1, 1)]}}]
    for odd in ('"v":"2024-01-01T01:00:00+02:00"', '"v":"2024-01-01T01:00:00Z"', '"s":{"t":["2024-01-01T01:00:00Z"]}'):
        with pytest.raises(InvalidRecord, match=r"is no timestamp\[us\]"):
            target.upsert(str(file("rows.jsonl", f'{{"id":2,{odd}}}')))
        decoded = decode_json(pa.array([local.encode(), f'{{"id":2,{odd}}}'.encode()], pa.binary()), types)
        assert ([bad.number for bad in decoded.bad], decoded.rows["v"].to_pylist()) == ([1], [half]), odd
    with pytest.raises(InvalidRecord, match=r"'2024-01-01T01:00:00\+02:00' is no timestamp\[us\]"):
        target.upsert(str(file("rows.csv", "id,v\n2,2024-01-01T01:00:00+02:00\n")))
    assert target.count() == 1


def test_values_that_are_nested_too_deep_are_refused_and_bad_messages(file: Any) -> None:
    def nested(depth: int) -> str:
        return '{"id":1,"v":' + "[" * depth + "]" * depth + "}"

    for depth in (200, 5_000, 300_000):
        with pytest.raises(InvalidRecord, match="nested more than 100 deep"):
            loaded(file("rows.json", nested(depth)))
        decoded = decode_json(pa.array([b'{"id":1}', nested(depth).encode()], pa.binary()), {})
        assert (decoded.rows.to_pylist(), [bad.number for bad in decoded.bad]) == ([{"id": 1}], [1])
    brackets = '{"id":1,"v":"' + "[{" * 400 + '"}'
    assert column(file("rows.json", brackets)) == ("string", ["[{" * 400])
    assert decode_json(pa.array([nested(98).encode()], pa.binary()), {}).bad == []


def test_a_number_of_many_thousand_digits_is_refused(file: Any) -> None:
    with pytest.raises(InvalidRecord, match=r"rows\.json"):
        loaded(file("rows.json", f'[{{"id":1,"v":{"9" * 5000}}}]'))


@LONG
@pytest.mark.parametrize("ending", ["csv", "jsonl", "csv.gz"])
def test_a_text_in_another_encoding_is_read_by_its_name_and_refused_without(
    file: Any, monkeypatch: pytest.MonkeyPatch, ending: str, long: bool
) -> None:
    text = "id,é\n1,a\n2,café\n" if ending != "jsonl" else '{"id":1,"é":"a"}\n{"id":2,"é":"café"}\n'
    for encoding, line, byte in (("latin-1", 1, "0xe9"), ("utf-16", 1, "0xff"), ("cp1252", 1, "0xe9")):
        data = text.encode(encoding)
        path = file(f"rows.{ending}", gzip.compress(data) if ending.endswith("gz") else data)
        short_blocks(monkeypatch, long)
        suggested = "utf-16" if encoding == "utf-16" else "latin-1"
        with pytest.raises(InvalidRecord) as caught:
            loaded(path)
        assert f"rows.{ending}, line {line}: the byte {byte} is not UTF-8, and no encoding= is given" in str(
            caught.value
        )
        assert f"encoding={suggested!r}" in caught.value.hint
        assert column(path, "é", encoding=encoding) == ("string", ["a", "café"])
        with pytest.raises(InvalidRecord, match=r"line 1: the byte 0x.. is not ASCII, which encoding='ascii' names"):
            loaded(path, encoding="ascii")


def test_a_byte_that_is_no_text_is_named_by_its_line_whatever_ends_the_lines(file: Any) -> None:
    for end in ("\n", "\r\n", "\r"):
        data = f"id,v{end}1,a{end}2,caf\xe9{end}".encode("latin-1")
        with pytest.raises(InvalidRecord, match=r"rows\.csv, line 3: the byte 0xe9 is not UTF-8"):
            loaded(file("rows.csv", data))


def test_an_encoding_that_is_none_or_does_not_go_is_refused(tmp_path: Path) -> None:
    for name in ("klingon", "rot13", "base64", ""):
        with pytest.raises(InvalidOption, match=f"encoding='{name}' is unknown"):
            lakebed.DataFiles("rows.csv", encoding=name)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidOption, match="an encoding does not go with"):
        loaded(tmp_path, encoding="latin-1")


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv"])
def test_a_file_without_a_header_is_named_and_one_of_a_header_alone_has_no_rows(file: Any, name: str) -> None:
    for text in ("", "\n", "\n\n\n", "\r\n\r\n", "\r\r"):
        with pytest.raises(InvalidRecord, match="has no header"):
            loaded(file(name, text))
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    target = lakebed.create(f"memory://inferred/{uuid.uuid4().hex}", schema, key="id")
    mark = "\t" if name.endswith("tsv") else ","
    for text in ("id,v", "id,v\n", "\n\nid,v\r\n", "id,v\n\n\n"):
        assert target.upsert(str(file(name, text.replace(",", mark)))).rows == 0
    target.upsert(str(file(name, "\n\nid,v\n1,007".replace(",", mark))))
    assert target.to_arrow().to_pylist() == [{"id": 1, "v": "007"}]


def test_every_column_of_a_message_or_file_stays_in_the_order_of_its_text(file: Any) -> None:
    path = file("rows.jsonl", '{"id":1,"a":"x","at":"2024-01-01T00:00:00Z","n":18446744073709551615,"z":true}')
    assert loaded(path).schema.names == ["id", "a", "at", "n", "z"]


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["2024-01-31", None], "date32[day]", [date(2024, 1, 31), None]),
        (["2024-01-31", "2024-02-01 10:00:00"], "timestamp[us]", [datetime(2024, 1, 31), datetime(2024, 2, 1, 10)]),
        (["2024-01-31", "2024-02-01T10:00:00Z"], "string", ["2024-01-31", "2024-02-01T10:00:00Z"]),
        (["2024-01-31", "later"], "string", ["2024-01-31", "later"]),
    ],
)
def test_dates_have_one_type_in_csv_and_json_files(file: Any, texts: list[Any], kind: str, values: list[Any]) -> None:
    lines = "".join(f"{n},{text or ''}\n" for n, text in enumerate(texts))
    objects = "\n".join(json.dumps({"id": n, "v": text}) for n, text in enumerate(texts))
    assert column(file("rows.csv", f"id,v\n{lines}")) == (kind, values)
    assert column(file("rows.jsonl", objects)) == (kind, values)
    assert column(file("rows.json", f"[{','.join(objects.splitlines())}]")) == (kind, values)

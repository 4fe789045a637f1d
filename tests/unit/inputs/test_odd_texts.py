"""Odd CSV and JSON texts: each value is the one that plain Python reads, or an error of lakebed says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidRecord
from lakebed.ingestion.json_messages import decode_json
from lakebed.ingestion.sources.files import FilesSource
from lakebed.inputs.csv_rows import TextSettings, csv_text
from lakebed.inputs.json_rows import read_json_rows
from support.odd_texts import OddText, csv_differences, is_empty, json_differences, odd_csv, odd_json

SEEDS = range(120)


def written(folder: Path, text: OddText, seed: int) -> tuple[Path, str | None]:
    """The file, and the encoding that a caller names: each fourth one is forgotten."""
    path = folder / f"{seed}.{text.kind}"
    path.write_bytes(text.data)
    return path, None if text.encoding == "utf-8" or seed % 4 == 0 else text.encoding


def differences(text: OddText, rows: list[Any], table: pa.Table, *, texts: bool = True) -> list[str]:
    return list(json_differences(rows, table, texts=texts) if text.kind == "json" else csv_differences(rows, table))


def any_value(row: dict[str, Any] | None) -> bool:
    return row is not None and not all(value == "" or is_empty(value) for value in row.values())


@pytest.mark.parametrize("odd", [odd_csv, odd_json], ids=["csv", "json"])
@pytest.mark.parametrize("long", [True, False])
def test_a_file_has_the_values_that_plain_python_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Any, long: bool
) -> None:
    if long:
        monkeypatch.setattr("lakebed.inputs.file_formats.TEXT_BYTES", 64)
        monkeypatch.setattr("lakebed.inputs.csv_rows._BLOCK_BYTES", 200)
    read = 0
    for seed in SEEDS:
        text = odd(seed)
        path, encoding = written(tmp_path, text, seed)
        try:
            table = lakebed.DataFiles(path, encoding=encoding).read({}).table()  # pyright: ignore
        except lakebed.LakebedError:
            continue
        assert None not in text.rows, f"seed {seed}"
        assert differences(text, text.rows, table, texts=False) == [], f"seed {seed}"
        read += 1
    assert read > len(SEEDS) / 3


@pytest.mark.parametrize("odd", [odd_csv, odd_json], ids=["csv", "json"])
def test_an_ingested_file_has_the_values_that_plain_python_reads_and_other_lines_are_bad(
    tmp_path: Path, odd: Any
) -> None:
    for seed in SEEDS:
        text = odd(seed)
        path, encoding = written(tmp_path, text, seed)
        poll = FilesSource.of({"path": str(path)} | ({"encoding": encoding} if encoding else {})).poll(None, 1000)
        assert poll.bad is not None
        if poll.bad.num_rows == 0 and poll.rows is not None:
            assert differences(text, text.rows, poll.rows) == [], f"seed {seed}"
        rows = 0 if poll.rows is None else poll.rows.num_rows
        payloads = poll.bad["payload"].to_pylist()
        count = poll.bad.num_rows
        if text.kind == "json" and None not in payloads:  # a line may have several objects
            count = sum(any(message in payload for payload in payloads) for message in text.messages)
        is_unread = encoding is None and text.encoding.startswith("utf-16") and poll.bad.num_rows > 0
        is_all = rows + count >= len(text.rows) or None in payloads or is_unread
        assert is_all or not any(map(any_value, text.rows)), f"seed {seed}"


def test_messages_have_the_values_that_plain_python_reads_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for part_bytes in (64 << 20, 1, 40):
        monkeypatch.setattr("lakebed.ingestion.json_messages.PART_BYTES", part_bytes)
        for seed in SEEDS[::4]:
            text = odd_json(seed)
            messages = [*text.messages, *([b"bad"] if seed % 3 else [])]
            decoded = decode_json(pa.array(messages, pa.binary()), {})
            assert len(decoded.numbers) + len(decoded.bad) == len(messages) or not decoded.rows.num_columns, seed
            rows = [text.rows[number] for number in decoded.numbers]
            assert differences(text, rows, decoded.rows) == [], f"seed {seed}"


# digits beyond a decimal's type: Arrow's readers take those that come from the places after the point
TOO_WIDE = ["1234.5", "-1000", "99999", "1e3", "12345678", "9" * 38]
DECIMALS = {"d": pa.decimal128(5, 2), "e": pa.decimal128(38, 2)}


def test_a_decimal_with_more_digits_than_its_column_is_refused_in_every_text() -> None:
    for text in TOO_WIDE:
        with pytest.raises(InvalidRecord, match=r"f, line 3, column d: '.*' is no decimal128"):
            csv_text(f"d,v\n999.99,1\n{text},2\n".encode(), "f", DECIMALS, TextSettings()).table()
        for value in (text, f'"{text}"'):
            line = f'{{"d":{value}}}'.encode()
            with pytest.raises(InvalidRecord, match=r"column d: .* is no decimal128"):
                read_json_rows(b'{"d":1}\n' + line, "f", DECIMALS)
            found = decode_json(pa.array([b'{"d":1}', line, b'{"d":-999.99}'], pa.binary()), DECIMALS)
            assert [str(row["d"]) for row in found.rows.to_pylist()] == ["1.00", "-999.99"], value
            assert [bad.number for bad in found.bad] == [1], value
            inside = {"l": pa.list_(pa.struct(list(DECIMALS.items())))}
            nested = [b'{"l":[%s,{"d":2}]}' % one for one in (line, b'{"d":1}')]
            assert decode_json(pa.array(nested, pa.binary()), inside).numbers.tolist() == [1], value
    with pytest.raises(InvalidRecord, match="column e"):
        csv_text(b"e\n" + b"9" * 38 + b"\n", "f", DECIMALS, TextSettings()).table()
    rows = csv_text(b"d\n-999.99\n999.99\n", "f", DECIMALS, TextSettings()).table()
    assert [str(value) for value in rows["d"].to_pylist()] == ["-999.99", "999.99"]

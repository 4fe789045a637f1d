"""Text files with lines that are no rows: the rows of the other lines, and the bad lines with their numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

import pyarrow as pa

from lakebed.errors import InvalidRecord
from lakebed.ingestion.json_messages import decode_json
from lakebed.ingestion.messages import BadMessage, NoRow, decode_by_halving
from lakebed.ingestion.source import RECORD_FAILURE, BadRow
from lakebed.inputs.csv_rows import TextSettings, csv_text, mark_of

Types = Mapping[str, pa.DataType]


def json_lines(data: bytes, label: str, types: Types) -> tuple[pa.Table, list[BadRow]]:
    """The rows and bad lines of a file with one JSON object per line. Raises `InvalidRecord` for an array."""
    if data.lstrip()[:1] == b"[":
        raise InvalidRecord(f"{label} is a JSON array with a value that is no row", hint="write an object a line")
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    decoded = decode_json(pa.array([line for _, line in lines], pa.binary()), types)
    return decoded.rows, _bad_rows(decoded.bad, lines, label)


def csv_lines(data: bytes, label: str, types: Types, delimiter: str | None) -> tuple[pa.Table, list[BadRow]]:
    """The rows and bad lines of a CSV file. Raises `InvalidRecord` if the file has no readable header."""
    header, lines = _records(data, label, delimiter)
    settings = TextSettings(delimiter)
    no_rows = csv_text(header, label, types, settings).table()

    def rows_of(records: pa.Array) -> pa.Table:
        rows = csv_text(b"".join([header, *records.to_pylist()]), label, types, settings).table()
        if rows.num_rows != len(records):
            raise NoRow("the line is no row of the file's columns")
        return rows

    def checked(records: pa.Array) -> pa.Table:
        try:
            return rows_of(records)
        except InvalidRecord as error:
            raise NoRow(error.message) from error

    bad: list[BadMessage] = []
    values = pa.array([line for _, line in lines], pa.binary())
    parts = decode_by_halving(values, checked, rows_of, 0, bad, RECORD_FAILURE)
    numbers = {message.number for message in bad}
    if len(parts) > 1:  # types of columns follow from all rows together
        return rows_of(
            pa.array([line for n, (_, line) in enumerate(lines) if n not in numbers], pa.binary())
        ), _bad_rows(bad, lines, label)
    rows = parts[0][0] if parts else no_rows
    return rows, _bad_rows(bad, lines, label)


def _records(data: bytes, label: str, delimiter: str | None) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The header, and each record with the number of its first line; a record continues while a quote is open."""
    lines = data.splitlines(keepends=True)
    reader = csv.reader((line.decode("utf-8", "replace") for line in lines), delimiter=mark_of(label, delimiter))
    records: list[tuple[int, bytes]] = []
    start = 0
    try:
        for _ in reader:
            records.append((start + 1, b"".join(lines[start : reader.line_num])))
            start = reader.line_num
    except csv.Error as error:
        raise InvalidRecord(f"{label}, line {start + 1}: {error}", hint="correct the file") from error
    if not records:
        raise InvalidRecord(f"{label} has no header", hint="write the names of the columns in the first line")
    (_, header), *data_records = records
    ended = [(n, line if line.endswith(b"\n") else line + b"\n") for n, line in data_records if line.strip()]
    return header if header.endswith(b"\n") else header + b"\n", ended


def _bad_rows(bad: list[BadMessage], lines: list[tuple[int, bytes]], label: str) -> list[BadRow]:
    # the line of an error is one of the part in which it was found
    where = re.compile(rf"^{re.escape(label)}, line \d+[,:] ")
    return [
        BadRow(f"{label}:{line}", content.rstrip(b"\r\n"), message.reason, where.sub("", message.error))
        for message in bad
        for line, content in [lines[message.number]]
    ]

"""Input files of the command line: Parquet, CSV and JSON lines, read by Arrow; options as JSON or `key=value`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import typer

from lakebed.errors import InvalidOption, InvalidRecord

Delimiter = Annotated[str | None, typer.Option(help="What separates the fields of a CSV file.")]

_DELIMITERS = (";", "\t", "|", ",")
_KINDS = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson")


def read_rows(path: Path, schema: pa.Schema | None = None, delimiter: str | None = None) -> pa.Table:
    """The file's rows; its ending says what it is. Columns of a CSV or JSON file that `schema` (a table's) knows are
    read in its types; an empty field of a CSV file is null."""
    kind = path.suffix.lower()
    if kind not in _KINDS:
        raise InvalidRecord(f"{path} is none of the known kinds of file", hint=f"known: {', '.join(_KINDS)}")
    if delimiter is not None and kind not in (".csv", ".tsv"):
        raise InvalidOption(f"--delimiter does not go with {path}", hint="it is for .csv and .tsv files")
    try:
        if kind == ".parquet":
            return pyarrow.parquet.ParquetFile(path).read()
        if kind in (".csv", ".tsv"):
            found = _csv(path, schema, delimiter or ("\t" if kind == ".tsv" else ","))
            if delimiter is None:
                _check_delimiter(path, found.column_names)
            return found
        known = pa.schema(list(schema or ()))
        return pyarrow.json.read_json(path, parse_options=pyarrow.json.ParseOptions(explicit_schema=known))
    except (pa.ArrowException, OSError) as error:
        raise InvalidRecord(f"{path} cannot be read: {error}", hint="correct the file, or cast the column") from error


def _csv(path: Path, schema: pa.Schema | None, delimiter: str) -> pa.Table:
    if len(delimiter) != 1:
        raise InvalidOption(f"--delimiter {delimiter!r} is not one character")
    plain = {f.name: f.type for f in schema or () if not pa.types.is_nested(f.type)}
    convert = pyarrow.csv.ConvertOptions(column_types=plain, strings_can_be_null=True, quoted_strings_can_be_null=False)
    options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    return pyarrow.csv.read_csv(path, parse_options=options, convert_options=convert)


def _check_delimiter(path: Path, names: Sequence[str]) -> None:
    """Refuse a file that seems to have another one: all its columns would be one."""
    other = next((mark for mark in _DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        hint = "name it .tsv" if other == "\t" else f"say what its fields are separated by: --delimiter {other!r}"
        raise InvalidOption(f"{path} has one column, {names[0]!r}", hint=hint)


def read_options(path: Path) -> dict[str, str]:
    """The options in a file: a JSON object, or lines `key=value` (or `key value`, as Spark has them)."""
    try:
        text = path.read_text(encoding="utf-8")
        if text.lstrip().startswith("{"):
            found = json.loads(text)
            return {key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()}
    except ValueError as error:
        raise InvalidOption(f"{path} cannot be read: {error}", hint="give a JSON object, or lines key=value") from error
    lines = (line.strip() for line in text.splitlines())
    return dict(_pair(line) for line in lines if line and line[0] not in "#!")


def _pair(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator:
        key, _, value = line.partition(" ")
    return key.strip(), value.strip()

"""Input files of the command line: Parquet, CSV and JSON lines, read by Arrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from lakebed.errors import InvalidRecord


def _parquet(path: Path) -> pa.Table:
    return pyarrow.parquet.ParquetFile(path).read()


def _csv(path: Path) -> pa.Table:
    return pyarrow.csv.read_csv(path)


def _json(path: Path) -> pa.Table:
    return pyarrow.json.read_json(path)


_READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
}


def read_rows(path: Path) -> pa.Table:
    """The file's rows; its ending says what it is."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InvalidRecord(f"{path} is none of the known kinds of file", hint=f"known: {', '.join(_READERS)}")
    try:
        return reader(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidRecord(f"{path} cannot be read: {error}") from error

"""Whether rows were read from a table: by a note that Arrow tables, pandas and Spark DataFrames take along, else by
their values.

A job that appends rows of a table with generated keys to it stores them once more. Data of other libraries carry no
note. They are compared with stored rows, where this process has read the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.base import session_of
from lakebed.engine.spark_session import reads_table
from lakebed.model import TABLE_OF_ROWS
from lakebed.schema.plain_arrow import as_numpy

# Their frames and relations keep neither the metadata of a schema nor other attributes.
_WITHOUT_NOTE = frozenset({"polars", "duckdb", "_duckdb", "lakebed"})
# So many of the rows are looked for.
_SAMPLE_ROWS = 32
_CHANGED_COLUMNS = 1
_read_here: set[str] = set()


def note_of(uri: str) -> dict[bytes, bytes]:
    """The metadata of an Arrow schema for rows of the table at `uri`; records that this process reads them."""
    _read_here.add(uri)
    return {TABLE_OF_ROWS: uri.encode()}


def is_noted(data: Any, uri: str) -> bool:
    """Whether the data are known to be rows of the table at `uri`, by a DataFrame's plan, or by the note in an Arrow
    schema or in pandas' `attrs`."""
    if session_of(data) is not None:
        return reads_table(data, uri)
    if _module(data) == "polars":  # looking up the schema of a LazyFrame may run it
        return False
    return noted_table(data) == uri


def noted_table(data: Any) -> str | None:
    """The URI in the note of rows that were read from a table; None for rows without one, and of a Spark session."""
    notes: Any = getattr(data, "attrs", None)
    if isinstance(notes, dict) and TABLE_OF_ROWS.decode() in notes:
        return str(notes[TABLE_OF_ROWS.decode()])
    schema: Any = getattr(data, "schema", None)
    note = (schema.metadata or {}).get(TABLE_OF_ROWS) if isinstance(schema, pa.Schema) else None
    return None if note is None else note.decode()


def source_of(data: Any) -> str | None:
    """The path or URI of data that a caller gave: of data files, of a table or its read, or of the table whose rows
    they are. None if it is not known."""
    if session_of(data) is not None or _module(data) == "polars":  # their plans would have to be searched
        return None
    of_files = getattr(data, "path", None)
    if isinstance(of_files, str | os.PathLike):
        return os.fspath(of_files)
    uri = getattr(data, "uri", None)
    return uri if isinstance(uri, str) else noted_table(data)


def may_be_read(data: Any, uri: str) -> bool:
    """Whether the data are of a library that drops the note, and this process has read the table."""
    return uri in _read_here and _module(data) in _WITHOUT_NOTE


def look_read(rows: pa.Table, stored: Iterable[pa.RecordBatch]) -> bool:
    """Whether most rows of a sample equal a stored row in all columns except at most one, and have a value that only
    this stored row has. False for rows with other columns than the stored ones.

    >>> stored = pa.record_batch({"id": [1, 2], "city": ["x", "x"], "fare": [1.0, 2.0]})
    >>> look_read(pa.table({"id": [2], "city": ["x"], "fare": [20.0]}), [stored])
    True
    >>> look_read(pa.table({"id": [3], "city": ["x"], "fare": [2.5]}), [stored])
    False
    """
    sample: pa.Table | None = None
    values: dict[str, pa.Array] = {}
    equal: dict[str, list[pa.RecordBatch]] = {}
    for batch in stored:
        if sample is None:
            sample = _sample(rows, batch.schema)
            if sample is None:
                return False
            values = _distinct_columns(sample)
            equal = {name: [] for name in values}
        for name in list(equal):
            hits = batch.filter(pc.is_in(batch[name], value_set=values[name]))
            equal[name].append(hits)
            if sum(part.num_rows for part in equal[name]) > len(values[name]):
                del equal[name]  # a value of several stored rows names none of them
        if not equal:
            return False
    if sample is None:
        return False
    return any(
        2 * _matches(sample, name, pa.Table.from_batches(batches)) > len(sample) for name, batches in equal.items()
    )


def _module(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def _sample(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """A sample of the rows, from first to last, with the columns and types of the stored rows; None if there are no
    rows or their columns differ."""
    if not rows.num_rows or sorted(rows.column_names) != sorted(schema.names):
        return None
    at = np.unique(np.linspace(0, rows.num_rows - 1, _SAMPLE_ROWS).astype(np.int64))
    try:
        return rows.select(schema.names).take(pa.array(at)).cast(schema.remove_metadata())
    except (pa.ArrowException, ValueError):
        return None


def _distinct_columns(sample: pa.Table) -> dict[str, pa.Array]:
    """The columns whose values differ, so that each value may belong to one stored row."""
    columns = dict[str, pa.Array]()
    for name in sample.column_names:
        column = sample[name].combine_chunks()
        if pa.types.is_nested(column.type) or column.null_count:
            continue
        if pc.count_distinct(column).as_py() == len(column):
            columns[name] = column
    return columns


def _matches(sample: pa.Table, name: str, stored: pa.Table) -> int:
    """The number of rows of the sample that equal the only stored row with their value of this column."""
    at = as_numpy(pc.index_in(stored[name], value_set=sample[name].combine_chunks()))
    if not len(at) or len(np.unique(at)) < len(at):
        return 0
    differing = np.zeros(len(at), np.int64)
    for column in sample.column_names:
        pairs = zip(sample[column].take(pa.array(at)).to_pylist(), stored[column].to_pylist(), strict=True)
        differing += [a != b and not (a != a and b != b) for a, b in pairs]  # NaN equals itself
    return int((differing <= _CHANGED_COLUMNS).sum())

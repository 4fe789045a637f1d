"""Columns of a source's rows: elements of lists, and rows of several parts as one table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import SchemaConflict
from lakebed.inputs.inference import unified


def with_elements(values: pa.Array, elements: pa.Array) -> pa.Array:
    """Lists of the same lengths as `values` with new elements; `elements` are those of all lists, concatenated.

    >>> with_elements(pa.array([[1], None, [2, 3]]), pa.array(["a", "b", "c"])).to_pylist()
    [['a'], None, ['b', 'c']]
    """
    counts = np.asarray(pc.fill_null(pc.list_value_length(values), 0), np.int64)
    ends = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return pa.ListArray.from_arrays(ends, elements, mask=values.is_null())


def union_of(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables; a column that a table does not have is null in its rows, and numbers of different widths
    get the widest type. A name in another case than in an earlier table is the same column.

    Raises `SchemaConflict` if a column has types that do not go together."""
    spelling: dict[str, str] = {}
    for table in tables:
        for name in table.column_names:
            spelling.setdefault(name.lower(), name)
    named = [
        table.rename_columns([spelling[name.lower()] for name in table.column_names])
        if len({name.lower() for name in table.column_names}) == table.num_columns
        else table
        for table in tables
    ]
    try:
        unified([table.schema for table in named])
        return pa.concat_tables(named, promote_options="permissive")
    except (pa.ArrowException, SchemaConflict) as error:
        raise SchemaConflict(
            f"the rows of one round do not go together: {error}",
            hint='name the type of the column: [source] columns = { name = "string" }',
        ) from error

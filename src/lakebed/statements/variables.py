"""Variables of the caller that a statement may name as tables."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

from lakebed.read.scan import Results
from lakebed.table import Table
from lakebed.table_views import View

# Classes of Arrow, pandas and polars whose objects are one column, and have no names of columns.
_COLUMNS = ("ChunkedArray", "Series")


def variables_of(callee: FrameType | None) -> Callable[[str], Any]:
    """A function that gives the rows in a variable of who called the function of a frame: in a local one, else in a
    global one of its module; None if there is no such variable, or it holds no rows. A name is also that of the
    variable in lower case."""
    caller = None if callee is None else callee.f_back
    scopes = () if caller is None else (caller.f_locals, caller.f_globals)

    def variable(name: str) -> Any:
        for scope in scopes:
            for spelling in dict.fromkeys((name, name.lower())):
                rows = rows_in(scope.get(spelling))
                if rows is not None:
                    return rows
        return None

    return variable


def rows_in(value: Any) -> Any:
    """The rows of a value that has some: of a `Table`, a scan, Arrow data, or a DataFrame of pandas or polars; None for
    any other value.

    >>> import pyarrow as pa
    >>> rows_in(pa.table({"id": [1]})).num_rows, rows_in("orders"), rows_in(None)
    (1, None, None)
    """
    if isinstance(value, type) or type(value).__name__ in _COLUMNS:
        return None
    if isinstance(value, Table | Results | View) or hasattr(value, "__arrow_c_stream__"):
        return value
    module = type(value).__module__.partition(".")[0]
    if module == "polars" and type(value).__name__ == "LazyFrame":
        return value.collect()
    kind = type(value).__name__
    if module == "pyarrow" and (kind == "Scanner" or hasattr(value, "scanner")):
        return value.to_reader() if kind == "Scanner" else value  # DuckDB hands columns and conditions to a dataset
    return None

"""The database in memory by which DuckDB computes in this process: queries, and the values of variants."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

from lakebed.errors import UnsupportedFeature
from lakebed.sharing import shared_lock

if TYPE_CHECKING:
    import duckdb

# by process and by what a connection may reach: a forked process has no threads of its parent's
_databases: dict[tuple[int, bool], Any] = {}
_lock = shared_lock()
# Arrow's registry keeps functions of this package beyond the end of Python, and with them what they can reach.
atexit.register(_databases.clear)


def connect(*, is_closed: bool = False) -> duckdb.DuckDBPyConnection:
    """A new connection to a database in memory, which does not read variables of Python. One that `is_closed` reaches
    no files, no network and no extensions: for queries that a table records, which each of its writers runs."""
    try:
        import duckdb
    except ImportError as error:
        raise UnsupportedFeature(
            "duckdb is not installed, which runs SQL without a Spark session",
            hint="pip install 'lakebed[duckdb]', or give spark=",
        ) from error
    with _lock:
        key = os.getpid(), is_closed
        if key not in _databases:
            _databases[key] = duckdb.connect(config={"python_enable_replacements": "false"})
            # of a text without an offset, as everywhere in this process
            _databases[key].execute("SET GLOBAL TimeZone = 'UTC'")
            if is_closed:
                _databases[key].execute("SET GLOBAL enable_external_access = false")
                _databases[key].execute("SET GLOBAL lock_configuration = true")
        return _databases[key].cursor()

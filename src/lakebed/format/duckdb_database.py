"""The database in memory by which DuckDB computes in this process: queries, and the values of variants."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING, Any

from lakebed.errors import UnsupportedFeature
from lakebed.sharing import shared_lock

if TYPE_CHECKING:
    import duckdb

_databases: dict[int, Any] = {}
_lock = shared_lock()
# Arrow's registry keeps functions of this package beyond the end of Python, and with them what they can reach.
atexit.register(_databases.clear)


def connect() -> duckdb.DuckDBPyConnection:
    """A new connection to a database in memory, which does not read variables of Python."""
    try:
        import duckdb
    except ImportError as error:
        raise UnsupportedFeature(
            "duckdb is not installed, which runs SQL without a Spark session",
            hint="pip install 'lakebed[duckdb]', or give spark=",
        ) from error
    with _lock:
        if os.getpid() not in _databases:  # a forked process has no threads of its parent's
            _databases[os.getpid()] = duckdb.connect(config={"python_enable_replacements": "false"})
            # of a text without an offset, as everywhere in this process
            _databases[os.getpid()].execute("SET GLOBAL TimeZone = 'UTC'")
        return _databases[os.getpid()].cursor()

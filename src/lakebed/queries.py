"""`lakebed.sql`: tables by statements."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebed.api import create, drop, exists
from lakebed.api import open as open_table
from lakebed.catalog.names import warehouse_names
from lakebed.config.arguments import refused
from lakebed.loading import load
from lakebed.opened_table import noting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.operations.result import WriteResult
    from lakebed.statements.duckdb_query import QueryResult
    from lakebed.statements.sources import TableCalls
    from lakebed.table import Table
    from lakebed.table_views import View
    from lakebed.wording import Printed


def sql(
    text: str,
    tables: Mapping[str, Any] | None = None,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    spark: SparkSession | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> QueryResult | DataFrame | WriteResult | Table | Printed | View | list[str]:
    """Run a SQL statement over tables: a query on DuckDB, with a session on Spark, or a statement that a method of a
    table carries out.

    `tables` maps the names of the text to tables: a `Table`, a URI, a scan, or Arrow data. A table may also be written
    by its URI, in quotes or as lakebed.`URI`, and by its name in the warehouse of `LAKEBED_WAREHOUSE`, as sales.orders.
    Without a session a name may also be that of a variable of the caller, as in DuckDB: a `Table`, a scan, Arrow,
    pandas or polars data. `FROM t TIMESTAMP AS OF '2026-11-21'` (or `VERSION AS OF` an instant)
    reads it as of then. `lakebed_changes('t', 'start', 'end')`, `lakebed_cdc`, `lakebed_timeline('t')` and
    `lakebed_files('t')` are table functions. Columns and conditions rule out partitions, buckets and files as those of
    `scan` do. `args` are the values of `:name` or `?` in the text.

    With `spark`, or a table that was opened with a session, the text is Spark's SQL and the result a DataFrame of it;
    joins and groups by the key of tables with a bucket index need no shuffle. Otherwise the text is DuckDB's SQL and
    the result a `QueryResult`: `to_arrow()`, `to_pandas()`, `to_polars()`, `show()`.

    MERGE, UPDATE, DELETE and INSERT are `t.merge`, `t.update`, `t.delete` and `t.insert`, and return their results.
    Their conditions and values are Spark's SQL, with and without a session. CREATE, DROP, TRUNCATE and ALTER TABLE,
    CREATE and DROP INDEX, OPTIMIZE, VACUUM, RESTORE and CALL with Hudi's procedures return the table or the result of
    its method; SHOW INDEXES, SHOW PARTITIONS, DESCRIBE HISTORY, DESCRIBE EXTENDED and the procedures that show
    something return rows, and so do SHOW TABLES and SHOW DATABASES of a warehouse. EXPLAIN of a statement that changes
    rows returns its plan as text, and nothing is written. With a session every statement about another table is
    Spark's. `message` and `metadata` are noted with the commits of the statement.

    Raises `InvalidOption` for a text that is no such statement or more than one, `UnsupportedFeature` where DuckDB is
    not installed, `TableNotFound` for a URI without a table.

    >>> import lakebed
    >>> t = lakebed.create("memory://docs/sql", {"id": [1], "city": ["Oslo"]}, key="id", index="bucket", buckets=1)
    >>> _ = t.upsert({"id": [1, 2], "city": ["Oslo", "Rome"]})
    >>> lakebed.sql("select id from trips where city = :city", {"trips": t}, {"city": "Rome"}).to_pylist()
    [{'id': 2}]
    """
    from lakebed.statements.variables import variables_of

    with noting(message, metadata):
        return run_sql(text, tables, args, spark, storage_options, variables_of(inspect.currentframe()))


def run_sql(
    text: str,
    tables: Mapping[str, Any] | None,
    args: Mapping[str, Any] | Sequence[Any] | None,
    spark: SparkSession | None,
    storage_options: Mapping[str, str] | None,
    variables: Callable[[str], Any],
) -> Any:
    """Run a SQL statement as `sql` does; `variables` gives the rows in a variable of the caller."""
    from lakebed.statements.run import run

    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise refused("sql", "text", text, "a SQL statement")
    if args is not None and (isinstance(args, str) or not isinstance(args, Mapping | Sequence)):  # pyright: ignore
        raise refused("sql", "args", args, "a dict or a list of values")
    if spark is not None and not hasattr(spark, "createDataFrame"):
        raise refused("sql", "spark", spark, "a Spark session")
    return run(text, tables, args, spark, table_calls(storage_options, variables))


def table_calls(
    storage_options: Mapping[str, str] | None, variables: Callable[[str], Any] = lambda _: None
) -> TableCalls:
    """What statements call, with these storage options and the warehouse in use; `variables` gives the rows in a
    variable of the caller."""
    from lakebed.statements.sources import TableCalls

    return TableCalls(
        open=partial(open_table, storage_options=storage_options),
        create=partial(create, storage_options=storage_options),
        load=partial(load, storage_options=storage_options),
        drop=partial(drop, storage_options=storage_options),
        exists=partial(exists, storage_options=storage_options),
        names=warehouse_names(),
        variables=variables,
    )

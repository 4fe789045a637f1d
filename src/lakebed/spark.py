"""`lakebed.spark`: tables in a Spark session: names for `spark.sql`, a warehouse for all of it, and DataFrames by
buckets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.catalog.names import table_uri
from lakebed.config.arguments import checks_arguments, refused
from lakebed.engine.spark_python import use_this_python
from lakebed.engine.spark_rewrite import by_buckets
from lakebed.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.read.scan import Scan
    from lakebed.warehouse import Warehouse

__all__ = ["attach", "bucketed", "by_buckets", "create_views", "detach"]


def attach(spark: SparkSession, warehouse: str | os.PathLike[str] | Warehouse | None = None) -> None:
    """Attach a warehouse to a Spark session: `spark.sql` runs statements about its tables, and all else goes to Spark
    as before.

    `warehouse` is a `Warehouse`, a path or URI, or None for that of `LAKEBED_WAREHOUSE`. Then `spark.sql` takes the
    names of its tables (`sales.orders`) in every statement of `lakebed.sql`, `spark.table`, `spark.read.table` and
    `spark.catalog.tableExists` take them, `df.write.saveAsTable`, `insertInto` and `writeStream.toTable` write them,
    and with `format("lakebed")` they and `save` create a table whose key the options name. A query gives a DataFrame, a
    statement that changes rows one row with the columns `num_affected_rows`, `num_updated_rows`, `num_deleted_rows`
    and `num_inserted_rows`, a table service one row with its `result`.

    It holds for this Python object: `spark.newSession()` is not attached. The same warehouse again changes nothing.
    Raises `InvalidOption` if the session has another one.

    >>> def orders_of_rome(spark):
    ...     lakebed.spark.attach(spark, "/data/warehouse")
    ...     spark.sql("update sales.orders set city = 'Rome' where city = 'Roma'")
    ...     return spark.sql("select * from sales.orders where city = 'Rome'")
    """
    from lakebed.attachment.readers_writers import replaced_methods
    from lakebed.attachment.session import attach_names
    from lakebed.warehouse import Warehouse, names_and_options

    if not hasattr(spark, "createDataFrame"):
        raise refused("attach", "spark", spark, "a Spark session")
    if not isinstance(warehouse, str | os.PathLike | Warehouse | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise refused("attach", "warehouse", warehouse, "a Warehouse, a path or a URI")
    if not isinstance(warehouse, Warehouse):
        warehouse = Warehouse(None if warehouse is None else os.fspath(warehouse))
    attach_names(spark, *names_and_options(warehouse), replaced_methods)


def detach(spark: SparkSession) -> None:
    """Undo `attach`: the session's methods are Spark's again. Does nothing in a session without a warehouse.

    >>> def without_warehouse(spark):
    ...     lakebed.spark.detach(spark)
    """
    from lakebed.attachment.session import detach_names

    if not hasattr(spark, "createDataFrame"):
        raise refused("detach", "spark", spark, "a Spark session")
    detach_names(spark)


def create_views(
    spark: SparkSession,
    tables: Mapping[str, Any] | None = None,
    functions: bool = True,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Give a Spark session names for tables: temporary views for `spark.sql`, and the table functions.

    `tables` maps names to URIs or tables; each becomes a view `USING lakebed`. Spark remembers what its first query
    read: call it again to see later rows, or attach a warehouse, whose names always show the newest. With `functions`
    SQL has `lakebed_changes(table, start, end)`, `lakebed_cdc(table, start, end)`, `lakebed_timeline(table)` and
    `lakebed_files(table)`, where `table` is a text with a name of `tables` or a URI. They give row by row;
    `t.changes(start).to_spark()` is faster for many rows. `read_blob(column)` gives the bytes of a BLOB column. Raises
    `InvalidOption` for a name that is no plain word.

    >>> def trips_by_city(spark, t):
    ...     lakebed.spark.create_views(spark, {"trips": t})
    ...     return spark.sql("select city, count(*) from trips group by city")
    """
    from lakebed.statements.spark_functions import create_views as create_views_in

    if not hasattr(spark, "createDataFrame"):
        raise refused("create_views", "spark", spark, "a Spark session")
    if not isinstance(functions, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise refused("create_views", "functions", functions, "True or False")
    if tables is not None and not isinstance(tables, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise refused("create_views", "tables", tables, "a dict of names and tables")
    use_this_python(spark)
    uris = {
        name: table.uri if isinstance(table, Table) else table_uri(str(table)) for name, table in (tables or {}).items()
    }
    create_views_in(spark, uris, functions=functions, storage_options=storage_options)


@checks_arguments
def bucketed(
    frame: DataFrame, t: Table, on: str | Sequence[str] | None = None, *, buckets: bool | int | Scan = True
) -> DataFrame:
    """Return the rows of any DataFrame in the partitions of a table's buckets, with the column `_bucket`.

    One shuffle of the DataFrame lays it out. It then joins with `t.scan().to_spark(bucketed=True)` on the key and
    `_bucket` as another table would. `on` names its columns for the bucket key (None: those of the same names); they
    must have the key's types. `buckets` is what `bucketed` is on the table's side. Raises `UnsupportedFeature` for a
    table without buckets, `InvalidOption` for columns that do not fit.

    >>> def joined(frame, t):  # a Spark DataFrame with the column id, and a table with a bucket index
    ...     placed = lakebed.spark.bucketed(frame, t)
    ...     return t.scan().to_spark(bucketed=True).join(placed, ["id", "_bucket"])
    """
    from lakebed.read.spark_buckets import bucketed_data

    return bucketed_data(t.opened.snapshot(), frame, on, buckets)

"""`lakebed.polars`: tables in queries of polars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakebed.api import open as open_table
from lakebed.config.arguments import checks_arguments
from lakebed.table import Table

if TYPE_CHECKING:
    import polars as pl

    from lakebed.read.moments import When

__all__ = ["scan"]


@checks_arguments
def scan(
    table: Table | str,
    as_of: When | None = None,
    where: Any = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> pl.LazyFrame:
    """The rows of a table, or of the table at a URI, as a polars LazyFrame.

    Its columns, conditions and number of rows reach the table: files that partitions, buckets and statistics rule out
    are not opened. The rows are those of one instant, the newest or `as_of`; `where` is a condition of `scan`. Raises
    `UnsupportedFeature` where polars is not installed.

    >>> import lakebed, polars as pl
    >>> t = lakebed.create("memory://docs/polars", {"id": [1], "fare": [9.5]}, key="id", index="bucket", buckets=1)
    >>> _ = t.upsert({"id": [1, 2], "fare": [9.5, 12.0]})
    >>> lakebed.polars.scan(t).filter(pl.col("id") == 2).select("fare").collect().item()
    12.0
    """
    from lakebed.read.polars_scan import lazy_frame

    opened_table = table if isinstance(table, Table) else open_table(table, storage_options=storage_options)
    return lazy_frame(opened_table.scan(where=where, as_of=as_of))

"""`lakebed.maintenance`: what keeps tables in shape, by URI: of several tables, and of one that cannot be opened."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lakebed.api import open as open_table
from lakebed.catalog.names import table_uri
from lakebed.config.arguments import checks_arguments
from lakebed.diagnosis.doctor import examine
from lakebed.diagnosis.findings import Diagnosis
from lakebed.errors import ErasureIncomplete, LakebedError, TableNotFound
from lakebed.operations.foreign_files import no_table_here
from lakebed.services.daemon import run
from lakebed.services.erasure_report import ErasureReport, TableErasure, failed_table
from lakebed.services.repair import Part, RepairResult, repair_table
from lakebed.storage import open_storage
from lakebed.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["doctor", "erase", "repair", "run"]


@checks_arguments
def erase(
    keys_by_table: Mapping[str | os.PathLike[str] | Table, Any],
    *,
    dry_run: bool = False,
    progress: bool = True,
    options: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ErasureReport:
    """Delete rows of several tables for good, as `Table.erase` does.

    `keys_by_table` has for each table, or its URI, the keys or an Arrow expression as condition. A table whose erasure
    fails does not stop the others: the report has one entry for each. At the end `ErasureIncomplete` is raised, with
    the report, unless all tables are clean.

    >>> import lakebed
    >>> t = lakebed.create("memory://docs/customers", {"id": [1, 2]}, key="id")
    >>> _ = t.upsert({"id": [1, 2]})
    >>> report = lakebed.maintenance.erase({"memory://docs/customers": [2]})
    >>> report.is_clean, t.count()
    (True, 1)
    """
    done: list[TableErasure] = []
    for table, keys in keys_by_table.items():
        uri = table.uri if isinstance(table, Table) else os.fspath(table)
        is_condition = isinstance(keys, pc.Expression)
        selected: dict[str, Any] = {"where": keys} if is_condition else {"keys": keys}
        try:
            opened = (
                table if isinstance(table, Table) else open_table(table, spark=spark, storage_options=storage_options)
            )
            done += opened.erase(**selected, dry_run=dry_run, progress=progress, options=options).tables
        except ErasureIncomplete as error:
            done += error.report.tables
        except (LakebedError, OSError) as error:
            done.append(failed_table(uri, error))
    return ErasureReport(tuple(done)).checked()


@checks_arguments
def repair(
    uri: str,
    parts: Sequence[Part] | None = None,
    *,
    dry_run: bool = False,
    options: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> RepairResult:
    """Find and repair the damage of a table, as `t.maintenance.repair` does, also for a table that cannot be opened.

    Returns what each part found and mended. Raises `TableNotFound` if there is no table.

    >>> import lakebed
    >>> _ = lakebed.create("memory://docs/mended-again", {"id": [1]}, key="id")
    >>> print(lakebed.maintenance.repair("memory://docs/mended-again", ["properties"]))
    properties: nothing found
    """
    storage = open_storage(table_uri(uri), storage_options)
    try:
        return repair_table(storage, parts, dry_run=dry_run, options=options, spark=spark)
    except TableNotFound as error:
        raise no_table_here(storage, error) from None


@checks_arguments
def doctor(
    uri: str,
    *,
    verify: bool = False,
    read_only: bool = False,
    options: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Examine a table, its storage and this installation, as `t.maintenance.doctor` does, also if no table can be
    opened.

    Returns the findings, the worst first, each with a severity and what to do. What fails is a finding: damaged
    tables, folders without a table and missing credentials raise nothing. Raises `InvalidOption` for wrong options.

    >>> import lakebed
    >>> page = lakebed.maintenance.doctor("memory://docs/no-table-here")
    >>> page.severity.name, page.findings[0].text
    ('ERROR', 'there is no table at memory://docs/no-table-here: .hoodie/hoodie.properties is missing')
    """
    return examine(
        uri, verified=verify, read_only=read_only, options=options, storage_options=storage_options, spark=spark
    )

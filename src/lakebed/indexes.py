"""`lakebed.indexes`: which index fits a table, before there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from lakebed.config.arguments import Names, checks_arguments, names_of, refused
from lakebed.inputs.files import data_of
from lakebed.operations.advice import Advice, advise_for_data
from lakebed.operations.hudi_job import choose_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["advise"]


@checks_arguments
def advise(
    data: Any,
    *,
    key: Names,
    partition_by: Names = None,
    batch: Any = None,
    expected_rows: int | None = None,
    unique_keys: bool | None = None,
    deletes: bool = False,
    type: Literal["cow", "mor"] = "cow",
    spark: SparkSession | None = None,
) -> Advice:
    """Rank the indexes for a table of these rows by their cost, each figure with its reason. Nothing is written.

    `data` are rows as the table will hold them, or a sample with `expected_rows`. `batch` are rows as they are written
    at a time, or their number (None: a hundredth). `unique_keys` is whether a key exists once in the whole table
    (None: it is counted in the rows). `deletes` means that batches are keys to be deleted, without partition columns.
    Raises `InvalidOption` for columns that the data lacks.

    >>> import lakebed, pyarrow as pa
    >>> rows = pa.table({"id": list(range(1000)), "city": ["Oslo", "Rome"] * 500})
    >>> advice = lakebed.indexes.advise(rows, key="id", partition_by="city", batch=rows.slice(0, 10))
    >>> advice.index in [one.index for one in advice.ranking], advice.workload.known
    (True, 1.0)
    """
    if not key:
        raise refused("advise", "key", key, "a name or a list of names")
    data, batch = data_of(data), data_of(batch)
    engine = choose_engine(data, spark)
    return advise_for_data(
        engine,
        data,
        key=names_of(key),
        partition_by=names_of(partition_by),
        batch=batch,
        expected_rows=expected_rows,
        unique_keys=unique_keys,
        deletes=deletes,
        table_type=type,
    )

"""What every lazy read gives its rows as: Arrow, pandas, polars, a stream, a Spark session's DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import InvalidOption, UnsupportedFeature

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession


class Results:
    """Rows that are read when one of the `to_*` methods is called."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the result."""
        raise NotImplementedError

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches."""
        raise NotImplementedError

    def to_spark(self) -> DataFrame:
        """A lazy DataFrame."""
        raise NotImplementedError

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream that any Arrow library takes."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; `options` go to pyarrow's `Table.to_pandas`."""
        _require("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        polars = _require("polars")
        return polars.from_arrow(self.to_arrow())

    def _session(self) -> SparkSession:
        if self._spark is not None:
            return self._spark
        from lakebed.read.spark_scan import active_session

        session = active_session()
        if session is None:
            raise InvalidOption(
                "there is no Spark session",
                hint="open the table with spark=..., or read with to_arrow() or to_pandas()",
            )
        return session


def _require(package: str) -> Any:
    try:
        return __import__(package)
    except ImportError as error:
        raise UnsupportedFeature(
            f"{package} is not installed", hint=f"pip install 'lakebed[{package}]', or read with to_arrow()"
        ) from error

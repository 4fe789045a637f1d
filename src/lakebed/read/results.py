"""What every lazy read gives its rows as: Arrow, pandas, polars, a stream, a Spark session's DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.config.arguments import whole_number
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.slices.reopening import read_again, stream_again
from lakebed.wording import count_text

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.storage.base import Storage


class Results:
    """Rows that are read when one of the `to_*` methods is called."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the result."""
        raise NotImplementedError

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches, read ahead by a few threads; holds a few batches, never a whole file."""
        return stream_again(self._storage(), self._read, self._renew)

    def _read(self) -> Iterator[pa.RecordBatch]:
        """The rows, by one look at the table."""
        raise NotImplementedError

    def _renew(self) -> bool:
        """Look at the table again; whether it has changed since."""
        return False

    def _storage(self) -> Storage:
        """Where the table is."""
        raise NotImplementedError

    def to_spark(self) -> DataFrame:
        """A lazy DataFrame."""
        raise NotImplementedError

    def count(self) -> int:
        """The number of rows."""
        return read_again(self._storage(), self._count, self._renew)

    def _count(self) -> int:
        return sum(batch.num_rows for batch in self._read())

    def explain(self) -> str:
        """What the read does, as text."""
        raise NotImplementedError

    def limit(self, rows: int) -> Results:
        """The same read with at most so many rows, whichever come first; the files behind them are not opened.

        >>> import lakebed
        >>> t = lakebed.create("memory://docs/limit", {"id": [1, 2, 3]}, key="id", index="bucket", buckets=1)
        >>> _ = t.upsert({"id": [1, 2, 3]})
        >>> t.scan().limit(2).count()
        2
        """
        return _Limited(self, whole_number("limit", "rows", rows))

    def head(self, rows: int = 5) -> pa.Table:
        """The first rows that are found, as an Arrow table; no more is read than that takes."""
        return self.limit(rows).to_arrow()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream that any Arrow library takes."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return read_again(self._storage(), lambda: pa.Table.from_batches(list(self._read()), self.schema), self._renew)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; `options` go to pyarrow's `Table.to_pandas`."""
        _require("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        polars = _require("polars")
        return polars.from_arrow(self.to_arrow())

    def _session(self, *storages: Storage) -> SparkSession:
        """The session to read these with. Raises `UnsupportedFeature` where its workers could not."""
        for spec in (storage.spec for storage in storages if storage.spec.in_this_process):
            raise UnsupportedFeature(
                f"{spec.uri} is in the memory of this process, which Spark's workers cannot see",
                hint="read with to_arrow(), or make the table at a path that both see",
                context={"feature": "memory on Spark", "uri": spec.uri},
            )
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


class _Limited(Results):
    """The first rows of a read."""

    def __init__(self, whole: Results, rows: int) -> None:
        super().__init__(whole._spark)
        self._whole = whole
        self._rows = rows

    @property
    def schema(self) -> pa.Schema:
        return self._whole.schema

    def _renew(self) -> bool:
        return self._whole._renew()

    def _storage(self) -> Storage:
        return self._whole._storage()

    def _read(self) -> Iterator[pa.RecordBatch]:
        left = self._rows
        if not left:
            return
        for batch in self._whole._read():
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
            if not left:
                return

    def to_spark(self) -> DataFrame:
        return self._whole.to_spark().limit(self._rows)

    def explain(self) -> str:
        return f"{self._whole.explain()}\n  limit       {count_text(self._rows, 'row')}"

    def __repr__(self) -> str:
        return self.explain()


def _require(package: str) -> Any:
    try:
        return __import__(package)
    except ImportError as error:
        raise UnsupportedFeature(
            f"{package} is not installed", hint=f"pip install 'lakebed[{package}]', or read with to_arrow()"
        ) from error

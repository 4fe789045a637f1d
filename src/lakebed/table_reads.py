"""The reads, as methods of the public table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakebed.config.arguments import public_methods_check_arguments
from lakebed.errors import InvalidOption
from lakebed.read import lookup
from lakebed.read.bucket_join import BucketJoin
from lakebed.read.cdc import ChangeLog, Images
from lakebed.read.incremental import Changes
from lakebed.read.scan import Scan, refuse_cleaned
from lakebed.read.time_travel import When, refuse_outside, resolve_as_of
from lakebed.slices.snapshot import Snapshot
from lakebed.table_base import TableBase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.table import Table

Query = Literal["snapshot", "read_optimized"]


@public_methods_check_arguments
class TableReads(TableBase):
    """What a table gives."""

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        as_of: When | None = None,
        query: Query = "snapshot",
        *,
        meta: bool = False,
    ) -> Scan:
        """A lazy read: `.to_spark()`, `.to_arrow()`, `.to_batches()`, `.to_pandas()`, `.to_polars()`, `.count()`.

        `filter` is a SQL condition or a `pyarrow.compute.Expression`; `as_of` an instant, a timestamp or a date
        (without a zone in the Spark session's, or the machine's), from the table's first commit on and not in the
        future; `meta=True` adds Hudi's five meta columns.
        """
        cut = None if as_of is None else resolve_as_of(self._moment(as_of), self._config)
        view = self._view(cut)
        return Scan(
            view,
            columns=columns,
            filter=filter,
            query=query,
            meta=meta,
            spark=self._spark,
            reads=self._reads,
            worker_tuning=self._worker_tuning,
        )

    def _view(self, cut: str | None) -> Snapshot:
        """The view as of an instant time (None: of now). Raises `InvalidOption` where it is cleaned, before the first
        commit or in the future."""

        def opened() -> Snapshot:
            view = self._snapshot(cut)
            refuse_outside(view)
            refuse_cleaned(view)
            return view

        return opened() if cut is None else self._again(opened)

    def join(
        self,
        other: Table | Scan,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner",
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        suffix: str = "_right",
    ) -> BucketJoin:
        """The rows of this table with those of another that has the same key, bucket by bucket: no shuffle, no more in
        memory than a bucket of both. A lazy read: `.to_batches()`, `.to_arrow()`, `.to_spark()`, ...

        Both have a bucket index over columns of the same types; their numbers of buckets may differ. `on` are the
        columns that must be equal, the bucket key among them (None: the bucket key), or a dict of this table's names to
        the other's. `columns` and `filter` are of the result: this table's columns, then the other's, those with a name
        that is taken with `suffix`. `other` may be a scan with a filter of its own, or as of another time.

        Raises `UnsupportedFeature` where a table has no bucket index, `InvalidOption` where they are hashed otherwise
        or `on` lacks a column of the bucket key.

        >>> import lakebed, pyarrow as pa
        >>> trips, riders = (
        ...     lakebed.create(f"memory://docs/join-{name}", pa.schema([("id", pa.int64()), (name, pa.string())]),
        ...                    key="id", index="bucket", buckets=buckets)
        ...     for name, buckets in (("city", 2), ("rider", 4))
        ... )
        >>> _ = trips.upsert(pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", "Bern"]}))
        >>> _ = riders.upsert(pa.table({"id": [2, 3, 4], "rider": ["Ada", "Bo", "Cy"]}))
        >>> sorted(trips.join(riders, columns=["city", "rider"]).to_arrow().to_pydict()["city"])
        ['Bern', 'Rome']
        """
        if not isinstance(other, TableReads | Scan):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"join() takes a table or a scan, not {type(other).__name__}", hint="open it first")
        theirs = other if isinstance(other, Scan) else other.scan()
        return BucketJoin(
            self.scan(), theirs, on=on, how=how, columns=columns, filter=filter, suffix=suffix, spark=self._spark
        )

    def bucketed(
        self, data: DataFrame, on: str | Sequence[str] | None = None, *, buckets: bool | int | Scan = True
    ) -> DataFrame:
        """Any DataFrame's rows in the partitions of this table's buckets, with the column `_bucket`: one shuffle of it
        alone, and it joins with `t.scan().to_spark(bucketed=True)` on the key and `_bucket` as another table would.

        `on` names its columns that stand for the bucket key (None: those of the same names); they must have the key's
        types. `buckets` is what `bucketed` is on the table's side.
        """
        from lakebed.read.spark_buckets import bucketed_data

        return bucketed_data(self._snapshot(), data, on, buckets)

    def changes(
        self,
        start: When,
        end: When | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        meta: bool = False,
    ) -> Changes:
        """Rows written in (start, end], in their latest state; `.end` is the checkpoint to go on from.

        `start` is a checkpoint (`WriteResult.checkpoint`, `changes.end`), an instant of this table, a datetime (without
        a zone in the Spark session's, or the machine's), or "000" for the beginning. Deletes are not among the rows:
        `cdc` shows them.
        """
        return Changes(
            self._snapshot(),
            self._moment(start),
            None if end is None else self._moment(end),
            columns=columns,
            filter=filter,
            meta=meta,
            spark=self._spark,
            reads=self._reads,
            worker_tuning=self._worker_tuning,
        )

    def cdc(
        self,
        start: When,
        end: When | None = None,
        *,
        columns: Sequence[str] | None = None,
        images: Images = "rows",
    ) -> ChangeLog:
        """Every insert, update and delete of the commits in (start, end], with the row before and after it.

        `start` and `end` are those of `changes`; `.end` is the checkpoint to go on from. The result has the columns
        `op` (`i`, `u`, `d`), `ts_ms` (the commit's instant), `before` and `after`: structs of the table's columns (of
        `columns` alone, if given), null where there is no such row; with `images="json"` texts as real Hudi gives them.
        The table must keep a change log (`hoodie.table.cdc.enabled`).
        """
        last = None if end is None else self._moment(end)
        return ChangeLog(
            self._snapshot(),
            self._moment(start),
            last,
            columns,
            images,
            self._spark,
            worker_tuning=self._worker_tuning,
        )

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys, found by the index, without a Spark job."""
        return self._steadily(lambda view: lookup.get(view, keys, columns))

    def exists(self, keys: Any) -> pa.BooleanArray:
        """Which of these keys the table holds, in their order."""
        return self._steadily(lambda view: lookup.exists(view, keys))

    def locate(self, keys: Any) -> pa.Table:
        """Where the keys are: record key, partition path, file id, instant of the file."""
        return self._steadily(lambda view: lookup.locate(view, keys))

    def count(self) -> int:
        """Rows of the table, from the file footers."""
        return self.scan().count()

    def __len__(self) -> int:
        return self.count()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table's rows for any library that takes Arrow streams: `polars.DataFrame(t)`, `duckdb.sql("from t")`."""
        return self.scan().__arrow_c_stream__(requested_schema)

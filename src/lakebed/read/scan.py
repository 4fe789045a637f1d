"""`Scan`: a lazy read of a table. Nothing is read before one of its `to_*` methods, `count` or `files` is called.

`Results` has the forms that every lazy read gives: Arrow, pandas, polars, a stream, a Spark session's DataFrame; a scan
also has those of Ray and Dask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from lakebed.config.arguments import are_names, names_of, refused, whole_number
from lakebed.config.settings import ReadSettings
from lakebed.engine.spark_session import zone_of
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.filters.predicates import Node, Predicate, combine
from lakebed.filters.text import resolve_column
from lakebed.model import ALL_META_COLUMNS, OPERATION_COLUMN, Action, BaseFile, FileSlice
from lakebed.read.batches import scan_batches
from lakebed.read.counts import RecordedRows, count_rows, summarized_rows
from lakebed.read.origin import note_of
from lakebed.read.plan import ScanPlan, plan_scan, table_columns
from lakebed.read.reopening import read_again, reopened, stream_again
from lakebed.schema.logical_types import labelled, logical_fields
from lakebed.sharing import once
from lakebed.slices.reader import Query, SliceReader
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.history import archived_cleans, cleans_after
from lakebed.timeline.instants import following
from lakebed.timeline.timeline import Timeline
from lakebed.wording import Lines, count_text, rows_html, text_html

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd
    import polars as pl
    import ray.data
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.filters.sql import Condition
    from lakebed.storage.base import Storage

__all__ = ["Scan", "ScanPlan", "plan_scan"]


# What a notebook shows of a read.
_PREVIEWED = 10


class Frames:
    """Rows that are data frames, too: what has `to_arrow`."""

    def to_arrow(self) -> pa.Table:
        """The rows as one Arrow table."""
        raise NotImplementedError

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The rows of `to_arrow` as a pandas DataFrame; `options` go to pyarrow's `Table.to_pandas`."""
        require("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """The rows of `to_arrow` as a polars DataFrame."""
        return require("polars").from_arrow(self.to_arrow())


class Results(Frames):
    """Rows that are read when one of the `to_*` methods is called."""

    # what is computed once of the columns and conditions
    _plans: tuple[str, ...] = ("plan",)

    def __init__(self, spark: SparkSession | None = None) -> None:
        self._spark = spark

    def __getstate__(self) -> dict[str, Any]:
        # the session is not another process's
        return {**self.__dict__, "_spark": None}

    @property
    def uri(self) -> str:
        """The path or URI of the table that is read."""
        return self._storage().spec.uri

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        raise NotImplementedError

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches, read ahead by a few threads; holds a few batches, never a whole file."""
        storage = self._storage()
        note, fields = note_of(storage.spec.uri), logical_fields(self.schema)
        return (
            labelled(batch, fields).replace_schema_metadata(note)
            for batch in stream_again(storage, self._read, self._renew)
        )

    def _read(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, from one look at the table: at least the first `limit`, all for None."""
        raise NotImplementedError

    def _renew(self) -> bool:
        """Look at the table again; returns whether it has changed since."""
        return False

    def in_session(self, spark: SparkSession) -> Self:
        """This read, with DataFrames of the session `spark`."""
        return self._with(_spark=spark)

    def _with(self, **changed: Any) -> Self:
        """A read like this one with other settings, which is planned again. Unlike a pickled read, it has the
        session."""
        twin = object.__new__(type(self))
        twin.__dict__ = {name: value for name, value in self.__dict__.items() if name not in self._plans} | changed
        return twin

    def _storage(self) -> Storage:
        """The storage of the table."""
        raise NotImplementedError

    def to_spark(self) -> DataFrame:
        """A lazy DataFrame."""
        raise NotImplementedError

    def count(self) -> int:
        """The number of rows."""
        return read_again(self._storage(), self._count, self._renew)

    def _count(self) -> int:
        return sum(batch.num_rows for batch in self._read())

    def explain(self) -> Lines:
        """The plan of the read, as text."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        return text_html(self.explain())

    def limit(self, rows: int) -> Results:
        """This read with at most `rows` rows, whichever come first; the files after them are not opened.

        >>> import lakebed
        >>> t = lakebed.create("memory://docs/limit", {"id": [1, 2, 3]}, key="id", index="bucket", buckets=1)
        >>> _ = t.upsert({"id": [1, 2, 3]})
        >>> t.scan().limit(2).count()
        2
        """
        return _Limited(self, whole_number("limit", "rows", rows))

    def head(self, rows: int = 5) -> pa.Table:
        """The first rows of the read, as an Arrow table; no more is read than that takes."""
        return self.limit(whole_number("head", "rows", rows)).to_arrow()

    def sample(self, rows: int = 5, *, seed: int | None = None) -> pa.Table:
        """Rows chosen at random from all that the read finds, as an Arrow table, each with the same probability. All
        rows are read, and no more than a batch of them is held at a time. The same `seed` chooses the same rows, as
        long as the table's files are the same.

        >>> import lakebed
        >>> t = lakebed.load("memory://docs/sampled", {"id": list(range(100))}, key="id")
        >>> t.scan(where="id >= 90").sample(3, seed=7).num_rows
        3
        """
        count = whole_number("sample", "rows", rows)
        random = np.random.default_rng(None if seed is None else whole_number("sample", "seed", seed))

        def chosen() -> pa.Table:
            head = self.schema.empty_table()
            marks = np.empty(0)
            for batch in self._read():
                marks = np.concatenate([marks, random.random(batch.num_rows)])
                least = np.sort(np.argsort(marks, kind="stable")[:count])
                head = pa.concat_tables([head, pa.Table.from_batches([batch])]).take(pa.array(least))
                marks = marks[least]
            return head

        return read_again(self._storage(), chosen, self._renew)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream that any Arrow library takes."""
        schema = self.schema.with_metadata(note_of(self._storage().spec.uri))
        return pa.RecordBatchReader.from_batches(schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        storage = self._storage()
        rows = read_again(storage, lambda: pa.Table.from_batches(list(self._read()), self.schema), self._renew)
        # a job that appends them to a table with generated keys would add them once more
        # Arrow forgets the number of rows of a table without columns
        return rows.replace_schema_metadata(note_of(storage.spec.uri)) if rows.num_columns else rows

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; `options` go to pyarrow's `Table.to_pandas`."""
        require("pandas")
        rows = self.to_arrow()
        frame = rows.to_pandas(**options)
        # pandas takes the note along to frames that are made of this one
        frame.attrs.update({key.decode(): uri.decode() for key, uri in (rows.schema.metadata or {}).items()})
        return frame

    def _session(self, *storages: Storage) -> SparkSession:
        """The session to read these storages with. Raises `UnsupportedFeature` if its workers cannot read them."""
        for storage in storages:
            _check_shared(storage, "Spark")
        if self._spark is not None:
            return self._spark
        from lakebed.read.spark import active_session

        session = active_session()
        if session is None:
            raise InvalidOption(
                "there is no Spark session",
                hint="open the table with spark=..., or read with to_arrow() or to_pandas()",
            )
        return session


def _check_shared(storage: Storage, engine: str) -> None:
    """Raise `UnsupportedFeature` for a table in memory, which the workers of an engine do not see."""
    if storage.spec.in_this_process:
        raise UnsupportedFeature(
            f"{storage.spec.uri} is in the memory of this process, which {engine}'s workers cannot see",
            hint="read with to_arrow(), or make the table at a path that both see",
            context={"feature": f"memory on {engine}", "uri": storage.spec.uri},
        )


class _Limited(Results):
    """The first rows of a read."""

    def __init__(self, results: Results, rows: int) -> None:
        super().__init__(results._spark)
        self._results = results
        self._rows = rows

    @property
    def schema(self) -> pa.Schema:
        return self._results.schema

    def _renew(self) -> bool:
        return self._results._renew()

    def _storage(self) -> Storage:
        return self._results._storage()

    def _read(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        left = self._rows
        if not left:
            return
        for batch in self._results._read(left):
            count = min(left, batch.num_rows)
            yield batch.slice(0, count)
            left -= count
            if not left:
                return

    def to_spark(self) -> DataFrame:
        return self._results.to_spark().limit(self._rows)

    def explain(self) -> Lines:
        return Lines(f"{self._results.explain()}\n  limit       {count_text(self._rows, 'row')}")

    def _repr_html_(self) -> str:
        return first_rows_html(self)


Cells = tuple[Sequence[str], Iterable[Iterable[object]]]


def first_rows_html(rows: Results, cells: Callable[[pa.Table], Cells] | None = None) -> str:
    """A read's plan and its first rows as HTML: their columns, or the names and cells that `cells` makes of them."""
    from lakebed.row_texts import with_texts

    head = rows.limit(_PREVIEWED + 1).to_arrow()
    preview = with_texts(head.slice(0, _PREVIEWED))
    more = f"the first {_PREVIEWED} rows; to_arrow() reads all" if head.num_rows > _PREVIEWED else ""
    plan = text_html(rows.explain())
    names, values = cells(preview) if cells else (preview.column_names, (row.values() for row in preview.to_pylist()))
    return f"{plan}{rows_html(names, values)}{text_html(more)}"


def column_names_of(columns: Sequence[str | Sequence[str]]) -> tuple[str, ...]:
    """The names passed to `select`, each as an argument or in a list.

    >>> column_names_of(("id", ["city", "fare"]))
    ('id', 'city', 'fare')
    """
    names: list[str] = []
    for column in columns:
        if not are_names(column):
            raise refused("select", "columns", column, "a name or a list of names")
        names += names_of(column)
    return tuple(names)


def require(module: str) -> Any:
    """The module `module`. Raises `UnsupportedFeature`, which names the extra that installs its package, if it is not
    installed."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UnsupportedFeature(
            f"{package} is not installed", hint=f"pip install 'lakebed[{package}]', or read with to_arrow()"
        ) from error


class Scan(Results):
    """The rows of a table in one snapshot.

    `columns` None gives the data columns, with `meta` the meta columns in front; names may be in any case, and meta
    columns may be named. `where` is Spark SQL or a pyarrow expression; times in it without a zone are in the Spark
    session's zone, without Spark in UTC. `reads` is whether the metadata table's indexes and statistics rule out
    files, whether pages are checked, and whether tasks tune the Spark workers that they run in. Raises `InvalidOption`
    for unknown columns and conditions that do not parse.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        columns: Sequence[str] | None = None,
        where: Condition | None = None,
        query: str = "snapshot",
        spark: SparkSession | None = None,
        meta: bool = False,
        reads: ReadSettings | None = None,
    ) -> None:
        if query not in ("snapshot", "read_optimized"):
            raise InvalidOption(
                f"there is no query type {query!r}",
                hint="take 'snapshot' or 'read_optimized'; t.changes() reads incrementally",
            )
        super().__init__(spark)
        self._snapshot = snapshot
        self._columns = columns
        self._filters: tuple[Condition, ...] = () if where is None else (where,)
        self._query: Query = query
        self._meta = meta
        self.reads = reads or ReadSettings()
        self._conditions: tuple[Node, ...] = ()
        self._choosing: tuple[Node, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_snapshot": self._snapshot.for_another_process()}

    @once
    def plan(self) -> ScanPlan:
        """The plan of the scan: files, columns, and the steps that ruled out other files."""
        return read_again(self._storage(), self._plan, self._renew)

    def _plan(self) -> ScanPlan:
        return plan_scan(
            self._snapshot,
            self.parsed_filter(),
            self._requested(),
            query=self._query,
            reads=self.reads,
            choosing=self._choosing,
        )

    def _requested(self) -> list[str] | None:
        if not self._meta:
            return None if self._columns is None else list(self._columns)
        available = self.available.names
        data = [n for n in available if n not in ALL_META_COLUMNS] if self._columns is None else self._columns
        return [*(n for n in available if n in ALL_META_COLUMNS), *data]

    @property
    def available(self) -> pa.Schema:
        """All columns that can be requested, meta columns included."""
        return read_again(self._storage(), lambda: self._columns_of(self._snapshot), self._renew)

    def _columns_of(self, snapshot: Snapshot) -> pa.Schema:
        """The schema of all columns of a view that can be requested, with `_hoodie_operation` only if the scan names
        it."""
        named = OPERATION_COLUMN in (self._columns or ()) or OPERATION_COLUMN in str(self._filters)
        return table_columns(snapshot, operations=self._meta or named)

    @property
    def snapshot(self) -> Snapshot:
        """The view of the table that is read."""
        return self._snapshot

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns that it returns."""
        names = self._requested()
        if names is None:
            return tuple(n for n in self.available.names if n not in ALL_META_COLUMNS)
        return tuple(dict.fromkeys(resolve_column(name, self.available).name for name in names))

    @property
    def reader(self) -> SliceReader:
        """The reader of the table's file slices."""
        return self._snapshot.reader

    def where(self, condition: Condition) -> Self:
        """This read restricted to rows that also fulfil a condition: SQL, or a `pyarrow.compute.Expression`.

        Nothing is read yet. Reading raises `InvalidOption` for a condition that does not parse.

        >>> import lakebed
        >>> t = lakebed.load("memory://docs/where", {"id": [1, 2, 3], "city": ["Oslo", "Rome", "Rome"]}, key="id")
        >>> t.scan().where("city = 'Rome'").where("id > 2").select("id").to_arrow().to_pylist()
        [{'id': 3}]
        """
        return self._with(_filters=(*self._filters, condition))

    def select(self, *columns: str | Sequence[str]) -> Self:
        """This read with these columns, in this order, in place of its previous ones: names, or a list of them.

        Nothing is read yet. Reading raises `InvalidOption` for a column that the table lacks.

        >>> import lakebed
        >>> t = lakebed.load("memory://docs/select", {"id": [1], "city": ["Oslo"], "fare": [9.5]}, key="id")
        >>> t.scan().select("fare", "city").to_arrow().column_names
        ['fare', 'city']
        """
        return self._with(_columns=column_names_of(columns))

    def narrowed(self, conditions: Sequence[Node]) -> Self:
        """This scan with more conditions."""
        return self._with(_conditions=(*self._conditions, *conditions))

    def choosing_files(self, conditions: Sequence[Node]) -> Self:
        """This scan restricted to files that may have rows which fulfil the conditions; its caller tests the rows."""
        return self._with(_choosing=(*self._choosing, *conditions))

    def of_columns(self, columns: Sequence[str]) -> Self:
        """This scan with only these columns."""
        return self._with(_columns=tuple(dict.fromkeys(columns)), _meta=False)

    def parsed_filter(self) -> Predicate | None:
        """The parsed filter; None without one. Raises `InvalidOption` for a filter that cannot be parsed."""
        from lakebed.filters.sql import parse_conditions

        predicate = parse_conditions(self._filters, self.available, zone=self.zone()) if self._filters else None
        return combine(predicate, self._conditions)

    def zone(self) -> str:
        """The time zone for times without one."""
        return "UTC" if self._spark is None else zone_of(self._spark)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return self.plan.schema

    @property
    def files(self) -> tuple[BaseFile, ...]:
        """The base files that the scan opens."""
        return self.plan.files

    def to_spark(self, *, bucketed: bool | int | Scan = False) -> DataFrame:
        """A lazy DataFrame over Spark's own Parquet reader.

        With `bucketed` each bucket of a table with a bucket index is one Spark partition, and Spark knows it by the
        column `_bucket` that the DataFrame then has: what is joined on or grouped by the bucket key and this column
        needs no exchange; `lakebed.spark.by_buckets(query)` adds the column to queries by the key alone. A number (or
        the scan to join with) puts buckets together, where the other table has fewer. Raises `UnsupportedFeature` for a
        table without buckets; see docs/queries.md.
        """
        if not isinstance(bucketed, int | Scan):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refused("to_spark", "bucketed", bucketed, "True or False, a number of buckets or a scan")
        spark = self._session(self._storage())
        return read_again(self._storage(), lambda: self._frame(spark, bucketed), self._renew)

    def to_ray(self) -> ray.data.Dataset:
        """A lazy Dataset of Ray with a read task for each file slice that the plan reads. Needs `lakebed[ray]`.

        Rows are read where the tasks run. Raises `UnsupportedFeature` for a table in memory, and `InvalidOption` for a
        condition that only Spark can evaluate; a file that was cleaned before its task ran is a `StorageError`.

        >>> import lakebed
        >>> t = lakebed.load("memory://docs/to-ray", {"id": [1]}, key="id")
        >>> t.scan().to_ray()
        Traceback (most recent call last):
        lakebed.errors.UnsupportedFeature: ... is in the memory of this process, which Ray's workers cannot see. ...
        """
        return self._in_tasks("Ray").ray_dataset(self.plan, self.reader)

    def to_dask(self) -> dd.DataFrame:
        """A lazy DataFrame of Dask with a partition for each file slice that the plan reads. Needs `lakebed[dask]`.

        The columns have the types of Arrow (`pandas.ArrowDtype`). Rows are read where the tasks run. Raises
        `UnsupportedFeature` for a table in memory, and `InvalidOption` for a condition that only Spark can evaluate; a
        file that was cleaned before its task ran is a `StorageError`.

        >>> import lakebed
        >>> t = lakebed.load("memory://docs/to-dask", {"id": [1]}, key="id")
        >>> t.scan().to_dask()
        Traceback (most recent call last):
        lakebed.errors.UnsupportedFeature: ... is in the memory of this process, which Dask's workers cannot see. ...
        """
        return self._in_tasks("Dask").dask_frame(self.plan, self.reader)

    def _in_tasks(self, engine: str) -> ModuleType:
        from lakebed.read import task_frames

        _check_shared(self._storage(), engine)
        return task_frames

    def _frame(self, spark: SparkSession, bucketed: bool | int | Scan) -> DataFrame:
        if bucketed is not False:
            from lakebed.read.spark_buckets import bucketed_frame

            return bucketed_frame(self, spark, bucketed)
        from lakebed.read.spark import scan_frame

        return scan_frame(self.plan, spark, self.reader, tuning=self.reads.worker_tuning)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches, read ahead by a few threads; holds a few batches, never a whole file."""
        _ = self.plan  # what cannot be read raises now
        return super().to_batches()

    def _read(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, at most `limit` (None: all) of those that a filter which only Spark evaluates selects."""
        spark = self._session_of_filter()
        if spark is None:
            return scan_batches(self.plan, self.reader)
        from lakebed.read.spark import collected_rows

        frame = self._frame(spark, bucketed=False)
        return iter(collected_rows(frame if limit is None else frame.limit(limit), spark, self.schema))

    def _count(self) -> int:
        """The number of rows. Without a filter, and with one over partition columns, the recorded numbers are added up,
        and if one is not certain the footer is read; otherwise the columns that the filter names are read."""
        _ = self.column_names  # a column that the table lacks is an error here, too
        rows = self.of_columns([])
        spark = rows._session_of_filter()
        if spark is not None:
            return rows._frame(spark, bucketed=False).count()
        return count_rows(rows.plan, self.reader, RecordedRows(self._snapshot, self.available))

    def to_summary(self) -> Iterator[pa.RecordBatch]:
        """Yield as many rows as the scan has, with the same least and greatest values in its columns, for callers who
        only need the number of rows and these extremes: files whose extremes are recorded are not opened, and their
        other values are null."""

        def read() -> Iterator[pa.RecordBatch]:
            if self._session_of_filter() is not None:
                return self._read()
            return summarized_rows(self.plan, self.reader, RecordedRows(self._snapshot, self.available))

        return stream_again(self._storage(), read, self._renew)

    def _session_of_filter(self) -> SparkSession | None:
        """The session of the table, if only Spark can evaluate its filter and the session's workers can read the table;
        otherwise None."""
        predicate = self.plan.predicate
        if predicate is None or predicate.runs_in_process or self._storage().spec.in_this_process:
            return None
        return self._spark

    def _storage(self) -> Storage:
        return self._snapshot.storage

    def _renew(self) -> bool:
        fresh = reopened(self._snapshot)
        if fresh is None:
            return False
        refuse_cleaned(fresh)
        self._snapshot = fresh
        self.__dict__.pop("plan", None)
        return True

    def pruning(self) -> pa.Table:
        """The file slices that the scan reads, and the step that rules out each of the others; no row is read.

        A row for each file slice of the view, with the columns `partition`, `file_id`, `base_file` (null for a slice of
        log files alone), `log_files` (their number), `bytes` and `pruned_by`: null for a slice that is read, else the
        step that rules it out (`partition`, `bucket`, `record index`, `column statistics`, ...). Those that are read
        come first, then those of each step, in the order of the steps. Raises what planning raises.

        >>> import lakebed
        >>> cities = {"id": [1, 2], "city": ["Oslo", "Rome"]}
        >>> t = lakebed.load("memory://docs/pruning", cities, key="id", partition_by="city")
        >>> t.scan(where="city = 'Oslo'").pruning().select(["partition", "pruned_by"]).to_pylist()
        [{'partition': 'Oslo', 'pruned_by': None}, {'partition': 'Rome', 'pruned_by': 'partition'}]
        """
        return self.plan.pruning()

    def explain(self, files: int = 0) -> Lines:
        """The plan as text: the number of files read, the steps that ruled out the others, and how Spark would read
        them.

        With `files` it has up to so many names of files that are read, and of those that each step rules out;
        `pruning()` gives all. Raises `InvalidOption` for a negative number.
        """
        lines = [self.plan.text(whole_number("explain", "files", files))]
        if self._spark is not None:
            lines.append(f"  on Spark    {self._on_spark(self._spark)}")
        return Lines("\n".join(lines))

    def _on_spark(self, spark: SparkSession) -> str:
        """A phrase that says how Spark reads the slices."""
        from lakebed.read.spark import through_storage
        from lakebed.read.spark_untouched import divided

        reason = through_storage(self.plan, spark, self.reader)
        if reason:
            return f"through Python: {reason}"
        parts, _ = divided(self.plan, self.plan.sets, self.reader.config)
        count = sum(len(part.merged.slices) for part in parts)
        rows = f", also for the rows of {count_text(count, 'file slice')} that no log record touches" if count else ""
        is_merged = any(s.log_files for s in self.plan.slices)
        return f"its own Parquet reader{rows}" + (", through Python where log files are merged" if is_merged else "")

    def _repr_html_(self) -> str:
        return first_rows_html(self)


class SliceScan(Scan):
    """The rows of some file slices of one view, with the columns of the view `shown_as`: those that only that one has
    are null."""

    def __init__(
        self,
        view: Snapshot,
        slices: Sequence[FileSlice],
        shown_as: Snapshot,
        columns: Sequence[str] | None = None,
        *,
        meta: bool = False,
        reads: ReadSettings | None = None,
    ) -> None:
        super().__init__(view, columns, meta=meta, reads=reads)
        self._slices, self._shown_as = slices, shown_as

    @property
    def available(self) -> pa.Schema:
        """All columns that can be requested, meta columns included."""
        return self._columns_of(self._shown_as)

    def _plan(self) -> ScanPlan:
        return plan_scan(
            self._snapshot,
            self.parsed_filter(),
            self._requested(),
            slices=self._slices,
            column_view=self._shown_as,
            reads=self.reads,
            choosing=self._choosing,
        )


def refuse_cleaned(view: Snapshot) -> None:
    """Raise `InvalidOption` if a view of the past is incomplete because a clean has deleted files of it."""
    as_of, timeline = view.as_of, view.timeline
    if as_of is None or timeline.last_completed is None or as_of >= timeline.last_completed.time:
        return
    if any(i.action is Action.SAVEPOINT and i.time == view.instant for i in timeline.completed):
        return
    archived = as_of < (timeline.start or "")
    cleans = [*cleans_after(timeline, as_of), *(islice(archived_cleans(timeline), 1) if archived else ())]
    # a clean by commits also leaves what the commit before the first that it keeps sees
    bounds = [c.earliest for c in cleans if c.earliest and (archived or _has_commit(timeline, as_of, c.earliest))]
    bounds += [following(c.last_completed) for c in cleans if not c.earliest and c.last_completed > as_of]
    first = max(bounds, default="")
    if first > as_of:
        earliest = next((i.time for i in timeline.commits if i.time >= first), first)
        raise InvalidOption(
            f"the table as of {as_of} cannot be read any more: files that only commits before {earliest} see have been"
            " cleaned away",
            hint=f"Read as of {earliest} or later. A higher hoodie.clean.commits.retained, or a savepoint, keeps more.",
            context={"option": "as_of", "value": as_of, "earliest": earliest},
        )


def _has_commit(timeline: Timeline, after: str, before: str) -> bool:
    return any(i.time < before for i in timeline.commits_after(after))

"""The one public object: a table. Every method calls the package that does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from lakebed.catalog.base import SyncResult
from lakebed.config.arguments import public_methods_check_arguments, refused, whole_number, with_arguments
from lakebed.config.features import features_of
from lakebed.config.options import resolve_options
from lakebed.config.settings import ReadSettings
from lakebed.diagnosis.doctor import examine
from lakebed.diagnosis.findings import Diagnosis
from lakebed.engine.arrow_data import is_read_once, to_arrow_table
from lakebed.engine.base import Engine
from lakebed.engine.spark_session import session_of
from lakebed.errors import InvalidOption
from lakebed.index.base import Resizing
from lakebed.inputs.files import Partitioning, data_of, is_path_of_files
from lakebed.metadata.lookups import open_again
from lakebed.operations import hudi_job
from lakebed.operations.context import WriteContext
from lakebed.operations.delete import Where, count_deletes, delete, rows_to_delete
from lakebed.operations.group_commit import UpsertTarget, commit
from lakebed.operations.merge import MergeResult, merge
from lakebed.operations.merge_statement import ClauseText, MergeStatement
from lakebed.operations.once import Once
from lakebed.operations.overwrite import delete_partitions, insert_overwrite
from lakebed.operations.plan import WritePlan
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import bulk_insert, explain_upsert, insert, upsert
from lakebed.progress import display
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import CURRENT_VERSION, TableConfig
from lakebed.publish.publication import PublishResult
from lakebed.read import lookup
from lakebed.read.bucket_join import BucketJoin
from lakebed.read.cdc import ChangeLog, Images
from lakebed.read.commit_feed import BatchLimits
from lakebed.read.history import RowHistory, row_history
from lakebed.read.incremental import Changes, When, in_local_zone, refuse_outside, resolve_as_of
from lakebed.read.plan import data_columns
from lakebed.read.reopening import read_again
from lakebed.read.scan import Scan, refuse_cleaned
from lakebed.services.archival import ArchivalResult, archive
from lakebed.services.catalog_sync import register_table
from lakebed.services.change_index import Rescaled, rescale
from lakebed.services.cleaning import CleanResult, clean
from lakebed.services.clustering import ClusteringResult, cluster, merge_small_files
from lakebed.services.compaction import CompactionResult, compact
from lakebed.services.configure import Configured, configure
from lakebed.services.driver import Reads, fitting_context
from lakebed.services.due import AFTER_SERVICE_SETTINGS, run_due_services, show_after_service
from lakebed.services.erasure import Erasure
from lakebed.services.erasure_report import ErasureReport
from lakebed.services.log_compaction import compact_logs
from lakebed.services.partition_ttl import PartitionTtlResult, expire_partitions
from lakebed.services.publishing import publish_table
from lakebed.services.repair import Part, RepairResult, repair_table
from lakebed.services.restore import RestoreResult, RollbackResult, restore, rollback
from lakebed.services.savepoint import Savepoint, delete_savepoint, savepoint, savepoints
from lakebed.services.upgrade import VersionChange, downgrade, upgrade
from lakebed.slices.snapshot import Snapshot, table_features
from lakebed.storage.base import Storage
from lakebed.table_columns import ColumnsView
from lakebed.table_consumers import BatchRequest, ConsumersView, Consumption
from lakebed.table_indexes import IndexesView
from lakebed.table_merge import Merge
from lakebed.table_views import FeaturesView, FilesView, PropertiesView, TimelineView, listed_files, table_html

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.read.dataset import TableDataset

T = TypeVar("T")
# Views of this many moments are cached while nothing changes.
_VIEWS = 4


@public_methods_check_arguments
class Table:
    """A keyed table in Hudi's format. `lakebed.create` and `lakebed.open` return one.

    Rows are Spark DataFrames, anything with the Arrow stream protocol, or the path of data files: a file, a folder or a
    glob of Parquet, CSV, JSON or Arrow files ("s3://bucket/*.csv"; `lakebed.DataFiles` has more settings). Folders
    named `day=2024-01-31` are columns of their rows, unless `partitioning` is "none". Every method that commits or
    locks has `options`, a dict of `hoodie.*` or `lakebed.*` keys. On a terminal a call of more than two seconds
    shows its progress, unless `progress` is False. The examples of the methods continue this one.

    >>> import lakebed, pyarrow as pa
    >>> rows = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", "Oslo"], "fare": [9.5, 12.0, 7.25], "ts": [1, 1, 1]})
    >>> t = lakebed.create("memory://example/trips", rows, key="id", partition_by="city", ordering="ts",
    ...                    type="mor", index="bucket", buckets=2)
    >>> t.upsert(rows).inserted
    3
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        spark: SparkSession | None = None,
        reads: ReadSettings | None = None,
        *,
        worker_tuning: bool = True,
    ) -> None:
        self._storage = storage
        self._config = config
        self._spark = spark
        self._reads = reads or ReadSettings()
        self._worker_tuning = worker_tuning
        # the view of the last read: its listings and lookups stay valid until a timeline changes
        self._views: dict[str | None, Snapshot] = {}
        self.loaded: WriteResult | None = None  # what `lakebed.load` and `lakebed.convert` have written

    @property
    def uri(self) -> str:
        """The table's path or URL.

        >>> t.uri
        'memory://example/trips'
        """
        return self._storage.spec.uri

    @property
    def session(self) -> SparkSession | None:
        """The Spark session that the table was opened with; None without one.

        >>> t.session is None
        True
        """
        return self._spark

    @property
    def name(self) -> str:
        """The table's name (`hoodie.table.name`).

        >>> t.name
        'trips'
        """
        return self._config.name

    @property
    def schema(self) -> pa.Schema:
        """The table's current columns without Hudi's meta columns.

        >>> t.schema.names
        ['id', 'city', 'fare', 'ts']
        """
        return self._steadily(data_columns)

    @property
    def properties(self) -> PropertiesView:
        """All properties in `hoodie.properties`, read from the file: a dict that prints a line for each.

        >>> t.properties["hoodie.table.type"]
        'MERGE_ON_READ'
        """
        self._config = load_table_config(self._storage)
        return PropertiesView(self._config.properties)

    @property
    def timeline(self) -> TimelineView:
        """The instants of the active timeline: iterable, and printed as a table.

        >>> [instant.action.value for instant in t.timeline]
        ['deltacommit']
        """
        return TimelineView(self._snapshot().timeline)

    @property
    def files(self) -> FilesView:
        """The latest file slice of each file group: iterable, `.to_arrow()`, and printed as a table.

        >>> sorted(file_slice.partition for file_slice in t.files)
        ['Oslo', 'Rome']
        """
        return self._steadily(listed_files)

    @property
    def partitions(self) -> Sequence[str]:
        """The partition paths that have files, in order; one empty text for a table without partitions.

        >>> t.partitions
        ('Oslo', 'Rome')
        """
        slices = self._steadily(lambda view: view.file_slices())
        return tuple(dict.fromkeys(file_slice.partition for file_slice in slices))

    @property
    def features(self) -> FeaturesView:
        """The features of the read and write matrix that this table has: iterable, and printed as a table.

        >>> [(feature.name, feature.write) for feature in t.features]
        [('metadata table', 'yes'), ('merge-on-read', 'yes')]
        """
        return FeaturesView(self._steadily(lambda view: features_of(view.config.properties, table_features(view))))

    @property
    def columns(self) -> ColumnsView:
        """The table's columns with their types and comments: iterable, and printed as a table. Its methods add, drop,
        rename, widen, comment and move them.

        >>> [column.name for column in t.columns]
        ['id', 'city', 'fare', 'ts']
        """
        return ColumnsView(self)

    @property
    def consumers(self) -> ConsumersView:
        """The table's named consumers with their positions and lags: iterable, and printed as a table. Its methods
        list, get, start, move and delete them.

        >>> len(t.consumers)
        0
        """
        return ConsumersView(self)

    @property
    def indexes(self) -> IndexesView:
        """The index of writes and the indexes of the metadata table. Its methods list, create, drop, verify and repair
        them.

        `t.indexes.adopt` records the index of a table for which real Hudi recorded none.

        >>> [index.name for index in t.indexes.list()]
        ['files', 'column_stats', 'partition_stats']
        """
        return IndexesView(self)

    # -- writes

    def upsert(
        self,
        data: Any,
        *,
        partial: bool = False,
        partitioning: Partitioning | None = None,
        progress: bool = True,
        retries: int | None = None,
        once: Once | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Insert rows with new keys, and update the rows of existing keys by the table's merge mode.

        With `partial` the rows may lack columns: they need the key, partition and ordering columns, and the columns to
        change. Existing rows keep their values in the other columns, new rows have nulls there.

        A write that loses against a concurrent one is planned and run again up to `retries` times, with a growing
        pause. Then it raises `CommitConflict`. Every write method takes `retries`; the default is the table's
        `hoodie.write.num.retries.on.conflict.failures` (0). Each run evaluates a DataFrame again. `once`, another
        argument of every write method, names a batch that is not written where the table has it (`lakebed.Once`).

        >>> _ = t.upsert(pa.table({"id": [1, 4], "city": ["Oslo", "Rome"], "fare": [10.0, 3.0], "ts": [2, 2]}))
        >>> t.get([1, 4], columns=["id", "fare"]).to_pylist()
        [{'id': 1, 'fare': 10.0}, {'id': 4, 'fare': 3.0}]
        """
        rows = self._data(data, partitioning)
        return self._write(upsert, rows, hudi_job.with_partial(partial, options), "upsert", retries, progress, once)

    def insert(
        self,
        data: Any,
        *,
        partitioning: Partitioning | None = None,
        progress: bool = True,
        retries: int | None = None,
        once: Once | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Add rows without looking up their keys: a key that the table holds already gets a second row, and the next
        upsert of it updates both. `duplicates` of the result counts such rows, where that costs little.

        `options={"lakebed.insert.count.duplicates": True}` counts them always. Only a merge-on-read table with a bucket
        index merges the new row with the stored one.
        With `options={"hoodie.datasource.write.insert.drop.duplicates": True}` rows of existing keys are left out.

        >>> _ = t.insert([{"id": 4, "city": "Rome", "fare": 3.0, "ts": 2}])
        >>> t.count()
        4
        """
        return self._write(insert, self._data(data, partitioning), options, "insert", retries, progress, once)

    def bulk_insert(
        self,
        data: Any,
        *,
        partitioning: Partitioning | None = None,
        progress: bool = True,
        retries: int | None = None,
        once: Once | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Load many rows into new file groups, without looking up keys and without filling small files.

        Data files, datasets and streams are read batch by batch: the memory that it takes does not grow with them.

        >>> new = lakebed.create("memory://docs/loaded", rows, key="id")
        >>> new.bulk_insert(rows).inserted
        3
        >>> lakebed.drop(new.uri)
        []
        """
        return self._write(bulk_insert, self._data(data, partitioning), options, "bulk_insert", retries, progress, once)

    def delete(
        self,
        keys: Any = None,
        *,
        where: Any = None,
        dry_run: bool = False,
        progress: bool = True,
        retries: int | None = None,
        once: Once | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Delete rows by record key, or with `where` all rows that fulfil a condition.

        Keys are a list of values of a single key field, of tuples or of dicts, `lakebed.KeyText([...])`, or a table
        with the key columns, also one in data files (`"keys.csv"`). Keys without partition columns are looked up in all
        partitions. `where` is SQL or an Arrow expression. `WriteResult.deleted` is the number of rows deleted; keys
        that the table lacks are no error. With `dry_run` the rows are only counted. Raises `InvalidOption` for another
        text in the place of keys.

        >>> t.delete([1, 99]).deleted, t.delete(where="fare > 10").deleted
        (1, 1)
        """
        selector = rows_to_delete(self._data(keys, None) if is_path_of_files(keys) else keys, where)
        if dry_run:
            return self._again(
                lambda: count_deletes(self._context(selector, options, "delete"), selector), progress=progress
            )
        return self._write(delete, selector, options, "delete", retries, progress, once)

    def merge(self, source: Any, on: Any = None, *, target: str = "t", source_alias: str = "s") -> Merge:
        """Begin a MERGE of source rows: clauses say what happens to rows that match and to those that do not.

        `on` is a column or a list of columns that are equal on both sides (None: the record key), or SQL over the
        target `t` and the source `s`. Where the record key is equated the index finds the rows and nothing is joined.
        `execute()` carries the merge out, `explain()` tells how it would be.

        >>> rates = lakebed.create("memory://docs/rates", {"id": [1], "n": [1]}, key="id")
        >>> _ = rates.upsert({"id": [1, 2], "n": [10, 20]})
        >>> add = rates.merge({"id": [2, 3], "n": [5, 5]}).when_matched_update({"n": "t.n + s.n"})
        >>> add.when_not_matched_insert().execute().updated
        1
        >>> rates.scan().to_arrow().sort_by("id")["n"].to_pylist()
        [10, 25, 5]
        """
        rows = self._data(source, None)
        return Merge(rows, MergeStatement(on, target, source_alias), self._merge, self._plan_merge)

    def update(
        self,
        set: Mapping[str, Any],
        *,
        where: str | None = None,
        retries: int | None = None,
        once: Once | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> MergeResult:
        """Set columns of the rows that fulfil a condition (None: of all rows), in one commit.

        Values are SQL over the row's columns, or constants. Raises `UnsupportedFeature` for a key field.

        >>> tariff = lakebed.create("memory://docs/tariff", {"id": [1], "city": ["x"], "fare": [1.0]}, key="id")
        >>> _ = tariff.upsert({"id": [1, 2], "city": ["rome", "oslo"], "fare": [10.0, 20.0]})
        >>> tariff.update({"fare": "fare * 1.5"}, where="city = 'rome'").updated
        1
        >>> tariff.get([1])["fare"].to_pylist()
        [15.0]
        """
        clause = ClauseText("not_matched_by_source", "update", where, set, of_update=True)
        statement = MergeStatement().with_clause(clause)
        rows = Where("true" if where is None else where)
        return self._merge(lambda context, _: merge(context, None, statement), rows, options, retries, once)

    def erase(
        self,
        keys: Any = None,
        *,
        where: Any = None,
        dry_run: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> ErasureReport:
        """Delete rows for good, with all their earlier versions: no file of the table has a value of them afterwards.

        `keys` and `where` are those of `delete`. The rows are deleted, the files of their file groups are written again
        and older ones are cleaned, the metadata table and published lists are written again. Then every file is read,
        to the last byte. The report has what held the rows by store, no value of them. Earlier views of the table
        cannot be read afterwards. With `dry_run` nothing changes.

        Raises `InvalidOption`, with nothing done, where a savepoint holds the rows. Raises `ErasureIncomplete` where
        something is left (a plan or another writer is pending); another `erase` of the rows goes on from there.

        >>> report = t.erase([1])
        >>> report.rows, report.is_clean, t.get([1]).num_rows
        (1, True, 0)
        """
        selector = rows_to_delete(keys, where, "erase")
        selector = to_arrow_table(selector) if is_read_once(selector) else selector
        engine = hudi_job.session_engine(session_of(selector), worker_tuning=self._worker_tuning)
        with hudi_job.evaluated_once(engine, selector) as same:  # what is deleted is what is looked for afterwards
            renew = partial(self._context, same, options, "delete")
            erasure = partial(Erasure(renew, same).run, dry_run=dry_run)
            report = self._committed(erasure, options, preview=dry_run, progress=progress)
        return ErasureReport((report,)).checked()

    def insert_overwrite(
        self,
        data: Any,
        scope: Literal["partitions", "table"] = "partitions",
        *,
        partitioning: Partitioning | None = None,
        progress: bool = True,
        retries: int | None = None,
        once: Once | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Replace all rows of the partitions that the data falls into, or with `scope="table"` of the whole table.

        >>> _ = t.insert_overwrite([{"id": 9, "city": "Oslo", "fare": 1.0, "ts": 3}])
        >>> sorted(t.scan().to_arrow()["id"].to_pylist())
        [2, 9]
        """
        verb = "insert_overwrite_table" if scope == "table" else "insert_overwrite"
        rows = self._data(data, partitioning)
        return self._write(
            lambda context, rows: insert_overwrite(context, rows, scope), rows, options, verb, retries, progress, once
        )

    def delete_partitions(
        self,
        partitions: str | Sequence[str],
        *,
        dry_run: bool = False,
        retries: int | None = None,
        once: Once | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Delete all rows of these partition paths (or of one). `*` in a path matches any text. With `dry_run` the rows
        are only counted (`replaced_rows`).

        >>> _ = t.delete_partitions("Os*")
        >>> t.partitions
        ('Rome',)
        """
        paths = [partitions] if isinstance(partitions, str) else partitions
        if dry_run:
            arguments = options, "delete_partition"
            return self._again(lambda: delete_partitions(self._context(None, *arguments), paths, dry_run=True))
        return self._write(
            lambda context, _: delete_partitions(context, paths), None, options, "delete_partition", retries, once=once
        )

    def explain(self, *, upsert: Any, partial: bool = False, options: Mapping[str, Any] | None = None) -> WritePlan:
        """The plan of `upsert(data)`: index, file groups, bytes to be rewritten. Counts the rows and writes nothing.

        >>> plan = t.explain(upsert=rows)
        >>> plan.rows, plan.engine
        (3, 'local')
        """
        job_options = hudi_job.with_partial(partial, options)
        rows = self._data(upsert, None)
        return self._again(lambda: explain_upsert(self._context(rows, job_options, "upsert"), rows))

    # -- reads

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        as_of: When | None = None,
        query: Query = "snapshot",
        *,
        meta: bool = False,
    ) -> Scan:
        """A lazy read of the table's rows.

        `.to_spark()`, `.to_arrow()`, `.to_batches()`, `.to_pandas()`, `.to_polars()` and `.count()` run it. `filter` is
        a SQL condition or a `pyarrow.compute.Expression`. `as_of` is an instant, a timestamp or a date (without a zone
        in the Spark session's, or the machine's), not before the table's first commit and not in the future.
        `meta=True` adds Hudi's five meta columns, and `_hoodie_operation` where the table has it.
        `query="read_optimized"` reads base files only.

        Raises `InvalidOption` for columns that the table lacks and times outside its history.

        >>> t.scan(columns=["id", "fare"], filter="city = 'Rome'").to_arrow().to_pylist()
        [{'id': 2, 'fare': 12.0}]
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

    def dataset(self, as_of: When | None = None) -> TableDataset:
        """The rows as a `pyarrow.dataset.Dataset`, for DuckDB, `polars.scan_pyarrow_dataset` and Ray.

        The columns and conditions of their queries rule out partitions, buckets and files, as those of `scan` do. The
        rows are those of one instant: the newest, or `as_of`. Raises `InvalidOption` for times outside the history.

        >>> import duckdb
        >>> trips = t.dataset()
        >>> duckdb.sql("select id, fare from trips where city = 'Rome'").fetchall()
        [(2, 12.0)]
        """
        from lakebed.read.dataset import TableDataset

        return TableDataset(self.scan(as_of=as_of))

    def to_arrow(self, where: Any = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows, or those that fulfil a condition, as an Arrow table: `scan(columns, where).to_arrow()`.

        >>> t.to_arrow(where="city = 'Rome'", columns=["id"]).to_pylist()
        [{'id': 2}]
        """
        return self.scan(columns, where).to_arrow()

    def to_pandas(self, where: Any = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The rows, or those that fulfil a condition, as a pandas DataFrame: `scan(columns, where).to_pandas()`.

        >>> t.to_pandas(where="fare < 10", columns=["fare"])["fare"].sum()
        np.float64(16.75)
        """
        return self.scan(columns, where).to_pandas()

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
        if not isinstance(other, Table | Scan):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"join() takes a table or a scan, not {type(other).__name__}", hint="open it first")
        other_scan = other if isinstance(other, Scan) else other.scan()
        return BucketJoin(
            self.scan(), other_scan, on=on, how=how, columns=columns, filter=filter, suffix=suffix, spark=self._spark
        )

    def bucketed(
        self, data: DataFrame, on: str | Sequence[str] | None = None, *, buckets: bool | int | Scan = True
    ) -> DataFrame:
        """The rows of any DataFrame, in the partitions of this table's buckets, with the column `_bucket`.

        One shuffle of the DataFrame lays it out. It then joins with `t.scan().to_spark(bucketed=True)` on the key and
        `_bucket` as another table would. `on` names its columns for the bucket key (None: those of the same names);
        they must have the key's types. `buckets` is what `bucketed` is on the table's side.

        >>> def joined(frame):  # a Spark DataFrame with the column id
        ...     return t.scan().to_spark(bucketed=True).join(t.bucketed(frame), ["id", "_bucket"])
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
        """The rows written in (start, end], in their latest state. `.end` is the checkpoint for the next read.

        `start` and `end` are checkpoints (`WriteResult.checkpoint`, `changes.end`), instants of this table, or
        datetimes (without a zone in the Spark session's, or the machine's); "000" is the beginning. Deletes are not
        among the rows: `cdc` returns them. Raises `InvalidOption` where `start` is after `end` or in the future.

        >>> checkpoint = t.changes("000").end
        >>> _ = t.upsert([{"id": 2, "city": "Rome", "fare": 13.0, "ts": 2}])
        >>> t.changes(checkpoint).to_arrow()["fare"].to_pylist()
        [13.0]
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

        `start` and `end` are those of `changes`; `.end` is the checkpoint for the next read. The columns are `op` (`i`,
        `u`, `d`), `ts_ms` (the commit's instant), `before` and `after`. The last two are structs of the table's columns
        (or of `columns`), null where there is no such row; with `images="json"` they are texts, as real Hudi returns
        them. Raises `InvalidOption` for a table without a change log (`hoodie.table.cdc.enabled`).

        >>> logged = lakebed.create("memory://docs/logged", rows, key="id",
        ...                         properties={"hoodie.table.cdc.enabled": True})
        >>> _ = logged.upsert(rows.slice(0, 1)), logged.delete([1])
        >>> logged.cdc("000").to_arrow()["op"].to_pylist(), lakebed.drop(logged.uri)
        (['i', 'd'], [])
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

    def consume(
        self,
        name: str,
        *,
        cdc: bool = False,
        start: When = "earliest",
        max_commits: int | None = None,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        images: Images = "rows",
        options: Mapping[str, Any] | None = None,
    ) -> Consumption:
        """The next batch of a named consumer, as a context manager. Its position is recorded in the table.

        The block gets the rows written since the last batch, as `changes` returns them, or with `cdc` the changes, as
        `cdc` returns them; `.start` and `.end` are its positions; a write with `once=batch.once()` is done once. The
        position moves when the block ends without an error. A new consumer begins at `start`: `earliest`, `latest`, a
        checkpoint, an instant or a time. A batch has at most `max_commits` commits; from the beginning it is the table.

        Cleaning and archival retain what the consumer has not read, for at most `lakebed.consumers.max_lag` seconds.
        Raises `CheckpointBehind` where something of the batch was cleaned or archived after that; its message names the
        first usable position. Raises `CommitConflict` where another process has moved the consumer meanwhile.

        >>> with t.consume("daily") as batch:
        ...     batch.to_arrow().num_rows
        3
        >>> with t.consume("daily") as batch:
        ...     batch.to_arrow().num_rows
        0
        """
        limits = BatchLimits(commits=max_commits)
        return Consumption(self, name, BatchRequest(start, cdc, limits, columns, filter, images), options)

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys as an Arrow table. The index finds them, without a Spark job; missing keys give no
        row.

        `keys` are those of `delete`. Raises `InvalidOption` for keys of other fields or types.

        >>> t.get([2, 99], columns=["fare"]).to_pylist()
        [{'fare': 12.0}]
        """
        return self._steadily(lambda view: lookup.get(view, keys, columns), looks_up=True)

    def history(self, keys: Any, *, before: str | None = None, lookups: int = 100) -> RowHistory:
        """The versions of one key's rows that can still be read, newest first: what each commit did, the row before and
        after it. A sequence of `RowVersion`, and `.to_arrow()`.

        `keys` is that of `get`, with one key. It is looked up in at most `lookups` commits; `.before` of the result is
        where to go on, `.note` why it ended. Raises `InvalidOption` for several keys and keys of another type.

        >>> _ = t.upsert([{"id": 2, "city": "Rome", "fare": 14.0, "ts": 3}])
        >>> [(one.change, one.after["fare"]) for one in t.history([2])]
        [('update', 14.0), ('insert', 12.0)]
        """
        return self._steadily(lambda view: row_history(view, keys, before=before, lookups=lookups))

    def exists(self, keys: Any) -> pa.BooleanArray:
        """Whether the table has each of these keys, in their order.

        >>> t.exists([2, 99]).to_pylist()
        [True, False]
        """
        return self._steadily(lambda view: lookup.exists(view, keys))

    def locate(self, keys: Any) -> pa.Table:
        """Where the keys are stored: a table with the columns key, partition_path, file_id and instant (of the file
        slice).

        >>> t.locate([2])["partition_path"].to_pylist()
        ['Rome']
        """
        return self._steadily(lambda view: lookup.locate(view, keys))

    def count(self, *, where: Any = None) -> int:
        """The number of rows, or of those that fulfil a condition.

        Files without log files are not opened, if there is no condition or one on partition columns, and commits or
        the metadata table have their exact numbers of rows.

        >>> t.count(), t.count(where="city = 'Oslo'")
        (3, 2)
        """
        return self.scan(filter=where).count()

    def __len__(self) -> int:
        return self.count()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table's rows for any library that takes Arrow streams: `polars.DataFrame(t)`, `duckdb.sql("from t")`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    # -- services

    def configure(
        self, settings: Mapping[str, Any], *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> Configured:
        """Change settings that the table records, of its services (`hoodie.compact.*`, ...) and of writes, under its
        lock.

        A value of None removes a setting. Options of a call override recorded settings. With `dry_run` nothing changes.
        Raises `InvalidOption` for settings that cannot be changed.

        >>> print(t.configure({"hoodie.clean.commits.retained": 24}))
        lakebed.clean.commits.retained: (none) -> 24
        """
        return self._again(lambda: configure(self._storage, settings, resolve_options(options).write, dry_run=dry_run))

    def compact(
        self,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        when_due: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> CompactionResult:
        """Merge the log files of a merge-on-read table into new base files. Writers continue meanwhile.

        Pending plans are run first, then a plan of all other file slices with log files. `plan_only` makes the plan and
        leaves it to another process, `dry_run` only returns it. `when_due` makes a plan only where the table's trigger
        (`hoodie.compact.inline.*`) calls for it. Tables made by lakebed are compacted after writes, when it is due.

        >>> _ = t.upsert([{"id": 1, "city": "Oslo", "fare": 10.0, "ts": 2}])
        >>> _ = t.compact()
        >>> [len(file_slice.log_files) for file_slice in t.files]
        [0, 0]
        """
        return self._committed(
            lambda: compact(
                self._service_context(options, "compact"), plan_only=plan_only, dry_run=dry_run, when_due=when_due
            ),
            options,
            preview=plan_only or dry_run,
            progress=progress,
        )

    def compact_logs(
        self,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        when_due: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> CompactionResult:
        """Merge the log blocks of file slices that have many of them (`hoodie.log.compaction.blocks.threshold`) into
        few.

        Base files are not rewritten, so it costs less than `compact`, and reads open fewer blocks. The arguments are
        those of `compact`.

        >>> print(t.compact_logs())
        no log compaction was planned: no file slice has 5 blocks
        """
        return self._again(
            lambda: compact_logs(
                self._service_context(options, "compact"), plan_only=plan_only, dry_run=dry_run, when_due=when_due
            ),
            progress=progress,
        )

    def cluster(
        self,
        sort_columns: Sequence[str] | None = None,
        *,
        layout: Literal["linear", "zorder", "hilbert"] | None = None,
        partitions: Sequence[str] | None = None,
        plan_only: bool = False,
        dry_run: bool = False,
        when_due: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> ClusteringResult:
        """Rewrite small files as fewer and larger ones. Reads and inserts continue meanwhile.

        Pending plans are run first, then a plan by the table's settings (`hoodie.clustering.*`). `sort_columns` orders
        the rows; the layouts `zorder` and `hilbert` order them along a curve through all of these columns. Without sort
        columns files are joined as bytes. `partitions` limits the plan to these partition paths. `plan_only` makes the
        plan and leaves it to another process, `dry_run` only returns it. `when_due` makes a plan only after as many
        commits as the settings ask for.

        >>> print(t.cluster(["fare"], partitions=["Oslo"], dry_run=True))
        to be done: clustering of 1 file slice of ... bytes into about 1 file, sorted by fare
        """
        keyword_options = {
            "hoodie.clustering.plan.strategy.sort.columns": sort_columns,
            "hoodie.layout.optimize.strategy": layout and layout.upper(),
        }
        all_options = with_arguments(options, keyword_options)
        return self._committed(
            lambda: cluster(
                self._service_context(all_options, "cluster", "files"),
                partitions=partitions,
                plan_only=plan_only,
                dry_run=dry_run,
                when_due=when_due,
            ),
            all_options,
            preview=plan_only or dry_run,
            progress=progress,
        )

    def merge_small_files(
        self,
        least: int | None = None,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> ClusteringResult:
        """Join files of less than `hoodie.parquet.small.file.limit` bytes, up to `hoodie.parquet.max.file.size`.

        It takes partition paths with at least `least` such files (None: 2). Rows are ordered as clustering orders them,
        or files are joined as bytes. `lakebed services run` does it from `lakebed.file.sizing.files` files on.
        `plan_only` makes the plan and leaves it to another process, `dry_run` only returns it. Raises `InvalidOption`
        for a table with a bucket index.

        >>> small = lakebed.create("memory://docs/small", rows, key="id", index="simple")
        >>> for n in range(3): _ = small.bulk_insert(rows.slice(n, 1))
        >>> _ = small.merge_small_files()
        >>> len(small.files), lakebed.drop(small.uri)
        (1, [])
        """
        return self._committed(
            lambda: merge_small_files(
                self._service_context(options, "cluster", "files"), least=least, plan_only=plan_only, dry_run=dry_run
            ),
            options,
            preview=plan_only or dry_run,
            progress=progress,
        )

    def clean(
        self,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        when_due: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> CleanResult:
        """Delete files that no retained commit (`hoodie.clean.policy`) can see. Writes and reads continue meanwhile.

        A pending clean is carried out first, then a new plan. `plan_only` makes the plan and leaves it to another
        process, `dry_run` only returns it. `when_due` makes a plan only where commits since the last clean left files
        to delete.

        >>> print(t.clean())
        nothing to clean: the last 10 commits are kept, and there are 1
        """
        return self._again(
            lambda: clean(
                self._context(None, options, "clean"), plan_only=plan_only, dry_run=dry_run, when_due=when_due
            ),
            progress=progress,
        )

    def archive(self, *, dry_run: bool = False, options: Mapping[str, Any] | None = None) -> ArchivalResult:
        """Move the oldest instants of a long timeline to the archived timeline.

        It begins at `hoodie.keep.max.commits` and leaves `hoodie.keep.min.commits`, and all instants that are still
        needed. `dry_run` only returns what would be moved.

        >>> print(t.archive())
        nothing to archive: the timeline has 1 commit, 30 may stay
        """
        return self._again(lambda: archive(self._context(None, options, "archive"), dry_run=dry_run))

    def expire_partitions(
        self,
        days: int | None = None,
        *,
        partitions: Sequence[str] | None = None,
        dry_run: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> PartitionTtlResult:
        """Delete partitions without a write in the last `days` days: all of them, or those among `partitions`.

        The defaults are the table's settings (`hoodie.partition.ttl.*`). With `dry_run` nothing is deleted.

        >>> print(t.expire_partitions(days=30))
        no partition path is older than 30 days
        """
        all_options = with_arguments(options, {"hoodie.partition.ttl.strategy.days.retain": days})
        context = partial(self._context, None, all_options, "expire_partitions")
        return self._committed(
            lambda: expire_partitions(context(), partitions=partitions, dry_run=dry_run), all_options, preview=dry_run
        )

    def savepoint(
        self,
        instant: str | None = None,
        *,
        comment: str = "",
        user: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Savepoint:
        """Retain a completed commit (None: the last one), so that `restore` can return to it.

        Cleaning retains its files and archival its instant until `delete_savepoint`. `user` is recorded (None: the user
        of this process). Raises `InvalidOption` for an instant that is no completed commit, or is already cleaned.

        >>> t.savepoint(comment="before the import").comment
        'before the import'
        """
        return self._again(
            lambda: savepoint(self._context(None, options, "savepoint"), instant, comment=comment, user=user)
        )

    def savepoints(self) -> list[Savepoint]:
        """The table's savepoints, oldest commit first.

        >>> saved = t.savepoint()
        >>> [one.instant for one in t.savepoints()] == [saved.instant]
        True
        """
        return self._steadily(lambda view: savepoints(view.timeline))

    def delete_savepoint(self, instant: str, *, options: Mapping[str, Any] | None = None) -> Savepoint | None:
        """Delete the savepoint of a commit: cleaning and archival may then remove what it retained.

        Returns the savepoint; None where only the remains of one were deleted. Raises `InvalidOption` where there is
        none.

        >>> saved = t.savepoint()
        >>> t.delete_savepoint(saved.instant).instant == saved.instant, t.savepoints()
        (True, [])
        """
        return self._again(lambda: delete_savepoint(self._context(None, options, "savepoint"), instant))

    def rescale(
        self,
        buckets: int | None = None,
        *,
        partitions: str | Sequence[str] | None = None,
        rules: str | None = None,
        split_over: int | None = None,
        dry_run: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Rescaled:
        """Give a bucket index another number of buckets, in one commit.

        `buckets` is for all partition paths, or for those in `partitions` (`*` matches any text). `rules` are Hudi's
        "regex,count;..." for partition paths; `buckets` is then the number for all others. A number that is a multiple
        or a divisor of the current one needs no shuffle. `split_over` splits only buckets of more bytes, in halves,
        until none is left. With `dry_run` the result is the plan with its reasons, and nothing is written.

        Raises `InvalidOption` for another index and for numbers that it cannot have. Raises `CommitConflict` while a
        compaction or clustering is planned there. Of this and a concurrent write, the one that commits last gets a
        conflict.

        >>> t.rescale(4).rows
        3
        >>> t.indexes.index.buckets
        4
        """
        if split_over is not None:
            whole_number("rescale", "split_over", split_over, minimum=1)
        paths = (partitions,) if isinstance(partitions, str) else partitions
        resizing = Resizing(buckets, None if paths is None else tuple(paths), rules, split_over)
        done = self._committed(
            lambda: rescale(self._service_context(options, "rescale", "files"), resizing, dry_run=dry_run),
            options,
            preview=dry_run,
            progress=progress,
        )
        self._config = load_table_config(self._storage)
        return done

    def restore(
        self, to: str | Savepoint | None = None, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> RestoreResult:
        """Return the table to the state when the commit `to` (an instant, or a savepoint) completed.

        All later commits are rolled back for good. With `dry_run` the result names them, and nothing changes. Without
        `to` an interrupted restore is finished.

        >>> saved = t.savepoint()
        >>> _ = t.delete([1, 2, 3])
        >>> _ = t.restore(saved)
        >>> t.count()
        3
        """
        instant = to.instant if isinstance(to, Savepoint) else to
        if not (instant is None or isinstance(instant, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refused("restore", "to", to, "an instant or a savepoint")
        return self._committed(
            lambda: restore(self._context(None, options, "restore"), instant, dry_run=dry_run), options, preview=dry_run
        )

    def rollback(
        self, instant: str, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> RollbackResult:
        """Undo the last completed commit. With `dry_run` the result names the files to be deleted, and nothing changes.

        Raises `InvalidOption` for any other instant: `restore` undoes several commits.

        >>> _ = t.delete([1])
        >>> _ = t.rollback(t.timeline.last.time)
        >>> t.count()
        3
        """
        context = partial(self._context, None, options, "rollback")
        return self._committed(lambda: rollback(context(), instant, dry_run=dry_run), options, preview=dry_run)

    def publish(
        self, format: Literal["delta", "iceberg"], *, options: Mapping[str, Any] | None = None
    ) -> PublishResult:
        """List the table's base files as a table of Delta Lake or Iceberg, next to the data, for engines that read
        these.

        Each commit that is not published yet gets a version of its own, so that other engines travel in time over the
        same commits. Rows in log files of a merge-on-read table are shown after a compaction: `.unmerged` of the result
        names their file groups. The table's setting `lakebed.publish` does it after each commit.

        Raises `UnsupportedFeature` for a table that the format cannot express, and where others changed the list.

        >>> paper = lakebed.create("memory://docs/paper", rows, key="id")
        >>> _ = paper.upsert(rows)
        >>> result = paper.publish("delta")
        >>> result.version, result.instant == paper.timeline.last.time
        (0, True)
        """
        return self._again(lambda: publish_table(self._storage, format, resolve_options(options).write))

    def register(
        self, catalog: str, name: str | None = None, *, full: bool = False, options: Mapping[str, Any] | None = None
    ) -> SyncResult:
        """Create or update the table's entries in a catalog, such as `t.register("hive://host:9083", "shop.trips")`.

        Only partitions that later commits touched are compared, except with `full`. The table's setting
        `lakebed.catalogs` does it after each commit. Raises `CatalogError` for an entry of another table, and where the
        catalog does not answer.

        >>> t.register("nowhere", "shop.trips")
        Traceback (most recent call last):
        lakebed.errors.InvalidOption: 'nowhere' is no kind of catalog. It is one of glue, hive, ...
        """
        return self._again(lambda: register_table(self._storage, catalog, name, options, full=full))

    def repair(
        self, parts: Sequence[Part] | None = None, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> RepairResult:
        """Find and mend damage of the table: all parts, or the `parts` named.

        The parts are "properties", "partition_metadata", "orphans" (files that no commit names), "metadata",
        "keys" (a complex key of one field as `id:1` and as `1`) and "duplicates" (several rows of a key); rows change
        only where one of the last two is named. With `dry_run` nothing is mended.

        >>> print(t.repair(["orphans"]))
        orphans: nothing found
        """
        return self._again(
            lambda: repair_table(self._storage, parts, dry_run=dry_run, options=options, spark=self._spark)
        )

    def doctor(
        self, *, verify: bool = False, read_only: bool = False, options: Mapping[str, Any] | None = None
    ) -> Diagnosis:
        """Examine the table, its storage and this installation: findings with a severity and what to do.

        A probe file is created and deleted below `.hoodie/.temp`, and the table lock is taken and given back, unless
        `read_only`. `verify` compares the indexes with the rows, which reads all keys. `options` are those of a job,
        such as its lock provider.

        >>> t.doctor().of_check("services")
        (ok       services: no service is due, and no writer has died,)
        """
        where = self._storage.spec.options
        return examine(
            self.uri, verified=verify, read_only=read_only, options=options, storage_options=where, spark=self._spark
        )

    def upgrade(
        self, to: int = CURRENT_VERSION, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> VersionChange:
        """Change the table to a later version (8 or 9) with the same rows. Log files are compacted first.

        With `dry_run` the result names the changes, and nothing is written. No other call changes a table's version.

        >>> print(t.upgrade(dry_run=True))
        the table has version 9
        """
        version = whole_number("upgrade", "to", to)
        return self._changed(lambda: upgrade(self._service_context(options, "upgrade"), version, dry_run=dry_run))

    def downgrade(self, to: int, *, dry_run: bool = False, options: Mapping[str, Any] | None = None) -> VersionChange:
        """Change the table to an earlier version (8 or 6), which older releases of Hudi read, with the same rows.

        A merge-on-read table of version 6 loses the rows that only earlier views can see. With `dry_run` the result
        names the changes, and nothing is written.

        >>> _ = t.downgrade(8)
        >>> t.properties["hoodie.table.version"], t.count()
        ('8', 3)
        """
        version = whole_number("downgrade", "to", to)
        return self._changed(lambda: downgrade(self._service_context(options, "downgrade"), version, dry_run=dry_run))

    def _changed(self, change: Callable[[], VersionChange]) -> VersionChange:
        done = self._again(change)
        self._config = load_table_config(self._storage)
        return done

    # -- inside

    def _write(
        self,
        verb: Callable[[WriteContext, Any], WriteResult],
        data: Any,
        options: Mapping[str, Any] | None,
        name: str,
        retries: int | None = None,
        progress: bool = True,
        once: Once | None = None,
    ) -> WriteResult:
        """A write, with its retries after conflicts, and then the services that the table's settings make due."""
        settings = hudi_job.with_retries(retries, options)
        run = partial(hudi_job.run_again, lambda: self._context(data, settings, name), data=data, name=name, once=once)
        target = None if once else UpsertTarget(self._storage, self._config, settings)
        with display(enabled=progress):
            return commit(run, verb, data, target, partial(run_due_services, spark=self._spark))

    def _data(self, data: Any, partitioning: Partitioning | None) -> Any:
        return data_of(data, partitioning, (self._storage.spec.uri, self._storage.spec.options))

    def _merge(
        self,
        verb: Callable[[WriteContext, Any], MergeResult],
        source: Any,
        options: Mapping[str, Any] | None,
        retries: int | None,
        once: Once | None,
    ) -> MergeResult:
        result = self._write(verb, source, options, "upsert", retries, once=once)
        if result.skipped:
            return MergeResult(result.instant, result.checkpoint, "merge", skipped=True)
        assert isinstance(result, MergeResult)
        return result

    def _plan_merge(self, plan: Callable[[WriteContext], T], source: Any, options: Mapping[str, Any] | None) -> T:
        return self._again(lambda: plan(self._context(source, options, "upsert")))

    def _moment(self, when: When) -> When:
        return in_local_zone(when, None if self._spark is None else self._spark.conf.get("spark.sql.session.timeZone"))

    def _snapshot(self, as_of: str | None = None, *, looks_up: bool = False) -> Snapshot:
        # the metadata table may have changed since: a dropped index must not be used
        cached, use = self._views.pop(as_of, None), self._reads.use_metadata
        too = looks_up if cached is None else cached.metadata_is_open
        fresh = open_again(self._storage, self._config, as_of, use_metadata=use, metadata_too=too)
        self._config = fresh.config
        view = self._views[as_of] = cached if cached is not None and cached.shows_same(fresh) else fresh
        if len(self._views) > _VIEWS:
            del self._views[next(iter(self._views))]
        return view

    def _steadily(self, read: Callable[[Snapshot], T], *, looks_up: bool = False) -> T:
        """The result of `read` with the latest view. If the table changes during the read, it is repeated with a later
        view."""
        views = [self._snapshot(looks_up=looks_up)]

        def renew() -> bool:
            views.append(self._snapshot())
            return not views[-2].shows_same(views[-1])

        return read_again(self._storage, lambda: read(views[-1]), renew)

    def _again(self, serve: Callable[[], T], *, progress: bool = True) -> T:
        """The result of a service, which is started again if the table changed while it was planned."""
        with display(enabled=progress):
            return read_again(self._storage, serve, lambda: True)

    def _committed(
        self, serve: Callable[[], T], options: Mapping[str, Any] | None, *, preview: bool = False, progress: bool = True
    ) -> T:
        """Like the method above, for a service that commits. Unless it is a preview, published lists and catalogs are
        updated."""
        done = self._again(serve, progress=progress)
        if not preview and AFTER_SERVICE_SETTINGS & {*self._config.properties, *(options or {})}:
            show_after_service(self._storage, self._config.properties, options)
        return done

    def _engine(self) -> Engine:
        """The engine of a call that writes only indexes of the metadata table."""
        spark = None if self._storage.spec.in_this_process else self._spark
        return hudi_job.session_engine(spark, worker_tuning=self._worker_tuning)

    def _service_context(self, options: Mapping[str, Any] | None, verb: str, reads: Reads = "logs") -> WriteContext:
        """The context of a service that merges the table's log files, or may rewrite every file ("files")."""
        return fitting_context(self._context(None, options, verb), reads, self._spark)

    def _context(self, data: Any, options: Mapping[str, Any] | None, verb: str) -> WriteContext:
        opened = hudi_job.open_for_write(self._storage, self._config)
        self._config = opened.config
        resolved = resolve_options(options)
        hudi_job.check_verb(resolved, verb)
        engine = hudi_job.choose_engine(
            data,
            self._spark,
            resolved.write.tasks,
            worker_tuning=self._worker_tuning and resolved.spark.worker_tuning,
            local_rows=resolved.spark.local_rows,
            table_bytes=lambda: hudi_job.bytes_of_files(self._snapshot()),
        )
        return hudi_job.write_context(self._storage, self._config, engine, resolved, snapshot=opened)

    def __getstate__(self) -> dict[str, Any]:
        # cached views and the session are not pickled: another process cannot use them
        return {**self.__dict__, "_views": {}, "_spark": None}

    def __repr__(self) -> str:
        keys = ", ".join(self._config.key_fields) or "generated"
        partitions = ", ".join(self._config.partition_fields) or "none"
        return (
            f"lakebed.Table({self.name!r}, {self.uri}, version {self._config.version}, {self._config.table_type}, "
            f"key: {keys}, partitions: {partitions})"
        ) + ("" if self.loaded is None else f"\n{self.loaded}")

    def _repr_html_(self) -> str:
        return self._steadily(table_html)


Query = Literal["snapshot", "read_optimized"]

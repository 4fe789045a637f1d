"""The one public object: a table. Every method calls the package that does the work."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import pyarrow as pa

from lakebed.config.arguments import public_methods_check_arguments
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption, MissingAttribute, TableNotFound
from lakebed.opened_table import OpenedTable
from lakebed.properties.features import features_of
from lakebed.properties.file import load_table_config
from lakebed.read import lookup
from lakebed.read.plan import data_columns
from lakebed.slices.snapshot import table_features

# Methods import what they run: a process that reads some rows does not import the write verbs, services and views.
if TYPE_CHECKING:
    from types import TracebackType

    import pandas as pd
    import polars as pl

    from lakebed.inputs.files import Partitioning
    from lakebed.operations.merge import MergeResult
    from lakebed.operations.once import Once
    from lakebed.operations.plan import WritePlan
    from lakebed.operations.result import WriteResult
    from lakebed.read.bucket_join import BucketJoin
    from lakebed.read.cdc import ChangeLog, Images
    from lakebed.read.dataset import TableDataset
    from lakebed.read.diff import Diff
    from lakebed.read.fused_search import FusedSearch
    from lakebed.read.history import RowHistory
    from lakebed.read.incremental import Changes
    from lakebed.read.moments import When
    from lakebed.read.scan import Scan
    from lakebed.read.search import Search
    from lakebed.read.text_search import TextSearch
    from lakebed.services.configure import Configured
    from lakebed.services.erasure_report import ErasureReport
    from lakebed.services.restore import RestoreResult, RollbackResult
    from lakebed.services.undo_newest import UndoResult
    from lakebed.table_blobs import BlobsView
    from lakebed.table_catalogs import CatalogsView
    from lakebed.table_checks import ChecksView
    from lakebed.table_columns import ColumnsView
    from lakebed.table_consumers import ConsumersView, Consumption
    from lakebed.table_indexes import IndexesView
    from lakebed.table_maintenance import MaintenanceView
    from lakebed.table_merge import Merge
    from lakebed.table_savepoints import SavepointsView
    from lakebed.table_stage import OpenedStage
    from lakebed.table_versions import VersionsView
    from lakebed.table_views import FeaturesView, FilesView, PropertiesView, TimelineView
    from lakebed.vector_index.shape import Metric


@public_methods_check_arguments
class Table:
    """A keyed table in Hudi's format. `lakebed.create` and `lakebed.open` return one.

    Rows are DataFrames of Spark or Dask, Datasets of Ray, anything with the Arrow stream protocol, or the path of data
    files: a file, a folder or a glob of Parquet, CSV, JSON or Arrow files ("s3://bucket/*.csv"; `lakebed.DataFiles` has
    more settings). Folders named `day=2024-01-31` are columns of their rows, unless `partitioning` is "none". Every
    method that commits or locks has `options`, a dict of `hoodie.*` or `lakebed.*` keys. On a terminal a call of more
    than two seconds shows its progress, unless `progress` is False. The examples of the methods continue this one.

    >>> import lakebed, pyarrow as pa
    >>> rows = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", "Oslo"], "fare": [9.5, 12.0, 7.25], "ts": [1, 1, 1]})
    >>> t = lakebed.create("memory://example/trips", rows, key="id", partition_by="city", ordering="ts",
    ...                    type="mor", index="bucket", buckets=2)
    >>> t.upsert(rows).inserted
    3
    """

    def __init__(self, opened: OpenedTable) -> None:
        self.opened = opened  # what the views of this table, and lakebed's own programs, work with
        self.loaded: WriteResult | None = None  # what `lakebed.load` and `lakebed.convert` have written

    @property
    def uri(self) -> str:
        """The table's path or URL.

        >>> t.uri
        'memory://example/trips'
        """
        return self.opened.uri

    @property
    def name(self) -> str:
        """The table's name (`hoodie.table.name`).

        >>> t.name
        'trips'
        """
        return self.opened.config.name

    @property
    def schema(self) -> pa.Schema:
        """The table's current columns without Hudi's meta columns.

        >>> t.schema.names
        ['id', 'city', 'fare', 'ts']
        """
        return self.opened.steadily(data_columns)

    @property
    def properties(self) -> PropertiesView:
        """All properties in `hoodie.properties`, read from the file, as a dict that prints a line for each property.

        >>> t.properties["hoodie.table.type"]
        'MERGE_ON_READ'
        """
        from lakebed.table_views import PropertiesView

        return PropertiesView(self.opened.reload().properties)

    @property
    def timeline(self) -> TimelineView:
        """The instants of the active timeline: iterable, and printed as a table.

        >>> [instant.action.value for instant in t.timeline]
        ['deltacommit']
        """
        from lakebed.table_views import TimelineView

        return TimelineView(self.opened.snapshot().timeline)

    @property
    def versions(self) -> VersionsView:
        """The commits with small numbers, which `as_of` takes, and who wrote them: iterable, and printed as a table.

        >>> [(version.number, version.operation, version.inserted) for version in t.versions]
        [(1, 'upsert', 3)]
        """
        from lakebed.table_versions import VersionsView

        return VersionsView(self.opened)

    @property
    def files(self) -> FilesView:
        """The latest file slice of each file group: iterable, `.to_arrow()`, and printed as a table.

        >>> sorted(file_slice.partition for file_slice in t.files)
        ['Oslo', 'Rome']
        """
        from lakebed.table_views import listed_files

        return self.opened.steadily(listed_files)

    @property
    def partitions(self) -> Sequence[str]:
        """The partition paths that have files, in order. A table without partitions has one empty path.

        >>> t.partitions
        ('Oslo', 'Rome')
        """
        slices = self.opened.steadily(lambda view: view.file_slices())
        return tuple(dict.fromkeys(file_slice.partition for file_slice in slices))

    @property
    def features(self) -> FeaturesView:
        """The features of the read and write matrix that this table has: iterable, and printed as a table.

        >>> [(feature.name, feature.write) for feature in t.features]
        [('metadata table', 'yes'), ('merge-on-read', 'yes')]
        """
        from lakebed.table_views import FeaturesView

        return FeaturesView(self.opened.steadily(lambda view: features_of(view.config, table_features(view))))

    @property
    def columns(self) -> ColumnsView:
        """The table's columns with their types and comments: iterable, and printed as a table. Its methods add, drop,
        rename, widen, comment and move them.

        >>> [column.name for column in t.columns]
        ['id', 'city', 'fare', 'ts']
        """
        from lakebed.table_columns import ColumnsView

        return ColumnsView(self.opened)

    @property
    def checks(self) -> ChecksView:
        """The conditions that the table's rows have to fulfil: iterable, and printed as a table. Its methods add, drop
        and run them.

        >>> t.checks.add("positive", "fare >= 0").on_failure
        'reject'
        """
        from lakebed.table_checks import ChecksView

        return ChecksView(self.opened)

    @property
    def rejects(self) -> Table:
        """The table of rejects: rows that a check with `on_failure="quarantine"` kept out, each with its `check`, the
        time `rejected_at`, and its values in the struct column `row`. Raises `TableNotFound` if there was none yet.

        >>> _ = t.checks.add("positive", "fare >= 0", on_failure="quarantine")
        >>> t.upsert({"id": [9], "city": ["Oslo"], "fare": [-1.0], "ts": [9]}).quarantined
        1
        >>> t.rejects.scan(["check", "row"]).to_arrow().to_pylist()
        [{'check': 'positive', 'row': {'id': 9, 'city': 'Oslo', 'fare': -1.0, 'ts': 9}}]
        """
        from lakebed.operations.rejects import rejects_storage

        storage = rejects_storage(self.opened.storage)
        try:
            config = load_table_config(storage)
        except TableNotFound as error:
            raise TableNotFound(
                f"no row was kept out of {self.uri} yet, so there is no table of rejects",
                hint='A check that is added with on_failure="quarantine" puts rows there.',
            ) from error
        return Table(OpenedTable(storage, config, self.opened.spark, self.opened.reads))

    @property
    def blobs(self) -> BlobsView:
        """The files that the table's BLOB columns reference: `t.blobs.references()` lists them.

        >>> len(t.blobs.references())
        0
        """
        from lakebed.table_blobs import BlobsView

        return BlobsView(self.opened)

    @property
    def consumers(self) -> ConsumersView:
        """The table's named consumers with their positions and lags: iterable, and printed as a table. Its methods
        list, get, start, move and delete them.

        >>> len(t.consumers)
        0
        """
        from lakebed.table_consumers import ConsumersView

        return ConsumersView(self.opened)

    @property
    def indexes(self) -> IndexesView:
        """The index of writes and the indexes of the metadata table. Its methods list, create, drop, verify and repair
        them.

        `t.indexes.adopt` records the index of a table for which real Hudi recorded none.

        >>> [index.name for index in t.indexes.list()]
        ['files', 'column_stats', 'partition_stats']
        """
        from lakebed.table_indexes import IndexesView

        return IndexesView(self.opened)

    @property
    def maintenance(self) -> MaintenanceView:
        """The services that keep the table in shape, its repair and its version. Its methods compact, cluster, clean,
        archive, repair, upgrade, ...

        >>> print(t.maintenance.clean())
        nothing to clean: the last 10 commits are kept, and there are 1
        """
        from lakebed.table_maintenance import MaintenanceView

        return MaintenanceView(self.opened)

    @property
    def savepoints(self) -> SavepointsView:
        """The commits that cleaning and archival retain for `restore`: iterable, and printed as a table. Its methods
        list, create and delete them.

        >>> len(t.savepoints)
        0
        """
        from lakebed.table_savepoints import SavepointsView

        return SavepointsView(self.opened)

    @property
    def catalogs(self) -> CatalogsView:
        """The places where other programs find the table: entries in catalogs, and lists of Delta Lake and Iceberg. Its
        methods list, register and publish them.

        >>> len(t.catalogs)
        0
        """
        from lakebed.table_catalogs import CatalogsView

        return CatalogsView(self.opened)

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
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Insert rows with new keys, and update the rows of existing keys by the table's merge mode.

        With `partial` the rows may lack columns: they need the key, partition and ordering columns, and the columns to
        change. Existing rows keep their values in the other columns, new rows have nulls there.

        A write that loses against a concurrent one is planned and run again up to `retries` times, with a growing
        pause. Then it raises `CommitConflict`. Every write method takes `retries`; the default is the table's
        `hoodie.write.num.retries.on.conflict.failures` (0). Each run evaluates a DataFrame again. `once`, another
        argument of every write method, names a batch that is not written where the table has it (`lakebed.Once`).
        `message` and `metadata`, a dict of names and values, are recorded with the commit, as every write method does;
        `t.versions` shows them.

        >>> _ = t.upsert(pa.table({"id": [1, 4], "city": ["Oslo", "Rome"], "fare": [10.0, 3.0], "ts": [2, 2]}))
        >>> t.get([1, 4], columns=["id", "fare"]).to_pylist()
        [{'id': 1, 'fare': 10.0}, {'id': 4, 'fare': 3.0}]
        """
        from lakebed.operations import hudi_job
        from lakebed.operations.upsert import upsert

        rows = self.opened.data(data, partitioning)
        noted = hudi_job.with_partial(partial, self.opened.noted(options, message, metadata))
        return self.opened.write(upsert, rows, noted, "upsert", retries, progress, once)

    def insert(
        self,
        data: Any,
        *,
        partitioning: Partitioning | None = None,
        progress: bool = True,
        retries: int | None = None,
        once: Once | None = None,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
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
        from lakebed.operations.upsert import insert

        rows, noted = self.opened.data(data, partitioning), self.opened.noted(options, message, metadata)
        return self.opened.write(insert, rows, noted, "insert", retries, progress, once)

    def bulk_insert(
        self,
        data: Any,
        *,
        partitioning: Partitioning | None = None,
        progress: bool = True,
        retries: int | None = None,
        once: Once | None = None,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
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
        from lakebed.operations.upsert import bulk_insert

        rows, noted = self.opened.data(data, partitioning), self.opened.noted(options, message, metadata)
        return self.opened.write(bulk_insert, rows, noted, "bulk_insert", retries, progress, once)

    def delete(
        self,
        keys: Any = None,
        *,
        where: Any = None,
        dry_run: bool = False,
        progress: bool = True,
        retries: int | None = None,
        once: Once | None = None,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
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
        from lakebed.inputs.files import is_path_of_files
        from lakebed.operations.delete import count_deletes, delete, rows_to_delete

        selector = rows_to_delete(self.opened.data(keys, None) if is_path_of_files(keys) else keys, where)
        if dry_run:
            return self.opened.again(
                lambda: count_deletes(self.opened.context(selector, options, "delete"), selector), progress=progress
            )
        noted = self.opened.noted(options, message, metadata)
        return self.opened.write(delete, selector, noted, "delete", retries, progress, once)

    def merge(self, source: Any, on: Any = None, *, target: str = "t", source_alias: str = "s") -> Merge:
        """Begin a MERGE of source rows. Its clauses say what happens to rows that match and to rows that do not match.

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
        from lakebed.operations.merge_statement import MergeStatement
        from lakebed.table_merge import Merge

        rows = self.opened.data(source, None)
        return Merge(rows, MergeStatement(on, target, source_alias), self.opened.merge, self.opened.plan_merge)

    def update(
        self,
        set: Mapping[str, Any],
        *,
        where: str | None = None,
        retries: int | None = None,
        once: Once | None = None,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
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
        from lakebed.operations.delete import Where
        from lakebed.operations.merge import merge
        from lakebed.operations.merge_statement import update_statement

        statement = update_statement(set, where)
        rows = Where("true" if where is None else where)
        noted = self.opened.noted(options, message, metadata, "update")
        return self.opened.merge(lambda context, _: merge(context, None, statement), rows, noted, retries, once)

    def erase(
        self,
        keys: Any = None,
        *,
        where: Any = None,
        dry_run: bool = False,
        progress: bool = True,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> ErasureReport:
        """Delete rows with all their earlier versions: afterwards no file of the table has a value of them.

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
        from lakebed.engine.arrow_data import is_read_once, to_arrow_table
        from lakebed.engine.base import session_of
        from lakebed.operations import hudi_job
        from lakebed.operations.delete import rows_to_delete
        from lakebed.services.erasure import Erasure
        from lakebed.services.erasure_report import ErasureReport

        selector = rows_to_delete(keys, where, "erase")
        selector = to_arrow_table(selector) if is_read_once(selector) else selector
        engine = hudi_job.session_engine(session_of(selector), self.opened.reads)
        with hudi_job.evaluated_once(engine, selector) as same:  # what is deleted is what is looked for afterwards
            noted = self.opened.noted(options, message, metadata, "erase")
            renew = partial(self.opened.context, same, noted, "delete")
            erasure = partial(Erasure(renew, same).run, dry_run=dry_run)
            report = self.opened.committed(erasure, options, preview=dry_run, progress=progress)
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
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Replace all rows of the partitions that the data falls into, or with `scope="table"` of the whole table.

        >>> _ = t.insert_overwrite([{"id": 9, "city": "Oslo", "fare": 1.0, "ts": 3}])
        >>> sorted(t.scan().to_arrow()["id"].to_pylist())
        [2, 9]
        """
        from lakebed.operations.overwrite import insert_overwrite

        verb = "insert_overwrite_table" if scope == "table" else "insert_overwrite"
        rows, noted = self.opened.data(data, partitioning), self.opened.noted(options, message, metadata)
        return self.opened.write(
            lambda context, rows: insert_overwrite(context, rows, scope), rows, noted, verb, retries, progress, once
        )

    def delete_partitions(
        self,
        partitions: str | Sequence[str],
        *,
        dry_run: bool = False,
        retries: int | None = None,
        once: Once | None = None,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Delete all rows of these partition paths, or of one path. `*` in a path matches any text. With `dry_run` the
        rows are only counted (`replaced_rows`).

        >>> _ = t.delete_partitions("Os*")
        >>> t.partitions
        ('Rome',)
        """
        from lakebed.operations.overwrite import delete_partitions

        paths = [partitions] if isinstance(partitions, str) else partitions
        if dry_run:
            arguments = options, "delete_partition"
            return self.opened.again(
                lambda: delete_partitions(self.opened.context(None, *arguments), paths, dry_run=True)
            )
        noted = self.opened.noted(options, message, metadata)
        return self.opened.write(
            lambda context, _: delete_partitions(context, paths), None, noted, "delete_partition", retries, once=once
        )

    def stage(self) -> StagedTable:
        """Begin a write that is looked at before it is committed: `with t.stage() as staged`.

        The staged table has the writes and the reads of this one. One write is written and not committed; reads show
        the table with it, and nobody else sees it. `staged.commit()` makes it visible. Leaving the block without a
        commit, or by an error, rolls the write back.

        >>> with t.stage() as staged:
        ...     _ = staged.delete(where="fare > 0")
        ...     staged.count(), t.count()
        (0, 3)
        >>> t.count()
        3
        """
        return StagedTable(self)

    def explain(self, *, upsert: Any, partial: bool = False, options: Mapping[str, Any] | None = None) -> WritePlan:
        """The plan of `upsert(data)`: index, file groups, bytes to be rewritten. Counts the rows and writes nothing.

        >>> plan = t.explain(upsert=rows)
        >>> plan.rows, plan.engine
        (3, 'local')
        """
        from lakebed.operations import hudi_job
        from lakebed.operations.upsert import explain_upsert

        job_options = hudi_job.with_partial(partial, options)
        rows = self.opened.data(upsert, None)
        return self.opened.again(lambda: explain_upsert(self.opened.context(rows, job_options, "upsert"), rows))

    # -- reads

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        as_of: When | None = None,
        query: Query = "snapshot",
        *,
        meta: bool = False,
    ) -> Scan:
        """A lazy read of the table's rows.

        `.to_spark()`, `.to_arrow()`, `.to_batches()`, `.to_pandas()`, `.to_polars()` and `.count()` run it. `where` is
        a SQL condition or a `pyarrow.compute.Expression`. `as_of` is an instant, a timestamp or a date (without a zone
        in the Spark session's, or the machine's), the number of a version (`t.versions`), the name of a savepoint, or
        the result of a write; not before the table's first commit and not in the future.
        `meta=True` adds Hudi's five meta columns, and `_hoodie_operation` where the table has it.
        `query="read_optimized"` reads base files only.

        Raises `InvalidOption` for columns that the table lacks and times outside its history.

        >>> t.scan(columns=["id", "fare"], where="city = 'Rome'").to_arrow().to_pylist()
        [{'id': 2, 'fare': 12.0}]
        """
        from lakebed.read.scan import Scan

        return Scan(
            self.opened.view(as_of),
            columns=columns,
            where=where,
            query=query,
            meta=meta,
            spark=self.opened.spark,
            reads=self.opened.reads,
        )

    def search(
        self,
        vector: Any = None,
        k: int = 10,
        column: str | None = None,
        metric: Metric = "cosine",
        *,
        text: str | None = None,
        text_column: str | None = None,
        where: Any = None,
        max_distance: float | None = None,
        columns: Sequence[str] | None = None,
        as_of: When | None = None,
        exact: bool = False,
        probes: int | None = None,
        rerank: int | None = None,
    ) -> Search | TextSearch | FusedSearch:
        """A lazy read of the `k` rows whose vectors are nearest to a vector, in ascending order of the distance, or
        whose texts match a `text` best, in descending order of the score.

        Where the table has a vector index for the column and the metric, the index names rows that may be near, and
        these are compared: an answer has rows of the table as it is, with their exact distances, but may miss one.
        `probes` is the number of clusters of the index that are looked at, `rerank` how many rows are compared. Without
        an index, and with `exact`, every row that fulfils `where` is compared. `column` is the vector column (None: the
        only one). The result has the table's columns but the vector, or `columns`, and `_hudi_distance`: of the metric
        "cosine" one minus the cosine, of "l2" the root of the sum of squares, of "dot_product" the negated product.
        Rows farther than `max_distance` and rows without a vector are left out. A matrix is a batch: the result has the
        nearest rows of each of its rows, with the number of the query in `_hudi_query_index`.

        With a `text` alone the rows are those that have one of its words in `text_column` (None: the column of the
        only text index, or the only column of texts), by their score in `_score`, which is BM25 over all rows of the
        table. A text index has the same scores as reading all texts. With a vector and a text the ranks of both answers
        are fused, by the sum of 1 / (60 + rank), which is then `_score`.

        Raises `InvalidOption` for a column that is no vector or no text, for a vector of another dimension, for a text
        without words, and for `probes` or `rerank` with `exact`.

        >>> texts = lakebed.create("memory://docs/texts", pa.schema([("id", pa.int64()), ("at", lakebed.vector(2))]),
        ...                        key="id")
        >>> _ = texts.upsert({"id": [1, 2], "at": [[1.0, 0.0], [0.0, 1.0]]})
        >>> texts.search([3.0, 0.1], k=1).to_arrow()["id"].to_pylist()
        [1]
        """
        from lakebed.read.fused_search import search_of
        from lakebed.read.search import SearchOptions
        from lakebed.read.text_search import TextOptions

        by_vector = SearchOptions(k, column, metric, max_distance, columns, exact, probes, rerank)
        by_text = None if text is None else TextOptions(text, k, text_column, columns, exact)
        if by_text is None and text_column is not None:
            raise InvalidOption(
                "text_column is the column of a search by words, and there is no text to search for",
                hint="give a text as well, or name the column of vectors with column",
                context={"argument": "text_column"},
            )
        return search_of(self.scan(where=where, as_of=as_of), vector, by_vector, by_text)

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

    def to_polars(self, where: Any = None, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows, or those that fulfil a condition, as a polars DataFrame: `scan(columns, where).to_polars()`.

        >>> t.to_polars(where="fare < 10", columns=["fare"])["fare"].sum()
        16.75
        """
        return self.scan(columns, where).to_polars()

    def head(self, rows: int = 5) -> pa.Table:
        """The first rows that a read finds, as an Arrow table; no more is read than that takes.

        >>> t.head(2).num_rows
        2
        """
        return self.scan().head(rows)

    def sample(self, rows: int = 5, *, seed: int | None = None) -> pa.Table:
        """Rows chosen at random, as an Arrow table; the same `seed` chooses the same. The table is read as a whole.

        >>> t.sample(2).num_rows
        2
        """
        return self.scan().sample(rows, seed=seed)

    def to_pandas(self, where: Any = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The rows, or those that fulfil a condition, as a pandas DataFrame: `scan(columns, where).to_pandas()`.

        >>> t.to_pandas(where="fare < 10", columns=["fare"])["fare"].sum()
        np.float64(16.75)
        """
        return self.scan(columns, where).to_pandas()

    def join(
        self,
        other: Table | Scan,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner",
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        suffix: str = "_right",
    ) -> BucketJoin:
        """The rows of this table with the rows of another table that have the same key, bucket by bucket: without a
        shuffle, and with only one bucket of both in memory. The result is a lazy read: `.to_batches()`, `.to_arrow()`,
        `.to_spark()`, ...

        Both have a bucket index over columns of the same types; their numbers of buckets may differ. `on` are the
        columns that must be equal, the bucket key among them (None: the bucket key), or a dict of this table's names to
        the other's. `columns` and `where` are of the result: this table's columns, then the other's, those with a name
        that is taken with `suffix`. `other` may be a scan with a condition of its own, or as of another time.

        Raises `UnsupportedFeature` if a table has no bucket index, `InvalidOption` if they are hashed otherwise
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
        from lakebed.read.bucket_join import BucketJoin
        from lakebed.read.scan import Scan

        if not isinstance(other, Table | Scan):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(f"join() takes a table or a scan, not {type(other).__name__}", hint="open it first")
        other_scan = other if isinstance(other, Scan) else other.scan()
        return BucketJoin(
            self.scan(),
            other_scan,
            on=on,
            how=how,
            columns=columns,
            where=where,
            suffix=suffix,
            spark=self.opened.spark,
        )

    def changes(
        self,
        start: When,
        end: When | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
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
        from lakebed.read.incremental import Changes

        return Changes(
            self.opened.snapshot(looks_up=True),
            self.opened.moment(start),
            None if end is None else self.opened.moment(end),
            columns=columns,
            where=where,
            meta=meta,
            spark=self.opened.spark,
            reads=self.opened.reads,
        )

    def cdc(
        self,
        start: When,
        end: When | None = None,
        *,
        columns: Sequence[str] | None = None,
        images: Images = "rows",
    ) -> ChangeLog:
        """The inserts, updates and deletes of the commits in (start, end], with the row before and after each.

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
        from lakebed.read.cdc import ChangeLog

        last = None if end is None else self.opened.moment(end)
        return ChangeLog(
            self.opened.snapshot(),
            self.opened.moment(start),
            last,
            columns,
            images,
            self.opened.spark,
            self.opened.reads,
        )

    def consume(
        self,
        name: str,
        *,
        cdc: bool = False,
        start: When = "earliest",
        max_commits: int | None = None,
        columns: Sequence[str] | None = None,
        where: Any = None,
        images: Images = "rows",
        options: Mapping[str, Any] | None = None,
    ) -> Consumption:
        """The next batch of a named consumer, as a context manager. The position of the consumer is recorded in the
        table.

        The block gets the rows written since the last batch, as `changes` returns them, or with `cdc` the changes, as
        `cdc` returns them; `.start` and `.end` are its positions; a write with `once=batch.once()` is done once. The
        position moves when the block ends without an error. A new consumer begins at `start`: `earliest`, `latest`, a
        checkpoint, an instant or a time. A batch has at most `max_commits` commits; from the beginning it is the table.

        Cleaning and archival retain what the consumer has not read, for at most `lakebed.consumers.max_lag` seconds.
        Raises `CheckpointBehind` if something of the batch was cleaned or archived after that; its message names the
        first usable position. Raises `CommitConflict` if another process has moved the consumer meanwhile.

        >>> with t.consume("daily") as batch:
        ...     batch.to_arrow().num_rows
        3
        >>> with t.consume("daily") as batch:
        ...     batch.to_arrow().num_rows
        0
        """
        from lakebed.read.commit_feed import BatchLimits
        from lakebed.table_consumers import BatchRequest, Consumption

        limits = BatchLimits(commits=max_commits)
        return Consumption(self.opened, name, BatchRequest(start, cdc, limits, columns, where, images), options)

    def diff(self, start: When, end: When | None = None, *, columns: Sequence[str] | None = None) -> Diff:
        """The rows that differ between the table as of `start` and as of `end` (None: now): inserted, updated, deleted.

        Both are what `as_of` of `scan` takes. It prints as a summary and the first rows; `.to_arrow()` has each row
        before and after, and which columns changed. `columns` are those that are compared and shown (None: all).

        >>> before = t.timeline.last
        >>> _ = t.upsert([{"id": 1, "city": "Oslo", "fare": 11.0, "ts": 5}])
        >>> t.diff(before).summary
        0 inserted, 1 updated (fare 1, ts 1), 0 deleted
        """
        from lakebed.read.diff import Diff

        return Diff(
            self.opened.view(start, option="start"), self.opened.view(end, option="end"), columns, self.opened.reads
        )

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these keys as an Arrow table. The index finds them, without a Spark job. Missing keys have no
        row.

        `keys` are those of `delete`. Raises `InvalidOption` for keys of other fields or types.

        >>> t.get([2, 99], columns=["fare"]).to_pylist()
        [{'fare': 12.0}]
        """
        return self.opened.steadily(lambda view: lookup.get(view, keys, columns), looks_up=True)

    def read_blob(self, source: Any, column: str) -> Iterator[bytes | None]:
        """The bytes of a BLOB column, one value after another, of the rows of these keys, or of rows.

        `source` are keys as `get` takes them, a scan of this table (`t.scan(where=...)`, whose other columns are not
        read), or rows in Arrow that have the column. Keys give a value each, in their order. A null is None, and so is
        a key without a row. Bytes of other files are read by the table's storage options: ranges of a file that are
        near each other by one request, and at most 64 MiB ahead of what the caller took.

        Raises `CorruptFile` for a file that is missing or too short, with the row and its path, and `InvalidOption` for
        a column that is no BLOB.

        >>> schema = pa.schema([("id", pa.int64()), ("pic", lakebed.BLOB)])
        >>> pictures = lakebed.create("memory://docs/pictures", schema, key="id")
        >>> _ = pictures.upsert({"id": [1, 2], "pic": lakebed.blob(data=[b"a picture", None])})
        >>> list(pictures.read_blob([2, 1, 99], "pic")), list(pictures.read_blob(pictures.scan(where="id = 1"), "pic"))
        ([None, b'a picture', None], [b'a picture'])
        """
        from lakebed.read.blobs import blobs_of_keys, blobs_of_rows, is_rows

        if is_rows(source, column):
            return blobs_of_rows(self.opened.storage.spec, self.opened.config, source, column)
        return blobs_of_keys(self.opened.storage.spec, self.opened.steadily, source, column)

    def history(self, keys: Any, *, before: str | None = None, lookups: int = 100) -> RowHistory:
        """The versions of one key's rows that can still be read, newest first, each with the change by its commit and
        the row before and after. The result is a sequence of `RowVersion`, with `.to_arrow()`.

        `keys` is that of `get`, with one key. It is looked up in at most `lookups` commits; `.before` of the result is
        where to go on, `.note` why it ended. Raises `InvalidOption` for several keys and keys of another type.

        >>> _ = t.upsert([{"id": 2, "city": "Rome", "fare": 14.0, "ts": 3}])
        >>> [(one.change, one.after["fare"]) for one in t.history([2])]
        [('update', 14.0), ('insert', 12.0)]
        """
        from lakebed.read.history import row_history

        return self.opened.steadily(lambda view: row_history(view, keys, before=before, lookups=lookups))

    def exists(self, keys: Any) -> pa.BooleanArray:
        """Whether the table has each of these keys, as a boolean for each, in the order of `keys`.

        >>> t.exists([2, 99]).to_pylist()
        [True, False]
        """
        return self.opened.steadily(lambda view: lookup.exists(view, keys))

    def locate(self, keys: Any) -> pa.Table:
        """The places where the keys are stored, as a table with the columns key, partition_path, file_id and instant
        (of the file slice).

        >>> t.locate([2])["partition_path"].to_pylist()
        ['Rome']
        """
        return self.opened.steadily(lambda view: lookup.locate(view, keys))

    def count(self, *, where: Any = None) -> int:
        """The number of rows, or of the rows that fulfil a condition.

        Files without log files are not opened, if there is no condition or one on partition columns, and commits or
        the metadata table have their exact numbers of rows.

        >>> t.count(), t.count(where="city = 'Oslo'")
        (3, 2)
        """
        return self.scan(where=where).count()

    def __len__(self) -> int:
        return self.count()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table's rows for any library that takes Arrow streams: `polars.DataFrame(t)`, `duckdb.sql("from t")`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    # -- state and settings

    def clone(
        self,
        uri: str | os.PathLike[str],
        *,
        deep: bool = False,
        progress: bool = True,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Table:
        """Make a table at `uri` with the rows that this one has now, and return it: without a copy of the rows, or with
        `deep` a copy. Writes to either table never touch the other.

        The clone has the columns, key, partitions, index and settings of this table, a name of its own, one commit, and
        none of its indexes of the metadata table, catalogs and published lists. Without `deep` it reads the base files
        of this table: a savepoint named `clone <uri>` keeps them, and has to stay as long as the clone is used.
        `options` are those of the writes; `message` and `metadata`, a dict of names and values, are recorded with the
        commit of the clone.

        Raises `UnsupportedFeature` with the reason where the rows have to be copied: log files, an index that notes the
        place of each key, files with other columns. Raises `TableExists`. After an error there is no clone.

        >>> trial = t.clone("memory://docs/trial", deep=True)
        >>> trial.delete([1]).operation, trial.count(), t.count()
        ('delete', 2, 3)
        >>> lakebed.drop(trial.uri)
        []
        """
        from lakebed.catalog.names import catalog_of_new_table, target_uri
        from lakebed.services.clone import copied_clone, shallow_clone
        from lakebed.storage.opening import open_storage

        target, catalog = open_storage(target_uri(uri), self.opened.storage.spec.options), catalog_of_new_table(uri)
        noted = self.opened.noted(options, message, metadata)
        context = self.opened.context(None, noted, "clone")
        if not deep:
            result = shallow_clone(context, target, resolve_options(noted))
        else:
            result = copied_clone(context, target, self.scan(), progress=progress)
        clone = Table(OpenedTable(target, load_table_config(target), self.opened.spark, self.opened.reads))
        clone.loaded = result
        if catalog is not None:
            clone.catalogs.register(*catalog)
        return clone

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
        from lakebed.services.configure import configure

        return self.opened.again(
            lambda: configure(self.opened.storage, settings, resolve_options(options).write, dry_run=dry_run)
        )

    def restore(
        self, to: When | None = None, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> RestoreResult:
        """Return the table to the state when the commit `to` completed: an instant, a savepoint or its name, the number
        of a version, or the result of a write.

        All later commits are rolled back for good. With `dry_run` the result names them, and nothing changes. Without
        `to` an interrupted restore is finished.

        >>> saved = t.savepoints.create()
        >>> _ = t.delete([1, 2, 3])
        >>> _ = t.restore(saved)
        >>> t.count()
        3
        """
        from lakebed.read.moments import instant_of
        from lakebed.services.restore import restore

        instant = None if to is None else instant_of(to, self.opened.snapshot().timeline)
        return self.opened.committed(
            lambda: restore(self.opened.context(None, options, "restore"), instant, dry_run=dry_run),
            options,
            preview=dry_run,
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
        from lakebed.services.restore import rollback

        context = partial(self.opened.context, None, options, "rollback")
        return self.opened.committed(lambda: rollback(context(), instant, dry_run=dry_run), options, preview=dry_run)

    def undo(self, *, dry_run: bool = False, options: Mapping[str, Any] | None = None) -> UndoResult:
        """Take back the newest write, with what services did after it. With `dry_run` the result says what would be
        undone, and nothing changes.

        Raises `InvalidOption` if there is no write, if it has a savepoint, or if files that are needed were cleaned;
        `CommitConflict` if another process takes it back, or writes, at the same time.

        >>> _ = t.delete([1], message="by mistake")
        >>> undone = t.undo()
        >>> undone.operation, undone.deleted, undone.message, t.count()
        ('delete', 1, 'by mistake', 3)
        """
        from lakebed.services.undo_newest import undo

        context = partial(self.opened.context, None, options, "rollback")
        return self.opened.committed(lambda: undo(context, dry_run=dry_run), options, preview=dry_run)

    if not TYPE_CHECKING:  # for type checkers an attribute is one of those above

        def __getattr__(self, name: str) -> Any:
            raise MissingAttribute("lakebed.Table", name, dir(type(self)))

    def __repr__(self) -> str:
        keys = ", ".join(self.opened.config.key_fields) or "generated"
        partitions = ", ".join(self.opened.config.partition_fields) or "none"
        return (
            f"lakebed.Table({self.name!r}, {self.uri}, version {self.opened.config.version},"
            f" {self.opened.config.table_type}, "
            f"key: {keys}, partitions: {partitions})"
        ) + ("" if self.loaded is None else f"\n{self.loaded}")

    def _repr_html_(self) -> str:
        from lakebed.table_views import table_html

        return self.opened.steadily(table_html)


Query = Literal["snapshot", "read_optimized"]

# What a staged table has of the methods of a table.
_WRITES: Final = frozenset(
    ("upsert", "insert", "bulk_insert", "delete", "merge", "update", "insert_overwrite", "delete_partitions", "explain")
)
_READS: Final = frozenset(
    {
        *("uri", "name", "schema", "properties", "partitions", "files", "features"),
        *("scan", "search", "dataset", "to_arrow", "to_polars", "to_pandas", "head", "join", "diff"),
        *("get", "exists", "locate", "count", "read_blob"),
    }
)


@public_methods_check_arguments
class StagedTable(Table):
    """A table with one write that is not committed: `with t.stage() as staged`.

    It has the writes and the reads of a table. Its first write writes files, and is not visible to others. Its reads
    show the table with that write. `commit` makes the write visible in one commit; leaving the block without it, or by
    an error, rolls the write back. Services and changes of settings are not part of a stage.

    >>> import lakebed
    >>> fares = lakebed.create("memory://docs/staged", {"id": [1], "fare": [1.0]}, key="id")
    >>> _ = fares.upsert({"id": [1, 2], "fare": [9.0, 8.0]})
    >>> with fares.stage() as staged:
    ...     _ = staged.upsert({"id": [2, 3], "fare": [8.5, -1.0]})
    ...     if staged.count(where="fare < 0") == 0:
    ...         _ = staged.commit()
    >>> fares.count()
    2
    """

    opened: OpenedStage

    def __init__(self, table: Table) -> None:
        from lakebed.table_stage import OpenedStage

        super().__init__(OpenedStage(table.opened))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.opened.stage.discard(error)

    def commit(self) -> WriteResult:
        """Make the write visible: one commit. Returns the result of the write, and runs the services that it makes due.

        Raises `CommitConflict` if another writer has changed the same file groups since the write began, and
        `InvalidOption` for a stage without a write. Nothing is visible then.

        >>> with t.stage() as staged:
        ...     _ = staged.upsert([{"id": 4, "city": "Rome", "fare": 7.0, "ts": 2}])
        ...     staged.commit().operation
        'upsert'
        >>> t.count()
        4
        """
        return self.opened.commit()

    def diff(self, start: When | None = None, end: When | None = None, *, columns: Sequence[str] | None = None) -> Diff:
        """The rows that the write inserts, updates and deletes: the table without it compared with the table with it.

        `columns` are those that are compared and shown (None: all). `start` and `end` are of `Table.diff`.

        >>> with t.stage() as staged:
        ...     _ = staged.delete([1])
        ...     staged.diff().summary
        0 inserted, 0 updated, 1 deleted
        """
        from lakebed.read.diff import Diff

        if start is not None or end is not None:
            raise InvalidOption(
                "a stage compares the table without its write and with it, and no other times",
                hint="compare other times with t.diff(start, end)",
                context={"argument": "start" if start is not None else "end"},
            )
        return Diff(self.opened.before(), self.opened.snapshot(looks_up=True), columns, self.opened.reads)

    if not TYPE_CHECKING:  # for type checkers an attribute is one of those above

        def __getattr__(self, name: str) -> Any:
            from lakebed.table_stage import NotStaged

            if isinstance(getattr(type(self), name, None), _Refused):
                raise NotStaged(name)
            return super().__getattr__(name)

    def __repr__(self) -> str:
        result = self.opened.result
        state = "no write yet" if result is None else f"{result.operation} of {result.rows:,} rows"
        ended = "ended" if self.opened.stage.has_ended else "not committed"
        return f"{super().__repr__()}\nstage: {state}, {ended}"


class _Refused:
    """A method or property of a table that a stage does not have."""

    def __get__(self, stage: StagedTable | None, owner: type) -> Self:
        if stage is None:
            return self
        raise AttributeError  # Python asks `__getattr__` then


for _name in dir(Table):
    if not _name.startswith("_") and _name not in {*_WRITES, *_READS}:
        setattr(StagedTable, _name, _Refused())

"""The one public object: a table. Every method hands over to the room that does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from lakebed.config.arguments import public_methods_check_arguments, refused, whole_number
from lakebed.config.features import Feature, features_of
from lakebed.config.options import resolve_options
from lakebed.config.settings import ReadSettings
from lakebed.engine.base import Engine
from lakebed.errors import InvalidOption
from lakebed.index.base import Resizing
from lakebed.metadata.lookups import open_snapshot
from lakebed.operations.context import WriteContext
from lakebed.operations.delete import delete
from lakebed.operations.hudi_job import (
    asking_for,
    bytes_of_files,
    check_verb,
    choose_engine,
    run_again,
    session_engine,
    write_context,
)
from lakebed.operations.overwrite import delete_partitions, insert_overwrite
from lakebed.operations.plan import WritePlan
from lakebed.operations.result import WriteResult
from lakebed.operations.upsert import bulk_insert, explain_upsert, insert, upsert
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import CURRENT_VERSION, TableConfig
from lakebed.read import lookup
from lakebed.read.bucket_join import BucketJoin
from lakebed.read.cdc import ChangeLog, Images
from lakebed.read.incremental import Changes, When, in_local_zone, refuse_outside, resolve_as_of
from lakebed.read.plan import data_columns
from lakebed.read.reopening import read_again
from lakebed.read.scan import Scan, refuse_cleaned
from lakebed.services.archival import ArchivalResult, archive
from lakebed.services.change_index import Rescaled, rescale
from lakebed.services.cleaning import CleanResult, clean
from lakebed.services.clustering import ClusteringResult, cluster, merge_small_files
from lakebed.services.compaction import CompactionResult, compact
from lakebed.services.configure import Configured, configure
from lakebed.services.due import engine_for, engine_for_all, run_due_services
from lakebed.services.log_compaction import compact_logs
from lakebed.services.partition_ttl import PartitionTtlResult, expire_partitions
from lakebed.services.repair import Part, RepairResult, repair_table
from lakebed.services.restore import RestoreResult, RollbackResult, restore, rollback
from lakebed.services.savepoint import Savepoint, delete_savepoint, savepoint, savepoints
from lakebed.services.upgrade import VersionChange, downgrade, upgrade
from lakebed.slices.snapshot import Snapshot, table_features
from lakebed.storage.base import Storage
from lakebed.table_indexes import IndexesView
from lakebed.table_views import FilesView, TimelineView, table_html

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
# Views of so many moments are kept while nothing changes.
_VIEWS = 4


def _files(view: Snapshot) -> FilesView:
    view.file_slices()  # listed now, while the view is the latest
    return FilesView(view)


def _with_words(words: Mapping[str, Any], options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a call, which come before those that its words stand for; words of None say nothing."""
    return {**{key: value for key, value in words.items() if value is not None}, **(options or {})}


@public_methods_check_arguments
class Table:
    """A keyed table in Hudi's format. Made by `lakebed.create` and `lakebed.open`.

    Rows go in and come out as Spark DataFrames or as anything with the Arrow stream protocol. Every write verb takes
    `options`, a dict of `hoodie.*` or `lakebed.*` keys, and gives a `WriteResult`.
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
        # the view of the last read: what it has listed and looked up holds until a timeline changes
        self._views: dict[str | None, Snapshot] = {}

    @property
    def uri(self) -> str:
        return self._storage.spec.uri

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def schema(self) -> pa.Schema:
        """The table's columns now, Hudi's meta columns left out."""
        return self._steadily(data_columns)

    @property
    def properties(self) -> Mapping[str, str]:
        """Everything in `hoodie.properties`, as it is now."""
        self._config = load_table_config(self._storage)
        return dict(self._config.properties)

    @property
    def timeline(self) -> TimelineView:
        """The instants of the active timeline: iterable, and a table to look at."""
        return TimelineView(self._snapshot().timeline)

    @property
    def files(self) -> FilesView:
        """The latest file slices: iterable, `.to_arrow()`, and a table to look at."""
        return self._steadily(_files)

    @property
    def partitions(self) -> Sequence[str]:
        """The partition paths that have files, in order; one empty text for a table without partitions."""
        slices = self._steadily(lambda view: view.file_slices())
        return tuple(dict.fromkeys(file_slice.partition for file_slice in slices))

    @property
    def features(self) -> tuple[Feature, ...]:
        """What this table has of the read and write matrix, each with what lakebed does about it."""
        return self._steadily(lambda view: features_of(view.config.properties, table_features(view)))

    @property
    def indexes(self) -> IndexesView:
        """The index of writes and those of the metadata table: list, create, drop, verify, repair; and `adopt` to tell
        the index where real Hudi left no trace."""
        return IndexesView(self)

    # -- writes

    def upsert(
        self,
        data: Any,
        *,
        partial: bool = False,
        retries: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Insert rows with new keys, and replace rows of known keys by the table's merge mode.

        With `partial` the rows may have some of the columns: key, partition and ordering columns and those to be
        changed. Known keys keep what is stored in the others, new keys have nulls there.

        A write that loses against a concurrent one is planned anew and run again up to `retries` times, with a growing
        pause, then raises `CommitConflict`; every verb takes that, and without it goes by the table's
        `hoodie.write.num.retries.on.conflict.failures` (0). A DataFrame is evaluated by each run.
        """
        return self._write(upsert, data, _partial(partial, options), "upsert", retries)

    def insert(self, data: Any, *, retries: int | None = None, options: Mapping[str, Any] | None = None) -> WriteResult:
        """Add rows without looking for their keys.

        With `options={"hoodie.datasource.write.insert.drop.duplicates": True}` known keys are left out.
        """
        return self._write(insert, data, options, "insert", retries)

    def bulk_insert(
        self, data: Any, *, retries: int | None = None, options: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Load many rows into new file groups, without looking for keys and without filling small files."""
        return self._write(bulk_insert, data, options, "bulk_insert", retries)

    def delete(
        self, keys_or_predicate: Any, *, retries: int | None = None, options: Mapping[str, Any] | None = None
    ) -> WriteResult:
        """Delete rows by key or by a SQL predicate.

        Keys: a list of values of a single key field, of tuples, `lakebed.KeyText([...])`, or a table with the key
        columns (and partition columns, where known). Keys without their partition are looked for in all partitions.
        """
        return self._write(delete, keys_or_predicate, options, "delete", retries)

    def insert_overwrite(
        self,
        data: Any,
        scope: Literal["partitions", "table"] = "partitions",
        *,
        retries: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Replace all rows of the partitions that the data falls into, or of the whole table."""
        verb = "insert_overwrite_table" if scope == "table" else "insert_overwrite"
        return self._write(lambda context, rows: insert_overwrite(context, rows, scope), data, options, verb, retries)

    def delete_partitions(
        self,
        partitions: str | Sequence[str],
        *,
        retries: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> WriteResult:
        """Drop all rows of these partition paths (or of one); `*` in a path stands for any text."""
        paths = [partitions] if isinstance(partitions, str) else partitions
        return self._write(
            lambda context, _: delete_partitions(context, paths), None, options, "delete_partition", retries
        )

    def explain(self, *, upsert: Any, partial: bool = False, options: Mapping[str, Any] | None = None) -> WritePlan:
        """What `upsert(data)` would do: index, file groups, bytes rewritten. Counts the rows, writes nothing."""
        given = _partial(partial, options)
        return self._again(lambda: explain_upsert(self._context(upsert, given, "upsert"), upsert))

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
        if not isinstance(other, Table | Scan):  # pyright: ignore[reportUnnecessaryIsInstance]
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

    # -- services

    def configure(
        self, settings: Mapping[str, Any], *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> Configured:
        """Change what the table remembers of how its services run (`hoodie.compact.*`, ...), under its lock; a value of
        None takes a setting off. With `dry_run` only say what would change. Options of a call come before them."""
        return self._again(lambda: configure(self._storage, settings, resolve_options(options).write, dry_run=dry_run))

    def compact(
        self,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        when_due: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> CompactionResult:
        """Merge the log files of a merge-on-read table into new base files: run the plans that are pending, then
        everything else that has log files. Writes go on beside it.

        `plan_only` makes the plan and leaves it to another process to run, `dry_run` only shows it; `when_due` makes
        one only where the table's trigger (`hoodie.compact.inline.*`) says so. Tables made by lakebed compact by
        themselves as they are written.
        """
        return self._again(
            lambda: compact(
                self._service_context(options, "compact"), plan_only=plan_only, dry_run=dry_run, when_due=when_due
            )
        )

    def compact_logs(
        self,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        when_due: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> CompactionResult:
        """Merge the log blocks of file slices that have many (`hoodie.log.compaction.blocks.threshold`) into few,
        without touching base files: cheaper than `compact`, and reads get by with less."""
        return self._again(
            lambda: compact_logs(
                self._service_context(options, "compact"), plan_only=plan_only, dry_run=dry_run, when_due=when_due
            )
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
        options: Mapping[str, Any] | None = None,
    ) -> ClusteringResult:
        """Write small files anew as fewer and larger ones: run the plans that are pending, then what the table's
        settings (`hoodie.clustering.*`) choose. Reads and inserts go on beside it.

        With `sort_columns` the rows are brought into their order, with the layouts `zorder` and `hilbert` along a curve
        that keeps near rows near in all of these columns; without, files are put together as bytes. `partitions` are
        the partition paths to look at. `plan_only` makes the plan and leaves it to another process to run, `dry_run`
        only shows it; `when_due` makes one only after so many commits as the settings say.
        """
        words = {
            "hoodie.clustering.plan.strategy.sort.columns": sort_columns,
            "hoodie.layout.optimize.strategy": layout and layout.upper(),
            "hoodie.clustering.plan.strategy.partition.selected": partitions,
        }
        asked = _with_words(words, options)
        return self._again(
            lambda: cluster(
                self._rewriting_context(asked, "cluster"), plan_only=plan_only, dry_run=dry_run, when_due=when_due
            )
        )

    def merge_small_files(
        self,
        least: int | None = None,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> ClusteringResult:
        """Put the files of less than `hoodie.parquet.small.file.limit` together, up to `hoodie.parquet.max.file.size`,
        in each partition path that has `least` of them or more (None: two). Rows stay in the order that clustering
        gives them, or are copied as bytes; `lakebed services run` does it from `lakebed.file.sizing.files` on.

        `plan_only` makes the plan and leaves it to another process to run, `dry_run` only shows it. Raises
        `InvalidOption` for a table with a bucket index.
        """
        return self._again(
            lambda: merge_small_files(
                self._rewriting_context(options, "cluster"), least=least, plan_only=plan_only, dry_run=dry_run
            )
        )

    def clean(
        self,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        when_due: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> CleanResult:
        """Delete files that no commit can see any more which is kept (`hoodie.clean.policy`): first carry out the clean
        that is pending, then all else. Writes and reads of what is kept go on beside it.

        `plan_only` makes the plan and leaves it to another process, `dry_run` only shows it; `when_due` makes one only
        where commits since the last clean have left something behind.
        """
        return self._again(
            lambda: clean(
                self._context(None, options, "clean"), plan_only=plan_only, dry_run=dry_run, when_due=when_due
            )
        )

    def archive(self, *, dry_run: bool = False, options: Mapping[str, Any] | None = None) -> ArchivalResult:
        """Move the oldest instants of a long timeline (`hoodie.keep.max.commits`) to the archived one, down to
        `hoodie.keep.min.commits`, as far as nothing needs them any more. `dry_run` only shows which."""
        return self._again(lambda: archive(self._context(None, options, "archive"), dry_run=dry_run))

    def expire_partitions(
        self,
        days: int | None = None,
        *,
        partitions: Sequence[str] | None = None,
        dry_run: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> PartitionTtlResult:
        """Delete the partitions that nobody has written to for so many `days`, all or those of `partitions`; without
        them as the table's settings (`hoodie.partition.ttl.*`) say. With `dry_run` only show which."""
        words = {
            "hoodie.partition.ttl.strategy.days.retain": days,
            "hoodie.partition.ttl.strategy.partition.selected": partitions,
        }
        asked = _with_words(words, options)
        return self._again(lambda: expire_partitions(self._context(None, asked, "expire_partitions"), dry_run=dry_run))

    def savepoint(self, instant: str | None = None, *, comment: str = "", user: str | None = None) -> Savepoint:
        """Keep a completed commit (the last one where none is named) so that `restore` can go back to it: cleaning
        leaves its files, archival its instant, until `delete_savepoint`. `user` is whoever runs this, if not named."""
        return self._again(
            lambda: savepoint(self._context(None, None, "savepoint"), instant, comment=comment, user=user)
        )

    def savepoints(self) -> list[Savepoint]:
        """The table's savepoints, oldest commit first."""
        return self._steadily(lambda view: savepoints(view.timeline))

    def delete_savepoint(self, instant: str) -> Savepoint | None:
        """Let cleaning and archival have what the savepoint of this commit kept."""
        return self._again(lambda: delete_savepoint(self._context(None, None, "savepoint"), instant))

    def rescale(
        self,
        buckets: int | None = None,
        *,
        partitions: str | Sequence[str] | None = None,
        rules: str | None = None,
        split_over: int | None = None,
        dry_run: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Rescaled:
        """Give a bucket index another number of buckets, in one commit. What writes meanwhile gets a conflict, or this
        does, whoever commits last.

        `buckets` for all partition paths, or for some `partitions` (paths, `*` stands for any text); `rules` are
        Hudi's "regex,count;..." for partition paths, `buckets` then the count of the others. A count that is a multiple
        of the old one, or divides it, needs no shuffle. `split_over` halves only the buckets of more bytes, as often as
        it takes. With `dry_run` nothing is done: the result says how it would be, and why so.

        Raises `InvalidOption` for another index and counts that it cannot have, `CommitConflict` while a compaction or
        clustering is planned there.
        """
        if split_over is not None:
            whole_number("rescale", "split_over", split_over, least=1)
        chosen = (partitions,) if isinstance(partitions, str) else partitions
        wanted = Resizing(buckets, None if chosen is None else tuple(chosen), rules, split_over)
        done = self._again(lambda: rescale(self._rewriting_context(options, "rescale"), wanted, dry_run=dry_run))
        self._config = load_table_config(self._storage)
        return done

    def restore(
        self, to: str | Savepoint | None = None, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> RestoreResult:
        """Make the table what it was when the commit `to` (an instant, or a savepoint) completed: all that came later
        is rolled back for good. With `dry_run` only say what that is; without `to` finish one that was cut off."""
        instant = to.instant if isinstance(to, Savepoint) else to
        if not (instant is None or isinstance(instant, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refused("restore", "to", to, "an instant or a savepoint")
        return self._again(lambda: restore(self._context(None, options, "restore"), instant, dry_run=dry_run))

    def rollback(
        self, instant: str, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> RollbackResult:
        """Take the last completed commit back, whatever it did. With `dry_run` only say which files go."""
        return self._again(lambda: rollback(self._context(None, options, "rollback"), instant, dry_run=dry_run))

    def repair(
        self, parts: Sequence[Part] | None = None, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> RepairResult:
        """Find what is wrong with the table and mend it: "properties", "partition_metadata", "orphans" (files that no
        commit names), "duplicates" (of a key; deleted only where named), "metadata"; all or the `parts` named. With
        `dry_run` only say what it is."""
        return self._again(
            lambda: repair_table(self._storage, parts, dry_run=dry_run, options=options, spark=self._spark)
        )

    def upgrade(
        self, to: int = CURRENT_VERSION, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> VersionChange:
        """Make this a table of a later version (8 or 9) with the same rows. Log files are compacted before it. With
        `dry_run` only say what it takes. Nothing else ever changes a table's version."""
        version = whole_number("upgrade", "to", to)
        return self._changed(lambda: upgrade(self._service_context(options, "upgrade"), version, dry_run=dry_run))

    def downgrade(self, to: int, *, dry_run: bool = False, options: Mapping[str, Any] | None = None) -> VersionChange:
        """Make this a table of an earlier version (8 or 6), which older releases of Hudi read, with the same rows. A
        merge-on-read table that becomes one of version 6 loses what only views of its past can see."""
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
    ) -> WriteResult:
        """A write, run again where it lost and may be, and what the table's settings make due after it."""
        given = asking_for(retries, options)
        context, result = run_again(lambda: self._context(data, given, name), verb, data)
        return run_due_services(context, result, self._spark)

    def _moment(self, when: When) -> When:
        return in_local_zone(when, None if self._spark is None else self._spark.conf.get("spark.sql.session.timeZone"))

    def _snapshot(self, as_of: str | None = None) -> Snapshot:
        # what the metadata table has may have changed since: an index that was dropped must not be asked
        self._config = load_table_config(self._storage)
        fresh = open_snapshot(self._storage, self._config, as_of, use_metadata=self._reads.use_metadata)
        known = self._views.pop(as_of, fresh)
        view = self._views[as_of] = known if known.shows_same(fresh) else fresh
        if len(self._views) > _VIEWS:
            del self._views[next(iter(self._views))]
        return view

    def _steadily(self, read: Callable[[Snapshot], T]) -> T:
        """What `read` gives of the latest view; of a later one where the table changed while it was read."""
        views = [self._snapshot()]

        def renew() -> bool:
            views.append(self._snapshot())
            return not views[-2].shows_same(views[-1])

        return read_again(self._storage, lambda: read(views[-1]), renew)

    def _again(self, serve: Callable[[], T]) -> T:
        """What a service gives, which begins again where the table changed while it was planned."""
        return read_again(self._storage, serve, lambda: True)

    def _engine(self) -> Engine:
        """For a call that writes indexes of the metadata table alone."""
        spark = None if self._storage.spec.in_this_process else self._spark
        return session_engine(spark, worker_tuning=self._worker_tuning)

    def _service_context(self, options: Mapping[str, Any] | None, verb: str) -> WriteContext:
        """For a service that merges the table's log files."""
        context = self._context(None, options, verb)
        return replace(context, engine=engine_for(context.opened, context.engine, self._spark))

    def _rewriting_context(self, options: Mapping[str, Any] | None, verb: str) -> WriteContext:
        """For a service that may rewrite every file of the table."""
        context = self._context(None, options, verb)
        return replace(context, engine=engine_for_all(context.opened, context.engine, self._spark))

    def _context(self, data: Any, options: Mapping[str, Any] | None, verb: str) -> WriteContext:
        self._config = load_table_config(self._storage)
        resolved = resolve_options(options)
        check_verb(resolved, verb)
        tuning = self._worker_tuning and resolved.spark.worker_tuning
        engine = choose_engine(
            data,
            self._spark,
            resolved.write.tasks,
            worker_tuning=tuning,
            local_rows=resolved.spark.local_rows,
            table_bytes=lambda: bytes_of_files(self._snapshot()),
        )
        return write_context(self._storage, self._config, engine, resolved)

    def __getstate__(self) -> dict[str, Any]:
        # what was read of the files stays here, and so does the session: neither is another process's
        return {**self.__dict__, "_views": {}, "_spark": None}

    def __repr__(self) -> str:
        keys = ", ".join(self._config.key_fields) or "generated"
        partitions = ", ".join(self._config.partition_fields) or "none"
        return (
            f"lakebed.Table({self.name!r}, {self.uri}, version {self._config.version}, {self._config.table_type}, "
            f"key: {keys}, partitions: {partitions})"
        )

    def _repr_html_(self) -> str:
        return self._steadily(table_html)


def _partial(partial: bool, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return {**(options or {}), "lakebed.write.partial": True} if partial else options


Query = Literal["snapshot", "read_optimized"]

"""`Table.maintenance`: what keeps a table in shape: compaction, clustering, cleaning, repair, ..."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from lakebed.config.arguments import public_methods_check_arguments, whole_number, with_arguments
from lakebed.diagnosis.doctor import examine
from lakebed.diagnosis.findings import Diagnosis
from lakebed.index.base import Resizing
from lakebed.opened_table import OpenedTable
from lakebed.properties.table_config import CURRENT_VERSION
from lakebed.services.archival import ArchivalResult, archive
from lakebed.services.change_index import Rescaled, rescale
from lakebed.services.cleaning import Cleaning, CleanResult
from lakebed.services.clustering import ClusteringResult, cluster, merge_small_files
from lakebed.services.compaction import Compaction, CompactionResult
from lakebed.services.daemon import ServiceEvent, run
from lakebed.services.driver import run_service
from lakebed.services.log_compaction import LogCompaction
from lakebed.services.partition_ttl import PartitionTtlResult, expire_partitions
from lakebed.services.repair import Part, RepairResult, repair_table
from lakebed.services.upgrade import VersionChange, downgrade, upgrade


@public_methods_check_arguments
class MaintenanceView:
    """The services of a table, its version and its repair. `lakebed.maintenance` has the services that take URIs.

    >>> t.maintenance
    maintenance of memory://example/trips
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    def compact(
        self,
        *,
        logs: bool = False,
        plan_only: bool = False,
        dry_run: bool = False,
        when_due: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> CompactionResult:
        """Merge the log files of a merge-on-read table into new base files. Writers continue meanwhile.

        Pending plans are run first, then a plan of all other file slices with log files. `plan_only` makes the plan and
        leaves it to another process, `dry_run` only returns it. `when_due` makes a plan only of what is due by the
        table's settings: the file slices with heavy, many or old log files (`lakebed.compact.*`), or all of them where
        the trigger of Hudi's options (`hoodie.compact.inline.*`) has fired. Tables made by lakebed are compacted after
        writes, when it is due.

        With `logs` the log blocks of file slices that have many of them (`hoodie.log.compaction.blocks.threshold`) are
        merged into few. Base files are not rewritten, so it costs less, and reads open fewer blocks.

        >>> _ = t.upsert([{"id": 1, "city": "Oslo", "fare": 10.0, "ts": 2}])
        >>> _ = t.maintenance.compact()
        >>> [len(file_slice.log_files) for file_slice in t.files]
        [0, 0]
        >>> print(t.maintenance.compact(logs=True))
        no log compaction was planned: no file slice has 5 blocks
        """

        def compacted() -> CompactionResult:
            context = self._opened.service_context(options, "compact")
            service = LogCompaction() if logs else Compaction()
            return run_service(context, service, plan_only=plan_only, dry_run=dry_run, when_due=when_due)

        return self._opened.committed(compacted, options, preview=logs or plan_only or dry_run, progress=progress)

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
        """Rewrite small files into fewer and larger ones. Reads and inserts continue meanwhile.

        Pending plans are run first, then a plan by the table's settings (`hoodie.clustering.*`). `sort_columns` orders
        the rows; the layouts `zorder` and `hilbert` order them along a curve through all of these columns. Without sort
        columns files are joined as bytes. `partitions` limits the plan to these partition paths. `plan_only` makes the
        plan and leaves it to another process, `dry_run` only returns it. `when_due` makes a plan only after as many
        commits as the settings ask for.

        >>> print(t.maintenance.cluster(["fare"], partitions=["Oslo"], dry_run=True))
        to be done: clustering of 1 file slice of ... bytes into about 1 file, sorted by fare
        """
        keyword_options = {
            "hoodie.clustering.plan.strategy.sort.columns": sort_columns,
            "hoodie.layout.optimize.strategy": layout and layout.upper(),
        }
        all_options = with_arguments(options, keyword_options)
        return self._opened.committed(
            lambda: cluster(
                self._opened.service_context(all_options, "cluster", "files"),
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
        min_files: int | None = None,
        *,
        plan_only: bool = False,
        dry_run: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> ClusteringResult:
        """Join files of less than `hoodie.parquet.small.file.limit` bytes, up to `hoodie.parquet.max.file.size`.

        It takes partition paths with at least `min_files` such files (None: 2). Rows are ordered as clustering orders
        them, or files are joined as bytes. `lakebed maintenance run` does it from `lakebed.file.sizing.files` files on.
        `plan_only` makes the plan and leaves it to another process, `dry_run` only returns it. Raises `InvalidOption`
        for a table with a bucket index.

        >>> small = lakebed.create("memory://docs/small", rows, key="id", index="simple")
        >>> for n in range(3): _ = small.bulk_insert(rows.slice(n, 1))
        >>> _ = small.maintenance.merge_small_files()
        >>> len(small.files), lakebed.drop(small.uri)
        (1, [])
        """
        return self._opened.committed(
            lambda: merge_small_files(
                self._opened.service_context(options, "cluster", "files"),
                min_files=min_files,
                plan_only=plan_only,
                dry_run=dry_run,
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

        >>> print(t.maintenance.clean())
        nothing to clean: the last 10 commits are kept, and there are 1
        """
        return self._opened.again(
            lambda: run_service(
                self._opened.context(None, options, "clean"),
                Cleaning(),
                plan_only=plan_only,
                dry_run=dry_run,
                when_due=when_due,
            ),
            progress=progress,
        )

    def archive(self, *, dry_run: bool = False, options: Mapping[str, Any] | None = None) -> ArchivalResult:
        """Move the oldest instants of a long timeline to the archived timeline.

        It begins at `hoodie.keep.max.commits` and leaves `hoodie.keep.min.commits`, and all instants that are still
        needed. `dry_run` only returns what would be moved.

        >>> print(t.maintenance.archive())
        nothing to archive: the timeline has 1 commit, 30 may stay
        """
        return self._opened.again(lambda: archive(self._opened.context(None, options, "archive"), dry_run=dry_run))

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

        >>> print(t.maintenance.expire_partitions(days=30))
        no partition path is older than 30 days
        """
        all_options = with_arguments(options, {"hoodie.partition.ttl.strategy.days.retain": days})
        context = partial(self._opened.context, None, all_options, "expire_partitions")
        return self._opened.committed(
            lambda: expire_partitions(context(), partitions=partitions, dry_run=dry_run), all_options, preview=dry_run
        )

    def rescale(
        self,
        buckets: int | None = None,
        *,
        partitions: str | Sequence[str] | None = None,
        partition_buckets: str | None = None,
        split_over: int | None = None,
        dry_run: bool = False,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Rescaled:
        """Change the number of buckets of a bucket index, in one commit.

        `buckets` is for all partition paths, or for those in `partitions` (`*` matches any text). `partition_buckets`
        are Hudi's "regex,count;..." for partition paths; `buckets` is then the number for all others. A number that is
        a multiple or a divisor of the current one needs no shuffle. `split_over` splits only buckets of more bytes, in
        halves, until none is left. With `dry_run` the result is the plan with its reasons, and nothing is written.

        Raises `InvalidOption` for another index and for numbers that it cannot have. Raises `CommitConflict` while a
        compaction or clustering is planned there. Of this and a concurrent write, the one that commits last gets a
        conflict.

        >>> t.maintenance.rescale(4).rows
        3
        >>> t.indexes.index.buckets
        4
        """
        if split_over is not None:
            whole_number("rescale", "split_over", split_over, minimum=1)
        paths = (partitions,) if isinstance(partitions, str) else partitions
        resizing = Resizing(buckets, None if paths is None else tuple(paths), partition_buckets, split_over)
        done = self._opened.committed(
            lambda: rescale(self._opened.service_context(options, "rescale", "files"), resizing, dry_run=dry_run),
            options,
            preview=dry_run,
            progress=progress,
        )
        self._opened.reload()
        return done

    def repair(
        self, parts: Sequence[Part] | None = None, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> RepairResult:
        """Find and repair damage of the table: every part, or only the `parts` that are named.

        The parts are "properties", "partition_metadata", "orphans" (files that no commit names), "metadata",
        "keys" (a complex key of one field as `id:1` and as `1`) and "duplicates" (several rows of a key); rows change
        only where one of the last two is named. With `dry_run` nothing is mended.

        >>> print(t.maintenance.repair(["orphans"]))
        orphans: nothing found
        """
        return self._opened.again(
            lambda: repair_table(
                self._opened.storage, parts, dry_run=dry_run, options=options, spark=self._opened.spark
            )
        )

    def doctor(
        self, *, verify: bool = False, read_only: bool = False, options: Mapping[str, Any] | None = None
    ) -> Diagnosis:
        """Examine the table, its storage and this installation. Returns findings, each with a severity and what to do.

        A probe file is created and deleted below `.hoodie/.temp`, and the table lock is taken and given back, unless
        `read_only`. `verify` compares the indexes with the rows, which reads all keys. `options` are those of a job,
        such as its lock provider.

        >>> t.maintenance.doctor().of_check("services")
        (ok       services: no service is due, and no writer has died,)
        """
        where = self._opened.storage.spec.options
        return examine(
            self._opened.uri,
            verified=verify,
            read_only=read_only,
            options=options,
            storage_options=where,
            spark=self._opened.spark,
        )

    def upgrade(
        self, to: int = CURRENT_VERSION, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> VersionChange:
        """Change the table to a later version (8 or 9) with the same rows. Log files are compacted first.

        With `dry_run` the result names the changes, and nothing is written. No other call changes a table's version.

        >>> print(t.maintenance.upgrade(dry_run=True))
        the table has version 9
        """
        version = whole_number("upgrade", "to", to)
        return self._of_version(
            lambda: upgrade(self._opened.service_context(options, "upgrade"), version, dry_run=dry_run)
        )

    def downgrade(self, to: int, *, dry_run: bool = False, options: Mapping[str, Any] | None = None) -> VersionChange:
        """Change the table to an earlier version (8 or 6), which older releases of Hudi read, with the same rows.

        A merge-on-read table of version 6 loses the rows that only earlier views can see. With `dry_run` the result
        names the changes, and nothing is written.

        >>> _ = t.maintenance.downgrade(8)
        >>> t.properties["hoodie.table.version"], t.count()
        ('8', 3)
        """
        version = whole_number("downgrade", "to", to)
        return self._of_version(
            lambda: downgrade(self._opened.service_context(options, "downgrade"), version, dry_run=dry_run)
        )

    def run(
        self,
        *,
        once: bool = False,
        interval: float = 60.0,
        dry_run: bool = False,
        options: Mapping[str, Any] | None = None,
        stop: threading.Event | None = None,
    ) -> Iterator[ServiceEvent]:
        """Run the services that are due on this table, and look again every `interval` seconds.

        Yields events; it works only while the caller asks for more. With `once` it ends when nothing more is due; with
        `dry_run` it only yields what is due. `lakebed.maintenance.run` takes several tables, and says more.

        >>> list(t.maintenance.run(once=True))
        []
        """
        return run(
            self._opened.uri,
            once=once,
            interval=interval,
            dry_run=dry_run,
            options=options,
            storage_options=self._opened.storage.spec.options,
            spark=self._opened.spark,
            stop=stop,
        )

    def _of_version(self, change: Callable[[], VersionChange]) -> VersionChange:
        done = self._opened.again(change)
        self._opened.reload()
        return done

    def __repr__(self) -> str:
        return f"maintenance of {self._opened.uri}"

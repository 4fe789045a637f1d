"""The table services and changes of settings, as methods of the public table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from lakebed.config.arguments import public_methods_check_arguments, refused, whole_number
from lakebed.config.options import resolve_options
from lakebed.index.base import Resizing
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import CURRENT_VERSION
from lakebed.services.archiving import ArchivalResult, archive
from lakebed.services.cleaning import clean
from lakebed.services.cleaning_result import CleanResult
from lakebed.services.clustering import cluster
from lakebed.services.clustering_result import ClusteringResult
from lakebed.services.compaction import compact
from lakebed.services.compaction_result import CompactionResult
from lakebed.services.configure import Configured, configure
from lakebed.services.file_sizing import merge_small_files
from lakebed.services.log_compaction import compact_logs
from lakebed.services.partition_ttl import PartitionTtlResult, expire_partitions
from lakebed.services.repairing.result import Part, RepairResult
from lakebed.services.repairing.table import repair_table
from lakebed.services.rescaling.rescale import rescale
from lakebed.services.rescaling.run import Rescaled
from lakebed.services.restore import RestoreResult, restore
from lakebed.services.rollback import RollbackResult, rollback
from lakebed.services.savepoint import Savepoint, delete_savepoint, savepoint, savepoints
from lakebed.services.upgrading.change import VersionChange, downgrade, upgrade
from lakebed.table_base import TableBase

if TYPE_CHECKING:
    pass


@public_methods_check_arguments
class TableServices(TableBase):
    """What keeps a table in shape."""

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


def _with_words(words: Mapping[str, Any], options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of a call, which come before those that its words stand for; words of None say nothing."""
    return {**{key: value for key, value in words.items() if value is not None}, **(options or {})}

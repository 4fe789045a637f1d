"""`Table.indexes`: the index that writes go by, and the indexes of the metadata table: listed, made, checked."""

# pyright: reportPrivateUsage=false
# The view is a part of the table: it uses the table's storage, engine and contexts.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.concurrency.lock import default_lock
from lakebed.config.arguments import public_methods_check_arguments, refused
from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.index.base import Index
from lakebed.index.inference import adopt
from lakebed.index.registry import index_of
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata.skew import reshard_index, shards, summed_up
from lakebed.operations.advice import Advice, advise_for_table
from lakebed.properties.file import load_table_config, update_table_config
from lakebed.services.build_index import IndexingResult, build_planned
from lakebed.services.change_index import IndexChoice, Rescaled, use_index
from lakebed.services.create_index import (
    Expression,
    IndexFacts,
    IndexPlan,
    create_index,
    drop_index,
    index_plans,
    list_indexes,
)
from lakebed.services.verify import Verification, repair, verify
from lakebed.slices.snapshot import Snapshot
from lakebed.table_views import View
from lakebed.timeline.index_changes import told_anew

if TYPE_CHECKING:
    from lakebed.table import Table

_SCHEMA = pa.schema(
    [
        ("index", pa.string()),
        ("kind", pa.string()),
        ("fields", pa.string()),
        ("file_groups", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


class SkewView(View):
    """How evenly record and secondary indexes are spread over their file groups; prints as a table with a row for each
    index (and partition path of a partitioned one)."""

    def __init__(self, shards: pa.Table) -> None:
        self.shards = shards
        """A row for each file group: index, partition_path, file_id, entries, bytes."""

    def to_arrow(self) -> pa.Table:
        """Columns: index, partition_path, shards, the least, mean and largest of their entries and bytes, and skew: the
        largest number of entries over the mean."""
        return summed_up(self.shards)


@public_methods_check_arguments
class IndexesView(View):
    """What finds the table's rows: the index of writes, and the indexes in the metadata table; prints as a table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._storage = table._storage

    @property
    def index(self) -> Index:
        """The index that writes use."""
        return self._table._again(lambda: index_of(self._snapshot(), for_write=False))

    @property
    def reason(self) -> str:
        """Why `index="auto"` took the index of writes; empty where it was named."""
        return load_table_config(self._storage).index_reason

    def list(self) -> Sequence[IndexFacts]:
        """The indexes of the metadata table, `files` first of all."""
        return self._table._again(lambda: list_indexes(self._snapshot()))

    def to_arrow(self) -> pa.Table:
        """Columns: index, kind, fields, file_groups, bytes."""
        rows = [[f.name, f.kind, ", ".join(f.fields), f.file_groups, f.bytes] for f in self.list()]
        columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(_SCHEMA)]
        return pa.Table.from_arrays(columns, schema=_SCHEMA)

    def create(
        self,
        name: str,
        *,
        partitioned: bool | None = None,
        groups: int | None = None,
        column: str | None = None,
        function: str | None = None,
        options: Mapping[str, object] | None = None,
        kind: str = "column_stats",
        wait: bool = True,
    ) -> IndexPlan | None:
        """Build an index in the metadata table from the table's files, and the metadata table where there is none.

        `name` is "record_index", "bloom_filters", "column_stats", "partition_stats", or a column for a secondary index
        (version 8 and 9). `partitioned` makes a record index for each partition path (version 9; by itself so where
        the table's keys are unique within partition paths only). `groups` says how many file groups a record or
        secondary index gets, instead of Hudi's estimate; those of a partitioned one are for each partition path.

        With a `column`, `name` is that of an expression index (version 9): of the results of `function` (Hudi's words:
        "date_format", "lower", ...; without one the column itself) with Hudi's `options` for it (`format`, `pos`,
        `len`, `days`, `trimString`), as ranges (`kind` "column_stats") or as bloom filters ("bloom_filters", with
        `filtertype`, `numentries`, `fpp`, `maxentries`). Times are those of UTC, whatever the session.

        With `wait` the index is built now, and writers wait for the table's lock meanwhile. Without it only its plan is
        put on the timeline, and given back (version 8 and 9): `build` builds it beside writers, in a thread or a
        process of yours, or `lakebed services run` does.

        Raises `InvalidOption`, `SchemaConflict`, `UnsupportedFeature` or `IndexInconsistent`; nothing changes then.
        """
        expression = None
        if column is not None:
            expression = Expression(column, function or "identity", dict(options or {}), kind)
        elif function is not None or options:
            raise InvalidOption(
                f"an expression index {name!r} without a column", hint="Say which column the function is over: column=."
            )
        return self._table._again(
            lambda: create_index(
                self._storage,
                name,
                expression=expression,
                partitioned=partitioned,
                groups=groups,
                engine=self._table._engine(),
                wait=wait,
            )
        )

    @property
    def waiting(self) -> Sequence[IndexPlan]:
        """The indexes that wait to be built, or are being built beside writers, oldest plan first."""
        return self._table._again(lambda: index_plans(self._storage, self._snapshot().timeline))

    def build(self) -> IndexingResult:
        """Build the indexes that wait, those that real Hudi has planned too, beside writers: they log to a new index
        while its base files are made of the table as it was, and readers use it when both are complete.

        What another process builds is left to it. A plan stays until it is built or its index dropped; where the keys
        are such that the index cannot be built, `IndexInconsistent` is raised and the plan goes.
        """
        return self._table._again(lambda: build_planned(self._storage, WriteSettings(), self._table._engine()))

    def drop(self, name: str) -> None:
        """Take an index off the metadata table, given its name as for `create`, or as `list` shows it."""
        self._table._again(lambda: drop_index(self._storage, name))

    def reshard(self, name: str, file_groups: int | Mapping[str, int]) -> str | None:
        """Give a record or secondary index another number of file groups, while the table stays in use: one number for
        a global index, for a partitioned record index one for all partition paths or a number for each that is named.

        All entries are written anew, by a replacecommit on the metadata table's timeline; gives its instant, None where
        the index has these numbers already. `name` is as for `create`, or as `list` shows it. What outgrows its file
        groups is re-sharded by itself (`lakebed.metadata.index.max.filegroup.size`).

        Raises `InvalidOption` for other indexes and numbers, `CommitConflict` while a write to the table is pending.
        """
        return self._table._again(lambda: reshard_index(self._storage, name, file_groups))

    def skew(self, name: str | None = None) -> SkewView:
        """How evenly the entries of a record or secondary index (None: of all of them) lie in its file groups; entries
        in log files count as often as they were written. Reads the trailers of the index's files."""
        return self._table._again(lambda: SkewView(shards(self._snapshot(), name)))

    def verify(self) -> Verification:
        """Compare every index with the files and rows of the table; names each difference. True when there is none."""
        return self._table._again(lambda: verify(self._storage))

    def repair(self, name: str | None = None) -> Verification:
        """Verify, and write the records that differ, of one index (as `list` shows it) or of all; gives what was wrong.
        File groups without a difference are not touched."""
        return self._table._again(lambda: repair(self._storage, None if name is None else [name]))

    def use(
        self,
        index: str | Index,
        *,
        buckets: int | None = None,
        fields: Sequence[str] = (),
        update_partition_path: bool | None = None,
        partition_buckets: str | None = None,
        dry_run: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Rescaled:
        """Make this the index that writes go by, on a table that has rows: "bucket", "record", "bloom", "simple", ...

        What has to be done for it is done, in one commit: a bucket index has all rows moved to their buckets, a record
        index is built, others need nothing. With `dry_run` nothing is done: the result says what would be. Writes that
        began under the old index get a conflict.

        Raises `IndexInconsistent` that names the keys where a key would have one place in the table and has several,
        `CommitConflict` where somebody else has written to what moves, `InvalidOption` for settings that do not fit.
        """
        choice = IndexChoice(index, buckets, tuple(fields), update_partition_path, partition_buckets)
        return self._table._again(
            lambda: use_index(self._table._rewriting_context(options, "use"), choice, dry_run=dry_run)
        )

    def adopt(
        self,
        index: str | Index,
        *,
        buckets: int | None = None,
        fields: Sequence[str] = (),
        update_partition_path: bool = True,
        partition_buckets: str = "",
    ) -> Index:
        """Record which index the table has. A bucket index is checked against all stored keys first, an `Index` object
        (an `HBaseIndex`) by a sample of them; `partition_buckets` are the counts of partition paths, as in
        `hoodie.bucket.index.partition.expressions`.

        Raises `IndexInconsistent` with the first key that lies elsewhere; nothing is recorded then.
        """
        if not isinstance(index, str) and not hasattr(index, "place"):
            raise refused("adopt", "index", index, "the name of an index, or an Index object")

        def adopted() -> None:
            with default_lock(self._storage, wait_seconds=60.0):
                snapshot = self._snapshot()
                taken = adopt(
                    snapshot,
                    index,
                    buckets=buckets,
                    fields=tuple(fields),
                    update_partition_path=update_partition_path,
                    partition_buckets=partition_buckets,
                )
                told = told_anew(snapshot.config, snapshot.timeline, taken.settings())
                update_table_config(self._storage, told)

        self._table._again(adopted)
        return self.index

    def advise(self, batch: Any = None, *, deletes: bool = False) -> Advice:
        """What writing a batch (rows, their number, or None: as the past commits were) costs under every index: finding
        keys, writing, reading; each figure is explained. Looks for some of the batch's keys, writes nothing.
        `deletes`: the batch is of keys to be deleted, without partition columns."""
        return self._table._again(
            lambda: advise_for_table(self._snapshot(), self._table._engine(), batch, deletes=deletes)
        )

    def __repr__(self) -> str:
        listed = super().__repr__()
        reason = self.reason
        chosen = f"chosen: {reason}\n" if reason else ""
        places = self._table._again(lambda: self.index.explain_for(self._snapshot()))
        return f"writes: {places}\n{chosen}{listed}"

    def _snapshot(self) -> Snapshot:
        return open_snapshot(self._storage)

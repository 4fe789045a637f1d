"""`Table.indexes`: lists, creates and checks the index that writes use and the indexes of the metadata table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.arguments import public_methods_check_arguments, refused
from lakebed.config.options import resolve_options
from lakebed.errors import InvalidOption
from lakebed.index.base import Index
from lakebed.index.inference import adopt
from lakebed.index.registry import index_of
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.vector_definitions import BITS, CLUSTERS, METRIC, PROBES
from lakebed.metadata_records.definitions import TEXT_KIND, VECTOR_KIND
from lakebed.metadata_upkeep.comparison import Verification
from lakebed.metadata_upkeep.skew import reshard_index, shards, summed_up
from lakebed.opened_table import OpenedTable
from lakebed.operations.advice import Advice, advise_for_table
from lakebed.pictures import Picture, ranges
from lakebed.properties.file import load_table_config
from lakebed.read.index_quality import ColumnRanges, bloom_rates, column_ranges
from lakebed.services.adopt_index import adopt_index
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
from lakebed.services.index_layers import IndexLayers, index_layers
from lakebed.services.vector_indexes import Recall, measured_recall, rebuild_index
from lakebed.services.verify import repair, verify
from lakebed.slices.snapshot import Snapshot
from lakebed.table_views import View
from lakebed.wording import count_text

# Labels at the ends of an axis have at most this many letters.
_MAX_END = 40
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
    """The distribution of the entries of record and secondary indexes over their file groups.

    Prints as a table with a row for each index, and for each partition path of a partitioned index.

    >>> _ = t.indexes.create("record_index")
    >>> t.indexes.skew().shards.column_names
    ['index', 'partition_path', 'file_id', 'entries', 'bytes']
    """

    def __init__(self, shards: pa.Table) -> None:
        self.shards = shards
        """A row for each file group: index, partition_path, file_id, entries, bytes."""

    def to_arrow(self) -> pa.Table:
        """A table with the columns index, partition_path, shards, the least, mean and largest of their entries and
        bytes, and skew.

        `skew` is the largest number of entries divided by the mean.

        >>> _ = t.indexes.create("record_index", groups=1)
        >>> t.indexes.skew().to_arrow()["skew"].to_pylist()
        [1.0, 1.0]
        """
        return summed_up(self.shards)


class RangesView(View):
    """The overlap of the ranges of columns between base files, which shows the columns that rule out files. Prints as a
    table, the best column first.

    >>> t.indexes.ranges().to_arrow().column_names
    ['column', 'type', 'files', 'with_range', 'overlap']
    """

    def __init__(self, ranges: Mapping[str, ColumnRanges]) -> None:
        self._ranges = dict(sorted(ranges.items(), key=lambda item: (item[1].overlap(), item[0])))

    def __contains__(self, column: object) -> bool:
        return column in self._ranges

    def to_arrow(self) -> pa.Table:
        """A table with the columns column, type, files, with_range (the number of files whose range is known), overlap.

        `overlap` is the share of files that a condition on one value opens, on average: 1.0 for a column that rules out
        no file.

        >>> {row["column"]: row["overlap"] for row in t.indexes.ranges().to_arrow().to_pylist()}["city"]
        0.5
        """
        columns = {
            "column": pa.array(list(self._ranges), pa.string()),
            "type": pa.array([str(file_ranges.low.type) for file_ranges in self._ranges.values()], pa.string()),
            "files": pa.array([file_ranges.files for file_ranges in self._ranges.values()], pa.int64()),
            "with_range": pa.array([len(file_ranges.low) for file_ranges in self._ranges.values()], pa.int64()),
            "overlap": pa.array(
                [round(file_ranges.overlap(), 4) for file_ranges in self._ranges.values()], pa.float64()
            ),
        }
        return pa.table(columns)

    def plot(self, column: str) -> Picture:
        """The ranges of one column as SVG: a line for each base file from its least to its greatest value, which
        stand under the pointer.

        Raises `InvalidOption` for a column without statistics.

        >>> t.indexes.ranges().plot("city")[:4]
        '<svg'
        """
        file_ranges = self._ranges.get(column)
        if file_ranges is None:
            hint = "t.indexes.ranges() lists the columns that have some."
            raise InvalidOption(f"column {column!r} has no ranges", hint=hint)
        smallest, greatest = pc.min(file_ranges.low).as_py(), pc.max(file_ranges.high).as_py()
        label = (
            f"ranges of {column} in {count_text(len(file_ranges.low), 'base file')},"
            f" {file_ranges.overlap():.0%} opened for one value"
        )
        bounds = [(float(low), float(high)) for low, high in file_ranges.positions()]
        of_files = zip(file_ranges.low.to_pylist(), file_ranges.high.to_pylist(), strict=True)
        titles = [f"{str(low)[:_MAX_END]} to {str(high)[:_MAX_END]}" for low, high in of_files]
        return ranges(bounds, (str(smallest)[:_MAX_END], str(greatest)[:_MAX_END]), label, titles)


@public_methods_check_arguments
class IndexesView(View):
    """The indexes that find the table's rows: the index of writes, and those of the metadata table. Prints as a table.

    >>> print(t.indexes)
    writes: bucket: hash of id modulo 2 names the file group; no file is read to tag
    index            kind             fields ...
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened
        self._storage = opened.storage

    @property
    def index(self) -> Index:
        """The index that writes use.

        >>> t.indexes.index.name, t.indexes.index.buckets
        ('bucket', 2)
        """
        return self._opened.again(lambda: index_of(self._snapshot(), for_write=False))

    @property
    def reason(self) -> str:
        """The reason why `index="auto"` chose the index of writes; empty if the index was named.

        >>> t.indexes.reason
        ''
        """
        return load_table_config(self._storage).index_reason

    def list(self) -> Sequence[IndexFacts]:
        """The indexes of the metadata table. The first is `files`.

        >>> [(index.name, index.file_groups) for index in t.indexes.list()]
        [('files', 1), ('column_stats', 2), ('partition_stats', 1)]
        """
        return self._opened.again(lambda: list_indexes(self._snapshot()))

    def to_arrow(self) -> pa.Table:
        """A table with the columns index, kind, fields, file_groups, bytes.

        >>> t.indexes.to_arrow()["index"].to_pylist()
        ['files', 'column_stats', 'partition_stats']
        """
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
        function_options: Mapping[str, object] | None = None,
        kind: str = "column_stats",
        metric: str | None = None,
        clusters: int | None = None,
        bits: int | None = None,
        probes: int | None = None,
        wait: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> IndexPlan | None:
        """Build an index in the metadata table from the table's files. If there is no metadata table, it is built as
        well.

        `name` is "record_index", "bloom_filters", "column_stats", "partition_stats", or a column for a secondary index
        (version 8 and 9). `partitioned` makes a record index for each partition path (version 9; the default where the
        table's keys are unique within partition paths only). `groups` is the number of file groups of a record or
        secondary index, for each partition path of a partitioned one; the default is Hudi's estimate.

        With `column`, `name` is the name of an expression index (version 9). It holds the results of `function` (Hudi's
        names: "date_format", "lower", ...; the default is the column itself) with Hudi's `function_options` for it
        (`format`, `pos`, `len`, `days`, `trimString`), as ranges (`kind` "column_stats") or as bloom filters
        ("bloom_filters", with `filtertype`, `numentries`, `fpp`, `maxentries`). Times are in UTC, whatever the
        session's zone. `kind` "secondary_index" is a secondary index on the column with this name instead of that of
        its column.

        With the name "vector", or with `kind` "vector_index" and a name, it is an index for searches of the vectors of
        `column` by `metric` ("cosine", the default, "l2" or "dot_product"): `search` then compares the query with the
        vectors near it. `clusters` is the number of groups of vectors (the default follows from the rows), `bits` the
        size of each element of a code (8, or 4), `probes` the number of groups that a search looks at.

        With the name "text", or with `kind` "text_index" and a name, it is an index of the words of `column`: `search`
        with a `text` then reads the entries of its words and not all texts, and finds the same rows.

        With `wait` the index is built now, and writers wait for the table's lock meanwhile. Without it the plan is put
        on the timeline and returned (version 8 and 9): `build` builds it while writers continue, in a thread or another
        process, and so does `lakebed maintenance run`.

        Raises `InvalidOption`, `SchemaConflict`, `UnsupportedFeature` or `IndexInconsistent`; nothing changes then.

        >>> t.indexes.create("record_index")
        >>> t.indexes.list()[-1].name
        'record_index'
        """
        expression = None
        values = {METRIC: metric, CLUSTERS: clusters, BITS: bits, PROBES: probes}
        vector_options = {key: value for key, value in values.items() if value is not None}
        if name in ("vector", "text") and column is not None:
            name, kind = column, VECTOR_KIND if name == "vector" else TEXT_KIND
        if vector_options and kind != VECTOR_KIND:
            raise InvalidOption(
                f"an index {name!r} that is no vector index has {', '.join(vector_options)}",
                hint="A vector index is made so: t.indexes.create('vector', column='emb').",
            )
        if column is not None:
            index_options = {**(function_options or {}), **vector_options}
            expression = Expression(column, function or "identity", index_options, kind)
        elif function is not None or function_options:
            raise InvalidOption(
                f"an expression index {name!r} without a column", hint="Name the column of the function: column=."
            )
        return self._opened.again(
            lambda: create_index(
                self._storage,
                name,
                expression=expression,
                partitioned=partitioned,
                groups=groups,
                settings=resolve_options(options).write,
                engine=self._opened.engine(),
                wait=wait,
            )
        )

    @property
    def waiting(self) -> Sequence[IndexPlan]:
        """The plans of indexes that are not built yet, or are being built by another process, oldest first.

        >>> _ = t.indexes.create("record_index", wait=False)
        >>> len(t.indexes.waiting)
        1
        """
        return self._opened.again(lambda: index_plans(self._storage, self._snapshot().timeline))

    def build(self, *, options: Mapping[str, Any] | None = None) -> IndexingResult:
        """Build the planned indexes, also those that real Hudi planned, while writers continue.

        Writers log to a new index while its base files are made from the table's files; readers use it when both are
        complete. An index that another process builds is left to it. A plan stays until its index is built or dropped.
        Raises `IndexInconsistent`, and removes the plan, where the table's keys do not allow the index.

        >>> _ = t.indexes.create("record_index", wait=False)
        >>> _ = t.indexes.build()
        >>> t.indexes.list()[-1].name, t.indexes.waiting
        ('record_index', [])
        """
        settings = resolve_options(options).write
        return self._opened.again(lambda: build_planned(self._storage, settings, self._opened.engine()))

    def drop(self, name: str, *, options: Mapping[str, Any] | None = None) -> None:
        """Delete an index of the metadata table. `name` is that of `create`, or a name that `list` returns.

        >>> t.indexes.drop("column_stats")
        >>> [index.name for index in t.indexes.list()]
        ['files']
        """
        settings = resolve_options(options).write
        self._opened.again(lambda: drop_index(self._storage, name, settings=settings))

    def rebuild(self, name: str, *, options: Mapping[str, Any] | None = None) -> None:
        """Build a vector index again, with clusters that fit the rows of today, or a text index, as one layer. `name`
        is that of its column, or a name that `list` returns.

        Others write and search by the index meanwhile; at the end it changes places with the new one. `lakebed
        maintenance run` does it when it is due: when a cluster is 8 times as large as the mean, or 30 % of the rows
        came after the build; when less than half of the entries of a text index count, or a search has to read more
        than 10 % of its rows. Raises `InvalidOption` for another index, and `CommitConflict` if it was dropped
        meanwhile.

        >>> columns = pa.schema([("id", pa.int64()), ("at", lakebed.vector(2))])
        >>> texts = lakebed.create("memory://docs/rebuilt", columns, key="id")
        >>> _ = texts.upsert({"id": [1, 2], "at": [[1.0, 0.0], [0.0, 1.0]]})
        >>> texts.indexes.create("vector", column="at")
        >>> texts.indexes.rebuild("at")
        >>> texts.indexes.list()[-1].kind
        'vector index'
        """
        settings = resolve_options(options).write
        self._opened.again(lambda: rebuild_index(self._storage, name, settings=settings))

    def recall(self, name: str, rows: int = 100, k: int = 10) -> Recall:
        """The share of the `k` nearest rows that searches by a vector index find, on average over at most `rows` rows
        of the table as queries. `name` is that of its column, or a name that `list` returns.

        The table's vectors are read as a whole. Raises `InvalidOption` for another index.

        >>> columns = pa.schema([("id", pa.int64()), ("at", lakebed.vector(2))])
        >>> texts = lakebed.create("memory://docs/recall", columns, key="id")
        >>> _ = texts.upsert({"id": [1, 2], "at": [[1.0, 0.0], [0.0, 1.0]]})
        >>> texts.indexes.create("vector", column="at")
        >>> texts.indexes.recall("at").recall
        1.0
        """
        for argument, value in (("rows", rows), ("k", k)):
            if value < 1:
                raise refused("recall", argument, value, "a whole number above 0")
        return self._opened.again(lambda: measured_recall(self._storage, name, rows, k))

    def layers(self, name: str) -> IndexLayers:
        """What a vector index or a text index is made of: its layers and clusters, the share of entries that do not
        count, the commits that it lacks, its bytes, and whether it is due to be built again. `name` is that of its
        column, or a name that `list` returns.

        Of a vector index the entries of at most some ten thousand rows are read, of a text index the numbers of all
        rows without their words. Raises `InvalidOption` for another index.

        >>> columns = pa.schema([("id", pa.int64()), ("at", lakebed.vector(2))])
        >>> texts = lakebed.create("memory://docs/layers", columns, key="id")
        >>> _ = texts.upsert({"id": [1, 2], "at": [[1.0, 0.0], [0.0, 1.0]]})
        >>> texts.indexes.create("vector", column="at", clusters=1)
        >>> texts.indexes.layers("at").layers.to_pylist()
        [{'layer': 'build', 'entries': 2, 'changed_rows': 0}]
        """
        return self._opened.again(lambda: index_layers(self._snapshot(), name))

    def reshard(
        self, name: str, file_groups: int | Mapping[str, int], *, options: Mapping[str, Any] | None = None
    ) -> str | None:
        """Give a record or secondary index another number of file groups, while the table stays in use.

        `file_groups` is the number of a global index; for a partitioned record index it is one for all partition paths,
        or a dict with a number for some. `name` is that of `create`, or a name that `list` returns. All entries are
        rewritten by a replacecommit of the metadata table. Returns its instant, or None where the index has these
        numbers already. An index that outgrows its file groups is re-sharded by writes
        (`lakebed.metadata.index.max.filegroup.size`).

        Raises `InvalidOption` for other indexes and numbers, `CommitConflict` while a write to the table is pending.

        >>> t.indexes.create("record_index", groups=1)
        >>> _ = t.indexes.reshard("record_index", 4)
        >>> t.indexes.skew("record_index").to_arrow()["shards"].to_pylist()
        [4, 4]
        """
        settings = resolve_options(options).write
        return self._opened.again(lambda: reshard_index(self._storage, name, file_groups, settings=settings))

    def skew(self, name: str | None = None) -> SkewView:
        """The distribution of the entries of a record or secondary index (None: of all) over its file groups, as a
        `SkewView`.

        Entries in log files count once for each write. Reads the trailers of the index's files.

        >>> t.indexes.create("record_index", groups=1)
        >>> sum(t.indexes.skew("record_index").shards["entries"].to_pylist())
        3
        """
        return self._opened.again(lambda: SkewView(shards(self._snapshot(), name)))

    def verify(self, name: str | None = None) -> Verification:
        """Compare one index (as `list` names it) or all with the files and rows of the table. The result names each
        difference; it is true if there is none.

        All includes "record keys": keys that are stored twice and should be unique. Raises `InvalidOption` for another
        name.

        >>> print(t.indexes.verify())
        checked column_stats, files, partition_stats
        no difference
        """
        return self._opened.again(lambda: verify(self._storage, name))

    def repair(self, name: str | None = None, *, options: Mapping[str, Any] | None = None) -> Verification:
        """Verify one index (as `list` names it) or all, and write the records that differ. Returns the differences that
        were found.

        File groups without a difference are not rewritten.

        >>> t.indexes.repair("files").ok
        True
        """
        names, settings = None if name is None else [name], resolve_options(options).write
        return self._opened.again(lambda: repair(self._storage, names, settings=settings))

    def ranges(self, columns: Sequence[str] | None = None) -> RangesView:
        """The overlap of the ranges of columns (None: of all with statistics) between base files, as a table; its
        `.plot(column)` is a picture.

        Reads the column statistics of the metadata table; without them the result is empty.

        >>> t.indexes.ranges(["city"]).to_arrow().to_pylist()
        [{'column': 'city', 'type': 'string', 'files': 2, 'with_range': 2, 'overlap': 0.5}]
        """
        return self._opened.again(lambda: RangesView(column_ranges(self._snapshot(), columns)))

    def bloom_rates(self, files: int = 64) -> pa.Table:
        """The false-positive rates of the bloom filters of at most `files` base files: a table with the columns
        partition, file_name and rate.

        A rate is the share of absent keys that a filter lets through, by the bits that are set in it; 1.0 is that of
        the filter that accepts every key. Files without a filter are left out. Raises `InvalidOption` for a number of
        files below 1.

        >>> t.indexes.bloom_rates()["rate"].to_pylist()
        [1.0, 1.0]
        """
        if files < 1:
            raise refused("bloom_rates", "files", files, "a number of files, 1 or more")
        return self._opened.again(lambda: bloom_rates(self._snapshot(), files))

    def use(
        self,
        index: str | Index,
        *,
        buckets: int | None = None,
        hash_fields: Sequence[str] = (),
        update_partition_path: bool | None = None,
        partition_buckets: str | None = None,
        dry_run: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Rescaled:
        """Change the index of writes, on a table that has rows: "bucket", "record", "bloom", "simple", ...

        One commit does all that the new index needs: for a bucket index all rows move to their buckets, a record index
        is built, others need nothing. With `dry_run` the result is the plan, and nothing is written. Writes that began
        under the old index get a conflict.

        Raises `IndexInconsistent`, with the keys, where a key has several rows and may have one. Raises
        `CommitConflict` if another writer wrote to the rows that move, `InvalidOption` for settings that do not fit
        the index.

        >>> _ = t.indexes.use("simple")
        >>> t.indexes.index.name
        'simple'
        """
        choice = IndexChoice(index, buckets, tuple(hash_fields), update_partition_path, partition_buckets)
        return self._opened.again(
            lambda: use_index(self._opened.service_context(options, "use", "files"), choice, dry_run=dry_run)
        )

    def adopt(
        self,
        index: str | Index,
        *,
        buckets: int | None = None,
        hash_fields: Sequence[str] = (),
        update_partition_path: bool = True,
        partition_buckets: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> Index:
        """Record the index that the table has, and return it.

        A bucket index is first compared with all stored keys, an `Index` object (an `HBaseIndex`) with a sample of
        them. `partition_buckets` are the counts of partition paths, as in `hoodie.bucket.index.partition.expressions`.
        Raises `IndexInconsistent` with the first key that is stored elsewhere; nothing is recorded then.

        >>> t.indexes.adopt("bucket", buckets=2).name
        'bucket'
        """
        if not isinstance(index, str) and not hasattr(index, "place"):
            raise refused("adopt", "index", index, "the name of an index, or an Index object")

        find = partial(
            adopt,
            kind=index,
            buckets=buckets,
            fields=tuple(hash_fields),
            update_partition_path=update_partition_path,
            partition_buckets=partition_buckets,
        )
        settings = resolve_options(options).write
        self._opened.again(lambda: adopt_index(self._storage, settings, find))
        return self.index

    def advise(self, batch: Any = None, *, deletes: bool = False) -> Advice:
        """The cost of writing a batch under every index (finding keys, writing, reading), each figure with its reason.

        `batch` are rows, their number, or None for batches like the past commits. `deletes` means that batches are keys
        to be deleted, without partition columns. Looks up some of the batch's keys and writes nothing.

        >>> advice = t.indexes.advise(10)
        >>> advice.index in [choice.index for choice in advice.ranking]
        True
        """
        return self._opened.again(
            lambda: advise_for_table(self._snapshot(), self._opened.engine(), batch, deletes=deletes)
        )

    def __repr__(self) -> str:
        listed = super().__repr__()
        reason = self.reason
        choice = f"chosen: {reason}\n" if reason else ""
        explanation = self._opened.again(lambda: self.index.explain_for(self._snapshot()))
        return f"writes: {explanation}\n{choice}{listed}"

    def _snapshot(self) -> Snapshot:
        return open_snapshot(self._storage)

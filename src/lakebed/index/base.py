"""What an index is: it places the rows of a write in file groups. Read this file first.

A write derives the record key (`_hoodie_record_key`) and the partition path (`_hoodie_partition_path`) of its rows
and asks the table's index to `place` them: in numbered file groups (`Numbered`, `Hashed`), where the file group
follows from a hash of the key; or tagged with the file group of their key (`Tagged`), where the key is looked up. No
code outside this room asks which index it has.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import pyarrow as pa

from lakebed.config.settings import ClusteringSettings, IndexSettings
from lakebed.errors import InvalidOption
from lakebed.expressions.base import RowExpression
from lakebed.expressions.key_generators import KeyGenerator
from lakebed.model import CommitMetadata, FileGroupId, FileSlice
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.write_status import WriteStatus

if TYPE_CHECKING:
    from lakebed.engine.base import Engine, Rows
    from lakebed.handles.base import HandleType
    from lakebed.merge.rules import MergeRules
    from lakebed.metadata_records.definitions import IndexName
    from lakebed.timeline.bodies.plans import ClusteringGroup, ClusteringOperation

__all__ = [
    "GroupNames",
    "GroupOutputs",
    "GroupResizing",
    "Hashed",
    "Hashing",
    "Index",
    "IndexOptions",
    "KeyHash",
    "KeyLocations",
    "KeyLookup",
    "Numbered",
    "Placement",
    "Resizes",
    "Resizing",
    "StoredLocations",
    "Tagged",
    "key_hash_of",
    "pending_resizes",
]


@dataclass(frozen=True, slots=True)
class Hashed:
    """A placement in which the file group follows from the row: its number is in the column that `KeyHash.group_column`
    derived.

    `existing` has the latest file slice of every (partition path, number) that is stored and that rows may go to.
    """

    existing: Mapping[tuple[str, int], FileSlice]
    several: Mapping[tuple[str, int], tuple[FileSlice, ...]] | None = None
    """The file slices of each number, where it may have several file groups; the task that has its rows looks their
    keys up in these."""


class GroupNames(Protocol):
    """The rule that maps the number of a file group to its file id. It can be pickled, since tasks use it."""

    def file_id(self, partition: str, number: int) -> str:
        """The id of the file group that rows of a partition path with this number go to, whether it exists or not."""
        ...

    def count(self, partition: str) -> int:
        """The number of file groups of a partition path."""
        ...


@dataclass(frozen=True, slots=True)
class Numbered:
    """A placement with the number of each row's file group in the column `GROUP` (int32); it follows from the key and
    from the index's data about each partition path.

    `existing` has the latest file slices of file groups that are there, by partition path and number. For file groups
    that a pending clustering makes, whose rows come twice, `parents` are the slices that hold their rows until then.
    """

    rows: Rows
    names: GroupNames
    existing: Mapping[tuple[str, int], FileSlice]
    parents: Mapping[tuple[str, int], tuple[FileSlice, ...]] = field(
        default_factory=dict[tuple[str, int], tuple[FileSlice, ...]]
    )


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """The work that an index did to find the keys of a write.

    The index looked up `keys` keys, and `tagged` is the number of locations that it returned. The bloom indexes count a
    key once, other indexes count it as often as rows have it. By their partition paths `files` file slices could hold a
    key. Key ranges ruled out `out_of_range` of these slices, bloom filters ruled out `filtered`, and the stored keys of
    `searched` slices were read. Bloom filters were `asked` for a key this many times. `absent` of these times their
    file does not hold the key, and `false_positives` of the absent keys passed the filter.

    `opened` data files (base and log files) were opened to read stored keys or ordering values, and `bytes` of key
    columns and of log files were read from them, None if unknown: Spark's own reader does not count them. `opened` and
    `bytes` leave out the reads of footers. `index_files` files of an index were opened; a file counts for each task
    that opens it. `by_hash`: the hash of a key names its file group, so that no lookup was needed, and `tagged` is 0.
    """

    keys: int = 0
    tagged: int = 0
    files: int = 0
    out_of_range: int = 0
    filtered: int = 0
    searched: int = 0
    asked: int = 0
    absent: int = 0
    false_positives: int = 0
    opened: int = 0
    bytes: int | None = 0
    index_files: int = 0
    by_hash: bool = False

    @property
    def false_positive_rate(self) -> float:
        """The share (0 to 1) of absent keys that the bloom filters let through."""
        return self.false_positives / self.absent if self.absent else 0.0

    def with_reads(self, opened: int, size: int | None) -> KeyLookup:
        """This lookup with further files and bytes counted as read."""
        total = None if size is None or self.bytes is None else self.bytes + size
        return replace(self, opened=self.opened + opened, bytes=total)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {**asdict(self), "false_positive_rate": self.false_positive_rate}

    def __str__(self) -> str:
        key_counts = f"{self.tagged:,} of {self.keys:,} found"
        if self.by_hash:
            key_counts = f"{self.keys:,} placed by their hash"
        elif self.tagged > self.keys:
            key_counts = f"{self.keys:,}, found in {self.tagged:,} places"
        parts = [f"keys: {key_counts}"]
        if self.files:
            ruled_out = f"{self.out_of_range:,} ruled out by key range, {self.filtered:,} by bloom filter"
            parts.append(f"files: {self.files:,}, {ruled_out}, {self.searched:,} read")
        else:
            parts.append(f"data files read: {self.opened:,}")
        if self.index_files:
            parts.append(f"files of the index: {self.index_files:,}")
        if self.asked:
            parts.append(f"false positives of the filters: {self.false_positives:,} ({self.false_positive_rate:.2g})")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Tagged:
    """The rows with two additional columns, `FILE_ID` and `INSTANT`: the file group that has the row's key and the
    instant of its newest file, both null for a key that the table does not have.

    A global index may have changed `_hoodie_partition_path` to where the key is stored, or give two rows for a key that
    moves: one with `DELETE` true for its old place, one without location for the new one. A key that is stored in
    several file groups gives one row for each.

    An index that reads base files to find keys may give the rows that it found there in a third column, `POSITION`:
    log blocks then have the rows that they are for (`TableConfig.has_record_positions`).

    `persisted` are rows that the index persisted for these: the caller releases them. `lookup` has the counts
    of its search.
    """

    rows: Rows
    persisted: Rows | None = None
    lookup: KeyLookup | None = None

    @contextmanager
    def released(self, engine: Engine) -> Generator[Rows]:
        """The rows; at the end of the block the rows persisted for them are released."""
        try:
            yield self.rows
        finally:
            if self.persisted is not None:
                engine.release(self.persisted)


Placement = Hashed | Numbered | Tagged


class KeyLocations(Protocol):
    """The file slices that can hold a key, by a hash of the key and without a lookup."""

    fields: tuple[str, ...]
    """The key fields that are hashed, all of them named."""

    def groups_of(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The number (int32) of each stored key text, if it is equal in all partition paths: the number of its file
        group, or its position on a ring of file groups."""
        ...

    def slices_of(self, slices: Iterable[FileSlice], numbers: Collection[int]) -> list[FileSlice]:
        """The slices that can hold keys with these numbers, and all slices without a number."""
        ...

    def in_partition(self, path: str) -> KeyLocations:
        """These locations in one partition path. The objects are hashable, and equal for paths in which keys have equal
        numbers."""
        return self

    @property
    def modulo(self) -> int | None:
        """The number of buckets, by which tables are joined: a file id begins with the key's hash modulo this number in
        every partition path, and no two file groups of a partition path begin with the same number. None if file groups
        are located in another way."""
        return None


class KeyHash(KeyLocations, Protocol):
    """The hash by which an index finds the file group of a key; a column of the rows has its number."""

    @property
    def groups(self) -> int:
        """The largest number of file groups that a partition path can have."""
        ...

    def group_column(self, keys: KeyGenerator, schema: pa.Schema) -> RowExpression:
        """The derived column (int32) with the number of each row's file group, for rows of this schema.

        SchemaConflict where they lack a column that the key is made of.
        """
        ...

    def in_partition(self, path: str) -> KeyHash:
        """The hash of one partition path. The objects are hashable, and equal for hashes that place keys equally."""
        return self

    def stored_group(self) -> RowExpression:
        """The expression of `group_column` for stored rows, over their columns `_hoodie_record_key` and
        `_hoodie_partition_path`."""
        raise NotImplementedError

    @property
    def is_even(self) -> bool:
        """Whether each number has an equal share of all keys: no single bucket was split."""
        return True

    def spread(self, group: int, other: KeyHash) -> tuple[int, ...] | None:
        """The numbers that the keys of one file group of this hash may have under another hash of the same partition
        path; None if they are unknown."""
        return None


class GroupOutputs(Protocol):
    """The file groups that a clustering writes the rows of a group of slices to. It can be pickled, since tasks use
    it."""

    @property
    def file_ids(self) -> tuple[str, ...]: ...

    def of_keys(self, keys: pa.Array) -> pa.Array:
        """The position in `file_ids` of the file group for each record key."""
        ...


@dataclass(frozen=True, slots=True)
class Resizing:
    """A requested resize of an index that hashes keys: `buckets` in all partition paths, or in some `partitions`;
    Hudi's `rules` ("regex,count;...") for all; or a split of every bucket of more than `split_over` bytes."""

    buckets: int | None = None
    partitions: tuple[str, ...] | None = None
    rules: str | None = None
    split_over: int | None = None


@dataclass(frozen=True, slots=True)
class Resizes:
    """The file groups of pending clusterings during which writes continue, with the instants of these clusterings:
    `parents` will be replaced, `children` replace them. `Index.place` gives the rows of a parent for its child as well;
    `origins` names the parents of a child."""

    parents: Mapping[FileGroupId, str] = field(default_factory=dict[FileGroupId, str])
    children: Mapping[FileGroupId, str] = field(default_factory=dict[FileGroupId, str])
    origins: Mapping[FileGroupId, tuple[FileGroupId, ...]] = field(
        default_factory=dict[FileGroupId, tuple[FileGroupId, ...]]
    )

    def without(self, replaced: Mapping[str, Sequence[str]]) -> Resizes:
        """These resizes without the `replaced` file groups (ids by partition path), whose rows the write drops."""
        replaced_groups = {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
        if not replaced_groups & self.parents.keys():
            return self
        return replace(self, parents={group: at for group, at in self.parents.items() if group not in replaced_groups})

    def instant_of(self, group: FileGroupId) -> str | None:
        """The instant of the clustering that a file group is in; None if it is in none."""
        return self.parents.get(group) or self.children.get(group)


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """A caller's settings in addition to the name of an index; None for a setting that is not given. `defaults` are
    settings (in the form of `Index.settings`) for those. `hbase` are the settings of an HBase index, as in
    `IndexSettings`.
    """

    name: str
    buckets: int | None = None
    fields: tuple[str, ...] | None = None
    update_partition_path: bool | None = None
    partition_buckets: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    hbase: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def refuse_all_but(self, *accepted: str) -> None:
        """Raise `InvalidOption` if an option is given that is not one of the index's `accepted` options."""
        for option in ("update_partition_path", "buckets", "fields", "partition_buckets"):
            if option not in accepted and getattr(self, option) is not None:
                raise InvalidOption(
                    f"{option} does not belong to the index {self.name!r}",
                    hint="buckets and fields are the bucket index's, update_partition_path the global indexes'",
                    context={"index": self.name, "option": option},
                )


class Hashing(Protocol):
    """The part of an index whose file groups follow from the key. Writers of one key always meet in its file group, and
    no lookup checks whether the table has the key."""

    rows_can_move: bool = True
    """Whether a table with rows can get this index in place of another, and another in place of this one."""

    has_fixed_groups: bool = True
    """Whether, with a `key_hash`, a number is one file group, to which writers that do not know of each other give the
    same name."""

    begins_with_logs: bool = False
    """Whether the rows of new file groups go to log files."""

    @property
    def key_hash(self) -> KeyHash | None:
        """The hash that gives the number of a row's file group: then `place` returns `Hashed`. None for an index that
        derives the number from its data about each partition path: then `place` returns `Numbered`."""
        return None

    def hashed_fields(self, key_fields: Sequence[str]) -> tuple[str, ...]:
        """The key fields whose values alone decide where a row is placed."""
        return tuple(key_fields)

    def key_locations(self, snapshot: Snapshot) -> KeyLocations | None:
        """The file slices of a view that can hold a key; None if they are unknown."""
        return self.key_hash

    def resized(self, resizing: Resizing, snapshot: Snapshot) -> Index:
        """This index with another number of file groups. Raises `InvalidOption` if it cannot have that number."""
        ...

    def grown(self, sizes: Mapping[str, Mapping[int, int]], limit: int, *, by_path: bool) -> Index | None:
        """This index with more file groups where one is larger than `limit`, so that the rows of a new file group come
        from a single old one; None if no file group is larger. `sizes` are bytes by partition path and number; with
        `by_path` each partition path can have its own number of file groups."""
        return None

    def before_change(self, instant: str, storage: Storage) -> None:
        """Prepare the table for this index. A transaction calls it under the table lock, before the instant completes
        that makes this the table's index."""


class GroupResizing(Protocol):
    """The part of an index whose file groups are split and merged by clusterings. A write that puts its rows into new
    file groups replaces all existing ones."""

    def for_new_groups(self, instant: str) -> Index:
        """This index for a write whose rows go to new file groups only, which replace the existing ones."""
        ...

    def resizes(self, snapshot: Snapshot) -> Resizes:
        """The pending clusterings during which writes can continue under this index."""
        ...

    def with_child_locations(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Rows:
        """The rows with the `FILE_ID` of the file group that holds their key. Rows of a parent in `resizes` are
        repeated, with the `FILE_ID` of the child."""
        ...

    def clustering_groups(
        self,
        snapshot: Snapshot,
        slices: Sequence[FileSlice],
        instant: str,
        settings: ClusteringSettings,
        max_file_size: int,
    ) -> list[ClusteringGroup]:
        """The groups of slices that one clustering of these slices writes together."""
        ...

    def outputs(self, operation: ClusteringOperation) -> GroupOutputs | None:
        """The file groups for the rows of a planned group; None if the plan does not name any, and rows go to new files
        in the order of the rows."""
        ...

    def check_commits(self, commit: CommitMetadata, others: Sequence[CommitMetadata]) -> None:
        """Raise `CommitConflict` if a commit cannot follow `others`, the commits since it began, although no file group
        is changed by both. A transaction calls it under the table lock before `update`."""
        ...


class StoredLocations(Protocol):
    """The part of an index that finds keys without the rows of a write: the index or the table's metadata stores their
    file groups."""

    def locate(self, keys: Rows, snapshot: Snapshot, engine: Engine) -> Rows | None:
        """The columns `_hoodie_record_key`, `_hoodie_partition_path`, `FILE_ID` and `INSTANT` of those `keys` that the
        table has, in any partition path; None if the stored keys themselves have to be searched."""
        ...

    def place_in_one(self, rows: Rows, rules: MergeRules | None, snapshot: Snapshot, engine: Engine) -> Tagged | None:
        """The rows with the locations of their keys, from an index that shuffles rows by key to the task that looks the
        key up: that task also combines the rows of a key by `rules` (None: all rows are retained). None if the index
        does not shuffle: then the caller combines the rows and calls `place`."""
        return None


@runtime_checkable
class Index(Protocol):
    """The base class of indexes. Other packages' indexes inherit from it and register under the entry-point group
    `lakebed.indexes`.

    `name`, `is_global`, `place` and `explain` make one that looks keys up in the table; with `update` and `rollback` it
    stores their locations itself. The three attributes `hashing`, `resizing` and `stored_locations` add more abilities,
    and are None where an index lacks them.

    A class that needs more than its name has the class method `from_settings(settings)`, which takes what `settings()`
    gave; one that takes options has `from_options(options)`, with an `IndexOptions`.
    """

    name: ClassVar[str]
    """The name in `index="..."` and in the table's `lakebed.index.type`."""

    is_global: bool
    """Whether a key is unique over the table (else within its partition path)."""

    table_types: ClassVar[tuple[str, ...]] = ("cow", "mor")
    """The tables that can have this index."""

    ignores_log_deletes: bool = False
    """Whether real Hudi's index of this kind looks for keys in base files alone: then it finds a key that log files
    delete (`lakebed.index.changed_locations`)."""

    needs_bloom_filters: bool = False
    """Whether base files of the table are to have bloom filters that are filled with their keys."""

    @property
    def hashing(self) -> Hashing | None:
        """The capability of an index whose file groups follow from the key; None for an index that looks keys up."""
        return None

    @property
    def resizing(self) -> GroupResizing | None:
        """The capability of an index whose file groups clusterings split and merge; None for every other index."""
        return None

    @property
    def stored_locations(self) -> StoredLocations | None:
        """The capability of an index that stores the locations of keys; None if stored keys are searched."""
        return None

    def settings(self) -> Mapping[str, str]:
        """The settings that the table must record, as properties without the prefix `lakebed.index.` (`type` among
        them)."""
        return {"type": self.name}

    def identity(self) -> Mapping[str, str]:
        """The settings in which a job's index must agree with the table's index: all settings, unless some only
        configure how the index works and how fast."""
        return self.settings()

    def resolved(self, key_fields: Sequence[str]) -> Index:
        """This index, completed from the table's key fields. Raises InvalidOption if they do not fit."""
        return self

    def with_lookup_options(self, settings: IndexSettings) -> Index:
        """This index, changed by the lookup options of a job."""
        return self

    def for_existence_checks(self) -> Index:
        """This index for writes that only ask whether a key exists: each row gets the location of its key."""
        return self

    @property
    def metadata_indexes(self) -> tuple[IndexName, ...]:
        """The indexes in the table's metadata table that this one reads; the first write builds them."""
        return ()

    @property
    def insert_handle(self) -> HandleType | None:
        """The type of the handle that writes the rows of new file groups: it makes a `lakebed.handles.base.Handle` in
        tasks, so it must be picklable. None: base files are written."""
        return None

    @property
    def stores_locations(self) -> bool:
        """Whether the index alone stores the locations of keys. Such an index does not have rows that are older than
        the index."""
        return type(self).update is not Index.update

    def check(self, snapshot: Snapshot) -> None:
        """Raise `IndexInconsistent` if a sample of the stored keys shows that the table does not have this index."""

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Placement:
        """The placement of the rows. An index without `hashing` returns `Tagged`; one with a `key_hash`, whose column
        the rows have, returns `Hashed`; one with `hashing` alone returns `Numbered`: the rows with an additional
        column, not persisted.

        The rows may be evaluated several times, then they are persisted: the caller releases what it gave.
        """
        ...

    def update(
        self,
        statuses: Sequence[WriteStatus],
        instant: str,
        snapshot: Snapshot,
        replaced: Mapping[str, Sequence[str]],
    ) -> None:
        """Store the locations of the keys that a write added, and remove those that it deleted. A transaction calls it
        under the table lock, after the last check that can prevent the commit.

        `statuses` are those of all file groups written (`lakebed.metadata_kinds.key_changes.group_changes` gives
        the keys that each gained and lost), `replaced` the ids of the file groups that are replaced, by partition path.
        `snapshot` is the table without the instant, `snapshot.storage` its storage. What raises here fails the write.
        """

    def committed(self, instant: str, snapshot: Snapshot) -> None:
        """Make the changes that must not be made before the instant is complete. A transaction calls it without the
        lock, on the object whose `update` was called and with the same snapshot. If the writer dies before, it is never
        called, and errors here are ignored, so the index has to be right without it."""

    def rollback(self, instant: str, snapshot: Snapshot) -> None:
        """Remove the records of an instant from the index. Called under the table lock before the instant is removed
        from the timeline, and again if the rollback was interrupted."""

    def explain_for(self, snapshot: Snapshot) -> str:
        """The description of the index in the plan of a write to this view of the table, which may not have what the
        index reads."""
        return self.explain()

    def explain(self) -> str:
        """One line of text that describes how this index finds a key here."""
        ...


def key_hash_of(index: Index) -> KeyHash | None:
    """The hash that decides the file group of a key; None for an index that does not have one."""
    return None if index.hashing is None else index.hashing.key_hash


def pending_resizes(index: Index, snapshot: Snapshot) -> Resizes:
    """The pending clusterings during which writes can continue under the index; other clusterings prevent writes."""
    return Resizes() if index.resizing is None else index.resizing.resizes(snapshot)

"""What an index is: it places the rows of a write in file groups. Read this file first.

A write derives the record key (`_hoodie_record_key`) and the partition path (`_hoodie_partition_path`) of its rows and
asks the table's index to `place` them. How that is done is the index's own business: the file group follows from a hash
of the key (bucket), or the key is looked up among the keys of the stored rows (simple) or in an index of its own
(record). Nothing outside this room asks which index it has before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import pyarrow as pa

from lakebed.config.settings import ClusteringSettings, HBaseSettings, IndexSettings
from lakebed.engine.base import Engine, Rows
from lakebed.errors import InvalidOption
from lakebed.expressions.base import RowExpression
from lakebed.expressions.key_generators import KeyGenerator
from lakebed.index.placement import GroupNames, Hashed, KeyLookup, Numbered, Placement, Tagged
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.model import FileGroupId, FileSlice
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.plans import ClusteringGroup, ClusteringOperation
from lakebed.write_status import WriteStatus

if TYPE_CHECKING:
    from lakebed.handles.base import HandleType
    from lakebed.merge.rules import MergeRules

__all__ = [
    "GroupNames",
    "GroupOutputs",
    "Hashed",
    "Index",
    "IndexOptions",
    "KeyHash",
    "KeyLookup",
    "KeyPlaces",
    "Numbered",
    "Placement",
    "Resizes",
    "Resizing",
    "Tagged",
]


class KeyPlaces(Protocol):
    """Which file slices can hold a key, by a hash of it and without looking anything up."""

    fields: tuple[str, ...]
    """The key fields that are hashed, all of them named."""

    def groups_of(self, keys: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The number (int32) of each stored key text, where that is the same in all partition paths: that of its file
        group, or its place on a ring of them."""
        ...

    def slices_of(self, slices: Iterable[FileSlice], numbers: Collection[int]) -> list[FileSlice]:
        """Those of the slices that can hold keys with these numbers, and those that tell no number."""
        ...

    def in_partition(self, path: str) -> KeyPlaces:
        """The same for one partition path; equal objects (they hash) for those where keys have the same numbers."""
        return self

    @property
    def modulo(self) -> int | None:
        """The number of buckets, where the number that a file id begins with is the key's hash modulo it, in every
        partition path, and no two file groups of a partition path have it: joins go by it. None where file groups are
        found otherwise."""
        return None


class KeyHash(KeyPlaces, Protocol):
    """The hash by which an index finds the file group of a key: a column of the rows has its number."""

    @property
    def groups(self) -> int:
        """How many file groups a partition path has at most."""
        ...

    def group_column(self, keys: KeyGenerator, schema: pa.Schema) -> RowExpression:
        """The derived column (int32) with the number of each row's file group, for rows of this schema.

        SchemaConflict where they lack a column that the key is made of.
        """
        ...

    def in_partition(self, path: str) -> KeyHash:
        """The hash of one partition path; equal objects (they hash) for those where keys fall alike."""
        return self

    def stored_group(self) -> RowExpression:
        """As `group_column`, of rows with the columns `_hoodie_record_key` and `_hoodie_partition_path`."""
        raise NotImplementedError

    @property
    def is_even(self) -> bool:
        """Whether each number has the same share of all keys: no bucket was split by itself."""
        return True

    def spread(self, group: int, other: KeyHash) -> tuple[int, ...] | None:
        """The numbers that the keys of one of this hash's file groups may have by another hash of the same partition
        path; None where nothing is known of that."""
        return None


class GroupOutputs(Protocol):
    """The file groups that a clustering writes the rows of a group of slices to. It pickles: tasks ask it."""

    @property
    def file_ids(self) -> tuple[str, ...]: ...

    def of_keys(self, keys: pa.Array) -> pa.Array:
        """For each record key the number of its file group among `file_ids`."""
        ...


@dataclass(frozen=True, slots=True)
class Resizing:
    """What somebody wants of an index that hashes keys: `buckets` in all partition paths, or in some `partitions`;
    Hudi's `rules` ("regex,count;...") for all; or every one of more than `split_over` bytes split."""

    buckets: int | None = None
    partitions: tuple[str, ...] | None = None
    rules: str | None = None
    split_over: int | None = None


@dataclass(frozen=True, slots=True)
class Resizes:
    """The file groups of pending clusterings that writes go on beside, with the instants of those: `parents` are going
    to be replaced, `children` take their place. `Index.place` gives the rows of a parent for its child as well;
    `origins` names the parents of a child."""

    parents: Mapping[FileGroupId, str] = field(default_factory=dict[FileGroupId, str])
    children: Mapping[FileGroupId, str] = field(default_factory=dict[FileGroupId, str])
    origins: Mapping[FileGroupId, tuple[FileGroupId, ...]] = field(
        default_factory=dict[FileGroupId, tuple[FileGroupId, ...]]
    )

    def instant_of(self, group: FileGroupId) -> str | None:
        """The clustering that a file group is in."""
        return self.parents.get(group) or self.children.get(group)


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """What a caller says besides the name of an index; None where nothing is said.

    `defaults` are settings (as `Index.settings` has them) for what is left open.
    """

    name: str
    buckets: int | None = None
    fields: tuple[str, ...] | None = None
    update_partition_path: bool | None = None
    partition_buckets: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    hbase: HBaseSettings = field(default_factory=HBaseSettings)

    def refuse_all_but(self, *own: str) -> None:
        """Raise `InvalidOption` for an option that is given and not one of the index's `own`."""
        for option in ("update_partition_path", "buckets", "fields", "partition_buckets"):
            if option not in own and getattr(self, option) is not None:
                raise InvalidOption(
                    f"{option} does not belong to the index {self.name!r}",
                    hint="buckets and fields are the bucket index's, update_partition_path the global indexes'",
                    context={"index": self.name, "option": option},
                )


@runtime_checkable
class Index(Protocol):
    """Third-party indexes inherit from this class and register under the entry-point group `lakebed.indexes`.

    A class that needs more than its name has the class method `from_settings(settings)`, which takes what `settings()`
    gave; one that takes options has `from_options(options)`, with an `IndexOptions`.
    """

    name: ClassVar[str]
    """As in `index="..."` and in the table's `lakebed.index.type`."""

    is_global: bool
    """Whether a key is unique over the table (else within its partition path)."""

    places_by_key: bool = False
    """Whether `Numbered` rows, or `Tagged` ones, have the file group that their key belongs to, be it there or not:
    nobody has looked whether the table holds the key."""

    can_index_log_files: bool = False
    """Whether keys are found that only log files hold, so that the rows of new file groups go to those."""

    sought_in_base_files: bool = False
    """Whether real Hudi's index of this kind looks for keys in base files alone: it takes a key for stored that log
    files delete (`lakebed.index.returning`)."""

    table_types: ClassVar[tuple[str, ...]] = ("cow", "mor")
    """The tables that can have this index."""

    def settings(self) -> Mapping[str, str]:
        """What the table must remember, as properties without the prefix `lakebed.index.` (`type` among them)."""
        return {"type": self.name}

    def identity(self) -> Mapping[str, str]:
        """Those of the settings in which a job's index must agree with the table's; all of them, unless some only say
        how fast or by which way it works."""
        return self.settings()

    def resolved(self, key_fields: Sequence[str]) -> Index:
        """The same index with what it takes from the table's key fields filled in; InvalidOption where they do not
        fit."""
        return self

    @property
    def key_hash(self) -> KeyHash | None:
        """The hash that says where a key is; None for an index that looks keys up."""
        return None

    def hashed_fields(self, key_fields: Sequence[str]) -> tuple[str, ...]:
        """Those of the key fields whose values alone say where a row is placed."""
        return tuple(key_fields)

    rows_can_move: bool = True
    """Whether a table with rows can get this index in place of another, and another in place of this one."""

    has_fixed_groups: bool = True
    """Whether, of an index with a `key_hash`, a number is one file group, which writers that do not know of each other
    may name alike."""

    @property
    def is_hashed(self) -> bool:
        """Whether the file group follows from the key, so that writers of one key always meet in its file group."""
        return self.key_hash is not None or self.places_by_key

    def key_places(self, snapshot: Snapshot) -> KeyPlaces | None:
        """Which file slices of a view can hold a key; None for an index that looks keys up."""
        return self.key_hash

    @property
    def metadata_indexes(self) -> tuple[IndexName, ...]:
        """The indexes in the table's metadata table that this one reads; the first write builds them."""
        return ()

    @property
    def insert_handle(self) -> HandleType | None:
        """What writes the rows of new file groups: makes a `lakebed.handles.base.Handle`, in tasks, so it has to
        pickle. None: base files are written."""
        return None

    @property
    def needs_bloom_filters(self) -> bool:
        """Whether base files of the table are to have bloom filters that are filled with their keys."""
        return False

    def told(self, settings: IndexSettings) -> Index:
        """The same index with what a job's options say of how it looks keys up."""
        return self

    def check(self, snapshot: Snapshot) -> None:
        """Raise `IndexInconsistent` where a sample of the stored keys shows that the table has not this index."""

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Placement:
        """Where the rows go: `Hashed` for an index with a `key_hash`, whose column the rows have, else `Tagged`. One
        that `places_by_key` may give `Numbered`: the rows, which are not persisted then, with a column more.

        The rows may be evaluated several times, then they are persisted: the caller releases what it gave.
        """
        ...

    def anew(self, instant: str) -> Index:
        """The same index for a write whose rows go to new file groups only, which replace those that are there."""
        return self

    def place_in_one(self, rows: Rows, rules: MergeRules | None, snapshot: Snapshot, engine: Engine) -> Tagged | None:
        """As `place` for an index that looks keys up where a shuffle by key brings them: in the same task the rows of
        a key are made one by `rules` (None: all stay). None where it does not: they are made one, then placed."""
        return None

    def resized(self, wanted: Resizing, snapshot: Snapshot) -> Index:
        """The same index with another number of file groups; `InvalidOption` where it cannot have it."""
        raise InvalidOption(
            f"the index {self.name!r} has no buckets to rescale",
            hint="t.indexes.use('bucket', buckets=...) makes a bucket table of this one",
            context={"index": self.name},
        )

    @property
    def keeps_places(self) -> bool:
        """Whether it keeps places of keys that nobody else keeps: then it knows nothing of rows from before it."""
        return type(self).update is not Index.update

    def before_change(self, instant: str, storage: Storage) -> None:
        """Called under the table lock before the instant that makes this the table's index completes."""

    def without_moves(self) -> Index:
        """The same index for writes that only ask whether a key exists: each row comes back at its key's place."""
        return self

    def locate(self, keys: Rows, snapshot: Snapshot, engine: Engine) -> Rows | None:
        """`_hoodie_record_key`, `_hoodie_partition_path`, `FILE_ID` and `INSTANT` of those keys that the table holds,
        in whatever partition path; None where the stored keys themselves have to be searched."""
        return None

    def resizes(self, snapshot: Snapshot) -> Resizes:
        """The pending clusterings that this index keeps right while writes go on; others stand in their way."""
        return Resizes()

    def brought_along(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Rows:
        """Rows with their place (`FILE_ID`, whose file group holds their key), and those of parents in `resizes` once
        more, with the place of the child."""
        return rows

    def clustering_groups(
        self,
        snapshot: Snapshot,
        slices: Sequence[FileSlice],
        instant: str,
        settings: ClusteringSettings,
        max_file_size: int,
    ) -> list[ClusteringGroup] | None:
        """What a clustering of these slices writes together where the index has a say in it; None: by the settings."""
        return None

    def outputs(self, operation: ClusteringOperation) -> GroupOutputs | None:
        """The file groups of the rows of a planned group where the index knows them; None: as they come."""
        return None

    def update(
        self,
        statuses: Sequence[WriteStatus],
        instant: str,
        snapshot: Snapshot,
        replaced: Mapping[str, Sequence[str]],
    ) -> None:
        """Called under the table lock when nothing stands in the way of the commit any more.

        `statuses` are those of all file groups written (`lakebed.upkeep.changed_keys.group_changes` gives the keys that
        each gained and lost), `replaced` the ids of the file groups that go, by partition path. `snapshot` is the table
        without the instant, `snapshot.storage` its storage. What raises here fails the write.
        """

    def committed(self, instant: str, snapshot: Snapshot) -> None:
        """Called once the instant is complete, without the lock, on the object whose `update` was called, and with the
        same snapshot: for what must not be done before. A writer that dies in between never gets here, and what raises
        here is not heard of: the index has to be right without."""

    def rollback(self, instant: str, snapshot: Snapshot) -> None:
        """Forget what an instant told the index: called under the table lock before the instant is taken off the
        timeline, again if that was cut off."""

    def explain_for(self, snapshot: Snapshot) -> str:
        """The same of a view of the table, which may lack what the index reads."""
        return self.explain()

    def explain(self) -> str:
        """One line for people: what this index does to find a key here."""
        ...

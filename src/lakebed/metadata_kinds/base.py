"""`PartitionKind`: one kind of metadata partition: its name, its file groups, the codec of its records, how several
records of a key become one; the records of an action, of a first build, and those expected from the data.

A kind works on one of several views of a table. A view caches what several kinds need (`shared`), so that it is read
once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.errors import CorruptFile, InvalidOption
from lakebed.metadata_records.layout import GROUP_ID, GroupSizing, HFileForm, file_group, file_keys
from lakebed.metadata_records.merge_records import Layer
from lakebed.metadata_records.records import GroupRecords, RecordForm, Records, record_form
from lakebed.model import CommitMetadata
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.write_status import WriteStatus

if TYPE_CHECKING:
    from lakebed.engine.base import Engine
    from lakebed.metadata_records.definitions import IndexDefinition, IndexName
    from lakebed.slices.metadata_lookups import MetadataLookups

Decode = Callable[[pa.Array, Any, str], pa.Table]
# The layers under some keys that later requested instants wrote, oldest first.
LaterLayers = Callable[[pa.Array], Sequence[Layer]]

_ESCAPED = frozenset([*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^_-"])
_PERCENT = re.compile("%([0-9A-Fa-f]{2})")


def _by_full_key(keys: pa.Array, file_groups: int, index_version: int) -> npt.NDArray[np.int32]:
    return file_group(keys, file_groups)


def _no_description(definition: IndexDefinition | None) -> str | None:
    return None


class Union(Protocol):
    """The way in which the records of one key become one record, for kinds in which the newest does not simply replace
    the others."""

    def applies(self, value: bytes) -> bool:
        """Whether records like this one are united. All records of a partition are of the same sort."""
        ...

    def encoded(
        self, keys: pa.Array, values: Any, schema_json: str, form: RecordForm, index_version: Callable[[], int]
    ) -> tuple[pa.Array, pa.Array]:
        """The keys and values, one record per key, from the live records, oldest first. `index_version` is called only
        if it is needed."""
        ...

    def decoded(self, records: pa.Table) -> pa.Table:
        """The merged records, decoded: a table with one record per key, from the live records, oldest first."""
        ...


class Overruled(Protocol):
    """Whether records of later requested instants, which merge after an action's records, make the action's records
    wrong."""

    def __call__(
        self, records: Records, form: RecordForm, later: LaterLayers, definition: Callable[[], IndexDefinition | None]
    ) -> bool: ...


def _escape(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


class Comparison(NamedTuple):
    """The expected records of a partition, the stored ones, and other valid contents, record by record."""

    expected: pa.Table
    found: pa.Table
    alternatives: Sequence[pa.Table] = ()


T = TypeVar("T")
NewPartition: TypeAlias = "tuple[list[GroupRecords], IndexDefinition | None]"


@dataclass(frozen=True, eq=False)
class _TableView:
    """Views of a table share results by it; `snapshot` is the state of the table for the kinds."""

    snapshot: Snapshot
    _shared: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False, repr=False)

    @property
    def form(self) -> RecordForm:
        """The form in which records of this table are written."""
        return record_form(self.snapshot.config.version)

    def shared(self, make: Callable[[Self], T]) -> T:
        """The result of `make` for this view, computed at the first call."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return self._shared[make]


@dataclass(frozen=True, eq=False)
class TableAction(_TableView):
    """One action that is about to complete; `snapshot` is the table before it, `partitions` are the partitions of the
    metadata table that the action must update."""

    settings: WriteSettings
    instant: str
    commit: CommitMetadata
    statuses: Sequence[WriteStatus]
    partitions: Sequence[str]


@dataclass(frozen=True, eq=False)
class Removal(_TableView):
    """A clean that is about to complete, or the pending ones: the names of the deleted `files` by partition path, and
    the partition paths that are `dropped`. `snapshot` is the table before it."""

    files: Mapping[str, Sequence[str]]
    dropped: Collection[str] = ()
    settings: WriteSettings = field(default_factory=WriteSettings)

    @property
    def keys(self) -> pa.StringArray:
        """The `file_keys` of the files."""
        pairs = [(partition, name) for partition, names in self.files.items() for name in names]
        return file_keys([partition for partition, _ in pairs], [name for _, name in pairs])


@dataclass(frozen=True, eq=False)
class FirstBuild(_TableView):
    """A table, with or without rows, for which partitions are built; `snapshot` does not use the metadata table.
    `engine` runs a job if many bytes have to be read."""

    settings: WriteSettings
    engine: Engine | None


@dataclass(frozen=True, eq=False)
class StoredTable(_TableView):
    """The table's stored data. `snapshot` does not use the metadata table; everything is read on demand."""


@dataclass(frozen=True)
class NewIndex:
    """An index that a table is to have.

    `schema` has the table's columns, none where it has none yet; `partitions` are those of the metadata table that are
    there or come with it. `write_index` names the index that writes use; with `has_unique_keys` it gives a key one
    location in the table, otherwise one in each partition path.
    """

    name: IndexName
    config: TableConfig
    schema: pa.Schema
    partitions: Collection[str]
    write_index: str
    has_unique_keys: bool

    def require_stored_keys(self, feature: str) -> None:
        """Raise `InvalidOption` for a table whose files do not store record keys."""
        if not self.config.populate_meta_fields or not self.config.key_fields:
            raise InvalidOption(
                f"{feature} needs record keys that are stored, and table {self.config.name!r} has none",
                hint="Make the table with key fields and with meta fields.",
            )

    def require_one_location(self, why: str, hint: str = "") -> None:
        """Raise `InvalidOption` for a table in which a key may have several locations; `hint` names another
        solution."""
        if self.config.partition_fields and not self.has_unique_keys:
            raise InvalidOption(
                f"with the index {self.write_index!r} a key of table {self.config.name!r} may be stored in each"
                f" partition path, and {why}",
                hint=f"Make the table with the index 'record' or 'global_simple'.{hint}",
                context={"index": self.write_index},
            )


@dataclass(frozen=True)
class PartitionKind:
    """One kind of metadata partition, registered under its `name` (see `registry`).

    `name` is the partition's, or with `is_prefix` the start of the names of many (one a secondary index, say).
    `file_id_start` begins the ids of its file groups; they are called as the partition where it is None. It has
    `file_groups` of them, or (`grows`) a number that depends on the records; with `by_data_partition` each partition
    path of the data has its own. `shard` maps each key to one of so many file groups; `shard_by_version` is whether
    that depends on the version of the index.

    `decode` gives a table with a row a record (or entry of it) from keys, values and the writer's schema; None where
    only lookups of their own read the records. Without a `union` the newest record of a key replaces all.

    `hfile` is how its HFiles are written. `build_position` is its place in the order in which partitions are built,
    `dropped_with` the partition without which it cannot be, `describe` its text in a list of indexes, if that is not
    its name. `requested_by` are the fields of a write's settings that ask for it, `index_type` the type of a table's
    index that does.
    """

    needs_log_rows: ClassVar[bool] = False
    """Whether its records depend on rows in log files, which verification does not read."""

    name: str
    is_prefix: bool = False
    file_id_start: str | None = None
    file_groups: int = 1
    grows: bool = False
    by_data_partition: bool = False
    shard: Callable[[pa.Array, int, int], npt.NDArray[np.int32]] = _by_full_key
    shard_by_version: bool = False
    decode: Decode | None = None
    union: Union | None = None
    is_overruled: Overruled | None = None
    hfile: HFileForm = field(default_factory=HFileForm)
    build_position: int = 100
    dropped_with: str | None = None
    requested_by: tuple[str, ...] = ()
    index_type: str | None = None
    describe: Callable[[IndexDefinition | None], str | None] = _no_description

    def owns(self, partition: str) -> bool:
        """Whether a partition of the metadata table is of this kind."""
        return partition.startswith(self.name) if self.is_prefix else partition == self.name

    def index_of(self, partition: str) -> str:
        """The name of one index of the kind, without the prefix of their partitions."""
        return partition.removeprefix(self.name) if self.is_prefix else partition

    def file_id(self, partition: str, number: int, data_partition: str | None = None) -> str:
        """The id of file group `number` of a partition of this kind."""
        path = "" if data_partition is None else f"-{_escape(data_partition)}"
        return f"{self._start(partition)}{path}-{number:04d}-0"

    def is_file_id_of(self, partition: str, file_id: str) -> bool:
        """Whether this partition creates file ids of this form. Hudi's cleaner leaves file groups of other indexes in
        it (those of an expression index in `column_stats`), and then looks keys up in them as well."""
        return file_id.startswith(self._start(partition) + "-")

    def data_partition_of(self, file_id: str) -> str | None:
        """The partition path of the data that a file group belongs to; None if it belongs to all of them."""
        match = GROUP_ID.fullmatch(file_id) if self.by_data_partition else None
        start = f"{self._start(self.name)}-"
        if match is None or not match[1].startswith(start):
            return None
        return _PERCENT.sub(lambda code: chr(int(code[1], 16)), match[1].removeprefix(start))

    def _start(self, partition: str) -> str:
        return self.file_id_start or partition.replace("_", "-")

    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        """The definition of a partition to build, None for a kind without definitions; reads no rows."""
        return None

    # the records of an action and of a first build

    def records_of_action(self, partition: str, action: TableAction) -> Records | None:
        """The records that one completed action adds to this partition; None if it adds none."""
        raise NotImplementedError

    def records_of_clean(self, partition: str, removal: Removal) -> Records | None:
        """The records that a clean adds to this partition; None if it adds none."""
        return None

    def keys_of_clean(self, partition: str, removal: Removal) -> tuple[pa.Array, pa.Array]:
        """The keys and the entries that a clean removes from this partition, one of both per compared row."""
        records = self.records_of_clean(partition, removal)
        keys = pa.array([], pa.string()) if records is None else records.deleted
        return keys, pa.repeat(pa.scalar(""), len(keys))

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        """The first records of a new partition's file groups, and its definition if it has one. `sizing` is for
        partitions that grow."""
        raise NotImplementedError

    def compacted(
        self, partition: str, metadata: MetadataLookups, table: Callable[[], Snapshot], form: RecordForm
    ) -> Iterator[tuple[pa.Array, pa.Array]] | None:
        """The records that a compaction of the metadata table writes in place of those of this partition, in batches of
        keys and values in ascending order of the keys; None where it copies the newest record of each key.

        `metadata` reads the records that are compacted, and `table` opens the table as it is.
        """
        return None

    # the expected records

    def is_comparable(self, partition: str, table: StoredTable) -> bool:
        """Whether `expected` can be computed; not for an index without a definition, for example."""
        return True

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        """The records that the partition should hold by the data, as a comparable table."""
        raise NotImplementedError

    def found(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> pa.Table:
        """The records that the partition holds, as a comparable table."""
        raise NotImplementedError

    def comparisons(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> Iterator[Comparison]:
        """The comparisons of expected and stored records, in one or more parts without common keys."""
        alternatives = self.acceptable_alternatives(partition, table)
        yield Comparison(self.expected(partition, table), self.found(partition, metadata, table), alternatives)

    def acceptable_alternatives(self, partition: str, table: StoredTable) -> Sequence[pa.Table]:
        """Tables of other records that are valid in place of the expected records."""
        return ()

    def repair_missing(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        """The records that repair missing or wrong `rows` (of `comparison.DIFFERENCES`)."""
        raise NotImplementedError

    def repair_extra(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        """The records that delete extra or wrong `rows`."""
        return Records.deletes(rows["key"].combine_chunks())

    # which tables have it, and may have it

    def check_new(self, index: NewIndex) -> None:
        """Raise `InvalidOption`, `SchemaConflict` or `UnsupportedFeature` for an index that the table cannot have."""

    def check_drop(self, storage: Storage, config: TableConfig) -> None:
        """Raise `InvalidOption` for an index that the table cannot do without."""

    def index_name(self, partition: str, definition: IndexDefinition | None) -> IndexName:
        """The name under which an existing partition is built again."""
        from lakebed.metadata_records.definitions import IndexName

        return IndexName(partition)

    def is_in_every_table(self, settings: WriteSettings, config: TableConfig) -> bool:
        """Whether every new metadata table has the partition from the start."""
        return False

    def is_requested(self, settings: WriteSettings, config: TableConfig) -> bool:
        """Whether a job's options or the table's index request the partition."""
        by_index = self.index_type is not None and config.index_settings.get("type") == self.index_type
        return by_index or bool([name for name in self.requested_by if getattr(settings, name)])

    def requested(self, settings: WriteSettings, config: TableConfig) -> IndexName:
        """The index that a job's options or the table's index ask for."""
        from lakebed.metadata_records.definitions import IndexName

        return IndexName(self.name)

    def reason_not_maintained(self, partition: str, table: StoredTable) -> str | None:
        """A sentence with the reason why lakebed cannot keep the partition up to date; None if it can."""
        return None


def required(partition: str, definition: IndexDefinition | None) -> IndexDefinition:
    """The definition; raises `CorruptFile` if it is None, for an index that cannot be built without one."""
    if definition is None:
        raise CorruptFile(
            f"the index {partition} of the metadata table has no definition",
            hint="Drop it and create it again.",
            context={"index": partition},
        )
    return definition


def under_keys(records: Records, keys: pa.Array) -> Records:
    """The upserts whose keys are among `keys`."""
    matches = pc.is_in(records.keys, value_set=keys)
    return Records.upserts(records.keys.filter(matches), records.values.filter(matches))

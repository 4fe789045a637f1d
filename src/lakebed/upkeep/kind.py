"""`KindUpkeep`: how one kind of metadata partition is kept right. It gives the records of an action, of a first build
and those that the data calls for.

What the kinds work on is one of three views of a table, which hold what several of them need (`shared`), so that it is
read once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.config.settings import WriteSettings
from lakebed.engine.base import Engine
from lakebed.errors import CorruptFile, InvalidOption
from lakebed.metadata.keys import file_keys
from lakebed.metadata.kinds.definitions import IndexDefinition, IndexName
from lakebed.metadata.kinds.kind import MetadataKind
from lakebed.metadata.layout import GroupSizing
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.records import GroupRecords, Records
from lakebed.metadata.schemas import RecordForm, form_of_version
from lakebed.model import CommitMetadata
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.write_status import WriteStatus

T = TypeVar("T")
NewPartition = tuple[list[GroupRecords], IndexDefinition | None]


@dataclass(frozen=True, eq=False)
class _TableView:
    """`snapshot` is the table as the kinds see it."""

    snapshot: Snapshot
    _shared: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False, repr=False)

    @property
    def form(self) -> RecordForm:
        """The form in which records of this table are written."""
        return form_of_version(self.snapshot.config.version)

    def shared(self, make: Callable[[Self], T]) -> T:
        """What `make` gives for this view, made when first asked for."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return self._shared[make]


@dataclass(frozen=True, eq=False)
class TableAction(_TableView):
    """One action that is about to complete; `snapshot` is the table before it, `partitions` are those of the metadata
    table that it must keep."""

    settings: WriteSettings
    instant: str
    commit: CommitMetadata
    statuses: Sequence[WriteStatus]
    partitions: Sequence[str]


@dataclass(frozen=True, eq=False)
class Removal(_TableView):
    """A clean that is about to complete: the names of the `files` that it has deleted by partition path, and the
    partition paths that are `gone`. `snapshot` is the table before it."""

    files: Mapping[str, Sequence[str]]
    gone: Collection[str] = ()
    settings: WriteSettings = field(default_factory=WriteSettings)

    @property
    def keys(self) -> pa.StringArray:
        """The `file_keys` of the files."""
        pairs = [(partition, name) for partition, names in self.files.items() for name in names]
        return file_keys([partition for partition, _ in pairs], [name for _, name in pairs])


@dataclass(frozen=True, eq=False)
class FirstBuild(_TableView):
    """A table that may have rows, of which partitions are built; `snapshot` does not use the metadata table. `engine`
    runs a job where many bytes are read."""

    settings: WriteSettings
    engine: Engine | None


@dataclass(frozen=True, eq=False)
class StoredTable(_TableView):
    """What the data says. `snapshot` does not use the metadata table; everything is read when asked for."""


@dataclass(frozen=True)
class NewIndex:
    """An index that a table is to have.

    `schema` has the table's columns, none where it has none yet; `partitions` are those of the metadata table that are
    there or come with it. `write_index` names the index that writes use; with `has_unique_keys` a key has one place in
    the whole table under it, otherwise one in each partition path.
    """

    name: IndexName
    config: TableConfig
    schema: pa.Schema
    partitions: Collection[str]
    write_index: str
    has_unique_keys: bool

    def require_stored_keys(self, what: str) -> None:
        """Raise `InvalidOption` for a table without record keys in its files."""
        if not self.config.populate_meta_fields or not self.config.key_fields:
            raise InvalidOption(
                f"{what} needs record keys that are stored, and table {self.config.name!r} has none",
                hint="Make the table with key fields and with meta fields.",
            )

    def require_one_place(self, why: str) -> None:
        """Raise `InvalidOption` for a table where a key may have several places."""
        if self.config.partition_fields and not self.has_unique_keys:
            raise InvalidOption(
                f"with the index {self.write_index!r} a key of table {self.config.name!r} may stand in each partition"
                f" path, and {why}",
                hint="Make the table with index='record' or 'global_simple', or a record index for each partition"
                " path.",
                context={"index": self.write_index},
            )


class KindUpkeep:
    """Keeps the partitions of one `kind` right. Registered (see `registry`) it is asked for each of them.

    Where records are compared with the data, both sides are tables of `comparison.COMPARED`.
    """

    kind: MetadataKind
    # Whether it is known only with the rows of log files, which are not looked at.
    needs_log_rows = False

    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        """The definition of a partition that is to be built, where its kind has one; reads no rows."""
        return None

    # the records of an action and of a first build

    def of_action(self, partition: str, action: TableAction) -> Records | None:
        """What the action says to the partition; None for nothing at all."""
        raise NotImplementedError

    def of_removal(self, partition: str, removal: Removal) -> Records | None:
        """What a clean says to the partition; None for nothing at all."""
        return None

    def initial(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        """What the file groups of a new partition begin with, and its definition where it has one. `sizing` goes with
        partitions that grow."""
        raise NotImplementedError

    # the expected records

    def is_comparable(self, partition: str, table: StoredTable) -> bool:
        """Whether `expected` can tell; not of an index without a definition, say."""
        return True

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        """What the partition should hold."""
        raise NotImplementedError

    def found(self, partition: str, metadata: MetadataTable, table: StoredTable) -> pa.Table:
        """What the partition holds."""
        raise NotImplementedError

    def compared(self, partition: str, metadata: MetadataTable, table: StoredTable) -> tuple[pa.Table, pa.Table]:
        """What the partition should hold, and what it holds."""
        return self.expected(partition, table), self.found(partition, metadata, table)

    def right_as_well(self, partition: str, table: StoredTable) -> Sequence[pa.Table]:
        """Other contents that are right, record by record."""
        return ()

    def missing_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        """The records that put missing or wrong `rows` (of `comparison.DIFFERENCES`) right."""
        raise NotImplementedError

    def extra_records(self, partition: str, rows: pa.Table, table: StoredTable) -> Records:
        """The records that take extra or wrong `rows` off."""
        return Records.deletes(rows["key"].combine_chunks())

    # which tables have it, and may have it

    def check_new(self, index: NewIndex) -> None:
        """Raise `InvalidOption`, `SchemaConflict` or `UnsupportedFeature` for an index that the table cannot have."""

    def check_drop(self, storage: Storage, config: TableConfig) -> None:
        """Raise `InvalidOption` for an index that the table cannot do without."""

    def index_name(self, partition: str, definition: IndexDefinition | None) -> IndexName:
        """The name under which a partition that there is is built again."""
        return IndexName(partition)

    def is_in_every_table(self, settings: WriteSettings, config: TableConfig) -> bool:
        """Whether every metadata table that is made begins with it."""
        return False

    def requested(self, settings: WriteSettings, config: TableConfig) -> IndexName | None:
        """The index that a job's options or the table's settings ask for."""
        return None

    def reason_not_kept(self, partition: str, table: StoredTable) -> str | None:
        """Why lakebed cannot keep the partition up to date; None where it can."""
        return None


def required(partition: str, definition: IndexDefinition | None) -> IndexDefinition:
    """The definition of an index that cannot be built without one."""
    if definition is None:
        raise CorruptFile(
            f"the index {partition} of the metadata table has no definition",
            hint="Drop it and create it again.",
            context={"index": partition},
        )
    return definition


def under_keys(records: Records, keys: pa.Array) -> Records:
    """Those upserts whose keys are among these."""
    chosen = pc.is_in(records.keys, value_set=keys)
    return Records.upserts(records.keys.filter(chosen), records.values.filter(chosen))

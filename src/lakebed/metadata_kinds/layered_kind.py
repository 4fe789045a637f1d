"""The common part of indexes that have layers: each action adds a layer with the rows that it wrote, and a witness.

A kind of such an index says what a layer holds; when one is written, for which tables and columns there is an index,
and how an index is compared with the table are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind, InvalidOption, UnsupportedFeature
from lakebed.merge.rules import MergeRules
from lakebed.metadata_kinds.base import (
    Comparison,
    FirstBuild,
    NewIndex,
    NewPartition,
    PartitionKind,
    StoredTable,
    TableAction,
    required,
)
from lakebed.metadata_kinds.layer_fold import folded_records
from lakebed.metadata_kinds.layer_records import Head, LaterLayer, LayerRecords, S, opened_once, stored_definitions
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_kinds.routing import grouped
from lakebed.metadata_kinds.stored import COMPARED
from lakebed.metadata_kinds.vector_coverage import Coverage, Witness, coverage, repair_layer, witness_of
from lakebed.metadata_records.definitions import IndexDefinition, IndexName
from lakebed.metadata_records.layout import GroupSizing
from lakebed.metadata_records.records import RecordForm, Records
from lakebed.properties.table_config import TableConfig
from lakebed.schema.column_names import did_you_mean
from lakebed.schema.spark import type_name
from lakebed.slices.metadata_lookups import MetadataLookups
from lakebed.slices.snapshot import Snapshot

_FIRST_VERSION = 8


@dataclass(eq=False)
class BuiltIndex(ABC):
    """An index that was built from a view of a table, with what it covers, and a layer of commits that came later."""

    column: str
    witness: Witness
    later: list[LaterLayer] = field(default_factory=list[LaterLayer], init=False)

    def catch_up(self, snapshot: Snapshot) -> None:
        """Add a layer with the rows of the commits in a view that came after the build. Raises `CommitConflict` where
        the build does not fit the view: commits of it were taken back, say."""
        covered = coverage(snapshot, self.witness, {})
        if covered.reason is not None:
            raise CommitConflict(
                f"the index on {self.column} that was built does not fit the table any more: {covered.reason}",
                hint="Build it again.",
                context={"column": self.column},
                kind=ConflictKind.TAKEN_BACK,
            )
        blocks: list[bytes] = []
        head, instants = self.write_later(covered, snapshot, blocks.append)
        if instants:
            witness = witness_of(snapshot.timeline, snapshot.instant, instants, ())
            self.later.append(LaterLayer(repair_layer(snapshot.instant or "", 0), head, blocks, witness))

    @abstractmethod
    def write_later(
        self, covered: Coverage, snapshot: Snapshot, put: Callable[[bytes], object]
    ) -> tuple[Head, Sequence[str]]:
        """Write the blocks of a layer with the rows of the commits that have no witness. Returns its head and these
        commits; no commit where there are none, or their rows are too many."""

    @abstractmethod
    def batches(self, form: RecordForm) -> Iterator[tuple[pa.Array, pa.Array]]:
        """The records of the index, in batches of keys and values in ascending order of the keys."""


class LayeredKind(PartitionKind, Generic[S]):
    """A kind of index with layers over the values of one column; `S` are its records in a metadata table."""

    noun: ClassVar[str]
    """What a value of the column is called: vector, text."""

    @property
    @abstractmethod
    def stored_type(self) -> Callable[[MetadataLookups, str], S]:
        """The class of the records of an index."""

    def stored(self, metadata: MetadataLookups, partition: str) -> S:
        """The records of an index."""
        return self.stored_type(metadata, partition)

    def opened(self, metadata: MetadataLookups, partition: str) -> S:
        """The records of an index, with what was read of them from this view of the metadata table before."""
        return opened_once(metadata, self.stored_type, partition)

    @abstractmethod
    def column_of(self, definition: IndexDefinition) -> str:
        """The column of an index, by its definition."""

    def serves(self, definition: IndexDefinition) -> tuple[str, ...]:
        """What an index is searched for: its column, and what else a search names."""
        return (self.column_of(definition),)

    @abstractmethod
    def fits(self, kind: pa.DataType) -> bool:
        """Whether a column of this type may have such an index."""

    @abstractmethod
    def layer_of_action(
        self, action: TableAction, stored: S, covered: Coverage
    ) -> tuple[LayerRecords, list[str]] | None:
        """The records of the layer of an action, and the commits without a witness whose rows it has as well; None if
        the action wrote too many rows."""

    @abstractmethod
    def built(self, definition: IndexDefinition, snapshot: Snapshot) -> BuiltIndex:
        """An index over the rows of a view. Raises `UnsupportedFeature` for too many rows."""

    @abstractmethod
    def expected_values(self, snapshot: Snapshot, column: str) -> pa.Table:
        """The rows of the table that the index is to have, as rows of `COMPARED`."""

    def definition(self, name: IndexName, snapshot: Snapshot, settings: WriteSettings) -> IndexDefinition | None:
        return name.expression

    def index_name(self, partition: str, definition: IndexDefinition | None) -> IndexName:
        return IndexName(partition, expression=required(partition, definition))

    def records_of_action(self, partition: str, action: TableAction) -> Records | None:
        snapshot = action.snapshot
        metadata = snapshot.metadata
        if metadata is None or not metadata.has(partition):
            return None  # it is being built: whoever completes the build finds a commit without a witness
        stored = self.stored(metadata, partition)
        covered = stored.coverage(snapshot)
        if covered.reason is not None:
            return None  # the index waits to be built again
        written = self.layer_of_action(action, stored, covered)
        if written is None:
            return None  # its file groups are searched exactly, until the index is built again
        records, caught_up = written
        left = [gap.instant for gap in covered.gaps if gap.instant not in caught_up]
        records.add_witness(action.instant, witness_of(snapshot.timeline, action.instant, caught_up, left))
        return records.encoded(action.form)

    def first_records(self, name: IndexName, build: FirstBuild, sizing: GroupSizing) -> NewPartition:
        definition = required(name.partition, name.expression)
        built = self.built(definition, build.snapshot)
        (group,) = grouped(name.partition, Records.upserts(pa.array([], pa.string()), pa.array([], pa.binary())))
        return [replace(group, batches=built.batches(build.form))], definition

    def compacted(
        self, partition: str, metadata: MetadataLookups, table: Callable[[], Snapshot], form: RecordForm
    ) -> Iterator[tuple[pa.Array, pa.Array]] | None:
        if not metadata.has(partition):
            return None  # it is being built: there are layers without a base
        return folded_records(self.stored(metadata, partition), table(), form)

    def check_new(self, index: NewIndex) -> None:
        feature = f"{self.noun} index"
        column = self.column_of(required(index.name.partition, index.name.expression))
        index.require_stored_keys(f"a {feature}")
        if index.config.version < _FIRST_VERSION:
            raise UnsupportedFeature(
                f"a {feature} of table {index.config.name!r}, of version {index.config.version}",
                hint="Upgrade the table: t.maintenance.upgrade().",
                context={"feature": feature, "version": index.config.version},
            )
        reason = self._reason(column, index.config, index.schema)
        if reason is not None:
            fitting = [f.name for f in index.schema if self.fits(f.type)]
            raise InvalidOption(
                f"a {feature} on {column}: {reason}",
                hint=did_you_mean(column, fitting, f"the {self.noun}s are")
                if fitting
                else f"Add a {self.noun} column first.",
                context={"column": column},
            )

    def check_only(self, definition: IndexDefinition, others: Iterable[IndexDefinition]) -> None:
        """Raise `InvalidOption` for an index that serves the searches of one of the others of the table: writes would
        keep both, and searches use one."""
        for other in others:
            if (
                other.name != definition.name
                and kind_of(other.name) is self
                and self.serves(other) == self.serves(definition)
            ):
                searches = " ".join(self.serves(definition))
                raise InvalidOption(
                    f"the index {other.name} is for searches of {searches} already, and {definition.name} would be too",
                    hint=f"A search uses one of them; drop the other one first: t.indexes.drop({other.name!r}).",
                    context={"index": other.name, "column": self.column_of(definition)},
                )

    def reason_not_maintained(self, partition: str, table: StoredTable) -> str | None:
        definition = table.shared(stored_definitions).get(partition)
        if definition is None:
            return "it has no definition"
        return self._reason(self.column_of(definition), table.snapshot.config, table.snapshot.schema)

    def _reason(self, column: str, config: TableConfig, schema: pa.Schema) -> str | None:
        """Why a table cannot have an index on the column; None if it can."""
        if MergeRules.of_table(config).merger is not None:
            return f"the table's own merge function makes new {self.noun}s as rows are read"
        if len(schema) and column not in schema.names:
            return "the table has no such column"
        if len(schema) and not self.fits(schema.field(column).type):
            return f"the column is {type_name(schema.field(column).type)}, and no {self.noun}"
        return None

    def is_comparable(self, partition: str, table: StoredTable) -> bool:
        return partition in table.snapshot.config.metadata_partitions and partition in table.shared(stored_definitions)

    def expected(self, partition: str, table: StoredTable) -> pa.Table:
        column = self.column_of(table.shared(stored_definitions)[partition])
        schema = table.snapshot.schema
        if column not in schema.names or not self.fits(schema.field(column).type):
            return COMPARED.empty_table()
        return self.expected_values(table.snapshot, column)

    def comparisons(self, partition: str, metadata: MetadataLookups, table: StoredTable) -> Iterator[Comparison]:
        lacking = self.stored(metadata, partition).lacking_commits(table.snapshot)
        yield Comparison(lacking, COMPARED.empty_table())
        yield Comparison(self.expected(partition, table), self.found(partition, metadata, table))


def layered_kind(partition: str) -> LayeredKind[Any]:
    """The kind of a vector index or a text index."""
    kind = kind_of(partition)
    assert isinstance(kind, LayeredKind)
    return kind

"""Which indexes of record keys a table keeps: the record index, and secondary indexes with the field of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lakebed.metadata.kinds.definitions import IndexDefinition, load_definitions
from lakebed.metadata.layout import SECONDARY_INDEX
from lakebed.model import RECORD_INDEX
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Storage

_IS_PARTITIONED = "isPartitioned"
_FIRST_VERSION_WITH_DEFINITION = 9


@dataclass(frozen=True, slots=True)
class KeyIndexes:
    """`secondary` has each index's definition by its partition; `partitioned` is the record index's kind."""

    record_index: bool = False
    partitioned: bool = False
    secondary: Mapping[str, IndexDefinition] = field(default_factory=dict[str, IndexDefinition])

    @classmethod
    def of(cls, storage: Storage, config: TableConfig) -> KeyIndexes:
        """Those that every write must keep up: complete ones and those being built. Reads the definitions where there
        are any."""
        kept = {*config.metadata_partitions, *config.metadata_partitions_inflight}
        if not any(name == RECORD_INDEX or name.startswith(SECONDARY_INDEX) for name in kept):
            return cls()
        definitions = load_definitions(storage, config)
        secondary = {n: definitions[n] for n in sorted(kept) if n.startswith(SECONDARY_INDEX) and n in definitions}
        return cls(RECORD_INDEX in kept, is_partitioned(definitions.get(RECORD_INDEX)), secondary)

    def of_partitions(self, partitions: Collection[str]) -> KeyIndexes:
        """Those among some partitions of the metadata table."""
        secondary = {name: one for name, one in self.secondary.items() if name in partitions}
        return KeyIndexes(self.record_index and RECORD_INDEX in partitions, self.partitioned, secondary)

    def __bool__(self) -> bool:
        return self.record_index or bool(self.secondary)

    @property
    def partitions(self) -> list[str]:
        """Their partitions of the metadata table."""
        return [*([RECORD_INDEX] if self.record_index else []), *self.secondary]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields whose values are reported with keys."""
        return tuple(dict.fromkeys(indexed_field(one) for one in self.secondary.values()))


def is_partitioned(definition: IndexDefinition | None) -> bool:
    """Whether a record index is one for each partition path of the data."""
    return definition is not None and definition.options.get(_IS_PARTITIONED, "").lower() == "true"


def indexed_field(definition: IndexDefinition) -> str:
    """The field that a secondary index is on."""
    return definition.source_fields[0]


def record_index_definition(version: int, *, partitioned: bool) -> IndexDefinition | None:
    """The definition of a record index; None for tables before version 9."""
    if version < _FIRST_VERSION_WITH_DEFINITION:
        return None
    return IndexDefinition(RECORD_INDEX, RECORD_INDEX, options={_IS_PARTITIONED: str(partitioned).lower()})


def secondary_index_definition(name: str, column: str, version: int) -> IndexDefinition:
    """The definition of a secondary index, which has the partition `name`."""
    return IndexDefinition(name, "secondary_index", "identity", (column,), version=2 if version >= 9 else 1)

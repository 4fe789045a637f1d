"""The kinds of metadata partitions that lakebed reads and keeps, and the names of indexes that users give.

The kinds of lakebed are imported when a partition of theirs is asked for.

>>> kind_of("secondary_index_city").name, kind_of("record_index").file_id("record_index", 0, "x-1")
('secondary_index_', 'record-index-x%2D1-0000-0')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from lakebed.errors import InvalidOption
from lakebed.metadata_kinds.base import PartitionKind
from lakebed.metadata_records.layout import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_INDEX,
    FILES,
    PARTITION_STATS,
    TEXT_INDEX,
    VECTOR_INDEX,
    secondary_index_name,
)
from lakebed.model import RECORD_INDEX, SECONDARY_INDEX
from lakebed.properties.table_config import TableConfig
from lakebed.schema.column_names import near_or_nothing

if TYPE_CHECKING:
    from lakebed.metadata_records.definitions import IndexName

# In the order in which the records of an action are written. A kind is imported when a partition of it is asked for; a
# name that ends in "_" begins the names of many partitions.
_KINDS: dict[str, PartitionKind | str] = {
    FILES: "lakebed.metadata_kinds.files:KIND",
    COLUMN_STATS: "lakebed.metadata_kinds.column_stats:COLUMN_STATS_KIND",
    PARTITION_STATS: "lakebed.metadata_kinds.column_stats:PARTITION_STATS_KIND",
    BLOOM_FILTERS: "lakebed.metadata_kinds.bloom_filters:KIND",
    EXPRESSION_INDEX: "lakebed.metadata_kinds.expression_index:KIND",
    RECORD_INDEX: "lakebed.metadata_kinds.record_index:KIND",
    SECONDARY_INDEX: "lakebed.metadata_kinds.secondary_index:KIND",
    VECTOR_INDEX: "lakebed.metadata_kinds.vector_index:KIND",
    TEXT_INDEX: "lakebed.metadata_kinds.text_index:KIND",
}


def register(kind: PartitionKind) -> None:
    """Register a kind of metadata partition, in place of one of the same name: from now on its partitions are read,
    built by name, updated with every write, verified and repaired."""
    _KINDS[kind.name] = kind


def unregister(name: str) -> None:
    """Remove a kind from the registered ones."""
    _KINDS.pop(name, None)


def find_kind(partition: str) -> PartitionKind | None:
    """The kind of a partition of the metadata table; None for a partition that lakebed cannot read or maintain."""
    name = partition
    if partition not in _KINDS:
        prefixes = (
            name
            for name, kind in _KINDS.items()
            if partition.startswith(name) and (name.endswith("_") if isinstance(kind, str) else kind.is_prefix)
        )
        name = next(prefixes, None)
    if name is None:
        return None
    kind = _KINDS[name]
    if isinstance(kind, str):
        module, _, attribute = kind.partition(":")
        kind = _KINDS[name] = getattr(import_module(module), attribute)
    return kind


def kind_of(partition: str) -> PartitionKind:
    """The kind of a partition, like `find_kind`; for an unknown partition a plain kind with the usual names of
    files."""
    return find_kind(partition) or PartitionKind(partition)


def kinds() -> tuple[PartitionKind, ...]:
    """All kinds, in the order in which an action's records of them are written."""
    return tuple(map(kind_of, _KINDS))


def in_build_order(partitions: Iterable[str]) -> list[str]:
    """The partitions in the order in which Hudi builds them."""
    return sorted(partitions, key=lambda name: kind_of(name).build_position)


def in_write_order(partitions: Iterable[str]) -> list[str]:
    """The partitions in the order in which the records of an action are written; those of one kind by name."""
    positions = {name: position for position, name in enumerate(_KINDS)}
    return sorted(partitions, key=lambda partition: (positions.get(kind_of(partition).name, len(positions)), partition))


# Indexes that a new table gets with its first write, separated by commas.
REQUESTED_PROPERTY = "lakebed.metadata.indexes"


def parse_index_name(text: str) -> IndexName:
    """The index that a name means: one of Hudi's partitions, `record_index:partitioned`, or a column (with or
    without `secondary:`) for a secondary index on it.

    >>> parse_index_name("city").partition, parse_index_name("record_index:partitioned").partitioned
    ('secondary_index_city', True)
    """
    from lakebed.metadata_records.definitions import PARTITIONED_RECORD_INDEX, SECONDARY_PREFIX, IndexName

    name = text.strip()
    plain = [kind.name for kind in kinds() if not kind.is_prefix and kind.name != FILES]
    if name in plain:
        return IndexName(name)
    if name == "record":
        return IndexName(RECORD_INDEX)
    if name == PARTITIONED_RECORD_INDEX:
        return IndexName(RECORD_INDEX, partitioned=True)
    column = name.removeprefix(SECONDARY_PREFIX)
    if not column or name.startswith(FILES) or find_kind(name) is not None:
        raise InvalidOption(
            f"{name!r} is no index that can be made by its name",
            hint=f"There are {', '.join(plain)}, and secondary indexes by the name of their column.",
            context={"index": name},
        )
    return IndexName(secondary_index_name(column), column=column)


def remembered_indexes(properties: Mapping[str, str]) -> list[IndexName]:
    """The indexes that the table's properties ask for."""
    return [parse_index_name(text) for text in properties.get(REQUESTED_PROPERTY, "").split(",") if text.strip()]


def remembered_property(names: Sequence[IndexName]) -> dict[str, str]:
    """The property by which a table asks for these indexes; empty without indexes."""
    return {REQUESTED_PROPERTY: ",".join(map(str, names))} if names else {}


def key_index_of(config: TableConfig, name: str) -> str:
    """The partition of a record or secondary index that the table has, by its name or the name of its column."""
    partitions = config.metadata_partitions
    partition = name if name in partitions else parse_index_name(name).partition
    if not kind_of(partition).grows:
        raise InvalidOption(
            f"{partition} has a fixed number of file groups",
            hint="The record index and secondary indexes can be re-sharded.",
            context={"index": partition},
        )
    if partition not in partitions:
        raise InvalidOption(
            f"table {config.name!r} has no index {name!r}",
            hint=f"{near_or_nothing(name, partitions)}It has {', '.join(partitions) or 'none'}.",
            context={"index": name},
        )
    return partition

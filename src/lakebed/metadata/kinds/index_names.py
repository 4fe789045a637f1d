"""Indexes of the metadata table by the words of a user, and the property that remembers which a table is to get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.errors import InvalidOption
from lakebed.metadata.kinds.definitions import PARTITIONED_RECORD_INDEX, SECONDARY_PREFIX, IndexName
from lakebed.metadata.kinds.registry import find_kind, kind_of, kinds
from lakebed.metadata.layout import FILES, secondary_index_name
from lakebed.model import RECORD_INDEX
from lakebed.properties.table_config import TableConfig

# Indexes that a new table gets with its first write, separated by commas.
WANTED_PROPERTY = "lakebed.metadata.indexes"


def parse_index_name(text: str) -> IndexName:
    """The index that a name means: one of Hudi's partitions, `record_index:partitioned`, or a column (with or
    without `secondary:`) for a secondary index on it."""
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
    return [parse_index_name(text) for text in properties.get(WANTED_PROPERTY, "").split(",") if text.strip()]


def remembered_property(names: Sequence[IndexName]) -> dict[str, str]:
    """The property that makes a table ask for these; none for none."""
    return {WANTED_PROPERTY: ",".join(map(str, names))} if names else {}


def key_index_of(config: TableConfig, name: str) -> str:
    """The partition of a record or secondary index that the table has, given its name or that of its column."""
    kept = config.metadata_partitions
    partition = name if name in kept else parse_index_name(name).partition
    if not kind_of(partition).grows:
        raise InvalidOption(
            f"{partition} has a fixed number of file groups",
            hint="The record index and secondary indexes can be re-sharded.",
            context={"index": partition},
        )
    if partition not in kept:
        raise InvalidOption(
            f"table {config.name!r} has no index {name!r}",
            hint=f"It has {', '.join(kept) or 'none'}.",
            context={"index": name},
        )
    return partition

"""Indexes of the metadata table by the words of a user, and the property that remembers which a table is to get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import InvalidOption
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.registry import find_kind, kind_of, kinds
from lakebed.metadata.layout import FILES, secondary_index_name
from lakebed.model import RECORD_INDEX
from lakebed.properties.table_config import TableConfig

# Indexes that a new table gets with its first write, separated by commas.
WANTED_PROPERTY = "lakebed.metadata.indexes"
_PARTITIONED = f"{RECORD_INDEX}:partitioned"
_SECONDARY = "secondary:"


@dataclass(frozen=True, slots=True)
class IndexName:
    """One index: its `partition` of the metadata table, the `column` of a secondary index, whether a record index is
    `partitioned` (one for each partition path of the data), and the definition of an index on an `expression`.

    >>> str(IndexName.parse("secondary:city")), IndexName.parse("city").partition
    ('secondary:city', 'secondary_index_city')
    """

    partition: str
    column: str | None = None
    partitioned: bool = False
    expression: IndexDefinition | None = None

    @classmethod
    def parse(cls, text: str) -> IndexName:
        """The index that a name means: one of Hudi's partitions, `record_index:partitioned`, or a column (with or
        without `secondary:`) for a secondary index on it."""
        name = text.strip()
        plain = [kind.name for kind in kinds() if not kind.is_prefix and kind.name != FILES]
        if name in plain:
            return cls(name)
        if name == "record":
            return cls(RECORD_INDEX)
        if name == _PARTITIONED:
            return cls(RECORD_INDEX, partitioned=True)
        column = name.removeprefix(_SECONDARY)
        if not column or name.startswith(FILES) or find_kind(name) is not None:
            raise InvalidOption(
                f"{name!r} is no index that can be made by its name",
                hint=f"There are {', '.join(plain)}, and secondary indexes by the name of their column.",
                context={"index": name},
            )
        return cls(secondary_index_name(column), column=column)

    def __str__(self) -> str:
        if self.column is not None:
            return _SECONDARY + self.column
        return _PARTITIONED if self.partitioned else self.partition


def remembered_indexes(properties: Mapping[str, str]) -> list[IndexName]:
    """The indexes that the table's properties ask for."""
    return [IndexName.parse(text) for text in properties.get(WANTED_PROPERTY, "").split(",") if text.strip()]


def remembered_property(names: Sequence[IndexName]) -> dict[str, str]:
    """The property that makes a table ask for these; none for none."""
    return {WANTED_PROPERTY: ",".join(map(str, names))} if names else {}


def key_index_of(config: TableConfig, name: str) -> str:
    """The partition of a record or secondary index that the table has, given its name or that of its column."""
    kept = config.metadata_partitions
    partition = name if name in kept else IndexName.parse(name).partition
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

"""The kinds of metadata partitions that lakebed reads and keeps, by the names of their partitions.

>>> kind_of("secondary_index_city").name, kind_of("record_index").file_id("record_index", 0, "x-1")
('secondary_index_', 'record-index-x%2D1-0000-0')
"""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.metadata.kinds import (
    bloom_filters,
    column_stats,
    expression_index,
    files,
    partition_stats,
    record_index,
    secondary_index,
)
from lakebed.metadata.kinds.kind import MetadataKind

_KINDS: dict[str, MetadataKind] = {
    module.KIND.name: module.KIND
    for module in (
        files,
        column_stats,
        partition_stats,
        bloom_filters,
        expression_index,
        record_index,
        secondary_index,
    )
}


def register(kind: MetadataKind) -> None:
    """Make a kind known, in place of one of the same name."""
    _KINDS[kind.name] = kind


def unregister(name: str) -> None:
    """Forget a kind."""
    _KINDS.pop(name, None)


def find_kind(partition: str) -> MetadataKind | None:
    """The kind of a partition of the metadata table; None for one that lakebed neither reads nor keeps."""
    exact = _KINDS.get(partition)
    if exact is not None and not exact.is_prefix:
        return exact
    return next((k for k in _KINDS.values() if k.is_prefix and k.owns(partition)), None)


def kind_of(partition: str) -> MetadataKind:
    """The same, with a plain kind for a partition that is not known: its files are named as those of others."""
    return find_kind(partition) or MetadataKind(partition)


def is_known(partition: str) -> bool:
    """Whether lakebed reads and keeps this partition of the metadata table."""
    return find_kind(partition) is not None


def kinds() -> tuple[MetadataKind, ...]:
    """All kinds, in the order in which an action's records of them are written."""
    return tuple(_KINDS.values())


def in_build_order(partitions: Iterable[str]) -> list[str]:
    """Partitions in the order in which Hudi builds them."""
    return sorted(partitions, key=lambda name: kind_of(name).build_position)


def in_write_order(partitions: Iterable[str]) -> list[str]:
    """Partitions in the order in which the records of an action are written, those of one kind by name."""
    places = {name: place for place, name in enumerate(_KINDS)}
    return sorted(partitions, key=lambda partition: (places.get(kind_of(partition).name, len(places)), partition))

"""The kinds of metadata partitions that lakebed keeps. `register` brings in a further one."""

from __future__ import annotations

from lakebed.metadata.kinds import registry
from lakebed.metadata.kinds.registry import kind_of
from lakebed.upkeep.bloom_filters import BloomFiltersUpkeep
from lakebed.upkeep.column_stats import ColumnStatsUpkeep
from lakebed.upkeep.expression_index import ExpressionIndexUpkeep
from lakebed.upkeep.files import FilesUpkeep
from lakebed.upkeep.key_kind import KeyIndexUpkeep
from lakebed.upkeep.kind import KindUpkeep
from lakebed.upkeep.partition_stats import PartitionStatsUpkeep
from lakebed.upkeep.record_index import RecordIndexUpkeep
from lakebed.upkeep.secondary_index import SecondaryIndexUpkeep

_UPKEEP: dict[str, KindUpkeep] = {
    upkeep.kind.name: upkeep
    for upkeep in (
        FilesUpkeep(),
        ColumnStatsUpkeep(),
        PartitionStatsUpkeep(),
        BloomFiltersUpkeep(),
        ExpressionIndexUpkeep(),
        RecordIndexUpkeep(),
        SecondaryIndexUpkeep(),
    )
}


def register(upkeep: KindUpkeep) -> None:
    """Make a kind of metadata partition known, with its upkeep: from now on it is read, built by its name, kept with
    every write, verified and repaired."""
    registry.register(upkeep.kind)
    _UPKEEP[upkeep.kind.name] = upkeep


def unregister(name: str) -> None:
    """Forget a kind."""
    registry.unregister(name)
    _UPKEEP.pop(name, None)


def find_upkeep(partition: str) -> KindUpkeep | None:
    """The upkeep of a partition of the metadata table; None for one that lakebed does not keep."""
    return _UPKEEP.get(kind_of(partition).name)


def upkeep_of(partition: str) -> KindUpkeep:
    """The upkeep of a partition that lakebed keeps."""
    return _UPKEEP[kind_of(partition).name]


def key_upkeep_of(partition: str) -> KeyIndexUpkeep:
    """The upkeep of an index of record keys."""
    found = upkeep_of(partition)
    assert isinstance(found, KeyIndexUpkeep)
    return found


def every_upkeep() -> tuple[KindUpkeep, ...]:
    """All of them, in the order of `registry.kinds`."""
    return tuple(_UPKEEP.values())

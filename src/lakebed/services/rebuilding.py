"""Building partitions of the metadata table again whose files are cut, lost or changed, from the table itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.errors import CorruptFile
from lakebed.metadata.kinds.definitions import IndexDefinition, load_definitions
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.layout import COLUMN_STATS, FILES, GroupSizing, group_number, parse_files
from lakebed.metadata.read.lookup import whole_slice
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.store.store import MetadataStore
from lakebed.model import META_COLUMNS
from lakebed.properties.table_config import TableConfig
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.comparison import DIFFERENCES
from lakebed.upkeep.kind import StoredTable
from lakebed.upkeep.metadata_upkeep import MetadataUpkeep
from lakebed.upkeep.registry import find_upkeep


def rebuild_damaged(snapshot: Snapshot, partitions: Sequence[str], settings: WriteSettings) -> pa.Table:
    """Build what cannot be read again; gives a row of differences for each. Lock held.

    Raises `CorruptFile` where the table itself cannot be read; nothing is changed then.
    """
    table = StoredTable(Snapshot(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False))
    damage = _damage(snapshot, table, partitions)
    if not damage:
        return DIFFERENCES.empty_table()
    broken = list(snapshot.config.metadata_partitions) if FILES in damage else list(damage)
    _check_rows(table, broken)
    rebuild(snapshot, broken, settings)
    columns = {"index": list(damage), "problem": ["damaged"] * len(damage), "what": list(damage.values())}
    empty = [None] * len(damage)
    return pa.table([pa.array(columns.get(f.name, empty), f.type) for f in DIFFERENCES], schema=DIFFERENCES)


def rebuild(snapshot: Snapshot, partitions: Sequence[str], settings: WriteSettings) -> None:
    """Drop these partitions and build them as they were defined, from the table; with `files` the whole metadata table.
    Lock held."""
    storage, config = snapshot.storage, snapshot.config
    definitions = load_definitions(storage, config)
    sizings = sizings_of(snapshot, partitions, definitions)
    config = MetadataUpkeep(storage, config, snapshot.timeline, settings).writer.drop(partitions)
    build_as_defined(replace(snapshot, config=config), partitions, definitions, sizings, settings)


def build_as_defined(
    snapshot: Snapshot,
    partitions: Sequence[str],
    definitions: Mapping[str, IndexDefinition],
    sizings: Mapping[str, GroupSizing | None],
    settings: WriteSettings,
) -> TableConfig:
    """Build these partitions, which the table does not have, by their definitions; gives the table's new settings. Lock
    held."""
    storage, config = snapshot.storage, snapshot.config
    names = _names(partitions, definitions)
    settings = replace(settings, column_stats=False, stats_columns=_stats_columns(definitions))
    for name in [IndexName(FILES), *names] if FILES in partitions else names:
        upkeep = MetadataUpkeep(storage, config, snapshot.timeline, settings)
        config = upkeep.add(name, sizing=sizings.get(name.partition)).config
    return config


def sizings_of(
    snapshot: Snapshot, partitions: Sequence[str], definitions: Mapping[str, IndexDefinition]
) -> dict[str, GroupSizing | None]:
    """How many file groups each of these partitions has, where that is not fixed."""
    return {name.partition: _sizing(snapshot, name) for name in _names(partitions, definitions)}


def _names(partitions: Sequence[str], definitions: Mapping[str, IndexDefinition]) -> list[IndexName]:
    kept = {p: upkeep for p in partitions if p != FILES and (upkeep := find_upkeep(p)) is not None}
    return [upkeep.index_name(p, definitions.get(p)) for p, upkeep in kept.items()]


def _damage(snapshot: Snapshot, table: StoredTable, partitions: Sequence[str]) -> dict[str, str]:
    """The partitions that cannot be read, with what is wrong; `files` stands for the whole metadata table."""
    try:
        metadata = snapshot.metadata
        if metadata is None:
            return {}
        metadata.partitions()
    except (CorruptFile, FileNotFoundError) as error:
        return {FILES: _reason(error)}
    damage: dict[str, str] = {}
    for partition in partitions:
        try:
            _read(metadata, table, partition)
        except (CorruptFile, FileNotFoundError) as error:
            damage[partition] = _reason(error)
    for partition in partitions:
        if (needed := kind_of(partition).dropped_with) in damage:
            damage.setdefault(partition, f"goes with {needed}")
    return damage


def _reason(error: CorruptFile | FileNotFoundError) -> str:
    return error.message if isinstance(error, CorruptFile) else f"{error} is gone"


def _read(metadata: MetadataTable, table: StoredTable, partition: str) -> None:
    for file_slice in metadata.slices.file_slices(partition):
        whole_slice(metadata.slices, file_slice)
    upkeep = find_upkeep(partition)
    if upkeep is not None and upkeep.is_comparable(partition, table):
        upkeep.found(partition, metadata, table)


def _check_rows(table: StoredTable, partitions: Sequence[str]) -> None:
    for partition in partitions:  # before anything is dropped
        upkeep = find_upkeep(partition)
        if upkeep is not None and upkeep.is_comparable(partition, table):
            upkeep.expected(partition, table)


def _stats_columns(definitions: Mapping[str, IndexDefinition]) -> tuple[str, ...]:
    known = definitions.get(COLUMN_STATS)
    return tuple(c for c in known.source_fields if c not in META_COLUMNS) if known is not None else ()


def _sizing(snapshot: Snapshot, name: IndexName) -> GroupSizing | None:
    """As many file groups as a global index has, going by the names of its files."""
    if not kind_of(name.partition).grows or name.partitioned:
        return None
    own = MetadataStore(snapshot.storage, snapshot.config, snapshot.timeline)
    files = (parse_files(name.partition, file, 0) for file in own.storage.list_names(name.partition))
    try:
        replaced = own.timeline.replaced_files()
    except (CorruptFile, FileNotFoundError):
        return None
    ids = {file.file_id for file in files if file is not None and (name.partition, file.file_id) not in replaced}
    numbers = [group_number(file_id) for file_id in ids]
    count = max(numbers) - min(numbers) + 1 if numbers else 0
    return GroupSizing(minimum=count, maximum=count) if count else None

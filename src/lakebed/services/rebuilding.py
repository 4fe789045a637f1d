"""Building partitions of the metadata table again whose files are cut, lost or changed, from the table itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lakebed.config.settings import WriteSettings
from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.metadata.kinds.definitions import IndexDefinition, load_definitions
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.metadata.kinds.key_indexes import indexed_field, is_key_index, is_partitioned
from lakebed.metadata.layout import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    GroupSizing,
    group_number,
    is_expression_index,
    parse_files,
)
from lakebed.metadata.read.lookup import whole_slice
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.store.expected_files import WITHOUT
from lakebed.metadata.store.store import MetadataStore
from lakebed.model import META_COLUMNS
from lakebed.services.verification import DIFFERENCES
from lakebed.slices.snapshot import Snapshot
from lakebed.upkeep.expected_expressions import ExpectedExpressions
from lakebed.upkeep.expected_records import ExpectedRecords, stored_records
from lakebed.upkeep.metadata_upkeep import MetadataUpkeep


def rebuild_damaged(snapshot: Snapshot, partitions: Sequence[str], settings: WriteSettings) -> pa.Table:
    """Build what cannot be read again; gives a row of differences for each. Lock held.

    Raises `UnsupportedFeature` for a table with log files, whose rows are not looked at, and `CorruptFile` where the
    table itself cannot be read; nothing is changed then.
    """
    data = ExpectedRecords(Snapshot(snapshot.storage, snapshot.config, snapshot.timeline, use_metadata=False))
    said = _damage(snapshot, data, partitions)
    if not said:
        return DIFFERENCES.empty_table()
    storage, config = snapshot.storage, snapshot.config
    broken = list(config.metadata_partitions) if FILES in said else list(said)
    _check_rows(data, broken)
    definitions = load_definitions(storage, config)
    names = [_name(partition, definitions.get(partition)) for partition in broken if partition != FILES]
    sizings = {name.partition: _sizing(snapshot, name) for name in names}
    settings = replace(settings, column_stats=False, stats_columns=_stats_columns(definitions))
    config = MetadataUpkeep(storage, config, snapshot.timeline, settings).writer.drop(broken)
    for name in [IndexName(FILES), *names] if FILES in said else names:
        table = MetadataUpkeep(storage, config, snapshot.timeline, settings)
        config = table.add(name, sizing=sizings.get(name.partition)).config
    columns = {"index": list(said), "problem": ["damaged"] * len(said), "what": list(said.values())}
    empty = [None] * len(said)
    return pa.table([pa.array(columns.get(f.name, empty), f.type) for f in DIFFERENCES], schema=DIFFERENCES)


def _damage(snapshot: Snapshot, data: ExpectedRecords, partitions: Sequence[str]) -> dict[str, str]:
    """The partitions that cannot be read, with what is wrong; `files` stands for the whole metadata table."""
    try:
        metadata = snapshot.metadata
        if metadata is None:
            return {}
        metadata.partitions()
    except (CorruptFile, FileNotFoundError) as error:
        return {FILES: _said(error)}
    said: dict[str, str] = {}
    for partition in partitions:
        try:
            _read(metadata, data, partition)
        except (CorruptFile, FileNotFoundError) as error:
            said[partition] = _said(error)
    if COLUMN_STATS in said and PARTITION_STATS in partitions:
        said.setdefault(PARTITION_STATS, "goes with the statistics of columns")
    return said


def _said(error: CorruptFile | FileNotFoundError) -> str:
    return error.message if isinstance(error, CorruptFile) else f"{error} is gone"


def _read(metadata: MetadataTable, data: ExpectedRecords, partition: str) -> None:
    for file_slice in metadata.slices.file_slices(partition):
        whole_slice(metadata.slices, file_slice)
    if is_expression_index(partition):
        expressions = ExpectedExpressions(data)
        if partition in expressions.indexes:
            expressions.compared(metadata, partition)
    elif partition == RECORD_INDEX or not is_key_index(partition) or partition in data.indexes.secondary:
        stored_records(metadata, data, partition)


def _check_rows(data: ExpectedRecords, partitions: Sequence[str]) -> None:
    if any(file_slice.log_files for file_slice in data.snapshot.file_slices()):
        raise UnsupportedFeature(
            f"{', '.join(partitions)} of the metadata table cannot be built from a table with log files",
            hint=f"Let Hudi drop and build it again; {WITHOUT}.",
            context={"feature": "merge-on-read with log files", "partitions": list(partitions)},
        )
    for partition in partitions:  # before anything is dropped
        if not is_expression_index(partition):
            data.of(partition)


def _name(partition: str, definition: IndexDefinition | None) -> IndexName:
    if partition == RECORD_INDEX:
        return IndexName(partition, partitioned=is_partitioned(definition))
    if definition is not None and is_key_index(partition):
        return IndexName(partition, column=indexed_field(definition))
    if definition is not None and is_expression_index(partition):
        return IndexName(partition, expression=definition)
    return IndexName(partition)


def _stats_columns(definitions: Mapping[str, IndexDefinition]) -> tuple[str, ...]:
    known = definitions.get(COLUMN_STATS)
    return tuple(c for c in known.source_fields if c not in META_COLUMNS) if known is not None else ()


def _sizing(snapshot: Snapshot, name: IndexName) -> GroupSizing | None:
    """As many file groups as a global index has, going by the names of its files."""
    if not is_key_index(name.partition) or name.partitioned:
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

"""The records of a new metadata partition, by the file groups that they begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakebed.metadata.kinds.registry import kind_of
from lakebed.metadata.records import GroupRecords, Records
from lakebed.metadata.routing import split_by_group


def grouped(
    partition: str,
    records: Records,
    groups: Sequence[tuple[str | None, int]] | None = None,
    index_version: int = 1,
) -> list[GroupRecords]:
    """Records by file group; the groups are (partition path of the data, number), or as many as the partition's kind
    has."""
    kind = kind_of(partition)
    groups = [(None, number) for number in range(kind.file_groups)] if groups is None else groups
    ids = {kind.file_id(partition, number, path): (path, number) for path, number in groups}
    ordered = sorted(ids)
    parts: Mapping[int, tuple[pa.StringArray, pa.BinaryArray, pa.StringArray]] = {}
    if len(records.keys):
        parts = split_by_group(partition, records, ordered, index_version)
    none = (pa.array([], pa.string()), pa.array([], pa.binary()), None)
    filled = {id_: GroupRecords(*parts.get(at, none)[:2], ids[id_][0]) for at, id_ in enumerate(ordered)}
    return [filled[kind.file_id(partition, number, path)] for path, number in groups]

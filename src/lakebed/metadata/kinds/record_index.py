"""The kind `record_index`: where each record key lives, in the table or in each partition path."""

from __future__ import annotations

from lakebed.metadata.kinds import record_index_records
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.key_indexes import is_partitioned
from lakebed.metadata.kinds.kind import MetadataKind
from lakebed.model import RECORD_INDEX


def data_partition_of(file_id: str) -> str | None:
    """The data's partition path in an id of a partitioned record index, None in an id of a global one.

    >>> data_partition_of("record-index-new%3D1-0000-0"), data_partition_of("record-index-0000-0")
    ('new=1', None)
    """
    return KIND.data_partition_of(file_id)


def _describe(definition: IndexDefinition | None) -> str:
    return "record index, one for each partition path" if is_partitioned(definition) else "record index"


KIND = MetadataKind(
    RECORD_INDEX,
    file_id_start="record-index",
    grows=True,
    by_data_partition=True,
    decode=record_index_records.decode,
    build_position=30,
    describe=_describe,
)

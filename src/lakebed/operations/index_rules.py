"""Which indexes a table can have in its metadata table: told before anything is written."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.index.base import Index
from lakebed.metadata.kinds.definitions import IndexName
from lakebed.properties.table_config import TableConfig
from lakebed.upkeep.kind import NewIndex
from lakebed.upkeep.registry import upkeep_of


def check_new_indexes(names: Sequence[IndexName], config: TableConfig, schema: pa.Schema, index: Index) -> None:
    """Raise `InvalidOption`, `SchemaConflict` or `UnsupportedFeature` for an index that the table cannot have, with
    the ones it has and the others that are named. `index` is the one that writes use."""
    partitions = {*config.metadata_partitions, *(name.partition for name in (*names, *index.metadata_indexes))}
    for name in names:
        upkeep_of(name.partition).check_new(
            NewIndex(name, config, schema, partitions, index.name, has_unique_keys=index.is_global)
        )

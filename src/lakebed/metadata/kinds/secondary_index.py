"""The kind `secondary_index_*`: which record keys have a value in the indexed field."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.metadata.keys import secondary_file_groups
from lakebed.metadata.kinds import secondary_records
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.kind import MetadataKind
from lakebed.metadata.layout import SECONDARY_INDEX


def _shard(keys: pa.Array, file_groups: int, index_version: int) -> npt.NDArray[np.int32]:
    return secondary_file_groups(keys, file_groups, version=index_version)


def _describe(definition: IndexDefinition | None) -> str:
    return "secondary index"


KIND = MetadataKind(
    SECONDARY_INDEX,
    is_prefix=True,
    grows=True,
    shard=_shard,
    shard_by_version=True,
    decode=secondary_records.decode,
    build_position=50,
    describe=_describe,
)

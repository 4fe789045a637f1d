"""`Records`: what one commit says to a partition of the metadata table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hashes import plain_strings


def _no_keys() -> pa.StringArray:
    return pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class Records:
    """Upserted records and keys whose records go, in any order.

    No key is upserted twice; one that is deleted as well is upserted. `data_partitions` and `deleted_partitions` go
    with a partitioned record index: the partition path of each key.
    """

    keys: pa.StringArray
    values: pa.BinaryArray
    deleted: pa.StringArray
    data_partitions: Any = None
    deleted_partitions: Any = None

    @staticmethod
    def upserts(keys: pa.StringArray, values: pa.BinaryArray, data_partitions: Any = None) -> Records:
        """Records that delete nothing."""
        return Records(keys, values, _no_keys(), data_partitions, None if data_partitions is None else _no_keys())

    @staticmethod
    def deletes(keys: pa.StringArray, data_partitions: Any = None) -> Records:
        """Records that only delete."""
        none = None if data_partitions is None else _no_keys()
        return Records(_no_keys(), pa.array([], pa.binary()), keys, none, data_partitions)

    @property
    def is_partitioned(self) -> bool:
        return self.data_partitions is not None or self.deleted_partitions is not None

    def paths(self) -> list[str]:
        """The partition paths of the data that a partitioned record index gets keys of."""
        both = [plain_strings(paths) for paths in (self.data_partitions, self.deleted_partitions) if paths is not None]
        return sorted({path for paths in both for path in pc.unique(paths).to_pylist()})


@dataclass(frozen=True, slots=True)
class GroupRecords:
    """What one file group begins with: entries in any order, no key twice. `data_partition` goes with a partitioned
    record index."""

    keys: pa.StringArray
    values: pa.BinaryArray
    data_partition: str | None = None

"""`MetadataKind`: what sets one kind of metadata partition apart from the others: its name, its file groups, the codec
of its records and how several records of a key become one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.metadata.keys import file_group
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.layout import GROUP_ID
from lakebed.metadata.read.merge_records import Layer
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm

Decode = Callable[[pa.Array, Any, str], pa.Table]
# The layers that instants which were requested later have under some keys, oldest first.
LaterLayers = Callable[[pa.Array], Sequence[Layer]]

_ESCAPED = frozenset([*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^_-"])
_PERCENT = re.compile("%([0-9A-Fa-f]{2})")


def _by_whole_key(keys: pa.Array, file_groups: int, index_version: int) -> npt.NDArray[np.int32]:
    return file_group(keys, file_groups)


def _no_description(definition: IndexDefinition | None) -> str | None:
    return None


class Union(Protocol):
    """How the records of one key, where a newer one does not simply stand for all, become one record."""

    def applies(self, value: bytes) -> bool:
        """Whether records like this one are united. All records of a partition are of one sort."""
        ...

    def encoded(
        self, keys: pa.Array, values: Any, schema_json: str, form: RecordForm, index_version: Callable[[], int]
    ) -> tuple[pa.Array, pa.Array]:
        """Keys and values, one record a key, from the live records, oldest first. `index_version` is read where it
        matters."""
        ...

    def decoded(self, records: pa.Table) -> pa.Table:
        """The same of decoded records."""
        ...


class Overruled(Protocol):
    """Whether records of later requested instants, which merge behind those of an action, make these untrue."""

    def __call__(
        self, records: Records, form: RecordForm, later: LaterLayers, definition: Callable[[], IndexDefinition | None]
    ) -> bool: ...


@dataclass(frozen=True, slots=True)
class MetadataKind:
    """One kind of metadata partition, registered under its `name` (see `registry`).

    `name` is the partition's, or with `is_prefix` the start of the names of many (one a secondary index, say).
    `file_id_start` begins the ids of its file groups; they are called as the partition where it is None. Of those there
    are `file_groups`, or (`grows`) as many as the number of records asks for, and `by_data_partition` some for each
    partition path of the data. `shard` says which of so many file groups each key is in; `shard_by_version` that this
    depends on the version of the index.

    `decode` gives a table with a row a record (or entry of it) from keys, values and the writer's schema; None where
    only lookups of their own read the records. Without a `union` the newest record of a key stands for all.

    `build_position` is its place in the order in which partitions are built, `dropped_with` the partition without which
    it cannot be, `describe` what a list of indexes says, where that is not its name.
    """

    name: str
    is_prefix: bool = False
    file_id_start: str | None = None
    file_groups: int = 1
    grows: bool = False
    by_data_partition: bool = False
    shard: Callable[[pa.Array, int, int], npt.NDArray[np.int32]] = _by_whole_key
    shard_by_version: bool = False
    decode: Decode | None = None
    union: Union | None = None
    is_overruled: Overruled | None = None
    build_position: int = 100
    dropped_with: str | None = None
    describe: Callable[[IndexDefinition | None], str | None] = _no_description

    def owns(self, partition: str) -> bool:
        """Whether a partition of the metadata table is of this kind."""
        return partition.startswith(self.name) if self.is_prefix else partition == self.name

    def index_of(self, partition: str) -> str:
        """The name of one index of the kind, without what all of their partitions begin with."""
        return partition.removeprefix(self.name) if self.is_prefix else partition

    def file_id(self, partition: str, number: int, data_partition: str | None = None) -> str:
        """Id of a file group of a partition of this kind."""
        path = "" if data_partition is None else f"-{_escape(data_partition)}"
        return f"{self._start(partition)}{path}-{number:04d}-0"

    def is_own_file_id(self, partition: str, file_id: str) -> bool:
        """Whether a file id is one that the partition gives. Hudi's cleaner leaves others there (those of an expression
        index in `column_stats`), and then looks for keys in them as well."""
        return file_id.startswith(self._start(partition) + "-")

    def data_partition_of(self, file_id: str) -> str | None:
        """The data's partition path that a file group is for; None where it is for all of them."""
        found = GROUP_ID.fullmatch(file_id) if self.by_data_partition else None
        start = f"{self._start(self.name)}-"
        if found is None or not found[1].startswith(start):
            return None
        return _PERCENT.sub(lambda code: chr(int(code[1], 16)), found[1].removeprefix(start))

    def _start(self, partition: str) -> str:
        return self.file_id_start or partition.replace("_", "-")


def _escape(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)

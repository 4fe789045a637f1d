"""`MetadataLookups`: what a view of a table asks of its metadata table.

The metadata table is read by rooms above this one (`metadata/lookups.py` has the class); views, listings and the kinds
of its partitions know these two protocols alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self

import pyarrow as pa

from lakebed.metadata_records.definitions import IndexDefinition
from lakebed.metadata_records.stats_codec import Stats, Types
from lakebed.model import FileSlice
from lakebed.sharing import once
from lakebed.timeline.timeline import Timeline


class MetadataFiles(Protocol):
    """The partitions of a metadata table, their definitions and file slices at one moment."""

    @property
    def timeline(self) -> Timeline:
        """The timeline of the metadata table."""
        ...

    @property
    def partitions(self) -> tuple[str, ...]:
        """The names of the complete partitions."""
        ...

    @once
    def definitions(self) -> Mapping[str, IndexDefinition]:
        """The index definitions of the table, by the name of the partition."""
        ...

    def file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """The latest file slice of each file group of a partition, in the order of their ids."""
        ...

    def has_other_partitions(self) -> bool:
        """Whether partitions were dropped or built since this view was opened."""
        ...


class MetadataLookups(Protocol):
    """Lookups in the metadata table of one table, as `metadata.lookups.MetadataTable` answers them."""

    @once
    def opened_indexes(self) -> dict[Any, Any]:
        """The opened indexes of this view by keys that their readers choose."""
        ...

    def try_open_ahead(self, *, for_keys: bool) -> None:
        """On a slow storage, open the list of files, and `for_keys` the record index."""
        ...

    @property
    def slices(self) -> MetadataFiles:
        """The partitions and file slices that the lookups read."""
        ...

    def open_ahead(self, partitions: Sequence[str]) -> None: ...

    def has(self, partition: str) -> bool: ...

    def is_ahead_of(self, timeline: Timeline) -> bool: ...

    def is_later_than(self, timeline: Timeline) -> bool: ...

    def shows_same(self, other: Self) -> bool: ...

    def partitions(self) -> tuple[str, ...]: ...

    def files(self, partitions: Collection[str] | None = None) -> pa.Table: ...

    def column_stats(
        self,
        columns: Sequence[str] | None = None,
        partitions: Collection[str] | None = None,
        types: Types | None = None,
    ) -> Stats: ...

    def partition_stats(
        self,
        columns: Sequence[str] | None = None,
        types: Types | None = None,
        partitions: Collection[str] | None = None,
    ) -> Stats: ...

    def has_partition_stats(self, columns: Sequence[str], partitions: Sequence[str]) -> bool: ...

    def bloom_filters(self, files: Iterable[tuple[str, str]]) -> pa.Table: ...

    def record_locations(self, keys: Any, partition: str | None = None) -> pa.Table: ...

    def counted_locations(self, keys: Any, partition: str | None = None) -> tuple[pa.Table, int]: ...

    def record_keys_of_secondary(self, name: str, values: Any) -> pa.Table: ...

    def expression_stats(
        self, name: str, types: Types | None = None, partitions: Collection[str] | None = None
    ) -> tuple[Stats, Stats]: ...

    def expression_bloom_filters(self, name: str, files: Iterable[tuple[str, str]]) -> pa.Table: ...

    def lookup(self, partition: str, keys: Any, data_partition: str | None = None) -> pa.Table | None: ...

    def beginning_with(self, partition: str, prefixes: Sequence[str]) -> pa.Table | None: ...

    def entries(self, partition: str) -> Iterator[pa.Table]: ...

    def entry_counts(self, partition: str) -> Sequence[int]: ...

    def check_readable(self, partition: str) -> None: ...

    def to_be_sent(self, partition: str) -> MetadataLookups: ...

"""The bloom indexes: files whose key range or bloom filter rules a key out are not looked into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from lakebed.config.settings import IndexSettings
from lakebed.engine.base import Engine, Rows
from lakebed.expressions.base import Column
from lakebed.index.base import Index, IndexOptions, StoredLocations, Tagged
from lakebed.index.bloom.known_files import SearchOptions
from lakebed.index.bloom.search import LocationSearch
from lakebed.index.simple import (
    at_locations,
    columns_of_names,
    moved_from_locations,
    positions_of,
    require_stored_keys,
    with_slices,
)
from lakebed.merge.locations import NO_LOCATION, BooleanLiteral
from lakebed.model import DELETE, FILE_ID, INSTANT, OLD_PARTITION, PARTITION_PATH, RECORD_KEY
from lakebed.slices.snapshot import Snapshot


class _ByFilters(Index, StoredLocations):
    """The lookup that both bloom indexes share: by key ranges, filters, and key columns."""

    ignores_log_deletes = True
    needs_bloom_filters = True

    def __init__(self, options: SearchOptions = SearchOptions()) -> None:  # noqa: B008 (frozen)
        self.options = options

    @property
    def stored_locations(self) -> Self:
        return self

    def with_lookup_options(self, settings: IndexSettings) -> Self:
        index = self._copy()
        index.options = SearchOptions.of(settings)
        return index

    def _copy(self) -> Self:
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__)
        return copy

    def locate(self, keys: Rows, snapshot: Snapshot, engine: Engine) -> Rows | None:
        """The locations of these keys in all partition paths."""
        require_stored_keys(snapshot)
        locations = self._search(snapshot, engine, in_path=False).run(keys)
        location_columns = {
            PARTITION_PATH: Column(OLD_PARTITION),
            **columns_of_names(FILE_ID, INSTANT, *positions_of(snapshot)),
        }
        return engine.derive(locations.rows, location_columns, keep=[RECORD_KEY])

    def _search(self, snapshot: Snapshot, engine: Engine, *, in_path: bool) -> LocationSearch:
        return LocationSearch(snapshot, engine, self.options, in_path, numbered=bool(positions_of(snapshot)))


class BloomIndex(_ByFilters):
    """An index that looks a key up in the files of its partition path whose key range and bloom filter do not rule it
    out. A key may exist once in every partition.

    Costs the footers of these files, and the key column of those that may hold a key. A slice with log files is asked
    for every key of its range: its log files may hold keys that no filter knows.
    """

    name: ClassVar[str] = "bloom"
    is_global = False

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """Place rows by the key ranges and filters of the files in their own partition path. The rows are evaluated
        several times."""
        require_stored_keys(snapshot)
        if not snapshot.commits:
            return Tagged(engine.derive(rows, NO_LOCATION))
        locations = self._search(snapshot, engine, in_path=True).run(rows)
        location_columns = {
            PARTITION_PATH: Column(OLD_PARTITION),
            **columns_of_names(FILE_ID, INSTANT, *positions_of(snapshot)),
        }
        location_rows = engine.derive(locations.rows, location_columns, keep=[RECORD_KEY])
        joined = engine.join(rows, location_rows, [RECORD_KEY, PARTITION_PATH], "left", small=locations.small)
        return Tagged(joined, persisted=locations.persisted, lookup=locations.lookup)

    def explain(self) -> str:
        return "bloom: key ranges and bloom filters of the files in the rows' partitions, then the keys of what is left"


class GlobalBloomIndex(_ByFilters):
    """An index that looks a key up in all files whose key range and bloom filter do not rule it out, so that a key
    exists once.

    A row that names another partition path than its key is stored in moves there, as under `GlobalSimpleIndex`, or is
    written where the key is (`update_partition_path=False`).
    """

    name: ClassVar[str] = "global_bloom"
    is_global = True

    def __init__(
        self,
        update_partition_path: bool = True,
        options: SearchOptions = SearchOptions(),  # noqa: B008 (frozen)
    ) -> None:
        super().__init__(options)
        self.update_partition_path = update_partition_path

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> GlobalBloomIndex:
        """The index that `settings()` describes."""
        return cls(settings.get("update_partition", "true").strip().lower() != "false")

    @classmethod
    def from_options(cls, options: IndexOptions) -> GlobalBloomIndex:
        """The index that a caller names."""
        options.refuse_all_but("update_partition_path")
        return cls(True if options.update_partition_path is None else options.update_partition_path)

    def for_existence_checks(self) -> GlobalBloomIndex:
        return GlobalBloomIndex(False, self.options)

    def settings(self) -> Mapping[str, str]:
        return {"type": self.name, "update_partition": str(self.update_partition_path).lower()}

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """Place rows by the key ranges and filters of all files. The result has the column `DELETE` if rows may
        move."""
        require_stored_keys(snapshot)
        moving = self.update_partition_path and bool(snapshot.config.partition_fields)
        row_columns = [n for n in engine.schema(rows).names if n != PARTITION_PATH]
        if not snapshot.commits:
            flag = {DELETE: BooleanLiteral(False)} if moving and DELETE not in row_columns else {}
            return Tagged(engine.derive(rows, {**NO_LOCATION, **flag}))
        position = positions_of(snapshot)
        locations = self._search(snapshot, engine, in_path=False).run(rows)
        columns = columns_of_names(OLD_PARTITION, FILE_ID, INSTANT, *position)
        location_rows = engine.derive(locations.rows, columns, keep=[RECORD_KEY])
        joined = engine.join(rows, location_rows, [RECORD_KEY], "left", small=locations.small)
        if moving:
            placed, read = moved_from_locations(joined, row_columns, snapshot, engine, position)
            return Tagged(placed, persisted=locations.persisted, lookup=with_slices(locations.lookup, read))
        return Tagged(
            at_locations(joined, row_columns, engine, position), persisted=locations.persisted, lookup=locations.lookup
        )

    def explain(self) -> str:
        where = "moves rows to their new partition" if self.update_partition_path else "rows stay where their key is"
        return f"global_bloom: key ranges and bloom filters of all files, then the keys of what is left; {where}"

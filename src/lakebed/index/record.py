"""The record index: the metadata table knows the file group of every key, so no data file is read to find one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from lakebed.engine.base import Engine, Rows
from lakebed.expressions.base import Column
from lakebed.index.base import Index, IndexOptions, KeyLookup, Tagged
from lakebed.index.known_places import at_places, moved_from_places
from lakebed.index.record_lookup import find_places, with_places
from lakebed.index.simple import GlobalSimpleIndex, SimpleIndex, columns_of_names, require_stored_keys, with_slices
from lakebed.merge.rules import MergeRules
from lakebed.metadata.kinds.index_names import IndexName
from lakebed.metadata.kinds.key_indexes import KeyIndexes
from lakebed.metadata.layout import RECORD_INDEX
from lakebed.model import FILE_ID, INSTANT, OLD_PARTITION, OPENED, PARTITION_PATH, RECORD_KEY
from lakebed.slices.snapshot import Snapshot

_log = logging.getLogger("lakebed")


class RecordIndex(Index):
    """Looks keys up in the record index of the table's metadata table: only its file groups that the keys hash to are
    opened. A table without one (before its first write) is looked through as by the simple indexes.

    A key exists once in the table, and a row that names another partition path is written where its key is, or moves
    there with `update_partition_path` (as `GlobalSimpleIndex` tells). With `partitioned` a key exists once in each
    partition path, and never moves.

    >>> RecordIndex(partitioned=True).settings()
    {'type': 'record', 'partitioned': 'true'}
    """

    name: ClassVar[str] = "record"
    NAMES: ClassVar[Mapping[str, bool]] = {
        "record": False,
        "record_index": False,
        "global_record_level_index": False,
        "record_level_index": True,
    }
    """Hudi's names of it, and whether that is one for each partition path."""

    def __init__(self, update_partition_path: bool = False, *, partitioned: bool = False) -> None:
        self.update_partition_path = update_partition_path and not partitioned
        self.partitioned = partitioned
        self.is_global = not partitioned

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> RecordIndex:
        """The index that `settings()` describes."""
        moves, partitioned = (settings.get(name, "false") for name in ("update_partition", "partitioned"))
        return cls(moves.strip().lower() == "true", partitioned=partitioned.strip().lower() == "true")

    @classmethod
    def from_options(cls, options: IndexOptions) -> RecordIndex:
        """The index that a caller names."""
        partitioned = cls.NAMES[options.name]
        options.refuse_all_but(*([] if partitioned else ["update_partition_path"]))
        return cls(bool(options.update_partition_path), partitioned=partitioned)

    @classmethod
    def of_metadata(cls, snapshot: Snapshot) -> RecordIndex | None:
        """The index that the table's metadata table has, whoever made it; None where it has none."""
        if RECORD_INDEX not in snapshot.config.metadata_partitions:
            return None
        return cls(partitioned=KeyIndexes.of(snapshot.storage, snapshot.config).partitioned)

    def without_moves(self) -> RecordIndex:
        """The same look-up for writes that only ask whether a key exists: each row comes back at its key's place."""
        return RecordIndex(partitioned=self.partitioned)

    def settings(self) -> Mapping[str, str]:
        if self.partitioned:
            return {"type": self.name, "partitioned": "true"}
        return {"type": self.name, "update_partition": str(self.update_partition_path).lower()}

    @property
    def metadata_indexes(self) -> tuple[IndexName, ...]:
        return (IndexName(RECORD_INDEX, partitioned=self.partitioned),)

    def place(self, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """By the record index; `DELETE` is there if rows may move."""
        require_stored_keys(snapshot)
        metadata = snapshot.metadata if snapshot.commits else None
        if snapshot.repeats_keys:
            return self._fallback.place(rows, snapshot, engine)
        if metadata is None or not metadata.has(RECORD_INDEX):
            if snapshot.commits:
                _tell_of_fallback(snapshot.storage.url())
            return self._fallback.place(rows, snapshot, engine)
        found = with_places(rows, None, metadata, engine, in_path=self.partitioned)
        return self._settled(found, rows, snapshot, engine)

    def place_in_one(self, rows: Rows, rules: MergeRules | None, snapshot: Snapshot, engine: Engine) -> Tagged | None:
        """Where the table has a record index: one shuffle by its file groups, each opened by one task."""
        metadata = snapshot.metadata if snapshot.commits else None
        if metadata is None or not metadata.has(RECORD_INDEX) or snapshot.repeats_keys:
            return None
        require_stored_keys(snapshot)
        found = with_places(rows, rules, metadata, engine, in_path=self.partitioned)
        return self._settled(found, rows, snapshot, engine)

    def _settled(self, found: Rows, rows: Rows, snapshot: Snapshot, engine: Engine) -> Tagged:
        """Where `rows` go, whose keys were `found` at these places."""
        names = engine.schema(rows).names
        if self.partitioned:
            return Tagged(engine.derive(found, {}, keep=[*names, FILE_ID, INSTANT, OPENED]))
        own = [n for n in names if n != PARTITION_PATH]
        if not (self.update_partition_path and snapshot.config.partition_fields):
            return Tagged(at_places(found, own, engine, [OPENED]))
        found = engine.persist(found)
        placed, read = moved_from_places(found, own, snapshot, engine, [OPENED])
        return Tagged(placed, held=found, lookup=with_slices(KeyLookup(), read))

    def locate(self, keys: Rows, snapshot: Snapshot, engine: Engine) -> Rows | None:
        """None where the index cannot tell: it is not there, is partitioned, or speaks of later commits than the
        snapshot shows."""
        metadata = snapshot.metadata if snapshot.is_latest and not self.partitioned else None
        if metadata is None or not metadata.has(RECORD_INDEX) or snapshot.repeats_keys:
            return None
        found = find_places(engine.distinct(keys), metadata, engine)
        place = {PARTITION_PATH: Column(OLD_PARTITION), **columns_of_names(FILE_ID, INSTANT)}
        return engine.derive(found, place, keep=[RECORD_KEY])

    @property
    def _fallback(self) -> SimpleIndex | GlobalSimpleIndex:
        return SimpleIndex() if self.partitioned else GlobalSimpleIndex(self.update_partition_path)

    def explain_for(self, snapshot: Snapshot) -> str:
        metadata = snapshot.metadata if snapshot.commits else None
        if not snapshot.commits or (metadata is not None and metadata.has(RECORD_INDEX)):
            return self.explain()
        return f"record: the table has no record index yet, keys are looked up as under {self._fallback.explain()}"

    def explain(self) -> str:
        if self.partitioned:
            return "record: looks keys up in the record index of their partition path; no data file is read to tag"
        where = "rows move to their new partition" if self.update_partition_path else "rows stay where their key is"
        return f"record: looks keys up in the record index; no data file is read to tag; {where}"


@cache
def _tell_of_fallback(uri: str) -> None:
    _log.warning(
        "table %s has no record index yet: keys are looked up in its base files until the next write has built one", uri
    )

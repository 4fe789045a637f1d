"""The tables of crowds: of every kind, with so little retention that cleaning and archival happen all the time."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.concurrency.lock import FileLock

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("w", pa.int32()),
        ("n", pa.int64()),
        ("v", pa.string()),
        ("ts", pa.int64()),
    ]
)
GLOBAL = ("global_simple", "global_bloom", "record")
HASHED = ("bucket", "consistent")
INDEXES = (*HASHED, "simple", "bloom", *GLOBAL, "record_level_index")
KINDS = [
    (version, kind, index)
    for index in INDEXES
    for version in (9, 8, 6)
    for kind in ("cow", "mor")
    if not (index == "consistent" and kind == "cow") and not (index == "record_level_index" and version < 9)
]
_HEARTBEAT_SECONDS, _LOCK_SECONDS = 0.3, 1.5


@dataclass(frozen=True)
class Shape:
    """A table as drawn by a seed."""

    seed: int
    version: int
    kind: str
    index: str
    is_partitioned: bool
    merge: str
    moves: bool
    has_cdc: bool
    is_elsewhere: bool
    """Whether each process is on a host of its own: whether it is alive is known by its heartbeats alone."""
    indexes: tuple[str, ...]
    erases: bool
    changes_columns: bool
    is_published: bool
    is_consumed: bool
    properties: dict[str, Any] = field(repr=False)

    @staticmethod
    def of(seed: int) -> Shape:
        dice = random.Random(f"crowd {seed}")
        version, kind, index = KINDS[seed * 7 % len(KINDS)]
        is_partitioned = dice.random() < 0.75
        moves = is_partitioned and index in GLOBAL and dice.random() < 0.6
        has_cdc = dice.random() < 0.3
        retained = dice.choice([1, 2, 3])
        properties: dict[str, Any] = {
            "hoodie.metadata.enable": dice.random() < 0.9,
            "hoodie.clean.automatic": dice.random() < 0.7,
            "hoodie.clean.commits.retained": retained,
            "hoodie.archive.automatic": dice.random() < 0.7,
            "hoodie.keep.min.commits": retained + 2,
            "hoodie.keep.max.commits": retained + 4,
            "hoodie.compact.inline": dice.random() < 0.4,
            "hoodie.compact.inline.max.delta.commits": dice.choice([2, 4]),
            "hoodie.log.compaction.blocks.threshold": 2,
            "hoodie.metadata.compact.max.delta.commits": dice.choice([2, 5]),
            "hoodie.parquet.small.file.limit": dice.choice([0, 4_000, 1 << 20]),
            "hoodie.logfile.data.block.format": dice.choice(["avro", "parquet"]),
            "hoodie.index.bloom.num_entries": 100,
        }
        if index in GLOBAL:
            properties[f"hoodie.{index.removeprefix('global_')}.index.update.partition.path"] = moves
        if index == "record":
            properties["hoodie.record.index.update.partition.path"] = moves
        if has_cdc:
            properties["hoodie.table.cdc.enabled"] = True
        extra = ["bloom_filters", "column_stats", *(["v"] if index == "record" and version > 6 else [])]
        return Shape(
            seed,
            version,
            kind,
            index,
            is_partitioned,
            dice.choice(["event_time", "commit_time"]),
            moves,
            has_cdc,
            dice.random() < 0.3,
            tuple(name for name in extra if properties["hoodie.metadata.enable"] and dice.random() < 0.5),
            erases=dice.random() < 0.3,
            changes_columns=dice.random() < 0.3,
            is_published=dice.random() < 0.3,
            is_consumed=dice.random() < 0.4,
            properties=properties,
        )

    @property
    def options(self) -> dict[str, Any]:
        """Those of each call."""
        return {
            "lakebed.write.tasks": 1,
            "hoodie.write.lock.wait_time_ms": 30_000,
            "hoodie.metadata.global.record.level.index.min.filegroup.count": 2,
            "hoodie.write.set.null.for.missing.columns": True,
        }

    def create(self, uri: str) -> None:
        lakebed.create(
            uri,
            SCHEMA,
            key="id",
            partition_by="city" if self.is_partitioned else None,
            ordering="ts",
            type=self.kind,  # pyright: ignore[reportArgumentType]
            merge=self.merge,
            index=self.index,
            buckets=2 if self.index in HASHED else None,
            indexes=list(self.indexes),
            table_version=self.version,
            properties=self.properties,
        )

    def settle_in(self, host: str) -> None:
        """Make this process one of another host, where the shape says so, whose signs of life are over soon."""
        if self.is_elsewhere:
            socket.gethostname = lambda: host
            defaults = FileLock.__init__.__kwdefaults__
            assert defaults is not None
            defaults |= {"validity": _LOCK_SECONDS, "renew_every": _LOCK_SECONDS / 6}
            begin = Heartbeat.__init__

            def quick(self: Heartbeat, *given: Any, **named: Any) -> None:
                begin(self, *given, **{**named, "interval": _HEARTBEAT_SECONDS})

            Heartbeat.__init__ = quick

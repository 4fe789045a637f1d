"""Checkpoints of ingest in commit metadata, under the keys of Hudi Streamer.

A table of version 8 or later has `streamer.checkpoint.key.v2`, an older one `deltastreamer.checkpoint.key`; a pair of
the older keys that a table has is continued. Several jobs that write one table each have an entry in a map under the
older key, by their identifier, as Hudi's writers with several streamers do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.errors import CorruptFile, InvalidOption
from lakebed.model import COMMIT_ACTIONS, Action, CommitMetadata, Instant, has_completion_times
from lakebed.properties.file import load_table_config
from lakebed.storage.base import Storage
from lakebed.timeline.streams import recorded_batch
from lakebed.timeline.timeline import Timeline, load_timeline

KEY_V2 = "streamer.checkpoint.key.v2"
RESET_V2 = "streamer.checkpoint.reset.key.v2"
KEY_V1 = "deltastreamer.checkpoint.key"
RESET_V1 = "deltastreamer.checkpoint.reset_key"
IGNORE = "deltastreamer.checkpoint.ignore_key"
STREAM = "lakebed.ingest"
"""The name of the stream whose batches are the commits of ingest."""
FULL = "lakebed.ingest.checkpoint"
"""A checkpoint of several lines; Hudi's keys have its first line, which is a checkpoint of Hudi."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """The checkpoint in the newest commit that has one: `extra` is that commit's metadata, empty without one.
    `completion_times` is whether the table is of version 8 or later. `batch` is the number of the next commit of
    ingest: of two jobs that read the same checkpoint, the one that commits second has a number that the table already
    has."""

    completion_times: bool
    extra: Mapping[str, str] = field(default_factory=dict[str, str])
    identifier: str = ""
    batch: int = 0

    @property
    def value(self) -> str | None:
        """The position after the last committed rows; None if no rows were committed."""
        if self.identifier:
            return self._by_identifier.get(self.identifier)
        if not self.extra.get(KEY_V2) and self._is_shared:
            raise InvalidOption(
                f"the table has checkpoints of several jobs: {', '.join(sorted(self._by_identifier))}",
                hint="name the job's own: identifier = ...",
                context={"identifiers": sorted(self._by_identifier)},
            )
        first = self.extra.get(KEY_V2) or self.extra.get(KEY_V1) or None
        full = self.extra.get(FULL)
        return full if full is not None and first_line(full) == first else first

    def start(self, checkpoint: str | None, ignore: str | None) -> str | None:
        """The position from which a job starts (None: the start of the source). The job may request a checkpoint, or
        request that the stored one is ignored. Each request is followed once: the commits after it record its text."""
        if ignore is not None and ignore != self.extra.get(IGNORE):
            return None
        recorded = self.extra.get(RESET_V2) or self.extra.get(RESET_V1)
        if checkpoint is not None and checkpoint != recorded:
            return checkpoint
        return self.value

    def metadata(self, value: str, checkpoint: str | None, ignore: str | None) -> dict[str, str]:
        """The entries of the commit that moves the table to the checkpoint `value`."""
        entries: dict[str, str] = {}
        if ignore is not None:
            entries[IGNORE] = ignore
        if self.identifier:
            entries[KEY_V1] = json.dumps({**self._by_identifier, self.identifier: value}, separators=(",", ":"))
            if KEY_V2 in self.extra:  # of a job without an identifier, which goes on from it
                entries[KEY_V2] = self.extra[KEY_V2]
            return entries | ({} if checkpoint is None else {RESET_V1: checkpoint})
        first = first_line(value)
        if first != value:
            entries[FULL] = value
        if self.completion_times:
            entries |= {KEY_V2: first} | ({} if checkpoint is None else {RESET_V2: checkpoint})
        if self.completion_times and self._is_shared:
            entries[KEY_V1] = self.extra[KEY_V1]
        elif not self.completion_times or KEY_V1 in self.extra:
            entries |= {KEY_V1: first} | ({} if checkpoint is None else {RESET_V1: checkpoint})
        return entries

    @property
    def _is_shared(self) -> bool:
        return (self.extra.get(KEY_V1) or "").startswith("{")

    @property
    def _by_identifier(self) -> dict[str, str]:
        if not self._is_shared:
            return {}
        text = self.extra[KEY_V1]
        try:
            checkpoints: Any = json.loads(text)
        except ValueError as error:
            raise CorruptFile(
                f"the commit metadata {KEY_V1} is no map of checkpoints: {text[:100]!r}",
                hint="give the checkpoint with --checkpoint, or pass it by with --ignore-checkpoint",
                context={"key": KEY_V1},
            ) from error
        return {str(name): str(value) for name, value in checkpoints.items()}


def first_line(checkpoint: str) -> str:
    """The part of a checkpoint that Hudi reads and that is displayed."""
    return checkpoint.partition("\n")[0]


def read_checkpoint(storage: Storage, identifier: str = "") -> StoredCheckpoint:
    """The stored checkpoint of a table: that of the newest completed commit that has one (for a merge-on-read table of
    the newest delta commit). Archived commits are read if no active commit has a checkpoint."""
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    commits = list(timeline.commits_by_completion)
    if config.table_type == "mor" and any(i.action is Action.DELTACOMMIT for i in commits):
        commits = [i for i in commits if i.action is Action.DELTACOMMIT]
    has_times, last = has_completion_times(config.version), recorded_batch(timeline, STREAM)
    batch = 0 if last is None else last + 1
    for metadata in _newest_first(timeline, commits):
        if metadata.extra.get(KEY_V2) or metadata.extra.get(KEY_V1):
            return StoredCheckpoint(has_times, metadata.extra, identifier, batch)
    return StoredCheckpoint(has_times, identifier=identifier, batch=batch)


def _newest_first(timeline: Timeline, commits: list[Instant]) -> Iterator[CommitMetadata]:
    for instant in reversed(commits):
        yield timeline.commit_metadata(instant)
    archived = timeline.archived()
    for instant in reversed(archived.instants):
        if instant.action in COMMIT_ACTIONS and instant.is_completed:
            yield archived.commit_metadata(instant.time)

"""The batches of streams, which commits record in their extra metadata. Each commit copies the records of the one
before.

Real Hudi's sink looks for its record on the active timeline only, where archival would remove it. So each commit has
the newest value of every copied key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakebed.errors import CorruptFile
from lakebed.format.text import parse_json_object
from lakebed.model import WRITER_ID, CommitMetadata, Instant, has_completion_times
from lakebed.timeline.timeline import COMMITS, Timeline

SINK_CHECKPOINT = "_hudi_streaming_sink_checkpoint"
"""Real Hudi's record: the newest batch of each identifier, both as texts."""
STREAMS = "lakebed.streaming.streams"
"""The newest batch of each stream, the one that wrote last at the end."""
ROLLING_KEYS = "hoodie.write.rolling.metadata.keys"
"""The property that makes real Hudi take keys over from commit to commit."""
TAKEN_OVER = (SINK_CHECKPOINT, STREAMS)
# Streams that wrote last; older ones are forgotten.
_MAX_STREAMS = 16


def metadata_taken_over(timeline: Timeline, keys: Sequence[str] = ()) -> dict[str, str]:
    """The newest values of Hudi's and lakebed's records of streams, and of more `keys`, for the next commit.

    A commit of lakebed has all of them, so only that commit and later commits of other writers are read.
    """
    rolling = timeline.config.properties.get(ROLLING_KEYS, "").split(",")
    keys = (*TAKEN_OVER, *[key.strip() for key in rolling if key.strip()], *keys)
    values: dict[str, str] = {}
    for instant in newest_first(timeline):
        extra = timeline.commit_metadata(instant).extra
        values = {**{key: extra[key] for key in keys if key in extra}, **values}
        if WRITER_ID in extra:
            break
    if STREAMS in values and not has_completion_times(timeline.config.version) and timeline.commits:
        # nothing but the time of a file shows which commit completed last, and copies of a table lose it
        by_request = stream_batches(timeline.commit_metadata(timeline.commits[-1]), timeline)
        by_file = _batches(values[STREAMS], timeline)
        batches = {**by_request, **by_file}
        values[STREAMS] = _text({name: max(batches[name], by_request.get(name, 0)) for name in batches})
    return values


def newest_first(timeline: Timeline) -> Iterator[Instant]:
    """The completed commits, the last to complete first; before version 8 by the time of their files."""
    commits = timeline.commits_by_completion
    if not has_completion_times(timeline.config.version):
        files = timeline.files
        modified = {i.time: info.modified for i in commits if (info := files.get(i.file_name)) is not None}
        commits = sorted(commits, key=lambda i: (modified.get(i.time, 0), i.time))
    return reversed(commits)


def recorded_batch(timeline: Timeline, stream: str) -> int | None:
    """The newest batch of a stream that is recorded; None for a stream that is unknown."""
    batches: list[int] = []
    for instant in newest_first(timeline):
        commit = timeline.commit_metadata(instant)
        recorded = stream_batches(commit, timeline).get(stream)
        if recorded is not None:
            batches.append(recorded)
        if has_completion_times(timeline.config.version) and (batches or WRITER_ID in commit.extra):
            break
    return max(batches, default=None)


def commit_of_batch(timeline: Timeline, stream: str, batch: int) -> Instant | None:
    """The first commit that records this batch of a stream or a later one; None if no active or archived commit does.
    Reads the archive if all active commits record it."""
    instant: Instant | None = None
    for earlier in newest_first(timeline):
        commit = timeline.commit_metadata(earlier)
        recorded = stream_batches(commit, timeline).get(stream)
        if recorded is None and WRITER_ID not in commit.extra:
            continue  # another writer, which copies no records
        if recorded is None or recorded < batch:
            return instant
        instant = earlier
    archived = timeline.archived()
    for earlier in sorted(archived.instants, key=lambda i: (i.completion_time or i.time, i.time), reverse=True):
        if not earlier.is_completed or earlier.action not in COMMITS:
            continue
        commit = archived.commit_metadata(earlier.time)
        recorded = stream_batches(commit, timeline).get(stream)
        if recorded is not None and recorded >= batch:
            instant = earlier
        elif recorded is not None or WRITER_ID in commit.extra:
            break
    return instant


def sink_checkpoints(timeline: Timeline) -> dict[str, str]:
    """The newest batch of each identifier in Hudi's record."""
    text = metadata_taken_over(timeline).get(SINK_CHECKPOINT)
    return {} if text is None else {name: str(batch) for name, batch in _parsed(text, timeline).items()}


def is_of_lakebed(timeline: Timeline, batch: int) -> bool:
    """Whether a commit of lakebed, not of real Hudi, wrote this batch of an identifier: it records its stream."""
    text = metadata_taken_over(timeline).get(STREAMS)
    return text is not None and batch in _batches(text, timeline).values()


def records_of_batch(
    before: Mapping[str, str], timeline: Timeline, stream: str, batch: int, identifier: str
) -> dict[str, str]:
    """The extra metadata of the commit that writes batch number `batch` of a stream: the two keys of `TAKEN_OVER`, each
    a JSON text with the newest batch of each stream (in Hudi's key, of each writer's `identifier`). `before` has the
    values of these keys in the commit before."""
    checkpoints = _parsed(before.get(SINK_CHECKPOINT) or "{}", timeline)
    batches = _batches(before.get(STREAMS) or "{}", timeline)
    batches.pop(stream, None)
    batches[stream] = batch
    newest = list(batches.items())[-_MAX_STREAMS:]
    return {SINK_CHECKPOINT: _text({**checkpoints, identifier: str(batch)}), STREAMS: _text(dict(newest))}


def stream_batches(commit: CommitMetadata, timeline: Timeline) -> dict[str, int]:
    """The batches of streams that a commit records."""
    return _batches(commit.extra.get(STREAMS) or "{}", timeline)


def _batches(text: str, timeline: Timeline) -> dict[str, int]:
    batches = _parsed(text, timeline)
    try:
        return {name: int(batch) for name, batch in batches.items()}
    except (TypeError, ValueError) as error:
        raise _damaged(text, timeline) from error


def _parsed(text: str, timeline: Timeline) -> dict[str, Any]:
    try:
        return parse_json_object(text)
    except CorruptFile as error:
        raise _damaged(text, timeline) from error


def _damaged(text: str, timeline: Timeline) -> CorruptFile:
    return CorruptFile(
        f"a commit of {timeline.storage.url()} records batches of streams as {text[:80]!r}, which is no JSON object of"
        " batches",
        hint="Which batches are written is unknown: write without once=, or restore the timeline from a copy.",
    )


def _text(records: Mapping[str, Any]) -> str:
    return json.dumps(records, separators=(",", ":"))

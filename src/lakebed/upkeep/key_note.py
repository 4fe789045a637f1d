"""What a commit says of the key texts of the table's files: see `lakebed.timeline.plain_keys`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakebed.model import CommitMetadata
from lakebed.timeline.plain_keys import PLAIN_KEYS_NOTE, WrittenKeys, next_note
from lakebed.timeline.timeline import Timeline
from lakebed.upkeep.write_status import WriteStatus


def note_keys(
    timeline: Timeline,
    instant: str,
    fields: Sequence[str],
    metadata: CommitMetadata,
    statuses: Sequence[WriteStatus],
    merged: Collection[str] = (),
) -> None:
    """Put the note into the body of a commit that is about to complete on this timeline, where `fields` are watched.

    `merged` are the names of files that it takes the place of, besides those that its statuses name.
    """
    if not fields:
        return
    plain = {status.path for status in statuses if status.plain_keys}
    stats = [stat for group in metadata.stats.values() for stat in group]
    written = WrittenKeys(
        misread=frozenset(_name(s.path) for s in stats if s.path not in plain),
        superseded=frozenset([*merged, *(_name(s.prev_base_file or "") for s in stats)]),
        replaced=frozenset(file_id for ids in metadata.replaced.values() for file_id in ids),
    )
    note = next_note(timeline, instant, fields, written)
    if note is not None:
        metadata.extra[PLAIN_KEYS_NOTE] = note.to_json()


def _name(path: str) -> str:
    return path.rpartition("/")[2]

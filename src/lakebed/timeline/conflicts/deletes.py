"""Rows that lack columns beside deletes of the same file group, by non-blocking writers that cross.

Behind a delete in a log a record with some columns takes the others from the base file, where the deleted row still is:
that is how every reader of Hudi's format merges. Who writes such a record therefore has to know of the delete, or the
delete has to come behind it, where readers merge (by requested time) as well as in the order in which both completed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakebed.errors import CommitConflict
from lakebed.format.log_file import HeaderKey, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.model import CommitMetadata, FileGroupId, Instant, WriteStat
from lakebed.storage.base import Storage
from lakebed.timeline.conflicts.commits import LOG_COMPACT_OPERATION


def check_deletes(
    storage: Storage, instant: str, ours: CommitMetadata, others: Iterable[tuple[Instant, CommitMetadata]]
) -> None:
    """Raise `CommitConflict` where one of this write and of another, which completed since it began, deleted rows of a
    file group and the other one logged rows there that lack columns. A later delete of this write is no conflict: it
    comes behind such rows everywhere."""
    mine = _logs(ours)
    for other, metadata in others:
        if metadata.operation == LOG_COMPACT_OPERATION:  # these deletes have instants of their own
            continue
        theirs = _logs(metadata)
        for group in sorted(mine.keys() & theirs.keys()):
            late = _deletes(theirs[group]) and _lacks_columns(storage, mine[group])
            early = instant < other.time and _deletes(mine[group]) and _lacks_columns(storage, theirs[group])
            if late or early:
                _refuse(group, other, late=late)


def _logs(metadata: CommitMetadata) -> dict[FileGroupId, list[WriteStat]]:
    """The log files that a commit wrote, by file group."""
    found: dict[FileGroupId, list[WriteStat]] = {}
    for partition, stats in metadata.stats.items():
        for stat in stats:
            if stat.log_version is not None:
                found.setdefault((partition, stat.file_id), []).append(stat)
    return found


def _deletes(logs: Sequence[WriteStat]) -> bool:
    return any(stat.num_deletes for stat in logs)


def _lacks_columns(storage: Storage, logs: Sequence[WriteStat]) -> bool:
    heads = (head for s in logs for head in scan_blocks(FileSource(storage, s.path, s.file_size or None)))
    return any((head.headers.get(HeaderKey.IS_PARTIAL) or "").lower() == "true" for head in heads)


def _refuse(group: FileGroupId, other: Instant, *, late: bool) -> None:
    partition, file_id = group
    written, deleted = "rows that lack columns were written to", "rows were deleted from"
    mine, theirs = (written, deleted) if late else (deleted, written)
    raise CommitConflict(
        f"{mine} file group {file_id} in partition {partition!r} while, by instant {other.time}, {theirs} it",
        hint="Nothing of this write is visible; run it again: it then sees them.",
        context={"partition": partition, "file_id": file_id, "instant": other.time},
    )

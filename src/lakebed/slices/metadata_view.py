"""The metadata table as a snapshot sees it: whether it speaks of later commits, what to say when it is damaged; and
whether what was listed lacks files of the snapshot."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from lakebed.errors import CorruptFile, StorageError
from lakebed.metadata.layout import is_of_data
from lakebed.metadata.read.metadata_table import MetadataTable
from lakebed.metadata.store.expected_files import WAY_OUT
from lakebed.model import Action
from lakebed.storage.base import Storage
from lakebed.timeline.instants import without_suffix
from lakebed.timeline.timeline import Timeline, load_timeline


def is_ahead(metadata: MetadataTable, timeline: Timeline) -> bool:
    """Whether the metadata table holds records of data commits that this timeline does not show as completed.

    Both are listed one after the other, so a commit may come in between. What a deltacommit logged for an instant that
    is pending here is hidden, until a compaction puts it into a base file.
    """
    own = metadata.slices.timeline.commits
    # version 6 puts digits behind the instant for what the metadata table does on its own
    logged = {without_suffix(i.time) for i in own if i.action is Action.DELTACOMMIT}
    compacted = max((i.time for i in own if i.action is Action.COMMIT), default="")
    if any(i.time in logged and i.time < compacted for i in timeline.pending):
        return True
    later = {time for time in logged if time > timeline.greatest_known}
    if not later:
        return False
    # a repair of the metadata table alone has an instant that the table itself never had
    return any(i.time in later for i in load_timeline(timeline.storage, timeline.config).instants)


class CleanedView(StorageError):
    """Files of a view were deleted between the listing of its timeline and that of its files. Those that are left are
    an older state of their file groups, or none: the table must be looked at again."""

    retryable = True


# What deletes files that completed actions wrote, from the moment that it is requested on.
_DELETING = (Action.CLEAN, Action.RESTORE)


def require_uncleaned(timeline: Timeline, metadata: MetadataTable | None) -> None:
    """Raise `CleanedView` where a clean or a restore was requested after this timeline was listed, or a commit was
    taken back, and before the files were listed: those of the metadata table, or, without one, of the folders.

    A plan from before spares what this timeline shows last. The timeline is listed again only where the metadata table
    has an action that this timeline does not show: nothing else has taken files from what it lists.
    """
    if metadata is not None and not _is_later(metadata, timeline):
        return
    now = load_timeline(timeline.storage, timeline.config)
    if now.listed is timeline.listed:
        return
    known = {i.time for i in timeline.instants if i.action in _DELETING}
    found = next((i for i in now.instants if i.action in _DELETING and i.time not in known), None)
    # where the commits of then are archived, all but those with a savepoint, cleans may be among it
    if found is None and (now.start or "") > timeline.greatest_known and timeline.commits not in ((), now.commits):
        found = now.instants[0]
    found = found or next((i for i in timeline.commits if not now.is_committed(i.time)), None)
    if found is not None:
        raise CleanedView(
            f"the timeline of {timeline.storage.url()} was read before {found.action} {found.time} changed what files"
            " there are, and they were listed after it",
            hint="Read again. A higher hoodie.clean.commits.retained keeps files for slow readers.",
            context={"instant": found.time, "retryable": True},
        )


def _is_later(metadata: MetadataTable, timeline: Timeline) -> bool:
    """Whether the metadata table has completed an action that is later than all of this timeline."""
    completed = metadata.slices.timeline.completed
    newest = next((i.time for i in reversed(completed) if is_of_data(i.time)), "")
    return newest > timeline.greatest_known


@contextmanager
def naming_metadata(storage: Storage) -> Generator[None]:
    """Damage in the metadata table as a `CorruptFile` that names it and says how to go on."""
    try:
        yield
    except (CorruptFile, FileNotFoundError) as cause:
        known = isinstance(cause, CorruptFile)
        damage = cause.message if known else f"{cause} is gone"
        named = f"the metadata table of {storage.url()} cannot be read: "
        if damage.startswith(named):
            raise
        raise CorruptFile(
            named + damage,
            hint=WAY_OUT,
            context=cause.context if known else {"path": str(cause)},
        ) from cause

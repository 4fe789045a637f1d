"""The metadata table as a snapshot sees it: whether it speaks of later commits, what to say when it is damaged; and
whether what was listed lacks files of the snapshot."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.errors import CorruptFile, StorageError
from lakebed.model import Action
from lakebed.storage.base import Storage
from lakebed.timeline.timeline import Timeline, load_timeline

if TYPE_CHECKING:
    from lakebed.metadata.read.metadata_table import MetadataTable


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
    if metadata is not None and not metadata.is_later_than(timeline):
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


WITHOUT = "to read without it meanwhile: lakebed.open(uri, options={'hoodie.metadata.enable': False})"


WAY_OUT = f"t.indexes.repair() builds it again from the table; {WITHOUT}"

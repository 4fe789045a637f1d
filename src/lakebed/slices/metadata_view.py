"""The metadata table as a snapshot sees it: whether it speaks of later commits, and what to say when it is damaged."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from lakebed.errors import CorruptFile
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

"""Archival of the metadata table's timeline."""

from __future__ import annotations

from lakebed.metadata.store.compaction import last_compaction
from lakebed.metadata.store.store import MetadataStore
from lakebed.model import Action, Instant
from lakebed.timeline.archive_writer import archive

_COMMITS = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)


def run_archival(store: MetadataStore) -> list[str]:
    """Archive the oldest instants where there are many; says what was done."""
    commits = store.timeline.commits
    if len(commits) <= store.settings.archive_above:
        return []
    limit = _limit(store)
    oldest = [i for i in commits[: len(commits) - store.settings.archive_down_to] if i.time < limit]
    if not oldest:
        return []
    others = [i for i in store.timeline.completed if i.action in (Action.CLEAN, Action.ROLLBACK)]
    archive(store.timeline, [*oldest, *(i for i in others if i.time < oldest[-1].time)])
    store.changed()
    return [f"archival of {len(oldest)} commits up to {oldest[-1].time}"]


def _limit(store: MetadataStore) -> str:
    """The first instant that must stay: what is still counted for the next compaction, what the data table may still
    roll back, what hides replaced file groups, and what is behind something unfinished."""
    compaction = last_compaction(store)
    limits = [compaction.time if compaction else ""]
    pending = min((i.time for i in store.timeline.pending), default=None)
    if pending is not None:
        limits.append(max((i.time for i in store.timeline.commits if i.time < pending), default=""))
    limits += [i.time for i in store.timeline.commits if i.action is Action.REPLACECOMMIT and _hides_files(store, i)]
    data = store.data_timeline
    limits += [i.time for i in data.instants if i.action in _COMMITS or not i.is_completed][:1]
    return min(limits)


def _hides_files(store: MetadataStore, replace: Instant) -> bool:
    """Whether files of the groups that it replaced are still there."""
    for partition, ids in store.timeline.commit_metadata(replace).replaced.items():
        replaced = set(ids)
        if any(name.removeprefix(".").partition("_")[0] in replaced for name in store.storage.list_names(partition)):
            return True
    return False

"""Archival of the metadata table's timeline."""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.metadata.store.store import MetadataStore
from lakebed.model import Action, Instant
from lakebed.policies.archival import ArchivalBounds, ArchivalLimit, before_pending, is_archival_due, plan_archival
from lakebed.policies.compaction import last_compaction
from lakebed.timeline.archive_writer import archive
from lakebed.timeline.timeline import COMMITS
from lakebed.wording import count_text


def run_archival(store: MetadataStore) -> list[str]:
    """Archive the oldest instants where there are many; gives a line about what was done."""
    commits = store.timeline.commits
    bounds = ArchivalBounds(store.settings.archive_above, store.settings.archive_down_to)
    if not is_archival_due(commits, bounds):
        return []
    plan = plan_archival(commits, store.timeline.completed, bounds, _limits(store))
    if not plan.commits:
        return []
    archive(store.timeline, plan.instants)
    store.changed()
    return [f"archival of {count_text(len(plan.commits), 'commit')} up to {plan.commits[-1].time}"]


def _limits(store: MetadataStore) -> Iterator[ArchivalLimit | None]:
    compaction = last_compaction(store.timeline.commits)
    yield ArchivalLimit(compaction.time if compaction else "", "delta commits since the last compaction are counted")
    yield before_pending(store.timeline.commits, store.timeline.pending)
    for instant in store.timeline.commits:
        if instant.action is Action.REPLACECOMMIT and _hides_files(store, instant):
            yield ArchivalLimit(instant.time, "files that it replaced are not cleaned yet")
    for instant in store.data_timeline.instants:
        if instant.action in COMMITS or not instant.is_completed:
            yield ArchivalLimit(instant.time, "the data table may still roll it back")
            break


def _hides_files(store: MetadataStore, replace: Instant) -> bool:
    """Whether files of the groups that it replaced are still there."""
    for partition, ids in store.timeline.commit_metadata(replace).replaced.items():
        replaced = set(ids)
        if any(name.removeprefix(".").partition("_")[0] in replaced for name in store.storage.list_names(partition)):
            return True
    return False

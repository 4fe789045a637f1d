"""Cleaning of the metadata table: deletes file slices that no reader of the last commits can need."""

from __future__ import annotations

import time
from collections.abc import Iterator

from lakebed.format.file_names import is_data_path
from lakebed.metadata.layout import parse_files
from lakebed.metadata.store.store import MetadataStore
from lakebed.metadata.store.suffixes import Suffix
from lakebed.model import Action, BaseFile, LogFile, State
from lakebed.policies.cleaning import Protected, Retention, has_expired_since, plan_cleaning, retain_commits
from lakebed.policies.compaction import last_compaction
from lakebed.timeline.bodies.plans import CleanPlan, clean_files, encode_clean_metadata, encode_clean_plan
from lakebed.timeline.file_slices import GroupSlices, all_slices
from lakebed.wording import count_text

# Readers that began before a compaction get this many instants to finish.
_GRACE_INSTANTS = 3


def run_cleaning(store: MetadataStore) -> list[str]:
    """Finish cleans that were cut off, then clean if there is something to; gives a line about each."""
    done = [_run(store, instant.time, instant.state) for instant in store.pending(Action.CLEAN)]
    compaction = last_compaction(store.timeline.commits)
    if compaction and len(store.timeline.completed_after(compaction.time)) < _GRACE_INSTANTS:
        return done
    commits, count = store.timeline.commits, store.settings.clean_commits
    pending = (instant for instant in store.timeline.pending if instant.action is not Action.CLEAN)
    retention = retain_commits(commits, pending, count)
    if retention is None or not has_expired_since(_last_clean(store), commits, retention, count):
        return done
    plan = _plan(store, retention)
    instant = store.service_time(Suffix.CLEAN)
    if plan.files and instant:
        store.transitions.request(Action.CLEAN, instant, encode_clean_plan(store.storage.url(), plan))
        store.changed()
        done.append(_run(store, instant, State.REQUESTED))
    return done


def _run(store: MetadataStore, instant: str, state: State) -> str:
    started = time.monotonic()
    pending = next(i for i in store.pending(Action.CLEAN) if i.time == instant)
    plan = store.timeline.plan(pending)
    if state is State.REQUESTED:
        store.transitions.inflight(Action.CLEAN, instant)
    files = [
        f"{partition}/{name}"
        for partition, names in clean_files(plan).items()
        for name in names
        if is_data_path(f"{partition}/{name}") and parse_files(partition, name, 0) is not None
    ]
    store.parallel_map(store.storage.delete, files)
    millis = int((time.monotonic() - started) * 1000)
    store.finish(Action.CLEAN, instant, encode_clean_metadata(instant, plan, millis))
    return f"clean {instant} of {count_text(len(files), 'file')}"


def _last_clean(store: MetadataStore) -> str:
    return next((i.time for i in reversed(store.timeline.completed) if i.action is Action.CLEAN), "")


def _plan(store: MetadataStore, retention: Retention) -> CleanPlan:
    replaced = store.timeline.replaced_files()
    # whole file groups: they are few, and a compaction of the metadata table is not pending for long
    planned = {**store.timeline.pending_compaction(), **store.timeline.pending_log_compaction()}
    protected = Protected(planned=dict.fromkeys(planned, ""))
    return plan_cleaning(_groups(store), store.timeline.commits, retention, replaced, protected)


def _groups(store: MetadataStore) -> Iterator[GroupSlices]:
    """The file groups as the folders have them, with what failed writes left."""
    for partition in store.data_config.metadata_partitions:
        files = store.listed_files(partition)
        yield from all_slices(
            [file for file in files if isinstance(file, BaseFile)],
            [file for file in files if isinstance(file, LogFile)],
            version=store.version,
            completion_time=store.timeline.completion_time,
        )

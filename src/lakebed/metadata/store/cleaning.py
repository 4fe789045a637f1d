"""Cleaning of the metadata table: file slices that no reader of the last commits can need are deleted."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

from lakebed.metadata.layout import parse_files
from lakebed.metadata.store.compaction import last_compaction
from lakebed.metadata.store.store import MetadataStore
from lakebed.model import Action, BaseFile, Instant, LogFile, State
from lakebed.timeline.file_slices import GroupFiles, by_group, log_order, slice_key
from lakebed.timeline.service_plans import CleanPlan, clean_files, encode_clean_metadata, encode_clean_plan
from lakebed.timeline.written_files import is_data_path

# Readers that began before a compaction get this many instants to finish.
_GRACE_INSTANTS = 3
# Digits that version 6 puts behind the last delta commit.
_SUFFIX = "002"


def run_cleaning(store: MetadataStore) -> list[str]:
    """Finish cleans that were cut off, then clean if there is something to; says what was done."""
    done = [_run(store, instant.time, instant.state) for instant in store.pending(Action.CLEAN)]
    compaction = last_compaction(store)
    if compaction and len(store.timeline.completed_after(compaction.time)) < _GRACE_INSTANTS:
        return done
    earliest = _earliest_to_retain(store)
    if earliest is None or not _has_news(store, earliest.time):
        return done
    plan = _plan(store, earliest)
    instant = _instant(store)
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
    return f"clean {instant} of {len(files)} files"


def _has_news(store: MetadataStore, earliest: str) -> bool:
    """Whether a file slice may have gone out of use since the last clean: one does when a newer one, by a compaction or
    a replacement, falls behind the earliest commit. As far as the timeline tells; else the folders do."""
    last = next((i.time for i in reversed(store.timeline.completed) if i.action is Action.CLEAN), "")
    commits = store.timeline.commits
    count = len(commits) - len(store.timeline.commits_after(last))  # no commit has the time of a clean
    if count < store.settings.clean_commits:
        return True
    since = commits[count - store.settings.clean_commits :]
    return any(i.time < earliest for i in since if i.action is not Action.DELTACOMMIT)


def _plan(store: MetadataStore, earliest: Instant) -> CleanPlan:
    files: dict[str, list[str]] = {}
    for partition in store.partitions:
        names = sorted(_names_to_clean(store, partition, earliest.time))
        if names:
            files[partition] = names
    return CleanPlan(files, earliest, store.timeline.commits[-1].time)


def _earliest_to_retain(store: MetadataStore) -> Instant | None:
    """The first commit whose file slices stay readable."""
    commits = store.timeline.commits
    if len(commits) <= store.settings.clean_commits:
        return None
    earliest = commits[-store.settings.clean_commits]
    waiting = min((i.time for i in store.timeline.pending if i.action is not Action.CLEAN), default=None)
    if waiting is not None and earliest.time > waiting:
        return next((i for i in reversed(commits) if i.time < waiting), None)
    return earliest


def _names_to_clean(store: MetadataStore, partition: str, earliest: str) -> Iterator[str]:
    replaced = store.timeline.replaced_files()
    compacting = store.timeline.pending_compaction()
    base: list[BaseFile] = []
    logs: list[LogFile] = []
    for info in store.storage.list(partition, recursive=False):
        file = parse_files(partition, info.path.rpartition("/")[2], info.size)
        if isinstance(file, BaseFile):
            base.append(file)
        elif file is not None:
            logs.append(file)
    for group, files in by_group(base, logs).items():
        if group in compacting:
            continue
        by = replaced.get(group)
        if by is None:
            yield from _old_slices(store, files, earliest)
        elif by.time < earliest:
            yield from (file.name for file in (*files.base, *files.logs))


def _old_slices(store: MetadataStore, files: GroupFiles, earliest: str) -> Iterator[str]:
    """The files of slices older than the newest one that the earliest commit could see."""
    keys = {file.instant for file in files.base}
    newest = max(keys, default="")
    slices: dict[str, list[str]] = defaultdict(list)
    for file in files.base:
        slices[file.instant].append(file.name)
    for log in sorted(files.logs, key=log_order):
        # of a log that was begun behind the newest base file its own instant says enough
        completed = log.instant if log.instant >= newest else store.timeline.completion_time(log.instant)
        key = slice_key(store.version, keys, log.instant, completed)
        keys.add(key)
        slices[key].append(log.name)
    ordered = sorted(slices)
    kept = {*ordered[-1:], *[key for key in ordered if key < earliest][-1:]}
    for key in ordered:
        if key < earliest and key not in kept:
            yield from slices[key]


def _instant(store: MetadataStore) -> str | None:
    if store.version >= 8:
        return store.new_time()
    last = max(i.time for i in store.timeline.commits if i.action is Action.DELTACOMMIT)
    return None if any(i.time == last + _SUFFIX for i in store.timeline.instants) else last + _SUFFIX

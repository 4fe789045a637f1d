"""Named consumers of a table: they are started, moved and deleted, and what cleaning and archival retain for them."""

from __future__ import annotations

from datetime import timedelta

from lakebed.concurrency.providers import writers_lock
from lakebed.config.settings import ConsumerSettings, WriteSettings
from lakebed.errors import CommitConflict, ConflictKind
from lakebed.properties.file import load_same_table, load_table_config, update_table_config
from lakebed.storage.base import Storage
from lakebed.timeline.consumers import CONSUMERS, Consumer, ConsumerFiles, ConsumerNeed, consumer_needs
from lakebed.timeline.instants import format_time, parse_time
from lakebed.timeline.timeline import Timeline


def needs_of_consumers(timeline: Timeline, settings: ConsumerSettings, now: str) -> list[ConsumerNeed]:
    """The commits that the table's consumers have not read, the oldest first, without those older than the consumers'
    time limit at `now`, an instant time. Nothing is listed for a table without consumers."""
    if not timeline.config.has_consumers or settings.max_lag <= 0:
        return []
    return consumer_needs(timeline, ConsumerFiles(timeline.storage).read_all(), retained_since(timeline, settings, now))


def retained_since(timeline: Timeline, settings: ConsumerSettings, now: str) -> str:
    """The time from which on commits are retained for consumers, at `now`; both are instant times."""
    zone = timeline.config.timezone
    try:
        return format_time(parse_time(now, zone) - timedelta(seconds=settings.max_lag), zone)
    except OverflowError:
        return ""


def start_consumer(
    storage: Storage, name: str, position: str, settings: WriteSettings, *, every_commit: bool = False
) -> Consumer:
    """Record a new consumer. Before the first one is recorded, the table's properties get a mark that there are
    consumers, so that every writer looks for them. Raises `InvalidOption` if there is a consumer of this name."""
    note_consumers(storage, settings)
    return ConsumerFiles(storage).create(name, position, every_commit=every_commit)


def note_consumers(storage: Storage, settings: WriteSettings) -> None:
    """Record in the table's properties that it has consumers, unless that is recorded; `settings` configure the
    lock."""
    config = load_table_config(storage)
    if config.has_consumers:
        return
    with writers_lock(storage, settings, config.name) as lock:
        if not lock.lock_is_held():
            raise CommitConflict(
                f"the table lock was lost before {storage.url()} could have its first consumer",
                hint="Another process took it after it expired; try again.",
                kind=ConflictKind.LOCK_LOST,
            )
        load_same_table(storage, config)
        update_table_config(storage, {CONSUMERS: "true"}, lock.lock_is_held)


def move_to_requested_times(timeline: Timeline) -> None:
    """Move the consumers of a table that changes to version 6, where positions are requested times. A consumer may have
    read commits that were requested after an unread one. It is moved back before the unread commit, so that it reads
    some commits twice, and misses none."""
    if not timeline.config.has_consumers:
        return
    files = ConsumerFiles(timeline.storage)
    for consumer in files.read_all():
        unread = min((i.time for i in timeline.commits_completed_after(consumer.position)), default="")
        if unread and unread <= consumer.position:
            before = max((i.time for i in timeline.commits if i.time < unread), default="")
            files.put_at(consumer, before)

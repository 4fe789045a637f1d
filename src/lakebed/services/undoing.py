"""Taking back completed actions, one or many: under the table lock from the first look to the last file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from lakebed.config.features import check_write
from lakebed.errors import CommitConflict, InvalidOption
from lakebed.index.base import Index
from lakebed.metadata.store.writer import MetadataWriter
from lakebed.model import Action, Instant
from lakebed.operations.context import WriteContext
from lakebed.operations.rollback import roll_back
from lakebed.services.lost_files import EarlierState
from lakebed.services.service_transaction import ServiceTransaction
from lakebed.slices.facts import table_features
from lakebed.slices.snapshot import Snapshot
from lakebed.timeline.instants import InstantClock, completes_as
from lakebed.timeline.timeline import COMMITS, Timeline, load_timeline
from lakebed.upkeep.metadata_upkeep import kept_as


@dataclass
class Undoing(ServiceTransaction):
    """See the module. An unfinished restore does not stop it where `beside_restore`."""

    beside_restore: bool = field(default=False, init=False)

    def __enter__(self) -> Undoing:
        return self

    @classmethod
    def of(cls, context: WriteContext, action: Action, operation: str) -> Undoing:
        """Of this table; `operation` is what messages call it."""
        if action is not Action.SAVEPOINT:
            check_write(context.config.properties, table_features(context.opened), operation)
        # the index is asked only about what is taken back
        index = cast("Index", None)
        tx = cls(
            context.storage, context.config, action, operation, context.settings, engine=context.engine, index=index
        )
        tx.context = context
        return tx

    @contextmanager
    def held(self) -> Generator[Snapshot]:
        """Under the lock, when what dead writers left is rolled back here and on the metadata table: the table."""
        _ = self.context.index  # told from the files while all of them are there
        with self.begin():
            writer = self.metadata_writer()
            if self.config.metadata_partitions:
                writer.settle()
                writer.take_off_strays()
            self.timeline = self._load()
            yield Snapshot(self.storage, self.config, self.timeline)

    def metadata_writer(self) -> MetadataWriter:
        """Of the table as it is now."""
        return MetadataWriter(self.storage, self.config, self.timeline, kept_as(self.settings), self.still_mine)

    @property
    def still_mine(self) -> Callable[[], bool]:
        """Whether the lock is still held."""
        return self._held.still_mine

    @property
    def clock(self) -> InstantClock:
        return self._clock

    def take_back(self, target: Instant, *, with_plan: bool = False, doomed: Collection[str] = frozenset()) -> str:
        """Roll an instant back (see `roll_back`); gives the rollback's instant."""
        done = roll_back(
            self.storage,
            self.config,
            self.timeline,
            target,
            self._clock,
            self.still_mine,
            self._forget,
            with_plan=with_plan,
            doomed=doomed,
        )
        self.timeline = self._load()
        return done

    def reload(self) -> Timeline:
        """The timeline as it is now."""
        return self._load()

    def _load(self) -> Timeline:
        return load_timeline(self.storage, self.config) if self.beside_restore else super()._load()


def completed_commit(timeline: Timeline, instant: str, verb: str) -> Instant:
    """The completed commit of this requested time. Raises `InvalidOption` where the active timeline has none."""
    found = timeline.commit(instant)
    if found is not None:
        return found
    same = [i for i in timeline.instants if i.time == instant]
    context = {"instant": instant}
    if any(completes_as(i.action) in COMMITS for i in same):
        what = f"{same[0].action} {instant} is pending: there is nothing completed to {verb}"
        hint = "What a dead writer leaves the next write undoes; a living one is left alone."
    elif same:
        what = f"{instant} is a {same[0].action}, which cannot be a place to {verb}"
        hint = "Name a commit; `lakebed timeline show URI` lists them."
    elif timeline.start is not None and instant < timeline.start:
        what = f"instant {instant} is older than the active timeline, which begins at {timeline.start}"
        hint = "It is archived, or was never there. Savepoints keep commits from being archived."
    else:
        what = f"there is no instant {instant} on the timeline of {timeline.storage.url()}"
        hint = "`lakebed timeline show URI` lists them."
    raise InvalidOption(what, hint=hint, context=context)


def check_not_savepointed(timeline: Timeline, target: Instant) -> None:
    """Raise `InvalidOption` where a savepoint keeps the instant."""
    saved = timeline.find(target.time, Action.SAVEPOINT)
    if saved is not None:
        raise InvalidOption(
            f"{target.action} {target.time} has a savepoint, it cannot be rolled back",
            hint=f'Delete the savepoint first: t.delete_savepoint("{target.time}"), or restore to it.',
            context={"instant": target.time},
        )


def check_no_file_lost(snapshot: Snapshot, without: set[str], what: str) -> None:
    """Raise `InvalidOption` where files are cleaned that the table without these instants needs."""
    lost = EarlierState(snapshot, without).lost()
    if lost:
        raise InvalidOption(
            f"{what} is not possible: cleaning has deleted {len(lost)} files that are needed then, {lost[0]} among them"
            " (or a pending clean is about to)",
            hint="Choose a later instant. Savepoints keep the files of a commit: t.savepoint().",
            context={"files": lost[:20]},
        )


def check_nobody_runs(timeline: Timeline, instant: str, what: str) -> None:
    """Raise `CommitConflict` where a pending action was requested after the instant."""
    waiting = next((i for i in timeline.pending if i.time > instant and completes_as(i.action) in COMMITS), None)
    if waiting is not None:
        raise CommitConflict(
            f"{what} is not possible while {waiting.action} {waiting.time}, which began after it, is pending",
            hint="Try again when it is done; t.restore() takes back what is pending, too.",
            context={"instant": waiting.time},
        )

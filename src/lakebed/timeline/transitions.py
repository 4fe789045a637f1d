"""Moving an instant on: requested, inflight, completed. Each step creates one file that must not exist yet."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.errors import CommitConflict, CommitStateUnknown, ConflictKind, StorageError
from lakebed.model import Action, Instant, State, has_completion_times
from lakebed.properties.table_config import TableConfig
from lakebed.storage.base import Durable, Storage
from lakebed.storage.exactly_once import create_exactly_once
from lakebed.timeline.instants import completed_name, completes_as, inflight_name, requested_name


@dataclass(frozen=True, slots=True)
class TimelineWriter:
    """A writer of instant files of one table. Callers hold the table lock for `request` and `complete`. `durable` is
    when a completed instant outlasts a power cut."""

    storage: Storage
    config: TableConfig
    durable: Durable = True

    def request(self, action: Action, time: str, body: bytes = b"") -> Instant:
        """Reserve the time for an action. Raises `CommitConflict` if another writer has it already.

        An instant without a body is durable only with its inflight file, which is created in the same folder before any
        file of the action. A power cut in between leaves nothing to undo.
        """
        name = requested_name(action, time, self.config.version)
        self._create(name, body, time, durable=bool(body))
        return Instant(time, action, State.REQUESTED, None, name)

    def inflight(self, action: Action, time: str, body: bytes = b"", *, durable: Durable = True) -> Instant:
        """Record that the action has begun. `durable` may be "later" if only this process writes the files of the
        action: they survive a power cut only if the inflight file does."""
        name = inflight_name(action, time, self.config.version)
        self._create(name, body, time, durable=durable)
        return Instant(time, action, State.INFLIGHT, None, name)

    def complete(
        self,
        action: Action,
        time: str,
        completion_time: str | None,
        body: bytes,
        *,
        is_inflight: bool = False,
    ) -> Instant:
        """Make the action visible; on version 6 the name does not have the `completion_time`. With `is_inflight`
        storage is not asked whether the inflight file exists.

        The body must be this writer's alone (commits have a writer id), so that reading back shows whose file it is.
        Raises `CommitConflict` if the inflight file is missing (another writer took this one for dead and rolled it
        back) or another writer completed the instant, and `CommitStateUnknown` if storage does not report whether the
        file was created: then nothing may be cleaned up. For a rollback the `StorageError` itself is raised: only the
        next writer has to know, and runs it again if necessary.
        """
        version = self.config.version
        if not is_inflight:
            self.check_inflight(action, time)
        name = completed_name(action, time, completion_time, version)
        try:
            self._create(name, body, time, durable=self.durable)
        except StorageError as cause:
            if not cause.context.get("doubtful") or action is Action.ROLLBACK:
                raise
            raise CommitStateUnknown(
                f"storage did not report whether instant {time} of {self.storage.url()} was committed",
                hint="Nothing was cleaned up. Look at the timeline when storage answers again: if the instant is "
                "completed the write is done, otherwise run it again.",
                context={"instant": time, "path": self._path(name)},
                instant=time,
            ) from cause
        recorded_time = completion_time if has_completion_times(version) else None
        return Instant(time, completes_as(action), State.COMPLETED, recorded_time, name)

    def check_inflight(self, action: Action, time: str) -> None:
        """Raise `CommitConflict` if an instant that this writer began is not inflight any more."""
        if self.storage.head(self._path(inflight_name(action, time, self.config.version))) is None:
            raise CommitConflict(
                f"instant {time} is not inflight any more: another writer took this one for dead and rolled it back",
                hint="Run the write again; a longer heartbeat interval helps where the process is often suspended.",
                context={"instant": time},
                kind=ConflictKind.TAKEN_BACK,
            )

    def make_pending(self, completed: Instant, action: Action) -> None:
        """Remove the completion of an instant that was requested as `action`: it is inflight then."""
        version = self.config.version
        for name in (requested_name, inflight_name):
            self.storage.put_if_absent(self._path(name(action, completed.time, version)), b"")
        self.storage.delete(self._path(completed.file_name))

    def pending_names(self, action: Action, time: str) -> tuple[str, str]:
        """The names of the requested and the inflight file of an instant."""
        version = self.config.version
        return requested_name(action, time, version), inflight_name(action, time, version)

    def remove_pending(self, instant: Instant) -> None:
        """Delete the inflight and then the requested file of an instant, whichever exist."""
        version = self.config.version
        for name in (
            inflight_name(instant.action, instant.time, version),
            requested_name(instant.action, instant.time, version),
        ):
            self.storage.delete(self._path(name))

    def remove_completed(self, instant: Instant) -> None:
        """Delete all files of a completed instant, the completed file last: the instant is completed as long as that
        exists."""
        self.remove_pending(instant)
        self.storage.delete(self._path(instant.file_name))

    def remove_inflight(self, instant: Instant) -> None:
        """Delete an instant's inflight file, so that it is only requested again."""
        self.storage.delete(self._path(inflight_name(instant.action, instant.time, self.config.version)))

    def _create(self, name: str, body: bytes, time: str, *, durable: Durable = True) -> None:
        if not create_exactly_once(self.storage, self._path(name), body, durable=durable):
            raise CommitConflict(
                f"another writer has created {name} already",
                hint="Run the write again; writers of one table must share its lock.",
                context={"instant": time, "path": self._path(name)},
                kind=ConflictKind.CHANGED,
            )

    def _path(self, name: str) -> str:
        return f"{self.config.timeline_path}/{name}"

"""The table lock: one writer at a time begins or commits, on every kind of storage and next to real Hudi's writers.

Clocks of other hosts are not trusted. A holder counts its own time on a monotonic clock, from before its last
successful put. A waiting process takes the lock over after it has seen the file unchanged for the holder's full
validity and half a second more. So the owner knows that it lost the lock before anyone else can have it.

A waiting process polls with jittered pauses, of some hundredths of a second if storage is near. The pauses get shorter
the longer it has waited. A process that gives the lock back while others want it pauses before it asks again. Of ten
writers that hold it for 50 ms each (0.45 s in a line) half wait 0.4 s; the longest wait seen was 3 s.

`LeasedLock` has the rules of every lock: how it waits, renews, ends with its call and after a fork. `FileLock` and the
locks of services say how the lease is taken, prolonged and given back.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import ClassVar, Protocol, Self, TypeVar

from lakebed.concurrency.heartbeat import (
    PeriodicTask,
    ProcessIdentity,
    has_ended,
    is_this_process,
    this_process,
    unchanged_for,
)
from lakebed.concurrency.process_queue import QueueEntry
from lakebed.concurrency.running_call import RunningCall, surely
from lakebed.errors import LakebedError, LockTimeout, StorageError
from lakebed.model import HDFS_LOCK_FILE, LOCK_FILE
from lakebed.sharing import shared_lock
from lakebed.storage import Storage
from lakebed.storage.base import Versioned
from lakebed.storage.clocks import monotonic_seconds
from lakebed.storage.parallel import aside, in_background, is_remote

R = TypeVar("R")
VALIDITY_SECONDS = 300.0
DRIFT_SECONDS = 0.5
_BODY_BYTES = 400  # always the same size, so that a local disk changes the file in place
# Storage is asked for its time when a lock was seen unchanged this long: most are renewed or given back before.
_ASK_AFTER = 1.0

# Owners that hold a lock in this process, with their places in its queue. A lock file that names this process and an
# owner that is not listed here, or whose call does not run any more, was abandoned.
holding: dict[str, QueueEntry] = {}
os.register_at_fork(after_in_child=holding.clear)


@dataclass(frozen=True, slots=True)
class Holder:
    """The content of a lock file. `validity` is the number of seconds for which it is valid unless renewed; None: for
    ever, like a lock file without content. `until` is its end by the holder's clock, for messages only."""

    owner: str
    validity: float | None
    until: float | None = None
    expired: bool = False
    process: ProcessIdentity | None = None
    is_readable: bool = True

    def seconds_left(self, storage: Storage, path: str, version: str) -> float:
        """The longest time in seconds for which the lock may still be valid; 0 when it has expired. `version` is the
        file's version that was read.

        A process of this machine that has ended holds nothing. Any other holder's time is over when the file stayed
        unchanged for its validity, as seen from here: its stamps are of a clock that may be wrong.
        """
        if self.expired or self._is_abandoned():
            return 0.0
        if self.validity is None:
            return math.inf
        limit = self.validity + DRIFT_SECONDS
        return max(0.0, limit - unchanged_for(storage, path, version, limit, ask_after=_ASK_AFTER))

    def _is_abandoned(self) -> bool:
        if self.process is None:
            return False
        if is_this_process(self.process):
            entry = holding.get(self.owner)
            return entry is None or not entry.is_valid()
        return has_ended(self.process)

    def __str__(self) -> str:
        if not self.is_readable:
            return "a file that is no lock file (it may have been cut off)"
        name = self.owner or "an unnamed writer"
        where = f" ({self.process})" if self.process else ""
        if self.validity is None:
            return f"{name}{where}, without a time limit"
        if self.until is None:
            return f"{name}{where}"
        return (
            f"{name}{where}, until {datetime.fromtimestamp(self.until, UTC).isoformat(timespec='seconds')} by its clock"
        )


def lock_body(owner: str, until: float, validity: float, *, expired: bool) -> bytes:
    """A lock file of this process: the first three fields are Hudi's."""
    body = {
        "expired": expired,
        "validUntil": int(until * 1000),
        "owner": owner,
        "validitySeconds": validity,
        **this_process().to_json(),
    }
    return json.dumps(body).encode().ljust(_BODY_BYTES)


def read_lock_body(data: bytes, path: str) -> Holder:
    """The holder of a lock, from the content of its file. A file that cannot be parsed may still be a valid lock: it
    counts for the usual time."""
    if not data.strip() and not path.endswith(".json"):  # Hudi's file-system lock has no content
        return Holder("", None)
    try:
        body = json.loads(data)
        until, stated = body.get("validUntil"), body.get("validitySeconds")
        # Hudi's lock files do not state it: they are renewed much more often than the default
        is_stated = isinstance(stated, int | float) and math.isfinite(stated) and stated > 0
        seconds = None if until is None else float(until) / 1000
        if seconds is not None:
            datetime.fromtimestamp(seconds, UTC)
        return Holder(
            str(body["owner"]),
            None if seconds is None else float(stated) if is_stated else VALIDITY_SECONDS,
            seconds,
            bool(body.get("expired", False)),
            ProcessIdentity.from_json(body),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        return Holder("", VALIDITY_SECONDS, is_readable=False)


RENEW_SECONDS = 30.0
_FIRST_PAUSE = 0.02
_MAX_PAUSE = 1.0
_CONTENDED_SECONDS = 2.0
_RELEASE_SECONDS = 2.0

# By URL: when this process last had to wait for a lock, and when it gave it back.
_waited: dict[str, float] = {}
_released: dict[str, float] = {}


# By URL: the lock file as it was read before this process needs the lock.
_looked_at: dict[str, Versioned] = {}


class Lock(Protocol):
    """A table's lock. As a context manager it waits for the time given at its creation; it is not re-entrant."""

    def acquire(self, timeout: float) -> None:
        """Take the lock, waiting `timeout` seconds for it. Raises `LockTimeout`, which names the holder."""
        ...

    def renew(self) -> bool:
        """Extend the lock by a request to storage. Returns False if another process has taken it."""
        ...

    def lock_is_held(self) -> bool:
        """Whether no other process can have taken the lock: called right before the step that it protects, and again
        right after. No request is made."""
        ...

    def release(self) -> None: ...

    def __enter__(self) -> Lock: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def look_at_lock(storage: Storage) -> None:
    """On a slow storage, read the file of the default lock ahead. The next caller in this process then takes a free
    lock by one request, if the file has not changed."""
    if not is_remote(storage):
        return
    path = HDFS_LOCK_FILE if storage.spec.uri.startswith("hdfs://") else LOCK_FILE
    with contextlib.suppress(StorageError, FileNotFoundError):
        _looked_at[storage.url(path)] = storage.read_versioned(path)


def no_lock() -> bool:
    """False: the `lock_is_held` of callers without a lock, which may only read.

    >>> no_lock()
    False
    """
    return False


def default_lock(storage: Storage, *, wait_seconds: float = 60.0) -> FileLock:
    """The lock that requires no service except the storage.

    Object stores, local disks and memory: Hudi's storage-based lock, `.hoodie/.locks/table_lock.json`, replaced by
    conditional puts. HDFS: Hudi's file-system lock, `.hoodie/lock`, which is there or not.
    """
    if storage.spec.uri.startswith("hdfs://"):
        return FileLock(storage, HDFS_LOCK_FILE, wait_seconds=wait_seconds, release_deletes=True)
    return FileLock(storage, LOCK_FILE, wait_seconds=wait_seconds)


class LeasedLock(ABC):
    """A lock that is leased for some time and prolonged in the background; it is not re-entrant. `where` names it in
    messages, and in the queue of this process.

    It ends with the call that took it, also where an interrupt comes before `release`: see `running_call`. In a forked
    process it is not held, and the parent keeps it.
    """

    outlives_calls: ClassVar[bool] = False
    """Whether it is kept after the call that took it."""

    pauses: ClassVar[tuple[float, float]] = (0.05, 1.0)
    """Seconds between two tries: the shortest, and the longest for a caller that has waited long."""

    def __init__(self, where: str, wait_seconds: float, *, renew_every: float | None = None) -> None:
        self.where = where
        self._wait_seconds = wait_seconds
        self._renew_every = renew_every
        self._owner, self._process = "", os.getpid()
        self._entry: QueueEntry | None = None
        self._valid_until = 0.0
        self._periodic: PeriodicTask | None = None
        self._changing = shared_lock()

    @property
    @abstractmethod
    def validity(self) -> float:
        """The number of seconds for which the lock is held after a successful request; known once a request has
        succeeded."""

    @abstractmethod
    def _try(self) -> bool:
        """Take the lock if it is free; returns whether it was taken. Raises `StorageError` if the service does not
        answer."""

    @abstractmethod
    def _prolong(self) -> bool:
        """Extend the lease; returns whether it is still held."""

    @abstractmethod
    def _let_go(self) -> None:
        """Release the lock, or undo the attempt to take it, and close connections. If this fails, the lock expires."""

    def _forget(self) -> None:
        """Drop what this object knows of the lock, without a request. A forked process does nothing else."""
        holding.pop(self._owner, None)
        self._owner = ""
        self._valid_until = 0.0
        self._periodic = None
        if self._entry is not None:
            self._entry.leave()
            self._entry = None

    def _holder(self) -> str:
        """The holder of the lock as text, for messages."""
        return "another writer"

    def _state(self) -> tuple[str, str, dict[str, object]]:
        """The state of a lock that was not taken, a hint, and the context of the error."""
        return f"is held by {self._holder()}", "run it again when the other writer is done", {}

    def _seconds_to_next_try(self, waited: float, request: float) -> float:
        """The seconds until the next try, for a writer that has waited `waited` seconds and whose last try took
        `request` seconds."""
        shortest, longest = self.pauses
        return random.uniform(0.5, 1.5) * min(longest, max(shortest, waited / 4))

    def _pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until the lock may be free."""
        time.sleep(seconds)

    def _try_reading(self, read: Callable[[], R]) -> Callable[[], R] | None:
        """Try once to acquire the lock. Returns a function that waits for the result of `read` and returns it, None if
        the lock was not acquired."""
        return read if self._try() else None

    def acquire(self, timeout: float) -> None:
        self.acquire_reading(timeout, _nothing)()

    def acquire_reading(self, timeout: float, read: Callable[[], R]) -> Callable[[], R]:
        """Take the lock as `acquire` does, and run `read`, which reads storage and changes nothing. Returns a function
        that waits for the result of `read` and returns it, or raises its error. `read` sees what the holder of the lock
        sees."""
        if self._owner:
            raise RuntimeError("the lock is held by this object already")
        deadline = time.monotonic() + timeout
        try:
            call = None if self.outlives_calls else RunningCall()
            self._entry = entry = QueueEntry(self.where, call)
            longest = max(timeout, _RELEASE_SECONDS if entry.first_is_returning() else 0.0)
            if not entry.take(longest):
                raise self._timeout(timeout)
            self._owner, self._process = str(uuid.uuid4()), os.getpid()
            holding[self._owner] = entry
            result = self._wait(deadline, timeout, read)
            # `lock_is_held` becomes false if no renewal succeeds in time
            seconds = self._renew_every or self.validity / 3
            self._periodic = PeriodicTask(seconds, self.renew, "table-lock", call=call, abandoned=self._end)
            self._periodic.start()
        except BaseException:
            self.release()
            raise
        return result

    def _wait(self, deadline: float, timeout: float, read: Callable[[], R]) -> Callable[[], R]:
        """Try until the lock is acquired. Returns a function that waits for the result of `read` and returns it."""
        started = time.monotonic()
        if started - _waited.get(self.where, -math.inf) < _CONTENDED_SECONDS:
            others_turn = _released.get(self.where, 0.0) + self._seconds_to_next_try(0.0, 0.0) - started
            time.sleep(max(0.0, min(others_turn, timeout)))
        while True:
            tried_at, asked_at = time.monotonic(), monotonic_seconds()  # others start to count later
            try:
                if (result := self._try_reading(read)) is not None:
                    self._valid_until = asked_at + self.validity
                    return result
            except StorageError as error:
                if not error.retryable:
                    raise
                if time.monotonic() >= deadline:
                    if error.context.get("busy"):
                        raise self._timeout(timeout) from error
                    raise
            now = time.monotonic()
            if now >= deadline:
                raise self._timeout(timeout)
            _waited[self.where] = now
            self._pause(min(self._seconds_to_next_try(now - started, now - tried_at), deadline - now))

    def _timeout(self, timeout: float) -> LockTimeout:
        state, hint, context = self._state()
        message = f"no lock on the table within {timeout:g} seconds: {self.where} {state}"
        return LockTimeout(message, hint, {"path": self.where, **context})

    def renew(self) -> bool:
        with self._changing:
            asked_at = monotonic_seconds()
            try:
                if self._owner and self._process == os.getpid() and self._prolong():
                    self._valid_until = asked_at + self.validity
                    return True
            except StorageError:
                if self.lock_is_held():
                    return True  # no other process can have it yet, and the next request may succeed
                raise
            self._valid_until = 0.0
            return False

    def lock_is_held(self) -> bool:
        # a forked process shares the connection, and has not the lock
        is_own = bool(self._owner) and self._process == os.getpid()
        return is_own and monotonic_seconds() < self._valid_until

    def release(self) -> None:
        """Release the lock. Errors of storage or the service are not raised: the lock is then free when its validity or
        this process ends."""
        try:
            surely(self._end)
        except BaseException:
            self._forget()
            raise

    def _end(self) -> None:
        """Release every part of the lock that is held. A second call completes a release that was interrupted."""
        if self._entry is None:
            return
        if self._periodic is not None:
            self._periodic.stop()
        if self._process == os.getpid():  # else this is a forked process, and the lock is its parent's
            self._let_go()
            if self._valid_until:
                _released[self.where] = time.monotonic()
        self._forget()

    def __enter__(self) -> Self:
        self.acquire(self._wait_seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _nothing() -> None:
    """Read nothing, for a lock that is acquired without a read."""


class FileLock(LeasedLock):
    """A lock that is a small JSON file, changed only by conditional puts.

    It is valid for `validity` seconds and prolonged in the background every `renew_every` seconds. A lock whose owner
    was a process of this machine that has ended is free at once; any other one when it was not renewed for its
    validity. A lost answer is resolved by reading back: the owner's name is in the file.

    Where the file was seen free before, `acquire_reading` begins to read side by side with the put over the version
    that was seen. If that put succeeds, no other process has had the lock since, so what was read is valid. Otherwise
    it is discarded, and read again when the lock is held.
    """

    def __init__(
        self,
        storage: Storage,
        path: str = LOCK_FILE,
        *,
        wait_seconds: float = 60.0,
        validity: float | None = None,
        renew_every: float = RENEW_SECONDS,
        release_deletes: bool = False,
    ) -> None:
        super().__init__(storage.url(path), wait_seconds, renew_every=renew_every)
        self._storage = storage
        self._path = path
        self._stated = VALIDITY_SECONDS if validity is None else validity
        self._release_deletes = release_deletes
        self._put_by: str | None = None  # the owner that may be in the file
        self._early_read: Callable[[], tuple[Holder, str] | None] | None = None

    @property
    def validity(self) -> float:
        return self._stated - DRIFT_SECONDS

    def _try_reading(self, read: Callable[[], R]) -> Callable[[], R] | None:
        result: Callable[[], R] | None = None
        file = _looked_at.pop(self.where, None)
        if file is not None and read_lock_body(file.data, self._path).expired:
            early = in_background(read)
            result = early if self._put(file.version) else None
        if result is None and self._try():
            result = read
        if result is not None and is_remote(self._storage):
            # the version that the file has now is known when the lock is given back
            self._early_read = in_background(self._read)
        return result

    def _try(self) -> bool:
        current = self._read()
        if current is None:
            return self._put(None)
        holder, version = current
        # our own name in the file comes from a put that seemed lost
        if holder.owner != self._owner and holder.seconds_left(self._storage, self._path, version) > 0:
            return False
        return self._put(version)

    def _prolong(self) -> bool:
        self._early_read = None
        for _ in range(2):  # a put that seemed lost may take effect late
            current = self._read()
            if current is None or current[0].owner != self._owner or current[0].expired:
                return False
            if self._put(current[1]):
                return True
        return False

    def _read(self) -> tuple[Holder, str] | None:
        try:
            file = self._storage.read_versioned(self._path)
        except FileNotFoundError:
            return None
        return read_lock_body(file.data, self._path), file.version

    def _put(self, version: str | None, *, expired: bool = False) -> bool:
        """Write the file with this owner over the version that was read. False if another process was faster."""
        put_before, self._put_by = self._put_by, self._owner  # an interrupt may come after the request
        until = int((time.time() + self._stated) * 1000) / 1000
        try:
            body = lock_body(self._owner, until, self._stated, expired=expired)
            done = self._storage.put_if_match(self._path, body, version, durable=False)  # a power cut ends all holders
        except StorageError as error:
            if not error.context.get("doubtful"):
                self._put_by = put_before
                raise
            current = self._read()
            done = current is not None and (current[0].owner, current[0].until) == (self._owner, until)
        if not done:
            self._put_by = put_before
        return done

    def _let_go(self) -> None:
        deadline = time.monotonic() + _RELEASE_SECONDS
        with contextlib.suppress(LakebedError, OSError):
            while self._put_by == self._owner and not self._gave_back() and time.monotonic() < deadline:
                time.sleep(self._seconds_to_next_try(0.0, 0.0))
        if self._entry is not None and self._entry.is_returning:
            look_at_lock(self._storage)

    def _gave_back(self) -> bool:
        """Try to release the file. False if storage failed now and may succeed the next time."""
        read, self._early_read = self._early_read or self._read, None
        try:
            current = read()
            if current is None or current[0].owner != self._owner:
                return True
            if not self._release_deletes:
                return self._put(current[1], expired=True)
            if self.lock_is_held():  # otherwise another process may be taking it over
                self._storage.delete(self._path)
            return True
        except StorageError as error:
            if not error.retryable:
                raise
            return False

    def _state(self) -> tuple[str, str, dict[str, object]]:
        try:
            current = self._read()
        except (LakebedError, OSError) as error:
            return f"cannot be read ({error})", "see why, then run it again", {}
        if current is None:
            return "is held by another thread", "run it again when the other writer is done", {}
        holder, version = current
        hint = _way_out(holder.seconds_left(self._storage, self._path, version))
        return f"is held by {holder}", hint, {"owner": holder.owner, "valid_until": holder.until}

    def _seconds_to_next_try(self, waited: float, request: float) -> float:
        """Writers that waited longer try more often; on a slow storage all try less often."""
        first = max(_FIRST_PAUSE, 10 * request)
        return random.uniform(0.5, 1.5) * min(_MAX_PAUSE, max(3 * request, first / (1 + 8 * waited)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entry = self._entry
        if entry is not None:
            # the next caller in this process waits until the lock is given back and its file was read ahead
            entry.is_returning = True
            entry.call = None  # a thread of its own gives it back, also after the call that held it
            aside(self._storage, self.release)


def _way_out(left: float) -> str:
    if left == math.inf:
        return "wait for the other writer, or delete the file if you are sure that no process writes"
    return (
        f"run it again: if the holder died, this process takes the lock over when the file has stayed as it is for "
        f"another {left:.0f} seconds; or delete it if you are sure that no process writes"
    )

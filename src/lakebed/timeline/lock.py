"""The table lock: one writer at a time begins or commits, on every kind of storage and beside real Hudi's writers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

from lakebed.errors import CorruptFile, LakebedError, LockTimeout, StorageError
from lakebed.model import HOODIE
from lakebed.storage import Storage
from lakebed.timeline.process import ProcessIdentity, is_gone, is_this_process, this_process
from lakebed.timeline.pulse import Pulse

LOCK_FILE = f"{HOODIE}/.locks/table_lock.json"
HDFS_LOCK_FILE = f"{HOODIE}/lock"
VALIDITY_SECONDS = 300.0
RENEW_SECONDS = 30.0
DRIFT_SECONDS = 0.5
_BODY_BYTES = 400  # of one size: a local disk then changes it in place
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0

# Threads of one process queue here, by the lock's URL, before they go to storage.
_queues: dict[str, threading.Lock] = {}
_queues_lock = threading.Lock()
# Owners that hold a lock in this process: one that is on storage, names this process and is not here was abandoned.
_holding: set[str] = set()


def _forget_all() -> None:
    """A forked child holds nothing, and must not queue behind threads that it does not have."""
    _queues.clear()
    _holding.clear()


os.register_at_fork(after_in_child=_forget_all)


class Lock(Protocol):
    """A table's lock. As a context manager it waits as long as it was made to; not re-entrant."""

    def acquire(self, timeout: float) -> None:
        """Take the lock, waiting `timeout` seconds for it. Raises `LockTimeout`, which names the holder."""
        ...

    def renew(self) -> bool:
        """Prolong it, asking storage; False when someone else has it by now."""
        ...

    def still_mine(self) -> bool:
        """Whether nobody else can have it yet: asked right before what it protects."""
        ...

    def release(self) -> None: ...

    def __enter__(self) -> Lock: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def default_lock(storage: Storage, *, wait_seconds: float = 60.0) -> Lock:
    """The lock that needs no service beside the storage.

    Object stores, local disks and memory: Hudi's storage-based lock, `.hoodie/.locks/table_lock.json`, replaced by
    conditional puts. HDFS: Hudi's file-system lock, `.hoodie/lock`, which is there or not.
    """
    if storage.spec.uri.startswith("hdfs://"):
        return FileLock(storage, HDFS_LOCK_FILE, wait_seconds=wait_seconds, release_deletes=True)
    return FileLock(storage, LOCK_FILE, wait_seconds=wait_seconds)


@dataclass(frozen=True, slots=True)
class _Holder:
    """What a lock file says. `valid_until` (epoch seconds) is None in a file that is a lock by being there."""

    owner: str
    valid_until: float | None
    expired: bool
    process: ProcessIdentity | None

    def holds(self, now: float) -> bool:
        if self.expired or (self.valid_until is not None and now > self.valid_until + DRIFT_SECONDS):
            return False
        if self.process is None:
            return True
        if is_this_process(self.process):
            return self.owner in _holding
        return not is_gone(self.process)

    def __str__(self) -> str:
        who = self.owner or "an unnamed writer"
        where = f" ({self.process})" if self.process else ""
        if self.valid_until is None:
            return f"{who}{where}, without a time limit"
        until = datetime.fromtimestamp(self.valid_until, UTC).isoformat(timespec="seconds")
        return f"{who}{where}, until {until}"


class FileLock:
    """A lock that is a small JSON file, changed only by conditional puts.

    It is valid for `validity` seconds and prolonged in the background every `renew_every` seconds. A lock whose owner
    was a process of this machine that is gone is free at once; any other one when its time is over. An answer that got
    lost is settled by reading back: the owner's name is in the file.
    """

    def __init__(
        self,
        storage: Storage,
        path: str = LOCK_FILE,
        *,
        wait_seconds: float = 60.0,
        validity: float = VALIDITY_SECONDS,
        renew_every: float = RENEW_SECONDS,
        release_deletes: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._storage = storage
        self._path = path
        self._wait_seconds = wait_seconds
        self._validity = validity
        self._renew_every = renew_every
        self._release_deletes = release_deletes
        self._now = now
        self._owner = ""
        self._valid_until = 0.0
        self._pulse: Pulse | None = None
        self._changing = threading.Lock()

    def acquire(self, timeout: float) -> None:
        if self._owner:
            raise RuntimeError("the lock is held by this object already")
        deadline = time.monotonic() + timeout
        queue = self._queue()
        if not queue.acquire(timeout=max(timeout, 0.0)):
            raise self._timeout(timeout)
        try:
            self._owner = str(uuid.uuid4())
            _holding.add(self._owner)
            self._wait(deadline, timeout)
            # `still_mine` tells when no renewal got through in time
            self._pulse = Pulse(self._renew_every, self.renew, "table-lock")
            self._pulse.start()
        except BaseException:
            self._forget()
            raise

    def _wait(self, deadline: float, timeout: float) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                if self._try():
                    return
            except StorageError as error:
                if not error.retryable or time.monotonic() >= deadline:
                    raise
            if time.monotonic() >= deadline:
                raise self._timeout(timeout)
            time.sleep(min(pause * random.uniform(0.5, 1.0), max(0.0, deadline - time.monotonic())))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _try(self) -> bool:
        seen = self._read()
        if seen is None:
            return self._put(None)
        holder, version = seen
        # an own name in the file is a put of ours that was thought lost
        if holder.owner != self._owner and holder.holds(self._now()):
            return False
        return self._put(version)

    def _read(self) -> tuple[_Holder, str] | None:
        try:
            seen = self._storage.read_versioned(self._path)
        except FileNotFoundError:
            return None
        return _parse(seen.data, self._storage.url(self._path)), seen.version

    def _put(self, version: str | None, *, expired: bool = False) -> bool:
        """Write the file as ours over the version that was read. False: someone was faster."""
        until = self._now() + self._validity
        body = {"expired": expired, "validUntil": int(until * 1000), "owner": self._owner, **this_process().to_json()}
        try:
            done = self._storage.put_if_match(self._path, json.dumps(body).encode().ljust(_BODY_BYTES), version)
        except StorageError as error:
            if not error.context.get("doubtful"):
                raise
            seen = self._read()
            done = seen is not None and seen[0].owner == self._owner and seen[0].valid_until == int(until * 1000) / 1000
        if done:
            self._valid_until = until
        return done

    def renew(self) -> bool:
        with self._changing:
            if not self._owner:
                return False
            seen = self._read()
            if seen is not None and seen[0].owner == self._owner and not seen[0].expired and self._put(seen[1]):
                return True
            self._valid_until = 0.0
            return False

    def still_mine(self) -> bool:
        return bool(self._owner) and self._now() < self._valid_until - DRIFT_SECONDS

    def release(self) -> None:
        """Let go. Trouble with storage is not raised: the lock is then free when its time or this process is over."""
        if not self._owner:
            return
        if self._pulse is not None:
            self._pulse.stop()
        try:
            with contextlib.suppress(LakebedError, OSError), self._changing:
                if self.still_mine():
                    self._give_back()
        finally:
            self._forget()

    def _give_back(self) -> None:
        seen = self._read()
        if seen is None or seen[0].owner != self._owner:
            return
        if self._release_deletes:
            self._storage.delete(self._path)
        else:
            self._put(seen[1], expired=True)

    def _forget(self) -> None:
        _holding.discard(self._owner)
        self._owner = ""
        self._valid_until = 0.0
        self._pulse = None
        self._queue().release()

    def _queue(self) -> threading.Lock:
        with _queues_lock:
            return _queues.setdefault(self._storage.url(self._path), threading.Lock())

    def _timeout(self, timeout: float) -> LockTimeout:
        url = self._storage.url(self._path)
        holder: _Holder | None = None
        with contextlib.suppress(LakebedError, OSError):
            seen = self._read()
            holder = seen[0] if seen else None
        context: dict[str, object] = {"path": url}
        if holder is not None:
            context |= {"owner": holder.owner, "valid_until": holder.valid_until}
        return LockTimeout(
            f"no lock on the table within {timeout:g} seconds: {url} is held by {holder or 'another thread'}",
            hint="wait for the other writer, or delete the file if you are sure that nobody writes",
            context=context,
        )

    def __enter__(self) -> FileLock:
        self.acquire(self._wait_seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _parse(data: bytes, url: str) -> _Holder:
    if not data.strip():  # Hudi's file-system lock has no content
        return _Holder("", None, False, None)
    try:
        body = json.loads(data)
        until = body.get("validUntil")
        return _Holder(
            str(body["owner"]),
            None if until is None else until / 1000,
            bool(body.get("expired", False)),
            ProcessIdentity.from_json(body),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(
            f"{url} is not a lock file", hint="delete it once nobody writes to the table", context={"path": url}
        ) from error

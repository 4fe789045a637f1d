"""The storage of a table: what may be done there, whose clock it has, and whether the table lock can be taken.

A probe file in `.hoodie/.temp` is created, read, listed and deleted. `ReadOnly` makes sure that an examination that is
to leave no trace does not write.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator

from lakebed.concurrency.providers import table_lock
from lakebed.config.settings import LockSettings
from lakebed.diagnosis.findings import Finding, Severity, command, finding_of
from lakebed.errors import LakebedError, LockTimeout
from lakebed.model import HOODIE
from lakebed.storage.base import FileInfo, Storage, refused
from lakebed.storage.clocks import stamps_itself
from lakebed.storage.folder import WrappedStorage

PERMISSIONS, CLOCK, LOCK = "storage", "clock", "lock"
TEMPORARY = f"{HOODIE}/.temp"
# An instant is made of the time here: two hosts that differ by more make instants in another order than their commits.
CLOCK_SECONDS = 10.0
LOCK_SECONDS = 5.0
_READS = frozenset(
    {"list", "list_names", "list_folders", "head", "read", "read_ranges", "open_input", "read_versioned"}
)


class ReadOnly(WrappedStorage):
    """A storage that refuses every write and delete: such requests raise `StorageError`."""

    def _before(self, verb: str, path: str) -> None:
        if verb not in _READS:
            raise refused(f"{verb} of {path} is refused: the storage is open for reads alone", url=self.url(path))


def permissions(storage: Storage) -> Iterator[Finding]:
    """The findings from creating, reading, listing and deleting a probe file, and from comparing the storage's clock,
    which stamps it, with this machine's. The first step that fails ends it."""
    path, body = f"{TEMPORARY}/.doctor-{uuid.uuid4().hex}", os.urandom(16)
    step, stamp, began = "create", None, time.time()
    try:
        created = storage.put_if_absent(path, body)
        ended = time.time()
        step = "read"
        is_same = storage.read(path) == body
        step = "list"
        listed = [info for info in storage.list(TEMPORARY, recursive=False) if info.path == path]
        stamp = listed[0] if listed else None
        step = "replace"
        refuses_second = not storage.put_if_absent(path, b"")
        step = "delete"
        storage.delete(path)
    except (LakebedError, OSError) as error:
        if step != "create":
            with contextlib.suppress(LakebedError, OSError):
                storage.delete(path)
        yield _denied(storage, step, error)
        return
    if not (created and is_same and stamp is not None and refuses_second):
        yield Finding(
            PERMISSIONS,
            Severity.ERROR,
            f"{storage.url()} does not do what a table needs: a file that was created there"
            f" {'was not listed' if stamp is None else 'was replaced or changed by another create'}",
            "use a store with conditional puts and consistent listings",
        )
        return
    yield Finding(PERMISSIONS, Severity.FINE, f"a probe file in {TEMPORARY} was created, read, listed and deleted")
    if stamps_itself(storage.spec):
        yield _clock(stamp, began, ended)


def readable(storage: Storage) -> Iterator[Finding]:
    """The finding whether the table's folder can be listed; nothing is written."""
    storage.list_folders("")
    yield Finding(PERMISSIONS, Severity.FINE, f"{storage.url()} can be listed; writing was not tried")


def lock(storage: Storage, settings: LockSettings, table: str) -> Iterator[Finding]:
    """The finding from taking the table lock as a writer does, and releasing it."""
    name = settings.provider or "the lock file of the table"
    uri = storage.spec.uri
    try:
        with table_lock(storage, settings, wait_seconds=LOCK_SECONDS, table=table) as guard:
            guard.lock_is_held()
    except LockTimeout as error:
        again = command("maintenance doctor", uri)
        yield Finding(LOCK, Severity.WARNING, error.message, f"{error.hint} Then look again: {again}")
    except (LakebedError, OSError) as error:
        yield finding_of(LOCK, error)
    else:
        yield Finding(LOCK, Severity.FINE, f"{name} was taken and given back")


def _clock(stamp: FileInfo, began: float, ended: float) -> Finding:
    """The finding from comparing a file's modification time with the times between which it was created."""
    at = stamp.modified / 1000
    # many stores stamp in whole seconds
    ahead = max(began - at - 1.0, at - ended, 0.0)
    if ahead <= CLOCK_SECONDS:
        return Finding(CLOCK, Severity.FINE, f"the clock here and the one of the storage differ by {ahead:.0f} s")
    side = "ahead of" if at < began else "behind"
    return Finding(
        CLOCK,
        Severity.WARNING,
        f"the clock here is {ahead:.0f} s {side} the one of the storage: commits of several hosts get instants in a"
        " wrong order",
        "set the clock of this host, where chrony runs by: sudo chronyc makestep",
    )


def _denied(storage: Storage, step: str, error: Exception) -> Finding:
    cause = finding_of(PERMISSIONS, error)
    return Finding(
        PERMISSIONS,
        Severity.ERROR,
        f"cannot {step} a probe file in {TEMPORARY}: {cause.text}",
        f"{cause.remedy + ' ' if cause.remedy else ''}Where this user is only to read:"
        f" {command('maintenance doctor', storage.spec.uri, '--read-only')}",
    )

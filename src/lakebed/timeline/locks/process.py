"""Which process is this, and does that one still run: what locks and heartbeats say of their owner."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from lakebed.storage.base import from_os_error

# This process, not the one that is asked for, is short of something.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, named for good: the machine (host, boot, process-id namespace: containers have their own) and the
    process on it (id and start, since ids come back). Fields that the system does not tell are empty."""

    host: str
    boot: str
    namespace: str
    pid: int
    start: str

    def to_json(self) -> dict[str, str | int]:
        return {
            "host": self.host,
            "boot": self.boot,
            "pidNamespace": self.namespace,
            "pid": self.pid,
            "processStart": self.start,
        }

    @staticmethod
    def from_json(body: Mapping[str, object]) -> ProcessIdentity | None:
        """The identity in a lock or heartbeat body; None in one that real Hudi wrote."""
        pid = body.get("pid")
        if not isinstance(pid, int):
            return None
        texts = [str(body.get(name) or "") for name in ("host", "boot", "pidNamespace", "processStart")]
        return ProcessIdentity(texts[0], texts[1], texts[2], pid, texts[3])

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> ProcessIdentity:
    return _identity(os.getpid())


@lru_cache(maxsize=4)
def _identity(pid: int) -> ProcessIdentity:
    return ProcessIdentity(socket.gethostname(), _boot(), _namespace(), pid, process_start(pid))


def is_this_process(other: ProcessIdentity) -> bool:
    return other == this_process()


def is_gone(other: ProcessIdentity) -> bool:
    """Whether `other` certainly does not run any more. False whenever this machine cannot know."""
    here = this_process()
    if not other.boot or not other.start:
        return False
    # host names are not unique, so another boot under the same name proves nothing
    if (other.host, other.boot, other.namespace) != (here.host, here.boot, here.namespace):
        return False
    return process_start(other.pid) != other.start


def process_start(pid: int) -> str:
    """Start of a running process in clock ticks since boot; empty if there is none, or no /proc to ask."""
    # the command, in brackets, may hold spaces and brackets itself
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _read(path: str) -> str:
    """A file of /proc, empty if there is none. A process that is short of descriptors does not take another one for
    gone: raises `StorageError`."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError as error:
        if error.errno in _SHORT:
            raise from_os_error(error, "read", path) from error
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""

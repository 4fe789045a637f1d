"""Heartbeats: a writer shows that it is alive, and others find out whether it is dead.

A process of this machine is dead when it has ended. Any other process is dead when its heartbeat stayed unchanged for
too long; its stamp is never compared with the local clock. Until then its instant stays pending, like a living
writer's.

No host's clock is trusted: it may be hours off. Either of two observations is enough. This process saw the file
unchanged for that long, by a monotonic clock; it remembers that, so a new attempt continues an earlier wait. Or the
storage stamps files itself (object stores, HDFS, local disks, NFS), and a file written just now has a stamp that much
later.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import json
import math
import os
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from types import TracebackType

from lakebed.concurrency.markers import list_marker_files, list_markers
from lakebed.concurrency.running_call import RunningCall, surely
from lakebed.errors import StorageError
from lakebed.model import HOODIE, HOST, PROGRAM, RELEASE, USER
from lakebed.release import VERSION
from lakebed.sharing import shared_lock
from lakebed.storage import Storage
from lakebed.storage.base import from_os_error
from lakebed.storage.clocks import monotonic_seconds, stamps_itself

# How often a periodic task looks whether the call that it serves still runs.
_LOOK_SECONDS = 1.0


class PeriodicTask:
    """A thread that calls `action` every `seconds` until `stop`, or until `action` returns False.

    The first call comes after the first interval. An error does not end it: the next call may succeed. With a `call` it
    ends when that does not run any more, and calls `abandoned`.
    """

    def __init__(
        self,
        seconds: float,
        action: Callable[[], bool],
        name: str,
        *,
        call: RunningCall | None = None,
        abandoned: Callable[[], None] = lambda: None,
    ) -> None:
        self._seconds = seconds
        self._action = action
        self._call = call
        self._abandoned = abandoned
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        # if no thread can be started nothing is renewed; the owner of a lock or heartbeat notices that when it commits
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def stop(self) -> None:
        """End the task, and wait for a call of `action` that is running, unless that call is the caller."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._call = None  # it holds the frame of the call, and so the rows that the call was given

    def _run(self) -> None:
        left = self._seconds
        while not self._stopped.wait(step := min(left, _LOOK_SECONDS if self._call else threading.TIMEOUT_MAX)):
            if self._call is not None and not self._call.is_running():
                self._abandoned()
                return
            left -= step
            if left <= 0:
                if not self._continues():
                    return
                left = self._seconds

    def _continues(self) -> bool:
        try:
            return self._action()
        except Exception:
            return True
        except BaseException:
            return False


# Errors that mean that this process, not the examined one, lacks resources.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The permanent identity of a process: its machine (host, boot, and the process-id namespace, which differs between
    containers) and the process on it (id and start, since ids are reused). Fields that the system does not give are
    empty."""

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
        """The identity in the body of a lock or heartbeat; None for a body that real Hudi wrote."""
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


@lru_cache(maxsize=1)
def process_notes() -> Mapping[str, str]:
    """Who writes, as entries of the metadata of a commit: the user, the machine, the program and the release of
    lakebed. What the system does not tell is left out."""
    program = PurePath(sys.argv[0] if sys.argv else "")
    # `python -m package` is the file __main__.py of the package
    name = program.parent.name if program.name == "__main__.py" else program.name
    notes = {USER: this_user(), HOST: this_process().host, PROGRAM: name, RELEASE: VERSION}
    return {entry: text for entry, text in notes.items() if text}


def this_user() -> str:
    """The name of the user of this process; empty where the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def is_this_process(other: ProcessIdentity) -> bool:
    return other == this_process()


def has_ended(other: ProcessIdentity) -> bool:
    """Whether `other` has certainly ended. False whenever this machine cannot know."""
    current = this_process()
    if not other.boot or not other.start:
        return False
    # host names are not unique, so another boot id under the same name proves nothing
    if (other.host, other.boot, other.namespace) != (current.host, current.boot, current.namespace):
        return False
    return process_start(other.pid) != other.start


def process_start(pid: int) -> str:
    """The start of a running process in clock ticks since boot; empty if the process does not exist, or the system has
    no /proc."""
    # the command, in brackets, may hold spaces and brackets itself
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _read(path: str) -> str:
    """The content of a file of /proc, empty if it does not exist. Raises `StorageError` if this process has no free
    file descriptors, so that it does not take another process for dead."""
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


_TIME_FILE = f"{HOODIE}/.temp/.storage_time"
_STAMP_SECONDS = 1.0  # object stores stamp in whole seconds
_MAX_SIGHTS = 4096


@dataclass(slots=True)
class _Sight:
    content: Hashable
    since: float
    asked_storage: bool = False


_seen: OrderedDict[str, _Sight] = OrderedDict()
# By storage: how far its clock was ahead of the monotonic clock at the last look.
_ahead: dict[str, float] = {}
_lock = shared_lock()


def unchanged_for(
    storage: Storage,
    path: str,
    content: Hashable,
    patience: float,
    *,
    modified: int | None = None,
    ask_after: float = 0.0,
) -> float:
    """The least number of seconds for which the file at `path` has been unchanged. `content` was just read from it;
    `modified` is its time of modification, if known.

    Storage is asked once per content, when this process has seen it for `ask_after` seconds: that takes a few requests.
    """
    url, now = storage.url(path), monotonic_seconds()
    with _lock:
        sight = _seen.get(url)
        if sight is None or sight.content != content:
            sight = _seen[url] = _Sight(content, now)
        _seen.move_to_end(url)
        if len(_seen) > _MAX_SIGHTS:
            _seen.popitem(last=False)
        ask = not sight.asked_storage and now - sight.since >= ask_after
    if ask:
        sight.asked_storage = True
        if stamps_itself(storage.spec):
            if modified is None:
                info = storage.head(path)
                modified = info.modified if info else None
            if modified is not None:
                sight.since = min(sight.since, now - _age(storage, modified, patience))
    return now - sight.since


def _age(storage: Storage, modified: int, patience: float) -> float:
    """The least number of seconds since a file was modified (epoch milliseconds), by the clock of the storage. An
    earlier reading of that clock suffices to call the file young; to call it older than `patience` takes a new
    reading."""
    offset = _ahead.get(storage.url())
    age = 0.0 if offset is None else offset + monotonic_seconds() - modified / 1000
    if offset is None or age > patience:
        now = _storage_time(storage)
        age = 0.0 if now is None else now - modified / 1000
    return max(0.0, age - _STAMP_SECONDS)


def _storage_time(storage: Storage) -> float | None:
    """The time of the storage's clock, from the modification time of a new file; None if the storage does not answer
    with a time."""
    try:
        storage.write(_TIME_FILE, b"", durable=False)
        info = storage.head(_TIME_FILE)  # possibly written later by another process: that time has passed, too
        after = monotonic_seconds()
        storage.delete(_TIME_FILE, durable=False)
    except (StorageError, FileNotFoundError):
        return None
    if info is None:
        return None
    now = info.modified / 1000
    _ahead[storage.url()] = now - after
    return now


HEARTBEAT_FOLDER = f"{HOODIE}/.heartbeat"
INTERVAL_SECONDS = 60.0
TOLERABLE_MISSES = 2
GRACE_SECONDS = 1800.0

# The running heartbeats of this process, with the calls that write. A heartbeat file that names this process and is not
# listed here is a leftover of a write that ended without removing it.
_beating: dict[tuple[str, str], RunningCall] = {}
os.register_at_fork(after_in_child=_beating.clear)


def _is_beating(instant: str, body: Mapping[str, object]) -> bool:
    """Whether a heartbeat of this process with this body belongs to a write that still runs."""
    call = _beating.get((instant, str(body.get("writerId", ""))))
    return call is not None and call.is_running()


def heartbeat_path(instant: str) -> str:
    """The path of an instant's heartbeat, relative to the table."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


class Heartbeat:
    """The heartbeat of one write: a small file that is rewritten every `interval` seconds in the background.

    Start it before the requested instant appears, so that every pending instant of lakebed has one. The body names the
    process (Hudi goes by the file's time alone). As a context manager: `start`, and `stop` at the end; `remove` deletes
    the file after the instant is completed or rolled back.
    """

    def __init__(
        self,
        storage: Storage,
        instant: str,
        writer_id: str = "",
        *,
        interval: float = INTERVAL_SECONDS,
        call: RunningCall | None = None,
    ) -> None:
        self._call = call
        self._storage = storage
        self._instant = instant
        self._writer_id = writer_id
        self._interval = interval
        self._process = os.getpid()
        self._periodic: PeriodicTask | None = None

    def start(self) -> None:
        """Write the first beat, and continue in the background until `stop`, or until the `call` ends (None: the
        present call of lakebed)."""
        try:
            call = _beating[self._instant, self._writer_id] = self._call or RunningCall()
            self._beat()
            self._periodic = PeriodicTask(
                self._interval, self._beat_again, f"heartbeat-{self._instant}", call=call, abandoned=self._end
            )
            self._periodic.start()
        except BaseException:
            surely(self._end)
            raise

    def stop(self) -> None:
        """Stop writing beats; the file stays. From now on this process considers the write dead; other processes do so
        once the heartbeat is too old."""
        surely(self._end)

    def _end(self) -> None:
        _beating.pop((self._instant, self._writer_id), None)
        if self._periodic is not None:
            self._periodic.stop()

    def remove(self) -> None:
        """Stop, and delete the file. A forked process leaves the file to its parent."""
        self.stop()
        if self._process == os.getpid():
            remove_heartbeat(self._storage, self._instant)

    def __enter__(self) -> Heartbeat:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _beat(self) -> None:
        body = {**this_process().to_json(), "writerId": self._writer_id, "intervalSeconds": self._interval}
        self._storage.write(heartbeat_path(self._instant), json.dumps(body).encode(), durable=False)

    def _beat_again(self) -> bool:
        try:
            self._beat()
        except Exception:  # the next beat may succeed; a writer that was taken for dead finds out when it commits
            raise
        except BaseException:
            _beating.pop((self._instant, self._writer_id), None)
            raise
        return True


def remove_heartbeat(storage: Storage, instant: str) -> None:
    """Delete the heartbeat of an instant that is completed or rolled back."""
    storage.delete(heartbeat_path(instant), durable=False)


def writer_of(storage: Storage, instant: str) -> str:
    """The id of the writer in an instant's heartbeat; a process that takes a plan over, or chose the same instant,
    replaces it. Empty if the instant has no heartbeat, or a heartbeat of real Hudi."""
    return str(_read_body(storage, heartbeat_path(instant)).get("writerId") or "")


def newest_heartbeat(storage: Storage) -> str:
    """The greatest instant that has a heartbeat; empty if there is no heartbeat. Its writer uses the instant, which may
    not be on the timeline yet."""
    return max((name for name in storage.list_names(HEARTBEAT_FOLDER) if name.isdigit()), default="")


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The last beat of a pending instant's writer: the process that wrote it (empty for real Hudi), how many seconds
    ago by this machine's clock, after how many seconds the writer is dead, and whether its process has ended (None if
    this machine cannot know)."""

    process: str
    seconds: float
    limit: float
    has_ended: bool | None


def last_heartbeat(storage: Storage, instant: str) -> LastHeartbeat | None:
    """The last beat of an instant's writer; None if it has no heartbeat. It only reads: the function `is_dead` decides
    whether the writer has ended, which may take longer."""
    path = heartbeat_path(instant)
    body = _read_body(storage, path)
    info = storage.head(path)
    if info is None:
        return None
    writer = ProcessIdentity.from_json(body)
    ended: bool | None = None
    if writer is not None and is_this_process(writer):
        ended = not _is_beating(instant, body)
    elif writer is not None and has_ended(writer):
        ended = True
    limit = _interval(body, INTERVAL_SECONDS) * TOLERABLE_MISSES
    seconds = max(0.0, time.time() - info.modified / 1000)
    return LastHeartbeat("" if writer is None else str(writer), seconds, limit, ended)


def is_dead(
    storage: Storage,
    instant: str,
    *,
    interval: float = INTERVAL_SECONDS,
    tolerable_misses: int = TOLERABLE_MISSES,
    grace: float = GRACE_SECONDS,
    timeline_folder: str = f"{HOODIE}/timeline",
) -> bool:
    """Whether the writer of a pending instant is dead, so that its instant may be rolled back.

    It is when its heartbeat names this machine and a process that has ended, or has not changed for
    `interval * tolerable_misses` seconds (a body of lakebed's has its own interval). An instant without a heartbeat is
    one of real Hudi's single-writer mode: dead when it has had no new timeline file, marker or data file for `grace`
    seconds.
    """
    path = heartbeat_path(instant)
    body = _read_body(storage, path)
    # after the body: a network file system's stamps are fresh once a file was opened
    info = storage.head(path)
    if info is not None:
        writer = ProcessIdentity.from_json(body)
        if writer is not None:
            if is_this_process(writer):
                return not _is_beating(instant, body)
            if has_ended(writer):
                return True
        patience = _interval(body, interval) * tolerable_misses
        content = (info.modified, info.size, repr(body))
        return unchanged_for(storage, path, content, patience, modified=info.modified) > patience
    newest = max(_traces(storage, instant, timeline_folder), default=None)
    return newest is None or unchanged_for(storage, path, newest, grace, modified=newest) > grace


def _interval(body: Mapping[str, object], otherwise: float) -> float:
    """The seconds between the beats of a heartbeat, from its body, or `otherwise` if the body does not have them."""
    seconds = body.get("intervalSeconds")
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds):
        return float(seconds)
    return otherwise


def _read_body(storage: Storage, path: str) -> dict[str, object]:
    with contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
        body = json.loads(storage.read(path) or b"{}")
        if isinstance(body, dict):
            return {str(name): value for name, value in body.items()}
    return {}


def _traces(storage: Storage, instant: str, timeline_folder: str) -> Iterator[int]:
    """The modification times of the files that a running write changes, the cheapest to read first."""
    for folder in dict.fromkeys((timeline_folder, HOODIE)):
        for info in storage.list(folder, recursive=False):
            if info.path.rpartition("/")[2].startswith(f"{instant}."):
                yield info.modified
    for info in list_marker_files(storage, instant):
        yield info.modified
    for marker in list_markers(storage, instant):
        info = storage.head(marker.path)
        if info is not None:
            yield info.modified

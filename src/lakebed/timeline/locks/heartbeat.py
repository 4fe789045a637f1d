"""Heartbeats: a writer shows that it lives, and others tell who is dead.

A process of this machine is dead when it is gone. Anything else is dead when its heartbeat stayed unchanged for too
long (`unchanged` has the rule), never by comparing its stamp with the clock here. Until then its instant is left
pending, as that of a living writer: nobody waits for it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from types import TracebackType

from lakebed.model import HOODIE
from lakebed.storage import Storage
from lakebed.timeline.locks.periodic import PeriodicTask
from lakebed.timeline.locks.process import ProcessIdentity, is_gone, is_this_process, this_process
from lakebed.timeline.locks.unchanged import unchanged_for
from lakebed.timeline.markers import list_marker_files, list_markers

HEARTBEAT_FOLDER = f"{HOODIE}/.heartbeat"
INTERVAL_SECONDS = 60.0
TOLERABLE_MISSES = 2
GRACE_SECONDS = 1800.0

# What beats in this process: a heartbeat file that names this process, but is not in here, was left by a write that
# ended without tidying up.
_beating: set[tuple[str, str]] = set()
os.register_at_fork(after_in_child=_beating.clear)


def heartbeat_path(instant: str) -> str:
    """Where the heartbeat of an instant is, relative to the table."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


class Heartbeat:
    """The heartbeat of one write: a small file, written again every `interval` seconds in the background.

    Start it before the requested instant appears, so that no pending instant of lakebed's is ever without. The body
    names the process (Hudi goes by the file's time alone). As a context manager: `start`, and `stop` at the end; the
    file goes by `remove`, when the instant is completed or rolled back.
    """

    def __init__(
        self, storage: Storage, instant: str, writer_id: str = "", *, interval: float = INTERVAL_SECONDS
    ) -> None:
        self._storage = storage
        self._instant = instant
        self._writer_id = writer_id
        self._interval = interval
        self._periodic = PeriodicTask(interval, self._beat_again, f"heartbeat-{instant}")

    def start(self) -> None:
        """Write the first beat, and go on in the background."""
        key = (self._instant, self._writer_id)
        _beating.add(key)
        try:
            self._beat()
        except BaseException:
            _beating.discard(key)
            raise
        self._periodic.start()

    def stop(self) -> None:
        """End the beating; the file stays. From here on this process takes the write for dead, other processes once
        the heartbeat is too old."""
        _beating.discard((self._instant, self._writer_id))
        self._periodic.stop()

    def remove(self) -> None:
        """Stop, and delete the file."""
        self.stop()
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
        except Exception:  # the beating goes on; who is taken for dead finds out as it commits
            raise
        except BaseException:
            _beating.discard((self._instant, self._writer_id))
            raise
        return True


def remove_heartbeat(storage: Storage, instant: str) -> None:
    """Delete the heartbeat of an instant that is completed or rolled back."""
    storage.delete(heartbeat_path(instant), durable=False)


def newest_heartbeat(storage: Storage) -> str:
    """The greatest instant that has a heartbeat, empty for none. Its writer has taken it, though it may not be on the
    timeline yet."""
    return max((name for name in storage.list_names(HEARTBEAT_FOLDER) if name.isdigit()), default="")


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

    It is when its heartbeat names this machine and a process that is gone, or has not changed for
    `interval * tolerable_misses` seconds (a body of lakebed's says its own interval). An instant without a heartbeat is
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
                return (instant, str(body.get("writerId", ""))) not in _beating
            if is_gone(writer):
                return True
        own = body.get("intervalSeconds")
        if isinstance(own, int | float) and not isinstance(own, bool) and math.isfinite(own):
            interval = float(own)
        patience = interval * tolerable_misses
        content = (info.modified, info.size, repr(body))
        return unchanged_for(storage, path, content, patience, modified=info.modified) > patience
    newest = max(_traces(storage, instant, timeline_folder), default=None)
    return newest is None or unchanged_for(storage, path, newest, grace, modified=newest) > grace


def _read_body(storage: Storage, path: str) -> dict[str, object]:
    with contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
        body = json.loads(storage.read(path) or b"{}")
        if isinstance(body, dict):
            return {str(name): value for name, value in body.items()}
    return {}


def _traces(storage: Storage, instant: str, timeline_folder: str) -> Iterator[int]:
    """Modification times of what a write leaves while it goes on, the cheap ones first."""
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

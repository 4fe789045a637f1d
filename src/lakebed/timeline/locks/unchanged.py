"""For how long a file has not changed: what tells whether a lock or heartbeat of another host is dead.

No host's clock is believed, neither the stamp that the other one wrote nor the time here: either may be hours off.
There are two witnesses, and each alone is enough:

- This process. It saw the file as it is now so and so long ago, by a clock that nobody sets. What it saw it keeps, so
  that waiting goes on where an earlier attempt gave up.
- The storage, where it stamps files itself (object stores, HDFS, local disks, NFS): the stamp of a file that is
  written now, less the stamp of the file in question. Both are of one clock, so this holds whatever the hosts think;
  and a process that runs for seconds can judge what died long ago. Where writers bring their own stamps (FUSE, SMB...),
  or all is in memory, there is only the first witness: what a dead host left waits for a process that lives longer.

Both err on the side of too short, unless the storage's own clock is set forward by more than the patience between two
beats of a living writer: that one is then taken for dead, finds out when it commits, and its write is refused.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from lakebed.errors import StorageError
from lakebed.model import HOODIE
from lakebed.storage import Storage
from lakebed.storage.clocks import stamps_itself, steady

_TIME_FILE = f"{HOODIE}/.temp/.storage_time"
_STAMP_SECONDS = 1.0  # object stores stamp in whole seconds
_KEPT = 4096


@dataclass(slots=True)
class _Sight:
    content: Hashable
    since: float
    asked_storage: bool = False


_seen: OrderedDict[str, _Sight] = OrderedDict()
# By storage: how far its clock was ahead of the steady one when it was last asked.
_ahead: dict[str, float] = {}
_lock = threading.Lock()


def unchanged_for(
    storage: Storage,
    path: str,
    content: Hashable,
    patience: float,
    *,
    modified: int | None = None,
    ask_after: float = 0.0,
) -> float:
    """Seconds for which the file at `path` has at least been as it is. `content` stands for what was just read of it,
    `modified` is its stamp where that is known.

    Storage is asked once per content, when this process has seen it for `ask_after` seconds: that takes a few requests.
    """
    url, now = storage.url(path), steady()
    with _lock:
        sight = _seen.get(url)
        if sight is None or sight.content != content:
            sight = _seen[url] = _Sight(content, now)
        _seen.move_to_end(url)
        if len(_seen) > _KEPT:
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
    """Seconds since a file was stamped (epoch milliseconds), at least, by the clock of the storage that stamped it.

    That it is young may come from an earlier look at that clock; that it is older than the patience needs a new one.
    """
    known = _ahead.get(storage.url())
    age = 0.0 if known is None else known + steady() - modified / 1000
    if known is None or age > patience:
        now = _storage_time(storage)
        age = 0.0 if now is None else now - modified / 1000
    return max(0.0, age - _STAMP_SECONDS)


def _storage_time(storage: Storage) -> float | None:
    """What the storage's clock shows, by the stamp that it gives a new file; None if it does not say now."""
    try:
        storage.write(_TIME_FILE, b"", durable=False)
        info = storage.head(_TIME_FILE)  # also one that somebody else wrote since: that time has come, too
        after = steady()
        storage.delete(_TIME_FILE, durable=False)
    except (StorageError, FileNotFoundError):
        return None
    if info is None:
        return None
    now = info.modified / 1000
    _ahead[storage.url()] = now - after
    return now

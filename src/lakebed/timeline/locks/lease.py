"""The lease on a table's services: whoever has it looks after the table, so that several processes share many tables.

Nothing is kept right by it: writers do not look at it, and every service has its own place on the timeline. It only
keeps two from doing the same work.
"""

from __future__ import annotations

from lakebed.errors import LockTimeout
from lakebed.model import HOODIE
from lakebed.storage import Storage
from lakebed.timeline.locks.lock import FileLock

LEASE_FILE = f"{HOODIE}/.locks/services_lease.json"
# A process that dies leaves its tables alone for so long, where nobody can see that it is gone.
LEASE_SECONDS = 120.0
_RENEW_SECONDS = 30.0


class ServicesLease(FileLock):
    """See the module: a lock beside the table's own, for which nobody waits."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage, LEASE_FILE, wait_seconds=0.0, validity=LEASE_SECONDS, renew_every=_RENEW_SECONDS)

    def take(self) -> bool:
        """Take it if it is free, or was left by a process that died."""
        try:
            self.acquire(0.0)
        except LockTimeout:
            return False
        return True

    def holder(self) -> str:
        """Who has it, for people to read; empty where nobody does."""
        seen = self._read()
        if seen is None or seen[0].expired:
            return ""
        return str(seen[0].process or seen[0])

"""What a lock file says about who holds the lock, and whether that one still can."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lakebed.storage import Storage
from lakebed.timeline.locks.process import ProcessIdentity, is_gone, is_this_process, this_process
from lakebed.timeline.locks.unchanged import unchanged_for

VALIDITY_SECONDS = 300.0
DRIFT_SECONDS = 0.5
_BODY_BYTES = 400  # of one size: a local disk then changes it in place
# Storage is asked for its time when a lock was seen unchanged this long: most are renewed or given back before.
_ASK_AFTER = 1.0

# Owners that hold a lock in this process: one that is on storage, names this process and is not here was abandoned.
holding: set[str] = set()
os.register_at_fork(after_in_child=holding.clear)


@dataclass(frozen=True, slots=True)
class Holder:
    """What a lock file says. `validity` is for how many seconds it holds without being renewed; None: for ever, as a
    file that is a lock by being there. `until` is what the holder's clock said would be its end: for people to read."""

    owner: str
    validity: float | None
    until: float | None = None
    expired: bool = False
    process: ProcessIdentity | None = None
    is_readable: bool = True

    def seconds_left(self, storage: Storage, path: str, version: str) -> float:
        """For how long it may still hold, at most; 0 when it is over. `version` is the one that was read.

        A process of this machine that is gone holds nothing. Any other holder's time is over when the file stayed
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
        return self.owner not in holding if is_this_process(self.process) else is_gone(self.process)

    def __str__(self) -> str:
        if not self.is_readable:
            return "a file that is no lock file (it may have been cut off)"
        who = self.owner or "an unnamed writer"
        where = f" ({self.process})" if self.process else ""
        if self.validity is None:
            return f"{who}{where}, without a time limit"
        if self.until is None:
            return f"{who}{where}"
        return (
            f"{who}{where}, until {datetime.fromtimestamp(self.until, UTC).isoformat(timespec='seconds')} by its clock"
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
    """Who holds a lock by this file. One that cannot be understood may be someone's all the same: it holds for the
    usual time."""
    if not data.strip() and not path.endswith(".json"):  # Hudi's file-system lock has no content
        return Holder("", None)
    try:
        body = json.loads(data)
        until = body.get("validUntil")
        seconds = None if until is None else float(until) / 1000
        if seconds is not None:
            datetime.fromtimestamp(seconds, UTC)
        return Holder(
            str(body["owner"]),
            None if seconds is None else _validity(body),
            seconds,
            bool(body.get("expired", False)),
            ProcessIdentity.from_json(body),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        return Holder("", VALIDITY_SECONDS, is_readable=False)


def _validity(body: Mapping[str, object]) -> float:
    """Hudi's files do not say how long they are valid: they are renewed much more often than this."""
    stated = body.get("validitySeconds")
    if isinstance(stated, int | float) and math.isfinite(stated) and stated > 0:
        return float(stated)
    return VALIDITY_SECONDS

"""`InstantClock`: instant times, each greater than every one before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache

from lakebed.errors import InvalidOption
from lakebed.timeline.instants import format_millis, format_time, parse_time

_MILLISECOND = timedelta(milliseconds=1)


class InstantClock:
    """Gives instant times (`yyyyMMddHHmmssSSS`) in the table's zone: `UTC`, or `LOCAL` for the zone of this process,
    as `hoodie.table.timeline.timezone` says.

    `now` gives seconds since the epoch. Call `next` under the table's lock and with the timeline's greatest time: this
    is what makes times ascend across processes and machines, also when a clock steps back or local time is set back
    for winter.

    >>> clock = InstantClock("UTC", now=lambda: 1_700_000_000.25)
    >>> clock.next(), clock.next(), clock.next(after="20300101000000000")
    ('20231114221320250', '20231114221320251', '20300101000000001')
    """

    def __init__(self, zone: str = "UTC", now: Callable[[], float] | None = None) -> None:
        if zone.upper() not in ("UTC", "LOCAL"):
            raise InvalidOption(
                f"hoodie.table.timeline.timezone is {zone!r}", hint="it is UTC or LOCAL", context={"zone": zone}
            )
        self._zone = zone
        self._now = now
        self._last = ""
        self._lock = threading.Lock()

    def next(self, after: str | None = None) -> str:
        """A time greater than all this clock gave and greater than `after`: now, or one millisecond past those."""
        with self._lock:
            seconds = time.time() if self._now is None else self._now()
            now = format_millis(round(seconds * 1000), self._zone)
            self._last = max(now, following(self._last), following(after or ""))
            return self._last


@lru_cache(maxsize=256)  # of the same few newest times it is asked again and again
def following(time_text: str) -> str:
    """The least instant time greater than `time_text`, as texts compare; empty for special times that are no dates.

    >>> following("20231231235959999"), following("20231231235959"), following("20240101000000000001")
    ('20240101000000000', '20240101000000000', '20240101000000001')
    """
    # wall-clock arithmetic, which has no gaps: the texts are what must ascend, in whatever zone they are
    try:
        return format_time(parse_time(time_text, "UTC") + _MILLISECOND, "UTC")
    except InvalidOption:  # 00000000000000 and its neighbours, or no time yet
        return ""

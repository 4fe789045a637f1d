"""Names of timeline files and what they mean: both layouts, every action, and the times in the names. `InstantClock`
gives instant times, each greater than every one before.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from lakebed.errors import InvalidOption
from lakebed.model import Action, Instant, State, has_completion_times
from lakebed.sharing import shared_lock

# yyyyMMddHHmmssSSS. On version 6 some instants of the metadata table's own timeline have three more digits: a suffix.
INSTANT_DIGITS = 17
# The first digits of the instant at which Hudi builds a partition of the metadata table: it sorts before all others.
INITIAL_INSTANT = "0" * 14

_COMPLETED_ACTIONS = {
    Action.COMMIT,
    Action.DELTACOMMIT,
    Action.REPLACECOMMIT,
    Action.CLEAN,
    Action.ROLLBACK,
    Action.RESTORE,
    Action.SAVEPOINT,
    Action.INDEXING,
}
# Table services complete as the action whose data they rewrite.
_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOGCOMPACTION: Action.DELTACOMMIT,
    Action.CLUSTERING: Action.REPLACECOMMIT,
}
_NAME = re.compile(r"^([0-9]+)(?:_([0-9]+))?\.([a-z]+)(?:\.(requested|inflight))?$")
_TIME_FORMAT = "%Y%m%d%H%M%S"


def completes_as(action: Action) -> Action:
    """The action under which a completed instant is filed: a compaction is a commit, clustering a replacecommit.

    >>> completes_as(Action.COMPACTION).value
    'commit'
    """
    return _COMPLETES_AS.get(action, action)


def requested_name(action: Action, time: str, version: int) -> str:
    """The file that requests an action.

    >>> requested_name(Action.CLUSTERING, "20261121110149683", version=6)
    '20261121110149683.replacecommit.requested'
    """
    return f"{time}.{_pending_word(action, version)}.requested"


def inflight_name(action: Action, time: str, version: int) -> str:
    """The name of the file of an action that has begun; for a commit without the action's name."""
    if action is Action.COMMIT:
        return f"{time}.inflight"
    return f"{time}.{_pending_word(action, version)}.inflight"


def completed_name(action: Action, time: str, completion_time: str | None, version: int) -> str:
    """The name of the file that makes an action visible; on version 6 without the completion time.

    >>> completed_name(Action.COMPACTION, "20261121110149683", "20261121110150908", version=9)
    '20261121110149683_20261121110150908.commit'
    """
    stem = f"{time}_{completion_time}" if has_completion_times(version) else time
    return f"{stem}.{completes_as(action).value}"


@lru_cache(maxsize=8192)  # a timeline is listed again and again, and its names stay
def parse_instant_file(name: str, version: int) -> Instant | None:
    """The instant of a file of the timeline folder; None for anything that is not an instant file, such as leftovers of
    a writer between create and rename, checksum files and folders.

    A completed file without completion time on version 8 and later (left by an upgrade) comes back without one.

    >>> instant = parse_instant_file("20261121110149683_20261121110150908.commit", version=9)
    >>> instant.time, instant.state.name, instant.completion_time
    ('20261121110149683', 'COMPLETED', '20261121110150908')
    """
    match = _NAME.match(name)
    if match is None:
        return None
    time, completion_time, word, phase = match.groups()
    if word == "inflight" and phase is None:
        word, phase = Action.COMMIT.value, "inflight"
    try:
        action = Action(word)
    except ValueError:
        return None
    if phase is not None:
        return None if completion_time else Instant(time, action, State[phase.upper()], None, name)
    if action not in _COMPLETED_ACTIONS or (completion_time and not has_completion_times(version)):
        return None
    return Instant(time, action, State.COMPLETED, completion_time, name)


def holds_everything(name: str, version: int) -> bool:
    """Whether the name of a timeline file has all that a listing can show. False for a completed instant without its
    completion time, which a table from before version 8 has, also after its upgrade.

    >>> holds_everything("20261121110149683_20261121110150908.commit", 9)
    True
    >>> holds_everything("20261121110149683.commit", 9)
    False
    """
    instant = parse_instant_file(name, version)
    return instant is None or not instant.is_completed or instant.completion_time is not None


def without_suffix(time: str) -> str:
    """An instant time without the digits that version 6 appends for the metadata table's own services.

    >>> without_suffix("20261121110149683001"), suffix_of("20261121110149683001"), suffix_of("20261121110149683")
    ('20261121110149683', '001', '')
    """
    return time[:INSTANT_DIGITS]


def suffix_of(time: str) -> str:
    """The digits of an instant time that `without_suffix` removes."""
    return time[INSTANT_DIGITS:]


def time_zone(setting: str) -> tzinfo:
    """The zone of a table's instant times: `UTC`, or for `LOCAL` that of this process."""
    if setting.upper() == "UTC":
        return UTC
    local = datetime.now().astimezone().tzinfo
    return local if local is not None else UTC


def format_time(when: datetime, zone: str) -> str:
    """An instant time: 17 digits down to the millisecond, in the table's zone (`UTC` or `LOCAL`).

    >>> format_time(datetime(2026, 11, 21, 11, 1, 49, 683000, tzinfo=UTC), "UTC")
    '20261121110149683'
    """
    at = when.astimezone(UTC) if zone.upper() == "UTC" else when.astimezone()
    return f"{at.strftime(_TIME_FORMAT)}{at.microsecond // 1000:03d}"


def format_millis(epoch_millis: int, zone: str) -> str:
    """The instant time of a moment in milliseconds since 1970, such as a file's modification time."""
    return format_time(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=epoch_millis), zone)


def parse_time(text: str, zone: str) -> datetime:
    """The moment of an instant time, with its zone. Fourteen digits mean the last millisecond of that second; digits
    beyond seventeen (the metadata table adds some) do not belong to the time.

    >>> parse_time("20261121110149", "UTC").isoformat()
    '2026-11-21T11:01:49.999000+00:00'

    Raises `InvalidOption` for a text that is not an instant time.
    """
    digits = f"{text}999" if len(text) == 14 else without_suffix(text)
    try:
        moment = datetime.strptime(digits[:14], _TIME_FORMAT)
        millis = int(digits[14:]) if len(digits) == INSTANT_DIGITS else -1
    except ValueError:
        millis = -1
        moment = datetime.min
    if millis < 0:
        raise InvalidOption(f"{text!r} is not an instant time", hint="Write yyyyMMddHHmmssSSS, e.g. 20261121110149683.")
    naive = moment.replace(microsecond=millis * 1000)
    return naive.replace(tzinfo=UTC) if zone.upper() == "UTC" else naive.astimezone()


def _pending_word(action: Action, version: int) -> str:
    if action is Action.CLUSTERING and not has_completion_times(version):
        return Action.REPLACECOMMIT.value
    return action.value


_MILLISECOND = timedelta(milliseconds=1)


class InstantClock:
    """A clock that makes instant times (`yyyyMMddHHmmssSSS`) in the table's zone: `UTC`, or `LOCAL` for the zone of
    this process, by `hoodie.table.timeline.timezone`.

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
        self._lock = shared_lock()

    def next(self, after: str | None = None) -> str:
        """A time greater than all earlier times of this clock and greater than `after`: now, or one millisecond after
        these."""
        with self._lock:
            seconds = time.time() if self._now is None else self._now()
            now = format_millis(round(seconds * 1000), self._zone)
            self._last = max(now, following(self._last), following(after or ""))
            return self._last


def by_this_clock(now: str, zone: str) -> str:
    """The instant time `now`, or the time of this process's clock if that is earlier. After a host's clock was ahead,
    all later instants are ahead, too. Ages counted from them would be too great, and data that is deleted by age would
    be deleted too early."""
    return min(now, format_millis(round(time.time() * 1000), zone))


@lru_cache(maxsize=256)  # it is called again and again for the same few newest times
def following(time_text: str) -> str:
    """The least instant time greater than `time_text`, as texts compare; empty for special times that are not dates.

    >>> following("20231231235959999"), following("20231231235959"), following("20240101000000000001")
    ('20240101000000000', '20240101000000000', '20240101000000001')
    """
    # arithmetic in UTC, which has no gaps: the texts must ascend, whatever their zone is
    try:
        return format_time(parse_time(time_text, "UTC") + _MILLISECOND, "UTC")
    except InvalidOption:  # special times near 00000000000000, or no time yet
        return ""

"""What a restore takes back, in which order: all that came after the instant it goes back to, newest first."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.model import Action, Instant
from lakebed.timeline.instants import completes_as, has_completion_times
from lakebed.timeline.listed import COMMITS, completed_at


def later_actions(instants: Iterable[Instant], to: Instant, *, version: int, is_mor: bool) -> list[Instant]:
    """The actions of writers and services, pending ones too, that a restore to the completed commit `to` takes back.

    What is later goes by completion, but for compactions, which change no row: those go by when they were requested,
    as on version 6 everything does (it has no completion times). Pending ones come first: what they begin has no
    reader. On version 6 log files go by their slice's instant, so each is taken back before the slice that it wrote to.
    """
    by_completion = has_completion_times(version)

    def is_later(instant: Instant) -> bool:
        merges = is_mor and Action.COMMIT in (completes_as(instant.action), to.action)
        if not by_completion or merges or not instant.is_completed:
            return instant.time > to.time
        return completed_at(instant) > completed_at(to)

    def place(instant: Instant) -> tuple[bool, bool, str]:
        if not by_completion:
            return False, False, instant.time
        is_pending = not instant.is_completed
        return is_pending, is_pending and instant.action is Action.CLUSTERING, completed_at(instant)

    return sorted((i for i in instants if completes_as(i.action) in COMMITS and is_later(i)), key=place, reverse=True)

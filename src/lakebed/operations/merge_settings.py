"""What a caller's `merge=` means for a new table."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from lakebed.config.option_table import PAYLOADS, simple_name
from lakebed.errors import InvalidOption
from lakebed.merge.mergers import ENTRY_POINTS, Merger, merger_named, register


def merge_settings(merge: Any) -> dict[str, Any]:
    """Settings of the table for a mode, a payload class of Hudi's, a merger, or the entry point of one.

    >>> merge_settings("event_time")
    {'merge_mode': 'event_time'}
    >>> merge_settings("PartialUpdateAvroPayload")
    {'payload': 'PartialUpdateAvroPayload'}
    """
    if merge is None:
        return {}
    if isinstance(merge, type) and issubclass(merge, Merger):
        merge = merge()
    if isinstance(merge, Merger):
        return _of_merger(register(merge))
    if isinstance(merge, str) and merge in ("event_time", "commit_time"):
        return {"merge_mode": merge}
    if isinstance(merge, str) and simple_name(merge) in PAYLOADS:
        return {"payload": merge}
    merger = merger_named(merge) if isinstance(merge, str) else None
    if merger is None:
        known = ["event_time", "commit_time", *PAYLOADS]
        near = get_close_matches(str(merge), known, n=1, cutoff=0.6)
        raise InvalidOption(
            f"merge={merge!r} is unknown",
            hint=(f"did you mean {near[0]!r}? " if near else "")
            + f"It takes 'event_time', 'commit_time', one of Hudi's payload classes ({', '.join(PAYLOADS)}), a"
            f" lakebed.Merger, or the name of an entry point of {ENTRY_POINTS!r}",
            context={"merge": str(merge)},
        )
    return _of_merger(merger)


def _of_merger(merger: Merger) -> dict[str, Any]:
    return {"merge_mode": "custom", "merge_strategy": merger.strategy_id.lower()}

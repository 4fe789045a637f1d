"""Inserts of other writers that may have stored keys a second time: real Hudi does not look keys up for them."""

from __future__ import annotations

from lakebed.model import WRITER_ID
from lakebed.timeline.listed import completed_at
from lakebed.timeline.timeline import Timeline

_OPERATIONS = frozenset(
    (
        "INSERT",
        "INSERT_PREPPED",
        "BULK_INSERT",
        "BULK_INSERT_PREPPED",
        "INSERT_OVERWRITE",
        "INSERT_OVERWRITE_TABLE",
    )
)


def has_unchecked_inserts(timeline: Timeline, checked: str = "") -> bool:
    """Whether another writer than lakebed has inserted rows since the last commit of lakebed, which took note of all
    that had completed before it, and since the time `checked`, up to which keys are known to be unique.

    Archived commits are not looked at.
    """
    for instant in reversed(timeline.listed.commits_by_completion):
        if completed_at(instant) <= checked:
            return False
        commit = timeline.commit_metadata(instant)
        if WRITER_ID in commit.extra:
            return False
        if commit.operation in _OPERATIONS:
            return True
    return False

"""Version 6: the digits behind the instants at which the metadata table does something on its own.

From version 8 on each of them has an instant of its own; before, they follow the last delta commit, each kind with
digits that no other has.
"""

from __future__ import annotations

from enum import StrEnum


class Suffix(StrEnum):
    """What goes behind the instant of a delta commit."""

    RESHARDING = "000"
    COMPACTION = "001"
    CLEAN = "002"
    RESTORE = "003"
    LOG_COMPACTION = "005"
    ROLLBACK = "006"


# A repair takes the first that is free and that no later instant sorts before; 007 to 009 are none of Hudi's.
REPAIRS = (Suffix.RESHARDING, "007", "008", "009")
# The building of a partition: this one, or the next that is free.
FIRST_BUILD = 10

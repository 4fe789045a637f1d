"""Which blocks of log files a view of a table shows."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class BlockView:
    """Whether what an instant logged counts: it is committed (or older than the active timeline, and thus archived), is
    not after `as_of`, and is one of `within` where only some instants are read.

    Without `committed` nothing is known of instants, and all of them count.
    """

    committed: Set[str] | None = None
    pending: Set[str] = frozenset()
    start: str = ""
    as_of: str | None = None
    within: Set[str] | None = None

    def shows(self, instant: str) -> bool:
        """Whether blocks of this instant count."""
        if self.as_of is not None and instant > self.as_of:
            return False
        if self.within is not None and instant not in self.within:
            return False
        if self.committed is None or instant in self.committed:
            return True
        return instant not in self.pending and instant < self.start

    def with_own(self, instant: str) -> BlockView:
        """The view of the writer of an instant, which is pending for all others."""
        if self.committed is None:
            return self
        return replace(self, committed={*self.committed, instant}, pending=self.pending - {instant})

    def of_instants(self, instants: Set[str]) -> BlockView:
        """The view of what these instants logged, and nothing else."""
        return replace(self, within=instants)

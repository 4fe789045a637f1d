"""A lock of a service that is a set in memory."""

from __future__ import annotations

from lakebed.concurrency.lock import LeasedLock


class CountingLease(LeasedLock):
    """A lock of a service that counts who holds it, and what the service is asked."""

    def __init__(self, held: set[object], where: str = "a test") -> None:
        super().__init__(where, 1.0)
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self._held = held

    @property
    def validity(self) -> float:
        return 60.0

    def _try(self) -> bool:
        self.asked.append("try")
        if self._held - {self}:
            return False
        self._held.add(self)
        return True

    def _prolong(self) -> bool:
        self.asked.append("prolong")
        if self.fails is not None:
            raise self.fails
        return self in self._held

    def _let_go(self) -> None:
        self.asked.append("let go")
        self._held.discard(self)

    def _holder(self) -> str:
        return "a test"

"""How fast rows are asked for: so many a second to each server, and a pause between two batches."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass
class Pace:
    """Shared by the threads of a process. `rows_a_second` None is without bounds."""

    rows_a_second: float | None = None
    pause: float = 0.0
    _next: dict[str, float] = field(default_factory=dict[str, float])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, server: str, rows: int) -> None:
        """Wait until the server may be asked for so many rows more."""
        if self.rows_a_second is None and not self.pause:
            return
        with self._lock:
            now = time.monotonic()
            begins = max(now, self._next.get(server, 0.0))
            takes = rows / self.rows_a_second if self.rows_a_second else 0.0
            self._next[server] = begins + max(takes, self.pause)
        if begins > now:
            time.sleep(begins - now)

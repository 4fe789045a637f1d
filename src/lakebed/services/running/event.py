"""What a process that runs table services tells: a record for programs, a line for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from lakebed.errors import LakebedError

Kind = Literal["due", "ran", "nothing", "failed", "held", "waiting", "stopped"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class ServiceEvent:
    """Something that happened to a `table`, in a `service` if one is named.

    - `due`: the service is due, `text` says why. Unless it is a dry run one of the next three follows.
    - `ran`: `text` says what it did, `detail` the same for programs.
    - `nothing`: it found nothing to do; `text` says why.
    - `failed`: `text` is the `error`; it is tried again after `seconds`.
    - `held`: another process looks after the table, `text` says which.
    - `waiting`: nothing is done for `seconds`.
    - `stopped`: this process was asked to end, and does.
    """

    kind: Kind
    table: str = ""
    service: str = ""
    text: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float | None = None
    error: Exception | None = None
    at: str = field(default_factory=_now)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        error = None
        if isinstance(self.error, LakebedError):
            error = {"type": type(self.error).__name__, "message": self.error.message, "hint": self.error.hint}
        elif self.error is not None:
            error = {"type": type(self.error).__name__, "message": str(self.error), "hint": ""}
        record = {
            "at": self.at,
            "event": self.kind,
            "table": self.table,
            "service": self.service,
            "text": self.text,
            "detail": dict(self.detail),
            "seconds": None if self.seconds is None else round(self.seconds, 4),
            "error": error,
        }
        return {name: value for name, value in record.items() if value not in (None, "", {}) or name == "event"}

    def __str__(self) -> str:
        match self.kind:
            case "held":
                return f"{self.table}: left to {self.text}"
            case "waiting":
                return f"nothing more is due; looking again in {self.seconds:g} s"
            case "stopped":
                return "stopped"
            case "failed":
                again = "" if self.seconds is None else f" (tried again in {self.seconds:.0f} s)"
                return f"{self.table}: {self.service} failed: {self.text}{again}"
            case "due":
                return f"{self.table}: {self.service} is due: {self.text}"
            case _:
                return f"{self.table}: {self.text}"

    __repr__ = __str__

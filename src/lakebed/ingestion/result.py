"""The results of a round and of a run of ingest, as texts and as plain values for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from lakebed.errors import LakebedError
from lakebed.operations.result import WriteResult
from lakebed.wording import Printed, count_text

Kind = Literal["committed", "nothing", "failed", "waiting", "stopped"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _first_line(checkpoint: str | None) -> str:
    return (checkpoint or "").partition("\n")[0]


@dataclass(frozen=True, repr=False)
class IngestEvent(Printed):
    """An event of a `job`.

    - `committed`: a round wrote `rows` rows, and `bad_rows` to the table of errors; the table is at `checkpoint` now.
    - `nothing`: the source has nothing new after `checkpoint`.
    - `failed`: `text` is the `error`. The job is tried again after `seconds`, or ended where that is None.
    - `waiting`: nothing is done for `seconds`.
    - `stopped`: the process was asked to end, and does.

    `lag` counts what is left in the source, by unit. `write` is the result of the write, `services` has a line for each
    table service that ran after it.

    >>> import lakebed
    >>> print(lakebed.IngestEvent("nothing", "trips", lag={"messages": 5}))
    trips: nothing new, 5 messages left
    """

    kind: Kind
    job: str = ""
    table: str = ""
    rows: int = 0
    bad_rows: int = 0
    checkpoint: str | None = None
    lag: Mapping[str, float] = field(default_factory=dict[str, float])
    write: WriteResult | None = None
    services: tuple[str, ...] = ()
    text: str = ""
    seconds: float | None = None
    error: Exception | None = None
    at: str = field(default_factory=_now)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        error: dict[str, Any] | None = None
        if self.error is not None:
            is_ours = isinstance(self.error, LakebedError)
            message = self.error.message if isinstance(self.error, LakebedError) else str(self.error)
            hint = self.error.hint if isinstance(self.error, LakebedError) else ""
            context = self.error.context if isinstance(self.error, LakebedError) else {}
            error = {"type": type(self.error).__name__, "message": message, "hint": hint, "context": context}
            error["retryable"] = is_ours and bool(getattr(self.error, "retryable", False))
        record = {
            "at": self.at,
            "event": self.kind,
            "job": self.job,
            "table": self.table,
            "rows": self.rows if self.kind == "committed" else None,
            "bad_rows": self.bad_rows if self.kind == "committed" else None,
            "checkpoint": self.checkpoint,
            "lag": dict(self.lag),
            "write": None if self.write is None else self.write.to_dict(),
            "services": list(self.services),
            "text": self.text,
            "seconds": None if self.seconds is None else round(self.seconds, 4),
            "error": error,
        }
        return {name: value for name, value in record.items() if value not in (None, "", {}, []) or name == "event"}

    def __str__(self) -> str:
        match self.kind:
            case "committed":
                bad = f", {count_text(self.bad_rows, 'bad row')}" if self.bad_rows else ""
                at = _first_line(self.checkpoint)
                return f"{self.job}: {count_text(self.rows, 'row')}{bad}, checkpoint {at}{self._lag()}"
            case "nothing":
                return f"{self.job}: nothing new{self._lag()}"
            case "failed":
                again = "" if self.seconds is None else f" (tried again in {self.seconds:.0f} s)"
                return f"{self.job}: failed: {self.text}{again}"
            case "waiting":
                return f"nothing new; looking again in {self.seconds:g} s"
            case "stopped":
                return "stopped"

    def _lag(self) -> str:
        left = [f"{value:,.0f} {unit}" for unit, value in self.lag.items() if value]
        return f", {' and '.join(left)} left" if left else ""


@dataclass(repr=False)
class JobResult(Printed):
    """The result of one run of a job: the counts of its rounds, and the present positions of source and table."""

    job: str
    table: str
    rounds: int = 0
    commits: int = 0
    rows: int = 0
    bad_rows: int = 0
    checkpoint: str | None = None
    lag: Mapping[str, float] = field(default_factory=dict[str, float])
    seconds: float = 0.0
    error: Exception | None = None

    def add(self, event: IngestEvent) -> None:
        """Count one event of the job."""
        self.rounds += event.kind in ("committed", "nothing")
        self.commits += event.write is not None
        self.rows += event.rows
        self.bad_rows += event.bad_rows
        self.checkpoint = event.checkpoint if event.checkpoint is not None else self.checkpoint
        self.lag = event.lag if event.kind in ("committed", "nothing") else self.lag
        self.seconds += event.seconds or 0.0 if event.kind in ("committed", "nothing") else 0.0
        if event.kind == "failed" and event.seconds is None:
            self.error = event.error

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "job": self.job,
            "table": self.table,
            "rounds": self.rounds,
            "commits": self.commits,
            "rows": self.rows,
            "bad_rows": self.bad_rows,
            "checkpoint": self.checkpoint,
            "lag": dict(self.lag),
            "seconds": round(self.seconds, 4),
            "error": None if self.error is None else str(self.error),
        }

    def __str__(self) -> str:
        bad = f", {count_text(self.bad_rows, 'bad row')}" if self.bad_rows else ""
        failed = "" if self.error is None else f"; failed: {self.error}"
        at = "no checkpoint" if self.checkpoint is None else f"checkpoint {_first_line(self.checkpoint)}"
        return f"{self.job}: {count_text(self.rows, 'row')} in {count_text(self.commits, 'commit')}{bad}, {at}{failed}"


@dataclass(frozen=True, repr=False)
class IngestResult(Printed):
    """The results of the jobs of a run of `lakebed.ingest`, in the order of the description. `rows`, `bad_rows` and
    `commits` are sums over all jobs; `checkpoint` is that of a single job.

    >>> import lakebed, pyarrow as pa
    >>> class Rows:
    ...     def poll(self, checkpoint, limit):
    ...         return pa.table({"id": [1, 2]}), None, "2"
    >>> job = {"source": Rows(), "target": {"uri": "memory://docs/ingest-results", "create": {"key": "id"}}}
    >>> print(lakebed.ingest(job, once=True))
    memory://docs/ingest-results: 2 rows in 1 commit, checkpoint 2
    """

    jobs: tuple[JobResult, ...]

    @property
    def rows(self) -> int:
        return sum(job.rows for job in self.jobs)

    @property
    def bad_rows(self) -> int:
        return sum(job.bad_rows for job in self.jobs)

    @property
    def commits(self) -> int:
        return sum(job.commits for job in self.jobs)

    @property
    def checkpoint(self) -> str | None:
        return self.jobs[0].checkpoint if len(self.jobs) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "rows": self.rows,
            "bad_rows": self.bad_rows,
            "commits": self.commits,
            "jobs": [job.to_dict() for job in self.jobs],
        }

    def __str__(self) -> str:
        return "\n".join(map(str, self.jobs))

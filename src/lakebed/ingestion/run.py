"""`lakebed.ingest`: the jobs of a description, one after another, once or until they are stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakebed.config.arguments import checks_arguments
from lakebed.errors import InvalidOption
from lakebed.ingestion.job import jobs_of
from lakebed.ingestion.result import IngestEvent, IngestResult, JobResult
from lakebed.ingestion.rounds import JobRounds, failure
from lakebed.progress import display

_FIRST_RETRY_SECONDS = 1.0
_MAX_RETRY_SECONDS = 60.0


@checks_arguments
def ingest(
    job: Any,
    *,
    once: bool = False,
    checkpoint: str | None = None,
    ignore_checkpoint: str | None = None,
    stop: threading.Event | None = None,
    on_event: Callable[[IngestEvent], None] | None = None,
) -> IngestResult:
    """Write the rows of a source into a table, continuously, and return the result.

    `job` is the path of a TOML file, a dict of the same form, a `lakebed.IngestJob`, or a list of these. Each round
    polls the source after the table's checkpoint, and commits rows and the next checkpoint together: after a crash no
    row is lost, and none is written twice. The checkpoint is Hudi Streamer's. A source with nothing new makes no
    commit. A table that is not there is created with the first rows, where the job says how.

    With `once` it returns when the source has nothing more; otherwise it continues until `stop` is set, and completes
    the running round then. `on_event` gets an `IngestEvent` for each round. `checkpoint` starts a job elsewhere, and
    `ignore_checkpoint` at the source's start; each text is followed once, also when it is given again.

    Raises `InvalidOption` for a description that it does not understand, `InvalidRecord` for a message that is no row
    where no table of errors takes it, and the error of the source or the table. Without `once` errors that may pass,
    such as those of storage, are events, and the job is tried again. Of several jobs the others continue after an
    error, and the first error is raised at the end.

    >>> import lakebed, pyarrow as pa, pyarrow.csv, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> pyarrow.csv.write_csv(pa.table({"id": [1, 2], "fare": [9.5, 12.0]}), f"{folder}/rides.csv")
    >>> job = {"source": {"kind": "files", "path": folder},
    ...        "target": {"uri": "memory://docs/ingested", "create": {"key": "id"}}}
    >>> lakebed.ingest(job, once=True).rows, lakebed.ingest(job, once=True).rows
    (2, 0)
    >>> lakebed.open("memory://docs/ingested").count()
    2
    """
    jobs = jobs_of(job)
    if (checkpoint is not None or ignore_checkpoint is not None) and len(jobs) > 1:
        raise InvalidOption("a checkpoint is given for several jobs", hint="run the job by itself: --job NAME")
    run = _Run(
        [_Running(JobRounds(ingest_job, checkpoint=checkpoint, ignore=ignore_checkpoint)) for ingest_job in jobs],
        once=once,
        stop=stop or threading.Event(),
        report=on_event or (lambda _: None),
    )
    with display():
        run.run()
    for running in run.jobs:
        if running.result.error is not None:
            raise running.result.error
    return IngestResult(tuple(running.result for running in run.jobs))


@dataclass
class _Running:
    """A job and its state. `until` is when it may run again, `is_over` whether it has ended."""

    rounds: JobRounds
    result: JobResult = field(init=False)
    until: float = 0.0
    failures: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        self.result = JobResult(self.rounds.job.label, self.rounds.job.target.uri)


@dataclass
class _Run:
    jobs: list[_Running]
    once: bool
    stop: threading.Event
    report: Callable[[IngestEvent], None]

    def run(self) -> None:
        try:
            if self.once:
                for running in self.jobs:
                    running.rounds.bound()
            while any(not running.is_over for running in self.jobs):
                for running in self.jobs:
                    if self.stop.is_set():
                        self.report(IngestEvent("stopped"))
                        return
                    if not running.is_over and time.monotonic() >= running.until:
                        self._round(running)
                times = [running.until for running in self.jobs if not running.is_over]
                seconds = min(times, default=0.0) - time.monotonic()
                if seconds > 0:
                    self.report(IngestEvent("waiting", seconds=round(seconds, 3)))
                    self.stop.wait(seconds)
        finally:
            for running in self.jobs:
                running.rounds.close()

    def _round(self, running: _Running) -> None:
        job = running.rounds.job
        try:
            event, more = running.rounds.run(services=job.services and not self.once)
        except Exception as error:
            seconds = None
            if getattr(error, "retryable", False) and not self.once:
                seconds = min(_MAX_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0**running.failures)
                running.failures += 1
                running.until = time.monotonic() + seconds
            running.is_over = seconds is None
            event = failure(job, error, seconds)
        else:
            running.failures = 0
            running.is_over = self.once and not more
            running.until = 0.0 if more else time.monotonic() + job.interval
        running.result.add(event)
        self.report(event)

"""Events of OpenLineage: which datasets a write, a service or a round of ingestion read, and which it wrote.

Events are sent where the environment configures OpenLineage's client (`OPENLINEAGE_URL`, `OPENLINEAGE_CONFIG` or
`OPENLINEAGE__TRANSPORT__TYPE`). Nothing is imported, and nothing is computed, anywhere else. An event that cannot be
sent is a warning in the log: it fails no write. `docs/monitoring.md` shows what an event has.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from lakebed.errors import UnsupportedFeature
from lakebed.release import VERSION
from lakebed.secrets import masked_text, without_users

_log = logging.getLogger("lakebed")
_ENVIRONMENT = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE")
_PRODUCER = f"https://pypi.org/project/lakebed/{VERSION}"
# What the statement or the job around a write reads.
_read_around: ContextVar[tuple[str, ...]] = ContextVar("lakebed.lineage.read_around", default=())


class Dataset(NamedTuple):
    """A dataset by OpenLineage's naming: the store, and the name in it."""

    namespace: str
    name: str

    @classmethod
    def of(cls, uri: str) -> Dataset:
        """The dataset at a path or URI.

        >>> Dataset.of("s3a://lake/sales/orders"), Dataset.of("/data/orders")
        (Dataset(namespace='s3://lake', name='sales/orders'), Dataset(namespace='file', name='/data/orders'))
        """
        parts = urlsplit(without_users(uri)) if "://" in uri else urlsplit("")
        if parts.scheme in ("", "file"):
            path = parts.path if parts.scheme else uri
            return cls("file", path.rstrip("/") or "/")
        scheme = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}.get(parts.scheme, parts.scheme)
        path = parts.path.strip("/") or "/"
        return cls(f"{scheme}://{parts.netloc}", f"/{path}" if scheme == "hdfs" else path)


@dataclass
class Outcome:
    """The result of a run that is reported at its end: the instant, the counts, and the schema of the table."""

    instant: str = ""
    rows: int | None = None
    files: int | None = None
    size: int | None = None
    schema: pa.Schema | None = None
    notes: Mapping[str, str] = field(default_factory=dict[str, str])


def is_active() -> bool:
    """Whether events are sent: the environment configures OpenLineage's client, and does not switch it off."""
    is_off = os.environ.get("OPENLINEAGE_DISABLED", "").lower() in ("true", "1")
    return not is_off and any(map(os.environ.get, _ENVIRONMENT))


@contextmanager
def reading(uris: Iterable[str]) -> Generator[None]:
    """Name these URIs as inputs of the writes in the block."""
    around = _read_around.get()
    token = _read_around.set((*around, *(uri for uri in uris if uri not in around)))
    try:
        yield
    finally:
        _read_around.reset(token)


@contextmanager
def reported(uri: str, table: str, operation: str, inputs: Iterable[str] = ()) -> Generator[Outcome]:
    """Report the block as a run of the job `<table>.<operation>`, which writes the table at `uri`: its start, and then
    its end or its error. The block fills the outcome; a run without an instant changed nothing, and reports no
    output."""
    outcome = Outcome()
    if not is_active():
        yield outcome
        return
    run = _Run(uri, f"{table}.{operation}", tuple(dict.fromkeys((*_read_around.get(), *inputs))))
    run.send("START", outcome)
    try:
        yield outcome
    except BaseException as error:
        run.send("FAIL", outcome, error)
        raise
    run.send("COMPLETE", outcome)


class _Run:
    """One run of a job. It is known by an id, under which its start and its end are sent."""

    def __init__(self, uri: str, job: str, inputs: tuple[str, ...]) -> None:
        self._uri, self._job, self._inputs = uri, job, inputs
        self._id = ""

    def send(self, state: str, outcome: Outcome, error: BaseException | None = None) -> None:
        """Send an event about the run. What goes wrong is logged."""
        try:
            client = _client()
            if client is not None:
                client.emit(self._event(state, outcome, error))
        except Exception as cause:
            _log.warning("OpenLineage got no %s of %s: %s", state, self._job, masked_text(str(cause)))

    def _event(self, state: str, outcome: Outcome, error: BaseException | None) -> Any:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import job_type_job
        from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics
        from openlineage.client.uuid import generate_new_uuid

        self._id = self._id or str(generate_new_uuid())
        job_type = _facet(job_type_job.JobTypeJobFacet, "BATCH", "LAKEBED", "JOB")
        job = Job(os.environ.get("OPENLINEAGE_NAMESPACE") or "default", self._job, {"jobType": job_type})
        counts: dict[str, Any] = {}
        if outcome.instant:
            values = outcome.rows, outcome.size, outcome.files
            counts["outputStatistics"] = _facet(statistics.OutputStatisticsOutputDatasetFacet, *values)
        is_changed = state != "COMPLETE" or bool(outcome.instant)
        output = OutputDataset(*Dataset.of(self._uri), facets=_facets(outcome), outputFacets=counts)
        return RunEvent(
            eventType=RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(self._id, _run_facets(outcome, error)),
            job=job,
            producer=_PRODUCER,
            inputs=[InputDataset(*Dataset.of(uri)) for uri in self._inputs],
            outputs=[output] if is_changed else [],
        )


def _facet(kind: Any, *values: Any) -> Any:
    """A facet that names lakebed as its producer."""
    return kind(*values, producer=_PRODUCER)


def _run_facets(outcome: Outcome, error: BaseException | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import error_message_run, parent_run, processing_engine_run, tags_run

    facets: dict[str, Any] = {
        "processing_engine": _facet(processing_engine_run.ProcessingEngineRunFacet, VERSION, "lakebed", VERSION)
    }
    namespace, _, name_and_id = os.environ.get("OPENLINEAGE_PARENT_ID", "").partition("/")
    name, _, run_id = name_and_id.rpartition("/")
    if run_id:
        parent = parent_run.Run(run_id), parent_run.Job(namespace, name)
        facets["parent"] = _facet(parent_run.ParentRunFacet, *parent)
    if outcome.notes:
        tags = [tags_run.TagsRunFacetFields(key, value, "lakebed") for key, value in outcome.notes.items()]
        facets["tags"] = _facet(tags_run.TagsRunFacet, tags)
    if error is not None:
        text = masked_text(str(error)) or type(error).__name__
        facets["errorMessage"] = _facet(error_message_run.ErrorMessageRunFacet, text, "PYTHON")
    return facets


def _facets(outcome: Outcome) -> dict[str, Any]:
    """The facets of the table: its columns, and the instant that the run made its version."""
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset

    facets: dict[str, Any] = {}
    if outcome.instant:
        facets["version"] = _facet(dataset_version_dataset.DatasetVersionDatasetFacet, outcome.instant)
    if outcome.schema is not None:
        fields = [schema_dataset.SchemaDatasetFacetFields(f.name, str(f.type)) for f in outcome.schema]
        facets["schema"] = _facet(schema_dataset.SchemaDatasetFacet, fields)
    return facets


@cache
def _client() -> Any:
    """The client that the environment configures; None, after a warning, where the package is missing."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        missing = UnsupportedFeature(
            "the environment configures OpenLineage, and its client is not installed: no events are sent",
            hint="pip install 'lakebed[openlineage]', or set OPENLINEAGE_DISABLED=true",
        )
        _log.warning("%s", missing)
        return None
    return OpenLineageClient()

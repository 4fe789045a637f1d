"""The kinds of sources, by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from lakebed.errors import InvalidOption
from lakebed.ingestion.description import check_keys
from lakebed.ingestion.source import IngestPoll, IngestSource, poll_of

KINDS = {
    "files": "lakebed.ingestion.sources.files:FilesSource",
    "table": "lakebed.ingestion.sources.tables:TableSource",
    "kafka": "lakebed.ingestion.sources.kafka:KafkaSource",
    "sql": "lakebed.ingestion.sources.sql:SqlSource",
}


def source_of(source: Any) -> IngestSource:
    """The source that a job describes. Raises `InvalidOption` for an unknown kind."""
    if isinstance(source, IngestSource):
        return source
    if isinstance(source, Mapping):
        values = dict(cast("Mapping[str, Any]", source))
        kind = values.pop("kind", None)
        if not isinstance(kind, str):
            raise InvalidOption("[source] lacks kind", hint=f"it is one of {', '.join(KINDS)}")
        check_keys([kind], KINDS, "[source] kind")
        module, _, name = KINDS[kind].partition(":")
        return getattr(import_module(module), name).of(values)
    if callable(getattr(source, "poll", None)):
        return _Foreign(source)
    raise InvalidOption(
        f"a source is {type(source).__name__}", hint="give a dict with its kind, or an object with a method poll"
    )


class _Foreign(IngestSource):
    """A source that wraps a caller's object with a method `poll`."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        return poll_of(self._source.poll(checkpoint, limit))

    def close(self) -> None:
        getattr(self._source, "close", lambda: None)()

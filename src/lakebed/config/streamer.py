"""The properties of Hudi Streamer, and what each is in the description of an ingest job.

Names are without their prefix, `hoodie.streamer.` or the older `hoodie.deltastreamer.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PREFIXES = ("hoodie.streamer.", "hoodie.deltastreamer.")


@dataclass(frozen=True)
class StreamerProperty:
    """One property. `key` is its place in a description, such as `source.topic`; empty for one without a place.
    `values` are its values there, by those of Hudi; empty if values are the same."""

    key: str = ""
    verdict: Literal["implemented", "ignored", "refused"] = "implemented"
    note: str = ""
    values: Mapping[str, str] | None = None
    is_number: bool = False


def _ignored(note: str) -> StreamerProperty:
    return StreamerProperty(verdict="ignored", note=note)


def _refused(note: str) -> StreamerProperty:
    return StreamerProperty(verdict="refused", note=note)


_SCHEMA = _ignored("columns follow from the rows; [source] columns names types")
_CLIENT = _ignored("lakebed reads messages in its own way")
PROPERTIES: dict[str, StreamerProperty] = {
    "source.kafka.topic": StreamerProperty("source.topic"),
    "kafka.source.maxEvents": StreamerProperty("max_rows", is_number=True),
    "source.kafka.enable.failOnDataLoss": StreamerProperty(
        "source.on_data_loss", values={"true": "fail", "false": "earliest"}
    ),
    "source.kafka.append.offsets": StreamerProperty("source.append_offsets"),
    "source.kafka.checkpoint.type": StreamerProperty(
        verdict="ignored", note="checkpoints are topic,0:123,1:45", values={"string": ""}
    ),
    "source.kafka.value.deserializer.class": _CLIENT,
    "source.kafka.value.deserializer.schema": _SCHEMA,
    "source.kafka.minPartitions": _CLIENT,
    "source.kafka.enable.commit.offset": _ignored("the checkpoint is in the table, and in no consumer group"),
    "source.dfs.root": StreamerProperty("source.path"),
    "csv.sep": StreamerProperty("source.delimiter"),
    "csv.encoding": StreamerProperty("source.encoding"),
    "csv.header": StreamerProperty(verdict="ignored", note="files have a header", values={"true": ""}),
    "source.input.selector": _refused("files are selected by time and name, or by a glob in [source] path"),
    "source.hoodieincr.path": StreamerProperty("source.uri"),
    "source.hoodieincr.num_instants": StreamerProperty("source.max_commits", is_number=True),
    "source.hoodieincr.read_latest_on_missing_ckpt": StreamerProperty(
        "source.start", values={"true": "latest", "false": "earliest"}
    ),
    "source.hoodieincr.missing.checkpoint.strategy": StreamerProperty(
        "source.start", values={"READ_LATEST": "latest", "READ_UPTO_LATEST_COMMIT": "earliest"}
    ),
    "jdbc.url": StreamerProperty("source.uri"),
    "jdbc.user": StreamerProperty("source.user"),
    "jdbc.password": StreamerProperty("source.password"),
    "jdbc.table.name": StreamerProperty("source.table"),
    "jdbc.table.incr.column.name": StreamerProperty("source.column"),
    "jdbc.incr.pull": StreamerProperty(
        verdict="ignored", note="a table is read by a column that grows", values={"true": ""}
    ),
    "jdbc.driver.class": _ignored("a class of Java; the driver follows from the URL"),
    "jdbc.password.file": _refused("write ${NAME} for the value of an environment variable"),
    "transformer.sql": StreamerProperty("transform.sql"),
    "schemaprovider.registry.url": StreamerProperty("source.registry"),
    "schemaprovider.registry.targetUrl": _SCHEMA,
    "schemaprovider.source.schema.file": _SCHEMA,
    "schemaprovider.target.schema.file": _SCHEMA,
    "multiwriter.source.checkpoint.id": StreamerProperty("identifier"),
    "checkpoint.force.skip": StreamerProperty(
        verdict="ignored", note="each commit has the checkpoint", values={"false": ""}
    ),
    "checkpoint.provider.path": _refused("give the checkpoint to lakebed ingest: --checkpoint"),
    "ingestion.tablesToBeIngested": _refused("several jobs of a file are [jobs.NAME.source], [jobs.NAME.target]"),
    "ingestion.targetBasePath": _refused("each job has its [target] uri"),
    "sample.writes.enabled": _ignored("sizes of rows follow from past commits"),
    "sample.writes.size": _ignored("sizes of rows follow from past commits"),
    "row.throw.explicit.exceptions": _ignored("errors name the row"),
}
# Properties without a prefix of Streamer's that its job has.
OTHERS: dict[str, StreamerProperty] = {
    "hoodie.errortable.enable": StreamerProperty("errors.enabled"),
    "hoodie.errortable.base.path": StreamerProperty("errors.table"),
    "hoodie.errortable.target.table.name": _ignored("the path of the table of errors names it"),
    "hoodie.errortable.write.failure.strategy": _ignored("a table of errors that cannot be written fails the round"),
    "bootstrap.servers": StreamerProperty("source.bootstrap"),
    "auto.offset.reset": StreamerProperty("source.start", values={"earliest": "earliest", "latest": "latest"}),
    "schema.registry.url": StreamerProperty("source.registry"),
    "group.id": _ignored("the checkpoint is in the table, and in no consumer group"),
    "key.deserializer": _CLIENT,
    "value.deserializer": _CLIENT,
    "enable.auto.commit": _CLIENT,
}
CLIENT = StreamerProperty("source.options", note="a setting of the Kafka client")


def short_name(name: str) -> str | None:
    """The name without Streamer's prefix; None for a name without it."""
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), None)


def is_streamer_job(names: object) -> bool:
    """Whether these are the properties of a job of Hudi Streamer."""
    return any(short_name(str(name)) in PROPERTIES for name in names)  # type: ignore[attr-defined]


def property_of(name: str) -> StreamerProperty | None:
    """The place of a property of a Streamer's job in a description; None for a property that is an option of the write,
    or unknown.

    >>> property_of("hoodie.deltastreamer.source.kafka.topic").key, property_of("hoodie.index.type")
    ('source.topic', None)
    """
    short = short_name(name)
    if short is not None:
        return PROPERTIES.get(short)
    if name in OTHERS:
        return OTHERS[name]
    return None if name.startswith(("hoodie.", "lakebed.")) else CLIENT


def nearest_property(name: str) -> str | None:
    """The known property of Streamer most like this name; None if none is near."""
    from difflib import get_close_matches

    short = short_name(name)
    matches = get_close_matches(short or name, PROPERTIES, n=1, cutoff=0.7)
    return PREFIXES[0] + matches[0] if matches else None

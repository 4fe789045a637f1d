"""A Kafka topic as a source: messages as JSON, Avro, Protobuf or Debezium's envelopes, by the offsets of partitions.

The checkpoint is Hudi's: `topic,0:123,1:45`, the next offset of each partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.errors import InvalidOption, SourceError, UnsupportedFeature
from lakebed.ingestion import debezium
from lakebed.ingestion.avro_messages import decode_avro
from lakebed.ingestion.description import build
from lakebed.ingestion.json_messages import decode_json
from lakebed.ingestion.messages import Decoded
from lakebed.ingestion.protobuf_messages import FramedProtobuf, PlainProtobuf
from lakebed.ingestion.schema_registry import SchemaRegistry
from lakebed.ingestion.source import BadRow, IngestPoll, IngestSource, bad_table
from lakebed.ingestion.tombstones import decode_tombstones, in_order
from lakebed.schema.type_names import typed_columns
from lakebed.secrets import masked_repr

FORMATS = ("json", "avro", "protobuf", "debezium-json", "debezium-avro")
_META = "_hoodie_kafka_source_"
# Messages that are asked for at a time.
_BATCH = 10_000
_ANSWER_SECONDS = 30.0
_WAIT_SECONDS = 0.5


@dataclass(frozen=True, repr=False)
class KafkaSettings:
    """Settings of `kind = "kafka"`. `format` is "json", "avro", "protobuf", "debezium-json" or "debezium-avro"; Avro
    needs the URL of a schema registry, Protobuf needs either that URL or `descriptor`, the path of a descriptor set,
    with the full name of a `message` in it. `start` is "earliest" or "latest", for a table without a checkpoint.
    `on_data_loss` is "fail", or "earliest" to go on where the topic's retention deleted messages that were not read.
    `columns` are types by column, for columns that the table does not have. `envelope` is "hudi" for Hudi's columns of
    Debezium sources, or "row". With `append_offsets` rows have Hudi's columns of offset, partition, timestamp and key.
    `tombstones` is "ignore", or "delete": a message without a value deletes the row of its key, a JSON object with the
    key fields, or text that is the value of `key_field`. `options` are those of librdkafka."""

    topic: str
    bootstrap: str
    format: str = "json"
    start: str = "earliest"
    on_data_loss: str = "fail"
    registry: str | None = None
    registry_options: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    descriptor: str | None = None
    message: str | None = None
    columns: dict[str, Any] = field(default_factory=dict[str, Any])
    envelope: str = "hudi"
    append_offsets: bool = False
    tombstones: str = "ignore"
    key_field: str | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    __repr__ = masked_repr


@dataclass
class Messages:
    """Messages in the order of their arrival."""

    topic: str
    values: list[bytes | None] = field(default_factory=list["bytes | None"])
    partitions: list[int] = field(default_factory=list[int])
    offsets: list[int] = field(default_factory=list[int])
    timestamps: list[int] = field(default_factory=list[int])
    keys: list[bytes | None] = field(default_factory=list["bytes | None"])

    def position(self, number: int) -> str:
        """The position of a message as text, for display and as the key of the table of errors."""
        return f"{self.topic}/{self.partitions[number]}/{self.offsets[number]}"


def offsets_of(checkpoint: str, topic: str) -> dict[int, int]:
    """The next offset of each partition in a checkpoint. Raises `InvalidOption` for an invalid text, and for a
    checkpoint of another topic.

    >>> offsets_of("trips,0:123,1:45", "trips")
    {0: 123, 1: 45}
    """
    name, *parts = checkpoint.split(",")
    try:
        if not parts:
            raise ValueError("it names no partition")
        offsets = {int(partition): int(offset) for partition, offset in (part.split(":") for part in parts)}
    except ValueError as error:
        raise InvalidOption(
            f"the checkpoint {checkpoint!r} is none of a Kafka topic",
            hint="it is topic,0:123,1:45; --ignore-checkpoint starts again",
            context={"checkpoint": checkpoint},
        ) from error
    if name != topic:
        raise InvalidOption(
            f"the checkpoint is one of the topic {name!r}, and the job reads {topic!r}",
            hint="--ignore-checkpoint starts at the start of the new topic",
            context={"checkpoint": checkpoint, "topic": topic},
        )
    return offsets


def checkpoint_of(topic: str, offsets: Mapping[int, int]) -> str:
    """The checkpoint of these offsets, partitions ascending.

    >>> checkpoint_of("trips", {1: 45, 0: 123})
    'trips,0:123,1:45'
    """
    return ",".join([topic, *(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))])


class KafkaSource(IngestSource):
    """A source that reads a Kafka topic. Tombstones are skipped, as in Hudi, or delete rows; Debezium sends one after
    each delete."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        for name, allowed in {
            "format": FORMATS,
            "start": ("earliest", "latest"),
            "on_data_loss": ("fail", "earliest"),
            "envelope": ("hudi", "row"),
            "tombstones": ("ignore", "delete"),
        }.items():
            value = getattr(settings, name)
            if value not in allowed:
                raise InvalidOption(f"[source] {name} is {value!r}", hint=f"it is one of {', '.join(allowed)}")
        self.read_uris = (f"kafka://{settings.bootstrap.partition(',')[0]}/{settings.topic}",)
        self.deletes_by_key = settings.tombstones == "delete"
        self.moves_rows = settings.format.startswith("debezium")
        if self.deletes_by_key and settings.format.startswith("debezium"):
            raise InvalidOption(
                f"[source] tombstones is 'delete', and format is {settings.format!r}",
                hint='Debezium\'s envelopes have the deletes: leave out tombstones, or set "ignore"',
            )
        self._columns = typed_columns(settings.columns)
        self._decode = self._decoder()
        self._client = _client_library()
        self._consumer: Any = None
        self._admin: Any = None
        # where the consumer reads on, None where it is ahead of what was taken; and where polls end
        self._position: dict[int, int] | None = None
        self._is_ahead = False
        self._knows_leaders = False
        self._ends: dict[int, int] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> KafkaSource:
        """The source of a description."""
        return cls(build(KafkaSettings, values, "[source]"))

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        consumer = self._consumer or self._connected()
        marks = self._watermarks()
        start = self._start(checkpoint, marks)
        ends = {partition: high for partition, (_, high) in marks.items()}
        if self.is_bounded:
            self._ends = ends = self._ends or ends
        offsets = dict(start)
        messages = self._consume(consumer, offsets, ends, limit)
        left = sum(max(0, high - offsets[partition]) for partition, (_, high) in marks.items())
        lag: dict[str, float] = {"messages": left}
        if messages.timestamps and left:
            lag["seconds"] = round(max(0.0, time.time() - messages.timestamps[-1] / 1000), 3)
        text = checkpoint_of(self._settings.topic, offsets)
        more = any(offsets[partition] < end for partition, end in ends.items())
        if not messages.values:
            return IngestPoll(None, None, text, more=more, lag=lag)
        rows, bad, numbers = self._decoded(messages)

        def origin(of: Sequence[int]) -> tuple[list[str], list[bytes]]:
            at = [int(numbers[number]) for number in of]
            return [messages.position(number) for number in at], [messages.values[number] or b"" for number in at]

        return IngestPoll(rows, bad, text, more=more, lag=lag, origin=origin)

    def table_defaults(self, rows: pa.Table, version: int) -> Mapping[str, Any]:
        return debezium.table_defaults(rows, version) if self.moves_rows else {}

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
            self._knows_leaders = False

    # -- messages

    def _connected(self) -> Any:
        from confluent_kafka import admin

        settings: dict[str, Any] = {
            "group.id": f"lakebed-{self._settings.topic}",
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            **self._settings.options,
            "bootstrap.servers": self._settings.bootstrap,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "logger": logging.getLogger("lakebed.kafka"),
        }
        client: dict[str, Any] = {"bootstrap.servers": self._settings.bootstrap, "logger": settings["logger"]}
        try:
            self._consumer = self._client.Consumer(settings)
            self._admin = admin.AdminClient({**self._settings.options, **client})
        except self._client.KafkaException as error:
            raise InvalidOption(
                f"[source] options: {_text(error)}", hint="they are the settings of librdkafka"
            ) from error
        return self._consumer

    def _watermarks(self) -> dict[int, tuple[int, int]]:
        """The first and the next offset of each partition on the broker. They are requested on a separate connection:
        requests after one that waits for messages would wait with it."""
        from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

        topic, admin = self._settings.topic, self._admin
        try:
            topic_metadata = admin.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
            if topic_metadata.error is not None:
                raise self._client.KafkaException(topic_metadata.error)
            partitions = [self._client.TopicPartition(topic, number) for number in sorted(topic_metadata.partitions)]
            ends: list[dict[int, int]] = []
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
                answers = admin.list_offsets(
                    dict.fromkeys(partitions, spec),
                    isolation_level=self._client.IsolationLevel.READ_COMMITTED,
                    request_timeout=_ANSWER_SECONDS,
                )
                ends.append({p.partition: answer.result(_ANSWER_SECONDS).offset for p, answer in answers.items()})
            low, high = ends
            return {partition: (low[partition], high[partition]) for partition in low}
        except self._client.KafkaException as error:
            raise self._failure(error) from error

    def _start(self, checkpoint: str | None, marks: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """The offsets after a checkpoint. Raises `SourceError` if messages after it do not exist any more."""
        if checkpoint is None:
            from_end = self._settings.start == "latest"
            return {partition: high if from_end else low for partition, (low, high) in marks.items()}
        stored = offsets_of(checkpoint, self._settings.topic)
        lost: list[str] = [
            f"partition {partition} is not there any more" for partition in stored if partition not in marks
        ]
        start: dict[int, int] = {}
        for partition, (low, high) in marks.items():
            offset = stored.get(partition, low)  # of a partition that is new all messages are
            start[partition] = offset
            if offset < low:
                lost.append(f"partition {partition} begins at {low:,}, and {offset:,} is next")
                start[partition] = low
            elif offset > high:
                lost.append(f"partition {partition} ends at {high:,}, and {offset:,} is next")
                start[partition] = low
        if lost and self._settings.on_data_loss == "fail":
            raise SourceError(
                f"the topic {self._settings.topic} lost messages that were not read: {'; '.join(lost)}",
                hint='on_data_loss = "earliest" goes on with what is there; nothing was committed',
                context={"topic": self._settings.topic, "checkpoint": checkpoint, "lost": lost, "retryable": False},
            )
        return start

    def _consume(self, consumer: Any, offsets: dict[int, int], ends: Mapping[int, int], limit: int) -> Messages:
        """The messages up to the ends or the limit; `offsets` are advanced."""
        topic, messages = self._settings.topic, Messages(self._settings.topic)
        if all(offsets[partition] >= end for partition, end in ends.items()):
            return messages
        if offsets != self._position:
            self._position = None
            self._assign(consumer, offsets)
        self._is_ahead = False
        answered = time.monotonic()
        while len(messages.values) < limit and any(offsets[partition] < end for partition, end in ends.items()):
            left = sum(max(0, end - offsets[partition]) for partition, end in ends.items())
            batch = consumer.consume(min(_BATCH, left, limit - len(messages.values)), _WAIT_SECONDS)
            for message in batch:
                self._take(message, offsets, ends, messages)
            if batch:
                answered = time.monotonic()
            elif time.monotonic() - answered > _ANSWER_SECONDS:
                raise SourceError(
                    f"the topic {topic} at {self._settings.bootstrap} gives no messages for {_ANSWER_SECONDS:.0f} s",
                    hint="nothing was committed; the job goes on when the broker answers",
                    context={"topic": topic, "retryable": True},
                )
        self._position = None if self._is_ahead else dict(offsets)
        return messages

    def _assign(self, consumer: Any, offsets: Mapping[int, int]) -> None:
        """Let the consumer read from these offsets. Before the first time it requests the leaders of the partitions:
        otherwise librdkafka finds them by a timer of a second."""
        topic = self._settings.topic
        if not self._knows_leaders:
            try:
                consumer.list_topics(topic, timeout=_ANSWER_SECONDS)
            except self._client.KafkaException as error:
                raise self._failure(error) from error
            self._knows_leaders = True
        consumer.assign([self._client.TopicPartition(topic, p, o) for p, o in offsets.items()])

    def _take(self, message: Any, offsets: dict[int, int], ends: Mapping[int, int], messages: Messages) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None:
            if error.code() == self._client.KafkaError._PARTITION_EOF:
                # offsets of transactions and compacted messages are passed by
                offsets[partition] = max(offsets[partition], min(offset, ends.get(partition, offset)))
                return
            self._position = None
            raise self._failure(self._client.KafkaException(error))
        if offset >= ends.get(partition, offset):
            self._is_ahead = True  # it came later than this poll began: it is read again
            return
        offsets[partition] = offset + 1
        messages.values.append(message.value())
        messages.partitions.append(partition)
        messages.offsets.append(offset)
        messages.timestamps.append(message.timestamp()[1])
        if self._settings.append_offsets or self.deletes_by_key:
            messages.keys.append(message.key())

    def _failure(self, error: Any) -> SourceError:
        reason = error.args[0] if error.args else error
        code = getattr(reason, "name", lambda: "")()
        if code == "_AUTO_OFFSET_RESET":
            return SourceError(
                f"the topic {self._settings.topic} lost messages while they were read: {_text(error)}",
                hint='on_data_loss = "earliest" goes on with what is there; nothing was committed',
                context={"topic": self._settings.topic, "retryable": self._settings.on_data_loss == "earliest"},
            )
        is_unknown = code in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
        passes = not is_unknown and code != "TOPIC_AUTHORIZATION_FAILED"
        problem = "does not exist" if is_unknown else f"cannot be read: {_text(error)}"
        return SourceError(
            f"the topic {self._settings.topic} at {self._settings.bootstrap} {problem}",
            hint="create it, or correct its name" if is_unknown else "nothing was committed",
            context={
                "topic": self._settings.topic,
                "error": code,
                "retryable": passes,
            },
        )

    # -- rows

    def _decoded(self, messages: Messages) -> tuple[pa.Table | None, pa.Table, np.ndarray]:
        """The rows, the bad rows, and the number of the message of each row."""
        values = pa.array(messages.values, pa.binary())
        numbers = np.flatnonzero(np.asarray(values.is_valid()))
        decoded = self._decode(values.drop_null() if values.null_count else values).of(numbers)
        if values.null_count and self.deletes_by_key:
            empty = np.flatnonzero(np.asarray(values.is_null()))
            keys = pa.array(messages.keys, pa.binary()).take(pa.array(empty))
            # where no table has types yet, a key has those of the rows beside it
            of_rows = {column.name: column.type for column in decoded.rows.schema if not pa.types.is_null(column.type)}
            types = {**of_rows, **self.types, **self._columns}
            decoded = in_order(decoded, decode_tombstones(keys, types, self._settings.key_field).of(empty))
        bad = [
            BadRow(messages.position(message.number), messages.values[message.number], message.reason, message.error)
            for message in decoded.bad
        ]
        numbers = decoded.numbers
        rows = decoded.rows if decoded.rows.num_columns else None
        if rows is not None and self._settings.append_offsets:
            rows = _with_offsets(rows, messages, numbers)
        return rows, bad_table(bad), numbers

    def _decoder(self) -> Callable[[pa.Array], Decoded]:
        """The function that decodes message values, by the source's format."""
        form = self._settings.format
        has_type = self._settings.descriptor is not None or self._settings.message is not None
        if has_type and form != "protobuf":
            raise InvalidOption(
                f"[source] format {form!r} has no message type", hint="leave out descriptor and message"
            )
        if form == "json":
            return lambda values: decode_json(values, self._named_types(_META))
        if form == "debezium-json":
            return lambda values: debezium.decode_debezium_json(values, self._envelopes())
        if has_type:
            return self._plain_protobuf().decode
        if self._settings.registry is None:
            hint = "add registry = URL" + (", or descriptor and message" if form == "protobuf" else "")
            raise InvalidOption(f"[source] format {form!r} lacks registry", hint=hint)
        registry = SchemaRegistry(self._settings.registry, self._settings.registry_options)
        if form == "protobuf":
            return FramedProtobuf(registry.descriptors).decode
        if form == "avro":
            return lambda values: decode_avro(values, registry.schema)
        return lambda values: debezium.decode_debezium_avro(values, registry.schema, self._envelopes())

    def _envelopes(self) -> debezium.Envelopes:
        """The rules by which Debezium's envelopes become rows of the table."""
        return debezium.Envelopes(self._named_types(), self._settings.envelope == "hudi", self.partition_fields)

    def _plain_protobuf(self) -> PlainProtobuf:
        path, message = self._settings.descriptor, self._settings.message
        if path is None or message is None or self._settings.registry is not None:
            raise InvalidOption(
                "[source] format 'protobuf' takes a registry, or descriptor and message",
                hint="messages with the frame of a registry name their type themselves",
            )
        return PlainProtobuf(path, message)

    def _named_types(self, without: str | None = None) -> dict[str, pa.DataType]:
        """The types of columns, except those whose names begin with `without`."""
        types = {**self.types, **self._columns}
        return {name: kind for name, kind in types.items() if without is None or not name.startswith(without)}


def _with_offsets(rows: pa.Table, messages: Messages, numbers: np.ndarray) -> pa.Table:
    for name, values, kind in (
        ("offset", messages.offsets, pa.int64()),
        ("partition", messages.partitions, pa.int32()),
        ("timestamp", messages.timestamps, pa.int64()),
    ):
        rows = rows.append_column(_META + name, pa.array(np.asarray(values)[numbers], kind))
    keys = pa.array(messages.keys, pa.binary()).take(pa.array(numbers))
    try:
        return rows.append_column(_META + "key", keys.cast(pa.string()))
    except pa.ArrowInvalid:
        return rows.append_column(_META + "key", keys)


def _client_library() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise UnsupportedFeature(
            "confluent-kafka is not installed, which reads Kafka topics", hint="pip install 'lakebed[kafka]'"
        ) from error
    return confluent_kafka


def _text(error: Any) -> str:
    reason = error.args[0] if error.args else error
    return getattr(reason, "str", lambda: str(reason))()

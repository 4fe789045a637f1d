"""A Kafka topic whose messages are given, in place of a broker's."""

from __future__ import annotations

from typing import Any

from lakebed.ingestion.source import IngestPoll
from lakebed.ingestion.sources.kafka import KafkaSettings, KafkaSource, Messages

Message = tuple[bytes | None, bytes | None]


class Topic(KafkaSource):
    """Messages that are given, key and value, in place of a broker's: a list of them for each round."""

    def __init__(self, *rounds: list[Message], **settings: Any) -> None:
        super().__init__(KafkaSettings("t", "broker", **settings))
        self.rounds = rounds

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        at = int(checkpoint or 0)
        if at == len(self.rounds):
            return IngestPoll(None, None, checkpoint)
        keys, values = (list(part) for part in zip(*self.rounds[at], strict=True))
        messages = Messages("t", values, [at] * len(keys), [*range(len(keys))], [0] * len(keys), keys)
        rows, bad, numbers = self._decoded(messages)

        def origin(of: Any) -> tuple[list[str], list[bytes]]:
            found = [int(numbers[number]) for number in of]
            return [messages.position(number) for number in found], [values[number] or b"" for number in found]

        return IngestPoll(rows, bad, str(at + 1), more=at + 1 < len(self.rounds), origin=origin)


def values(*messages: bytes) -> list[Message]:
    return [(None, message) for message in messages]

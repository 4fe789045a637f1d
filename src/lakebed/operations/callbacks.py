"""Commit callbacks: after a write is visible, a message about it goes to an HTTP server or to a Kafka topic.

The options and the message are those of real Hudi. A failing callback never fails the write, whose commit is already
valid. The failure is logged, the first time as a warning.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from lakebed.config.settings import CallbackSettings
from lakebed.errors import StorageError, UnsupportedFeature
from lakebed.model import Action, CommitMetadata
from lakebed.properties.table_config import TableConfig
from lakebed.sharing import is_first_time
from lakebed.timeline.bodies.commit import encode_commit

_log = logging.getLogger("lakebed")
_API_KEY_HEADER = "HUDI-CALLBACK-KEY"
_KAFKA_SECONDS = 30.0
# The version whose commits are JSON, as the message is.
_JSON_VERSION = 6


def call_back(
    settings: CallbackSettings, uri: str, config: TableConfig, instant: str, action: Action, commit: CommitMetadata
) -> None:
    """Send the message of a commit of the table at `uri`. Errors are logged, not raised."""
    if settings.kind == "HoodieWriteCommitHttpCallback":
        url = urlsplit(settings.http_url)  # without a user or query, which may be secret
        target = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
    else:
        target = f"topic {settings.kafka_topic} at {settings.kafka_bootstrap}"
    try:
        body = json.dumps(message(uri, config.name, instant, action, commit)).encode()
        _SENDERS[settings.kind](settings, config.name, body)
    except Exception as error:
        reason = error.message if isinstance(error, StorageError) else f"{type(error).__name__}: {error}"
        level = logging.WARNING if is_first_time("failed callback", target) else logging.INFO
        _log.log(level, "the commit %s is valid; its callback to %s failed: %s", instant, target, reason)


def message(uri: str, table: str, instant: str, action: Action, commit: CommitMetadata) -> Mapping[str, Any]:
    """The fields of Hudi's `HoodieWriteCommitCallbackMessage`. `commitActionType` and `extraMetadata` have the values,
    where real Hudi 1.2.0 only writes whether they are present."""
    recorded = json.loads(encode_commit(commit, _JSON_VERSION, action))
    return {
        "commitTime": instant,
        "tableName": table,
        "basePath": uri,
        "hoodieWriteStat": [stat for group in recorded["partitionToWriteStats"].values() for stat in group],
        "commitActionType": action.value,
        "extraMetadata": dict(commit.extra),
    }


def _send_http(settings: CallbackSettings, table: str, body: bytes) -> None:
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirects(HTTPRedirectHandler):
        """A handler for which every redirect is a failure, as in real Hudi, since a redirect would send the key to
        another server."""

        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
            return None

    headers = {_API_KEY_HEADER: settings.http_api_key, "Content-Type": "application/json; charset=UTF-8"}
    for part in settings.http_headers.split(";"):
        name, colon, value = (text.strip() for text in part.partition(":"))
        if name and value:
            headers[name] = value
        elif part.strip():
            raise StorageError(
                "hoodie.write.commit.callback.http.custom.headers has a part without a"
                f" {'name or value' if colon else 'colon'}",
                hint="give them as name:value;name:value",
            )
    request = Request(settings.http_url, body, headers, method="POST")
    try:
        with build_opener(NoRedirects).open(request, timeout=settings.http_seconds) as answer:
            answer.read()
    except HTTPError as error:
        error.close()
        raise StorageError(f"the server answered {error.code} {error.reason}") from None


def _send_kafka(settings: CallbackSettings, table: str, body: bytes) -> None:
    try:
        from confluent_kafka import Producer
    except ImportError as error:
        raise UnsupportedFeature("confluent_kafka is not installed", hint="pip install 'lakebed[kafka]'") from error
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": settings.kafka_bootstrap,
            "acks": settings.kafka_acks,
            "retries": settings.kafka_retries,
            "message.timeout.ms": int(_KAFKA_SECONDS * 1000),
            "log_level": 0,  # the client's own thread would write to standard error
        }
    )
    partition: dict[str, Any] = {} if settings.kafka_partition is None else {"partition": settings.kafka_partition}
    # by its key all messages of a table are in one partition, in their order
    producer.produce(settings.kafka_topic, body, key=table, on_delivery=delivered, **partition)
    if producer.flush(_KAFKA_SECONDS + 1) or failures:
        raise StorageError(failures[0] if failures else f"the broker did not answer within {_KAFKA_SECONDS:g} seconds")


_SENDERS: Mapping[str, Callable[[CallbackSettings, str, bytes], None]] = {
    "HoodieWriteCommitHttpCallback": _send_http,
    "HoodieWriteCommitKafkaCallback": _send_kafka,
}

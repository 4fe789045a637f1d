"""Commit callbacks over HTTP: what a real server gets, and that no failure of one fails the write."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import sharing
from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.table import Table

ROWS = pa.table({"id": [1, 2, 3], "city": ["a", "b", "a"], "ts": [1, 1, 1]})
CALLBACK = "hoodie.write.commit.callback."


class Server:
    """An HTTP server on this machine: the requests that it got, and what it answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.status, self.wait = 200, threading.Event()
        self.wait.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(body)))
                outer.wait.wait(10)
                self.send_response(outer.status)
                if outer.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/commits"
        threading.Thread(target=self.http.serve_forever, args=[0.02], daemon=True).start()

    def options(self, **more: object) -> dict[str, object]:
        named = {CALLBACK + name.replace("_", "."): value for name, value in more.items()}
        return {CALLBACK + "on": "true", CALLBACK + "http.url": self.url} | named


@pytest.fixture
def server() -> Iterator[Server]:
    sharing.matters.clear()
    server = Server()
    yield server
    server.wait.set()
    server.http.shutdown()
    server.http.server_close()


def make(uri: str, **given: Any) -> Table:
    words: dict[str, Any] = {"index": "simple"} | given
    return lakebed.create(uri, ROWS, key="id", partition_by="city", ordering="ts", **words)


def test_a_server_gets_the_message_of_hudi_for_each_commit(uri: str, server: Server) -> None:
    table = make(uri)
    options = server.options(http_custom_headers="X-Team:lake; X-Note: a ;", http_api_key="s3cr3t")
    first = table.upsert(ROWS, options=options)
    second = table.delete([2], options=options | {"_source": "tests"})
    table.upsert(ROWS)  # without the option
    assert [body["commitTime"] for _, _, body in server.requests] == [first.instant, second.instant]
    path, headers, body = server.requests[0]
    assert path == "/commits"
    assert headers["hudi-callback-key"] == "s3cr3t"
    assert headers["content-type"] == "application/json; charset=UTF-8"
    assert (headers["x-team"], headers["x-note"]) == ("lake", "a")
    stats = body.pop("hoodieWriteStat")
    extra = body.pop("extraMetadata")
    assert body == {
        "commitTime": first.instant,
        "tableName": "t",
        "basePath": uri,
        "commitActionType": "commit",
    }
    assert {(s["partitionPath"], s["path"], s["numInserts"], s["numWrites"]) for s in stats} == {
        ("a", next(file for file in first.files if file.startswith("a/")), 2, 2),
        ("b", next(file for file in first.files if file.startswith("b/")), 1, 1),
    }
    assert sum(s["fileSizeInBytes"] for s in stats) == first.bytes
    assert '"name":"city"' in extra["schema"].replace(" ", "")
    (stat,) = server.requests[1][2]["hoodieWriteStat"]
    assert (stat["partitionPath"], stat["numDeletes"], stat["prevCommit"]) == ("b", 1, first.instant)


def test_a_table_of_every_kind_sends_its_action_and_log_files(uri: str, server: Server) -> None:
    table = make(uri, type="mor", index="bucket", buckets=1)
    table.upsert(ROWS, options=server.options())
    table.upsert(ROWS, options=server.options())
    table.insert_overwrite(ROWS.slice(0, 1), options=server.options())
    assert [body["commitActionType"] for _, _, body in server.requests] == [
        "deltacommit",
        "deltacommit",
        "replacecommit",
    ]
    assert all(".log." in stat["path"] for stat in server.requests[1][2]["hoodieWriteStat"])


def test_a_job_of_hudi_calls_back_for_the_commit_that_makes_the_table(uri: str, server: Server) -> None:
    job = {"hoodie.table.name": "rides", "hoodie.datasource.write.recordkey.field": "id"}
    result = lakebed.write(ROWS, uri, job | server.options())
    assert result is not None
    assert [(body["tableName"], body["commitTime"]) for _, _, body in server.requests] == [("rides", result.instant)]
    assert not any("callback" in key for key in lakebed.open(uri).properties)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "callback" in r.getMessage()]


@pytest.mark.parametrize(("status", "reason"), [(500, "500 Internal Server Error"), (302, "302 Found")])
def test_a_server_that_refuses_is_warned_of_once_and_the_commits_are_valid(
    uri: str, server: Server, caplog: pytest.LogCaptureFixture, status: int, reason: str
) -> None:
    table, server.status = make(uri), status
    options = {**server.options(), CALLBACK + "http.url": f"{server.url}?token=s3cr3t"}
    first = table.upsert(ROWS, options=options)
    table.upsert(ROWS, options=options)
    assert table.count() == 3
    assert [path for path, _, _ in server.requests] == ["/commits?token=s3cr3t"] * 2  # and no redirect was followed
    assert warnings(caplog) == [
        f"the commit {first.instant} is valid; its callback to {server.url} failed: the server answered {reason}"
    ]


def test_a_server_that_does_not_answer_in_time_or_at_all_does_not_fail_the_write(
    uri: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(uri)
    server.wait.clear()
    table.upsert(ROWS, options=server.options(http_timeout_seconds=1))
    (text,) = warnings(caplog)
    assert "timed out" in text
    caplog.clear()
    closed = {**server.options(), CALLBACK + "http.url": "http://127.0.0.1:9/none"}
    table.upsert(ROWS, options=closed)
    (text,) = warnings(caplog)
    assert "Connection refused" in text
    assert table.count() == 3


def test_custom_headers_that_cannot_be_read_are_warned_of_without_their_values(
    uri: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    make(uri).upsert(ROWS, options=server.options(http_custom_headers="s3cr3t"))
    (text,) = warnings(caplog)
    assert "custom.headers has a part without a colon" in text
    assert "s3cr3t" not in text
    assert server.requests == []


def test_a_write_that_is_not_committed_sends_nothing(uri: str, server: Server) -> None:
    table = make(uri)
    batch = lakebed.Once("s", 1)
    table.upsert(ROWS, once=batch, options=server.options())
    assert table.upsert(ROWS, once=batch, options=server.options()).skipped
    assert len(server.requests) == 1
    with pytest.raises(SchemaConflict):
        table.upsert(ROWS.drop_columns(["id"]), options=server.options())
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on": "true"}, "needs hoodie.write.commit.callback.http.url"),
        ({"on": "true", "http.url": "file:///etc/passwd"}, "is no URL that begins with http"),
        ({"on": "true", "class": "HoodieWriteCommitKafkaCallback"}, "kafka.bootstrap.servers, .*kafka.topic"),
        ({"on": "yes"}, "true or false"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_written(
    uri: str, options: dict[str, str], text: str
) -> None:
    table = make(uri)
    with pytest.raises(InvalidOption, match=text):
        table.upsert(ROWS, options={CALLBACK + name: value for name, value in options.items()})
    assert len(table.timeline) == 0


def test_callbacks_of_other_classes_are_refused(uri: str) -> None:
    name = "org.apache.hudi.utilities.callback.pulsar.HoodieWriteCommitPulsarCallback"
    with pytest.raises(UnsupportedFeature, match=r"callback\.class"):
        make(uri).upsert(ROWS, options={CALLBACK + "class": name})


def test_a_table_does_not_record_where_callbacks_go(uri: str) -> None:
    with pytest.raises(InvalidOption, match="is an option of each read or write"):
        make(uri, properties={CALLBACK + "http.api.key": "s3cr3t"})

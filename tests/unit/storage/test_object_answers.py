"""Answers of an object store that go wrong: which puts may have happened, which certainly did not."""

from __future__ import annotations

import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lakebed.errors import StorageError
from lakebed.storage import Storage, open_storage

EMPTY_ETAG = '"d41d8cd98f00b204e9800998ecf8427e"'


@dataclass
class Store:
    """An S3 store of one object that gives the answers it is told: a status, with or without doing the put first."""

    answers: list[tuple[str, int]] = field(default_factory=list)
    content: bytes | None = None
    puts: int = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536

    @property
    def store(self) -> Store:
        return self.server.store  # type: ignore[attr-defined]

    def log_message(self, *_args: object) -> None:
        return None

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", EMPTY_ETAG)
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.answer(404 if self.store.content is None else 200)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.store.puts += 1
        done, status = self.store.answers.pop(0) if self.store.answers else ("do", 200)
        if done == "do":
            if self.headers["If-None-Match"] == "*" and self.store.content is not None:
                self.answer(412)
                return
            self.store.content = body
        if status == 0:
            self.close_connection = True
            self.connection.close()
            return
        code = {503: "SlowDown", 409: "ConditionalRequestConflict"}.get(status, "Other")
        self.answer(status, f"<Error><Code>{code}</Code><Message>x</Message></Error>".encode() if status > 299 else b"")


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def storage(store: Store) -> Generator[Storage]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.store = store  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    options = {"endpoint": f"http://127.0.0.1:{server.server_port}", "key": "AKIA", "secret": "SECRET-KEY"}
    yield open_storage("s3://b/t", options)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("done", ["do", "skip"])
@pytest.mark.parametrize("status", [500, 502])
def test_a_server_error_is_doubtful_and_sent_once(storage: Storage, store: Store, done: str, status: int) -> None:
    store.answers = [(done, status)]
    with pytest.raises(StorageError) as error:
        storage.put_if_absent("x", b"1")
    assert error.value.context["doubtful"] is True
    assert error.value.retryable
    assert store.puts == 1
    assert (store.content == b"1") == (done == "do")


def test_a_lost_connection_is_doubtful(storage: Storage, store: Store) -> None:
    store.answers = [("do", 0)] * 9
    with pytest.raises(StorageError) as error:
        storage.put_if_absent("x", b"1")
    assert error.value.context.get("doubtful") is True


@pytest.mark.parametrize("status", [503, 429, 409])
def test_a_put_that_was_turned_away_is_sent_again(storage: Storage, store: Store, status: int) -> None:
    store.answers = [("skip", status)]
    assert storage.put_if_absent("x", b"1") is True
    assert store.puts == 2
    assert store.content == b"1"


def test_a_conflict_that_someone_won_is_lost(storage: Storage, store: Store) -> None:
    store.content = b"theirs"
    store.answers = [("skip", 409)]
    assert storage.put_if_absent("x", b"1") is False
    assert store.content == b"theirs"


@pytest.mark.parametrize("status", [403, 501])
def test_an_error_status_leaves_no_doubt(storage: Storage, store: Store, status: int) -> None:
    store.answers = [("skip", status)]
    with pytest.raises(StorageError) as error:
        storage.put_if_absent("x", b"1")
    assert "doubtful" not in error.value.context
    assert not error.value.retryable
    assert store.puts == 1


def test_a_refused_connection_leaves_no_doubt() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "key": "AKIA", "secret": "SECRET-KEY", "max_retries": "0"}
    storage = open_storage("s3://b/t", options)
    with pytest.raises(StorageError) as error:
        storage.put_if_absent("x", b"1")
    assert "doubtful" not in error.value.context
    assert error.value.retryable
    assert "endpoint" in error.value.hint

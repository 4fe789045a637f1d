"""A schema registry that answers as Confluent's does, over HTTP, with answers that a test gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Registry:
    """`address` is its URL; `answers` are bodies by path, `status` is that of all answers where it is not 200; `asked`
    are the paths and authorizations of the requests."""

    def __init__(self) -> None:
        self.address = ""
        self.answers: dict[str, dict[str, Any]] = {}
        self.status = 200
        self.asked: list[tuple[str, str]] = []


@contextmanager
def registry_server() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.path, self.headers.get("Authorization", "")))
            found = registry.answers.get(self.path)
            body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
            self.send_response(registry.status if registry.status != 200 else 200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    registry.address = f"http://127.0.0.1:{server.server_port}"
    yield registry
    server.shutdown()
    thread.join()
    server.server_close()

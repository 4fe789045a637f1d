"""A web application of this process on a socket of its own, for requests that name the server's host alone."""

from __future__ import annotations

import asyncio
import socket
import threading
from operator import itemgetter
from typing import Any

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from lakebed.hosts import LOOPBACK, REFUSED, names_this_machine

REQUEST_SECONDS = 15
"""A connection sends a request within so many seconds, or is closed."""
IDLE_SECONDS = 1
"""A connection that waits for its request this long makes way for another one where there are too many."""


class ServerHostsOnly:
    """Middleware that refuses requests that name another host than the server that listens on this address."""

    def __init__(self, app: ASGIApp, address: str = LOOPBACK, refusal: ASGIApp | None = None) -> None:
        self._app, self._address = app, address
        self._refusal = refusal or PlainTextResponse(REFUSED, status_code=400)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_own = scope["type"] != "http" or names_this_machine(Headers(scope=scope).get("host", ""), self._address)
        await (self._app if is_own else self._refusal)(scope, receive, send)


class _PromptProtocol(H11Protocol):
    """HTTP that closes a connection whose next request is not there after some seconds: a client that sends nothing,
    or a letter now and then, would keep it for ever."""

    # So many connections are served at a time; further ones get this answer.
    max_connections: int | None = None
    busy: ASGIApp | None = None
    # The content type and the content of the answer to what is no HTTP; None: as uvicorn gives it.
    invalid: tuple[str, bytes] | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.max_connections is not None:
            self._close_idle(len(self.connections) + 1 - self.max_connections)
        self._wait_for_request()

    def send_400_response(self, msg: str) -> None:
        if self.invalid is None:
            super().send_400_response(msg)
            return
        kind, body = self.invalid
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close"
        self.transport.write(f"{head}\r\n\r\n".encode() + body)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.max_connections is not None and self.busy is not None:
            is_busy = len(self.connections) >= self.max_connections
            self.app = self.busy if is_busy else self.config.loaded_app
        super().data_received(data)
        cycle: Any = self.cycle  # None until the first request
        if cycle is not None and not cycle.response_complete:
            self._stop_waiting()
        elif self._deadline is None:
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing of a client that asks for another protocol: it gets a plain answer."""

    def _close_idle(self, count: int) -> None:
        """Close so many connections that have waited longest for their requests, so that clients that send none do not
        lock others out. One that has not waited long stays: its request may be on its way."""
        since = self.loop.time() + REQUEST_SECONDS - IDLE_SECONDS
        deadlines = [(getattr(other, "_deadline", None), other) for other in self.connections]
        waiting = [(deadline.when(), other) for deadline, other in deadlines if deadline is not None]
        for _, other in sorted(((at, other) for at, other in waiting if at < since), key=itemgetter(0))[
            : max(0, count)
        ]:
            other.transport.close()
            self.connections.discard(other)

    def _wait_for_request(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class WebServer:
    """A server of an application until `stop`. Port 0 takes a free one; `url` has it. Over
    `max_connections` at a time it answers with `busy`. `invalid` is the answer to what is no HTTP: its content type and
    its content. `settings` are those of uvicorn."""

    def __init__(
        self,
        application: ASGIApp,
        port: int,
        address: str = LOOPBACK,
        *,
        max_connections: int | None = None,
        busy: ASGIApp | None = None,
        invalid: tuple[str, bytes] | None = None,
        **settings: Any,
    ) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # if the protocol is named, asyncio sends each part of an answer at once; else a part may wait for 40 ms
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((address, port))
            self._socket.listen(socket.SOMAXCONN)  # a client that comes before `run` waits
        except OSError:
            self._socket.close()
            raise
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._socket.getsockname()[1]}/"
        # each connection is an object of this class
        limits: dict[str, Any] = {
            "max_connections": max_connections,
            "busy": staticmethod(busy) if busy is not None else None,
        }
        limits["invalid"] = invalid
        protocol = type("_LimitedProtocol", (_PromptProtocol,), limits)
        config = uvicorn.Config(
            application, log_level="warning", access_log=False, lifespan="off", http=protocol, **settings
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until `stop` is called or the process gets SIGINT or SIGTERM."""
        self._server.run(sockets=[self._socket])

    def start(self) -> threading.Thread:
        """Serve in a thread; `stop` ends it."""
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Ask the server to end."""
        self._server.should_exit = True

    def close(self) -> None:
        """Close a server that was not run."""
        self._socket.close()

"""The server of `lakebed serve`: the Iceberg REST catalog protocol over a warehouse, for reads alone.

It answers GET and HEAD. Clients learn from `endpoints` that nothing can be written; each other method is answered with
405, and its body is not read.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakebed.catalog_server.tables import ServedTables, no_namespace
from lakebed.errors import (
    CatalogError,
    CommitConflict,
    InvalidOption,
    LakebedError,
    StorageError,
    TableNotFound,
    UnsupportedFeature,
)
from lakebed.hosts import LOOPBACK, REFUSED, is_loopback
from lakebed.web_server import ServerHostsOnly, WebServer

MAX_PAGE = 1_000
"""So many names are in a page, for clients that ask for pages."""
MAX_CONNECTIONS = 200
"""So many connections are served at a time; further ones are answered with 503."""
MIN_TOKEN = 16
"""A token has so many characters at least."""
_MAX_PAGE_TOKEN = 1_000
_KEEP_ALIVE_SECONDS = 15
_ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
]
_READS = ["GET", "HEAD"]
_SNAPSHOTS = ("all", "refs")
# Characters of a path that an access log may have as they are.
_PLAIN = re.compile(r"[^!-~]|[\"\\]")


def application(
    tables: ServedTables, token: str = "", address: str = LOOPBACK, log: Callable[[str], None] = lambda _: None
) -> Starlette:
    """The web application about these tables. With `token` each request needs it as a bearer token; `log` gets a line
    for each request."""

    def config(_request: Request) -> Response:
        return _json({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})

    def namespaces(request: Request) -> Response:
        if request.query_params.get("parent"):  # databases have no levels
            return _json({"namespaces": []})
        return _page(request, "namespaces", tables.databases(), lambda name: [name])

    def namespace(request: Request) -> Response:
        name = _existing_database(request)
        if request.method == "HEAD":
            return Response(status_code=204)
        return _json({"namespace": [name], "properties": {}})

    def listed(request: Request) -> Response:
        database = request.path_params["namespace"]
        names = tables.tables(database)
        return _page(request, "identifiers", names, lambda name: {"namespace": [database], "name": name})

    def views(request: Request) -> Response:
        _existing_database(request)
        return _json({"identifiers": []})

    def table(request: Request) -> Response:
        database, name = request.path_params["namespace"], request.path_params["table"]
        if request.method == "HEAD":
            is_there = tables.has(database, name)
            return Response(status_code=204) if is_there else _error(404, "NoSuchTableException", f"{database}.{name}")
        snapshots = request.query_params.get("snapshots", "all")
        if snapshots not in _SNAPSHOTS:
            return _error(400, "BadRequestException", "snapshots is one of all, refs")
        answer = tables.load(database, name, snapshots)
        tag = {"ETag": f'"{answer.version}"'}
        versions = [text.strip().removeprefix("W/") for text in request.headers.get("if-none-match", "").split(",")]
        if tag["ETag"] in versions or "*" in versions:
            return Response(status_code=304, headers=tag)
        return Response(answer.body, headers=tag, media_type="application/json")

    def _existing_database(request: Request) -> str:
        name = request.path_params["namespace"]
        if not tables.has_database(name):
            raise no_namespace(name)
        return name

    space = "/v1/namespaces/{namespace}"
    routes = [
        Route("/v1/config", config, methods=["GET"]),
        Route("/v1/namespaces", namespaces, methods=["GET"]),
        Route(space, namespace, methods=_READS),
        Route(f"{space}/tables", listed, methods=["GET"]),
        Route(f"{space}/views", views, methods=["GET"]),
        Route(f"{space}/tables/{{table}}", table, methods=_READS),
        Route(f"{space}/tables/{{table}}/metrics", _metrics, methods=["POST"]),
    ]

    failed = partial(_failed, warehouse=tables.uri)
    wrong_host = _error(400, "BadRequestException", REFUSED)
    served = Starlette(
        routes=routes,
        middleware=[
            Middleware(_Logged, log=log),
            # behind a proxy the host is another one; a page of another site has no token
            *([] if token else [Middleware(ServerHostsOnly, address=address, refusal=wrong_host)]),
            Middleware(_Guarded, token=token),
        ],
        exception_handlers={404: _unknown, 405: _no_method, LakebedError: failed, 500: _broken},
    )
    served.router.redirect_slashes = False  # it would name the host that the client named, without TLS
    return served


class _Logged:
    """Middleware that writes a line for each answer: client, method, path, status, bytes and milliseconds."""

    def __init__(self, app: ASGIApp, log: Callable[[str], None]) -> None:
        self._app, self._log = app, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status, size = time.monotonic(), 500, 0

        async def counted(message: Message) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            if scope["type"] == "http":
                path = _PLAIN.sub(lambda character: f"%{ord(character[0]) & 0xFF:02X}", scope["path"])[:500]
                client = (scope.get("client") or ("-",))[0]
                milliseconds = (time.monotonic() - started) * 1_000
                self._log(f'{client} "{scope["method"]} {path}" {status} {size} {milliseconds:.1f} ms')


class _Guarded:
    """Middleware that refuses what is no read, and, with a token, requests without it."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        scheme, _, credential = Headers(scope=scope).get("authorization", "").partition(" ")
        is_known = scheme.lower() == "bearer" and hmac.compare_digest(credential.strip().encode(), self._token)
        if self._token and not is_known:
            refusal = _error(401, "NotAuthorizedException", "the request has no valid bearer token")
            refusal.headers["WWW-Authenticate"] = "Bearer"
            return refusal
        if scope["method"] not in _READS and not scope["path"].endswith("/metrics"):
            text = "this catalog is read-only: attach it READ_ONLY"
            return _error(405, "UnsupportedOperationException", text, {"Allow": "GET, HEAD", "Connection": "close"})
        return None


def _metrics(_request: Request) -> Response:
    """Reports of clients about their scans, which are not kept."""
    return Response(status_code=204, headers={"Connection": "close"})


def _page(request: Request, field: str, names: Sequence[str], entry: Callable[[str], Any]) -> Response:
    """All names for a client that asks for no page, otherwise a page of them with the token of the next one."""
    query = request.query_params
    token = query.get("pageToken")
    try:
        size = int(query.get("pageSize", MAX_PAGE))
        if len(token or "") > _MAX_PAGE_TOKEN:
            raise ValueError("no token is so long")
        last = base64.b64decode(token or "", b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        return _error(400, "BadRequestException", "pageSize is no number, or pageToken is not one of this server")
    if size < 1:
        return _error(400, "BadRequestException", "pageSize is a number from 1 on")
    if token is None:
        return _json({field: [entry(name) for name in names]})
    left = [name for name in names if name > last]
    page = left[: min(size, MAX_PAGE)]
    more = len(left) > len(page)
    following = base64.urlsafe_b64encode(page[-1].encode()).decode() if more else None
    return _json({field: [entry(name) for name in page], "next-page-token": following})


def _json(content: Mapping[str, Any]) -> Response:
    return Response(json.dumps(content, separators=(",", ":")).encode(), media_type="application/json")


def _error(code: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error in the form of the protocol."""
    body = json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()
    return Response(body, status_code=code, headers=dict(headers or {}), media_type="application/json")


def _unknown(_request: Request, _error_of_routing: Exception) -> Response:
    return _error(404, "NoSuchEndpointException", "this catalog has no such endpoint")


def _no_method(_request: Request, _error_of_routing: Exception) -> Response:
    return _error(405, "UnsupportedOperationException", "this endpoint does not take this method")


def _failed(request: Request, error: Exception, warehouse: str) -> Response:
    """The answer for an error of lakebed, with its message and hint; no answer has a path of code, or one above the
    warehouse."""
    assert isinstance(error, LakebedError)
    root = warehouse.rstrip("/")
    text = str(error).replace(f"file://{root}/", "").replace(f"{root}/", "").replace(root, "the warehouse")
    if isinstance(error, TableNotFound):
        is_table = "table" in request.path_params
        return _error(404, "NoSuchTableException" if is_table else "NoSuchNamespaceException", text)
    if isinstance(error, UnsupportedFeature | InvalidOption):
        return _error(400, "BadRequestException", text)
    if isinstance(error, StorageError | CatalogError | CommitConflict):
        return _error(503, "ServiceUnavailableException", text, {"Retry-After": "5"})
    return _error(500, "InternalServerError", text)


def _broken(_request: Request, error: Exception) -> Response:
    return _error(500, "InternalServerError", f"the server failed: {type(error).__name__}")


class CatalogServer(WebServer):
    """A server of a warehouse's tables until `stop`. Port 0 takes a free one; `url` has it.

    Without a token it listens on a loopback address alone. Raises `InvalidOption` for another address without one, and
    for a token that is too short.
    """

    def __init__(
        self,
        tables: ServedTables,
        *,
        port: int = 0,
        address: str = LOOPBACK,
        token: str = "",
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not token and not is_loopback(address):
            raise InvalidOption(
                f"without a token the catalog listens on this machine alone, not on {address}",
                hint="Put a token into a file: lakebed serve --token-file FILE.",
                context={"address": address},
            )
        if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
            raise InvalidOption(
                f"the token has fewer than {MIN_TOKEN} characters, or other ones than letters, digits and signs",
                hint="this command makes one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        invalid = _error(400, "BadRequestException", "this is no request of HTTP")
        super().__init__(
            application(tables, token, address, log),
            port,
            address,
            max_connections=MAX_CONNECTIONS,
            busy=_error(
                503, "ServiceUnavailableException", "the server has too many connections", {"Retry-After": "5"}
            ),
            invalid=("application/json", bytes(invalid.body)),
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            server_header=False,
        )

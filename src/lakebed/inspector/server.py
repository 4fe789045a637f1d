"""The server of `lakebed inspect`: it listens on the loopback address only, answers GET requests of this machine's
browser, and shows the tables that it was started with. No address contains a path of storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakebed.inspector import files, indexes, rows, timeline
from lakebed.inspector.rendering import Pages, echo
from lakebed.inspector.tables import InspectedTable, UnknownPage
from lakebed.web_server import ServerHostsOnly, WebServer

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
        b" form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

Page = Callable[[Pages, InspectedTable, Request], Response]
PAGES: Mapping[str, Page] = {
    "timeline": timeline.overview,
    "timeline/instant": timeline.instant,
    "timeline/body": timeline.body,
    "files": files.overview,
    "files/group": files.group,
    "files/plans": files.plans,
    "indexes": indexes.overview,
    "indexes/ranges": indexes.ranges,
    "indexes/bloom": indexes.bloom,
    "indexes/advice": indexes.advice,
    "indexes/layers": indexes.layers,
    "indexes/verification": indexes.verification,
    "record": rows.record,
    "rows": rows.first_rows,
    "schema": rows.schema,
    "query": rows.query,
}


class _WithHeaders:
    """Middleware that adds headers to every answer which keep other sites and outside assets away."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def application(uris: Sequence[str], storage_options: Mapping[str, str] | None = None) -> Starlette:
    """The web application about these tables, which are opened when a page first needs them."""
    tables = [InspectedTable(number, uri, storage_options or {}) for number, uri in enumerate(uris)]
    pages = Pages(tables)
    by_number = {str(table.number): table for table in tables}

    def front(_request: Request) -> Response:
        return RedirectResponse("/t/0/timeline") if len(tables) == 1 else pages.front()

    def first_page(request: Request) -> Response:
        return RedirectResponse(f"/t/{table_of(request).number}/timeline")

    def table_of(request: Request) -> InspectedTable:
        number = request.path_params["number"]
        if number not in by_number:
            raise UnknownPage(f"There is no table {echo(number)}: this inspector shows {len(tables)}, from 0 on.")
        return by_number[number]

    def unknown(_request: Request, error: Exception) -> Response:
        text = str(error) if isinstance(error, UnknownPage) else "There is no such page."
        return pages.refusal("Not found", text, 404)

    def not_allowed(request: Request, error: Exception) -> Response:
        text = f"The inspector only shows pages: it answers GET requests, not {request.method}."
        return pages.refusal("Not allowed", text, 405, getattr(error, "headers", None))

    def route(name: str, page: Page) -> Route:
        def answer(request: Request) -> Response:
            return pages.answer(page, table_of(request), request)

        answer.__name__ = name.replace("/", "_")
        return Route(f"/t/{{number}}/{name}", answer, methods=["GET"])

    static = StaticFiles(directory=Path(__file__).parent / "static")
    return Starlette(
        routes=[
            Route("/", front, methods=["GET"]),
            Route("/t/{number}", first_page, methods=["GET"]),
            *(route(name, page) for name, page in PAGES.items()),
            Mount("/static", static),
        ],
        middleware=[Middleware(_WithHeaders), Middleware(ServerHostsOnly)],
        exception_handlers={404: unknown, UnknownPage: unknown, 405: not_allowed, 500: _failed},
    )


def _failed(_request: Request, _error: Exception) -> Response:
    return HTMLResponse("<h1>This page could not be made</h1>", status_code=500)


class InspectorServer(WebServer):
    """A server that serves tables on the loopback address until `stop`. Port 0 takes a free one; `url` has it.

    >>> import lakebed.inspector.server, lakebed
    >>> server = lakebed.inspector.server.InspectorServer(["memory://docs/none"], port=0)
    >>> server.url[:17]
    'http://127.0.0.1:'
    >>> server.close()
    """

    def __init__(self, uris: Sequence[str], *, port: int = 0, storage_options: Mapping[str, str] | None = None) -> None:
        super().__init__(application(uris, storage_options), port)

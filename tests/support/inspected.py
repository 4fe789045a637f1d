"""The inspector's pages as a browser gets them: a server of tables, answers, and what is in their tables."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from html import unescape
from http.client import HTTPConnection
from typing import TypeVar
from urllib.parse import urlsplit

from lakebed.inspector.server import InspectorServer
from lakebed.web_server import WebServer

S = TypeVar("S", bound=WebServer)

_LEADS_ON = (302, 307)


@contextmanager
def inspector(*uris: str, storage_options: Mapping[str, str] | None = None) -> Generator[InspectorServer]:
    """A server of these tables on a free port."""
    with running(InspectorServer(uris, storage_options=storage_options)) as server:
        yield server


@contextmanager
def running(server: S) -> Generator[S]:
    """A server that serves in a thread."""
    thread = server.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)


def answer(
    server: InspectorServer, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[int, str, Mapping[str, str]]:
    """Status, text and headers of one answer."""
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8"), {k.lower(): v for k, v in response.getheaders()}
    finally:
        connection.close()


def page(server: InspectorServer, path: str) -> str:
    """The page at a path, which there is; one that it leads to at once is taken instead."""
    status, text, headers = answer(server, path)
    if status in _LEADS_ON:
        status, text, _ = answer(server, headers["location"])
    assert status == 200, f"{path}: {status} {text[:500]}"
    return text


def rows_of(text: str) -> list[list[str]]:
    """The rows of all tables of a page as texts of their cells."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    return [[plain(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)] for row in rows]


def plain(text: str) -> str:
    """What a reader sees of a piece of a page."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def links_of(text: str, *kinds: str) -> list[str]:
    """The addresses of a page, or only those of these attributes."""
    names = "|".join(kinds or ("href", "src", "hx-get", "action"))
    return [unescape(found) for found in re.findall(rf'\s(?:{names})="([^"]*)"', text)]


def crawl(server: InspectorServer, start: Sequence[str], most: int = 300) -> Mapping[str, str]:
    """Every page that links lead to, by its path; each is there."""
    waiting, found = [*start], dict[str, str]()
    while waiting and len(found) < most:
        path = waiting.pop(0)
        if path in found:
            continue
        found[path] = page(server, path)
        if not path.startswith("/static/") and "/timeline/body" not in path:
            waiting += [one.partition("#")[0] for one in links_of(found[path]) if one.startswith("/")]
    return found

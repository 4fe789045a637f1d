"""A stand-in for Unity Catalog's and Polaris' servers over HTTP: entries in memory, errors as the servers word them.

Unity Catalog's answers were recorded from its server; those of Polaris follow its API's description.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

_Answer = tuple[int, dict[str, Any]]
_UNITY = "/api/2.1/unity-catalog/"
_ICEBERG, _GENERIC = "/api/catalog/v1/", "/api/catalog/polaris/v1/"
TOKEN, CREDENTIAL = "token-of-the-test", "root:secret-of-the-test"


class CatalogServer:
    """`address` is host and port. `tables` are entries by catalog, schema and name; `schemas` those there are;
    `grants` the principals with privileges on any table. `requests` are methods and paths. With `token` requests need
    one. The request number `last` is the last one: it is carried out, with `lost` it is not, and neither is answered.
    With `refused` creations of tables are."""

    def __init__(self) -> None:
        self.address = ""
        self.tables: dict[tuple[str, ...], dict[str, Any]] = {}
        self.schemas: set[tuple[str, ...]] = set()
        self.grants: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.token = ""
        self.last: int | None = None
        self.lost = self.refused = False

    def answer(self, method: str, path: str, body: bytes, authorization: str) -> _Answer | None:
        self.requests.append((method, path))
        if path == f"{_ICEBERG}oauth/tokens":
            form = parse_qs(body.decode())
            if f"{form['client_id'][0]}:{form['client_secret'][0]}" != CREDENTIAL:
                return 401, {"error": "unauthorized_client", "error_description": "The client is not authorized"}
            return 200, {"access_token": self.token, "token_type": "bearer"}
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"error_code": "UNAUTHENTICATED", "message": "No authorization found."}
        ends = self.last is not None and len(self.requests) > self.last
        if ends and self.lost:
            return None
        found = self._unity(method, path, body) if path.startswith(_UNITY) else self._polaris(method, path, body)
        return None if ends else found

    def _unity(self, method: str, path: str, body: bytes) -> _Answer:
        kind, *rest = map(unquote, path.removeprefix(_UNITY).split("/"))
        if method == "POST":
            content = json.loads(body)
            parents = (content["catalog_name"], content["schema_name"]) if kind == "tables" else None
            if kind == "schemas":
                if content["catalog_name"] != "main":
                    return _unity_error(404, "CATALOG_NOT_FOUND", f"Catalog not found: {content['catalog_name']}")
                return self._add_schema((content["catalog_name"], content["name"]))
            if parents not in self.schemas:
                return _unity_error(404, "SCHEMA_NOT_FOUND", "Schema not found")
            stored = {**content, "owner": None, "table_id": "1"}
            for column in stored["columns"]:
                column.setdefault("comment", None)
                column.setdefault("type_precision", None)
            return self._add((*parents, content["name"]), stored, _unity_error(400, "TABLE_ALREADY_EXISTS", "exists"))
        name = tuple(rest[-1].split("."))
        if kind == "schemas":
            there = name in self.schemas
            return (200, {"name": name[1]}) if there else _unity_error(404, "SCHEMA_NOT_FOUND", "Schema not found")
        if name not in self.tables:
            return _unity_error(404, "TABLE_NOT_FOUND", f"Table not found: {rest[-1]}")
        if kind == "permissions":
            return 200, {"privilege_assignments": [{"principal": p, "privileges": ["SELECT"]} for p in self.grants]}
        return self._get_or_delete(method, name, lambda table: table)

    def _polaris(self, method: str, path: str, body: bytes) -> _Answer:
        generic = path.startswith(_GENERIC)
        catalog, _, *rest = map(unquote, path.removeprefix(_GENERIC if generic else _ICEBERG).split("/"))
        if not generic:
            if method == "POST":
                return self._add_schema((catalog, "\x1f".join(json.loads(body)["namespace"])))
            there = (catalog, rest[0]) in self.schemas
            return (200, {"namespace": rest}) if there else _polaris_error(404, "NoSuchNamespaceException")
        if (catalog, rest[0]) not in self.schemas:
            return _polaris_error(404, "NoSuchNamespaceException")
        if method == "POST":
            content = json.loads(body)
            name = (catalog, rest[0], content["name"])
            code, stored = self._add(name, content, _polaris_error(409, "AlreadyExistsException"))
            return code, {"table": stored} if code == 200 else stored
        name = (catalog, rest[0], rest[2])
        if name not in self.tables:
            return _polaris_error(404, "NoSuchTableException")
        return self._get_or_delete(method, name, lambda table: {"table": table})

    def _add_schema(self, name: tuple[str, ...]) -> _Answer:
        self.schemas.add(name)
        return 200, {"name": name[-1]}

    def _add(self, name: tuple[str, ...], stored: dict[str, Any], exists: _Answer) -> _Answer:
        if self.refused:
            self.refused = False
            return _unity_error(400, "INVALID_ARGUMENT", "type_json is wrong")
        if name in self.tables:
            return exists
        self.tables[name] = stored
        return 200, stored

    def _get_or_delete(self, method: str, name: tuple[str, ...], shown: Any) -> _Answer:
        if method == "DELETE":
            del self.tables[name]
            return 200, {}
        return 200, shown(self.tables[name])


def _unity_error(code: int, name: str, message: str) -> _Answer:
    return code, {"error_code": name, "details": [{"reason": name}], "message": message}


def _polaris_error(code: int, name: str) -> _Answer:
    return code, {"error": {"message": f"{name}: there is none", "type": name, "code": code}}


@contextmanager
def catalog_server() -> Iterator[CatalogServer]:
    server = CatalogServer()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = server.answer(self.command, self.path, body, self.headers.get("Authorization", ""))
            if answer is None:
                self.close_connection = True
                return
            text = json.dumps(answer[1]).encode()
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            return None

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.address = f"127.0.0.1:{http.server_port}"
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()

"""Catalogs whose entries are created and deleted over HTTP, and never changed: Unity Catalog and Apache Polaris.

An entry names the table's place and format. It has no commit: readers find the newest one in the table itself. So an
entry is written once, and again only if its content changes: the old entry is deleted and a new one created. A
registration that is cut off between the two leaves no entry, and the next one creates it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lakebed.catalog.base import (
    EntryChange,
    EntryName,
    EntryStore,
    RegisteredTable,
    StoreCatalog,
    elsewhere,
    no_hudi_table,
    refuse_memory,
    same_location,
    unanswered,
)
from lakebed.config.settings import CatalogSettings
from lakebed.errors import CatalogError, InvalidOption
from lakebed.storage.base import parse_uri

# The property that marks an entry of a Hudi table; its value is the table's name.
TABLE_PROPERTY = "hudi.table"
_MEANINGS = {404: "NOT_FOUND", 409: "ALREADY_EXISTS"}
_TOO_MANY, _SERVER_ERRORS, _DENIED = 429, 500, (401, 403)
_DENIED_HINT = "See that the credentials in the environment are valid and may do this: docs/catalogs.md names them."
_LOCAL = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
# Longer answers of servers are cut in errors.
_REASON_CHARACTERS = 300


class _NoRedirects(HTTPRedirectHandler):
    """A handler for which every redirect is a failure, since a redirect would send the token to another server."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


class Refused(Exception):
    """Raised if the server answers with an error: `code` is the status, `name` the server's word for it."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"{code} {message}".strip())
        self.code, self.name = code, name


class HttpClient:
    """A client that sends JSON requests to a server at `root`. No redirect is followed, and no header appears in an
    error."""

    def __init__(self, uri: str, root: str, seconds: float) -> None:
        self.uri = uri
        self.headers: dict[str, str] = {}
        self._root, self._seconds = root.rstrip("/"), seconds

    def get(self, path: str, doing: str) -> Mapping[str, Any] | None:
        """The object at a path; None if the server does not have one."""
        return self._answer("GET", path, None, doing, ignored=("NOT_FOUND",))

    def create(self, path: str, content: Mapping[str, Any], doing: str) -> Mapping[str, Any] | None:
        """Create an object, and return it; None if there is one of that name."""
        body = json.dumps(content).encode()
        return self._answer("POST", path, body, doing, ignored=("ALREADY_EXISTS",))

    def delete(self, path: str, doing: str) -> None:
        """Delete an object, if there is one."""
        self._answer("DELETE", path, None, doing, ignored=("NOT_FOUND",))

    def submit(self, path: str, form: bytes, doing: str) -> Mapping[str, Any]:
        """Send a form, and return the answer."""
        return self._answer("POST", path, form, doing, kind="application/x-www-form-urlencoded") or {}

    def _answer(self, method: str, path: str, body: bytes | None, doing: str, **how: Any) -> Mapping[str, Any] | None:
        kind = how.get("kind", "application/json")
        try:
            return self._send(method, path, body, kind)
        except Refused as error:
            # Unity Catalog reports an existing object in the answer's text, with status 400
            meaning = _MEANINGS.get(error.code, error.name)
            if any(name in meaning for name in how.get("ignored", ())):
                return None
            passes = error.code >= _SERVER_ERRORS or error.code == _TOO_MANY
            hint = _DENIED_HINT if error.code in _DENIED else ""
            raise unanswered(self.uri, doing, error, retryable=passes, hint=hint) from None
        except (OSError, ValueError) as error:
            raise unanswered(self.uri, doing, getattr(error, "reason", None) or error) from None

    def _send(self, method: str, path: str, body: bytes | None, kind: str) -> Mapping[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": kind, **self.headers}
        request = Request(self._root + path, body, headers, method=method)
        try:
            with build_opener(_NoRedirects).open(request, timeout=self._seconds) as answer:
                text = answer.read()
        except HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(1 << 16)) from None
        content: Any = json.loads(text) if text.strip().startswith(b"{") else {}
        return content


def _refusal(code: int, body: bytes) -> Refused:
    try:
        details: Any = json.loads(body)
        details = details["error"] if isinstance(details.get("error"), dict) else details
        name = str(details.get("error_code") or details.get("type") or "")
        message = str(details.get("message") or details.get("error_description") or "")
    except (ValueError, AttributeError):
        name, message = "", body.decode(errors="replace")
    return Refused(code, name, message[:_REASON_CHARACTERS])


def server_root(kind: str, authority: str, variable: str, configured: str, port: int) -> tuple[str, str]:
    """The catalog's URI, and the root of its server.

    An authority without a scheme is asked by HTTPS, on this machine by HTTP. A URI without an authority uses the
    environment's URL, which has its own scheme.

    >>> server_root("unity", "", "LAKEBED_UNITY_URL", "", 8080)
    ('unity://localhost:8080', 'http://localhost:8080')
    >>> server_root("unity", "uc.example.com", "LAKEBED_UNITY_URL", "", 8080)[1]
    'https://uc.example.com'
    """
    parts = urlsplit(configured)
    if configured and (parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc):
        raise InvalidOption(
            f"the environment's {variable} is no URL of a server",
            hint="Write http://host:port or https://host:port, without credentials.",
        )
    if configured and authority in ("", parts.netloc):
        return f"{kind}://{parts.netloc}", f"{parts.scheme}://{parts.netloc}{parts.path}"
    authority = authority or f"localhost:{port}"
    scheme = "http" if _LOCAL.fullmatch(authority) else "https"
    return f"{kind}://{authority}", f"{scheme}://{authority}"


def path_of(*parts: str) -> str:
    """A path of a URL, of which each part is escaped."""
    return "/".join(["", *(quote(part, safe="") for part in parts)])


def location_uri(location: str) -> str:
    """A table's location as a URI with a scheme, as these catalogs store it.

    >>> location_uri("/lake/trips"), location_uri("s3a://lake/trips")
    ('file:///lake/trips', 's3://lake/trips')
    """
    parts = parse_uri(location)
    return f"file://{parts.path}" if parts.scheme == "file" else parts.uri


@dataclass(frozen=True, slots=True)
class RestEntry:
    """An entry: the table's location, its format, and the catalog's other fields. `stored` is the catalog's own
    object."""

    name: EntryName
    location: str
    format: str
    comment: str = ""
    columns: tuple[Mapping[str, Any], ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    stored: Mapping[str, Any] | None = None


class RestStore(EntryStore[RestEntry], Protocol):
    """The requests for entries to a catalog with a REST interface. Each raises `CatalogError`."""

    def check_name(self, name: EntryName) -> None:
        """Raise `InvalidOption` for a name that the catalog cannot have."""
        ...

    def desired(self, table: RegisteredTable, name: EntryName) -> RestEntry:
        """The entry that a table must have. Raises `UnsupportedFeature` if the catalog cannot have it."""
        ...

    def delete(self, entry: RestEntry) -> None:
        """Delete the entry, if it exists. The table's files stay."""
        ...

    def grants(self, entry: RestEntry) -> Sequence[str]:
        """The names of those who have privileges that are lost with the entry."""
        ...


class RestCatalog(StoreCatalog[RestStore, RestEntry]):
    """A catalog over a `RestStore`."""

    _database = "schema"

    def location(self, name: EntryName) -> str:
        """The location of the table of an entry. Raises `TableNotFound` if the entry is missing, and `CatalogError` for
        an entry that is not a Hudi table."""
        self._store.check_name(name)
        return super().location(name)

    def register(
        self, table: RegisteredTable, name: EntryName, settings: CatalogSettings, *, full: bool = False
    ) -> Sequence[EntryChange]:
        """Create or update the entries of a table, and return the change of each. With `full` the entry is written
        again, although grants on the old one are lost."""
        self._store.check_name(name)
        refuse_memory(self.uri, table)
        desired = self._store.desired(table, name)
        before = self._store.find(name)
        if before is None:
            self._require_database(name.database, settings)
            self._check(self._created(desired), desired, table)
            return [EntryChange(str(name), "created", compared="none")]
        self._check(before, desired, table)
        completed = replace(desired, properties={**before.properties, **desired.properties})
        if _content(completed) == _content(before):
            return [EntryChange(str(name), "unchanged", compared="none")]
        self._replace(before, completed, full=full)
        return [EntryChange(str(name), "updated", before.columns != completed.columns, compared="none")]

    def _replace(self, before: RestEntry, completed: RestEntry, *, full: bool) -> None:
        granted = [] if full else self._store.grants(before)
        if granted:
            raise CatalogError(
                f"{completed.name} in {self.uri} is to be written again, and {', '.join(granted)} would lose"
                " privileges on it",
                hint="Give the privileges on the schema, or register the table with full=True (--full) and give them"
                " again.",
                context={"catalog": self.uri, "name": str(completed.name)},
            )
        self._store.delete(before)
        try:
            self._store.create(completed)
        except CatalogError:
            self._store.create(before)
            raise

    def _check(self, before: RestEntry, desired: RestEntry, table: RegisteredTable) -> None:
        if same_location(before.location, desired.location) and before.format == desired.format:
            return
        self.check_kind(before)
        if not same_location(before.location, desired.location):
            raise elsewhere(self.uri, desired.name, before.location, table)

    def check_kind(self, entry: RestEntry) -> None:
        if TABLE_PROPERTY not in entry.properties or not entry.location:
            raise no_hudi_table(self.uri, entry.name, f"an entry of the format {entry.format or 'of a view'}")


def _content(entry: RestEntry) -> tuple[Any, ...]:
    return entry.format, entry.comment, tuple(map(dict, entry.columns)), dict(entry.properties)

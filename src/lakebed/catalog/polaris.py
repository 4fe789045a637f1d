"""Apache Polaris: the table as a generic table of the format `hudi`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from lakebed.catalog.base import EntryName, RegisteredTable
from lakebed.catalog.rest import TABLE_PROPERTY, HttpClient, RestEntry, location_uri, path_of
from lakebed.errors import CatalogError, InvalidOption, UnsupportedFeature

_ICEBERG, _GENERIC = "/api/catalog/v1", "/api/catalog/polaris/v1"
_FORMAT = "hudi"
# Between the levels of a namespace, in a path.
_LEVELS = "\x1f"


class PolarisCatalog:
    """The server at `root`. `credential` is a principal's `id:secret`, with which a token is fetched before the first
    request; `token` is an existing one. A request takes at most `seconds`."""

    def __init__(self, uri: str, root: str, secrets: Mapping[str, str], seconds: float) -> None:
        self._client = HttpClient(uri, root, seconds)
        self._credential = secrets.get("credential", "")
        if secrets.get("realm"):
            self._client.headers["Polaris-Realm"] = secrets["realm"]
        if secrets.get("token"):
            self._client.headers["Authorization"] = f"Bearer {secrets['token']}"

    @property
    def uri(self) -> str:
        """The catalog's URI without a table, for messages; never with credentials."""
        return self._client.uri

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def check_name(self, name: EntryName) -> None:
        """Raise `InvalidOption` for a name that the catalog cannot have."""
        if "." not in name.database:
            raise InvalidOption(
                f"{str(name)!r} is no name of a table in Polaris",
                hint="Give catalog.namespace.table; a namespace may have several levels.",
                context={"name": str(name)},
            )

    def desired(self, table: RegisteredTable, name: EntryName) -> RestEntry:
        """The entry that a table must have. Raises `UnsupportedFeature` for a table that the catalog cannot have."""
        location = location_uri(table.location)
        # `path` is what Spark's source of Hudi tables takes
        return RestEntry(name, location, _FORMAT, "", (), {TABLE_PROPERTY: table.name, "path": location})

    def has_database(self, database: str) -> bool:
        """Whether the database exists."""
        catalog, levels = _split(database)
        path = path_of(catalog, "namespaces", _LEVELS.join(levels))
        return self._signed().get(_ICEBERG + path, f"look up the namespace {database}") is not None

    def create_database(self, database: str) -> None:
        """Create a database, unless it exists. The catalog and the levels above must exist."""
        catalog, levels = _split(database)
        content = {"namespace": levels, "properties": {}}
        self._signed().create(_ICEBERG + path_of(catalog, "namespaces"), content, f"create the namespace {database}")

    def databases(self) -> Sequence[str]:
        """Raise `UnsupportedFeature`: a principal is not allowed to list the catalogs of Polaris."""
        raise UnsupportedFeature(
            f"{self.uri} does not list its catalogs", hint="Name the database, as in w.list('catalog.namespace')."
        )

    def tables(self, database: str) -> Sequence[str]:
        """The names of the generic tables of a namespace."""
        answer = self._signed().get(_tables(EntryName(database, "")), f"list the tables of {database}") or {}
        return [listed["name"] for listed in answer.get("identifiers") or ()]

    def find(self, name: EntryName) -> RestEntry | None:
        """The entry of this name; None if there is none."""
        response = self._signed().get(f"{_tables(name)}{path_of(name.table)}", f"look up {name}")
        if response is None:
            return None
        table: Mapping[str, Any] = response["table"]
        properties = dict(table.get("properties") or {})
        return RestEntry(
            name,
            table.get("base-location") or properties.get("path", ""),
            table["format"].lower(),
            table.get("doc") or "",
            (),
            properties,
            table,
        )

    def create(self, entry: RestEntry) -> None:
        """Create an entry, unless another process has created it meanwhile."""
        content = {
            "name": entry.name.table,
            "format": entry.format,
            "base-location": entry.location,
            "properties": dict(entry.properties),
        }
        if entry.comment:
            content["doc"] = entry.comment
        self._signed().create(_tables(entry.name), content, f"create {entry.name}")

    def delete(self, entry: RestEntry) -> None:
        """Delete the entry, if it exists. The table's files stay."""
        self._signed().delete(f"{_tables(entry.name)}{path_of(entry.name.table)}", f"delete {entry.name}")

    def grants(self, entry: RestEntry) -> Sequence[str]:
        """Return an empty list: Polaris has no request for the grants on a generic table."""
        return ()

    def _signed(self) -> HttpClient:
        """The client, with a token."""
        if self._credential and "Authorization" not in self._client.headers:
            user, _, secret = self._credential.partition(":")
            form = {
                "grant_type": "client_credentials",
                "client_id": user,
                "client_secret": secret,
                "scope": "PRINCIPAL_ROLE:ALL",
            }
            answer = self._client.submit(f"{_ICEBERG}/oauth/tokens", urlencode(form).encode(), "fetch a token")
            if not answer.get("access_token"):
                raise CatalogError(f"{self.uri} gave no token", context={"catalog": self.uri, "retryable": False})
            self._client.headers["Authorization"] = f"Bearer {answer['access_token']}"
        return self._client


def _split(database: str) -> tuple[str, list[str]]:
    catalog, *levels = database.split(".")
    return catalog, levels


def _tables(name: EntryName) -> str:
    catalog, levels = _split(name.database)
    return _GENERIC + path_of(catalog, "namespaces", _LEVELS.join(levels), "generic-tables")

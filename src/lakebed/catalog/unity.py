"""Unity Catalog, over its HTTP API 2.1. It has no Hudi tables, so the entry is for the table's Delta list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from lakebed.catalog.base import EntryName, RegisteredTable
from lakebed.catalog.columns import spark_schema
from lakebed.catalog.rest import TABLE_PROPERTY, HttpClient, RestEntry, location_uri, path_of
from lakebed.errors import InvalidOption, UnsupportedFeature

_API = "/api/2.1/unity-catalog"
_EXTERNAL, _FORMAT = "EXTERNAL", "DELTA"
# Names of Spark's types: as texts in SQL, and in Unity Catalog.
_TEXTS = {"long": "bigint", "integer": "int"}
_NAMES = {"long": "LONG", "integer": "INT"}
# The fields of a column in an entry; the catalog adds more.
_COLUMN = ("name", "type_text", "type_json", "type_name", "position", "nullable", "comment", "partition_index")
_PRECISION = ("type_precision", "type_scale")


class UnityCatalog:
    """The catalog at `root`; `token` is sent as a bearer token, if there is one. A request takes at most `seconds`."""

    def __init__(self, uri: str, root: str, token: str, seconds: float) -> None:
        self._client = HttpClient(uri, root + _API, seconds)
        if token:
            self._client.headers["Authorization"] = f"Bearer {token}"

    @property
    def uri(self) -> str:
        """The catalog's URI without a table, for messages; never with credentials."""
        return self._client.uri

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def check_name(self, name: EntryName) -> None:
        """Raise `InvalidOption` for a name that the catalog cannot have."""
        if name.database.count(".") != 1:
            raise InvalidOption(
                f"{str(name)!r} is no name of a table in Unity Catalog",
                hint="Give catalog.schema.table.",
                context={"name": str(name)},
            )

    def desired(self, table: RegisteredTable, name: EntryName) -> RestEntry:
        """The entry that a table must have. Raises `UnsupportedFeature` for a table that the catalog cannot have."""
        partition_columns = table.published("delta")
        if partition_columns is None:
            raise UnsupportedFeature(
                f"the table at {table.location} is not published as Delta, and Unity Catalog has no Hudi tables",
                hint='Publish it, then register it: t.catalogs.publish("delta"), and for each commit'
                ' t.configure({"lakebed.publish": "delta"}).',
                context={"uri": table.location},
            )
        return RestEntry(
            name,
            location_uri(table.location),
            _FORMAT,
            f"The Hudi table {table.name}, published as Delta by lakebed: read only",
            _columns(table, partition_columns),
            {TABLE_PROPERTY: table.name},
        )

    def has_database(self, database: str) -> bool:
        """Whether the database exists."""
        return self._client.get(path_of("schemas", database), f"look up the schema {database}") is not None

    def create_database(self, database: str) -> None:
        """Create a database, unless it exists. The catalog that it is in must exist."""
        catalog, _, schema = database.partition(".")
        content = {"name": schema, "catalog_name": catalog, "comment": "created by lakebed"}
        self._client.create("/schemas", content, f"create the schema {database}")

    def databases(self) -> Sequence[str]:
        """The names of the schemas, as `catalog.schema`."""
        catalogs = self._listed("/catalogs", "catalogs", "list the catalogs")
        return [
            f"{catalog}.{schema}"
            for catalog in catalogs
            for schema in self._listed(f"/schemas?catalog_name={quote(catalog)}", "schemas", f"list {catalog}")
        ]

    def tables(self, database: str) -> Sequence[str]:
        """The names of the entries of a schema."""
        catalog, _, schema = database.partition(".")
        path = f"/tables?catalog_name={quote(catalog)}&schema_name={quote(schema)}"
        return self._listed(path, "tables", f"list the tables of {database}")

    def _listed(self, path: str, field: str, doing: str) -> list[str]:
        """The names in all pages of a list."""
        names: list[str] = []
        token = ""
        while True:
            page = f"{'&' if '?' in path else '?'}page_token={quote(token)}" if token else ""
            answer = self._client.get(f"{path}{page}", doing) or {}
            names += [listed["name"] for listed in answer.get(field) or ()]
            previous, token = token, answer.get("next_page_token") or ""
            if not token or token == previous:
                return names

    def find(self, name: EntryName) -> RestEntry | None:
        """The entry of this name; None if there is none."""
        table = self._client.get(path_of("tables", str(name)), f"look up {name}")
        return None if table is None else _entry(name, table)

    def create(self, entry: RestEntry) -> None:
        """Create an entry, unless another process has created it meanwhile."""
        catalog, _, schema = entry.name.database.partition(".")
        content = {
            "name": entry.name.table,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": _EXTERNAL,
            "data_source_format": entry.format,
            "columns": [dict(column) for column in entry.columns],
            "storage_location": entry.location,
            "comment": entry.comment,
            "properties": dict(entry.properties),
        }
        self._client.create("/tables", content, f"create {entry.name}")

    def delete(self, entry: RestEntry) -> None:
        """Delete the entry, if it exists. The table's files stay. Raises `UnsupportedFeature` for an entry that is not
        external."""
        kind = (entry.stored or {}).get("table_type")
        if kind != _EXTERNAL:  # the catalog deletes the files of managed entries with them
            raise UnsupportedFeature(f"{entry.name} in {self.uri} is no external table but {kind}")
        self._client.delete(path_of("tables", str(entry.name)), f"delete {entry.name}")

    def grants(self, entry: RestEntry) -> Sequence[str]:
        """The names of those who have privileges that are lost with the entry."""
        permissions = self._client.get(
            path_of("permissions", "table", str(entry.name)), f"look up grants on {entry.name}"
        )
        owner = (entry.stored or {}).get("owner")
        assignments = [
            assignment
            for assignment in (permissions or {}).get("privilege_assignments") or ()
            if assignment.get("privileges")
        ]
        return sorted({assignment["principal"] for assignment in assignments} - {owner})


def _columns(table: RegisteredTable, partition_columns: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    fields = [field for field in table.schema if not field.name.startswith("_hoodie_")]
    described = json.loads(spark_schema(table.schema, ()))["fields"]
    by_name = {field["name"]: field for field in described}
    columns: list[Mapping[str, Any]] = []
    for position, name in enumerate(field.name for field in fields):
        kind = by_name[name]["type"]
        text = type_text(kind)
        plain: str = kind if isinstance(kind, str) else kind["type"]
        column = {
            "name": name,
            "type_text": text.lower(),
            "type_json": json.dumps(by_name[name]),
            "type_name": _NAMES.get(plain) or plain.partition("(")[0].upper(),
            "position": position,
            "nullable": by_name[name]["nullable"],
        }
        if text.startswith("decimal("):
            precision, scale = text[len("decimal(") : -1].split(",")
            column |= dict(zip(_PRECISION, (int(precision), int(scale)), strict=True))
        if name in table.comments:
            column["comment"] = table.comments[name]
        if name in partition_columns:
            column["partition_index"] = partition_columns.index(name)
        columns.append(column)
    return tuple(columns)


def type_text(kind: Any) -> str:
    """The SQL text of a type in Spark's JSON.

    >>> type_text({"type": "array", "elementType": "long", "containsNull": True})
    'array<bigint>'
    """
    if isinstance(kind, str):
        return _TEXTS.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"
    parts = (f"{part['name']}:{type_text(part['type'])}" for part in kind["fields"])
    return f"struct<{','.join(parts)}>"


def _entry(name: EntryName, body: Mapping[str, Any]) -> RestEntry:
    columns: list[Mapping[str, Any]] = []
    for listed in body.get("columns") or ():
        # the catalog answers precisions of 0 for types that have none
        parts = (*_COLUMN, *_PRECISION) if listed.get("type_name") == "DECIMAL" else _COLUMN
        columns.append({part: listed[part] for part in parts if listed.get(part) is not None})
    return RestEntry(
        name,
        body.get("storage_location") or "",
        body.get("data_source_format") or "",
        body.get("comment") or "",
        tuple(columns),
        dict(body.get("properties") or {}),
        body,
    )

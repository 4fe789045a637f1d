"""The kinds of catalogs, by the scheme of their URIs: `hive://host:9083/db/table`, `glue://region/db/table`,
`unity://host/catalog/schema/table`, `polaris://host/catalog/namespace/table`.

A package of others adds a kind by an entry point in the group `lakebed.catalogs`: a function that takes the part of
the URI between scheme and first slash, and the settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lakebed.config.settings import CatalogSettings
from lakebed.errors import InvalidOption
from lakebed.plugins import plugins
from lakebed.storage.base import SCHEMES

if TYPE_CHECKING:
    from lakebed.catalog.base import Catalog, EntryName

_Factory: TypeAlias = "Callable[[str, CatalogSettings], Catalog]"
_GROUP = "lakebed.catalogs"


def _hive(authority: str, settings: CatalogSettings) -> Catalog:
    from lakebed.catalog.hive import HiveMetastore
    from lakebed.catalog.metastore import MetastoreCatalog

    uris = authority or os.environ.get("LAKEBED_HIVE_URIS", "") or settings.uris
    return MetastoreCatalog(HiveMetastore(uris, settings.seconds))


def _glue(authority: str, settings: CatalogSettings) -> Catalog:
    from lakebed.catalog.glue import GlueCatalog
    from lakebed.catalog.metastore import MetastoreCatalog

    endpoint = settings.glue_endpoint or os.environ.get("LAKEBED_GLUE_ENDPOINT", "")
    return MetastoreCatalog(GlueCatalog(authority or settings.glue_region, endpoint, settings))


def _unity(authority: str, settings: CatalogSettings) -> Catalog:
    from lakebed.catalog.rest import RestCatalog, server_root
    from lakebed.catalog.unity import UnityCatalog

    variable = "LAKEBED_UNITY_URL"
    uri, root = server_root("unity", authority, variable, os.environ.get(variable, ""), 8080)
    token = os.environ.get("LAKEBED_UNITY_TOKEN", "")
    return RestCatalog(UnityCatalog(uri, root, token, settings.seconds))


def _polaris(authority: str, settings: CatalogSettings) -> Catalog:
    from lakebed.catalog.polaris import PolarisCatalog
    from lakebed.catalog.rest import RestCatalog, server_root

    variable = "LAKEBED_POLARIS_URL"
    uri, root = server_root("polaris", authority, variable, os.environ.get(variable, ""), 8181)
    secrets = {part: os.environ.get(f"LAKEBED_POLARIS_{part.upper()}", "") for part in ("credential", "token", "realm")}
    return RestCatalog(PolarisCatalog(uri, root, secrets, settings.seconds))


_KINDS: dict[str, _Factory] = {"hive": _hive, "glue": _glue, "unity": _unity, "polaris": _polaris}


@dataclass(frozen=True, slots=True)
class CatalogUri:
    """A catalog and, if the URI continues, an entry in it."""

    kind: str
    authority: str
    entry: EntryName | None

    @classmethod
    def parse(cls, text: str) -> CatalogUri:
        """The parts of a catalog's URI. A kind without an address (`hive`) means the catalog that the environment
        names.

        Raises `InvalidOption` for another scheme, and for credentials in the URI.

        >>> CatalogUri.parse("hive://metastore:9083/shop/orders").entry
        EntryName(database='shop', table='orders')
        >>> CatalogUri.parse("glue").authority
        ''
        """
        from lakebed.catalog.base import EntryName

        kind, _, address = text.partition("://")
        if kind not in kinds():
            raise InvalidOption(
                f"{kind!r} is no kind of catalog",
                hint=f"It is one of {', '.join(kinds())}, as in hive://host:9083/database/table.",
                context={"catalog": kind},
            )
        authority, _, path = address.partition("/")
        if "@" in authority or "?" in address:
            raise InvalidOption(
                f"the URI of the {kind} catalog has credentials or a query",
                hint="Take them out: credentials of catalogs come from the environment.",
            )
        names = [name for name in path.split("/") if name]
        if len(names) == 1:
            raise InvalidOption(
                f"the URI {text} names one of database and table",
                hint=f"Write {kind}://{authority}/database/table, or leave both out.",
            )
        entry = EntryName(".".join(names[:-1]), names[-1]) if names else None
        return cls(kind, authority, entry)

    def open(self, settings: CatalogSettings) -> Catalog:
        """The catalog. Raises `UnsupportedFeature` if its package is not installed."""
        factory = _KINDS.get(self.kind)
        if factory is None:
            factory = next(point for point in plugins(_GROUP) if point.name == self.kind).load()
        return factory(self.authority, settings)

    def entry_of(self, name: str | None) -> EntryName:
        """The entry that the URI or `name` names. Raises `InvalidOption` if both do, or neither."""
        from lakebed.catalog.base import EntryName

        if (self.entry is None) == (name is None):
            raise InvalidOption(
                "the table's name in the catalog is given " + ("twice" if name else "nowhere"),
                hint='Give it as "database.table", or in the URI of the catalog.',
                context={"name": name},
            )
        return self.entry or EntryName.parse(name or "")


def kinds() -> list[str]:
    """The kinds of catalogs, including those of other packages."""
    return sorted({*_KINDS, *plugins(_GROUP).names})


def is_catalog_uri(uri: str) -> bool:
    """Whether a URI names a table in a catalog, not a place.

    >>> is_catalog_uri("hive://host:9083/db/t"), is_catalog_uri("s3://lake/t")
    (True, False)
    """
    scheme, slashes, _ = uri.partition("://")
    return bool(slashes) and scheme not in SCHEMES and scheme in kinds()


def find_table(catalog: str, name: str | None = None, settings: CatalogSettings | None = None) -> str:
    """The URI of the table that an entry names. See `Catalog.location`."""
    parsed = CatalogUri.parse(catalog)
    entry = parsed.entry_of(name)
    opened = parsed.open(settings or CatalogSettings())
    try:
        return opened.location(entry)
    finally:
        opened.close()

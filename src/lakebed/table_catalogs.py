"""`Table.catalogs`: where programs of others find the table: entries in catalogs, and lists of other formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

import pyarrow as pa

from lakebed.catalog.base import SyncResult
from lakebed.config.arguments import public_methods_check_arguments
from lakebed.opened_table import OpenedTable
from lakebed.publish.publication import PublishResult
from lakebed.services.catalog_sync import CatalogEntry, listed_entries, register_table
from lakebed.services.publishing import publish_on_request
from lakebed.table_views import EntriesView


@public_methods_check_arguments
class CatalogsView(EntriesView[CatalogEntry]):
    """The catalogs and formats in which the table is shown to other programs: iterable, and printed as a table.

    >>> _ = t.configure({"lakebed.catalogs": "hive://metastore:9083/shop/trips"})
    >>> [(one.catalog, one.kind) for one in t.catalogs]
    [('hive://metastore:9083/shop/trips', 'entry')]
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    def _entries(self) -> Sequence[CatalogEntry]:
        return self.list()

    def list(self) -> list[CatalogEntry]:
        """The entries in catalogs that the table's settings name, and the lists of other formats that it has.

        An entry that `register` made without a setting is known to its catalog alone. Asks no catalog.

        >>> t.catalogs.list()
        []
        """
        return self._opened.again(lambda: listed_entries(self._opened.storage))

    def register(
        self, catalog: str, name: str | None = None, *, full: bool = False, options: Mapping[str, Any] | None = None
    ) -> SyncResult:
        """Create or update the table's entries in a catalog: `t.catalogs.register("hive://host:9083", "shop.trips")`.

        Only partitions that later commits touched are compared, except with `full`. The table's setting
        `lakebed.catalogs` does it after each commit. Raises `CatalogError` for an entry of another table, and where the
        catalog does not answer.

        >>> t.catalogs.register("nowhere", "shop.trips")
        Traceback (most recent call last):
        lakebed.errors.InvalidOption: 'nowhere' is no kind of catalog. It is one of glue, hive, ...
        """
        return self._opened.again(lambda: register_table(self._opened.storage, catalog, name, options, full=full))

    def publish(
        self,
        format: Literal["delta", "iceberg"],
        *,
        fresh: bool | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> PublishResult:
        """List the table's base files as a table of Delta Lake or Iceberg, next to the data, for engines that read
        these.

        Each commit that is not published yet gets a version of its own, so that other engines travel in time over the
        same commits. Rows in log files of a merge-on-read table are shown after a compaction: `.unmerged` of the result
        names their file groups. With `fresh` they are shown at once: the list masks the rows of base files that they
        replace, and names small files with copies of the new ones. None leaves this to the table's settings
        `lakebed.publish.fresh` (Iceberg) and `lakebed.publish.fresh.delta`, else to the list, which stays as it is. The
        table's setting `lakebed.publish` publishes after each commit.

        Raises `UnsupportedFeature` for a table that the format cannot express, and where others changed the list.

        >>> paper = lakebed.create("memory://docs/paper", rows, key="id")
        >>> _ = paper.upsert(rows)
        >>> result = paper.catalogs.publish("delta")
        >>> result.version, result.instant == paper.timeline.last.time
        (0, True)
        """
        return self._opened.again(lambda: publish_on_request(self._opened.storage, format, options, fresh=fresh))

    def to_arrow(self) -> pa.Table:
        """A table with the columns catalog, kind ("entry" or "list"), automatic, shows.

        >>> t.catalogs.to_arrow().column_names
        ['catalog', 'kind', 'automatic', 'shows']
        """
        types = {"automatic": pa.bool_()}
        schema = pa.schema([(field.name, types.get(field.name, pa.string())) for field in fields(CatalogEntry)])
        return pa.Table.from_pylist([entry.to_dict() for entry in self.list()], schema)

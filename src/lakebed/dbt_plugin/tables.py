"""The tables that sources and models of a dbt project name: by names in the warehouse, or by URIs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from lakebed import api
from lakebed.catalog.names import is_name
from lakebed.dbt_plugin.models import Model
from lakebed.errors import InvalidOption, TableExists
from lakebed.read.moments import BEGINNING
from lakebed.read.scan import Scan
from lakebed.secrets import masked_repr
from lakebed.table import Table
from lakebed.warehouse import Warehouse

_SETTINGS = ("warehouse", "location", "storage_options", "create", "options")


@dataclass(frozen=True)
class Source:
    """What a view in DuckDB shows: a table, the time as of which it is read, and the consumer that reads what is new.

    Its text is the name under which DuckDB has the rows, so that another process finds them by the text of the view.

    >>> str(Source("sales.orders", as_of="2026-11-21"))
    '{"table": "sales.orders", "as_of": "2026-11-21"}'
    """

    table: str
    as_of: str | None = None
    consumer: str | None = None

    def __str__(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    @classmethod
    def parse(cls, text: str) -> Source:
        """The source that has this text."""
        return cls(**json.loads(text))

    @classmethod
    def of(cls, schema: str, identifier: str, meta: Mapping[str, Any]) -> Source:
        """The source of an entry in a file of sources. Raises `InvalidOption` for a consumer as of a time."""
        # YAML reads a date, and the digits of an instant, as other things than texts
        as_of, consumer = (None if meta.get(name) is None else str(meta[name]) for name in ("as_of", "consumer"))
        if consumer is not None and as_of is not None:
            raise InvalidOption("a source has either a consumer or as_of: a consumer reads up to the newest commit")
        return cls(str(meta.get("table") or f"{schema}.{identifier}"), as_of, consumer)


@dataclass(frozen=True, repr=False)
class Tables:
    """The tables of the plugin, with its settings in the profile."""

    warehouse: str | None = None
    location: str | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    create: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    __repr__ = masked_repr

    @classmethod
    def of(cls, config: Mapping[str, Any], of_duckdb: Mapping[str, Any]) -> Tables:
        """The tables of a plugin's `config`, to which dbt-duckdb adds the settings of DuckDB. Raises `InvalidOption`
        for a setting that is none."""
        unknown = [name for name in config if name not in _SETTINGS and name not in of_duckdb]
        if unknown:
            raise InvalidOption(
                f"the plugin has no setting {unknown[0]!r}", hint=f"its config has {', '.join(_SETTINGS)}"
            )
        return cls(**{name: config[name] for name in _SETTINGS if config.get(name) is not None})

    def open(self, table: str) -> Table:
        """The table of a name or URI. Raises `TableNotFound` if there is none."""
        methods, options = self._methods(table)
        return methods.open(table, **options)

    def written(self, table: str) -> Table | None:
        """The table of a name or URI, if it has a commit."""
        methods, options = self._methods(table)
        if not methods.exists(table, **options):
            return None
        opened: Table = methods.open(table, **options)
        return opened if opened.opened.snapshot().commits else None

    def target(self, model: Model, schema: pa.Schema) -> Table:
        """The table of a model, which is created if it does not exist."""
        methods, options = self._methods(model.table)
        if not methods.exists(model.table, **options):
            named = {"key": list(model.key) or None, "partition_by": list(model.partition_by) or None}
            try:
                return methods.create(model.table, schema, **{**named, **self.create, **model.create, **options})
            except TableExists:  # another run made it meanwhile
                pass
        return methods.open(model.table, **options)

    def scan(self, source: Source) -> Scan:
        """The rows of a source; of one with a consumer those that it has not read."""
        table = self.open(source.table)
        if source.consumer is None:
            return table.scan(as_of=source.as_of)
        positions = {consumer.name: consumer.position for consumer in table.consumers}
        return table.changes(positions.get(source.consumer) or BEGINNING)

    def _methods(self, table: str) -> tuple[Any, dict[str, Any]]:
        """What opens and creates a table, and the options for it: the warehouse for a name, functions for a URI."""
        if is_name(table):
            return Warehouse(self.warehouse, location=self.location, storage_options=self.storage_options), {}
        return api, {"storage_options": self.storage_options}

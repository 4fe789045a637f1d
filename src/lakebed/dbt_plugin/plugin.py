"""The plugin as dbt-duckdb names it: sources of lakebed as views, and the requests of the dbt package about models."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa
from dbt.adapters.duckdb.connections import DuckDBConnectionManager
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckdb.utils import SourceConfig, TargetConfig
from dbt.flags import get_flags
from dbt_common.exceptions import DbtRuntimeError

from lakebed.dbt_plugin.models import Model
from lakebed.dbt_plugin.tables import Source, Tables
from lakebed.dbt_plugin.writes import run_model
from lakebed.errors import InvalidOption, LakebedError, TableNotFound
from lakebed.read.dataset import TableDataset
from lakebed.read.scan import Scan

# The commands of dbt in which the dbt package shows, before the first node, what the selected nodes read.
_WITH_HOOKS = ("build", "run", "seed", "snapshot", "test")
# What follows in the texts of DuckDB and Arrow after the error of a table that they read.
_TRACEBACK = ". Detail: Python exception"
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')


class Plugin(BasePlugin):  # pyright: ignore[reportUntypedBaseClass]
    """The plugin of dbt-duckdb, named in a profile as `module: lakebed.dbt_plugin` with `alias: lakebed`.

    Its `config` has `warehouse` (a path or URI, default `LAKEBED_WAREHOUSE`), `location` for a catalog,
    `storage_options`, and `create` and `options`: arguments for new tables, and options of each write.
    """

    _is_installed = False

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Read the settings of the profile."""
        with _errors_about("the plugin lakebed of the profile"):
            self._tables = Tables.of(plugin_config, (self.creds and self.creds.settings) or {})
        # dbt-duckdb holds a lock of its own where it opens cursors, so `_lock` is never held while one is opened
        self._lock = threading.Lock()
        self._views = threading.Lock()
        self._threads = threading.local()
        # what DuckDB reads, by the names that the texts of views have
        self._datasets: dict[str, TableDataset] = {}
        # what the consumers' sources give while a model reads them
        self._batches: dict[str, Scan] = {}

    def default_materialization(self) -> str:
        """A source is a view: DuckDB hands the columns and conditions of each query to the table."""
        return "view"

    def configure_connection(self, conn: Any) -> None:
        """Let sources become views one after the other, and find the tables of views that the database file has, for
        commands of dbt that run no hooks."""
        environment = DuckDBConnectionManager.env()
        load_source = environment.load_source

        def show_source(plugin_name: str, config: SourceConfig) -> None:
            if plugin_name == self.name:
                self._show_source(config)
            else:
                load_source(plugin_name, config)

        if not self._is_installed:
            # dbt-duckdb replaces the view for each reader in its thread, and DuckDB refuses two of them at once
            environment.load_source = show_source
            self._is_installed = True
        if getattr(get_flags(), "WHICH", "") not in _WITH_HOOKS:
            self._find_views(conn)

    def configure_cursor(self, cursor: Any) -> None:
        """Give a new cursor all that DuckDB reads of lakebed."""
        with self._lock:
            datasets = dict(self._datasets)
        for name, dataset in datasets.items():
            cursor.register(name, dataset)
        if not getattr(self._threads, "is_own", False):
            self._threads.cursor = cursor

    def load(self, source_config: SourceConfig) -> TableDataset:
        """The rows of a source as a dataset, for dbt-duckdb to make a view of."""
        with _errors_about(f"the source {source_config.schema}.{source_config.identifier}"):
            scan = self._batches.get(source_config.table_name())
            return TableDataset(self._tables.scan(_source(source_config)) if scan is None else scan)

    def store(self, target_config: TargetConfig) -> None:
        """Carry out a request of the dbt package, and put the answer into it."""
        request, relation = target_config.config, target_config.relation
        if not isinstance(request, dict) or request.get("action") not in ("find", "write", "show"):
            raise DbtRuntimeError(
                f"the model {relation.identifier} is not written to lakebed: a model of lakebed has"
                " materialized='lakebed' from the dbt package that `python -m lakebed.dbt_plugin` names"
            )
        if request["action"] == "find":
            self._find(request, relation)
            return
        with _errors_about(f"the model {request['model']}"):
            model = Model.of(request)
        with _errors_about(f"the model {model.name}, table {model.table}"):
            if request["action"] == "show":
                request["is_shown"] = self._show_model(model, relation)
                return
            consumed = self._consumed(request)
            source = None if consumed is None else _source(consumed)
            run = run_model(self._tables, model, source, lambda rows: self._rows(request, consumed, rows))
            request.update(message=str(run), code=model.verb.upper(), rows=run.rows)

    # -- the query of a model

    def _consumed(self, request: Mapping[str, Any]) -> SourceConfig | None:
        """The source with a consumer that a model reads; None if there is none."""
        configs = [SourceConfig(**entry) for entry in request["sources"]]
        consumed = [config for config in configs if _source(config).consumer is not None]
        if not consumed:
            return None
        if len(consumed) > 1:
            names = " and ".join(sorted(f"{config.schema}.{config.identifier}" for config in consumed))
            raise InvalidOption(
                f"the model reads two sources with consumers, {names}",
                hint="leave out the consumer of one: a commit records the position of one consumer",
            )
        if request["is_python"]:
            raise InvalidOption("a model in Python reads no source with a consumer", hint="write the model in SQL")
        return consumed[0]

    @contextmanager
    def _rows(
        self, request: Mapping[str, Any], consumed: SourceConfig | None, batch: Scan | None
    ) -> Generator[pa.RecordBatchReader]:
        """The rows of the query of a model; its source with a consumer has those of the batch while the block runs."""
        if consumed is not None and batch is not None:
            self._batches[consumed.table_name()] = batch
        try:
            if consumed is not None:
                self._show_source(consumed)
            with self._cursor() as cursor:
                if request["header"]:
                    cursor.execute(request["header"])
                relation = cursor.sql(request["sql"])
                if relation is None:
                    raise InvalidOption("the SQL text of the model is no query, and gives no rows")
                yield pa.RecordBatchReader.from_stream(relation)
        finally:
            if consumed is not None:
                self._batches.pop(consumed.table_name(), None)

    # -- views

    def _show_source(self, config: SourceConfig) -> None:
        """Make the relation of a source in DuckDB a view of its rows."""
        relation = ".".join(f'"{part}"' for part in (config.database, config.schema, config.identifier) if part)
        schema = ".".join(f'"{part}"' for part in (config.database, config.schema) if part)
        self._show(str(_source(config)), self.load(config), relation, schema)

    def _show_model(self, model: Model, relation: Any) -> bool:
        """Make a model's relation in DuckDB a view of its table; returns False, without a view, for a table that no run
        has written."""
        table = self._tables.written(model.table)
        if table is not None:
            dataset, schema = TableDataset(table.scan()), str(relation.without_identifier())
            self._show(str(Source(model.table)), dataset, str(relation), schema)
        return table is not None

    def _find(self, request: dict[str, Any], relation: Any) -> None:
        """Before the first node: show the sources that a node reads and, if it is a model of lakebed, its table. Wrong
        settings and missing tables are errors of the nodes that need them."""
        for entry in request["sources"]:
            with suppress(LakebedError, DbtRuntimeError):
                self._show_source(SourceConfig(**entry))
        request["is_shown"] = False
        if request["is_model"]:
            with _errors_about(f"the model {request['model']}"), suppress(InvalidOption, TableNotFound):
                request["is_shown"] = self._show_model(Model.of(request), relation)

    def _show(self, text: str, dataset: TableDataset, relation: str, schema: str) -> None:
        name = f"{self.name} {text}"
        with self._lock:
            self._datasets[name] = dataset
        # the cursor of dbt's own connection, for the hooks after a model
        if getattr(self._threads, "cursor", None) is not None:
            with suppress(duckdb.ConnectionException):  # it is closed between two nodes
                self._threads.cursor.register(name, dataset)
        quoted = name.replace('"', '""')
        with self._views, self._cursor() as cursor:
            cursor.execute(f"create schema if not exists {schema}")
            cursor.execute(f'create or replace view {relation} as select * from "{quoted}"')

    def _find_views(self, conn: Any) -> None:
        for (text,) in conn.execute("select sql from duckdb_views() where not internal").fetchall():
            for quoted in _QUOTED.findall(text):
                name = quoted.replace('""', '"')
                if name.startswith(f"{self.name} {{"):
                    with suppress(LakebedError):  # the query that reads it fails
                        scan = self._tables.scan(Source.parse(name[len(self.name) + 1 :]))
                        self._datasets[name] = TableDataset(scan)

    @contextmanager
    def _cursor(self) -> Generator[Any]:
        """A cursor of its own, with all sources and models."""
        self._threads.is_own = True
        try:
            handle = DuckDBConnectionManager.env().handle()
        finally:
            self._threads.is_own = False
        try:
            yield handle.cursor()
        finally:
            handle.close()


def _source(config: SourceConfig) -> Source:
    return Source.of(config.schema, config.identifier, config.meta)


@contextmanager
def _errors_about(subject: str) -> Generator[None]:
    """Raise errors of lakebed, and of DuckDB as it reads and writes, as errors of dbt that name what they are about."""
    try:
        yield
    except (LakebedError, duckdb.Error, pa.ArrowException) as error:
        text = str(error).partition(_TRACEBACK)[0]
        raise DbtRuntimeError(f"{subject}: {text}") from error

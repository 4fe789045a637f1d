"""The plugin as dbt-duckdb names it: sources of lakebed as views, and the requests of the dbt package about models."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
from dbt.adapters.duckdb.connections import DuckDBConnectionManager
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckdb.utils import SourceConfig, TargetConfig
from dbt.flags import get_flags
from dbt_common.exceptions import DbtRuntimeError

from lakebed.dbt_plugin.models import Model, message_of
from lakebed.dbt_plugin.tables import Source, Tables
from lakebed.errors import InvalidOption, LakebedError
from lakebed.operations.once import Once
from lakebed.operations.result import WriteResult
from lakebed.read.dataset import TableDataset
from lakebed.read.scan import Scan


# The commands of dbt in which the dbt package shows, before the first node, what the selected nodes read.
_WITH_HOOKS = ("build", "run", "seed", "snapshot", "test")
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
        if not isinstance(request, dict) or request.get("action") not in ("write", "show"):
            raise DbtRuntimeError(
                f"the model {relation.identifier} is not written to lakebed: a model of lakebed has"
                " materialized='lakebed' from the dbt package that `python -m lakebed.dbt_plugin` names"
            )
        with _errors_about(f"the model {request['model']}"):
            model = Model.of(request)
        with _errors_about(f"the model {model.name}, table {model.table}"):
            if request["action"] == "show":
                request["is_shown"] = self._show_model(model, relation)
                return
            consumed = self._consumed(request)
            if consumed is None:
                result, complete = self._write(model, request, complete=model.full_refresh, once=None), False
            else:
                result, complete = self._consume(model, request, consumed)
            if result is None:
                request.update(message=f"{model.verb}: nothing new", code=model.verb.upper(), rows=0)
                return
            message = message_of(model, result, complete=complete or model.full_refresh)
            request.update(message=message, code=model.verb.upper(), rows=result.rows)

    # -- writing

    def _consumed(self, request: Mapping[str, Any]) -> SourceConfig | None:
        """The source with a consumer that a model reads; None if there is none."""
        consumed = [each for each in map(_source_config, request["sources"]) if _source(each).consumer is not None]
        if not consumed:
            return None
        if len(consumed) > 1:
            names = " and ".join(sorted(f"{each.schema}.{each.identifier}" for each in consumed))
            raise InvalidOption(
                f"the model reads two sources with consumers, {names}",
                hint="leave out the consumer of one: a commit records the position of one consumer",
            )
        if request.get("is_python"):
            raise InvalidOption("a model in Python reads no source with a consumer", hint="write the model in SQL")
        if Model.of(request).verb == "insert_overwrite":
            raise InvalidOption(
                "insert_overwrite would leave nothing but the newest rows of a source with a consumer",
                hint="take verb='upsert' with a key, 'insert' or 'merge', or leave out the consumer",
            )
        return consumed[0]

    def _consume(
        self, model: Model, request: Mapping[str, Any], config: SourceConfig
    ) -> tuple[WriteResult | None, bool]:
        """Write what the model makes of a consumer's next batch, or of all rows up to its end where the table is new or
        made again; also returns which of the two it was. The consumer moves on after the commit."""
        source = _source(config)
        assert source.consumer is not None
        while True:
            with self._tables.open(source.table).consume(source.consumer) as batch:
                is_empty = batch.end == batch.start
                complete = model.full_refresh or self._tables.written(model.table) is None
                if is_empty and not complete:
                    return None, False
                once = None if is_empty else batch.once()
                with self._batch(config, batch.all_rows() if complete else batch):
                    result = self._write(model, request, complete=complete, once=once)
            # the batch of an earlier run was written, but not as all rows
            if not (model.full_refresh and result.skipped):
                return result, complete

    @contextmanager
    def _batch(self, source: SourceConfig, scan: Scan) -> Generator[None]:
        """Let a source have the rows of a batch while the block runs."""
        self._batches[source.table_name()] = scan
        try:
            self._show_source(source)
            yield
        finally:
            del self._batches[source.table_name()]

    def _write(self, model: Model, request: Mapping[str, Any], *, complete: bool, once: Once | None) -> WriteResult:
        """Run the query of a model, and write its rows."""
        with self._cursor() as cursor:
            if request.get("header"):
                cursor.execute(request["header"])
            relation = cursor.sql(request["sql"])
            if relation is None:
                raise InvalidOption("the SQL text of the model is no query, and gives no rows")
            schema = pa.RecordBatchReader.from_stream(relation.limit(0)).schema
            options = {**self._tables.options, **model.options}
            table = self._tables.target(model, schema)
            rows = pa.RecordBatchReader.from_stream(relation)
            return replace(model, options=options).write(table, rows, complete=complete, once=once)

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
            dataset = TableDataset(table.scan())
            self._show(str(Source(model.table)), dataset, str(relation), str(relation.without_identifier()))
        return table is not None

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


def _source_config(entry: Mapping[str, Any]) -> SourceConfig:
    return SourceConfig(**entry)


def _source(config: SourceConfig) -> Source:
    return Source.of(config.schema, config.identifier, config.meta)


@contextmanager
def _errors_about(subject: str) -> Generator[None]:
    """Raise errors of lakebed, and of DuckDB as it reads and writes, as errors of dbt that name what they are about."""
    try:
        yield
    except (LakebedError, duckdb.Error, pa.ArrowException) as error:
        raise DbtRuntimeError(f"{subject}: {error}") from error

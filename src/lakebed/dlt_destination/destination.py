"""The destination as pipelines name it, and what dlt's loader asks of it: jobs, schemas and the state of pipelines.

dlt's own tables are tables like others: `_dlt_version` (schemas), `_dlt_loads` (complete loads) and
`_dlt_pipeline_state`, from which a pipeline on another machine goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from dlt.common import json
from dlt.common.configuration import configspec
from dlt.common.destination import Destination, DestinationCapabilitiesContext
from dlt.common.destination.client import (
    DestinationClientDwhConfiguration,
    FollowupJobRequest,
    JobClientBase,
    LoadJob,
    RunnableLoadJob,
    StateInfo,
    StorageSchemaInfo,
    WithStateSync,
)
from dlt.common.destination.exceptions import (
    DestinationTerminalException,
    DestinationTransientException,
    DestinationUndefinedEntity,
)
from dlt.common.libs.pyarrow import columns_to_arrow
from dlt.common.schema import Schema
from dlt.common.schema.utils import (
    get_columns_names_with_prop,
    get_first_column_name_with_prop,
    get_nested_tables,
    get_root_table,
)
from dlt.common.storages import FileStorage
from dlt.common.storages.load_package import ParsedLoadJobFileName
from dlt.common.utils import digest128
from dlt.destinations.job_impl import FinalizedLoadJobWithFollowupJobs, ReferenceFollowupJobRequest

from lakebed.api import drop
from lakebed.dlt_destination.chain import Dataset, LoadedTable, TableChain
from lakebed.errors import LakebedError, TableNotFound

_COMPLETE = 0
_MAX_NAME = 255


@configspec
class LakebedConfiguration(DestinationClientDwhConfiguration):
    """The configuration of the destination in a pipeline, also in dlt's own files and variables
    (`DESTINATION__LAKEBED__URI`)."""

    destination_type: Final[str] = dataclasses.field(  # type: ignore[misc]
        default="lakebed", init=False, repr=False, compare=False
    )
    uri: str = None  # type: ignore[assignment]  # dlt names what a pipeline has to give by None
    storage_options: dict[str, Any] | None = dataclasses.field(default=None, repr=False)
    create: dict[str, Any] | None = None
    options: dict[str, Any] | None = None

    def data_location(self) -> str:
        """The folder of all datasets."""
        return self.uri

    def fingerprint(self) -> str:
        """A digest of the folder, for dlt's telemetry."""
        return digest128(self.uri) if self.uri else ""

    def __str__(self) -> str:
        return self.uri


class TableChainJob(RunnableLoadJob):
    """A job that writes the tables of one resource, from all their files in the package."""

    def run(self) -> None:
        """Write the tables. Temporary errors are tried again by dlt."""
        client: Any = self._job_client
        try:
            client.chain(self.load_table_name, self._file_path, self._load_id).write()
        except LakebedError as error:
            kind = DestinationTransientException if error.retryable else DestinationTerminalException
            raise kind(str(error)) from error


class LakebedClient(JobClientBase, WithStateSync):
    """The client of one schema of a pipeline."""

    def __init__(
        self, schema: Schema, config: LakebedConfiguration, capabilities: DestinationCapabilitiesContext
    ) -> None:
        super().__init__(schema, config, capabilities)
        dataset = config.normalize_dataset_name(schema)
        folder = "/".join(part for part in (config.uri.rstrip("/"), dataset) if part)
        self._dataset = Dataset(folder, config.storage_options or {}, config.create or {}, config.options or {})

    def __enter__(self) -> LakebedClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    # -- tables

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Create dlt's own tables, or remove the rows of tables."""
        if truncate_tables is None:
            self._own_table(self.schema.version_table_name, ("version_hash", "schema_name"))
        for name in truncate_tables or ():
            if self._dataset.exists(name):
                self._dataset.open(name).insert_overwrite(self._columns(name).empty_table(), "table", progress=False)

    def is_storage_initialized(self) -> bool:
        """Whether the dataset exists."""
        return self._dataset.exists(self.schema.version_table_name)

    def drop_storage(self) -> None:
        """Drop all tables of the schema, dlt's own last."""
        dlt_tables = self.schema.dlt_table_names()
        self.drop_tables(*(name for name in self.schema.tables if name not in dlt_tables), delete_schema=False)
        self.drop_tables(*(name for name in dlt_tables if name != self.schema.version_table_name), delete_schema=False)
        self.drop_tables(self.schema.version_table_name, delete_schema=False)

    def drop_tables(self, *tables: str, delete_schema: bool = True) -> None:
        """Drop tables, and with `delete_schema` delete the stored versions of the schema."""
        for name in tables:
            if self._dataset.exists(name):
                drop(self._dataset.uri(name), storage_options=self._dataset.storage_options)
        if delete_schema and self._dataset.exists(self.schema.version_table_name):
            column = self._name("schema_name")
            rows = self._rows(self.schema.version_table_name, column, self.schema.name)
            if rows:
                versions = self._dataset.open(self.schema.version_table_name)
                keys = [self._name("version_hash"), column]
                versions.delete(pa.Table.from_pylist(rows).select(keys), progress=False)

    def should_truncate_table_before_load(self, table_name: str) -> bool:
        """Always False: rows are replaced by the commit that has the new ones."""
        return False

    def update_stored_schema(
        self,
        only_tables: Iterable[str] | None = None,
        expected_update: Any = None,
        force: bool = False,
    ) -> Any:
        """Record the schema. Tables are created, and get new columns, by the commits of their rows."""
        tables: Any = only_tables
        applied = super().update_stored_schema(tables, expected_update, force)
        if force or self.get_stored_schema_by_hash(self.schema.stored_version_hash) is None:
            row = {
                "version": self.schema.version,
                "engine_version": self.schema.ENGINE_VERSION,
                "inserted_at": datetime.now(UTC),
                "schema_name": self.schema.name,
                "version_hash": self.schema.stored_version_hash,
                "schema": json.dumps(self.schema.to_dict()),
            }
            self._put(self.schema.version_table_name, ("version_hash", "schema_name"), row)
        return applied

    # -- jobs

    def create_load_job(self, table: Any, file_path: str, load_id: str, restore: bool = False) -> LoadJob:
        """A finished job, since files need no preparation, or for the reference of a chain the job that writes them."""
        if ReferenceFollowupJobRequest.is_reference_job(file_path):
            return TableChainJob(file_path)
        return FinalizedLoadJobWithFollowupJobs(file_path)

    def create_table_chain_completed_followup_jobs(
        self, table_chain: Sequence[Any], completed_table_chain_jobs: Sequence[Any] | None = None
    ) -> list[FollowupJobRequest]:
        """The job for all tables of a chain, as a list of one."""
        paths = [job.file_path for job in completed_table_chain_jobs or ()]
        names = {table["name"]: number for number, table in enumerate(table_chain)}
        paths.sort(key=lambda path: names[ParsedLoadJobFileName.parse(path).table_name])
        if not paths:
            return []
        return [ReferenceFollowupJobRequest(FileStorage.get_file_name_from_file_path(paths[0]), paths)]

    def chain(self, name: str, reference: str, load_id: str) -> TableChain:
        """The tables of the resource to which a table belongs, with the files that a job refers to."""
        root: Any = get_root_table(self.schema.tables, name)
        files: dict[str, list[str]] = {}
        for path in ReferenceFollowupJobRequest.resolve_references(reference):
            files.setdefault(ParsedLoadJobFileName.parse(path).table_name, []).append(path)
        nested: list[Any] = get_nested_tables(self.schema.tables, root["name"])
        prepared: list[Any] = [self.prepare_load_table(table["name"]) for table in nested]
        tables = [self._loaded(table, files.get(table["name"], [])) for table in prepared]
        disposition: str = prepared[0].get("write_disposition") or "append"
        return TableChain(load_id, disposition, tables, self._dataset)

    def _loaded(self, table: Any, files: list[str]) -> LoadedTable:
        is_nested = bool(table.get("parent"))
        return LoadedTable(
            table["name"],
            self._columns(table["name"]),
            files,
            key=get_columns_names_with_prop(table, "primary_key"),
            partition_by=get_columns_names_with_prop(table, "partition"),
            root_id=get_first_column_name_with_prop(table, "root_key") if is_nested else None,
            deletes=None if is_nested else get_first_column_name_with_prop(table, "hard_delete"),
        )

    def _columns(self, name: str) -> pa.Schema:
        """The columns of a table; all may be null but in dlt's mind."""
        schema = columns_to_arrow(self.schema.get_table_columns(name), self.capabilities, "UTC")
        return pa.schema([field.with_nullable(True) for field in schema])

    # -- schemas and state

    def complete_load(self, load_id: str) -> None:
        """Record that all tables have the load."""
        row = {
            "load_id": load_id,
            "schema_name": self.schema.name,
            "status": _COMPLETE,
            "inserted_at": datetime.now(UTC),
            "schema_version_hash": self.schema.version_hash,
        }
        self._put(self.schema.loads_table_name, ("load_id",), row)

    def get_stored_schema(self, schema_name: str | None = None) -> StorageSchemaInfo | None:  # type: ignore[override]
        """The newest schema with a name, or of all; None if there is none."""
        column = None if schema_name is None else self._name("schema_name")
        return self._newest_schema(column, schema_name)

    def get_stored_schema_by_hash(self, version_hash: str) -> StorageSchemaInfo | None:  # type: ignore[override]
        """The schema with a hash; None if there is none."""
        return self._newest_schema(self._name("version_hash"), version_hash)

    def get_stored_state(self, pipeline_name: str) -> StateInfo | None:
        """The state of a pipeline in its last complete load; None if there is none."""
        try:
            states = self._rows(self.schema.state_table_name, self._name("pipeline_name"), pipeline_name)
            loads = self._rows(self.schema.loads_table_name, self._name("status"), _COMPLETE)
        except TableNotFound as error:
            raise DestinationUndefinedEntity(str(error)) from error
        complete = {row[self._name("load_id")] for row in loads}
        column = self._name("_dlt_load_id")
        states = [row for row in states if row[column] in complete]
        newest = max(states, key=lambda row: row[column], default=None)
        return None if newest is None else StateInfo.from_normalized_mapping(newest, self.schema.naming)

    def _newest_schema(self, column: str | None, value: str | None) -> StorageSchemaInfo | None:
        name = self.schema.version_table_name
        rows = self._rows(name, column, value) if self._dataset.exists(name) else []
        newest = max(rows, key=lambda row: row[self._name("inserted_at")], default=None)
        return None if newest is None else StorageSchemaInfo.from_normalized_mapping(newest, self.schema.naming)

    def _rows(self, name: str, column: str | None, value: Any) -> list[dict[str, Any]]:
        condition = None if column is None else pc.field(column) == value
        return self._dataset.open(name).scan(where=condition).to_arrow().to_pylist()

    def _put(self, name: str, key: Sequence[str], row: dict[str, Any]) -> None:
        columns = self._columns(name)
        named = {self._name(column): value for column, value in row.items()}
        self._own_table(name, key).upsert(pa.Table.from_pylist([named], columns), progress=False)

    def _own_table(self, name: str, key: Sequence[str]) -> Any:
        return self._dataset.table(name, self._columns(name), [self._name(column) for column in key], ())

    def _name(self, column: str) -> str:
        return self.schema.naming.normalize_identifier(column)


class Lakebed(Destination[LakebedConfiguration, "LakebedClient"]):
    """A destination of dlt: each table of a pipeline is a table in the folder `uri`/dataset/table.

    `create` are arguments of `lakebed.create` for all tables, such as `{"type": "mor"}`, `options` those of each write,
    and `storage_options` those of the storage.

    >>> import dlt, lakebed, tempfile
    >>> from lakebed.dlt_destination import Lakebed
    >>> work = tempfile.mkdtemp()
    >>> lake = Lakebed("memory://docs/dlt")
    >>> pipeline = dlt.pipeline("rides", destination=lake, dataset_name="shop", pipelines_dir=work)
    >>> _ = pipeline.run([{"id": 1, "city": "Rome"}], table_name="rides", write_disposition="merge", primary_key="id")
    >>> lakebed.open("memory://docs/dlt/shop/rides").get([1], columns=["id", "city"]).to_pylist()
    [{'id': 1, 'city': 'Rome'}]
    """

    spec = LakebedConfiguration  # pyright: ignore

    def __init__(
        self,
        uri: str | None = None,
        *,
        create: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        arguments = {"uri": uri, "create": create, "options": options, "storage_options": storage_options}
        super().__init__(**{name: value for name, value in arguments.items() if value is not None}, **more)

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        capabilities = DestinationCapabilitiesContext()
        capabilities.preferred_loader_file_format = "parquet"
        capabilities.supported_loader_file_formats = ["parquet", "reference"]
        capabilities.has_case_sensitive_identifiers = False
        capabilities.max_identifier_length = capabilities.max_column_identifier_length = _MAX_NAME
        capabilities.supports_ddl_transactions = False
        capabilities.supports_nested_types = True
        capabilities.decimal_precision, capabilities.wei_precision = (38, 9), (38, 0)
        capabilities.timestamp_precision = 6
        capabilities.supported_replace_strategies = ["truncate-and-insert"]
        capabilities.supported_merge_strategies = ["upsert"]
        return capabilities

    @property
    def client_class(self) -> type[LakebedClient]:
        """The class that dlt's loader works with."""
        return LakebedClient


Lakebed.register()

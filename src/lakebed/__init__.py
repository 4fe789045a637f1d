"""lakebed: upserts, deletes, indexes and incremental reads on tables in Apache Hudi's format.

>>> import lakebed, pyarrow as pa
>>> trips = pa.table({"id": [1, 2], "city": ["rome", "oslo"], "fare": [9.5, 12.0], "ts": [1, 1]})
>>> t = lakebed.create("memory://readme/trips", trips, key="id", ordering="ts", index="bucket")
>>> t.upsert(trips).inserted
2
>>> t.get([2]).column("fare").to_pylist()
[12.0]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from lakebed import errors
from lakebed.engine.spark_python import use_this_python_later, use_this_python_now
from lakebed.errors import (
    AmbiguousMerge,
    CatalogError,
    CheckFailed,
    CheckpointBehind,
    CommitConflict,
    CommitStateUnknown,
    CorruptFile,
    ErasureIncomplete,
    IndexInconsistent,
    InvalidOption,
    InvalidRecord,
    LakebedError,
    LockTimeout,
    SchemaConflict,
    SourceError,
    StorageError,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
    ValidationFailed,
)

if TYPE_CHECKING:
    __version__: str
    from lakebed import indexes, maintenance, polars, spark, variant
    from lakebed.api import (
        create,
        drop,
        list_tables,
        open,  # noqa: A004
        write,
    )
    from lakebed.diagnosis.findings import Diagnosis
    from lakebed.ingestion.job import IngestJob
    from lakebed.ingestion.result import IngestEvent, IngestResult
    from lakebed.ingestion.run import ingest
    from lakebed.ingestion.source import IngestPoll, IngestSource
    from lakebed.inputs.files import DataFiles
    from lakebed.loading import convert, load
    from lakebed.merge.mergers import Merger
    from lakebed.operations.merge import MergeResult
    from lakebed.operations.once import Once
    from lakebed.operations.result import WriteResult
    from lakebed.queries import sql
    from lakebed.read.lookup import KeyText
    from lakebed.schema.blobs import blob
    from lakebed.schema.logical_types import BLOB, vector
    from lakebed.services.erasure_report import ErasureReport
    from lakebed.spark_sink.stream import stream_into
    from lakebed.statements.duckdb_query import QueryResult
    from lakebed.table import Table
    from lakebed.warehouse import Warehouse

__all__ = [
    "BLOB",
    "AmbiguousMerge",
    "CatalogError",
    "CheckFailed",
    "CheckpointBehind",
    "CommitConflict",
    "CommitStateUnknown",
    "CorruptFile",
    "DataFiles",
    "Diagnosis",
    "ErasureIncomplete",
    "ErasureReport",
    "IndexInconsistent",
    "IngestEvent",
    "IngestJob",
    "IngestPoll",
    "IngestResult",
    "IngestSource",
    "InvalidOption",
    "InvalidRecord",
    "KeyText",
    "LakebedError",
    "LockTimeout",
    "MergeResult",
    "Merger",
    "Once",
    "QueryResult",
    "SchemaConflict",
    "SourceError",
    "StorageError",
    "Table",
    "TableExists",
    "TableNotFound",
    "UnsupportedFeature",
    "ValidationFailed",
    "Warehouse",
    "WriteResult",
    "__version__",
    "blob",
    "convert",
    "create",
    "drop",
    "errors",
    "indexes",
    "ingest",
    "list_tables",
    "load",
    "maintenance",
    "open",
    "polars",
    "spark",
    "sql",
    "stream_into",
    "variant",
    "vector",
    "write",
]

# Loaded when first used: a Spark worker that only writes files needs neither the SQL parser nor the public object.
_LAZY = {
    "BLOB": "lakebed.schema.logical_types",
    "blob": "lakebed.schema.blobs",
    "convert": "lakebed.loading",
    "create": "lakebed.api",
    "drop": "lakebed.api",
    "ingest": "lakebed.ingestion.run",
    "list_tables": "lakebed.api",
    "load": "lakebed.loading",
    "open": "lakebed.api",
    "sql": "lakebed.queries",
    "stream_into": "lakebed.spark_sink.stream",
    "vector": "lakebed.schema.logical_types",
    "write": "lakebed.api",
    "DataFiles": "lakebed.inputs.files",
    "Diagnosis": "lakebed.diagnosis.findings",
    "ErasureReport": "lakebed.services.erasure_report",
    "IngestEvent": "lakebed.ingestion.result",
    "IngestJob": "lakebed.ingestion.job",
    "IngestPoll": "lakebed.ingestion.source",
    "IngestResult": "lakebed.ingestion.result",
    "IngestSource": "lakebed.ingestion.source",
    "KeyText": "lakebed.read.lookup",
    "Merger": "lakebed.merge.mergers",
    "QueryResult": "lakebed.statements.duckdb_query",
    "Table": "lakebed.table",
    "Warehouse": "lakebed.warehouse",
    "MergeResult": "lakebed.operations.merge",
    "Once": "lakebed.operations.once",
    "WriteResult": "lakebed.operations.result",
}


# Modules of functions, imported when first named: `lakebed.spark.create_views`.
_MODULES = ("indexes", "maintenance", "polars", "spark", "variant")


def __getattr__(name: str) -> object:
    if name == "__version__":
        from lakebed.release import VERSION

        return VERSION
    if name in _MODULES:
        return import_module(f"lakebed.{name}")
    if name not in _LAZY:
        raise errors.MissingAttribute("lakebed", name, __all__)
    import_module("lakebed.deferred_pandas").defer_pandas()  # before the first array is made
    return getattr(import_module(_LAZY[name]), name)


use_this_python_later()
use_this_python_now()


def __dir__() -> list[str]:
    return sorted(__all__)

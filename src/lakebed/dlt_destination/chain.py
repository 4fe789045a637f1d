"""The tables of one resource of a load package, a root and those of its nested lists, each written in one commit.

The nested tables are written first: where the row of a root is there, so are its children. A package that is loaded
again finds the commits that it has made, and makes the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakebed.api import create, exists
from lakebed.api import open as open_table
from lakebed.errors import InvalidOption, InvalidRecord, TableExists
from lakebed.model import IS_DELETED_COLUMN
from lakebed.operations.once import Once
from lakebed.secrets import masked_repr
from lakebed.table import Table

_ROW_ID = "_dlt_id"
_NULLS = "hoodie.write.set.null.for.missing.columns"


@dataclass(frozen=True, repr=False)
class Dataset:
    """The location of the tables of a dataset, and the settings for creating and writing them."""

    folder: str
    storage_options: Mapping[str, Any]
    create: Mapping[str, Any]
    options: Mapping[str, Any]

    __repr__ = masked_repr

    def uri(self, name: str) -> str:
        """The URI of one table."""
        return f"{self.folder}/{name}"

    def exists(self, name: str) -> bool:
        """Whether the table exists."""
        return exists(self.uri(name), storage_options=self.storage_options)

    def open(self, name: str) -> Table:
        """An existing table."""
        return open_table(self.uri(name), storage_options=self.storage_options)

    def table(self, name: str, schema: pa.Schema, key: Sequence[str], partition_by: Sequence[str]) -> Table:
        """The table, which is created if it does not exist."""
        if not self.exists(name):
            arguments: dict[str, Any] = {
                "key": list(key) or None,
                "partition_by": list(partition_by) or None,
                **self.create,
            }
            try:
                return create(self.uri(name), schema, storage_options=self.storage_options, **arguments)
            except TableExists:  # another pipeline made it meanwhile
                pass
        return self.open(name)


@dataclass(frozen=True)
class LoadedTable:
    """One table of a chain, as the load package describes it. `schema` has its columns. `root_id` is the column of a
    nested table with the row id of its root, `deletes` the column of a root that marks deleted rows."""

    name: str
    schema: pa.Schema
    files: Sequence[str] = ()
    key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    root_id: str | None = None
    deletes: str | None = None

    def record_key(self, disposition: str) -> Sequence[str]:
        """The record key for the creation of the table: the primary key of a root that is merged, otherwise the row id
        if there is one."""
        if disposition == "merge" and self.root_id is None and self.key:
            return self.key
        return [_ROW_ID] if _ROW_ID in self.schema.names else []

    def read(self) -> pa.Table:
        """The rows of all files."""
        if not self.files:
            return self.schema.empty_table()
        return self.stream().read_all()

    def stream(self) -> pa.RecordBatchReader:
        """The rows of all files, in parts; columns that a file does not have are null."""
        schemas = [ds.dataset(path, format="parquet").schema for path in self.files]
        schema = pa.unify_schemas([s.remove_metadata() for s in schemas], promote_options="permissive")
        return ds.dataset(list(self.files), schema=schema, format="parquet").scanner().to_reader()


@dataclass
class TableChain:
    """A root table, first, and its nested tables in one load. `disposition` is "append", "replace" or "merge"."""

    load_id: str
    disposition: str
    tables: Sequence[LoadedTable]
    dataset: Dataset
    _root_ids: Any = field(default=None, init=False)
    _deleted_ids: Any = field(default=None, init=False)

    def write(self) -> None:
        """Write all tables, the nested ones first. Tables that already have this load are unchanged."""
        root = self.tables[0]
        rows = root.read() if self.disposition == "merge" else None
        if rows is not None and len(self.tables) > 1:
            _check_keys(rows, root)
        if rows is not None and _ROW_ID in rows.column_names:
            self._root_ids = rows.column(_ROW_ID).combine_chunks()
            self._deleted_ids = self._root_ids.filter(_deletes(rows, root))
        for table in reversed(self.tables[1:]):
            if table.files or self.dataset.exists(table.name):
                self._write(table, None)
        self._write(root, rows)

    def _write(self, loaded: LoadedTable, rows: pa.Table | None) -> None:
        key = loaded.record_key(self.disposition)
        table = self.dataset.table(loaded.name, loaded.schema, key, loaded.partition_by)
        stored = [name for name in table.properties.get("hoodie.table.recordkey.fields", "").split(",") if name]
        if self.disposition == "merge" and stored != list(key):
            raise InvalidOption(
                f"the table {loaded.name} has the record key {', '.join(stored) or 'of generated values'}, and rows are"
                f" merged by {', '.join(key)}",
                hint='load it again once: pipeline.run(..., refresh="drop_resources")',
                context={"table": loaded.name, "key": stored},
            )
        arguments: dict[str, Any] = {
            "once": Once(f"dlt/{self.load_id}", 0, "dlt"),
            "options": {_NULLS: True, **self.dataset.options},
            "progress": False,
        }
        if self.disposition == "merge":
            if rows is None:
                rows = self._children(loaded, table)
            elif loaded.deletes is not None:
                rows = rows.append_column(IS_DELETED_COLUMN, _deletes(rows, loaded))
            table.upsert(rows, **arguments)
        elif self.disposition == "replace":
            table.insert_overwrite(
                loaded.stream() if loaded.files else loaded.schema.empty_table(), "table", **arguments
            )
        elif loaded.files:
            table.insert(loaded.stream(), **arguments)

    def _children(self, loaded: LoadedTable, table: Table) -> pa.Table:
        """The rows of a nested table, and deletes of the stored rows that their roots do not have any more."""
        rows = loaded.read()
        if loaded.root_id is None or self._root_ids is None:
            return rows
        rows = rows.filter(pc.invert(pc.is_in(rows.column(loaded.root_id), self._deleted_ids)))
        columns = list(dict.fromkeys([_ROW_ID, loaded.root_id, *loaded.partition_by]))
        stored = table.scan(columns=columns).to_arrow().select(columns)
        is_old = pc.and_not(
            pc.is_in(stored.column(loaded.root_id), self._root_ids),
            pc.is_in(stored.column(_ROW_ID), rows.column(_ROW_ID)),
        )
        old = stored.filter(is_old)
        if not old.num_rows:
            return rows
        marks = pa.array(np.repeat([False, True], [rows.num_rows, old.num_rows]))
        together = pa.concat_tables([rows, old], promote_options="permissive")
        return together.append_column(IS_DELETED_COLUMN, marks)


def _check_keys(rows: pa.Table, root: LoadedTable) -> None:
    """Raise `InvalidRecord` for two rows with one key: it would be unknown to which of them rows of nested tables
    belong."""
    if not root.key or not rows.num_rows:
        return
    counts = rows.select(list(root.key)).group_by(list(root.key), use_threads=False).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts.column("count_all"), 1)).drop_columns(["count_all"])
    if repeated.num_rows:
        key = repeated.slice(0, 1).to_pylist()[0]
        raise InvalidRecord(
            f"a load package has several rows of the key {key} of the table {root.name}, which has nested tables",
            hint="yield each key once in a run, with its newest row, or load the rows one after the other",
            context={"table": root.name, "key": {name: str(value) for name, value in key.items()}},
        )


def _deletes(rows: pa.Table, loaded: LoadedTable) -> Any:
    """Flags of the rows that are deletes: those marked by true, or by any value of a column that is not boolean."""
    if loaded.deletes is None or loaded.deletes not in rows.column_names:
        return pa.repeat(pa.scalar(False), rows.num_rows)
    marks = rows.column(loaded.deletes).combine_chunks()
    return pc.fill_null(marks, False) if pa.types.is_boolean(marks.type) else pc.is_valid(marks)

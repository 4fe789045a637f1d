"""Small tables in memory that most tests begin with, and what a verb or a service of one is given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.config.options import resolve_options
from lakebed.engine.local import LocalEngine
from lakebed.operations.context import WriteContext
from lakebed.operations.hudi_job import write_context
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.table import Table
from support.write_tables import SCHEMA

# What most tables of tests have: a key, partition paths, and the order of a key's rows.
KEYED: Mapping[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts"}
_numbers = itertools.count()


def new_table(*stored: pa.Table, schema: pa.Schema = SCHEMA, uri: str = "", **given: Any) -> Table:
    """A table of its own in memory, or at `uri`, with the rows of one upsert after the other. It has `KEYED` and what
    `lakebed.create` is given, and one bucket where it has a bucket index and no number is given."""
    words: dict[str, Any] = {**KEYED, **({"buckets": 1} if given.get("index") == "bucket" else {}), **given}
    table = lakebed.create(uri or f"memory://tables/{next(_numbers)}", schema, **words)
    for rows in stored:
        table.upsert(rows)
    return table


def of_kind(
    make: Callable[..., Table], version: int = 9, kind: str = "cow", index: str = "record", **given: Any
) -> Table:
    """The table that a fixture `make` makes of this version, type and index; two buckets where it hashes keys."""
    return make(type=kind, index=index, table_version=version, **({"buckets": 2} if index == "bucket" else {}), **given)


def context_of(table: Table | Storage, **options: Any) -> WriteContext:
    """What a verb or a service of this table is given, in this process."""
    storage = open_storage(table.uri) if isinstance(table, Table) else table
    return write_context(storage, load_table_config(storage), LocalEngine(), resolve_options(options))

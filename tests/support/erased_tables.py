"""Tables with one row whose values are unmistakable, in several versions of it, to be erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from lakebed.table import Table

Row = dict[str, Any]
ERASED = 500
KEY, MAIL, FORMER_MAIL, NUMBER = "key-00000500", "new-mail-00000500", "old-mail-00000500", 9_912_345_678_901
# What no file may hold afterwards.
VALUES: tuple[str | int, ...] = (KEY, MAIL, FORMER_MAIL, NUMBER)
# Each file group of an index is a file of every write: one is as good as Hudi's ten.
OPTIONS = {"hoodie.metadata.global.record.level.index.min.filegroup.count": 1}


def rows(numbers: Sequence[int], at: int = 1, mail: str = "new") -> pa.Table:
    """Rows in two partitions; that of `ERASED` has the largest values of its columns."""
    return pa.table(
        {
            "id": [f"key-{n:08d}" for n in numbers],
            "part": ["even" if n % 2 == 0 else "odd" for n in numbers],
            "mail": [f"{mail}-mail-{n:08d}" for n in numbers],
            "num": [NUMBER if n == ERASED else 7_700_000_000_000 + n for n in numbers],
            "tags": [[f"{mail}-mail-{n:08d}", "tag"] for n in numbers],
            "at": [at] * len(numbers),
        }
    )


def new_table(uri: str, kind: str = "cow", index: str = "simple", version: int = 9, **properties: Any) -> Table:
    """A table with six rows in two commits, and three versions of the row that is erased later."""
    indexes = ["bloom_filters"] if index != "bucket" else []
    indexes += ["mail"] if index == "record" and version > 6 else []
    table = lakebed.create(
        uri,
        rows([1]).schema,
        key="id",
        partition_by="part",
        ordering="at",
        type=kind,  # pyright: ignore[reportArgumentType]
        index=index,
        indexes=indexes,
        buckets=1 if index == "bucket" else None,
        table_version=version,
        properties=properties,
    )
    table.upsert(rows([1, 2, 3, ERASED], mail="old"), options=OPTIONS)
    table.upsert(rows([2, ERASED], 2), options=OPTIONS)
    table.upsert(rows([4, 5, ERASED], 3), options=OPTIONS)
    return table


def content(table: Table) -> list[Row]:
    """All rows with the meta columns that a rewrite of their files leaves alone, by key."""
    found = table.scan(meta=True).to_arrow().drop_columns(["_hoodie_file_name"])
    return found.sort_by("_hoodie_record_key").to_pylist()


def others(table: Table) -> list[Row]:
    """The rows but for the one that is erased."""
    found = table.scan(meta=True).to_arrow().drop_columns(["_hoodie_file_name"])
    return found.filter(pc.not_equal(found["id"], KEY)).sort_by("_hoodie_record_key").to_pylist()

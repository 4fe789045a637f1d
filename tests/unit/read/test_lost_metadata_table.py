"""Every call on a table whose metadata table is lost names it once, and says how to build it again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CorruptFile
from support.write_tables import rows

DATA = rows((1, "a", "x", 1), (2, "a", "y", 1))
CALLS: dict[str, Callable[[lakebed.Table], Any]] = {
    "scan": lambda t: t.scan().count(),
    "get": lambda t: t.get([1]),
    "changes": lambda t: t.changes("000").count(),
    "upsert": lambda t: t.upsert(DATA),
    "insert": lambda t: t.insert(DATA),
    "delete": lambda t: t.delete([1]),
    "clean": lambda t: t.maintenance.clean(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("index", "version"), [("simple", 9), ("record", 9), ("bucket", 8), ("simple", 6)])
def test_the_error_names_the_metadata_table_once_and_the_repair(
    tmp_path: Path, call: str, index: str, version: int
) -> None:
    uri = str(tmp_path / "t")
    buckets = 1 if index == "bucket" else None
    table = lakebed.create(uri, DATA, key="id", index=index, buckets=buckets, table_version=version)
    table.upsert(DATA)
    shutil.rmtree(tmp_path / "t" / ".hoodie" / "metadata")
    with pytest.raises(CorruptFile) as raised:
        CALLS[call](lakebed.open(uri))
    assert raised.value.message.count("metadata table") in (1, 2)
    assert raised.value.message.count("cannot be read") == 1
    assert "is missing" in raised.value.message
    assert "t.indexes.repair()" in raised.value.hint
    lakebed.open(uri).indexes.repair()
    assert lakebed.open(uri).count() == 2

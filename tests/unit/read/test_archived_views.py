"""Time travel to commits that the archive has, whose files are not cleaned away."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from lakebed.table import Table

KEEP = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.metadata.compact.max.delta.commits": 1,
}
INDEXES = ["simple", "bucket", "record"]


def rows(count: int, kind: pa.DataType, **more: Any) -> pa.Table:
    columns: dict[str, Any] = {"id": [1, count], "n": pa.array([count, count], kind), **more}
    return pa.table(columns)


def archived(version: int, type_: Any, index: str) -> tuple[Table, list[str]]:
    """A table of nine commits. The second adds a column, the third widens one; at least the first four are archived."""
    first = rows(2, pa.int32())
    buckets = 1 if index == "bucket" else None
    t = lakebed.create(
        f"memory://archived/{uuid.uuid4().hex}",
        first,
        key="id",
        type=type_,
        index=index,
        table_version=version,
        buckets=buckets,
    )
    wide = {**KEEP, "lakebed.write.evolution": "widen"}
    made = [t.upsert(first, options=KEEP).instant]
    made.append(t.upsert(rows(3, pa.int32(), text=["b", "c"]), options=KEEP).instant)
    made.append(t.upsert(rows(4, pa.int64(), text=["d", "e"]), options=wide).instant)
    made += [t.upsert(rows(n, pa.int64(), text=["x", "y"]), options=KEEP).instant for n in range(5, 11)]
    t.maintenance.archive(options={**KEEP, "hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4})
    return t, made


def visible_rows(t: Table, instant: str) -> list[tuple[Any, ...]]:
    found = t.scan(as_of=instant).to_arrow().sort_by("id")
    return [tuple(found.schema.names), *(tuple(row.values()) for row in found.to_pylist())]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_the_schema_is_that_of_the_archived_commit(version: int, type_: str, index: str) -> None:
    t, made = archived(version, type_, index)
    assert open_snapshot(open_storage(t.uri)).commits[0].time > made[3]
    assert visible_rows(t, made[0]) == [("id", "n"), (1, 2), (2, 2)]
    assert visible_rows(t, made[1]) == [("id", "n", "text"), (1, 3, "b"), (2, 2, None), (3, 3, "c")]
    assert visible_rows(t, made[3])[1:] == [(1, 5, "x"), (2, 2, None), (3, 3, "c"), (4, 4, "e"), (5, 5, "y")]
    assert t.scan(as_of=made[1]).to_arrow().schema.field("n").type == pa.int32()
    assert t.scan(as_of=made[2]).to_arrow().schema.field("n").type == pa.int64()

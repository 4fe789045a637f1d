"""Columns with names that mean something else elsewhere: keywords, functions, other cases, other scripts; what Avro
cannot name is refused."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import SchemaConflict
from lakebed.storage.memory import MemoryStorage

KEPT = ["select", "count", "null", "true", "order", "timestamp", "interval", "case", "Upper", "_x", "ünï", "日本"]
REFUSED = ["a.b", "with space", 'quo"te', "apo'strophe", "back`tick", "1st", "a-b", "", "a,b", "x\ny", "😀", "max(x)"]


def columns(name: str) -> pa.Schema:
    nested = pa.struct([(name, pa.int64())])
    return pa.schema(
        [("id", pa.int64()), (name, pa.int64()), ("in_it", nested), ("p", pa.string()), ("ts", pa.int64())]
    )


def some(name: str, *given: tuple[int, int, str, int]) -> pa.Table:
    ids, values, paths, ts = (list(c) for c in zip(*given, strict=True))
    return pa.table([ids, values, [{name: v} for v in values], paths, ts], schema=columns(name))


@pytest.mark.parametrize("name", KEPT)
def test_a_column_of_any_name_is_written_indexed_and_filtered(name: str) -> None:
    folder = f"names-{uuid.uuid4().hex}"
    table = lakebed.create(
        f"memory://{folder}/t", columns(name), key="id", partition_by="p", ordering="ts", index="record", indexes=[name]
    )
    first = table.upsert(some(name, (1, 10, "a", 1), (2, 20, "a", 1), (3, 30, "b", 1)))
    table.upsert(some(name, (2, 21, "a", 2)))

    def values(found: pa.Table) -> list[int]:
        return sorted(found.column(name).to_pylist())

    assert values(table.scan().to_arrow()) == values(table.scan([name]).to_arrow()) == [10, 21, 30]
    assert values(table.scan(where=f"`{name}` > 15").to_arrow()) == [21, 30]
    assert values(table.scan(where=f"in_it.`{name}` > 15").to_arrow()) == [21, 30]
    assert values(table.scan(where=pc.field(name) > 15).to_arrow()) == [21, 30]
    assert table.scan(where=f"`{name.upper()}` > 15").count() == 2
    assert len(table.scan(where=f"`{name}` > 25").files) == 1
    assert table.scan(where=f"`{name}` = 21").count() == 1
    assert values(table.get([2])) == values(table.get([2], columns=[name])) == [21]
    assert values(table.changes(first.checkpoint).to_arrow()) == [21]
    assert values(table.changes("000", where=f"`{name}` < 15").to_arrow()) == [10]
    assert table.indexes.verify().ok, table.indexes.verify()
    assert table.delete(where=f"`{name}` = 21").deleted == 1
    assert values(table.scan().to_arrow()) == [10, 30]
    MemoryStorage.drop(folder)


@pytest.mark.parametrize("role", ["key", "partition_by", "ordering"])
@pytest.mark.parametrize("name", ["select", "Upper", "ünï"])
def test_a_column_that_makes_keys_paths_or_order(name: str, role: str) -> None:
    folder = f"names-{uuid.uuid4().hex}"
    schema = pa.schema([("id", pa.int64()), (name, pa.int64()), ("v", pa.string())])
    words: dict[str, Any] = {"key": "id", "index": "global_simple"} | {role: name}
    table = lakebed.create(f"memory://{folder}/t", schema, **words)
    table.upsert(pa.table([[1, 2], [5, 6], ["a", "b"]], schema=schema))
    table.upsert(pa.table([[1, 2], [5, 6], ["c", "d"]], schema=schema))
    assert sorted(table.scan(where=f"`{name}` >= 5").to_arrow()["v"].to_pylist()) == ["c", "d"]
    assert table.scan(["v"], f"`{name}` = 6").to_arrow()["v"].to_pylist() == ["d"]
    assert table.get([6 if role == "key" else 2])["v"].to_pylist() == ["d"]
    MemoryStorage.drop(folder)


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_avro_does_not_allow(name: str) -> None:
    folder = f"names-{uuid.uuid4().hex}"
    with pytest.raises(SchemaConflict):
        lakebed.create(f"memory://{folder}/t", columns(name), key="id", index="simple")
    table = lakebed.create(f"memory://{folder}/t", columns("v"), key="id", index="simple")
    with pytest.raises(SchemaConflict):
        table.upsert(some(name, (1, 10, "a", 1)))
    assert table.count() == 0
    MemoryStorage.drop(folder)

"""Base files whose maps have OPTIONAL keys, as Flink wrote them before Hudi 0.14, are read as they are meant."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from lakebed.format.optional_map_keys import as_maps, with_maps
from support.golden_tables import golden
from support.same_rows import assert_same_rows

NAME = "flinkfiles_v9_types_old"


def test_every_row_of_such_a_file_is_read(tmp_path: Path) -> None:
    table = golden(NAME)
    t = lakebed.open(str(table.unpack(tmp_path)))
    assert_same_rows(t.scan().to_arrow(), table.expected)
    assert pa.types.is_map(t.schema.field("m").type)
    for columns in (["m"], ["id", "m", "arr"], ["r", "id"]):
        assert_same_rows(t.scan(columns).to_arrow(), table.expected.select(columns))
    for filter, ids in (("id = 2", [2]), ("id > 2 AND m IS NOT NULL", None)):
        expected = table.expected.filter(
            pc.field("id") == 2 if ids else (pc.field("id") > 2) & pc.field("m").is_valid()
        )
        assert_same_rows(t.scan(where=filter).to_arrow(), expected)
    assert_same_rows(t.get([1, 3]), table.expected.filter(pc.field("id").isin([1, 3])))
    assert t.indexes.verify().ok


def test_a_write_to_such_a_table_keeps_its_maps_and_writes_required_keys(tmp_path: Path) -> None:
    table = golden(NAME)
    t = lakebed.open(str(table.unpack(tmp_path)))
    rows = t.scan().to_arrow()
    ids = rows["id"].to_pylist()
    changed = rows.slice(0, 1)
    at = rows.schema.get_field_index("m")
    t.upsert(changed.set_column(at, "m", pa.array([[("new", 7)]], rows.schema.field("m").type)))
    after = {row["id"]: row["m"] for row in t.scan().to_arrow().to_pylist()}
    before = dict(zip(ids, rows["m"].to_pylist(), strict=True))
    assert after == before | {ids[0]: [("new", 7)]}
    t.upsert(rows)
    assert_same_rows(t.scan().to_arrow(), table.expected)


def test_lists_structs_and_maps_around_such_maps_are_read_too() -> None:
    pairs = pa.list_(pa.field("key_value", pa.struct([("key", pa.binary()), ("value", pa.int32())])))
    values = [[(b"a", 1), (b"b", None)], None, [], [(b"c", 3)]]
    stored = pa.array([None if v is None else [{"key": k, "value": n} for k, n in v] for v in values], pairs)
    nested = pa.StructArray.from_arrays([stored, pa.array([1, 2, 3, 4])], ["m", "n"])
    listed = pa.ListArray.from_arrays([0, 2, 2, 4], stored)
    columns = {"m": stored, "s": nested, "sliced": stored}
    schema = with_maps(pa.schema([(name, column.type) for name, column in columns.items()]))
    maps = [None if v is None else [(k.decode(), n) for k, n in v] for v in values]
    assert as_maps(stored, schema.field("m").type).to_pylist() == maps
    assert as_maps(stored.slice(1, 3), schema.field("m").type).to_pylist() == maps[1:]
    assert as_maps(nested, schema.field("s").type).to_pylist() == [
        {"m": m, "n": n} for m, n in zip(maps, (1, 2, 3, 4), strict=True)
    ]
    of_lists = with_maps(pa.schema([("l", listed.type)])).field("l").type
    assert as_maps(listed, of_lists).to_pylist() == [maps[:2], [], maps[2:]]

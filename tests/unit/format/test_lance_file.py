"""Lance base files: tables of real Hudi, tables of lakebed under every index, and what is refused."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.format.base_file import BLOOM_KEY, BLOOM_TYPE_KEY, MAX_KEY, MIN_KEY, read_base_file, read_footer
from lakebed.format.file_contents import row_batches
from lakebed.format.lance_file import LANCE, LanceFileWriter
from lakebed.storage import open_storage
from support.format_tables import SCHEMA, by_key, expected, in_file, lance_rows, lance_table, unpacked
from support.same_rows import assert_same_rows

NAME = "p/f-0_0-0-0_20240101000000000.lance"
QUERY = [3.0, 1.0, 2.0, 0.5]


def stored(rows: pa.Table, uri: str = "memory://lance/file", **footer: str) -> Any:
    storage = open_storage(uri)
    writer = LanceFileWriter(storage.create(NAME), rows.schema)
    for batch in rows.to_batches():
        writer.write(batch)
    size = writer.close(footer)
    info = storage.head(NAME)
    assert info is not None
    assert info.size == size
    return storage


@pytest.fixture
def hudi(tmp_path: Path) -> lakebed.Table:
    return lakebed.open(unpacked("lance_cow", tmp_path))


def test_a_table_of_hudi_has_the_rows_that_hudi_reads(hudi: lakebed.Table) -> None:
    rows = expected("lance_cow")
    assert_same_rows(hudi.scan(rows.column_names).to_arrow(), rows)
    assert hudi.schema.field("emb").type == lakebed.vector(4)
    assert hudi.get(["k001", "nobody"])["emb"].to_pylist() == [[250.5, 250.75, 251.0, 251.25]]
    assert hudi.scan(where="ts > 30 AND id <> 'k035'").to_arrow().num_rows == 13
    assert hudi.indexes.verify().ok


def test_older_views_and_changes_of_a_table_of_hudi(hudi: lakebed.Table) -> None:
    first, last = "20261128185432826", "20261128185500842"
    assert hudi.scan(as_of=first).to_arrow().num_rows == 40
    assert hudi.scan(["name"], where="id = 'k006'", as_of=first).to_arrow()["name"].to_pylist() == ["name 6"]
    assert hudi.get(["k006"]).num_rows == 0
    assert hudi.changes("earliest").to_arrow().num_rows == 39
    assert hudi.changes(last).to_arrow().num_rows == 0


def test_the_nearest_vectors_are_those_of_all_rows(hudi: lakebed.Table) -> None:
    nearest = hudi.search(QUERY, 3, metric="l2").to_arrow()
    rows = [row for row in expected("lance_cow").to_pylist() if row["emb"] is not None]
    distances = np.sqrt([((np.array(row["emb"]) - np.array(QUERY)) ** 2).sum() for row in rows])
    order = np.argsort(distances, kind="stable")[:3]
    assert nearest["id"].to_pylist() == [rows[at]["id"] for at in order]
    assert nearest["_hudi_distance"].to_pylist() == pytest.approx(distances[order].tolist(), abs=1e-6)


def test_a_table_of_hudi_is_written_on(hudi: lakebed.Table, tmp_path: Path) -> None:
    model = by_key(hudi)
    changed = {"id": "k001", "emb": [1.0, 2.0, 3.0, 4.0], "name": "here", "ts": 5000, "part": "p1"}
    new = {"id": "new", "emb": None, "name": "here", "ts": 1, "part": "p9"}
    hudi.upsert([changed, new])
    assert hudi.delete(["k003"]).deleted == 1
    del model["k003"]
    assert by_key(hudi) == model | {"k001": changed, "new": new}
    assert hudi.indexes.verify().ok
    assert {path.suffix for path in (tmp_path / "lance_cow").glob("part=*/*-*")} == {".lance"}


@pytest.mark.parametrize("index", ["simple", "bloom", "record", "bucket"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_kind_of_write_and_service_keeps_the_rows(kind: str, index: str) -> None:
    table = lance_table(kind, index=index, **({"buckets": 2} if index == "bucket" else {}))
    model = in_file(rows := lance_rows(range(50)))
    table.bulk_insert(rows)
    assert by_key(table) == model
    changed = lance_rows(range(5, 9), 2, name="changed")
    table.upsert([*changed, *lance_rows(range(50, 55))])
    assert table.delete(["k010", "k011"]).deleted == 2
    table.update({"name": "'updated'"}, where="id = 'k020'")
    if kind == "mor":
        table.maintenance.compact()
    model |= in_file([*changed, *lance_rows(range(50, 55))])
    model = {key: row for key, row in model.items() if key not in ("k010", "k011")}
    model["k020"] = {**model["k020"], "name": "updated"}
    assert in_file(list(by_key(table).values())) == model
    assert in_file(table.get(["k007", "k020", "k010"]).to_pylist()) == {key: model[key] for key in ("k007", "k020")}
    assert table.scan(where="n BETWEEN 40 AND 46").to_arrow().num_rows == 6
    table.maintenance.cluster()
    assert in_file(list(by_key(table).values())) == model
    assert table.indexes.verify().ok


def test_small_files_are_joined_and_sorted_files_stay_sorted(tmp_path: Path) -> None:
    table = lance_table(uri=str(tmp_path / "t"), partition_by=None, sort="key", index="bloom")
    for start in (20, 0, 10):
        table.bulk_insert(lance_rows(range(start, start + 10)))
    assert len(list((tmp_path / "t").glob("*.lance"))) == 3
    assert table.maintenance.merge_small_files().runs
    assert by_key(table) == in_file(lance_rows(range(30)))
    assert table.scan(["id"]).to_arrow()["id"].to_pylist() == [f"k{n:03d}" for n in range(30)]


def test_columns_are_added_and_dropped() -> None:
    table = lance_table(partition_by=None)
    table.upsert(lance_rows(range(10)))
    table.columns.add("more", pa.struct([("x", pa.int32())]))
    table.columns.drop("tags")
    row = {key: value for key, value in lance_rows(range(1, 2), 2)[0].items() if key != "tags"}
    table.upsert([{**row, "more": {"x": 1}}])
    rows = by_key(table)
    assert rows["k001"]["more"] == {"x": 1}
    assert rows["k002"]["more"] == {"x": None}  # its file has no structs that are null
    assert "tags" not in rows["k001"]


def test_a_file_has_what_hudi_stores_in_it(tmp_path: Path) -> None:
    table = lance_table(uri=str(tmp_path / "t"), partition_by=None, index="bloom")
    table.upsert(lance_rows(range(20)))
    (path,) = (tmp_path / "t").glob("*.lance")
    footer = read_footer(open_storage(str(tmp_path / "t")), path.name)
    assert set(footer.key_values) == {MIN_KEY, MAX_KEY, BLOOM_KEY, BLOOM_TYPE_KEY, "hoodie.vector.columns"}
    assert footer.key_range == ("k000", "k019")
    assert footer.key_values["hoodie.vector.columns"] == "emb:VECTOR(4)"
    bloom = footer.bloom()
    assert bloom is not None
    assert bloom.might_contain(pa.array(["k000", "k019"])).to_pylist() == [True, True]
    from lance.file import LanceFileReader

    metadata = LanceFileReader(str(path)).metadata()
    assert (metadata.major_version, metadata.minor_version) == (0, 3)
    assert metadata.schema.field("emb").metadata[b"hudi_type"] == b"VECTOR(4)"
    assert all(field.nullable for field in metadata.schema)


def test_only_the_rows_of_keys_are_read() -> None:
    rows = pa.table({"_hoodie_record_key": [f"k{n:05d}" for n in range(20_000)], "n": range(20_000)})
    storage = stored(rows)
    with LANCE.open(storage, NAME, None) as source:
        reader = LANCE.rows(source, LANCE.footer(source, NAME))
        assert reader.take(0, np.array([3, 7, 19_999]), ["n"])["n"].to_pylist() == [3, 7, 19_999]
        assert reader.take(0, np.array([3, 7]), []).num_rows == 2
        assert max(b.num_rows for b in reader.iter_batches(1000, [0], ["n"])) <= 1000


def test_columns_of_every_type_come_back() -> None:
    rows = pa.table(
        {
            "text": ["a", None, "ü"],
            "flag": [True, None, False],
            "number": pa.array([1, None, 3], pa.int64()),
            "half": pa.array([0.5, None, float("inf")], pa.float32()),
            "money": pa.array([1, None, 3], pa.decimal128(10, 2)),
            "day": pa.array([0, None, -3], pa.date32()),
            "at": pa.array([0, None, -5], pa.timestamp("us", "UTC")),
            "local": pa.array([0, None, -5], pa.timestamp("us")),
            "raw": pa.array([b"x", None, b""], pa.binary()),
            "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
            "lists": pa.array([[1], None, []], pa.list_(pa.int64())),
            "structs": pa.array([[{"x": 1}], None, []], pa.list_(pa.struct([("x", pa.int32())]))),
            "doubles": pa.array([[1.5, 2.5], None, [3.5, 4.5]], lakebed.vector(2, "double")),
        }
    )
    storage = stored(rows)
    found = pa.Table.from_batches(read_base_file(storage, NAME))
    assert found.to_pylist() == rows.to_pylist()
    assert pa.Table.from_batches(row_batches(storage.read(NAME), NAME)).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("cut", [0, 1], ids=["whole", "sliced"])
def test_a_struct_that_is_null_becomes_one_of_nulls_at_every_level(cut: int) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
    values = [{"x": 1, "y": None}, None, {"x": None, "y": {"z": "a"}}]
    lists = [[{"x": 1, "y": None}, None], None, []]
    rows = pa.table({"s": pa.array(values, inner), "l": pa.array(lists, pa.list_(inner))}).slice(cut)
    found = pa.Table.from_batches(read_base_file(stored(rows), NAME)).to_pylist()
    none = {"x": None, "y": {"z": None}}
    assert [row["s"] for row in found] == [{"x": 1, "y": {"z": None}}, none, {"x": None, "y": {"z": "a"}}][cut:]
    assert [row["l"] for row in found] == [[{"x": 1, "y": {"z": None}}, none], None, []][cut:]


def test_a_file_without_rows_is_read() -> None:
    storage = stored(pa.schema([("a", pa.int64())]).empty_table(), hoodie_min_record_key="a")
    footer = read_footer(storage, NAME)
    assert (footer.rows, footer.row_groups, footer.key_values) == (0, 0, {"hoodie_min_record_key": "a"})
    assert list(read_base_file(storage, NAME)) == []


@pytest.mark.parametrize(
    ("low", "high", "is_used"), [("a", "z", True), ("a", "\ufffd", False), ("\U0001f600", "z", False)]
)
def test_the_range_of_keys_is_used_where_java_orders_texts_as_utf8_does(low: str, high: str, is_used: bool) -> None:
    from lakebed.format.footer_cache import KeyFooter

    rows = pa.table({"_hoodie_record_key": ["b"]})
    footer = read_footer(stored(rows, **{MIN_KEY: low, MAX_KEY: high}), NAME)
    assert KeyFooter(footer, 1).ranges == [(low, high) if is_used else None]


@pytest.mark.parametrize("uri", ["memory://lance/broken", ""])
@pytest.mark.parametrize("damage", ["cut", "size", "missing"])
def test_a_broken_file_is_named(damage: str, uri: str, tmp_path: Path) -> None:
    storage = stored(pa.table({"a": range(1000)}), uri or str(tmp_path))
    data = storage.read(NAME)
    size = len(data)
    if damage == "cut":
        storage.write(NAME, data[:-20])
        size -= 20
    elif damage == "missing":
        storage.delete(NAME)
    else:
        size += 1
    with pytest.raises(CorruptFile, match=f"{NAME} (cannot be read as Lance|is missing)"):
        list(read_base_file(storage, NAME, size))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.map_(pa.string(), pa.int32()), "has a map"),
        (pa.list_(pa.map_(pa.string(), pa.int32())), "has a map"),
        (lakebed.vector(3, "int8"), r"VECTOR\(3, INT8\)"),
    ],
    ids=["map", "map in a list", "int8"],
)
def test_columns_that_a_file_cannot_have_are_refused_by_name(kind: pa.DataType, why: str) -> None:
    schema = pa.schema([("id", pa.string()), ("c", kind)])
    with pytest.raises(UnsupportedFeature, match=f"column c .*{why}"):
        lakebed.create("memory://lance/refused", schema, key="id", base_format="lance")
    table = lance_table(partition_by=None)
    with pytest.raises(UnsupportedFeature, match=f"column c .*{why}"):
        table.columns.add("c", kind)
    table.upsert(lance_rows(range(2)))
    with pytest.raises(UnsupportedFeature, match=f"column c .*{why}"):
        table.upsert(pa.Table.from_pylist([], schema=SCHEMA).append_column(pa.field("c", kind), pa.nulls(0, kind)))
    assert table.schema.names == SCHEMA.names


def test_a_variant_is_refused_by_name() -> None:
    schema = pa.schema([("id", pa.string()), ("doc", lakebed.variant.TYPE)])
    with pytest.raises(UnsupportedFeature, match="column doc is a VARIANT"):
        lakebed.create("memory://lance/refused", schema, key="id", base_format="lance")
    table = lance_table(partition_by=None)
    rows = pa.Table.from_pylist(lance_rows(range(2)), schema=SCHEMA)
    with pytest.raises(UnsupportedFeature, match="column doc is a VARIANT"):
        table.upsert(rows.append_column("doc", lakebed.variant.encode([{"a": 1}, None])))


def test_a_blob_is_refused_by_name() -> None:
    reference = pa.struct(
        [("external_path", pa.string()), ("offset", pa.int64()), ("length", pa.int64()), ("managed", pa.bool_())]
    )
    blob = pa.struct([("type", pa.string()), ("data", pa.binary()), ("reference", reference)])
    schema = pa.schema([("id", pa.string()), pa.field("pic", blob, metadata={b"hudi_type": b"BLOB"})])
    with pytest.raises(UnsupportedFeature, match="column pic is a BLOB"):
        lakebed.create("memory://lance/refused", schema, key="id", base_format="lance")


def test_statistics_and_published_lists_are_refused() -> None:
    table = lance_table(partition_by=None)
    table.upsert(lance_rows(range(2)))
    assert table.indexes.verify().checked == ("files",)
    with pytest.raises(UnsupportedFeature, match="no column statistics"):
        table.indexes.create("column_stats")
    for form in ("delta", "iceberg"):
        with pytest.raises(UnsupportedFeature, match="not a Parquet file"):
            table.catalogs.publish(form)


def test_without_pylance_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, hudi: lakebed.Table) -> None:
    find = importlib.util.find_spec

    def without(name: str, *given: Any) -> ModuleSpec | None:
        return None if name == "lance" else find(name, *given)

    monkeypatch.setattr("lakebed.format.lance_file.find_spec", without)
    calls = [
        lambda: hudi.scan(where="ts > 30").to_arrow(),
        lambda: hudi.upsert([{"id": "a", "emb": None, "name": "", "ts": 1, "part": "p0"}]),
        lambda: hudi.maintenance.cluster(),
        lambda: lance_table(),
    ]
    for call in calls:
        with pytest.raises(UnsupportedFeature, match="need the package pylance") as refused:
            call()
        assert "lakebed[lance]" in refused.value.hint

"""Ids of columns: functions of their paths, the same in base files and in published Iceberg lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import UnsupportedFeature
from lakebed.format import parquet_writer
from lakebed.format.row_groups.assembled import AssembledFile
from lakebed.handles import file_writer, stored_rows
from lakebed.schema import field_ids
from lakebed.schema.arrow import without_field_metadata
from lakebed.schema.field_ids import field_id, field_paths, with_field_ids
from support.published import check_published, expected_rows, newest_metadata, quiet, read_pyiceberg, sorted_rows

quiet_readers = pytest.fixture(autouse=True)(quiet)
NESTED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("ts", pa.int64()),
        pa.field("tags", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        pa.field("attrs", pa.map_(pa.string(), pa.list_(pa.int64()))),
        pa.field("pos", pa.struct([("x", pa.float64()), ("in", pa.struct([("z", pa.int32())]))])),
    ]
)


def ids_of(fields: Any, above: str = "") -> dict[str, int]:
    """The ids that a footer's columns have, by their paths as Iceberg names them."""
    found: dict[str, int] = {}
    for field, name in fields:
        path = f"{above}.{name}" if above else name
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            found[path] = int(number)
        kind = field.type
        if pa.types.is_list(kind):
            found |= ids_of([(kind.value_field, "element")], path)
        elif pa.types.is_map(kind):
            found |= ids_of([(kind.key_field, "key"), (kind.item_field, "value")], path)
        elif pa.types.is_struct(kind):
            found |= ids_of([(part, part.name) for part in kind], path)
    return found


def file_ids(path: Path) -> dict[str, int]:
    return ids_of([(field, field.name) for field in pq.read_schema(path)])


def mapped(fields: Any, above: str = "") -> dict[str, int]:
    """The ids of a name mapping by their paths."""
    found: dict[str, int] = {}
    for field in fields:
        path = f"{above}.{field['names'][0]}" if above else field["names"][0]
        found |= {path: field["field-id"], **mapped(field.get("fields", ()), path)}
    return found


def list_ids(table: Path) -> dict[str, int]:
    metadata = json.loads(Path(newest_metadata(str(table))).read_text())
    return mapped(json.loads(metadata["properties"]["schema.name-mapping.default"]))


def clash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns a and b have the same id."""
    # what was numbered in other tests is remembered
    monkeypatch.setattr(parquet_writer, "_numbered", with_field_ids)

    def clashing(path: str) -> int:
        return 7 if path in ("a", "b") else field_id(path)

    monkeypatch.setattr(field_ids, "field_id", clashing)
    monkeypatch.setattr("lakebed.publish.iceberg_schema.field_id", clashing)


def test_an_id_is_from_1_to_2_to_the_30th_and_the_same_for_good():
    assert [field_id(path) for path in ("id", "tags.element.x", "é")] == [701120736, 547682103, 866461992]
    assert all(1 <= field_id(f"c{n}") <= 2**30 for n in range(10_000))


def test_a_schema_has_ids_at_every_level_and_loses_them_again():
    numbered = with_field_ids(NESTED)
    assert ids_of([(f, f.name) for f in numbered]) == {path: field_id(path) for path in field_paths(NESTED)}
    assert pa.schema([without_field_metadata(field) for field in numbered]).equals(NESTED, check_metadata=True)


def test_a_schema_in_which_two_paths_have_one_id_has_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(field_ids, "field_id", lambda path: 7 if path in ("id", "ts") else field_id(path))
    assert with_field_ids(NESTED) is NESTED


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("sort", ["none", "key"])
def test_every_base_file_has_the_ids_of_the_published_list(tmp_path: Path, kind: Any, sort: Any):
    def rows(numbers: range, ts: int) -> pa.Table:
        row = {"tags": [{"x": 1, "y": "a"}], "attrs": [("k", [ts])], "pos": {"x": 0.5, "in": {"z": ts}}}
        return pa.Table.from_pylist([{"id": n, "ts": ts, **row} for n in numbers], schema=NESTED)

    table = lakebed.create(str(tmp_path / "t"), NESTED, key="id", ordering="ts", type=kind, sort=sort)
    table.bulk_insert(rows(range(3000), 1))
    table.upsert(rows(range(2990, 3010), 2))
    if kind == "mor":
        table.maintenance.compact()
    table.maintenance.cluster()
    table.upsert(rows(range(5), 3))
    table.catalogs.publish("iceberg")
    mapping = list_ids(tmp_path / "t")
    files = sorted((tmp_path / "t").glob("*.parquet"))
    assert len(files) >= 3
    for file in files:
        found = file_ids(file)
        assert found == {path: mapping[path] for path in found}, file
        assert set(found) == set(field_paths(NESTED)), f"{file}: data columns have ids, and meta columns have none"
    shown = table.scan().to_arrow()
    assert shown.schema.equals(NESTED)
    assert "PARQUET:field_id" not in shown.schema.to_string()
    assert shown.num_rows == 3010
    assert sorted(set(shown["ts"].to_pylist())) == [1, 2, 3]


def newest_file(table: Path) -> Path:
    return max(table.glob("*.parquet"), key=lambda file: file.name.rpartition("_")[2])


def test_files_in_which_two_columns_would_have_one_id_have_none_and_the_list_gives_the_new_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clash(monkeypatch)
    table = lakebed.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("a", pa.int64())]), key="id")
    table.insert(pa.table({"id": [1], "a": [5]}))
    table.catalogs.publish("iceberg")
    assert file_ids(newest_file(tmp_path / "t"))["a"] == 7
    table.insert(pa.table({"id": [2], "a": [6], "b": [7]}))
    table.catalogs.publish("iceberg")
    assert file_ids(newest_file(tmp_path / "t")) == {}
    found = list_ids(tmp_path / "t")
    assert found["a"] == 7
    assert found["b"] not in {number for path, number in found.items() if path != "b"}


def test_a_file_whose_column_has_the_id_of_another_column_of_the_list_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clash(monkeypatch)
    table = lakebed.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("a", pa.int64())]), key="id")
    table.insert(pa.table({"id": [1], "a": [5]}))
    table.catalogs.publish("iceberg")
    table.columns.rename("a", "b")
    table.upsert(pa.table({"id": [1], "b": [6]}))
    with pytest.raises(UnsupportedFeature, match=r"column b of .* has the id 7 there"):
        table.catalogs.publish("iceberg")


def test_a_renamed_column_has_the_id_of_its_new_name_and_a_new_one_of_the_old_name_has_that_of_the_old(tmp_path: Path):
    uri = tmp_path / "t"
    table = lakebed.create(str(uri), pa.schema([("id", pa.int64()), ("a", pa.int64())]), key="id")
    table.insert(pa.table({"id": [1], "a": [5]}))
    table.catalogs.publish("iceberg")
    table.columns.rename("a", "b")
    table.upsert(pa.table({"id": [1], "b": [6]}))
    assert file_ids(newest_file(uri))["b"] == field_id("b")
    table.catalogs.publish("iceberg")
    found = list_ids(uri)
    assert (found["a"], found["b"]) == (field_id("a"), field_id("b"))
    newest = json.loads(Path(newest_metadata(str(uri))).read_text())
    shown = newest["schemas"][newest["current-schema-id"]]["fields"]
    assert {column["name"]: column["id"] for column in shown} == {"id": field_id("id"), "b": field_id("b")}


def without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written as Hudi writes them: no column has an id."""
    # no setting of a table makes new files without ids
    monkeypatch.setattr(parquet_writer, "_numbered", lambda schema: schema)


def numbers(first: int, last: int, ts: int) -> pa.Table:
    keys = range(first, last)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "ts": pa.array([ts] * len(keys), pa.int64()),
            "word": pa.array([None if n % 7 == 0 else f"w{n * ts % 10}" for n in keys], pa.string()),
            "score": pa.array([float("nan") if n % 11 == 0 else n / ts for n in keys], pa.float64()),
        }
    )


def merged(*batches: pa.Table) -> list[str]:
    rows = {row["id"]: row for batch in batches for row in batch.to_pylist()}
    return [repr(rows[key]) for key in sorted(rows)]


def row_texts(table: pa.Table) -> list[str]:
    """Rows as texts, in which NaN is equal to NaN."""
    return [repr(row) for row in table.sort_by("id").to_pylist()]


@pytest.mark.parametrize("first_has_ids", [True, False])
def test_copied_row_groups_take_the_ids_of_the_new_file_whether_or_not_the_old_one_had_them(
    first_has_ids: bool, tmp_path: Path
):
    made: list[AssembledFile] = []

    class Counted(AssembledFile):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    first, second = numbers(0, 320, 1), numbers(100, 110, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_writer, "ROW_GROUP_ROWS", 40)
        patch.setattr(stored_rows, "_WORTH_COPYING", 1)
        patch.setattr(file_writer, "AssembledFile", Counted)
        table = lakebed.create(str(tmp_path / "t"), first.schema, key="id", ordering="ts", index="simple")
        with pytest.MonkeyPatch.context() as hudi:
            if not first_has_ids:
                without_ids(hudi)
            table.upsert(first)
        assert bool(file_ids(newest_file(tmp_path / "t"))) == first_has_ids
        table.upsert(second)
    assert [one.traffic.copied_groups for one in made] == [7]
    newest = newest_file(tmp_path / "t")
    assert file_ids(newest) == {name: field_id(name) for name in first.schema.names}
    assert row_texts(pq.read_table(newest, columns=first.schema.names)) == merged(first, second)
    assert row_texts(table.scan().to_arrow()) == merged(first, second)
    table.catalogs.publish("iceberg")
    assert row_texts(read_pyiceberg(table.uri)) == merged(first, second)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_list_of_files_with_ids_and_of_files_without_is_read_right(kind: Any, tmp_path: Path):
    table = lakebed.create(
        str(tmp_path / "t"), numbers(0, 0, 1).schema, key="id", ordering="ts", type=kind, index="bucket", buckets=4
    )
    table.upsert(numbers(1, 7, 1))
    for step, has_ids in enumerate((False, True, False)):
        with pytest.MonkeyPatch.context() as patch:
            if not has_ids:
                without_ids(patch)
            batch = numbers(1 + step, 3 + step, step + 2).append_column("extra", pa.array([f"e{step}", None]))
            table.upsert(batch)
            if kind == "mor":
                table.maintenance.compact()
            if step == 1:
                table.maintenance.rescale(8)
        table.catalogs.publish("iceberg")
        rows = sorted_rows(read_pyiceberg(table.uri))
        assert rows == expected_rows(table), step
        assert len(rows) == 6
    with_ids = [bool(file_ids(file)) for file in (tmp_path / "t").glob("*.parquet")]
    assert set(with_ids) == {True, False}
    assert row_texts(table.scan(columns=["id", "ts"]).to_arrow()) == [
        repr({"id": n, "ts": ts}) for n, ts in ((1, 2), (2, 3), (3, 4), (4, 4), (5, 1), (6, 1))
    ]


def test_ids_change_no_statistics_and_no_answer(tmp_path: Path):
    tables: list[lakebed.Table] = []
    for name in ("with", "without"):
        with pytest.MonkeyPatch.context() as patch:
            if name == "without":
                without_ids(patch)
            rows = numbers(0, 500, 1)
            properties = {"hoodie.metadata.index.column.stats.enable": True}
            table = lakebed.create(
                str(tmp_path / name), rows.schema, key="id", ordering="ts", index="bucket", buckets=2,
                properties=properties,
            )  # fmt: skip
            table.upsert(rows)
            table.upsert(numbers(50, 60, 2))
            tables.append(table)
    footers: list[list[Any]] = []
    for table in tables:
        files = [pq.ParquetFile(f"{table.uri}/{file.path}").metadata for file in table.scan().files]
        groups = [file.row_group(n) for file in files for n in range(file.num_row_groups)]
        columns = [group.column(n) for group in groups for n in range(5, group.num_columns)]
        footers.append(
            sorted(repr((c.path_in_schema, c.statistics.to_dict(), c.compression, c.encodings)) for c in columns)
        )
    assert footers[0] == footers[1]
    assert footers[0]
    for where in ("ts = 2", "word = 'w3' AND score > 5", "word IS NULL", "id BETWEEN 55 AND 65"):
        found = [row_texts(table.scan(None, where).to_arrow()) for table in tables]
        assert found[0] == found[1], where
        assert found[0], where


def test_a_column_that_is_dropped_and_added_again_is_shown_after_its_files_are_rewritten(tmp_path: Path):
    table = lakebed.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("a", pa.int64())]), key="id")
    table.insert(pa.table({"id": [1, 2], "a": [5, 6]}))
    table.catalogs.publish("iceberg")
    table.columns.drop("a")
    table.catalogs.publish("iceberg")
    check_published(table, "iceberg")
    table.columns.add("a", pa.int64())
    with pytest.raises(UnsupportedFeature, match="column a is not the column of that name in"):
        table.catalogs.publish("iceberg")
    table.upsert(pa.table({"id": [2, 3], "a": [7, 8]}))
    table.catalogs.publish("iceberg")
    check_published(table, "iceberg")
    assert row_texts(read_pyiceberg(table.uri)) == [repr({"id": n, "a": a}) for n, a in ((1, None), (2, 7), (3, 8))]
    assert file_ids(newest_file(tmp_path / "t")) == {"id": field_id("id"), "a": field_id("a")}


def test_a_reader_without_a_name_mapping_reads_a_list_by_the_ids_of_the_files(tmp_path: Path):
    import polars

    table = lakebed.create(str(tmp_path / "t"), NESTED, key="id", ordering="ts")
    row = {"id": 1, "ts": 2, "tags": [{"x": 1, "y": "a"}], "attrs": None, "pos": {"x": 0.5, "in": {"z": 3}}}
    table.upsert(pa.Table.from_pylist([row, {**row, "id": 2, "tags": []}], schema=NESTED))
    table.catalogs.publish("iceberg")
    path = Path(newest_metadata(table.uri))
    metadata = json.loads(path.read_text())
    del metadata["properties"]["schema.name-mapping.default"]
    path.write_text(json.dumps(metadata))
    found = polars.scan_iceberg(str(path)).select("id", "ts", "tags", "pos").sort("id").collect().to_dicts()
    del row["attrs"]
    assert found == [row, {**row, "id": 2, "tags": []}]

"""A column chunk that holds NaN has no min and max: readers for which NaN is the greatest number lose no row by it."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.format.file_names import has_exact_ranges
from lakebed.format.log_file import BlockType, scan_blocks
from lakebed.format.parquet_writer import BaseFileWriter, ParquetSettings
from lakebed.format.row_groups import nan_chunks
from lakebed.format.sources import FileSource
from lakebed.handles import file_writer, stored_rows
from lakebed.storage import open_storage
from lakebed.table import Table

NAN = math.nan
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.struct([("x", pa.float64()), ("n", pa.int32())])),
        ("l", pa.list_(pa.float64())),
        ("m", pa.map_(pa.string(), pa.float32())),
    ]
)
FLOATS = ("d", "f", "s.x", "l.list.element", "m.key_value.value")


def rows(ids: range, *, nan: int | None = None) -> pa.Table:
    """Rows with small numbers, one of them with NaN everywhere."""
    made = [
        {
            "id": n,
            "d": NAN if n == nan else n / 8,
            "f": NAN if n == nan else n / 8,
            "s": {"x": NAN if n == nan else n / 8, "n": n},
            "l": [n / 8, NAN if n == nan else 1.0],
            "m": [("a", NAN if n == nan else n / 8)],
        }
        for n in ids
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def base_files(table: Table) -> list[Path]:
    return [Path(table.uri) / f.path for f in lakebed.open(table.uri).scan().files if f.path.endswith(".parquet")]


def bounds(path: Path) -> list[dict[str, bool]]:
    """Of each row group which floating leaves have a min and max."""
    return [
        {
            c.path_in_schema: c.statistics.has_min_max
            for c in map(group.column, range(group.num_columns))
            if c.path_in_schema in FLOATS
        }
        for group in (pq.read_metadata(path).row_group(n) for n in range(pq.read_metadata(path).num_row_groups))
    ]


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(stored_rows, "_WORTH_COPYING", 1)


@pytest.fixture
def older_release(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Until it is undone files are written with the bounds of Arrow, under names that say nothing."""
    with monkeypatch.context() as patched:
        patched.setattr(nan_chunks.NanChunks, "without_bounds", lambda _self, footer: footer)
        patched.setattr(file_writer, "exact_token", lambda token: token)
        yield patched


def created(folder: Path, **words: Any) -> Table:
    return lakebed.create(str(folder / "t"), SCHEMA, key="id", index="simple", **words)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("version", [9, 8, 6])
def test_only_chunks_that_hold_nan_have_no_min_and_max(tmp_path: Path, version: int) -> None:
    table = created(tmp_path, table_version=version)
    table.bulk_insert(rows(range(30), nan=17))
    (file,) = base_files(table)
    with_nan = dict.fromkeys(FLOATS, False)
    assert bounds(file) == [dict.fromkeys(FLOATS, True), with_nan, dict.fromkeys(FLOATS, True)]
    group = pq.read_metadata(file).row_group(1)
    assert {
        group.column(n).statistics.null_count for n in range(group.num_columns) if group.column(n).is_stats_set
    } == {0}
    assert lakebed.open(table.uri).scan().to_arrow().num_rows == 30


CONDITIONS = (
    "d > 100",
    "d >= 100",
    "d = 'NaN'::double",
    "not (d <= 100)",
    "d <> 2",
    "f > 100",
    "f = 'NaN'::float",
    "s.x > 100",
    "not (s.x <= 100)",
    "d between 100 and 'NaN'::double",
    "d in (77, 'NaN'::double)",
)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("condition", CONDITIONS)
def test_duckdb_finds_the_row_of_nan_in_the_files(tmp_path: Path, condition: str) -> None:
    table = created(tmp_path)
    table.bulk_insert(rows(range(30), nan=17))
    table.upsert(rows(range(28, 29)))  # row groups are copied
    (file,) = base_files(table)
    found = duckdb.sql(f"select id from read_parquet('{file}') where {condition}").fetchall()
    assert (17,) in found


@pytest.mark.usefixtures("small_groups")
def test_a_copied_chunk_of_an_older_file_loses_its_min_and_max_where_it_holds_nan(
    tmp_path: Path, older_release: pytest.MonkeyPatch
) -> None:
    table = created(tmp_path)
    table.bulk_insert(rows(range(30), nan=17))
    (before,) = base_files(table)
    assert all(all(group.values()) for group in bounds(before))
    older_release.undo()
    table = lakebed.open(table.uri)
    table.upsert(rows(range(28, 29)))
    (after,) = base_files(table)
    with_bounds = dict.fromkeys(FLOATS, True)
    assert bounds(after) == [with_bounds, dict.fromkeys(FLOATS, False), with_bounds]
    table.upsert(rows(range(2, 3)))  # by its name the file needs no look now
    (last,) = base_files(table)
    assert bounds(last) == bounds(after)
    assert table.scan().to_arrow().num_rows == 30


def test_a_fresh_chunk_with_nan_among_copied_ones_has_no_min_and_max(tmp_path: Path, small_groups: None) -> None:
    table = created(tmp_path)
    table.bulk_insert(rows(range(30)))
    table.upsert(rows(range(28, 29), nan=28))
    (file,) = base_files(table)
    with_bounds = dict.fromkeys(FLOATS, True)
    assert bounds(file) == [with_bounds, with_bounds, dict.fromkeys(FLOATS, False)]


@pytest.mark.parametrize("indexes", [[], ["column_stats"]])
def test_names_say_which_base_files_have_such_chunks(tmp_path: Path, indexes: list[str]) -> None:
    table = created(tmp_path, indexes=indexes)
    table.upsert(rows(range(3), nan=1))
    assert [has_exact_ranges(f.base_file.write_token) for f in table.files if f.base_file] == [True]


def test_column_stats_hold_the_least_value_of_a_copied_chunk_with_nan(tmp_path: Path, small_groups: None) -> None:
    table = created(tmp_path, indexes=["column_stats"])
    table.bulk_insert(rows(range(30), nan=3))
    table.upsert(rows(range(28, 29)))
    assert table.scan(where="d = 0").to_arrow()["id"].to_pylist() == [0]
    assert table.scan(where="d > 100").to_arrow()["id"].to_pylist() == [3]
    assert not table.indexes.verify().differences


def test_a_parquet_log_block_with_nan_has_no_min_and_max(tmp_path: Path) -> None:
    table = created(tmp_path, type="mor")
    options = {"hoodie.logfile.data.block.format": "parquet"}
    table.upsert(rows(range(5)), options=options)
    table.upsert(rows(range(2), nan=1), options=options)
    (log,) = (Path(table.uri) / log.path for one in table.files for log in one.log_files)
    heads = list(scan_blocks(FileSource(open_storage(table.uri), log.name, log.stat().st_size)))
    (head,) = (one for one in heads if one.type is BlockType.PARQUET_DATA)
    content = head.content.read(0, head.content_length)
    metadata = pq.read_metadata(io.BytesIO(bytes(content)))
    chunks = {c.path_in_schema: c for c in map(metadata.row_group(0).column, range(metadata.num_columns))}
    assert [path for path in (*FLOATS, "id") if chunks[path].statistics.has_min_max] == ["id"]
    assert sorted(lakebed.open(table.uri).scan(where="d > 100").to_arrow()["id"].to_pylist()) == [1]


def written(*groups: pa.Table, **settings: Any) -> Any:
    class Upload(io.BytesIO):
        def close(self) -> None:
            """Stays open."""

        def abort(self) -> None:
            raise AssertionError

    upload: Any = Upload()
    writer = BaseFileWriter(upload, groups[0].schema, ParquetSettings(row_group_rows=4, **settings))
    for group in groups:
        writer.write(group)
    size = writer.close({"k": "v"})
    assert size == len(upload.getvalue())
    return upload


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_rows_and_key_values_stay_where_bounds_are_removed(codec: str) -> None:
    values = [[NAN] * 4, [1.0, None, NAN, 2.0], [None] * 4, [5.0, -0.0, math.inf, -math.inf], [NAN]]
    table = pa.table({"c": pa.array([v for group in values for v in group], pa.float64()), "t": ["x"] * 17})
    upload = written(table, compression=codec)
    metadata = pq.read_metadata(upload)
    assert metadata.metadata[b"k"] == b"v"
    stats = [metadata.row_group(n).column(0).statistics for n in range(5)]
    assert [s.has_min_max for s in stats] == [False, False, False, True, False]
    assert [s.null_count for s in stats] == [0, 1, 4, 0, 0]
    assert repr(pq.read_table(upload).to_pylist()) == repr(table.to_pylist())

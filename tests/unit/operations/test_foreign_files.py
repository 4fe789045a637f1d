"""Folders that hold other data: no table is made in them by mistake, and none of their files is deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import InvalidOption, TableExists, TableNotFound
from lakebed.storage import open_storage
from support.write_tables import files

ROWS = pa.table({"id": [1, 2], "city": ["x", "y"]})
OPTIONS = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}


def _delta(folder: Path) -> None:
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / f"{0:020}.json").write_text(json.dumps({"protocol": {"minReaderVersion": 1}}))
    pq.write_table(ROWS, folder / "part-00000-3ba1.c000.snappy.parquet")


def _iceberg(folder: Path) -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "v1.metadata.json").write_text("{}")
    (folder / "data").mkdir()
    pq.write_table(ROWS, folder / "data" / "00000-0-a.parquet")


def _hive(folder: Path) -> None:
    ds.write_dataset(ROWS, folder, format="parquet", partitioning=["city"], partitioning_flavor="hive")


def _notes(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "old").mkdir()


FOLDERS = {
    "Delta": (_delta, "a Delta Lake table"),
    "Iceberg": (_iceberg, "an Iceberg table"),
    "Parquet": (_hive, "Parquet files"),
    "notes": (_notes, "notes.txt, old/"),
}
EVERY_FOLDER = pytest.mark.parametrize(("make", "kind"), FOLDERS.values(), ids=FOLDERS)
Make = Callable[[Path], None]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_that_is_there_is_called_a_table_with_and_without_rows(tmp_path: Path, rows: int) -> None:
    table = lakebed.create(str(tmp_path / "t"), {"id": [1]}, key="id")
    table.insert(pa.table({"id": pa.array([1] * rows, pa.int64())}))
    for allow_existing in (False, True):
        with pytest.raises(TableExists, match="there is a table at"):
            lakebed.create(table.uri, {"id": [1]}, key="id", allow_existing=allow_existing)
    assert lakebed.open(table.uri).count() == rows


@EVERY_FOLDER
def test_a_table_is_not_made_in_a_folder_that_holds_other_data(tmp_path: Path, make: Make, kind: str) -> None:
    folder = tmp_path / "t"
    make(folder)
    before = files(str(folder))
    with pytest.raises(TableExists, match=kind) as raised:
        lakebed.create(str(folder), ROWS, key="id")
    assert "allow_existing=True" in raised.value.hint
    with pytest.raises(TableExists, match=kind):
        lakebed.write(ROWS, str(folder), OPTIONS, mode="errorifexists")
    assert files(str(folder)) == before


@EVERY_FOLDER
def test_a_table_in_such_a_folder_leaves_its_files_alone(tmp_path: Path, make: Make, kind: str) -> None:
    folder = tmp_path / "t"
    make(folder)
    before = files(str(folder))
    table = lakebed.create(str(folder), ROWS, key="id", partition_by="city", allow_existing=True)
    table.upsert(ROWS)
    assert table.scan().to_arrow().sort_by("id").select(["id", "city"]) == ROWS
    assert sorted(lakebed.drop(table.uri, dry_run=True)) == sorted(before)
    assert table.count() == 2
    assert sorted(lakebed.drop(table.uri)) == sorted(before)
    assert files(str(folder)) == before


@pytest.mark.parametrize("mode", ["append", "overwrite", "ignore"])
def test_a_hudi_job_makes_no_table_next_to_other_data(tmp_path: Path, mode: str) -> None:
    for name in ("Delta", "Iceberg", "Parquet"):
        make, kind = FOLDERS[name]
        make(tmp_path / name)
        before = files(str(tmp_path / name))
        with pytest.raises(TableExists, match=kind) as raised:
            lakebed.write(ROWS, str(tmp_path / name), OPTIONS, mode=mode)
        assert "allow_existing=True" in raised.value.hint
        assert files(str(tmp_path / name)) == before
    _notes(tmp_path / "notes")  # no data: as real Hudi
    assert lakebed.write(ROWS, str(tmp_path / "notes"), OPTIONS, mode=mode) is not None
    assert (tmp_path / "notes" / "notes.txt").read_text() == "mine"


def test_a_hudi_job_appends_to_a_table_that_was_made_next_to_other_data(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    _hive(folder)
    before = files(str(folder))
    lakebed.create(str(folder), ROWS, key="id", allow_existing=True)
    for mode in ("append", "overwrite"):
        lakebed.write(ROWS, str(folder), OPTIONS if mode == "overwrite" else {}, mode=mode)
        assert lakebed.open(str(folder)).to_arrow().sort_by("id") == ROWS
    assert before.items() <= files(str(folder)).items()


@EVERY_FOLDER
def test_opening_such_a_folder_says_what_it_holds(tmp_path: Path, make: Make, kind: str) -> None:
    folder = tmp_path / "t"
    make(folder)
    with pytest.raises(TableNotFound) as raised:
        lakebed.open(str(folder))
    is_known = kind != "notes.txt, old/"
    assert (kind in raised.value.message) == is_known
    way = f"lakebed.convert({str(folder)!r}" if kind.endswith("table") else f"lakebed.load(new_uri, {str(folder)!r}"
    assert (way in raised.value.hint) == is_known
    assert not lakebed.list_tables(str(folder), depth=0)


def test_the_way_that_an_error_names_loads_the_rows(tmp_path: Path) -> None:
    _hive(tmp_path / "old")
    with pytest.raises(TableNotFound) as raised:
        lakebed.open(str(tmp_path / "old"))
    assert f"lakebed.load(new_uri, {str(tmp_path / 'old')!r}, key=...)" in raised.value.hint
    assert lakebed.load(str(tmp_path / "new"), str(tmp_path / "old"), key="id").count() == 2


@pytest.mark.parametrize("uri", ["", " "])
def test_an_empty_uri_is_not_the_current_folder(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[Callable[[], object]] = [
        lambda: lakebed.create(uri, ROWS, key="id"),
        lambda: lakebed.open(uri),
        lambda: lakebed.list_tables(uri, depth=0),
        lambda: lakebed.drop(uri, missing_ok=True),
        lambda: lakebed.write(ROWS, uri, OPTIONS),
    ]
    for call in calls:
        with pytest.raises(InvalidOption, match="the URI is empty"):
            call()
    assert files(str(tmp_path)) == {}
    table = lakebed.create(".", ROWS, key="id")
    assert table.uri == str(tmp_path)


@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_table_without_its_settings_is_not_taken_for_data_files(version: int) -> None:
    uri = f"memory://foreign/lost-{version}"
    table = lakebed.create(uri, {"id": [1]}, key="id", table_version=version)
    table.upsert({"id": [1]})
    open_storage(uri).delete(".hoodie/hoodie.properties")
    for act in (lambda: lakebed.open(uri), lambda: lakebed.maintenance.repair(uri, ["properties"])):
        with pytest.raises(TableNotFound, match="has a timeline, but"):
            act()
    with pytest.raises(TableNotFound, match="there is no table at"):
        lakebed.maintenance.repair("memory://foreign/nothing", ["properties"])

"""Dropping a table, and whether there is one."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import TableNotFound
from lakebed.operations.recreate import is_table_file
from lakebed.testing import Killed, Mode, crash_at
from support.golden_tables import golden_tables
from support.write_tables import files, rows

FIRST = rows((1, "a", "x", 1), (2, "b", "x", 1))


def new_table(uri: str) -> lakebed.Table:
    table = lakebed.create(uri, FIRST, key="id", partition_by="city", ordering="ts", index="bucket", buckets=1)
    table.upsert(FIRST)
    return table


def test_a_dropped_table_has_no_files_and_can_be_created_again(uri: str) -> None:
    assert not lakebed.list_tables(uri, depth=0)
    new_table(uri)
    assert lakebed.list_tables(uri, depth=0)
    lakebed.drop(uri)
    assert not lakebed.list_tables(uri, depth=0)
    assert files(uri) == {}
    assert new_table(uri).count() == 2


def test_a_table_that_is_not_there_cannot_be_dropped(uri: str) -> None:
    with pytest.raises(TableNotFound, match="there is no table at") as raised:
        lakebed.drop(uri)
    assert "lakebed.list_tables(uri, depth=0)" in raised.value.hint
    lakebed.drop(uri, missing_ok=True)


def test_a_damaged_table_is_there_and_can_be_dropped(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    new_table(uri)
    for name in ("hoodie.properties", "hoodie.properties.backup"):
        (tmp_path / "t" / ".hoodie" / name).write_bytes(b"\x00\xff")
    assert lakebed.list_tables(uri, depth=0)
    lakebed.drop(uri)
    assert files(uri) == {}


@pytest.mark.parametrize("mode", ["kill", "unacknowledged", "fail"])
def test_a_drop_that_is_cut_off_shows_no_half_table_and_is_finished_by_the_next(mode: Mode) -> None:
    for at in count(1):
        uri = f"memory://drop-{mode}/{at}"
        new_table(uri)
        with crash_at(at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            lakebed.drop(uri)
        if not crash.fired:
            break
        if lakebed.list_tables(uri, depth=0):
            assert lakebed.open(uri).count() == 2
        lakebed.drop(uri, missing_ok=True)
        assert files(uri) == {}, crash
    assert at > 5


FOREIGN = ("notes.txt", "part-0000.parquet", "x/part-0001-c000.snappy.parquet", "x/_SUCCESS", "raw/a.csv", "a/.b.tmp")


def _with_foreign_files(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    new_table(uri)
    for path in FOREIGN:
        (tmp_path / "t" / path).parent.mkdir(exist_ok=True)
        (tmp_path / "t" / path).write_bytes(path.encode())
    lakebed.create(f"{uri}/raw/inner", FIRST, key="id").insert(FIRST)
    return uri


def test_a_drop_leaves_files_that_are_not_the_tables(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uri = _with_foreign_files(tmp_path)
    inner = {f"raw/inner/{path}": data for path, data in files(f"{uri}/raw/inner").items()}
    foreign = {path: path.encode() for path in FOREIGN}
    assert sorted(lakebed.drop(uri)) == sorted({**foreign, **inner})
    assert files(uri) == {**foreign, **inner}
    assert f"{len(foreign) + len(inner)} files are not the table's and stay" in caplog.text
    assert lakebed.open(f"{uri}/raw/inner").count() == 2
    assert not lakebed.list_tables(uri, depth=0)


def test_an_overwrite_leaves_files_that_are_not_the_tables(tmp_path: Path) -> None:
    uri = _with_foreign_files(tmp_path)
    for _ in range(2):
        job = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "city"}
        lakebed.write(rows((9, "c", "x", 1)), uri, job, mode="overwrite")
        assert lakebed.open(uri).scan().to_arrow()["id"].to_pylist() == [9]
        assert {path: data for path, data in files(uri).items() if path in FOREIGN} == {
            path: path.encode() for path in FOREIGN
        }
        assert lakebed.open(f"{uri}/raw/inner").count() == 2
        assert not [path for path in files(uri) if path.startswith(("a/", "b/")) and path not in FOREIGN]


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_every_file_of_a_table_is_known_by_its_name(tmp_path: Path, type_: str, version: int) -> None:
    """Base files, logs, change logs, clustered and compacted ones."""
    uri = str(tmp_path / "t")
    table = lakebed.create(
        uri,
        FIRST,
        key="id",
        partition_by="city",
        ordering="ts",
        type=type_,  # pyright: ignore[reportArgumentType]
        table_version=version,
        properties={"hoodie.table.cdc.enabled": True},
    )
    table.upsert(FIRST)
    table.upsert(rows((1, "a", "y", 2), (3, "b", "z", 1)))
    table.delete([2])
    if type_ == "mor":
        table.maintenance.compact()
    table.upsert(rows((1, "a", "z", 3)))
    assert lakebed.drop(uri) == []
    assert files(uri) == {}


@pytest.mark.rest
@pytest.mark.larger_set
def test_every_file_that_real_hudi_writes_is_known_by_its_name() -> None:
    for table in golden_tables():
        outside = [path for path in table.files() if not path.startswith(".hoodie/")]
        assert [path for path in outside if not is_table_file(path.rpartition("/")[2])] == [], table

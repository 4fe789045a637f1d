"""Base files that no write stat names: what lost task attempts left is not read, a damaged write stat is an error."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.table import Table
from lakebed.timeline import timeline

ROWS = [{"id": i, "city": "ab"[i % 2], "v": i} for i in range(6)]
PATH = rb"(?P<partition>[ab])/(?P<file_id>[0-9a-f-]+)_(?P<token>[0-9-]+)_(?P<instant>[0-9]{17})\.(?P<format>parquet)"


def written(folder: Path, kind: str, version: int) -> Table:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64())])
    table = lakebed.create(
        str(folder / "t"),
        schema,
        key="id",
        partition_by="city",
        type=kind,  # type: ignore[arg-type]
        index="simple",
        table_version=version,
    )
    table.upsert(ROWS)
    return table


def ids(table: Table) -> list[int]:
    return sorted(lakebed.open(table.uri).scan().to_arrow()["id"].to_pylist())


def only_commit(table: Table) -> Path:
    folder = Path(table.uri) / ".hoodie"
    return next(path for path in folder.rglob("*commit") if "metadata" not in path.parts)


def base_files(table: Table) -> list[Path]:
    return sorted(Path(table.uri).glob("[ab]/*.parquet"))


@pytest.mark.parametrize("part", ["partition", "file_id", "token", "instant", "format"])
@pytest.mark.parametrize(("kind", "version"), [("cow", 6), ("mor", 6), ("mor", 8), ("cow", 9)])
def test_a_changed_letter_in_the_path_of_a_write_stat_is_an_error(
    kind: str, version: int, part: str, tmp_path: Path
) -> None:
    table = written(tmp_path, kind, version)
    commit = only_commit(table)
    body = commit.read_bytes()
    at = next(re.finditer(PATH, body)).start(part)
    other = {b"a": b"b", b"b": b"a", b"1": b"2"}.get(body[at : at + 1], b"1")
    commit.write_bytes(body[:at] + other + body[at + 1 :])
    timeline._BODIES.clear()  # pyright: ignore[reportPrivateUsage]  (what this process wrote is not read again)
    with pytest.raises(CorruptFile) as caught:
        lakebed.open(table.uri).scan().to_arrow()
    assert commit.name in str(caught.value)
    commit.write_bytes(body)
    timeline._BODIES.clear()  # pyright: ignore[reportPrivateUsage]  (what this process wrote is not read again)
    assert ids(table) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("version", [6, 9])
def test_files_of_a_lost_attempt_are_not_read(version: int, listed: bool, tmp_path: Path) -> None:
    table = written(tmp_path, "cow", version)
    file = base_files(table)[0]
    file_id, _, instant = file.stem.split("_")
    shutil.copy(file, file.with_name(f"{file_id}_7-7-7_{instant}.parquet"))
    shutil.copy(file, file.with_name(f"ffffffff-{file_id[9:]}_7-7-7_{instant}.parquet"))
    if listed:  # the listing of the folders is what a new metadata table begins with
        shutil.rmtree(Path(table.uri) / ".hoodie" / "metadata")
        table.indexes.repair()
    assert ids(table) == [0, 1, 2, 3, 4, 5]


def test_files_of_a_lost_attempt_are_not_read_after_the_committed_file_was_cleaned(tmp_path: Path) -> None:
    table = written(tmp_path, "cow", 9)
    file = base_files(table)[0]
    file_id, _, instant = file.stem.split("_")
    shutil.copy(file, file.with_name(f"{file_id}_7-7-7_{instant}.parquet"))
    lakebed.open(table.uri).upsert([row | {"v": 9} for row in ROWS])
    file.unlink()
    without = lakebed.open(table.uri, options={"hoodie.metadata.enable": False})
    assert without.scan().to_arrow()["v"].to_pylist() == [9] * 6


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize(("kind", "version"), [("cow", 6), ("mor", 6), ("cow", 8), ("mor", 9)])
def test_a_write_stat_of_another_file_group_is_an_error(
    kind: str, version: int, metadata: bool, tmp_path: Path
) -> None:
    """Its path and its file id were changed alike, so that nothing names the file group that is there."""
    table = written(tmp_path, kind, version)
    commit = only_commit(table)
    body = commit.read_bytes()
    file_id = next(re.finditer(PATH, body))["file_id"]
    commit.write_bytes(body.replace(file_id, b"0" * 8 + file_id[8:]))
    timeline._BODIES.clear()  # pyright: ignore[reportPrivateUsage]  (what this process wrote is not read again)
    found = "which is not there" if version == 6 else "cannot be decoded"  # later bodies tell by themselves
    with pytest.raises(CorruptFile, match=found) as caught:
        lakebed.open(table.uri, options={"hoodie.metadata.enable": metadata}).scan().to_arrow()
    assert commit.name in str(caught.value)
    commit.write_bytes(body)
    timeline._BODIES.clear()  # pyright: ignore[reportPrivateUsage]  (what this process wrote is not read again)
    assert ids(table) == [0, 1, 2, 3, 4, 5]


def test_a_new_file_group_of_a_lost_attempt_is_not_read_when_the_committed_file_was_cleaned(tmp_path: Path) -> None:
    table = written(tmp_path, "cow", 9)
    for file in base_files(table):
        file_id, _, instant = file.stem.split("_")
        shutil.copy(file, file.with_name(f"ffffffff-{file_id[9:]}_7-7-7_{instant}.parquet"))
    old = [file for file in base_files(table) if not file.name.startswith("ffffffff")]
    lakebed.open(table.uri).upsert([row | {"v": 9} for row in ROWS])
    for file in old:
        file.unlink()
    without = lakebed.open(table.uri, options={"hoodie.metadata.enable": False})
    assert without.scan().to_arrow()["v"].to_pylist() == [9] * 6


def test_a_new_file_group_of_a_lost_attempt_is_not_read_when_the_committed_one_was_replaced(tmp_path: Path) -> None:
    table = written(tmp_path, "cow", 9)
    old = base_files(table)
    for file in old:
        file_id, _, instant = file.stem.split("_")
        shutil.copy(file, file.with_name(f"ffffffff-{file_id[9:]}_7-7-7_{instant}.parquet"))
    lakebed.open(table.uri).insert_overwrite([row | {"v": 9} for row in ROWS])
    for file in old:
        file.unlink()
    without = lakebed.open(table.uri, options={"hoodie.metadata.enable": False})
    assert without.scan().to_arrow()["v"].to_pylist() == [9] * 6

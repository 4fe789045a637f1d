"""`t.blobs.references()`: the files that rows reference, and the files of a folder that none does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from support.blob_tables import SCHEMA, blob_table, outside


def files_of(folder: Path) -> None:
    (folder / "sub").mkdir(parents=True)
    for name, size in (("a.bin", 100), ("sub/b.bin", 20), ("sub/c.bin", 3), ("d.bin", 0)):
        (folder / name).write_bytes(bytes(size))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_files_are_listed_with_the_number_of_their_references(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    files_of(folder)
    table = blob_table(kind)
    table.upsert(outside(folder / "a.bin", ["o1", "o2"], [0, 10], [5, None]))
    table.upsert(outside(Path(f"file://{folder}/a.bin"), ["o3"], [0], [None]))
    table.upsert(outside(folder / "sub" / "b.bin", ["o4"], [0], [None]))
    table.upsert(outside(folder / "gone.bin", ["o5"], [0], [None]))
    table.upsert(
        pa.table({"id": ["o6"], "pic": lakebed.blob(path=["s3://photos/x"]), "part": ["p0"], "ts": [1], "name": ["n"]})
    )
    plain = {file.path: (file.references, file.bytes) for file in table.blobs.references()}
    inside = {f"{folder}/a.bin": (3, None), f"{folder}/sub/b.bin": (1, None), f"{folder}/gone.bin": (1, None)}
    assert plain == {**inside, "s3://photos/x": (1, None)}
    report = table.blobs.references(str(folder))
    assert {file.path: (file.references, file.bytes) for file in report} == {
        f"{folder}/a.bin": (3, 100),
        f"{folder}/d.bin": (0, 0),
        f"{folder}/gone.bin": (1, None),
        f"{folder}/sub/b.bin": (1, 20),
        f"{folder}/sub/c.bin": (0, 3),
        "s3://photos/x": (1, None),
    }
    assert [file.path for file in report.unreferenced] == [f"{folder}/d.bin", f"{folder}/sub/c.bin"]
    assert [file.path for file in report.missing] == [f"{folder}/gone.bin"]
    assert report.to_arrow().column_names == ["path", "references", "bytes"]
    assert sorted(path.name for path in folder.rglob("*.bin")) == ["a.bin", "b.bin", "c.bin", "d.bin"]


def test_an_earlier_time_names_the_files_of_then(tmp_path: Path) -> None:
    table = lakebed.create("memory://blobs/then", SCHEMA, key="id")
    table.upsert(outside(tmp_path / "a.bin", ["o1"], [0], [None]))
    first = table.timeline.to_arrow()["time"].to_pylist()[-1]
    table.upsert(outside(tmp_path / "b.bin", ["o1"], [0], [None]))
    assert [file.path for file in table.blobs.references()] == [f"{tmp_path}/b.bin"]
    assert [file.path for file in table.blobs.references(as_of=first)] == [f"{tmp_path}/a.bin"]


def test_one_column_or_all_are_asked() -> None:
    schema = pa.schema([("id", pa.int64()), ("a", lakebed.BLOB), ("b", lakebed.BLOB), ("n", pa.int64())])
    table = lakebed.create("memory://blobs/columns", schema, key="id")
    table.upsert([{"id": 1, "a": lakebed.blob(path="/x"), "b": lakebed.blob(path="/y"), "n": 1}])
    assert table.blobs.columns == ["a", "b"]
    assert [file.path for file in table.blobs.references()] == ["/x", "/y"]
    assert [file.path for file in table.blobs.references(column="B")] == ["/y"]
    with pytest.raises(InvalidOption, match="n holds no blobs"):
        table.blobs.references(column="n")


def test_a_table_without_blob_columns_references_nothing() -> None:
    table = lakebed.load("memory://blobs/none", {"id": [1]}, key="id")
    assert table.blobs.columns == []
    assert list(table.blobs.references()) == []

"""`lakebed.blob`: single values and columns; and the values of BLOB columns that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.schema.blobs import check_blobs
from lakebed.schema.logical_types import is_declared_blob

REFERENCE = {"external_path": "/a", "offset": 0, "length": None, "managed": False}


def inline(data: bytes) -> dict[str, Any]:
    return {"type": "INLINE", "data": data, "reference": None}


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_bytes_make_a_value_for_a_row(data: Any) -> None:
    assert lakebed.blob(data=data) == inline(b"abc")


@pytest.mark.parametrize("path", ["/a", Path("/a")])
def test_a_path_makes_a_value_for_a_row(path: Any) -> None:
    assert lakebed.blob(path=path) == {"type": "OUT_OF_LINE", "data": None, "reference": REFERENCE}
    part = lakebed.blob(path=path, offset=3, length=4)["reference"]
    assert part == {**REFERENCE, "offset": 3, "length": 4}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"a", None, b"ccc"]),
        pa.array([b"zz", b"a", None, b"ccc"])[1:],
        pa.array([b"a", None, b"ccc"], pa.large_binary()),
        pa.array([b"a", None, b"ccc"], pa.binary_view()),
        pa.array([b"a", None, b"ccc"]).dictionary_encode(),
        pa.chunked_array([[b"a"], [None, b"ccc"]]),
        pl.Series([b"a", None, b"ccc"]),
        [b"a", None, b"ccc"],
    ],
)
def test_a_column_of_bytes_makes_a_column(column: Any) -> None:
    blobs = lakebed.blob(data=column)
    assert is_declared_blob(blobs.type)
    assert blobs.to_pylist() == [inline(b"a"), None, inline(b"ccc")]
    check_blobs(blobs, "pic")


@pytest.mark.parametrize(
    "paths", [["/a", None, "/c"], pa.chunked_array([["/a", None], ["/c"]]), pl.Series(["/a", None, "/c"])]
)
def test_a_column_of_paths_makes_a_column(paths: Any) -> None:
    blobs = lakebed.blob(path=paths, offset=[0, 5, 7], length=pa.array([None, None, 9]))
    other = {"external_path": "/c", "offset": 7, "length": 9, "managed": False}
    assert [row and row["reference"] for row in blobs.to_pylist()] == [REFERENCE, None, other]
    assert blobs.type.equals(lakebed.BLOB)
    check_blobs(blobs, "pic")


def test_nothing_and_nulls_make_columns() -> None:
    assert lakebed.blob(data=[]).to_pylist() == []
    assert lakebed.blob(data=pa.nulls(2)).to_pylist() == [None, None]
    assert lakebed.blob(path=pa.nulls(2)).to_pylist() == [None, None]
    assert lakebed.blob(data=pa.chunked_array([], pa.binary())).to_pylist() == []


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        ({}, InvalidOption, "either data or a path"),
        ({"data": b"a", "path": "/a"}, InvalidOption, "either data or a path"),
        ({"data": b"a", "offset": 1}, InvalidOption, "neither offset nor length"),
        ({"data": pa.array([b"a"]), "offset": [1]}, InvalidOption, "neither offset nor length"),
        ({"data": [b"a"], "length": 0}, InvalidOption, "neither offset nor length"),
        ({"data": "text"}, InvalidRecord, "bytes as data"),
        ({"data": ["text"]}, InvalidRecord, "bytes as data"),
        ({"data": pa.array([1])}, InvalidRecord, "bytes as data.*int64"),
        ({"path": 5}, InvalidRecord, "paths as texts as path"),
        ({"path": pa.array([b"/a"])}, InvalidRecord, "paths as texts as path"),
        ({"path": ["/a", "/b"], "offset": [1]}, InvalidRecord, "2 paths and 1 numbers as offset"),
        ({"path": ["/a"], "length": ["x"]}, InvalidRecord, "whole numbers as length"),
        ({"path": "/a", "offset": 1.5}, InvalidRecord, "whole number as offset, and got 1.5"),
        ({"path": "/a", "offset": -1}, InvalidRecord, "whole number as offset, and got -1"),
        ({"path": "/a", "length": True}, InvalidRecord, "whole number as length, and got True"),
        ({"path": "/a", "length": 1 << 63}, InvalidRecord, "whole number as length"),
    ],
)
def test_other_arguments_are_refused(words: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        lakebed.blob(**words)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"type": "OTHER", "data": b"", "reference": None}, "storage type 'OTHER'"),
        ({"type": "INLINE", "data": None, "reference": None}, "INLINE and has no data"),
        ({"type": "OUT_OF_LINE", "data": None, "reference": None}, "names no file"),
        (lakebed.blob(path=""), "names no file"),
        (lakebed.blob(path="photos/a.bin"), "'photos/a.bin', a relative path"),
        (lakebed.blob(path=["/a"], offset=[-1])[0].as_py(), "offset -1"),
        (lakebed.blob(path=["/a"], length=[-2])[0].as_py(), "length -2"),
    ],
)
def test_a_blob_that_no_reader_finds_is_refused_and_no_row_is_written(value: Any, match: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("pic", lakebed.BLOB)])
    for number, kind in enumerate(("cow", "mor")):
        table = lakebed.create(f"memory://blobs/refused/{abs(hash(str(value)))}{number}", schema, key="id", type=kind)
        rows = [{"id": 1, "pic": lakebed.blob(data=b"a")}, {"id": 2, "pic": value}]
        with pytest.raises(InvalidRecord, match=f"column pic is BLOB.*{match}"):
            table.upsert(rows)
        with pytest.raises(InvalidRecord, match=f"column pic is BLOB.*{match}"):
            table.upsert(pa.table({"id": [1, 2], "pic": pa.array([r["pic"] for r in rows], lakebed.BLOB)}))
        assert table.count() == 0
        assert {instant.action.value for instant in table.timeline} == {"rollback"}


def test_the_least_offset_and_length_are_taken() -> None:
    check_blobs(lakebed.blob(path=["/a"], offset=[0], length=[0]), "pic")

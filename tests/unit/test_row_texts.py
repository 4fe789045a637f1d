"""Rows that people look at have texts in place of vectors, blobs and variants."""

from __future__ import annotations

import pyarrow as pa

import lakebed
from lakebed import variant
from lakebed.row_texts import with_texts


def rows() -> pa.Table:
    references = lakebed.blob(path=["/a", "/b", "/c", None], offset=[0, 5, 1000, 0], length=[None, 1, None, None])
    blobs = lakebed.blob(data=pa.array([b"abc", b"", None, b"x" * 1500]))
    return pa.table(
        {
            "id": [1, 2, 3, 4],
            "emb": pa.array([[3.0, 4.0], [0.0, 0.0], None, [1.0, 0.0]], lakebed.vector(2)),
            "facts": variant.encode([{"b": [1, None], "a": "x"}, "text", None, 2.5]),
            "inside": blobs,
            "outside": references,
            "plain": pa.array([{"value": 1}, None, {"value": None}, {"value": 4}]),
        }
    )


def test_values_become_texts() -> None:
    shown = with_texts(rows())
    assert shown["emb"].to_pylist() == ["2 numbers, norm 5", "2 numbers, norm 0", None, "2 numbers, norm 1"]
    assert shown["facts"].to_pylist() == ['{"a":"x","b":[1,null]}', '"text"', None, "2.5"]
    assert shown["inside"].to_pylist() == ["3 bytes", "0 bytes", None, "1,500 bytes"]
    assert shown["outside"].to_pylist() == ["/a", "/b, 1 byte from 5", "/c from 1,000", None]
    assert shown.select(["id", "plain"]).equals(rows().select(["id", "plain"]))


def test_only_values_of_the_named_kinds_become_texts() -> None:
    shown = with_texts(rows(), ["VARIANT"])
    assert shown["facts"].to_pylist()[1] == '"text"'
    assert shown.drop_columns(["facts"]).equals(rows().drop_columns(["facts"]))


def test_binaries_that_are_no_variant_stay() -> None:
    junk = pa.table({"s": pa.array([{"metadata": b"x", "value": b"y"}])})
    assert with_texts(junk).equals(junk)

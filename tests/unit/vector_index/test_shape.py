from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.vector_index.frame import Kind, pack
from lakebed.vector_index.shape import IndexShape, default_clusters, sample_rows

SHAPE = IndexShape("größe", 768, "int8", "l2", 4, 7, 421, 3, "20260101000000000", 0.25)


def packed(fields: object, version: int = 1) -> bytes:
    return pack(Kind(b"LVIM", version, "x"), [np.frombuffer(json.dumps(fields).encode(), np.uint8)])


def test_a_shape_comes_back_from_its_bytes() -> None:
    assert IndexShape.from_bytes(SHAPE.to_bytes()) == SHAPE


def test_the_bytes_are_those_of_earlier_releases() -> None:
    text = (
        b'{"bits":8,"clusters":1,"column":"e","dimension":2,"element":"float","generation":0,"instant":"",'
        b'"metric":"cosine","new_rows":0,"scale":1.0,"seed":42}'
    )
    assert IndexShape("e", 2).to_bytes() == bytes.fromhex("4c56494d01019a00000004695df38269c2a30095000000") + text
    assert IndexShape.from_bytes(packed(asdict(SHAPE))) == SHAPE


def test_bytes_of_no_shape_are_an_error_by_name() -> None:
    data = SHAPE.to_bytes()
    for end in (0, 10, len(data) - 1):
        with pytest.raises(CorruptFile, match="the description of a vector index"):
            IndexShape.from_bytes(data[:end])
    with pytest.raises(CorruptFile, match="other fields"):
        IndexShape.from_bytes(packed({**asdict(SHAPE), "more": 1}))
    for field, value in (("metric", "hamming"), ("bits", 2), ("element", "text"), ("dimension", 0), ("clusters", 0)):
        with pytest.raises(CorruptFile, match="impossible values"):
            IndexShape.from_bytes(packed({**asdict(SHAPE), field: value}))


def test_a_shape_of_a_newer_release_is_not_read() -> None:
    with pytest.raises(UnsupportedFeature, match="version 2"):
        IndexShape.from_bytes(packed(asdict(SHAPE), version=2))


def test_the_number_of_clusters_grows_with_the_root_of_the_rows() -> None:
    assert [default_clusters(rows) for rows in (0, 1, 100, 1_000_000)] == [1, 2, 14, 1334]
    assert sample_rows(10) == 640

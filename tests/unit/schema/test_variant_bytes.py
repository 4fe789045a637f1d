"""The outer shape of variants: what lakebed and Hudi write has it, and other bytes do not."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import variant
from lakebed.schema.variant_bytes import are_variants
from support.variant_tables import documents
from support.vector_tables import unpacked

VALUES: list[Any] = [
    *[None, True, False, 5, -200, 70_000, 1 << 40, 2.5, "x", "x" * 63, "x" * 64, "x" * 70_000, "", b"", b"ab" * 40],
    *[Decimal("1.5"), Decimal("12345678901.25"), Decimal("1" * 30), datetime.date(2020, 1, 1), [], {}, [1] * 255],
    *[[1] * 256, [1] * 70_000, {f"n{n}": n for n in range(255)}, {f"n{n}": "x" * n for n in range(300)}],
    *[{"x" * 300: [{"y": ["z" * 300]}]}, datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)],
]


def parts_of(variants: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    return variants.field("metadata"), variants.field("value")


def test_values_of_every_kind_and_size_have_the_shape() -> None:
    metadata, values = parts_of(variant.encode(VALUES))
    assert are_variants(metadata, values).tolist() == [value is not None for value in VALUES]
    columns = [pa.array([1.5], pa.float32()), pa.array([uuid.UUID(int=5).bytes], pa.uuid())]
    columns += [pa.array([5], kind) for kind in (pa.timestamp("us"), pa.time64("us"))]
    for column in columns:
        assert are_variants(*parts_of(variant.encode(column))).all()


def test_a_value_of_another_length_has_not() -> None:
    metadata, values = (part.to_pylist() for part in parts_of(variant.encode(VALUES)))
    for names, value, document in zip(metadata, values, VALUES, strict=True):
        if document is None:
            continue
        others = [value[:-1], value + b"\0", b"", value[:1] if len(value) > 1 else b"\xff"]
        assert not are_variants(pa.array([names] * 4), pa.array(others, pa.binary())).any(), document
        others = [names[:-1], names + b"\0", b"", b"\x02" + names[1:]]
        assert not are_variants(pa.array(others, pa.binary()), pa.array([value] * 4)).any(), document


def test_bytes_that_say_huge_lengths_have_not() -> None:
    junk = [b"\xff" * 5, b"\x13\xff\xff\xff\xff", b"\x05\xff\xff", b"\x40" + b"\xff" * 4, b"\x58", b"\xfc"]
    assert not are_variants(pa.array([b"\x01\x00\x00"] * len(junk)), pa.array(junk)).any()


def test_slices_and_nulls_are_looked_at_by_their_own_bytes() -> None:
    column = variant.encode([{"a": 1}, None, "text", [1, 2]])
    for start in range(4):
        metadata, values = parts_of(column.slice(start))
        assert are_variants(metadata, values).tolist() == [True, False, True, True][start:]
    metadata, values = parts_of(variant.encode(documents(3)))
    assert are_variants(metadata, values).tolist() == [document is not None for document in documents(3)]


def test_values_that_hudi_wrote_have_the_shape(tmp_path: Path) -> None:
    column = lakebed.open(unpacked("variant35_mor", tmp_path)).scan(["v"]).to_arrow()["v"].combine_chunks()
    assert are_variants(*parts_of(column)).tolist() == column.is_valid().to_pylist()

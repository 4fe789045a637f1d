"""The overlap of column ranges and the rates of bloom filters, against files that are counted one by one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.base_file import read_footer
from lakebed.read.index_quality import ColumnRanges
from lakebed.table import Table

Make = Callable[..., Table]


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.string(), pa.float64(), pa.date32(), pa.timestamp("us", "UTC")], ids=str
)
def test_the_overlap_is_the_mean_share_of_files_that_hold_a_value(kind: pa.DataType) -> None:
    seed = random.Random(str(kind))
    for _ in range(20):
        pairs = [sorted(seed.randrange(30) for _ in range(2)) for _ in range(seed.randrange(1, 9))]
        low, high = (
            pa.array([str(p[n]) for p in pairs]) if pa.types.is_string(kind) else _values([p[n] for p in pairs], kind)
            for n in (0, 1)
        )
        lows, highs = low.to_pylist(), high.to_pylist()
        if any(a > b for a, b in zip(lows, highs, strict=True)):
            continue
        unknown = seed.randrange(3)
        files = len(pairs) + unknown
        opened = [sum(a <= value <= b for a, b in zip(lows, highs, strict=True)) + unknown for value in lows]
        ranges = ColumnRanges(low, high, files)
        assert ranges.overlap() == pytest.approx(sum(opened) / len(opened) / files)
        positions = ranges.positions()
        assert positions.shape == (len(pairs), 2)
        assert (positions >= 0).all()
        assert (positions <= 1).all()
        assert (positions[:, 0] <= positions[:, 1]).all()


def _values(numbers: list[int], kind: pa.DataType) -> pa.Array:
    whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    return pa.array(numbers, whole).cast(kind)


def test_ranges_are_those_of_the_latest_files(make: Make) -> None:
    t = make(partition_by="city", index="simple")
    ids = range(30)
    rows = {"id": list(ids), "city": [f"c{n // 10}" for n in ids], "v": ["x"] * 30, "ts": [n % 7 for n in ids]}
    t.upsert(pa.table(rows))
    shown = {row["column"]: row for row in t.indexes.ranges().to_arrow().to_pylist()}
    assert shown["id"] == {"column": "id", "type": "int64", "files": 3, "with_range": 3, "overlap": 0.3333}
    assert shown["v"]["overlap"] == 1.0
    picture = t.indexes.ranges(["id"]).plot("id")
    assert picture.count("<rect") == 3
    assert "ranges of id in 3 base files, 33% opened for one value" in picture
    with pytest.raises(lakebed.InvalidOption, match="column 'nowhere' has no ranges"):
        t.indexes.ranges().plot("nowhere")
    assert t.indexes.ranges("ID").to_arrow()["column"].to_pylist() == ["id"]
    with pytest.raises(lakebed.InvalidOption, match="no column 'nowhere' in the table"):
        t.indexes.ranges(["id", "nowhere"])
    t.indexes.drop("column_stats")
    assert t.indexes.ranges().to_arrow().num_rows == 0


@pytest.mark.parametrize("in_metadata", [False, True])
def test_rates_are_those_of_the_filters_in_the_files(make: Make, in_metadata: bool) -> None:
    t = make(index="bloom", properties={"hoodie.index.bloom.num_entries": 20})
    t.upsert(pa.table({"id": range(60), "city": [f"c{n % 3}" for n in range(60)], "v": ["x"] * 60, "ts": [1] * 60}))
    if in_metadata:
        t.indexes.create("bloom_filters")
    storage = t.opened.storage
    expected = {
        one.base_file.name: read_footer(storage, one.base_file.path).bloom() for one in t.files if one.base_file
    }
    rates = t.indexes.bloom_rates().to_pylist()
    assert {row["file_name"]: row["rate"] for row in rates} == {n: b.rate for n, b in expected.items() if b is not None}
    assert len(rates) == 3
    assert t.indexes.bloom_rates(files=2).num_rows == 2

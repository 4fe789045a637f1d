from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.index.ranking import MIB, TableProfile, advise, bucket_count
from lakebed.slices.row_size import from_types


def _profile(gigabytes: float, partitions: int | None = 0, **more: object) -> TableProfile:
    rows = int(gigabytes * 1024)
    return TableProfile(rows=rows, row_bytes=MIB, partitions=partitions, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("profile", "index", "buckets", "reason"),
    [
        (TableProfile(), "simple", None, "size of the table is not known"),
        (TableProfile(has_key=False), "simple", None, "keys are generated"),
        (_profile(0.1), "simple", None, "102 MB in all"),
        (_profile(10), "bucket", 64, "10.0 GB in all make 64 buckets of 160 MB"),
        (_profile(10, partitions=None), "simple", None, "partition paths whose number is not known"),
        (_profile(10, partitions=10), "bucket", 4, "1.0 GB in each of 10 partitions make 4 buckets of 256 MB"),
        (_profile(10, partitions=1000), "simple", None, "too little to split"),
        (_profile(10, partitions=10, keys_grow=True), "simple", None, "only through the few partitions"),
        (_profile(10, partitions=1000, unique_keys=True), "simple", None, "too little to split"),
        (_profile(10, partitions=1000, unique_keys=True, batch=2), "bucket", 1, "touch 2 of 1,000 partitions"),
        (_profile(10, partitions=1000, batch=900), "bucket", 1, "upserts of 900 rows that touch 900 of 1,000"),
        (_profile(0.1, partitions=10, batch=9), "simple", None, "102 MB in all"),
        (_profile(10, partitions=10, unique_keys=True, batch=900), "bucket", 4, "a hash of the key, no file is read"),
        (_profile(10, keys_grow=True), "bucket", 64, "no write has to look keys up"),
    ],
)
def test_the_advisor_names_index_and_reason(
    profile: TableProfile, index: str, buckets: int | None, reason: str
) -> None:
    advice = advise(profile)
    assert (advice.index, advice.settings.get("buckets")) == (index, buckets)
    assert advice.why.startswith(index + ": ")
    assert reason in advice.why
    assert advise(profile) == advice


def test_buckets_start_between_128_and_256_mb() -> None:
    for megabytes in (300, 1000, 5000, 123_456):
        assert 128 * MIB <= megabytes * MIB / bucket_count(megabytes * MIB) <= 256 * MIB
    assert bucket_count(10**18) == 4096


def test_row_bytes_grow_with_the_columns() -> None:
    narrow = pa.schema([("id", pa.int64()), ("ok", pa.bool_())])
    wide = pa.schema([*narrow, ("name", pa.string()), ("tags", pa.list_(pa.string()))])
    nested = pa.schema([*wide, ("at", pa.struct([("x", pa.float64())])), ("m", pa.map_(pa.string(), pa.int32()))])
    assert 0 < from_types(narrow) < from_types(wide) < from_types(nested) < 200

"""Buckets by partition path and by splits: where keys fall, in Arrow and by one text, and which rules are taken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.expressions.bucket import Buckets, StoredBucket
from lakebed.format.hashes import bucket_ids
from lakebed.index.bucket import BucketIndex
from lakebed.index.bucket_counts import BucketCounts, count_in, parse_rules, rule_of
from lakebed.properties.file import PROPERTIES_PATH
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from support.write_tables import SCHEMA, rows

KEYS = pa.array([f"k{n}" for n in range(500)])


@pytest.fixture
def uri() -> Iterator[str]:
    yield "memory://bucket-counts/t"
    MemoryStorage.drop("bucket-counts")


def test_a_split_bucket_is_divided_among_its_parts_and_no_other_moves() -> None:
    whole = Buckets(4)
    once = whole.split(1)
    twice = once.split(5, 2)
    hashes = bucket_ids(KEYS, ["id"], 1 << 30)
    before, after, last = (one.numbers(hashes).tolist() for one in (whole, once, twice))
    assert {(b, a) for b, a in zip(before, after, strict=True)} == {(0, 0), (1, 1), (1, 5), (2, 2), (3, 3)}
    assert {5, 13} <= {a for a, n in zip(last, after, strict=True) if n == 5} <= {5, 13, 21, 29}
    assert [a for a, n in zip(last, after, strict=True) if n != 5] == [n for n in after if n != 5]
    assert whole.spread(1, once) == (1, 5)
    assert once.spread(5, whole) == (1,)
    assert twice.spread(21, once) == (5,)
    assert Buckets(4).spread(1, Buckets(6)) == (1, 3, 5)
    assert not twice.has(37)


def test_stored_rows_are_the_same_in_both_renderings() -> None:
    counts = BucketCounts(3, (("^eu", 7), ("us", 2)), (("asia", Buckets(3).split(2).depths),))
    paths = pa.array([("eu/1", "xus", "asia", "é€😀")[n % 4] for n in range(len(KEYS))])
    expression = StoredBucket(("id",), counts)
    batch = pa.record_batch([KEYS, paths], names=["_hoodie_record_key", "_hoodie_partition_path"])
    found = expression.arrow(batch)
    assert expression.of_texts(expression.hashed.arrow(batch)).equals(found)
    index = BucketIndex.of_counts(counts, ("id",))
    for path in ("eu/1", "xus", "asia", "é€😀"):
        mine = pa.compute.equal(paths, path)
        assert found.filter(mine).equals(index.in_partition(path).groups_of(KEYS.filter(mine)))
    assert index.groups == 7
    assert BucketIndex.from_settings(index.settings()) == index


@pytest.mark.parametrize("path", ["eu", "a.b", "a,b;c", "x=1/y=(2)", "é€"])
def test_the_rule_of_a_path_is_found_in_no_other(path: str) -> None:
    rules = parse_rules(f"{rule_of(path)},5")
    assert count_in(rules, path) == 5
    assert [count_in(rules, other) for other in (path + "x", "x" + path, path.replace(".", "-") + "/")] == [None] * 3


@pytest.mark.parametrize("text", ["eu", "eu,x", "eu,0", "a,b,3", "[,3", r"\p{L},3", "(?i)eu,3", "a++,3", "[a&&b],3"])
def test_rules_that_mean_nothing_or_two_things_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_rules(text)


def test_a_new_table_with_rules_and_what_real_hudi_finds_of_them(uri: str) -> None:
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "index": "bucket", "buckets": 2}
    table = lakebed.create(uri, SCHEMA, partition_buckets="^rome$,5", **words)
    table.upsert(rows(*((n, ("oslo", "rome")[n % 2], "v", 1) for n in range(100))))
    assert [sum(one.partition == path for one in table.files) for path in ("oslo", "rome")] == [2, 5]
    folder = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
    assert open_storage(uri).read(f"{folder}/00000000000000.hashing_config").decode() == (
        '{\n  "expressions" : "^rome$,5",\n  "defaultBucketNumber" : 2,\n  "rule" : "regex",\n  "version" : 1,\n'
        '  "instant" : "00000000000000"\n}'
    )
    # a filter that says nothing of the key loses no row, one that does reads one bucket
    assert table.scan(where="v = 'v'").count() == 100
    assert [table.scan(where=f"id = {n}").count() for n in (3, 4)] == [1, 1]
    with pytest.raises(InvalidOption):
        table.upsert(rows((1, "rome", "v", 1)), options={"hoodie.bucket.index.partition.expressions": "rome,7"})


def test_a_bucket_that_has_grown_is_warned_of_once(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    table = lakebed.create(uri, SCHEMA, key="id", index="bucket", buckets=1)
    small = {"lakebed.index.bucket.advised.bytes": 3000}
    with caplog.at_level(logging.WARNING, "lakebed"):
        table.upsert(rows((1, "c", "v", 1)), options={"lakebed.index.bucket.advised.bytes": 100_000})
        assert "has grown" not in caplog.text
        for turn in range(2):
            table.upsert(rows(*((n, "c", f"v{turn}-{n * 7919}", 1) for n in range(900))), options=small)
    told = [r.getMessage() for r in caplog.records if "has grown" in r.getMessage()]
    assert len(told) == 1
    assert "t.maintenance.rescale(split_over=3000)" in told[0]


def test_sizes_of_buckets_as_a_table_and_a_picture(uri: str) -> None:
    table = lakebed.create(uri, SCHEMA, key="id", partition_by="city", index="bucket", buckets=2)
    table.upsert(rows(*((n, "oslo" if n else "rome", f"v{n}", 1) for n in range(50))))
    found = table.files.skew().to_arrow()
    assert found["bytes"].to_pylist() == sorted((one.size for one in table.files), reverse=True)
    assert set(zip(found["partition"].to_pylist(), found["bucket"].to_pylist(), strict=True)) == {
        (one.partition, int(one.file_id[:8])) for one in table.files
    }
    shown = table.files.skew()._repr_html_()
    assert shown.count("<rect") == 3
    assert "<table>" in shown


def test_counts_that_real_hudi_gave_to_a_table_without_any_are_followed(uri: str) -> None:
    """Its procedure writes its own file, and nothing to the properties: no lookup may go by the count from before."""
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "index": "bucket", "buckets": 2}
    table = lakebed.create(uri, SCHEMA, partition_buckets="^rome$,5", **words)
    table.upsert(rows(*((n, ("oslo", "rome")[n % 2], "v", 1) for n in range(60))))
    storage = open_storage(uri)
    lines = storage.read(PROPERTIES_PATH).decode().splitlines(keepends=True)
    storage.write(PROPERTIES_PATH, "".join(one for one in lines if "bucket.partitions" not in one).encode())
    table = lakebed.open(uri)
    assert "lakebed.index.bucket.partitions" not in table.properties
    assert sum(one.partition == "rome" for one in table.files) == 5
    assert table.get(list(range(60))).num_rows == 60
    assert [table.scan(where=f"id = {n}").count() for n in range(60)] == [1] * 60
    assert table.upsert(rows(*((n, ("oslo", "rome")[n % 2], "w", 2) for n in range(70)))).inserted == 10
    assert table.scan().count() == 70
    # one count for all again, as a rule of Hudi's and as none of lakebed's
    table.maintenance.rescale(2)
    assert table.properties.get("lakebed.index.bucket.partitions") is None
    assert lakebed.open(uri).indexes.index.settings()["bucket.count"] == "2"
    assert table.get(list(range(70))).num_rows == 70

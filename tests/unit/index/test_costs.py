"""The cost model of tagging: what it says grows with what has to be read, and where its two sides meet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakebed.index.costs import Batch, TaggingCosts, crossover, record_cost, simple_cost

WIDE = Batch(keys=500, files=5_000, rows=500_000, shards=10, index_files=32, index_bytes=10_000_000)
LARGE = Batch(keys=500, files=8, rows=1_000_000, shards=10, index_files=32, index_bytes=21_000_000)


def test_costs_grow_with_what_is_read() -> None:
    assert simple_cost(replace(WIDE, files=6_000)) > simple_cost(WIDE)
    assert simple_cost(replace(WIDE, rows=600_000)) > simple_cost(WIDE)
    assert record_cost(replace(WIDE, files=6_000)) == record_cost(WIDE)
    for more in ({"index_files": 64}, {"index_bytes": 20_000_000}, {"keys": 600}):
        assert record_cost(replace(WIDE, **more)) > record_cost(WIDE)
    assert record_cost(replace(WIDE, keys=1)) < record_cost(WIDE) / 2


def test_a_few_keys_open_only_their_shards_and_blocks() -> None:
    one = record_cost(replace(LARGE, keys=1))
    assert record_cost(replace(LARGE, keys=1, shards=100, index_files=320, index_bytes=210_000_000)) == pytest.approx(
        one
    )


@pytest.mark.parametrize("batch", [WIDE, LARGE, Batch(0, 1, 1_000), Batch(0, 300, 50_000_000)])
def test_the_crossover_is_where_the_costs_meet(batch: Batch) -> None:
    at = crossover(batch)
    if at is None:
        assert record_cost(replace(batch, keys=batch.rows)) <= simple_cost(replace(batch, keys=batch.rows))
        return
    before, there = replace(batch, keys=int(at * 0.98) - 1), replace(batch, keys=at)
    assert record_cost(there) > simple_cost(there)
    assert before.keys < 1 or record_cost(before) <= simple_cost(before)


def test_many_small_files_are_never_the_cheaper_way_and_few_large_ones_are_for_many_keys() -> None:
    assert crossover(WIDE) is None
    at = crossover(LARGE)
    assert at is not None
    assert 100_000 < at < 500_000
    assert record_cost(WIDE) <= 0.28 * simple_cost(WIDE)


def test_the_costs_of_a_batch_are_explained() -> None:
    costs = TaggingCosts.of("global_simple", WIDE, simple="global_simple")
    assert costs.cheaper == "record"
    first, second = costs.lines()
    assert first.startswith("tagging: record 0.")
    assert "global_simple 7.9 s" in first
    assert first.endswith("the record index is the cheaper one for any batch")
    assert second == "for this batch the record index would be cheaper than global_simple"
    costs = TaggingCosts.of("record", replace(LARGE, keys=900_000), simple="global_simple")
    assert costs.cheaper == "global_simple"
    assert f"for fewer than {crossover(LARGE):,} keys" in costs.lines()[0]
    costs = TaggingCosts.of("record", Batch(keys=3, files=1, rows=100), simple="global_simple")
    assert costs.cheaper is None
    assert costs.lines()[0].endswith("reading the keys of so few rows is cheaper than any index")
    costs = TaggingCosts.of("bucket", WIDE, simple="simple")
    assert costs.cheaper is None
    assert costs.lines()[0].startswith("tagging: nothing is looked up; otherwise record")

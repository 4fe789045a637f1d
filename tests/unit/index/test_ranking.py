"""The ranking of indexes: which comes first for which workload, what does not fit, that every figure is explained."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.index.ranking import TableProfile, Workload, advise, rank

NAMES = (
    "bucket",
    "bucket_groups",
    "record",
    "simple",
    "global_simple",
    "bloom",
    "global_bloom",
    "consistent",
    "hbase",
)
PLAIN = Workload(
    rows=500_000_000, row_bytes=100, partitions=1000, batch=1000, touched=500, touched_rows=250_000_000, known=0.5
)

LARGE_BUCKETS = replace(PLAIN, rows=8_000_000, partitions=0, touched=1, touched_rows=8_000_000, known=1.0)


def order(workload: Workload) -> list[str]:
    return [one.index for one in rank(workload, NAMES).candidates]


@pytest.mark.parametrize(
    ("workload", "first", "last"),
    [
        (PLAIN, "bucket", "hbase"),
        (replace(PLAIN, unique=True, deletes=True, touched=1, batch=20), "record", "consistent"),
        (replace(PLAIN, mor=True, unique=True), "bucket", "global_simple"),
    ],
)
def test_the_cheapest_comes_first_and_what_does_not_fit_last(workload: Workload, first: str, last: str) -> None:
    found = rank(workload, NAMES)
    assert found.best.index == first
    assert {c.index for c in found.candidates} == set(NAMES)
    fitting = [c.fits for c in found.candidates]
    assert fitting == sorted(fitting, reverse=True)
    assert last in [c.index for c in found.candidates[-4:]]


def test_global_indexes_fit_unique_keys_alone() -> None:
    repeated = {c.index: c.fits for c in rank(PLAIN, NAMES).candidates}
    assert [name for name in NAMES if not repeated[name]] == [
        "record",
        "global_simple",
        "global_bloom",
        "consistent",
        "hbase",
    ]
    unique = {c.index: c.fits for c in rank(replace(PLAIN, unique=True, mor=True, served=True), NAMES).candidates}
    assert all(unique.values())


def test_every_figure_has_its_words_and_costs_grow_with_what_they_are_made_of() -> None:
    for candidate in rank(PLAIN, NAMES).candidates:
        assert [word.partition(":")[0] for word in candidate.words[:3]] == ["tagging", "writing", "reading"]
        assert candidate.seconds == candidate.tagging + candidate.writing > 0
    small = {c.index: c for c in rank(replace(PLAIN, touched=5, touched_rows=2_500_000), NAMES).candidates}
    large = {c.index: c for c in rank(PLAIN, NAMES).candidates}
    assert large["simple"].tagging > 50 * small["simple"].tagging
    assert large["bucket"].tagging == small["bucket"].tagging


def test_buckets_of_several_files_cost_lookups_and_rewrite_fewer_rows() -> None:
    """Few keys of large buckets: a file of a bucket is written for each key, and not the whole bucket."""
    few = replace(LARGE_BUCKETS, batch=20)
    found = {c.index: c for c in rank(few, NAMES).candidates}
    whole, some = found["bucket"], found["bucket_groups"]
    assert some.tagging > 10 * whole.tagging
    assert some.writing < whole.writing
    assert some.read_amplification == 2 * whole.read_amplification
    small = replace(LARGE_BUCKETS, rows=100_000, touched_rows=100_000)
    alike = {c.index: c for c in rank(small, NAMES).candidates}
    assert alike["bucket_groups"].write_amplification == alike["bucket"].write_amplification


def test_rings_cost_their_reading_and_what_is_split() -> None:
    appended = replace(LARGE_BUCKETS, mor=True, known=0.0)
    found = {c.index: c for c in rank(appended, NAMES).candidates}
    assert found["consistent"].write_amplification == found["bucket"].write_amplification + 1
    assert found["consistent"].tagging > found["bucket"].tagging
    # keys whose partition paths nobody knows are looked for in all of them, by a ring as by a count
    gone = {c.index: c for c in rank(replace(PLAIN, mor=True, deletes=True, batch=20), NAMES).candidates}
    assert gone["consistent"].tagging > gone["bucket"].tagging > 100 * found["bucket"].tagging


def data(count: int) -> pa.Table:
    return pa.table({"id": list(range(count)), "city": [f"c{n % 4}" for n in range(count)], "x": [0] * count})


def test_advice_names_the_facts_of_the_rows() -> None:
    rows = data(1000)
    batch = pa.table({"id": [5, 5000], "city": ["c1", "c0"], "x": [1, 1]})
    workload = lakebed.indexes.advise(rows, key="id", partition_by="city", batch=batch).workload
    assert (workload.rows, workload.partitions, workload.batch, workload.touched) == (1000, 4, 2, 2)
    assert (workload.touched_rows, workload.known, workload.grows, workload.unique) == (500, 0.5, True, True)
    assert workload.largest == 0.25
    again = lakebed.indexes.advise(rows, key="x", partition_by="city", batch=7, expected_rows=100_000).workload
    assert (again.rows, again.batch, again.grows, again.unique) == (100_000, 7, False, False)
    with pytest.raises(InvalidOption, match="no column 'town'"):
        lakebed.indexes.advise(rows, key="id", partition_by="town")


def test_a_table_describes_its_files_its_commits_and_the_batchs_keys() -> None:
    table = lakebed.create("memory://ranking/table", data(1000), key="id", partition_by="city", index="simple")
    table.upsert(data(1000))
    table.upsert(data(500))
    told = table.indexes.advise()
    assert told.workload.partitions == 4
    assert (told.workload.known, told.workload.batch) == (1.0, 500)  # the first commit filled the table
    assert any("4 files in 4 partitions" in word for word in told.workload.sources)
    batch = pa.table({"id": [0, 4, 4000, 4004], "city": ["c0"] * 4, "x": [1] * 4})
    of_batch = table.indexes.advise(batch).workload
    assert (of_batch.batch, of_batch.touched, of_batch.known) == (4, 1, 0.5)
    assert 200 <= of_batch.touched_rows <= 300
    assert table.indexes.advise(batch).index in {"bucket", "simple"}


@pytest.mark.parametrize(
    ("index", "unique"),
    [
        ("global_simple", True),
        ("global_bloom", True),
        ("record", True),
        ("record_level_index", False),
        ("bloom", False),
    ],
)
def test_keys_of_a_table_are_unique_where_its_index_keeps_them_so(index: str, unique: int) -> None:
    table = lakebed.create(f"memory://ranking/{index}", data(100), key="id", partition_by="city", index=index)
    table.upsert(data(100))
    fits = {one.index for one in table.indexes.advise().ranking if one.fits}
    assert ("record" in fits, "global_bloom" in fits) == (unique, unique)


def test_rows_that_only_log_files_hold_count() -> None:
    words = {"key": "id", "partition_by": "city", "type": "mor", "index": "consistent", "buckets": 2}
    table = lakebed.create("memory://ranking/logged", data(1000), **words)  # type: ignore[arg-type]
    table.upsert(data(1000))
    told = table.indexes.advise().workload
    assert told.partitions == 4
    assert 300 < told.rows < 3000


def test_advice_prints_and_shows_as_a_table() -> None:
    advice = lakebed.indexes.advise(data(1000), key="id")
    assert str(advice).startswith(f"take index={advice.index!r}\n1,000 rows")
    assert all(one.index in advice._repr_html_() for one in advice.ranking)
    assert advice.to_arrow().column("index").to_pylist() == [one.index for one in advice.ranking]


def words(workload: Workload, index: str) -> str:
    return "\n".join(next(one for one in rank(workload, NAMES).candidates if one.index == index).reasons)


def test_advice_names_the_sizes_of_files_and_the_most_buckets() -> None:
    huge = replace(PLAIN, rows=100_000_000_000, row_bytes=461.8, partitions=0, touched=1, unique=True)
    assert "files: 4,096 buckets of about 10.5 GB; more than the 3.0 GB advised" in words(huge, "bucket")
    assert "4,096 buckets of a partition are the most that are chosen" in words(huge, "bucket")
    assert "give more buckets (16,384), or take bucket_groups, whose files stay at 120 MB" in words(huge, "bucket")
    assert "files: 367,006 of about 120 MB" in words(huge, "record")
    assert "of about 120 MB, in 4,096 buckets a partition" in words(huge, "bucket_groups")
    assert "files: 1,024 buckets of about 47 MB" in words(replace(PLAIN, partitions=1024), "bucket")
    fits = replace(huge, rows=4096 * 3 * (1 << 30), row_bytes=1.0)
    assert "more than" not in words(fits, "bucket")
    assert "more than the 3.0 GB" in words(replace(fits, rows=fits.rows + 4096), "bucket")


def test_the_choice_for_a_table_beyond_the_most_buckets_says_so() -> None:
    why = advise(TableProfile(rows=100_000_000_000, row_bytes=461.8, partitions=0)).why
    assert "42.0 TB in all make 4096 buckets of 10.5 GB, more than the 3.0 GB advised" in why
    small = advise(TableProfile(rows=100_000_000, row_bytes=100, partitions=0)).why
    assert "64 buckets of 149 MB, with room to grow to 3.0 GB each" in small


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ("record", "a key may have rows in several partition paths"),
        ("global_simple", "a key may have rows in several partition paths"),
        ("consistent", "for merge-on-read tables alone"),
        ("hbase", "a key may have rows in several partition paths"),
    ],
)
def test_an_index_that_does_not_fit_says_why(index: str, reason: str) -> None:
    ranking = rank(PLAIN, NAMES)
    assert f"does not fit: {ranking.candidates[-1].obstacle}" in str(ranking)
    assert reason in words(PLAIN, index).partition("\n")[0]
    row = next(row for row in ranking.to_arrow().to_pylist() if row["index"] == index)
    assert not row["fits"]
    assert row["why"].startswith("does not fit: ")
    assert "names no HBase server" in words(replace(PLAIN, unique=True), "hbase")
    assert "does not fit" not in words(replace(PLAIN, unique=True, mor=True, served=True), index)


def test_the_first_load_is_no_typical_batch() -> None:
    rows = data(10_000)
    table = lakebed.load("memory://ranking/loads", rows, key="id")
    alone = table.indexes.advise().workload
    assert alone.batch <= 1_000
    assert "no commit after the first load: a batch is taken to be a hundredth of the rows" in alone.sources
    table.bulk_insert(pa.table({"id": list(range(10_000, 15_000)), "city": ["c"] * 5_000, "x": [0] * 5_000}))
    assert table.indexes.advise().workload.batch <= 1_000
    for count in (30, 10, 20):
        table.upsert(data(count))
    later = table.indexes.advise().workload
    assert (later.batch, later.known) == (20, 1.0)
    assert any("the last 3 commits after the first load: 20 rows each" in source for source in later.sources)

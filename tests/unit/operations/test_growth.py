"""Buckets that split while they are written: the rows of a write and those that are stored, in twice as many buckets
by one commit, and no row more or less for any reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import bucket_ids
from lakebed.index import bucket_counts
from lakebed.index.bucket_counts import grown_count
from lakebed.model import Action
from lakebed.table import Table
from support.sampling import HISTORIES, todays_of
from support.write_tables import content, rows

Make = Callable[..., Table]
QUIET = {"hoodie.compact.inline": False}
GROW, ADVISED = "lakebed.index.bucket.grow", "lakebed.index.bucket.advised.bytes"
KINDS = todays_of((9, 8, 6), ("cow", "mor"), ("key", "none"), parts=4, variable=HISTORIES)
FIRST = [(n, f"c{n % 2}", f"v{n}", 1) for n in range(60)]


def filled(make: Make, **given: Any) -> Table:
    """Two partition paths of two buckets each, that may grow; nothing is too large yet."""
    properties = {**QUIET, GROW: True, ADVISED: 1 << 30, **given.pop("properties", {})}
    table = make(**{"index": "bucket", "buckets": 2, **given}, properties=properties)
    table.upsert(rows(*FIRST))
    table.upsert(rows((3, "c1", "again", 2)))
    return table


def sized(table: Table, path: str = "") -> int:
    """The size of the largest base file, of a partition path if one is named."""
    return max(one.base_file.size for one in table.files if one.base_file is not None and path in one.partition)


def buckets(table: Table) -> dict[str, set[int | None]]:
    found: dict[str, set[int | None]] = {}
    for one in lakebed.open(table.uri).files:
        found.setdefault(one.partition, set()).add(bucket_of_file_id(one.file_id))
    return found


def numbers(model: dict[int, Any], path: str, count: int) -> set[int]:
    """The buckets of the keys of a partition path."""
    ids = [str(key) for key, (city, _, _) in model.items() if city == path]
    return set(bucket_ids(pa.array(ids), ["id"], count).tolist())


def check(table: Table, model: dict[int, Any]) -> None:
    """The table has these rows, each in its bucket, and each way to a row finds it."""
    table = lakebed.open(table.uri)
    found = table.scan(["id", "city", "v", "ts"]).to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted((key, *row) for key, row in model.items())
    table.indexes.index.check(table.opened.snapshot())
    for key in list(model)[::13]:
        assert table.get([key])["v"].to_pylist() == [model[key][1]]
        assert table.scan(where=f"id = {key}").count() == 1
    assert table.indexes.verify().ok


def model_of(*batches: list[tuple[int, str, str, int]]) -> dict[int, tuple[str, str, int]]:
    return {key: (city, v, ts) for batch in batches for key, city, v, ts in batch}


@pytest.mark.parametrize(("version", "kind", "sort"), KINDS)
def test_a_write_splits_the_buckets_of_its_partition_path(make: Make, version: int, kind: str, sort: str) -> None:
    table = filled(make, table_version=version, type=kind, sort=sort)
    before = table.timeline.last
    stored = content(table)
    others = {one.file_id for one in table.files if one.partition == "c0"}
    times = {r["id"]: r["_hoodie_commit_time"] for r in table.scan(meta=True).to_arrow().to_pylist()}
    # one bucket gets no row at all; a late row and a row of a new key
    odd = next(n for n in range(1, 60, 2) if numbers({n: ("c1", "", 0)}, "c1", 2) == {0})
    batch = [(odd, "c1", "new", 5), (3, "c1", "late", 1), (odd + 1000, "c1", "fresh", 1)]
    batch = [row for row in batch if numbers({row[0]: row[1:]}, "c1", 2) == {0} or row[0] == odd]
    done = table.upsert(rows(*batch), options={ADVISED: sized(table, "c1") - 1})
    model = model_of(FIRST, [(3, "c1", "again", 2)], [row for row in batch if row[2] != "late"])
    check(table, model)
    assert done.bucket_changes == ("buckets of c1 split: 2 become 4",)
    assert (done.updated, done.inserted, done.deleted) == (1, len([r for r in batch if r[2] == "fresh"]), 0)
    assert (done.rows, done.unchanged) == (len(batch), len([r for r in batch if r[2] == "late"]))
    assert done.replaced_file_groups == 0
    assert buckets(table) == {"c0": {0, 1}, "c1": numbers(model, "c1", 4)}
    assert {one.file_id for one in lakebed.open(table.uri).files if one.partition == "c0"} == others
    assert table.properties["lakebed.index.bucket.partitions"] == "^c1$,4"
    last = table.timeline.last
    assert before is not None
    assert last is not None
    assert (last.time, last.action) == (done.instant, Action.REPLACECOMMIT)
    # no reader takes a row that only moved for a change
    changed = lakebed.open(table.uri).changes(before.completion_time or before.time).to_arrow()
    assert sorted(changed["v"].to_pylist()) == sorted(r[2] for r in batch if r[2] != "late")
    meta = {r["id"]: r["_hoodie_commit_time"] for r in table.scan(meta=True).to_arrow().to_pylist()}
    assert {key: meta[key] for key in times if key not in {r[0] for r in batch}} == {
        key: time for key, time in times.items() if key not in {r[0] for r in batch}
    }
    old = lakebed.open(table.uri).scan(as_of=before.time).to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in old) == stored
    again = table.upsert(rows((1, "c1", "once more", 9)))
    assert again.bucket_changes == ()
    check(table, model | {1: ("c1", "once more", 9)})


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_without_partition_paths_gets_another_count(make: Make, kind: str) -> None:
    table = filled(make, type=kind, partition_by=None)
    done = table.upsert(rows(*((n, "c0", "w", 3) for n in range(80))), options={ADVISED: sized(table) // 3})
    assert done.bucket_changes == ("buckets of (no partition) split: 2 become 8",)
    assert table.properties["lakebed.index.bucket.count"] == "8"
    model = model_of(FIRST, [(n, "c0", "w", 3) for n in range(80)])
    check(table, model)
    assert buckets(table) == {"": set(bucket_ids(pa.array(list(map(str, model))), ["id"], 8).tolist())}


def test_a_bucket_of_just_the_advised_size_does_not_split(make: Make) -> None:
    table = filled(make)
    options = {ADVISED: sized(table)}
    assert table.upsert(rows((1, "c1", "w", 3), (2, "c0", "w", 3)), options=options).bucket_changes == ()
    assert buckets(table) == {"c0": {0, 1}, "c1": {0, 1}}
    assert table.upsert(rows((1, "c1", "w", 4), (2, "c0", "w", 4)), options={ADVISED: sized(table) - 1}).bucket_changes


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ([100, 100], 2, 2),  # no bucket is too large
        ([101, 99], 2, 4),
        ([101, 0], 2, 4),  # the mean is more than half of the limit
        ([100, 0, 101, 0], 4, 8),
        ([101, 0, 99, 0], 4, 4),  # it is half of the limit
        ([300, 1, 1, 1], 4, 8),  # and no more often for one bucket of few keys
        ([401, 401], 2, 16),
        ([], 2, 2),
    ],
)
def test_buckets_double_until_they_fit_while_all_are_filled(sizes: list[int], count: int, expected: int) -> None:
    assert grown_count(sizes, count, 100) == expected


def test_no_bucket_count_exceeds_the_numbers_of_file_ids() -> None:
    most = bucket_counts.MAX_BUCKETS
    assert grown_count([10 * most], most // 2, 1) == most
    assert grown_count([10 * most], most // 2 + 1, 1) == most // 2 + 1


@pytest.mark.parametrize(("rules", "splits"), [(1, True), (0, False)])
def test_only_so_many_partition_paths_get_a_rule(
    make: Make, monkeypatch: pytest.MonkeyPatch, rules: int, splits: bool
) -> None:
    monkeypatch.setattr(bucket_counts, "MAX_RULES", rules)
    table = filled(make)
    done = table.upsert(rows((1, "c1", "w", 3), (2, "c0", "w", 3)), options={ADVISED: 2000})
    assert len(done.bucket_changes) == splits
    check(table, model_of(FIRST, [(3, "c1", "again", 2), (1, "c1", "w", 3), (2, "c0", "w", 3)]))


def test_only_rows_of_upserts_and_inserts_split_buckets_and_only_where_the_table_says_so(make: Make) -> None:
    table = filled(make, properties={ADVISED: 2000, GROW: False})
    small = buckets(table)
    assert table.upsert(rows((1, "c1", "w", 3))).bucket_changes == ()
    table.configure({GROW: True})
    assert table.delete([3]).bucket_changes == ()
    assert table.update({"v": "'u'"}, where="id = 5").bucket_changes == ()
    assert buckets(table) == small
    assert table.insert(rows((700, "c1", "w", 3))).bucket_changes
    check(table, model_of([r for r in FIRST if r[0] != 3], [(1, "c1", "w", 3), (5, "c1", "u", 1), (700, "c1", "w", 3)]))
    # the settings are not those of the index: they stay when it changes
    table.maintenance.rescale(3)
    assert (table.properties[GROW], table.properties[ADVISED]) == ("true", "2000")


def test_a_table_with_a_change_log_splits_nothing(make: Make) -> None:
    table = filled(make, properties={"hoodie.table.cdc.enabled": True, ADVISED: 2000})
    assert table.upsert(rows((1, "c1", "w", 3))).bucket_changes == ()
    assert table.files.skew().to_arrow()["splits_into"].null_count == 4


@pytest.mark.rest
def test_deletes_and_known_keys_of_a_write_that_splits(make: Make) -> None:
    table = filled(make)
    marked = rows((1, "c1", "w", 3), (5, "c1", "w", 3), (801, "c1", "w", 3))
    marked = marked.append_column("_hoodie_is_deleted", pa.array([True, False, True]))
    done = table.upsert(marked, options={ADVISED: 2000})
    assert (done.updated, done.deleted, done.inserted) == (1, 1, 0)
    assert done.bucket_changes
    model = model_of([r for r in FIRST if r[0] != 1], [(3, "c1", "again", 2), (5, "c1", "w", 3)])
    check(table, model)
    dropped = {ADVISED: 1000, "hoodie.datasource.write.insert.drop.duplicates": True}
    given = rows((5, "c1", "x", 3), (900, "c1", "x", 3)).append_column("_hoodie_is_deleted", pa.array([False, False]))
    done = table.insert(given, options=dropped)
    assert (done.inserted, done.unchanged) == (1, 1)
    assert done.bucket_changes
    check(table, model | {900: ("c1", "x", 3)})


def test_rows_that_lack_columns_keep_what_is_stored(make: Make) -> None:
    table = filled(make)
    part = rows((1, "c1", "w", 3)).select(["id", "city", "ts"])
    done = table.upsert(part, options={ADVISED: 2000, "lakebed.write.partial": True})
    assert done.bucket_changes
    check(table, model_of(FIRST, [(3, "c1", "again", 2), (1, "c1", "v1", 3)]))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_explain_and_skew_say_what_the_next_write_splits(make: Make, kind: str) -> None:
    table = filled(make, type=kind)
    batch, options = rows((1, "c1", "w", 3)), {ADVISED: 2000}
    assert table.files.skew().to_arrow()["splits_into"].to_pylist() == [None] * 4
    assert "split" not in str(table.explain(upsert=batch))
    table.configure(options)
    table = lakebed.open(table.uri)
    plan = table.explain(upsert=batch)
    assert "buckets of c1 split: 2 become 4" in str(plan)
    assert plan.to_dict()["bucket_changes"] == ["buckets of c1 split: 2 become 4"]
    # also the bucket that gets no row is rewritten
    assert (plan.rows, plan.rewritten, plan.appended) == (1, 2, 0)
    assert table.files.skew().to_arrow()["splits_into"].to_pylist() == [2] * 4
    assert table.upsert(batch).bucket_changes == plan.bucket_changes


@pytest.mark.rest
def test_a_write_waits_with_the_split_for_a_compaction_that_is_planned(make: Make) -> None:
    table = filled(make, type="mor")
    table.maintenance.compact(plan_only=True)
    table.configure({ADVISED: 2000})
    assert table.upsert(rows((1, "c1", "w", 3))).bucket_changes == ()
    table.maintenance.compact()
    assert table.upsert(rows((1, "c1", "w", 4))).bucket_changes
    check(table, model_of(FIRST, [(3, "c1", "again", 2), (1, "c1", "w", 4)]))


@pytest.mark.parametrize(("version", "kind"), [(9, "cow"), (6, "mor")])
def test_rollback_and_restore_give_the_count_of_before(make: Make, version: int, kind: str) -> None:
    table = filled(make, table_version=version, type=kind)
    before, small = table.timeline.last, model_of(FIRST, [(3, "c1", "again", 2)])
    assert before is not None
    done = table.upsert(rows((1, "c1", "w", 3)), options={ADVISED: 2000})
    table.rollback(done.instant)
    check(table, small)
    assert buckets(table) == {"c0": {0, 1}, "c1": {0, 1}}
    table.savepoints.create()
    assert table.upsert(rows((1, "c1", "w", 3)), options={ADVISED: 2000}).bucket_changes
    table.upsert(rows((7, "c1", "w", 3)))
    table.restore(before.time)
    check(table, small)
    assert buckets(table) == {"c0": {0, 1}, "c1": {0, 1}}
    assert table.upsert(rows((1, "c1", "w", 3)), options={ADVISED: 2000}).bucket_changes
    check(table, small | {1: ("c1", "w", 3)})


def test_a_batch_of_a_stream_that_split_buckets_is_written_once(make: Make) -> None:
    table = filled(make)
    batch, once = rows((1, "c1", "w", 3)), lakebed.Once("stream", 7)
    assert table.upsert(batch, options={ADVISED: 2000}, once=once).bucket_changes
    again = lakebed.open(table.uri).upsert(rows((1, "c1", "twice", 9)), once=once)
    assert (again.skipped, again.bucket_changes) == (True, ())
    check(table, model_of(FIRST, [(3, "c1", "again", 2), (1, "c1", "w", 3)]))

"""Rescaling a bucket index, and changing the index of a table that has rows: the same rows at their new places."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import CommitConflict, IndexInconsistent, InvalidOption, UnsupportedFeature
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import bucket_ids
from lakebed.model import Action
from lakebed.table import Table
from support.compaction_tables import bare
from support.golden_tables import GoldenTable, golden_tables
from support.sampling import HISTORIES, todays_of
from support.write_tables import SCHEMA, rows

Make = Callable[..., Table]
QUIET = {"hoodie.compact.inline": False}
KINDS = todays_of((9, 8, 6), ("cow", "mor"), ("key", "none"), parts=4, variable=HISTORIES)


def filled(make: Make, **given: Any) -> Table:
    """Two partition paths of four buckets, with updates and a delete."""
    words = {"index": "bucket", "buckets": 4} | given
    table = make(**words, properties={"hoodie.compact.inline": False, **words.pop("properties", {})})
    table.upsert(rows(*((n, f"c{n % 2}", f"v{n}", 1) for n in range(60))), options=QUIET)
    table.upsert(rows((3, "c1", "again", 2), (44, "c0", "again", 2)), options=QUIET)
    table.delete([5], options=QUIET)
    return table


@pytest.mark.parametrize("kind", ["consistent", "bucket_groups"])
def test_an_index_whose_rows_cannot_move_is_refused_by_name(make: Make, kind: str) -> None:
    table = make(index=kind, buckets=2, type="mor", properties=QUIET)
    table.upsert(rows(*((n, "c0", "v", 1) for n in range(20))), options=QUIET)
    before, commits = content(table), len(table.timeline)
    with pytest.raises(InvalidOption, match=f"the index '{kind}'"):
        table.maintenance.rescale(buckets=4)
    with pytest.raises(UnsupportedFeature, match=f"'{kind}' is that of a table from its first write on"):
        table.indexes.use("bucket", buckets=2)
    with pytest.raises(UnsupportedFeature, match=f"its index is {kind}"):
        table.join(table)
    with pytest.raises(InvalidOption, match=f"its {kind} index has file groups for each bucket"):
        table.maintenance.merge_small_files()
    with pytest.raises(InvalidOption, match=f"partition_buckets does not belong to the index '{kind}'"):
        make(index=kind, type="mor", partition_buckets="c0,4")
    table = lakebed.open(table.uri)
    assert (content(table), len(table.timeline), table.indexes.index.name) == (before, commits, kind)


@pytest.mark.parametrize(("kind", "buckets"), [("consistent", 2), ("bucket_groups", 3)])
def test_a_bucket_table_does_not_get_an_index_whose_rows_cannot_move(make: Make, kind: str, buckets: int) -> None:
    table = make(index="bucket", buckets=2, type="mor", properties=QUIET)
    table.upsert(rows((1, "c0", "v", 1)), options=QUIET)
    with pytest.raises(UnsupportedFeature, match=f"'{kind}' is that of a table from its first write on"):
        table.indexes.use(kind, buckets=buckets)
    table = lakebed.open(table.uri)
    assert (content(table), table.indexes.index.name) == ([{"id": 1, "city": "c0", "v": "v", "ts": 1}], "bucket")


@pytest.mark.rest
@pytest.mark.parametrize(("version", "kind", "sort"), KINDS)
def test_buckets_that_have_grown_get_further_file_groups(make: Make, version: int, kind: str, sort: str) -> None:
    """No row moves: the buckets are those that the table has."""
    table = filled(make, table_version=version, type=kind, sort=sort)
    model, files = content(table), {one.file_id for one in table.files}
    plan = table.indexes.use("bucket_groups", buckets=4, dry_run=True).plan
    assert (plan.way, plan.rows, table.indexes.index.name) == ("nothing", 0, "bucket")
    assert table.indexes.use("bucket_groups", buckets=4).rows == 0
    table = lakebed.open(table.uri)
    assert {one.file_id for one in table.files} == files
    check(table, model)
    check(table, upsert(table, 0))
    small = {**QUIET, "hoodie.parquet.max.file.size": 1, "hoodie.parquet.small.file.limit": 0}
    table.upsert(rows(*((n, "c0", "new", 1) for n in range(400, 440))), options=small)
    assert len(table.files) > len(files)
    assert buckets(table)["c0"] == set(range(4))
    check(table, content(table))
    check(table, upsert(table, 1))


def content(table: Table, **view: Any) -> list[dict[str, Any]]:
    """All rows, in the order of their keys."""
    found = lakebed.open(table.uri).scan(**view).to_arrow().to_pylist()
    return sorted(found, key=lambda row: (row["id"], row["city"]))


def buckets(table: Table) -> dict[str, set[int]]:
    """The numbers of the buckets of each partition path."""
    found: dict[str, set[int]] = {}
    for one in table.files:
        found.setdefault(one.partition, set()).add(bucket_of_file_id(one.file_id) or 0)
    return found


def numbers(ids: list[int], count: int) -> set[int]:
    """The buckets of these keys."""
    return set(bucket_ids(pa.array(list(map(str, ids))), ["id"], count).tolist())


def check(table: Table, model: list[dict[str, Any]]) -> None:
    """The table has these rows, each in its bucket, and every way to a row finds it."""
    table = lakebed.open(table.uri)
    assert content(table) == model
    snapshot = table.opened.snapshot()
    table.indexes.index.check(snapshot)
    for row in model[::17]:
        assert table.scan(where=f"id = {row['id']}").to_arrow().num_rows == 1
        assert table.get([row["id"]]).to_pylist() == [row]
    assert table.indexes.verify().ok


def upsert(table: Table, turn: int) -> list[dict[str, Any]]:
    """Change some rows and add one in each partition path; what the table holds then."""
    given = [(n, f"c{n % 2}", f"w{turn}", 5 + turn) for n in (0, 1, 7, 22, 100 + turn, 201 + turn)]
    known = {row["id"]: row for row in content(table)}
    table.upsert(rows(*given), options=QUIET)
    known |= {n: {"id": n, "city": c, "v": v, "ts": t} for n, c, v, t in given}
    assert content(table) == [known[n] for n in sorted(known)]
    return content(table)


@pytest.mark.parametrize(("version", "kind", "sort"), KINDS)
def test_rows_move_to_their_new_buckets_and_stay_as_they_are(make: Make, version: int, kind: str, sort: str) -> None:
    table = filled(make, table_version=version, type=kind, sort=sort)
    model = content(table)
    for turn, (count, way) in enumerate(((8, "split"), (2, "merge"), (3, "overwrite"), (6, "split"))):
        before, logged, start = bare(table.scan(meta=True).to_arrow()), len(table.files), table.timeline.last
        assert start is not None
        plan = table.maintenance.rescale(count, dry_run=True).plan
        assert (plan.way, plan.rows, plan.slices) == (way, len(model), logged)
        assert plan.shuffle_bytes == (plan.bytes if way == "overwrite" else 0)
        assert table.timeline.last == start  # a dry run does nothing
        done = table.maintenance.rescale(count)
        assert (done.rows, done.plan.way) == (len(model), way)
        commits = [i for i in table.timeline if i.time > start.time and i.is_completed]
        assert [(i.time, i.action) for i in commits] == [(done.instant, Action.REPLACECOMMIT)]
        assert all(not one.log_files for one in table.files)
        wanted = {path: numbers([row["id"] for row in model if row["city"] == path], count) for path in ("c0", "c1")}
        assert buckets(table) == wanted
        assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before  # commit times, too
        assert table.properties["lakebed.index.bucket.count"] == str(count)
        assert content(table, as_of=start.time) == model
        assert table.scan(as_of=start.time, where="id = 7").to_arrow().num_rows == 1
        assert table.changes(start.completion_time or start.time).to_arrow().num_rows == 0
        check(table, model)
        model = upsert(table, turn)
        check(table, model)


@pytest.mark.rest
def test_selected_partition_paths_get_another_bucket_count(make: Make) -> None:
    table = filled(make)
    model = content(table)
    untouched = {one.file_id for one in table.files if one.partition == "c0"}
    done = table.maintenance.rescale(8, partitions="c1")
    assert done.plan.way == "split"
    assert {path.split("/")[0] for path in done.files} == {"c1"}
    assert {one.file_id for one in table.files if one.partition == "c0"} == untouched
    assert {path: len(found) for path, found in buckets(table).items()} == {"c0": 4, "c1": 8}
    assert table.properties["lakebed.index.bucket.partitions"] == "^c1$,8"
    check(table, model)
    check(table, upsert(table, 0))
    # rules for what is there and what comes, then one count for all
    table.maintenance.rescale(2, partition_buckets="^c1,4;new.*,16")
    assert {path: len(found) for path, found in buckets(table).items()} == {"c0": 2, "c1": 4}
    table.upsert(rows(*((n, "new1", "v", 1) for n in range(300, 400))), options=QUIET)
    assert buckets(table)["new1"] == set(range(16))
    check(table, content(table))
    table.delete(list(range(300, 400)))
    table.maintenance.rescale(4)
    assert all(found <= set(range(4)) for found in buckets(table).values())
    check(table, upsert(table, 1))


@pytest.mark.rest
def test_only_buckets_that_are_too_large_are_split(make: Make) -> None:
    table = filled(make, buckets=2)
    grown = [n for n in range(1000, 3000) if numbers([n], 2) == {1}][:400]
    table.upsert(rows(*((n, "c0", f"v{n}" * 90, 1) for n in grown)), options=QUIET)
    model = content(table)
    sizes = {(one.partition, one.file_id[:8]): one.size for one in table.files}
    limit = sorted(sizes.values())[-2] + 1
    kept = {one.file_id for one in table.files if (one.partition, one.file_id[:8]) != ("c0", "00000001")}
    assert "way: extendible: " in str(table.maintenance.rescale(split_over=limit, dry_run=True))
    done = table.maintenance.rescale(split_over=limit)
    assert done.plan.way == "split"
    assert done.plan.slices == 1
    assert kept <= {one.file_id for one in table.files}
    assert buckets(table)["c1"] == {0, 1}
    assert buckets(table)["c0"] > {0, 1}
    assert max(one.size for one in table.files) < max(sizes.values())
    check(table, model)
    check(table, upsert(table, 0))
    assert table.maintenance.rescale(split_over=limit * 2).instant is None
    assert "extendible" not in table.maintenance.rescale(4, dry_run=True).plan.why
    table.maintenance.rescale(2)
    assert buckets(table)["c0"] == {0, 1}
    assert "lakebed.index.bucket.splits" not in table.properties
    check(table, upsert(table, 1))


@pytest.mark.rest
def test_pending_plans_have_to_be_run_before_a_rescale(make: Make) -> None:
    table = filled(make, type="mor")
    table.maintenance.compact(plan_only=True)
    with pytest.raises(CommitConflict, match=r"compaction .* is pending") as caught:
        table.maintenance.rescale(8)
    assert "t.maintenance.compact()" in caught.value.hint
    model = content(table)
    table.maintenance.compact()
    table.maintenance.rescale(8)
    check(table, model)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "takes buckets="),
        ({"buckets": 4, "split_over": 1}, "takes buckets="),
        ({"partition_buckets": "a,b,1"}, "is no rule"),
        ({"partition_buckets": "(?i)a,1"}, "means other things"),
        ({"buckets": 8, "partitions": "c9"}, "has no partition 'c9'"),
        ({"buckets": 0}, "cannot have 0 buckets"),
    ],
    ids=str,
)
def test_wrong_counts_and_rules_are_refused(make: Make, given: dict[str, Any], says: str) -> None:
    table = filled(make)
    before = len(table.timeline)
    with pytest.raises(InvalidOption, match=says):
        table.maintenance.rescale(**given)
    assert len(table.timeline) == before


def test_an_index_without_buckets_is_not_rescaled(make: Make) -> None:
    table = make(index="simple")
    with pytest.raises(InvalidOption, match=r"no buckets to rescale.*t.indexes.use\('bucket'"):
        table.maintenance.rescale(4)


@pytest.mark.rest
def test_the_count_before_and_after_an_undone_rescale(make: Make) -> None:
    table = filled(make)
    model, point = content(table), table.timeline.last
    assert point is not None
    table.savepoints.create(point.time)
    table.maintenance.rescale(8)
    table.maintenance.rescale(16)
    table.restore(point.time)
    assert table.indexes.index.settings()["bucket.count"] == "4"
    check(table, model)
    check(table, upsert(table, 0))
    assert lakebed.open(table.uri).properties["lakebed.index.bucket.count"] == "4"


@pytest.mark.parametrize(("version", "kind", "sort"), KINDS)
def test_the_index_of_a_living_table_is_changed(make: Make, version: int, kind: str, sort: str) -> None:
    table = filled(make, table_version=version, type=kind, sort=sort)
    model = content(table)
    for turn, (name, more, way, builds) in enumerate(
        (
            ("record", {}, "nothing", ("record_index",)),
            ("simple", {}, "nothing", ()),
            ("bloom", {}, "nothing", ()),
            ("bucket", {"buckets": 3}, "overwrite", ()),
            ("bloom", {}, "nothing", ()),
            ("global_simple", {}, "nothing", ()),
            ("record", {}, "nothing", ()),
            ("bucket", {"buckets": 2, "hash_fields": ["id"]}, "overwrite", ()),
        )
    ):
        plan = table.indexes.use(name, dry_run=True, **more).plan  # type: ignore[arg-type]
        assert (plan.way, plan.builds) == (way, builds), name
        done = table.indexes.use(name, **more)  # type: ignore[arg-type]
        assert done.rows == (len(model) if way == "overwrite" else 0)
        table = lakebed.open(table.uri)
        assert table.indexes.index.name == name
        check(table, model)
        model = upsert(table, turn)
        check(table, model)
    assert table.indexes.use("bucket", buckets=2).instant is None


def test_keys_in_several_partition_paths_stand_in_the_way_of_a_global_index(make: Make) -> None:
    table = filled(make)
    table.upsert(rows((2, "c1", "twice", 1), (8, "c1", "twice", 1)), options=QUIET)
    model = content(table)
    for name in ("record", "global_simple"):
        for dry_run in (True, False):
            with pytest.raises(IndexInconsistent, match=r"2 record key.*'2' in c0, c1; '8' in c0, c1"):
                table.indexes.use(name, dry_run=dry_run)
    assert "record_index" not in table.properties["hoodie.table.metadata.partitions"]
    assert table.indexes.index.name == "bucket"
    check(table, model)


def test_rescale_and_use_on_the_command_line(make: Make, tmp_path: Any, capsys: Any) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.create(uri, SCHEMA, key="id", partition_by="city", index="bucket", buckets=2)
    table.upsert(rows(*((n, "c0", "v", 1) for n in range(20))))
    assert invoke(["maintenance", "rescale", uri, "--buckets", "4", "--dry-run", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["plan"]["way"], told["plan"]["rows"], told["instant"]) == ("split", 20, None)
    assert invoke(["maintenance", "rescale", uri, "--buckets", "4"]) == 0
    assert "no shuffle" in capsys.readouterr().out
    assert len(table.files) == 4
    assert invoke(["indexes", "use", uri, "simple", "-o", "json"]) == 0
    assert lakebed.open(uri).indexes.index.name == "simple"


@pytest.mark.parametrize("way", ["rescale", "delete_partitions"])
def test_writers_that_do_not_wait_start_again_where_a_file_group_was_replaced(make: Make, way: str) -> None:
    beside = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL", **QUIET}
    table = make(index="bucket", buckets=2, type="mor", properties=QUIET)
    table.upsert(rows(*((n, "c0", "v", 1) for n in range(20))), options=beside)
    if way == "rescale":
        table.maintenance.rescale(4)
        table.delete(list(range(20)))
        table.maintenance.rescale(2)  # no bucket has rows: none has a file
    else:
        table.delete_partitions(["c0"])
    assert content(table) == []
    table.upsert(rows(*((n, "c0", "again", 2) for n in range(20))), options=beside)
    assert [row["v"] for row in content(table)] == ["again"] * 20
    check(table, content(table))


@pytest.mark.rest
@pytest.mark.parametrize("table", golden_tables(lambda t: t.name == "v9_cow_bucket_partition_level"), ids=str)
def test_a_table_of_real_hudi_with_counts_by_partition(table: GoldenTable, tmp_path: Any) -> None:
    uri = str(table.unpack(tmp_path))
    opened = lakebed.open(uri)
    held = opened.scan().to_arrow().sort_by("id")
    names = {
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": 4,
        "hoodie.bucket.index.hash.field": "id",
    }
    rules = {"hoodie.bucket.index.partition.expressions": "eu,2;us,3"}
    with pytest.raises(InvalidOption, match="another bucket count in each partition"):
        opened.upsert(held.slice(0, 5), options=names)
    done = opened.upsert(held, options={**names, **rules})
    assert (done.inserted, done.updated + done.unchanged) == (0, held.num_rows)
    opened.indexes.adopt("bucket", buckets=4, hash_fields=["id"], partition_buckets="eu,2;us,3")
    opened.upsert(held)
    others = {one.file_id for one in opened.files if one.partition != "us"}
    assert opened.maintenance.rescale(4, partition_buckets="eu,2;us,6").plan.way == "split"
    assert others <= {one.file_id for one in opened.files}
    opened.upsert(held)
    assert buckets(lakebed.open(uri))["us"] <= set(range(6))
    assert lakebed.open(uri).scan().to_arrow().sort_by("id").equals(held)

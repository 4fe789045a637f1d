"""Clustering: the same rows in fewer files or another order, plans that wait while others write, what has changed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import CommitConflict, InvalidOption
from lakebed.format.row_groups.assembled import AssembledFile
from lakebed.handles import cluster
from lakebed.model import Action
from lakebed.services.clustering import Clustering
from lakebed.services.driver import run_plan
from lakebed.table import Table
from lakebed.timeline.bodies.plans import planned_clustering
from support.compaction_tables import bare, pending, snapshot
from support.golden_tables import GoldenTable, golden_tables
from support.sampling import HISTORIES, todays_of
from support.tables import context_of
from support.write_tables import content, last_commit, rows

Make = Callable[..., Table]
SMALL = {"hoodie.parquet.small.file.limit": 0, "hoodie.compact.inline": False}
KINDS = todays_of((9, 8, 6), ("cow", "mor"), ("record", "simple", "bucket"), parts=3, variable=HISTORIES)
ALLOW = {"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"}


def filled(make: Make, **given: Any) -> Table:
    """A table of many small files, with updates and a delete."""
    table = make(**given)
    chance = random.Random(1)
    for turn in range(4):
        some = [(turn * 30 + n, f"c{n % 2}", f"v{chance.randrange(50)}", chance.randrange(99)) for n in range(30)]
        table.upsert(rows(*some), options=SMALL)
    table.upsert(rows((3, "c1", "again", 200), (44, "c0", "again", 200)), options=SMALL)
    table.delete([5], options=SMALL)
    return table


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("sort", [None, ["ts"]])
def test_rows_updated_and_then_deleted_in_logs_stay_deleted(make: Make, version: int, sort: list[str] | None) -> None:
    table = make(table_version=version, type="mor", index="simple")
    table.upsert(rows(*((n, "c0", "old", 1) for n in range(6))), options=SMALL)
    table.upsert(rows((1, "c0", "new", 2), (2, "c0", "new", 2)), options=SMALL)
    table.upsert(rows((1, "c0", "newer", 2)), options=SMALL)
    table.delete([2], options=SMALL)
    before = bare(table.scan(meta=True).to_arrow())
    assert table.maintenance.cluster(sort).runs
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [0, 1, 3, 4, 5]


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
@pytest.mark.parametrize(("sort", "layout"), [(None, None), (["ts"], None), (["v", "ts"], "zorder")])
def test_rows_stay_and_are_found_at_their_new_places(
    make: Make, version: int, kind: str, index: str, sort: list[str] | None, layout: Any
) -> None:
    table = filled(make, table_version=version, type=kind, index=index)
    before, slices = bare(table.scan(meta=True).to_arrow()), len(list(table.files))
    old = list(table.timeline)[-1].time
    done = table.maintenance.cluster(sort, layout=layout)
    opened = lakebed.open(table.uri)
    assert bare(opened.scan(meta=True).to_arrow()) == before
    assert bare(opened.scan(as_of=old, meta=True).to_arrow()) == before
    assert bare(opened.changes("000", meta=True).to_arrow()) == before
    if index == "bucket":
        assert len(list(opened.files)) == slices
    else:
        assert len(list(opened.files)) == 2
        commit = last_commit(opened)
        assert commit.operation == "CLUSTER"
        assert sum(map(len, commit.replaced.values())) == slices == done.runs[0].slices
    verified = opened.indexes.verify()
    assert verified.ok, verified
    opened.upsert(rows((7, "c1", "after", 300), (500, "c0", "new", 1)), options=SMALL)
    found = {row[0]: row for row in content(opened)}
    assert len(found) == len(before) + 1
    assert found[7] == (7, "c1", "after", 300)
    assert opened.get([44]).column("v").to_pylist() == ["again"]


@pytest.mark.parametrize("layout", [None, "zorder", "hilbert"])
def test_files_are_in_the_order_that_was_asked_for(make: Make, layout: Any) -> None:
    table = filled(make, partition_by=None)
    columns = ["ts", "v"] if layout else ["ts", "id"]
    table.maintenance.cluster(
        columns, layout=layout, options={"hoodie.clustering.plan.strategy.target.file.max.bytes": 12_000}
    )
    found = [lakebed.open(table.uri).scan().to_arrow()]
    stored = found[0]
    if layout is None:
        keys = [("ts", "ascending"), ("id", "ascending")]
        assert stored.equals(stored.take(pc.sort_indices(stored, keys)))
    else:
        assert not stored.equals(stored.sort_by("ts"))


def test_sorted_rows_are_spread_evenly_over_the_files_of_a_group(make: Make) -> None:
    table = make(index="simple", partition_by=None)
    for n in range(5):
        table.insert(rows(*((n * 100 + k, "", f"v{k}", k) for k in range(100))), options=SMALL)
    size = sum(one.size for one in table.files)
    options = {"hoodie.clustering.plan.strategy.target.file.max.bytes": size * 9 // 10}
    assert "5 file slices became 2 files" in str(table.maintenance.cluster(["ts", "id"], options=options))
    stats = [stat for group in last_commit(lakebed.open(table.uri)).stats.values() for stat in group]
    assert [stat.num_writes for stat in stats] == [250, 250]
    found = table.scan(columns=["ts", "id"]).to_arrow().to_pylist()
    assert len(found) == 500
    assert table.indexes.verify().ok


def test_files_without_an_order_are_copied_as_bytes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(partition_by=None)
    many = [(n, "c", f"v{n % 7}", 1) for n in range(20_000)]
    for start in (0, 10_000):
        table.bulk_insert(rows(*many[start : start + 10_000]), options=SMALL)
    copied: list[int] = []
    copy = AssembledFile.copy

    def counted(self: Any, source: Any, number: int, fresh: Any = None) -> None:
        copied.append(source.groups[number].rows)
        copy(self, source, number, fresh)

    monkeypatch.setattr(AssembledFile, "copy", counted)
    table.maintenance.cluster()
    assert copied == [10_000, 10_000]
    assert len(list(lakebed.open(table.uri).files)) == 1
    assert len(content(table)) == 20_000


@pytest.mark.rest
def test_a_second_clustering_has_nothing_to_do(make: Make) -> None:
    table = filled(make)
    assert table.maintenance.cluster().runs
    before = table.timeline.to_arrow()
    done = lakebed.open(table.uri).maintenance.cluster()
    assert done.runs == ()
    assert "no file slices" in str(done)
    assert lakebed.open(table.uri).timeline.to_arrow().equals(before)


def test_a_table_that_keeps_its_files_sorted_stays_so(make: Make) -> None:
    table = filled(make, sort="key", partition_by=None)
    with pytest.raises(InvalidOption, match="order of the record key"):
        table.maintenance.cluster(["ts"])
    table.maintenance.cluster()
    keys = lakebed.open(table.uri).scan(meta=True).to_arrow().column("_hoodie_record_key").to_pylist()
    assert keys == sorted(keys)


def test_unknown_columns_and_two_ways_at_once_are_refused(make: Make) -> None:
    table = filled(make)
    with pytest.raises(InvalidOption, match="no column 'nope'"):
        table.maintenance.cluster(["nope"])
    with pytest.raises(InvalidOption, match="both true"):
        table.maintenance.cluster(options={"hoodie.clustering.inline": True, "hoodie.clustering.schedule.inline": True})
    assert pending(table) == []


def test_partition_paths_with_a_comma_and_patterns_choose_what_they_name(make: Make) -> None:
    table = filled(make)
    table.upsert(rows((7777, "c0,c1", "v", 1)), options=SMALL)

    def chosen(partitions: str | list[str]) -> set[str]:
        plan = table.maintenance.cluster(["id"], partitions=partitions, dry_run=True).plan
        assert plan is not None
        return {group.partition for group in plan.groups}

    assert chosen("c0,c1") == {"c0,c1"}
    assert chosen(["c0,c1", "c1"]) == {"c0,c1", "c1"}
    assert chosen("c*") == {"c0", "c1", "c0,c1"} | chosen("*")
    with pytest.raises(InvalidOption, match="no partition 'nowhere'"):
        table.maintenance.cluster(partitions=["c0", "nowhere"])


# -- plans that wait


@pytest.mark.rest
def test_a_plan_waits_while_others_write_elsewhere(make: Make) -> None:
    table = filled(make, index="record")
    planned = table.maintenance.cluster(plan_only=True, partitions=["c0"])
    assert planned.plan is not None
    assert {group.partition for group in planned.plan.groups} == {"c0"}
    table.upsert(rows((1, "c1", "beside", 400), (900, "c0", "new", 1)), options=SMALL)
    before = bare(lakebed.open(table.uri).scan(meta=True).to_arrow())
    done = lakebed.open(table.uri).maintenance.cluster()
    assert done.instants[0] == planned.planned
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before
    assert lakebed.open(table.uri).indexes.verify().ok


def test_a_clustering_gives_way_to_a_write_of_its_file_groups(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(make)
    run = cluster.GroupClusterer.cluster
    written: list[int] = []

    def late(self: Any, *given: Any) -> Any:
        if not written:
            written.append(1)
            lakebed.open(table.uri).upsert(rows((1, "c1", "late", 600)), options=ALLOW)
        return run(self, *given)

    monkeypatch.setattr(cluster.GroupClusterer, "cluster", late)
    with pytest.raises(CommitConflict, match="has changed since"):
        table.maintenance.cluster()
    assert pending(table) == []
    assert (1, "c1", "late", 600) in content(table)
    assert lakebed.open(table.uri).indexes.verify().ok
    assert table.maintenance.cluster().runs


@pytest.mark.rest
def test_a_run_that_died_is_taken_back_and_run_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (9, 6):
        table = filled(make, table_version=version)
        before = bare(table.scan(meta=True).to_arrow())
        planned = table.maintenance.cluster(plan_only=True).planned
        assert planned is not None
        run = cluster.GroupClusterer.cluster

        def fails(self: Any, *given: Any, run: Any = run) -> Any:
            run(self, *given)
            raise RuntimeError("no more")

        with monkeypatch.context() as patched:
            patched.setattr(cluster.GroupClusterer, "cluster", fails)
            with pytest.raises(RuntimeError):
                run_plan(context_of(table), Clustering(), planned)
        assert [i.time for i in pending(table)] == [planned]
        assert lakebed.open(table.uri).maintenance.cluster().instants == (planned,)
        assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before
        lakebed.storage.memory.MemoryStorage.drop(table.uri.split("/")[2])


# -- plans of real Hudi


@pytest.mark.parametrize("planned", golden_tables(lambda t: t.name.endswith("clustering_pending")), ids=str)
def test_plans_of_real_hudi_are_run(planned: GoldenTable, tmp_path: Path) -> None:
    table = lakebed.open(str(planned.unpack(tmp_path)))
    before = bare(table.scan(meta=True).to_arrow())
    (plan,) = pending(table)
    groups = planned_clustering(snapshot(table).timeline.plan(plan)).operations
    done = table.maintenance.cluster()
    assert done.instants[0] == plan.time
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before
    commits = [i for i in table.timeline if i.time == plan.time]
    assert [i.action for i in commits] == [Action.REPLACECOMMIT]
    assert done.runs[0].slices == sum(len(group.slices) for group in groups)
    assert lakebed.open(table.uri).indexes.verify().ok


# -- by the table's settings


def test_a_table_clusters_itself_where_its_options_say_so(make: Make) -> None:
    table = make(properties={"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 2})
    assert table.upsert(rows((1, "c", "a", 1)), options=SMALL).services == ()
    second = table.upsert(rows((2, "c", "a", 1)), options=SMALL)
    assert second.services[0].startswith("cluster ")
    assert len(list(lakebed.open(table.uri).files)) == 1
    assert table.upsert(rows((3, "c", "a", 1)), options=SMALL).services == ()
    assert [row[0] for row in content(table)] == [1, 2, 3]


def test_a_write_only_plans_where_its_options_say_so(make: Make) -> None:
    table = make(properties={"hoodie.clustering.schedule.inline": True, "hoodie.clustering.async.max.commits": 2})
    for n in range(2):
        table.upsert(rows((n, "c", "a", 1)), options=SMALL)
    (plan,) = pending(table)
    assert plan.action is Action.CLUSTERING
    assert lakebed.open(table.uri).maintenance.cluster().instants == (plan.time,)


def test_the_command_line_clusters(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = lakebed.create(str(tmp_path / "t"), rows((0, "c", "", 0)), key="id", ordering="ts", index="simple")
    for n in range(3):
        table.upsert(rows((n, "c", "a", 3 - n)), options=SMALL)
    command = ["maintenance", "cluster", table.uri, "--sort-columns", "ts", "--layout", "linear", "--output", "json"]
    assert invoke([*command, "--plan-only"]) == 0
    planned = json.loads(capsys.readouterr().out)["planned"]
    assert (planned["slices"], planned["files"], planned["sort_columns"]) == (3, 1, ["ts"])
    assert invoke(["maintenance", "cluster", table.uri, "--output", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["instant"], run["slices"], run["rows"]) == (planned["instant"], 3, 3)
    assert lakebed.open(table.uri).scan().to_arrow().column("id").to_pylist() == [2, 1, 0]


def test_columns_that_came_later_are_in_the_new_files(make: Make) -> None:
    table = make()
    table.upsert(rows((1, "c", "v", 1)), options=SMALL)
    table.upsert(rows((2, "c", "v", 1)).append_column("more", pa.array(["x"])), options=SMALL)
    table.maintenance.cluster()
    found = lakebed.open(table.uri).scan().to_arrow().sort_by("id")
    assert found.column("more").to_pylist() == [None, "x"]
    assert len(list(table.files)) == 1

"""Small files are put together, up to the size that files are to have, by hand and by a process that runs services; and
what services would do is shown by a dry run that writes nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import InvalidOption
from lakebed.table import Table
from support.compaction_tables import pending
from support.write_tables import SCHEMA, content, files, refused, rows

Make = Callable[..., Table]
SMALL: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0, "lakebed.write.tasks": 1}
QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}


def created(make: Make, *counts: int, **more: Any) -> Table:
    """So many files in each of the partition paths p0, p1, ..."""
    table = make(**{"index": "simple"} | more)
    for path, count in enumerate(counts):
        for n in range(count):
            table.insert(rows((path * 100 + n, f"p{path}", f"v{n}", n)), options=SMALL)
    return table


def files_of(table: Table) -> dict[str, int]:
    return dict(Counter(file_slice.partition for file_slice in lakebed.open(table.uri).files))


def test_the_small_files_of_a_partition_path_become_one(make: Make) -> None:
    table = created(make, 4, 1, 2)
    before = content(table)
    done = table.maintenance.merge_small_files()
    assert "6 file slices became 2 files" in str(done)
    assert files_of(table) == {"p0": 1, "p1": 1, "p2": 1}
    assert content(table) == before
    assert str(table.maintenance.merge_small_files()) == "no partition path has small files enough to put together"
    assert table.get([2]).column("v").to_pylist() == ["v2"]


def test_small_files_are_merged_only_where_there_are_enough(make: Make) -> None:
    table = created(make, 4, 2)
    assert table.maintenance.merge_small_files(3).runs
    assert files_of(table) == {"p0": 1, "p1": 2}


def test_files_become_no_larger_than_they_are_to_be(make: Make) -> None:
    table = created(make, 6)
    size = max(one.size for one in table.files)
    options = {"hoodie.parquet.small.file.limit": size + 1, "hoodie.parquet.max.file.size": 2 * size}
    table.maintenance.merge_small_files(options=options)
    assert files_of(table) == {"p0": 3}
    large = {"hoodie.parquet.small.file.limit": 1}
    assert not table.maintenance.merge_small_files(options=large).runs


def test_rows_stay_in_the_order_that_clustering_gives_them(make: Make) -> None:
    table = created(make, 3, properties={"hoodie.clustering.plan.strategy.sort.columns": "v"})
    table.insert(rows((50, "p0", "a first", 1)), options=SMALL)
    table.maintenance.merge_small_files()
    assert table.scan(columns=["v"]).to_arrow().column("v").to_pylist() == ["a first", "v0", "v1", "v2"]


def test_a_plan_waits_and_is_not_made_twice(make: Make) -> None:
    table = created(make, 3)
    planned = table.maintenance.merge_small_files(plan_only=True).planned
    assert [i.time for i in pending(table)] == [planned]
    assert not table.maintenance.merge_small_files().runs
    assert table.maintenance.cluster().instants == (planned,)
    assert files_of(table) == {"p0": 1}


def test_a_bucket_keeps_its_file(make: Make) -> None:
    table = make(index="bucket", buckets=3)
    table.insert(rows(*((n, "p0", "v", 1) for n in range(9))))
    with refused(table.uri, InvalidOption, "for each bucket", "t.maintenance.rescale()"):
        table.maintenance.merge_small_files()
    table.configure({"lakebed.file.sizing.files": 2})
    assert list(lakebed.maintenance.run([table.uri], dry_run=True, options=QUIET)) == []


def test_services_do_it_from_so_many_on(make: Make) -> None:
    table = created(make, 3, properties=QUIET)
    assert list(lakebed.maintenance.run([table.uri], once=True)) == []
    table.configure({"lakebed.file.sizing.files": 4})
    assert list(lakebed.maintenance.run([table.uri], once=True)) == []
    table.insert(rows((60, "p0", "one more", 1)), options=SMALL)
    events = list(lakebed.maintenance.run([table.uri], once=True))
    assert [(e.kind, e.service) for e in events] == [("due", "merge_small_files"), ("ran", "merge_small_files")]
    assert events[0].text == "4 small files are in 1 partition path"
    assert files_of(table) == {"p0": 1}


def test_a_dry_run_shows_the_plan_and_writes_nothing(make: Make) -> None:
    table = created(make, 3, type="mor", properties=QUIET | {"hoodie.compact.inline": False})
    for n in range(5):
        table.upsert(rows((0, "p0", f"w{n}", 10 + n)), options=SMALL)
    before = files(table.uri)
    shown = [
        table.maintenance.merge_small_files(dry_run=True),
        table.maintenance.cluster(["v"], dry_run=True),
        table.maintenance.compact(dry_run=True),
        table.maintenance.compact(logs=True, dry_run=True),
    ]
    assert all(str(one).startswith("to be done: ") for one in shown), shown
    assert [one.to_dict()["planned"]["instant"] for one in shown] == [None] * 4
    assert [len(one.log_files) for one in shown[2].plan.slices] == [5]
    rare = {"hoodie.clustering.inline.max.commits": 100}
    assert "no clustering is due" in str(table.maintenance.cluster(when_due=True, options=rare, dry_run=True))
    assert files(table.uri) == before
    table.maintenance.compact(plan_only=True)
    assert "waits to be run" in str(table.maintenance.compact(dry_run=True))


@pytest.mark.rest
def test_the_command_line_puts_small_files_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = created(
        lambda **words: lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", partition_by="city", **words), 3
    )
    assert invoke(["maintenance", "merge-small-files", table.uri, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("to be done: clustering of 3 file slices")
    for command in ("cluster", "compact"):
        code = invoke(["maintenance", command, table.uri, "--dry-run"])
        assert (code == 0) == (command == "cluster")
    capsys.readouterr()
    assert invoke(["maintenance", "merge-small-files", table.uri, "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"][0]["files"]) == 1
    assert files_of(table) == {"p0": 1}

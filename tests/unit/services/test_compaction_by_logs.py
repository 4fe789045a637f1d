"""Compactions of the file slices whose log files are heavy, many or old."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.policies import compaction as policy
from lakebed.table import Table
from support.compaction_tables import pending, snapshot
from support.golden_tables import golden
from support.write_tables import content, rows

Make = Callable[..., Table]
DUE, FILES = "lakebed.compact.due", "lakebed.compact.log.files"
PERCENT, SECONDS = "lakebed.compact.log.percent", "lakebed.compact.log.seconds"
COMMITS = "hoodie.compact.inline.max.delta.commits"


@pytest.fixture
def mor(make: Make) -> Make:
    """Makes a merge-on-read table with one file group in each partition path."""

    def create(**properties: Any) -> Table:
        return make(type="mor", index="bucket", buckets=1, properties=properties)

    return create


def put(table: Table, number: int, *cities: str, text: str = "") -> Any:
    return table.upsert(rows(*((k, city, f"{number}{text}", number) for k, city in enumerate(cities or ("a",)))))


def logs(table: Table) -> dict[str, int]:
    """The number of log files of each partition path."""
    return {s.partition: len(s.log_files) for s in snapshot(lakebed.open(table.uri)).file_slices()}


def test_a_new_merge_on_read_table_compacts_no_light_logs(mor: Make) -> None:
    table = mor()
    assert table.properties[DUE] == "logs"
    for number in range(8):
        assert put(table, number).services == ()
    assert logs(table) == {"a": 7}
    assert str(table.maintenance.compact(when_due=True)) == (
        "no compaction is due: none of 1 file slice with log files has more than 10 % of the base file's bytes in log"
        " files, more than 40 log files, a log file that is older than 86400 s"
    )
    assert "7 log files" in str(table.maintenance.compact())


def test_one_log_file_beyond_the_number_makes_a_slice_due(mor: Make) -> None:
    table = mor(**{FILES: 3})
    lines = [len(put(table, number).services) for number in range(10)]
    # the first write makes the base file
    assert lines == [0, 0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert logs(table) == {"a": 1}
    assert content(table) == [(0, "a", "9", 9)]
    assert table.indexes.verify().ok


def test_log_bytes_beyond_the_percentage_make_a_slice_due(mor: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mor(**{PERCENT: 10})
    put(table, 0)
    monkeypatch.setattr(policy, "LIGHT_LOG_BYTES", 0)
    base, heavy = snapshot(table).file_slices()[0].size, "x" * 100_000
    put(table, 1, text=heavy)
    assert logs(table) == {"a": 0}
    more = snapshot(lakebed.open(table.uri)).file_slices()[0].size
    assert more > base
    table.configure({PERCENT: 1_000_000})
    put(table, 2, text=heavy)
    assert logs(table) == {"a": 1}
    assert table.maintenance.compact(when_due=True).runs == ()
    assert len(table.maintenance.compact(when_due=True, options={PERCENT: 1}).runs) == 1
    assert logs(table) == {"a": 0}


def test_few_bytes_of_logs_are_light_whatever_the_base_file_has(mor: Make) -> None:
    table = mor(**{PERCENT: 1})
    for number in range(4):
        assert put(table, number).services == ()
    assert logs(table) == {"a": 3}


def test_an_old_log_file_makes_a_slice_due(mor: Make) -> None:
    table = mor(**{SECONDS: 2})
    put(table, 0)
    put(table, 1)
    assert table.maintenance.compact(when_due=True).runs == ()
    time.sleep(2.1)
    assert "older than 2 s" in str(next(iter(lakebed.maintenance.run([table.uri], dry_run=True))))
    assert len(put(table, 2).services) == 1
    assert logs(table) == {"a": 0}


def test_only_due_slices_are_compacted_and_the_others_are_due_later(mor: Make) -> None:
    table = mor(**{FILES: 2})
    put(table, 0, "a", "b")
    put(table, 1, "a", "b")
    put(table, 2, "a")
    done = put(table, 3, "a")
    assert "of 1 file group merged" in done.services[0]
    assert logs(table) == {"a": 0, "b": 1}
    put(table, 4, "a", "b")
    assert len(put(table, 5, "a", "b").services) == 1
    assert logs(table) == {"a": 2, "b": 0}
    assert [row[3] for row in content(table)] == [5, 5]
    assert table.indexes.verify().ok


def test_a_plan_without_a_run_has_the_due_slices(mor: Make) -> None:
    table = mor(**{FILES: 1, "hoodie.compact.inline": False, "hoodie.compact.schedule.inline": True})
    put(table, 0, "a", "b")
    put(table, 1, "a", "b")
    assert put(table, 2, "a").services != ()
    (plan,) = pending(table)
    operations = snapshot(table).timeline.plan(plan)["operations"]
    assert [operation["partitionPath"] for operation in operations] == ["a"]
    assert len(table.maintenance.compact(when_due=True).runs) == 1
    assert logs(table) == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    ("properties", "options", "after"),
    [
        ({}, {}, []),
        ({COMMITS: 3}, {}, [2]),
        ({"hoodie.compact.inline.trigger.strategy": "NUM_COMMITS"}, {}, [4]),
        ({}, {COMMITS: 2}, [1, 3]),
        ({FILES: 1}, {}, [2, 4]),
        ({FILES: 1, COMMITS: 9}, {}, []),
        ({FILES: 1, COMMITS: 9}, {DUE: "logs"}, [2, 4]),
        ({FILES: 1}, {DUE: "trigger"}, [4]),
    ],
)
def test_options_of_hudi_go_before_logs_and_those_of_a_call_before_the_tables(
    mor: Make, properties: dict[str, Any], options: dict[str, Any], after: list[int]
) -> None:
    table = mor(**properties)
    done = [table.upsert(rows((1, "a", f"v{n}", n)), options=options).services for n in range(5)]
    assert [number for number, lines in enumerate(done) if lines] == after


def test_a_table_without_its_hudi_option_goes_back_to_its_logs(mor: Make) -> None:
    table = mor(**{COMMITS: 1})
    assert put(table, 0).services == ()
    assert put(table, 1).services != ()
    table.configure({COMMITS: None})
    assert put(table, 2).services == ()
    assert logs(table) == {"a": 1}


def test_a_table_of_real_hudi_counts_commits_until_it_is_configured(tmp_path: Path) -> None:
    table = lakebed.open(str(golden("v9_mor_compaction").unpack(tmp_path)))
    data = table.scan().to_arrow().slice(0, 1)
    assert DUE not in table.properties
    inline = {"hoodie.compact.inline": True}
    lines = [bool(table.upsert(data, options=inline).services) for _ in range(7)]
    assert any(lines)
    table.configure({DUE: "logs", FILES: 5, **inline})
    lines = [line for _ in range(9) for line in table.upsert(data).services if line.startswith("compact")]
    # of one file group, when it has one log file more than the number
    assert [line.partition(": ")[2].partition(" with")[0] for line in lines] == ["6 log files", "6 log files"]
    assert all("1 file group merged" in line for line in lines)
    assert table.indexes.verify().ok


def test_a_new_copy_on_write_table_has_no_setting_of_compaction(make: Make) -> None:
    assert DUE not in make(type="cow").properties

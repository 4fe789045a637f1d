"""CALL: Hudi's procedures by name, with arguments by name and in their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, LakebedError, UnsupportedFeature
from support.statements import parts

GOLDEN = {
    "CALL run_compaction(op => 'run', table => 't')": ("run_compaction", "t", {"op": "run"}),
    "call SYSTEM.Run_Compaction('schedule', 't')": ("run_compaction", "t", {"op": "schedule"}),
    "CALL run_clustering(table => 't', predicate => \"city = ')'\", `ORDER` => 'a, b')": (
        "run_clustering",
        "t",
        {"predicate": "city = ')'", "order": "a, b"},
    ),
    "CALL show_commits(path => '/lake/t', limit => 10)": ("show_commits", "/lake/t", {"limit": 10}),
    "CALL create_savepoint('t', '', 'me', 'it\\'s; /* no comment */')": (
        "create_savepoint",
        "t",
        {"commit_time": "", "user": "me", "comments": "it's; /* no comment */"},
    ),
    "CALL archive_commits(table => 't', enable_metadata => true)": ("archive_commits", "t", {"enable_metadata": True}),
    "CALL help()": ("help", None, {}),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_a_call_is_taken_apart(text: str) -> None:
    procedure, table, arguments = GOLDEN[text]
    named: dict[str, Any] = {"procedure": procedure}
    named |= {} if table is None else {"table": table}
    assert parts(text) == ("Call", named | ({"arguments": arguments} if arguments else {}))


def filled(name: str) -> Iterator[lakebed.Table]:
    uri = f"memory://procedures/{name}"
    options = {"key": "id", "partition_by": "city", "type": "mor", "index": "bucket", "buckets": 1}
    t = lakebed.create(uri, {"id": [1], "city": ["x"]}, **options)  # type: ignore[arg-type]
    t.upsert({"id": [1, 2], "city": ["oslo", "rome"]})
    t.upsert({"id": [1, 2], "city": ["oslo", "rome"]})
    yield t
    lakebed.drop(uri)


def call(text: str, t: lakebed.Table) -> Any:
    return lakebed.sql(f"CALL {text}", {"t": t})


def logs(t: lakebed.Table) -> list[int]:
    return [len(one.log_files) for one in t.files]


def test_a_compaction_is_planned_and_run(t: lakebed.Table) -> None:
    call("run_compaction(op => 'execute', table => 't')", t)
    assert logs(t) == [1, 1]
    planned = call("run_compaction('schedule', 't')", t)
    (pending,) = call("show_compaction(table => 't')", t).to_pylist()
    assert (pending["compaction_time"], pending["state"]) == (planned.planned, "REQUESTED")
    t.upsert({"id": [1], "city": ["oslo"]})
    call("run_compaction(op => 'EXECUTE', table => 't')", t)
    assert logs(t) == [1, 0]  # the plan alone was run
    call("run_compaction(op => 'run', table => 't')", t)
    assert logs(t) == [0, 0]


def test_savepoints_are_made_shown_restored_and_deleted(t: lakebed.Table) -> None:
    last = t.timeline.last
    assert last is not None
    call("create_savepoint(table => 't', user => 'me', comments => 'before')", t)
    assert call("show_savepoints('t')", t).to_pylist() == [
        {"savepoint_time": last.time, "savepointed_by": "me", "comments": "before"}
    ]
    t.delete([1])
    call("rollback_to_savepoint(table => 't')", t)
    assert t.count() == 2
    with pytest.raises(InvalidOption, match="no savepoint '123'"):
        call("delete_savepoint('t', '123')", t)
    call(f"delete_savepoint('t', '{last.time}')", t)
    with pytest.raises(InvalidOption, match="has no savepoint"):
        call("rollback_to_savepoint(table => 't')", t)
    done = t.delete([2])
    call(f"rollback_to_instant(table => 't', instant_time => '{done.instant}')", t)
    assert t.count() == 2
    assert len(call("show_rollbacks(table => 't')", t).to_pylist()) == 2


def test_commits_and_properties_are_rows_with_the_columns_of_hudi(t: lakebed.Table) -> None:
    shown = call("show_commits(table => 't', limit => 1)", t).to_pylist()
    (first, second) = call("show_commits(table => 't')", t).to_pylist()
    assert shown == [first]
    assert first["commit_time"] > second["commit_time"]
    totals = ("action", "total_partitions_written", "total_records_written", "total_errors")
    assert [first[name] for name in totals] == ["deltacommit", 2, 2, 0]
    assert (second["total_files_added"], second["total_files_updated"]) == (2, 0)
    assert (first["total_files_added"], first["total_files_updated"]) == (0, 2)
    since = f"startTime => '{first['commit_time']}'"
    assert call(f"show_commits(table => 't', {since})", t).to_pylist() == [first]
    completed = call("show_timeline(table => 't', filter => \"state = 'COMPLETED' and action <> 'x'\")", t).to_pylist()
    assert [one["instant_time"] for one in completed] == [first["commit_time"], second["commit_time"]]
    assert call("show_table_properties(table => 't', filter => \"key = 'hoodie.table.type'\")", t).to_pylist() == [
        {"key": "hoodie.table.type", "value": "MERGE_ON_READ"}
    ]
    assert next(one["index"] for one in call("show_indexes('t')", t).to_pylist()) == "files"
    assert {one["partition"] for one in call("show_fsview_latest('t')", t).to_pylist()} == {"oslo", "rome"}
    assert call("help(cmd => 'run_ttl')", t).to_pylist() == [
        {"procedure": "run_ttl", "parameters": "table, ttl_policy, retain_days, options"}
    ]


def test_services_and_partitions(t: lakebed.Table) -> None:
    none = call("run_clustering(table => 't', predicate => \"city = 'bern'\")", t)
    assert "no partition path fulfils" in str(none)
    cleaned = call(
        "run_clean(table => 't', clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1)", t
    )
    assert cleaned.files == 0
    assert "nothing to archive" in str(call("archive_commits(table => 't', min_commits => 20, max_commits => 30)", t))
    assert "no partition path is older" in str(call("run_ttl(table => 't', retain_days => 30)", t))
    call("drop_partition(table => 't', partition => 'rome')", t)
    assert t.partitions == ("oslo",)
    call("truncate_table(table => 't')", t)
    assert t.count() == 0
    assert "has version 9" in str(call("upgrade_table(table => 't', to_version => 'NINE')", t))


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        (
            "run_compactions('run', 't')",
            InvalidOption,
            "no procedure 'run_compactions' .* Did you mean 'run_compaction'",
        ),
        ("run_compaction(table => 't')", InvalidOption, "the argument op is missing"),
        ("run_compaction('run')", InvalidOption, "the argument table is missing"),
        ("run_compaction('walk', 't')", InvalidOption, "no op 'walk'"),
        ("run_compaction('run', 't', instants => '1')", InvalidOption, "with names and without are mixed"),
        ("run_compaction(op => 'run', table => 't', instants => '1')", UnsupportedFeature, "does not take instants"),
        ("run_compaction(op => 'run', op => 'run', table => 't')", InvalidOption, "the argument op is given twice"),
        ("run_compaction(op => 'run', tabel => 't')", InvalidOption, "there is no argument 'tabel'"),
        ("show_savepoints('t', '', 1, 2, 3, 4, 5, 6)", InvalidOption, "there is no argument ''"),
        ("run_compaction(op => concat('r', 'un'), table => 't')", InvalidOption, "the argument op is no constant"),
        ("run_compaction(op => 'run' 'x', table => 't')", InvalidOption, "something follows the argument op"),
        ("run_compaction(op => 'run', table => 't'", InvalidOption, "a closing parenthesis is missing"),
        ("run_compaction(op => 'run', table => 't') x", InvalidOption, "goes on where it should end"),
        ("run_compaction", InvalidOption, "the arguments in parentheses are missing"),
        ("run_compaction(op => 'run', table => 'nope')", InvalidOption, "'nope', which is no table of lakebed"),
        ("run_compaction(op => 'run', table => 't; DROP TABLE t')", InvalidOption, "which is no table of lakebed"),
        ("run_clean(table => 't', options => 'a')", InvalidOption, "takes key=value in options"),
        ("run_clean(table => 't', retain_commits => 'few')", LakebedError, "few"),
        ("show_commits(table => 't', limit => 'x')", InvalidOption, "takes a whole number as limit"),
        ("show_commits(table => 't', showArchived => true)", UnsupportedFeature, "does not take showArchived"),
        (
            "repair_deduplicate(table => 't')",
            UnsupportedFeature,
            "t.maintenance.repair\\(\\['duplicates'\\]\\) does it",
        ),
    ],
)
def test_a_wrong_call_is_refused(unchanged: lakebed.Table, text: str, error: type[Exception], match: str) -> None:
    before = unchanged.timeline.to_arrow()
    with pytest.raises(error, match=match):
        call(text, unchanged)
    assert unchanged.timeline.to_arrow() == before
    assert unchanged.count() == 2


def test_a_time_of_a_call_is_a_text_whatever_it_holds(t: lakebed.Table) -> None:
    tables = {"t": t}
    count = lakebed.sql("CALL show_commits(table => 't')", tables).count()
    assert count > 0
    for time in ("x' OR '1'='1", "x\\", "9999'; --"):
        shown = lakebed.sql("CALL show_commits(table => 't', startTime => :time)", tables, {"time": time})
        assert shown.count() == 0, time
    shown = lakebed.sql("CALL show_commits(table => 't', endTime => '''')", tables)
    assert shown.count() == 0

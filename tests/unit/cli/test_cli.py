"""The command line on a table on disk: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakebed
from lakebed.cli.main import app, invoke
from lakebed.errors import InvalidOption, SchemaConflict
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage

TRIPS = pa.table(
    {
        "id": ["t1", "t2", "t3"],
        "city": ["rome", "oslo", "rome"],
        "fare": [9.5, 12.0, 7.25],
        "ts": [10, 10, 10],
    }
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    place = str(tmp_path / "trips")
    table = lakebed.create(place, TRIPS, key="id", partition_by="city", ordering="ts", index="bucket", buckets=2)
    table.upsert(TRIPS)
    return place


def json_output(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command answers with `--output json`."""
    assert invoke([*arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.rest
def test_the_version_option_prints_the_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.output == f"lakebed {lakebed.__version__}\n"
    as_module = subprocess.run([sys.executable, "-m", "lakebed", "--version"], capture_output=True, check=True)
    assert as_module.stdout.decode() == result.output


def test_describe_shows_the_tables_settings(capsys: pytest.CaptureFixture[str], uri: str):
    facts = json_output(capsys, "describe", uri)
    assert (facts["table"], facts["version"], facts["key"], facts["partitions"]) == ("trips", 9, ["id"], ["city"])
    assert facts["index"].startswith("bucket")
    assert facts["sort"] == "none"
    assert facts["file_groups"] > 0
    assert [feature["feature"] for feature in facts["features"]] == ["metadata table"]
    assert facts["properties"]["lakebed.index.bucket.count"] == "2"


def test_describe_names_what_is_refused(capsys: pytest.CaptureFixture[str], uri: str):
    with (Path(uri) / ".hoodie" / "hoodie.properties").open("a") as properties:
        properties.write("hoodie.table.keygenerator.type=OWN\n")
    feature = json_output(capsys, "describe", uri)["features"][-1]
    assert (feature["feature"][:13], feature["read"], feature["write"]) == ("key generator", "yes", "no")


def test_columns_are_listed_and_changed(capsys: pytest.CaptureFixture[str], uri: str):
    names = [column["name"] for column in json_output(capsys, "columns", uri)]
    assert json_output(capsys, "columns", "list", uri)[0]["name"] == names[0]
    added = json_output(capsys, "columns", "add", uri, "tip", "decimal(8,2)", "--first", "--comment", "in euro")
    assert added["change"] == "column tip is new (DECIMAL(8,2))"
    assert json_output(capsys, "columns", "rename", uri, "tip", "extra")["change"] == "column tip is extra now"
    assert json_output(capsys, "columns", "widen", uri, "extra", "string")["change"].endswith(
        "is STRING now, it was DECIMAL(8,2)"
    )
    json_output(capsys, "columns", "comment", uri, "extra", "on top")
    json_output(capsys, "columns", "move", uri, "extra", "--after", names[0])
    listed = json_output(capsys, "columns", uri)
    assert [column["name"] for column in listed] == [names[0], "extra", *names[1:]]
    facts = {"name": "extra", "type": "STRING", "nullable": True, "comment": "on top"}
    assert listed[1] == {**facts, "default": "", "generated": ""}
    json_output(capsys, "columns", "drop", uri, "extra")
    assert [column["name"] for column in json_output(capsys, "columns", uri)] == names


def test_create_takes_the_columns_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    pq.write_table(TRIPS, tmp_path / "rows.parquet")
    place = str(tmp_path / "new")
    facts = json_output(
        capsys,
        *("create", place, "--schema-from", str(tmp_path / "rows.parquet"), "--key", "id"),
        *("--ordering", "ts", "--index", "bucket", "--buckets", "4", "--table-version", "8"),
    )
    assert (facts["version"], facts["file_groups"]) == (8, 0)
    assert lakebed.open(place).schema.names == TRIPS.column_names


def test_create_makes_either_kind_of_table_of_a_csv_file(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "rows.csv").write_text("id;city\n1;oslo\n")
    place, rows = str(tmp_path / "new"), ("--schema-from", str(tmp_path / "rows.csv"), "--delimiter", ";")
    facts = json_output(capsys, "create", place, *rows, "--key", "id", "--type", "mor")
    assert facts["type"] == "MERGE_ON_READ"
    assert json_output(capsys, "upsert", place, str(tmp_path / "rows.csv"), "--delimiter", ";")["inserted"] == 1
    assert json_output(capsys, "scan", place) == [{"id": 1, "city": "oslo"}]


def test_reading_commands_give_rows(capsys: pytest.CaptureFixture[str], uri: str):
    assert json_output(capsys, "count", uri) == {"rows": 3}
    assert json_output(capsys, "get", uri, "t2") == [{"id": "t2", "city": "oslo", "fare": 12.0, "ts": 10}]
    found = json_output(capsys, "scan", uri, "--where", "city = 'rome'", "--columns", "id")
    assert sorted(row["id"] for row in found) == ["t1", "t3"]
    assert len(json_output(capsys, "scan", uri, "--limit", "1")) == 1


def test_writing_commands_change_rows(capsys: pytest.CaptureFixture[str], uri: str, tmp_path: Path):
    before = json_output(capsys, "timeline", "show", uri)[-1]
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": "t2", "city": "oslo", "fare": 1.5, "ts": 20}) + "\n")
    assert "bucket" in json_output(capsys, "explain", uri, str(rows))["index"]
    result = json_output(capsys, "upsert", uri, str(rows))
    assert (result["updated"], result["inserted"]) == (1, 0)
    assert json_output(capsys, "delete", uri, "t1")["deleted"] == 1
    assert json_output(capsys, "delete", uri, "--where", "city = 'rome'")["deleted"] == 1
    assert [row["id"] for row in json_output(capsys, "scan", uri)] == ["t2"]
    changed = json_output(capsys, "changes", uri, "--start", before["completion_time"])
    assert [(row["id"], row["fare"]) for row in changed] == [("t2", 1.5)]
    assert len(json_output(capsys, "timeline", "show", uri)) == 4
    assert {row["partition"] for row in json_output(capsys, "files", "show", uri, "--partition", "oslo")} == {"oslo"}


@pytest.mark.rest
@pytest.mark.parametrize("index", ["bucket", "simple", "record"])
@pytest.mark.parametrize("type", ["cow", "mor"])
def test_a_json_file_changes_only_the_columns_that_it_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, type: Literal["cow", "mor"], index: str
) -> None:
    """As CSV and Parquet files: without `--partial` a column that the file lacks is an error."""
    place, rows = str(tmp_path / "trips"), tmp_path / "rows.json"
    table = lakebed.create(place, TRIPS, key="id", type=type, index=index)
    table.upsert(TRIPS)
    for ts, text in ((11, '{"id": "t2", "ts": 11}\n'), (12, '[{"id": "t2",\n  "ts": 12}]')):
        rows.write_text(text)
        assert invoke(["upsert", place, str(rows)]) == SchemaConflict.exit_code
        assert "city" in capsys.readouterr().err
        assert json_output(capsys, "upsert", place, str(rows), "--partial")["rows"] == 1
        assert json_output(capsys, "get", place, "t2") == [{"id": "t2", "city": "oslo", "fare": 12.0, "ts": ts}]
    rows.write_text('[{"id": "t1", "fare": 1}, {"id": "t2", "city": "bern"}]')
    assert invoke(["upsert", place, str(rows), "--partial"]) == InvalidOption.exit_code
    assert "lacks city" in capsys.readouterr().err
    rows.write_text('[{"id": "t1", "fare": null, "city": "bonn", "ts": 13}]')
    assert json_output(capsys, "upsert", place, str(rows))["rows"] == 1
    assert json_output(capsys, "get", place, "t1") == [{"id": "t1", "city": "bonn", "fare": None, "ts": 13}]


def test_rows_that_the_command_line_prints_can_be_written_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = pa.table(
        {
            "id": pa.array([1, 2]),
            "code": pa.array([b"\x00\xff", None]),
            "x": pa.array([float("nan"), float("-inf")]),
            "price": pa.array([Decimal("12345678901234567.89"), None]),
            "at": pa.array([datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "day": pa.array([date(2024, 2, 29), None]),
            "stops": pa.array([[{"km": 1.5}], []]),
            "tags": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
        }
    )
    places = [str(tmp_path / "from"), str(tmp_path / "to")]
    source, target = (lakebed.create(place, given, key="id") for place in places)
    source.upsert(given)
    for form in ("json", "ndjson"):
        assert invoke(["scan", places[0], "-o", form]) == 0
        (tmp_path / "rows.json").write_text(capsys.readouterr().out)
        assert (
            json_output(capsys, "insert-overwrite", places[1], str(tmp_path / "rows.json"), "--scope", "table")["rows"]
            == 2
        )
        first, second = (t.scan().to_arrow().sort_by("id") for t in (source, target))
        assert str(second.to_pylist()) == str(first.to_pylist())


def test_scan_prints_a_table_with_aligned_columns(capsys: pytest.CaptureFixture[str], uri: str):
    assert invoke(["scan", uri, "--columns", "id,fare", "--where", "id = 't2'"]) == 0
    lines = capsys.readouterr().out.split()
    assert lines == ["id", "fare", "t2", "12.0"]


@pytest.mark.rest
def test_json_has_every_row(capsys: pytest.CaptureFixture[str], uri: str):
    for n in range(1, 24):
        ids = [f"n{n}", f"m{n}"]
        lakebed.open(uri).upsert(pa.table({"id": ids, "city": ["oslo"] * 2, "fare": [1.0] * 2, "ts": [n] * 2}))
    assert len(json_output(capsys, "scan", uri)) == 49
    assert len(json_output(capsys, "timeline", "show", uri)) == len(lakebed.open(uri).timeline) > 24
    assert len(json_output(capsys, "changes", uri)) == 49
    assert len(json_output(capsys, "get", uri, *(f"n{n}" for n in range(1, 24)))) == 23
    assert len(json_output(capsys, "scan", uri, "--limit", "0")) == 49
    for words in (["scan", uri], ["changes", uri], ["timeline", "show", uri]):
        assert invoke([*words, "-o", "json", "--limit", "5"]) == 0
        printed = capsys.readouterr()
        assert len(json.loads(printed.out)) == 5
        assert "--limit 0" in json.loads(printed.err.splitlines()[0])["cut"]
        assert invoke([*words]) == 0
        printed = capsys.readouterr()
        assert words[0] == "timeline" or len(printed.out.splitlines()) == 21
        assert "--limit 0 shows all" in printed.err
        assert invoke([*words, "--limit", "49"]) == 0
        assert "shown" not in capsys.readouterr().err
    assert invoke(["scan", uri, "--limit", "-1"]) == 2


@pytest.mark.parametrize("form", [["-o", "json"], []], ids=["json", "table"])
@pytest.mark.parametrize("limit", [[], ["--limit", "7"], ["--limit", "0"]], ids=["default", "some", "all"])
def test_the_next_start_skips_no_row_that_was_not_printed(
    capsys: pytest.CaptureFixture[str], uri: str, form: list[str], limit: list[str]
):
    first = lakebed.open(uri).timeline.last
    assert first is not None
    ids = [f"n{n}" for n in range(60)]
    lakebed.open(uri).upsert(pa.table({"id": ids, "city": ["oslo"] * 60, "fare": [1.0] * 60, "ts": [20] * 60}))
    begin = first.completion_time or first.time
    assert invoke(["changes", uri, "--start", begin, "--columns", "id", *limit, *form]) == 0
    printed = capsys.readouterr()
    rows = len(json.loads(printed.out)) if form else len(printed.out.splitlines()) - 1
    following = printed.err.splitlines()[-1].removeprefix("next --start ")
    assert rows == {"7": 7, "0": 60}.get(limit[-1] if limit else "", 60 if form else 20)
    left = lakebed.open(uri).changes(following).count()
    assert left == (0 if rows == 60 else 60)


def test_options_are_found_by_any_of_their_names(capsys: pytest.CaptureFixture[str]):
    assert json_output(capsys, "options", "show", "hoodie.cleaner.policy")["option"] == "hoodie.clean.policy"
    assert (
        len(json_output(capsys, "options", "list", "--verdict", "implemented", "--contains", "hoodie.index.bloom")) == 2
    )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["count", "memory://cli/nothing"], 3, "nothing"),
        (["options", "show", "hoodie.indx.type"], 5, "Did you mean hoodie.index.type?"),
        (["delete", "memory://cli/nothing"], 2, "either record keys or --where"),
        (["no-such-command"], 2, "No such command"),
        (["scan"], 2, "Missing argument"),
    ],
)
def test_each_error_has_its_exit_code(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str):
    assert invoke(arguments) == code
    assert text in capsys.readouterr().err


def test_errors_are_json_where_json_is_asked_for(capsys: pytest.CaptureFixture[str], uri: str):
    assert invoke(["scan", uri, "--columns", "nothing", "-o", "json"]) == 5
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["type"], error["exit_code"], error["retryable"]) == ("InvalidOption", 5, False)
    assert "nothing" in error["message"]


def test_a_file_of_unknown_kind(capsys: pytest.CaptureFixture[str], uri: str, tmp_path: Path):
    (tmp_path / "rows.xml").touch()
    assert invoke(["upsert", uri, str(tmp_path / "rows.xml")]) == 8
    assert ".parquet" in capsys.readouterr().err


def test_expression_indexes_are_made_and_dropped(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["indexes", "create", uri, "by_city", "--column", "city", "--function", "substring"]
    made = json_output(
        capsys, *words, "--function-option", "pos=1", "--function-option", "len=2", "--kind", "bloom_filters"
    )
    assert [row["kind"] for row in made if row["index"] == "expr_index_by_city"] == [
        "expression index: substring, bloom filters"
    ]
    assert json_output(capsys, "indexes", "verify", uri) == []
    left = json_output(capsys, "indexes", "drop", uri, "by_city")
    assert "expr_index_by_city" not in {row["index"] for row in left}
    assert invoke([*words[:-1], "soundex"]) == lakebed.UnsupportedFeature.exit_code


def test_indexes_are_made_listed_and_dropped(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert {row["index"] for row in json_output(capsys, "indexes", "list", uri)} == {
        "files",
        "column_stats",
        "partition_stats",
    }
    made = json_output(capsys, "indexes", "create", uri, "record_index", "--groups", "2")
    assert {"index": "record_index", "file_groups": 4} in [
        {k: row[k] for k in ("index", "file_groups")} for row in made
    ]
    assert json_output(capsys, "indexes", "verify", uri) == []
    assert invoke(["indexes", "verify", uri]) == 0
    assert "no difference" in capsys.readouterr().out
    listed = open_snapshot(open_storage(uri)).metadata
    assert listed is not None
    log = next(log for s in listed.slices.file_slices("files") for log in s.log_files if log.size > 100)
    (Path(uri) / ".hoodie" / "metadata" / log.path).unlink()
    assert invoke(["indexes", "verify", uri]) == lakebed.CorruptFile.exit_code
    told = capsys.readouterr().err
    assert log.path in told
    assert "repair" in told
    assert invoke(["indexes", "repair", uri]) == 0
    capsys.readouterr()
    assert json_output(capsys, "indexes", "verify", uri) == []
    paths = {row["partition_path"] for row in json_output(capsys, "indexes", "skew", uri)}
    resharded = json_output(capsys, "indexes", "reshard", uri, "record_index", "--file-groups", "3")
    assert {row["partition_path"]: row["shards"] for row in resharded} == dict.fromkeys(paths, 3)
    some = sorted(path for path in paths if path)[0]
    json_output(capsys, "indexes", "reshard", uri, "record_index", "--partition", f"{some}=1")
    shards = json_output(capsys, "indexes", "skew", uri, "record_index", "--shards")
    assert [row["partition_path"] for row in shards].count(some) == 1
    assert json_output(capsys, "indexes", "verify", uri) == []
    for wrong in ([], ["--file-groups", "2", "--partition", "a=1"], ["--partition", "a"]):
        assert invoke(["indexes", "reshard", uri, "record_index", *wrong]) == 2
    capsys.readouterr()
    left = json_output(capsys, "indexes", "drop", uri, "record_index")
    assert "record_index" not in {row["index"] for row in left}


@pytest.mark.rest
def test_long_work_is_shown_on_a_terminal_and_nowhere_else(uri: str, tmp_path: Path) -> None:
    pq.write_table(TRIPS, tmp_path / "more.parquet")
    at_once = "from lakebed import progress; progress.DELAY_SECONDS = 0"
    command = [sys.executable, "-c", f"{at_once}; from lakebed.cli.main import run; run()"]
    command += ["upsert", uri, str(tmp_path / "more.parquet")]
    quiet = subprocess.run(command, capture_output=True, text=True, check=True)
    assert quiet.stderr == ""
    ours, theirs = pty.openpty()
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
    assert "upserting more.parquet" in os.read(ours, 1 << 16).decode(errors="replace")
    for end in (ours, theirs):
        os.close(end)
    assert quiet.stdout.startswith("upsert ")
    assert shown.stdout.startswith("upsert ")


def test_changes_are_shown_with_the_rows_before_and_after(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    uri = str(tmp_path / "logged")
    first = pa.table({"id": ["a", "b"], "n": [1, 2], "ts": [1, 1]})
    table = lakebed.create(uri, first, key="id", ordering="ts", properties={"hoodie.table.cdc.enabled": True})
    loaded = table.upsert(first)
    table.upsert(pa.table({"id": ["a"], "n": [3], "ts": [2]}))
    last = table.delete(["b"])
    assert invoke(["cdc", uri, "--start", loaded.checkpoint, "--columns", "id,n", "-o", "json"]) == 0
    printed = capsys.readouterr()
    found = [(row["op"], row["before"], row["after"]) for row in json.loads(printed.out)]
    assert found == [("u", {"id": "a", "n": 1}, {"id": "a", "n": 3}), ("d", {"id": "b", "n": 2}, None)]
    assert printed.err.strip() == f"next --start {last.checkpoint}"
    assert invoke(["cdc", uri, "--limit", "1"]) == 0
    printed = capsys.readouterr()
    assert '{"id":"a","n":1,"ts":1}' in printed.out
    assert "next --start 000" in printed.err
    assert invoke(["cdc", uri, "--start", "yesterday"]) == lakebed.errors.InvalidOption.exit_code


def test_advise_ranks_the_indexes_of_a_table_and_of_a_file(
    capsys: pytest.CaptureFixture[str], uri: str, tmp_path: Path
):
    rows = tmp_path / "rows.parquet"
    pq.write_table(TRIPS, rows)
    of_table = json_output(capsys, "indexes", "advise", uri, "--batch", str(rows))
    of_file = json_output(
        capsys, "indexes", "advise", str(rows), "--key", "id", "--partition-by", "city", "--batch-rows", "2"
    )
    for ranking in (of_table, of_file):
        assert {"bucket", "simple", "record", "global_simple"} <= {one["index"] for one in ranking}
        assert all(one["seconds"] > 0 and "tagging: " in one["why"] for one in ranking)
    assert invoke(["indexes", "advise", uri]) == 0
    assert capsys.readouterr().out.startswith("take index=")


def test_a_dry_run_of_a_delete_counts_rows_and_deletes_none(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    for arguments, deleted in ((["t1", "t9"], 1), (["--where", "city = 'rome'"], 2)):
        assert invoke(["delete", uri, *arguments, "--dry-run", "-o", "json"]) == (20 if "t9" in arguments else 0)
        assert json.loads(capsys.readouterr().out)["deleted"] == deleted
    assert json_output(capsys, "delete-partitions", uri, "ro*", "--dry-run")["replaced_rows"] == 2
    assert invoke(["delete", uri, "t1", "--dry-run"]) == 0
    assert capsys.readouterr().out == "delete, dry run: 1 row would be deleted\n"
    assert json_output(capsys, "count", uri) == {"rows": 3}
    assert len(json_output(capsys, "timeline", "show", uri)) == 1


def test_keys_are_read_by_the_types_of_their_columns(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    row = pa.table({"at": pa.array([datetime(2026, 1, 1, 10, tzinfo=UTC)], pa.timestamp("us", "UTC")), "v": [1]})
    uri = str(tmp_path / "times")
    lakebed.create(uri, row, key="at", index="simple").upsert(row)
    for text in ("2026-01-01 10:00:00", "2026-01-01T11:00:00+01:00", "1767261600000000"):
        assert [one["v"] for one in json_output(capsys, "get", uri, text)] == [1]
        assert [one["key"] for one in json_output(capsys, "locate", uri, text)] == ["1767261600000000"]
    assert invoke(["get", uri, "2026-01-01 10:00:01"]) == 20
    assert capsys.readouterr().err == "the table has no 2026-01-01 10:00:01\n"
    report = json_output(capsys, "erase", uri, "--key", "2026-01-01 10:00:00", "--yes")
    assert (report["tables"][0]["rows"], report["clean"]) == (1, True)
    assert lakebed.open(uri).count() == 0


@pytest.mark.parametrize("command", ["get", "locate", "delete", "erase"])
def test_a_text_that_cannot_be_a_key_is_refused(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = pa.table({"id": [7, 8], "day": pa.array([date(2024, 1, 31), None]), "v": [1, 2]})
    cases = (("id", "7", "seven"), ("id", "7", "0x7"), (["id", "day"], "id:7,day:2024-01-31", "id:7,day:x"))
    for number, (keys, right, wrong) in enumerate(cases):
        uri = str(tmp_path / str(number))
        table = lakebed.create(uri, rows, key=keys, index="simple")
        table.upsert(rows)

        def run(key: str, uri: str = uri) -> int:
            flags = ["--key", key, "--yes"] if command == "erase" else [key]
            return invoke([command, uri, *flags])

        files = sorted(path for path in (tmp_path / str(number)).rglob("*") if path.is_file())
        assert run(wrong) == InvalidOption.exit_code
        error = capsys.readouterr().err
        assert f"'{wrong.rpartition(':')[2]}' cannot be a key of table" in error
        assert "id of type int64" in error
        assert sorted(path for path in (tmp_path / str(number)).rglob("*") if path.is_file()) == files
        assert table.scan().to_arrow().num_rows == 2
        assert run(right) == 0
        assert lakebed.open(uri).count() == (2 if command in ("get", "locate") else 1)


def test_an_erasure_of_a_key_that_was_never_stored_has_its_exit_code(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lakebed.open(uri).upsert(pa.table({"id": ["there"], "city": ["oslo"], "fare": [1.0], "ts": [20]}))
    lakebed.open(uri).delete(["there"])
    flags = ["--yes", "-o", "json"]
    assert invoke(["erase", uri, "--key", "never", *flags]) == 20
    report = json.loads(capsys.readouterr().out)["tables"][0]
    assert (report["rows"], report["keys"], report["missing"]) == (0, 1, 1)
    assert invoke(["erase", uri, "--key", "never"]) == 2
    assert invoke(["erase", uri, "--key", "there", *flags]) == 0, "files had its deleted row"
    assert invoke(["erase", uri, "--key", "there", *flags]) == 20, "it is gone by now"
    capsys.readouterr()
    for flag in ("--dry-run", "--yes"):
        assert invoke(["erase", uri, "--key", "never", flag]) == 20
        printed = capsys.readouterr().out
        assert printed.startswith(f"{lakebed.open(uri).uri}: 1 key is in no file: never stored, or erased before (chec")
        assert printed.count("in no file") == 1
        assert "nothing is left" not in printed


@pytest.mark.rest
def test_rows_are_erased_by_keys_a_file_of_keys_or_a_condition(
    uri: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ids = [f"n{n}" for n in range(7)]
    lakebed.open(uri).upsert(pa.table({"id": ids, "city": ["oslo"] * 7, "fare": [1.0] * 7, "ts": [20] * 7}))
    rows = lakebed.open(uri).count()
    assert invoke(["erase", uri]) == invoke(["erase", uri, "--key", "n1", "--where", "fare > 1"]) == 2
    capsys.readouterr()
    assert invoke(["erase", uri, "--key", "n1"]) == 2
    assert "give --yes" in capsys.readouterr().err
    dry = json_output(capsys, "erase", uri, "--key", "n1", "--dry-run")
    assert (dry["tables"][0]["rows"], dry["clean"], lakebed.open(uri).count()) == (1, False, rows)
    done = json_output(capsys, "erase", uri, "--key", "n1", "--key", "n2", "--yes")
    assert (done["tables"][0]["rows"], done["clean"]) == (2, True)
    (tmp_path / "keys.txt").write_text("n3\n\nn4\n", encoding="utf-8")
    assert (
        json_output(capsys, "erase", uri, "--keys-from", str(tmp_path / "keys.txt"), "--yes")["tables"][0]["rows"] == 2
    )
    (tmp_path / "keys.csv").write_text("id\nn5\n", encoding="utf-8")
    assert (
        json_output(capsys, "erase", uri, "--keys-from", str(tmp_path / "keys.csv"), "--yes")["tables"][0]["rows"] == 1
    )
    assert json_output(capsys, "erase", uri, "--where", "id = 'n6'", "--yes")["tables"][0]["rows"] == 1
    assert lakebed.open(uri).count() == rows - 6


def test_an_erasure_that_left_something_prints_its_report_and_has_an_exit_code(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = open_storage(uri)
    storage.write("oslo/_note.txt", b"unmistakable-key")
    assert invoke(["erase", uri, "--key", "unmistakable-key", "--yes", "-o", "json"]) == 15
    printed = capsys.readouterr()
    assert [one["path"] for one in json.loads(printed.out)["tables"][0]["remainders"]] == ["oslo/_note.txt"]
    assert json.loads(printed.err)["error"]["type"] == "ErasureIncomplete"

"""Hints name commands on the command line, where a command does the same as the call."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.hints import as_commands
from lakebed.cli.main import app, invoke
from lakebed.errors import InvalidOption


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("Finish it first: t.restore().", "Finish it first: `lakebed restore URI`."),
        ("t.rescale(buckets=8), or t.cluster()", "`lakebed rescale URI --buckets 8`, or `lakebed cluster URI`"),
        ("t.indexes.use('bucket', buckets=...)", "`lakebed index use URI bucket --buckets ...`"),
        ("t.repair(['orphans', 'metadata'])", "`lakebed repair URI --part orphans,metadata`"),
        ("t.delete_savepoint('20261126')", "`lakebed savepoint URI --delete 20261126`"),
        ("t.upsert(rows), t.nothing(), t.cluster(of=1), t.indexes()",) * 2,
        ("give t.delete(where=condition)",) * 2,
        ("Check it, or make it with lakebed.create.", "Check it, or make it with `lakebed table create`."),
        ("t.configure({'a.b': True})", "`lakebed configure URI a.b=true`"),
        (
            "t.indexes.adopt('bucket', buckets=..., fields=['id', 'day'])",
            "`lakebed index adopt URI bucket --buckets ... --field id,day`",
        ),
        (
            "make a full copy: lakebed.convert(source, new_uri, key=...)",
            "make a full copy: `lakebed convert SOURCE NEW_URI --key ...`",
        ),
        ("lakebed.load(uri, rows, key=...)", "`lakebed load URI FILE --key ...`"),
        ('create it with type="mor", or take another index', "create it with --type mor, or take another index"),
        ("name it: create(..., ordering='at')", "name it: `lakebed table create URI --schema-from FILE --ordering at`"),
        ("by lakebed.open(uri, options={'a.b': False}).", "by a Python program that opens the table with a.b=False."),
        ("open the table with spark=..., or write it in simpler SQL", "write it in simpler SQL"),
        ("give options={'lakebed.write.evolution': 'add'}", "give `--option lakebed.write.evolution=add`"),
    ],
)
def test_calls_become_commands(hint: str, expected: str) -> None:
    assert as_commands(hint, app) == expected


def test_an_error_of_a_command_names_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    table = lakebed.create("memory://hints/t", {"id": [1], "v": ["a"]}, key="id", type="mor", index="bucket", buckets=1)
    table.upsert({"id": [1], "v": ["a"]})
    table.upsert({"id": [1], "v": ["b"]})
    table.compact(plan_only=True)
    assert invoke(["columns", "rename", table.uri, "v", "w"]) != 0
    said = capsys.readouterr().err
    assert "`lakebed compact URI`" in said
    assert "t.compact()" not in said


def test_hints_of_tables_and_columns_name_commands_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text('{"id": 1, "v": "a"}')
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "delta" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    (tmp_path / "lacks.json").write_text('{"id": 1}')
    uri, create = str(tmp_path / "t"), ["--schema-from", str(rows), "--key", "id"]

    def hint(*words: str) -> str:
        assert invoke(words) > 2
        return capsys.readouterr().err.partition("hint:")[2]

    assert "`lakebed table create`" in hint("scan", uri)
    assert f"`lakebed convert {tmp_path}/delta NEW_URI --key ...`" in hint("scan", f"{tmp_path}/delta")
    assert "`lakebed table describe URI`" in hint("table", "drop", uri, "--yes")
    assert "--allow-existing`" in hint("table", "create", f"{tmp_path}/delta", *create)
    assert invoke(["table", "create", f"{tmp_path}/delta", *create, "--allow-existing"]) == 0
    assert invoke(["table", "create", uri, *create]) == 0
    assert "`lakebed upsert URI FILE --partial`" in hint("upsert", uri, str(tmp_path / "lacks.json"))
    assert "`lakebed configure URI hoodie.table.cdc.enabled=true`" in hint("cdc", uri)
    capsys.readouterr()
    assert invoke(["cdc", uri, "--output", "json"]) == 5
    assert "`lakebed configure URI hoodie.table.cdc.enabled=true`" in capsys.readouterr().err


def test_names_that_no_table_can_hold_come_with_a_query_that_renames_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = str(tmp_path / "t")
    (tmp_path / "rows.csv").write_text("Sample Number,it's\n1,a\n")
    assert invoke(["load", uri, str(tmp_path / "rows.csv"), "--key", "Sample Number"]) == 7
    said = capsys.readouterr().err
    command = shlex.split(said.rpartition("Rename them: `")[2].partition(" > RENAMED")[0])
    assert command[:2] == ["lakebed", "sql"]
    assert invoke([word.replace("FILE", str(tmp_path / "rows.csv")) for word in command[1:]]) == 0
    (tmp_path / "renamed.csv").write_text(capsys.readouterr().out)
    assert invoke(["load", uri, str(tmp_path / "renamed.csv"), "--key", "Sample__Number"]) == 0
    assert lakebed.open(uri).to_arrow().to_pylist() == [{"Sample__Number": 1, "it__s": "a"}]


def test_the_index_of_another_writer_is_adopted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    lakebed.load(uri, {"id": [1, 2], "day": [1, 2]}, key=["id", "day"], index="bucket", buckets=2)
    assert invoke(["index", "adopt", uri, "bucket", "--buckets", "3", "--field", "id,day"]) == 13
    assert invoke(["index", "adopt", uri, "bucket", "--buckets", "2", "--field", "id,day"]) == 0
    assert capsys.readouterr().out.strip() == "writes go by the index bucket from now on"


def test_a_partition_path_with_a_typo_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.load(uri, {"id": [1], "city": ["oslo"]}, key="id", partition_by="city")
    assert invoke(["files", "show", uri, "--partition", "olso"]) == 5
    assert "Did you mean 'oslo'?" in capsys.readouterr().err
    with pytest.raises(InvalidOption, match=r"no partition 'olso'\. Did you mean 'oslo'"):
        table.cluster(partitions=["olso"])
    with pytest.raises(InvalidOption, match="did you mean 'city'"):
        lakebed.sql("insert overwrite t partition (ctiy = 'oslo') select 1", tables={"t": table})

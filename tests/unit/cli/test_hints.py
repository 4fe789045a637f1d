"""Hints name commands on the command line, where a command does the same as the call."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.hints import as_commands, hint_as_commands, message_as_commands
from lakebed.cli.main import invoke
from lakebed.errors import InvalidOption, LakebedError


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("Finish it first: t.restore().", "Finish it first: `lakebed restore URI`."),
        (
            "t.maintenance.rescale(buckets=8), or t.maintenance.cluster()",
            "`lakebed maintenance rescale URI --buckets 8`, or `lakebed maintenance cluster URI`",
        ),
        ("t.indexes.use('bucket', buckets=...)", "`lakebed indexes use URI bucket --buckets ...`"),
        ("t.maintenance.repair(['orphans', 'metadata'])", "`lakebed maintenance repair URI --part orphans,metadata`"),
        ("t.savepoints.delete('20261126')", "`lakebed savepoints delete URI 20261126`"),
        ("t.nothing(), t.maintenance.cluster(of=1), t.indexes(), t.maintenance.compact(1, 2)",) * 2,
        (
            "t.upsert(rows); t.maintenance.compact(logs=True)",
            "`lakebed upsert URI FILE`; `lakebed maintenance compact URI --logs`",
        ),
        (
            "give t.delete([key, ...]) or t.delete(where=condition)",
            "give `lakebed delete URI KEY ...` or `lakebed delete URI --where CONDITION`",
        ),
        ("t.delete(where=\"city = 'oslo'\")", "`lakebed delete URI --where \"city = 'oslo'\"`"),
        ("Open the table with spark=..., write it in simpler SQL", "Write it in simpler SQL"),
        (
            "choose table_version 9, without in_place, for 'dry_run'",
            "choose --table-version 9, without --in-place, for 'dry_run'",
        ),
        ("give it: delimiter=';', or --delimiter ';' on the command line", "give it: --delimiter ';'"),
        ("ON t.count = s.count, t.id",) * 2,
        ("t.consumers.move('daily', to)", "`lakebed consumers move URI daily TO`"),
        ("lakebed.maintenance.repair(uri, ['properties'])", "`lakebed maintenance repair URI --part properties`"),
        (
            "use t.maintenance.upgrade(to=9) or `lakebed maintenance upgrade URI --to 9`",
            "use `lakebed maintenance upgrade URI --to 9`",
        ),
        (
            "t.timeline has it; correct it with t.configure",
            "`lakebed timeline show URI` has it; correct it with `lakebed configure URI`",
        ),
        (
            "rows move under it (update_partition_path=False); wait=True",
            "rows move under it (--no-update-partition-path); --wait",
        ),
        (
            "give buckets=, or partition_buckets= for partition paths",
            "give --buckets, or --partition-buckets for partition paths",
        ),
        ("Check it, or make it with lakebed.create.", "Check it, or make it with `lakebed create`."),
        ("t.configure({'a.b': True})", "`lakebed configure URI a.b=true`"),
        (
            "t.indexes.adopt('bucket', buckets=..., hash_fields=['id', 'day'])",
            "`lakebed indexes adopt URI bucket --buckets ... --hash-fields id,day`",
        ),
        (
            "make a full copy: lakebed.convert(source, new_uri, key=...)",
            "make a full copy: `lakebed convert SOURCE NEW_URI --key ...`",
        ),
        ("lakebed.load(uri, rows, key=...)", "`lakebed load URI FILE --key ...`"),
        ('create it with type="mor", or take another index', "create it with --type mor, or take another index"),
        ("name it: create(..., ordering='at')", "name it: `lakebed create URI --schema-from FILE --ordering at`"),
        ("by lakebed.open(uri, options={'a.b': False}).", "by a Python program that opens the table with a.b=False."),
        ("open the table with spark=..., or write it in simpler SQL", "write it in simpler SQL"),
        ("give options={'lakebed.write.evolution': 'add'}", "give `--option lakebed.write.evolution=add`"),
    ],
)
def test_calls_become_commands(hint: str, expected: str) -> None:
    assert hint_as_commands(hint) == expected


def test_reports_keep_what_only_looks_like_an_argument() -> None:
    text = "3 files in type=mor/key=1, index=bucket; t.maintenance.clean() deletes them"
    assert as_commands(text) == "3 files in type=mor/key=1, index=bucket; `lakebed maintenance clean URI` deletes them"


# Rooms and files whose errors only Python programs get: what they are given has no form on the command line.
_OF_PYTHON = (
    *(
        "spark_source/",
        "attachment/",
        "statements/spark_query.py",
        "spark_sink/",
        "dlt_destination/",
        "dbt_plugin/",
        "engine/",
        "merge/mergers.py",
        "filters/pairs.py",
    ),
    *(
        "operations/merge_statement.py",
        "schema/blobs.py",
        "operations/merge_join.py",
        "operations/delete.py",
        "operations/hudi_job.py",
    ),
    *("read/spark", "read/buckets.py", "read/dataset.py", "read/reopening.py", "read/scan.py", "inputs/python_rows.py"),
    "table_consumers.py",
)
# A call, an argument, or what stands for either.
_PYTHON = re.compile(
    r"\bt\.[a-z]\w+|\blakebed\.\w+\(|\w\(\)|\bspark=|\boptions="
    r"|(?<![.\w])[a-z]\w*=(?:True|False|None|\.\.\.|\[|['\"])"
)


def _texts(node: ast.expr) -> list[str]:
    """The texts that an expression can have, with X for what is filled in."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = (v.value if isinstance(v, ast.Constant) else "X" for v in node.values)
        return ["".join(map(str, parts))]
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    if isinstance(node, ast.BinOp):
        return [one + other for one in _texts(node.left) or [""] for other in _texts(node.right) or [""]]
    return []


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    """The syntax of all source files but those of `_OF_PYTHON`, with their names."""
    root = Path(lakebed.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(_OF_PYTHON):
            yield from ((name, node) for node in ast.walk(ast.parse(path.read_text())))


def _has_python(said: str) -> bool:
    return _PYTHON.search(re.sub(r"`[^`]*`|'[^']*'", "_", said)) is not None


@pytest.mark.rest
def test_no_hint_that_a_command_can_print_asks_for_python() -> None:
    left: list[str] = []
    seen = 0
    for name, node in _nodes():
        if isinstance(node, ast.keyword) and node.arg == "hint":
            for text in _texts(node.value):
                seen += 1
                said = hint_as_commands(LakebedError("", hint=text).hint)
                if _has_python(said):
                    left.append(f"{name}:{node.value.lineno}: {said}")
    assert seen > 300
    assert not left, left


# Refusals of what only a call in Python can be given.
_OF_CALLS = re.compile(
    r"^(open|ingest|convert|sql|join|bucketed|stream_into|Once|KeyText)\(\) |a dict\b|a pyarrow|path= goes with"
)


@pytest.mark.rest
def test_no_message_that_a_command_can_print_has_words_of_python() -> None:
    errors = {name for name in vars(lakebed.errors) if inspect.isclass(getattr(lakebed.errors, name))}
    left: list[str] = []
    seen = 0
    for name, node in _nodes():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in errors):
            continue
        for text in _texts(node.args[0]) if node.args else ():
            seen += 1
            said = message_as_commands(text)
            if _has_python(said) and not _OF_CALLS.search(said):
                left.append(f"{name}:{node.lineno}: {said}")
    assert seen > 600
    assert not left, left


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("merge='event_time' needs an ordering column", "--merge event_time needs an ordering column"),
        ("record_index with groups=-1", "record_index with --groups -1"),
        ("key text 'key=1' of file 'key=1/a.parquet', in year=2020/key=5/a",) * 2,
        ("skew() takes a number, 1 or more as file_groups, not 0", "--file-groups takes a number, 1 or more, not 0"),
        ("get() takes keys of the table as keys, not 1.5", "KEY... takes keys of the table, not 1.5"),
        (
            "t.upsert(...) of a table that only t.maintenance.compact() reads",
            "`lakebed upsert URI FILE` of a table that only `lakebed maintenance compact URI` reads",
        ),
        (
            "sql() does not run SET without a session, in the SQL text near 'set'",
            "SET is no statement that runs without Spark, in the SQL text near 'set'",
        ),
    ],
)
def test_messages_name_commands_and_options(message: str, expected: str) -> None:
    assert message_as_commands(message) == expected


def test_warnings_of_a_command_name_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = lakebed.load("memory://hints/warned", {"id": [1], "v": ["a"]}, key="id", index="bucket", buckets=1)
    (tmp_path / "rows.json").write_text('{"id": 2, "v": "b"}')
    small = ["--option", "lakebed.index.bucket.advised.bytes=1"]
    assert invoke(["upsert", table.uri, str(tmp_path / "rows.json"), *small]) == 0
    said = capsys.readouterr().err
    assert said.startswith("warning: bucket 00000000-")
    assert "`lakebed maintenance rescale URI --buckets ...` gives the table more of them" in said
    assert " t." not in said


def test_reports_of_a_command_name_commands(capsys: pytest.CaptureFixture[str]) -> None:
    table = lakebed.load("memory://hints/doctor", {"id": [1]}, key="id")
    assert invoke(["explain", table.uri]) == 0
    assert invoke(["indexes", "advise", table.uri, "--batch-rows", "10"]) == 0
    assert "t.indexes" not in capsys.readouterr().out


def test_an_error_of_a_command_names_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    table = lakebed.create("memory://hints/t", {"id": [1], "v": ["a"]}, key="id", type="mor", index="bucket", buckets=1)
    table.upsert({"id": [1], "v": ["a"]})
    table.upsert({"id": [1], "v": ["b"]})
    table.maintenance.compact(plan_only=True)
    assert invoke(["columns", "rename", table.uri, "v", "w"]) != 0
    said = capsys.readouterr().err
    assert "`lakebed maintenance compact URI`" in said
    assert "t.maintenance.compact()" not in said


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

    assert "`lakebed create`" in hint("scan", uri)
    assert f"`lakebed convert {tmp_path}/delta NEW_URI --key ...`" in hint("scan", f"{tmp_path}/delta")
    assert "`lakebed list-tables URI --depth 0`" in hint("drop", uri, "--yes")
    assert "--allow-existing`" in hint("create", f"{tmp_path}/delta", *create)
    assert invoke(["create", f"{tmp_path}/delta", *create, "--allow-existing"]) == 0
    assert invoke(["create", uri, *create]) == 0
    assert "`lakebed upsert URI FILE --partial`" in hint("upsert", uri, str(tmp_path / "lacks.json"))
    assert "`lakebed configure URI hoodie.table.cdc.enabled=true`" in hint("cdc", uri)
    capsys.readouterr()
    assert invoke(["cdc", uri, "--output", "json"]) == 5
    assert "`lakebed configure URI hoodie.table.cdc.enabled=true`" in capsys.readouterr().err


def test_names_that_no_table_can_hold_come_with_the_option_that_renames_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = str(tmp_path / "t")
    (tmp_path / "rows.csv").write_text("Sample Number,it's\n1,a\n")
    assert invoke(["load", uri, str(tmp_path / "rows.csv"), "--key", "Sample Number"]) == 7
    said = capsys.readouterr().err
    option = shlex.split(said.rpartition("Rename them: `")[2].partition("`")[0])
    assert option == ["--read", "rename=snake"]
    assert invoke(["load", uri, str(tmp_path / "rows.csv"), "--key", "sample_number", *option]) == 0
    assert lakebed.open(uri).to_arrow().to_pylist() == [{"sample_number": 1, "it_s": "a"}]


def test_the_index_of_another_writer_is_adopted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    lakebed.load(uri, {"id": [1, 2], "day": [1, 2]}, key=["id", "day"], index="bucket", buckets=2)
    assert invoke(["indexes", "adopt", uri, "bucket", "--buckets", "3", "--hash-fields", "id,day"]) == 13
    assert invoke(["indexes", "adopt", uri, "bucket", "--buckets", "2", "--hash-fields", "id,day"]) == 0
    assert capsys.readouterr().out.strip() == "writes go by the index bucket from now on"


def test_a_partition_path_with_a_typo_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.load(uri, {"id": [1], "city": ["oslo"]}, key="id", partition_by="city")
    assert invoke(["files", "show", uri, "--partition", "olso"]) == 5
    assert "Did you mean 'oslo'?" in capsys.readouterr().err
    with pytest.raises(InvalidOption, match=r"no partition 'olso'\. Did you mean 'oslo'"):
        table.maintenance.cluster(partitions=["olso"])
    with pytest.raises(InvalidOption, match="did you mean 'city'"):
        lakebed.sql("insert overwrite t partition (ctiy = 'oslo') select 1", tables={"t": table})

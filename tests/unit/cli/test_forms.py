"""The forms in which the command line takes and gives rows, and what it says when something is not there."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed import variant
from lakebed.cli.main import invoke
from lakebed.errors import InvalidOption, InvalidRecord

SCHEMA = pa.schema(
    [("id", pa.int64()), ("zip", pa.string()), ("price", pa.decimal128(8, 2)), ("x", pa.float32()), ("ts", pa.int64())]
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    place = str(tmp_path / "t")
    table = lakebed.create(place, SCHEMA, key="id", partition_by="zip", ordering="ts", index="bucket", buckets=1)
    table.upsert([{"id": 1, "zip": "00501", "price": 1, "x": float("nan"), "ts": 1}])
    return place


def test_json_is_json_whatever_the_numbers_are(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    more = {2: -math.inf, 3: math.inf, 4: None, 5: 0.5}
    lakebed.open(uri).upsert([{"id": n, "zip": "00501", "price": 2, "x": x, "ts": 1} for n, x in more.items()])
    assert invoke(["scan", uri, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert {row["id"]: row["x"] for row in rows} == {1: "NaN", 2: "-Infinity", 3: "Infinity", 4: None, 5: 0.5}


def test_ndjson_is_an_object_a_line_and_csv_a_row(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    lakebed.open(uri).upsert([{"id": 2, "zip": 'a,"b"', "price": 2, "x": 0.5, "ts": 1}])
    assert invoke(["scan", uri, "-o", "ndjson", "--columns", "id"]) == 0
    assert sorted(json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()) == [1, 2]
    assert invoke(["scan", uri, "-o", "csv", "--where", "id = 2"]) == 0
    found = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert found == [["id", "zip", "price", "x", "ts"], ["2", 'a,"b"', "2.00", "0.5", "1"]]
    assert invoke(["describe", uri, "-o", "csv"]) == 0
    assert next(csv.reader(io.StringIO(capsys.readouterr().out)))[0] == "table"


@pytest.mark.parametrize(
    "command", [("maintenance", "rescale", "{uri}", "--buckets", "2"), ("indexes", "use", "{uri}", "simple")]
)
def test_a_change_of_the_index_is_values_for_programs_in_every_form(
    capsys: pytest.CaptureFixture[str], uri: str, command: tuple[str, ...]
) -> None:
    arguments = [*(word.format(uri=uri) for word in command), "--dry-run", "-o"]
    assert invoke([*arguments, "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["instant"] is None
    assert invoke([*arguments, "ndjson"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"] == facts["plan"]
    assert invoke([*arguments, "csv"]) == 0
    header, _ = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == list(facts)


def test_csv_is_read_in_the_types_of_the_table(capsys: pytest.CaptureFixture[str], uri: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id;zip;price;x;ts\n2;00502;7.5;;3\n")
    assert invoke(["upsert", uri, str(rows), "--delimiter", ";"]) == 0
    (found,) = lakebed.open(uri).get([2]).to_pylist()
    assert (found["zip"], str(found["price"]), found["x"]) == ("00502", "7.50", None)
    rows.write_text("id,zip,price,x,ts\n3,00502,much,1,3\n")
    assert invoke(["upsert", uri, str(rows)]) != 0
    assert "much" in capsys.readouterr().err
    assert invoke(["upsert", uri, str(rows), "--delimiter", "ab"]) != 0
    assert "not one character" in capsys.readouterr().err


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_warning_about_a_guessed_delimiter_names_the_option(
    capsys: pytest.CaptureFixture[str], uri: str, tmp_path: Path, mark: str
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(mark.join(["id", "zip", "price", "x", "ts"]) + "\n" + mark.join(["2", "00502", "7.5", "", "3"]))
    assert invoke(["upsert", uri, str(rows)]) == 0
    assert (
        f"separated by {mark!r}, as its header shows; this warning is left out with --delimiter {mark!r}\n"
        in capsys.readouterr().err
    )
    (found,) = lakebed.open(uri).get([2]).to_pylist()
    assert (found["zip"], str(found["price"])) == ("00502", "7.50")
    assert invoke(["upsert", uri, str(rows), "--delimiter", mark]) == 0
    assert "separated" not in capsys.readouterr().err


def test_settings_of_files_are_given_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows, uri = tmp_path / "rows.csv", str(tmp_path / "t")
    rows.write_text(",Rider Id,Zip,Born\n0,7,01234,31.12.1999\n")
    reading = [f"--read={s}" for s in ("rename=snake", "index_column=row", "date_format=%d.%m.%Y", "columns.Zip=int")]
    assert invoke(["load", uri, str(rows), "--key", "rider_id", *reading]) == 0
    assert lakebed.open(uri).to_arrow().to_pylist() == [
        {"row": 0, "rider_id": 7, "zip": 1234, "born": date(1999, 12, 31)}
    ]
    capsys.readouterr()
    assert invoke(["upsert", uri, str(rows), "--read", "rename=camel"]) != 0
    assert "rename='camel' is unknown" in capsys.readouterr().err.replace("--read rename=camel", "rename='camel'")
    assert invoke(["upsert", uri, str(rows), "--read", "colour=red"]) == 2
    assert "'colour' is none of rename, index_column, date_format and columns.NAME" in capsys.readouterr().err


def test_loads_and_overwrites(capsys: pytest.CaptureFixture[str], uri: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"id": 5, "zip": "00501", "price": 1.5, "x": 1.0, "ts": 1}) + "\n")
    assert invoke(["bulk-insert", uri, str(rows), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["inserted"] == 1
    assert invoke(["insert-overwrite", uri, str(rows)]) == 0
    assert lakebed.open(uri).scan(columns=["id"]).to_arrow().to_pylist() == [{"id": 5}]
    lakebed.open(uri).upsert([{"id": 6, "zip": "other", "price": 1, "x": 1.0, "ts": 1}])
    assert invoke(["delete-partitions", uri, "oth*"]) == 0
    assert lakebed.open(uri).scan(columns=["id"]).to_arrow().to_pylist() == [{"id": 5}]
    assert invoke(["insert-overwrite", uri, str(rows), "--scope", "table"]) == 0


def test_a_key_that_is_not_there_has_an_exit_code_of_its_own(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    for command in ("get", "locate"):
        assert invoke([command, uri, "1", "-o", "json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) == 1
        assert invoke([command, uri, "1", "7", "-o", "json"]) == 20
        printed = capsys.readouterr()
        assert len(json.loads(printed.out)) == 1
        assert printed.err == "the table has no 7\n"


def test_vectors_blobs_and_variants_are_printed_for_people_and_for_programs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    columns = [pa.field("id", pa.string()), pa.field("emb", lakebed.vector(2)), pa.field("facts", variant.TYPE)]
    schema = pa.schema([*columns, pa.field("pic", lakebed.BLOB)])
    table = lakebed.create(str(tmp_path / "t"), schema, key="id")
    documents, blobs = variant.encode([{"tags": [1, None]}, None]), lakebed.blob(data=pa.array([b"abc", None]))
    table.upsert(pa.table([["a", "b"], [[3.0, 4.0], [0.0, 1.0]], documents, blobs], schema=table.schema))
    assert invoke(["get", table.uri, "a"]) == 0
    cells = re.split(" {2,}", capsys.readouterr().out.splitlines()[1])
    assert cells == ["a", "2 numbers, norm 5", '{"tags":[1,null]}', "3 bytes"]
    blob = {"type": "INLINE", "data": "YWJj", "reference": None}
    assert invoke(["scan", table.uri, "-o", "ndjson"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {row["id"]: row for row in map(json.loads, lines)}
    assert found["a"] == {"id": "a", "emb": [3.0, 4.0], "facts": {"tags": [1, None]}, "pic": blob}
    assert found["b"] == {"id": "b", "emb": [0.0, 1.0], "facts": None, "pic": None}
    assert invoke(["scan", table.uri, "-o", "csv", "--columns", "id,facts"]) == 0
    lines = sorted(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert lines == [["a", '{"tags":[1,null]}'], ["b", ""], ["id", "facts"]]


def test_a_search_takes_a_list_a_numpy_file_and_a_json_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "emb": pa.array([[1.0, 0.0], [0.0, 1.0]], lakebed.vector(2))})
    table = lakebed.load(str(tmp_path / "t"), rows, key="id")
    np.save(tmp_path / "q.npy", np.array([0.0, 1.0]))
    (tmp_path / "q.json").write_text("[0, 1]")
    for query in ("[0, 1]", str(tmp_path / "q.npy"), str(tmp_path / "q.json")):
        assert invoke(["search", table.uri, "--vector", query, "-k", "1", "-o", "json"]) == 0
        assert [row["id"] for row in json.loads(capsys.readouterr().out)] == [2]
    (tmp_path / "bad.json").write_text("[0,")
    for query in ("[0,", str(tmp_path / "bad.json"), str(tmp_path / "none.json"), str(tmp_path / "none.npy")):
        assert invoke(["search", table.uri, "--vector", query]) != 0
        printed = capsys.readouterr()
        assert f"--vector {query}" in printed.err
        assert "a JSON file" in printed.err


def test_piped_tables_break_no_line(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    lakebed.open(uri).upsert([{"id": 2, "zip": "z" * 200, "price": 2, "x": 0.5, "ts": 1}])
    assert invoke(["scan", uri]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert any("z" * 200 in line for line in lines)


def test_facts_have_keys_that_programs_can_use(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    assert invoke(["describe", uri, "-o", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert all(key == key.lower() and " " not in key for key in facts)
    assert (facts["version"], facts["key"], facts["partitions"], facts["ordering"]) == (9, ["id"], ["zip"], ["ts"])
    assert invoke(["describe", uri]) == 0
    assert re.search(r"^partitions +zip *$", capsys.readouterr().out, re.MULTILINE)
    plain = lakebed.create(uri + "2", SCHEMA).uri
    assert invoke(["describe", plain, "-o", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["key"], facts["partitions"], facts["newest_instant"]) == ([], [], None)
    assert invoke(["describe", plain]) == 0
    assert re.search(r"^key +generated *$", capsys.readouterr().out, re.MULTILINE)
    assert invoke(["options", "show", "hoodie.index.type", "-o", "json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["older_names"], list)


def test_options_are_checked_before_a_job_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps(
            {
                "hoodie.table.name": "t",
                "hoodie.upsert.shuffle.parallelism": 2,
                "hoodie.indx.type": "BUCKET",
                "hoodie.parquet.compression.codec": "lzo",
                "hoodie.bucket.index.num.buckets": "many",
            }
        )
    )
    assert invoke(["options", "check", str(job), "-o", "json"]) == InvalidOption.exit_code
    verdicts = {v["option"]: v for v in json.loads(capsys.readouterr().out)}
    assert [v["verdict"] for v in verdicts.values()] == ["wrong", "unknown", "refused", "ignored", "implemented"]
    assert "hoodie.index.type" in verdicts["hoodie.indx.type"]["note"]
    assert invoke(["options", "check", "--help"]) == 0
    assert f"exit code is {InvalidOption.exit_code}" in " ".join(capsys.readouterr().out.replace("│", " ").split())
    lines = tmp_path / "job.properties"
    lines.write_text("# a job\nhoodie.table.name=t\nhoodie.index.type BUCKET\n")
    assert invoke(["options", "check", str(lines)]) == 0
    assert invoke(["options", "list", "--verdict", "maybe"]) != 0
    assert "implemented, refused, ignored" in capsys.readouterr().err


def test_an_error_of_no_class_is_a_sentence_and_a_traceback_on_demand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(lakebed, "open", broken)
    assert invoke(["count", uri]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: RuntimeError: out of luck\n")
    assert "Traceback" not in said
    assert invoke(["--traceback", "count", uri]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_error_in_a_csv_file_names_line_and_column(
    capsys: pytest.CaptureFixture[str], uri: str, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    for text, said in (
        ('id,zip,price,x,ts\n2,"a\nb",1,1,3\n3,c,much,1,3\n', "line 4, column price: 'much' is no decimal128(8, 2)"),
        ("id,zip,price,x,ts\n2,a,1,1,3\n3,c\n", "line 3: 2 fields, the header has 5"),
    ):
        rows.write_text(text)
        assert invoke(["upsert", uri, str(rows)]) == InvalidRecord.exit_code
        assert said in capsys.readouterr().err
        assert lakebed.open(uri).count() == 1


def test_no_line_of_a_table_ends_in_spaces(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    lakebed.open(uri).upsert([{"id": 2, "zip": "z" * 200, "price": 2, "x": 0.5, "ts": 1}])
    assert invoke(["scan", uri, "--columns", "id,zip"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line != line.rstrip()] == []


def test_services_run_once_ends_with_what_was_done(capsys: pytest.CaptureFixture[str], uri: str) -> None:
    assert invoke(["maintenance", "run", uri, "--once"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1] == "1 table: 0 services ran, 0 services failed; nothing was due on 1"
    )


def test_a_search_by_an_index_takes_its_numbers_and_an_exact_one_refuses_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    vectors = np.random.default_rng(5).normal(size=(60, 4)).astype(np.float32)
    rows = pa.table({"id": range(60), "emb": pa.array(list(vectors), lakebed.vector(4))})
    table = lakebed.load(str(tmp_path / "t"), rows, key="id")
    table.indexes.create("vector", column="emb", clusters=6)
    np.save(tmp_path / "q.npy", vectors[7])
    search = ["search", table.uri, "--vector", str(tmp_path / "q.npy"), "--columns", "id", "-o", "json"]

    def ids(*options: str) -> list[int]:
        assert invoke([*search, *options]) == 0
        return [row["id"] for row in json.loads(capsys.readouterr().out)]

    exact = ids("--exact", "-k", "60")
    assert sorted(exact) == list(range(60))
    assert ids("--probes", "6", "--rerank", "60", "-k", "20") == exact[:20]
    assert ids("--probes", "1", "--rerank", "1", "-k", "1") == [7]
    for option in ("--probes", "--rerank"):
        assert invoke([*search, "--exact", option, "5"]) != 0
        printed = capsys.readouterr().err
        assert "an exact search compares all rows" in printed
        assert f"Leave out {option.removeprefix('--')}" in printed.replace("--", "")
        assert invoke([*search, option, "0"]) != 0
        assert option in capsys.readouterr().err

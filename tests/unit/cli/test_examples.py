"""The help of every command: its examples are right, and its words are for people."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import typer

import lakebed
from lakebed.cli.examples import EXAMPLES
from lakebed.cli.main import app, invoke
from lakebed.model import WAREHOUSE

PROGRAM: Any = typer.main.get_command(app)


def commands(group: Any = PROGRAM, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def test_every_command_has_examples_that_name_it() -> None:
    assert set(EXAMPLES) == {name for name, _ in commands()}
    assert [line for name, lines in EXAMPLES.items() for line in lines if not line.startswith(f"{name} ")] == []


def test_every_example_is_a_command_line_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "rows.parquet",
        "rows.csv",
        "new.csv",
        "rows.json",
        "job.properties",
        "keys.txt",
        "rides.toml",
        "jobs.toml",
        "query.npy",
    ):
        (tmp_path / name).touch()
    for name, command in commands():
        for line in EXAMPLES[name]:
            command.make_context(name, shlex.split(line)[len(name.split()) :])


# They go on until they are stopped, or need a catalog's server.
_APART = ("inspect ", "serve ", " --follow", " --interval ", "hive://", "glue://")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder with the tables and files of the examples, and the first and the last commit of `trips`."""
    folder = tmp_path_factory.mktemp("examples")
    rows = pa.table(
        {
            "id": ["t1", "t2", "t3", "t4"],
            "city": ["oslo", "oslo", "rome", "rome"],
            "day": ["2025-12-01", "2026-01-01", "2025-12-01", "2026-01-01"],
            "ts": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
            "fare": [5.0, 15.0, 25.0, None],
            "stops": pa.array([1, 2, 3, 4], pa.int32()),
            "tip": [0.5, 1.0, 1.5, 2.0],
        }
    )
    kinds: dict[str, dict[str, Any]] = {
        "trips": {"key": "id", "ordering": "ts", "type": "mor", "index": "record"},
        "riders": {"key": "id", "index": "record_level_index"},
        "visits": {"key": ["id", "day"], "index": "bucket", "buckets": 2},
    }
    logged = {"hoodie.table.cdc.enabled": "true"}
    made: dict[str, lakebed.Table] = {}
    for name, kind in kinds.items():
        uri = str(folder / name)
        made[name] = lakebed.create(uri, rows, partition_by="city", properties=logged, **kind)
    vectors = rows.select(["id", "city"]).append_column("at", pa.array([[1.0, n] for n in range(4)], lakebed.vector(2)))
    texts = vectors.append_column("body", pa.array(["a black cat", "black", "", None], pa.string()))
    lakebed.load(str(folder / "texts"), texts, key="id").indexes.create("vector", column="at")
    np.save(folder / "query.npy", np.array([1.0, 2.0]))
    first, *_ = [table.upsert(rows).instant for table in made.values()]
    last = made["trips"].upsert(rows.slice(0, 2)).instant
    made["trips"].consumers.start("daily", "earliest")
    for name in ("trips", "riders", "people"):
        shutil.copytree(folder / "trips", folder / "lake" / name)
    shutil.copytree(folder / "trips", folder / "warehouse" / "sales" / "orders")
    pq.write_table(rows, folder / "rows.parquet")
    pacsv.write_csv(rows, folder / "rows.csv")
    pacsv.write_csv(rows, folder / "new.csv", pacsv.WriteOptions(delimiter=";"))
    (folder / "rows.json").write_text(json.dumps({**rows.slice(0, 1).to_pylist()[0], "ts": "2026-01-01T00:00:00Z"}))
    (folder / "keys.txt").write_text("t1\n")
    (folder / "job.properties").write_text("hoodie.table.name=trips\n")
    (folder / "folder").mkdir()
    pq.write_table(rows, folder / "folder" / "rows.parquet")
    job = '[source]\nkind = "files"\npath = "folder"\n[target]\nuri = "rides"\ncreate = { key = "id" }\n'
    (folder / "rides.toml").write_text(job)
    (folder / "jobs.toml").write_text(job.replace("[", "[jobs.rides."))
    return folder, first, last


@pytest.mark.rest
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs_on_the_tables_of_the_examples(
    name: str, tables: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, first, last = tables
    for number, line in enumerate(EXAMPLES[name]):
        if any(part in line for part in _APART) or (name == "ingest" and "--once" not in line):
            continue
        shutil.copytree(folder, tmp_path / str(number))
        monkeypatch.chdir(tmp_path / str(number))
        if name.startswith("warehouse "):
            monkeypatch.setenv(WAREHOUSE, "warehouse")
        words = shlex.split(line.replace("s3://lake/delta/trips", "folder").replace("s3://", ""))
        instant = last if name in ("rollback", "consumers move") else first
        moment = f"{last[:4]}-{last[4:6]}-{last[6:8]} {last[8:10]}:{last[10:12]}:{last[12:14]}.{last[14:]}"
        places = {"20260131120000000": instant, "2026-01-31": moment}
        if name in ("load", "create", "convert"):
            places["trips"] = "new"
        if name in ("checks drop", "checks run"):
            lakebed.open("trips").checks.add("positive", "fare >= 0")
        if name == "checks rejects":
            trips = lakebed.open("trips")
            trips.checks.add("none", "id IS NULL", on_failure="quarantine", validate=False)
            trips.upsert(trips.scan().head(1))
        if name == "columns drop-default":
            lakebed.open("trips").columns.set_default("fare", 0)
        if name == "savepoints delete":
            lakebed.open("trips").savepoints.create(first)
        if name == "clone":
            lakebed.open("trips").maintenance.compact()
            lakebed.open("trips").indexes.use("simple")  # a record index needs --deep
        if "before-migration" in words and name == "diff":
            lakebed.open("trips").savepoints.create(first, name="before-migration")
        assert invoke([places.get(word, word) for word in words]) == 0, line


@pytest.mark.rest
def test_help_shows_examples_and_no_types_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    for name, _ in commands():
        assert invoke([*name.split(), "--help"]) == 0
        text = capsys.readouterr().out
        assert f"\n    lakebed {EXAMPLES[name][0]}\n" in text
        assert "list[" not in text
        assert " range>" not in text


@pytest.mark.rest
def test_several_columns_are_given_with_commas_or_one_by_one(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "day": [1, 2], "city": ["a", "b"], "ts": [1, 1]})
    pacsv.write_csv(rows, tmp_path / "rows.csv")
    for number, key in enumerate((["--key", "id,day"], ["--key", "id", "--key", "day"])):
        uri = str(tmp_path / str(number))
        assert invoke(["create", uri, "--schema-from", str(tmp_path / "rows.csv"), *key]) == 0
        assert lakebed.open(uri).properties["hoodie.table.recordkey.fields"] == "id,day"
        assert invoke(["upsert", uri, str(tmp_path / "rows.csv")]) == 0
        assert invoke(["scan", uri, "--columns", "id,city", "--columns", "ts"]) == 0
        assert invoke(["maintenance", "cluster", uri, "--sort-columns", "city,ts", "--dry-run"]) == 0
        assert invoke(["maintenance", "repair", uri, "--part", "orphans,metadata", "--dry-run"]) == 0
    assert invoke(["indexes", "advise", str(tmp_path / "rows.csv"), "--key", "id,day", "--batch-rows", "2"]) == 0

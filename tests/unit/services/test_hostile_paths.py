"""Files of a table that name what lies outside of it: nothing there is read, written or deleted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import LakebedError
from lakebed.handles.compact import planned_slice
from lakebed.storage import open_storage
from lakebed.timeline.bodies.plans import CompactionOperation
from support.write_tables import rows

OUTSIDE = ["../secret", "c0/../../secret", "/secret", "c0//secret", ".", ""]


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, Path]:
    """A table, and a file of another one beside it."""
    other = lakebed.create(str(tmp_path / "other"), rows((0, "c0", "", 0)).schema, key="id", partition_by="city")
    other.upsert(rows((99, "c0", "secret", 1)))
    secret = tmp_path / "secret"
    secret.mkdir()
    for file in other.scan().files:
        shutil.copy(tmp_path / "other" / file.path, secret / "a-0_0-0-0_20200101000000000.parquet")
    table = lakebed.create(
        str(tmp_path / "t"),
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        type="mor",
        table_version=6,
        properties={"hoodie.metadata.enable": False, "hoodie.compact.inline": False},
    )
    table.upsert(rows((1, "c0", "a", 1)))
    return table.uri, secret


@pytest.mark.parametrize("partition", OUTSIDE)
def test_a_plan_of_a_service_that_names_a_file_outside(partition: str, places: tuple[str, Path]) -> None:
    uri, secret = places
    (name,) = os.listdir(secret)
    path = partition.removesuffix("/") or ".."
    operation = CompactionOperation(path, "a-0", "20200101000000000", name, ())
    with pytest.raises(LakebedError):
        planned_slice(open_storage(uri), operation)
    assert os.listdir(secret) == [name]


@pytest.mark.parametrize("partition", ["../secret", "c0/../../secret", "{secret}"])
def test_a_commit_that_names_a_file_outside(partition: str, places: tuple[str, Path]) -> None:
    uri, secret = places
    (name,) = os.listdir(secret)
    partition = partition.replace("{secret}", str(secret))
    (commit,) = Path(uri.removeprefix("file://"), ".hoodie").glob("*.deltacommit")
    body: dict[str, Any] = json.loads(commit.read_text())
    (stats,) = body["partitionToWriteStats"].values()
    stat = {**stats[0], "fileId": "a-0", "path": f"{partition}/{name}", "partitionPath": partition}
    body["partitionToWriteStats"][partition] = [stat]
    commit.write_text(json.dumps(body))
    before = (secret / name).read_bytes()

    def seen() -> list[int]:
        return lakebed.open(uri).scan().to_arrow()["id"].to_pylist()

    told: list[Any] = []
    looks = (seen, lambda: lakebed.open(uri).changes("000").to_arrow()["id"].to_pylist())
    services = (getattr(lakebed.open(uri).maintenance, name) for name in ("compact", "clean", "archive", "cluster"))
    for call in (*looks, *services):
        try:
            told.append(call())
        except LakebedError as error:
            told.append(str(error))
    assert all(99 not in found for found in told[:2] if isinstance(found, list)), told
    assert (secret / name).read_bytes() == before
    assert os.listdir(secret) == [name]


def test_a_link_to_a_folder_outside_is_not_followed(places: tuple[str, Path]) -> None:
    uri, secret = places
    folder = Path(uri.removeprefix("file://"))
    (folder / "c9").symlink_to(secret)
    before = sorted(os.listdir(secret))
    for call in (
        lambda: lakebed.open(uri).scan().to_arrow(),
        lambda: lakebed.open(uri).upsert(rows((2, "c9", "b", 1))),
    ):
        with pytest.raises(LakebedError, match="is a link"):
            call()
    lakebed.open(uri).maintenance.clean()
    assert sorted(os.listdir(secret)) == before


@pytest.mark.parametrize(
    "text",
    [
        "id in (select id from other)",
        "exists (select 1)",
        "read_file('/etc/passwd') = 'x'",
        "id = 1; drop table t",
        "input_file_name() like '%'",
        "java_method('java.lang.System', 'exit', 1)",
        "id = (" * 2000 + "1" + ")" * 2000,
    ],
    ids=["subquery", "exists", "a function that reads", "two statements", "file name", "java", "nested"],
)
def test_a_condition_reaches_nothing_but_the_columns(text: str, places: tuple[str, Path]) -> None:
    """Whoever evaluates it, Spark or this process: `parse_filter` is what both begin with."""
    table = lakebed.open(places[0])
    with pytest.raises(LakebedError):
        table.scan(where=text).to_arrow()
    with pytest.raises(LakebedError):
        table.delete(where=text)
    assert table.count() == 1


def test_credentials_stay_out_of_what_a_table_writes_and_says(
    places: tuple[str, Path], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    uri, secret = places[0], "hunter2-hunter2-hunter2"
    caplog.set_level("DEBUG")
    job = {"fs.s3a.access.key": secret, "fs.s3a.secret.key": secret, "hoodie.write.lock.hivemetastore.password": secret}
    said: list[str] = []
    for options in ({key: value} for key, value in job.items()):
        try:
            done = lakebed.open(uri).upsert(rows((1, "c0", "b", 2)), options=options)
            said += [repr(done), str(done)]
        except LakebedError as error:
            said += [repr(error), str(error), str(error.to_json())]
    table = lakebed.open(uri)
    said += [repr(table), str(table.explain(upsert=rows((1, "c0", "c", 3)))), str(dict(table.properties))]
    storage = open_storage(uri)
    said += [storage.read(info.path).decode("latin-1") for info in storage.list()]
    captured = capsys.readouterr()
    for text in (*said, captured.out, captured.err, caplog.text):
        assert secret not in text

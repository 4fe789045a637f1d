"""A publication that is struck at each of its mutations leaves a list that shows a commit, and the next one catches
up."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.services.publishing import publish_alone
from lakebed.testing import MODES, Killed, Mode, crash_at
from support.crash_tables import strike_each
from support.published import READERS, Rows, expected_rows, quiet, sorted_rows

quiet_readers = pytest.fixture(autouse=True)(quiet)
NAMES = {"delta": "deltalake", "iceberg": "pyiceberg"}
# The first publication writes all of a list; the eleventh version of a Delta log comes with a checkpoint.
STAGES = {"first": 0, "next": 1, "checkpoint": 9}


# The lists that are struck: of base files, or with the rows of log files.
LISTS = ("delta", "iceberg", "fresh delta", "fresh iceberg")


def prepared(uri: str, kind: str, published: int) -> list[Rows]:
    """A table with so many published commits and two more; the rows after the last published one, and after each of
    the others."""
    form, fresh = kind.split()[-1], kind.startswith("fresh")
    given: Any = {"type": "mor", "index": "bucket", "buckets": 1} if fresh else {}
    table = lakebed.create(uri, {"id": [1], "city": ["Oslo"], "v": [0]}, key="id", partition_by="city", **given)
    states: list[Rows] = []
    for n in range(published):
        table.upsert({"id": [n // 2], "city": ["Oslo"], "v": [n]})
        table.catalogs.publish(form, fresh=fresh)  # pyright: ignore[reportArgumentType]
    if published:
        states.append(expected_rows(table, fresh=fresh))
    for n in (50, 51):
        table.upsert({"id": [n // 2], "city": ["Oslo"], "v": [n]})
        states.append(expected_rows(table, fresh=fresh))
    return states


def crash(model: Path, states: list[Rows], kind: str, mode: Mode, at: int) -> int | None:
    """Strike one mutation of a publication, and look at the list; where it has none, the number that it has."""
    uri = str(model.with_name("t"))
    shutil.rmtree(uri, ignore_errors=True)
    # metadata of Iceberg names the place of the table
    shutil.copytree(model, uri)
    form: Any = kind.split()[-1]
    fresh, read = kind.startswith("fresh"), READERS[form][NAMES[form]]
    published = len(states) == 3
    with crash_at(at, mode) as struck:
        try:
            lakebed.open(uri).catalogs.publish(form, fresh=fresh)
            published = True
        except (Killed, lakebed.LakebedError):
            pass
    if not struck.fired:
        return len(struck.mutations)
    try:
        if published or is_listed(uri, form):
            assert sorted_rows(read(uri, None)) in states
        again = lakebed.open(uri).catalogs.publish(form, fresh=fresh)
        assert sorted_rows(read(uri, None)) == states[-1]
        assert lakebed.open(uri).catalogs.publish(form).published == ()
        assert lakebed.open(uri).consumers.get(f"published-{form}").lag_commits == 0
        assert len(again.published) <= 2
    except Exception as error:
        error.add_note(f"{kind}: {struck}")
        raise
    return None


def is_listed(uri: str, form: str) -> bool:
    name = "_delta_log/00000000000000000000.json" if form == "delta" else "metadata/version-hint.text"
    return (Path(uri) / name).exists()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", LISTS)
def test_a_publication_that_is_struck_shows_a_commit_and_the_next_one_catches_up(
    kind: str, stage: str, mode: Mode, tmp_path: Path
) -> None:
    uri = tmp_path / "t"
    states = prepared(str(uri), kind, STAGES[stage])
    model = uri.rename(tmp_path / "model")
    least = {"delta": 3, "iceberg": 10, "fresh delta": 5, "fresh iceberg": 11}[kind]
    assert strike_each(lambda at: crash(model, states, kind, mode, at), 9, "publish", kind, stage, mode) >= least


def crash_of_forgetting(model: Path, states: list[Rows], kind: str, mode: Mode, at: int) -> int | None:
    """As `crash`, of a publication that leaves the newest version alone."""
    uri = str(model.with_name("t"))
    shutil.rmtree(uri, ignore_errors=True)
    shutil.copytree(model, uri)
    form: Any = kind.split()[-1]
    read = READERS[form][NAMES[form]]
    with crash_at(at, mode) as struck, suppress(Killed, lakebed.LakebedError):
        publish_alone(lakebed.open(uri).opened.storage, form, WriteSettings())
    if not struck.fired:
        return len(struck.mutations)
    try:
        assert sorted_rows(read(uri, None)) in states
        publish_alone(lakebed.open(uri).opened.storage, form, WriteSettings())
        assert sorted_rows(read(uri, None)) == states[-1]
        assert versions_of(uri, form) == 1
        lakebed.open(uri).upsert({"id": [60], "city": ["Oslo"], "v": [60]})
        lakebed.open(uri).catalogs.publish(form)
        assert len(read(uri, None)) == len(states[-1]) + 1
    except Exception as error:
        error.add_note(f"{kind}: {struck}")
        raise
    return None


def versions_of(uri: str, form: str) -> int:
    """How many versions a list has; none of its files is of another one."""
    if form == "delta":
        logs = Path(uri, "_delta_log")
        assert len(list(logs.glob("*.checkpoint.parquet"))) <= 1
        return len(list(logs.glob("*.json")))
    folder = Path(uri, "metadata")
    (newest,) = folder.glob("v*.metadata.json")
    (snapshot,) = json.loads(newest.read_text())["snapshots"]
    assert [file.name for file in folder.glob("snap-*")] == [snapshot["manifest-list"].rpartition("/")[2]]
    logged = [file for end in ("rows", "masks") for file in folder.glob(f"*-{end}.parquet")]
    assert len(logged) == (2 if "lakebed.log-files" in snapshot["summary"] else 0)
    return 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", LISTS)
def test_a_deletion_of_earlier_versions_that_is_struck_leaves_a_list_that_reads(
    kind: str, mode: Mode, tmp_path: Path
) -> None:
    uri = tmp_path / "t"
    states = prepared(str(uri), kind, 3)
    model = uri.rename(tmp_path / "model")
    assert strike_each(lambda at: crash_of_forgetting(model, states, kind, mode, at), 9, "forget", kind, mode) >= 9

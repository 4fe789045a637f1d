"""Bodies and names on the timeline that no writer made: the error says which file."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.concurrency.heartbeat import has_ended, this_process
from lakebed.concurrency.lock import FileLock
from lakebed.errors import CorruptFile, LockTimeout, StorageError
from lakebed.model import LOCK_FILE
from lakebed.storage import open_storage
from lakebed.timeline.bodies.commit import decode_commit
from lakebed.timeline.bodies.rollback import decode_action
from support.write_tables import SCHEMA, content, rows

STAT = {"fileId": "f", "path": "p/f_0-1-0_1.parquet", "numWrites": 1}
WRONG_COMMITS: list[Any] = [
    [],
    "text",
    {"partitionToWriteStats": []},
    {"partitionToWriteStats": {"p": {}}},
    {"partitionToWriteStats": {"p": [None]}},
    {"partitionToWriteStats": {"p": ["x"]}},
    {"partitionToWriteStats": {"p": [{**STAT, "numWrites": "1"}]}},
    {"partitionToWriteStats": {"p": [{**STAT, "fileSizeInBytes": 1.5}]}},
    {"partitionToWriteStats": {"p": [{**STAT, "path": 7}]}},
    {"partitionToWriteStats": {"p": [{**STAT, "runtimeStats": [1]}]}},
    {"partitionToReplaceFileIds": {"p": "id"}},
    {"partitionToReplaceFileIds": {"p": [1]}},
    {"extraMetadata": {"schema": {}}},
    {"operationType": 1},
]
WRONG_PLANS: list[Any] = [
    [1],
    {"clusteringPlan": "x"},
    {"clusteringPlan": {"inputGroups": {"a": 1}}},
    {"clusteringPlan": {"inputGroups": [{"slices": ["x"]}]}},
    {"RollbackRequests": [{"filesToBeDeleted": [1]}]},
    {"RollbackRequests": [{"logBlocksToBeDeleted": {"f": "1"}}]},
    {"instantToRollback": "20200101000000000"},
    {"filePathsToBeDeletedPerPartition": {"p": [{"filePath": 1}]}},
    {"operations": [[]]},
]


@pytest.mark.parametrize("body", WRONG_COMMITS, ids=str)
def test_a_commit_with_values_of_wrong_types(body: Any) -> None:
    with pytest.raises(CorruptFile, match=r"1\.commit") as caught:
        decode_commit(json.dumps(body).encode(), "1.commit")
    assert caught.value.context["path"] == "1.commit"


@pytest.mark.parametrize("body", [*WRONG_PLANS, *WRONG_COMMITS[2:]], ids=str)
def test_a_plan_with_values_of_wrong_types(body: Any) -> None:
    with pytest.raises(CorruptFile, match=r"1\.requested"):
        decode_action(json.dumps(body).encode(), "1.requested")


def test_nulls_and_unknown_fields_pass() -> None:
    stat = {**STAT, "numDeletes": None, "prevCommit": None, "brandNew": [1, {}]}
    found = decode_commit(json.dumps({"partitionToWriteStats": {"p": [stat]}, "extraMetadata": None}).encode())
    assert (found.stats["p"][0].num_writes, found.stats["p"][0].num_deletes) == (1, 0)


@pytest.fixture(params=[9, 6])
def uri(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    uri = f"{tmp_path}/t"
    table = lakebed.create(uri, SCHEMA, key="id", partition_by="city", ordering="ts", table_version=request.param)
    table.upsert(rows((1, "a", "x", 1), (2, "b", "y", 1)))
    return uri


def timeline_of(uri: str) -> Path:
    folder = Path(uri, ".hoodie", "timeline")
    return folder if folder.is_dir() else Path(uri, ".hoodie")


@pytest.mark.parametrize("time", ["99991231235959999", "99990101000000000", "99999999999999999", "20261399000000000"])
def test_a_time_that_no_time_follows_is_named_and_blocks_writes_alone(uri: str, time: str) -> None:
    file = timeline_of(uri) / f"{time}.commit.requested"
    file.write_bytes(b"")
    with pytest.raises(CorruptFile, match=file.name):
        lakebed.open(uri).upsert(rows((1, "a", "z", 2)))
    assert content(lakebed.open(uri)) == [(1, "a", "x", 1), (2, "b", "y", 1)]
    file.unlink()
    lakebed.open(uri).upsert(rows((1, "a", "z", 2)))
    assert content(lakebed.open(uri)) == [(1, "a", "z", 2), (2, "b", "y", 1)]


def test_times_far_ahead_are_followed(uri: str) -> None:
    (commit,) = timeline_of(uri).glob("*.commit")
    done = commit.name.removesuffix(".commit").rpartition("_")[2]
    if "_" not in commit.name:
        pytest.skip("version 6 has no completion times")
    commit.rename(commit.with_name(commit.name.replace(done, "20950101000000000")))
    assert lakebed.open(uri).upsert(rows((3, "a", "n", 1))).instant == "20950101000000001"
    assert [row[0] for row in content(lakebed.open(uri))] == [1, 2, 3]


@pytest.mark.parametrize("until", ["NaN", "Infinity", "1e300", "-1", '"soon"', "[]"])
def test_a_lock_that_is_valid_until_no_time(tmp_path: Path, until: str) -> None:
    storage = open_storage(f"file://{tmp_path}")
    storage.write(LOCK_FILE, f'{{"owner": "o", "validUntil": {until}}}'.encode())
    with pytest.raises(LockTimeout, match="table_lock"):
        FileLock(storage).acquire(0.1)


def test_a_guard_file_that_cannot_be_opened(tmp_path: Path) -> None:
    storage = open_storage(f"file://{tmp_path}")
    storage.write(LOCK_FILE, b"{}")
    guard = Path(tmp_path, LOCK_FILE).with_name(".table_lock.json.guard")
    guard.symlink_to(guard)
    with pytest.raises(StorageError, match="table_lock"):
        storage.read_versioned(LOCK_FILE)


@contextmanager
def few_descriptors(left: int) -> Generator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[0]), before[1]))
    held: list[int] = []
    try:
        while True:
            try:
                held.append(os.dup(0))
            except OSError:
                break
        for _ in range(left):
            os.close(held.pop())
        yield
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("left", range(5))
def test_a_process_short_of_descriptors_answers_right_or_says_so(uri: str, left: int) -> None:
    outcomes = {"right": 0, "refused": 0}
    asked: list[tuple[Any, int]] = [
        (lambda: lakebed.open(uri).scan().to_arrow().num_rows, 2),
        (lambda: lakebed.open(uri).scan(where="v = 'y'").to_arrow().num_rows, 1),
        (lambda: lakebed.open(uri).get([1, 9]).num_rows, 1),
        (lambda: lakebed.open(uri).changes("0").to_arrow().num_rows, 2),
    ]
    for ask, expected in asked:
        with few_descriptors(left):
            try:
                assert ask() == expected
                outcomes["right"] += 1
            except StorageError:
                outcomes["refused"] += 1
    assert sum(outcomes.values()) == len(asked)
    assert left or outcomes["refused"] == len(asked)
    assert content(lakebed.open(uri)) == [(1, "a", "x", 1), (2, "b", "y", 1)]


def test_a_process_short_of_descriptors_takes_no_process_for_dead() -> None:
    me = this_process()
    with few_descriptors(0), pytest.raises(StorageError):
        has_ended(me)
    assert not has_ended(me)


@pytest.mark.parametrize("name", ["brand_new", "secondary_index_nope"])
def test_verify_leaves_a_metadata_partition_out_that_it_does_not_know(uri: str, name: str) -> None:
    properties = Path(uri, ".hoodie", "hoodie.properties")
    text = properties.read_text()
    if "hoodie.table.metadata.partitions=" not in text:
        pytest.skip("the table has no metadata table")
    properties.write_text(
        text.replace("hoodie.table.metadata.partitions=", f"hoodie.table.metadata.partitions={name},")
    )
    found = lakebed.open(uri).indexes.verify()
    assert found.left_out == (name,)
    assert found.differences.num_rows == 0

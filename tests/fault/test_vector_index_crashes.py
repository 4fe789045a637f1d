"""Every change of a vector index that is killed at each of its calls of storage: searches find the rows of the table
afterwards, and the change can be made again."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

import lakebed
from lakebed.metadata_kinds.layer_records import BUILD
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, crash_at
from support.crash_tables import copied
from support.sampling import CRASH, todays_points
from support.vector_tables import EVERY_CLUSTER, INDEX, QUERY, index_plan, indexed_table, stored_index, vector_rows

_PARTS = 8
OPTIONS = {"lakebed.write.tasks": 1, "hoodie.write.lock.wait_time_ms": 5000}
Model = dict[str, int]
"""The ordering value of each row with a vector, by its key."""


def model_of(rows: list[dict[str, Any]]) -> Model:
    return {row["id"]: row["ts"] for row in rows if row["emb"] is not None}


@cache
def prepared(kind: str) -> tuple[Mapping[str, bytes], Model]:
    """The files of a table whose index has three layers, and its rows."""
    name = f"vectors-{uuid.uuid4().hex}"
    properties = {"hoodie.metadata.compact.max.delta.commits": 50, "hoodie.clean.automatic": False}
    table = indexed_table(kind, f"memory://{name}/t", properties=properties)
    table.upsert(vector_rows(range(30, 50), ts=2), options=OPTIONS)
    table.delete(["k001", "k033"], options=OPTIONS)
    table.upsert(vector_rows(range(60, 64), ts=3), options=OPTIONS)
    storage = open_storage(table.uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    model = model_of(table.scan().to_arrow().to_pylist())
    MemoryStorage.drop(name)
    return files, model


def has_index(uri: str) -> bool:
    return INDEX in {index.name for index in lakebed.open(uri).indexes.list()}


def create(uri: str) -> None:
    if not has_index(uri):
        lakebed.open(uri).indexes.create("vector", column="emb", metric="l2", clusters=4)


def plan_and_build(uri: str) -> None:
    table = lakebed.open(uri)
    if not has_index(uri) and not table.indexes.waiting:
        table.indexes.create("vector", column="emb", metric="l2", clusters=4, wait=False)
    lakebed.open(uri).indexes.build()


def drop(uri: str) -> None:
    if has_index(uri):
        lakebed.open(uri).indexes.drop("emb")


def write(uri: str) -> None:
    lakebed.open(uri).upsert(vector_rows(range(35, 55), ts=7), options=OPTIONS)


def delete(uri: str) -> None:
    lakebed.open(uri).delete(["k002", "k061"], options=OPTIONS)


def rebuild(uri: str) -> None:
    lakebed.open(uri).indexes.rebuild("emb")


def fold(uri: str) -> None:
    once = {**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 1}
    list(lakebed.open(uri).maintenance.run(once=True, options=once))


CHANGES: dict[str, Callable[[str], None]] = {
    "create": create,
    "build": plan_and_build,
    "drop": drop,
    "write": write,
    "delete": delete,
    "rebuild": rebuild,
    "fold": fold,
}


def after(change: str, model: Model) -> Model:
    """The rows after a change."""
    if change == "write":
        return model | model_of(vector_rows(range(35, 55), ts=7))
    if change == "delete":
        return {key: ts for key, ts in model.items() if key not in ("k002", "k061")}
    return model


def found(uri: str, **options: Any) -> Model:
    rows = lakebed.open(uri).search(QUERY, 200, metric="l2", columns=["id", "ts"], **options).to_arrow()
    assert len(set(rows["id"].to_pylist())) == len(rows)
    return dict(zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True))


@pytest.mark.every_case
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("kind", "how"), [("mor", "kill"), ("cow", "unacknowledged")])
def test_a_killed_change_leaves_searches_right(change: str, kind: str, how: Any) -> None:
    files, old = prepared(kind)
    run = CHANGES[change]

    def begin(uri: str) -> None:
        if change in ("create", "build"):
            drop(uri)

    with copied("memory", files) as uri:
        begin(uri)
        with crash_at(0) as counted:
            run(uri)
    for at in todays_points(len(counted.mutations) - 1, _PARTS, CRASH, "vector index", change, kind, how):
        with copied("memory", files) as uri:
            begin(uri)
            with crash_at(at, how) as crash, pytest.raises(Killed):
                run(uri)
            try:
                states = [old, after(change, old)]
                assert found(uri, exact=True) in states
                assert found(uri, **EVERY_CLUSTER) in states
                last = vector_rows(range(70, 72), ts=9)
                lakebed.open(uri).upsert(last, options=OPTIONS)
                state = found(uri, exact=True)
                assert state in [model | model_of(last) for model in states]
                assert found(uri, **EVERY_CLUSTER) == state
                assert lakebed.open(uri).indexes.verify().ok
                run(uri)
                expected = after(change, state)
                assert found(uri, exact=True) == expected
                assert found(uri, **EVERY_CLUSTER) == expected
                assert has_index(uri) is (change != "drop")
                assert (f"{INDEX}: " in index_plan(lakebed.open(uri))) is (change != "drop")
                if change == "fold":
                    assert list(stored_index(lakebed.open(uri)).heads) == [BUILD]
                if change == "build":  # rows of the commit before it was complete are in the index with the next one
                    lakebed.open(uri).upsert(last, options=OPTIONS)
                assert lakebed.open(uri).indexes.verify().ok
            except Exception as error:
                error.add_note(f"killed at mutation {at}: {crash}")
                raise

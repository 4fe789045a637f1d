"""Every change of an index of vectors or of texts that is killed at each of its calls of storage: searches find the
rows of the table afterwards, and the change can be made again."""

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
from support.layered_tables import EACH, LayeredTables
from support.sampling import CRASH, todays_points

_PARTS = 8
OPTIONS = {"lakebed.write.tasks": 1, "hoodie.write.lock.wait_time_ms": 5000}
Model = dict[str, int]
"""The ordering value of each row with a vector, by its key."""


@cache
def prepared(tables: LayeredTables, kind: str) -> tuple[Mapping[str, bytes], Model]:
    """The files of a table whose index has three layers, and its rows."""
    name = f"layers-{uuid.uuid4().hex}"
    properties = {"hoodie.metadata.compact.max.delta.commits": 50, "hoodie.clean.automatic": False}
    table = tables.indexed(kind, f"memory://{name}/t", properties=properties)
    table.upsert(tables.rows(range(30, 50), ts=2), options=OPTIONS)
    table.delete(["k001", "k033"], options=OPTIONS)
    table.upsert(tables.rows(range(60, 64), ts=3), options=OPTIONS)
    storage = open_storage(table.uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    model = tables.with_value(table.scan().to_arrow().to_pylist())
    MemoryStorage.drop(name)
    return files, model


def has_index(tables: LayeredTables, uri: str) -> bool:
    return tables.has_index(lakebed.open(uri))


def create(tables: LayeredTables, uri: str) -> None:
    if not has_index(tables, uri):
        tables.create(lakebed.open(uri))


def plan_and_build(tables: LayeredTables, uri: str) -> None:
    table = lakebed.open(uri)
    if not tables.has_index(table) and not table.indexes.waiting:
        tables.create(table, wait=False)
    lakebed.open(uri).indexes.build()


def drop(tables: LayeredTables, uri: str) -> None:
    if has_index(tables, uri):
        lakebed.open(uri).indexes.drop(tables.column)


def write(tables: LayeredTables, uri: str) -> None:
    lakebed.open(uri).upsert(tables.rows(range(35, 55), ts=7), options=OPTIONS)


def delete(tables: LayeredTables, uri: str) -> None:
    lakebed.open(uri).delete(["k002", "k061"], options=OPTIONS)


def rebuild(tables: LayeredTables, uri: str) -> None:
    lakebed.open(uri).indexes.rebuild(tables.column)


def fold(tables: LayeredTables, uri: str) -> None:
    once = {**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 1}
    list(lakebed.open(uri).maintenance.run(once=True, options=once))


CHANGES: dict[str, Callable[[LayeredTables, str], None]] = {
    "create": create,
    "build": plan_and_build,
    "drop": drop,
    "write": write,
    "delete": delete,
    "rebuild": rebuild,
    "fold": fold,
}


def after(tables: LayeredTables, change: str, model: Model) -> Model:
    """The rows after a change."""
    if change == "write":
        return model | tables.with_value(tables.rows(range(35, 55), ts=7))
    if change == "delete":
        return {key: ts for key, ts in model.items() if key not in ("k002", "k061")}
    return model


def found(tables: LayeredTables, uri: str, *, exact: bool = False) -> Model:
    rows = tables.answers(lakebed.open(uri), exact=exact)
    model = {row["id"]: row["ts"] for row in rows}
    assert len(model) == len(rows)
    return model


@pytest.mark.every_case
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("kind", "how"), [("mor", "kill"), ("cow", "unacknowledged")])
@pytest.mark.parametrize("tables", EACH, ids=str)
def test_a_killed_change_leaves_searches_right(tables: LayeredTables, change: str, kind: str, how: Any) -> None:
    files, old = prepared(tables, kind)
    run = CHANGES[change]

    def begin(uri: str) -> None:
        if change in ("create", "build"):
            drop(tables, uri)

    with copied("memory", files) as uri:
        begin(uri)
        with crash_at(0) as counted:
            run(tables, uri)
    name = f"{tables} index"
    for at in todays_points(len(counted.mutations) - 1, _PARTS, CRASH, name, change, kind, how):
        with copied("memory", files) as uri:
            begin(uri)
            with crash_at(at, how) as crash, pytest.raises(Killed):
                run(tables, uri)
            try:
                states = [old, after(tables, change, old)]
                assert found(tables, uri, exact=True) in states
                assert found(tables, uri) in states
                last = tables.rows(range(70, 72), ts=9)
                lakebed.open(uri).upsert(last, options=OPTIONS)
                state = found(tables, uri, exact=True)
                assert state in [model | tables.with_value(last) for model in states]
                assert found(tables, uri) == state
                assert lakebed.open(uri).indexes.verify().ok
                run(tables, uri)
                expected = after(tables, change, state)
                assert found(tables, uri, exact=True) == expected
                assert found(tables, uri) == expected
                assert has_index(tables, uri) is (change != "drop")
                assert (f"{tables.index}: " in tables.plan(lakebed.open(uri))) is (change != "drop")
                if change == "fold":
                    assert list(tables.stored(lakebed.open(uri)).heads) == [BUILD]
                if change == "build":  # rows of the commit before it was complete are in the index with the next one
                    lakebed.open(uri).upsert(last, options=OPTIONS)
                assert lakebed.open(uri).indexes.verify().ok
            except Exception as error:
                error.add_note(f"killed at mutation {at}: {crash}")
                raise

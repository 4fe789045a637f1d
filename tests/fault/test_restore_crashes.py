"""Every storage mutation of a savepoint, a restore and a rollback as the place where it fails, dies, or gets no answer.

Whatever is struck, the rows are those of a commit: the newest, the one that was gone back to, or (of a restore) one in
between. The next restore gets by from there, writers do as soon as it has, and nothing is left over. Some mutations of
each are struck, others each day; `LAKEBED_CRASH=all` strikes all of them, on all kinds of tables by every fault.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pytest

import lakebed
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode, crash_at
from lakebed.timeline.timeline import load_timeline
from support.crash_tables import MOR, NEXT, OPTIONS, Model, copied, create, leftovers, put, rows, state, strike_each
from support.sampling import CRASH, whole

KINDS = (
    ("record", 9, "memory"),
    ("mor-bucket", 9, "memory"),
    ("mor-record", 6, "local"),
    ("mor-simple", 8, "memory"),
    ("simple", 6, "memory"),
)
FAULTS: tuple[Mode, ...] = ("unacknowledged", "fail", "doubtful", "lost")
_ALL = whole(CRASH)
_BY_HAND = {**OPTIONS, "hoodie.compact.inline": False}
_FIRST = [(k, f"c{k % 2}", f"v{k}", 1) for k in range(6)]
_SECOND = [(k, f"c{k % 2}", f"w{k}", 2) for k in range(0, 8, 2)]
_THIRD = [(1, "c1", "third", 3), (20, "c2", "third", 3)]
_LAST = [(3, "c1", "last", 4), (21, "c2", "last", 4)]


@dataclass(frozen=True)
class Prepared:
    """The files of a table, its rows after each commit, and the instants that are gone back to or taken back."""

    files: dict[str, bytes]
    states: list[Model]
    second: str
    last: str


@cache
def prepared(index: str, version: int) -> Prepared:
    name = f"prepared-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    create(uri, index, version)
    table = lakebed.open(uri)
    table.upsert(rows(*_FIRST), options=_BY_HAND)
    second = table.upsert(rows(*_SECOND), options=_BY_HAND).instant
    states = [put(put({}, *_FIRST), *_SECOND)]
    table.upsert(rows(*_THIRD), options=_BY_HAND)
    states.append(put(states[-1], *_THIRD))
    if index.startswith(MOR):
        table.maintenance.compact(options=_BY_HAND)
    last = table.upsert(rows(*_LAST), options=_BY_HAND).instant
    states.append(put(states[-1], *_LAST))
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(name)
    return Prepared(files, states, second, last)


@dataclass(frozen=True)
class Struck:
    """What is struck, and the rows of which states it may leave, the last of them where it returns."""

    run: Callable[[Any, Prepared], Any]
    states: tuple[int, ...]


CASES = {
    "savepoint": Struck(lambda t, p: t.savepoints.create(p.last), (2,)),
    "restore": Struck(lambda t, p: t.restore(p.second, options=OPTIONS), (2, 1, 0)),
    "rollback": Struck(lambda t, p: t.rollback(p.last, options=OPTIONS), (2, 1)),
}


def _cases() -> Iterator[tuple[str, str, int, str, Mode]]:
    for at, (case, mode) in enumerate(product(CASES, FAULTS)):
        for index, version, storage in KINDS if _ALL else [KINDS[at % len(KINDS)]]:
            yield case, index, version, storage, mode


@pytest.mark.parametrize(("case", "index", "version", "storage", "mode"), list(_cases()))
def test_the_table_stays_that_of_a_commit(case: str, index: str, version: int, storage: str, mode: Mode) -> None:
    struck = CASES[case]
    parts = {"savepoint": 2, "rollback": 11, "restore": 23}[case]
    assert strike_each(lambda at: _crash(struck, index, version, storage, mode, at), parts, case, mode) >= 1


def _crash(case: Struck, index: str, version: int, storage: str, mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    table = prepared(index, version)
    with copied(storage, table.files) as uri:
        with crash_at(at, mode) as crash:
            allowed = _run(case, uri, table)
        if not crash.fired:
            return len(crash.mutations)
        try:
            _go_on(case, uri, table, [table.states[n] for n in allowed])
        except Exception as error:
            error.add_note(f"{index} {version} {storage} {mode} {at}: {crash}")
            raise
    return None


def _run(case: Struck, uri: str, table: Prepared) -> tuple[int, ...]:
    try:
        case.run(lakebed.open(uri), table)
    except (Killed, lakebed.LakebedError):
        return case.states
    return case.states[-1:]


def _go_on(case: Struck, uri: str, table: Prepared, allowed: list[Model]) -> None:
    found = _rows(uri)
    assert found in allowed
    if _is_pending(uri, Action.RESTORE):
        with pytest.raises(lakebed.UnsupportedFeature, match="unfinished restore"):
            NEXT.run(lakebed.open(uri))
        lakebed.open(uri).restore(options=OPTIONS)
        found = table.states[0]
    assert state(uri) == found
    NEXT.run(lakebed.open(uri))
    assert state(uri) == NEXT.model(found)
    assert not _is_pending(uri, Action.SAVEPOINT)
    verified = lakebed.open(uri).indexes.verify()
    assert verified.ok, verified
    # partitions of the metadata table may have been built anew
    left = [what for what in leftovers(uri) if "metadata file" not in what]
    assert [path for path in left if load_table_config(open_storage(uri)).version >= 8 or ".log." not in path] == []
    if not lakebed.open(uri).savepoints.list() and found != table.states[0]:
        lakebed.open(uri).restore(table.second, options=OPTIONS)
        assert state(uri) == table.states[0]


def _rows(uri: str) -> Model:
    found = lakebed.open(uri).scan(["id", "city", "v", "ts"]).to_arrow().to_pylist()
    return {row["id"]: (row["city"], row["v"], row["ts"]) for row in found}


def _is_pending(uri: str, action: Action) -> bool:
    storage = open_storage(uri)
    return any(i.action is action for i in load_timeline(storage, load_table_config(storage)).pending)

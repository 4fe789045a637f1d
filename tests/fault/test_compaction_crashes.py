"""Every storage mutation of a compaction as the place where it fails, dies, is torn, or gets no answer.

Whatever is struck, readers see the rows that there are; the next writer and the next compaction get by, and nothing is
left over. Some mutations of each are struck, others each day; `LAKEBED_CRASH=all` strikes all of them, on all kinds of
tables by every fault.
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
from lakebed.storage.base import Storage
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.opening import wrapping
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Killed, Mode, crash_at
from lakebed.timeline.timeline import load_timeline
from support.crash_tables import NEXT, OPTIONS, Model, copied, leftovers, put, rows, state, strike_each
from support.sampling import CRASH, whole

KINDS = (("bucket", 9, "memory"), ("record", 9, "local"), ("bucket", 6, "local"), ("simple", 8, "memory"))
FAULTS: tuple[Mode, ...] = ("unacknowledged", "torn", "fail", "doubtful", "lost")
_ALL = whole(CRASH)
_BY_HAND = {**OPTIONS, "hoodie.compact.inline": False}
_INLINE = {**OPTIONS, "hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
_FIRST = [(k, f"c{k % 3}", f"v{k}", 1) for k in range(9)]
_SECOND = [(k, f"c{k % 3}", f"w{k}", 2) for k in range(0, 9, 2)]
_LATE = [(1, "c1", "late", 3), (2, "c2", "late", 3)]
_INLINE_ROWS = [(0, "c0", "inline", 4), (60, "c1", "inline", 4)]


@cache
def prepared(index: str, version: int, planned: bool) -> tuple[dict[str, bytes], Model]:
    """The files of a table with log files, some of them in a plan and some behind it, and its rows."""
    name = f"prepared-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    table = lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type="mor",
        index=index,
        buckets=1 if index == "bucket" else None,
        table_version=version,
        properties={"hoodie.compact.inline": False},
    )
    table.upsert(rows(*_FIRST), options=_BY_HAND)
    table.upsert(rows(*_SECOND), options=_BY_HAND)
    table.delete([4], options=_BY_HAND)
    model = put(put({}, *_FIRST), *_SECOND)
    del model[4]
    if planned:
        table.maintenance.compact(plan_only=True, options=OPTIONS)
        table.upsert(rows(*_LATE), options=_BY_HAND)
        model = put(model, *_LATE)
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(name)
    return files, model


@dataclass(frozen=True)
class Struck:
    """What is struck: a service or a write with one behind it, on a table where a plan waits or not."""

    run: Callable[[Any], Any]
    model: Callable[[Model], Model]
    planned: bool = False


CASES = {
    "plan": Struck(lambda t: t.maintenance.compact(plan_only=True, options=OPTIONS), dict),
    "compact": Struck(lambda t: t.maintenance.compact(options=OPTIONS), dict),
    "pending": Struck(lambda t: t.maintenance.compact(options=OPTIONS), dict, planned=True),
    "inline": Struck(lambda t: t.upsert(rows(*_INLINE_ROWS), options=_INLINE), lambda m: put(m, *_INLINE_ROWS)),
}


def _cases() -> Iterator[tuple[str, str, int, str, Mode]]:
    for at, (case, mode) in enumerate(product(CASES, FAULTS)):
        kinds = [kind for kind in KINDS if mode != "torn" or kind[2] == "local"]
        for index, version, storage in kinds if _ALL else [kinds[at % len(kinds)]]:
            yield case, index, version, storage, mode


@pytest.mark.parametrize(("case", "index", "version", "storage", "mode"), list(_cases()))
def test_rows_stay_and_the_next_compaction_leaves_nothing(
    case: str, index: str, version: int, storage: str, mode: Mode
) -> None:
    struck = CASES[case]
    parts = 1 if case == "plan" else 13  # a plan has few
    assert strike_each(lambda at: _crash(struck, index, version, storage, mode, at), parts, case, mode) >= 2


def _crash(case: Struck, index: str, version: int, storage: str, mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    files, old = prepared(index, version, case.planned)
    with copied(storage, files) as uri:
        with _faulty(storage, uri, at, mode) as crash:
            allowed = _run(case, uri, old)
        if not crash.fired:
            return len(crash.mutations)
        try:
            found = state(uri)
            assert found in allowed
            NEXT.run(lakebed.open(uri))
            assert state(uri) == NEXT.model(found)
            _compact(uri)
            assert state(uri) == NEXT.model(found)
            assert _logs(uri) == 0
            # before version 8 what a write logged stays where it is undone, with a block behind it that says so
            assert [path for path in leftovers(uri) if version >= 8 or ".log." not in path] == []
            verified = lakebed.open(uri).indexes.verify()
            assert verified.ok, verified
        except Exception as error:
            error.add_note(f"{index} {version} {storage} {mode} {at}: {crash}")
            raise
    return None


def _run(case: Struck, uri: str, old: Model) -> tuple[Model, ...]:
    new = case.model(old)
    try:
        case.run(lakebed.open(uri))
    except Killed:
        return old, new
    except lakebed.LakebedError:
        return (old,)
    return (new,)


def _compact(uri: str) -> None:
    lakebed.open(uri).maintenance.compact(options=OPTIONS)
    storage = open_storage(uri)
    pending = load_timeline(storage, load_table_config(storage)).pending
    assert [i for i in pending if i.action is Action.COMPACTION] == []


def _logs(uri: str) -> int:
    return sum(lakebed.open(uri).files.to_arrow().column("log_files").to_pylist())


def _faulty(storage: str, uri: str, at: int, mode: Mode) -> Any:
    if mode != "torn" or storage != "local":
        return crash_at(at, mode)
    return _Torn(uri, Crash(FaultPlan(at, mode)))


class _Torn:
    """A torn write goes to a file system that has no nameless files, and so leaves something."""

    def __init__(self, uri: str, crash: Crash) -> None:
        self._crash = crash
        self._wrapping = wrapping(self._wrap)
        self._uri = uri

    def _wrap(self, inner: Storage) -> Storage:
        return FaultyStorage(LocalStorage(self._uri, unlinked=False), crash=self._crash)

    def __enter__(self) -> Crash:
        self._wrapping.__enter__()
        return self._crash

    def __exit__(self, *error: Any) -> None:
        self._wrapping.__exit__(*error)

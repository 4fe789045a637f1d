"""Every storage mutation of a clean and of an archival as the place where it fails, dies, is torn, or gets no answer.

Whatever is struck, readers see the rows that there are, and no file is lost that one of them needs; the next writer and
the next clean get by, and nothing is left over. Some mutations of each are struck, others each day; `LAKEBED_CRASH=all`
strikes all of them, on all kinds of tables by every fault.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pytest

import lakebed
from fault.test_compaction_crashes import _faulty
from lakebed.model import Action
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing import Killed, Mode
from support.cleaning_tables import data_files, files_of_views, timeline
from support.crash_tables import NEXT, OPTIONS, Model, copied, leftovers, put, rows, state, strike_each
from support.sampling import CRASH, whole

KINDS = (
    ("bucket", "cow", 9, "memory"),
    ("bucket", "mor", 9, "local"),
    ("simple", "cow", 6, "local"),
    ("bucket", "mor", 6, "memory"),
    ("record", "cow", 8, "memory"),
)
FAULTS: tuple[Mode, ...] = ("unacknowledged", "torn", "fail", "doubtful", "lost")
_ALL = whole(CRASH)
_BY_HAND = {**OPTIONS, "hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
_KEEP = {
    **_BY_HAND,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
    "hoodie.compact.inline.max.delta.commits": 2,
    "hoodie.metadata.compact.max.delta.commits": 3,
}


@cache
def prepared(index: str, kind: str, version: int, planned: bool) -> tuple[dict[str, bytes], Model]:
    """The files of a table with slices that nobody needs and a partition that was dropped, and its rows; with a plan
    of a clean that waits, and a commit behind it, or not."""
    name = f"prepared-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    table = lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        index=index,
        buckets=1 if index == "bucket" else None,
        table_version=version,
        properties={"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 2},
    )
    model: Model = {}
    options = {**_KEEP, "hoodie.compact.inline": True}
    for n in range(1, 9):
        cities = 3 if n < 3 else 2
        made = [(k, f"c{k}", f"v{n}", n) for k in range(cities)]
        table.upsert(rows(*made), options=options)
        model = put(model, *made)
        if n == 2:
            if kind == "mor":
                table.maintenance.compact(options=options)
            table.delete_partitions(["c2"], options=options)
            del model[2]
    if planned:
        assert table.maintenance.clean(plan_only=True, options=_KEEP).planned
        late = (1, "c1", "late", 9)
        table.upsert(rows(late), options=options)
        model = put(model, late)
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(name)
    return files, model


@dataclass(frozen=True)
class Struck:
    run: Callable[[Table], Any]
    planned: bool = False


def _clean_and_archive(table: Table) -> None:
    table.maintenance.clean(options=_KEEP)
    table.maintenance.archive(options=_KEEP)


CASES = {
    "plan": Struck(lambda t: t.maintenance.clean(plan_only=True, options=_KEEP)),
    "clean": Struck(lambda t: t.maintenance.clean(options=_KEEP)),
    "pending": Struck(lambda t: t.maintenance.clean(options=_KEEP), planned=True),
    "archive": Struck(_clean_and_archive),
}


def _cases() -> Iterator[tuple[str, tuple[str, str, int, str], Mode]]:
    for at, (case, mode) in enumerate(product(CASES, FAULTS)):
        kinds = [kind for kind in KINDS if mode != "torn" or kind[3] == "local"]
        for kind in kinds if _ALL else [kinds[at % len(kinds)]]:
            yield case, kind, mode


@pytest.mark.parametrize(("case", "kind", "mode"), list(_cases()))
def test_no_needed_file_is_lost_and_the_next_clean_leaves_nothing(
    case: str, kind: tuple[str, str, int, str], mode: Mode
) -> None:
    parts = 3 if case == "plan" else 17
    assert strike_each(lambda at: _crash(CASES[case], kind, mode, at), parts, case, mode) >= 2


def _crash(case: Struck, kind: tuple[str, str, int, str], mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    files, model = prepared(*kind[:3], case.planned)
    with copied(kind[3], files) as uri:
        with _faulty(kind[3], uri, at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            case.run(lakebed.open(uri))
        if not crash.fired:
            return len(crash.mutations)
        try:
            _check(uri, model)
            verified = lakebed.open(uri).indexes.verify()
            assert verified.ok, verified
            NEXT.run(lakebed.open(uri))
            model = NEXT.model(model)
            _check(uri, model)
            table = lakebed.open(uri)
            table.maintenance.clean(options=_KEEP)
            table.maintenance.archive(options=_KEEP)
            _check(uri, model)
            assert [i for i in timeline(table).pending if i.action is Action.CLEAN] == []
            assert _left(uri) == []
            verified = table.indexes.verify()
            assert verified.ok, verified
        except Exception as error:
            error.add_note(f"{kind} {mode} {at}: {crash}")
            raise
    return None


def _check(uri: str, model: Model) -> None:
    """The rows, by the metadata table and by the folders, and as of the last commits."""
    assert state(uri) == model
    table = lakebed.open(uri)
    last = [i.time for i in timeline(table).commits][-2:]
    assert files_of_views(table, last) <= data_files(table)
    assert table.scan(as_of=last[0]).count() > 0


def _left(uri: str) -> list[str]:
    """What an action leaves that did not end: what the table's commits name is another matter, it is cleaned and
    archived."""
    signs = ("pending", ".heartbeat/", ".temp", "tmp")
    return [found for found in leftovers(uri) if any(sign in found for sign in signs)]

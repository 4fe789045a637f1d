"""Every storage mutation of an erasure as the place where it fails, dies, is torn, or gets no answer.

Whatever is struck, readers see the rows that there are, with or without the erased one, and another erasure finishes:
no byte of the row is left.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import product

import pytest

import lakebed
from fault.test_compaction_crashes import _faulty  # pyright: ignore[reportPrivateUsage]
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode
from support.crash_tables import copied, strike_each
from support.erased_tables import KEY, OPTIONS, VALUES, Row, content, new_table, others, rows
from support.sampling import CRASH, whole
from support.table_bytes import files_with

KINDS = (
    ("cow", "simple", 9, "memory"),
    ("mor", "bucket", 9, "local"),
    ("cow", "record", 9, "local"),
    ("cow", "bucket", 6, "local"),
    ("mor", "simple", 6, "memory"),
    ("mor", "record", 8, "memory"),
)
FAULTS: tuple[Mode, ...] = ("unacknowledged", "torn", "fail", "doubtful", "lost")
_ALL = whole(CRASH)


@cache
def prepared(kind: str, index: str, version: int) -> tuple[dict[str, bytes], list[Row], list[Row]]:
    """The files of the table, its rows, and its rows without the erased one."""
    name = f"prepared-{uuid.uuid4().hex}"
    table = new_table(f"memory://{name}/t", kind, index, version)
    storage = open_storage(table.uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    before, after = content(table), others(table)
    MemoryStorage.drop(name)
    return files, before, after


def _cases() -> Iterator[tuple[tuple[str, str, int, str], Mode]]:
    for at, (kind, mode) in enumerate(product(KINDS, FAULTS)):
        if (_ALL or at % len(FAULTS) == (at // len(FAULTS)) % len(FAULTS)) and (mode != "torn" or kind[3] == "local"):
            yield kind, mode


@pytest.mark.parametrize(("kind", "mode"), list(_cases()))
def test_the_rows_are_right_after_a_crash_and_the_next_erasure_finishes(
    kind: tuple[str, str, int, str], mode: Mode
) -> None:
    assert strike_each(lambda at: _crash(kind, mode, at), 37, kind, mode) > 20


def _crash(kind: tuple[str, str, int, str], mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    files, before, after = prepared(*kind[:3])
    with copied(kind[3], files) as uri:
        with _faulty(kind[3], uri, at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            lakebed.open(uri).erase([KEY], options=OPTIONS)
        if not crash.fired:
            return len(crash.mutations)
        try:
            assert content(lakebed.open(uri)) in (before, after)
            assert content(lakebed.open(uri, options={"hoodie.metadata.enable": False})) in (before, after)
            report = lakebed.open(uri).erase([KEY], options=OPTIONS)
            assert report.is_clean
            assert files_with(open_storage(uri), *VALUES) == {}
            assert content(lakebed.open(uri)) == after
            table = lakebed.open(uri)
            table.upsert(rows([2, 6], 7), options=OPTIONS)
            assert table.count() == len(after) + 1
            assert table.indexes.verify().ok
        except Exception as error:
            error.add_note(f"{kind} {mode} {at}: {crash}")
            raise
    return None

"""Every storage mutation of `convert(in_place=True)` as the place where it fails, dies, is torn, or gets no answer.

Whatever is struck, the table has all rows or there is none; another call finishes, and the source files are only read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import mkdtemp

import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import TableNotFound
from lakebed.storage import Storage
from lakebed.storage.local import LocalStorage
from lakebed.storage.opening import wrapping
from lakebed.testing import Crash, FaultPlan, FaultyStorage, Killed, Mode
from support.bootstrapped import digests, hive_folder, rows_by_key, rows_of
from support.crash_tables import place, strike_each
from support.sampling import CRASH, whole

KINDS = (("cow", 9, "memory"), ("mor", 9, "local"), ("cow", 6, "local"), ("mor", 8, "memory"))
FAULTS: tuple[Mode, ...] = ("unacknowledged", "torn", "fail", "doubtful", "lost")
_ALL = whole(CRASH)


@cache
def source() -> Path:
    """A folder with two partitions of one file each."""
    folder = Path(mkdtemp(prefix="bootstrap-source-"))
    hive_folder(folder, ("a",))
    (folder / "day=a" / "part-1.parquet").unlink()
    (folder / "day=b").mkdir()
    pq.write_table(rows_of(range(20, 25)), folder / "day=b" / "part.parquet")
    return folder


@contextmanager
def _faulty(uri: str, at: int, mode: Mode) -> Generator[Crash]:
    """Strike a mutation of the table. A torn write goes to a file system that has no nameless files, and so leaves
    something."""
    crash = Crash(FaultPlan(at, mode))

    def wrap(inner: Storage) -> Storage:
        if not inner.spec.uri.startswith(uri):
            return inner
        return FaultyStorage(LocalStorage(uri, unlinked=False) if mode == "torn" else inner, crash=crash)

    with wrapping(wrap):
        yield crash


def _cases() -> Iterator[tuple[tuple[str, int, str], Mode]]:
    for at, (kind, mode) in enumerate(product(KINDS, FAULTS)):
        if (_ALL or at % len(FAULTS) == (at // len(FAULTS)) % len(FAULTS)) and (mode != "torn" or kind[2] == "local"):
            yield kind, mode


@pytest.mark.parametrize(("kind", "mode"), list(_cases()))
def test_a_table_over_files_is_complete_or_absent_after_a_crash(kind: tuple[str, int, str], mode: Mode) -> None:
    before = digests(source())
    assert strike_each(lambda at: _crash(kind, mode, at), 37, kind, mode) > 15
    assert digests(source()) == before


def _convert(uri: str, kind: str, version: int) -> lakebed.Table:
    return lakebed.convert(str(source()), uri, key="id", ordering="ts", type=kind, table_version=version, in_place=True)


def _crash(kind: tuple[str, int, str], mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    expected = {
        row["id"]: row for row in [*rows_of(range(10), "a").to_pylist(), *rows_of(range(20, 25), "b").to_pylist()]
    }
    with place(kind[2]) as uri:
        with _faulty(uri, at, mode) as crash, suppress(Killed, lakebed.LakebedError, OSError):
            _convert(uri, kind[0], kind[1])
        if not crash.fired:
            return len(crash.mutations)
        try:
            try:
                rows = rows_by_key(lakebed.open(uri))
            except TableNotFound:
                rows = {}
            assert rows in ({}, expected)
            if not rows:
                if lakebed.list_tables(uri, depth=0) and not len(lakebed.open(uri).timeline):
                    lakebed.drop(uri)  # a table that was just created, which only its user knows to be of no use
                table = _convert(uri, kind[0], kind[1])
                assert rows_by_key(table) == expected
            table = lakebed.open(uri)
            table.upsert(rows_of([3], "a", 100))
            assert rows_by_key(table) == expected | {"k003": rows_of([3], "a", 100).to_pylist()[0]}
            assert table.indexes.verify().ok
        except Exception as error:
            error.add_note(f"{kind} {mode} {at}: {crash}")
            raise
    return None

"""Every storage mutation of a rescale, or of a change of the index, as the place where it fails, dies, is torn, or gets
no answer; and writers that come in between.

Whatever is struck, readers see the rows that there are, the next writer goes by the index that the files have, and
nothing is left over. Some mutations are struck, others each day; `LAKEBED_CRASH=all` strikes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import product
from typing import Any

import pytest

import lakebed
from fault.test_two_writers import meanwhile
from lakebed.errors import CommitConflict
from lakebed.properties.file import PROPERTIES_PATH
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import NEXT, OPTIONS, Model, copied, leftovers, put, rows, state, strike_each
from support.sampling import CRASH, whole

Change = Callable[[Table], Any]

KINDS = ((9, "mor"), (6, "cow"), (8, "mor"), (9, "cow"), (6, "mor"))
FAULTS: tuple[Mode, ...] = ("unacknowledged", "fail", "doubtful", "lost")
CHANGES: dict[str, Change] = {
    "split": lambda t: t.maintenance.rescale(4, options=OPTIONS),
    "overwrite": lambda t: t.maintenance.rescale(3, options=OPTIONS),
    "by partition": lambda t: t.maintenance.rescale(4, partitions="c1", options=OPTIONS),
    "record": lambda t: t.indexes.use("record", options=OPTIONS),
    "simple": lambda t: t.indexes.use("simple", options=OPTIONS),
    "merge": lambda t: t.maintenance.rescale(1, options=OPTIONS),
    "extendible": lambda t: t.maintenance.rescale(split_over=1, options=OPTIONS),
    "bucket groups": lambda t: t.indexes.use("bucket_groups", buckets=2, options=OPTIONS),
    "bucket": lambda t: t.indexes.use("bucket", buckets=2, options=OPTIONS),
}
# The index before a change, where it is no bucket index.
BEFORE = {"bucket": "simple"}
AFTER = {
    "split": ("bucket", "4"),
    "overwrite": ("bucket", "3"),
    "by partition": ("bucket", "2"),
    "record": ("record", None),
    "simple": ("simple", None),
    "merge": ("bucket", "1"),
    "extendible": ("bucket", "2"),
    "bucket groups": ("bucket_groups", "2"),
    "bucket": ("bucket", "2"),
}
_ALL = whole(CRASH)


@cache
def prepared(version: int, kind: str, index: str = "bucket", *, grows: bool = False) -> tuple[dict[str, bytes], Model]:
    """The files of a table of two buckets, which may grow, or of another index, in each of two partition paths, log
    files among them, and its rows."""
    uri = f"memory://rescaled-{version}-{kind}-{index}-{grows}/t"
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "type": kind, "index": index}
    words |= {"buckets": 2} if index == "bucket" else {}
    some = {"hoodie.compact.inline": False, "lakebed.index.bucket.grow": grows}
    schema = rows((0, "c0", "", 0)).schema
    table = lakebed.create(uri, schema, table_version=version, properties=some, **words)
    first = [(n, f"c{n % 2}", f"v{n}", 3 - n % 3) for n in range(12)]
    table.upsert(rows(*first), options=OPTIONS)
    table.upsert(rows((1, "c1", "newer", 5)), options=OPTIONS)
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(uri.split("/")[2])
    return files, put(put({}, *first), (1, "c1", "newer", 5))


def _cases() -> Iterator[tuple[str, int, str, Mode]]:
    for at, (change, mode) in enumerate(product(CHANGES, FAULTS)):
        for version, kind in KINDS if _ALL else [KINDS[at % len(KINDS)]]:
            yield change, version, kind, mode


@pytest.mark.parametrize(("change", "version", "kind", "mode"), list(_cases()))
def test_rows_stay_and_the_next_writer_knows_the_index(change: str, version: int, kind: str, mode: Mode) -> None:
    assert strike_each(lambda at: _crash(change, version, kind, mode, at), 11, change, mode) >= 2


def _crash(change: str, version: int, kind: str, mode: Mode, at: int) -> int | None:
    """Strike one mutation and look at all that follows; where there is none, the number that there are."""
    files, model = prepared(version, kind, BEFORE.get(change, "bucket"))
    with copied("memory", files) as uri:
        with crash_at(at, mode) as crash, suppress(Killed, lakebed.LakebedError):
            CHANGES[change](lakebed.open(uri))
        if not crash.fired:
            return len(crash.mutations)
        try:
            _look(uri, model)
            NEXT.run(lakebed.open(uri))
            _look(uri, NEXT.model(model))
            # the copy of properties that were being written goes with the next change of them
            assert [left for left in leftovers(uri) if left != f"{PROPERTIES_PATH}.backup"] == []
            now = lakebed.open(uri).properties
            told = now["lakebed.index.type"], now.get("lakebed.index.bucket.count")
            before = (BEFORE[change], None) if change in BEFORE else ("bucket", "2")
            assert told in (before, AFTER[change])
            CHANGES[change](lakebed.open(uri))
            _look(uri, NEXT.model(model))
            assert leftovers(uri) == [] or told == AFTER[change]
            verified = lakebed.open(uri).indexes.verify()
            assert verified.ok, verified
        except Exception as error:
            error.add_note(f"{change} {version} {kind} {mode} {at}: {crash}")
            raise
    return None


def _look(uri: str, model: Model) -> None:
    """All rows are there, each under its key, and the index that a writer takes agrees with the files."""
    assert state(uri) == model
    table = lakebed.open(uri)
    assert table.get(list(model)).num_rows == len(model)
    for key in list(model)[:3]:
        assert table.scan(where=f"id = {key}").count() == 1
    table.indexes.index.check(table.opened.snapshot())


@pytest.mark.parametrize(("version", "kind"), [(9, "cow"), (8, "mor"), (6, "cow")])
@pytest.mark.parametrize("change", list(CHANGES))
def test_a_write_that_was_planned_under_the_old_index_is_refused(change: str, version: int, kind: str) -> None:
    files, model = prepared(version, kind, BEFORE.get(change, "bucket"))
    with copied("memory", files) as uri:
        # a partition path of its own: no file group is touched by both
        other = lakebed.open(uri)
        folder = "c7/"
        with meanwhile("create", lambda: CHANGES[change](other), folder), pytest.raises(CommitConflict, match="index"):
            lakebed.open(uri).upsert(rows((77, "c7", "new", 1)), options=OPTIONS)
        _look(uri, model)
        lakebed.open(uri).upsert(rows((77, "c7", "new", 1)), options=OPTIONS)
        _look(uri, put(model, (77, "c7", "new", 1)))


@pytest.mark.parametrize(("version", "kind"), [(9, "cow"), (8, "mor"), (6, "cow")])
@pytest.mark.parametrize("change", ["split", "overwrite"])
def test_a_rescale_gives_way_to_a_write_that_came_first(change: str, version: int, kind: str) -> None:
    files, model = prepared(version, kind)
    for given in ((77, "c7", "new", 1), (1, "c1", "newest", 9)):
        with copied("memory", files) as uri:
            write = partial(lakebed.open(uri).upsert, rows(given), options=OPTIONS)
            # as a file is made that only the new count has
            number = "00000003-" if change == "split" else "00000002-"
            with meanwhile("create", write, number), pytest.raises(CommitConflict):
                CHANGES[change](lakebed.open(uri))
            _look(uri, put(model, given))
            CHANGES[change](lakebed.open(uri))
            _look(uri, put(model, given))
            assert leftovers(uri) == []


def test_a_rescale_of_some_partition_paths_does_not_mind_writes_elsewhere() -> None:
    files, model = prepared(9, "cow")
    with copied("memory", files) as uri:
        other = lakebed.open(uri)
        given = (0, "c0", "newest", 9)
        with meanwhile("create", lambda: other.upsert(rows(given), options=OPTIONS), "c1/00000003-"):
            CHANGES["by partition"](lakebed.open(uri))
        _look(uri, put(model, given))

"""Every storage mutation of an upgrade or a downgrade as the place where it fails, dies, is torn, or gets no answer.

Whatever is struck, the table has its rows in the version that it had or in the one that it was to get, and the next
writer gets by; run again, the change is completed, with all indexes, and nothing is left over. Some mutations of each
are struck, others each day; `LAKEBED_CRASH=all` strikes all of them, on all kinds of tables by every fault.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, product
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.properties.file import BACKUP_PATH, load_table_config
from lakebed.services.upgrade import NOTED_PROPERTY
from lakebed.services.upgrade_properties import other_layout
from lakebed.services.upgrade_timeline import remove_timeline
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.testing import Killed, Mode, crash_at
from support.crash_tables import MOR, NEXT, OPTIONS, Model, copied, create, leftovers, put, rows, state
from support.frozen import FrozenWriter
from support.locks import held
from support.sampling import CRASH, is_todays, todays, whole
from support.torn_writes import torn_at

WAYS = ((9, 6), (6, 9), (9, 8), (8, 9), (8, 6), (6, 8))
KINDS = (("simple", "memory"), (f"{MOR}bucket", "local"), ("record", "local"), (f"{MOR}record", "memory"))
FAULTS: tuple[Mode, ...] = ("unacknowledged", "torn", "fail", "doubtful", "lost")
_ALL = whole(CRASH)
_BY_HAND = {**OPTIONS, "hoodie.compact.inline": False, "hoodie.clean.automatic": False}
# A commit is archived and one is cleaned: both archives have something in them.
_OFTEN = {
    **_BY_HAND,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.clean.commits.retained": 1,
}
_FIRST = [(k, f"c{k % 2}", f"v{k}", 1) for k in range(6)]
_LATER = [[(k, f"c{k % 2}", f"w{n}", 2 + n) for k in range(n, 7, 2)] for n in range(4)]


@cache
def prepared(index: str, version: int) -> tuple[dict[str, bytes], Model]:
    """The files of a table with archived commits, a deleted row, and log files where it can have some; and its rows."""
    name = f"prepared-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    create(uri, index, version)
    table = lakebed.open(uri)
    model = put({}, *_FIRST)
    table.upsert(rows(*_FIRST), options=_BY_HAND)
    for given in _LATER:
        table.upsert(rows(*given), options=_BY_HAND)
        model = put(model, *given)
    if index.startswith(MOR):
        table.maintenance.compact(options=_BY_HAND)
    table.maintenance.clean(options=_OFTEN)
    table.maintenance.archive(options=_OFTEN)
    table.delete([4], options=_BY_HAND)
    del model[4]
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(name)
    return files, model


def _cases() -> Iterator[tuple[int, int, str, str, Mode]]:
    for at, ((source, to), mode) in enumerate(product(WAYS, FAULTS)):
        kinds = [kind for kind in KINDS if mode != "torn" or kind[1] == "local"]
        for index, storage in kinds if _ALL else [kinds[at % len(kinds)]]:
            yield source, to, index, storage, mode


@pytest.mark.parametrize(("source", "to", "index", "storage", "mode"), todays(list(_cases()), 4, CRASH))
def test_the_table_is_of_one_version_or_the_other(source: int, to: int, index: str, storage: str, mode: Mode) -> None:
    points = 0
    for at in (n for n in count(1) if is_todays(n, 70, CRASH, source, to, mode)):
        if not _crash(source, to, index, storage, mode, at):
            break
        points = at
    assert points or not _ALL


THEIRS = [(1, "c1", "theirs", 19), (21, "c1", "theirs", 19)]


@pytest.mark.parametrize(("source", "to"), todays(WAYS, 3, CRASH))
def test_a_change_that_stood_still_while_another_wrote(source: int, to: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_still(lambda t: _change(t.uri, to), lambda uri: _upsert(uri), source, to, "change", monkeypatch)


@pytest.mark.parametrize(("source", "to"), todays(WAYS, 3, CRASH))
def test_a_writer_that_stood_still_while_the_version_changed(
    source: int, to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_still(lambda t: _upsert(t.uri), lambda uri: _change(uri, to), source, to, "writer", monkeypatch)


def _upsert(uri: str) -> Any:
    return lakebed.open(uri).upsert(rows(*THEIRS), options=OPTIONS)


def _stand_still(
    slow: Callable[[Any], Any],
    quick: Callable[[str], Any],
    source: int,
    to: int,
    who: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One stands still before a change of storage for longer than what it holds is valid, and then goes on: what was
    acknowledged is there, once, in the version that the table has."""
    index = "record" if source == 8 else "simple"
    files, old = prepared(index, source)
    for at in (n for n in count(1) if is_todays(n, 25, CRASH, who, source, to)):
        with copied("memory", files) as uri, monkeypatch.context() as patch:
            frozen = FrozenWriter(uri, slow, at, patch)
            if not frozen.freeze():
                break
            frozen.time_is_over()
            failed = None
            try:
                quick(uri)
            except CommitConflict as error:
                failed = error
            frozen.thaw()
            try:
                assert frozen.error is None or isinstance(frozen.error, CommitConflict), frozen.error
                wrote = frozen.error is None if who == "writer" else failed is None
                model = put(old, *THEIRS) if wrote else old
                changed = failed is None if who == "writer" else frozen.error is None
                assert _config(uri).version == to if changed else _config(uri).version in (source, to)
                assert state(uri) == model
                _change(uri, to)
                assert (_config(uri).version, state(uri)) == (to, model)
                NEXT.run(lakebed.open(uri))
                assert state(uri) == NEXT.model(model)
                verified = lakebed.open(uri).indexes.verify()
                assert verified.ok, verified
            except Exception as error:
                error.add_note(f"{who} {source} {to} {at}: {frozen.mutation} {frozen.error!r} {failed!r}")
                raise


def _crash(source: int, to: int, index: str, storage: str, mode: Mode, at: int) -> bool:
    """Strike one mutation and look at all that follows; False if there is no such mutation."""
    files, model = prepared(index, source)
    with copied(storage, files) as uri:
        had = set(_config(uri).metadata_partitions)
        with torn_at(uri, at) if mode == "torn" else crash_at(at, mode) as crash:
            _run(uri, to)
        if not crash.fired:
            return False
        try:
            assert _config(uri).version in (source, to)
            assert state(uri) == model
            NEXT.run(lakebed.open(uri))
            model = NEXT.model(model)
            assert state(uri) == model
            dropped = _change(uri, to).plan.dropped
            config = _config(uri)
            assert (config.version, state(uri)) == (to, model)
            missing = had - set(dropped) - set(config.metadata_partitions)
            # version 6 has fewer kinds; a change that was cut off behind its properties does not say so again
            assert {
                name for name in missing if to > 6 or not name.startswith(("partition_stats", "secondary"))
            } == set()
            assert NOTED_PROPERTY not in config.properties
            assert remove_timeline(open_storage(uri), other_layout(config), held) == 0
            NEXT.run(lakebed.open(uri))
            assert [p for p in leftovers(uri) if _is_litter(p, min(source, to))] == []
            verified = lakebed.open(uri).indexes.verify()
            assert verified.ok, verified
        except Exception as error:
            error.add_note(f"{source} {to} {index} {storage} {mode} {at}: {crash}")
            raise
    return True


def _run(uri: str, to: int) -> None:
    try:
        _change(uri, to)
    except (Killed, lakebed.LakebedError):
        return


def _change(uri: str, to: int) -> Any:
    table = lakebed.open(uri)
    up = to >= _config(uri).version
    return (table.maintenance.upgrade if up else table.maintenance.downgrade)(to=to, options=OPTIONS)


def _config(uri: str) -> Any:
    return load_table_config(open_storage(uri))


def _is_litter(path: str, version: int) -> bool:
    """Metadata partitions were built anew; before version 8 log files stay where what is in them is undone. The backup
    of the properties goes when they are updated next."""
    if "metadata file" in path or path == BACKUP_PATH:
        return False
    is_archive = path.startswith((".hoodie/history/.commits_.archive.", ".hoodie/timeline/history/"))
    return not is_archive and (version >= 8 or ".log." not in path)

"""A rollback on version 6 that appends to file slices which a clean deletes at the same time."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation
from support.crash_tables import OPTIONS, copied, prepared, put, rows, state
from support.frozen import FrozenWriter

DEAD = (0, "c0", "dead", 9)
LOGGED = (2, "c0", "logged", 3)
THEIRS = (1, "c1", "theirs", 9)
_CLEAN = {**OPTIONS, "hoodie.clean.commits.retained": 1}
_NOT_CLEANED = {**OPTIONS, "hoodie.clean.automatic": False}


def is_log(path: str) -> bool:
    return path.startswith("c0/") and ".log." in path


def logs(uri: str) -> set[str]:
    return {info.path for info in open_storage(uri).list("c0") if is_log(info.path)}


class Dying:
    """A write that stands still when its log file is there, and dies when it goes on."""

    def __init__(self, uri: str, patch: pytest.MonkeyPatch) -> None:
        self._has_written = False
        self._frozen = FrozenWriter(uri, self._write, self._at, patch, lambda _: True)
        assert self._frozen.freeze()
        self._frozen.time_is_over(of_heartbeat=False, is_noticed=False)  # another process does not queue behind it

    def die(self) -> None:
        self._frozen.thaw()
        assert isinstance(self._frozen.error, Killed), self._frozen.error

    def _write(self, table: Table) -> object:
        return table.upsert(rows(DEAD), retries=0, options=_NOT_CLEANED)

    def _at(self, mutation: Mutation) -> bool:
        self._has_written |= is_log(mutation.path)
        return self._has_written and "/.locks/" in mutation.path


@pytest.mark.rest
def test_no_rollback_takes_the_name_of_a_log_file_that_the_clean_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata table would take the one for the other, and not list it."""
    files, model = prepared("mor-simple", 6)
    with copied("memory", files) as uri:
        table = lakebed.open(uri)
        table.upsert(rows(LOGGED), options=_NOT_CLEANED)
        table.maintenance.cluster(["v"], partitions=["c0"], plan_only=True, options=_NOT_CLEANED)
        table.upsert(rows(THEIRS), options=_NOT_CLEANED)
        first, second = Dying(uri, monkeypatch), Dying(uri, monkeypatch)
        assert lakebed.open(uri).maintenance.cluster(options=_NOT_CLEANED).runs
        before = logs(uri)
        first.die()
        table.upsert(rows(THEIRS), options=_NOT_CLEANED)  # rolls it back
        (hides_first,) = logs(uri) - before
        deleted = set[str]()

        def has_deleted(mutation: Mutation) -> bool:
            deleted.update([mutation.path] if is_log(mutation.path) else [])
            return bool(deleted) and "/.locks/" in mutation.path

        clean = FrozenWriter(uri, lambda t: t.maintenance.clean(options=_CLEAN), has_deleted, monkeypatch)
        assert clean.freeze()
        clean.time_is_over(of_heartbeat=False, is_noticed=False)
        assert hides_first in deleted
        left = logs(uri)
        second.die()
        table.upsert(rows(THEIRS), options=_NOT_CLEANED)
        (hides_second,) = logs(uri) - left
        assert hides_second not in deleted
        clean.thaw()
        assert clean.error is None
        assert state(uri) == put(model, LOGGED, THEIRS)
        found = lakebed.open(uri).indexes.verify()
        assert found.ok, found

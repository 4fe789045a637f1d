"""A clustering that stood still as it was published, while a write to its file groups went first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict
from lakebed.table import Table
from lakebed.testing import Mutation
from support.crash_tables import OPTIONS, Model, copied, leftovers, prepared, put, rows, state
from support.frozen import FrozenWriter

THEIRS = (1, "c1", "theirs", 9)
KINDS = [("simple", 9), ("record", 8), ("simple", 6), ("mor-simple", 9), ("mor-record", 6), ("mor-bucket", 8)]


def cluster(table: Table) -> Any:
    return table.maintenance.cluster(["v"], options=OPTIONS)


def is_publication(mutation: Mutation) -> bool:
    return mutation.path.endswith(".replacecommit") and "metadata" not in mutation.path


def upserted(table: Table, old: Model) -> Model:
    table.upsert(rows(THEIRS), options=OPTIONS)
    return put(old, THEIRS)


def deleted(table: Table, old: Model) -> Model:
    table.delete([1], options=OPTIONS)
    return {key: row for key, row in old.items() if key != 1}


def overwritten(table: Table, old: Model) -> Model:
    table.insert_overwrite(rows(THEIRS), options=OPTIONS)
    return put({key: row for key, row in old.items() if row[0] != "c1"}, THEIRS)


def untouched(table: Table, old: Model) -> Model:
    return old


CHANGES = [upserted, deleted, overwritten]


@pytest.mark.parametrize(
    ("index", "version", "change"),
    [(*kind, CHANGES[n % len(CHANGES)]) for n, kind in enumerate(KINDS)]
    + [("simple", 9, deleted), ("mor-simple", 9, overwritten), ("simple", 6, upserted)],
)
@pytest.mark.parametrize("of_heartbeat", [True, False])
def test_a_frozen_clustering_gives_way_to_a_write_of_its_file_groups(
    index: str,
    version: int,
    change: Callable[[Table, Model], Model],
    of_heartbeat: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its heartbeat over it finds its plan gone; while that goes on it finds what was changed."""
    files, old = prepared(index, version)
    with copied("memory", files) as uri:
        frozen = FrozenWriter(uri, cluster, is_publication, monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over(of_heartbeat=of_heartbeat)
        expected = change(lakebed.open(uri), old)
        frozen.thaw()
        assert isinstance(frozen.error, CommitConflict), frozen.error
        assert state(uri) == expected
        assert lakebed.open(uri).indexes.verify().ok
        assert cluster(lakebed.open(uri)).runs
        assert state(uri) == expected
        assert leftovers(uri) == []


@pytest.mark.parametrize(("index", "version"), [("simple", 9), ("mor-record", 8), ("simple", 6)])
def test_a_frozen_clustering_completes_where_no_write_changed_its_file_groups(
    index: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, old = prepared(index, version)
    elsewhere = (31, "c2", "elsewhere", 9)
    with copied("memory", files) as uri:
        frozen = FrozenWriter(uri, cluster, is_publication, monkeypatch)
        assert frozen.freeze()
        frozen.time_is_over(of_heartbeat=False)
        lakebed.open(uri).upsert(rows(elsewhere), options=OPTIONS)
        frozen.thaw()
        assert frozen.error is None
        assert state(uri) == put(old, elsewhere)
        assert lakebed.open(uri).indexes.verify().ok

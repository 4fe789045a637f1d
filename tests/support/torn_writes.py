"""Torn writes on a local disk whose file system has no nameless files, so that something is left of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.storage.base import Storage
from lakebed.storage.local import LocalStorage
from lakebed.storage.opening import wrapping
from lakebed.testing import Crash, FaultPlan, FaultyStorage


@contextmanager
def torn_at(uri: str, mutation: int) -> Iterator[Crash]:
    """The n-th mutation of the table at `uri`, counted from 1, is torn."""
    crash = Crash(FaultPlan(mutation, "torn"))

    def wrap(inner: Storage) -> Storage:
        return FaultyStorage(LocalStorage(uri, unlinked=False), crash=crash)

    with wrapping(wrap):
        yield crash

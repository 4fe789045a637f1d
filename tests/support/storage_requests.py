"""Storages that show their requests to a test before they are made: it counts them, refuses some, or acts between."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from lakebed.storage.base import Storage
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.opening import wrapping

Notice = Callable[[str, str], object]
"""A function of the verb and the path of a request; the request fails with the error that it raises."""


class NoticedStorage(WrappedStorage):
    """A storage that calls `notice` before each request."""

    def __init__(self, inner: Storage, notice: Notice) -> None:
        super().__init__(inner)
        self._notice = notice

    def _before(self, verb: str, path: str) -> None:
        self._notice(verb, path)


@contextmanager
def before_requests(notice: Notice) -> Generator[None]:
    """Every storage that this process opens in the block calls `notice` before each of its requests."""
    with wrapping(lambda inner: NoticedStorage(inner, notice)):
        yield

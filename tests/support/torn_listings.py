"""Folders that change while they are listed: between the answers that a listing of many files comes in, and between a
file's name and its size."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lakebed.storage.base import FileInfo, Storage
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.opening import wrapping


class _Entry:
    def __init__(self, entry: os.DirEntry[str], before: Callable[[str], None]) -> None:
        self._entry, self._before = entry, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def stat(self, *given: Any, **named: Any) -> os.stat_result:
        self._before(self._entry.path)
        return os.stat(self._entry.path)


class _Entries:
    def __init__(self, entries: Any, before: Callable[[str], None]) -> None:
        self._entries, self._before = entries, before

    def __enter__(self) -> Iterator[Any]:
        return (_Entry(entry, self._before) for entry in self._entries.__enter__())

    def __exit__(self, *given: Any) -> None:
        self._entries.__exit__(*given)


@contextmanager
def before_each_size(folder: str, do: Callable[[str], None]) -> Generator[None]:
    """`do` runs with the path of each file directly in a local folder right before a listing asks for its size."""
    scandir = os.scandir

    def listed(path: Any) -> Any:
        entries = scandir(path)
        return _Entries(entries, do) if os.fspath(path) == folder else entries

    os.scandir = listed  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        os.scandir = scandir


class Paged(WrappedStorage):
    """A storage that lists the files of one folder in two answers, the first of so many files; `between` is called
    between the two."""

    def __init__(self, inner: Storage, folder: str, first: int, between: Callable[[], None]) -> None:
        super().__init__(inner)
        self._folder, self._first, self._between = folder, first, between

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        if prefix != self._folder:
            return super().list(prefix, recursive=recursive)
        return iter(self._paged(lambda: [*super(Paged, self).list(prefix, recursive=recursive)]))

    def list_names(self, prefix: str = "") -> Sequence[str]:
        if prefix != self._folder:
            return super().list_names(prefix)
        return self._paged(lambda: [*super(Paged, self).list_names(prefix)])

    def _paged(self, look: Callable[[], list[Any]]) -> list[Any]:
        first = sorted(look())[: self._first]
        self._between()
        return first + [one for one in sorted(look()) if not first or one > first[-1]]


@contextmanager
def paged(folder: str, first: int, do: Callable[[], object]) -> Generator[None]:
    """Storages that are opened in the block are `Paged`; `do` runs once, within the first listing."""
    with paged_each(folder, first, iter([do])):
        yield


@contextmanager
def paged_each(folder: str, first: int, steps: Iterator[Callable[[], object]]) -> Generator[None]:
    """Storages that are opened in the block are `Paged`; within each listing the next of the steps runs. All of them
    must have run at the end."""

    def between() -> None:
        for step in steps:
            step()
            break

    with wrapping(lambda inner: Paged(inner, folder, first, between)):
        yield
    left = list(steps)
    assert not left, f"{len(left)} steps did not run"

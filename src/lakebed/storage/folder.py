"""Storages over another one, which still gets all requests. `WrappedStorage` is the base of those that change some of
them. `FolderStorage` shows a folder as a storage of its own. `BufferedFile` reads a file once.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakebed.storage.base import (
    Durable,
    FileInfo,
    Storage,
    StorageSpec,
    Upload,
    Versioned,
    check_prefix,
    check_relative,
)


class WrappedStorage:
    """A storage that passes each request on to `inner`, with the path that `_inner_path` returns, after a call of
    `_before`. A subclass overrides the methods that differ."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def _before(self, verb: str, path: str) -> None:
        """Prepare a request, or raise an error in its place. `verb` is the name of the method. `path` is the new path
        for `move`; `write_same` calls this for each path as a `write`."""

    def _inner_path(self, path: str) -> str:
        """The path at which the inner storage has a file or folder."""
        return path

    def _file(self, verb: str, path: str) -> str:
        self._before(verb, path)
        return self._inner_path(check_relative(path))

    def _prefix(self, verb: str, prefix: str) -> str:
        self._before(verb, prefix)
        return self._inner_path(prefix)

    @property
    def spec(self) -> StorageSpec:
        return self._inner.spec

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        return self._inner.list(self._prefix("list", prefix), recursive=recursive)

    def list_names(self, prefix: str = "") -> Sequence[str]:
        return self._inner.list_names(self._prefix("list_names", prefix))

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        return self._inner.list_folders(self._prefix("list_folders", prefix))

    def head(self, path: str) -> FileInfo | None:
        return self._inner.head(self._file("head", path))

    def read(self, path: str) -> bytes:
        return self._inner.read(self._file("read", path))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return self._inner.read_ranges(self._file("read_ranges", path), ranges)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return self._inner.open_input(self._file("open_input", path), size)

    def read_versioned(self, path: str) -> Versioned:
        return self._inner.read_versioned(self._file("read_versioned", path))

    def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
        self._inner.write(self._file("write", path), data, durable=durable)

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        self._inner.write_same([self._file("write", path) for path in paths], data)

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        return self._inner.put_if_absent(self._file("put_if_absent", path), data, durable=durable)

    def put_if_match(self, path: str, data: bytes, version: str | None, *, durable: bool = True) -> bool:
        return self._inner.put_if_match(self._file("put_if_match", path), data, version, durable=durable)

    def move(self, path: str, to: str) -> None:
        self._inner.move(self._inner_path(check_relative(path)), self._file("move", to))

    def create(self, path: str) -> Upload:
        return self._inner.create(self._file("create", path))

    def delete(self, path: str, *, durable: bool = True) -> bool:
        return self._inner.delete(self._file("delete", path), durable=durable)

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        self._inner.delete_folder(self._prefix("delete_folder", prefix), durable=durable)

    def make_folder(self, prefix: str) -> None:
        self._inner.make_folder(self._prefix("make_folder", prefix))

    def url(self, path: str = "") -> str:
        return self._inner.url(self._inner_path(path))


class BufferedFile(WrappedStorage):
    """A storage that reads one small file once, at the first request for it.

    >>> from lakebed.storage.memory import MemoryStorage
    >>> storage = MemoryStorage("buffered")
    >>> storage.write("a", b"12345")
    >>> held = BufferedFile(storage, "a", 5)
    >>> held.read_ranges("a", [(1, 2)]), held.open_input("a", 5).read()
    ([b'23'], b'12345')
    >>> MemoryStorage.drop("buffered")
    """

    def __init__(self, inner: Storage, path: str, size: int) -> None:
        super().__init__(inner)
        self._path, self._size = path, size
        self._data: bytes | None = None

    def _read(self) -> bytes:
        if self._data is None:
            [self._data] = self._inner.read_ranges(self._path, [(0, self._size)])
        return self._data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        if path != self._path:
            return super().read_ranges(path, ranges)
        return [self._read()[offset : offset + length] for offset, length in ranges]

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return pa.BufferReader(self._read()) if path == self._path else super().open_input(path, size)


class FolderStorage(WrappedStorage):
    """The files below one folder of `inner`; paths are relative to that folder.

    >>> from lakebed.storage.memory import MemoryStorage
    >>> whole = MemoryStorage("folders")
    >>> part = FolderStorage(whole, "a/b")
    >>> part.write("c", b"1"); [info.path for info in whole.list()], part.read("c")
    (['a/b/c'], b'1')
    >>> MemoryStorage.drop("folders")
    """

    def __init__(self, inner: Storage, folder: str) -> None:
        super().__init__(inner)
        self._folder = check_prefix(folder)

    def __repr__(self) -> str:
        return f"FolderStorage({self.url()!r})"

    def _inner_path(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def _own(self, info: FileInfo) -> FileInfo:
        path, size, modified = info
        return FileInfo(path[len(self._folder) + 1 :], size, modified)

    @property
    def spec(self) -> StorageSpec:
        return StorageSpec(self.url(), self._inner.spec.options)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        return map(self._own, super().list(prefix, recursive=recursive))

    def head(self, path: str) -> FileInfo | None:
        info = super().head(path)
        return None if info is None else self._own(info)

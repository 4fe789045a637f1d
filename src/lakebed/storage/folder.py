"""`FolderStorage`: a folder of another storage as a storage of its own; what counts or fails there still does."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakebed.storage.base import FileInfo, Storage, StorageSpec, Upload, Versioned, check_prefix, check_relative


class FolderStorage:
    """Everything below one folder of `inner`; paths are relative to that folder.

    >>> from lakebed.storage.memory import MemoryStorage
    >>> whole = MemoryStorage("folders")
    >>> part = FolderStorage(whole, "a/b")
    >>> part.write("c", b"1"); [info.path for info in whole.list()], part.read("c")
    (['a/b/c'], b'1')
    >>> MemoryStorage.drop("folders")
    """

    def __init__(self, inner: Storage, folder: str) -> None:
        self._inner = inner
        self._folder = check_prefix(folder)

    def __repr__(self) -> str:
        return f"FolderStorage({self.url()!r})"

    def _path(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def _file(self, path: str) -> str:
        check_relative(path)
        return self._path(path)

    def _own(self, info: FileInfo) -> FileInfo:
        path, size, modified = info
        return FileInfo(path[len(self._folder) + 1 :], size, modified)

    @property
    def spec(self) -> StorageSpec:
        return StorageSpec(self.url(), self._inner.spec.options)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        return map(self._own, self._inner.list(self._path(prefix), recursive=recursive))

    def list_names(self, prefix: str = "") -> Sequence[str]:
        return self._inner.list_names(self._path(prefix))

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        return self._inner.list_folders(self._path(prefix))

    def head(self, path: str) -> FileInfo | None:
        found = self._inner.head(self._file(path))
        return None if found is None else self._own(found)

    def read(self, path: str) -> bytes:
        return self._inner.read(self._file(path))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return self._inner.read_ranges(self._file(path), ranges)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return self._inner.open_input(self._file(path), size)

    def read_versioned(self, path: str) -> Versioned:
        return self._inner.read_versioned(self._file(path))

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._inner.write(self._file(path), data, durable=durable)

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        self._inner.write_same([self._file(path) for path in paths], data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._inner.put_if_absent(self._file(path), data)

    def put_if_match(self, path: str, data: bytes, version: str | None) -> bool:
        return self._inner.put_if_match(self._file(path), data, version)

    def move(self, path: str, to: str) -> None:
        self._inner.move(self._file(path), self._file(to))

    def create(self, path: str) -> Upload:
        return self._inner.create(self._file(path))

    def delete(self, path: str, *, durable: bool = True) -> bool:
        return self._inner.delete(self._file(path), durable=durable)

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        self._inner.delete_folder(self._path(prefix), durable=durable)

    def make_folder(self, prefix: str) -> None:
        self._inner.make_folder(self._path(prefix))

    def url(self, path: str = "") -> str:
        return self._inner.url(self._path(path))

"""`CountingStorage`: what a piece of work asks of storage, for cost tests and benches."""

from __future__ import annotations

import builtins
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakebed.storage.base import FileInfo, Storage, StorageSpec, Upload, Versioned
from lakebed.storage.opening import open_storage_spec


class CountingStorage:
    """Passes everything on and counts it.

    `counts` has the calls of each verb; `opened` the paths whose content was asked for, `written` those that were
    written or deleted, both in order.

    >>> from lakebed.storage.memory import MemoryStorage
    >>> storage = CountingStorage(MemoryStorage("counted"))
    >>> storage.write("a", b"1"); storage.read("a")
    b'1'
    >>> dict(storage.counts), storage.opened
    ({'write': 1, 'read': 1}, ['a'])
    """

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.opened: builtins.list[str] = []
        self.written: builtins.list[str] = []

    def reset(self) -> None:
        with self._lock:
            self.counts.clear()
            self.opened.clear()
            self.written.clear()

    def _count(self, verb: str, opened: str | None = None, written: str | None = None) -> None:
        with self._lock:
            self.counts[verb] += 1
            if opened is not None:
                self.opened.append(opened)
            if written is not None:
                self.written.append(written)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_storage_spec, (self.spec,)  # other processes do without

    @property
    def spec(self) -> StorageSpec:
        return self._inner.spec

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        self._count("list")
        return self._inner.list(prefix, recursive=recursive)

    def list_names(self, prefix: str = "") -> Sequence[str]:
        self._count("list")
        return self._inner.list_names(prefix)

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        self._count("list_folders")
        return self._inner.list_folders(prefix)

    def head(self, path: str) -> FileInfo | None:
        self._count("head")
        return self._inner.head(path)

    def read(self, path: str) -> bytes:
        self._count("read", opened=path)
        return self._inner.read(path)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        self._count("read_ranges", opened=path)
        return self._inner.read_ranges(path, ranges)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        self._count("open_input", opened=path)
        return self._inner.open_input(path, size)

    def read_versioned(self, path: str) -> Versioned:
        self._count("read_versioned", opened=path)
        return self._inner.read_versioned(path)

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._count("write", written=path)
        self._inner.write(path, data, durable=durable)

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        for path in paths:
            self._count("write", written=path)
        self._inner.write_same(paths, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._count("put_if_absent", written=path)
        return self._inner.put_if_absent(path, data)

    def put_if_match(self, path: str, data: bytes, version: str | None) -> bool:
        self._count("put_if_match", written=path)
        return self._inner.put_if_match(path, data, version)

    def move(self, path: str, to: str) -> None:
        self._count("move", written=to)
        self._inner.move(path, to)

    def create(self, path: str) -> Upload:
        self._count("create", written=path)
        return self._inner.create(path)

    def delete(self, path: str, *, durable: bool = True) -> bool:
        self._count("delete", written=path)
        return self._inner.delete(path, durable=durable)

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        self._count("delete_folder", written=prefix)
        self._inner.delete_folder(prefix, durable=durable)

    def make_folder(self, prefix: str) -> None:
        self._count("make_folder", written=prefix)
        self._inner.make_folder(prefix)

    def url(self, path: str = "") -> str:
        return self._inner.url(path)

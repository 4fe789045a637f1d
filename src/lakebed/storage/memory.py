"""`MemoryStorage`: a table in this process's memory, for tests and throw-away tables."""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakebed.sharing import shared_lock, shared_rlock
from lakebed.storage.base import (
    Durable,
    FileInfo,
    StorageSpec,
    Versioned,
    check_prefix,
    check_relative,
    ends_early,
    not_found,
)
from lakebed.storage.parallel import write_each
from lakebed.storage.streams import StreamUpload


@dataclass(slots=True)
class _Object:
    data: bytes
    version: int
    modified: int


@dataclass(slots=True)
class _Bucket:
    objects: dict[str, _Object] = field(default_factory=dict)
    versions: int = 0
    lock: threading.RLock = field(default_factory=shared_rlock)


_buckets: dict[str, _Bucket] = {}
_buckets_lock = shared_lock()


class MemoryStorage:
    """Objects under `memory://<name>/<prefix>`. Equal names are one memory everywhere in the process.

    >>> storage = MemoryStorage("doctest")
    >>> storage.put_if_absent("a", b"1"), storage.put_if_absent("a", b"2"), storage.read("a")
    (True, False, b'1')
    >>> MemoryStorage.drop("doctest")
    """

    def __init__(self, name: str, prefix: str = "", options: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._prefix = check_prefix(prefix)
        self._start = f"{self._prefix}/" if self._prefix else ""
        self._root = f"memory://{name}/{self._prefix}" if self._prefix else f"memory://{name}"
        with _buckets_lock:
            self._bucket = _buckets.setdefault(name, _Bucket())
        self._spec = StorageSpec(self.url(), dict(options or {}))

    def __repr__(self) -> str:
        return f"MemoryStorage({self.url()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (MemoryStorage, (self._name, self._prefix, dict(self._spec.options)))

    @staticmethod
    def drop(name: str) -> None:
        """Delete all objects under this name. Open storages retain theirs."""
        with _buckets_lock:
            _buckets.pop(name, None)

    @property
    def spec(self) -> StorageSpec:
        return self._spec

    def url(self, path: str = "") -> str:
        return f"{self._root}/{path}" if path else self._root

    def _key(self, path: str) -> str:
        return self._start + check_relative(path)

    def _get(self, path: str) -> _Object:
        with self._bucket.lock:
            entry = self._bucket.objects.get(self._key(path))
        if entry is None:
            raise not_found(self.url(path))
        return entry

    # reading

    def _below(self, prefix: str) -> tuple[str, builtins.list[tuple[str, _Object]]]:
        """The key of the folder, with its slash, and the objects below it with the rest of their keys."""
        prefix = check_prefix(prefix)
        folder = f"{prefix}/" if prefix else ""
        start = self._start + folder
        with self._bucket.lock:
            entries = sorted([(k[len(start) :], o) for k, o in self._bucket.objects.items() if k.startswith(start)])
        return folder, entries

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        folder, entries = self._below(prefix)
        for name, entry in entries:
            if recursive or "/" not in name:
                yield FileInfo(folder + name, len(entry.data), entry.modified)

    def list_names(self, prefix: str = "") -> Sequence[str]:
        return [name for name, _ in self._below(prefix)[1] if "/" not in name]

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        return sorted({name.split("/", 1)[0] for name, _ in self._below(prefix)[1] if "/" in name})

    def head(self, path: str) -> FileInfo | None:
        try:
            entry = self._get(path)
        except FileNotFoundError:
            return None
        return FileInfo(path, len(entry.data), entry.modified)

    def read(self, path: str) -> bytes:
        return self._get(path).data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        data = self.read(path)
        for offset, length in ranges:
            if length and offset + length > len(data):
                raise ends_early(self.url(path), offset, length, max(0, len(data) - offset))
        return [data[offset : offset + length] for offset, length in ranges]

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def read_versioned(self, path: str) -> Versioned:
        entry = self._get(path)
        return Versioned(entry.data, str(entry.version))

    # writing

    def _put(self, key: str, data: bytes) -> None:
        self._bucket.versions += 1
        self._bucket.objects[key] = _Object(data, self._bucket.versions, time.time_ns() // 1_000_000)

    def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
        with self._bucket.lock:
            self._put(self._key(path), bytes(data))

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        write_each(self, paths, data)

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        return self.put_if_match(path, data, None)

    def put_if_match(self, path: str, data: bytes, version: str | None, *, durable: bool = True) -> bool:
        key = self._key(path)
        with self._bucket.lock:
            current = self._bucket.objects.get(key)
            if version != (None if current is None else str(current.version)):
                return False
            self._put(key, bytes(data))
            return True

    def move(self, path: str, to: str) -> None:
        with self._bucket.lock:
            data = self._get(path).data
            self._put(self._key(to), data)
            del self._bucket.objects[self._key(path)]

    def create(self, path: str) -> MemoryUpload:
        check_relative(path)
        return MemoryUpload(self, path)

    def delete(self, path: str, *, durable: bool = True) -> bool:
        with self._bucket.lock:
            return self._bucket.objects.pop(self._key(path), None) is not None

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        with self._bucket.lock:
            folder, entries = self._below(prefix)
            for name, _ in entries:
                del self._bucket.objects[self._key(folder + name)]

    def make_folder(self, prefix: str) -> None:
        """Do nothing: a bucket has no folders."""


class MemoryUpload(StreamUpload):
    """A file that becomes one object at `close()`."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        super().__init__(path)
        self._storage = storage
        self._parts: list[bytes] = []

    def _append(self, data: memoryview) -> None:
        self._parts.append(bytes(data))

    def _finish(self) -> None:
        self._storage.write(self._path, b"".join(self._parts))
        self._parts.clear()

    def _discard(self) -> None:
        self._parts.clear()

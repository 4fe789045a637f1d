"""`open_storage`: from a URI and options to the storage that serves it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING

from lakebed.sharing import shared_lock
from lakebed.storage.base import Location, Storage, StorageSpec, parse_uri
from lakebed.storage.local import LocalStorage
from lakebed.storage.memory import MemoryStorage

if TYPE_CHECKING:
    from lakebed.storage.object_store import ObjectStorage

_wrappers: list[Callable[[Storage], Storage]] = []
_stores: dict[tuple[int, str, tuple[tuple[str, str], ...]], ObjectStorage] = {}
_stores_lock = shared_lock()
_MAX_STORES = 64


def open_storage(uri: str, options: Mapping[str, str] | None = None) -> Storage:
    """The storage of the table at `uri`.

    `options` are an object store's settings by their obstore, fsspec, PyArrow or Hadoop names (`endpoint_url`,
    `aws_access_key_id`, `fs.s3a.endpoint`, ...); what is not given comes from the environment. Nothing is contacted.
    Raises `InvalidOption` for unknown schemes and options.
    """
    location = parse_uri(os.fspath(uri))
    storage = _open(location, dict(options or {}))
    for wrap in _wrappers:
        storage = wrap(storage)
    return storage


def open_storage_spec(spec: StorageSpec) -> Storage:
    """Open the storage that a spec describes, e.g. on another machine."""
    return open_storage(spec.uri, spec.options)


@contextlib.contextmanager
def wrapping(wrap: Callable[[Storage], Storage]) -> Generator[None]:
    """Pass every storage that this process opens through `wrap` while the block runs. For fault and cost tests."""
    _wrappers.append(wrap)
    try:
        yield
    finally:
        _wrappers.remove(wrap)


def _open(location: Location, options: dict[str, str]) -> Storage:
    if location.scheme == "file":
        return LocalStorage(location.path, options)
    if location.scheme == "memory":
        return MemoryStorage(location.authority, location.path, options)
    if location.scheme == "hdfs":
        from lakebed.storage.hdfs import HdfsStorage

        return HdfsStorage(location, options)
    return _object_storage(location, options)


def _object_storage(location: Location, options: dict[str, str]) -> ObjectStorage:
    """The cached or new storage for a location. Stores are cached, since each has its connections, but not across a
    fork, which connections do not survive."""
    from lakebed.storage.object_store import ObjectStorage

    key = (os.getpid(), location.uri, tuple(sorted(options.items())))
    with _stores_lock:
        store = _stores.get(key)
        if store is None:
            while len(_stores) >= _MAX_STORES:
                del _stores[next(iter(_stores))]
            store = _stores[key] = ObjectStorage(location, options)
        return store

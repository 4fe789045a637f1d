"""Creating a small file exactly once, also when storage does not report whether it did."""

from __future__ import annotations

import logging

from lakebed.errors import StorageError
from lakebed.storage.base import Durable, Storage

_ATTEMPTS = 3
_log = logging.getLogger("lakebed")


def create_exactly_once(storage: Storage, path: str, data: bytes, *, durable: Durable = True) -> bool:
    """Create a file that must not exist. Returns True if this call created it, False if another writer did.

    An answer in doubt is resolved by reading back and comparing bytes, and by asking again while nothing is there.
    Equal bytes prove nothing for an empty file, so an empty file that existed before any doubt counts as another
    writer's. Raises `StorageError`; with `{"doubtful": True}` in its context the file may or may not be there.
    """
    doubt: StorageError | None = None
    for _ in range(_ATTEMPTS):
        try:
            if storage.put_if_absent(path, data, durable=durable):
                return True
            # A client that retries by itself gets "the file exists" when its first try had worked.
            return (bool(data) or doubt is not None) and storage.read(path) == data
        except FileNotFoundError:
            # It was there and was deleted between the two calls, so ask again.
            continue
        except StorageError as cause:
            if doubt is None and not cause.context.get("doubtful"):
                raise
            doubt = doubt or cause
        content = _read_if_possible(storage, path)
        if content is not None:
            return content == data and _is_there(storage, path, doubt)
    if doubt is not None:
        raise doubt
    return False


def write_settled(storage: Storage, path: str, data: bytes) -> None:
    """Write a small file that determines the behaviour of readers from then on. An error is ignored (and logged) if the
    file has these bytes nevertheless."""
    try:
        storage.write(path, data)
    except StorageError as cause:
        if _read_if_possible(storage, path) != data:
            raise
        _is_there(storage, path, cause)


def _is_there(storage: Storage, path: str, doubt: StorageError | None) -> bool:
    if doubt is not None:
        _log.warning("%s is there, although writing it ended in: %s", storage.url(path), doubt.message)
    return True


def _read_if_possible(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except (FileNotFoundError, StorageError):
        return None

"""Dropping a table: its properties first, so that no reader finds half of one, then its other files."""

from __future__ import annotations

from contextlib import suppress

from lakebed.concurrency.lock import LOCK_FILE, default_lock
from lakebed.errors import CorruptFile, TableNotFound, UnsupportedFeature
from lakebed.model import HOODIE
from lakebed.operations.recreate import forget_files, load_settled
from lakebed.operations.table_files import remove_table_files, warn_of_left
from lakebed.properties.file import BACKUP_PATH, PROPERTIES_PATH
from lakebed.storage.base import Storage

_LOCKS = LOCK_FILE.rpartition("/")[0]


def exists(storage: Storage) -> bool:
    """Whether there is a table, of whatever version, whole or damaged."""
    try:
        load_settled(storage)
    except TableNotFound:
        return False
    except (CorruptFile, UnsupportedFeature):
        return True
    return True


def drop(storage: Storage) -> list[str]:
    """Delete a table with all its rows, under its lock; files in its folder that are not the table's stay, and their
    paths are returned. The next call finishes what was interrupted.

    Raises `TableNotFound` where there is neither a table nor what such a call left of one.
    """
    if not exists(storage) and not storage.list_folders(HOODIE):
        raise TableNotFound(
            f"there is no table at {storage.url()}",
            hint="check the path; lakebed.exists(uri) tells whether there is one",
            context={"uri": storage.url()},
        )
    with default_lock(storage):
        storage.delete(BACKUP_PATH)
        storage.delete(PROPERTIES_PATH)
        left = remove_table_files(storage)
        for folder in storage.list_folders(HOODIE):
            if f"{HOODIE}/{folder}" != _LOCKS:
                storage.delete_folder(f"{HOODIE}/{folder}")
        for name in storage.list_names(HOODIE):
            if f"{HOODIE}/{name}" != LOCK_FILE:
                storage.delete(f"{HOODIE}/{name}")
    with suppress(FileNotFoundError):
        storage.delete_folder(HOODIE)
    forget_files()
    warn_of_left(storage, left)
    return left

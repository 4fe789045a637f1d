"""A table moved to another folder of the same storage: its name in a warehouse changes, and its rows stay.

The new folder is claimed by a `hoodie.properties` that no reader can use, which only one process can create. Then the
old folder's own is deleted, so that no reader sees half a table; it stays in `.hoodie/rename.json` until all files are
moved, and the last step writes it to the new folder. A call that was interrupted is finished by the same call again.
"""

from __future__ import annotations

import json
from contextlib import suppress

from lakebed.concurrency.providers import writers_lock
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind, CorruptFile, TableExists
from lakebed.model import HDFS_LOCK_FILE, HOODIE, LOCK_FILE
from lakebed.operations.recreate import forget_files, load_settled
from lakebed.properties.file import BACKUP_PATH, PROPERTIES_PATH, has_properties, name_if_readable, renamed_properties
from lakebed.storage import open_storage_spec
from lakebed.storage.base import Storage, StorageSpec
from lakebed.storage.exactly_once import create_exactly_once, write_settled
from lakebed.storage.parallel import is_remote, parallel_map

_MARK = f"{HOODIE}/rename.json"
_LOCKS = LOCK_FILE.rpartition("/")[0]
# What belongs to the processes that use the table, not to the table.
_PASSING = (f"{_LOCKS}/", HDFS_LOCK_FILE, f"{HOODIE}/.heartbeat/", f"{HOODIE}/.temp/", _MARK)
_LIST = "metadata/"
_LIST_FILES = (".metadata.json", ".avro", "version-hint.text")
_MOVERS = 16


def rename(storage: Storage, old: str, new: str, settings: WriteSettings) -> None:
    """Move the table in the folder `old` to the folder `new`, under its lock. A call after an interrupted one finishes
    it. `settings` configure the lock.

    Raises `TableNotFound` if there is no table, `TableExists` if there is anything in the new folder, and
    `CommitConflict` if the lock was lost.
    """
    source, target = _inside(storage, old), _inside(storage, new)
    if _interrupted(source) is None:
        load_settled(source)
    with writers_lock(source, settings, name_if_readable(source)) as lock:

        def check() -> None:
            if not lock.lock_is_held():
                raise CommitConflict(
                    f"the lock of {source.url()} was lost while it was renamed",
                    hint="Rename it again: what is left to do is done.",
                    kind=ConflictKind.LOCK_LOST,
                )

        if _interrupted(source) is None:
            load_settled(source)  # another process may have renamed it meanwhile
            _claim(source, target, new)
            check()
            source.delete(BACKUP_PATH)
            source.delete(PROPERTIES_PATH)
        mark = json.loads(source.read(_MARK))
        if mark["to"] != new:
            raise TableExists(
                f"the table at {source.url()} is being renamed to {mark['to']}",
                hint=f"Finish it first: rename it to {mark['to'].replace('/', '.')} again.",
                context={"uri": source.url()},
            )
        below = [info.path.removeprefix(f"{old}/") for info in storage.list(old)]

        def move(path: str) -> None:
            check()
            with suppress(FileNotFoundError):  # moved before
                storage.move(f"{old}/{path}", f"{new}/{path}")

        # the list of Iceberg has absolute paths: the next publication writes it again
        lists = {path for path in below if path.startswith(_LIST) and path.endswith(_LIST_FILES)}
        moving = [path for path in below if path not in lists and not path.startswith(_PASSING)]
        parallel_map(move, moving, _MOVERS if is_remote(storage) else 1)
        for folder in mark["folders"]:
            target.make_folder(folder)
        check()
        write_settled(target, PROPERTIES_PATH, mark["properties"].encode())
    storage.delete_folder(old)
    forget_files()


def _claim(source: Storage, target: Storage, new: str) -> None:
    """Take the new folder, which must be empty, and write down what is moved there."""
    exists = TableExists(
        f"there is a table or other data at {target.url()} already",
        hint="Choose another name.",
        context={"uri": target.url()},
    )
    properties = source.read(PROPERTIES_PATH)
    claim = f"# {source.spec.uri} is being renamed to this name; rename it again to finish it\n".encode()
    # a claim of the same table is that of a call that was interrupted
    if has_properties(target):
        if target.read(PROPERTIES_PATH) != claim:
            raise exists
    elif next(target.list(), None) is not None or not create_exactly_once(target, PROPERTIES_PATH, claim):
        raise exists
    mark = {
        "to": new,
        "properties": renamed_properties(properties, new.rpartition("/")[2]).decode(),
        # real Hudi needs the timeline's folder although it is empty
        "folders": [f"{HOODIE}/{folder}" for folder in source.list_folders(HOODIE) if folder == "timeline"],
    }
    source.write(_MARK, json.dumps(mark).encode())


def _interrupted(source: Storage) -> str | None:
    """The folder to which an interrupted call moves the table; None if there is no such call, or if it had not begun to
    move."""
    try:
        to = str(json.loads(source.read(_MARK))["to"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFile(f"{_MARK} cannot be read: {cause}", context={"path": source.url(_MARK)}) from cause
    return None if has_properties(source) else to


def _inside(storage: Storage, folder: str) -> Storage:
    spec = storage.spec
    return open_storage_spec(StorageSpec(f"{spec.uri.rstrip('/')}/{folder}", spec.options))

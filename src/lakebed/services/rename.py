"""A table moved to another folder of the same storage: its name in a warehouse changes, and its rows stay.

While files are moved, both folders have a `hoodie.properties` that says so: no reader finds half a table, no other
table can be made in either folder, and the same call finishes one that was interrupted. The table's own properties wait
in `.hoodie/rename.json` of the old folder. They replace what the new folder says of the move, and nothing else; what is
left in the old folder is deleted afterwards, its `hoodie.properties` last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import suppress

from lakebed.catalog.base import EntryName
from lakebed.catalog.warehouses import Names
from lakebed.concurrency.providers import writers_lock
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind, CorruptFile, InvalidOption, LakebedError, TableExists
from lakebed.model import HDFS_LOCK_FILE, HOODIE, LOCK_FILE
from lakebed.operations.recreate import PASSING, forget_files, load_settled, move_files, storage_of
from lakebed.properties.file import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    moved_from_to,
    moving_properties,
    name_if_readable,
    renamed_properties,
)
from lakebed.services.publishing import list_files
from lakebed.storage.base import Storage
from lakebed.storage.exactly_once import create_exactly_once

_MARK = f"{HOODIE}/rename.json"
_LOCKS = f"{LOCK_FILE.rpartition('/')[0]}/"


def rename_in_warehouse(names: Names, name: EntryName, to: EntryName) -> None:
    """Give a table of a warehouse another name: its files move to the folder of that name. Raises `InvalidOption` for
    the same name, `UnsupportedFeature` in a catalog, and what `rename` raises."""
    if name == to:
        raise InvalidOption(f"{name} has this name already", hint="give another name")
    rename(*names.folders(name, to), WriteSettings())
    names.forget(name)


def rename(storage: Storage, old: str, new: str, settings: WriteSettings) -> None:
    """Move the table in the folder `old` to the folder `new`, under its lock. A call after an interrupted one finishes
    it. `settings` configure the lock.

    Raises `TableNotFound` if there is no table, `TableExists` if there is anything in the new folder, and
    `CommitConflict` if the lock was lost.
    """
    source, target = storage_of(storage, old), storage_of(storage, new)
    if _move_of(source) is None:
        load_settled(source)
    with writers_lock(source, settings, name_if_readable(source)) as lock:

        def check() -> None:
            if not lock.lock_is_held():
                raise CommitConflict(
                    f"the lock of {source.url()} was lost while it was renamed",
                    hint="Rename it again: what is left to do is done.",
                    kind=ConflictKind.LOCK_LOST,
                )

        move = _move_of(source)
        if move is None:
            load_settled(source)  # another process may have renamed it meanwhile
            _claim(source, target, (old, new), check)
        elif move != (old, new):
            raise TableExists(
                f"the table at {source.url()} is being renamed to {move[1]}",
                hint=f"Finish it first: rename it to {move[1].replace('/', '.')} again.",
                context={"uri": source.url()},
            )
        if (mark := _read_mark(source)) is not None:
            _move_files(storage, (old, new), check)
            _finish(source, target, mark, (old, new), check)
        _clear(source, check)
    with suppress(FileNotFoundError):
        if next((info for info in source.list() if not info.path.startswith(PASSING)), None) is None:
            storage.delete_folder(old)
    forget_files()


def _claim(source: Storage, target: Storage, move: tuple[str, str], check: Callable[[], None]) -> None:
    """Take the new folder, which must be empty, and write down in both what is moved."""
    exists = TableExists(
        f"there is a table or other data at {target.url()} already",
        hint="Choose another name.",
        context={"uri": target.url()},
    )
    stored, claim = source.read_versioned(PROPERTIES_PATH), moving_properties(*move)
    others = (info.path for info in target.list() if not info.path.startswith(PASSING))
    # a claim of the same table is that of a call that was interrupted
    if any(path != PROPERTIES_PATH for path in others) or not create_exactly_once(target, PROPERTIES_PATH, claim):
        raise exists
    mark = {
        "properties": renamed_properties(stored.data, move[1].rpartition("/")[2]).decode(),
        # real Hudi needs the timeline's folder although it is empty
        "folders": [f"{HOODIE}/{folder}" for folder in source.list_folders(HOODIE) if folder == "timeline"],
    }
    source.write(_MARK, json.dumps(mark).encode())
    check()
    source.delete(BACKUP_PATH)
    if not source.put_if_match(PROPERTIES_PATH, claim, stored.version):
        raise CommitConflict(
            f"the settings of {source.url()} were changed while it was renamed",
            hint="Rename it again.",
            kind=ConflictKind.BUSY,
        )


def _move_files(storage: Storage, folders: tuple[str, str], check: Callable[[], None]) -> None:
    """Move all files of the table but its properties, and but its list of Iceberg, which has absolute paths: the next
    publication writes it again."""
    old, new = folders
    staying: Collection[str] = {PROPERTIES_PATH, BACKUP_PATH, _MARK, *list_files(storage_of(storage, old), ["iceberg"])}
    below = [info.path.removeprefix(f"{old}/") for info in storage.list(old)]
    moving = [path for path in below if path not in staying and not path.startswith(PASSING)]
    move_files(storage, [(f"{old}/{path}", f"{new}/{path}") for path in moving], check)


def _finish(
    source: Storage, target: Storage, mark: dict[str, object], move: tuple[str, str], check: Callable[[], None]
) -> None:
    """Make the new folder the table. If a call that was interrupted did that, nothing there is touched."""
    claim = moving_properties(*move)
    try:
        stored = target.read_versioned(PROPERTIES_PATH)
    except FileNotFoundError:
        if next(target.list(), None) is None:  # it was finished, and dropped afterwards
            return
        target.write(PROPERTIES_PATH, claim)
        stored = target.read_versioned(PROPERTIES_PATH)
    if stored.data == claim:
        folders = mark["folders"]
        assert isinstance(folders, list)
        for folder in folders:
            target.make_folder(str(folder))
        check()
        if not target.put_if_match(PROPERTIES_PATH, str(mark["properties"]).encode(), stored.version):
            raise CommitConflict(
                f"another process changed {target.url(PROPERTIES_PATH)} while the table was renamed",
                hint="Rename it again: what is left to do is done.",
                kind=ConflictKind.BUSY,
            )
    source.delete(_MARK)


def _clear(source: Storage, check: Callable[[], None]) -> None:
    """Delete what is left in the old folder: lists, heartbeats and markers, and the properties last."""
    left = [info.path for info in source.list()]
    for path in left:
        if path != PROPERTIES_PATH and not path.startswith((_LOCKS, HDFS_LOCK_FILE)):
            check()
            source.delete(path)
    check()
    source.delete(PROPERTIES_PATH)


def _move_of(storage: Storage) -> tuple[str, str] | None:
    """The folders from and to which the table here is moved; None if it is not."""
    try:
        return moved_from_to(storage.read(PROPERTIES_PATH))
    except (FileNotFoundError, LakebedError):
        return None


def _read_mark(source: Storage) -> dict[str, object] | None:
    """The mark of a call that is not finished, from the old folder; None if there is none."""
    try:
        mark = json.loads(source.read(_MARK))
        if not isinstance(mark["properties"], str) or not isinstance(mark["folders"], list):
            raise TypeError("its properties are no text, or its folders are no list")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFile(
            f"{_MARK} cannot be read: {cause}",
            hint="Restore the file from a copy: it has the table's properties.",
            context={"path": source.url(_MARK)},
        ) from cause
    return mark

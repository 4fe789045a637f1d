"""A table moved to another folder of the same storage: its name in a warehouse changes, and its rows stay.

While files are moved, both folders have a `hoodie.properties` that says so: no reader finds half a table, no other
table can be made in either folder, and the same call finishes one that was interrupted. The opposite call undoes it.

The new folder is claimed first, then the old one; the claim of the new folder is then confirmed. One that is not
confirmed is void where the old folder does not have it, and any process may take that folder. `.hoodie/rename.json` of
the old folder has the table's own properties, as they were and as they become, and whether all files are moved. When
the new folder has them, what is left in the old one is deleted, its `hoodie.properties` last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from lakebed.catalog.base import EntryName
from lakebed.catalog.warehouses import Names
from lakebed.concurrency.providers import writers_lock
from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind, CorruptFile, InvalidOption, LakebedError, TableExists
from lakebed.model import HDFS_LOCK_FILE, HOODIE, LOCK_FILE
from lakebed.operations.recreate import PASSING, STAGING, forget_files, load_settled, move_files, storage_of
from lakebed.properties.file import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    has_properties,
    moved_from_to,
    moving_properties,
    name_if_readable,
    recover_properties,
    refuse_other_table,
    renamed_properties,
    void_claim,
)
from lakebed.services.publishing import list_files
from lakebed.storage.base import Storage
from lakebed.storage.exactly_once import create_exactly_once

_MARK = f"{HOODIE}/rename.json"
_LOCKS = f"{LOCK_FILE.rpartition('/')[0]}/"
# These belong to the processes at the old place. Heartbeats and markers move: by them a dead writer is rolled back.
_NOT_MOVED = (_LOCKS, HDFS_LOCK_FILE, STAGING)
_Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Mark:
    """What the old folder says of a move: the properties as they were and as they become, the folders that the new one
    needs though they are empty, and whether all files are in the new folder."""

    before: str
    properties: str
    folders: tuple[str, ...]
    moved: bool = False

    def write(self, source: Storage) -> None:
        source.write(_MARK, json.dumps(asdict(self)).encode())


def rename_in_warehouse(names: Names, name: EntryName, to: EntryName) -> None:
    """Give a table of a warehouse another name: its files move to the folder of that name. Raises `InvalidOption` for
    the same name, `UnsupportedFeature` in a catalog, and what `rename` raises."""
    if name == to:
        raise InvalidOption(f"{name} has this name already", hint="give another name")
    rename(*names.folders(name, to), WriteSettings())
    names.forget(name)


def rename(storage: Storage, old: str, new: str, settings: WriteSettings) -> None:
    """Move the table in the folder `old` to the folder `new`, under its lock. A call after an interrupted one finishes
    it; with the folders in the other order it undoes that one. `settings` configure the lock.

    Raises `TableNotFound` if there is no table, `TableExists` if there is anything in the new folder, and
    `CommitConflict` if the lock was lost or another table took the old name.
    """
    source, target = storage_of(storage, old), storage_of(storage, new)
    if _move_of(target) == (new, old) and (_move_of(source) == (new, old) or not has_properties(source)):
        with _locked(target, settings) as check:
            _undo(storage, (new, old), check)
        return
    opened = load_settled(source) if _move_of(source) is None else None
    _look(storage, (old, new))
    with _locked(source, settings) as check:
        move = _move_of(source)
        if move is None:
            now = load_settled(source)  # another process may have renamed it meanwhile
            if opened is not None:
                refuse_other_table(opened, now, source.url())
            _claim(source, target, (old, new), check)
        elif move != (old, new):
            raise _other_move(source, old, move)
        if (mark := _read_mark(source)) is not None:
            _move(storage, mark, (old, new), check)
        _clear(source, check)
    with suppress(FileNotFoundError):
        if next((info for info in source.list() if not info.path.startswith(PASSING)), None) is None:
            storage.delete_folder(old)
    forget_files()


@contextmanager
def _locked(source: Storage, settings: WriteSettings) -> Generator[_Check]:
    """Hold the lock of the table while the block runs, which gets a function that raises an error once it is lost."""
    with writers_lock(source, settings, name_if_readable(source)) as lock:

        def check() -> None:
            if not lock.lock_is_held():
                raise CommitConflict(
                    f"the lock of {source.url()} was lost while it was renamed",
                    hint="Rename it again: what is left to do is done.",
                    kind=ConflictKind.LOCK_LOST,
                )

        yield check


def _other_move(source: Storage, folder: str, move: tuple[str, str]) -> TableExists:
    old, new = (part.replace("/", ".") for part in move)
    return TableExists(
        f"the table {old} is being renamed to {new}"
        + ("" if folder == move[0] else f", and {new} is no table before that is done"),
        hint=f"Finish it first: rename {old} to {new} again; or undo it: rename {new} to {old}.",
        context={"uri": source.url()},
    )


def _look(storage: Storage, move: tuple[str, str]) -> None:
    """Raise what the storage says of a folder that is a link or cannot be listed, before anything is changed."""
    for folder in move:
        database = folder.partition("/")[0]
        storage.list_folders(database)
        for _ in storage.list(folder):
            pass


def _claim(source: Storage, target: Storage, move: tuple[str, str], check: _Check) -> None:
    """Take the new folder, which must be empty, and write down in both what is moved."""
    recover_properties(source)
    stored = source.read_versioned(PROPERTIES_PATH)
    mark = _Mark(
        stored.data.decode(),
        renamed_properties(stored.data, move[1].rpartition("/")[2]).decode(),
        # real Hudi needs the timeline's folder although it is empty
        tuple(f"{HOODIE}/{folder}" for folder in source.list_folders(HOODIE) if folder == "timeline"),
    )
    others = (info.path for info in target.list() if not info.path.startswith(PASSING))
    if any(path != PROPERTIES_PATH for path in others) or not _take(target, move):
        raise _exists(target)
    # if this call ends here, the claim of the new folder is void
    mark.write(source)
    check()
    if not source.put_if_match(PROPERTIES_PATH, moving_properties(*move), stored.version):
        raise CommitConflict(
            f"the settings of {source.url()} were changed while it was renamed",
            hint="Rename it again.",
            kind=ConflictKind.BUSY,
        )


def _take(target: Storage, move: tuple[str, str]) -> bool:
    """Claim the new folder; returns whether it was free, or has the claim of such a call that was interrupted."""
    claim = moving_properties(*move)
    if create_exactly_once(target, PROPERTIES_PATH, claim):
        return True
    version = void_claim(target)
    return version is not None and target.put_if_match(PROPERTIES_PATH, claim, version)


def _exists(target: Storage) -> TableExists:
    return TableExists(
        f"there is a table or other data at {target.url()} already",
        hint="Choose another name.",
        context={"uri": target.url()},
    )


def _move(storage: Storage, mark: _Mark, move: tuple[str, str], check: _Check) -> None:
    """Move the files, and make the new folder the table. If a call that was interrupted did that, nothing there is
    touched."""
    source, target = (storage_of(storage, folder) for folder in move)
    if not mark.moved:
        if not _confirm(target, move):
            # another process took the folder; the table stays where it is
            _undo(storage, move, check)
            raise _exists(target)
        try:
            _move_files(storage, move, check)
        except (LakebedError, OSError):
            with suppress(LakebedError, OSError):
                if all(info.path == PROPERTIES_PATH or info.path.startswith(PASSING) for info in target.list()):
                    _undo(storage, move, check)  # nothing was moved
            raise
        mark = replace(mark, moved=True)
        mark.write(source)
    _finish(target, mark, move, check)
    source.delete(_MARK)


def _confirm(target: Storage, move: tuple[str, str]) -> bool:
    """Make the claim of the new folder one that no other process takes; returns whether the folder is this move's."""
    confirmed = moving_properties(*move, confirmed=True)
    try:
        stored = target.read_versioned(PROPERTIES_PATH)
    except FileNotFoundError:  # an undoing that was interrupted deleted it
        return create_exactly_once(target, PROPERTIES_PATH, confirmed)
    if stored.data == confirmed:
        return True
    return moved_from_to(stored.data) == move and target.put_if_match(PROPERTIES_PATH, confirmed, stored.version)


def _move_files(storage: Storage, folders: tuple[str, str], check: _Check, *, back: bool = False) -> None:
    """Move all files of the table but its properties, and but its list of Iceberg, which has absolute paths: the next
    publication writes it again."""
    old, new = reversed(folders) if back else folders
    lists = () if back else list_files(storage_of(storage, old), ["iceberg"])
    staying: Collection[str] = {PROPERTIES_PATH, BACKUP_PATH, _MARK, *lists}
    below = [info.path.removeprefix(f"{old}/") for info in storage.list(old)]
    moving = [path for path in below if path not in staying and not path.startswith(_NOT_MOVED)]
    move_files(storage, [(f"{old}/{path}", f"{new}/{path}") for path in moving], check)


def _finish(target: Storage, mark: _Mark, move: tuple[str, str], check: _Check) -> None:
    """Give the new folder the table's properties. It may have got them before, and be dropped or renamed since."""
    try:
        stored = target.read_versioned(PROPERTIES_PATH)
    except FileNotFoundError:
        return
    if moved_from_to(stored.data) != move:
        return
    for folder in mark.folders:
        target.make_folder(folder)
    check()
    if not target.put_if_match(PROPERTIES_PATH, mark.properties.encode(), stored.version):
        raise CommitConflict(
            f"another process changed {target.url(PROPERTIES_PATH)} while the table was renamed",
            hint="Rename it again: what is left to do is done.",
            kind=ConflictKind.BUSY,
        )


def _undo(storage: Storage, move: tuple[str, str], check: _Check) -> None:
    """Move the files of an interrupted call back, and make the old folder the table again."""
    source, target = (storage_of(storage, folder) for folder in move)
    mark = _read_mark(source)
    stored = source.read_versioned(PROPERTIES_PATH)
    is_claimed = _move_of(target) == move
    if mark is None or moved_from_to(stored.data) != move or (mark.moved and not is_claimed):
        raise CommitConflict(
            f"the table at {target.url()} has its new name already",
            hint="Rename it, as any other table.",
            context={"uri": target.url()},
            kind=ConflictKind.CHANGED,
        )
    if mark.moved:
        mark = replace(mark, moved=False)
        mark.write(source)
    if is_claimed:
        _move_files(storage, move, check, back=True)
        check()
        target.delete(PROPERTIES_PATH)
    check()
    for folder in mark.folders:
        source.make_folder(folder)
    if not source.put_if_match(PROPERTIES_PATH, mark.before.encode(), stored.version):
        raise CommitConflict(
            f"another process changed {source.url(PROPERTIES_PATH)} while the move was undone",
            hint="Look at both tables.",
            kind=ConflictKind.BUSY,
        )
    source.delete(_MARK)
    forget_files()


def _clear(source: Storage, check: _Check) -> None:
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
        move = moved_from_to(storage.read(PROPERTIES_PATH))
        return None if move is None or void_claim(storage) is not None else move
    except (FileNotFoundError, LakebedError):
        return None


def _read_mark(source: Storage) -> _Mark | None:
    """The mark of a call that is not finished, from the old folder; None if there is none."""
    try:
        mark = json.loads(source.read(_MARK))
        texts = [mark[name] for name in ("before", "properties")]
        if not all(isinstance(text, str) for text in texts) or not isinstance(mark["folders"], list):
            raise TypeError("its properties are no text, or its folders are no list")
        return _Mark(texts[0], texts[1], tuple(map(str, mark["folders"])), moved=mark.get("moved") is True)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFile(
            f"{_MARK} cannot be read: {cause}",
            hint="Restore the file from a copy: it has the table's properties.",
            context={"path": source.url(_MARK)},
        ) from cause

"""Replacing and dropping tables: save mode overwrite, and `drop`. Only files of the table are removed; all else in
the folder stays.

A new table is made inside the old one's folder and takes its place once its rows are there. Whatever fails before
leaves the old table as it was. The deletion of the old `hoodie.properties` is the point of no return. Until the new
file is in its place there is no table, and the next process that opens the table finishes the work. `drop` deletes the
properties first, so that no reader finds half a table.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from lakebed.config.settings import WriteSettings
from lakebed.errors import CommitConflict, ConflictKind, CorruptFile, StorageError, TableNotFound, UnsupportedFeature
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.format.footer_cache import FOOTERS, POSITIONS
from lakebed.format.hfile.entries import BLOCKS
from lakebed.format.hfile.reader import OPENINGS
from lakebed.format.log_file import WRITTEN_LOGS
from lakebed.metadata.slices import HFILES, LOGS
from lakebed.model import HDFS_LOCK_FILE, HOODIE, LOCK_FILE, Action
from lakebed.properties.file import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    has_properties,
    load_same_table,
    load_table_config,
    name_if_readable,
    refuse_moving,
)
from lakebed.properties.table_config import TableConfig
from lakebed.slices.listing import PARTITION_METADATA
from lakebed.storage import open_storage_spec
from lakebed.storage.base import Storage, StorageSpec
from lakebed.storage.parallel import delete_files, is_remote, parallel_map

if TYPE_CHECKING:
    from lakebed.concurrency.lock import Lock

_log = logging.getLogger("lakebed")
# Instants of days, as releases before 0.10 wrote them, and of milliseconds.
_INSTANT_LENGTHS = (14, 17)
# What releases before 1.0 leave in a partition path whose ring of consistent hashing they change.
_RING_COMMIT = re.compile(r"\d{14}(\d{3})?\.commit")
_DISPLAYED = 5
# Where archived instants are.
_HISTORY = (f"{HOODIE}/timeline/history", f"{HOODIE}/archived")


def is_table_file(name: str) -> bool:
    """Whether a file outside `.hoodie` has a name that only a Hudi table's writer chooses: a base file, a log file, the
    metadata of a partition path, or the checksum or unfinished form of one of these.

    >>> is_table_file("a-0_0-1-2_20240102030405006.parquet"), is_table_file("part-0000.parquet")
    (True, False)
    """
    if name.endswith((".crc", ".tmp")):
        name = name[1:-4]  # a dot ahead, and the suffix
    if name.startswith(PARTITION_METADATA) or _RING_COMMIT.fullmatch(name):
        return True
    file = parse_base_file("", name, 0) or parse_log_file("", name, 0)
    return file is not None and len(file.instant) in _INSTANT_LENGTHS


def remove_table_files(
    storage: Storage, retained: Collection[str] = (), check: Callable[[], None] = lambda: None
) -> list[str]:
    """Delete the table's files outside `.hoodie`, except those of the paths `retained`, and the folders that are then
    empty. Returns the paths that stay because they do not belong to the table: other files, and tables in subfolders.
    `check` is called between listing and deleting; an error in it ends the deletion."""
    left: list[str] = []
    for folder in storage.list_folders(""):
        if folder != HOODIE:
            left += _remove_below(storage, folder, retained, check)
    names = storage.list_names("")
    check()
    delete_files(storage, "", [name for name in names if is_table_file(name) and name not in retained])
    return left + [name for name in names if not is_table_file(name) and name not in retained]


def warn_of_left(storage: Storage, left: Sequence[str]) -> None:
    """Warn in the log about the files that stay in the folder."""
    if left:
        more = f" and {len(left) - _DISPLAYED} more" if len(left) > _DISPLAYED else ""
        _log.warning(
            "%s: %d files are not the table's and stay: %s%s",
            storage.url(),
            len(left),
            ", ".join(left[:_DISPLAYED]),
            more,
        )


def _split(storage: Storage, folder: str, retained: Collection[str]) -> tuple[list[str], list[str]]:
    """The table's files below a folder, and the files that stay."""
    paths = [info.path for info in storage.list(folder)]
    nested = tuple({path[: path.index(f"/{HOODIE}/") + 1] for path in paths if f"/{HOODIE}/" in path})
    table_files = [
        path
        for path in paths
        if path not in retained and is_table_file(path.rpartition("/")[2]) and not path.startswith(nested)
    ]
    return table_files, sorted({*paths} - {*table_files})


def _remove_below(storage: Storage, folder: str, retained: Collection[str], check: Callable[[], None]) -> list[str]:
    table_files, staying = _split(storage, folder, retained)
    check()
    if not staying and is_remote(storage):
        storage.delete_folder(folder)
        return []
    by_folder: dict[str, list[str]] = {}
    for path in table_files:
        parent, _, name = path.rpartition("/")
        by_folder.setdefault(parent, []).append(name)
    for parent, names in sorted(by_folder.items(), reverse=True):
        check()
        delete_files(storage, parent, names)
        if not any(path.startswith(f"{parent}/") for path in staying):
            _remove_empty(storage, parent)
    if not staying:
        _remove_empty(storage, folder)
    return [path for path in staying if path not in retained]


def _remove_empty(storage: Storage, folder: str) -> None:
    """Delete a folder, unless a writer of a new table has written a file to it since the old files were listed."""
    if next(storage.list(folder), None) is None:
        storage.delete_folder(folder)


_T = TypeVar("_T")
STAGING = f"{HOODIE}/.overwrite"
_READY = f"{STAGING}/ready.json"
_OWNER = ".owner"
_LOCKS = LOCK_FILE.rpartition("/")[0]
# What belongs to the processes that use a table, not to the table.
PASSING = (f"{_LOCKS}/", HDFS_LOCK_FILE, f"{HOODIE}/.heartbeat/", f"{HOODIE}/.temp/", f"{STAGING}/")
_MOVERS = 16


def recreate(storage: Storage, config: TableConfig, write: Callable[[Storage], _T], lock: Lock) -> _T:
    """Let `write` make a table with its rows in the storage that it is given, and replace the table that has these
    settings by it, under the `lock` of its writers.

    Raises `CommitConflict` or `TableNotFound` if another table is in its place then, or it was renamed or dropped.
    """
    from lakebed.concurrency.heartbeat import this_process

    _remove_leftovers(storage)
    name = uuid.uuid4().hex
    folder = f"{STAGING}/{name}"
    storage.write(folder + _OWNER, json.dumps(this_process().to_json()).encode())
    try:
        result = write(storage_of(storage, folder))
        with lock:
            load_same_table(storage, config)
            _decide(storage, folder, lock)
    except Exception as error:
        undecided = False
        with suppress(Exception):
            undecided = _take_back(storage, folder)
        if undecided and isinstance(error, FileNotFoundError | CorruptFile):
            load_same_table(storage, config)  # a rename or drop moved or deleted the new table's files
        if undecided or not isinstance(error, StorageError):
            raise
        raise StorageError(
            f"the table at {storage.url()} was about to be replaced: {error.message}",
            hint="all new rows are written: open the table, or run the job again, and the rest is done first",
            context=error.context,
        ) from error
    return result


def _take_back(storage: Storage, folder: str) -> bool:
    """Delete the new table in a folder, unless it is decided that it replaces the old one: returns whether that is
    so."""
    named = ""
    with suppress(FileNotFoundError, CorruptFile):
        named = _read_ready(storage)[0]
    if named == folder and storage.head(PROPERTIES_PATH) is None:
        return False
    if named == folder:  # not the mark of a job that holds the lock now
        storage.delete(_READY)
    _drop(storage, folder)
    return True


def storage_of(storage: Storage, folder: str) -> Storage:
    """The storage of a table in a folder below that of another storage."""
    spec = storage.spec
    return open_storage_spec(StorageSpec(f"{spec.uri.rstrip('/')}/{folder}", spec.options))


def move_files(storage: Storage, moves: Sequence[tuple[str, str]], check: Callable[[], None]) -> None:
    """Move files, from and to these paths; those that were moved before are passed over. `check` is called before each
    file; an error in it ends the call."""

    def move(paths: tuple[str, str]) -> None:
        check()
        with suppress(FileNotFoundError):  # moved before
            storage.move(*paths)

    parallel_map(move, moves, _MOVERS if is_remote(storage) else 1)


def load_settled(storage: Storage) -> TableConfig:
    """The table's settings; an overwrite that was interrupted while its table replaced the old one is finished
    first."""
    try:
        return load_table_config(storage)
    except TableNotFound:
        # another process may have finished it since the settings were looked for
        if not finish_interrupted_overwrite(storage) and storage.head(PROPERTIES_PATH) is None:
            raise
    return load_table_config(storage)


def finish_interrupted_overwrite(storage: Storage) -> bool:
    """Finish an overwrite that was interrupted after its decision; returns whether there was one."""
    from lakebed.concurrency.lock import default_lock

    if storage.head(_READY) is None:
        return False
    with default_lock(storage) as lock:
        return _finish(storage, lock)


def _check_lock(storage: Storage, lock: Lock) -> None:
    """Raise `CommitConflict` if another process may have put the new table in place: other writers then use the new
    table, and their files would be deleted as files of the old one."""
    if not lock.lock_is_held():
        raise CommitConflict(
            f"the lock of {storage.url()} was lost while its table was replaced",
            hint="Open the table, or run the job again: what is left to do is done first.",
            kind=ConflictKind.LOCK_LOST,
        )


def _decide(storage: Storage, folder: str, lock: Lock) -> None:
    """Write the file that makes the new table the valid one."""
    below = (info.path.removeprefix(folder + "/") for info in storage.list(folder))
    files = sorted(path for path in below if not path.startswith(PASSING))
    if PROPERTIES_PATH not in files:
        raise CorruptFile(f"the new table in {storage.url(folder)} has lost files", hint="Run the job again.")
    _check_lock(storage, lock)
    storage.write(_READY, json.dumps({"folder": folder, "files": files}).encode())
    storage.delete(BACKUP_PATH)
    _check_lock(storage, lock)
    storage.delete(PROPERTIES_PATH)
    _finish(storage, lock)


def _finish(storage: Storage, lock: Lock) -> bool:
    """Remove every file of the old table, and move every file of the new one into place, the properties last. Each step
    may have been done before. Returns whether there was anything to finish."""
    if has_properties(storage):
        return False
    try:
        folder, files = _read_ready(storage)
    except FileNotFoundError:
        return False
    retained = _RetainedPaths(files)
    left = remove_table_files(storage, retained.files, lambda: _check_lock(storage, lock))
    _clear(storage, HOODIE, retained, lambda: _check_lock(storage, lock))
    moves = [(f"{folder}/{path}", path) for path in files if path != PROPERTIES_PATH]
    move_files(storage, moves, lambda: _check_lock(storage, lock))
    forget_files()
    move_files(storage, [(f"{folder}/{PROPERTIES_PATH}", PROPERTIES_PATH)], lambda: _check_lock(storage, lock))
    _check_lock(storage, lock)
    _drop(storage, folder)
    storage.delete(_READY)
    warn_of_left(storage, left)
    return True


def forget_files() -> None:
    """Empty the process's caches of files: those of a recreated table may have the names and sizes of old ones."""
    for cache in (HFILES, OPENINGS, LOGS, WRITTEN_LOGS, BLOCKS, FOOTERS, POSITIONS):
        cache.clear()


def _read_ready(storage: Storage) -> tuple[str, list[str]]:
    try:
        ready = json.loads(storage.read(_READY))
        folder, files = str(ready["folder"]), [str(path) for path in ready["files"]]
    except (ValueError, KeyError, TypeError) as cause:
        raise CorruptFile(f"{_READY} cannot be read: {cause}", context={"path": _READY}) from cause
    if not folder.startswith(STAGING + "/") or PROPERTIES_PATH not in files:
        raise CorruptFile(f"{_READY} does not describe a new table", context={"path": _READY})
    return folder, files


class _RetainedPaths:
    """The paths that are not deleted, and the folders above them."""

    def __init__(self, files: Collection[str]) -> None:
        self.files = {*files, HDFS_LOCK_FILE}
        self.folders = {STAGING, _LOCKS}
        self.above: set[str] = set()
        for path in (*self.files, *self.folders):
            while path := path.rpartition("/")[0]:
                self.above.add(path)


def _clear(storage: Storage, folder: str, retained: _RetainedPaths, check: Callable[[], None]) -> None:
    for name in storage.list_names(folder):
        if f"{folder}/{name}" not in retained.files:
            check()
            storage.delete(f"{folder}/{name}")
    for name in storage.list_folders(folder):
        path = f"{folder}/{name}"
        check()
        if path in retained.above:
            _clear(storage, path, retained, check)
        elif path not in retained.folders:
            storage.delete_folder(path)


def _drop(storage: Storage, folder: str) -> None:
    storage.delete_folder(folder)
    storage.delete(folder + _OWNER)


def _remove_leftovers(storage: Storage) -> None:
    """Delete the files that interrupted overwrites by dead processes of this machine left."""
    from lakebed.concurrency.heartbeat import ProcessIdentity, has_ended

    for name in storage.list_names(STAGING):
        if not name.endswith(_OWNER):
            continue
        with suppress(FileNotFoundError, ValueError):
            owner = ProcessIdentity.from_json(json.loads(storage.read(f"{STAGING}/{name}")))
            if owner is not None and has_ended(owner):
                _drop(storage, f"{STAGING}/{name.removesuffix(_OWNER)}")


def exists(storage: Storage) -> bool:
    """Whether there is a table, of any version, complete or damaged."""
    try:
        load_settled(storage)
    except TableNotFound:
        return False
    except (CorruptFile, UnsupportedFeature, CommitConflict):
        return True
    return True


def _identity(storage: Storage) -> str:
    """What distinguishes the table here from another one; empty if there is none."""
    try:
        return load_settled(storage).identity
    except TableNotFound:
        return ""
    except (CorruptFile, UnsupportedFeature, CommitConflict):
        # the settings cannot be used: the file itself tells
        for path in (PROPERTIES_PATH, BACKUP_PATH):
            with suppress(FileNotFoundError):
                return f"{path}: {storage.read(path)!r}"
        return ""


def _no_table_to_drop(storage: Storage) -> TableNotFound:
    return TableNotFound(
        f"there is no table at {storage.url()}",
        hint="check the path; lakebed.list_tables(uri, depth=0) checks whether there is one",
        context={"uri": storage.url()},
    )


def remove_interrupted_load(storage: Storage) -> None:
    """Drop the table that a killed load or clone left: a table without commits, whose only instant is the write of a
    process that has ended."""
    from lakebed.concurrency.heartbeat import is_dead
    from lakebed.config.options import resolve_options
    from lakebed.timeline.timeline import load_timeline

    if not has_properties(storage):
        return
    config = load_settled(storage)
    instants = load_timeline(storage, config).instants
    writes = (Action.COMMIT, Action.DELTACOMMIT)
    is_load = len(instants) == 1 and instants[0].action in writes and not instants[0].is_completed
    if is_load and not any(map(storage.list_names, _HISTORY)) and is_dead(storage, instants[0].time):
        drop(storage, resolve_options(None).write)


def drop(storage: Storage, settings: WriteSettings, *, lists: Collection[str] = (), dry_run: bool = False) -> list[str]:
    """Delete a table with all its rows, and the files of its published `lists`, under its lock. Returns the paths of
    files in its folder that do not belong to the table and stay; a dry run deletes nothing. A call after an interrupted
    one finishes it. `settings` configure the lock.

    Raises `TableNotFound` if there is neither a table nor what such a call left of one.
    """
    from lakebed.concurrency.providers import writers_lock

    refuse_moving(storage)
    opened = _identity(storage)
    if not opened and not storage.list_folders(HOODIE):
        raise _no_table_to_drop(storage)
    if dry_run:
        folders = [folder for folder in storage.list_folders("") if folder != HOODIE]
        below = [path for folder in folders for path in _split(storage, folder, ())[1] if path not in lists]
        return below + [name for name in storage.list_names("") if not is_table_file(name)]
    name = name_if_readable(storage)
    with writers_lock(storage, settings, name) as lock:
        _check_lock(storage, lock)
        refuse_moving(storage)
        now = _identity(storage)
        if opened and not now:
            raise _no_table_to_drop(storage)
        if opened != now:
            raise CommitConflict(
                f"the table at {storage.url()} is another one than the one that was to be dropped",
                hint="Nothing was deleted. Look at it, and drop it if it is the one.",
                context={"uri": storage.url()},
                kind=ConflictKind.TABLE,
            )
        storage.delete(BACKUP_PATH)
        storage.delete(PROPERTIES_PATH)
        left = remove_table_files(storage, (), lambda: _check_lock(storage, lock))
        for path in sorted(set(left).intersection(lists)):
            _check_lock(storage, lock)
            storage.delete(path)
        for folder in {path.rpartition("/")[0] for path in lists}:
            _remove_empty(storage, folder)
        left = [path for path in left if path not in lists]
        for folder in storage.list_folders(HOODIE):
            if f"{HOODIE}/{folder}" != _LOCKS:
                _check_lock(storage, lock)
                storage.delete_folder(f"{HOODIE}/{folder}")
        for name in storage.list_names(HOODIE):
            if f"{HOODIE}/{name}" != LOCK_FILE:
                _check_lock(storage, lock)
                storage.delete(f"{HOODIE}/{name}")
    with suppress(FileNotFoundError):
        if storage.head(PROPERTIES_PATH) is None:  # else another process has made a table here
            storage.delete_folder(HOODIE)
    forget_files()
    warn_of_left(storage, left)
    return left

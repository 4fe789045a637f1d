"""`hoodie.properties`: read, checked, created and updated, with its checksum and its backup."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial

from lakebed.errors import (
    CommitConflict,
    ConflictKind,
    CorruptFile,
    LakebedError,
    StorageError,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lakebed.format.text import dump_properties, parse_properties
from lakebed.model import HOODIE
from lakebed.properties.table_config import CURRENT_VERSION, TableConfig
from lakebed.storage.base import Storage, StorageSpec
from lakebed.storage.opening import open_storage_spec

PROPERTIES_PATH = f"{HOODIE}/hoodie.properties"
BACKUP_PATH = f"{PROPERTIES_PATH}.backup"
SUPPORTED_VERSIONS = (6, 8, 9)

_LAYOUT_OF_VERSION = {6: 1, 8: 2, 9: 2}
_CHECKSUM = "hoodie.table.checksum"
_MOVED_FROM, _MOVED_TO, _CONFIRMED = "lakebed.moved.from", "lakebed.moved.to", "lakebed.moved.confirmed"
# Two names of a database and a table each, of 128 letters at most, and the keys.
_MAX_CLAIM = 700
# Releases that know these table versions write a checksum into every table.
_ALWAYS_CHECKSUM = 8
_ALWAYS_THERE = ("hoodie.table.name", "hoodie.table.type", "hoodie.table.version", "hoodie.timeline.layout.version")
_READ_ATTEMPTS = 3
_READ_PAUSE_SECONDS = 0.05


def table_checksum(name: str, database: str = "") -> str:
    """The value of `hoodie.table.checksum`.

    >>> table_checksum("cow9")
    '3987789233'
    """
    return str(zlib.crc32(f"{database}.{name}".encode()))


def load_table_config(storage: Storage) -> TableConfig:
    """The table's settings, read from the backup if an update was interrupted.

    Raises `TableNotFound` if there is no table, `CorruptFile` if neither file can be used, and
    `UnsupportedFeature` for a table version lakebed does not know.
    """
    outcome = _first_valid(storage)
    for _ in range(_READ_ATTEMPTS - 1):
        if isinstance(outcome, dict):
            break
        # An updater may have been between two steps. Broken files are given a moment, missing ones only a second look.
        if isinstance(outcome, CorruptFile):
            time.sleep(_READ_PAUSE_SECONDS)
        outcome = _first_valid(storage)
    if isinstance(outcome, dict):
        return _checked(storage, outcome)
    if isinstance(outcome, CorruptFile):
        raise outcome
    raise _no_table(storage)


def _no_table(storage: Storage) -> TableNotFound:
    return TableNotFound(
        f"there is no table at {storage.url()}: {PROPERTIES_PATH} is missing",
        hint="Check the path, or create the table with lakebed.create.",
        context={"uri": storage.url()},
    )


def load_same_table(storage: Storage, before: TableConfig) -> TableConfig:
    """The present settings of a table that was opened with the settings `before`: what a process asks for when it gets
    a lock that it waited for. Raises `CommitConflict` if another table is in its place or it is being renamed, and
    `TableNotFound` if it was dropped or renamed."""
    now = load_table_config(storage)
    refuse_other_table(before, now, storage.url())
    return now


def refuse_other_table(before: TableConfig, now: TableConfig, where: str) -> None:
    """Raise `CommitConflict` if these are settings of two tables, of which the second took the place of the first."""
    if before.identity != now.identity:
        raise CommitConflict(
            f"the table at {where} is another one than the one that was opened: it was replaced meanwhile",
            hint="Nothing was changed. Open the table, and run it again if it is still to be done.",
            context={"uri": where},
            kind=ConflictKind.TABLE,
        )


def _first_valid(storage: Storage) -> dict[str, str] | CorruptFile | None:
    """The content of the first usable of the file and its backup; the error if none is usable; None if neither
    exists."""
    broken: list[CorruptFile] = []
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        body = b""
        try:
            body = storage.read(path)
            return _valid_properties(body, path)
        except FileNotFoundError:
            continue
        except CorruptFile as cause:
            if not _is_void(storage, body):
                _refuse_moving(body, storage.url())
                broken.append(cause)
    return broken[0] if broken else None


def create_table(storage: Storage, properties: Mapping[str, str]) -> TableConfig:
    """Create an empty table with these properties (see `new_table_properties`), and return its settings.

    Only `hoodie.properties` and the empty timeline are written: real Hudi 1.2.0 cannot make the first commit of a table
    whose timeline is no folder. Raises `TableExists`.
    """
    from lakebed.storage.exactly_once import create_exactly_once

    exists = TableExists(
        f"there is a table at {storage.url()} already",
        hint="Open it with lakebed.open, or choose another path.",
        context={"uri": storage.url()},
    )
    version = None
    if any(storage.head(path) is not None for path in (PROPERTIES_PATH, BACKUP_PATH)):
        version = void_claim(storage)
        if version is None:
            raise exists
    now = datetime.now(UTC)
    body = _body(properties, f"Properties saved on {_iso(now)}", now)
    config = _checked(storage, _valid_properties(body, PROPERTIES_PATH))
    storage.make_folder(config.timeline_path)
    if version is None:
        is_mine = create_exactly_once(storage, PROPERTIES_PATH, body)
    else:
        is_mine = _is_put(storage, PROPERTIES_PATH, body, partial(storage.put_if_match, PROPERTIES_PATH, body, version))
    if not is_mine:
        raise exists
    return config


def renamed_properties(body: bytes, name: str) -> bytes:
    """The content of the file for a table of another name. Raises `CorruptFile` if the content cannot be used."""
    properties = {**_valid_properties(body, PROPERTIES_PATH), "hoodie.table.name": name}
    properties[_CHECKSUM] = table_checksum(name, properties.get("hoodie.database.name", ""))
    now = datetime.now(UTC)
    return _body(properties, f"Renamed at {_iso(now)}", now)


def moving_properties(old: str, new: str, *, confirmed: bool = False) -> bytes:
    """The content of the file in both folders of a table that is being moved, from the folder `old` to `new` of a
    warehouse: no reader takes such a folder for a table. In the new folder it is `confirmed` once the old one has
    it."""
    properties = {_MOVED_FROM: old, _MOVED_TO: new, **({_CONFIRMED: "true"} if confirmed else {})}
    return "".join([f"{key}={value}\n" for key, value in properties.items()]).encode()


def moved_from_to(body: bytes) -> tuple[str, str] | None:
    """The folders of a move, from the content of the file; None for that of a table.

    >>> moved_from_to(moving_properties("sales/items", "sales/parts"))
    ('sales/items', 'sales/parts')
    """
    properties = _examined(body)[0] if body.startswith(_MOVED_FROM.encode()) else {}
    return (properties[_MOVED_FROM], properties[_MOVED_TO]) if _MOVED_TO in properties else None


def void_claim(storage: Storage, folder: str = "") -> str | None:
    """The version of the file in a folder to which a move was begun that never happened: the claim is not confirmed,
    and the old folder has none. None for any other file, and without one. Such a folder is free, and may be taken by
    `put_if_match`."""
    path = f"{folder}/{PROPERTIES_PATH}" if folder else PROPERTIES_PATH
    info = storage.head(path)
    if info is None or info.size > _MAX_CLAIM:
        return None
    try:
        stored = storage.read_versioned(path)
    except FileNotFoundError:
        return None
    return stored.version if _is_void(storage, stored.data, folder) else None


def _is_void(storage: Storage, body: bytes, folder: str = "") -> bool:
    move = None if _CONFIRMED.encode() in body else moved_from_to(body)
    spec = storage.spec
    uri = f"{spec.uri.rstrip('/')}/{folder}" if folder else spec.uri
    if move is None or not uri.endswith(f"/{move[1]}"):
        return False
    old = open_storage_spec(StorageSpec(f"{uri.removesuffix(move[1])}{move[0]}", spec.options))
    source = _read_or_none(old, PROPERTIES_PATH)
    return source is None or moved_from_to(source) != move


def refuse_moving(storage: Storage) -> None:
    """Raise `CommitConflict` for a folder from or to which a table is being moved."""
    body = _read_or_none(storage, PROPERTIES_PATH)
    if body is not None and not _is_void(storage, body):
        _refuse_moving(body, storage.url())


def _refuse_moving(body: bytes, where: str) -> None:
    if (move := moved_from_to(body)) is not None:
        old, new = (folder.replace("/", ".") for folder in move)
        raise CommitConflict(
            f"the table {old} is being renamed to {new}, and some of its files may not be there yet",
            hint=f"If no process does it any more, rename {old} to {new} again, or {new} to {old} to undo it.",
            context={"uri": where, "from": move[0], "to": move[1]},
            kind=ConflictKind.BUSY,
        )


def has_properties(storage: Storage, folder: str = "") -> bool:
    """Whether a folder of the storage is that of a table, readable or not; empty for the root.

    >>> from lakebed.storage import open_storage
    >>> has_properties(open_storage("memory://docs"), "nothing-here")
    False
    """
    start = f"{folder}/" if folder else ""
    info = storage.head(start + PROPERTIES_PATH)
    if info is not None:
        return info.size > _MAX_CLAIM or void_claim(storage, folder) is None
    return storage.head(start + BACKUP_PATH) is not None


def name_if_readable(storage: Storage) -> str:
    """The table's name; empty if there is no table, or its settings cannot be read."""
    try:
        return load_table_config(storage).name
    except LakebedError:
        return ""


def update_table_config(
    storage: Storage, changes: Mapping[str, str | None], lock_is_held: Callable[[], bool]
) -> TableConfig:
    """Set keys, or remove those given as None; all other keys are retained, whether lakebed knows them or not. Returns
    the new settings. The caller holds the table lock; `lock_is_held` returns whether that is still so.

    The old content stays in a backup file until the new one is in place, so a writer that dies at any point leaves a
    table that opens with the old or the new settings. Raises `CommitConflict` if another writer is updating as well, or
    has updated since the file was read, and where the lock was lost.
    """
    recover_properties(storage)
    try:
        stored = storage.read_versioned(PROPERTIES_PATH)
    except FileNotFoundError:
        raise _no_table(storage) from None
    _refuse_moving(stored.data, storage.url())
    old = _valid_properties(stored.data, PROPERTIES_PATH)
    new = {key: value for key, value in {**old, **changes}.items() if value is not None}
    if new == old:
        return _checked(storage, old)
    new[_CHECKSUM] = table_checksum(new["hoodie.table.name"], new.get("hoodie.database.name", ""))
    now = datetime.now(UTC)
    body = _body(new, f"Updated at {_iso(now)}", now)
    config = _checked(storage, _valid_properties(body, PROPERTIES_PATH))
    if not _is_put(storage, BACKUP_PATH, stored.data, partial(storage.put_if_absent, BACKUP_PATH, stored.data)):
        raise CommitConflict(
            f"another writer is updating the settings of {storage.url()}",
            hint="Try again; if it died, the next update recovers from its backup.",
            kind=ConflictKind.BUSY,
        )
    # Hudi deletes the file before it writes the new one; here it is replaced at once, so readers always find one.
    # A writer that stands still, or whose request is late, must not replace what others have written since.
    replace = partial(storage.put_if_match, PROPERTIES_PATH, body, stored.version)
    if not lock_is_held() or not _is_put(storage, PROPERTIES_PATH, body, replace):
        raise CommitConflict(
            f"the table lock of {storage.url()} was lost before its settings were updated",
            hint="Another process took it after it expired; try again.",
            kind=ConflictKind.LOCK_LOST,
        )
    with contextlib.suppress(StorageError):  # the new settings are valid; the next update deletes it
        storage.delete(BACKUP_PATH)
    return config


def mend_properties(storage: Storage, *, dry_run: bool = False) -> str | None:
    """Repair the file: from its backup if it cannot be used, otherwise by adding or correcting its checksum, which
    covers only names. Returns a description of the damage, None if there is none. The caller holds the table lock,
    except for a `dry_run`.

    Raises `CorruptFile` if there is no backup to use and the file lacks what every table has.
    """
    body, backup = _read_or_none(storage, PROPERTIES_PATH), _read_or_none(storage, BACKUP_PATH)
    if body is None and backup is None:
        return None
    if body is not None and _is_valid(body):
        damage = None if backup is None else f"{BACKUP_PATH} is left of an update that was cut short"
    elif backup is not None and _is_valid(backup):
        damage = f"{PROPERTIES_PATH} cannot be used; its backup can"
    else:
        return _mend_checksum(storage, body or b"", dry_run=dry_run)
    if damage is not None and not dry_run:
        recover_properties(storage)
    return damage


def _mend_checksum(storage: Storage, body: bytes, *, dry_run: bool) -> str:
    from lakebed.storage.exactly_once import write_settled

    props = dict(_examined(body)[0])
    if not body.endswith((b"\n", b"\r")) or any(key not in props for key in _ALWAYS_THERE):
        raise CorruptFile(
            f"{PROPERTIES_PATH} cannot be mended: a part of it is missing, and there is no backup of it",
            hint="Restore the file from a copy.",
            context={"path": PROPERTIES_PATH},
        )
    was = props.get(_CHECKSUM)
    props[_CHECKSUM] = table_checksum(props["hoodie.table.name"], props.get("hoodie.database.name", ""))
    if not dry_run:
        now = datetime.now(UTC)
        write_settled(storage, PROPERTIES_PATH, _body(props, f"Updated at {_iso(now)}", now))
        storage.delete(BACKUP_PATH)
    return f"{PROPERTIES_PATH} has {'no checksum' if was is None else 'the checksum of another table name'}"


def _is_put(storage: Storage, path: str, body: bytes, put: Callable[[], bool]) -> bool:
    """Whether `put` wrote this body to the file; False if another writer was first. If the answer was lost, the file is
    read."""
    try:
        return put()
    except StorageError as cause:
        if not cause.context.get("doubtful") or _read_or_none(storage, path) != body:
            raise
        return True


def recover_properties(storage: Storage) -> None:
    """Restore the backup that an unfinished update left, if the file itself cannot be used, and delete the backup."""
    from lakebed.storage.exactly_once import write_settled

    backup = _read_or_none(storage, BACKUP_PATH)
    if backup is None:
        return
    current = _read_or_none(storage, PROPERTIES_PATH)
    if (current is None or not _is_valid(current)) and _is_valid(backup):
        write_settled(storage, PROPERTIES_PATH, backup)
    storage.delete(BACKUP_PATH)


def _read_or_none(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except FileNotFoundError:
        return None


def _is_valid(body: bytes) -> bool:
    try:
        return bool(_valid_properties(body, PROPERTIES_PATH))
    except LakebedError:
        return False


def _valid_properties(body: bytes, path: str) -> dict[str, str]:
    """The properties in the file. Raises `CorruptFile` if the file was cut, names no table or has the checksum of
    another table."""
    try:
        props, wrong = _examined(body)
    except CorruptFile as cause:
        raise CorruptFile(
            f"{path} cannot be used: {cause.message}", hint="Restore the file from a copy.", context={"path": path}
        ) from cause
    if not wrong:
        return dict(props)
    raise CorruptFile(
        f"{path} cannot be used: {wrong}",
        hint="Restore the file from a copy; hoodie.table.name and hoodie.database.name must be those of the table, and"
        " the last line must be a whole one.",
        context={"path": path},
    )


def _wrong(body: bytes, props: Mapping[str, str]) -> str:
    """The damage of the file as text, empty if there is none. A part of the file may lack settings of the table (no
    key, no partitions): the complete file ends with a line end, and from version 8 on it always has a checksum
    (lakebed's as the last line)."""
    name, version = props.get("hoodie.table.name", ""), props.get("hoodie.table.version", "")
    if not body.endswith((b"\n", b"\r")):
        return "its end is missing (it does not end with a line end)"
    if not name:
        return "it does not name the table"
    stored, expected = props.get(_CHECKSUM), table_checksum(name, props.get("hoodie.database.name", ""))
    new = version.isdecimal() and int(version) >= _ALWAYS_CHECKSUM
    if stored is None and (new or "hoodie.timeline.layout.version" not in props):
        return f"a part of it is missing (it has no {_CHECKSUM})"
    return "" if stored in (None, expected) else f"its checksum is {stored}, not {expected}"


def _body(props: Mapping[str, str], comment: str, now: datetime) -> bytes:
    """The content of the file, with the checksum in the last line, so that a file that was cut has none."""
    last = {key: props[key] for key in (_CHECKSUM,) if key in props}
    return dump_properties({**{k: v for k, v in props.items() if k not in last}, **last}, comment, now)


@lru_cache(maxsize=64)  # a commit reads the two tables' files several times, and they rarely change
def _examined(body: bytes) -> tuple[Mapping[str, str], str]:
    """The properties in the file, and its damage."""
    props = parse_properties(body)
    return props, _wrong(body, props)


def _checked(storage: Storage, props: Mapping[str, str]) -> TableConfig:
    """The settings. Raises an error if lakebed does not support this kind of table."""
    where = storage.url()
    layout = props.get("hoodie.timeline.layout.version", "")
    if not layout:
        raise TableNotFound(
            f"{where} is not a table lakebed can open: {PROPERTIES_PATH} has no hoodie.timeline.layout.version",
            hint="It was made before release 0.5, or the file was edited; upgrade the table with Hudi first.",
            context={"uri": where},
        )
    version = props.get("hoodie.table.version") or str(CURRENT_VERSION)
    if version not in map(str, SUPPORTED_VERSIONS):
        raise UnsupportedFeature(
            f"{where} has table version {version}; lakebed reads and writes versions 6, 8 and 9",
            hint=_version_hint(version),
            context={"uri": where, "version": version},
        )
    if layout != str(_LAYOUT_OF_VERSION[int(version)]):
        raise CorruptFile(
            f"{where} has table version {version} but timeline layout {layout}",
            hint=f"Version {version} goes with layout {_LAYOUT_OF_VERSION[int(version)]}: an upgrade or downgrade was "
            "cut short; run it again with Hudi.",
            context={"path": PROPERTIES_PATH},
        )
    return TableConfig(dict(props))


def _version_hint(version: str) -> str:
    if version.isdecimal() and (len(version) > 1 or int(version) > CURRENT_VERSION):
        return "A newer release of Hudi wrote it; use a newer lakebed, or downgrade the table to version 9 with Hudi."
    return "Upgrade the table to version 9 with Hudi (call upgrade_table), then open it again."


def _iso(when: datetime) -> str:
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")

"""The archived timeline: the LSM history of version 8 and later, the log archive of version 6. Read when asked."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptFile
from lakebed.format.avro.encoder import decode_record, is_avro_file, write_avro_file
from lakebed.format.base_file import naming_parquet
from lakebed.format.log_file import BlockType, LogBlock, avro_records, read_blocks
from lakebed.format.text import parse_json_object
from lakebed.model import COMMIT_ACTIONS, Action, CommitMetadata, Instant, State
from lakebed.properties.table_config import TableConfig
from lakebed.sharing import once
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.commit import commit_from_record, decode_commit
from lakebed.timeline.bodies.encoding import ARCHIVED, check_shape, schema_text
from lakebed.timeline.bodies.rollback import decode_action
from lakebed.timeline.instants import completes_as

_LSM_FILE = re.compile(r"^([0-9]+)_([0-9]+)_([0-9])\.parquet$")
_LOG_FILE = re.compile(r"^\.commits_\.archive\.([0-9]{1,18})")
_VERSION = re.compile(r"[0-9]{1,18}")
_MANIFEST = re.compile(r"manifest_[0-9]{1,18}")
_MANIFEST_ATTEMPTS = 3
# Rows that are read together from a file that is read completely.
_ROWS_AT_A_TIME = 64
INITIAL_VERSION = "hoodie.table.initial.version"
_BEFORE_HISTORY = ("6", "7")
_TIME_COLUMNS = ["instantTime", "completionTime", "action"]
_COMMIT_ACTIONS = tuple(action.value for action in COMMIT_ACTIONS)
_ACTIONS = {action.value: action for action in Action}
_STATES = {state.name: state for state in State}
ARCHIVE_HINT = "It holds archived instants; restore it from a copy."
# The record names of bodies and plans by action, for a history that Hudi 1.0 made from a version 6 archive: there they
# have no header.
_RECORDS = {
    "metadata": {
        **dict.fromkeys(("commit", "deltacommit"), "HoodieCommitMetadata"),
        "replacecommit": "HoodieReplaceCommitMetadata",
        "clean": "HoodieCleanMetadata",
        "rollback": "HoodieRollbackMetadata",
        "restore": "HoodieRestoreMetadata",
        "savepoint": "HoodieSavepointMetadata",
        "indexing": "HoodieIndexCommitMetadata",
    },
    "plan": {
        **dict.fromkeys(("commit", "deltacommit"), "HoodieCompactionPlan"),
        "replacecommit": "HoodieRequestedReplaceMetadata",
        "clean": "HoodieCleanerPlan",
        "rollback": "HoodieRollbackPlan",
        "restore": "HoodieRestorePlan",
        "indexing": "HoodieIndexPlan",
    },
}
# Fields of a version 6 archive entry that hold a commit's body, and a plan.
_ENTRY_COMMITS = ("hoodieCommitMetadata", "hoodieReplaceCommitMetadata")
_ENTRY_PLANS = ("hoodieCompactionPlan", "hoodieCleanerPlan", "hoodieRequestedReplaceMetadata")


@dataclass(frozen=True, slots=True)
class LsmFile:
    """A file of the history and the range of instants in it."""

    name: str
    size: int
    first: str
    last: str


class ArchivedTimeline:
    """The instants that archival moved from the active timeline. On versions 8 and later only files with a matching
    range of instants are opened, and only the needed columns are read."""

    def __init__(self, storage: Storage, config: TableConfig) -> None:
        self._source = LsmHistory(storage, config) if config.layout == 2 else LogArchive(storage, config)

    @property
    def instants(self) -> tuple[Instant, ...]:
        """All archived instants in order, each in its highest state."""
        return self._source.instants

    def instants_between(self, first: str, last: str) -> tuple[Instant, ...]:
        """The archived instants with a requested time from `first` to `last`; earlier and later ones may be among
        them."""
        return self._source.instants_between(first, last)

    def completion_time(self, time: str) -> str | None:
        """The completion time of an archived instant; None for an unknown one and on version 6."""
        return self._source.completion_time(time)

    def commit_metadata(self, time: str) -> CommitMetadata:
        """The body of an archived commit. Raises `FileNotFoundError` if the instant is not archived."""
        return self._source.commit_metadata(time)

    def plan(self, time: str) -> dict[str, Any]:
        """The plan of an archived compaction, clustering or clean; empty if there is none."""
        return self._source.plan(time)


@dataclass(frozen=True, eq=False)
class LsmHistory:
    """The archive from version 8 on: history files that the newest manifest names."""

    storage: Storage
    config: TableConfig
    _times: dict[str, dict[tuple[str, str], str | None]] = field(
        default_factory=dict[str, dict[tuple[str, str], "str | None"]]
    )

    @once
    def files(self) -> tuple[LsmFile, ...]:
        """The files of the history, from the manifest of the current version; other files are leftovers."""
        for attempt in range(_MANIFEST_ATTEMPTS):
            version = self._version()
            if version is None:
                return ()
            path = f"{self.config.archive_folder}/manifest_{version}"
            try:
                return manifest_files(self.storage.read(path), path)
            except FileNotFoundError:
                # A writer took a newer version meanwhile and removed this one.
                if attempt == _MANIFEST_ATTEMPTS - 1:
                    raise
        return ()

    @once
    def instants(self) -> tuple[Instant, ...]:
        return self._instants_in(self.files)

    def instants_between(self, first: str, last: str) -> tuple[Instant, ...]:
        return self._instants_in(self._meeting(first, last))

    def _instants_in(self, files: Sequence[LsmFile]) -> tuple[Instant, ...]:
        instants: set[Instant] = set()
        for file in files:
            for (time, action), completed in self._times_of(file).items():
                if action in _ACTIONS:
                    instants.add(Instant(time, _ACTIONS[action], State.COMPLETED, completed))
        return tuple(sorted(instants, key=lambda i: (i.time, i.action.value)))

    def completion_time(self, time: str) -> str | None:
        """A commit's completion time, or that of another action with this requested time; None if there is none."""
        for file in self._holding(time):
            times = {action: done for (at, action), done in self._times_of(file).items() if at == time}
            completed_times = [times[a] for a in _COMMIT_ACTIONS if a in times] or list(times.values())
            if completed_times:
                return completed_times[0] or time
        return None

    def commit_metadata(self, time: str) -> CommitMetadata:
        path, body = self._column(time, "metadata")
        if not body:
            raise CorruptFile(
                f"{path} holds no body of the commit {time}",
                hint="Restore the file from a copy.",
                context={"path": path, "instant": time},
            )
        return decode_commit(body, path)

    def plan(self, time: str) -> dict[str, Any]:
        path, body = self._column(time, "plan")
        return decode_action(body, path)

    def _version(self) -> str | None:
        """The version of the archive to read: the one in the version file, or the highest if that file is missing (it
        is deleted, then written again). None if there is no version."""
        try:
            path = f"{self.config.archive_folder}/_version_"
            text = self.storage.read(path).decode("ascii", "replace").strip()
            if not _VERSION.fullmatch(text):
                raise CorruptFile(f"{path} names no version: {text[:40]!r}", context={"path": path})
            return text
        except FileNotFoundError:
            names = self.storage.list_names(self.config.archive_folder)
            versions = [int(n.removeprefix("manifest_")) for n in names if _MANIFEST.fullmatch(n)]
            return str(max(versions)) if versions else None

    def _holding(self, time: str) -> Iterator[LsmFile]:
        """The files that hold an instant of this requested time."""
        for file in self._meeting(time, time):
            if any(at == time for at, _ in self._times_of(file)):
                yield file

    def _meeting(self, first: str, last: str) -> list[LsmFile]:
        """The files that may have instants of these requested times, by their names. In a table that an upgrade of Hudi
        brought from version 6 all files match: names of upgraded files have the instants of their first and last rows,
        which are not sorted."""
        return [file for file in self.files if (file.first <= last and first <= file.last) or self._is_upgraded]

    @once
    def _is_upgraded(self) -> bool:
        return self.config.properties.get(INITIAL_VERSION, "") in _BEFORE_HISTORY

    def _times_of(self, file: LsmFile) -> dict[tuple[str, str], str | None]:
        if file.name not in self._times:
            table = self._read(file, _TIME_COLUMNS)
            times, completed, actions = (table.column(name).to_pylist() for name in _TIME_COLUMNS)
            self._times[file.name] = dict(zip(zip(times, actions, strict=True), completed, strict=True))
        return self._times[file.name]

    def _column(self, time: str, column: str) -> tuple[str, bytes]:
        """The file a commit's row is in, and the row's bytes in this column (empty for null)."""
        for file in self._holding(time):
            table = self._read(file, ["instantTime", "action", column])
            rows = table.filter(pc.field("instantTime") == time)
            commits = rows.filter(pc.field("action").isin(list(_COMMIT_ACTIONS)))
            rows = commits if commits.num_rows or column == "metadata" else rows
            if rows.num_rows:
                path, action = f"{self.config.archive_folder}/{file.name}", rows["action"][0].as_py()
                return path, with_header(rows[column][0].as_py() or b"", action, column, path)
        raise FileNotFoundError(f"instant {time} is not in the archived timeline of {self.storage.url()}")

    def rows(self, file: LsmFile) -> pa.Table:
        """All instants of a file, with all columns."""
        return self._read(file, [*_TIME_COLUMNS, "metadata", "plan"])

    def _read(self, file: LsmFile, columns: list[str]) -> pa.Table:
        path = f"{self.config.archive_folder}/{file.name}"
        with naming_parquet(path, ARCHIVE_HINT, "history file"):
            rows = read_history(self.storage, path, file.size, columns)
            kinds = {name: pa.binary() if name in ("metadata", "plan") else pa.string() for name in columns}
            return rows.cast(pa.schema([rows.schema.field(n).with_type(kinds[n]) for n in rows.schema.names]))


def with_header(data: bytes, action: str, column: str, path: str) -> bytes:
    """The body or plan (`column`: "metadata" or "plan") of an instant in the form of its file on the active timeline.

    Hudi 1.0, as it upgrades a version 6 table, puts records into the history without the header of an Avro file. No
    such record begins as JSON does. Raises `CorruptFile` naming `path` where the bytes are none of these.
    """
    name = _RECORDS[column].get(action)
    if not data or is_avro_file(data) or data[:1] == b"{" or name is None:
        return data
    schema = schema_text(name)
    try:
        return write_avro_file(schema, decode_record(schema, data))
    except Exception as cause:  # on broken bytes fastavro raises many kinds of errors
        raise CorruptFile(
            f"{path}: the {column} of a {action} cannot be decoded: {cause or repr(cause)}",
            hint=ARCHIVE_HINT,
            context={"path": path},
        ) from cause


@dataclass(frozen=True, eq=False)
class LogArchive:
    """The version 6 archive: log files with one entry for each state that an instant had."""

    storage: Storage
    config: TableConfig

    @once
    def instants(self) -> tuple[Instant, ...]:
        highest: dict[tuple[str, Action], Instant] = {}
        for entry in self.entries:
            action = _ACTIONS.get(entry.get("actionType") or "")
            if action is None:
                continue
            state = _STATES.get(entry.get("actionState") or State.COMPLETED.name)
            if state is None:
                continue
            instant = Instant(entry.get("commitTime") or "", action, state)
            key = instant.time, completes_as(instant.action)
            if key not in highest or highest[key].state < state:
                highest[key] = instant
        return tuple(sorted(highest.values(), key=lambda i: (i.time, i.action.value)))

    def instants_between(self, first: str, last: str) -> tuple[Instant, ...]:
        return self.instants  # each entry is read to see its time

    def completion_time(self, time: str) -> str | None:
        """Always None: version 6 has no completion times."""
        return None

    def commit_metadata(self, time: str) -> CommitMetadata:
        return commit_from_record(self._body(time, _ENTRY_COMMITS, completed=True))

    def plan(self, time: str) -> dict[str, Any]:
        try:
            return dict(self._body(time, _ENTRY_PLANS, completed=False))
        except FileNotFoundError:
            return {}

    def _body(self, time: str, names: tuple[str, ...], *, completed: bool) -> Mapping[str, Any]:
        for entry in self.entries:
            done = (entry.get("actionState") or "COMPLETED") == "COMPLETED"
            if entry.get("commitTime") == time and done == completed:
                body = next((entry[name] for name in names if entry.get(name)), None)
                if body is not None:
                    return body
        raise FileNotFoundError(f"instant {time} is not in the archived timeline of {self.storage.url()}")

    @once
    def entries(self) -> list[dict[str, Any]]:
        """All entries, in the order in which they were archived."""
        files = [
            (int(match[1]), info.path)
            for info in self.storage.list(self.config.archive_folder, recursive=False)
            if (match := _LOG_FILE.match(info.path.rpartition("/")[2]))
        ]
        return [
            entry
            for _, path in sorted(files)
            for block in _complete_blocks(self.storage.read(path), path)
            if block.type is BlockType.AVRO_DATA
            for entry in _checked_entries(avro_records(block, path), path)
        ]


def _complete_blocks(data: bytes, path: str) -> list[LogBlock]:
    """The blocks of a file of the archive. Raises `CorruptFile` for an incomplete block, since a lost entry would be a
    commit whose rows no reader finds."""
    blocks = read_blocks(data, path)
    for block in blocks:
        if block.type is BlockType.CORRUPT:
            raise CorruptFile(
                f"{path}: the block at offset {block.offset} is cut off or was changed",
                hint=ARCHIVE_HINT,
                context={"path": path, "offset": block.offset},
            )
    return blocks


def _checked_entries(entries: list[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    for entry in entries:
        check_shape(entry, ARCHIVED, path)
    return entries


def read_history(storage: Storage, path: str, size: int, columns: list[str] | None = None) -> pa.Table:
    """The rows of a history file. Raises Arrow's errors, and `ValueError` for a file of another size."""
    with _opened(storage, path, size) as source:
        return pq.read_table(source, columns=columns)


def history_parts(storage: Storage, path: str, size: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a history file, as tables of some rows each: bodies of commits may be large. Raises Arrow's errors,
    and `ValueError` for a file of another size."""
    with _opened(storage, path, size) as source:
        file = pq.ParquetFile(source, pre_buffer=False)
        # Arrow's threads would keep the memory of bodies that they have read
        for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=[*columns], use_threads=False):
            yield pa.Table.from_batches([batch])


@contextmanager
def _opened(storage: Storage, path: str, size: int) -> Generator[pa.NativeFile]:
    with storage.open_input(path, size) as source:
        if source.size() != size:
            raise ValueError(f"it has {source.size()} bytes, its manifest has {size}")
        yield source


def manifest_files(body: bytes, path: str) -> tuple[LsmFile, ...]:
    """The files that a manifest of the history names. Raises `CorruptFile`."""
    try:
        entries = parse_json_object(body, path)["files"]
        sizes = {entry["fileName"]: int(entry["fileLen"]) for entry in entries}
        matches = [(name, _LSM_FILE.match(name)) for name in sizes]
    except (CorruptFile, ValueError, KeyError, TypeError, OverflowError) as cause:
        raise CorruptFile(f"{path} is no manifest of the archived timeline", context={"path": path}) from cause
    return tuple(LsmFile(name, sizes[name], match[1], match[2]) for name, match in matches if match)

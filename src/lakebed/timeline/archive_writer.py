"""Moving instants from the active timeline to the archived one: the LSM history of version 8 and later, the log archive
of version 6. The instants are in the archive before their files are deleted.

If a process is suspended for longer than its lock is valid, it notices that before it changes what another one has
archived meanwhile: it creates only files that must not exist, and replaces only the version that it has read.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CommitConflict, ConflictKind, StorageError
from lakebed.format.avro.encoder import encoder_of
from lakebed.format.base_file import AVRO_SCHEMA_KEY, naming_parquet
from lakebed.format.log_file import avro_data_block, block_bytes
from lakebed.model import Action, Instant, State, path_in
from lakebed.storage.atomic_file import remove_asides
from lakebed.storage.base import Storage, Versioned
from lakebed.storage.exactly_once import create_exactly_once
from lakebed.storage.parallel import delete_files, is_remote, parallel_map
from lakebed.timeline.archive import ARCHIVE_HINT, LsmFile, LsmHistory, history_parts, manifest_files
from lakebed.timeline.bodies.encoding import pretty_json, schema_text
from lakebed.timeline.bodies.rollback import decode_action
from lakebed.timeline.instants import completes_as, inflight_name, parse_instant_file, without_suffix
from lakebed.timeline.timeline import Timeline

# The number of files of a level that are merged into one of the next, and of manifests retained for running readers.
_FILES_A_LEVEL = 10
_RETAINED_MANIFESTS = 3
# Files are merged up to this many bytes.
_MERGED_BYTES = 64 << 20
# Bytes of bodies in a row group, which are in memory together.
_GROUP_BYTES = 16 << 20
# The level of files that several archivals contributed to.
_COPIED_LEVEL = 1
# Bodies that are read at a time from a storage with slow answers.
_READERS = 16
# Entries in a block of the version 6 archive.
_ENTRIES_A_BLOCK = 10
HISTORY = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_PLANNED = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING, Action.CLEAN)
# A version 6 clustering is a replacecommit: its plan is in the requested file.
_REPLACE_FIELDS = {
    State.REQUESTED: "hoodieRequestedReplaceMetadata",
    State.INFLIGHT: "HoodieInflightReplaceMetadata",
    State.COMPLETED: "hoodieReplaceCommitMetadata",
}
_MANIFEST = re.compile(r"manifest_(\d+)")
_LEVEL = re.compile(r"_(\d)\.parquet$")
ARCHIVE_FILE = re.compile(r"\d+_\d+_\d\.parquet|manifest_\d+|_version_")
"""Names of the files of a history."""
LOG_ARCHIVE = re.compile(r"\.commits_\.archive\.(\d+)")


def archive(timeline: Timeline, instants: Sequence[Instant], lock_is_held: Callable[[], bool]) -> None:
    """Archive these completed instants of the timeline. The caller holds the lock. Raises `CommitConflict` if it was
    lost, and another process may have archived them, too.

    Instants that an interrupted archival left on both timelines are only removed from the active one.
    """
    if not instants:
        return
    ordered = sorted(instants, key=lambda i: (i.time, i.action.value))
    archived = timeline.archived().instants_between(ordered[0].time, ordered[-1].time)
    archived_keys = {(i.time, i.action) for i in archived}
    new = [i for i in ordered if (i.time, i.action) not in archived_keys]
    files = _Files(timeline)
    if new:
        _check_lock(timeline.storage, lock_is_held)
        remove_asides(timeline.storage, timeline.config.archive_folder)
    if new and timeline.config.layout == 2:
        _append_to_history(timeline, new, lock_is_held)
    elif new:
        _append_to_log(timeline, new, files, lock_is_held)
    _remove(timeline, [entry for instant in ordered for entry in files.of(instant)])


class _Files:
    """The timeline files of each instant with the state that each file proves, pending ones first. Names are parsed
    once for all instants."""

    def __init__(self, timeline: Timeline) -> None:
        self._of: dict[tuple[str, Action], list[tuple[State, str]]] = {}
        for name in timeline.files:
            if parsed := parse_instant_file(name, timeline.config.version):
                self._of.setdefault((parsed.time, completes_as(parsed.action)), []).append((parsed.state, name))

    def of(self, instant: Instant) -> list[tuple[State, str]]:
        return sorted(self._of.get((instant.time, completes_as(instant.action)), []))


def _remove(timeline: Timeline, files: Sequence[tuple[State, str]]) -> None:
    """Delete files of instants: first all pending ones, so that no instant becomes pending again, then the completed
    ones one by one, oldest first. If a newer commit were deleted before an older one, its rows would be hidden; if a
    clean were deleted before earlier commits, the deletion of their files would be hidden."""
    names = {done: [name for state, name in files if (state is State.COMPLETED) == done] for done in (False, True)}
    folder = timeline.config.timeline_path
    delete_files(timeline.storage, folder, names[False])
    for name in names[True]:
        timeline.storage.delete(path_in(folder, name), durable=name == names[True][-1])


def _check_lock(storage: Storage, lock_is_held: Callable[[], bool]) -> None:
    if not lock_is_held():
        raise _overtaken(storage)


def _overtaken(storage: Storage) -> CommitConflict:
    return CommitConflict(
        f"the lock of {storage.url()} was lost while its timeline was archived",
        hint="Another process took it after it expired; the next archival does what is left to do.",
        kind=ConflictKind.LOCK_LOST,
    )


# the history of version 8 and later


def _append_to_history(timeline: Timeline, instants: Sequence[Instant], lock_is_held: Callable[[], bool]) -> None:
    writer = _HistoryWriter(timeline.storage, timeline.config.archive_folder, lock_is_held)
    files = list(LsmHistory(timeline.storage, timeline.config).files)
    at_once = _READERS if is_remote(timeline.storage) else 1
    rows = parallel_map(partial(_history_row, timeline), instants, at_once)
    name = f"{instants[0].time}_{instants[-1].time}_0.parquet"
    if all(file.name != name for file in files):
        files.append(writer.write(name, [pa.Table.from_pylist(rows, HISTORY)]))
        writer.publish(files)
    _merge_levels(timeline, files, writer)


def _history_row(timeline: Timeline, instant: Instant) -> dict[str, Any]:
    plan = None
    requested = timeline.requested.get((instant.time, completes_as(instant.action)))
    planned = parse_instant_file(requested, timeline.config.version) if requested else None
    if requested and planned and planned.action in _PLANNED:
        plan = _body(timeline, requested)
    elif instant.action is Action.REPLACECOMMIT:
        inflight = inflight_name(instant.action, instant.time, timeline.config.version)
        plan = _body(timeline, inflight) if inflight in timeline.files else None
        # an empty inflight file has no content: the requested one has the plan
        plan = plan or (_body(timeline, requested) if requested else None)
    return {
        "instantTime": instant.time,
        "completionTime": instant.completion_time,
        "action": instant.action.value,
        "metadata": _body(timeline, instant.file_name),
        "plan": plan or None,
        "version": 1,
    }


def write_history(storage: Storage, folder: str, tables: Iterable[pa.Table], lock_is_held: Callable[[], bool]) -> None:
    """Write a history with these instants, one file per table, if there is no history. The caller holds the lock.
    Raises `CommitConflict` if it was lost."""
    writer = _HistoryWriter(storage, folder, lock_is_held)
    files = [writer.write(_merged_name([rows["instantTime"]], _COPIED_LEVEL), [rows]) for rows in tables]
    if files:
        writer.publish(files)


def _merged_name(times: Sequence[pa.ChunkedArray], level: int) -> str:
    ends = [pc.min_max(column).as_py() for column in times]
    return f"{min(end['min'] for end in ends)}_{max(end['max'] for end in ends)}_{level}.parquet"


class _HistoryWriter:
    """A writer that writes files of a history, and publishes lists of files as the history, each under the next
    version."""

    def __init__(self, storage: Storage, folder: str, lock_is_held: Callable[[], bool]) -> None:
        self._storage, self._folder, self._lock_is_held = storage, folder, lock_is_held
        self._number = max(_manifests(storage, folder), default=0)
        self._version = self._read_version()

    def write(self, name: str, tables: Iterable[pa.Table]) -> LsmFile:
        """Write a file with the rows of these tables."""
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, HISTORY, compression="gzip", store_schema=False, use_dictionary=False) as writer:
            for rows in tables:
                writer.write_table(rows)
            writer.add_key_value_metadata(_footer())
        path, body = f"{self._folder}/{name}", sink.getvalue()
        self.check_lock()
        if not create_exactly_once(self._storage, path, body):  # it is no file of the history
            self.check_lock()
            self._storage.write(path, body)
        first, last = name.split("_")[:2]
        return LsmFile(name, len(body), first, last)

    def publish(self, files: Sequence[LsmFile]) -> None:
        """Publish these files as the history. Raises `CommitConflict` if another process has published a version since
        this one read the history: that process's files would be lost."""
        current = self._read_version()
        if (current and current.data) != (self._version and self._version.data):
            raise _overtaken(self._storage)
        number = self._number + 1
        body = _manifest([{"fileName": file.name, "fileLen": file.size} for file in files])
        self.check_lock()
        if not create_exactly_once(self._storage, f"{self._folder}/manifest_{number}", body):
            raise _overtaken(self._storage)
        if not self._is_put(str(number).encode(), current.version if current else None):
            raise _overtaken(self._storage)
        self._number, self._version = number, self._read_version()

    def check_lock(self) -> None:
        _check_lock(self._storage, self._lock_is_held)

    def _read_version(self) -> Versioned | None:
        try:
            return self._storage.read_versioned(f"{self._folder}/_version_")
        except FileNotFoundError:
            return None

    def _is_put(self, body: bytes, version: str | None) -> bool:
        """Whether this process wrote the version file's body; if the answer was lost, the file is read back."""
        try:
            return self._storage.put_if_match(f"{self._folder}/_version_", body, version)
        except StorageError as cause:
            now = self._read_version() if cause.context.get("doubtful") else None
            if now is None or now.data != body:
                raise
            return True


def _footer() -> dict[str, str]:
    fields: list[dict[str, Any]] = [
        {"name": field, "type": ["null", {"type": "string", "avro.java.string": "String"}], "default": None}
        for field in ("instantTime", "completionTime", "action")
    ]
    fields += [{"name": field, "type": ["null", "bytes"], "default": None} for field in ("metadata", "plan")]
    fields.append({"name": "version", "type": "int", "default": 1})
    record = {
        "type": "record",
        "name": "HoodieLSMTimelineInstant",
        "namespace": "org.apache.hudi.avro.model",
        "fields": fields,
    }
    return {AVRO_SCHEMA_KEY: json.dumps(record, separators=(",", ":")), "writer.model.name": "avro"}


def _manifest(entries: Sequence[dict[str, Any]]) -> bytes:
    """The JSON of a manifest in Hudi's layout, with the entries' braces on the line of the list."""
    objects = ", ".join(pretty_json(entry, 1) for entry in entries)
    return f'{{\n  "files" : [ {objects} ]\n}}'.encode()


def _manifests(storage: Storage, folder: str) -> list[int]:
    return sorted(int(match[1]) for name in storage.list_names(folder) if (match := _MANIFEST.fullmatch(name)))


def _merge_levels(timeline: Timeline, files: list[LsmFile], writer: _HistoryWriter) -> None:
    """Merge the files of a level into one of the next level if there are many, then delete files that readers cannot
    need any more."""
    for level in range(9):
        level_files = [file for file in files if (match := _LEVEL.search(file.name)) and int(match[1]) == level]
        if len(level_files) < _FILES_A_LEVEL or len(merged := _oldest_that_fit(level_files)) < 2:
            continue
        times = [rows["instantTime"] for file in merged for rows in _parts(timeline, file, ["instantTime"])]
        name = _merged_name(times, level + 1)
        rows = (part for file in merged for part in _parts(timeline, file))
        files = [file for file in files if file not in merged] + [writer.write(name, _row_groups(rows))]
        writer.publish(files)
    _drop_old(timeline.storage, timeline.config.archive_folder, writer)


def _oldest_that_fit(files: Sequence[LsmFile]) -> list[LsmFile]:
    """The oldest files of a level that are merged into one file of the next level. A file that is too large to be
    merged with another is not among them."""
    oldest: list[LsmFile] = []
    for file in sorted(files, key=lambda file: (file.first, file.last)):
        if sum(f.size for f in oldest) + file.size > _MERGED_BYTES:
            if len(oldest) > 1:
                break
            oldest = []
        oldest.append(file)
        if len(oldest) == _FILES_A_LEVEL:
            break
    return oldest


def _parts(timeline: Timeline, file: LsmFile, columns: Sequence[str] = HISTORY.names) -> Iterator[pa.Table]:
    """The rows of a file, some at a time: bodies of commits may be large."""
    path = f"{timeline.config.archive_folder}/{file.name}"
    with naming_parquet(path, ARCHIVE_HINT, "history file"):
        for part in history_parts(timeline.storage, path, file.size, columns):
            yield part.cast(pa.schema([HISTORY.field(name) for name in columns]))


def _row_groups(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of the parts in larger tables: small parts are combined."""
    group: list[pa.Table] = []
    for part in parts:
        group.append(part)
        if sum(table.nbytes for table in group) >= _GROUP_BYTES:
            yield pa.concat_tables(group)
            group = []
    if group:
        yield pa.concat_tables(group)


def _drop_old(storage: Storage, folder: str, writer: _HistoryWriter) -> None:
    """Delete the manifests that readers cannot need any more, and files that are in no other manifest."""
    names = storage.list_names(folder)  # under the lock: no file of another process is still unpublished
    numbers = sorted(int(match[1]) for name in names if (match := _MANIFEST.fullmatch(name)))
    if len(numbers) <= _RETAINED_MANIFESTS:
        return
    named: set[str] = set()
    for number in numbers[-_RETAINED_MANIFESTS:]:
        path = f"{folder}/manifest_{number}"
        named |= {file.name for file in manifest_files(storage.read(path), path)}
    writer.check_lock()
    for number in numbers[:-_RETAINED_MANIFESTS]:
        storage.delete(f"{folder}/manifest_{number}")
    for name in names:
        if _LEVEL.search(name) and name not in named:
            storage.delete(f"{folder}/{name}")


# the log archive of version 6


def _append_to_log(
    timeline: Timeline, instants: Sequence[Instant], files: _Files, lock_is_held: Callable[[], bool]
) -> None:
    folder = timeline.config.archive_folder
    names = timeline.storage.list_names(folder)
    number = max((int(match[1]) for name in names if (match := LOG_ARCHIVE.match(name))), default=0) + 1
    entries = [_log_entry(timeline, instant, state, name) for instant in instants for state, name in files.of(instant)]
    _check_lock(timeline.storage, lock_is_held)
    if not create_exactly_once(timeline.storage, f"{folder}/{_log_archive_name(number)}", _log_archive(entries)):
        raise _overtaken(timeline.storage)


def write_log_archive(storage: Storage, folder: str, number: int, entries: Sequence[dict[str, Any]]) -> None:
    """Write the file of this number of a version 6 archive."""
    storage.write(f"{folder}/{_log_archive_name(number)}", _log_archive(entries))


def _log_archive_name(number: int) -> str:
    return f".commits_.archive.{number}_1-0-1"


def _log_archive(entries: Sequence[dict[str, Any]]) -> bytes:
    schema = schema_text("HoodieArchivedMetaEntry")
    encoded = [*map(encoder_of(schema), entries)]
    blocks = [
        block_bytes(avro_data_block(schema, encoded[first : first + _ENTRIES_A_BLOCK]))
        for first in range(0, len(encoded), _ENTRIES_A_BLOCK)
    ]
    return b"".join(blocks)


def _log_entry(timeline: Timeline, archived: Instant, state: State, name: str) -> dict[str, Any]:
    """One timeline file as an entry of the archive."""
    instant = parse_instant_file(name, timeline.config.version)
    assert instant is not None
    body = decode_action(_body(timeline, name), name)
    if not body and instant.action is Action.CLEAN and state is State.INFLIGHT:
        requested = timeline.requested.get((archived.time, completes_as(archived.action)))
        body = decode_action(_body(timeline, requested), requested) if requested else body
    return log_entry(instant.time, instant.action, state, body)


def log_entry(time: str, action: Action, state: State, body: dict[str, Any]) -> dict[str, Any]:
    """An entry of a version 6 archive with this body."""
    entry = {
        "commitTime": time,
        "actionType": action.value,
        "actionState": state.name,
        "version": 1,
        "stateTransitionTime": without_suffix(time),
    }
    return entry | _log_body(action, state, body)


def _log_body(action: Action, state: State, body: dict[str, Any]) -> dict[str, Any]:
    done = state is State.COMPLETED
    if action is Action.CLEAN:
        field = "hoodieCleanMetadata" if done else "hoodieCleanerPlan"
    elif action is Action.ROLLBACK:
        field = "hoodieRollbackMetadata" if done else ""
    elif action in (Action.COMPACTION, Action.LOGCOMPACTION):
        field = "hoodieCompactionPlan"
    elif action is Action.REPLACECOMMIT:
        field = _REPLACE_FIELDS[state]
    elif action is Action.SAVEPOINT:
        field = "hoodieSavePointMetadata" if done else ""
    elif action in (
        Action.RESTORE,
        Action.INDEXING,
    ):  # an entry has no field for the one, and no reader needs the other
        field = ""
    else:
        field = "hoodieCommitMetadata"
        body = body or {"partitionToWriteStats": {}, "extraMetadata": {}, "operationType": "UNKNOWN"}
    return {field: body} if field and body else {}


def _body(timeline: Timeline, name: str) -> bytes:
    return timeline.storage.read(f"{timeline.config.timeline_path}/{name}")

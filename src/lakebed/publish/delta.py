"""A Delta Lake log of a table's base files, in `_delta_log/` next to the data.

Protocol reader 1 and writer 2, which every reader of Delta Lake has; tables with timestamps without a zone need the
feature `timestampNtz` (reader 3, writer 7). A version is one JSON file; a checkpoint with all files follows at a fixed
interval of versions. Hudi's meta columns and the partition columns' copies in the files are not in the schema: readers
go by names.
"""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.publish.data_files import DataFile
from lakebed.publish.delta_fresh import (
    FEATURE,
    PATH_LETTERS,
    PROPERTY,
    check_paths,
    instant_of_copy,
    is_copy,
    is_logged_file,
    logged_files,
    removal,
    with_logged_rows,
    without_logged_rows,
)
from lakebed.publish.foreign import (
    FRESH,
    Change,
    ForeignList,
    cache_list,
    cached_list,
    epoch_millis,
    foreign_change,
    position_of,
    properties_of,
)
from lakebed.publish.fresh import write_fresh_rows
from lakebed.schema.logical_types import file_type
from lakebed.schema.plain_arrow import is_list
from lakebed.storage.base import Storage
from lakebed.storage.exactly_once import create_exactly_once

LOG = "_delta_log"
CHECKPOINT_EVERY = 10
"""The number of versions between two checkpoints; few, so that a reader opens few files."""
RETAINED_DAYS = 30
"""Versions remain for this many days, the default of Delta's `logRetentionDuration`."""
MAX_DIGITS = 15
"""Statistics leave out decimals of more digits: readers may take them as floating numbers."""

_ENGINE = "lakebed"
_VERSION = re.compile(r"(\d{20})\.json")
_LIST_FILE = re.compile(r"\d{20}\.(json|checkpoint\.parquet)|_last_checkpoint")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_NAMES_REFUSED = frozenset(" ,;{}()\n\t=")
_SIMPLE = {
    pa.bool_(): "boolean",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}
_MAP = pa.map_(pa.string(), pa.string())
_CHECKPOINT_SCHEMA = pa.schema(
    {
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
    }
)
_MAPS = ("partitionValues", "configuration", "options", "tags")
# What the `add` of a masked file has besides. Without it readers of a checkpoint would show every masked row.
_MASK_FIELDS = [
    pa.field("tags", _MAP),
    pa.field(
        "deletionVector",
        pa.struct(
            {
                "storageType": pa.string(),
                "pathOrInlineDv": pa.string(),
                "offset": pa.int32(),
                "sizeInBytes": pa.int32(),
                "cardinality": pa.int64(),
            }
        ),
    ),
]

Action = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Log:
    """The state of a log at a version: the `add` actions by path, the table's metadata and protocol; `last` is the text
    of the newest version."""

    adds: Mapping[str, Action]
    metadata: Action
    protocol: Action
    last: bytes


class DeltaFormat:
    """The list format of Delta Lake: a log in `_delta_log/`."""

    name = "delta"
    folder = LOG
    fresh_warning = (
        "the Delta log has deletion vectors from now on: deltalake before 1.0 and count() of ClickHouse show the rows"
        " that these hide, and other readers without vectors refuse the table"
    )
    widening: Sequence[tuple[str, str]] = ()

    def schema_text(self, schema: pa.Schema, before: ForeignList | None) -> str:
        fields = [_field(field.name, field.type, field.name) for field in schema]
        return json.dumps({"type": "struct", "fields": fields})

    def is_list_file(self, name: str) -> bool:
        return _LIST_FILE.fullmatch(name) is not None or is_logged_file(name)

    def newest(self, storage: Storage) -> ForeignList | None:
        names: Sequence[str] | None = None
        while True:
            before, names = names, sorted(storage.list_names(LOG))
            try:
                return self._newest(storage, names)
            except FileNotFoundError as error:  # another publisher deletes versions that a checkpoint has
                if names == before:
                    raise CorruptFile(
                        f"a file of the Delta log {storage.url(LOG)} is missing: {error}",
                        hint=f"Move {storage.url(LOG)} away and publish again: the log is then written again.",
                        context={"path": storage.url(LOG)},
                    ) from error

    def _newest(self, storage: Storage, names: Sequence[str]) -> ForeignList | None:
        numbers = sorted(int(m.group(1)) for name in names if (m := _VERSION.fullmatch(name)))
        if not numbers:
            return None
        last = numbers[-1]
        cached = cached_list(storage.url(LOG))
        if cached is not None and cached.version == last:
            log: _Log = cached.content
            if storage.read(_version_path(last)) == log.last:
                return cached
        checkpoints = [int(m.group(1)) for name in names if (m := _CHECKPOINT.fullmatch(name))]
        start = max((n for n in checkpoints if n <= last), default=-1)
        replayed = _Replay(storage)
        if start >= 0:
            replayed.checkpoint(start)
        for number in range(start + 1, last + 1):
            replayed.version(number)
        if start == last:
            replayed.version(last)
        return cache_list(storage.url(LOG), replayed.state(last))

    def append(self, storage: Storage, before: ForeignList | None, change: Change) -> ForeignList | None:
        log: _Log | None = None if before is None else before.content
        number = 0 if before is None else before.version + 1
        millis = epoch_millis(change.version.position.completed, change.zone)
        actions: list[Action] = [{"commitInfo": _commit_info(change, millis)}]
        earlier, removed = {} if log is None else log.adds, frozenset(change.removed)
        adds = {path: add for path, add in earlier.items() if path not in removed}
        adds |= {file.base.path: _add(file, change) for file in change.added}
        if change.is_fresh:
            check_paths(storage, change.version.unmerged)
            rows = write_fresh_rows(storage, change.version, LOG, change.partition_columns, field_ids=False)
            copies = [(file, _add(file, change)) for file in rows.files]
            adds = with_logged_rows(storage, LOG, adds, rows, copies)
        else:
            adds = without_logged_rows(adds)
        protocol = _protocol(change, None if log is None else log.protocol)
        if log is None or log.protocol != protocol:
            actions.append({"protocol": protocol})
        metadata: Action = _metadata(change, millis) if log is None else {**log.metadata, "schemaString": change.schema}
        if change.is_fresh:
            metadata["configuration"] = {**metadata["configuration"], PROPERTY: "true"}
        if log is None or log.metadata != metadata:
            actions.append({"metaData": metadata})
        actions += _file_actions(earlier, adds, millis, changes_rows=change.version.changes_rows)
        body = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions).encode()
        if not create_exactly_once(storage, _version_path(number), body):
            for path in logged_files(adds, LOG, logged_files(earlier, LOG)):
                storage.delete(path, durable=False)
            return None
        written = _listed(number, properties_of(change), _Log(adds, metadata, protocol, body))
        if change.is_fresh or any(map(is_copy, earlier)):
            _delete_copies(storage, adds, change)
        if number and number % CHECKPOINT_EVERY == 0:
            written_before = (time.time() - RETAINED_DAYS * 86_400) * 1000
            _write_checkpoint(storage, written)
            _delete_versions(storage, number, written_before)
            used = logged_files(adds, LOG)
            for info in list(storage.list(LOG, recursive=False)) if change.is_fresh else ():
                is_vectors = is_logged_file(info.path.rpartition("/")[2]) and not is_copy(info.path)
                if is_vectors and info.path not in used and info.modified < written_before:
                    storage.delete(info.path, durable=False)
        return cache_list(storage.url(LOG), written)

    def forget_earlier(self, storage: Storage, listed: ForeignList) -> int | None:
        names = [name for name in storage.list_names(LOG) if is_logged_file(name)]
        if names:
            # no other publisher can create a version that refers to these files: this one takes its number
            again = _same_again(storage, listed)
            if again is None:
                return None
            listed = again
        log: _Log = listed.content
        _write_checkpoint(storage, listed)
        deleted = _delete_versions(storage, listed.version)
        unused = {f"{LOG}/{name}" for name in names} - logged_files(log.adds, LOG)
        for path in sorted(unused):
            storage.delete(path, durable=False)
        return deleted + len(unused)


class _Replay:
    """The state of a log, action by action."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._adds: dict[str, Action] = {}
        self._metadata: Action = {}
        self._protocol: Action = {}
        self._properties: Mapping[str, str] = {}
        self._last = b""

    def checkpoint(self, number: int) -> None:
        path = f"{LOG}/{number:020}.checkpoint.parquet"
        try:
            rows = pq.read_table(pa.BufferReader(self._storage.read(path))).to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptFile(
                f"{self._storage.url(path)} is no Parquet file: {error}",
                hint="Delete the file and publish again: the versions before it have the same.",
                context={"path": self._storage.url(path)},
            ) from error
        for row in rows:
            self._apply({kind: _plain_maps(action) for kind, action in row.items() if action is not None})

    def version(self, number: int) -> None:
        path = _version_path(number)
        url = self._storage.url(path)
        try:
            self._last = self._storage.read(path)
            actions = [json.loads(line) for line in self._last.splitlines() if line.strip()]
        except ValueError as error:
            raise CorruptFile(
                f"{url} is no version of a Delta log: {error}",
                hint=f"Move {self._storage.url(LOG)} away and publish again: the log is then written again.",
                context={"path": url},
            ) from error
        info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        engine = str(info.get("engineInfo", "no engineInfo"))
        try:
            properties = json.loads(info.get("userMetadata") or "{}")
            position_of(properties)
        except (ValueError, KeyError, TypeError):
            properties = None
        if properties is None or engine != _ENGINE:
            description = f"version {number} is of {engine}, operation {info.get('operation', 'unknown')}"
            raise foreign_change(url, description, self._storage.url(LOG))
        self._properties = properties
        for action in actions:
            self._apply(action)

    def state(self, number: int) -> ForeignList:
        return _listed(number, self._properties, _Log(self._adds, self._metadata, self._protocol, self._last))

    def _apply(self, action: Action) -> None:
        if "add" in action:
            self._adds[unquote(action["add"]["path"])] = action["add"]
        elif "remove" in action:
            self._adds.pop(unquote(action["remove"]["path"]), None)
        self._metadata = action.get("metaData", self._metadata)
        self._protocol = action.get("protocol", self._protocol)


def _listed(number: int, properties: Mapping[str, str], log: _Log) -> ForeignList:
    return ForeignList(
        number,
        position_of(properties),
        log.metadata["schemaString"],
        tuple(log.metadata["partitionColumns"]),
        [path for path in log.adds if not is_copy(path)],
        log,
        is_fresh=FRESH in properties,
        log_files=properties.get(FRESH, ""),
    )


def _same_again(storage: Storage, listed: ForeignList) -> ForeignList | None:
    """Write a version that changes nothing; None if another publisher has written one."""
    log: _Log = listed.content
    info = next(action for action in map(json.loads, log.last.splitlines()) if "commitInfo" in action)
    body = json.dumps(info, ensure_ascii=False).encode()
    number = listed.version + 1
    if not create_exactly_once(storage, _version_path(number), body):
        return None
    return cache_list(storage.url(LOG), replace(listed, version=number, content=replace(log, last=body)))


def _file_actions(
    before: Mapping[str, Action], after: Mapping[str, Action], millis: int, *, changes_rows: bool
) -> list[Action]:
    """The actions from the files of one version to those of the next. A file with another mask is removed and added.
    One with the same mask is left alone: many readers would lose it."""
    actions: list[Action] = []
    for path, add in before.items():
        if after.get(path) != add:
            facts = {"path": _encoded(path), "deletionTimestamp": millis, "dataChange": changes_rows}
            actions.append({"remove": {**facts, **removal(add)}})
    actions += [{"add": add} for path, add in after.items() if before.get(path) != add]
    return actions


def _plain_maps(action: Action) -> Action:
    """An action of a checkpoint in the form of JSON: pairs become maps, and null fields are left out."""
    plain: Action = {}
    for name, value in action.items():
        if value is None:
            plain |= {name: {}} if name in _MAPS and name != "tags" else {}
        elif name in _MAPS:
            plain[name] = dict(value)
        else:
            plain[name] = _plain_maps(value) if name == "format" else value
    return plain


def _write_checkpoint(storage: Storage, listed: ForeignList) -> None:
    """Write the complete state as one file, and the file that names it. Readers do not need them, so a failure between
    the two leaves a valid log."""
    log: _Log = listed.content
    rows: list[Action] = [{"protocol": log.protocol}, {"metaData": log.metadata}]
    rows += [{"add": {**add, "dataChange": False}} for add in log.adds.values()]
    sink = pa.BufferOutputStream()
    schema = _CHECKPOINT_SCHEMA
    if any("deletionVector" in add for add in log.adds.values()):
        masked = pa.struct([*schema.field("add").type, *_MASK_FIELDS])
        schema = schema.set(schema.get_field_index("add"), pa.field("add", masked))
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    body = sink.getvalue().to_pybytes()
    storage.write(f"{LOG}/{listed.version:020}.checkpoint.parquet", body)
    hint = {"version": listed.version, "size": len(rows), "sizeInBytes": len(body), "numOfAddFiles": len(log.adds)}
    storage.write(f"{LOG}/_last_checkpoint", json.dumps(hint).encode())


def _delete_versions(storage: Storage, last: int, written_before: float = math.inf) -> int:
    """Delete the versions and checkpoints that were written before a time in milliseconds and that are older than a
    checkpoint: the newest one written before that time and not after version `last`. The oldest are deleted first:
    after a failure the log is complete from some version on. Returns the number of deleted files."""
    files: list[tuple[int, str]] = []
    for info in storage.list(LOG, recursive=False):
        name = info.path.rpartition("/")[2]
        match = _VERSION.fullmatch(name) or _CHECKPOINT.fullmatch(name)
        if match is not None and info.modified < written_before:
            files.append((int(match.group(1)), info.path))
    needed = max((number for number, path in files if path.endswith(".parquet") and number <= last), default=0)
    older = sorted(file for file in files if file[0] < needed)
    for _, path in older:
        storage.delete(path, durable=False)
    return len(older)


def _delete_copies(storage: Storage, adds: Mapping[str, Action], change: Change) -> None:
    """Delete the copies of rows that are not shown any more, of commits whose files are cleaned: versions that name the
    files of both cannot be read."""
    copies: dict[str, list[str]] = {}
    for name in storage.list_names(LOG):
        instant, path = instant_of_copy(name), f"{LOG}/{name}"
        if instant and path not in adds:
            copies.setdefault(instant, []).append(path)
    for path in [path for instant, paths in copies.items() if not change.is_readable(instant) for path in paths]:
        storage.delete(path, durable=False)


def _version_path(number: int) -> str:
    return f"{LOG}/{number:020}.json"


def _commit_info(change: Change, millis: int) -> Action:
    return {
        "timestamp": millis,
        "operation": change.version.operation,
        "operationParameters": {},
        "isBlindAppend": False,
        "engineInfo": _ENGINE,
        "userMetadata": json.dumps(properties_of(change)),
    }


def _metadata(change: Change, millis: int) -> Action:
    return {
        "id": str(uuid.uuid4()),
        "name": change.table_name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": change.schema,
        "partitionColumns": list(change.partition_columns),
        "configuration": {},
        "createdTime": millis,
    }


def _protocol(change: Change, before: Action | None) -> Action:
    """The protocol of a version: the features that it needs, and those that the log has already."""
    is_plain = any(_has_plain_timestamp(field.type) for field in change.version.schema)
    features = {*(["timestampNtz"] if is_plain else []), *([FEATURE] if change.is_fresh else [])}
    features |= set((before or {}).get("readerFeatures") or ())
    if not features:
        return before or {"minReaderVersion": 1, "minWriterVersion": 2}
    names = sorted(features)
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": names, "writerFeatures": names}


def _has_plain_timestamp(kind: pa.DataType) -> bool:
    if pt.is_timestamp(kind):
        return kind.tz is None
    inner = [kind.field(n).type for n in range(kind.num_fields)]
    return any(map(_has_plain_timestamp, inner))


def _add(file: DataFile, change: Change) -> Action:
    return {
        "path": _encoded(file.base.path),
        "partitionValues": {name: _partition_text(value, name, file) for name, value in file.partition.items()},
        "size": file.base.size,
        "modificationTime": epoch_millis(file.base.instant, change.zone),
        "dataChange": change.version.changes_rows,
        "stats": json.dumps(_stats(file, change.version.schema), ensure_ascii=False),
    }


def _encoded(path: str) -> str:
    """A path in the form of the log: a URI reference with escaped characters."""
    return quote(path, safe=PATH_LETTERS)


def _partition_text(value: Any, column: str, file: DataFile) -> str | None:
    if value == "":
        raise UnsupportedFeature(
            f"the empty text in partition column {column} of {file.base.path} cannot be published as Delta: an empty"
            " partition value is null there",
            hint="Give the rows another value, or publish the table as Iceberg.",
            context={"column": column, "path": file.base.path},
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _stats(file: DataFile, schema: pa.Schema) -> Action:
    low: Action = {}
    high: Action = {}
    nulls: dict[str, int] = {}
    for field in schema:
        stats = file.columns.get(field.name)
        if stats is None or field.name in file.partition:
            continue
        if stats.nulls is not None and not field.type.num_fields:
            nulls[field.name] = stats.nulls
        bounds = [_json_value(stats.low, up=False), _json_value(stats.high, up=True)]
        if None not in bounds:
            low[field.name], high[field.name] = bounds
    return {"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _json_value(value: Any, *, up: bool) -> Any:
    """A bound in the JSON form of statistics, rounded down or up. None for a value that statistics leave out."""
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo is not None else value
        part = timedelta(microseconds=moment.microsecond % 1000)
        try:
            moment += timedelta(milliseconds=1) - part if up and part else -part
        except OverflowError:
            return None
        return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        few = len(value.as_tuple().digits) <= MAX_DIGITS
        return float(value) if few else None
    return value


def _field(name: str, kind: pa.DataType, path: str) -> Action:
    if _NAMES_REFUSED & set(name):
        raise UnsupportedFeature(
            f"column {path!r} cannot be published as Delta: names there have no white space and none of ,;{{}}()=",
            hint="Rename it with t.columns.rename(), then rewrite its files with t.maintenance.cluster().",
            context={"column": path},
        )
    return {"name": name, "type": _type(kind, path), "nullable": True, "metadata": {}}


def _type(kind: pa.DataType, path: str) -> Any:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_fixed_size_binary(file_type(kind)):  # a vector is the bytes that the files have
        return "binary"
    if is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type, f"{path}.element"), "containsNull": True}
    if pt.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type, f"{path}.key"),
            "valueType": _type(kind.item_type, f"{path}.value"),
            "valueContainsNull": True,
        }
    if pt.is_struct(kind):
        return {"type": "struct", "fields": [_field(f.name, f.type, f"{path}.{f.name}") for f in kind]}
    raise UnsupportedFeature(
        f"column {path} of type {kind} cannot be published as Delta, which has no such type",
        hint="Publish the table as Iceberg, or store the column as another type.",
        context={"column": path, "type": str(kind)},
    )

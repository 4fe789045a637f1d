"""Iceberg metadata (version 2) of a table's base files, in `metadata/` next to the data.

Hudi's files have no field ids, and lakebed's have them for data columns only: a name mapping in the table's properties
gives columns their ids by name, the same ones for good. A version is `v<n>.metadata.json`, created once;
`version-hint.text` names the newest, as in tables without a catalog. Each commit is a snapshot whose id is its instant.
Hudi's meta columns are in the mapping and in no schema: no reader shows them.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from lakebed.errors import CorruptFile, UnsupportedFeature
from lakebed.publish.data_files import DataFile
from lakebed.publish.deletion_vectors import deletion_vector, puffin_file
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
from lakebed.publish.fresh import ROWS_SUFFIX, Positions, write_fresh_rows
from lakebed.publish.iceberg_manifests import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    EXISTING,
    FIRST_PARTITION_ID,
    Entry,
    Manifest,
    decode_avro,
    encode_manifest,
    encode_manifest_list,
    entry_of,
    manifest_record,
    mask_entry,
    numbered_entries,
    position_deletes,
    with_row_numbers,
)
from lakebed.publish.iceberg_schema import MAPPING, PARTITION_TYPES, ColumnIds, Json, schema_field, spec_fields
from lakebed.storage.base import Storage
from lakebed.storage.exactly_once import create_exactly_once, write_settled
from lakebed.storage.parallel import parallel_map

FOLDER = "metadata"
MANIFEST_FILES = 500
"""A new manifest names at most this many files, so that a commit that changes few files rewrites little."""
MAX_SMALL_MANIFESTS = 20
"""This many manifests with room for more files are merged."""
TIDY_EVERY = 10
"""After this many versions, metadata files that nothing refers to are deleted."""
RETAINED_VERSIONS = 100
"""This many metadata files of versions remain."""

_VERSION = re.compile(r"v(\d+)\.metadata\.json")
_HINT = f"{FOLDER}/version-hint.text"
# The end of the names of manifests of one snapshot alone: those of copies of rows, and of masks.
_OF_LOGS = "-m1.avro"
_MASKS, _VECTORS = "-masks.parquet", "-masks.puffin"
_LOGGED_FILE = re.compile(rf"\d*-[0-9a-f]{{32}}{re.escape(ROWS_SUFFIX)}|[0-9a-f]{{32}}-masks\.(parquet|puffin)")
_LIST_FILE = re.compile(
    r"v\d+\.metadata\.json|version-hint\.text|snap-\d+-[0-9a-f]{32}\.avro"
    rf"|[0-9a-f]{{32}}-m[01]\.avro|{_LOGGED_FILE.pattern}"
)
_NUMBER = "lakebed.metadata-version"
# Other publishers may be about to refer to younger files.
_ORPHAN_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class _Table:
    """A metadata file: its number and contents, and the manifests of its current snapshot. `text` are its bytes."""

    number: int
    metadata: Json
    manifests: tuple[Manifest, ...]
    text: bytes

    @property
    def of_base_files(self) -> tuple[Manifest, ...]:
        """The manifests of base files: without those of the rows and masks that log files gave this snapshot."""
        return tuple(manifest for manifest in self.manifests if not manifest.path.endswith(_OF_LOGS))

    @property
    def summary(self) -> Mapping[str, str]:
        """The summary of the current snapshot."""
        current = self.metadata["current-snapshot-id"]
        return next(s["summary"] for s in self.metadata["snapshots"] if s["snapshot-id"] == current)


class IcebergFormat:
    """The list format of Iceberg: metadata files in `metadata/`."""

    name = "iceberg"
    folder = FOLDER
    fresh_warning = ""
    widening: Sequence[tuple[str, str]] = ()

    def schema_text(self, schema: pa.Schema, before: ForeignList | None) -> str:
        ids = ColumnIds(None if before is None else before.content.metadata)
        ids.add_columns(schema)
        return json.dumps([schema_field(field, field.name, ids) for field in schema])

    def is_list_file(self, name: str) -> bool:
        return _LIST_FILE.fullmatch(name) is not None

    def newest(self, storage: Storage) -> ForeignList | None:
        names = storage.list_names(FOLDER)
        numbers = [int(match.group(1)) for name in names if (match := _VERSION.fullmatch(name))]
        foreign_name = next((n for n in names if n.endswith(".metadata.json") and not _VERSION.fullmatch(n)), None)
        if foreign_name is not None:
            url = storage.url(f"{FOLDER}/{foreign_name}")
            raise foreign_change(url, "a catalog named this metadata file", storage.url(FOLDER))
        if not numbers:
            return None
        number = max(numbers)
        text = storage.read(_version_path(number))
        cached = cached_list(storage.url(FOLDER))
        table: _Table | None = None if cached is None else cached.content
        if cached is not None and table is not None and (table.number, table.text) == (number, text):
            listed = cached
        else:
            listed = cache_list(storage.url(FOLDER), _listed(storage, _load(storage, number, text)))
        _write_hint(storage, number)
        return listed

    def metadata_file(self, listed: ForeignList) -> tuple[str, bytes]:
        """The path of the metadata file of a list, relative to the table, and its content."""
        table: _Table = listed.content
        return _version_path(table.number), table.text

    def append(self, storage: Storage, before: ForeignList | None, change: Change) -> ForeignList | None:
        table: _Table | None = None if before is None else before.content
        number = 1 if table is None else table.number + 1
        metadata = _empty_metadata(storage, change) if table is None else dict(table.metadata)
        ids = ColumnIds(None if table is None else metadata)
        ids.add_columns(change.version.schema)
        for file in change.added:
            ids.add_columns(file.types)
            ids.check_file(file)
        fields = json.loads(change.schema)
        schemas = list(metadata["schemas"])
        current_schema = next((schema for schema in schemas if schema["fields"] == fields), None)
        if current_schema is None:
            current_schema = {"type": "struct", "schema-id": len(schemas), "fields": fields}
            schemas.append(current_schema)
        # a snapshot has the instant as its id, or the next free number where commits after it were taken back
        snapshot_id = _free_snapshot_id(metadata, int(change.version.position.instant or 1))
        sequence = metadata["last-sequence-number"] + 1
        if change.is_fresh and change.vectors:  # no version leads back to positions in files
            metadata["format-version"] = 3
        writer = _ManifestWriter(storage, metadata, current_schema, change.partition_columns, snapshot_id)
        manifests = writer.write(() if table is None else table.of_base_files, change)
        if change.is_fresh:
            manifests += writer.write_logged_rows(
                manifests, change, field_ids=ids.are_those_of_files(change.version.schema)
            )
        manifests, row_numbers = writer.numbered(manifests)
        parent = metadata.get("current-snapshot-id", -1)
        millis = max(epoch_millis(change.version.position.completed, change.zone), metadata["last-updated-ms"] + 1)
        snapshot = {
            "snapshot-id": snapshot_id,
            **({"parent-snapshot-id": parent} if parent != -1 else {}),
            "sequence-number": sequence,
            "timestamp-ms": millis,
            **row_numbers,
            "manifest-list": writer.write_list(manifests, parent),
            "summary": _summary(change, manifests, snapshot_id),
            "schema-id": current_schema["schema-id"],
        }
        expired = [s for s in metadata["snapshots"] if not change.is_readable(s["summary"]["hudi.instant"])]
        expired_ids = {s["snapshot-id"] for s in expired}
        for name in ("snapshots", "snapshot-log"):
            metadata[name] = [entry for entry in metadata[name] if entry["snapshot-id"] not in expired_ids]
        _add_snapshot(metadata, snapshot)
        earlier = {"timestamp-ms": metadata["last-updated-ms"], "metadata-file": ""}
        log = list(metadata["metadata-log"])
        if table is not None:
            log.append({**earlier, "metadata-file": _location(storage, _version_path(table.number))})
        metadata["metadata-log"] = log[-RETAINED_VERSIONS:]
        metadata |= {
            "last-sequence-number": sequence,
            "last-updated-ms": millis,
            "schemas": schemas,
            "last-column-id": ids.last,
            "current-schema-id": current_schema["schema-id"],
            "properties": {_NUMBER: str(number), MAPPING: json.dumps(ids.mapping())},
        }
        text = json.dumps(metadata, ensure_ascii=False).encode()
        if not create_exactly_once(storage, _version_path(number), text):
            _delete_files(storage, _files_of_logs(storage, manifests))
            return None
        written = cache_list(storage.url(FOLDER), _listed(storage, _Table(number, metadata, tuple(manifests), text)))
        _write_hint(storage, number)
        for listing in (s["manifest-list"] for s in expired if FRESH in s["summary"]):
            with suppress(FileNotFoundError):  # another publisher has deleted them
                of_logs = _read_manifests(storage, listing, _OF_LOGS)
                _delete_files(storage, _files_of_logs(storage, of_logs))
        if number % TIDY_EVERY == 0:
            _remove_leftovers(storage, written.content, RETAINED_VERSIONS)
        return written

    def forget_earlier(self, storage: Storage, listed: ForeignList) -> int | None:
        # no other publisher can create a version that refers to files of this listing: this one takes its number
        earlier = {info.path for info in storage.list(FOLDER, recursive=False)}
        table = _without_history(storage, listed)
        if not create_exactly_once(storage, _version_path(table.number), table.text):
            return None
        cache_list(storage.url(FOLDER), _listed(storage, table))
        _write_hint(storage, table.number)
        return _remove_leftovers(storage, table, 1, earlier)


class _ManifestWriter:
    """A writer of the changed manifests of a new snapshot: those with removed files, and those with new files."""

    def __init__(self, storage: Storage, metadata: Json, schema: Json, partition: Sequence[str], snapshot: int) -> None:
        self._storage = storage
        self._metadata = metadata
        self._version: int = metadata["format-version"]
        self._schema = schema
        self._spec = spec_fields(schema["fields"], partition)
        self._snapshot = snapshot
        self._sequence: int = metadata["last-sequence-number"] + 1
        types = {field["name"]: field["type"] for field in schema["fields"]}
        self._partition = [(name, PARTITION_TYPES[types[name]]) for name in partition]

    def write(self, before: Sequence[Manifest], change: Change) -> list[Manifest]:
        """The manifests of the new snapshot, from those of the previous one."""
        removed = {_location(self._storage, path) for path in change.removed}
        retained: list[Manifest] = []
        rewritten: list[Entry] = []
        small = [manifest for manifest in before if len(manifest.live) < MANIFEST_FILES // 2]
        joins = len(small) > MAX_SMALL_MANIFESTS
        for manifest in before:
            leaves = any(entry["data_file"]["file_path"] in removed for entry in manifest.live)
            if leaves or (joins and manifest in small):
                for entry in numbered_entries(manifest):
                    is_removed = entry["data_file"]["file_path"] in removed
                    status = {"status": DELETED, "snapshot_id": self._snapshot} if is_removed else {"status": EXISTING}
                    rewritten.append({**entry, **status})
            elif manifest.live:
                retained.append(manifest)
        added = [self._entry(file) for file in change.added]
        return [*retained, *self._manifests(rewritten), *self._manifests(added)]

    def write_logged_rows(self, base: Sequence[Manifest], change: Change, *, field_ids: bool) -> list[Manifest]:
        """Write what log files add to the base files of the `base` manifests: copies of rows, and for each base file
        with rows that are not shown a file with their positions. Returns their manifests."""
        fresh = write_fresh_rows(self._storage, change.version, FOLDER, change.partition_columns, field_ids=field_ids)
        rows = [self._entry(file) for file in fresh.files]
        locations = {_location(self._storage, path): positions for path, positions in fresh.masks.items()}
        files = (entry["data_file"] for manifest in base for entry in manifest.live)
        masked = [file for file in files if file["file_path"] in locations]

        assert len(masked) == len(locations), "a mask is of a base file that the list names"
        masks = self._vectors(masked, locations) if self._version == 3 else self._positions(masked, locations)
        return [*self._manifests(rows, _OF_LOGS), *self._manifests(masks, _OF_LOGS)]

    def _positions(self, masked: Sequence[Entry], locations: Mapping[str, Positions]) -> list[Entry]:
        """Write a file with the positions of each masked file; returns their entries."""

        paths = [f"{FOLDER}/{uuid.uuid4().hex}{_MASKS}" for _ in masked]
        bodies = [position_deletes(file["file_path"], locations[file["file_path"]]) for file in masked]
        parallel_map(lambda file: self._storage.write(*file), list(zip(paths, bodies, strict=True)))

        def mask(file: Entry, path: str, body: bytes) -> Entry:
            facts = {"file_path": _location(self._storage, path), "file_format": "PARQUET"}
            facts |= {"file_size_in_bytes": len(body)}
            return mask_entry(facts, file, len(locations[file["file_path"]]), self._snapshot, self._sequence)

        return list(map(mask, masked, paths, bodies))

    def _vectors(self, masked: Sequence[Entry], locations: Mapping[str, Positions]) -> list[Entry]:
        """Write one file with a vector of each masked file; returns an entry for each vector."""
        names: list[str] = [file["file_path"] for file in masked]
        counts = [len(locations[name]) for name in names]
        vectors = [deletion_vector(locations[name]) for name in names]
        body, spans = puffin_file(list(zip(names, counts, vectors, strict=True)))
        path = f"{FOLDER}/{uuid.uuid4().hex}{_VECTORS}"
        if masked:
            self._storage.write(path, body)
        facts = {"file_path": _location(self._storage, path), "file_format": "PUFFIN", "file_size_in_bytes": len(body)}
        return [
            mask_entry(
                {**facts, "content_offset": offset, "content_size_in_bytes": length},
                file,
                rows,
                self._snapshot,
                self._sequence,
            )
            for file, rows, (offset, length) in zip(masked, counts, spans, strict=True)
        ]

    def _entry(self, file: DataFile) -> Entry:
        ids = {field["name"]: field["id"] for field in self._schema["fields"]}
        return entry_of(file, _location(self._storage, file.base.path), ids, self._snapshot, self._sequence)

    def without_deleted(self, before: Sequence[Manifest]) -> list[Manifest]:
        """The manifests of a snapshot with the same files, without entries of files that left the list."""
        retained: list[Manifest] = []
        rewritten: list[Entry] = []
        for manifest in before:
            if len(manifest.live) == len(manifest.entries):
                retained.append(manifest)
            else:
                rewritten += [{**entry, "status": EXISTING} for entry in numbered_entries(manifest)]
        return [*retained, *self._manifests(rewritten)]

    def numbered(self, manifests: Sequence[Manifest]) -> tuple[Sequence[Manifest], Json]:
        """The manifests with numbers of all rows, as version 3 wants them, and the facts about the new numbers for the
        snapshot; unchanged and nothing in version 2."""
        if self._version < 3:
            return manifests, {}
        first = self._metadata.get("next-row-id", 0)
        numbered, self._metadata["next-row-id"] = with_row_numbers(manifests, first)
        return numbered, {"first-row-id": first, "added-rows": self._metadata["next-row-id"] - first}

    def write_list(self, manifests: Sequence[Manifest], parent: int) -> str:
        """Write the snapshot's manifest list; returns its location. `parent` is the previous snapshot, -1 for none."""
        header = {"snapshot-id": str(self._snapshot), "sequence-number": str(self._sequence)}
        header["parent-snapshot-id"] = str(parent) if parent != -1 else "null"
        path = f"{FOLDER}/snap-{self._snapshot}-{uuid.uuid4().hex}.avro"
        self._storage.write(path, encode_manifest_list([m.record for m in manifests], header, self._version))
        return _location(self._storage, path)

    def _manifests(self, entries: Sequence[Entry], suffix: str = "-m0.avro") -> Iterator[Manifest]:
        """Write entries of one content."""
        is_data = all(entry["data_file"]["content"] == DATA for entry in entries)
        header = {
            "content": "data" if is_data else "deletes",
            "schema": json.dumps(self._schema),
            "partition-spec": json.dumps(self._spec),
            "partition-spec-id": "0",
        }
        for start in range(0, len(entries), MANIFEST_FILES):
            part = entries[start : start + MANIFEST_FILES]
            path = f"{FOLDER}/{uuid.uuid4().hex}{suffix}"
            body = encode_manifest(part, self._partition, header, self._version)
            self._storage.write(path, body)
            kinds = [kind for _, kind in self._partition]
            location = _location(self._storage, path)
            yield Manifest(manifest_record(part, location, len(body), self._snapshot, self._sequence, kinds), part)


def _load(storage: Storage, number: int, text: bytes) -> _Table:
    url = storage.url(_version_path(number))
    try:
        metadata: Json = json.loads(text)
        current = metadata.get("current-snapshot-id", -1)
        snapshot = next((candidate for candidate in metadata["snapshots"] if candidate["snapshot-id"] == current), None)
        properties = metadata["properties"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(
            f"{url} is no metadata of an Iceberg table: {error}",
            hint=f"Move {storage.url(FOLDER)} away and publish again: the list is then written again.",
            context={"path": url},
        ) from error
    if properties.get(_NUMBER) != str(number) or snapshot is None or "hudi.instant" not in snapshot["summary"]:
        summary = snapshot["summary"] if snapshot is not None else {}
        description = f"version {number}, operation {summary.get('operation', 'unknown')}"
        raise foreign_change(url, description, storage.url(FOLDER))
    if metadata["location"] != storage.spec.uri:
        raise UnsupportedFeature(
            f"the Iceberg metadata of {storage.spec.uri} names files at {metadata['location']}: the table was moved",
            hint=f"Move {storage.url(FOLDER)} away and publish again: the list is then written again.",
            context={"path": url},
        )
    return _Table(number, metadata, tuple(_read_manifests(storage, snapshot["manifest-list"])), text)


def _read_manifests(storage: Storage, listing: str, suffix: str = "") -> list[Manifest]:
    """The manifests that a manifest list names, those whose names end with `suffix`."""
    root = _location(storage, "")

    def manifest(record: Entry) -> Manifest:
        inside = record["manifest_path"].removeprefix(root)
        return Manifest(record, decode_avro(storage.read(inside), record["manifest_path"]))

    records = decode_avro(storage.read(listing.removeprefix(root)), listing)
    return parallel_map(manifest, [record for record in records if record["manifest_path"].endswith(suffix)])


def _listed(storage: Storage, table: _Table) -> ForeignList:
    root = _location(storage, "")
    metadata, summary = table.metadata, table.summary
    files = {e["data_file"]["file_path"].removeprefix(root) for manifest in table.of_base_files for e in manifest.live}
    return ForeignList(
        metadata["current-snapshot-id"],
        position_of(summary),
        json.dumps(_current_schema(metadata)["fields"]),
        tuple(field["name"] for field in metadata["partition-specs"][0]["fields"]),
        files,
        table,
        is_fresh=FRESH in summary,
        log_files=summary.get(FRESH, ""),
    )


def _current_schema(metadata: Json) -> Json:
    current = metadata["current-schema-id"]
    return next(schema for schema in metadata["schemas"] if schema["schema-id"] == current)


def _write_hint(storage: Storage, number: int) -> None:
    """Write the hint file that names the newest version. If a publisher dies before that, the next one writes it."""
    text = str(number).encode()
    try:
        if storage.read(_HINT) == text:
            return
    except FileNotFoundError:
        pass
    write_settled(storage, _HINT, text)


def _without_history(storage: Storage, listed: ForeignList) -> _Table:
    """The next version: with the same files, only its own snapshot, and no entry of a file that left."""
    table: _Table = listed.content
    metadata = dict(table.metadata)
    (snapshot,) = (s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    manifests = table.manifests
    number, millis = table.number + 1, metadata["last-updated-ms"] + 1
    if any(len(manifest.live) < len(manifest.entries) for manifest in manifests):
        sequence = metadata["last-sequence-number"] + 1
        snapshot_id = _free_snapshot_id(metadata, snapshot["snapshot-id"])
        writer = _ManifestWriter(storage, metadata, _current_schema(metadata), listed.partition_columns, snapshot_id)
        rewritten, row_numbers = writer.numbered(writer.without_deleted(manifests))
        manifests = tuple(rewritten)
        unchanged = dict.fromkeys(("added-data-files", "deleted-data-files", "added-records"), "0")
        snapshot = {
            "snapshot-id": snapshot_id,
            "sequence-number": sequence,
            "timestamp-ms": millis,
            **row_numbers,
            "manifest-list": writer.write_list(manifests, -1),
            "summary": {**snapshot["summary"], "operation": "replace", **unchanged},
            "schema-id": snapshot["schema-id"],
        }
        metadata["last-sequence-number"] = sequence
    metadata["snapshots"], metadata["snapshot-log"], metadata["metadata-log"] = [], [], []
    _add_snapshot(metadata, snapshot)
    metadata |= {"last-updated-ms": millis, "properties": {**metadata["properties"], _NUMBER: str(number)}}
    return _Table(number, metadata, manifests, json.dumps(metadata, ensure_ascii=False).encode())


def _files_of_logs(storage: Storage, manifests: Iterable[Manifest]) -> list[str]:
    """The copies of rows and the masks that manifests name."""
    root = _location(storage, "")
    entries = [entry for manifest in manifests if manifest.path.endswith(_OF_LOGS) for entry in manifest.entries]
    return sorted({entry["data_file"]["file_path"].removeprefix(root) for entry in entries})


def _delete_files(storage: Storage, paths: Iterable[str]) -> None:
    for path in paths:
        storage.delete(path, durable=False)


def _remove_leftovers(storage: Storage, table: _Table, retained: int, earlier: Container[str] = ()) -> int:
    """Delete metadata files except the last `retained`, and manifests, lists, copies of rows and masks that no snapshot
    refers to: those that are `earlier`, and those of expired snapshots and dead publishers, after some time. Returns
    the number of deleted files."""
    root = _location(storage, "")
    used: set[str] = set()
    for snapshot in table.metadata["snapshots"]:
        listing = snapshot["manifest-list"]
        used.add(listing.removeprefix(root))
        records = decode_avro(storage.read(listing.removeprefix(root)), listing)
        used |= {record["manifest_path"].removeprefix(root) for record in records}
        if FRESH in snapshot["summary"]:
            used.update(_files_of_logs(storage, _read_manifests(storage, listing, _OF_LOGS)))
    before = (time.time() - _ORPHAN_SECONDS) * 1000
    deleted = 0
    for info in list(storage.list(FOLDER, recursive=False)):
        name = info.path.rpartition("/")[2]
        match = _VERSION.fullmatch(name)
        is_old = match is not None and int(match.group(1)) <= table.number - retained
        is_unused = (name.endswith(".avro") or _LOGGED_FILE.fullmatch(name) is not None) and info.path not in used
        if is_old or (is_unused and (info.path in earlier or info.modified < before)):
            storage.delete(info.path, durable=False)
            deleted += 1
    return deleted


def _version_path(number: int) -> str:
    return f"{FOLDER}/v{number}.metadata.json"


def _location(storage: Storage, path: str) -> str:
    """A path below the table in Iceberg's form: with the table's URI."""
    return f"{storage.spec.uri}/{path}"


def _empty_metadata(storage: Storage, change: Change) -> Json:
    fields = spec_fields(json.loads(change.schema), change.partition_columns)
    return {
        "format-version": 2,
        "table-uuid": str(uuid.uuid4()),
        "location": storage.spec.uri,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "schemas": [],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "last-partition-id": FIRST_PARTITION_ID + len(fields) - 1,
        "properties": {},
        "current-snapshot-id": -1,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "refs": {},
    }


def _free_snapshot_id(metadata: Json, first: int) -> int:
    """The first number from `first` on that is not the id of a snapshot."""
    used = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
    return next(number for number in count(first) if number not in used)


def _add_snapshot(metadata: Json, snapshot: Json) -> None:
    """Make a snapshot the current one."""
    metadata["snapshots"] = [*metadata["snapshots"], snapshot]
    entry = {"snapshot-id": snapshot["snapshot-id"], "timestamp-ms": snapshot["timestamp-ms"]}
    metadata["snapshot-log"] = [*metadata["snapshot-log"], entry]
    metadata["current-snapshot-id"] = snapshot["snapshot-id"]
    metadata["refs"] = {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}}


def _summary(change: Change, manifests: Sequence[Manifest], snapshot: int) -> dict[str, str]:
    entries = [entry for manifest in manifests if manifest.content == DATA for entry in manifest.live]
    live = [entry["data_file"] for entry in entries]
    added = [e["data_file"] for e in entries if e["status"] == ADDED and e["snapshot_id"] == snapshot]
    masks = [entry["data_file"] for manifest in manifests if manifest.content == DELETES for entry in manifest.live]
    respans = bool(masks) or (change.removed and added)
    operation = "overwrite" if respans else "delete" if change.removed else "append"
    counts = {
        "added-data-files": len(added),
        "deleted-data-files": len(change.removed),
        "added-records": sum(file["record_count"] for file in added),
        "total-data-files": len(live),
        "total-records": sum(file["record_count"] for file in live),
        "total-files-size": sum(file["file_size_in_bytes"] for file in live),
    }
    if masks:  # the records of data files are counted with those that a mask hides
        positions = sum(file["record_count"] for file in masks)
        counts |= dict.fromkeys(("added-delete-files", "total-delete-files"), len(masks))
        counts |= dict.fromkeys(("added-position-deletes", "total-position-deletes"), positions)
    return {
        "operation": operation if change.version.changes_rows else "replace",
        **{name: str(number) for name, number in counts.items()},
        **properties_of(change),
    }

"""What tests of cleaning and archival ask of a table: its data files, what views of the past need, savepoints."""

from __future__ import annotations

import json
from collections.abc import Iterable

from lakebed.format.avro.container import write_avro_file
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import Action, Instant
from lakebed.slices.snapshot import Snapshot, open_snapshot
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.timeline import Timeline

_SAVEPOINT = {
    "type": "record",
    "name": "HoodieSavepointMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "savepointedBy", "type": "string"},
        {"name": "savepointedAt", "type": "long"},
        {"name": "comments", "type": "string"},
        {
            "name": "partitionMetadata",
            "type": {
                "type": "map",
                "values": {
                    "type": "record",
                    "name": "HoodieSavepointPartitionMetadata",
                    "fields": [
                        {"name": "partitionPath", "type": "string"},
                        {"name": "savepointDataFile", "type": {"type": "array", "items": "string"}},
                    ],
                },
            },
        },
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}


def snapshot(table: Table, *, use_metadata: bool = True) -> Snapshot:
    return open_snapshot(open_storage(table.uri), use_metadata=use_metadata)


def timeline(table: Table) -> Timeline:
    return snapshot(table).timeline


def data_files(table: Table) -> set[str]:
    """The paths of all base and log files in the table's folders."""
    found: set[str] = set()
    for info in open_storage(table.uri).list():
        folder, _, name = info.path.rpartition("/")
        if not folder.startswith(".hoodie") and (parse_base_file(folder, name, 0) or parse_log_file(folder, name, 0)):
            found.add(info.path)
    return found


def shown(table: Table, times: Iterable[str]) -> set[str]:
    """The files that the views of these moments are made of, by the folders."""
    whole = snapshot(table, use_metadata=False)
    found: set[str] = set()
    for time in times:
        for one in whole.at(time).file_slices():
            found |= {one.base_file.path} if one.base_file else set()
            found |= {log.path for log in one.log_files}
    return found


def savepoint(table: Table, instant: Instant) -> set[str]:
    """Put a savepoint of the view at a commit on the timeline as real Hudi does; gives the files that it names."""
    whole = snapshot(table, use_metadata=False)
    names: dict[str, list[str]] = {}
    for one in whole.at(instant.time).file_slices():
        base = [one.base_file.name] if one.base_file else []
        names.setdefault(one.partition, []).extend([*base, *(log.name for log in one.log_files)])
    record = {
        "savepointedBy": "test",
        "savepointedAt": 1,
        "comments": "",
        "partitionMetadata": {p: {"partitionPath": p, "savepointDataFile": found} for p, found in names.items()},
        "version": 1,
    }
    config = whole.config
    storage, folder = whole.storage, config.timeline_path
    completion = f"_{int(timeline(table).greatest_time) + 1}" if config.version >= 8 else ""
    storage.write(f"{folder}/{instant.time}.savepoint.inflight", b"")
    storage.write(f"{folder}/{instant.time}{completion}.savepoint", write_avro_file(json.dumps(_SAVEPOINT), record))
    return {f"{p}/{name}" if p else name for p, found in names.items() for name in found}


def drop_savepoint(table: Table, instant: Instant) -> None:
    storage = open_storage(table.uri)
    for one in timeline(table).instants:
        if one.action is Action.SAVEPOINT and one.time == instant.time:
            storage.delete(f"{timeline(table).config.timeline_path}/{one.file_name}")
    storage.delete(f"{timeline(table).config.timeline_path}/{instant.time}.savepoint.inflight")

"""Bodies of commits, delta commits and replace commits: Avro on version 8 and later, JSON on version 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lakebed.format.avro.encoder import is_avro_file, read_avro_file, write_avro_file
from lakebed.format.text import parse_json_object
from lakebed.model import Action, CommitMetadata, WriteStat, has_completion_times
from lakebed.timeline.bodies.encoding import COMMIT, check_shape, pretty_json, schema_text
from lakebed.timeline.instants import completes_as

UNKNOWN_OPERATION = "UNKNOWN"
NEW_FILE = "null"

# Version 6 JSON: the stat's keys in the order of Hudi's class, with the values of a stat that has no others.
_EMPTY_STAT: dict[str, Any] = {
    "numInserts": 0,
    "numUpdates": 0,
    "numDeletes": 0,
    "totalLogReadTimeMs": 0,
    "totalLogRecords": 0,
    "totalLogFilesCompacted": 0,
    "totalLogSizeCompacted": 0,
    "totalUpdatedRecordsCompacted": 0,
    "totalLogBlocks": 0,
    "totalValidLogBlocks": 0,
    "totalLogBlocksSize": 0,
    "totalLogBlocksScanTimeMs": 0,
    "totalCorruptLogBlock": 0,
    "totalRollbackBlocks": 0,
    "fileId": "",
    "path": None,
    "cdcStats": None,
    "prevCommit": NEW_FILE,
    "numWrites": 0,
    "numUpdateWrites": 0,
    "totalWriteBytes": 0,
    "totalWriteErrors": 0,
    "tempPath": None,
    "partitionPath": None,
    "fileSizeInBytes": 0,
    "minEventTime": None,
    "maxEventTime": None,
    "prevBaseFile": None,
    "runtimeStats": None,
}
# Only stats of log files have these.
_LOG_FIELDS = ("logVersion", "logOffset", "baseFile", "logFiles")
_RUNTIME_ORDER = ("totalScanTime", "totalUpsertTime", "totalCreateTime")


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """The planned work of a write in a partition: the number of rows for new file groups, and the rows for each
    existing file group as (file id, instant of its base file, updates)."""

    partition: str
    inserts: int
    updates: Sequence[tuple[str, str, int]] = ()


def decode_commit(data: bytes, path: str = "") -> CommitMetadata:
    """The metadata in a commit's body, in any of its forms; an empty body means operation UNKNOWN and no files.

    Missing fields and nulls read as zero or empty. Raises `CorruptFile` naming `path`.
    """
    if not data:
        return CommitMetadata(UNKNOWN_OPERATION)
    record = read_avro_file(data, path) if is_avro_file(data) else parse_json_object(data, path, label="commit body")
    return commit_from_record(record, path)


def commit_from_record(record: Mapping[str, Any], path: str = "") -> CommitMetadata:
    """The metadata in a decoded body (Avro field names). Raises `CorruptFile` naming `path` for fields of a wrong
    type."""
    check_shape(record, COMMIT, path)
    stats: dict[str, list[dict[str, Any]]] = record.get("partitionToWriteStats") or {}
    replaced: dict[str, list[str]] = record.get(_REPLACED) or {}
    extra: dict[str, str | None] = record.get("extraMetadata") or {}
    return CommitMetadata(
        operation=record.get("operationType") or UNKNOWN_OPERATION,
        stats={
            partition: tuple([_stat(partition, stat) for stat in group or ()]) for partition, group in stats.items()
        },
        replaced={partition: tuple(ids or ()) for partition, ids in replaced.items()},
        extra={key: value or "" for key, value in extra.items()},
        raw=dict(record),
    )


def encode_commit(meta: CommitMetadata, version: int, action: Action) -> bytes:
    """A completed body in the form of the table version, of the record that `commit_record` returns.

    >>> body = encode_commit(CommitMetadata("UPSERT", extra={"schema": ""}), 9, Action.COMMIT)
    >>> decode_commit(body).operation
    'UPSERT'
    """
    return encode_record(commit_record(meta, action), version)


def commit_record(meta: CommitMetadata, action: Action) -> dict[str, Any]:
    """The content of a completed body as Hudi 1.2.0 writes it, under the names of its fields. Fields that
    `CommitMetadata` does not name are taken from `meta.raw` where it was decoded from a body."""
    raw_stats = cast("dict[str, list[dict[str, Any]]]", meta.raw.get("partitionToWriteStats") or {})
    stats = {partition: _stat_records(group, raw_stats.get(partition) or []) for partition, group in meta.stats.items()}
    record: dict[str, Any] = {
        "partitionToWriteStats": stats,
        "compacted": bool(meta.raw.get("compacted") or action in (Action.COMPACTION, Action.LOGCOMPACTION)),
        "extraMetadata": dict(meta.extra),
        "operationType": meta.operation,
    }
    if completes_as(action) is Action.REPLACECOMMIT:
        record[_REPLACED] = {partition: list(ids) for partition, ids in meta.replaced.items()}
    return record


def encode_record(record: dict[str, Any], version: int) -> bytes:
    """The bytes of a body in the form of the table version."""
    if has_completion_times(version):
        name = "HoodieReplaceCommitMetadata" if _REPLACED in record else "HoodieCommitMetadata"
        return write_avro_file(schema_text(name), record)
    return pretty_json(record).encode()


# The field that bodies of replacing commits have in addition.
_REPLACED = "partitionToReplaceFileIds"
# Of a stat of a log file in a JSON body: the ranges of the columns that were logged, which no reader uses.
_RANGES = "recordsStats"


def recorded_ranges(data: bytes, path: str = "") -> list[tuple[str, str]]:
    """The columns with their smallest and largest values, as texts, that real Hudi leaves in the JSON bodies of delta
    commits. Raises `CorruptFile`."""
    if not data.startswith(b"{"):
        return []
    ranges = [stat.get(_RANGES) or {} for stat in _stats_in(parse_json_object(data, path))]
    columns = [part for stat_ranges in ranges for part in (stat_ranges.get("val") or {}).items()]
    bounds = ((name, part.get(side)) for name, part in columns for side in ("minValue", "maxValue"))
    return [(name, str(bound)) for name, bound in bounds if bound is not None]


def without_recorded_ranges(data: bytes, path: str = "") -> bytes:
    """A commit body without the ranges that `recorded_ranges` returns. Raises `CorruptFile`."""
    record = parse_json_object(data, path)
    for stat in _stats_in(record):
        stat.pop(_RANGES, None)
    return pretty_json(record).encode()


def _stats_in(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [stat for stats in (record.get("partitionToWriteStats") or {}).values() for stat in stats]


def encode_inflight(operation: str, profile: Sequence[PartitionProfile], version: int) -> bytes:
    """The inflight body with the plan of a write. An empty body (`b""`) is equally valid if there is no plan yet."""
    stats = {part.partition: _profile_records(part) for part in profile}
    record = {"partitionToWriteStats": stats, "compacted": False, "extraMetadata": {}, "operationType": operation}
    return encode_record(record, version)


def _stat(partition: str, record: Mapping[str, Any]) -> WriteStat:
    get = record.get
    runtime: dict[str, int | None] = get("runtimeStats") or {}
    return WriteStat(
        file_id=get("fileId") or "",
        path=get("path") or "",
        partition=partition,
        prev_commit=get("prevCommit") or NEW_FILE,
        num_writes=get("numWrites") or 0,
        num_inserts=get("numInserts") or 0,
        num_updates=get("numUpdateWrites") or 0,
        num_deletes=get("numDeletes") or 0,
        file_size=get("fileSizeInBytes") or 0,
        prev_base_file=get("prevBaseFile"),
        create_millis=runtime.get("totalCreateTime") or 0,
        upsert_millis=runtime.get("totalUpsertTime") or 0,
        base_file=get("baseFile"),
        log_files=None if (names := get("logFiles")) is None else tuple(names),
        log_version=get("logVersion"),
        log_offset=get("logOffset"),
        cdc_stats=get("cdcStats") or None,
    )


def _stat_records(stats: Sequence[WriteStat], raw: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stats as records; a stat that was decoded and not changed since is returned as it was read."""
    if not raw:
        return [stat_record(stat) for stat in stats]
    raw_by_file = {(record.get("fileId"), record.get("path")): record for record in raw}
    records: list[dict[str, Any]] = []
    for stat in stats:
        old = raw_by_file.get((stat.file_id, stat.path or None)) or raw_by_file.get((stat.file_id, stat.path))
        if old is None:
            records.append(stat_record(stat))
        elif _stat(stat.partition, old) == stat:
            records.append(old)
        else:
            records.append({**old, **_written(stat)})
    return records


def stat_record(stat: WriteStat, **more: object) -> dict[str, Any]:
    """A write stat as the record of a commit body, with more of Hudi's fields under their own names.

    >>> stat = WriteStat("f", "p/.f_1.log.1_0-1-0", "p")
    >>> stat_record(stat, logVersion=1)["logVersion"]
    1
    """
    return {**_EMPTY_STAT, **_written(stat), **more}


def _written(stat: WriteStat) -> dict[str, Any]:
    names = None if stat.log_files is None else list(stat.log_files)
    of_log = zip(_LOG_FIELDS, (stat.log_version, stat.log_offset, stat.base_file, names), strict=True)
    return {
        "fileId": stat.file_id,
        "path": stat.path,
        "cdcStats": None if stat.cdc_stats is None else dict(stat.cdc_stats),
        "prevCommit": stat.prev_commit,
        "numWrites": stat.num_writes,
        "numInserts": stat.num_inserts,
        "numUpdateWrites": stat.num_updates,
        "numDeletes": stat.num_deletes,
        "totalWriteBytes": stat.file_size,
        "fileSizeInBytes": stat.file_size,
        "partitionPath": stat.partition,
        "prevBaseFile": stat.prev_base_file,
        "runtimeStats": {
            "totalScanTime": 0,
            "totalUpsertTime": stat.upsert_millis,
            "totalCreateTime": stat.create_millis,
        },
        **{name: value for name, value in of_log if value is not None},
    }


def _profile_records(part: PartitionProfile) -> list[dict[str, Any]]:
    groups = [("", NEW_FILE, part.inserts, 0), *((f, base, 0, updates) for f, base, updates in part.updates)]
    return [
        {**_EMPTY_STAT, "fileId": file_id, "prevCommit": base, "numInserts": inserts, "numUpdateWrites": updates}
        for file_id, base, inserts, updates in groups
    ]

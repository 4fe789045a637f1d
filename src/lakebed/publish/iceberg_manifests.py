"""Manifests and manifest lists of Iceberg: the Avro files that name data files, with their statistics."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import CorruptFile
from lakebed.publish.data_files import DataFile

EXISTING, ADDED, DELETED = 0, 1, 2
FIRST_PARTITION_ID = 1000
DATA, DELETES = 0, 1
"""What the files of a manifest have: rows, or positions of rows that are not shown."""

FILE_PATH_ID, POSITION_ID = 2147483546, 2147483545
"""Iceberg's ids of the two columns of files with positions."""

_OF_VERSION_3 = (("first_row_id", 142), ("content_offset", 144), ("content_size_in_bytes", 145))
_FIELD_ID = "PARQUET:field_id"
_POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {_FIELD_ID: str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {_FIELD_ID: str(POSITION_ID)}),
    ]
)
_POSITION_OPTIONS: Mapping[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["file_path"],
    "store_schema": False,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PARTITION_TYPES: Mapping[pa.DataType, Any] = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.bool_(): "boolean",
    pa.date32(): {"type": "int", "logicalType": "date"},
}

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest: its record in the manifest list, and the entries of files that it names."""

    record: Entry
    entries: Sequence[Entry]

    @property
    def path(self) -> str:
        """The location of the manifest."""
        return self.record["manifest_path"]

    @property
    def content(self) -> int:
        """DATA or DELETES."""
        return self.record["content"]

    @property
    def live(self) -> list[Entry]:
        """The entries of files that are not deleted."""
        return [entry for entry in self.entries if entry["status"] != DELETED]


def _required(name: str, kind: Any, number: int) -> Entry:
    return {"name": name, "type": kind, "field-id": number}


def _optional(name: str, kind: Any, number: int) -> Entry:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _by_column(name: str, kind: str, number: int, key: int) -> Entry:
    """The Avro schema of a map from column ids: Avro's maps have texts as keys, so it is an array of pairs."""
    pair = {
        "type": "record",
        "name": f"k{key}_v{key + 1}",
        "fields": [_required("key", "int", key), _required("value", kind, key + 1)],
    }
    return _optional(name, {"type": "array", "logicalType": "map", "items": pair}, number)


def _entry_schema(partition: Sequence[tuple[str, pa.DataType]], version: int) -> Any:
    fields = [
        _optional(_avro_name(name), _PARTITION_TYPES[kind], FIRST_PARTITION_ID + n)
        for n, (name, kind) in enumerate(partition)
    ]
    file = {
        "type": "record",
        "name": "r2",
        "fields": [
            _required("content", "int", 134),
            _required("file_path", "string", 100),
            _required("file_format", "string", 101),
            _required("partition", {"type": "record", "name": "r102", "fields": fields}, 102),
            _required("record_count", "long", 103),
            _required("file_size_in_bytes", "long", 104),
            _by_column("column_sizes", "long", 108, 117),
            _by_column("value_counts", "long", 109, 119),
            _by_column("null_value_counts", "long", 110, 121),
            _by_column("nan_value_counts", "long", 137, 138),
            _by_column("lower_bounds", "bytes", 125, 126),
            _by_column("upper_bounds", "bytes", 128, 129),
            _optional("key_metadata", "bytes", 131),
            _optional("split_offsets", {"type": "array", "items": "long", "element-id": 133}, 132),
            _optional("equality_ids", {"type": "array", "items": "int", "element-id": 136}, 135),
            _optional("sort_order_id", "int", 140),
            _optional("referenced_data_file", "string", 143),
            *(_optional(name, "long", number) for name, number in (_OF_VERSION_3 if version == 3 else ())),
        ],
    }
    entry = [
        _required("status", "int", 0),
        _optional("snapshot_id", "long", 1),
        _optional("sequence_number", "long", 3),
        _optional("file_sequence_number", "long", 4),
        _required("data_file", file, 2),
    ]
    return fastavro.parse_schema({"type": "record", "name": "manifest_entry", "fields": entry})


@cache
def _list_schema(version: int) -> Any:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _required("contains_null", "boolean", 509),
            _optional("contains_nan", "boolean", 518),
            _optional("lower_bound", "bytes", 510),
            _optional("upper_bound", "bytes", 511),
        ],
    }
    counts = [
        _required(f"{kind}_{unit}_count", form, number)
        for unit, form, first in (("files", "int", 504), ("rows", "long", 512))
        for number, kind in enumerate(("added", "existing", "deleted"), first)
    ]
    fields = [
        _required("manifest_path", "string", 500),
        _required("manifest_length", "long", 501),
        _required("partition_spec_id", "int", 502),
        _required("content", "int", 517),
        _required("sequence_number", "long", 515),
        _required("min_sequence_number", "long", 516),
        _required("added_snapshot_id", "long", 503),
        *counts,
        _optional("partitions", {"type": "array", "items": summary, "element-id": 508}, 507),
        _optional("key_metadata", "bytes", 519),
        *([_optional("first_row_id", "long", 520)] if version == 3 else []),
    ]
    return fastavro.parse_schema({"type": "record", "name": "manifest_file", "fields": fields})


def _avro_name(name: str) -> str:
    """The name of a column in a form valid in Avro; readers use the ids."""
    plain = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_x{ord(match.group()):X}", name)
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"


def entry_of(file: DataFile, path: str, ids: Mapping[str, int], snapshot: int, sequence: int) -> Entry:
    """The entry of a file that is new. `ids` are the ids of top-level columns by name."""
    counts = {ids[name]: stats.nulls for name, stats in file.columns.items() if stats.nulls is not None}
    low: dict[int, bytes] = {}
    high: dict[int, bytes] = {}
    for name, stats in file.columns.items():
        kind = file.types.field(name).type
        least, greatest = encoded_value(stats.low, kind), encoded_value(stats.high, kind)
        if least is not None and greatest is not None:
            low[ids[name]], high[ids[name]] = least, greatest
    data_file = {
        "content": DATA,
        "file_path": path,
        "file_format": "PARQUET",
        "partition": {_avro_name(name): value for name, value in file.partition.items()},
        "record_count": file.rows,
        "file_size_in_bytes": file.base.size,
        "value_counts": _pairs(dict.fromkeys(counts, file.rows)),
        "null_value_counts": _pairs(counts),
        "lower_bounds": _pairs(low),
        "upper_bounds": _pairs(high),
    }
    return _added(data_file, snapshot, sequence)


def mask_entry(file: Mapping[str, Any], masked: Mapping[str, Any], rows: int, snapshot: int, sequence: int) -> Entry:
    """The entry of a new file with the positions of `rows` rows that are not shown, all of one data file: `masked`, as
    its entry describes it. `file` has the path, format and size.

    Readers match both by the partition and by the path of the data file, byte by byte, and take positions only of
    snapshots that are not older than the data file.
    """
    masked_path = masked["file_path"].encode()
    data_file = {
        "content": DELETES,
        "partition": masked["partition"],
        "record_count": rows,
        "lower_bounds": _pairs({FILE_PATH_ID: masked_path}),
        "upper_bounds": _pairs({FILE_PATH_ID: masked_path}),
        "referenced_data_file": masked["file_path"],
        **file,
    }
    return _added(data_file, snapshot, sequence)


def _added(data_file: Entry, snapshot: int, sequence: int) -> Entry:
    return {
        "status": ADDED,
        "snapshot_id": snapshot,
        "sequence_number": sequence,
        "file_sequence_number": sequence,
        "data_file": data_file,
    }


def position_deletes(path: str, positions: npt.NDArray[np.int64]) -> bytes:
    """The bytes of a Parquet file with the positions of rows, ascending, of the data file at the location `path`. Its
    columns have the ids that Iceberg reserves for them: Java's readers find them by nothing else."""
    rows = pa.Table.from_arrays([pa.repeat(path, len(positions)), pa.array(positions)], schema=_POSITION_DELETES)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **_POSITION_OPTIONS) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def _pairs(values: Mapping[int, Any]) -> list[Entry]:
    return [{"key": key, "value": value} for key, value in values.items()]


def encoded_value(value: Any, kind: pa.DataType) -> bytes | None:
    """A value in the binary form of Iceberg's bounds. None for a value that bounds leave out.

    >>> encoded_value("ö", pa.string()), encoded_value(True, pa.bool_()), encoded_value(1, pa.int32())
    (b'\\xc3\\xb6', b'\\x01', b'\\x01\\x00\\x00\\x00')
    """
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return value.to_bytes(4 if kind == pa.int32() else 8, "little", signed=True)
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return ((moment - _EPOCH) // _MICROSECOND).to_bytes(8, "little", signed=True)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days.to_bytes(4, "little", signed=True)
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    return None if value is None else str(value).encode()


def encode_manifest(
    entries: Sequence[Entry],
    partition: Sequence[tuple[str, pa.DataType]],
    header: Mapping[str, str],
    version: int = 2,
) -> bytes:
    """The bytes of a manifest. `partition` are the partition columns with their types, `version` is Iceberg's."""
    return _avro_file(_entry_schema(partition, version), entries, {"format-version": str(version), **header})


def manifest_record(
    entries: Sequence[Entry], path: str, size: int, snapshot: int, sequence: int, kinds: Sequence[pa.DataType]
) -> Entry:
    """The record of a manifest in the list of the snapshot that wrote it. Its entries are either all of data files or
    all of files with deletes. `kinds` are the types of the partition columns."""
    record: Entry = {
        "manifest_path": path,
        "manifest_length": size,
        "partition_spec_id": 0,
        "content": max((entry["data_file"]["content"] for entry in entries), default=DATA),
        "sequence_number": sequence,
        "min_sequence_number": min((e["sequence_number"] for e in entries if e["status"] != DELETED), default=sequence),
        "added_snapshot_id": snapshot,
    }
    for kind, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
        files = [entry["data_file"] for entry in entries if entry["status"] == status]
        record[f"{kind}_files_count"] = len(files)
        record[f"{kind}_rows_count"] = sum(file["record_count"] for file in files)
    rows = [list(entry["data_file"]["partition"].values()) for entry in entries]
    record["partitions"] = []
    for n, kind in enumerate(kinds):
        present = [row[n] for row in rows if row[n] is not None]
        record["partitions"].append(
            {
                "contains_null": len(present) < len(rows),
                "lower_bound": encoded_value(min(present, default=None), kind),
                "upper_bound": encoded_value(max(present, default=None), kind),
            }
        )
    return record


def encode_manifest_list(records: Sequence[Entry], header: Mapping[str, str], version: int = 2) -> bytes:
    """The bytes of the manifest list of a snapshot. `version` is Iceberg's."""
    return _avro_file(_list_schema(version), records, {"format-version": str(version), **header})


def with_row_numbers(manifests: Iterable[Manifest], first: int) -> tuple[list[Manifest], int]:
    """The manifests, in which rows of data files have numbers from `first` on where they had none yet (Iceberg 3); and
    the first number that is free. The given manifests, which another list may have, stay as they are."""
    numbered: list[Manifest] = []
    for manifest in manifests:
        if manifest.content == DATA and manifest.record.get("first_row_id") is None:
            numbered.append(Manifest({**manifest.record, "first_row_id": first}, manifest.entries))
            first += manifest.record["added_rows_count"] + manifest.record["existing_rows_count"]
        else:
            numbered.append(manifest)
    return numbered, first


def numbered_entries(manifest: Manifest) -> list[Entry]:
    """The live entries of a manifest, each with the number of its first row, so that another manifest can have them; in
    a manifest without numbers (Iceberg 2) as they are."""
    first = manifest.record.get("first_row_id")
    if first is None:
        return manifest.live
    entries: list[Entry] = []
    for entry in manifest.live:
        file = entry["data_file"]
        if file.get("first_row_id") is None:
            entry = {**entry, "data_file": {**file, "first_row_id": first}}
            first += file["record_count"]
        entries.append(entry)
    return entries


def decode_avro(data: bytes, path: str) -> list[Entry]:
    """The records of a manifest or a manifest list. Raises `CorruptFile`."""
    try:
        return [dict(record) for record in fastavro.reader(io.BytesIO(data)) if isinstance(record, dict)]
    except (ValueError, EOFError, KeyError, IndexError) as error:
        raise CorruptFile(
            f"{path} is no Avro file of Iceberg: {error}",
            hint="Move the folder `metadata` of the table away and publish again: the list is then written again.",
            context={"path": path},
        ) from error


def _avro_file(schema: Any, records: Iterable[Entry], header: Mapping[str, str]) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec="deflate", metadata=dict(header))
    return sink.getvalue()

"""A table's metadata table through real Hudi's own reader, and whether it agrees with the files and the rows.

Runs inside the oracle's process (`hudi_oracle.py`). The checks follow Hudi's own validator, which is not part of its
Spark bundle: partitions, file slices and sizes against a listing, statistics and bloom filters against the base files,
partition statistics, record index and secondary indexes against the rows. Statistics and filters are asked for twice:
all records of the partition, and one by one by key, as Hudi's own readers look them up.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import os
import struct
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

EXAMPLES = 5  # of each kind of problem
BLOOM_KEYS = (b"org.apache.hudi.bloomfilter", b"com.uber.hoodie.bloomfilter")


class HudiMetadata:
    """The metadata table of one table as Hudi reads it, from storage anew."""

    def __init__(self, oracle, table, folder, stored) -> None:
        self.oracle, self.spark, self.jvm = oracle, oracle.spark, oracle.jvm
        self.table, self.folder, self.stored = table, folder, stored
        self.partitions = sorted(filter(None, stored.get("hoodie.table.metadata.partitions", "").split(",")))
        self.version = int(stored.get("hoodie.table.version", "0"))
        self.client = oracle._client(table)
        hudi = self.jvm.org.apache.hudi
        self._context = hudi.client.common.HoodieSparkEngineContext(self.spark.sparkContext._jsc)
        config = hudi.common.config.HoodieMetadataConfig.newBuilder().enable(True).build()
        base = self.client.getBasePath().toString()
        self.reader = hudi.metadata.HoodieBackedTableMetadata(self._context, self.client.getStorage(), config, base)
        self.listed = hudi.metadata.FileSystemBackedTableMetadata(
            self._context, self.client.getTableConfig(), self.client.getStorage(), base
        )

    def paths(self, from_metadata=True) -> list:
        return sorted((self.reader if from_metadata else self.listed).getAllPartitionPaths())

    def files(self) -> dict:
        """Every file it lists, by partition path: name and size."""
        found = {}
        for path in self.paths():
            full = self.jvm.org.apache.hudi.common.fs.FSUtils.constructAbsolutePath(self.client.getBasePath(), path)
            listed = self.reader.getAllFilesInPartition(full)
            found[path] = {info.getPath().getName(): info.getLength() for info in listed}
        return found

    def file_slices(self, from_metadata=True) -> dict:
        """The latest file slices of each partition path, by the metadata table or by a listing."""
        views = self.jvm.org.apache.hudi.common.table.view.HoodieTableFileSystemView
        commits = self.client.getCommitsAndCompactionTimeline()
        if from_metadata:
            view = views(self.reader, self.client, commits)
        else:
            view = views.fileListingBasedFileSystemView(self._context, self.client, commits)
        completed = self.client.getCommitsTimeline().filterCompletedInstants().getInstants()
        newest = max((i.requestedTime() for i in completed), default="")
        found = {}
        for path in self.paths(from_metadata):
            slices = view.getLatestMergedFileSlicesBeforeOrOn(path, newest).toArray() if newest else []
            if slices:
                found[path] = sorted((file_slice(s) for s in slices), key=lambda s: s["file_id"])
        return found

    def records(self, partition) -> list:
        """All merged records of a metadata partition, as dictionaries.

        Not by the data source: it fails on some slices that have log files only, and every later write of Hudi's to a
        metadata table in the same process with it.
        """
        every = self.jvm.java.util.ArrayList()
        every.add(self.jvm.org.apache.hudi.metadata.RecordIndexRawKey(""))
        keys = self.jvm.org.apache.hudi.common.data.HoodieListData.eager(every)
        values = [
            record.getData().getInsertValue(None, None)
            for record in self.reader.getRecordsByKeyPrefixes(keys, partition, True).collectAsList()
        ]
        texts = [value.get().toString() for value in values if value.isPresent()]
        return [json.loads(text, strict=False) for text in texts]

    def pairs(self, files):
        """(partition path, file name) pairs as Java wants them."""
        pairs = self.jvm.java.util.ArrayList()
        for path, name in files:
            pairs.add(self.jvm.org.apache.hudi.common.util.collection.Pair.of(path, name))
        return pairs


def file_slice(view_slice) -> dict:
    base = view_slice.getBaseFile()
    logs = [log.getFileName() for log in view_slice.getLogFiles().toArray()]
    return {
        "file_id": view_slice.getFileId(),
        "base_instant": view_slice.getBaseInstantTime(),
        "base_file": base.get().getFileName() if base.isPresent() else None,
        "log_files": logs[::-1],  # merge order: the interface gives the newest first
    }


class Validation:
    """The checks of one table; `problems` holds what differs, `checked` how much was compared."""

    def __init__(self, metadata: HudiMetadata, rows) -> None:
        self.metadata, self.rows = metadata, rows
        self.problems: list = []
        self.checked: dict = {}
        self.slices = metadata.file_slices(from_metadata=False)
        self.base_files = {s["base_file"]: p for p, found in self.slices.items() for s in found if s["base_file"]}

    def run(self) -> dict:
        checks = {
            "files": self.check_files,
            "column_stats": self.check_column_stats,
            "partition_stats": self.check_partition_stats,
            "bloom_filters": self.check_bloom_filters,
            "record_index": self.check_record_index,
        }
        for partition in self.metadata.partitions:
            if partition in checks:
                checks[partition]()
            elif partition.startswith("secondary_index_"):
                self.check_secondary_index(partition)
        return {"valid": not self.problems, "problems": self.problems, "checked": self.checked}

    def problem(self, check, said, **facts) -> None:
        if sum(p["check"] == check and p["said"] == said for p in self.problems) < EXAMPLES:
            self.problems.append({"check": check, "said": said, **{k: str(v) for k, v in facts.items()}})

    def check_files(self) -> None:
        known, there = self.metadata.paths(), set(self.metadata.paths(from_metadata=False))
        missing = {p for p, found in self.slices.items() if found} - set(known)
        if missing or set(known) - there:
            self.problem("files", "partitions differ", missing=sorted(missing), gone=sorted(set(known) - there))
        told = self.metadata.file_slices()
        for path in sorted({*told, *self.slices}):
            if told.get(path) != self.slices.get(path):
                self.problem("files", "file slices differ", at=path, told=told.get(path), there=self.slices.get(path))
        files = self.metadata.files()
        for path, names in files.items():
            for name, size in names.items():
                full = os.path.join(self.metadata.folder, path, name)
                found = os.path.getsize(full) if os.path.exists(full) else None
                if found != size and not (found is not None and name.startswith(".") and size <= 1):
                    self.problem("files", "size differs", file=full, told=size, there=found)
        self.checked["files"] = sum(map(len, files.values()))

    def check_column_stats(self) -> None:
        columns: dict = {}
        for record in self.alive("column_stats", "ColumnStatsMetadata"):
            if record["fileName"] in self.base_files:
                columns.setdefault(record["columnName"], {})[record["fileName"]] = record
        whole = {name: pq.read_table(self.path_of(name), partitioning=None) for name in self.base_files}
        for column, told in columns.items():
            for name, record in told.items():
                values = column_of(whole[name], column)
                if values is not None:
                    self.compare_stats(name, column, record, values)
            self.ask_one_by_one(column, told)
        with_rows = {name for name, rows in whole.items() if rows.num_rows}  # real Hudi says nothing of a file without
        for name in with_rows - {name for told in columns.values() for name in told}:
            self.problem("column_stats", "no record of a latest base file", file=name)
        self.checked["column_stats"] = sum(map(len, columns.values()))

    def compare_stats(self, name, column, record, values) -> None:
        told, there = (record["valueCount"], record["nullCount"]), (len(values), values.null_count)
        if told != there:
            self.problem("column_stats", "counts differ", file=name, column=column, told=told, there=there)
        low, high = range_of(values)
        told = unwrapped(record["minValue"]), unwrapped(record["maxValue"])
        if told == (0, 0) and (low is None or high != high):
            return  # what real Hudi says of files with nulls only, and with NaN
        if high != high and [float(bound) for bound in told] == [-math.inf, math.inf]:
            return  # what lakebed says of files with NaN
        if (low is None) != (told[0] is None):
            self.problem("column_stats", "known or not", file=name, column=column, told=told, there=(low, high))
        elif low is not None and not (same(told[0], low) and same(told[1], high)):
            self.problem("column_stats", "range differs", file=name, column=column, told=told, there=(low, high))

    def ask_one_by_one(self, column, told) -> None:
        """By key, which only finds a record in the file group that its key hashes to."""
        files = [(self.base_files[name], name) for name in told]
        found = self.metadata.reader.getColumnStats(self.metadata.pairs(files), column)
        if len(found) != len(files):
            self.problem("column_stats", "records not found by key", column=column, told=len(found), there=len(files))

    def check_partition_stats(self) -> None:
        from pyspark.sql import functions as F

        records = self.alive("partition_stats", "ColumnStatsMetadata")
        columns = sorted({r["columnName"] for r in records} & set(self.rows.columns)) if self.rows else []
        if columns:
            sides = [
                side(F.col(f"`{c}`")).alias(f"{name}{at}")
                for at, c in enumerate(columns)
                for name, side in (("low", F.min), ("high", F.max), ("known", F.count))
            ]
            there = {
                r["_hoodie_partition_path"]: r
                for r in self.rows.groupBy("_hoodie_partition_path").agg(*sides).collect()
            }
            for r in records:
                path = "" if r["fileName"] == "." else r["fileName"]
                if path in there and r["columnName"] in columns:
                    self.compare_partition(r, path, there[path], columns.index(r["columnName"]))
        self.checked["partition_stats"] = len(records)

    def compare_partition(self, record, path, there, at) -> None:
        low, high = there[f"low{at}"], there[f"high{at}"]
        told = unwrapped(record["minValue"]), unwrapped(record["maxValue"])
        where = {"at": path, "column": record["columnName"], "told": told, "there": (low, high)}
        if high != high:
            return  # and its partitions have that range merged in
        if None in told:
            if there[f"known{at}"]:
                self.problem("partition_stats", "no range, but values", **where)
        elif low is not None and (outside(low, told) or outside(high, told)):
            self.problem("partition_stats", "values outside the range", **where)

    def check_bloom_filters(self) -> None:
        told = {r["bloomFilter"].encode("latin-1") for r in self.alive("bloom_filters", "BloomFilterMetadata")}
        having = []
        for name, path in self.base_files.items():
            stored = pq.ParquetFile(self.path_of(name)).metadata.metadata or {}
            text = next((stored[key] for key in BLOOM_KEYS if key in stored), None)
            if text is not None:
                having.append((path, name))
                if text not in told:
                    self.problem("bloom_filters", "the filter of a latest base file is missing", file=name)
        found = self.metadata.reader.getBloomFilters(self.metadata.pairs(having), "bloom_filters")
        if len(found) != len(having):
            self.problem("bloom_filters", "filters not found by key", told=len(found), there=len(having))
        self.checked["bloom_filters"] = len(having)

    def check_record_index(self) -> None:
        told: dict = {}
        for record in self.metadata.records("record_index"):
            location = record["recordIndexMetadata"]
            if location:
                told.setdefault((record["key"], location["partitionName"]), []).append(file_id_of_record(location))
        for key, ids in told.items():
            if len(ids) > 1:
                self.problem("record_index", "a key more than once", key=key, told=ids)
        if self.rows is None:
            return
        names = self.rows.select("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name").collect()
        there = {(key, path): file_id_of_name(name) for key, path, name in names}
        for key in there.keys() | told.keys():
            if there.get(key) not in told.get(key, [None]):
                self.problem("record_index", "file ids differ", key=key, told=told.get(key), there=there.get(key))
        self.checked["record_index"] = len(told)

    def check_secondary_index(self, partition) -> None:
        definition = self.definition(partition)
        column = (definition.get("sourceFields") or [None])[0]
        if self.rows is None or column not in self.rows.columns:
            return
        kind = dict(self.rows.dtypes)[column]
        told = set()
        for record in self.metadata.records(partition):
            if record["SecondaryIndexMetadata"] and not record["SecondaryIndexMetadata"]["isDeleted"]:
                value, key = split_secondary_key(record["key"])
                told.add((text_of_value(value, kind), key))
        rows = self.rows.select(f"`{column}`", "_hoodie_record_key").collect()
        there = {(text_of_value(plain(value), kind), key) for value, key in rows}
        if definition.get("version") in (None, "V1"):  # 1.0.2 leaves nulls out
            told, there = ({pair for pair in pairs if pair[0] is not None} for pairs in (told, there))
        if told != there:
            self.problem(
                partition,
                "pairs differ",
                told=sorted(told - there, key=str)[:EXAMPLES],
                there=sorted(there - told, key=str)[:EXAMPLES],
            )
        self.checked[partition] = len(told)

    # ---- parts

    def alive(self, partition, field) -> list:
        found = [record[field] for record in self.metadata.records(partition)]
        return [record for record in found if record and not record["isDeleted"]]

    def path_of(self, name) -> str:
        return os.path.join(self.metadata.folder, self.base_files[name], name)

    def definition(self, partition) -> dict:
        path = self.metadata.stored.get("hoodie.table.index.defs.path") or ".hoodie/.index_defs/index.json"
        with open(os.path.join(self.metadata.folder, path), encoding="utf-8") as file:
            return (json.load(file).get("indexDefinitions") or {}).get(partition, {})


def column_of(table, path):
    """A column by its name, or by the dotted path of a leaf below structs; None for what lists and maps hold."""
    if path in table.column_names:
        return table.column(path)
    top, *rest = path.split(".")
    if top not in table.column_names:
        return None
    values = table.column(top)
    for name in rest:
        if not pa.types.is_struct(values.type):
            return None
        values = pc.struct_field(values, name)
    return values


def range_of(values):
    """The least and the greatest value; NaN is the greatest of all."""
    if pa.types.is_nested(values.type) or values.null_count == len(values):
        return None, None
    known = [plain(value) for value in values.drop_null().to_pylist()]
    rank = (lambda v: (v != v, v)) if isinstance(known[0], float) else None
    return min(known, key=rank), max(known, key=rank)


def unwrapped(wrapper):
    """The value in a statistics wrapper: a union of records with one field each."""
    for member in (wrapper or {}).values():
        if member is not None:
            return plain(next(iter(member.values()))) if isinstance(member, dict) else plain(member)
    return None


def plain(value):
    """Values as statistics hold them: days, microseconds and bytes."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        epoch = datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo and datetime.UTC)
        return (value - epoch) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return value


def same(told, there) -> bool:
    """Whether a file's value is the one told as JSON: bytes as Latin-1, NaN and infinities as text."""
    there = plain(there)
    if isinstance(there, float):  # FloatWrapper holds 32 bits
        told = float(told)
        return told == there or (told != told and there != there) or struct.pack("f", told) == struct.pack("f", there)
    if isinstance(there, bytes):
        return told.encode("latin-1") == there
    if isinstance(there, decimal.Decimal):
        unscaled = decimal.Decimal(int.from_bytes(told.encode("latin-1"), "big", signed=True))
        # before version 9 always of scale 15
        return any(unscaled.scaleb(exponent) == there for exponent in (there.as_tuple().exponent, -15))
    if isinstance(told, int) and isinstance(there, int):
        return told in (there, there * 1000, there // 1000)  # milliseconds
    return told == there


def outside(value, told) -> bool:
    """Whether a value is not between the two bounds; never for decimals, whose bytes have no order."""
    value = plain(value)
    if isinstance(value, decimal.Decimal):
        return False
    if same(told[0], value) or same(told[1], value):
        return False
    if isinstance(value, bytes):
        told = [bound.encode("latin-1") for bound in told]
    if isinstance(value, float):
        told = [float(bound) for bound in told]
    return not told[0] <= value <= told[1]


def text_of_value(value, kind):
    return float(value) if value is not None and kind in ("float", "double") else None if value is None else str(value)


def split_secondary_key(key):
    """The two halves of a secondary key, their escapes undone; a lone NUL is a null."""
    halves, current, escaped = [], [], False
    for letter in key:
        if escaped or letter not in "\\$":
            current.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        else:
            halves.append("".join(current))
            current = []
    value, record_key = [*halves, "".join(current)]
    return (None if value == "\0" else value), record_key


def file_id_of_name(name) -> str:
    return name.split("_", 1)[0]


def file_id_of_record(location) -> str:
    if location["fileIdEncoding"] == 1:
        return location["fileId"]
    halves = struct.pack(">qq", location["fileIdHighBits"], location["fileIdLowBits"])
    index = location["fileIndex"]
    return str(uuid.UUID(bytes=halves)) + (f"-{index}" if index is not None and index >= 0 else "")

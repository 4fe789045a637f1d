#!/usr/bin/env python3
"""Real Apache Hudi as a test oracle: one JSON object a line on standard input, one answer a line on standard output.

It runs in an environment of its own (PySpark 3.5 and the Hudi Spark bundle) and imports nothing of lakebed. With the
bundles of 1.0.2 and 0.15.0 it answers read, incremental, write, sql, properties and timeline.

    hudi_oracle.py [--bundle JAR | --packages COORDINATES] [--ivy FOLDER] [--memory 2g] [--tz UTC] [--metastore URI]

    {"cmd": "read", "table": T, "out": "x.parquet", "query_type": "read_optimized", "as_of": "2024...", "option": {}}
    {"cmd": "incremental", "table": T, "begin": "000", "end": "2024...", "out": "x.parquet"}
    {"cmd": "write", "table": T, "data": "x.parquet", "operation": "upsert", "mode": "append", "options": {}}
    {"cmd": "stream", "table": T, "folder": "in", "checkpoint": "ck", "operation": "upsert", "options": {}}
    {"cmd": "sql", "sql": "select ... from {t}", "table": T, "conf": {}, "out": "x.parquet"}
    {"cmd": "timeline", "table": T}      {"cmd": "file_slices", "table": T}      {"cmd": "properties", "table": T}
    {"cmd": "metadata_files", "table": T}     {"cmd": "metadata", "table": T, "partition": "files"}
    {"cmd": "validate_metadata", "table": T}
    {"cmd": "service", "table": T, "call": "savepoint", "instant": "2024...", "options": {}}
        (or delete_savepoint, restore, rollback, index, log_compact, and without an instant schedule_clean,
        schedule_log_compaction; schedule_indexing names a MetadataPartitionType as the instant)

Every request may have `conf`, settings of the Spark session while it runs. `begin` is exclusive, and a completion
time on tables of version 8 and 9. Without `out` the rows come back in the answer. `write` repeats what
`hoodie.properties` says unless `options` says otherwise, and keeps the metadata table as it is: off where there is
none. Nothing but answers goes to standard output.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import uuid
from contextlib import contextmanager

from hudi_metadata import HudiMetadata, Validation
from py4j.protocol import Py4JError

DEFAULT_PACKAGE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
# Stages that get dozens or hundreds of tasks, however few the rows are.
TASKS = (
    "hoodie.global.index.reconcile.parallelism",
    "hoodie.metadata.repartition.default.partitions",
    *(
        f"hoodie.metadata.index.{i}.parallelism"
        for i in ("bloom.filter", "column.stats", "partition.stats", "secondary")
    ),
)
# Hudi's use of Kryo reaches into these packages, which JDK 17 keeps shut.
OPENED = (
    *(f"java.lang{part}" for part in ("", ".ref", ".reflect", ".invoke")),
    *(f"java.{part}" for part in ("io", "math", "net", "nio", "security", "text", "time")),
    *(f"java.util{part}" for part in ("", ".concurrent", ".concurrent.atomic", ".concurrent.locks")),
    *(f"java.util.{part}" for part in ("function", "regex", "stream")),
    *(f"jdk.internal.{part}" for part in ("misc", "ref", "reflect")),
    *(f"sun.{part}" for part in ("nio.ch", "nio.cs", "security.action", "util.calendar")),
)
WRITE = "hoodie.datasource.write."
# option of a write <- property of the table that answers it
REPEATED = {
    WRITE + "recordkey.field": "hoodie.table.recordkey.fields",
    WRITE + "partitionpath.field": "hoodie.table.partition.fields",
    WRITE + "table.type": "hoodie.table.type",
    WRITE + "hive_style_partitioning": WRITE + "hive_style_partitioning",
    WRITE + "keygenerator.class": "hoodie.table.keygenerator.class",
    WRITE + "keygenerator.type": "hoodie.table.keygenerator.type",
}
SORT = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_commit_seqno")


class Oracle:
    """One Spark session with the Hudi bundle."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        self.scratch = tempfile.mkdtemp(prefix="hudi-oracle-")
        # The JVM writes to file descriptor 1 as well: keep standard output for answers only.
        sys.stdout.flush()
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.spark = self._session(arguments)
        self.spark.sparkContext.setLogLevel("ERROR")
        self.jvm = self.spark._jvm

    def _session(self, arguments: argparse.Namespace):
        from pyspark.sql import SparkSession

        opens = " ".join(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED)
        settings = {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
            "spark.sql.session.timeZone": arguments.tz,
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            # answers may hold old dates; how Hudi's own files are read is left to their footers
            "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
            "spark.sql.shuffle.partitions": "2",
            # code for a few rows takes longer to compile than to do without
            "spark.sql.codegen.wholeStage": "false",
            "spark.default.parallelism": "2",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": arguments.memory,
            "spark.driver.host": "127.0.0.1",
            "spark.sql.warehouse.dir": self.scratch + "/warehouse",
            "spark.local.dir": self.scratch + "/local",
            "spark.driver.extraJavaOptions": f"-Duser.timezone={arguments.tz} -XX:TieredStopAtLevel=1 "
            f"-XX:+UseSerialGC -Dderby.system.home={self.scratch} {opens}",
        }
        if arguments.bundle:
            settings["spark.jars"] = os.path.abspath(arguments.bundle)
        else:
            settings["spark.jars.packages"] = arguments.packages
        if arguments.first_jars:  # before Spark's own, whose Arrow is older
            settings["spark.driver.extraClassPath"] = ":".join(map(os.path.abspath, arguments.first_jars.split(",")))
        if arguments.metastore:
            settings["spark.sql.catalogImplementation"] = "hive"
            settings["spark.hadoop.hive.metastore.uris"] = arguments.metastore
        if arguments.ivy:
            settings["spark.jars.ivy"] = arguments.ivy
        builder = SparkSession.builder.master("local[2]").appName("hudi-oracle")
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def close(self) -> None:
        self.spark.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def answer(self, request: dict) -> dict:
        """Run one request; errors become part of the answer."""
        started = time.time()
        request = dict(request)
        command = request.pop("cmd")
        settings = request.pop("conf", None) or {}
        try:
            with self._configured(settings):
                result = getattr(self, "do_" + command)(**request)
            answer = {"cmd": command, "ok": True, "result": result}
        except Exception as error:
            answer = {
                "cmd": command,
                "ok": False,
                "error": first_line(str(error)),
                "trace": traceback.format_exc()[:8000],
            }
        answer["secs"] = round(time.time() - started, 2)
        return answer

    # ---- commands

    def do_ready(self) -> dict:
        # releases before 1.2 tell it in the bundle's manifest alone
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        some = "org.apache.hudi.common.table.HoodieTableMetaClient"
        return {"hudi": self.jvm.java.lang.Class.forName(some, True, loader).getPackage().getImplementationVersion()}

    def do_read(self, table, out=None, query_type="snapshot", as_of=None, where=None, option=None) -> dict:
        options = {**(option or {}), "hoodie.datasource.query.type": query_type}
        if as_of:
            options["as.of.instant"] = as_of
        return self._rows(self._load(table, options, where), out)

    def do_incremental(self, table, begin="000", end=None, out=None, where=None, option=None) -> dict:
        options = {
            **(option or {}),
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": begin,
        }
        if end:
            options["hoodie.datasource.read.end.instanttime"] = end
        return self._rows(self._load(table, options, where), out)

    def do_write(self, table, data, operation="upsert", mode="append", options=None, keep_indexes=True) -> dict:
        texts, before = self._settings(table, operation, mode, options, keep_indexes)
        given = self.spark.read.option("datetimeRebaseMode", "CORRECTED")
        rows = given.parquet(*([data] if isinstance(data, str) else data)).coalesce(1)
        variants = [field for field in rows.schema if field.metadata.get("hudi_type") == "VARIANT"]
        for part in (part for field in variants for part in field.dataType):
            part.nullable = False  # Spark reads all columns of files as nullable, and Hudi takes no such variant
        rows = self.spark.createDataFrame(rows.rdd, rows.schema) if variants else rows
        rows.write.format("hudi").options(**texts).mode(mode).save(uri(table))
        return {"new_instants": self._new_instants(table, before)}

    def do_stream(self, table, folder, checkpoint, operation="upsert", options=None) -> dict:
        texts, before = self._settings(table, operation, "append", options, True)
        files = os.path.join(folder, "*.parquet")
        schema = self.spark.read.parquet(files).schema
        rows = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
        writer = rows.writeStream.format("hudi").options(**texts).option("checkpointLocation", checkpoint)
        query = writer.outputMode("append").trigger(availableNow=True).start(uri(table))
        query.awaitTermination()
        return {"new_instants": self._new_instants(table, before), "query": query.id}

    def _new_instants(self, table, before) -> list:
        return [i for i in self._instants(table) if (i["instant"], i["state"]) not in before]

    def _settings(self, table, operation, mode, options, keep_indexes) -> tuple:
        settings = {WRITE + "operation": operation, **(options or {})}
        for stage in ("upsert", "insert", "bulkinsert", "delete"):
            settings.setdefault(f"hoodie.{stage}.shuffle.parallelism", "2")
        for key in TASKS:
            settings.setdefault(key, "2")
        stored = self._stored(table) if os.path.isdir(os.path.join(local(table), ".hoodie")) else {}
        settings.setdefault("hoodie.table.name", stored.get("hoodie.table.name") or os.path.basename(local(table)))
        repeat(settings, stored)
        if stored and keep_indexes and mode == "append":
            for key, value in self._kept_indexes(table, stored).items():
                settings.setdefault(key, value)
        before = {(i["instant"], i["state"]) for i in self._instants(table)} if stored else set()
        return {key: str(value) for key, value in settings.items()}, before

    def do_sql(self, sql, table=None, out=None) -> dict:
        name, kept = "", {}
        if table:
            stored = self._stored(table)
            name = "`{}`".format(stored.get("hoodie.table.name") or "t")
            kept = {k: v for k, v in self._kept_indexes(table, stored).items() if self.spark.conf.get(k, None) is None}
            self.spark.sql(f"drop table if exists {name}")
            self.spark.sql(f"create table {name} using hudi location '{uri(table)}'")
        with self._configured(kept):
            result: dict = {}
            for statement in [sql] if isinstance(sql, str) else sql:
                frame = self.spark.sql(statement.replace("{t}", name))
                result = self._rows(frame, out, ()) if frame.columns else {"rows": 0, "data": []}
            return result

    def do_service(self, table, call, instant, options=None) -> dict:
        """By the write client: SQL procedures upgrade a table on the way. Gives the instants that appeared."""
        stored = self._stored(table)
        settings = dict(options or {})
        settings.setdefault("hoodie.table.name", stored["hoodie.table.name"])
        repeat(settings, stored)
        for key, value in self._kept_indexes(table, stored).items():
            settings.setdefault(key, value)
        if call == "index":  # what builds an index takes the table's schema from the job
            settings.setdefault("hoodie.avro.schema", stored["hoodie.table.create.schema"])
        before = {(i["instant"], i["action"], i["state"]) for i in self._instants(table)}
        properties = self.jvm.java.util.Properties()
        for key, value in settings.items():
            properties.setProperty(key, str(value))
        hudi = self.jvm.org.apache.hudi
        config = hudi.config.HoodieWriteConfig.newBuilder().withPath(uri(table)).withProperties(properties).build()
        context = hudi.client.common.HoodieSparkEngineContext(self.spark.sparkContext._jsc)
        client = hudi.client.SparkRDDWriteClient(context, config)
        try:
            if call == "savepoint":
                client.savepoint(instant, "user", "comment")
            elif call == "schedule_indexing":
                kind = self.jvm.org.apache.hudi.metadata.MetadataPartitionType.valueOf(instant)
                kinds, paths = self.jvm.java.util.ArrayList(), self.jvm.java.util.ArrayList()
                kinds.add(kind)
                assert client.scheduleIndexing(kinds, paths).isPresent(), f"no indexing of {instant} was scheduled"
            elif call in ("schedule_clean", "schedule_log_compaction"):
                kinds = self.jvm.org.apache.hudi.common.model.TableServiceType
                kind = kinds.CLEAN if call == "schedule_clean" else kinds.LOG_COMPACT
                client.scheduleTableService(self.jvm.org.apache.hudi.common.util.Option.empty(), kind)
            elif call == "log_compact":
                client.commitLogCompaction(
                    instant, client.logCompact(instant), self.jvm.org.apache.hudi.common.util.Option.empty()
                )
            elif call == "delete_savepoint":
                client.deleteSavepoint(instant)
            elif call == "index":
                client.index(instant)
            elif call == "restore":
                client.restoreToSavepoint(instant)
            else:
                assert client.rollback(instant), f"{instant} was not rolled back"
        finally:
            client.close()
        new = [i for i in self._instants(table) if (i["instant"], i["action"], i["state"]) not in before]
        return {"new_instants": new}

    def do_properties(self, table) -> dict:
        return self._stored(table)

    def do_timeline(self, table) -> dict:
        return {"instants": self._instants(table, archived=True)}

    def do_file_slices(self, table, from_metadata=False) -> dict:
        return {"partitions": self._metadata(table).file_slices(from_metadata)}

    def do_metadata_files(self, table) -> dict:
        return {"partitions": self._metadata(table).files()}

    def do_metadata(self, table, partition) -> dict:
        return {"records": self._metadata(table).records(partition)}

    def do_validate_metadata(self, table) -> dict:
        metadata = self._metadata(table)
        if "files" not in metadata.partitions:
            return {"valid": False, "problems": ["the table has no metadata table"], "checked": {}}
        with_keys = metadata.stored.get("hoodie.populate.meta.fields", "true") == "true"
        # the rows as storage has them, not as the metadata table tells
        rows = self._load(table, {"hoodie.metadata.enable": "false"}, None).persist() if with_keys else None
        try:
            return Validation(metadata, rows).run()
        finally:
            if rows is not None:
                rows.unpersist()

    # ---- parts

    @contextmanager
    def _configured(self, settings):
        """Settings of the Spark session (and of Parquet, which reads Hadoop's) for one request."""
        hadoop = self.spark.sparkContext._jsc.hadoopConfiguration()
        for key, value in settings.items():
            self.spark.conf.set(key, str(value))
            if key.startswith("parquet."):
                hadoop.set(key, str(value))
        try:
            yield
        finally:
            for key in settings:
                self.spark.conf.unset(key)
                if key.startswith("parquet."):
                    hadoop.unset(key)

    def _load(self, table, options, where):
        texts = {key: str(value) for key, value in ({**dict.fromkeys(TASKS, 2), **options}).items()}
        frame = self.spark.read.format("hudi").options(**texts).load(uri(table))
        return frame.where(where) if where else frame

    def _rows(self, frame, out, order=SORT) -> dict:
        """The rows in one Parquet file sorted by `order`, or in the answer."""
        if not out:
            rows = [json.loads(row) for row in frame.toJSON().collect()]
            return {"rows": len(rows), "data": rows}
        columns = [f"`{column}`" for column in order if column in frame.columns]
        one = frame.coalesce(1)
        if columns:
            one = one.sortWithinPartitions(*columns)
        folder = os.path.join(self.scratch, uuid.uuid4().hex)
        one.write.parquet(folder)
        parts = glob.glob(folder + "/part-*.parquet")
        if not parts:  # no rows: an empty file with the schema
            empty = self.spark.createDataFrame([], frame.schema)
            empty.coalesce(1).write.mode("overwrite").parquet(folder)
            parts = glob.glob(folder + "/part-*.parquet")
        os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
        shutil.move(parts[0], out)
        shutil.rmtree(folder, ignore_errors=True)
        return {"out": out, "columns": frame.columns}

    def _stored(self, table) -> dict:
        stored = {}
        with open(os.path.join(local(table), ".hoodie", "hoodie.properties"), encoding="latin-1") as lines:
            for line in lines:
                if line[:1] not in "#!" and "=" in line:
                    key, value = line.strip().split("=", 1)
                    stored[key] = re.sub(r"\\(.)", r"\1", value)
        return stored

    def _kept_indexes(self, table, stored) -> dict:
        """Options that keep the metadata partitions a table has: Hudi drops and adds some unless it is told."""
        have = set(filter(None, stored.get("hoodie.table.metadata.partitions", "").split(",")))
        if "files" not in have:
            return {"hoodie.metadata.enable": "false"}
        kept = {
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.index.column.stats.enable": str("column_stats" in have).lower(),
            "hoodie.metadata.index.bloom.filter.enable": str("bloom_filters" in have).lower(),
        }
        if "record_index" in have:
            partitioned = self._record_index_is_partitioned(table, stored)
            kind = "record.level" if partitioned else "global.record.level"
            kept[f"hoodie.metadata.{kind}.index.enable"] = "true"
        return kept

    def _record_index_is_partitioned(self, table, stored) -> bool:
        path = os.path.join(
            local(table), stored.get("hoodie.table.index.defs.path") or ".hoodie/.index_defs/index.json"
        )
        if not os.path.exists(path):
            return False
        with open(path, encoding="utf-8") as file:
            definition = (json.load(file).get("indexDefinitions") or {}).get("record_index", {})
        return str((definition.get("indexOptions") or {}).get("isPartitioned", "false")).lower() == "true"

    def _metadata(self, table) -> HudiMetadata:
        return HudiMetadata(self, table, local(table), self._stored(table))

    def _client(self, table):
        conf = self.spark.sparkContext._jsc.hadoopConfiguration()
        storage = self.jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(conf)
        builder = self.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        return builder.setConf(storage).setBasePath(uri(table)).build()

    def _instants(self, table, archived=False) -> list:
        client = self._client(table)
        timelines = [("active", client.getActiveTimeline())]
        if archived:
            timelines.insert(0, ("archived", client.getArchivedTimeline()))
        return [
            {
                **times_of(i),
                "action": i.getAction(),
                "state": str(i.getState()),
                "timeline": name,
            }
            for name, timeline in timelines
            for i in timeline.getInstants()
        ]


def times_of(instant) -> dict:
    """When it was requested and completed: releases before 1.0 tell the first alone, by another name."""
    try:
        return {"instant": instant.requestedTime(), "completion": instant.getCompletionTime()}
    except Py4JError:
        return {"instant": instant.getTimestamp(), "completion": None}


def repeat(settings: dict, stored: dict) -> None:
    """What an existing table says already need not be said by the caller."""
    for option, key in REPEATED.items():
        own_class = option.endswith("keygenerator.type") and WRITE + "keygenerator.class" in settings
        if key in stored and not own_class:
            settings.setdefault(option, stored[key])
    ordering = stored.get("hoodie.table.ordering.fields") or stored.get("hoodie.table.precombine.field")
    if ordering:
        settings.setdefault(WRITE + "precombine.field", ordering)
    if stored:
        settings.setdefault("hoodie.write.table.version", stored.get("hoodie.table.version", "9"))
        settings.setdefault("hoodie.write.auto.upgrade", "false")


def uri(path: str) -> str:
    return path if re.match(r"^[a-z0-9]+:/", path) else os.path.abspath(path)


def local(table: str) -> str:
    return uri(table).removeprefix("file://").removeprefix("file:").rstrip("/")


def first_line(text: str) -> str:
    """The line of a py4j error that says what happened, and the innermost cause."""
    lines = text.strip().split("\n")
    said = lines[0]
    if said.startswith("An error occurred while calling"):
        said = next((line[2:] for line in lines if line.startswith(": ")), said)
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (said[:1500] + (f" / {causes[-1][:500]}" if causes else ""))[:2000]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", default=os.environ.get("HUDI_BUNDLE_JAR"), help="the Hudi Spark bundle")
    parser.add_argument("--packages", default=DEFAULT_PACKAGE, help="Maven coordinates, where no jar is given")
    parser.add_argument("--first-jars", help="jars before those of Spark, with commas: those of Lance")
    parser.add_argument("--ivy", help="cache folder of Spark's package resolution")
    parser.add_argument("--memory", default="2g")
    parser.add_argument("--tz", default="UTC")
    parser.add_argument("--metastore", help="a Hive metastore whose tables the session has")
    oracle = Oracle(parser.parse_args())

    def say(answer: dict) -> None:
        oracle.answers.write(json.dumps(answer, ensure_ascii=False, default=str) + "\n")
        oracle.answers.flush()

    try:
        say(oracle.answer({"cmd": "ready"}))
        for line in sys.stdin:
            if line.strip() in ("", "quit"):
                break
            say(oracle.answer(json.loads(line)))
    finally:
        oracle.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

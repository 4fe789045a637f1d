"""A process with a Debezium engine: `python debezium_process.py URI FOLDER PORT`. It runs until it is killed."""

from __future__ import annotations

import sys

from pydbzengine import DebeziumJsonEngine

from lakebed.debezium_handler import TableHandler

uri, folder, port = sys.argv[1:]
PROPERTIES = {
    "name": "engine",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "127.0.0.1",
    "database.port": port,
    "database.user": "postgres",
    "database.password": "none",
    "database.dbname": "postgres",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "filtered",
    "topic.prefix": "pg",
    "table.include.list": "public.rides,public.stops",
    "skipped.operations": "none",
    "decimal.handling.mode": "string",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.storage.file.filename": f"{folder}/offsets",
    "offset.flush.interval.ms": "0",
    "poll.interval.ms": "50",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
columns = {"public.rides": {"fare": "decimal(10, 2)", "at": "timestamp"}}
create = {"type": "mor", "index": "bucket", "buckets": 1}
handler = TableHandler(uri, columns=columns, create=create)
DebeziumJsonEngine(properties=PROPERTIES, handler=handler, jvm_opts=["-Xmx256m"]).run()

"""Jobs of real Hudi on tables that lakebed made, and turns that the two take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from oracle.client import HudiOracle
from support.same_rows import assert_same_rows

CLASSES = {
    "SIMPLE": "SimpleKeyGenerator",
    "COMPLEX": "ComplexKeyGenerator",
    "NON_PARTITION": "NonpartitionedKeyGenerator",
    "TIMESTAMP": "TimestampBasedKeyGenerator",
    "CUSTOM": "CustomKeyGenerator",
}
# What tells real Hudi to leave a table as it is: no metadata table, no other version.
LEAVE_AS_IS = {
    "hoodie.metadata.enable": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.embed.timeline.server": "false",
}
# The path of a timestamp partition is not the column's value: real Hudi checks one against the other on reading.
READ_CONF = {"spark.sql.sources.validatePartitionColumns": "false"}


def hudi_job(table: Table) -> dict[str, str]:
    """Options of a job that goes on with the table: real Hudi takes neither index nor key generator from it."""
    config = load_table_config(open_storage(table.uri))
    options = {
        **LEAVE_AS_IS,
        "hoodie.write.table.version": str(config.version),
        "hoodie.datasource.write.table.type": "MERGE_ON_READ" if config.table_type == "mor" else "COPY_ON_WRITE",
        "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{CLASSES[config.key_generator]}",
        "hoodie.datasource.write.partitionpath.urlencode": str(config.url_encode).lower(),
        "hoodie.write.complex.keygen.validation.enable": "false",
        **{k: v for k, v in config.properties.items() if k.startswith(("hoodie.keygen.", "hoodie.datasource.write."))},
    }
    if config.partition_types:
        pairs = zip(config.partition_fields, config.partition_types, strict=True)
        options["hoodie.datasource.write.partitionpath.field"] = ",".join(f"{f}:{kind}" for f, kind in pairs)
    options |= index_job(config.index_settings)
    if config.version < 9 and config.index_settings["type"] == "record":
        options["hoodie.index.type"] = "RECORD_INDEX"  # the name that releases before 1.1 know
    return options


def index_job(settings: Mapping[str, str]) -> dict[str, str]:
    options = {"hoodie.index.type": settings["type"].upper()}
    if settings["type"] == "record":
        partitioned = settings.get("partitioned") == "true"
        options = {
            "hoodie.index.type": "RECORD_LEVEL_INDEX" if partitioned else "GLOBAL_RECORD_LEVEL_INDEX",
            "hoodie.record.index.update.partition.path": settings.get("update_partition", "false"),
        }
    elif settings["type"] in ("bucket", "consistent"):
        options |= {
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "SIMPLE" if settings["type"] == "bucket" else "CONSISTENT_HASHING",
            "hoodie.bucket.index.num.buckets": settings["bucket.count"],
            "hoodie.bucket.index.hash.field": settings["bucket.fields"],
        }
        if "bucket.partitions" in settings:
            options["hoodie.bucket.index.partition.expressions"] = settings["bucket.partitions"]
            options["hoodie.bucket.index.partition.rule.type"] = "regex"
    elif settings["type"].startswith("global_"):
        kind = settings["type"].removeprefix("global_")
        options[f"hoodie.{kind}.index.update.partition.path"] = settings["update_partition"]
    return options


def replaced(rows: pa.Table, by: pa.Table, key: Sequence[str]) -> pa.Table:
    """Rows after others have been upserted: `key` are the columns that name a row."""
    new = {tuple(r.values()) for r in by.select(key).to_pylist()}
    kept = [tuple(r.values()) not in new for r in rows.select(key).to_pylist()]
    return pa.concat_tables([rows.filter(pa.array(kept, pa.bool_())), by])


def take_turns(
    oracle: HudiOracle,
    table: Table,
    first: pa.Table,
    second: pa.Table,
    key: Sequence[str],
    options: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
) -> pa.Table:
    """lakebed writes `first`, real Hudi upserts `second`, lakebed upserts half of `first` again and deletes two rows.

    Both read the same rows after each turn but real Hudi's own. Gives the rows that are there in the end.
    """
    settings = {**READ_CONF, **(conf or {})}
    table.upsert(first)
    assert_both_read(oracle, table, first)
    oracle.write(table.uri, second, options={**hudi_job(table), **(options or {})}, conf=settings)
    rows = replaced(first, second, key)
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), rows)
    again = rows.slice(0, rows.num_rows // 2)
    table.upsert(again)
    table.delete(rows.slice(rows.num_rows - 2).select([*dict.fromkeys([*key, *partition_columns(table)])]))
    rows = rows.slice(0, rows.num_rows - 2)
    assert_both_read(oracle, table, rows)
    return rows


def partition_columns(table: Table) -> tuple[str, ...]:
    return load_table_config(open_storage(table.uri)).partition_fields


def assert_both_read(oracle: HudiOracle, table: Table, rows: pa.Table, **request: Any) -> None:
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), rows)
    found = oracle.read(Path(table.uri), conf=READ_CONF, **request)
    partitions = partition_columns(table)
    for field in rows.schema:
        at = found.schema.get_field_index(field.name)
        if pa.types.is_string(found.schema.field(at).type) and pa.types.is_integer(field.type):
            # the partition column of a timestamp-based key generator comes back as text
            found = found.set_column(at, field, found.column(at).cast(field.type))
        if field.name in partitions and pa.types.is_string(field.type):
            # and an empty text as null: both have the default partition's path, which is what real Hudi goes by
            shown = pc.if_else(pc.equal(rows.column(field.name), ""), None, rows.column(field.name))
            rows = rows.set_column(rows.schema.get_field_index(field.name), field, shown)
    assert_same_rows(found, rows)

"""Tables that real Hudi wrote: lakebed writes on, real Hudi reads the rows that must be there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from interop.golden_batches import batches_of
from lakebed.errors import CommitConflict
from lakebed.metadata.lookups import open_snapshot
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.storage import open_storage
from oracle.client import HudiOracle
from support.golden_tables import (
    GoldenTable,
    HudiRsTable,
    golden_tables,
    hudi_rs_tables,
    strip_metadata_table,
)
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

# Columns that real Hudi 1.2.0 shows otherwise: as the path says, lakebed as it is stored; and the marker of a value
# that did not come along, where 1.0.2 and lakebed fill in the older value.
SHOWN_OTHERWISE = {"v9_cow_global_no_move": ("region",), "v8_mor_debezium_postgres": ("name",)}
# Real Hudi 1.2.0 checks the text in such a path against the column's type, and gives up.
READ_CONF = {"spark.sql.sources.validatePartitionColumns": "false"}
# Real Hudi cannot read its own table otherwise: a field of a struct got a wider type.
EVOLVED = "v9_mor_evolve_write"
PLAIN_READER = {"spark.sql.parquet.enableVectorizedReader": "false"}
# A table's own jobs name these on every write: no table stores them.
JOB_OPTIONS = (
    "hoodie.bucket.index.num.buckets",
    "hoodie.bucket.index.hash.field",
    "hoodie.index.bucket.engine",
    "hoodie.bucket.index.partition.expressions",
    "hoodie.simple.index.update.partition.path",
    "hoodie.bloom.index.update.partition.path",
)
TIMEBASED = "hoodie.keygen.timebased."
# Tables whose schema has text where their own key generator takes numbers only: real Hudi fails on a write as well.
TEXT_FOR_A_NUMBER = ("timebasedkeygen_epochmillis", "timebasedkeygen_unixtimestamp")
CLUSTERED = "v9_cow_clustering_pending"
HELD = (CLUSTERED, "v9_mor_clustering_pending")


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def config_of(folder: Path) -> TableConfig:
    return load_table_config(open_storage(str(folder)))


WRITTEN = [*golden_tables(lambda t: t.name not in HELD)]


@pytest.mark.parametrize("table", todays(WRITTEN, 8, INTEROP), ids=str)
def test_real_hudi_reads_what_lakebed_wrote_into_its_table(table: GoldenTable, tmp_path: Path, oracle: HudiOracle):
    kept = set(table.entry["metadata_partitions"])
    keeps = bool(kept)
    folder = table.unpack(tmp_path) if keeps else table.unpack_without_metadata_table(tmp_path)
    after = write_on(folder, job_options(table))
    options = {"hoodie.metadata.enable": str(keeps).lower(), **(table.entry.get("read_options") or {})}
    conf = READ_CONF | (PLAIN_READER if table.name == EVOLVED else {})
    assert_read_alike(oracle, folder, after, without=SHOWN_OTHERWISE.get(table.name, ()), option=options, conf=conf)
    if keeps:
        assert {*config_of(folder).metadata_partitions} == kept
        found = oracle.problems(folder, conf=READ_CONF)
        if found:  # real Hudi compares bytes in logs as signed: what it left there is not ours
            own = oracle.problems(table.unpack(tmp_path / "untouched"), conf=READ_CONF)
            found = [problem for problem in found if problem not in own]
        assert found == []


@pytest.mark.parametrize("table", todays([t for t in hudi_rs_tables() if "/cow/" in t.name], 2, INTEROP), ids=str)
def test_tables_of_hudi_rs_are_written_in_the_same_way(table: HudiRsTable, tmp_path: Path, oracle: HudiOracle):
    folder = table.unpack(tmp_path)
    strip_metadata_table(folder)
    t, before = lakebed.open(str(folder)), bytes_of(folder)
    if table.expected is None or not table.expected.num_rows:
        t.upsert(t.schema.empty_table())
        assert lakebed.open(str(folder)).count() == 0
        return
    rows = t.scan().to_arrow()
    assert_same_rows(rows, plain(table.expected))
    if any(part in table.name for part in TEXT_FOR_A_NUMBER):
        with pytest.raises(lakebed.SchemaConflict, match="does not fit the timestamp type"):
            t.upsert(rows)
        assert bytes_of(folder) == before
        return
    # version 6 tables of older releases do not say what their times are
    options = {TIMEBASED + "timestamp.type": "DATE_STRING"} if "v6_timebased" in table.name else {}
    assert_read_alike(oracle, folder, write_on(folder, options))


def write_on(folder: Path, options: dict[str, str]) -> pa.Table:
    """Write what the table allows, read it back, and give the rows that must be there."""
    config, t = config_of(folder), lakebed.open(str(folder))
    rows = t.scan().to_arrow()
    if not config.key_fields or not config.populate_meta_fields:
        added = rows.slice(0, 3)
        t.insert(added, options=options)
        t.bulk_insert(added, options=options)
        after = pa.concat_tables([rows, added, added])
    else:
        batches = batches_of(rows, config)
        t.upsert(batches.upsert, options=options)
        t.delete(batches.delete, options=options)
        after = batches.after
    assert_same_rows(lakebed.open(str(folder)).scan().to_arrow(), after)
    return after


def assert_read_alike(
    oracle: HudiOracle,
    folder: Path,
    after: pa.Table,
    without: tuple[str, ...] = (),
    option: dict[str, str] | None = None,
    conf: dict[str, str] = READ_CONF,
) -> None:
    found = oracle.read(folder, option=option or {}, conf=conf)
    for field in after.schema:
        # the partition column of a timestamp-based key generator comes back as text
        at = found.schema.get_field_index(field.name)
        if pa.types.is_string(found.schema.field(at).type) and pa.types.is_integer(field.type):
            found = found.set_column(at, field, found.column(at).cast(field.type))
    assert_same_rows(found, after, without=without)


def job_options(table: GoldenTable) -> dict[str, str]:
    """What the table's own jobs said of keys and index, where the table itself does not tell."""
    told = table.entry.get("options") or {}
    options = {key: text for key, text in told.items() if key.startswith(TIMEBASED)}
    if told.get("hoodie.index.type") in ("BUCKET", "BLOOM", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "SIMPLE"):
        options["hoodie.index.type"] = told["hoodie.index.type"]
        options |= {key: told[key] for key in JOB_OPTIONS if key in told}
    return options


def plain(table: pa.Table) -> pa.Table:
    return table.select([n for n in table.column_names if not n.startswith("_hoodie_") or n == "_hoodie_is_deleted"])


@pytest.mark.parametrize("table", golden_tables(lambda t: t.name == CLUSTERED), ids=str)
def test_file_groups_of_a_pending_clustering_are_left_alone(table: GoldenTable, tmp_path: Path, oracle: HudiOracle):
    """Its file groups are not touched; rows of others are updated, and new rows are not put into its small files."""
    folder = table.unpack_without_metadata_table(tmp_path)
    t, before = lakebed.open(str(folder)), bytes_of(folder)
    stored = t.scan(meta=True).to_arrow()
    held = {file_id for _, file_id in open_snapshot(open_storage(str(folder))).timeline.pending_clustering}
    assert held
    inside = pc.is_in(file_ids(stored), pa.array(sorted(held)))
    met, others = plain(stored.filter(inside)), plain(stored.filter(pc.invert(inside)))
    key = [*config_of(folder).key_fields, "region"]
    for write in (
        t.upsert,
        t.delete,
        lambda r: t.delete(r.column(key[0]).to_pylist()),
        lambda r: t.delete(r.select(key[:1])),
    ):
        with pytest.raises(CommitConflict, match="pending clustering"):
            write(met.slice(0, 1))
    assert bytes_of(folder) == before
    config = config_of(folder)
    batches = batches_of(others, config)
    t.upsert(batches.upsert)
    t.delete(batches.delete)
    after = pa.concat_tables([met, batches.after])
    assert_same_rows(lakebed.open(str(folder)).scan().to_arrow(), after)
    assert_read_alike(oracle, folder, after)


def file_ids(stored: pa.Table) -> pa.Array:
    return pc.list_element(pc.split_pattern(stored.column("_hoodie_file_name"), "_").combine_chunks(), 0)


def test_a_timestamp_table_without_its_settings_says_what_is_missing(tmp_path: Path):
    for table in golden_tables(lambda t: t.name in ("v6_cow_ts_unix", "v9_cow_custom_keygen")):
        folder = table.unpack_without_metadata_table(tmp_path)
        t, before = lakebed.open(str(folder)), bytes_of(folder)
        with pytest.raises(lakebed.InvalidOption, match=r"timestamp\.type is not set"):
            t.upsert(t.scan().to_arrow().slice(0, 1))
        assert bytes_of(folder) == before

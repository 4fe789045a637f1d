"""Tables that real Hudi wrote: lakebed writes on, real Hudi reads the rows that must be there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from golden_tables import GoldenTable, golden_cow_tables
from interop.golden_batches import batches_of
from lakebed.storage import open_storage
from lakebed.timeline.table_config import load_table_config
from oracle.client import HudiOracle
from same_rows import assert_same_rows

# What a write refuses by name, and the word the refusal has to hold.
REFUSED = {
    "cdc": "change data capture",
    "evolve_read": "schema",
    "bucket_partition_level": "bucket",
    "partial_update": "partial",
    "overwrite_non_defaults": "partial",
    "debezium": "",
    "aws_dms": "",
    "custom_payload": "",
}


def refusal(table: GoldenTable) -> str | None:
    return next((word for part, word in REFUSED.items() if part in table.name), None)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("table", golden_cow_tables(), ids=str)
def test_a_table_with_a_metadata_table_or_a_refused_feature_is_not_touched(table: GoldenTable, tmp_path: Path):
    folder = table.unpack(tmp_path)
    if not (folder / ".hoodie" / "metadata").exists() and refusal(table) is None:
        pytest.skip("nothing to refuse: no metadata table, no refused feature")
    before = bytes_of(folder)
    t = lakebed.open(str(folder))
    rows = t.scan().to_arrow().slice(0, 1)
    for write in (t.upsert, t.insert, t.bulk_insert, t.insert_overwrite, t.delete):
        with pytest.raises(lakebed.UnsupportedFeature):
            write(rows)
    assert bytes_of(folder) == before


@pytest.mark.parametrize("table", golden_cow_tables(), ids=str)
def test_real_hudi_reads_what_lakebed_wrote_into_its_table(table: GoldenTable, tmp_path: Path, oracle: HudiOracle):
    folder = table.unpack_without_metadata_table(tmp_path)
    config = load_table_config(open_storage(str(folder)))
    t = lakebed.open(str(folder))
    rows = t.scan().to_arrow()
    if refusal(table) is not None:
        with pytest.raises(lakebed.UnsupportedFeature, match=f"(?i){refusal(table)}"):
            t.upsert(rows.slice(0, 1))
        return
    read_options = table.entry.get("read_options") or {}
    if not config.key_fields or not config.populate_meta_fields:
        t.insert(rows.slice(0, 5))
        after = pa.concat_tables([rows, rows.slice(0, 5)])
    else:
        options = index_options(table)
        batches = batches_of(rows, config)
        t.upsert(batches.upsert, options=options)
        t.delete(batches.delete, options=options)
        after = batches.after
    assert_same_rows(lakebed.open(str(folder)).scan().to_arrow(), after)
    assert_same_rows(oracle.read(folder, option=read_options), after)


def index_options(table: GoldenTable) -> dict[str, str]:
    """Bucket tables of a few rows: say what the table's own jobs said, where the keys alone would not tell."""
    told = table.entry.get("options") or {}
    wanted = ("hoodie.index.type", "hoodie.bucket.index.num.buckets", "hoodie.bucket.index.hash.field")
    if told.get("hoodie.index.type") not in ("BUCKET", "GLOBAL_SIMPLE", "SIMPLE"):
        return {}
    return {key: told[key] for key in wanted if key in told}

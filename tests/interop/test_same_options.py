"""A Hudi job's options dict, unchanged: real Hudi and lakebed make the same table of it, with the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import LEAVE_AS_IS, assert_both_read
from lakebed.timeline.streams import ROLLING_KEYS, TAKEN_OVER
from oracle.client import HudiOracle
from support.same_rows import assert_same_rows
from support.sampling import some

W = "hoodie.datasource.write."
KEYGEN = "org.apache.hudi.keygen."
BASE = {
    **LEAVE_AS_IS,
    "hoodie.table.name": "the_table",
    W + "recordkey.field": "id",
    W + "partitionpath.field": "city",
    W + "precombine.field": "ts",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
}
VERSION = "hoodie.write.table.version"
JOBS: dict[str, dict[str, str]] = {
    "as little as can be": BASE,
    "a catalog's names and hive style": BASE
    | {
        "hoodie.database.name": "shop",
        W + "hive_style_partitioning": "true",
        W + "partitionpath.urlencode": "true",
        W + "table.type": "COPY_ON_WRITE",
        "hoodie.index.type": "SIMPLE",
    },
    "buckets, several keys, version 8": BASE
    | {
        VERSION: "8",
        W + "recordkey.field": "id,city",
        W + "keygenerator.class": KEYGEN + "ComplexKeyGenerator",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "3",
        "hoodie.bucket.index.hash.field": "id",
    },
    "older names, version 6": {
        **{k: v for k, v in BASE.items() if k != "hoodie.table.name"},
        VERSION: "6",
        "hoodie.table.name": "the_table",
        W + "storage.type": "COPY_ON_WRITE",
        W + "partitionpath.field": "at",
        W + "keygenerator.class": KEYGEN + "TimestampBasedKeyGenerator",
        "hoodie.deltastreamer.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.deltastreamer.keygen.timebased.output.dateformat": "yyyy-MM",
    },
    "no partitions, the payload of old": {
        **BASE,
        W + "partitionpath.field": "",
        W + "keygenerator.class": KEYGEN + "NonpartitionedKeyGenerator",
        W + "payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
    },
    "commit time, global index": {
        **{k: v for k, v in BASE.items() if "precombine" not in k},
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.simple.index.update.partition.path": "true",
    },
    "custom keys, version 6": BASE
    | {
        VERSION: "6",
        W + "partitionpath.field": "city:SIMPLE,at:TIMESTAMP",
        W + "keygenerator.class": KEYGEN + "CustomKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
        "hoodie.keygen.timebased.output.dateformat": "yyyy",
    },
    "a delete marker, two ordering fields": {
        **{k: v for k, v in BASE.items() if "precombine" not in k},
        "hoodie.table.ordering.fields": "ts,seq",
        "hoodie.payload.delete.field": "v",
        "hoodie.payload.delete.marker": "D",
        W + "keygenerator.type": "SIMPLE",
    },
    "no meta fields": BASE | {W + "operation": "insert", "hoodie.populate.meta.fields": "false"},
    "generated keys, columns left out": {
        **{k: v for k, v in BASE.items() if "recordkey" not in k and "precombine" not in k},
        W + "operation": "insert",
        W + "drop.partition.columns": "true",
    },
}  # fmt: skip
# The schema's text, and what only lakebed remembers.
OWN = ("hoodie.table.create.schema", "lakebed.")
# Real Hudi's tables are in the local time of their writer unless told otherwise, those of lakebed in UTC.
ZONE = "hoodie.table.timeline.timezone"
PLAIN = [("id", pa.int64()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())]
SCHEMA = pa.schema([*PLAIN, ("seq", pa.int32()), ("at", pa.int64())])


def batch(ids: range, v: str, ts: int) -> pa.Table:
    columns = [list(ids), [f"c{n % 3}" for n in ids], [f"{v}{n}" for n in ids], [ts] * len(ids), list(ids)]
    return pa.table([*columns, [1706933106 + 86400 * 30 * (n % 4) for n in ids]], schema=SCHEMA)


@pytest.mark.parametrize(
    "job", some([*JOBS], "as little as can be", "custom keys, version 6", "generated keys, columns left out")
)
def test_one_jobs_options_give_the_same_table_with_both_writers(job: str, tmp_path: Path, oracle: HudiOracle):
    options = JOBS[job]
    first, second = batch(range(20), "a", 1), batch(range(15, 25), "b", 2)
    second = second.set_column(2, "v", pa.array(["D", *second.column("v").to_pylist()[1:]]))
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    operation = options.get(W + "operation", "upsert")
    for rows, mode in ((first, "overwrite"), (second, "append")):
        oracle.write(theirs, rows, operation, options, mode)
        lakebed.write(rows, str(ours), options, mode)
    expected = stored(oracle, theirs) | {ZONE: "UTC", ROLLING_KEYS: ",".join(TAKEN_OVER)}
    if "custom" in job:
        # real Hudi forgets how the time of a custom key generator is printed
        expected |= {key: text for key, text in options.items() if key.startswith("hoodie.keygen.")}
    assert stored(oracle, ours) == expected
    table = lakebed.open(str(ours))
    rows = table.scan(SCHEMA.names).to_arrow()
    assert_same_rows(lakebed.open(str(theirs)).scan(SCHEMA.names).to_arrow(), rows)
    assert_both_read(oracle, table, rows)
    assert rows.num_rows == (30 if operation == "insert" else 24 if "marker" in job else 25)


def test_real_hudi_reads_and_goes_on_with_an_overwritten_table(tmp_path: Path, oracle: HudiOracle):
    """Another key, partitioning and version than the table had; then real Hudi upserts, and overwrites in turn."""
    folder = tmp_path / "t"
    lakebed.write(batch(range(30), "old", 9), str(folder), JOBS["older names, version 6"])
    options = BASE | {W + "recordkey.field": "v", W + "partitionpath.field": "seq"}
    new = batch(range(6), "new", 1)
    lakebed.write(pa.concat_tables([new, new]), str(folder), options, mode="overwrite")
    table = lakebed.open(str(folder))
    rows = table.scan(SCHEMA.names).to_arrow()
    assert_same_rows(rows, new)
    assert_both_read(oracle, table, rows)
    oracle.write(folder, batch(range(3, 9), "new", 2), "upsert", options, "append")
    expected = pa.concat_tables([new.slice(0, 3), batch(range(3, 9), "new", 2)])
    assert_same_rows(lakebed.open(str(folder)).scan(SCHEMA.names).to_arrow(), expected)
    oracle.write(folder, batch(range(4), "hudi", 3), "upsert", BASE, "overwrite")
    assert_same_rows(lakebed.open(str(folder)).scan(SCHEMA.names).to_arrow(), batch(range(4), "hudi", 3))


def stored(oracle: HudiOracle, folder: Path) -> dict[str, str]:
    found = oracle.ask("properties", table=folder)
    return {key: text for key, text in found.items() if not key.startswith(OWN)}

"""Avro records of log blocks: rows a second a core, decoded and encoded, 12 columns of which 5 are meta.

    python bench/avro.py                 300,000 rows
    python bench/avro.py --rows 1000000  more of them

Beside it fastavro, which goes record by record. See README.md in this folder for what the bars mean.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from bars import Bar

from lakebed.format.data_block import encode_data_block, open_data_block
from lakebed.format.log_file import block_bytes, scan_blocks
from lakebed.format.sources import BytesSource
from lakebed.schema.avro import arrow_to_avro

_INSTANT = "20261121015401717"
_BAR, _GOAL = 0.8, 1.2
_MAX_ITEMS = 20_000


def rows_of(count: int) -> pa.RecordBatch:
    """Rows as an upsert of a table in one partition appends them."""
    rng = np.random.default_rng(7)
    keys = pa.array([f"key-{number:09}" for number in rng.permutation(count).tolist()])
    cities = np.array(["amsterdam", "berlin", "paris", "rome"])
    return pa.RecordBatch.from_pydict(
        {
            "_hoodie_commit_time": _constant(_INSTANT, count),
            "_hoodie_commit_seqno": pa.array([f"{_INSTANT}_3_{number}" for number in range(count)]),
            "_hoodie_record_key": keys,
            "_hoodie_partition_path": _constant("2026/11", count),
            "_hoodie_file_name": _constant("00000003-5f2d-4c3a-9b21-4d0a8f6e2c11-0", count),
            "id": keys,
            "rider": pa.array([f"rider-{number}" for number in rng.integers(0, 5000, count).tolist()]),
            "driver": pa.array([f"driver-{number:05}" for number in rng.integers(0, 50_000, count).tolist()]),
            "fare": pa.array(rng.random(count) * 100),
            "distance": pa.array(rng.integers(0, 100_000, count)),
            "city": pa.array(cities[rng.integers(0, 4, count)]),
            "at": pa.array(1_700_000_000_000_000 + rng.integers(0, 10**13, count), pa.timestamp("us", "UTC")),
        }
    )


def _constant(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def seconds(work: Callable[[], Any], rounds: int) -> float:
    """CPU seconds of the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        work()
        best = min(best, time.process_time() - before)
    return best


def by_fastavro(content: bytes, schema: str, count: int) -> tuple[float, float]:
    """Millions of records a second, decoded and encoded one by one."""
    parsed: Any = fastavro.parse_schema(json.loads(schema))
    source = io.BytesIO(content)
    source.seek(8)
    before = time.process_time()
    records: list[Any] = []
    for _ in range(count):
        source.read(4)
        records.append(fastavro.schemaless_reader(source, parsed, None))
    between = time.process_time()
    for record in records:
        fastavro.schemaless_writer(io.BytesIO(), parsed, record)
    return count / (between - before) / 1e6, count / (time.process_time() - between) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows = rows_of(options.rows)
    schema = arrow_to_avro(pa.schema([f for f in rows.schema if not f.name.startswith("_hoodie")]), "trips", meta=True)
    block = encode_data_block([rows], schema, {0: _INSTANT})
    (head,) = scan_blocks(BytesSource(block_bytes(block)))
    found = open_data_block(head, "a log").read(rows.schema.names)
    assert all(found[f.name].to_pylist() == rows[f.name].to_pylist() for f in rows.schema)

    def rate(work: Callable[[], Any]) -> float:
        return options.rows / seconds(work, options.rounds) / 1e6

    encoded = rate(lambda: encode_data_block([rows], schema, {0: _INSTANT}))
    decoded = rate(lambda: open_data_block(head, "a log").read(rows.schema.names))
    pruned = rate(lambda: open_data_block(head, "a log").read(["_hoodie_record_key", "at"]))
    few = encode_data_block([rows.slice(0, _MAX_ITEMS)], schema, {0: _INSTANT}).content
    slow_decoded, slow_encoded = by_fastavro(few, schema, min(_MAX_ITEMS, options.rows))
    print(
        f"{options.rows:,} rows of 12 columns, {len(block.content) / options.rows:.0f} bytes a record; M rows/s a core"
    )
    print(f"  decoded {decoded:.2f} (fastavro {slow_decoded:.2f}), key and one column {pruned:.2f}")
    print(f"  encoded {encoded:.2f} (fastavro {slow_encoded:.2f})")
    for what, value in (("decoded", decoded), ("encoded", encoded)):
        print(Bar(f"Avro records {what}", value, _BAR, at_least=True, goal=_GOAL).line())


if __name__ == "__main__":
    main()

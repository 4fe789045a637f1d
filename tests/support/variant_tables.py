"""Tables with variants."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed import variant


def documents(number: int) -> list[Any]:
    """300 documents, always the same ones for a number."""
    chosen = random.Random(number)

    def value(depth: int = 0) -> Any:
        kind = chosen.random()
        if kind < 0.35 and depth < 3:
            return {
                chosen.choice(["a", "b", "c", "d", "o'q", 'x"y']): value(depth + 1) for _ in range(chosen.randrange(4))
            }
        if kind < 0.5 and depth < 3:
            return [value(depth + 1) for _ in range(chosen.randrange(3))]
        return chosen.choice([1, "x", 2.5, None, True, "long" * 30, 10**12])

    return [value() for _ in range(300)]


def shredded_file(path: Path, rows: list[Any], shredding: str) -> pa.ChunkedArray:
    with duckdb.connect() as connection:
        connection.register("texts", pa.table({"j": [json.dumps(row) for row in rows]}))
        connection.sql(
            f"copy (select case when j <> 'null' then j::JSON::VARIANT end v from texts) to '{path}'"
            f" (format parquet, shredding {{v: '{shredding}'}})"
        )
    return pq.read_table(path)["v"]


def shredded_table(folder: Path, rows: list[Any], kind: Literal["cow", "mor"]) -> lakebed.Table:
    """A table with the numbers of the rows as ids and one base file, in which parts of the variants are columns of
    their own."""
    schema = pa.schema([("id", pa.int64()), ("v", variant.TYPE), ("note", pa.string())])
    table = lakebed.create(str(folder / "t"), schema, key="id", type=kind, index="bucket", buckets=1)
    options = {"hoodie.parquet.compression.codec": "uncompressed"}
    notes = ["0123456789abcdef" * 40] * len(rows)
    table.upsert(pa.table({"id": range(len(rows)), "v": variant.encode(rows), "note": notes}), options=options)
    if kind == "mor":
        table.maintenance.compact(options=options)
    (path,) = [p for p in (folder / "t").rglob("*.parquet") if ".hoodie" not in p.parts]
    stored = pq.ParquetFile(path)
    whole = stored.read()
    in_order = [rows[number] for number in whole["id"].to_pylist()]
    column = shredded_file(folder / "v.parquet", in_order, "STRUCT(a INTEGER, b VARCHAR, c INTEGER[])")
    shredded = whole.set_column(whole.schema.get_field_index("v"), "v", column)
    metadata = {k: v for k, v in stored.metadata.metadata.items() if k != b"ARROW:schema"}
    size, sink = path.stat().st_size, pa.BufferOutputStream()
    pq.write_table(shredded.replace_schema_metadata(metadata), sink, store_schema=False, compression="zstd")
    data = sink.getvalue().to_pybytes()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    # the commit names the size of the file: the space before its footer makes up for what is missing
    path.write_bytes(data[:end] + bytes(size - len(data)) + data[end:])
    return lakebed.open(table.uri)

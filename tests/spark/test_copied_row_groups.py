"""Spark's readers, by batches and row by row, read files whose row groups were copied as bytes; splits share them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from interop.test_copied_row_groups import GROUP, SCHEMA, newest, small_groups, without_others, written
from support.same_rows import assert_same_rows

__all__ = ["small_groups"]

VECTORISED, SPLIT = "spark.sql.parquet.enableVectorizedReader", "spark.sql.files.maxPartitionBytes"


@pytest.mark.rest
@pytest.mark.parametrize("sort", ["none", "key"])
def test_spark_reads_copied_row_groups(spark: Any, sort: str, tmp_path: Path) -> None:
    table, rows = written(tmp_path, random.Random(4), sort=sort)
    path = newest(table)
    before = {name: spark.conf.get(name) for name in (VECTORISED, SPLIT)}
    try:
        for split in ("128m", "3000"):
            for vectorised in ("true", "false"):
                spark.conf.set(VECTORISED, vectorised)
                spark.conf.set(SPLIT, split)
                found = spark.read.parquet(path)
                assert (found.rdd.getNumPartitions() > 4) == (split == "3000")
                assert_same_rows(pa.table(found.toArrow()).select(SCHEMA.names), rows)
                # filters skip row groups by their statistics: the others of that file hold nothing but damage
                assert found.where("id = 'key-00044'").count() == 1
                assert found.where("id > 'key-00310'").count() == rows.num_rows - 308
                key = f"key-{GROUP + 5:05}"
                damaged = spark.read.parquet(without_others(path, key, tmp_path))
                assert [row.id for row in damaged.where(f"id = '{key}'").select("id", "word").collect()] == [key]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)

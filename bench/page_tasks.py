"""The sides and tasks of the benchmark page, and the rows that all sides work on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from rows import random_keys, trips_of, write_folder

COLUMNS = 9
COMMITS, COMMIT_ROWS, SMALL_ROWS = 1_000, 10, 1_000
UPSERTS_OF_TEN = 10
# Reads before those that count: the kernel clears new memory for the first ones.
WARM_READS = 3
_SEED = 11


@dataclass(frozen=True)
class SideKind:
    """A side: where its class is, whether it runs on Spark, and which environment has its packages."""

    peer: str
    spark: bool = False
    environment: str = "lakebed"


SIDES = {
    "lakebed": SideKind("lakebed_table:Lakebed"),
    "lakebed-cow": SideKind("lakebed_table:CopyOnWrite"),
    "deltalake": SideKind("delta_rs:DeltaRs", environment="bench"),
    "deltalake-zstd": SideKind("delta_rs:Zstd", environment="bench"),
    "deltalake-text": SideKind("delta_rs:PlainText", environment="bench"),
    "pyiceberg": SideKind("iceberg_python:PyIceberg", environment="bench"),
    "lance": SideKind("lance_dataset:Lance", environment="bench"),
    "pypaimon": SideKind("paimon:Paimon", environment="bench-paimon"),
    "spark-lakebed": SideKind("spark_lakebed:SparkLakebed", spark=True),
    "spark-hudi": SideKind("spark_hudi:SparkHudi", spark=True, environment="oracle"),
    "spark-delta": SideKind("spark_delta:SparkDelta", spark=True),
    "spark-iceberg": SideKind("spark_iceberg:SparkIceberg", spark=True),
}


@dataclass(frozen=True)
class Task:
    """A step that is measured, once for each of its inputs. `check` says whose digest must be equal on all sides. A
    process of its own is started by the command line that the side answers, and gives the number of rows. `warm` steps
    are run before the first input: the first of them is noted as the first read, the others are not noted."""

    name: str
    command: str
    inputs: tuple[str, ...]
    check: str = "table"
    warm: int = 0
    is_process: bool = False


TASKS = (
    Task("load", "load", ("load",)),
    Task("upsert_percent", "upsert", ("percent",)),
    Task("incremental", "incremental", ("percent",), "result"),
    Task("upsert_ten", "upsert", tuple(f"ten-{n}" for n in range(UPSERTS_OF_TEN))),
    Task("lookup", "lookup", tuple(f"key-{n}" for n in range(5)), "result"),
    Task("lookup_many", "lookup", tuple(f"keys-{n}" for n in range(3)), "result"),
    Task("range", "range", ("",) * 3, "result", warm=WARM_READS),
    Task("scan", "scan", ("",) * 3, "result", warm=WARM_READS),
    Task("fresh_get", "fresh_get", tuple(f"key-{n}" for n in range(4)), "rows", is_process=True),
    Task("shell_get", "shell_get", tuple(f"key-{n}" for n in range(4)), "rows", is_process=True),
    Task("delete", "delete", ("gone",)),
    Task("upsert_tenth", "upsert", ("tenth",)),
    Task("merge", "merge", ("merge",)),
    Task("commits", "commits", ("commits",)),
)

# After these tasks the bytes of the table's files are noted.
SIZED = ("load", "scan")


def make_inputs(folder: Path, count: int) -> None:
    """Write the rows of every step, the same each time, as folders of Parquet files. `count` rows are loaded; 14 of 15
    keys of an upsert are known; the ordering value grows from step to step."""
    rng = np.random.default_rng(_SEED)
    keys = random_keys(rng, count + count // 5 + 100)
    fresh = iter(range(count, len(keys)))

    def known(size: int, among: range = range(count)) -> pa.Array:
        return keys.take(pa.array(among.start + rng.choice(len(among), min(size, len(among)), replace=False)))

    def mixed(size: int, among: range = range(count)) -> pa.Array:
        new = keys.take(pa.array([next(fresh) for _ in range(-(-size // 15))]))
        return pa.concat_arrays([known(size - len(new), among), new])

    def put(name: str, some: pa.Array, version: int, files: int = 1) -> None:
        write_folder(folder / name, trips_of(rng, some, version, COLUMNS), files)

    put("load", keys.slice(0, count), 1, 8)
    put("percent", mixed(count // 100), 2)
    for n in range(UPSERTS_OF_TEN):
        put(f"ten-{n}", mixed(10), 3 + n)
    for n in range(5):
        put(f"key-{n}", known(1), 1)
    for n in range(3):
        put(f"keys-{n}", known(1_000), 1)
    half = count // 2
    later = 3 + UPSERTS_OF_TEN
    put("gone", known(1_000, range(half)), later)
    put("tenth", mixed(count // 10, range(half, count)), later + 1)
    put("merge", mixed(count // 100, range(half, count)), later + 2)
    small = random_keys(rng, SMALL_ROWS)
    put("small", small, 1)
    changes = [trips_of(rng, _ten(rng, small), 2 + n, COLUMNS) for n in range(COMMITS)]
    write_folder(folder / "commits", pa.concat_tables(changes), 1)


def _ten(rng: np.random.Generator, keys: pa.Array) -> pa.Array:
    return keys.take(pa.array(rng.choice(len(keys), COMMIT_ROWS, replace=False)))

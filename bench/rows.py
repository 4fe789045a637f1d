"""The benchmark's rows: trips with random 36-character keys, the same every time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY, ORDERING = "id", "ts"
_SEED = 4
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_DASHES = (8, 13, 18, 23)
_CITIES = [f"city-{n:03}" for n in range(200)]
_STATES = ["requested", "accepted", "driving", "done", "cancelled"]


@dataclass(frozen=True)
class Inputs:
    """Folders of Parquet files: the load, the upsert, and small upserts one after another."""

    load: Path
    upsert: Path
    small: tuple[Path, ...]
    rows: int
    upsert_rows: int
    columns: tuple[str, ...]


def make_inputs(folder: Path, rows: int, columns: int, small: int, upsert_rows: int | None = None) -> Inputs:
    """Write the inputs: `rows` to load, `upsert_rows` or a tenth as many to upsert (14 of 15 known keys), 1,000 a small
    upsert."""
    rng = np.random.default_rng(_SEED)
    upserted = rows // 10 if upsert_rows is None else upsert_rows
    new = upserted // 15
    keys = random_keys(rng, rows + new + 50 * small)
    base, fresh = keys.slice(0, rows), keys.slice(rows, new)
    load = write_folder(folder / "load", trips_of(rng, base, 1, columns), 8)
    known = base.take(pa.array(rng.choice(rows, upserted - new, replace=False)))
    mixed = pa.concat_arrays([known, fresh]).take(pa.array(rng.permutation(upserted)))
    upsert = write_folder(folder / "upsert", trips_of(rng, mixed, 2, columns), 2)
    smalls = []
    for n in range(small):
        some = base.take(pa.array(rng.choice(rows, min(950, rows), replace=False)))
        more = pa.concat_arrays([some, keys.slice(rows + new + 50 * n, 50)])
        smalls.append(write_folder(folder / f"small-{n}", trips_of(rng, more, 3 + n, columns), 1))
    return Inputs(load, upsert, tuple(smalls), rows, upserted, tuple(trips_of(rng, base[:1], 1, columns).column_names))


def write_folder(folder: Path, table: pa.Table, files: int) -> Path:
    folder.mkdir(parents=True)
    each = -(-table.num_rows // files)
    for n in range(files):
        part = table.slice(n * each, each)
        pq.write_table(part, folder / f"part-{n}.parquet", row_group_size=131_072, compression="snappy")
    return folder


def trips_of(rng: np.random.Generator, keys: pa.Array, version: int, columns: int) -> pa.Table:
    n = len(keys)
    table = pa.table(
        {
            KEY: keys,
            ORDERING: pa.array(1_700_000_000_000 * version + rng.integers(0, 10**9, n)),
            "city": _chosen(rng, _CITIES, n),
            "status": _chosen(rng, _STATES, n),
            "rider": _named("rider", rng.integers(0, 10**6, n)),
            "fare": pa.array(np.round(rng.gamma(2.0, 9.0, n), 2)),
            "day": pa.array(rng.integers(19_000, 19_365, n).astype(np.int32)).cast(pa.date32()),
            "driver": _named("driver", rng.integers(0, 10**5, n)),
            "begin_lat": pa.array(rng.random(n) * 180 - 90),
            "begin_lon": pa.array(rng.random(n) * 360 - 180),
            "distance": pa.array(rng.gamma(2.0, 4.0, n)),
            "tip": pa.array(np.round(rng.gamma(1.0, 2.0, n), 2)),
        }
    )
    return table.select(table.column_names[:columns])


def random_keys(rng: np.random.Generator, n: int) -> pa.Array:
    """Random texts in the form of UUIDs, made column by column."""
    digits = rng.integers(0, 16, (n, 32), dtype=np.uint8)
    text = np.full((n, 36), ord("-"), dtype=np.uint8)
    text[:, [c for c in range(36) if c not in _DASHES]] = _HEX[digits]
    offsets = np.arange(0, 36 * (n + 1), 36, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text.tobytes()))


def _chosen(rng: np.random.Generator, values: list[str], n: int) -> pa.Array:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), n)))


def _named(what: str, numbers: np.ndarray) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(what, pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 7, "0"), "-")

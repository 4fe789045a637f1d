"""What finding the keys of a batch costs under each index: a small model, the same for `index="auto"` and `explain`."""

from __future__ import annotations

from dataclasses import dataclass, replace

# Seconds of one process, measured by bench/record_index.py, which prints the model's answers beside its own figures.
# What opening a view of the index costs before a key is looked up.
_RECORD_START = 0.01
# A shard that is touched: its file's trailer, index and log blocks.
_SHARD = 0.003
# Bytes of shards: inflated where so many keys are asked for that every block is touched.
_INDEX_BYTE = 1.6e-8
_INDEX_BLOCK = 1 << 20
# A key that is looked up, routed and joined.
_INDEX_KEY = 2.0e-6
# A base file whose key column is read: open, footer, one column chunk.
_FILE = 0.0025
# A stored key that is read and joined.
_STORED_KEY = 2.5e-7
# A key of the batch in the join.
_JOINED_KEY = 4.0e-7


@dataclass(frozen=True, slots=True)
class Batch:
    """Keys to be found in a table: its base files and stored rows (those that a simple index would read), the file
    groups of its record index and their bytes (None: what so many rows would have)."""

    keys: int
    files: int
    rows: int
    shards: int = 10
    index_bytes: int | None = None


def record_cost(batch: Batch) -> float:
    """Seconds that tagging by the record index takes.

    >>> few = Batch(keys=500, files=5_000, rows=500_000)
    >>> record_cost(few) < 0.28 * global_simple_cost(few)
    True
    """
    size = 22 * batch.rows if batch.index_bytes is None else batch.index_bytes
    blocks = max(1, size // _INDEX_BLOCK)
    touched = min(1.0, batch.keys / blocks)
    shards = min(batch.shards, batch.keys)
    return _RECORD_START + shards * _SHARD + touched * size * _INDEX_BYTE + batch.keys * _INDEX_KEY


def global_simple_cost(batch: Batch) -> float:
    """Seconds that tagging by a simple index takes that reads these files."""
    return batch.files * _FILE + batch.rows * _STORED_KEY + batch.keys * _JOINED_KEY


def crossover(batch: Batch) -> int | None:
    """The number of keys from which on reading the base files is the cheaper way; None where it never is."""
    most = max(1, batch.rows)
    if record_cost(replace(batch, keys=most)) <= global_simple_cost(replace(batch, keys=most)):
        return None
    low, high = 0, most
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        there = replace(batch, keys=middle)
        low, high = (middle, high) if record_cost(there) <= global_simple_cost(there) else (low, middle)
    return high

"""What finding the keys of a batch costs under each index: a small model, the same for `index="auto"` and `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

# CPU seconds of one process. bench/record_index.py prints the model's answers next to what it measures: on thousands of
# files of 100 rows, and on a million rows in 8 files.
# A view of the table, before a key is looked up.
_START = 0.02
# A base file whose key column is read (open, footer, one column chunk), and a base or log file of the record index.
_FILE = 1.5e-3
_INDEX_FILE = 1.9e-3
# A stored key that is read and joined, and a key of the batch in that join.
STORED_KEY = 8.5e-7
_JOINED_KEY = 1.1e-6
# A key that is looked up in the record index, and a byte of its blocks that is inflated; blocks hold a mebibyte.
_INDEX_KEY = 3.0e-6
_INDEX_BYTE = 1.3e-8
_INDEX_BLOCK = 1 << 20
# What a record index takes for a key, roughly.
_KEY_BYTES = 21
# Another index is mentioned where it saves this much.
_SAVED_SHARE = 0.25
_SAVED_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """The keys to look up in a table: the base files and stored rows that a simple index would read, and the file
    groups (shards), files and bytes of the record index, either its real ones or (0) those of a record index over these
    rows."""

    keys: int
    files: int
    rows: int
    shards: int = 10
    index_files: int = 0
    index_bytes: int = 0


def record_cost(batch: Batch) -> float:
    """The CPU seconds of tagging by the record index if none of it is in memory.

    >>> few = Batch(keys=500, files=5_000, rows=500_000)
    >>> record_cost(few) < 0.28 * simple_cost(few)
    True
    """
    size = batch.index_bytes or _KEY_BYTES * batch.rows
    inflated = min(size, batch.keys * _INDEX_BLOCK)
    share = min(1.0, batch.keys / batch.shards)
    files = (batch.index_files or batch.shards) * share
    return _START + files * _INDEX_FILE + inflated * _INDEX_BYTE + batch.keys * _INDEX_KEY


def simple_cost(batch: Batch) -> float:
    """The CPU seconds of tagging by a simple index, which reads the keys of all the files."""
    return _START + batch.files * _FILE + batch.rows * STORED_KEY + batch.keys * _JOINED_KEY


def crossover(batch: Batch) -> int | None:
    """The number of keys from which on reading the base files costs less; None if it costs more even for as many keys
    as there are rows.

    >>> crossover(Batch(keys=0, files=5_000, rows=500_000)) is None
    True
    >>> crossover(Batch(keys=0, files=8, rows=1_000_000))
    300781
    """
    max_keys = max(1, batch.rows)
    if _is_cheaper_by_record(batch, max_keys):
        return None
    low, high = 0, max_keys
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if _is_cheaper_by_record(batch, middle) else (low, middle)
    return high


def _is_cheaper_by_record(batch: Batch, keys: int) -> bool:
    sized_batch = replace(batch, keys=keys)
    return record_cost(sized_batch) <= simple_cost(sized_batch)


@dataclass(frozen=True, slots=True)
class TaggingCosts:
    """The CPU seconds for tagging one batch, by the name of the index: `seconds` has the table's own index, whose name
    is `used`, and the other kinds of index that would find the same keys. `crossover` is the number of keys from which
    on the simple index is cheaper than the record index."""

    used: str
    seconds: dict[str, float]
    crossover: int | None

    @classmethod
    def of(cls, used: str, batch: Batch, *, simple: str) -> TaggingCosts:
        """The costs of a batch under the record index and the simple index of this name."""
        return cls(used, {"record": record_cost(batch), simple: simple_cost(batch), "bucket": 0.0}, crossover(batch))

    @property
    def cheaper(self) -> str | None:
        """The name of an index that looks keys up and would be clearly cheaper; None if the table's own index is good
        enough."""
        looking = {name: cost for name, cost in self.seconds.items() if cost}
        if self.used not in looking:
            return None
        best = min(looking, key=lambda name: looking[name])
        used_cost = looking[self.used]
        return best if used_cost - looking[best] > max(_SAVED_SECONDS, _SAVED_SHARE * used_cost) else None

    def lines(self) -> Sequence[str]:
        """The comparison as lines of text."""
        listed = ", ".join(f"{name} {_text(cost)}" for name, cost in self.seconds.items() if cost)
        prefix = "tagging: nothing is looked up; otherwise " if self.used == "bucket" else "tagging: "
        lines = [f"{prefix}{listed} (CPU, estimated); {self._which()}"]
        if self.cheaper is not None:
            lines.append(f"for this batch the {self.cheaper} index would be cheaper than {self.used}")
        return lines

    def _which(self) -> str:
        if self.crossover is None:
            return "the record index is the cheaper one for any batch"
        if self.crossover <= 1:
            return "reading the keys of so few rows is cheaper than any index"
        return f"the record index is the cheaper one for fewer than {self.crossover:,} keys"


def _text(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"

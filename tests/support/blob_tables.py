"""Tables with a BLOB column: a small one in memory, and the bytes that those of real Hudi reference."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed

SCHEMA = pa.schema(
    [("id", pa.string()), ("pic", lakebed.BLOB), ("name", pa.string()), ("ts", pa.int64()), ("part", pa.string())]
)
# The golden tables hold this path.
CONTAINER = Path("/tmp/lakebed-golden-blobs/container.bin")
_numbers = itertools.count()


def container() -> Path:
    """The file that the out-of-line blobs of the golden tables reference."""
    CONTAINER.parent.mkdir(exist_ok=True)
    CONTAINER.write_bytes(b"".join(b"blob%05d\n" % number for number in range(1000)))
    return CONTAINER


def data_of(number: int) -> bytes:
    return f"picture {number} ".encode() * (number % 5 + 1)


def blob_rows(numbers: range, ts: int = 1) -> list[dict[str, Any]]:
    """Rows with bytes in the table; each tenth has none."""
    return [
        {
            "id": f"k{n:03d}",
            "pic": lakebed.blob(data=data_of(n)) if n % 10 else None,
            "name": f"n{n}",
            "ts": ts,
            "part": f"p{n % 2}",
        }
        for n in numbers
    ]


def blob_table(kind: str, uri: str = "", **given: Any) -> lakebed.Table:
    """A table with forty rows, of which some have no blob."""
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "partition_by": "part", "type": kind, **given}
    table = lakebed.create(uri or f"memory://blobs/{next(_numbers)}", SCHEMA, **words)
    table.upsert(blob_rows(range(40)))
    return table


def blobs_by_key(table: lakebed.Table, **options: Any) -> dict[str, bytes | None]:
    """The bytes of each row's blob."""
    rows = table.scan(["id", "pic"], **options).to_arrow()
    return dict(zip(rows["id"].to_pylist(), table.read_blob(rows, "pic"), strict=True))


def outside(path: Path, keys: Sequence[str], offsets: Sequence[int], lengths: Sequence[int | None]) -> pa.Table:
    """Rows whose blobs are these ranges of a file."""
    pics = lakebed.blob(path=pa.array([str(path)] * len(keys)), offset=list(offsets), length=list(lengths))
    return pa.table(
        {"id": list(keys), "pic": pics, "name": list(keys), "ts": [1] * len(keys), "part": ["p0"] * len(keys)}
    )

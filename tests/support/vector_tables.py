"""Tables with vectors: those that real Hudi wrote (`tests/golden/vectors`), and a small one in memory."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed.metadata_kinds import text_index, vector_index
from lakebed.metadata_kinds.base import TableAction
from lakebed.metadata_kinds.registry import register
from lakebed.metadata_records.records import Records

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "vectors"
SCHEMA = pa.schema(
    [("id", pa.string()), ("emb", lakebed.vector(4)), ("name", pa.string()), ("ts", pa.int64()), ("part", pa.string())]
)
_numbers = itertools.count()


def unpacked(name: str, parent: Path) -> str:
    """A table of real Hudi in a folder of its own below `parent`."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(parent / name)
    return str(parent / name)


def expected(name: str) -> pa.Table:
    """The rows that real Hudi read, ordered by key."""
    return pq.read_table(FOLDER / f"{name}.expected.parquet")


def described(name: str) -> dict[str, Any]:
    """How the table was made, and what real Hudi found in it."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def vector_of(number: int) -> list[float]:
    return [number + 0.5, 1.5, -2.0, 0.25]


def vector_rows(numbers: range, ts: int = 1) -> list[dict[str, Any]]:
    """Rows with vectors; each tenth has none."""
    return [
        {"id": f"k{n:03d}", "emb": vector_of(n) if n % 10 else None, "name": f"n{n}", "ts": ts, "part": f"p{n % 2}"}
        for n in numbers
    ]


def vector_table(kind: str, uri: str = "", **given: Any) -> lakebed.Table:
    """A table in memory with forty rows, of which some have no vector."""
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "partition_by": "part", "type": kind, **given}
    table = lakebed.create(uri or f"memory://vectors/{next(_numbers)}", SCHEMA, **words)
    table.upsert(vector_rows(range(40)))
    return table


class _UnknownVectors(vector_index.VectorIndexKind):
    """The kind of vector indexes as for a writer that does not know them."""

    def records_of_action(self, partition: str, action: TableAction) -> Records | None:
        return None


class _UnknownTexts(text_index.TextIndexKind):
    """The kind of text indexes as for a writer that does not know them."""

    def records_of_action(self, partition: str, action: TableAction) -> Records | None:
        return None


@contextmanager
def another_writer() -> Generator[None]:
    """Commits within are those of a writer that does not know vector indexes and text indexes."""
    kinds = (vector_index.KIND, text_index.KIND)
    for kind, unknown in zip(kinds, (_UnknownVectors, _UnknownTexts), strict=True):
        register(unknown(kind.name, is_prefix=True, decode=kind.decode, build_position=kind.build_position))
    try:
        yield
    finally:
        for kind in kinds:
            register(kind)

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
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import text_index, vector_index
from lakebed.metadata_kinds.base import TableAction
from lakebed.metadata_kinds.registry import register
from lakebed.metadata_kinds.vector_store import StoredIndex
from lakebed.metadata_records.records import Records
from lakebed.storage import open_storage

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


INDEX = "vector_index_emb"
QUERY = [3.0, 1.0, 2.0, 0.5]
EVERY_CLUSTER: dict[str, Any] = {"probes": 1000, "rerank": 1000}
"""The options of a search that looks at every entry of an index."""


def indexed_table(kind: str, uri: str = "", **given: Any) -> lakebed.Table:
    """The small table in memory with a vector index."""
    table = vector_table(kind, uri, **given)
    table.indexes.create("vector", column="emb", metric="l2", clusters=4)
    return table


def nearest(table: lakebed.Table, k: int = 200, **options: Any) -> list[dict[str, Any]]:
    """The nearest rows to `QUERY`, in ascending order of their distances."""
    return table.search(QUERY, k, metric="l2", columns=["id", "part", "ts"], **options).to_arrow().to_pylist()


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def index_plan(table: lakebed.Table, **options: Any) -> str:
    """How a search is run, as text."""
    return str(table.search(QUERY, 3, metric="l2", **options).explain())


def check_search(table: lakebed.Table, *, gaps: bool = False, **options: Any) -> None:
    """The index answers, and finds what an exact search finds."""
    text = index_plan(table, **options)
    assert f"{INDEX}: " in text
    assert ("exactly" in text) is gaps
    exact = nearest(table, exact=True, **options)
    assert by_id(nearest(table, **EVERY_CLUSTER, **options)) == by_id(exact)
    few = nearest(table, 3, probes=1, rerank=3, **options)
    assert len(few) == min(3, len(exact))
    assert all(row in exact for row in few)


def stored_index(table: lakebed.Table) -> StoredIndex:
    """The records of the index in the metadata table."""
    snapshot = open_snapshot(open_storage(table.uri))
    assert snapshot.metadata is not None
    return StoredIndex(snapshot.metadata, INDEX)


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

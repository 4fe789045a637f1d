"""Small tables with an index that has layers, of vectors or of texts: what tests of both kinds do with them."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import pyarrow as pa

import lakebed
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.layer_records import BUILD, StoredLayers
from lakebed.metadata_kinds.text_store import StoredTextIndex
from lakebed.metadata_kinds.vector_store import StoredIndex
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from support import vector_tables
from support.text_model import best_rows

Rows = list[dict[str, Any]]
_numbers = itertools.count()
_TEXTS = pa.schema(
    [("id", pa.string()), ("body", pa.string()), ("name", pa.string()), ("ts", pa.int64()), ("part", pa.string())]
)
_COLORS = ("red", "green", "blue", "grey")


class LayeredTables(ABC):
    """Tables of forty rows with the columns id, name, ts, part and `column`, which is null in each tenth row."""

    noun: ClassVar[str]

    def __init__(self, column: str) -> None:
        self.column = column

    def of_column(self, column: str) -> Self:
        """These tables after their column was renamed."""
        return type(self)(column)

    def __str__(self) -> str:
        return self.noun

    @property
    def index(self) -> str:
        """The partition of the index in the metadata table."""
        return f"{self.noun}_index_{self.column}"

    @abstractmethod
    def rows(self, numbers: range, ts: int = 1) -> Rows:
        """Rows with these numbers in their keys."""

    @abstractmethod
    def best(self, number: int, ts: int) -> dict[str, Any]:
        """A row that is the best answer to the query of `answers`."""

    @abstractmethod
    def table(self, kind: str, uri: str = "", **given: Any) -> lakebed.Table:
        """The table without an index."""

    @abstractmethod
    def create(self, table: lakebed.Table, column: str = "", **options: Any) -> Any:
        """Create the index."""

    @abstractmethod
    def answers(self, table: lakebed.Table, k: int = 200, *, exact: bool = False, **options: Any) -> Rows:
        """The best rows for a query that every row with a value answers: id, part and ts. A search by the index
        looks at all entries."""

    @abstractmethod
    def plan(self, table: lakebed.Table, **options: Any) -> str:
        """How such a search is run, as text."""

    @abstractmethod
    def check(self, table: lakebed.Table, *, gaps: bool = False, **options: Any) -> None:
        """The index answers, and finds what an exact search finds."""

    @abstractmethod
    def opened(self, snapshot: Snapshot) -> StoredLayers:
        """The records of the index in the metadata table of a view."""

    def indexed(self, kind: str, uri: str = "", **given: Any) -> lakebed.Table:
        """The table with the index."""
        table = self.table(kind, uri, **given)
        self.create(table)
        return table

    def stored(self, table: lakebed.Table) -> StoredLayers:
        """The records of the index."""
        return self.opened(open_snapshot(open_storage(table.uri)))

    def layers(self, table: lakebed.Table) -> list[str]:
        """The names of the layers after the base."""
        return [of for of in self.stored(table).layer_heads if of != BUILD]

    def has_index(self, table: lakebed.Table) -> bool:
        return self.index in {index.name for index in table.indexes.list()}

    def same(self, table: lakebed.Table, **options: Any) -> bool:
        """Whether a search by the index, if there is one, finds what an exact one finds."""
        return by_id(self.answers(table, **options)) == by_id(self.answers(table, exact=True, **options))

    def found(self, table: lakebed.Table, **options: Any) -> dict[str, int]:
        """The ordering value of each row that a search finds, by its key."""
        return {row["id"]: row["ts"] for row in self.answers(table, **options)}

    def with_value(self, rows: Rows) -> dict[str, int]:
        """The ordering value of each row with a value of the column, by its key."""
        return {row["id"]: row["ts"] for row in rows if row[self.column] is not None}


class VectorTables(LayeredTables):
    noun = "vector"

    def rows(self, numbers: range, ts: int = 1) -> Rows:
        return vector_tables.vector_rows(numbers, ts)

    def best(self, number: int, ts: int) -> dict[str, Any]:
        return {**self.rows(range(number, number + 1), ts)[0], "emb": vector_tables.QUERY}

    def table(self, kind: str, uri: str = "", **given: Any) -> lakebed.Table:
        return vector_tables.vector_table(kind, uri, **given)

    def create(self, table: lakebed.Table, column: str = "", **options: Any) -> Any:
        return table.indexes.create("vector", column=column or self.column, metric="l2", clusters=4, **options)

    def answers(self, table: lakebed.Table, k: int = 200, *, exact: bool = False, **options: Any) -> Rows:
        wide = {} if exact else vector_tables.EVERY_CLUSTER
        options = {"columns": ["id", "part", "ts"], **options}
        return table.search(vector_tables.QUERY, k, metric="l2", exact=exact, **wide, **options).to_arrow().to_pylist()

    def plan(self, table: lakebed.Table, **options: Any) -> str:
        return vector_tables.index_plan(table, **options)

    def check(self, table: lakebed.Table, *, gaps: bool = False, **options: Any) -> None:
        vector_tables.check_search(table, gaps=gaps, **options)

    def opened(self, snapshot: Snapshot) -> StoredIndex:
        assert snapshot.metadata is not None
        return StoredIndex(snapshot.metadata, self.index)


class TextTables(LayeredTables):
    noun = "text"

    def rows(self, numbers: range, ts: int = 1) -> Rows:
        return [
            {
                "id": f"k{n:03d}",
                "body": f"every {_COLORS[n % 4]} {_COLORS[(n + ts) % 3]} n{n}" if n % 10 else None,
                "name": f"n{n}",
                "ts": ts,
                "part": f"p{n % 2}",
            }
            for n in numbers
        ]

    def best(self, number: int, ts: int) -> dict[str, Any]:
        return {**self.rows(range(number, number + 1), ts)[0], "body": "every"}

    def table(self, kind: str, uri: str = "", **given: Any) -> lakebed.Table:
        words: dict[str, Any] = {"key": "id", "ordering": "ts", "partition_by": "part", "type": kind, **given}
        table = lakebed.create(uri or f"memory://layered/{next(_numbers)}", _TEXTS, **words)
        table.upsert(self.rows(range(40)))
        return table

    def create(self, table: lakebed.Table, column: str = "", **options: Any) -> Any:
        return table.indexes.create("text", column=column or self.column, **options)

    def answers(self, table: lakebed.Table, k: int = 200, *, exact: bool = False, **options: Any) -> Rows:
        options = {"columns": ["id", "part", "ts"], **options}
        search = table.search(text="every", k=k, text_column=self.column, exact=exact, **options)
        return [{**row, "_score": round(row["_score"], 9)} for row in search.to_arrow().to_pylist()]

    def plan(self, table: lakebed.Table, **options: Any) -> str:
        return str(table.search(text="every", k=3, text_column=self.column, **options).explain())

    def check(self, table: lakebed.Table, *, gaps: bool = False, **options: Any) -> None:
        assert f"by index    {self.index}: " in self.plan(table, **options)
        rows = table.scan(as_of=options.get("as_of")).to_arrow().to_pylist()
        for query in ("red blue", "every n3 grey"):
            found = table.search(text=query, k=200, **options).to_arrow().to_pylist()
            scores = {row["id"]: round(row["_score"], 6) for row in found}
            assert scores == {row["id"]: round(score, 6) for score, row in best_rows(rows, query)}
            assert found == table.search(text=query, k=200, exact=True, **options).to_arrow().to_pylist()
        view = open_snapshot(open_storage(table.uri), as_of=options.get("as_of"))
        lacking = self.opened(view).lacking_commits(view)
        assert (len(lacking) > 0) is gaps

    def opened(self, snapshot: Snapshot) -> StoredTextIndex:
        assert snapshot.metadata is not None
        return StoredTextIndex(snapshot.metadata, self.index)


def by_id(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: row["id"])


VECTORS, TEXTS = VectorTables("emb"), TextTables("body")
EACH = (VECTORS, TEXTS)
"""Tables with an index of each kind that has layers."""

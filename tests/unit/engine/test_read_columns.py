"""An engine reads columns of file slices through the table's slice reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.engine.local import LocalEngine
from lakebed.model import FileSlice
from lakebed.storage.memory import MemoryStorage


@dataclass
class Table:
    """Slices whose rows are their file ids, read in `read_placed`."""

    storage: MemoryStorage = field(default_factory=lambda: MemoryStorage("read-columns"))
    read_ids: list[str] = field(default_factory=list[str])

    @property
    def reader(self) -> Table:
        return self

    def read_placed(self, file_slice: FileSlice, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        self.read_ids.append(file_slice.file_id)
        if file_slice.file_id != "empty":
            yield pa.record_batch({"id": [file_slice.file_id]})

    def schema_of(self, file_slice: FileSlice) -> pa.Schema:
        return pa.schema([("id", pa.string()), ("v", pa.int64() if file_slice.instant == "2" else pa.int32())])


def test_every_slice_is_read_by_the_reader() -> None:
    table, slices = Table(), [FileSlice("p", name, "1", None) for name in ("a", "b")]
    found = LocalEngine(threads=1).read_columns(table, slices, ["id"]).table
    assert found.to_pydict() == {"id": ["a", "b"]}
    assert sorted(table.read_ids) == ["a", "b"]


def test_without_rows_types_come_from_the_newest_slice() -> None:
    slices = [FileSlice("p", "empty", instant, None) for instant in ("2", "1")]
    assert LocalEngine().read_columns(Table(), slices, ["v"]).table.schema == pa.schema([("v", pa.int64())])
    assert LocalEngine().read_columns(Table(), [], ["v"]).table.schema == pa.schema([("v", pa.string())])

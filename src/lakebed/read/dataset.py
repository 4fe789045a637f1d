"""A table at one instant as a `pyarrow.dataset.Dataset`: DuckDB, polars and Ray hand their columns and conditions over
to lakebed's scan, which rules out partitions, buckets and files by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakebed.errors import UnsupportedFeature
from lakebed.filters.arrow import UnreadableExpression, parts_of
from lakebed.read.scan import Scan

Columns = Sequence[str] | Mapping[str, pc.Expression] | None


class TableDataset(ds.Dataset):  # pyright: ignore[reportUntypedBaseClass]
    """The rows of a table as of one instant. `t.dataset()` returns one.

    `scanner(columns, filter)` opens the files that may hold matching rows, and gives the matching rows with the columns
    asked for, in their order. Writes after `t.dataset()` do not change its rows.

    >>> import lakebed, pyarrow.compute as pc
    >>> t = lakebed.create("memory://docs/dataset", {"id": [1, 2, 3]}, key="id", index="bucket", buckets=2)
    >>> _ = t.upsert({"id": [1, 2, 3]})
    >>> t.dataset().count_rows(), t.dataset().to_table(filter=pc.field("id") == 2).to_pylist()
    (3, [{'id': 2}])
    """

    # Arrow's own constructor makes a dataset of files, which this one does not have
    def __init__(self, scan: Scan, condition: pc.Expression | None = None) -> None:
        self._scan = scan
        self._condition = condition

    def __reduce__(self) -> tuple[type[TableDataset], tuple[Scan, pc.Expression | None]]:
        return TableDataset, (self._scan, self._condition)

    def __repr__(self) -> str:
        return f"lakebed dataset of {self._scan}"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._scan.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """The expression `true`: the dataset guarantees no condition about all rows."""
        return pc.scalar(pa.scalar(True, pa.bool_()))

    def scan(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> Scan:
        """The lakebed scan that a reader with these columns and this condition runs; `explain()` shows its files."""
        conditions = [c for c in (self._condition, filter) if c is not None]
        names = self.schema.names if columns is None else list(columns)
        scan = self._scan.of_columns(names)
        return (
            scan.where(conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]) if conditions else scan
        )

    def scanner(
        self, columns: Columns = None, filter: pc.Expression | None = None, batch_size: int | None = None, **_: Any
    ) -> ds.Scanner:
        """A scanner over the matching rows with these columns, or with the values of these expressions.

        Further options of Arrow's scanners are about reading files, and change nothing.
        """
        if not isinstance(columns, Mapping):
            scan = self.scan(columns, filter)
            return RowScanner(scan.schema, lambda: self._batches(scan, batch_size))
        of_expressions, scan = dict(columns), self.scan(_columns_of(columns, self.schema), filter)

        def computed(batches: Iterable[pa.RecordBatch]) -> ds.Scanner:
            return ds.Scanner.from_batches(batches, schema=scan.schema, columns=of_expressions)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in self._batches(scan, batch_size):
                yield from computed([batch]).to_table().to_batches()

        return RowScanner(computed([]).projected_schema, rows)

    def _batches(self, scan: Scan, limit: int | None) -> Iterator[pa.RecordBatch]:
        """The rows of a scan in batches of at most `limit` rows (None: in the batches of the scan)."""
        for batch in scan.to_batches():
            for start in range(0, batch.num_rows, limit or batch.num_rows):
                yield batch.slice(start, limit)

    def to_table(
        self, columns: Columns = None, filter: pc.Expression | None = None, batch_size: int | None = None, **_: Any
    ) -> pa.Table:
        """The matching rows as one Arrow table."""
        if not isinstance(columns, Mapping):
            return self.scan(columns, filter).to_arrow()
        return self.scanner(columns, filter, batch_size).to_table()

    def to_batches(
        self, columns: Columns = None, filter: pc.Expression | None = None, batch_size: int | None = None, **_: Any
    ) -> Iterator[pa.RecordBatch]:
        """The matching rows as batches of at most `batch_size` rows."""
        if not isinstance(columns, Mapping):
            return self._batches(self.scan(columns, filter), batch_size)
        return self.scanner(columns, filter, batch_size).to_batches()

    def head(
        self,
        num_rows: int,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **_: Any,
    ) -> pa.Table:
        """The first matching rows; the files after them are not opened."""
        if not isinstance(columns, Mapping):
            return self.scan(columns, filter).limit(num_rows).to_arrow()
        return self.scanner(columns, filter, batch_size).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:
        """The number of matching rows; without a condition by the footers of files alone."""
        return self.scan(None, filter).count()

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """The rows at these places of `to_table`."""
        return self.to_table(**options).take(indices)

    def filter(self, expression: pc.Expression) -> TableDataset:
        """This dataset with one more condition."""
        combined = expression if self._condition is None else self._condition & expression
        return TableDataset(self._scan, combined)

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows in order, in memory."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, keys: Any, *more: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows joined with those of another dataset, in memory. `t.join` joins by buckets."""
        return ds.InMemoryDataset(self.to_table().join(_table_of(right_dataset), keys, *more, **options))

    def join_asof(self, right_dataset: Any, *more: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows joined with the nearest of another dataset, in memory."""
        return ds.InMemoryDataset(self.to_table().join_asof(_table_of(right_dataset), *more, **options))

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:
        """Raises `UnsupportedFeature`, since the rows of a file slice may be in several files."""
        raise UnsupportedFeature(
            "a dataset of lakebed has no fragments: the rows of a file slice may be of several files",
            hint="read it with to_batches(columns, filter); t.files has the files",
            context={"feature": "fragments of a dataset"},
        )

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Raises `UnsupportedFeature`, since the rows have the table's types."""
        raise UnsupportedFeature(
            "a dataset of lakebed has the table's types",
            hint="cast the result: to_table().cast(schema)",
            context={"feature": "schema of a dataset"},
        )


class RowScanner(ds.Scanner):  # pyright: ignore[reportUntypedBaseClass]
    """A scanner over rows that reads each batch when it is requested.

    Arrow's own scanner of batches reads ahead in threads. They are still at it where a reader stops early, as
    `limit 3` does, and Python aborts if they call it while it ends.
    """

    # Arrow's own constructor refuses; all that reads is below
    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._schema = schema
        self._batches = batches

    @property
    def dataset_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self._schema

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a reader, which reads them on demand."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in batches, which are read on demand."""
        return self._batches()

    def scan_batches(self) -> Iterator[ds.TaggedRecordBatch]:
        """The batches of `to_batches` as Arrow's tagged batches, without a fragment."""
        return ds.Scanner.from_batches(self.to_reader()).scan_batches()

    def to_table(self) -> pa.Table:
        """All rows as one table."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """The first rows as a table; later rows are not read."""
        batches: list[pa.RecordBatch] = []
        for batch in self._batches():
            batches.append(batch)
            if sum(part.num_rows for part in batches) >= num_rows:
                break
        return pa.Table.from_batches(batches, self._schema).slice(0, num_rows)

    def take(self, indices: Any) -> pa.Table:
        """The rows at these places."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self._batches())


def _table_of(dataset: Any) -> Any:
    return dataset.to_table() if isinstance(dataset, TableDataset) else dataset


def _columns_of(expressions: Mapping[str, pc.Expression], schema: pa.Schema) -> list[str]:
    """The columns that the expressions read; all columns if an expression cannot be analysed."""
    names: dict[str, None] = {}
    for expression in expressions.values():
        try:
            names |= dict.fromkeys(parts_of(expression)[1])
        except UnreadableExpression:
            return schema.names
    return list(names) or schema.names[:1]

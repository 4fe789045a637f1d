"""One run of a model: its rows are written in one commit, those of a consumer's batch exactly once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.dbt_plugin.models import Model
from lakebed.dbt_plugin.tables import Source, Tables
from lakebed.errors import InvalidOption
from lakebed.operations.merge import MergeResult
from lakebed.operations.once import Once
from lakebed.operations.result import WriteResult
from lakebed.read.scan import Scan
from lakebed.table_consumers import ConsumedRows
from lakebed.wording import count_text

Query = Callable[[Scan | None], AbstractContextManager[pa.RecordBatchReader]]
"""The rows of a model's query, while the block runs; the source with a consumer has the rows of this scan."""


@dataclass(frozen=True)
class Run:
    """What a run wrote; `result` is None where a consumer had nothing new, and `complete` is whether the rows replaced
    all rows of the table."""

    model: Model
    result: WriteResult | None
    complete: bool

    @property
    def rows(self) -> int:
        """The number of rows that the query gave."""
        return 0 if self.result is None else self.result.rows

    def __str__(self) -> str:
        verb = "insert_overwrite" if self.complete else self.model.verb
        result = self.result
        if result is None:
            return f"{verb}: nothing new"
        if result.skipped:
            return f"{verb}: written by an earlier run"
        if isinstance(result, MergeResult) or verb == "upsert":
            counts = {"inserted": result.inserted, "updated": result.updated, "deleted": result.deleted}
            parts = [f"{count:,} {name}" for name, count in counts.items() if count]
            return f"{verb}: {', '.join(parts) or count_text(result.rows, 'row')}"
        return f"{verb}: {count_text(result.rows, 'row')}"


def run_model(tables: Tables, model: Model, source: Source | None, query: Query) -> Run:
    """Write what the model's query gives. `source` is the source with a consumer that it reads, if there is one."""
    if source is None:
        return Run(
            model, _write(tables, model, query, None, complete=model.full_refresh, once=None), model.full_refresh
        )
    if model.verb == "insert_overwrite":
        raise InvalidOption(
            "insert_overwrite would leave nothing but the newest rows of a source with a consumer",
            hint="take verb='upsert' with a key, 'insert' or 'merge', or leave out the consumer",
        )
    return _consume(tables, model, source, query)


def _consume(tables: Tables, model: Model, source: Source, query: Query) -> Run:
    """Write what the query makes of the consumer's next batch, or of all rows up to its end where the table is new or
    is made again. The commit records the batch, and the consumer moves on after it."""
    assert source.consumer is not None
    while True:
        with tables.open(source.table).consume(source.consumer) as batch:
            assert isinstance(batch, ConsumedRows)
            is_empty = batch.end == batch.start
            complete = model.full_refresh or tables.written(model.table) is None
            if is_empty and not complete:
                return Run(model, None, False)
            # without new rows no position is recorded: all rows may be written twice, since they replace each other
            once = None if is_empty else batch.once()
            rows = batch.all_rows() if complete else batch
            result = _write(tables, model, query, rows, complete=complete, once=once)
        # an earlier run wrote this batch and died, and wrote it as new rows alone
        if not (model.full_refresh and result.skipped):
            return Run(model, result, complete)


def _write(
    tables: Tables, model: Model, query: Query, rows: Scan | None, *, complete: bool, once: Once | None
) -> WriteResult:
    with query(rows) as stream:
        table = tables.target(model, stream.schema)
        with_options = replace(model, options={**tables.options, **model.options})
        return with_options.write(table, stream, complete=complete, once=once)

"""Which rows a write would refuse, by what follows from each row alone: its key, partition path, ordering, values."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from lakebed.engine.base import Task
from lakebed.errors import InvalidRecord
from lakebed.merge.incoming import Intake
from lakebed.operations.context import WriteContext, schema_for_write
from lakebed.operations.upsert import admitted_rows
from lakebed.operations.write import RowMatch, prepare

_NO_INSTANT = "0" * 17
_MATCH = RowMatch("none", combine=False)


def refused_rows(context: WriteContext, rows: pa.Table) -> list[tuple[int, str]]:
    """The numbers of the rows that a write refuses, ascending, with the reasons. They are found by halving: the cost
    grows with their number, and nothing is written.

    It does not find two rows that cannot be written together, nor rows that are refused because of stored rows.
    """
    return find_refused(rows, lambda part: _take_in(context, part))


def find_refused(rows: pa.Table, check: Callable[[pa.Table], object]) -> list[tuple[int, str]]:
    """The numbers (ascending) of the rows for which `check`, called with each alone, raises `InvalidRecord`, with the
    messages. They are found by halving."""
    refused: list[tuple[int, str]] = []
    pending = [(0, rows.num_rows)]
    while pending:
        start, end = pending.pop()
        try:
            check(rows.slice(start, end - start))
        except InvalidRecord as error:
            if end - start == 1:
                refused.append((start, error.message))
            else:
                middle = (start + end) // 2
                pending += [(middle, end), (start, middle)]
    return refused


def _take_in(context: WriteContext, rows: pa.Table) -> None:
    """Run the steps of a write before its files. Raises `InvalidRecord` for rows that the write refuses."""
    settings = context.settings
    admitted = admitted_rows(context, rows, "INSERT" if not settings.partial else "UPSERT", _MATCH).rows
    schema = schema_for_write(context, context.opened, admitted, partial=settings.partial)
    present = set(context.engine.schema(admitted).names)
    intake = Intake(
        schema=schema.data,
        rules=context.rules,
        combine=False,
        all_deletes=False,
        memory=settings.memory,
        auto_keys=_NO_INSTANT if context.makes_keys else None,
        absent=tuple(name for name in schema.data.names if settings.partial and name not in present),
        null_ordering=settings.null_ordering,
    )
    prepared = context.engine.collect(prepare(context, admitted, schema))
    for _ in intake.checked(iter(prepared.to_batches()), Task()):
        pass

"""The table of errors: messages that are no rows, by their position in the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakebed.api import create, exists
from lakebed.api import open as open_table
from lakebed.ingestion.job import Errors
from lakebed.ingestion.source import BAD_ROWS
from lakebed.operations.rejects import time_column

SEEN_AT = "seen_at"


def write_bad_rows(errors: Errors, bad: pa.Table) -> None:
    """Upsert bad rows by their position; the table is created if it does not exist. A row that is written again,
    because the round after it failed, stays one row."""
    assert errors.table is not None
    field, times = time_column(SEEN_AT, bad.num_rows)
    options: Mapping[str, Any] = errors.storage_options or {}
    if exists(errors.table, storage_options=options):
        table = open_table(errors.table, storage_options=options)
    else:
        table = create(
            errors.table, pa.schema([*BAD_ROWS, field]), key="position", index="simple", storage_options=options
        )
    table.upsert(bad.append_column(field, times), progress=False, options=errors.options)

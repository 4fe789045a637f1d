"""What tests of compaction ask of a table: its slices, its pending plans, its rows with their meta columns."""

from __future__ import annotations

import pyarrow as pa

from lakebed.metadata.lookups import open_snapshot
from lakebed.model import Instant
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.table import Table


def snapshot(table: Table) -> Snapshot:
    return open_snapshot(open_storage(table.uri))


def pending(table: Table) -> list[Instant]:
    return list(snapshot(table).timeline.pending)


def log_files(table: Table) -> int:
    return sum(len(s.log_files) for s in snapshot(table).file_slices())


def bare(found: pa.Table) -> list[str]:
    """Rows in an order of their own, all columns but the name of the file."""
    return sorted(map(str, found.drop_columns(["_hoodie_file_name"]).to_pylist()))

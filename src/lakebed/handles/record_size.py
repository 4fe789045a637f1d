"""How many bytes a row takes in a base file: from past commits, else from an encoded sample of the rows at hand."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.config.settings import WriteSettings
from lakebed.model import Action
from lakebed.slices.snapshot import Snapshot

SAMPLE_ROWS = 4096
# Meta columns that a sample lacks: a sequence number a row, hardly compressible, and dictionary codes.
_META_BYTES = 12


def from_commits(snapshot: Snapshot, settings: WriteSettings) -> float | None:
    """Hudi's rule: the newest of the last commits whose files are big enough together to tell; else None."""
    if settings.record_size_estimate is not None:
        return float(settings.record_size_estimate)
    looked_at = [i for i in reversed(snapshot.commits) if i.action is not Action.REPLACECOMMIT]
    fallback: float | None = None
    for instant in looked_at[: settings.estimator_max_commits]:
        stats = [s for group in snapshot.timeline.commit_metadata(instant).stats.values() for s in group]
        rows = sum(s.num_writes for s in stats)
        size = sum(s.file_size - settings.estimator_metadata_bytes for s in stats)
        if rows and size > settings.estimator_threshold * settings.small_file_limit:
            return max(1.0, size / rows)
        if rows >= SAMPLE_ROWS and fallback is None:
            fallback = max(1.0, size / rows)
    return fallback


def from_sample(rows: pa.Table, settings: WriteSettings) -> float:
    """Mean bytes of a row, by encoding some of them."""
    if rows.num_rows == 0:
        return 1024.0
    sample = rows.slice(0, SAMPLE_ROWS)
    buffer = io.BytesIO()
    pq.write_table(sample, buffer, compression=settings.compression_codec, store_schema=False, write_statistics=False)
    footer = pq.read_metadata(pa.BufferReader(buffer.getvalue())).serialized_size
    return max(1.0, (buffer.tell() - footer) / sample.num_rows + _META_BYTES)

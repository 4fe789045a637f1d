"""How many bytes a row takes: from past commits, from an encoded sample of the rows at hand, from column types."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.config.settings import WriteSettings
from lakebed.model import Action, Instant, WriteStat
from lakebed.schema.logical_types import is_vector, vector_size
from lakebed.slices.snapshot import Snapshot

SAMPLE_ROWS = 4096
MAX_SAMPLE_BYTES = 16 << 20
"""Rows of a sample, and about their bytes: of rows with objects of some megabytes, a few are encoded."""
# Meta columns that a sample lacks: a sequence number a row, hardly compressible, and dictionary codes.
_META_BYTES = 12
# Commits that are looked at for the stored rows, and bytes of a row if none of them has them.
_COMMITS = 5
_UNKNOWN_ROW_BYTES = 100.0
# What is left of Arrow's width in zstd Parquet, roughly, and what is taken for texts and lists.
_COMPRESSION = 0.4
_TEXT_BYTES = 24
_LIST_ITEMS = 4


def from_commits(snapshot: Snapshot, settings: WriteSettings) -> float | None:
    """The size of future rows by Hudi's rule: that in the newest of the last commits whose files are big enough
    together; None if there is none."""
    if settings.record_size_estimate is not None:
        return float(settings.record_size_estimate)
    commits = [i for i in reversed(snapshot.commits) if i.action is not Action.REPLACECOMMIT]
    fallback: float | None = None
    for stats in _stats(snapshot, commits[: settings.max_estimator_commits]):
        rows = sum(s.num_writes for s in stats)
        size = sum(s.file_size - settings.estimator_metadata_bytes for s in stats)
        if rows and size > settings.estimator_threshold * settings.max_small_file_size:
            return max(1.0, size / rows)
        if rows >= SAMPLE_ROWS and fallback is None:
            fallback = max(1.0, size / rows)
    return fallback


def of_stored(snapshot: Snapshot) -> float:
    """The mean bytes of a row in the base files of the last commits, including all other data in them."""
    for stats in _stats(snapshot, list(reversed(snapshot.commits))[:_COMMITS]):
        rows = sum(s.num_writes for s in stats)
        if rows:
            return max(1.0, sum(s.file_size for s in stats) / rows)
    return _UNKNOWN_ROW_BYTES


def _stats(snapshot: Snapshot, commits: list[Instant]) -> Iterator[list[WriteStat]]:
    for instant in commits:
        stats = (s for group in snapshot.timeline.commit_metadata(instant).stats.values() for s in group)
        yield [s for s in stats if s.log_version is None]  # rows of log files are of another size


def from_sample(rows: pa.Table, settings: WriteSettings) -> float:
    """The mean bytes of a row, from encoding some of them."""
    if rows.num_rows == 0:
        return 1024.0
    sample = rows.slice(0, SAMPLE_ROWS)
    sample = sample.slice(0, max(1, MAX_SAMPLE_BYTES * sample.num_rows // max(MAX_SAMPLE_BYTES, sample.nbytes)))
    buffer = io.BytesIO()
    try:
        pq.write_table(
            sample, buffer, compression=settings.compression_codec or "zstd", store_schema=False, write_statistics=False
        )
    except pa.ArrowInvalid:  # a time beyond what files hold: the write itself names its column
        return from_types(sample.schema)
    footer = pq.read_metadata(pa.BufferReader(buffer.getvalue())).serialized_size
    return max(1.0, (buffer.tell() - footer) / sample.num_rows + _META_BYTES)


def from_types(schema: pa.Schema) -> float:
    """The approximate bytes of a row of these columns in a compressed base file, from the types alone."""
    return _COMPRESSION * sum(_width(f.type) for f in schema)


def _width(kind: pa.DataType) -> float:
    if pa.types.is_struct(kind):
        return sum(_width(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _LIST_ITEMS * (_width(kind.key_type) + _width(kind.item_type))
    if is_vector(kind):  # which does not compress
        return vector_size(kind) / _COMPRESSION
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _LIST_ITEMS * _width(kind.value_type)
    try:
        return max(1.0, kind.bit_width / 8)
    except ValueError:
        return _TEXT_BYTES

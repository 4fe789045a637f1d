"""The numbers of `src` at which the code takes another way, each with a value that small tables cross and one that they
do not cross. `other_numbers.py` has those that are no such bounds."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import random
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import lakebed
from lakebed.engine.local import LocalEngine
from support import other_environments

HUGE = 1 << 40
# Below "lakebed.": a low and a high value. Values that one table crosses only in part are low ones as well.
BOUNDS: dict[str, tuple[float, float]] = {
    "engine.local._ORDERED_BYTES": (0, HUGE),
    "engine.local._STREAMED_ROWS": (0, HUGE),
    "engine.local._TOGETHER": (1, HUGE),
    "storage.parallel._SMALL_FILE": (0, HUGE),
    "operations.checks._BATCH_ROWS": (1, 1 << 20),
    "read.batches._MAX_WAITING_BYTES": (1, HUGE),
    "read.blobs.MAX_REQUEST_BYTES": (1, HUGE),
    "read.blobs.MAX_REQUEST_RANGES": (1, HUGE),
    "read.blobs.MAX_WINDOW_BYTES": (1, HUGE),
    "read.blobs.MAX_WINDOW_ROWS": (1, HUGE),
    "read.blobs._FIRST_KEYS": (1, HUGE),
    "read.blobs._MAX_GAP": (0, HUGE),
    "read.blobs._MAX_KEYS": (1, HUGE),
    "read.blobs._MAX_SIZES": (1, HUGE),
    "read.commit_feed._BODIES": (1, HUGE),
    "metadata_kinds.layer_fold.MAX_LAYERS": (0, HUGE),
    "metadata_kinds.layer_fold.MAX_MOVED": (0, HUGE),
    "metadata_kinds.layer_fold.MIN_SHARE": (0, HUGE),
    "metadata_kinds.layer_records._BATCH_BYTES": (1, HUGE),
    "metadata_kinds.layer_records._BLOCKS_TOGETHER": (1, HUGE),
    "text_index.fold._BLOCKS_TOGETHER": (1, HUGE),
    "metadata_kinds.vector_index.MAX_BYTES": (1, HUGE),
    "metadata_kinds.vector_index._CODED_ROWS": (1, HUGE),
    "metadata_kinds.vector_index._RUN_BYTES": (1, HUGE),
    "metadata_kinds.text_index.MAX_BYTES": (1, HUGE),
    "metadata_kinds.text_store.BATCH_ROWS": (1, 1 << 20),
    "metadata_kinds.vector_rows._BATCH_BYTES": (1, HUGE),
    "read.index_search.MIN_ROWS": (0, HUGE),
    "read.index_search._RERANK": (1, HUGE),
    "read.index_search._WIDER": (2, 1 << 16),
    "read.search._BATCH_BYTES": (1, HUGE),
    "read.search._BLOCK_BYTES": (1, HUGE),
    "ingestion.messages.PART_BYTES": (1, HUGE),
    "publish.data_files.MAX_TEXT": (0, HUGE),
    "publish.delta.CHECKPOINT_EVERY": (1, HUGE),
    "publish.delta.MAX_DIGITS": (0, 38),
    "publish.delta.RETAINED_DAYS": (1, HUGE),
    "publish.foreign._LISTS_BYTES": (0, HUGE),
    "publish.fresh._TOGETHER": (1, HUGE),
    "publish.iceberg.MANIFEST_FILES": (1, HUGE),
    "publish.iceberg.MAX_SMALL_MANIFESTS": (0, HUGE),
    "publish.iceberg.TIDY_EVERY": (1, HUGE),
    "publish.iceberg.RETAINED_VERSIONS": (1, HUGE),
    "inputs.base.BATCH_ROWS": (3, 1 << 16),
    "inputs.base.TABLE_BYTES": (0, HUGE),
    "inputs.file_formats.TEXT_BYTES": (64, HUGE),
    "filters.ranges._MAX_ITEMS": (0, HUGE),
    "timeline.streams._MAX_STREAMS": (1, HUGE),
    # -- what log blocks, HFiles and base files are read and written by
    "format.avro.columns._MAX_ITEMS": (0, HUGE),
    "format.avro.cursors._MAX_ITEMS": (0, HUGE),
    "format.avro.reader._CHUNK_BYTES": (64, HUGE),
    "format.avro.reader._CHUNK_ROWS": (3, HUGE),
    "format.avro.reader._MIN_LANES": (1, HUGE),
    "format.avro.reader._LANES": (2, HUGE),
    "format.avro.reader._MAX_MARK": (6, 40),
    "format.avro.reader._MIN_ROWS": (2, HUGE),
    "format.avro.reader._MIN_MARK": (1, HUGE),
    "format.avro.reader._SPARE": (1, HUGE),
    "format.avro.writer._CHUNK_BYTES": (64, HUGE),
    "format.avro.writer._CHUNK_ROWS": (3, HUGE),
    "format.base_file._BATCH_BYTES": (100, HUGE),
    "format.base_file._PREFETCH_BYTES": (0, HUGE),
    "format.base_file._READ_BUFFER": (512, 1 << 20),
    "format.bloom._MAX_ROWS": (0, HUGE),
    "format.bloom._HASHES_TOGETHER": (1, 64),
    "format.column_ranges._LONG": (0, HUGE),
    "format.delete_block._RUN_BYTES": (32, HUGE),
    "format.delete_block._SHORT_RUN": (0, HUGE),
    "format.delete_block._WAIT": (0, HUGE),
    "format.file_contents._BATCH_ROWS": (2, 1 << 30),
    "format.hashes._CHUNK": (8, 1 << 16),  # tables of so many powers are made of it at the import
    "format.sources.AHEAD_BYTES": (1, HUGE),
    "format.sources.SMALL_FILE_BYTES": (64, HUGE),
    "format.hfile.blocks._IN_ONE_GO": (0, HUGE),
    "format.hfile.reader._END_BYTES": (4096, 4096 + 200),
    "format.hfile.reader._MAX_KEYS": (0, HUGE),
    "format.hfile.reader._POOL_FROM_BYTES": (0, HUGE),
    "format.hfile.reader._OPENINGS_BYTES": (0, HUGE),
    "format.hfile.reader._WAVE_BLOCKS": (1, HUGE),
    "format.hfile.reader._WAVE_BYTES": (0, HUGE),
    "format.hfile.reader._SMALL_FILE_BYTES": (4096 + 200, HUGE),
    "format.hfile.search._MAX_ITEMS": (1, HUGE),
    "format.hfile.search._WORTH_LEAVING_OUT": (1, HUGE),
    "format.hfile.entries._MAX_JOINED_BYTES": (0, HUGE),
    "format.hfile.entries._MAX_LENGTHS": (0, HUGE),
    "format.hfile.entries._LOOKED_AT": (1, HUGE),
    "format.hfile.search._MAX_COMPARED": (0, HUGE),
    "format.hfile.entries._SCAN_BYTES": (64, HUGE),
    "format.hfile.writer.BLOCK_BYTES": (100, 1 << 20),
    "format.hfile.writer._BATCH_BYTES": (100, HUGE),
    "format.footer_cache._MAX_BYTES": (0, HUGE),
    "format.hfile.entries._MAX_BYTES": (0, HUGE),
    "format.footer_cache._POSITIONS_BYTES": (0, HUGE),
    "format.parquet_footer._CHECKED_BYTES": (0, HUGE),
    "format.bloom._BLOCK_ROWS": (3, HUGE),
    "format.parquet_block._BATCH_ROWS": (3, 1 << 20),
    "format.parquet_encodings._CODED_ROWS": (1, HUGE),
    "format.parquet_encodings._LENGTH_BYTES": (1, HUGE),
    "format.parquet_encodings._LEVEL": (1, 19),
    "format.parquet_encodings._LZ4_SHARE": (0.0, 1.0),
    "format.parquet_encodings._MAX_DISTINCT_RATIO": (0.0, 1.0),
    "format.parquet_encodings._MAX_SHARED_PREFIX": (0.0, 1.0),
    "format.parquet_encodings._MEASURED_ROWS": (1, HUGE),
    "format.parquet_encodings._MEASURED_SLICE": (1, HUGE),
    "format.parquet_encodings._MIN_RANDOM_LENGTH": (1, HUGE),
    "format.parquet_encodings._MIN_SAVED": (0.0, 1.0),
    "format.parquet_encodings._SAMPLE_SLICES": (2, HUGE),
    "format.parquet_encodings._SLICE_ROWS": (3, HUGE),
    "format.parquet_footer._AT_FIRST": (12, HUGE),
    "format.parquet_writer.INDEXED_PAGES": (1, HUGE),
    "format.parquet_writer.PAGE_ROWS": (2, 1 << 20),
    "format.parquet_writer.ROW_GROUP_ROWS": (7, 1 << 17),
    "format.parquet_writer.SORTED_ROW_GROUP_ROWS": (7, 1 << 17),
    "format.parquet_writer._DICTIONARY_SHARE": (0, HUGE),
    "format.parquet_writer._RUN": (1, HUGE),
    "format.parquet_writer._RUNS_APART": (1, 64),
    "format.parquet_writer._SAMPLE_ROWS": (3, HUGE),
    "format.parquet_writer._WRITE_BATCH": (1, HUGE),
    "format.row_groups.chunks._HEAD_BYTES": (16, 1 << 20),
    "format.row_groups.chunks._MAX_ORDINALS": (1, 1 << 15),
    "format.row_addresses._MIN_SPARE_BITS": (0, 16),
    "format.row_addresses._MAX_BYTES": (0, HUGE),
    "format.row_addresses._MAX_COMPARED": (0, 1 << 16),
    "format.row_addresses._MAX_SHARE": (0.0, 1.0),
    "format.row_addresses._SPARE_BITS": (0, 16),
    "format.row_groups.assembled._ASSEMBLED_ROWS": (1, HUGE),
    "read.index_search._LOGGED_BYTES": (0, HUGE),
    "metadata.lookups._OPENED_TABLES": (0, HUGE),
    "metadata_kinds.vector_store._SMALL_LAYER": (0, HUGE),
    "format.row_groups.pages._INDEX_BYTES": (0, HUGE),
    "format.row_groups.pages._BYTES_A_VALUE": (0, HUGE),
    "format.row_groups.pages._READ_BYTES": (0, HUGE),
    "format.row_groups.plain_pages._MAX_BYTES": (0, HUGE),
    "format.row_groups.plain_pages.PLACED_BYTES": (0, HUGE),
    "format.row_groups.plain_pages.HEAD_BYTES": (1, 1 << 12),
    "format.row_groups.stored._MAX_INFLATED": (0, HUGE),
    "format.row_groups.stored._MAX_ROWS": (3, HUGE),
    "format.row_groups.stored._MAX_STORED": (0, HUGE),
    "format.row_groups.stored._READ_BYTES": (0, HUGE),
    # -- writing file groups
    "handles.append._SHARE": (1, 1 << 20),
    "handles.create.ALLOWANCE": (1.0, 4.0),
    "handles.bulk_writer._MEASURED_BYTES": (0, HUGE),
    "handles.bulk_writer._OPEN_BYTES": (0, HUGE),
    "handles.bulk_writer._SMALL_ROWS": (0, HUGE),
    "handles.change_log._BLOCK_BYTES": (0, HUGE),
    "handles.cluster._STEP_BYTES": (1, HUGE),
    "handles.cluster._STEP_ROWS": (3, HUGE),
    "handles.file_writer._AS_GOOD_AS_FULL": (1, HUGE),
    "handles.file_writer._PART": (1, HUGE),
    "handles.merge._MAX_BYTES": (0, HUGE),
    "handles.merge._PROBED": (1, HUGE),
    "handles.merge._STEP_BYTES": (0, HUGE),
    "handles.merge._STEP_ROWS": (0, HUGE),
    "handles.stored_rows._MAX_BYTES": (1, HUGE),
    "handles.stored_rows._MAX_ROWS": (4, HUGE),
    "handles.stored_rows._STEP_ROWS": (3, HUGE),
    "handles.compact._SHARE": (1, 1 << 20),
    "handles.log_writer._BUFFERED_BYTES": (0, HUGE),
    "handles.append._MAX_ROWS": (0, HUGE),
    "handles.stored_rows._ROOM_LEFT": (0.0, 1.0),
    "handles.stored_rows._SMALL": (1, HUGE),
    "handles.stored_rows._SMALL_ROWS": (0, HUGE),
    "handles.stored_rows._SMALL_SHARE": (1, HUGE),
    "handles.stored_rows._PROBED_ROWS": (3, 1 << 20),
    "handles.stored_rows._WORTH_COPYING": (0, HUGE),
    # -- where rows go
    "index.bloom.known_files._FOOTERS_HERE": (0, HUGE),
    "index.bloom.known_files._SLICES_A_TASK": (1, HUGE),
    "index.bloom.known_files._MAX_FILES": (0, HUGE),
    "index.bloom.known_files._MAX_PARTITIONS": (0, HUGE),
    "index.bloom.search.KEYS_HERE": (0, HUGE),
    "index.bloom.search._COMPARISONS_HERE": (0, HUGE),
    "index.bloom.search._FILES_HERE": (0, HUGE),
    "index.bloom.search._FILTERS_TOGETHER": (1, HUGE),
    "index.bloom.slice_search._BATCH_ROWS": (3, 1 << 20),
    "index.bloom.search._BATCH_ROWS": (3, HUGE),
    "index.bloom.search._MAX_LOCATIONS": (0, HUGE),
    "index.bloom.search._KEYS_TOGETHER": (7, HUGE),
    "index.bucket_counts.MAX_RULES": (0, HUGE),
    "index.consistent.index.MAX_RINGS": (0, HUGE),
    "index.consistent.ring._ROWS": (3, HUGE),
    "index.key_repetitions._MAX_KEYS": (0, HUGE),
    "index.key_repetitions._KEYS_HERE": (0, HUGE),
    "index.key_repetitions._LOG_BYTES_A_KEY": (1, HUGE),
    "index.key_repetitions._MAX_READ": (0, HUGE),
    "index.key_repetitions._MAX_SLICES": (0, HUGE),
    "index.record.IN_PROCESS_KEYS": (0, HUGE),
    "index.record._BATCH_ROWS": (3, HUGE),
    "index.record._MIN_GROUPS": (1, 16),
    "index.changed_locations._MAX_LOCATIONS": (0, HUGE),
    # -- which of two rows wins
    "merge.combine._MAX_ITEMS": (0, HUGE),
    "merge.incoming._BATCH_BYTES": (1, HUGE),
    "merge.incoming._BATCH_ROWS": (3, HUGE),
    "merge.key_table._MAX_OFFSET": (8, HUGE),
    "merge.key_table._MAX_ITEMS": (1, HUGE),
    "merge.key_table._MIN_SLOTS_LOG": (1, 12),
    "merge.key_table._MIN_KEYS": (1, HUGE),
    "merge.key_table._MAX_CROWDED": (1, HUGE),
    "merge.key_table._ROOM": (1, 64),
    "merge.key_table._SAMPLED": (2, HUGE),
    "merge.pairs._MAX_BYTES": (0, HUGE),
    "merge.pairs._PROBED_TEXTS": (1, HUGE),
    "merge.pairs._SPLICED": (0, HUGE),
    "merge.row_merge._PROBED_KEYS": (1, HUGE),
    # -- the metadata table
    "metadata_kinds.files._SIDE_BY_SIDE": (1, HUGE),
    "metadata_kinds.files._WORTH_KEEPING": (0, HUGE),
    "metadata_kinds.column_stats._READ_TOGETHER": (1, HUGE),
    "metadata_kinds.stats_values._TOGETHER": (1, HUGE),
    "metadata_kinds.record_index._COMBINATIONS": (0, HUGE),
    "metadata.lookups._DENSE": (0, HUGE),
    "metadata.lookups._DECODED_TOGETHER": (0, HUGE),
    "metadata.lookups._MAX_KEYS": (0, HUGE),
    "metadata.lookups._MAX_SLICES": (0, HUGE),
    "metadata.lookups._MAX_PARTITIONS": (0, HUGE),
    "metadata.lookups._CACHED_LISTINGS": (1, HUGE),
    "metadata.expected_files._CACHED_BYTES": (0, HUGE),
    "metadata_upkeep.services._BYTES_FOR_THREADS": (0, HUGE),
    "metadata_upkeep.services._GRACE_INSTANTS": (0, HUGE),
    "metadata_records.group_files._BASE_BLOCK_BYTES": (100, 1 << 20),
    "metadata_records.group_files._SMALL_BLOCK_BYTES": (100, 1 << 20),
    "metadata_records.group_files._LOG_BLOCK_BYTES": (1, HUGE),
    "metadata_records.group_files._READY_BYTES": (0, HUGE),
    "metadata_upkeep.resharding._PASS_BYTES": (1, HUGE),
    "metadata_upkeep.services._FIXED_BYTES": (0, HUGE),
    "metadata.slices._BASES_BYTES": (0, HUGE),
    "metadata.slices._CACHED_BYTES": (0, HUGE),
    "operations.assign.MAX_SMALL_FILES": (1, HUGE),
    "operations.group_commit.MAX_BYTES": (0, HUGE),
    "operations.group_commit.MAX_JOINED_BYTES": (0, HUGE),
    "operations.merge_join._MAX_PAIRS": (1, HUGE),
    "operations.merge_join._MAX_VALUES": (0, HUGE),
    "operations.uniqueness._KEYS_TOGETHER": (1, HUGE),
    "metadata_upkeep.build_jobs.LARGE_ROWS": (0, HUGE),
    "metadata_kinds.key_changes.INLINE_BYTES": (0, HUGE),
    "metadata_kinds.expression_results.LARGE_BYTES": (0, HUGE),
    "slices.recorded_slices.MAX_FILES": (0, HUGE),
    "slices.recorded_slices.MAX_RANGES": (0, HUGE),
    "slices.recorded_slices.MAX_SLICES": (0, HUGE),
    "slices.recorded_slices.MIN_COMMITS": (1, HUGE),
    "slices.repeated_keys.COUNTED_BYTES": (0, HUGE),
    "metadata_upkeep.maintain.CHECKED_KEYS": (0, HUGE),
    "metadata_upkeep.maintain.LARGE_KEYS": (0, HUGE),
    # -- reading
    "format.base_file.SMALL_BYTES": (0, HUGE),
    "read.batches._SMALL_LOGS": (0, HUGE),
    "read.batches._TOGETHER": (1, HUGE),
    "read.batches._WAITING": (1, 1 << 20),
    "read.bucket_join._OUT_ROWS": (3, HUGE),
    "read.cdc_rows._SOUGHT_KEYS": (0, HUGE),
    "read.cdc_rows._STEP_ROWS": (3, HUGE),
    "read.counts._MAX_PARTITIONS": (0, HUGE),
    "read.counts._NULLS": (1, HUGE),
    "operations.delete.MAX_LOOKED_UP": (0, HUGE),
    "read.lookup._MAX_FILES": (0, HUGE),
    "read.lookup._MAX_BY_STATISTICS": (0, HUGE),
    "read.keys.MAX_FOOTERS": (0, HUGE),
    "read.prune.MAX_ALTERNATIVES": (1, HUGE),
    "read.prune.MAX_KEYS": (1, HUGE),
    "read.row_traces.MAX_TEXT": (8, 1 << 20),
    "read.row_traces.MIN_TEXT": (8, HUGE),
    "read.row_traces._STRETCH_BYTES": (8, HUGE),
    "read.skip._MAX_KEYS": (0, HUGE),
    "read.skip._MAX_FILTERS": (1, HUGE),
    "read.skip._MAX_PARTITIONS": (0, HUGE),
    "read.skip._MAX_SLICES": (0, HUGE),
    "slices.changed_rows.MAX_KEYS": (0, HUGE),
    "slices.changed_rows._SEARCHED": (0, HUGE),
    "slices.changed_rows._TABLE_BYTES": (0, HUGE),
    "slices.placed_records._CACHED_BYTES": (0, HUGE),
    "slices.key_rows._MAX_KEYS": (2, HUGE),
    "slices.key_rows._LARGE_ROW_GROUP": (0, HUGE),
    "slices.key_rows._MAX_PAGES": (0, 2),
    "slices.key_rows._PICKED_ROWS": (0, HUGE),
    "slices.key_rows._TAKE_ROWS": (3, 1 << 20),
    "read.filtered_rows._MAX_ITEMS": (0, HUGE),
    "read.filtered_rows._FIRST_BYTES": (0, HUGE),
    "read.filtered_rows._MIN_ROWS": (0, HUGE),
    "read.filtered_rows._REMOTE_BYTES": (0, HUGE),
    "slices.log_rows._BATCH_BYTES": (1, HUGE),
    "slices.log_rows._BATCH_ROWS": (3, HUGE),
    "slices.logs._DECODED": (1, HUGE),
    "slices.logs._MAX_COLUMNS": (0, HUGE),
    "slices.logs._JOINED_BYTES": (0, HUGE),
    "slices.logs._SMALL_BYTES": (0, HUGE),
    "slices.logs._UNIT_BYTES": (0, HUGE),
    "slices.logs._RETAINED_SHARE": (1, HUGE),
    "slices.merged._MAX_ENTRIES": (0, HUGE),
    "slices.merged._STRETCH_BYTES": (1, HUGE),
    "slices.merged._STRETCH_ROWS": (3, HUGE),
    "slices.merged._DECODED_SHARE": (1, HUGE),
    "slices.log_rows._CACHED_BYTES": (0, HUGE),
    "slices.log_rows._SLICE_SHARE": (1, HUGE),
    "slices.reader.BATCH_ROWS": (3, 1 << 20),
    "slices.reader.MERGE_MEMORY": (1, HUGE),
    "slices.row_size.MAX_SAMPLE_BYTES": (1, HUGE),
    "slices.row_size.SAMPLE_ROWS": (3, HUGE),
    "slices.row_size._COMMITS": (0, HUGE),
    "slices.snapshot._CACHED_LISTINGS": (1, HUGE),
    "storage.local._GAP_BYTES": (0, HUGE),
    "storage.local._SECTOR_BYTES": (0, HUGE),
    "storage.local._WRITE_BUFFER_BYTES": (1, HUGE),
    "storage.streams.AHEAD_BLOCKS": (1, 64),
    # -- the timeline and its history
    "timeline.archive._ROWS_AT_A_TIME": (1, HUGE),
    "timeline.archive_writer._ENTRIES_A_BLOCK": (1, HUGE),
    "timeline.archive_writer._FILES_A_LEVEL": (2, HUGE),
    "timeline.archive_writer._GROUP_BYTES": (1, HUGE),
    "timeline.archive_writer._MERGED_BYTES": (1, HUGE),
    "timeline.archive_writer._RETAINED_MANIFESTS": (1, HUGE),
    "timeline.history._CACHED_BYTES": (0, HUGE),
    "timeline.plain_keys.LOOKS_BACK": (1, HUGE),
    "timeline.plain_keys.MAX_NAMES": (0, HUGE),
    "timeline.timeline._BODIES_BYTES": (0, HUGE),
    "timeline.timeline._SETTINGS_BYTES": (0, HUGE),
    "timeline.timeline._FILES_AN_ANSWER": (0, HUGE),
    "timeline.timeline._LISTED_BYTES": (0, HUGE),
    "services.upgrade_timeline._ROWS_A_FILE": (1, HUGE),
    "write_status._DECODED_ROWS": (1, HUGE),
}
# Where an engine that is distributed does the same in tasks; no rows of a DataFrame are there.
IN_TASKS = (
    "index.bloom.known_files",
    "index.bloom.search",
    "index.consistent.index",
    "index.record",
    "metadata_upkeep.build_jobs",
    "metadata_kinds.expression_results",
    "metadata_upkeep.maintain",
)
# What was made of a number at the import, and has it now.
MADE_OF = {
    "format.footer_cache._MAX_BYTES": "format.footer_cache.FOOTERS._max_bytes",
    "format.hfile.entries._MAX_BYTES": "format.hfile.entries.BLOCKS._max_bytes",
    "format.footer_cache._POSITIONS_BYTES": "format.footer_cache.POSITIONS._max_bytes",
    "format.parquet_footer._CHECKED_BYTES": "format.parquet_footer._CHECKED._max_bytes",
    "format.row_groups.pages._INDEX_BYTES": "format.row_groups.pages.INDEXES._max_bytes",
    "read.index_search._LOGGED_BYTES": "read.index_search._LOGGED._max_bytes",
    "metadata.lookups._OPENED_TABLES": "metadata.lookups._OPENED._max_bytes",
    "metadata.expected_files._CACHED_BYTES": "metadata.expected_files._WRITTEN._max_bytes",
    "format.hfile.reader._OPENINGS_BYTES": "format.hfile.reader.OPENINGS._max_bytes",
    "metadata.slices._BASES_BYTES": "metadata.slices._BASES._max_bytes",
    "metadata.slices._CACHED_BYTES": "metadata.slices.HFILES._cache._max_bytes",
    "slices.changed_rows._TABLE_BYTES": "slices.changed_rows.KEY_TABLES._max_bytes",
    "slices.placed_records._CACHED_BYTES": "slices.placed_records.PLACED._max_bytes",
    "slices.log_rows._CACHED_BYTES": "slices.log_rows.REPLACEMENTS._max_bytes",
    "timeline.history._CACHED_BYTES": "timeline.history._CLEANS._max_bytes",
    "timeline.timeline._BODIES_BYTES": "timeline.timeline._BODIES._max_bytes",
    "publish.foreign._LISTS_BYTES": "publish.foreign._NEWEST._max_bytes",
    "timeline.timeline._LISTED_BYTES": "timeline.timeline._LISTED._max_bytes",
    "timeline.timeline._SETTINGS_BYTES": "timeline.timeline._SETTINGS._max_bytes",
}
# Settings of a table at which its writes and reads take another way.
OPTIONS: dict[str, tuple[int, int]] = {
    "hoodie.parquet.small.file.limit": (0, HUGE),
    "hoodie.parquet.max.file.size": (2_000, HUGE),
    "hoodie.copyonwrite.insert.split.size": (7, 500_000),
    "hoodie.logfile.max.size": (1, 1 << 30),
    "hoodie.logfile.data.block.max.size": (1, 1 << 28),
    "hoodie.merge.small.file.group.candidates.limit": (0, 10),
    "hoodie.index.bloom.num_entries": (1, 1_000),
    "hoodie.bloom.index.filter.dynamic.max.entries": (2, 100_000),
    "hoodie.bloom.index.keys.per.bucket": (2, 10_000_000),
    "hoodie.metadata.compact.max.delta.commits": (1, 100),
    "hoodie.metadata.global.record.level.index.min.filegroup.count": (1, 4),
    "hoodie.metadata.record.level.index.min.filegroup.count": (1, 4),
    "hoodie.metadata.record.index.growth.factor": (1, 4),
    "lakebed.compact.log.files": (1, 40),
    "lakebed.compact.log.percent": (1, 10),
    "lakebed.index.bucket.advised.bytes": (2_500, HUGE),
    "lakebed.metadata.index.max.filegroup.size": (20_000, HUGE),
    "lakebed.write.memory": (4_000, 1 << 30),
}


def every_bound() -> list[str]:
    return [*BOUNDS, *OPTIONS]


def drawn(dice: random.Random) -> dict[str, float]:
    """A value of each bound, low or high."""
    return {name: dice.choice(values) for name, values in {**BOUNDS, **OPTIONS}.items()}


def others(values: Mapping[str, float]) -> dict[str, float]:
    """Of each bound the other value."""
    both = {**BOUNDS, **OPTIONS}
    return {name: both[name][value == both[name][0]] for name, value in values.items()}


@cache
def modules() -> dict[str, tuple[ModuleType, str]]:
    """Every module with its source, imported before anything is patched: a later import would copy a patched number."""
    names = [
        found.name
        for found in pkgutil.walk_packages(lakebed.__path__, "lakebed.")
        if "__main__" not in found.name and found.name not in other_environments.MODULES
    ]
    found = [importlib.import_module(name) for name in names]
    return {m.__name__: (m, Path(m.__file__ or "").read_text(encoding="utf-8")) for m in found}


@cache
def targets(name: str) -> tuple[tuple[Any, str], ...]:
    """Where a number of `BOUNDS` is held: in its module and in those that import it, and in what was made of it."""
    module_name, constant = f"lakebed.{name}".rsplit(".", 1)
    found: list[tuple[Any, str]] = [(modules()[module_name][0], constant)]
    for module, source in modules().values():
        if not constant.startswith("_") and f"from {module_name} import" in source and hasattr(module, constant):
            found.append((module, constant))
    if name in MADE_OF:
        owner, attribute = f"lakebed.{MADE_OF[name]}".rsplit(".", 1)
        found.append((_resolved(owner), attribute))
    return tuple(found)


def _resolved(path: str) -> Any:
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        entry = modules().get(".".join(parts[:length]))
        if entry is not None:
            found: Any = entry[0]
            for part in parts[length:]:
                found = getattr(found, part)
            return found
    raise LookupError(path)


@cache
def default_parameters(name: str) -> tuple[tuple[FunctionType, str], ...]:
    """The parameters that have a number of `BOUNDS` as default."""
    found: list[tuple[FunctionType, str]] = []
    for module, constant in targets(name):
        if isinstance(module, ModuleType):
            found += _defaults_in(module, constant)
    return tuple(found)


def _defaults_in(module: ModuleType, constant: str) -> Iterator[tuple[FunctionType, str]]:
    source = modules()[module.__name__][1]
    if f"= {constant}" not in source.replace(f"\n{constant} = ", "\n"):
        return
    tree = ast.parse(source)
    scopes: list[tuple[Any, ast.AST]] = [(module, tree)]
    scopes += [(getattr(module, n.name), n) for n in tree.body if isinstance(n, ast.ClassDef)]
    for owner, scope in scopes:
        for node in getattr(scope, "body", ()):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args
                plain = [*arguments.posonlyargs, *arguments.args][-len(arguments.defaults) or None :]
                pairs = [
                    *zip(plain, arguments.defaults, strict=False),
                    *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
                ]
                for argument, default in pairs:
                    if isinstance(default, ast.Name) and default.id == constant:
                        yield _function(inspect.getattr_static(owner, node.name)), argument.arg
            elif inspect.isclass(owner) and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                default = node.value
                if isinstance(default, ast.Name) and default.id == constant:
                    yield owner.__init__, node.target.id


def _function(found: Any) -> FunctionType:
    return getattr(found, "__func__", getattr(found, "__wrapped__", found))


def patch(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    """Give a number of `BOUNDS` another value wherever it is held."""
    for owner, attribute in targets(name):
        monkeypatch.setattr(owner, attribute, value)
    for function, parameter in default_parameters(name):
        parameters = list(inspect.signature(function).parameters.values())
        if parameter in (function.__kwdefaults__ or {}):
            monkeypatch.setitem(function.__kwdefaults__, parameter, value)
        else:
            named = [p.name for p in parameters if p.default is not p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
            defaults = list(function.__defaults__ or ())
            defaults[named.index(parameter)] = value
            monkeypatch.setattr(function, "__defaults__", tuple(defaults))


def use_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine of this process be asked as a distributed one where that decides between a process and tasks."""
    names = {f"lakebed.{name}" for name in IN_TASKS}
    asked = property(lambda _: sys._getframe(1).f_globals["__name__"] in names)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(LocalEngine, "is_distributed", asked)

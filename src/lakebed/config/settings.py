"""What the paths are told, as frozen dataclasses with lakebed's defaults; no option keys, no text to parse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 1 << 20

SortMode = Literal["NONE", "GLOBAL_SORT", "PARTITION_SORT"]
DupPolicy = Literal["none", "drop", "fail"]
MissingColumns = Literal["error", "null", "drop"]
QueryType = Literal["snapshot", "read_optimized", "incremental"]


def _no_text() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How one write is done. Sizes are in bytes, times in seconds.

    `record_size_estimate` None means: from past commits, or from an encoded sample on a table without history.
    `bloom_filter` None means: a one-byte filter that holds every key, so that other writers' bloom lookups
    stay right at no cost; True writes a real one. `tasks` None leaves the number of write tasks to the
    engine. `compression_level` is for zstd. `metadata` False makes no metadata table, True also one for a table that
    has commits already; one that is there is kept in any case. `metadata_indexes` are partitions of it to build, as are
    those that `record_index`, `partitioned_record_index` and `bloom_filters_index` ask for. `max_filegroup_size` is the
    mean size of the file groups of a record or secondary index beyond which they are doubled, 0 for never; how many a
    new one gets the `index_` and `partitioned_` settings say. `column_stats` None means: from version 9 on.
    The `metadata_` numbers are delta commits and log blocks after which its own services run.
    """

    small_file_limit: int = 100 * MIB
    max_file_size: int = 120 * MIB
    record_size_estimate: int | None = None
    estimator_max_commits: int = 5
    estimator_threshold: float = 1.0
    estimator_metadata_bytes: int = 0
    insert_auto_split: bool = True
    insert_split_size: int = 500_000
    compression_codec: str = "zstd"
    compression_level: int = 1
    bloom_filter: bool | None = None
    bloom_entries: int = 60_000
    bloom_fpp: float = 1e-9
    bloom_type: Literal["SIMPLE", "DYNAMIC_V0"] = "DYNAMIC_V0"
    bloom_max_entries: int = 100_000
    combine_before_insert: bool = False
    allow_duplicate_on_inserts: bool = True
    drop_duplicates: bool = False
    dup_policy: DupPolicy = "none"
    sort_mode: SortMode = "NONE"
    missing_columns: MissingColumns = "error"
    memory: int = 512 * MIB
    tasks: int | None = None
    extra_metadata: Mapping[str, str] = field(default_factory=_no_text)
    partitions_to_delete: tuple[str, ...] = ()
    overwrite_partitions: tuple[str, ...] = ()
    lock_wait_seconds: float = 60.0
    heartbeat_interval_seconds: float = 60.0
    metadata: bool | None = None
    metadata_indexes: tuple[str, ...] = ()
    record_index: bool = False
    partitioned_record_index: bool = False
    bloom_filters_index: bool = False
    stats_columns: tuple[str, ...] = ()
    stats_most_columns: int = 32
    column_stats: bool | None = None
    index_groups_least: int = 10
    index_groups_most: int = 10_000
    index_growth: float = 2.0
    index_group_bytes: int = 1024 * MIB
    partitioned_groups_least: int = 1
    partitioned_groups_most: int = 10
    max_filegroup_size: int = 512 * MIB
    metadata_compact_after: int = 10
    metadata_log_compaction: bool = False
    metadata_log_compact_after: int = 5
    on_unknown_metadata: Literal["drop", "refuse"] = "drop"


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What a read job's options say: which query, and between which instants, None where nothing was said; whether
    files come from the metadata table, whether filters prune files by it, and whether scans check the checksums of
    pages, where a base file has some."""

    query_type: QueryType = "snapshot"
    as_of: str | None = None
    begin: str | None = None
    end: str | None = None
    use_metadata: bool = True
    data_skipping: bool = True
    page_checksums: bool = True


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How Spark is used. `worker_tuning`: whether Spark's Python workers are made faster for the tasks to come."""

    worker_tuning: bool = True


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The index a job names, None where it names nothing: a type (`bucket`, `simple`, ...) and its settings; and what
    "auto" is told to expect of a new table."""

    type: str | None = None
    buckets: int | None = None
    fields: tuple[str, ...] | None = None
    update_partition: bool | None = None
    expected_rows: int | None = None
    expected_partitions: int | None = None
    expected_batch: int | None = None
    unique_keys: bool = False
    growing_keys: bool = False


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What a job says about the table itself; None where it says nothing.

    `type` is `cow` or `mor`, `merge_mode` `event_time` or `commit_time`, `key_generator` one of SIMPLE,
    COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM. `partition_types` goes with CUSTOM, one of SIMPLE and TIMESTAMP
    for each partition field. `timestamp` holds `hoodie.keygen.timebased.*` keys as they are stored. `sort` is `key`
    where the rows of each base file are to be in the order of their keys, else `none`.
    """

    name: str | None = None
    database: str | None = None
    type: Literal["cow", "mor"] | None = None
    version: int | None = None
    key_fields: tuple[str, ...] | None = None
    partition_fields: tuple[str, ...] | None = None
    partition_types: tuple[str, ...] | None = None
    ordering_fields: tuple[str, ...] | None = None
    key_generator: str | None = None
    merge_mode: Literal["event_time", "commit_time"] | None = None
    payload: str | None = None
    hive_style: bool | None = None
    url_encode: bool | None = None
    slash_dates: bool | None = None
    drop_partition_columns: bool | None = None
    populate_meta_fields: bool | None = None
    consistent_logical_timestamp: bool | None = None
    timezone: Literal["LOCAL", "UTC"] | None = None
    delete_field: str | None = None
    delete_marker: str | None = None
    timestamp: Mapping[str, str] = field(default_factory=_no_text)
    sort: Literal["key", "none"] | None = None

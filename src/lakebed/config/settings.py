"""The settings of all paths, as frozen dataclasses with lakebed's defaults; no option keys, no text to parse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MIB = 1 << 20

SortMode = Literal["NONE", "GLOBAL_SORT", "PARTITION_SORT"]
ClusteringUpdates = Literal[
    "SparkRejectUpdateStrategy", "SparkAllowUpdateStrategy", "SparkConsistentBucketDuplicateUpdateStrategy"
]
DupPolicy = Literal["none", "drop", "fail"]
MissingColumns = Literal["error", "null", "drop"]
Evolution = Literal["add", "widen", "strict"]
NullOrdering = Literal["refuse", "lowest"]
SmallFiles = Literal["fill", "deferred"]
CountDuplicates = Literal["auto", "true", "false"]
QueryType = Literal["snapshot", "read_optimized", "incremental"]


def _no_text() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class LockSettings:
    """The lock service that the table's writers share, in addition to the lock file of the table: `provider` is the
    class of real Hudi without its package, empty for none."""

    provider: str = ""
    zookeeper_url: str = ""
    zookeeper_port: int | None = None
    zookeeper_base_path: str = ""
    zookeeper_lock_key: str = ""
    zookeeper_session_seconds: float = 60.0
    zookeeper_connection_seconds: float = 15.0
    dynamodb_table: str = ""
    dynamodb_partition_key: str = ""
    dynamodb_region: str = ""
    dynamodb_endpoint: str = ""
    dynamodb_billing: str = "PAY_PER_REQUEST"
    hive_uris: str = ""
    hive_database: str = ""
    hive_table: str = ""


@dataclass(frozen=True, slots=True)
class CallbackSettings:
    """The message that a write sends after its commit, if `on`: by the `kind`, the class of real Hudi without its
    package, to the URL of an HTTP server or to a Kafka topic. `http_headers` are texts `name:value` separated by
    semicolons."""

    on: bool = False
    kind: str = "HoodieWriteCommitHttpCallback"
    http_url: str = field(default="", repr=False)
    http_seconds: float = 30.0
    http_api_key: str = field(default="hudi_write_commit_http_callback", repr=False)
    http_headers: str = field(default="", repr=False)
    kafka_bootstrap: str = ""
    kafka_topic: str = ""
    kafka_partition: int | None = None
    kafka_acks: str = "all"
    kafka_retries: int = 3


@dataclass(frozen=True, slots=True)
class ValidationSettings:
    """The validators that decide whether a write is committed, by their class names, and the queries of each kind."""

    validators: tuple[str, ...] = ()
    equality_queries: str = ""
    inequality_queries: str = ""
    single_value_queries: str = ""
    # WARN_LOG: a query that does not hold is only warned of
    failure_policy: Literal["FAIL", "WARN_LOG"] = "FAIL"


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """The settings of one write. Sizes are in bytes, times in seconds."""

    # Files: how large they become, and how they are encoded.
    # base files below it take inserts
    max_small_file_size: int = 100 * MIB
    # a base file is closed at about this size
    max_file_size: int = 120 * MIB
    # bytes of a row; None: from past commits, or from an encoded sample on a table without history
    record_size_estimate: int | None = None
    # past commits that this estimate looks at
    max_estimator_commits: int = 5
    # only commits of more bytes than so many times `max_small_file_size` count
    estimator_threshold: float = 1.0
    # bytes of a file that are no rows
    estimator_metadata_bytes: int = 0
    # whether inserts are split by the estimate; else by `insert_split_size`
    insert_auto_split: bool = True
    # rows of a new file, without an estimate
    insert_split_size: int = 500_000
    # the codec of Parquet files; empty: each column has the codec that fits its values
    compression_codec: str = ""
    # the codec of texts, where no codec of files is given
    text_codec: Literal["lz4_raw", "zstd"] = "lz4_raw"
    # the level of zstd
    compression_level: int = 1
    # None: a filter of one byte that holds every key, so that other writers' lookups stay right at no cost;
    # True: a real one
    bloom_filter: bool | None = None
    # keys that a filter is made for
    bloom_entries: int = 60_000
    # the filter's rate of false positives
    bloom_fpp: float = 1e-9
    # whether the filter grows with the file (DYNAMIC_V0)
    bloom_type: Literal["SIMPLE", "DYNAMIC_V0"] = "DYNAMIC_V0"
    # the keys up to which it grows
    max_bloom_entries: int = 100_000

    # Rows: what becomes of those that come.
    # whether an insert merges rows of one key
    combine_before_insert: bool = False
    # whether an insert may store a key again
    allow_duplicate_on_inserts: bool = True
    # whether an insert leaves out rows of stored keys
    drop_duplicates: bool = False
    # whether an insert counts rows of stored keys; auto: where that costs little
    count_duplicates: CountDuplicates = "auto"
    # what an insert does with rows of stored keys
    dup_policy: DupPolicy = "none"
    # the order of a bulk insert
    sort_mode: SortMode = "NONE"
    # what becomes of columns that the data lacks
    missing_columns: MissingColumns = "error"
    # how columns change with the data: new ones are added (add), types become wider, too (widen), or neither
    # (strict)
    evolution: Evolution = "add"
    # whether a null in an ordering field is refused, or smaller than every value
    null_ordering: NullOrdering = "refuse"
    # whether columns that the rows of an upsert lack keep what is stored in them
    partial: bool = False
    # whether rows of an upsert that change nothing are not written
    skip_unchanged: bool = False
    # whether small upserts that wait for one another in one process become one commit
    group_commit: bool = True

    # Merge-on-read tables.
    # so many small files a partition path are rewritten for inserts
    max_filled_files: int = 1
    # a log file is closed at this size
    log_file_bytes: int = 1024 * MIB
    # a block of a log file is closed at this size
    log_block_bytes: int = 256 * MIB
    # None: the table's, else Avro
    log_block_format: Literal["avro", "parquet"] | None = None
    # whether blocks have the row numbers of the base file, where the index has seen those
    record_positions: bool = True
    # whether deletes by key have the ordering values of the rows that they delete
    delete_lookup: bool = True

    # How base files are rewritten.
    # whether row groups that no row changes are copied as they are stored
    copy_row_groups: bool = True
    # whether base files have a fingerprint of each record key, so that lookups read no key column
    row_addresses: bool = False
    # what an update does to a file group whose clustering is pending
    clustering_updates: ClusteringUpdates = "SparkRejectUpdateStrategy"

    # Other writers.
    # non_blocking: writers of a merge-on-read bucket table all commit; else of two that touch a file group
    # one does
    concurrency: Literal["single", "optimistic", "non_blocking"] = "single"
    # whether a write gives up before it writes a file group that another one is at
    early_conflicts: bool = False
    # whether a write gives up before it writes at all where others have committed to one of its file groups
    early_commit_check: bool = False

    # Columns and keys.
    # whether files get the column `_hoodie_operation`, which they get anyway where the newest files have it
    operation_field: bool = False
    # the form of a complex key of one field (`1`, not `id:1`) in a table without rows
    plain_key: bool | None = None
    # unless this is off, a table with such keys is not upgraded
    check_key_form: bool = True

    # How a write runs.
    # bytes of incoming rows that a task holds before it spills
    memory: int = 512 * MIB
    # a write that brings a bucket beyond so many bytes warns of it; None: lakebed's own bound
    bucket_bytes: int | None = None
    # whether a write splits buckets of more than `bucket_bytes`
    grow_buckets: bool = False
    # deferred: new rows of a merge-on-read table fill no small file
    small_files: SmallFiles = "fill"
    # None leaves the number of write tasks to the engine
    tasks: int | None = None

    # What a commit has, and what it replaces.
    # the metadata of the commit that the job gives
    extra_metadata: Mapping[str, str] = field(default_factory=_no_text)
    # keys of it that are taken over from the last commit
    rolling_metadata_keys: tuple[str, ...] = ()
    # partition paths that a delete of partitions removes
    partitions_to_delete: tuple[str, ...] = ()
    # partition paths that an overwrite replaces, besides those of its rows
    overwrite_partitions: tuple[str, ...] = ()

    # what must hold before the commit
    validation: ValidationSettings = field(default_factory=ValidationSettings)

    # Locks.
    # how long a write waits for the table lock
    lock_wait_seconds: float = 60.0
    # the lock service that the table's writers share
    lock: LockSettings = field(default_factory=LockSettings)
    # how often a writer shows that it lives
    heartbeat_interval_seconds: float = 60.0

    # The metadata table.
    # False: none is made; True: also for a table that has commits already; one that is there is kept in any
    # case
    metadata: bool | None = None
    # partitions of it to build, besides those of the next three settings
    metadata_indexes: tuple[str, ...] = ()
    # whether a record index is built
    record_index: bool = False
    # whether a record index of each partition path is built
    partitioned_record_index: bool = False
    # whether the bloom filters of files are indexed
    bloom_filters_index: bool = False
    # columns whose ranges are indexed; none: the first ones
    stats_columns: tuple[str, ...] = ()
    # columns with ranges at most, where none are named
    max_stats_columns: int = 32
    # whether the ranges of columns are indexed; None: from version 9 on
    column_stats: bool | None = None
    # file groups that a new record index gets, at least
    min_index_groups: int = 10
    # file groups that a new record index gets, at most
    max_index_groups: int = 10_000
    # how much a new index may grow before its file groups are as large as they should be
    index_growth: float = 2.0
    # bytes of each file group of a new record index
    index_group_bytes: int = 1024 * MIB
    # file groups of a partition path of a partitioned index, at least
    min_partitioned_groups: int = 1
    # file groups of a partition path of a partitioned index, at most
    max_partitioned_groups: int = 10
    # mean bytes beyond which the file groups of a record or secondary index are doubled; 0: never
    max_filegroup_size: int = 512 * MIB
    # delta commits after which it is compacted
    metadata_compact_after: int = 10
    # whether its log blocks are compacted into one
    metadata_log_compaction: bool = False
    # log blocks after which they are compacted
    metadata_log_compact_after: int = 5
    # what becomes of partitions that lakebed does not know
    on_unknown_metadata: Literal["drop", "refuse"] = "drop"


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """A read job's options: the query and its instants, None if not set; whether files come from the metadata table,
    whether filters prune files by it, whether scans check the checksums of pages, whether an incremental read merges
    only what was written in its range, and whether it returns rows in their latest state, or their changes.
    `worker_tuning` is whether tasks of reads and writes tune the Python workers of Spark that they run in."""

    query_type: QueryType = "snapshot"
    as_of: str | None = None
    begin: str | None = None
    end: str | None = None
    use_metadata: bool = True
    data_skipping: bool = True
    page_checksums: bool = True
    filter_before_merge: bool = False
    incremental_format: Literal["latest_state", "cdc"] = "latest_state"
    worker_tuning: bool = True


CompactionDue = Literal["trigger", "logs"]
# An upsert of 10 rows into a million takes 0.031 CPU seconds in one process, and the compaction of the table 0.85
# (docs/benchmarks.md). One compaction in 41 upserts brings the mean to 0.052, one in 5 to 0.2.
SLICE_LOG_FILES = 40


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """The settings of compaction. `inline` is None if neither the job nor the table sets it; `schedule_inline` only
    makes the plan; without `services` writes do neither. By `due` a compaction is due by Hudi's trigger, or each file
    slice by its logs: `slice_log_percent`, `slice_log_files` and `slice_log_seconds` are the bounds of these.
    `trigger`, `delta_commits` and `delta_seconds` are Hudi's. `strategy` and the fields after it decide which file
    slices a compaction merges, by the names of `policies.compaction`. With `incremental` only partition paths that were
    written since the last compaction are examined. The settings that begin with `log_` are for log compaction."""

    services: bool = True
    inline: bool | None = None
    schedule_inline: bool = False
    due: CompactionDue = "trigger"
    slice_log_percent: int = 10
    slice_log_files: int = SLICE_LOG_FILES
    slice_log_seconds: int = 86_400
    trigger: str = "NUM_COMMITS"
    delta_commits: int = 5
    delta_seconds: int = 3600
    strategy: str = "LogFileSizeBasedCompactionStrategy"
    min_log_bytes: int = 0
    min_log_files: int = 0
    target_megabytes: int = 512_000
    days: int = 10
    partition_regex: str = ""
    incremental: bool = True
    log_compaction: bool = False
    log_compaction_inline: bool = False
    log_blocks: int = 5


@dataclass(frozen=True, slots=True)
class CleaningSettings:
    """The settings of cleaning. With `automatic` a write cleans once there are `trigger_commits` since the last clean.
    The `policy` decides which files stay, by its name in Hudi: the files of the last `commits`, of the commits of the
    last `hours`, or of the last `versions` of each file group. With `incremental` only partition paths that changed
    since the last clean are examined, otherwise all paths, or the paths that `partitions` or `partition_regex` name.
    One clean covers at most `max_commits`."""

    automatic: bool = True
    policy: str = "KEEP_LATEST_COMMITS"
    commits: int = 10
    hours: int = 24
    versions: int = 3
    trigger_commits: int = 1
    incremental: bool = True
    max_commits: int = (1 << 63) - 1
    partitions: tuple[str, ...] = ()
    partition_regex: str = ""

    @property
    def due_over(self) -> int:
        """The number of completed commits up to which no clean is due; 0 where commits alone do not decide it."""
        by_commits = self.policy == "KEEP_LATEST_COMMITS" and not (self.partitions or self.partition_regex)
        return self.commits if by_commits else 0


@dataclass(frozen=True, slots=True)
class ArchivalSettings:
    """The settings of archival. With `automatic` a write that finds more than `above` commits on the active timeline
    archives the oldest, and `down_to` stay."""

    automatic: bool = True
    above: int = 30
    down_to: int = 20


@dataclass(frozen=True, slots=True)
class ClusteringSettings:
    """The settings of clustering. `inline` clusters within a write, after `commits`; `schedule_inline` only makes the
    plan, after `planned_commits`; `by_services` leaves both to a process that runs services, after the same numbers of
    commits. `plan_strategy` to `last_partition` select the partition paths, `max_small_file_size` to `singles`
    configure how their file slices are grouped, by the names of `policies.clustering`; `sort_columns` and `layout`
    determine the order in which the rows are written. Under consistent hashing buckets of more than `split_threshold`
    times the maximum file size are split and buckets of less than `join_threshold` times that size are joined, from
    `min_buckets` to `max_buckets` in a partition path (0: the number at first)."""

    inline: bool = False
    schedule_inline: bool = False
    commits: int = 4
    planned_commits: int = 4
    plan_strategy: str = "SparkSizeBasedClusteringPlanStrategy"
    partitions: tuple[str, ...] = ()
    partition_regex: str = ""
    partition_filter: Literal["NONE", "RECENT_DAYS", "SELECTED_PARTITIONS", "DAY_ROLLING"] = "NONE"
    recent_days: int = 2
    skipped_days: int = 0
    first_partition: str = ""
    last_partition: str = ""
    max_small_file_size: int = 300 << 20
    group_bytes: int = 2 << 30
    file_bytes: int = 1 << 30
    max_groups: int = 30
    slice_order: Literal["SIZE", "INSTANT_TIME"] = "SIZE"
    singles: bool = True
    sort_columns: tuple[str, ...] = ()
    layout: Literal["LINEAR", "ZORDER", "HILBERT"] = "LINEAR"
    split_threshold: float = 2.0
    join_threshold: float = 0.2
    max_buckets: int = 0
    min_buckets: int = 0
    by_services: bool = False

    @property
    def due_after(self) -> int:
        """The number of commits after the last clustering at which the next one is due."""
        is_planned_only = self.schedule_inline or (self.by_services and not self.inline)
        return self.planned_commits if is_planned_only else self.commits


@dataclass(frozen=True, slots=True)
class PartitionTtlSettings:
    """The settings of the expiry of partition paths. With `inline` a write deletes expired paths. A path expires after
    `days`, never if that is 0 or less, counted by the `strategy`, by its name in Hudi: from its newest file slice on,
    or from its creation. Only the paths in `partitions` are examined, if they are named, and at most `max_paths` are
    deleted at once."""

    inline: bool = False
    strategy: Literal["KEEP_BY_TIME", "KEEP_BY_CREATION_TIME"] = "KEEP_BY_TIME"
    days: int = -1
    max_paths: int = 1000
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileSizingSettings:
    """The number of small files in a partition path from which on a process that runs services joins them; 0:
    never."""

    files: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The seconds for which cleaning and archival retain the commits that a named consumer has not read."""

    max_lag: int = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """The formats (`iceberg`, `delta`) as which the table is published after each commit; whether its Iceberg list and
    its Delta log show the rows of log files (None: as they do), and what the Iceberg list masks rows with."""

    formats: tuple[str, ...] = ()
    fresh: bool | None = None
    fresh_delta: bool | None = None
    masks: Literal["positions", "vectors"] = "positions"

    def is_fresh(self, form: str) -> bool | None:
        """Whether the list of a format shows the rows of log files; None: as it does."""
        return self.fresh_delta if form == "delta" else self.fresh


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """In which catalogs the table is registered after each commit: the entries `targets`, by their URIs, and what
    Hudi's own options ask for (`hive`, `meta`). The rest is how entries are written, by the
    names of Hudi's options. `batch` partitions go into one request, which takes at most `seconds`."""

    targets: tuple[str, ...] = ()
    hive: bool = False
    meta: bool = False
    sync: Literal["refuse", "ignore"] = "refuse"
    tools: tuple[str, ...] = ("HiveSyncTool",)
    uris: str = "thrift://localhost:9083"
    database: str = "default"
    table: str = ""
    create_database: bool = True
    batch: int = 1000
    seconds: int = 15
    omit_meta: bool = False
    extractor: str = ""
    partition_fields: tuple[str, ...] = ()
    part_length: int = 4000
    serde_properties: str = ""
    table_properties: str = ""
    skip_ro_suffix: bool = False
    timestamps: bool = False
    for_spark: bool = True
    comments: bool = False
    strategy: Literal["ALL", "RO", "RT"] = "ALL"
    plain_name: bool = True
    incremental: bool = True
    no_partitions: bool = False
    when_changed: bool = False
    spark_version: str = ""
    glue_region: str = ""
    glue_endpoint: str = ""
    glue_database: str = ""
    glue_table: str = ""
    skip_archive: bool = True


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """The number of times that a write that lost against a concurrent one is run again."""

    on_conflict: int = 0


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The use of Spark. `local_rows`: DataFrames known to have no more rows are written without a job; None for
    lakebed's own limit."""

    local_rows: int | None = None


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The index that a job names, with None for each setting that it does not name: a type (`bucket`, `simple`, ...)
    and its settings; the expectations of a new table for "auto"; and the lookup of a bloom index: `prune_by_ranges`
    False ignores key ranges, `use_metadata` None asks the metadata table if that is cheaper than footers, and a task
    gets at most `keys_per_bucket` keys of a file. `hbase` has the named settings of an HBase index, by the field of its
    `HBaseTable`, and `java_class`, real Hudi's class without the package."""

    type: str | None = None
    buckets: int | None = None
    fields: tuple[str, ...] | None = None
    update_partition: bool | None = None
    partition_buckets: str | None = None
    expected_rows: int | None = None
    expected_partitions: int | None = None
    expected_batch: int | None = None
    unique_keys: bool = False
    growing_keys: bool = False
    prune_by_ranges: bool = True
    use_metadata: bool | None = None
    keys_per_bucket: int | None = None
    hbase: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class TableSettings:
    """A job's settings of the table itself; None if not set.

    `type` is `cow` or `mor`, `merge_mode` `event_time`, `commit_time` or `custom`, the last with a `payload` or the
    `merge_strategy` of a merger; `key_generator` one of SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM.
    `partition_types` goes with CUSTOM, one of SIMPLE and TIMESTAMP for each partition field. `timestamp` holds
    `hoodie.keygen.timebased.*` keys as they are stored. `sort` is `key` where the rows of each base file are to be in
    the order of their keys, else `none`. `base_format` is the format of base files, as Hudi names it. `cdc` asks for a
    change log, `cdc_mode` selects its contents.
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
    merge_mode: Literal["event_time", "commit_time", "custom"] | None = None
    merge_strategy: str | None = None
    partial_update_mode: str | None = None
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
    base_format: Literal["PARQUET", "LANCE"] | None = None
    cdc: bool | None = None
    cdc_mode: str | None = None

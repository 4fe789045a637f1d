"""The nouns of the format as frozen dataclasses: instants, files, slices, write stats. Nothing here touches storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_COLUMNS
OPERATION_COLUMN = "_hoodie_operation"
"""A sixth meta column that some tables have (Flink's `changelog.enabled`): what the row was when it was written."""
ALL_META_COLUMNS = (*META_COLUMNS, OPERATION_COLUMN)
# Values of that column: a new row, and a row as it is after an update. Rows with the others are deletes.
INSERT_OPERATION, UPDATE_OPERATION = "I", "U"
DELETE_OPERATIONS = ("D", "-U")
IS_DELETED_COLUMN = "_hoodie_is_deleted"
# The prefix of columns that lakebed adds while it works; users' columns cannot begin with it.
DERIVED = "_lakebed_"
# Before the name of a check, in the key of the table property that records it.
CHECK_PREFIX = "lakebed.check."
# Before the name of a column, in the keys of the table properties that record its default and its expression.
DEFAULT_PREFIX, GENERATED_PREFIX = "lakebed.default.", "lakebed.generated."
FILE_ID, INSTANT, DELETE = (f"{DERIVED}{name}" for name in ("file_id", "instant", "delete"))
"""Columns that an index adds to rows: the location of the row's key, and whether the key is deleted there."""
MOVED, OPENED = f"{DERIVED}moved", f"{DERIVED}opened"
"""Columns that an index may add to rows for counting: whether the row only deletes the key at its old location, and how
many files of the index were opened for it (int64; if they were opened for several rows, the first row has the
number)."""
POSITION = f"{DERIVED}position"
"""The number (int64) of a stored row in the base file of its slice, null for one that is in log files only. Callers may
read it with stored rows, and an index that reads it returns it with the location of a key."""
COMBINED = f"{DERIVED}combined"
"""How many rows (int64) of the same key went into a row before an index looked for its key."""
MEMBER = f"{DERIVED}member"
"""The number (int64) of the upsert to which a row belongs, if several upserts are one action."""
TABLE_OF_ROWS = b"lakebed.table"
"""In the metadata of an Arrow schema: the URI of the table that the rows were read from."""
HOODIE = ".hoodie"
WAREHOUSE = "LAKEBED_WAREHOUSE"
"""The variable of the environment that names the warehouse, in which tables have names."""
WAREHOUSE_LOCATION = "LAKEBED_WAREHOUSE_LOCATION"
"""The variable of the environment with the folder of new tables, where the warehouse is a catalog."""
LOCK_FILE = f"{HOODIE}/.locks/table_lock.json"
HDFS_LOCK_FILE = f"{HOODIE}/lock"
# In the metadata of every commit that lakebed wrote.
WRITER_ID = "lakebed.writer"
# Who wrote it, on which machine, with which program and release of lakebed.
USER, HOST, PROGRAM, RELEASE = "lakebed.user", "lakebed.host", "lakebed.program", "lakebed.release"
# In the metadata of a commit that deletes rows for good: how many. Its change logs and file slices may be gone.
ERASED_ROWS = "lakebed.erased.rows"
BOOTSTRAP_INSTANT = "00000000000001"
"""The instant of the commit that makes a table over files of another folder (`BOOTSTRAP_METADATA` of Hudi)."""


def path_in(folder: str, name: str) -> str:
    """The path of a file in a folder below the table; the table's own folder is `""`."""
    return f"{folder}/{name}" if folder else name


class Action(StrEnum):
    """The actions of instants, as the words in the names of timeline files."""

    COMMIT = "commit"
    DELTACOMMIT = "deltacommit"
    REPLACECOMMIT = "replacecommit"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    LOGCOMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"


COMMIT_ACTIONS = (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)
"""The actions as which writes, and services that write files, complete."""


class State(int, Enum):
    """The states of an instant, in their order."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """One action on the timeline. `time` is the requested time; `completion_time` is None while the action is pending.

    `file_name` is the name of the timeline file that proves this state, relative to the timeline folder.
    """

    time: str
    action: Action
    state: State
    completion_time: str | None = None
    file_name: str = ""

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file; `path` is relative to the table (`<partition>/<name>`)."""

    partition: str
    file_id: str
    write_token: str
    instant: str
    name: str
    size: int

    @property
    def path(self) -> str:
        return path_in(self.partition, self.name)

    @property
    def is_parquet(self) -> bool:
        """Whether the file is Parquet, which Spark and other engines read and which has statistics of columns."""
        return self.name.endswith(".parquet")

    @property
    def is_skeleton(self) -> bool:
        """Whether the file has only the meta columns. The other columns of its rows are then in a file outside of the
        table, which the bootstrap index names."""
        return self.instant == BOOTSTRAP_INSTANT


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file of a file slice. `instant` is the instant in its name: the delta commit from version 8 on, the base
    instant in version 6."""

    partition: str
    file_id: str
    instant: str
    version: int
    write_token: str
    name: str
    size: int
    is_cdc: bool = False

    @property
    def path(self) -> str:
        return path_in(self.partition, self.name)


FileGroupId = tuple[str, str]
"""The identity of a file group: its partition path and file id."""


@dataclass(frozen=True, slots=True)
class LogWeight:
    """The weight of the log files of a file slice: the bytes of its base file, the number and the bytes of its log
    files, and the instant of the oldest log file (empty without log files)."""

    base_bytes: int = 0
    log_files: int = 0
    log_bytes: int = 0
    oldest: str = ""

    def with_file(self, size: int, instant: str) -> LogWeight:
        """The weight with one more log file of `size` bytes, which has `instant` in its name."""
        oldest = min(self.oldest or instant, instant)
        return LogWeight(self.base_bytes, self.log_files + 1, self.log_bytes + size, oldest)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: a base file, which may be None, and the log files on top of it, in merge order."""

    partition: str
    file_id: str
    instant: str
    base_file: BaseFile | None
    log_files: tuple[LogFile, ...] = ()

    @property
    def label(self) -> str:
        """The name of the slice in messages: the path of its base file, otherwise its file id."""
        return self.base_file.path if self.base_file else self.file_id

    @property
    def files(self) -> tuple[BaseFile | LogFile, ...]:
        """All files of the slice, the base file first."""
        return (*(() if self.base_file is None else (self.base_file,)), *self.log_files)

    @property
    def size(self) -> int:
        """The size of all files of the slice, in bytes."""
        return (self.base_file.size if self.base_file else 0) + self.log_bytes

    @property
    def log_bytes(self) -> int:
        """The size of the log files, in bytes."""
        return sum([log.size for log in self.log_files])

    @property
    def is_base_file(self) -> bool:
        """Whether a reader of the base file alone reads all that the slice holds."""
        return self.base_file is not None and not self.log_files and not self.base_file.is_skeleton

    @property
    def log_weight(self) -> LogWeight:
        """The number and the bytes of the slice's log files, and the bytes of its base file."""
        base_bytes = self.base_file.size if self.base_file is not None else 0
        oldest = min([log.instant for log in self.log_files], default="")
        return LogWeight(base_bytes, len(self.log_files), self.log_bytes, oldest)

    def without_logs(self) -> FileSlice:
        """The slice with its base file alone, without log files."""
        return replace(self, log_files=()) if self.log_files else self


@dataclass(frozen=True, slots=True)
class WriteStat:
    """The change that one commit made to one file: the fields of HoodieWriteStat that lakebed uses, in Python
    spelling."""

    file_id: str
    path: str
    partition: str
    prev_commit: str = "null"
    num_writes: int = 0
    num_inserts: int = 0
    num_updates: int = 0
    num_deletes: int = 0
    file_size: int = 0
    prev_base_file: str | None = None
    create_millis: int = 0
    upsert_millis: int = 0
    # Of a log file: the base file and the log files of its slice, its version, and where its blocks begin.
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    log_version: int | None = None
    log_offset: int | None = None
    # Of a base file: the change logs that were written with it, by path, with their sizes.
    cdc_stats: Mapping[str, int] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files that were written: the file itself and its change logs."""
        return (self.path, *(self.cdc_stats or ()))


ALTER_OPERATION = "ALTER_SCHEMA"
"""The operation of a commit that changes the columns and no rows."""
LATEST_SCHEMA = "latest_schema"
"""The key of the newest version of a table's schema history in a commit's extra metadata."""
SERVICE_OPERATIONS = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})
"""The operations of commits that change no row: services merge, move and index rows."""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The body of a completed commit, deltacommit or replacecommit, reduced to the fields that planning needs.

    `stats` maps a partition path to its write stats; `replaced` a partition path to replaced file ids.
    `raw` is the whole decoded record (Avro field names) for everything else.
    """

    operation: str
    stats: dict[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    replaced: dict[str, tuple[str, ...]] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    raw: dict[str, object] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The files that the commit's write stats name, as paths below the table."""
        return [path for group in self.stats.values() for stat in group for path in stat.paths]

    @property
    def rows_by_path(self) -> dict[str, int]:
        """The number of rows of each file that the commit's write stats name, by the path of the file."""
        return {stat.path: stat.num_writes for group in self.stats.values() for stat in group}

    @property
    def row_counts(self) -> dict[str, int]:
        """The rows inserted, updated and deleted, under these names, as the commit's write stats count them."""
        stats = [stat for group in self.stats.values() for stat in group]
        return {
            "inserted": sum(stat.num_inserts for stat in stats),
            "updated": sum(stat.num_updates for stat in stats),
            "deleted": sum(stat.num_deletes for stat in stats),
        }

    @property
    def schema(self) -> str:
        """The Avro schema (JSON text, without meta columns) the commit wrote with, or an empty string."""
        return self.extra.get("schema") or ""

    @property
    def has_schema_history(self) -> bool:
        """Whether the table had a schema history at this commit."""
        return LATEST_SCHEMA in self.extra

    @property
    def table_schema(self) -> str:
        """The schema of the commit if it is also the table's. Empty for services, which record the schema of their
        files."""
        return "" if self.operation in SERVICE_OPERATIONS else self.schema


# From this table version on completed instants carry a completion time and bodies are Avro.
FIRST_LAYOUT_2_VERSION = 8


def has_completion_times(version: int) -> bool:
    """Whether file names of tables of this version contain the completion time (version 8 and later)."""
    return version >= FIRST_LAYOUT_2_VERSION


OLD_PARTITION = f"{DERIVED}old_partition"


RECORD_INDEX = "record_index"
SECONDARY_INDEX = "secondary_index_"

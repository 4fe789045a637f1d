"""`MetadataSlices`: the metadata table's timeline and file slices at one moment, and which of their blocks count.

Small files are opened once and cached by the process, by path, size and time of change: each commit reads those of
the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from lakebed.errors import CorruptFile, LakebedError, TableNotFound
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.hfile.entries import BLOCKS
from lakebed.format.hfile.reader import HFileReader, open_hfile
from lakebed.format.log_file import WRITTEN_LOGS, BlockHead, BlockType, WrittenBlock, scan_blocks, written_heads
from lakebed.format.sources import SMALL_FILE_BYTES, CachedRanges, FileSource, ReadRange
from lakebed.merge.log_entries import blocks_in_merge_order
from lakebed.metadata.expected_files import ExpectedFiles, builds_partition, check_delta_commits, check_groups
from lakebed.metadata_records.layout import FILES, INITIAL_INSTANT, METADATA_FOLDER, is_of_data, parse_files
from lakebed.model import Action, BaseFile, FileSlice, Instant, LogFile
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.sharing import once
from lakebed.slices.recorded_slices import RecordedSlices
from lakebed.slices.snapshot import REPAIR_HINT
from lakebed.storage.base import FileInfo, Storage
from lakebed.storage.folder import FolderStorage
from lakebed.storage.parallel import at_once, in_background, is_remote
from lakebed.timeline.file_slices import latest_slices
from lakebed.timeline.timeline import Timeline, completed_at, load_table, load_timeline

if TYPE_CHECKING:
    from lakebed.metadata_records.definitions import IndexDefinition
    from lakebed.metadata_records.records import Records

T = TypeVar("T")
_CACHED_BYTES: Final = 32 << 20
_BASES_BYTES: Final = 4 << 20
_MEMORY_OF_A_BASE: Final = 500
# The decompressed and decoded content of a file takes several times its size.
_MEMORY_OF_A_BYTE: Final = 8
_MEMORY_OF_A_FILE: Final = 4 << 10


class SmallFiles(Generic[T]):
    """A cache of the results of the function `make` for small files, so that they are not read from storage again."""

    def __init__(self, make: Callable[[ReadRange], T]) -> None:
        self._make = make
        self._cache = BoundedCache[CacheEntry[T]](_CACHED_BYTES)

    def of(self, source: ReadRange, file_size: int | None = None) -> T:
        """The result of the function `make` for a source, from the cache if the file is small and the result is cached.
        `file_size` is the size of the file that the source is a part of (None: the size of the source)."""
        if not source.key or (source.size if file_size is None else file_size) > SMALL_FILE_BYTES:
            return self._make(source)
        cached = self._cache.get(source.key)
        if cached is None:
            cached = CacheEntry(self._make(source), _MEMORY_OF_A_FILE + _MEMORY_OF_A_BYTE * source.size)
            self._cache.put(source.key, cached)
        return cached.content

    def put(self, source: ReadRange, result: T) -> None:
        """Keep a result that was made without a call of `make`."""
        self._cache.put(source.key, CacheEntry(result, _MEMORY_OF_A_FILE + _MEMORY_OF_A_BYTE * source.size))

    def clear(self) -> None:
        """Empty the cache."""
        self._cache.clear()


@dataclass(frozen=True, slots=True)
class _Base:
    instant: str
    blocks: set[tuple[tuple[Any, ...], int]]
    """The blocks under each identity of the file: a listing shows its time, a commit of this process does not."""


def remember_newest_base(group: str, instant: str, reader: HFileReader) -> None:
    """Record that this is the newest base file of a file group, whose URL is `group`. Cached blocks of the previous
    base file are dropped at once: in a process that lives long they would fill the cache."""
    cached = _BASES.get(group)
    if cached is None or cached.content.instant < instant:
        _BASES.put(group, CacheEntry(_Base(instant, {reader.blocks}), _MEMORY_OF_A_BASE + len(group)))
        for replaced in () if cached is None else cached.content.blocks:
            BLOCKS.drop_file(*replaced)
    elif cached.content.instant == instant:
        cached.content.blocks.add(reader.blocks)


_BASES = BoundedCache[CacheEntry[_Base]](_BASES_BYTES)
HFILES = SmallFiles[HFileReader](lambda source: open_hfile(source, keep_entries=source.size <= SMALL_FILE_BYTES))
LOGS = SmallFiles[list[BlockHead]](scan_blocks)


def heads_of_written(blocks: Sequence[WrittenBlock], source: FileSource) -> list[BlockHead]:
    """The blocks of a log file that this process has written, which is not read."""
    heads = written_heads([block for block, _ in blocks], CachedRanges(source))
    for head, (_, written) in zip(heads, blocks, strict=True):
        if written is not None:
            HFILES.put(head.content, HFileReader(head.content, written=written))
    return heads


@dataclass(frozen=True, eq=False)
class MetadataSlices:
    """A view that never changes.

    `storage`, `config` and `timeline` are the metadata table's own, those with `data_` in front are of the table that
    it describes. A partition is listed when first asked for; files that were opened are kept, small ones by the
    process.
    """

    storage: Storage = field(repr=False)
    config: TableConfig = field(repr=False)
    timeline: Timeline = field(repr=False)
    data_storage: Storage = field(repr=False)
    data_config: TableConfig
    data_timeline: Timeline = field(repr=False)
    _slices: dict[str, tuple[FileSlice, ...]] = field(default_factory=dict, repr=False)
    _folders: dict[str, Sequence[FileInfo]] = field(default_factory=dict, repr=False)
    _modified: dict[str, int] = field(default_factory=dict, repr=False)
    _blocks: dict[str, list[BlockHead]] = field(default_factory=dict, repr=False)
    _hfiles: dict[tuple[str, int], HFileReader] = field(default_factory=dict, repr=False)
    range_keys: set[str] = field(default_factory=set[str], repr=False)
    """Keys of `partition_stats` that have a record, as far as this process knows without a look."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that are complete and kept up by every writer."""
        return self.data_config.metadata_partitions

    @once
    def definitions(self) -> Mapping[str, IndexDefinition]:
        """The table's index definitions by partition name, read when first asked for."""
        from lakebed.metadata_records.definitions import load_definitions

        return load_definitions(self.data_storage, self.data_config)

    def seeing(
        self, definitions: Mapping[str, IndexDefinition], folders: Mapping[str, Sequence[FileInfo]]
    ) -> MetadataSlices:
        """This view with the table's index definitions and the listed folders of partitions that were read with it."""
        self.__dict__["definitions"] = definitions
        self._folders.update(folders)
        return self

    def of_last_commit(self) -> MetadataSlices:
        """This view with the file slices that this process knows from its last delta commit, if they are still those
        of the metadata table. The caller holds the lock of the data table."""
        recorded = RecordedSlices.of(self.storage, self.config, self.timeline)
        if recorded is not None and self.shows_all_commits():
            # a builder makes the file groups of a partition before its delta commit
            unfinished = self.data_config.metadata_partitions_inflight
            slices = recorded.slices.items()
            self._slices.update({partition: its for partition, its in slices if its and partition not in unfinished})
            self.range_keys.update(recorded.ranges)
        return self

    def shows_all_commits(self) -> bool:
        """Whether the records of every completed delta commit count: none of them is pending or was rolled back in the
        data table."""
        return self.timeline.commit_times.isdisjoint(self._pending_in_data) and not self.rolled_back_in_data

    def after_commit(
        self, instants: Sequence[Instant], files: Iterable[BaseFile | LogFile], ranges: Records | None
    ) -> None:
        """Keep, for the next commit of this process, what a delta commit left that was made on this view: these states
        of its instant, these files, and the records of `ranges` in `partition_stats` (None: it left them as they
        were)."""
        if self.timeline.pending or not self.shows_all_commits():
            RecordedSlices.forget(self.storage)
        else:
            keys = self.range_keys
            if ranges is not None:
                keys = keys.union(ranges.keys.to_pylist()).difference(ranges.deleted.to_pylist())
            before = RecordedSlices(self.config, self.timeline.files, self._slices, ranges=frozenset(keys))
            RecordedSlices.after_commit(self.storage, self.config, self.timeline, instants, before, files)

    def with_data(self, data_config: TableConfig, data_timeline: Timeline) -> MetadataSlices:
        """This view of the metadata table beside a later timeline of the data table, with all that was read of it."""
        view = replace(self, data_config=data_config, data_timeline=data_timeline)
        for name in ("definitions", "_expected_files"):
            if name in self.__dict__:
                view.__dict__[name] = self.__dict__[name]
        return view

    def shows_same(self, other: MetadataSlices) -> bool:
        """Whether two views have equal settings and timelines, both of the metadata table and of the data table."""
        store = self.config == other.config and self.timeline.files == other.timeline.files
        return store and self.data_config == other.data_config and self.data_timeline.files == other.data_timeline.files

    def has_other_partitions(self) -> bool:
        """Whether partitions were dropped or built since this view was opened, so that files it does not find are not
        damage. Reads the properties and lists the timeline again."""
        try:
            if load_table_config(self.data_storage).metadata_partitions != self.partitions:
                return True
            timeline = load_timeline(self.storage, self.config)
        except (TableNotFound, FileNotFoundError):
            return True
        times = {i.time for i in self.timeline.instants}
        if any(i.time not in times and builds_partition(i, self.config.version) for i in timeline.instants):
            return True
        newest = self.timeline.latest_time
        archived = (i for i in timeline.archived().instants if i.time.startswith(INITIAL_INSTANT))
        return any(completed_at(i) > newest for i in archived)  # builds are archived as soon as later instants are

    def is_valid(self, instant: str) -> bool:
        """Whether the records that a delta commit of this instant logged are visible: it is committed here, and the
        data table's instant of the same time (if there is one) is completed and was not rolled back."""
        if instant in self._pending_in_data or not self.is_committed(instant):
            return False
        return instant not in self.rolled_back_in_data

    def is_committed(self, instant: str) -> bool:
        """Whether the metadata table's own timeline has the instant as completed (or archived), which suffices for a
        base file."""
        if instant.startswith(INITIAL_INSTANT):
            return instant not in self._pending
        return self.timeline.is_committed(instant)

    def file_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """The latest file slice of each file group, in the order of their ids; the listing is cached."""
        if partition not in self._slices:
            listed = latest_slices(
                *self._visible_files(partition),
                version=self.config.version,
                is_visible=self.is_committed,
                completion_time=self.timeline.completion_time,
                replaced=self.timeline.replaced_files,
                pending_compactions=self.timeline.pending_compaction,
                is_named=self._expected_files.names,
            )
            slices = tuple(listed)
            check_groups(self.storage, partition, slices)
            self._slices[partition] = slices
        return self._slices[partition]

    def open_files(self, file_slice: FileSlice) -> None:
        """Open the slice's base file and its log files in parallel, on a slow storage."""
        if not is_remote(self.storage):
            return
        base = file_slice.base_file
        bases = frozenset[str]() if base is None else frozenset((base.instant,))
        heads = [partial(self._heads, log, bases) for log in file_slice.log_files]
        at_once(self.storage, lambda: self.base_file(file_slice), *heads)

    def base_file(self, file_slice: FileSlice) -> HFileReader | None:
        """A reader of the slice's base file; None if it does not have one."""
        base = file_slice.base_file
        if base is None:
            return None
        reader = self._hfiles.get((base.path, 0))
        if reader is None:
            reader = self._hfiles[base.path, 0] = HFILES.of(CachedRanges(self._source(base)), base.size)
            remember_newest_base(self.storage.url(f"{base.partition}/{base.file_id}"), base.instant, reader)
        return reader

    def data_block(self, block: BlockHead) -> HFileReader:
        """The content of a data block, opened."""
        if block.type is not BlockType.HFILE_DATA:
            raise CorruptFile(
                f"{block.source.name}: a block of type {block.type.name} in the metadata table",
                context={"path": block.source.name, "offset": block.offset},
            )
        key = (block.source.name, block.offset)
        reader = self._hfiles.get(key)
        if reader is None:
            reader = self._hfiles[key] = HFILES.of(block.content, block.source.size)
        return reader

    def log_blocks(self, file_slice: FileSlice) -> list[BlockHead]:
        """The visible data and delete blocks of the slice's log files in merge order."""
        base = file_slice.base_file
        bases = frozenset[str]() if base is None else frozenset((base.instant,))
        logs = [(log, self._heads(log, bases)) for log in file_slice.log_files]
        if self.config.version < 8:
            self._expected_files.check_hidden(self.timeline, logs, self.is_valid)
        return blocks_in_merge_order([head for _, heads in logs for head in heads], self.is_valid)

    def _heads(self, log: LogFile, bases: Set[str]) -> list[BlockHead]:
        heads = self._blocks.get(log.path)
        if heads is None:
            source = self._source(log)
            written = WRITTEN_LOGS.get(source.key)
            heads = LOGS.of(source) if written is None else heads_of_written(written.content, source)
            self._expected_files.check_log(log, heads, self.timeline, bases)
            self._blocks[log.path] = heads
        return heads

    def _source(self, file: BaseFile | LogFile) -> FileSource:
        return FileSource(self.storage, file.path, file.size, self._modified.get(file.path, 0))

    def _visible_files(self, partition: str) -> tuple[list[BaseFile], list[LogFile]]:
        base: list[BaseFile] = []
        logs: list[LogFile] = []
        # bodies of instants are read while the folder is listed
        loaded = in_background(lambda: self._expected_files) if is_remote(self.storage) else None
        listed = self._folders.pop(partition, None)
        listed = list(self.storage.list(partition, recursive=False)) if listed is None else listed
        sizes = {info.path.rpartition("/")[2]: info.size for info in listed}
        if loaded is not None:
            loaded()
        self._expected_files.check_folder(self.timeline, partition, sizes, self.data_timeline.commit_times)
        for (name, size), info in zip(sizes.items(), listed, strict=True):
            file = parse_files(partition, name, size)
            self._modified[info.path] = info.modified
            if isinstance(file, BaseFile):
                base.append(file)
            # a version 6 log file has its slice's instant: its blocks have that of their writer
            elif file is not None and (self.config.version < 8 or self.is_valid(file.instant)):
                logs.append(file)
        return base, logs

    @once
    def _expected_files(self) -> ExpectedFiles:
        check_delta_commits(self.data_timeline, self.timeline)
        return ExpectedFiles.of(self.timeline)

    @once
    def rolled_back_in_data(self) -> frozenset[str]:
        """The completed delta commits whose instants were rolled back on the data table: their writers were considered
        dead and continued. Rollbacks are read only if the data table does not have an instant."""
        from lakebed.timeline.history import rolled_back

        start = self.data_timeline.start or ""
        data_times = {instant.time for instant in self.data_timeline.instants}
        unknown = {i.time for i in self.timeline.commits} - data_times
        unknown = {time for time in unknown if time > start and is_of_data(time)}
        if not unknown:
            return frozenset()
        return frozenset(unknown & {target for _, target in rolled_back(self.data_timeline, min(unknown))})

    @once
    def _pending(self) -> frozenset[str]:
        return frozenset([instant.time for instant in self.timeline.pending])

    @once
    def _pending_in_data(self) -> frozenset[str]:
        # a savepoint that is being made has the time of its commit
        return frozenset([i.time for i in self.data_timeline.pending if i.action is not Action.SAVEPOINT])


StoreRead = tuple[TableConfig, Timeline]
"""A metadata table's own properties and timeline."""


def read_store(storage: Storage, config: TableConfig) -> StoreRead | None:
    """The properties and timeline of the metadata table of a table with these properties; None if it has no metadata
    table. Raises `TableNotFound` if the metadata table is missing."""
    if FILES not in config.metadata_partitions:
        return None
    return load_table(FolderStorage(storage, METADATA_FOLDER), likely=config)


def try_store(storage: Storage, config: TableConfig) -> StoreRead | None:
    """The result of `read_store`, for a reader that reads the table's timeline at the same time (see `shows_last`).
    None if it fails: the caller then reads it again."""
    try:
        return read_store(storage, config)
    except (LakebedError, FileNotFoundError):
        return None


def shows_last(read: StoreRead, config: TableConfig, timeline: Timeline) -> bool:
    """Whether a metadata table that was read at the same time as the table's timeline, and may have been read first,
    shows all that this timeline does.

    The last completed action of the timeline has to be a write whose delta commit is there. Actions complete one after
    the other, each in the metadata table first: so those before it are there, too. A service or a savepoint does not
    show that: a plan may be run twice, and a savepoint has the time of its commit.
    """
    last = max(timeline.completed, key=completed_at, default=None)
    write = Action.DELTACOMMIT if config.table_type == "mor" else Action.COMMIT
    if last is None or last.action is not write or config.version < 8:
        return False
    return any(i.time == last.time and i.is_completed for i in read[1].instants)


def open_slices(
    storage: Storage, config: TableConfig, timeline: Timeline, read: StoreRead | None = None
) -> MetadataSlices | None:
    """The metadata table of the table with this storage, properties and timeline; None if it does not have one.

    Reads its properties and lists its timeline, where they are not given (`read`). Raises `CorruptFile` if the table
    names one and it is not there.
    """
    if FILES not in config.metadata_partitions:
        return None
    store = FolderStorage(storage, METADATA_FOLDER)
    try:
        store_config, store_timeline = read or load_table(store, likely=config)
    except TableNotFound as cause:
        raise CorruptFile(
            f"the metadata table of {storage.url()} is missing, its properties name it",
            hint=REPAIR_HINT,
            context={"path": METADATA_FOLDER},
        ) from cause
    return MetadataSlices(store, store_config, store_timeline, storage, config, timeline)

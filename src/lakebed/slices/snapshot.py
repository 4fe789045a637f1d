"""`Snapshot`: an immutable view of one table at one instant. Everything that reads takes one.

It lists the files of the instant, and notices if the metadata table is ahead of it, damaged, or if a clean
deleted files between the two listings. The table's key generator and the facts of the feature matrix are read from
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import CorruptFile, StorageError
from lakebed.expressions.key_generators import PLAIN, KeyGenerator, key_generator
from lakebed.format.base_file import read_footer
from lakebed.model import (
    COMMIT_ACTIONS,
    HOODIE,
    RECORD_INDEX,
    Action,
    BaseFile,
    CommitMetadata,
    FileSlice,
    Instant,
    LogFile,
)
from lakebed.properties.features import BUCKET_FOLDER, SCHEMA_FOLDER, TableFacts
from lakebed.properties.file import load_same_table
from lakebed.properties.table_config import TableConfig, key_generator_spec
from lakebed.schema.arrow import without_meta
from lakebed.schema.avro import arrow_to_avro, avro_to_arrow, without_fields
from lakebed.sharing import once
from lakebed.slices.listing import FileGroups, Listing, NamedFiles, list_metadata, list_table
from lakebed.slices.reader import SliceReader
from lakebed.slices.recorded_slices import MAX_FILES, MIN_COMMITS, RecordedSlices
from lakebed.storage.base import Storage
from lakebed.storage.parallel import in_background, is_remote
from lakebed.timeline.file_slices import all_slices, latest_slices
from lakebed.timeline.timeline import Timeline, load_timeline

if TYPE_CHECKING:
    from lakebed.merge.log_entries import BlockView
    from lakebed.slices.metadata_lookups import MetadataLookups
    from lakebed.slices.pending_commit import PendingCommit
    from lakebed.slices.schema_history import SchemaHistory


class CleanedView(StorageError):
    """Raised if files of a view were deleted between the listing of its timeline and that of its files. The remaining
    files are an older state of their file groups, or no state, so the table must be listed again."""

    retryable = True


# What deletes files that completed actions wrote, from the moment that it is requested on.
_DELETING = (Action.CLEAN, Action.RESTORE)


def require_uncleaned(timeline: Timeline, metadata: MetadataLookups | None) -> None:
    """Raise `CleanedView` if, after this timeline was listed and before the files were listed, a clean or a restore was
    requested or a commit was taken back: by the metadata table's listing, or without one by that of the folders.

    A clean that was planned earlier leaves the newest state that this timeline shows. The timeline is listed again only
    where the metadata table has an action that this timeline does not show: otherwise no file has been removed from
    what it lists.
    """
    if metadata is not None and not metadata.is_later_than(timeline):
        return
    now = load_timeline(timeline.storage, timeline.config)
    if now.files is timeline.files:
        return
    listed_times = {i.time for i in timeline.instants if i.action in _DELETING}
    change = next((i for i in now.instants if i.action in _DELETING and i.time not in listed_times), None)
    # where commits of that time are archived, cleans may be archived as well
    if change is None and not timeline.commit_times <= now.commit_times:
        later = (i for i in now.archived().instants if i.time > timeline.latest_time)
        change = next((i for i in later if i.action in _DELETING), None)
    change = change or next((i for i in timeline.commits if not now.is_committed(i.time)), None)
    if change is not None:
        raise CleanedView(
            f"the timeline of {timeline.storage.url()} was read before {change.action} {change.time} changed what files"
            " there are, and they were listed after it",
            hint="Read again. A higher hoodie.clean.commits.retained keeps files for slow readers.",
            context={"instant": change.time, "retryable": True},
        )


@contextmanager
def metadata_damage_named(storage: Storage) -> Generator[None]:
    """Turn damage in the metadata table into `CorruptFile`, which names the metadata table and a way to read without
    it."""
    try:
        yield
    except (CorruptFile, FileNotFoundError) as cause:
        is_corrupt = isinstance(cause, CorruptFile)
        damage = cause.message if is_corrupt else f"{cause} is missing"
        named = f"the metadata table of {storage.url()} cannot be read: "
        if damage.startswith(named):
            raise
        raise CorruptFile(
            named + damage,
            hint=REPAIR_HINT,
            context=cause.context if is_corrupt else {"path": str(cause)},
        ) from cause


WITHOUT = "to read without it meanwhile: lakebed.open(uri, options={'hoodie.metadata.enable': False})"


REPAIR_HINT = f"t.indexes.repair() builds it again from the table; {WITHOUT}"


MetadataOpener = Callable[[Storage, TableConfig, Timeline], "MetadataLookups | None"]
# Listings of different partition paths that are kept.
_CACHED_LISTINGS = 16


@dataclass(slots=True)
class _SnapshotCache:
    """The data read of a table at one moment, for views of every instant: listings by partition paths (None: all), and
    the metadata table. `last` is what this process knows from its last commit; from some commits on a view collects in
    `recorded` all latest file slices of the partition paths that it is asked for (see `recorded_slices.Slices`)."""

    listings: dict[frozenset[str] | None, Listing] = field(default_factory=dict[frozenset[str] | None, Listing])
    last: RecordedSlices | None = None
    recorded: dict[str, tuple[FileSlice, ...] | None] | None = None
    metadata: MetadataLookups | None = None
    metadata_is_open: bool = False
    opening: Callable[[], object] | None = None
    folders: frozenset[str] | None = None


@dataclass(frozen=True)
class Snapshot:
    """The state of the table by its completed instants up to `as_of` (a requested time, inclusive; None: all).

    Listings and commit metadata are read when first asked for, and kept. Files come from the metadata table where the
    table has one; without `use_metadata` the folders are listed.
    """

    storage: Storage
    config: TableConfig
    timeline: Timeline
    metadata_opener: MetadataOpener
    """Opens the metadata table: a function of a module, so that views can be sent to tasks."""
    as_of: str | None = None
    use_metadata: bool = True
    base_below_logs: bool = False
    """Show only the base files of file slices that have log files as well."""
    written_key_form: str | None = None
    """The form that complex keys of one field get from now on, whatever is stored."""
    pending: PendingCommit | None = None
    """The commit that this view shows although it is not completed."""
    before: Snapshot | None = field(default=None, repr=False)
    """The view without the pending commit."""
    _cache: _SnapshotCache = field(default_factory=_SnapshotCache, repr=False, compare=False)

    def for_another_process(self) -> Snapshot:
        """This view without its open metadata table, which only this process can use."""
        before = None if self.before is None else self.before.for_another_process()
        return replace(self, before=before, _cache=_SnapshotCache(dict(self._cache.listings)))

    @once
    def commits(self) -> tuple[Instant, ...]:
        """The completed commits, delta commits and replace commits of this view, in requested order."""
        commits = self.timeline.commits
        return commits if self.as_of is None else tuple(i for i in commits if i.time <= self.as_of)

    @once
    def index_settings(self) -> Mapping[str, str]:
        """The settings of the index that the table records as of this view, without the prefix `lakebed.index.`."""
        if not self.may_have_changed_index:
            return self.config.index_settings
        from lakebed.timeline.index_changes import settings_at

        return settings_at(self.timeline, self.config, self.as_of)

    @property
    def may_have_changed_index(self) -> bool:
        """Whether a change of the index may be recorded in the properties or in a commit."""
        return self.config.has_index_changes or bool(self.timeline.replacecommits)

    @property
    def instant(self) -> str:
        """The requested time of the newest commit in view; empty for a table without commits."""
        return self.commits[-1].time if self.commits else ""

    def commits_metadata(self) -> Iterator[CommitMetadata]:
        """The metadata of the commits in view, newest first. The archive is read if those on the active timeline do not
        suffice, but not for a table without commits."""
        for instant in reversed(self.commits):
            yield self.timeline.commit_metadata(instant)
        if not self.commits and self.as_of is None:
            return
        archived = self.timeline.archived()
        active = {i.time for i in self.commits}
        for instant in reversed(archived.instants):
            in_view = self.as_of is None or instant.time <= self.as_of
            if in_view and instant.is_completed and instant.action in COMMIT_ACTIONS and instant.time not in active:
                yield archived.commit_metadata(instant.time)

    @once
    def avro_schema(self) -> str:
        """The table's Avro schema without meta columns, as JSON; empty if no commit and no property has it."""
        for meta in self.commits_metadata():
            if meta.table_schema:
                return without_fields(meta.table_schema, self._left_out)
        if self.config.create_schema:
            return self.config.create_schema
        for file_slice in self.file_slices():
            if file_slice.base_file:
                return arrow_to_avro(self._stored(self._footer_schema(file_slice.base_file)), self.config.name)
        return ""

    @once
    def schema(self) -> pa.Schema:
        """The table's columns without meta columns; empty for a table that has none yet."""
        where = f"{self.config.timeline_path}, the newest commit that names a schema"
        return _arrow_schema(self.avro_schema, where) if self.avro_schema else pa.schema([])

    @once
    def has_operations(self) -> bool:
        """Whether the newest files have the column `_hoodie_operation`, which readers then assume for the whole
        table."""
        from lakebed.slices.newest_files import has_operations

        return has_operations(self.timeline, self.commits, self.reader)

    @once
    def key_form(self) -> str | None:
        """The form of the stored keys if they are complex keys of one field (`newest_files.NAMED` or `PLAIN`); None for
        a table with other keys, and for one without rows."""
        if not self.config.has_two_key_forms:
            return None
        if self.written_key_form is not None:
            return self.written_key_form
        from lakebed.slices.newest_files import key_forms, main_key_form, newest_key_form

        form = newest_key_form(self.timeline, self.commits, self.reader)
        if form is not None:
            return form
        all_forms = (key_forms(file_slice, self.reader) for file_slice in self.file_slices())
        return next((main_key_form(self.config, forms) for forms in all_forms if forms), None)

    @property
    def hoodie_folders(self) -> frozenset[str]:
        """The names of the folders in `.hoodie`: which features a table may have."""
        cache = self._cache
        if cache.folders is None:
            cache.folders = frozenset(self.storage.list_folders(HOODIE))
        return cache.folders

    def with_folders(self, names: frozenset[str]) -> Snapshot:
        """This view with the names of the folders in `.hoodie`, which it then does not list."""
        return replace(self, _cache=_SnapshotCache(folders=names))

    def at(self, instant: str) -> Snapshot:
        """This table as of an instant; both views share their listings."""
        return replace(self, as_of=instant)

    def below_logs(self) -> Snapshot:
        """The base files that have log files, in the view before these log files."""
        return replace(self, base_below_logs=True)

    def shows_same(self, other: Snapshot) -> bool:
        """Whether the other view, which was just opened, shows nothing new: settings, timeline and the metadata table's
        timeline are equal."""
        if self.before is not None and other.before is not None:
            return self.pending == other.pending and self.before.shows_same(other.before)
        same = (self.as_of, self.use_metadata) == (other.as_of, other.use_metadata)
        if not same or self.config != other.config or self.timeline.files != other.timeline.files:
            return False
        if not self._cache.metadata_is_open or self.metadata is None:
            return True
        return other.metadata is not None and self.metadata.shows_same(other.metadata)

    def seeing(self, metadata: MetadataLookups) -> Snapshot:
        """This view with a metadata table that was read at the same moment, and is not read again."""
        last, recorded = self._cache.last, self._cache.recorded
        cache = _SnapshotCache(metadata=metadata, metadata_is_open=True, last=last, recorded=recorded)
        return replace(self, _cache=cache)

    def with_slices_of(self, earlier: Snapshot) -> Snapshot:
        """This view with the file slices that an earlier one has recorded. The caller knows that no action completed
        in between."""
        if earlier._cache.last is None or self.config != earlier.config:
            return self
        cache = replace(self._cache, last=earlier._cache.last, recorded=earlier._cache.recorded)
        return replace(self, _cache=cache)

    def of_last_commit(self) -> Snapshot:
        """This view with the file slices that this process knows from its last commit, if they are still those of the
        table. The caller holds the table lock."""
        last = RecordedSlices.of(self.storage, self.config, self.timeline) if self.use_metadata else None
        if last is None:
            return self
        recorded = dict(last.slices) if last.commits >= MIN_COMMITS else None
        metadata, is_open = self._cache.metadata, self._cache.metadata_is_open
        cache = _SnapshotCache(metadata=metadata, metadata_is_open=is_open, last=last, recorded=recorded)
        return replace(self, _cache=cache)

    @property
    def last_commit(self) -> RecordedSlices | None:
        """The record that the last commit of this process left of this view, with the file slices that were listed
        since; None if that was not the last action."""
        last, recorded = self._cache.last, self._cache.recorded
        return last if last is None or recorded is None else replace(last, slices=recorded)

    def open_ahead(self, *, for_keys: bool) -> None:
        """On a slow storage, begin to open the metadata table's list of files (and `for_keys` its record index), if the
        metadata table was read with this view. Its first user waits for that; before, the caller may read other
        files."""
        metadata = self._cache.metadata
        if metadata is not None and is_remote(self.storage):
            self._cache.opening = in_background(lambda: metadata.try_open_ahead(for_keys=for_keys))

    def with_pending(self, commit: PendingCommit) -> Snapshot:
        """This view of the newest commits with one that is pending, as its own writer sees it: with its files, its log
        blocks and its schema, and without the file groups that it replaces.

        The metadata table lists the files of the other commits alone. It answers no other question of this view:
        statistics and keys are read from the files.
        """
        assert self.as_of is None
        assert self.before is None
        timeline = commit.completed_on(self.timeline)
        cache = _SnapshotCache(folders=self._cache.folders)
        return replace(self, timeline=timeline, pending=commit, before=self, _cache=cache)

    def opened_again(self, fresh: Snapshot) -> Snapshot | None:
        """This view by the present state of the table, `fresh`; None if that shows nothing new."""
        if self.before is not None and self.pending is not None:
            before = self.before.opened_again(fresh)
            if before is None:
                return None
            return replace(before.with_pending(self.pending), base_below_logs=self.base_below_logs)
        return None if self.shows_same(fresh) else replace(fresh, base_below_logs=self.base_below_logs)

    def of_folders(self) -> Snapshot:
        """This view with the files that the table's folders list, without the metadata table."""
        return replace(self, use_metadata=False, _cache=_SnapshotCache())

    @property
    def metadata_is_open(self) -> bool:
        """Whether the metadata table was opened, or found to be missing."""
        return self._cache.metadata_is_open

    @property
    def metadata(self) -> MetadataLookups | None:
        """The table's metadata table at this moment, opened at first use; None if the table does not have one, if it is
        not used, or if the view shows a pending commit, which has no records in it.

        Raises `CorruptFile` if it is damaged; the hint is how to read without it.
        """
        if not self.use_metadata or self.pending is not None:
            return None
        cache = self._cache
        if not cache.metadata_is_open:
            cache.metadata = self.metadata_opener(self.storage, self.config, self.timeline)
            cache.metadata_is_open = True
        if (opening := cache.opening) is not None:
            opening()
            cache.opening = None
        return cache.metadata

    @property
    def reader(self) -> SliceReader:
        """The reader of the rows of this table's file slices."""
        return SliceReader(self.storage, self.config, self.block_view, history=self.history)

    @once
    def history(self) -> SchemaHistory | None:
        """The table's schema history as of this view; None for a table without one."""
        from lakebed.slices.schema_history import schema_history

        if self.before is not None and self.pending is not None:
            before, pending = self.before, self.pending
            if before.history is None:
                return None
            return schema_history(self.storage, before.timeline, pending.instant, pending.metadata.table_schema)
        newest = next(self.commits_metadata(), None)
        if newest is None or not newest.has_schema_history:
            return None
        return schema_history(self.storage, self.timeline, self.instant or self.as_of or "")

    @once
    def block_view(self) -> BlockView:
        """The view that decides which blocks of log files are visible."""
        from lakebed.merge.log_entries import BlockView

        timeline = self.timeline
        return BlockView(timeline.commit_times, timeline.pending_writes, timeline.start or "", self.as_of)

    @once
    def is_latest(self) -> bool:
        """Whether this view shows every commit of the table, and the metadata table has no later ones.

        Only then is a key's location in an index its location in this view.
        """
        newest = self.timeline.last_completed
        if newest is None or (self.as_of is not None and self.as_of < newest.time):
            return False
        return self.metadata is None or not self.metadata.is_ahead_of(self.timeline)

    @once
    def repeats_keys(self) -> bool:
        """Whether inserts have stored keys several times, or may have, since other writers do not check. A record index
        has one location of each key, so it does not cover all rows then."""
        from lakebed.slices.repeated_keys import holds_one_row_a_key
        from lakebed.timeline.history import has_unchecked_inserts

        config = self.config
        if config.repeats_keys or RECORD_INDEX not in config.metadata_partitions:
            return config.repeats_keys
        if not has_unchecked_inserts(self.timeline, config.keys_checked_until):
            return False
        metadata = self.metadata
        if metadata is None or not metadata.has(RECORD_INDEX) or not self.is_latest:
            return True
        return not holds_one_row_a_key(self.timeline, self.file_slices(), metadata, self.reader)

    def partitions(self) -> tuple[str, ...]:
        """The partition paths that exist in storage, sorted ("" for a table without partitions)."""
        return self._listing(None).partitions

    def file_slices(
        self, partitions: Collection[str] | None = None, groups: FileGroups | None = None
    ) -> tuple[FileSlice, ...]:
        """The latest file slice of every file group in view, by partition and file id.

        With `partitions` only their folders are looked at, with `groups` only some file groups.
        """
        if partitions is None:
            return self._all_slices if groups is None else self._slices(None, groups)
        if self._cache.recorded is None or self.as_of is not None or self.base_below_logs:
            return self._slices(partitions, groups)
        return self._recorded_slices(self._cache.recorded, sorted({*partitions}), groups)

    def _recorded_slices(
        self, recorded: dict[str, tuple[FileSlice, ...] | None], partitions: Sequence[str], groups: FileGroups | None
    ) -> tuple[FileSlice, ...]:
        unknown = [path for path in partitions if path not in recorded]
        if groups is not None and unknown:
            recorded |= dict.fromkeys(self._paths_with_many_files(unknown))
            unknown = [path for path in unknown if path not in recorded]
        if unknown:
            listed = self._slices(unknown, None)
            recorded |= {path: tuple(s for s in listed if s.partition == path) for path in unknown}
        its = [recorded[path] for path in partitions]
        if None in its:
            return self._slices(partitions, groups)
        slices = tuple([s for of_path in its for s in of_path or ()])
        if groups is None:
            return slices
        files = [(file.file_id, file.size) for s in slices for file in s.files]
        ids, sizes = pa.array([i for i, _ in files], pa.string()), pa.array([size for _, size in files], pa.int64())
        selected = {*ids.filter(groups(ids, sizes)).to_pylist()}
        return tuple([s for s in slices if s.file_id in selected])

    def _paths_with_many_files(self, partitions: Sequence[str]) -> list[str]:
        """The partition paths, among these, whose files are too many to be looked at for a few file groups."""
        if self.metadata is None:
            return []
        with metadata_damage_named(self.storage):
            counts = self.metadata.files(partitions)["partition"].value_counts()
        return [count["values"] for count in counts.to_pylist() if count["counts"] > MAX_FILES]

    @once
    def _all_slices(self) -> tuple[FileSlice, ...]:
        return self._slices(None, None)

    def _slices(self, partitions: Collection[str] | None, groups: FileGroups | None) -> tuple[FileSlice, ...]:
        listing = self._listing(None if partitions is None else frozenset(partitions), groups)
        named = NamedFiles(self.timeline, self._named)
        slices = tuple(
            latest_slices(
                listing.base_files,
                [log for log in listing.log_files if self._may_show(log)],
                version=self.config.version,
                is_visible=self.is_visible,
                is_named=named.has,
                completion_time=self.timeline.completion_time,
                replaced=self._replaced,
                pending_compactions=self.timeline.pending_compaction,
            )
        )
        named.check(listing.base_files, slices, every_group=groups is None)
        if self.base_below_logs:
            return tuple(s.without_logs() for s in slices if s.log_files and s.base_file is not None)
        return slices

    def base_files(
        self, partitions: Collection[str] | None = None, groups: FileGroups | None = None
    ) -> tuple[BaseFile, ...]:
        """The latest base file of every file group in view (log files are not looked at)."""
        return tuple(s.base_file for s in self.file_slices(partitions, groups) if s.base_file is not None)

    def versions(self, partition: str, file_id: str) -> tuple[FileSlice, ...]:
        """All file slices of one file group that are stored and in view, oldest first; also those of a replaced
        group."""
        listing = self._listing(frozenset((partition,)))
        groups = all_slices(
            [file for file in listing.base_files if file.file_id == file_id],
            [log for log in listing.log_files if log.file_id == file_id and not log.is_cdc and self._may_show(log)],
            version=self.config.version,
            completion_time=self.timeline.completion_time,
        )
        slices: list[FileSlice] = []
        for group in groups:
            for file_slice in group.slices:
                base = next((file for file in file_slice.base_files if self._counts(file)), None)
                logs = tuple(
                    log for log in file_slice.log_files if self.config.version < 8 or self.is_visible(log.instant)
                )
                if base is not None or logs:
                    slices.append(FileSlice(partition, file_id, file_slice.instant, base, logs))
        return tuple(slices)

    def is_visible(self, instant_time: str) -> bool:
        """Whether files of this instant are in view: it is committed (or archived), and not after `as_of`."""
        if self.as_of is not None and instant_time > self.as_of:
            return False
        return self.timeline.is_committed(instant_time)

    def schema_of(self, file_slice: FileSlice) -> pa.Schema:
        """The columns (without meta) with which a slice was written: those of its commit's schema, or of its base
        file's footer. For a slice with log files, which are merged in the newest types, and if neither has a schema,
        the table's. Partition columns that the table leaves out of its files are not among them."""
        if file_slice.log_files and self.config.table_type == "mor":
            return self.schema
        instant = self.timeline.commit(file_slice.instant)
        if instant is not None:
            written = self.timeline.commit_metadata(instant)
            if written.table_schema:
                where = f"{self.config.timeline_path}/{instant.file_name}"
                return self._stored(_arrow_schema(written.table_schema, where))
        base = file_slice.base_file
        return self.schema if base is None else self._stored(self._footer_schema(base))

    def lacked_since(self, instant: str, column: str) -> bool:
        """Whether a commit after this instant, on the active timeline, wrote a schema without the column."""
        for later in self.commits:
            written = self.timeline.commit_metadata(later) if later.time > instant else None
            if written is None or not written.table_schema:
                continue
            if column not in avro_to_arrow(written.table_schema).names:
                return True
        return False

    @once
    def _left_out(self) -> frozenset[str]:
        """The partition columns that the table leaves out of its files. Deletes of real Hudi nevertheless name them in
        their schema, and its clustering writes nulls for them: their values are those of the paths."""
        return frozenset(self.config.partition_fields if self.config.drop_partition_columns else ())

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        """The columns of a file's or commit's schema that the table reads: without meta columns and left-out ones."""
        return pa.schema([f for f in without_meta(schema) if f.name not in self._left_out])

    def _footer_schema(self, base_file: BaseFile) -> pa.Schema:
        return read_footer(self.storage, base_file.path, base_file.size or None).schema

    def _listing(self, partitions: frozenset[str] | None, groups: FileGroups | None = None) -> Listing:
        if self.before is not None and self.pending is not None:
            listing = self.pending.added_to(self.before._listing(partitions, groups), partitions)
            return listing if groups is None else listing.of_groups(groups)
        listings = self._cache.listings
        listing = listings.get(partitions)
        if listing is None and self.metadata is not None:
            with metadata_damage_named(self.storage):
                listing = list_metadata(self.metadata, self.storage, partitions, groups, self._counts)
            require_uncleaned(self.timeline, self.metadata)
            if groups is not None:
                return listing
        if listing is None:
            listing = list_table(self.storage, partitions)
            if not listing.partitions or (partitions is not None and not partitions.issubset(listing.partitions)):
                load_same_table(self.storage, self.config)  # its files may be gone because it was dropped or renamed
            require_uncleaned(self.timeline, None)
        if len(listings) >= _CACHED_LISTINGS:
            listings.clear()
        listings[partitions] = listing
        return listing if groups is None else listing.of_groups(groups)

    @once
    def _replaced(self) -> set[tuple[str, str]]:
        return {
            (partition, file_id)
            for (partition, file_id), instant in self.timeline.replaced_files.items()
            if self.as_of is None or instant.time <= self.as_of
        }

    def _may_show(self, log: LogFile) -> bool:
        """Whether a log file may be visible. Below version 8 it has the instant of its slice in its name: it is hidden
        if the slice began later, was rolled back, or belongs to a pending clustering."""
        if self.config.version >= 8:
            return True
        if not self.timeline.begins_slices(log.instant):
            return False
        return log.instant not in self._clusterings and (self.as_of is None or log.instant <= self.as_of)

    @once
    def _clusterings(self) -> frozenset[str]:
        """The instants of pending clusterings."""
        timeline = self.timeline
        return frozenset(i.time for i in timeline.pending if timeline.is_pending_clustering(i))

    def _counts(self, base_file: BaseFile) -> bool:
        return self.is_visible(base_file.instant) and NamedFiles(self.timeline, self._named).has(base_file)

    @once
    def _named(self) -> dict[str, dict[str, int]]:
        return {}


def _arrow_schema(avro: str, path: str) -> pa.Schema:
    """The data columns of an Avro schema; `path` is the file that has it."""
    try:
        return without_meta(avro_to_arrow(avro))
    except CorruptFile as cause:
        hint = "Restore the instant's file from a copy."
        raise CorruptFile(f"{path}: {cause.message}", hint=hint, context={"path": path}) from cause


def table_keys(
    snapshot: Snapshot,
    timebased: Mapping[str, str] | None = None,
    partition_types: Sequence[str] | None = None,
    *,
    key_form: str | None = None,
) -> KeyGenerator:
    """The table's key generator. Releases disagree on complex keys of one field: the stored keys decide, or `key_form`
    if there are none."""
    prefix = (snapshot.key_form or key_form) != PLAIN
    if prefix and not timebased and not partition_types:
        return snapshot.config.keys
    spec = key_generator_spec(
        snapshot.config, single_field_prefix=prefix, timebased=timebased, partition_types=partition_types
    )
    return key_generator(spec)


def table_features(snapshot: Snapshot) -> TableFacts:
    """The facts about features that the table's folders show, and whether its timeline has an unfinished restore."""
    storage = snapshot.storage
    folders = snapshot.hoodie_folders
    present = [f for f in (SCHEMA_FOLDER, BUCKET_FOLDER) if f.removeprefix(HOODIE + "/") in folders]
    facts = TableFacts.from_paths([info.path for folder in present for info in storage.list(folder)])
    restores = [i.time for i in snapshot.timeline.pending if i.action is Action.RESTORE]
    return TableFacts(
        metadata_table=bool(snapshot.config.metadata_partitions) or "metadata" in folders,
        schema_history=facts.schema_history,
        partition_buckets=facts.partition_buckets,
        consistent_buckets=facts.consistent_buckets,
        pending_restore=min(restores, default=""),
        operations=snapshot.has_operations,
    )

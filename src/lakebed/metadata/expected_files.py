"""Checks the files in a metadata table's folders against what its completed instants wrote: a log file that was
truncated or lost would otherwise silently take rows from every answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, cast

from lakebed.errors import CorruptFile
from lakebed.format.bounded_cache import BoundedCache, CacheEntry
from lakebed.format.log_file import BlockHead, BlockType, HeaderKey
from lakebed.format.text import parse_properties
from lakebed.metadata_kinds.registry import kind_of
from lakebed.metadata_records.layout import INITIAL_INSTANT, LOGGED_SINCE, group_number, parse_files
from lakebed.model import Action, BaseFile, CommitMetadata, FileSlice, Instant, LogFile, State
from lakebed.slices.snapshot import REPAIR_HINT
from lakebed.storage.base import FileInfo, Storage
from lakebed.timeline.file_slices import goes_by_slice
from lakebed.timeline.instants import suffix_of
from lakebed.timeline.timeline import Timeline, completed_at, load_timeline

_BUILDS = ("BULK_INSERT", "BULK_INSERT_PREPPED")
_PARTITION_METADATA = ".hoodie_partition_metadata"
_CACHED_BYTES = 16 << 20
_BYTES_AN_INSTANT = 500
_BYTES_AN_EXTENT = 500


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes of a file that a completed instant wrote; `based_on` is the instant of the slice that the file belongs
    to, or that it replaced."""

    instant: Instant
    start: int
    end: int
    based_on: str = ""


@dataclass(frozen=True, slots=True)
class ExpectedFiles:
    """The extents of each file, by partition and name, and the instant at which each partition was last built, from the
    bodies on the active timeline."""

    files: Mapping[str, Mapping[str, Sequence[Extent]]]
    built: Mapping[str, str] = field(default_factory=dict[str, str])
    instants: Set[str] = frozenset()
    """The instants whose bodies were read."""

    @classmethod
    def of(cls, timeline: Timeline) -> ExpectedFiles:
        """The files named by the bodies of the delta commits since the last compaction, and of all other instants that
        wrote files."""
        files: dict[str, dict[str, list[Extent]]] = {}
        built: dict[str, str] = {}
        # the files of delta commits that a compaction has put into base files need not be there
        compacted = max([i.time for i in timeline.commits if i.action is Action.COMMIT], default="")
        relevant = [
            i
            for i in timeline.commits
            if i.action is not Action.DELTACOMMIT
            or completed_at(i) >= compacted
            or builds_partition(i, timeline.config.version)
        ]
        for written in _written(timeline, relevant):
            for partition, name, extent in written.extents:
                files.setdefault(partition, {}).setdefault(name, []).append(extent)
                if written.is_build:
                    built[partition] = max(built.get(partition, ""), completed_at(extent.instant))
        return cls(files, built, {instant.time for instant in relevant})

    def names(self, base: BaseFile) -> bool:
        """Whether the instant of a base file names it, by the active timeline. A file that is not named was written by
        a process that was considered dead and continued after another had repeated its work."""
        return base.instant not in self.instants or base.name in self.files.get(base.partition, {})

    def check_folder(
        self, timeline: Timeline, partition: str, sizes: Mapping[str, int], visible_commits: Container[str] = ()
    ) -> None:
        """Raise `CorruptFile` if a file that readers need is not in the partition's folder (`sizes` by name), or is
        shorter than it was written. `visible_commits` are the commits that the view shows of the data table."""
        named = self.files.get(partition)
        if not named:
            return
        newest: dict[str, str] = {}
        for file in [parse_files(partition, name, 0) for name in sizes]:
            if isinstance(file, BaseFile) and (
                timeline.is_committed(file.instant) or file.instant.startswith(INITIAL_INSTANT)
            ):
                newest[file.file_id] = max(newest.get(file.file_id, ""), file.instant)
        replaced = timeline.replaced_files
        missing: list[tuple[str, Extent]] = []
        for name, extents in named.items():
            file = parse_files(partition, name, 0)
            if file is None or (partition, file.file_id) in replaced:
                continue
            end = max([extent.end for extent in extents])
            size = sizes.get(name)
            if size is None:
                if _is_needed(file, extents, newest.get(file.file_id, ""), timeline.config.version):
                    missing.append((name, next(extent for extent in extents if extent.end == end)))
            elif size < end:
                raise damaged(timeline.storage, f"{partition}/{name}", f"has {size} bytes of {end}", offset=size)
        if missing:
            self._check_gone(timeline, partition, missing, visible_commits)

    def check_log(
        self, log: LogFile, heads: Sequence[BlockHead], timeline: Timeline, bases: Container[str] = ()
    ) -> None:
        """Raise `CorruptFile` if bytes that a completed instant wrote are not complete blocks of that instant.

        Bytes that no completed instant names are of an unfinished write, and may be incomplete. A log file that is
        named after its slice (its base file has one of the instants `bases`) does not show who wrote its blocks.
        """
        extents = self.files.get(log.partition, {}).get(log.name)
        if extents is None:
            if timeline.config.version < 8 or goes_by_slice(log.instant, bases):
                return
            if log.instant.startswith(INITIAL_INSTANT) or timeline.is_completed(log.instant):
                return
            extents = [Extent(Instant(log.instant, Action.DELTACOMMIT, State.COMPLETED), 0, log.size)]  # archived
        for extent in extents:
            inside = [head for head in heads if head.offset < extent.end and head.end > extent.start]
            written = [
                head.type is BlockType.COMMAND
                or (head.type is not BlockType.CORRUPT and head.instant == extent.instant.time)
                for head in inside
            ]
            if not inside or not all(written):
                offset = inside[written.index(False)].offset if inside else extent.start
                problem = f"holds no whole block of instant {extent.instant.time} at offset {offset}"
                raise damaged(timeline.storage, log.path, problem, offset=offset)

    def check_hidden(
        self, timeline: Timeline, logs: Iterable[tuple[LogFile, Sequence[BlockHead]]], is_valid: Callable[[str], bool]
    ) -> None:
        """Raise `CorruptFile` if a rollback, before version 8, hides blocks of an instant that this view shows. `logs`
        are a slice's log files in merge order, with their blocks. Blocks of earlier attempts, which no extent names,
        may be hidden."""
        named: dict[str, str] = {}
        for log, heads in logs:
            extents = self.files.get(log.partition, {}).get(log.name, ())
            for head in heads:
                target = head.header(HeaderKey.TARGET_INSTANT_TIME) if head.type is BlockType.COMMAND else None
                if target in named and is_valid(target):
                    raise damaged(timeline.storage, named[target], f"has blocks of instant {target}, which are hidden")
                named |= {
                    extent.instant.time: log.path for extent in extents if extent.start <= head.offset < extent.end
                }

    def _check_gone(
        self, timeline: Timeline, partition: str, missing: Sequence[tuple[str, Extent]], visible_commits: Container[str]
    ) -> None:
        """Raise `CorruptFile` for missing files, unless there is a reason: the partition was built again since, or
        their instant was taken back since the timeline was loaded and is not in `visible_commits`. Files of instants
        that were archived since are still needed."""
        since = _logged_since(timeline, partition)
        built = since or max(self.built.get(partition, ""), _built_at(timeline, partition))
        before = _based_before(built, [extent for _, extent in missing]) if timeline.config.version < 8 else frozenset()
        left = [
            (name, extent.instant)
            for name, extent in missing
            if completed_at(extent.instant) >= built and extent.instant.time not in before
        ]
        if left:
            now = load_timeline(timeline.storage, timeline.config)
            left = [(name, i) for name, i in left if now.is_committed(i.time) or i.time in visible_commits]
        if left:
            name, instant = left[0]
            raise damaged(
                timeline.storage, f"{partition}/{name}", f"is missing, which its completed instant {instant.time} wrote"
            )


def check_delta_commits(data: Timeline, store: Timeline) -> None:
    """Raise `CorruptFile` if a completed commit of the data table has no delta commit, so that the metadata table lacks
    its changes."""
    recorded_times = {i.time for i in store.instants if i.is_completed}
    ordered = [i.time for i in store.commits if not i.time.startswith(INITIAL_INSTANT)]
    first = min(map(completed_at, store.commits), default=None)
    if first is None:
        return
    for commit in data.commits:
        before = completed_at(commit) <= first or (bool(ordered) and commit.time < ordered[0])
        if commit.time in recorded_times or before:
            continue
        raise damaged(
            store.storage, store.config.timeline_path, f"has no delta commit of the table's commit {commit.time}"
        )


def damaged(storage: Storage, path: str, problem: str, *, offset: int | None = None) -> CorruptFile:
    """The error for a damaged file of the metadata table."""
    context: dict[str, Any] = {"path": storage.url(path)}
    if offset is not None:
        context["offset"] = offset
    return CorruptFile(f"{path} of the metadata table {storage.url()} {problem}", hint=REPAIR_HINT, context=context)


def builds_partition(instant: Instant, version: int) -> bool:
    """Whether a delta commit of this instant may have built a partition."""
    return instant.time.startswith(INITIAL_INSTANT) or (version < 8 and suffix_of(instant.time) != "")


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of one instant: partition, name and extent of each file, and whether the instant built a partition."""

    extents: tuple[tuple[str, str, Extent], ...]
    is_build: bool

    @classmethod
    def of(cls, instant: Instant, body: CommitMetadata) -> _Written:
        raw = cast("Mapping[str, Sequence[Mapping[str, Any]] | None]", body.raw.get("partitionToWriteStats") or {})
        extents: list[tuple[str, str, Extent]] = []
        for partition, stats in raw.items():
            for stat in stats or ():
                # logs of version 6 may be appended to
                start = stat.get("logOffset") or 0
                end = start + (stat.get("fileSizeInBytes") or 0)
                name = (stat.get("path") or "").rpartition("/")[2]
                extents.append((partition, name, Extent(instant, start, end, stat.get("prevCommit") or "")))
        return cls(tuple(extents), body.operation in _BUILDS)


def _written(timeline: Timeline, instants: Sequence[Instant]) -> list[_Written]:
    """The files that each of these instants wrote. They are cached, since the next commit needs most of them again;
    those of instants that were archived since are dropped."""
    folder = timeline.storage.url(timeline.config.timeline_path)
    cached = _WRITTEN.get(folder)
    written_by_key = cached.content if cached is not None else {}
    keys = [(i.file_name, timeline.files.get(i.file_name)) for i in instants]
    new = [(i, key) for i, key in zip(instants, keys, strict=True) if key not in written_by_key]
    if new:
        bodies = timeline.commits_metadata([instant for instant, _ in new])
        additions = {key: _Written.of(instant, body) for (instant, key), body in zip(new, bodies, strict=True)}
        # the timeline of a task may list no files
        requested_keys = set(keys)
        written_by_key = {
            key: of for key, of in written_by_key.items() if key in requested_keys or key[0] in timeline.files
        } | additions
        extents = sum([len(of.extents) for of in written_by_key.values()])
        memory = _BYTES_AN_INSTANT * len(written_by_key) + _BYTES_AN_EXTENT * extents
        _WRITTEN.put(folder, CacheEntry(written_by_key, memory))
    return [written_by_key[key] for key in keys]


def _is_needed(file: BaseFile | LogFile, extents: Sequence[Extent], base: str, version: int) -> bool:
    """Whether the file belongs to the newest slice of its group, which begins with the instant `base`. A log file that
    does not have the name of the instant that wrote it has the name of its slice, also in an upgraded table."""
    if isinstance(file, BaseFile) or version < 8 or any(e.instant.time != file.instant for e in extents):
        return file.instant >= base
    return max(completed_at(extent.instant) for extent in extents) >= base


def _based_before(built: str, extents: Sequence[Extent]) -> frozenset[str]:
    """The instants that wrote to slices from before the partition was built. Without completion times their requested
    times do not show this: in a table that comes from a newer version they may be later than the build."""
    before: set[str] = set()
    for extent in sorted(extents, key=lambda e: e.instant.time):
        if extent.based_on in before or (extent.based_on.isdigit() and extent.based_on < built):
            before.add(extent.instant.time)
    return frozenset(before)


def _properties_of(timeline: Timeline, partition: str) -> Mapping[str, str]:
    try:
        return parse_properties(timeline.storage.read(f"{partition}/{_PARTITION_METADATA}"))
    except FileNotFoundError:
        return {}


def _logged_since(timeline: Timeline, partition: str) -> str:
    """The instant from which on a partition that is, or was, built during writes has log files; empty for every other
    partition."""
    return _properties_of(timeline, partition).get(LOGGED_SINCE, "")


def _built_at(timeline: Timeline, partition: str) -> str:
    """The instant at which the partition in the present folder was built, from the file that records it; empty if it is
    not recorded. The build's instant sorts before all commits. It is archived before commits to an earlier partition of
    this name."""
    time = _properties_of(timeline, partition).get("commitTime", "")
    completion_times = [completed_at(i) for i in timeline.completed if i.time == time]
    if time and not completion_times:
        completion_times = [completed_at(i) for i in timeline.archived().instants if i.time == time]
    return max(completion_times, default="")


def check_groups(storage: Storage, partition: str, slices: Sequence[FileSlice]) -> None:
    """Raise `CorruptFile` if a file group is missing, or its base file: the number of file groups determines where keys
    are. Files that only archived instants name are checked as well."""
    kind = kind_of(partition)
    numbers: dict[str | None, list[int]] = defaultdict(list)
    for file_slice in slices:
        if not kind.is_file_id_of(partition, file_slice.file_id):
            continue
        numbers[kind.data_partition_of(file_slice.file_id)].append(group_number(file_slice.file_id))
        if file_slice.base_file is None:
            from lakebed.metadata_records.group_files import CREATION_TOKEN

            marks = [(log.instant.startswith(INITIAL_INSTANT), log.write_token) for log in file_slice.log_files]
            if not [token for is_initial, token in marks if is_initial or token == CREATION_TOKEN]:
                raise damaged(storage, partition, f"has lost the base file of file group {file_slice.file_id}")
    for group_numbers in numbers.values():
        present = {*group_numbers}
        missing = {*range(min(present), max(present))} - present
        if missing:
            raise damaged(storage, partition, f"has lost file group number {min(missing)}")


_WRITTEN = BoundedCache[CacheEntry[Mapping[tuple[str, FileInfo | None], _Written]]](_CACHED_BYTES)
"""The files that the instants of a timeline's folder wrote, by the instants' files."""

"""Bringing the list of a format up to date: a version for each commit that it does not show yet.

The list is read before the table, so that the table is never older than the list. Each version is created exactly once;
a second publisher finds it and continues from it. A publisher that dies leaves a list that shows an older commit, and
the next one continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from lakebed.errors import CommitConflict, ConflictKind, UnsupportedFeature
from lakebed.publish.data_files import check_types, partition_columns, read_data_files
from lakebed.publish.foreign import Change, ForeignList, ListFormat
from lakebed.publish.versions import Position, TableVersion, is_readable, newest_version, unpublished, versions
from lakebed.slices.snapshot import Snapshot
from lakebed.storage.base import Storage
from lakebed.wording import Printed, count_text

# The name of a restore's or rollback's version: these actions leave no commit.
TAKEN_BACK = "RESTORE"
# The name of a version that shows the last commit in another way.
PUBLISHED_AGAIN = "PUBLISH"
_ATTEMPTS = 20
_log = logging.getLogger("lakebed")


@dataclass(frozen=True, repr=False)
class PublishedVersion(Printed):
    """A version that was written: its number, the commit that it shows, and the numbers of files added and removed."""

    version: int
    instant: str
    operation: str
    added: int
    removed: int

    def __str__(self) -> str:
        files = f"{count_text(self.added, 'file')} added, {self.removed} removed"
        return f"version {self.version}: {self.operation.lower()} {self.instant or '(no commit)'}, {files}"


@dataclass(frozen=True, repr=False)
class UnmergedGroup(Printed):
    """A file group whose newest rows are in log files, which are not shown: it is shown as of `instant`, that of its
    base file; not at all if that is None."""

    partition: str
    file_id: str
    instant: str | None
    log_files: int

    def __str__(self) -> str:
        since = f"as of {self.instant}" if self.instant else "not shown"
        return f"{self.partition or '(no partition)'} {self.file_id}: {since}, {count_text(self.log_files, 'log file')}"


@dataclass(frozen=True, repr=False)
class PublishResult(Printed):
    """The result of a publication. `version` is the newest one of the list, `instant` the commit that it shows;
    `published` are the versions that were written, `unmerged` the file groups with log files, `skipped` the commits
    that have no version, with the reasons."""

    format: str
    version: int
    instant: str
    published: tuple[PublishedVersion, ...] = ()
    unmerged: tuple[UnmergedGroup, ...] = ()
    skipped: tuple[str, ...] = ()
    seconds: float = field(default=0.0, kw_only=True)

    def __str__(self) -> str:
        lines = [
            f"published as {self.format}: version {self.version} shows {self.instant or 'a table without commits'}"
        ]
        lines += [f"  {version}" for version in self.published] or ["  nothing new"]
        if self.unmerged:
            oldest = min((group.instant or "" for group in self.unmerged), default="")
            freshness = f"the oldest as of {oldest}" if oldest else "some are not shown at all"
            groups = count_text(len(self.unmerged), "file group")
            lines.append(f"  log files of {groups} are not shown until a compaction: {freshness}")
        return "\n".join([*lines, *(f"  skipped {reason}" for reason in self.skipped)])


@dataclass(slots=True)
class _Progress:
    """The results of one publication so far, over all attempts. `fresh` is whether the versions show the rows of log
    files (None: as the list does, which `is_fresh` says), `vectors` whether by deletion vectors where the format leaves
    a choice."""

    fresh: bool | None = None
    vectors: bool = False
    is_fresh: bool = False
    published: list[PublishedVersion] = field(default_factory=list[PublishedVersion])
    skipped: list[str] = field(default_factory=list[str])
    unmerged: tuple[UnmergedGroup, ...] = ()


def publish(
    storage: Storage,
    opened: Callable[[], Snapshot],
    form: ListFormat,
    *,
    fresh: bool | None = None,
    vectors: bool = False,
) -> tuple[PublishResult, Position]:
    """Write a version for each commit of the table that the list of this format does not show yet. Returns the result,
    and the position of the newest version. `opened` opens the table in its present state. `fresh` is whether the list
    shows the rows of log files; None: as it does, which a new list does not. `vectors`: by deletion vectors, where the
    format has another way too.

    Raises `UnsupportedFeature` for a table that the format cannot express, `ForeignChange` for a list with versions of
    others, and `CommitConflict` where other publishers are always faster. What was published before that remains.
    """
    started = time.monotonic()
    progress = _Progress(fresh, vectors)
    for _ in range(_ATTEMPTS):
        listed = form.newest(storage)
        done = _bring_up_to_date(storage, opened(), form, listed, progress)
        if done is not None:
            result = PublishResult(
                form.name,
                done.version,
                done.position.instant,
                tuple(progress.published),
                progress.unmerged,
                tuple(dict.fromkeys(progress.skipped)),
                seconds=time.monotonic() - started,
            )
            return result, done.position
    raise _overtaken(storage)


def forget_earlier(
    storage: Storage,
    opened: Callable[[], Snapshot],
    form: ListFormat,
    *,
    fresh: bool | None = None,
    vectors: bool = False,
) -> tuple[PublishResult, Position, int]:
    """Publish, then delete every version of the list except the newest. Returns the result, the position, and the
    number of deleted files. Raises the errors of `publish`, and `CommitConflict` if other publishers are always
    faster."""
    for _ in range(_ATTEMPTS):
        result, position = publish(storage, opened, form, fresh=fresh, vectors=vectors)
        listed = form.newest(storage)
        deleted = None if listed is None else form.forget_earlier(storage, listed)
        if deleted is not None:
            return result, position, deleted
    raise _overtaken(storage)


def _overtaken(storage: Storage) -> CommitConflict:
    return CommitConflict(
        f"other publishers of {storage.url()} were faster {_ATTEMPTS} times",
        hint="One publisher at a time is enough. Publish again to see whether everything is published.",
        context={"retryable": True},
        kind=ConflictKind.CHANGED,
    )


def _bring_up_to_date(
    storage: Storage, snapshot: Snapshot, form: ListFormat, listed: ForeignList | None, progress: _Progress
) -> ForeignList | None:
    """Write all missing versions, and return the list; None if another publisher wrote one of them."""
    newest: TableVersion | None = None
    before = None if listed is None else listed.position
    progress.is_fresh = bool(progress.fresh if progress.fresh is not None else listed is not None and listed.is_fresh)
    commits = unpublished(snapshot, before)
    for number, version in enumerate(versions(snapshot, commits), 1):
        newest = version
        try:
            listed = _publish_version(storage, snapshot, form, listed, version, progress)
        except UnsupportedFeature as reason:
            if number == len(commits):
                raise
            progress.skipped.append(f"{version.position.instant}: {reason.message}")
            continue
        if listed is None:
            return None
    if newest is None or listed is None:
        # after commits were taken back the table differs from the list although no commit is new
        newest = newest_version(snapshot, "CREATE" if listed is None else TAKEN_BACK)
        if newest.position == before:
            newest = replace(newest, operation=PUBLISHED_AGAIN)
        if listed is None or (
            {*newest.files} != {*listed.files}
            or form.schema_text(newest.schema, listed) != listed.schema
            or (progress.is_fresh, newest.log_files if progress.is_fresh else "") != (listed.is_fresh, listed.log_files)
        ):
            listed = _publish_version(storage, snapshot, form, listed, newest, progress)
    progress.unmerged = tuple(
        UnmergedGroup(
            file_slice.partition,
            file_slice.file_id,
            file_slice.base_file.instant if file_slice.base_file else None,
            len(file_slice.log_files),
        )
        for file_slice in (() if progress.is_fresh else newest.unmerged)
    )
    return listed


def _publish_version(
    storage: Storage,
    snapshot: Snapshot,
    form: ListFormat,
    listed: ForeignList | None,
    version: TableVersion,
    progress: _Progress,
) -> ForeignList | None:
    config = snapshot.config
    schema = form.schema_text(version.schema, listed)
    columns = partition_columns(config, version.schema)
    if listed is not None and listed.partition_columns != columns:
        raise UnsupportedFeature(
            f"the table is partitioned by {', '.join(columns) or 'nothing'}, its {form.name} list by"
            f" {', '.join(listed.partition_columns) or 'nothing'}",
            hint="Move the list's folder away and publish again: the list is then written again.",
        )
    before = set(listed.files) if listed is not None else set[str]()
    new = [base for path, base in version.files.items() if path not in before]
    files = read_data_files(storage, config, new, version.schema)
    check_types(files, version.schema, version.history, form.widening)
    if listed is not None and schema != listed.schema:
        older = [base for path, base in version.files.items() if path in before]
        listed_files = read_data_files(storage, config, older, version.schema)
        check_types(listed_files, version.schema, version.history, form.widening)
    removed = sorted(before - version.files.keys())
    readable = partial(is_readable, snapshot)
    options = {"is_fresh": progress.is_fresh, "vectors": progress.vectors}
    change = Change(version, schema, columns, files, removed, readable, config.timezone, config.name, **options)
    written = form.append(storage, listed, change)
    if written is not None:
        if progress.is_fresh and form.fresh_warning and not (listed is not None and listed.is_fresh):
            _log.warning("%s: %s", storage.url(), form.fresh_warning)
        instant = version.position.instant
        progress.published.append(
            PublishedVersion(written.version, instant, version.operation, len(files), len(removed))
        )
    return written

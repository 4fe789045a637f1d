"""`repair` of a whole table: one part after the other, each under the table lock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, get_args

from lakebed.concurrency.lock import Lock, default_lock
from lakebed.concurrency.providers import table_lock
from lakebed.config.features import check_write
from lakebed.config.options import resolve_options
from lakebed.errors import CommitConflict, InvalidOption, LakebedError, UnsupportedFeature
from lakebed.handles.file_writer import write_partition_metadata
from lakebed.model import HOODIE, RECORD_KEY
from lakebed.operations.admission import admit
from lakebed.operations.context import WriteContext
from lakebed.operations.job import session_engine, write_context
from lakebed.properties.file import load_table_config, mend_properties, update_table_config
from lakebed.properties.table_config import INDEX_CHECKED, INDEX_REPEATED
from lakebed.services.repair import repair as repair_metadata
from lakebed.services.repairing.duplicates import delete_copies, find_copies
from lakebed.services.repairing.orphans import Orphans, folders_without_metadata
from lakebed.services.repairing.result import Part, RepairPart, RepairResult
from lakebed.services.verification import verify
from lakebed.slices.facts import table_features
from lakebed.slices.listing import PARTITION_METADATA
from lakebed.slices.snapshot import Snapshot, open_snapshot
from lakebed.storage.base import FileInfo, Storage
from lakebed.timeline.history import has_unchecked_inserts
from lakebed.timeline.timeline import Timeline, completed_at, load_timeline
from lakebed.upkeep.comparison import DIFFERENCES
from lakebed.wording import count_text

PARTS: tuple[Part, ...] = get_args(Part)
# Rows go only where somebody asked for it by name: a table of inserts may hold a key twice on purpose.
_BY_NAME: tuple[Part, ...] = ("duplicates",)


def repair_table(
    storage: Storage,
    parts: Sequence[Part] | None = None,
    *,
    dry_run: bool = False,
    options: Mapping[str, Any] | None = None,
    spark: Any | None = None,
) -> RepairResult:
    """Find what is wrong with the table, and mend the `parts` named, without names all but "duplicates". With `dry_run`
    nothing is mended."""
    unknown = [name for name in parts or () if name not in PARTS]
    if unknown:
        raise InvalidOption(f"there is no part {unknown[0]!r} of a repair", hint=f"There are {', '.join(PARTS)}.")
    wait = resolve_options(options).write.lock_wait_seconds
    lock = default_lock(storage, wait_seconds=wait)
    listed = cache(partial(_files, storage))
    run: dict[Part, Callable[[bool], RepairPart]] = {
        "properties": lambda mends: _properties(storage, lock, mends=mends),
        "partition_metadata": lambda mends: _partition_metadata(storage, lock, *listed(), mends=mends),
        "orphans": lambda mends: _orphans(storage, lock, listed()[0], mends=mends),
        "metadata": lambda mends: _metadata(storage, mends=mends),
        "duplicates": lambda mends: _duplicates(_context(storage, options, spark), mends=mends),
    }
    chosen: Sequence[Part] = PARTS if parts is None else [name for name in PARTS if name in parts]
    named = parts or ()
    found: list[RepairPart] = []
    for name in chosen:
        try:
            found.append(run[name](not dry_run and (name in named or name not in _BY_NAME)))
        except (UnsupportedFeature, CommitConflict) as error:
            if name in named:
                raise
            is_left = isinstance(error, CommitConflict)
            found.append(RepairPart(name, (error.message,) if is_left else (), note="" if is_left else error.message))
    return RepairResult(tuple(found), dry_run)


def _context(storage: Storage, options: Mapping[str, Any] | None, spark: Any | None) -> WriteContext:
    return write_context(storage, load_table_config(storage), session_engine(spark), resolve_options(options))


def _properties(storage: Storage, lock: Lock, *, mends: bool) -> RepairPart:
    found = mend_properties(storage, dry_run=True)
    if found is None or not mends:
        return RepairPart("properties", (found,) if found else ())
    with lock:
        mend_properties(storage)
    return RepairPart("properties", (found,), mended=True)


def _files(storage: Storage) -> tuple[list[FileInfo], set[str]]:
    """Every file outside the table's own folder, and the folders that are marked as partitions."""
    files: list[FileInfo] = []
    marked: set[str] = set()
    for info in storage.list():
        folder, _, name = info.path.rpartition("/")
        if folder.partition("/")[0] == HOODIE:
            continue
        if name.startswith(PARTITION_METADATA):
            marked.add(folder)
        else:
            files.append(info)
    return files, marked


def _partition_metadata(
    storage: Storage, lock: Lock, files: Sequence[FileInfo], marked: Collection[str], *, mends: bool
) -> RepairPart:
    found = folders_without_metadata(open_snapshot(storage), files, marked)
    texts = tuple(f"{path or 'the table folder'} of {instant}" for path, instant in found.items())
    if not found or not mends:
        return RepairPart("partition_metadata", texts)
    with lock:
        for path, instant in found.items():
            write_partition_metadata(storage, path, instant)
    return RepairPart("partition_metadata", texts, mended=True)


def _orphans(storage: Storage, lock: Lock, files: Sequence[FileInfo], *, mends: bool) -> RepairPart:
    # they were listed before the timeline is read: who has written them since has an instant there
    snapshot = open_snapshot(storage)
    check_write(snapshot.config.properties, table_features(snapshot), "clean")
    found = sorted(Orphans(snapshot).among(files), key=lambda info: info.path)
    texts = tuple(f"{info.path}, {info.size:,} bytes" for info in found)
    if not found or not mends:
        return RepairPart("orphans", texts)
    with lock as held:
        for info in Orphans(open_snapshot(storage)).among(found):
            if not held.still_mine():
                raise _lock_lost(storage)
            storage.delete(info.path)
    return RepairPart("orphans", texts, mended=True)


def _lock_lost(storage: Storage) -> CommitConflict:
    return CommitConflict(
        f"the table lock was lost while {storage.url()} was repaired",
        hint="What was mended stays so; run it again for the rest.",
    )


def _duplicates(context: WriteContext, *, mends: bool) -> RepairPart:
    config = context.config
    if not config.populate_meta_fields or not config.key_fields:
        return RepairPart("duplicates", note="rows have no keys to tell them by")
    admit(context, "delete")
    files = Snapshot(context.storage, config, context.opened.timeline, use_metadata=False)
    copies = find_copies(context, files)
    counts = copies.group_by(RECORD_KEY).aggregate([([], "count_all")]).sort_by(RECORD_KEY)
    found = tuple(
        f"{key}: {count + 1} copies"
        for key, count in zip(counts[RECORD_KEY].to_pylist(), counts["count_all"].to_pylist(), strict=True)
    )
    if not mends:
        by_name = "name the part to delete all but the newest copy of each" if found else ""
        return RepairPart("duplicates", found, note=by_name)
    if not found:
        _note_unique(context, files.timeline)
        return RepairPart("duplicates")
    done = delete_copies(context)
    # an index of keys took the deletes for the keys' ends
    _metadata(context.storage, mends=True)
    _note_unique(context, files.timeline, done.instant)
    return RepairPart(
        "duplicates", found, mended=True, note=f"{count_text(done.deleted, 'row')} deleted by {done.instant}"
    )


def _note_unique(context: WriteContext, checked: Timeline, mended_by: str = "") -> None:
    """Note that no key is in several file groups, as `checked` showed the table and one commit left it.

    Nothing is noted where others have committed since.
    """
    storage, settings = context.storage, context.settings
    with table_lock(storage, settings.lock, wait_seconds=settings.lock_wait_seconds, table=context.config.name):
        config, now = load_table_config(storage), load_timeline(storage, context.config)
        seen = {mended_by, *(i.time for i in checked.commits)}
        if not now.commits or any(i.time not in seen for i in now.commits):
            return
        if config.repeats_keys or has_unchecked_inserts(now, config.keys_checked_until):
            last = completed_at(now.listed.commits_by_completion[-1])
            update_table_config(storage, {INDEX_REPEATED: None, INDEX_CHECKED: last})


def _metadata(storage: Storage, *, mends: bool) -> RepairPart:
    if not load_table_config(storage).metadata_partitions:
        return RepairPart("metadata", note="the table has no metadata table")
    try:
        differences = repair_metadata(storage).differences if mends else verify(storage).differences
    except LakebedError as error:
        if mends:
            raise
        return RepairPart("metadata", (error.message,))
    rows = differences.select([f.name for f in DIFFERENCES]).to_pylist()
    about_indexes = [row for row in rows if row["problem"] != "repeated"]
    texts = tuple(f"{row['index']}: {row['problem']} {row['what']}" for row in about_indexes)
    return RepairPart("metadata", texts, mended=mends and bool(texts))

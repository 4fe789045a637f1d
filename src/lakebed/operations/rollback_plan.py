"""What a rollback of a write deletes and hides: the files that the write's markers name, or, where it completed, its
write stats, and those that have its instant in their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from lakebed.concurrency.markers import list_markers
from lakebed.errors import CorruptFile
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.model import Action, Instant, LogFile, State, has_completion_times
from lakebed.policies.rollback import files_of_instant, is_log_path, plan_rollback_by_paths
from lakebed.slices.listing import list_table
from lakebed.storage.base import Storage
from lakebed.timeline.bodies.rollback import RollbackPlan
from lakebed.timeline.timeline import Timeline

# The actions that a clustering has on the timeline: of version 8 on, and before.
CLUSTERS = (Action.CLUSTERING, Action.REPLACECOMMIT)


def plan_rollback(storage: Storage, timeline: Timeline, target: Instant, *, with_plan: bool = False) -> RollbackPlan:
    """The rollback of a write. For a pending write it names the files that it may have left: by markers, or by name if
    there is no marker folder. For a completed write it names the files that it wrote."""
    if target.is_completed:
        return _plan_by_stats(storage, timeline, target)
    if with_plan and target.action is Action.COMPACTION and not has_completion_times(timeline.config.version):
        # writers to the slice that it began were rolled back before it
        return RollbackPlan(target, tuple(files_named(storage, target.time)))
    markers = list_markers(storage, target.time)
    if timeline.is_pending_clustering(target):
        # concurrent writes may have named log files after it: these stay as long as its plan stays
        named = files_named(storage, target.time, logs=with_plan)
        return plan_by_paths(timeline, target, [*(marker.path for marker in markers), *named], [])
    # a compaction's instant is also in the names of log files of version 6 that others write meanwhile
    if markers or target.state is State.REQUESTED or target.action is Action.COMPACTION:
        appended = [marker.path for marker in markers if marker.kind == "APPEND"]
        return plan_by_paths(timeline, target, [marker.path for marker in markers], appended)
    return RollbackPlan(target, tuple(files_named(storage, target.time)))


def _plan_by_stats(storage: Storage, timeline: Timeline, target: Instant) -> RollbackPlan:
    """The rollback by the write stats: the files that they name, and files of lost task attempts in the same file
    groups; only files that the target wrote."""
    metadata = timeline.commit_metadata(target)
    listing = list_table(storage, set(metadata.stats))
    named = [file.path for file in files_of_instant((*listing.base_files, *listing.log_files), target.time)]
    logs = [path for path in metadata.paths if is_log_path(path)]
    return plan_by_paths(timeline, target, [*metadata.paths, *named], logs)


def plan_by_paths(timeline: Timeline, target: Instant, paths: Collection[str], logs: Collection[str]) -> RollbackPlan:
    """The rollback of a write whose markers, stats or earlier plan name these files; `logs` are log files to which it
    may have appended."""
    resizes = _others_that_name_logs(timeline, target.time, paths, logs)
    return plan_rollback_by_paths(target, paths, logs, resizes=resizes)


def _others_that_name_logs(timeline: Timeline, target: str, paths: Iterable[str], appended: Iterable[str]) -> set[str]:
    """The instants, other than the target's, in the names of log files that only the target wrote and that are to be
    deleted. `paths` are all files that its markers or stats name, `appended` those to which it may have appended.

    | version | a log file is named after | others that name log files of the target alone |
    |---|---|---|
    | 8, 9 | its writer | a clustering during which the target wrote, which may be archived or taken off the timeline |
    | 6 | its slice | a clustering that is pending or was taken off; a slice that was undone |
    """
    logs = [log for path in paths if (log := _parse_log(path)) is not None]
    times = {i.time for i in timeline.instants}
    unknown = {log.instant for log in logs if log.instant < target and log.instant not in times}
    if has_completion_times(timeline.config.version):
        other_instants = {i.time for i in timeline.instants if i.action in CLUSTERS and i.time < target}
        with suppress(CorruptFile):  # a damaged archive does not stop a rollback
            other_instants |= {time for time in unknown if timeline.is_taken_off(time)}
            if unknown:
                other_instants |= {
                    i.time for i in timeline.archived().instants if i.time in unknown and i.action in CLUSTERS
                }
        return other_instants
    other_instants = {i.time for i in timeline.pending if timeline.is_pending_clustering(i)}
    # in a slice that was taken back, log files left alone would become the newest slice of their file group
    slices = {log.instant for path in appended if (log := _parse_log(path)) is not None}
    other_instants |= {instant for instant in slices if not timeline.begins_slices(instant)}
    if unknown:
        unknown -= _of_slices_with_base_file(timeline.storage, [log for log in logs if log.instant in unknown])
    with suppress(CorruptFile):
        other_instants |= {time for time in unknown if timeline.is_taken_off(time)}
    return other_instants


def _parse_log(path: str) -> LogFile | None:
    folder, _, name = path.rpartition("/")
    return parse_log_file(folder, name, 0)


def _of_slices_with_base_file(storage: Storage, logs: Sequence[LogFile]) -> set[str]:
    """The instants of those log files whose slice has a base file."""
    names = {folder: storage.list_names(folder) for folder in {log.partition for log in logs}}
    bases = {
        (base.partition, base.file_id, base.instant)
        for folder, folder_names in names.items()
        for name in folder_names
        if (base := parse_base_file(folder, name, 0)) is not None
    }
    return {log.instant for log in logs if (log.partition, log.file_id, log.instant) in bases}


def files_named(storage: Storage, instant: str, *, logs: bool = True) -> list[str]:
    """The data files with the instant in their name (without `logs` only base files); lists the whole table."""
    listing = list_table(storage)
    return sorted(file.path for file in files_of_instant((*listing.base_files, *listing.log_files), instant, logs=logs))

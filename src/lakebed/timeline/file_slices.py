"""From listed files to file slices: pure functions over names and a timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lakebed.model import BaseFile, FileSlice, LogFile


@dataclass(slots=True)
class GroupFiles:
    """All files of one file group, whatever their state."""

    base: list[BaseFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)


def by_group(base: Iterable[BaseFile], logs: Iterable[LogFile]) -> dict[tuple[str, str], GroupFiles]:
    groups: dict[tuple[str, str], GroupFiles] = defaultdict(GroupFiles)
    for b in base:
        groups[b.partition, b.file_id].base.append(b)
    for log in logs:
        groups[log.partition, log.file_id].logs.append(log)
    return dict(groups)


def log_order(log: LogFile) -> tuple[str, int, str, bool]:
    """Merge order of a slice's log files: instant, version, then the write token as text, as Hudi has it: `10-0-1` is
    before `2-0-1`."""
    return log.instant, log.version, log.write_token, log.is_cdc


def slice_key(version: int, keys: Iterable[str], log_instant: str, completed: str | None) -> str:
    """The base instant of the slice that a log file belongs to.

    From version 8 on a log belongs to the newest slice that started no later than the log's commit completed; before,
    the instant in its name is the slice's own.
    """
    ordered = sorted(keys, reverse=True)
    if not ordered or version < 8:
        return log_instant
    if completed is None:
        return ordered[0]
    return next((k for k in ordered if completed >= k), log_instant)


def latest_slice(
    partition: str,
    file_id: str,
    files: GroupFiles,
    *,
    version: int,
    is_visible: Callable[[str], bool],
    is_named: Callable[[BaseFile], bool],
    completion_time: Callable[[str], str | None],
    pending_compactions: Mapping[tuple[str, str], str],
) -> FileSlice | None:
    """The newest slice of a file group that a snapshot shows, or None.

    `is_visible(instant)` says whether the instant's files count, `is_named(base_file)` whether its write stats name the
    file (what a lost task attempt left is not named). A pending compaction hides nothing: its slice is merged
    with the one before.
    """
    pending = pending_compactions.get((partition, file_id))
    by_time = sorted(files.base, key=lambda b: b.instant)
    if not files.logs and pending is None:  # of many versions of a file only the newest is looked at
        for b in reversed(by_time):
            if is_visible(b.instant) and is_named(b):
                return FileSlice(partition, file_id, b.instant, b)
        return None
    base = {b.instant: b for b in by_time if is_visible(b.instant) and is_named(b)}
    keys = set(base) | ({pending} if pending else set())
    logs: dict[str, list[LogFile]] = defaultdict(list)
    for log in sorted(files.logs, key=log_order):
        if log.is_cdc or (version >= 8 and not is_visible(log.instant)):
            continue
        key = slice_key(version, keys, log.instant, completion_time(log.instant))
        keys.add(key)
        logs[key].append(log)
    # below version 8 a log carries its base instant, which may be that of a log-only group
    shown = sorted((k for k in keys if k in base or logs.get(k) or k == pending), reverse=True)
    if not shown:
        return None
    newest = shown[0]
    chosen = list(logs.get(newest, []))
    if newest == pending and newest not in base:
        if len(shown) > 1:
            chosen = logs.get(shown[1], []) + chosen
            newest = shown[1]
        elif not chosen:
            return None
    return FileSlice(partition, file_id, newest, base.get(newest), tuple(sorted(chosen, key=log_order)))

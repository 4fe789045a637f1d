"""Instants and file slices for tables of cases, written in a few letters."""

from __future__ import annotations

from lakebed.model import Action, BaseFile, FileSlice, Instant, LogFile, State
from lakebed.timeline.file_slices import GroupSlices, SliceFiles

ACTIONS = {
    "d": Action.DELTACOMMIT,
    "c": Action.COMMIT,
    "r": Action.REPLACECOMMIT,
    "clean": Action.CLEAN,
    "rollback": Action.ROLLBACK,
    "compaction": Action.COMPACTION,
    "clustering": Action.CLUSTERING,
}


def completed(words: str) -> list[Instant]:
    """Completed instants: `d01` a delta commit, `c02>05` a commit that completed at 05, `clean:03` another action."""
    return [_instant(word, State.COMPLETED) for word in words.split()]


def pending(words: str) -> list[Instant]:
    """The same, but requested."""
    return [_instant(word, State.REQUESTED) for word in words.split()]


def _instant(word: str, state: State) -> Instant:
    action, _, time = word.partition(":") if ":" in word else (word[0], "", word[1:])
    time, _, completion = time.partition(">")
    return Instant(time, ACTIONS[action], state, (completion or time) if state is State.COMPLETED else None)


def times(instants: object) -> str:
    """The requested times of instants, in one text."""
    return " ".join(instant.time for instant in instants)  # type: ignore[attr-defined]


def base_file(group: str, instant: str, *, partition: str = "p", size: int = 0, token: str = "0-1-0") -> BaseFile:
    return BaseFile(partition, group, token, instant, f"{group}_{token}_{instant}.parquet", size)


def log_file(group: str, instant: str, number: int = 1, *, partition: str = "p", size: int = 0) -> LogFile:
    name = f".{group}_{instant}.log.{number}_0-1-0"
    return LogFile(partition, group, instant, number, "0-1-0", name, size)


def file_slice(
    group: str, instant: str, *, partition: str = "p", base: int | None = None, logs: dict[str, int] | None = None
) -> FileSlice:
    """A slice with a base file of so many bytes and log files of these instants, each of so many bytes."""
    base_at = None if base is None else base_file(group, instant, partition=partition, size=base)
    log_files = tuple(log_file(group, at, partition=partition, size=size) for at, size in (logs or {}).items())
    return FileSlice(partition, group, instant, base_at, log_files)


def group_of(group: str, words: str, *, partition: str = "p") -> GroupSlices:
    """A file group with slices oldest first: `01` a base file, `02+2` one with two log files, `03+1-` a log alone."""
    slices: list[SliceFiles] = []
    for word in words.split():
        instant, _, count = word.removesuffix("-").partition("+")
        base = () if word.endswith("-") else (base_file(group, instant, partition=partition),)
        logs = tuple(log_file(group, instant, n + 1, partition=partition) for n in range(int(count or 0)))
        slices.append(SliceFiles(instant, base, logs))
    return GroupSlices(partition, group, tuple(slices))

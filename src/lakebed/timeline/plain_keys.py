"""A note in a commit about the key texts of all files of its table, so that readers need no footers for it.

`lakebed.expressions.plain_keys` explains why key texts matter. The newest commit with a note describes every file that
was committed before it, and its own files, except those that the note names. A note stays true, since files do not
change. It says nothing about files that other writers committed meanwhile or later. Real Hudi keeps notes and writes
none: its files are recognised by instants that no note covers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.model import CommitMetadata, FileSlice, Instant, LogFile
from lakebed.timeline.timeline import Timeline
from lakebed.write_status import WriteStatus

PLAIN_KEYS_NOTE = "lakebed.plain.keys"
"""The key in a commit's extra metadata."""

# How many commits a note may look back for the note before it, and how many files it may name.
LOOKS_BACK = 10
MAX_NAMES = 128


@dataclass(frozen=True, slots=True)
class KeysNote:
    """A record that no text of `fields` can be misread in the files of instants from `since` on, up to `instant`,
    except in the files named in `but`.

    `pending` are earlier instants that had not completed: they are not covered. `beyond` are later ones that had
    completed: they are covered.
    """

    instant: str
    version: int
    fields: tuple[str, ...]
    since: str
    but: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    beyond: frozenset[str] = frozenset()

    def covers(self, instant: str) -> bool:
        """Whether the note covers the files of an instant."""
        if instant < self.since:
            return False
        if instant > self.instant:
            return instant in self.beyond
        return instant not in self.pending

    def to_json(self) -> str:
        """The note as the text that commit metadata stores."""
        sets = {name: sorted(getattr(self, name)) for name in _SETS if getattr(self, name)}
        values = {"instant": self.instant, "version": self.version, "fields": list(self.fields), "since": self.since}
        return json.dumps({**values, **sets}, separators=(",", ":"))


_SETS = ("but", "pending", "beyond")


def note_of(commit: CommitMetadata, instant: str, version: int) -> KeysNote | None:
    """The note of a commit; None if it does not have one, if another commit made it, or if it cannot be parsed."""
    try:
        note: Any = json.loads(commit.extra.get(PLAIN_KEYS_NOTE) or "null")
        if not note or (note["instant"], note["version"]) != (instant, version):
            return None
        sets = {name: frozenset(map(str, note.get(name, ()))) for name in _SETS}
        return KeysNote(instant, version, tuple(note["fields"]), str(note["since"]), **sets)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def newest_note(timeline: Timeline, commits: Sequence[Instant]) -> KeysNote | None:
    """The note of the newest of these commits (a view's, in requested order) that has one which is valid for the view;
    None if there is none.

    A note that covers a commit which the view does not show is not valid for it: it may leave out files that the view
    shows.
    """
    start = timeline.start or ""
    newest = [i for i in reversed(commits) if i.time >= start][:LOOKS_BACK]
    commit_times = {i.time for i in commits}
    for commit_part in (newest[:1], newest[1:]):  # usually the first one has it
        for instant, commit in zip(commit_part, timeline.commits_metadata(commit_part), strict=True):
            note = note_of(commit, instant.time, timeline.config.version)
            if note is not None and note.beyond <= commit_times:
                return note
    return None


@dataclass(frozen=True, slots=True)
class WrittenKeys:
    """The key-related files of a commit: the names of its files whose keys may be misread, and those that no reader
    needs after it."""

    misread: frozenset[str]
    superseded: frozenset[str]
    replaced: frozenset[str]


def next_note(timeline: Timeline, instant: str, fields: Sequence[str], written: WrittenKeys) -> KeysNote | None:
    """The note of a commit that is about to complete on this timeline; None if it would name too many files."""
    other_commits = tuple(i for i in timeline.commits if i.time != instant)
    pending = frozenset(i.time for i in timeline.pending if i.time < instant)
    before = newest_note(timeline, other_commits)
    note = None
    if before is not None and before.fields == tuple(fields):
        note = _following(timeline, before, other_commits, instant, pending, written)
    if note is None:
        # earlier files are unknown
        note = KeysNote(instant, timeline.config.version, tuple(fields), instant, written.misread, pending)
    return note if len(note.but) <= MAX_NAMES else None


def _following(
    timeline: Timeline,
    before: KeysNote,
    others: Sequence[Instant],
    instant: str,
    pending: frozenset[str],
    written: WrittenKeys,
) -> KeysNote | None:
    """The note that continues the previous one; None if there were too many commits in between."""
    unknown = [i for i in others if i.time >= before.since and not before.covers(i.time)]
    if len(unknown) > LOOKS_BACK:
        return None
    but = set(before.but)
    for other_instant, commit in zip(unknown, timeline.commits_metadata(unknown), strict=True):
        note = note_of(commit, other_instant.time, timeline.config.version)
        names = _names(s.path for stats in commit.stats.values() for s in stats)
        but |= names if note is None or note.fields != before.fields else names & note.but
    but = {name for name in but if name not in written.superseded and not _is_of(name, written.replaced)}
    # whether a pending instant that is missing now was undone or archived is not known
    commit_times = {i.time for i in others}
    missing = {time for time in before.pending if time not in commit_times and time < (timeline.start or "")}
    but |= written.misread
    pending |= {time for time in missing if time < instant}
    if max(len(but), len(pending)) > MAX_NAMES:
        return None
    beyond = frozenset(i.time for i in others if i.time > instant)
    return KeysNote(instant, before.version, before.fields, before.since, frozenset(but), pending, beyond)


def _names(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[2] for path in paths if path}


def _is_of(name: str, file_ids: Collection[str]) -> bool:
    """Whether a file with this name belongs to one of the file groups."""
    return name.lstrip(".").partition("_")[0] in file_ids


@dataclass(frozen=True, slots=True)
class CoveredSlices:
    """The decision for each file slice of a view whether none of its keys can be misread. Only slices that a note
    covers are decided."""

    note: KeysNote
    logs: bool
    """Whether the note is valid for log files."""

    @classmethod
    def of(
        cls, timeline: Timeline, commits: Sequence[Instant], fields: Collection[str], *, logs_by_name: bool
    ) -> CoveredSlices | None:
        """The newest note of a view about these fields; None if there is none.

        `logs_by_name`: the names of log files have the instants that wrote them. Else any commit that the note does not
        cover may have written to any of them.
        """
        note = newest_note(timeline, commits)
        if note is None or not set(fields) <= set(note.fields):
            return None
        if logs_by_name:
            return cls(note, logs=True)
        commit_times, waiting = {i.time for i in commits}, {i.time for i in timeline.pending}
        has_missing = any(time not in commit_times and time not in waiting for time in note.pending)
        return cls(note, not has_missing and all(i.time < note.since or note.covers(i.time) for i in commits))

    def has(self, file_slice: FileSlice) -> bool:
        """Whether the note covers every file of a slice."""
        base, logs = file_slice.base_file, file_slice.log_files
        return (base is None or self._has(base.instant, base.name)) and self.has_logs(logs)

    def has_logs(self, logs: Iterable[LogFile]) -> bool:
        """Whether the note covers these log files."""
        return all(self.logs and self._has(log.instant, log.name) for log in logs)

    def _has(self, instant: str, name: str) -> bool:
        return self.note.covers(instant) and name not in self.note.but


def note_keys(
    timeline: Timeline,
    instant: str,
    fields: Sequence[str],
    metadata: CommitMetadata,
    statuses: Sequence[WriteStatus],
    merged: Collection[str] = (),
) -> None:
    """Write the note about the key `fields` into the body of a commit that is about to complete on this timeline.

    `merged` are the names of files that it replaces, in addition to those that its statuses name.
    """
    plain = {status.path for status in statuses if status.plain_keys}
    stats = [stat for group in metadata.stats.values() for stat in group]
    written = WrittenKeys(
        misread=frozenset(_name(s.path) for s in stats if s.path not in plain),
        superseded=frozenset([*merged, *(_name(s.prev_base_file or "") for s in stats)]),
        replaced=frozenset(file_id for ids in metadata.replaced.values() for file_id in ids),
    )
    note = next_note(timeline, instant, fields, written)
    if note is not None:
        metadata.extra[PLAIN_KEYS_NOTE] = note.to_json()


def _name(path: str) -> str:
    return path.rpartition("/")[2]

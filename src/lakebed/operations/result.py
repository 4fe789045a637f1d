"""What a write gives back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakebed.index.base import KeyLookup
from lakebed.model import Instant, LogWeight
from lakebed.wording import Printed, count_text, rows_html, size_text, text_html
from lakebed.write_status import WriteStatus

# What a row is whose key was not looked up, by operation.
_BLIND = {
    "upsert": "row upserted",
    "insert": "row inserted",
    "bulk_insert": "row inserted",
    "delete": "delete",
    "merge": "row merged",
}
_NOT_COUNTED = 'duplicates: not looked up; options={"lakebed.insert.count.duplicates": True} counts rows of stored keys'
# What differs between parts of the rows of a write.
_OF_ROWS = ("rows", "inserted", "updated", "deleted", "unchanged", "combined", "files", "bytes")

# The counts of a status that are summed.
_SUMMED = (
    "rows_in",
    "num_inserts",
    "num_updates",
    "num_deletes",
    "num_unchanged",
    "num_combined",
    "num_blind_rows",
    "num_blind_deletes",
)


@dataclass(frozen=True, repr=False)
class WriteResult(Printed):
    """The outcome of one committed write. Prints in a line.

    `instant` is its requested time, `checkpoint` the argument for the next `changes(start=...)`. Counts are rows.
    `rows` counts all incoming rows; where an upsert looks up a key that is stored several times, each of its stored
    rows counts. `inserted` are rows of new keys, and all that an insert adds, `updated` rows that were written for a
    stored key, `deleted` the stored rows that went. `unchanged` are incoming rows that were not written, since they
    change nothing: a delete of a key that the table lacks, a row with an older ordering value than the stored one, and
    a row of a stored key where an insert takes new keys only.
    `combined` are incoming rows that were merged into another incoming row of their key. `inserted`, `updated` and
    `deleted` are None where the write did not look whether keys are stored: it appended to log files of existing
    buckets. A row that moves to another partition path is one updated row. Log files take a row without a look at the
    values of the stored one: there a row with an older ordering value is written, and counts as `updated`, though
    readers see the stored one. With `lakebed.write.skip.unchanged` an upsert compares, and no such row is written;
    `unchanged` counts the rows that equal the stored ones, too, and no count is None.
    `replaced_rows` are the rows of the file groups that overwrites and deletes of partitions replaced, None where one
    of their files cannot be read. `bytes` is the size of the files written.

    `seconds` has the time of each stage: "begin", "metadata" (missing indexes of the metadata table are built), "tag"
    (the index places the rows, file groups are assigned), "write", "staged" (from there to the commit of `t.stage()`),
    "commit". `services` has a line for each table service that was due after the write, `schema_changes` one for each
    column that was added or changed, `bucket_changes` one for each partition path whose buckets the write split.
    `duplicates` are the rows of an insert whose key is stored another time, in the table or by the same insert. It is 0
    for writes that look keys up. Inserts under a record index know it where no key was stored twice before; others look
    where few stored keys have to be read for it, and always with `lakebed.insert.count.duplicates=true`. None is not
    looked up, as for bulk inserts.
    `retries` counts earlier runs, which lost against concurrent writes. `lookup` has the index's counts: keys looked up
    and found, file slices ruled out and read, files opened, bytes. It is None where no key was looked up: for a plain
    or bulk insert, and for rows that were found by a condition or by their keys alone. `dry_run` is whether nothing was
    written: the counts are what the write would do, `instant` and `checkpoint` are empty. `skipped` is whether nothing
    was written because the table has the batch named by `once=`: `instant` is the commit that has it, empty where no
    commit is left that does. `joined` is how many upserts of this process the commit has
    (`lakebed.write.group.commit`). Where it has others, the counts of rows are those of this upsert, `files` and
    `bytes` those of the file groups that its rows went to, and the times, `lookup` and the lines of text are those of
    the commit; the upsert that ran the table services has their lines. `quarantined` rows broke a check of the table
    and went to `t.rejects` instead; `broken_checks` has the number of rows that broke each check that does not stop a
    write. `log_weights` is what the log files of the file slices weigh that the commit appended to.

    >>> import lakebed, pyarrow as pa
    >>> rows = pa.table({"id": [1, 2], "at": [1, 1]})
    >>> result = lakebed.create("memory://docs/results", rows, key="id").upsert(rows)
    >>> result.rows, result.inserted, result.updated, result.retries
    (2, 2, 0, 0)
    """

    instant: str
    checkpoint: str
    operation: str
    rows: int = 0
    inserted: int | None = 0
    updated: int | None = 0
    deleted: int | None = 0
    unchanged: int = 0
    combined: int = 0
    duplicates: int | None = 0
    files: tuple[str, ...] = ()
    bytes: int = 0
    replaced_file_groups: int = 0
    replaced_rows: int | None = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    rolled_back: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    schema_changes: tuple[str, ...] = ()
    bucket_changes: tuple[str, ...] = ()
    retries: int = 0
    lookup: KeyLookup | None = None
    dry_run: bool = False
    skipped: bool = False
    joined: int = 1
    quarantined: int = 0
    broken_checks: Mapping[str, int] = field(default_factory=dict)
    log_weights: tuple[LogWeight, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of_written(cls, instant: Instant | None, operation: str) -> WriteResult:
        """The result of a write that was skipped, because the commit `instant` has its batch (None: an unknown
        commit)."""
        if instant is None:
            return cls("", "", operation, skipped=True)
        return cls(instant.time, instant.completion_time or instant.time, operation, skipped=True)

    @classmethod
    def of(
        cls,
        instant: str,
        checkpoint: str,
        operation: str,
        statuses: Sequence[WriteStatus],
        moved: int = 0,
        **more: Any,
    ) -> WriteResult:
        """The result of a write from its statuses. `moved` rows only deleted a key at its old location, because it
        moved."""
        total = dict.fromkeys(_SUMMED, 0)
        for status in statuses:
            for name in _SUMMED:
                total[name] += getattr(status, name)
        written = [s for s in statuses if s.path is not None]
        inserted, deleted = total["num_inserts"], total["num_deletes"]
        # a key that left several places is inserted once
        updated = min(moved, inserted, deleted)
        blind_rows, blind_deletes = total["num_blind_rows"] > 0, total["num_blind_deletes"] > 0
        return cls(
            instant=instant,
            checkpoint=checkpoint,
            operation=operation,
            rows=total["rows_in"] - moved,
            inserted=None if blind_rows else inserted - updated,
            updated=None if blind_rows else total["num_updates"] + updated,
            deleted=None if blind_deletes else deleted - updated,
            unchanged=total["num_unchanged"],
            combined=total["num_combined"],
            files=tuple([s.path or "" for s in written]),
            bytes=sum([s.file_size for s in written]),
            log_weights=tuple([weight for s in written if (weight := s.weight()) is not None]),
            **more,
        )

    def reduced_to(self, statuses: Sequence[WriteStatus], moved: int) -> WriteResult:
        """The result of a part of the rows, which these `statuses` are about."""
        part = WriteResult.of(self.instant, self.checkpoint, self.operation, statuses, moved)
        return replace(self, **{name: getattr(part, name) for name in _OF_ROWS})

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {
            "instant": self.instant,
            "checkpoint": self.checkpoint,
            "operation": self.operation,
            "rows": self.rows,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "unchanged": self.unchanged,
            "combined": self.combined,
            "duplicates": self.duplicates,
            "files": list(self.files),
            "bytes": self.bytes,
            "replaced_file_groups": self.replaced_file_groups,
            "replaced_rows": self.replaced_rows,
            "seconds": {k: round(v, 4) for k, v in self.seconds.items()},
            "rolled_back": list(self.rolled_back),
            "services": list(self.services),
            "schema_changes": list(self.schema_changes),
            "bucket_changes": list(self.bucket_changes),
            "retries": self.retries,
            "lookup": self.lookup.to_dict() if self.lookup else None,
            "dry_run": self.dry_run,
            "skipped": self.skipped,
            "joined": self.joined,
            "quarantined": self.quarantined,
            "broken_checks": dict(self.broken_checks),
        }

    def __str__(self) -> str:
        counts = ", ".join(self._counts())
        took = sum(self.seconds.values())
        size = f"{count_text(len(self.files), 'file')}, {size_text(self.bytes)}"
        rows_text = "" if self.replaced_rows is None else f" with {count_text(self.replaced_rows, 'row')}"
        replaced = (
            f", {count_text(self.replaced_file_groups, 'file group')}{rows_text} replaced"
            if self.replaced_file_groups
            else ""
        )
        again = f", run {self.retries + 1} times" if self.retries else ""
        again += f", one commit with {count_text(self.joined - 1, 'other upsert')}" if self.joined > 1 else ""
        nothing = "no rows written" if self.replaced_file_groups else "no rows changed"
        if self.skipped:
            return f"{self.operation}: skipped, the batch is written{f' by {self.instant}' if self.instant else ''}"
        if self.dry_run:
            if self.replaced_file_groups:
                return f"{self.operation}, dry run: would replace{replaced.removeprefix(',').removesuffix(' replaced')}"
            return f"{self.operation}, dry run: {count_text(self.deleted or 0, 'row')} would be deleted"
        if not self.instant:
            line = f"{self.operation}: {counts or nothing}, so there is no commit ({took:.2f} s{again})"
            return "\n".join([line, *self._notes()])
        line = f"{self.operation} {self.instant}: {counts or nothing} ({size}{replaced}, {took:.2f} s{again})"
        lookup = [str(self.lookup)] if self.lookup and self.lookup.files else []
        return "\n".join([line, *lookup, *self._notes()])

    def _counts(self) -> list[str]:
        counts = [(self.inserted, "inserted"), (self.updated, "updated"), (self.deleted, "deleted")]
        if any(n is None for n, _ in counts):
            n = self.rows - self.unchanged - self.combined
            noun, _, word = _BLIND.get(self.operation, "row written").partition(" ")
            counts = [(n, f"{noun if n == 1 else noun + 's'} {word}".strip())]
        counts += [(self.unchanged, "unchanged"), (self.combined, "combined with others of their key")]
        counts += [(self.duplicates or 0, "with a key that is stored another time")]
        return [f"{n:,} {word}" for n, word in counts if n]

    def _notes(self) -> list[str]:
        """Notes about further effects of the write, such as columns that it added."""
        rolled_back = [f"rolled back {instant}, which had not completed" for instant in self.rolled_back]
        is_blind = self.duplicates is None and self.operation == "insert"
        duplicates = [_NOT_COUNTED] if is_blind else []
        broken = [f"{count_text(rows, 'row')} broke the check {name}" for name, rows in self.broken_checks.items()]
        broken += [f"quarantined: {count_text(self.quarantined, 'row')}, in t.rejects"] if self.quarantined else []
        return [*duplicates, *broken, *self.schema_changes, *self.bucket_changes, *rolled_back, *self.services]

    def _repr_html_(self) -> str:
        cells = {
            "instant": self.instant,
            "operation": self.operation,
            "rows": f"{self.rows:,}",
            **{
                name: "not looked up" if n is None else f"{n:,}"
                for name, n in (("inserted", self.inserted), ("updated", self.updated), ("deleted", self.deleted))
            },
            "unchanged": f"{self.unchanged:,}",
            **({"duplicates": "not looked up"} if self.duplicates is None else {}),
            **({"duplicates": f"{self.duplicates:,}"} if self.duplicates else {}),
            "files": str(len(self.files)),
            "size": size_text(self.bytes),
            "seconds": f"{sum(self.seconds.values()):.2f}",
        }
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in self.seconds.items())
        return rows_html(cells, [cells.values()]) + text_html(
            "\n".join([*self._notes(), *([stages] if stages else [])])
        )


@dataclass
class StageTimes:
    """The seconds of each stage of a write, in order."""

    seconds: dict[str, float] = field(default_factory=dict)
    _last: float = field(default_factory=time.monotonic)

    def mark(self, stage: str) -> None:
        """End a stage: it gets the time since the last mark."""
        now = time.monotonic()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

"""Every error lakebed raises on purpose: one base, one class per thing a caller can do about it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, ClassVar

from lakebed.secrets import masked_text

# First words of a sentence that are not capitalised: commands and names.
_NAMES = frozenset({"pip", "lakebed", "lakebed's"})


def _sentence(text: str) -> str:
    """A hint as a sentence. A hint that ends in a command to copy gets no full stop."""
    first = text.partition(" ")[0].rstrip(",:;")
    if first.isalpha() and first.islower() and first not in _NAMES:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) or not text or "pip install" in text else f"{text}."


class LakebedError(Exception):
    """The base of all errors of lakebed.

    `message` is what was wrong and where, `hint` what to do about it, `context` holds the same facts for programs.

    >>> str(LakebedError("table is locked", hint="try again in a minute", context={"uri": "/t"}))
    'table is locked. Try again in a minute.'
    """

    retryable: bool = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "", context: dict[str, Any] | None = None) -> None:
        self.message = masked_text(message)  # it may quote what a service or a driver said
        super().__init__(self.message)
        self.hint = _sentence(masked_text(hint))
        self.context: dict[str, Any] = {
            key: masked_text(v) if isinstance(v, str) else v for key, v in (context or {}).items()
        }
        # stored in the context, so that it crosses process borders with the error
        self.retryable = bool(self.context.get("retryable", type(self).retryable))

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message.rstrip('.')}. {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.hint, self.context))

    def to_json(self) -> str:
        """The error as a text with which it crosses a process border; `from_json` rebuilds the error."""
        return json.dumps(
            {"type": type(self).__name__, "message": self.message, "hint": self.hint, "context": self.context},
            default=str,
        )


class TableNotFound(LakebedError):
    """There is no table at this URI (no `.hoodie/hoodie.properties`).

    Check the URI, and that the storage options name the right account: `lakebed.list_tables(folder)` lists the tables
    below a folder. `lakebed.create` makes an empty table, `lakebed.load` one with rows. A folder of Delta Lake,
    Iceberg or Parquet files becomes a table by `lakebed.convert`. If `hoodie.properties` is damaged, run
    `lakebed.maintenance.repair(uri)`.
    """

    exit_code = 3


class TableExists(LakebedError):
    """`create` found a table at this URI.

    Open it with `lakebed.open`, or name another URI. `lakebed.write(data, uri, options, mode="overwrite")` replaces
    the table, `lakebed.drop(uri)` deletes it. Where the folder holds other files the message names them; move them,
    or pass `allow_existing=True`.
    """

    exit_code = 4


class InvalidOption(LakebedError):
    """An option or argument does not exist, has a wrong value, or contradicts the table.

    The message names the option and the nearest one that exists. `lakebed options show NAME` describes an option,
    `lakebed options check FILE` gives a verdict on each option of a job, and `t.properties` shows what the table
    records. A setting that the table records is changed by `t.configure`.
    """

    exit_code = 5


class CheckpointBehind(InvalidOption):
    """A stream or consumer would continue with commits that are archived or cleaned. `context["checkpoint"]` is the
    first start from which every change can be read; it is empty if there is no such start.

    Read the table once as a whole, then go on from that checkpoint: `t.consumers.move(name, checkpoint)`, or a
    stream with a new checkpoint folder and `start`. A named consumer (`t.consume`) avoids the error: cleaning retains
    what the consumer has not read. For other readers set `hoodie.clean.commits.retained` higher than the commits they
    may be late.
    """


class UnsupportedFeature(LakebedError):
    """The table or the request uses a feature that lakebed does not have; nothing was changed.

    The hint names what to use instead, or the extra to install (`pip install 'lakebed[duckdb]'`). docs/features.md
    lists what is read and written. `lakebed describe URI` shows the features of a table.
    """

    exit_code = 6


class SchemaConflict(LakebedError):
    """The data's schema does not fit the table's; nothing was written.

    Compare `t.schema` with the schema of the data. Cast the column that the message names, or change the table:
    `t.columns.widen`, `t.columns.add`, `t.columns.rename`. Columns that the data lack are filled with null under
    `options={"hoodie.write.set.null.for.missing.columns": True}`.
    """

    exit_code = 7


class InvalidRecord(LakebedError):
    """A row cannot be written (null key, null ordering value, ...); nothing was committed.

    The message names the column and the first such row. Correct the rows, or filter them out before the write. A null
    ordering value is accepted under `lakebed.write.null.ordering=lowest`. An ingest job puts such rows into a table
    of errors (`[errors] table = ...`) and goes on.
    """

    exit_code = 8


class AmbiguousMerge(InvalidRecord):
    """Several source rows of a merge would change one stored row, or insert one key; nothing was committed.

    The message names the first key with several rows. Keep one source row for each key before the merge, for example
    the newest one by `row_number() OVER (PARTITION BY key ORDER BY ts DESC)` in the source query.
    """


class CheckFailed(InvalidRecord):
    """Rows break a check of the table; nothing of the write is visible.

    `checks` has the number of rows that break each check, `rows` the first of them with their positions in the data.
    Correct the rows, or leave them out. `t.checks` lists the checks; one that was added with
    `on_failure="quarantine"` puts such rows into `t.rejects` instead.
    """

    @property
    def checks(self) -> dict[str, int]:
        """The number of rows that break each check, by the check's name.

        >>> CheckFailed("2 rows break a check", context={"checks": {"positive": 2}}).checks
        {'positive': 2}
        """
        counts: dict[str, int] = self.context.get("checks", {})
        return {**counts}

    @property
    def conditions(self) -> dict[str, str]:
        """The condition of each check that rows break, by the check's name.

        >>> CheckFailed("1 row breaks a check", context={"conditions": {"positive": "fare >= 0"}}).conditions
        {'positive': 'fare >= 0'}
        """
        conditions: dict[str, str] = self.context.get("conditions", {})
        return {**conditions}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The first rows that break each check: "check" is its name, "row" has the row's values, and "position" is the
        row's number in the data, from 0, or None where tasks of Spark or a stream read the data.

        >>> CheckFailed("1 row breaks a check").rows
        []
        """
        rows: list[dict[str, Any]] = self.context.get("rows", [])
        return [*rows]


class ConflictKind(StrEnum):
    """The kinds of a `CommitConflict`.

    >>> ConflictKind("lock_lost") is ConflictKind.LOCK_LOST
    True
    """

    COMMITTED = "committed"
    """Another commit changed the same file groups or partition paths."""
    PLANNED = "planned"
    """A pending compaction or clustering has the same file groups."""
    KEY = "key"
    """Another writer inserted the same record key."""
    DELETE = "delete"
    """One writer deleted rows of a file group to which another one logged rows that lack columns."""
    SCHEMA = "schema"
    """Another writer changed the table's columns."""
    TABLE = "table"
    """The table's index or version was changed."""
    CHANGED = "changed"
    """The data of a plan has changed, or another process has already carried the plan out."""
    BUSY = "busy"
    """Another process has to finish first."""
    TAKEN_BACK = "taken_back"
    """Another process took this one for dead and undid its work, or took it over; or a commit that this one began from
    was undone."""
    LOCK_LOST = "lock_lost"
    """The table lock was lost, as in a process that was suspended for longer than the lock is valid."""


class CommitConflict(LakebedError):
    """Another writer committed to the same file groups first; nothing of this write is visible.

    Run the write again; `retries=3` on a write method does that. If it happens often, give the writers other
    partition paths or keys, let one process write, or use non-blocking writers (`hoodie.write.concurrency.mode`,
    docs/concurrency.md). `kind` is what it met, a `ConflictKind`.
    """

    retryable = True
    exit_code = 9

    def __init__(
        self,
        message: str,
        hint: str = "",
        context: dict[str, Any] | None = None,
        kind: ConflictKind = ConflictKind.COMMITTED,
    ) -> None:
        # stored in the context, so that it crosses process borders with the error
        super().__init__(message, hint, {"conflict": kind.value, **(context or {})})

    @property
    def kind(self) -> ConflictKind:
        """The kind of conflict that this write or service had.

        >>> CommitConflict("the lock was lost", kind=ConflictKind.LOCK_LOST).kind
        <ConflictKind.LOCK_LOST: 'lock_lost'>
        """
        return ConflictKind(self.context["conflict"])


class CommitStateUnknown(LakebedError):
    """Storage did not confirm the commit, and reading it back failed too. `instant` names the commit.

    Do not write again blindly: the rows may be there. When the storage answers, look for the instant in `lakebed
    timeline show URI`: completed, the write is done; otherwise the next write rolls it back, then run yours again. A
    write with `once=lakebed.Once(stream, batch)` may be run again at any time: it is skipped if the commit is there.
    """

    exit_code = 10

    def __init__(self, message: str, hint: str = "", context: dict[str, Any] | None = None, instant: str = "") -> None:
        super().__init__(message, hint, context)
        self.instant = instant or str(self.context.get("instant", ""))


class LockTimeout(LakebedError):
    """Another process held the table lock for too long.

    The message names the holder. Try again; raise `hoodie.write.lock.wait_time_ms` where commits of large tables take
    long. The lock of a dead process ends by itself after five minutes.
    """

    retryable = True
    exit_code = 11


class CorruptFile(LakebedError):
    """A file has damaged bytes; `context` has its `path` and, if it is known, the `offset` of the damage.

    Run `lakebed maintenance repair URI --dry-run` to see what can be repaired. A damaged metadata table is rebuilt by
    `lakebed indexes repair URI`; a base file is restored from a copy, or its commit is undone (docs/runbook.md). No
    read returns fewer rows instead.
    """

    exit_code = 12


class IndexInconsistent(LakebedError):
    """The index and the data disagree, e.g. two file groups of one bucket.

    Run `lakebed indexes verify URI`, then `lakebed indexes repair URI`. Keys that are stored twice are removed by
    `t.maintenance.repair(["duplicates"])`. A bucket table that another engine wrote with another number of buckets is
    recorded by `t.indexes.adopt`, or rebuilt by `t.indexes.use`.
    """

    exit_code = 13


class StorageError(LakebedError):
    """Storage failed or refused a request. `retryable` of the error is whether a repetition makes sense.

    Run `lakebed maintenance doctor URI`: it tries listing, reading and conditional writing with your credentials, and
    says which one is refused. Credentials are `storage_options` or the environment (docs/storage.md). Nothing of a
    write that ended so is visible.
    """

    exit_code = 14


class ErasureIncomplete(LakebedError):
    """An erasure left data of the rows in a file, or did not run on a table. `report` is the `ErasureReport`, `context`
    has its fields as plain values. Another `erase` of the same rows continues from there.

    `report` names each file that is left, the reason and what to do: wait for another writer, run a pending plan,
    delete a savepoint. Then call `erase` again with the same rows.
    """

    retryable = True
    exit_code = 15
    report: Any = None


class SourceError(LakebedError):
    """A source of an ingest job failed, refused, or lost data that the job has not read; or the rows of a write changed
    while they were written. Nothing was committed. `retryable` of the error is whether a repetition makes sense.

    Check that the broker, registry or database answers, and the credentials of the job. Where a topic's retention
    deleted messages that were not read, accept the gap with `on_data_loss = "earliest"`, or start elsewhere with
    `--checkpoint`.
    """

    exit_code = 16


class CatalogError(LakebedError):
    """A catalog did not answer, refused a request, or has another entry of that name. The table itself is unchanged.
    `retryable` of the error is whether a repetition makes sense.

    Check the catalog's address and credentials. Then run `lakebed catalogs register`, or commit again: both write the
    entry. An entry of another table has to be dropped or renamed by its owner; or register this table by another name.
    """

    exit_code = 17


class ValidationFailed(LakebedError):
    """A query of `hoodie.precommit.validators` does not hold with the rows of a write; nothing was committed.

    `context` has the query, what it expects and what it gives. Correct the rows, or the query.
    `t.stage()` shows the table with the rows before they are committed. Under
    `hoodie.precommit.validators.failure.policy=WARN_LOG` such a write is committed, with a warning.
    """

    exit_code = 19


def from_json(text: str) -> LakebedError:
    """The error that `LakebedError.to_json` wrote as this text."""
    fields = json.loads(text)
    cls = globals().get(fields["type"], LakebedError)
    return cls(fields["message"], fields["hint"], fields["context"])


class MissingAttribute(AttributeError):
    """An attribute that the package or an object lacks. Its text has what to write instead; it is made when it is read,
    since Python asks for attributes that nobody wrote."""

    def __init__(self, owner: str, name: str, attributes: Iterable[str]) -> None:
        super().__init__(owner, name=name)
        self._owner, self._name, self._attributes = owner, name, attributes

    def __str__(self) -> str:
        from lakebed.other_names import OF, instead_of

        instead = instead_of(self._name, OF[self._owner], self._attributes)
        return f"{self._owner} has no attribute {self._name!r}" + (f": {instead}" if instead else "")

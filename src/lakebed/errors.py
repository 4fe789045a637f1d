"""Every error lakebed raises on purpose: one base, one class per thing a caller can do about it."""

from __future__ import annotations

import json
from typing import Any, ClassVar

# What a sentence may begin with as it is: a command, and names that are never capitalised.
_NAMES = frozenset({"pip", "lakebed", "lakebed's"})


def _sentence(text: str) -> str:
    """A hint as a sentence; one that ends in a command to copy gets no full stop."""
    first = text.partition(" ")[0].rstrip(",:;")
    if first.isalpha() and first.islower() and first not in _NAMES:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) or not text or "pip install" in text else f"{text}."


class LakebedError(Exception):
    """Base of all lakebed errors.

    `message` is what was wrong and where, `hint` what to do about it, `context` holds the same facts for programs.

    >>> str(LakebedError("table is locked", hint="try again in a minute", context={"uri": "/t"}))
    'table is locked. Try again in a minute.'
    """

    retryable: bool = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "", context: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = _sentence(hint)
        self.context = context or {}
        # in the context, it crosses process borders with the error
        self.retryable = bool(self.context.get("retryable", type(self).retryable))

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message.rstrip('.')}. {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.hint, self.context))

    def to_json(self) -> str:
        """The error as text that crosses a process border; `from_json` gives the same error back."""
        return json.dumps(
            {"type": type(self).__name__, "message": self.message, "hint": self.hint, "context": self.context},
            default=str,
        )


class TableNotFound(LakebedError):
    """No table at this URI (no `.hoodie/hoodie.properties`)."""

    exit_code = 3


class TableExists(LakebedError):
    """`create` found a table at this URI."""

    exit_code = 4


class InvalidOption(LakebedError):
    """An option or argument that does not exist, has a wrong value, or contradicts the table."""

    exit_code = 5


class CheckpointBehind(InvalidOption):
    """A stream or consumer would go on from commits that are archived or cleaned. `context["checkpoint"]` is the first
    start from which every change can be read; empty where there is none."""


class UnsupportedFeature(LakebedError):
    """The table or the request uses something lakebed does not do; nothing was changed."""

    exit_code = 6


class SchemaConflict(LakebedError):
    """The data's schema does not fit the table's; nothing was written."""

    exit_code = 7


class InvalidRecord(LakebedError):
    """A row that cannot be written (null key, null ordering value, ...); nothing was committed."""

    exit_code = 8


class AmbiguousMerge(InvalidRecord):
    """Several source rows of a merge would change one stored row, or insert one key; nothing was committed."""


class CommitConflict(LakebedError):
    """Another writer committed to the same file groups first; nothing of this write is visible."""

    retryable = True
    exit_code = 9


class CommitStateUnknown(LakebedError):
    """Storage did not confirm the commit, and reading back failed too. `instant` names it."""

    exit_code = 10

    def __init__(self, message: str, hint: str = "", context: dict[str, Any] | None = None, instant: str = "") -> None:
        super().__init__(message, hint, context)
        self.instant = instant or str(self.context.get("instant", ""))


class LockTimeout(LakebedError):
    """Another process held the table lock for too long."""

    retryable = True
    exit_code = 11


class CorruptFile(LakebedError):
    """A file whose bytes are not what they should be; `context` has `path` and, where known, `offset`."""

    exit_code = 12


class IndexInconsistent(LakebedError):
    """The index and the data disagree, e.g. two file groups of one bucket."""

    exit_code = 13


class StorageError(LakebedError):
    """Storage failed or refused; `retryable` on the instance is whether trying again makes sense."""

    exit_code = 14


class ErasureIncomplete(LakebedError):
    """An erasure left something of the rows in a file, or did not run on a table. `report` is the `ErasureReport`,
    `context` has it as plain values. Another `erase` of the same rows goes on from there."""

    retryable = True
    exit_code = 15
    report: Any = None


class SourceError(LakebedError):
    """A source of an ingest job failed, refused, or lost data that the job has not read; nothing was committed.
    `retryable` on the instance is whether trying again makes sense."""

    exit_code = 16


def from_json(text: str) -> LakebedError:
    """Rebuild an error from `LakebedError.to_json`."""
    fields = json.loads(text)
    cls = globals().get(fields["type"], LakebedError)
    return cls(fields["message"], fields["hint"], fields["context"])

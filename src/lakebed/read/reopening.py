"""Reads of a table that changes meanwhile: one that finds a file missing looks at the table again, and continues.

Actions leave the timeline while others read it (archival, rollbacks, removed plans), and cleaning deletes files that an
older view still names. A missing file is an error only if the table has not changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from lakebed.errors import CorruptFile, LakebedError, StorageError
from lakebed.metadata.lookups import open_again, open_snapshot
from lakebed.slices.snapshot import CleanedView, Snapshot
from lakebed.storage.base import Storage

T = TypeVar("T")
MISSING = (FileNotFoundError, CorruptFile, CleanedView)
"""The errors that a read raises where a file is not there any more."""
MAX_LOOKS = 6
"""How often a table is looked at again, at most, before the error is raised."""
_HINT = "Restore it from a copy."


def reopened(snapshot: Snapshot) -> Snapshot | None:
    """This view opened again, with the present state of the table; None if it shows nothing new."""
    fresh = open_again(snapshot.storage, snapshot.config, snapshot.as_of, use_metadata=snapshot.use_metadata)
    return snapshot.opened_again(fresh)


def read_again(storage: Storage, read: Callable[[], T], renew: Callable[[], bool]) -> T:
    """The result of `read`. If it misses a file it runs again, as long as `renew` reports that the table has changed; a
    file that is missing twice is damage."""
    looks = _Looks(storage, renew)
    while True:
        try:
            return read()
        except MISSING as error:
            looks.again(error)


def stream_again(storage: Storage, read: Callable[[], Iterator[T]], renew: Callable[[], bool]) -> Iterator[T]:
    """Yields what `read` yields. If it misses a file before it has yielded anything it begins again, as long as `renew`
    reports that the table has changed; a file that is missing twice is damage."""
    looks = _Looks(storage, renew)
    while True:
        has_given = False
        try:
            for part in read():
                has_given = True
                yield part
            return
        except MISSING as error:
            looks.again(error)
            if has_given:
                raise _changes_too_fast(error) from error


class _Looks:
    """A counter of the looks at a table, which also remembers the file that was missing."""

    def __init__(self, storage: Storage, renew: Callable[[], bool]) -> None:
        self._storage, self._renew = storage, renew
        self._count, self._missing = 0, ""

    def again(self, error: Exception) -> None:
        """Look at the table again; raises the error if a further look is useless."""
        if str(error) == self._missing or not self._renew():
            raise as_damage(error, self._storage) from error
        self._count, self._missing = self._count + 1, str(error)
        if self._count > MAX_LOOKS:
            raise _changes_too_fast(error) from error


def in_task(storage: Storage, rows: Iterator[T]) -> Iterator[T]:
    """The rows that a task reads by a plan that the driver made earlier. A missing file that the table does not name
    any more is a `StorageError` with the hint to read again."""
    try:
        yield from rows
    except MISSING as error:
        deleted = deleted_since_planned(error, storage)
        if deleted is None:
            raise
        raise deleted from error


def deleted_since_planned(error: Exception, storage: Storage) -> StorageError | None:
    """The error for a file that was cleaned after the plan was made: the table does not name it any more, or it is a
    file of another table. None for any other error."""
    if is_in_table(error, storage):
        path = missing_path(error, storage)
        return None if not path or _is_named(storage, path) else deleted_file(path)
    return deleted_file(path_of(error)) if isinstance(error, CorruptFile) and error.context.get("missing") else None


def deleted_file(path: str) -> StorageError:
    return StorageError(
        f"{path} was deleted since this read was planned: the table does not name it any more",
        hint="Make the DataFrame again from a new scan, or the dataset: it reads the table as it is now. A higher"
        " hoodie.clean.commits.retained keeps files for slow readers.",
        context={"path": path, "retryable": True},
    )


def _is_named(storage: Storage, path: str) -> bool:
    """Whether the table names the file now; also true if that cannot be determined."""
    relative = _relative(path, storage)
    partition = relative.rpartition("/")[0]
    try:
        slices = open_snapshot(storage).file_slices([partition])
    except (LakebedError, OSError):
        return True
    return any(file.path == relative for file_slice in slices for file in file_slice.files)


def as_damage(error: Exception, storage: Storage) -> Exception:
    """`CorruptFile` for a missing file of the table; any other error unchanged."""
    if isinstance(error, LakebedError) or not is_of_table(error, storage):
        return error
    path = path_of(error)
    return CorruptFile(f"{path} is not there, and the table names it", hint=_HINT, context={"path": path})


def is_of_table(error: Exception, storage: Storage) -> bool:
    """Whether the error is about a file of this table: rows that are written may be read from other files."""
    return isinstance(error, LakebedError) or is_in_table(error, storage)


def is_in_table(error: Exception, storage: Storage) -> bool:
    """Whether the file that the error is about is in the folder of this table; relative paths are."""
    root, path = storage.url().rstrip("/"), path_of(error)
    is_relative = isinstance(error, LakebedError) and "://" not in path and not path.startswith("/")
    return is_relative or root in path or root.removeprefix("file://") in path


def _relative(path: str, storage: Storage) -> str:
    """The path of a file relative to the table. Spark writes a local path as `file:/folder`."""
    root = storage.url().rstrip("/")
    return path.removeprefix(root).removeprefix("file:").removeprefix(root.removeprefix("file://")).lstrip("/")


def missing_path(error: Exception, storage: Storage) -> str:
    """The path of the file that the error is about, if it does not exist; otherwise empty."""
    path = path_of(error)
    if not isinstance(error, LakebedError):
        return path
    try:
        return path if path and storage.head(_relative(path, storage)) is None else ""
    except StorageError:  # no path inside the table
        return ""


def path_of(error: Exception) -> str:
    """The path that the error names; the error's text if it names none."""
    if isinstance(error, LakebedError):
        return str(error.context.get("path", ""))
    return str(getattr(error, "filename", "") or error)


def _changes_too_fast(error: Exception) -> StorageError:
    if isinstance(error, CleanedView):
        return error
    path = path_of(error)
    return StorageError(
        f"{path} was deleted while the table was read: cleaning and archival are faster than this read",
        hint="Read again. A higher hoodie.clean.commits.retained keeps files for slow readers.",
        context={"path": path, "retryable": True},
    )

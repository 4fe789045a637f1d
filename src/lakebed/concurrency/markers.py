"""Markers: which files a write meant to make, so that its rollback finds those it did make.

A write is inflight and a file's marker is there before the file is. Neither needs the other, so that on a slow store
the inflight instant is created while the first markers are. After each file the write looks for the file's marker
again. It waits for the answer only before it completes.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal

from lakebed.errors import CommitConflict, ConflictKind, StorageError
from lakebed.format.file_names import is_data_path, parse_log_file
from lakebed.model import HOODIE, has_completion_times, path_in
from lakebed.properties.table_config import TableConfig
from lakebed.storage import Storage
from lakebed.storage.base import FileInfo
from lakebed.storage.parallel import in_background
from lakebed.write_status import WriteStatus

MarkerKind = Literal["CREATE", "MERGE", "APPEND"]
TEMP_FOLDER = f"{HOODIE}/.temp"
_MARKER = re.compile(r"^(?P<path>[^\0]+)\.marker\.(?P<kind>CREATE|MERGE|APPEND)$")
# How the names of requested and inflight instants end.
_PENDING = (".requested", ".inflight")
_SERVER_FILE = re.compile(r"^MARKERS\d+$")
# By the URL of the table and the instant.
_writes: dict[tuple[str, str], LocalWrite] = {}


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """A file that a write set out to make. `path` is the data file's, relative to the table."""

    path: str
    kind: MarkerKind

    @property
    def partition(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def file_name(self) -> str:
        return self.path.rpartition("/")[2]


def marker_folder(instant: str) -> str:
    """The folder of an instant's markers, relative to the table."""
    return f"{TEMP_FOLDER}/{instant}"


def marker_path(instant: str, partition: str, file_name: str, kind: MarkerKind) -> str:
    """The path of the marker of one data file (Hudi's DIRECT markers).

    >>> marker_path("20240101000000000", "city=oslo", "f1_0-1-0_20240101000000000.parquet", "CREATE")
    '.hoodie/.temp/20240101000000000/city=oslo/f1_0-1-0_20240101000000000.parquet.marker.CREATE'
    """
    folder = f"{marker_folder(instant)}/{partition}" if partition else marker_folder(instant)
    return f"{folder}/{file_name}.marker.{kind}"


def write_marker(
    storage: Storage, instant: str, partition: str, file_name: str, kind: MarkerKind, *, may_be_late: bool = False
) -> None:
    """Write the marker of a data file, before the file itself and in the same process: a rollback deletes only files
    that markers name. When this returns, the write's inflight instant exists as well.

    A task that `may_be_late` may run when its write is over. Then no process would look for the marker any more: it is
    removed, and this raises `CommitConflict`. The marker is written before the timeline is read, so that a write that
    completes meanwhile finds it."""
    path = marker_path(instant, partition, file_name, kind)
    storage.write(path, b"", durable="later")
    _wait_for_inflight(storage, instant, [Marker(path_in(partition, file_name), kind)])
    if may_be_late and _is_over(storage, instant):
        storage.delete(path)
        raise _over(storage, instant, f"{partition}/{file_name}" if partition else file_name, "begun")


def write_markers(storage: Storage, instant: str, files: Sequence[tuple[str, str]], kind: MarkerKind) -> None:
    """Write the markers of several data files, given by partition path and name, before the first of these files is
    begun. The markers are made durable together, before any file name."""
    by_partition: dict[str, list[str]] = {}
    for partition, name in files:
        by_partition.setdefault(partition, []).append(name)
    for partition, names in by_partition.items():
        storage.write_same([marker_path(instant, partition, name, kind) for name in names], b"")
    _wait_for_inflight(storage, instant, [Marker(path_in(partition, name), kind) for partition, name in files])


def check_marker(
    storage: Storage, instant: str, path: str, kind: MarkerKind, give_up: Callable[[], object] | None = None
) -> None:
    """Check that the marker of a written file exists: a task attempt that outlives its write finds it missing, and no
    process would look for the file any more. Then the file is deleted (or `give_up` is called), and `CommitConflict` is
    raised. For a write in this process on a slow storage the check ends before the write completes."""
    partition, _, name = path.rpartition("/")

    def check() -> None:
        if storage.head(marker_path(instant, partition, name, kind)) is not None:
            return
        if give_up is None:
            storage.delete(path)
        else:
            give_up()
        raise _over(storage, instant, path, "written")

    write = _writes.get((storage.url(), instant))
    if write is None:
        check()
    elif not write.lock_is_held():
        write.begin(check)


def _over(storage: Storage, instant: str, path: str, step: str) -> CommitConflict:
    return CommitConflict(
        f"instant {instant} was over before {storage.url(path)} was {step}",
        hint="it committed without this attempt, or was rolled back by a writer that took it for dead",
        context={"instant": instant, "path": path},
        kind=ConflictKind.TAKEN_BACK,
    )


def _is_over(storage: Storage, instant: str) -> bool:
    """Whether the instant is completed, or is not on the timeline any more."""
    for folder in (f"{HOODIE}/timeline", HOODIE):  # before table version 8 the instants are in the folder above
        try:
            names = [n for n in storage.list_names(folder) if n.startswith((f"{instant}.", f"{instant}_"))]
        except FileNotFoundError:
            continue
        if names:
            return not all(name.endswith(_PENDING) for name in names)
    return True


def list_markers(storage: Storage, instant: str) -> list[Marker]:
    """All markers of an instant, sorted: DIRECT markers (one file each) and the markers that Hudi's timeline server
    collects in `MARKERS<n>` files. Other files in the folder are ignored, and so are markers that do not name a file of
    a partition."""
    folder = f"{marker_folder(instant)}/"
    markers: set[Marker] = set()
    for info in list_marker_files(storage, instant):
        name = info.path.removeprefix(folder)
        if _SERVER_FILE.match(name):
            markers.update(_parse_lines(storage.read(info.path)))
        else:
            marker = _parse(name)
            if marker is not None:
                markers.add(marker)
    return sorted(markers)


def list_markers_in(storage: Storage, instant: str, partition: str) -> list[Marker]:
    """The markers of an instant in one partition path; the other partition paths are not listed."""
    folder = marker_folder(instant)
    markers: set[Marker] = set()
    try:
        for name in storage.list_names(f"{folder}/{partition}" if partition else folder):
            marker = _parse(f"{partition}/{name}" if partition else name)
            if marker is not None:
                markers.add(marker)
        for name in storage.list_names(folder):
            if _SERVER_FILE.match(name):
                markers.update(m for m in _parse_lines(storage.read(f"{folder}/{name}")) if m.partition == partition)
    except FileNotFoundError:  # it is done
        return []
    except StorageError as error:
        if "link" not in error.context:
            raise
    return sorted(markers)


def list_marker_files(storage: Storage, instant: str) -> Iterator[FileInfo]:
    """The files in an instant's marker folder; empty if the folder is a link to another location."""
    try:
        yield from storage.list(marker_folder(instant))
    except StorageError as error:
        if "link" not in error.context:
            raise


def appended_again(
    storage: Storage, config: TableConfig, instant: str, statuses: Sequence[WriteStatus]
) -> list[WriteStatus]:
    """Before table version 8, the statuses of log files to which an instant appended and that no status in `statuses`
    names. Repeated task attempts left them. They stay, since they contain the same rows again. Empty for later
    versions."""
    if config.table_type == "cow" or has_completion_times(config.version):  # names show whose files they are
        return []
    named = {status.path for status in statuses}
    appended_statuses: list[WriteStatus] = []
    for path in (marker.path for marker in list_markers(storage, instant) if marker.kind == "APPEND"):
        partition, _, name = path.rpartition("/")
        log = parse_log_file(partition, name, 0)
        info = None if path in named or log is None else storage.head(path)
        if log is not None and info is not None:
            status = WriteStatus(
                partition, log.file_id, path, log.instant, base_file="", log_files=[name], log_version=log.version
            )
            appended_statuses.append(replace(status, log_offset=0, file_size=info.size))
    return appended_statuses


def delete_markers(storage: Storage, instant: str) -> None:
    """Remove an instant's marker folder. It is the last step, when no reader needs the markers to find files."""
    storage.delete_folder(marker_folder(instant), durable=False)


def _parse_lines(data: bytes) -> Iterator[Marker]:
    # a truncated line names a file that was not begun: its writer was still waiting for the marker
    for line in data.decode("utf-8", errors="replace").splitlines():
        marker = _parse(line.strip())
        if marker is not None:
            yield marker


def _parse(name: str) -> Marker | None:
    match = _MARKER.match(name)
    if match is None or not is_data_path(match["path"]):
        return None
    kind: MarkerKind = match["kind"]  # type: ignore[assignment]
    return Marker(match["path"], kind)


class LocalWrite:
    """The background requests of one write, for which its other steps need not wait; `show` creates its inflight
    instant. `markers` are those that the write has made.

    No other process removes markers of a write that keeps the table lock: it looks for them only when `lock_is_held`
    returns False.
    """

    def __init__(self, show: Callable[[], object], lock_is_held: Callable[[], bool] = lambda: False) -> None:
        self.markers: list[Marker] = []
        self.lock_is_held = lock_is_held
        self._showing: Callable[[], object] | None = in_background(show)
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._checks: deque[Callable[[], object]] = deque()

    def wait_for_inflight(self) -> None:
        """Wait until the inflight instant exists. Each caller gets the error of its creation."""
        with self._lock:
            if self._showing is not None:
                try:
                    self._showing()
                except BaseException as error:
                    self._error = error
                self._showing = None
        if self._error is not None:
            raise self._error

    def begin(self, check: Callable[[], object]) -> None:
        """Begin `check`, which looks for the marker of a written file, in the background."""
        self._checks.append(in_background(check))

    def finish(self) -> None:
        """Wait for all background requests. Raises the error of a marker check."""
        self.wait_for_inflight()
        while self._checks:
            self._checks.popleft()()


@contextmanager
def local_write(
    storage: Storage, instant: str, show: Callable[[], object], lock_is_held: Callable[[], bool] = lambda: False
) -> Generator[LocalWrite]:
    """A write whose files are written in the block, by threads of this process. An error of the block is raised after
    all its requests have ended, so that no process undoes the write while one of them may still take effect."""
    key = storage.url(), instant
    write = _writes[key] = LocalWrite(show, lock_is_held)
    try:
        yield write
    except BaseException:
        with suppress(BaseException):
            write.finish()
        raise
    finally:
        del _writes[key]
    write.wait_for_inflight()


def _wait_for_inflight(storage: Storage, instant: str, markers: Sequence[Marker]) -> None:
    """Wait until the inflight instant exists, if this process has begun to create it; return at once for any other
    instant. `markers` were written."""
    write = _writes.get((storage.url(), instant))
    if write is not None:
        write.markers.extend(markers)
        write.wait_for_inflight()

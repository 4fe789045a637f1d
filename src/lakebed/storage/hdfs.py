"""`HdfsStorage`: a table on HDFS through hdfs-native, which needs no JVM and no Hadoop installation."""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from lakebed.errors import InvalidOption, StorageError, UnsupportedFeature
from lakebed.storage.atomic_file import aside_name
from lakebed.storage.base import (
    Durable,
    FileInfo,
    Location,
    StorageSpec,
    Versioned,
    check_prefix,
    check_relative,
    ends_early,
    not_found,
    refused,
)
from lakebed.storage.clocks import monotonic_seconds
from lakebed.storage.parallel import write_each
from lakebed.storage.streams import RangeFile, StreamUpload, read_coalesced

_GAP_BYTES = 256 << 10
_GUARD_PAUSE = 0.05
_GUARD_STALE = 60.0
_GUARD_USE = 20.0
_GUARD_STUCK = 3.0
_GUARD_WAIT = 60.0
_SETTINGS = ("fs.", "dfs.", "hadoop.", "ipc.")
_KERBEROS = frozenset({"kerberos_principal", "kerberos_keytab", "kerberos_cache"})
_T = TypeVar("_T")


class HdfsStorage:
    """Files under `hdfs://<name node or name service>/<path>`.

    Files are written aside and renamed, which the name node does atomically. Options are Hadoop settings (`dfs.*`,
    `fs.*`, `hadoop.*`); more come from `HADOOP_CONF_DIR`, the user from `HADOOP_USER_NAME`.
    """

    def __init__(self, location: Location, options: Mapping[str, str] | None = None) -> None:
        self._location = location
        self._root = f"/{location.path}".rstrip("/")
        self._spec = StorageSpec(location.uri, dict(options or {}))
        self._native = _module()
        self._client: Any = self._connect()
        # the guard of another process at the last attempt here, and since when it is unchanged
        self._guards_seen: dict[str, tuple[FileInfo, float]] = {}

    def __repr__(self) -> str:
        return f"HdfsStorage({self._location.uri!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (HdfsStorage, (self._location, dict(self._spec.options)))

    def _connect(self) -> Any:
        settings: dict[str, str] = {}
        kerberos: dict[str, str] = {}
        for option, value in self._spec.options.items():
            name = option.removeprefix("spark.hadoop.")
            if name in _KERBEROS:
                kerberos[name] = value
            elif name.startswith(_SETTINGS):
                settings[name] = value
            else:
                raise InvalidOption(
                    f"no storage option {option!r} for hdfs:// storage",
                    hint="give Hadoop settings: dfs.*, fs.*, hadoop.*",
                    context={"option": option},
                )
        where = f"hdfs://{self._location.authority}" if self._location.authority else None
        try:
            return self._native.Client(where, settings, **kerberos)
        except RuntimeError as error:
            raise InvalidOption(
                f"cannot open {self._location.uri}: {_first_line(error)}",
                hint="name the name node in the URI, or set HADOOP_CONF_DIR",
            ) from error

    @property
    def spec(self) -> StorageSpec:
        return self._spec

    def url(self, path: str = "") -> str:
        return self._location.uri + (f"/{path}" if path else "")

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_relative(path)}"

    def _do(self, doing: str, path: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except (FileNotFoundError, NotADirectoryError):
            raise not_found(self.url(path)) from None
        except (OSError, RuntimeError, ValueError) as error:
            raise refused(
                f"cannot {doing} {self.url(path)}: {_first_line(error)}",
                url=self.url(path),
                retryable=not isinstance(error, (PermissionError, ValueError)),
            ) from error

    # reading

    def _statuses(self, prefix: str) -> builtins.list[Any]:
        full = f"{self._root}/{prefix}" if prefix else self._root or "/"
        try:
            statuses = self._do("list", prefix, lambda: [*self._client.list_status(full, False)])
        except FileNotFoundError:  # also a folder that went while its parent was listed
            return []
        return sorted((s for s in statuses if s.path != full), key=lambda s: s.path)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        folders = [check_prefix(prefix)]
        while folders:
            below: builtins.list[str] = []
            for status in self._statuses(folders.pop()):
                path = status.path[len(self._root) + 1 :]
                if status.isdir:
                    below.append(path)
                else:
                    yield FileInfo(path, status.length, status.modification_time)
            if recursive:
                folders.extend(reversed(below))

    def list_names(self, prefix: str = "") -> Sequence[str]:
        return [s.path.rsplit("/", 1)[-1] for s in self._statuses(check_prefix(prefix)) if not s.isdir]

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        return [s.path.rsplit("/", 1)[-1] for s in self._statuses(check_prefix(prefix)) if s.isdir]

    def head(self, path: str) -> FileInfo | None:
        full = self._full(path)
        try:
            status = self._do("look at", path, lambda: self._client.get_file_info(full))
        except FileNotFoundError:
            return None
        return None if status.isdir else FileInfo(path, status.length, status.modification_time)

    def _open(self, path: str) -> Any:
        full = self._full(path)
        return self._do("open", path, lambda: self._client.read(full))

    def _fetch(self, path: str, file: Any, offset: int, length: int) -> bytes:
        if offset + length > len(file):
            raise ends_early(self.url(path), offset, length, max(0, len(file) - offset))
        return self._do("read", path, lambda: file.read_range(offset, length))

    def read(self, path: str) -> bytes:
        file = self._open(path)
        return self._fetch(path, file, 0, len(file))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        file = self._open(path)
        return read_coalesced(ranges, _GAP_BYTES, lambda o, n: self._fetch(path, file, o, n))

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        file = self._open(path)
        return pa.PythonFile(RangeFile(lambda o, n: self._fetch(path, file, o, n), len(file)), mode="r")

    def read_versioned(self, path: str) -> Versioned:
        data = self.read(path)
        return Versioned(data, _version(data))

    # writing

    def create_aside(self, path: str, name: str) -> tuple[str, Any]:
        """A new file in the folder of `path`: its full path and the writer."""
        aside = f"{self._full(path).rpartition('/')[0]}/{name}"
        options = self._native.WriteOptions(overwrite=True, create_parent=True)
        return aside, self._do("write", path, lambda: self._client.create(aside, options))

    def _write_aside(self, path: str, data: bytes) -> str:
        name = path.rpartition("/")[2]
        aside, writer = self.create_aside(path, aside_name(f"{name}.{uuid.uuid4().hex[:8]}"))

        def fill() -> None:
            if data:
                writer.write(data)
            finish(writer)

        try:
            self._do("write", path, fill)
        except Exception:
            self.drop_aside(aside)
            raise
        return aside

    def drop_aside(self, aside: str) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._client.delete(aside)

    def replace(self, path: str, aside: str) -> None:
        """Rename the aside file to the path, in place of a file that exists there."""
        self._rename(path, aside, overwrite=True)

    def _rename(self, path: str, aside: str, *, overwrite: bool) -> bool:
        """Rename the file; returns False if another file has the name."""
        full = self._full(path)
        try:
            self._client.rename(aside, full, overwrite)
            return True
        except (OSError, RuntimeError) as error:
            # the aside name shows whether the rename happened: only this writer uses it, and if it can still be
            # deleted, no late rename can follow
            try:
                undone = self._client.delete(aside)
            except (OSError, RuntimeError):
                raise refused(
                    f"no answer from {self._location.uri} about {path}: {_first_line(error)}",
                    url=self.url(path),
                    retryable=True,
                    doubtful=True,
                ) from error
            if not undone:
                return True
            if isinstance(error, FileExistsError) and not overwrite:
                return False
            raise refused(
                f"cannot write {self.url(path)}: {_first_line(error)}",
                url=self.url(path),
                retryable=not isinstance(error, PermissionError),
            ) from error

    def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
        self.replace(path, self._write_aside(path, data))

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        write_each(self, paths, data)

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        return self._rename(path, self._write_aside(path, data), overwrite=False)

    def put_if_match(self, path: str, data: bytes, version: str | None, *, durable: bool = True) -> bool:
        if version is None:
            return self.put_if_absent(path, data)
        with self._guarded(path) as still_ours:
            try:
                current = self.read(path)
            except FileNotFoundError:
                return False
            if _version(current) != version:
                return False
            aside = self._write_aside(path, data)
            if not still_ours():
                self.drop_aside(aside)
                return False
            self.replace(path, aside)
            return True

    @contextlib.contextmanager
    def _guarded(self, path: str) -> Generator[Callable[[], bool]]:
        """Hold a guard on the file during the block; yields a function that returns whether the guard may still be
        used. HDFS has no conditional replacement, so a side file that only one process can create serves as a guard. A
        guard that is unchanged for a minute, by the monotonic clock, was left by a dead process. A process stops using
        its guard after a third of that time."""
        folder, _, name = path.rpartition("/")
        guard = f"{folder}/.{name}.guard".lstrip("/")
        mark = uuid.uuid4().hex.encode()
        started = acquired_at = monotonic_seconds()
        while not self._take(guard, mark):
            if self._unchanged(guard) > _GUARD_STUCK or monotonic_seconds() - started > _GUARD_WAIT:
                error = refused(
                    f"{self.url(guard)} stays locked",
                    "It is free a minute after its holder died, as seen from one process.",
                    url=self.url(guard),
                    retryable=True,
                )
                error.context["busy"] = True
                raise error
            time.sleep(_GUARD_PAUSE)
            acquired_at = monotonic_seconds()
        try:
            yield lambda: monotonic_seconds() - acquired_at < _GUARD_USE
        finally:
            # the change is complete; a guard that stays counts as left by a dead process after a minute
            with contextlib.suppress(StorageError, FileNotFoundError):
                if monotonic_seconds() - acquired_at < _GUARD_STALE:
                    self.delete(guard)

    def _unchanged(self, guard: str) -> float:
        """The number of seconds for which the guard has been unchanged. A stale guard is deleted."""
        info = self.head(guard)
        observation = self._guards_seen.get(guard)
        if info is None or observation is None or observation[0] != info:
            self._guards_seen = {guard: (info, monotonic_seconds())} if info else {}
            return 0.0
        if monotonic_seconds() - observation[1] > _GUARD_STALE:
            self.delete(guard)
            return 0.0
        return monotonic_seconds() - observation[1]

    def move(self, path: str, to: str) -> None:
        full, target = self._full(path), self._full(to)
        self._do("move", path, lambda: self._client.mkdirs(target.rpartition("/")[0], 0o755, True))
        self._do("move", path, lambda: self._client.rename(full, target, True))

    def _take(self, guard: str, mark: bytes) -> bool:
        try:
            return self.put_if_absent(guard, mark)
        except StorageError as error:
            if not error.context.get("doubtful"):
                raise
            with contextlib.suppress(FileNotFoundError):
                return self.read(guard) == mark
            return False

    def create(self, path: str) -> HdfsUpload:
        aside, writer = self.create_aside(path, aside_name(path.rpartition("/")[2]))
        return HdfsUpload(self, path, aside, writer)

    def leave_torn(self, path: str, data: bytes) -> None:
        """Leave the files that a power cut in the middle of writing `data` to `path` leaves in this storage. For fault
        tests."""
        _, writer = self.create_aside(path, aside_name(path.rpartition("/")[2]))
        writer.write(data[: len(data) // 2])
        finish(writer)

    # deleting

    def delete(self, path: str, *, durable: bool = True) -> bool:
        """Delete a file, and the leftovers of an unfinished upload of it. Returns False if there was no file."""
        full = self._full(path)
        folder, _, name = full.rpartition("/")
        deleted = self._do("delete", path, lambda: self._client.delete(full))
        self._do("delete", path, lambda: self._client.delete(f"{folder}/{aside_name(name)}"))
        return bool(deleted)

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        prefix = check_prefix(prefix)
        full = f"{self._root}/{prefix}" if prefix else self._root
        with contextlib.suppress(FileNotFoundError):
            self._do("delete", prefix, lambda: self._client.delete(full, True))

    def make_folder(self, prefix: str) -> None:
        full = self._full(check_prefix(prefix))
        self._do("make the folder", prefix, lambda: self._client.mkdirs(full, 0o755, True))


class HdfsUpload(StreamUpload):
    """A large file that is being written, under the hidden aside name until `close`."""

    def __init__(self, storage: HdfsStorage, path: str, aside: str, writer: Any) -> None:
        super().__init__(path)
        self._storage = storage
        self._aside = aside
        self._writer: Any = writer

    def _append(self, data: memoryview) -> None:
        try:
            self._writer.write(bytes(data))
        except (OSError, RuntimeError) as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: Exception) -> StorageError:
        url = self._storage.url(self._path)
        return refused(f"cannot write {url}: {_first_line(error)}", url=url, retryable=True)

    def _finish(self) -> None:
        try:
            finish(self._writer)
        except (OSError, RuntimeError) as error:
            raise self._cannot_write(error) from error
        self._storage.replace(self._path, self._aside)

    def _discard(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()
        self._storage.drop_aside(self._aside)

    def leave(self) -> None:
        """Abandon the file without cleaning up, like a process that dies at this point. For fault tests."""
        self._closed = True
        self._writer = None


def finish(writer: Any) -> None:
    """Close a file once the data nodes have it on disk, not only in memory."""
    hsync = getattr(writer, "hsync", None)
    if hsync is not None:
        hsync()
    writer.close()


def _module() -> Any:
    try:
        import hdfs_native
    except ImportError as error:
        raise UnsupportedFeature(
            "hdfs:// storage needs the package hdfs-native", hint="pip install 'lakebed[hdfs]'"
        ) from error
    return hdfs_native


def _version(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

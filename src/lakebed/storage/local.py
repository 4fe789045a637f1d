"""`LocalStorage`: a table on a local disk (or a mounted file system with POSIX renames). No link inside a table is
followed when folders are listed, written to or deleted from: its target is not the table's.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import hashlib
import os
import random
import stat
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import filterfalse
from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from lakebed.model import path_in
from lakebed.sharing import shared_lock
from lakebed.storage.atomic_file import (
    AtomicFile,
    UnsyncedFolders,
    checksum_name,
    make_folder,
    remove_aside,
    remove_tree,
    sync_folder,
)
from lakebed.storage.base import (
    Durable,
    FileInfo,
    StorageSpec,
    Versioned,
    check_prefix,
    check_relative,
    ends_early,
    from_os_error,
    in_doubt,
    refused,
)
from lakebed.storage.parallel import write_each
from lakebed.storage.streams import StreamUpload, read_coalesced


def check_not_linked(root: str, folder: str) -> None:
    """Raise an error if `folder` (relative to the table's own) or one above it is a link."""
    path = root
    for part in folder.split("/") if folder else ():
        path = f"{path}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                raise is_link(path)
        except (FileNotFoundError, NotADirectoryError):
            return


def is_link(path: str) -> Exception:
    """The error for a folder that is a link."""
    error = refused(
        f"{path} is a link to another folder, and lakebed follows no links inside a table",
        "move the files that it leads to into the table, or mount them there",
        url=f"file://{path}",
    )
    error.context["link"] = True
    return error


_GAP_BYTES = 16 << 10
_WRITE_BUFFER_BYTES = 1 << 20
_SECTOR_BYTES = 512
_GUARD_SECONDS = 1.0
# By the path of the table: all storages of one table in this process share them.
_unsynced: WeakValueDictionary[str, UnsyncedFolders] = WeakValueDictionary()
_unsynced_lock = shared_lock()


class _Translated:
    """A block in which errors of the system are raised as those of storages. (It is entered many times in a commit: a
    generator would take three times the calls.)"""

    __slots__ = ("_doing", "_path", "_storage")

    def __init__(self, storage: LocalStorage, doing: str, path: str) -> None:
        self._storage, self._doing, self._path = storage, doing, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise from_os_error(error, self._doing, self._storage.url(self._path)) from error


class LocalStorage:
    """Files under one folder. A mutation syncs the file and its name to disk before it returns. With "later" the name
    is synced before the next mutation is visible. A caller can also request no sync (see `Durable`).

    Files appear complete: they are written aside and linked or renamed into place. The exception is a file of less than
    a sector that `put_if_match` changes without `durable` (a lock that changes hands). When a file changes, its Hadoop
    checksum file (`.<name>.crc`, which the JVM leaves and checks) is deleted.
    """

    def __init__(self, root: str, options: Mapping[str, str] | None = None, *, unlinked: bool = True) -> None:
        self._root = os.path.abspath(root)
        self._spec = StorageSpec(self._root, dict(options or {}))
        self._unlinked = unlinked
        with _unsynced_lock:
            self._unsynced = _unsynced.setdefault(self._root, UnsyncedFolders())

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (LocalStorage, (self._root, dict(self._spec.options)))

    @property
    def spec(self) -> StorageSpec:
        return self._spec

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_relative(path)}"

    def _split(self, path: str) -> tuple[str, str]:
        """The folder and the name of a file that will be changed."""
        full = self._full(path)
        check_not_linked(self._root, path.rpartition("/")[0])
        return os.path.split(full)

    def _translated(self, doing: str, path: str) -> _Translated:
        return _Translated(self, doing, path)

    def url(self, path: str = "") -> str:
        return f"file://{self._root}" + (f"/{path}" if path else "")

    # reading

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[FileInfo]:
        folders = [check_prefix(prefix)]
        while folders:
            folder = folders.pop()
            files, below = self._listed(folder, follows=recursive)
            yield from files
            if recursive:
                folders.extend(reversed(below))

    def _listed(self, folder: str, *, follows: bool) -> tuple[builtins.list[FileInfo], builtins.list[str]]:
        """The files directly in a folder at one moment, and the paths of the folders in it.

        Where a file is deleted before its size is known, the names are read again. Otherwise, if another process
        deletes the oldest files first, the listing could have an old file and lack one that was deleted after it.
        """
        cached: dict[str, FileInfo] = {}
        while True:
            files: builtins.list[FileInfo] = []
            below: builtins.list[str] = []
            for entry in sorted(self._entries(folder), key=attrgetter("name")):
                path = path_in(folder, entry.name)
                if entry.is_dir():
                    if not entry.is_symlink():
                        below.append(path)
                    elif follows and not path.startswith("."):  # its target may hold rows
                        raise is_link(entry.path)
                    continue
                try:
                    if path not in cached:
                        stat = entry.stat()
                        cached[path] = FileInfo(path, stat.st_size, stat.st_mtime_ns // 1_000_000)
                except FileNotFoundError:
                    if os.path.islink(entry.path):  # to nothing
                        continue
                    break
                files.append(cached[path])
            else:
                return files, below

    def _entries(self, folder: str) -> builtins.list[os.DirEntry[str]]:
        with self._translated("list", folder):
            check_not_linked(self._root, folder)
            try:
                with os.scandir(os.path.join(self._root, folder)) as entries:
                    return [*entries]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def list_names(self, prefix: str = "") -> Sequence[str]:
        files = filterfalse(os.DirEntry[str].is_dir, self._entries(check_prefix(prefix)))
        return sorted(map(attrgetter("name"), files))

    def list_folders(self, prefix: str = "") -> Sequence[str]:
        entries = self._entries(check_prefix(prefix))
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def head(self, path: str) -> FileInfo | None:
        try:
            with self._translated("look at", path):
                stat = os.stat(self._full(path))
        except FileNotFoundError:
            return None
        if not _is_file(stat.st_mode):
            return None
        return FileInfo(path, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def read(self, path: str) -> bytes:
        with self._translated("read", path), open(self._full(path), "rb", buffering=0) as file:
            return file.readall()

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        with self._translated("read", path):
            fd = os.open(self._full(path), os.O_RDONLY)
            try:
                return read_coalesced(ranges, _GAP_BYTES, lambda o, n: self._pread(fd, path, o, n))
            finally:
                os.close(fd)

    def _pread(self, fd: int, path: str, offset: int, length: int) -> bytes:
        parts: builtins.list[bytes] = []
        got = 0
        while got < length:
            part = os.pread(fd, length - got, offset + got)
            if not part:
                raise ends_early(self.url(path), offset, length, got)
            parts.append(part)
            got += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        with self._translated("open", path):
            return pa.OSFile(self._full(path), "rb")

    def read_versioned(self, path: str) -> Versioned:
        with self._translated("read", path), self._guarded(path, shared=True):
            data = self.read(path)
        return Versioned(data, _version(data))

    # writing

    def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
        with self._translated("write", path):
            self._aside(path, data, durable=durable).publish()

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        """Create one file under several names, none of which may exist."""
        if len(paths) == 1 and not data and self._create_empty(paths[0]):
            return
        names = [self._split(path)[1] for path in paths]
        with self._translated("write", paths[0]):
            done = self._aside(paths[0], data, durable="later").publish_as(names)
        if not done:
            write_each(self, paths, data)

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        with self._translated("write", path):
            return self._aside(path, data, durable=durable).publish_new()

    def put_if_match(self, path: str, data: bytes, version: str | None, *, durable: bool = True) -> bool:
        with self._translated("write", path), self._guarded(path):
            if version is None:
                return self.put_if_absent(path, data)
            try:
                current = self.read(path)
            except FileNotFoundError:
                return False
            if _version(current) != version:
                return False
            if not durable and len(data) == len(current) <= _SECTOR_BYTES:
                try:
                    self._overwrite(path, data, current)
                except FileNotFoundError:  # the table was dropped meanwhile
                    return False
            else:
                self._aside(path, data).publish()
            return True

    def _overwrite(self, path: str, data: bytes, current: bytes) -> None:
        """Change a file of less than a sector in place. One write does it, so a dying process or machine leaves the old
        or the new bytes; a write that is cut short is undone. Only for files that are read under the guard."""
        folder, name = self._split(path)
        try:
            fd = os.open(os.path.join(folder, name), os.O_RDWR)
            try:
                _write_over(fd, data, current)
                with in_doubt(but=PermissionError):
                    # stamped by the file's server, as any other; another machine's cache (NFS) distinguishes two
                    # changes within a tick of that clock by the nanoseconds alone
                    stamp = os.fstat(fd).st_mtime_ns + random.randrange(1, 1_000_000)
                    os.utime(fd, ns=(stamp, stamp))
            finally:
                with contextlib.suppress(OSError):
                    os.close(fd)
        except PermissionError:  # another user's file
            self._aside(path, data).publish()
        with in_doubt():
            _unlink(os.path.join(folder, checksum_name(name)))

    @contextlib.contextmanager
    def _guarded(self, path: str, *, shared: bool = False) -> Generator[None]:
        """Let only one process replace a path conditionally during the block, or several read it (`shared`). The side
        file stays: if a locked file were removed, two processes could hold the lock."""
        folder, name = self._split(path)
        side = os.path.join(folder, f".{name}.guard")
        try:
            fd = os.open(side, os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            if shared:  # no writer has replaced it yet
                yield
                return
            make_folder(folder)
            fd = os.open(side, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._take_turn(fd, f"{path.rpartition('/')[0]}/.{name}.guard".lstrip("/"), shared)
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough while a forked child has the descriptor too
        finally:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _take_turn(self, fd: int, side: str, shared: bool) -> None:
        """Lock the side file. A process needs it for some microseconds; one that holds it longer is suspended, perhaps
        for ever."""
        deadline = time.monotonic() + _GUARD_SECONDS
        pause = 0.0005
        while True:
            try:
                fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                    raise
            if time.monotonic() >= deadline:
                break
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 0.02)
        url = self.url(side)
        error = refused(
            f"{url} is locked",
            "A process that is stopped may hold it: let it go on, or end it.",
            url=url,
            retryable=True,
        )
        error.context["busy"] = True
        raise error

    def _create_empty(self, path: str) -> bool:
        """Create a file without bytes, which is complete once it has its name, to be durable later. Returns False if
        there is a file."""
        folder, name = self._split(path)
        with self._translated("write", path):
            for _ in range(3):
                try:
                    fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                except FileNotFoundError:
                    make_folder(folder, self._unsynced)
                    continue
                except FileExistsError:
                    return False
                os.close(fd)
                _unlink(f"{folder}/{checksum_name(name)}")
                self._unsynced.add(folder)
                return True
        return False

    def _aside(self, path: str, data: bytes, *, durable: Durable = True) -> AtomicFile:
        folder, name = self._split(path)
        file = AtomicFile(folder, name, self._unsynced, unlinked=self._unlinked, durable=durable)
        try:
            file.write(memoryview(data))
        except BaseException:
            file.discard()
            raise
        return file

    def move(self, path: str, to: str) -> None:
        (old_folder, old), (folder, name) = self._split(path), self._split(to)
        with self._translated("move", path):
            if not os.path.lexists(os.path.join(old_folder, old)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            make_folder(folder)
            self._unsynced.sync()
            for checksum in (os.path.join(old_folder, checksum_name(old)), os.path.join(folder, checksum_name(name))):
                _unlink(checksum)
            os.replace(os.path.join(old_folder, old), os.path.join(folder, name))
            sync_folder(folder)
            sync_folder(old_folder)

    def create(self, path: str) -> LocalUpload:
        folder, name = self._split(path)
        with self._translated("create", path):
            file = AtomicFile(folder, name, self._unsynced, unlinked=self._unlinked, shared=False)
            return LocalUpload(self, path, file)

    def leave_torn(self, path: str, data: bytes) -> None:
        """Leave the files that a power cut in the middle of writing `data` to `path` leaves in this storage. For fault
        tests."""
        folder, name = self._split(path)
        file = AtomicFile(folder, name, self._unsynced, unlinked=self._unlinked, shared=False)
        file.write(memoryview(data)[: len(data) // 2])
        file.leave()

    # deleting

    def delete(self, path: str, *, durable: bool = True) -> bool:
        """Delete a file, and the leftovers of an unfinished upload of it. Returns False if there was no file."""
        folder, name = self._split(path)
        with self._translated("delete", path):
            self._unsynced.sync()
            deleted = [_unlink(f"{folder}/{n}") for n in (name, checksum_name(name))]
            deleted.append(remove_aside(folder, name))
            if durable and any(deleted):
                with contextlib.suppress(FileNotFoundError):
                    sync_folder(folder)
        return deleted[0]

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        prefix = check_prefix(prefix)
        top = os.path.join(self._root, prefix) if prefix else self._root
        check_not_linked(self._root, prefix.rpartition("/")[0])
        if prefix and os.path.islink(top):
            os.unlink(top)
            return
        with self._translated("delete", prefix), contextlib.suppress(FileNotFoundError):
            self._unsynced.sync()
            remove_tree(top)
            if durable:
                sync_folder(os.path.dirname(top))

    def make_folder(self, prefix: str) -> None:
        with self._translated("make the folder", prefix):
            prefix = check_prefix(prefix)
            check_not_linked(self._root, prefix)
            try:
                make_folder(os.path.join(self._root, prefix))
            except NotADirectoryError as error:
                raise refused(
                    f"cannot make the folder {self.url(prefix)}: a file is in its place, or in that of one above it",
                    "name another path, or move the file away",
                    url=self.url(prefix),
                ) from error
            except FileNotFoundError as error:  # of file systems that are no place for files, such as /proc
                raise refused(
                    f"cannot make the folder {self.url(prefix)}: no folder can be made there",
                    "name a path on a file system that takes new folders",
                    url=self.url(prefix),
                ) from error


class LocalUpload(StreamUpload):
    """A large local file being written: collected in blocks, synced once at the end."""

    def __init__(self, storage: LocalStorage, path: str, file: AtomicFile) -> None:
        super().__init__(path)
        self._storage = storage
        self._file = file
        self._buffer = bytearray()

    def _append(self, data: memoryview) -> None:
        if len(self._buffer) + data.nbytes < _WRITE_BUFFER_BYTES:
            self._buffer += data
            return
        self._spill()
        if data.nbytes < _WRITE_BUFFER_BYTES:
            self._buffer += data
        else:
            self._to_disk(data)

    def _spill(self) -> None:
        if self._buffer:
            self._to_disk(memoryview(self._buffer))
            self._buffer = bytearray()

    def _to_disk(self, data: memoryview) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise from_os_error(error, "write", self._storage.url(self._path)) from error

    def _finish(self) -> None:
        self._spill()
        try:
            self._file.publish()
        except OSError as error:
            raise from_os_error(error, "write", self._storage.url(self._path)) from error

    def _discard(self) -> None:
        self._file.discard()

    def leave(self) -> None:
        """Abandon the file without cleaning up, like a process that dies at this point. For fault tests."""
        self._closed = True
        self._file.leave()


def _write_over(fd: int, data: bytes, current: bytes) -> None:
    """Write `data` over the beginning of a file that holds `current`: all of it, or nothing if an error is raised."""
    done = 0
    try:
        while done < len(data):
            written = os.pwrite(fd, memoryview(data)[done:], done)
            if not written:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            done += written
    except OSError:
        with in_doubt():
            back = 0
            while back < done:
                back += os.pwrite(fd, memoryview(current)[back:done], back)
        raise


def _version(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _is_file(mode: int) -> bool:
    return mode & 0o170000 == 0o100000


def _unlink(full: str) -> bool:
    try:
        os.unlink(full)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return True

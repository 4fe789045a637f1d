"""A file written aside of its final name and published whole, on a local file system.

Where the system can (Linux: `O_TMPFILE` and a link from `/proc/self/fd`), the file has no name until it is published,
so a writer that dies leaves nothing. Elsewhere it is a hidden neighbour, `.<name>.tmp`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import uuid
from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lakebed.model import path_in
from lakebed.sharing import forget_in_forks
from lakebed.storage.base import Durable, in_doubt
from lakebed.storage.parallel import in_background, parallel_map

if TYPE_CHECKING:
    from lakebed.storage.base import Storage

_NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
_NO_LINK = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})
_TMPFILE: int | None = getattr(os, "O_TMPFILE", None) if os.path.isdir("/proc/self/fd") else None


def aside_name(name: str) -> str:
    """The name of a hidden file next to the file `name`. No reader takes it for a data file: it begins with a dot and
    ends in `.tmp`."""
    return f".{name}.tmp"


def remove_asides(storage: Storage, folder: str) -> None:
    """Remove the hidden files that unfinished writers left in a folder of a table. No writer may be active in it."""
    for name in storage.list_names(folder):
        if name.startswith(".") and name.endswith(".tmp"):
            storage.delete(path_in(folder, name))


def checksum_name(name: str) -> str:
    """The name of Hadoop's checksum file for a local file. If it is older than the file the JVM refuses the file."""
    return f".{name}.crc"


def sync_folder(folder: str, *, missing_ok: bool = False) -> None:
    """Make the names in a folder durable."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        if missing_ok:
            return
        raise
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _close(fd: int) -> None:
    """Close a file whose bytes are synced already or need not be durable. An error does not concern the data, and the
    descriptor is closed anyway."""
    with contextlib.suppress(OSError):
        os.close(fd)


class UnsyncedFolders:
    """The folders of one table in which files got names that a power cut may still undo. They are synced before a file
    with bytes gets its name and before a file is deleted, so no later change outlasts an earlier name.

    They are synced at the same time as the bytes of that file. One sync commits all earlier changes of the file system,
    so all syncs together take about as long as one.
    """

    def __init__(self) -> None:
        self.forget()
        forget_in_forks(self)

    def forget(self) -> None:
        """Drop all recorded folders in a forked process, which has changed nothing yet."""
        self._folders: dict[str, int] = {}  # by folder the number of its first name that is not durable
        self._names = 0
        self._lock = threading.Lock()

    def add(self, folder: str) -> None:
        with self._lock:
            self._names += 1
            self._folders.setdefault(folder, self._names)

    def __bool__(self) -> bool:
        return bool(self._folders)

    @property
    def names(self) -> int:
        """The number of names that were added so far. A change comes after all names that exist when it begins."""
        return self._names

    def sync(self, names: int | None = None) -> None:
        """Make the first `names` names durable (None: all). Another thread that calls this meanwhile waits until they
        are durable."""
        if not self._folders:
            return
        with self._lock:
            folders = [f for f, first in self._folders.items() if names is None or first <= names]
            parallel_map(partial(sync_folder, missing_ok=True), folders)  # a deleted one has no names to keep
            for folder in folders:
                del self._folders[folder]


def make_folder(folder: str, later: UnsyncedFolders | None = None) -> None:
    """Create a folder and the missing folders above it, durably; if `later` is given, it syncs the folders above."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_folder(os.path.dirname(folder), later)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
    if later is None:
        sync_folder(os.path.dirname(folder))
    else:
        later.add(os.path.dirname(folder))


def remove_tree(folder: str) -> None:
    """Delete a folder with its content, also while other processes change the content."""
    for _ in range(5):
        with os.scandir(folder) as entries:
            sorted_entries = sorted(entries, key=lambda e: e.name)
        for entry in sorted_entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
        try:
            os.rmdir(folder)
        except OSError as error:
            if os.path.isdir(folder) and os.listdir(folder):
                continue
            if isinstance(error, FileNotFoundError):
                return
            raise
        return


@contextlib.contextmanager
def locked_folder(fd: int) -> Generator[bool]:
    """Keep other processes' replacements and deletions out of the folder during the block; yields False if the file
    system cannot."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough while a forked child has the descriptor too


def remove_aside(folder: str, name: str) -> bool:
    """Remove the hidden file that an unfinished writer of this file left. A writer that is replacing the file right now
    finishes first."""
    aside = f"{folder}/{aside_name(name)}"
    if not os.path.lexists(aside):
        return False
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with locked_folder(fd):
            os.unlink(aside)
    except FileNotFoundError:
        return False
    finally:
        os.close(fd)
    return True


class AtomicFile:
    """An open file that gets its name last, by `publish` or `publish_new`. `discard` removes it.

    `unlinked=False` asks for the hidden neighbour; `shared` for a neighbour whose name no other writer of the same path
    uses. `unsynced` are the folders that are synced before the file gets its name; with "later" the file's folder is
    added to them.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        unsynced: UnsyncedFolders,
        *,
        unlinked: bool = True,
        shared: bool = True,
        durable: Durable = True,
    ) -> None:
        self._name = name
        self._path = folder
        self._durable = durable
        self._unsynced = unsynced
        self._after = unsynced.names if shared else None  # a file that is open for long comes after all names
        self._folder = self._open_folder(folder)
        self._aside: str | None = None
        self.size = 0
        try:
            self._fd = self._open(folder, unlinked, shared)
        except BaseException:
            os.close(self._folder)
            raise

    def _open_folder(self, folder: str) -> int:
        for _ in range(3):
            try:
                return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                make_folder(folder, self._unsynced if self._durable == "later" else None)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def _open(self, folder: str, unlinked: bool, shared: bool) -> int:
        if unlinked and _TMPFILE is not None:
            try:
                return os.open(folder, _TMPFILE | os.O_WRONLY, 0o666)
            except OSError as error:
                if error.errno not in _NO_TMPFILE:
                    raise
        self._aside = aside_name(f"{self._name}.{uuid.uuid4().hex[:8]}" if shared else self._name)
        if self._durable is True:
            self._unsynced.sync()
        if not shared:
            self._unlink(self._aside)
        return os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self._folder)

    @property
    def is_unlinked(self) -> bool:
        return self._aside is None

    def write(self, data: memoryview) -> None:
        while data:
            written = os.write(self._fd, data)
            self.size += written
            data = data[written:]

    def publish_new(self) -> bool:
        """Give the file its name if no file has it; otherwise remove it and return False."""
        return self.publish_as([self._name])

    def publish_as(self, names: Sequence[str]) -> bool:
        """Give the file several names that no file has. Returns False if a name is taken: the file then has the names
        before it."""
        try:
            self._sync()
            for name in names:
                self._unlink(checksum_name(name))
                if not self._take_free_name(name, copy=True):
                    return False
            self._keep_names()
            return True
        finally:
            self.discard()

    def publish(self) -> None:
        """Give the file its name, replacing a file that has it."""
        try:
            self._sync()
            self._unlink(checksum_name(self._name))
            if not self.is_unlinked:
                self._rename()
            elif not self._take_free_name(self._name, copy=False):
                self._replace()
            self._keep_names()
        finally:
            self.discard()

    def _keep_names(self) -> None:
        """Remove the aside name, and make the file's names durable."""
        with contextlib.suppress(OSError):
            self._drop_aside()
        if self._durable == "later":
            self._unsynced.add(self._path)
        elif self._durable:
            with in_doubt():
                os.fsync(self._folder)

    def _take_free_name(self, name: str, *, copy: bool) -> bool:
        """Give the file a name unless another file has it; by a copy if the file system has no links. Returns whether
        it has the name."""
        try:
            with in_doubt(always=False):
                self._link(name)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINK or not copy:
                raise
            return self._copy_exclusive(name)
        return True

    def _replace(self) -> None:
        """Take the name from another file. All replacements of a file share one aside name, and the folder's lock lets
        one of them use it at a time; a file that has the aside name then was left by a dead process. (A link that
        another writer removed could not be made again, since the file has lost its last name.)"""
        with locked_folder(self._folder) as alone:
            aside = aside_name(self._name if alone else f"{self._name}.{uuid.uuid4().hex[:8]}")
            self._unlink(aside)
            self._link(aside)
            self._aside = aside
            self._rename()

    def _rename(self) -> None:
        assert self._aside is not None
        with in_doubt(always=False):
            os.rename(self._aside, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._aside = None

    def _link(self, name: str) -> None:
        source = self._aside or f"/proc/self/fd/{self._fd}"
        os.link(
            source,
            name,
            src_dir_fd=self._folder,
            dst_dir_fd=self._folder,
            follow_symlinks=self._aside is None,
        )

    def _copy_exclusive(self, name: str) -> bool:
        """Publish on a file system without links: create the file under its name, then copy the bytes. Returns False if
        the name is taken."""
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self._folder)
        except FileExistsError:
            return False
        source = os.open(self._aside or f"/proc/self/fd/{self._fd}", os.O_RDONLY, dir_fd=self._folder)
        try:
            while chunk := os.read(source, 1 << 20):
                view = memoryview(chunk)
                while view:
                    view = view[os.write(fd, view) :]
            os.fsync(fd)
        except OSError:
            with in_doubt():  # half a file would look like another writer's
                self._unlink(name)
            raise
        finally:
            _close(source)
            _close(fd)
        return True

    def _sync(self) -> None:
        # an empty file has no bytes to lose: syncing the folder brings its inode along
        if not self._durable or (self._durable == "later" and not self.size):
            return
        if not self.size:
            self._unsynced.sync(self._after)
            return
        if not self._unsynced:
            os.fsync(self._fd)
            return
        synced = in_background(partial(os.fsync, self._fd))
        try:
            self._unsynced.sync(self._after)
        finally:
            synced()

    def discard(self) -> None:
        """Close the file; remove it if it does not have its name."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):  # a leftover must not make a published file count as failed
            self._drop_aside()
        self.leave()

    def leave(self) -> None:
        """Close the file without cleaning up, like a process that dies at this point."""
        if self._fd >= 0:
            _close(self._fd)
            _close(self._folder)
            self._fd = -1

    def _drop_aside(self) -> None:
        if self._aside is not None:
            self._unlink(self._aside)
            self._aside = None

    def _unlink(self, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=self._folder)
        except FileNotFoundError:
            return False
        return True

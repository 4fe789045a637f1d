"""A local disk that loses what was not synced: `unsynced_lost` follows the syncs of an action, and gives what a power
cut at each of them leaves of a folder.

Of a file it keeps the bytes of its last sync, of a folder the names of its last sync. `survivors` is another outcome
that a file system may have: some of the changed names outlast the cut as well, and some do not.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Files = Mapping[str, bytes]
# What a power cut ends with its owner: what is left of them is for other tests.
_OWNED = (".hoodie/.heartbeat", ".hoodie/.locks")


@dataclass
class Disk:
    """What is durable of the folder `root`; `cuts` are its files as each power cut would have left them, in order."""

    root: str
    seed: int = 0
    cuts: list[Files] = field(default_factory=list[Files])
    survivors: list[Files] = field(default_factory=list[Files])
    _content: dict[int, bytes] = field(default_factory=dict[int, bytes])
    _names: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        for folder, _, _ in os.walk(self.root):
            self._names[folder] = self._listed(folder)
            for name, inode in self._names[folder].items():
                path = Path(folder, name)
                if path.is_file():
                    self._content[inode] = path.read_bytes()

    def sync(self, fd: int) -> None:
        """Cut the power just before a file or folder is synced, then sync it."""
        with self._lock:
            self.cut()
            path = os.readlink(f"/proc/self/fd/{fd}")
            if os.path.isdir(path):
                self._names[path] = self._listed(path)
            else:
                size = os.fstat(fd).st_size
                source = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
                self._content[os.fstat(fd).st_ino] = os.pread(source, size, 0)
                os.close(source)

    def cut(self) -> None:
        self.cuts.append(dict(self._left(self.root, "", lucky=False)))
        self.survivors.append(dict(self._left(self.root, "", lucky=True)))

    @staticmethod
    def _listed(folder: str) -> dict[str, int]:
        return {entry.name: entry.inode() for entry in os.scandir(folder)}

    def _left(self, folder: str, prefix: str, *, lucky: bool) -> Generator[tuple[str, bytes]]:
        names = dict(self._names.get(folder, {}))
        if lucky and os.path.isdir(folder):
            now = self._listed(folder)
            for name in sorted({*names, *now}):
                if names.get(name) != now.get(name) and self._random.random() < 0.5:
                    names.pop(name, None)
                    if name in now:
                        names[name] = now[name]
        for name, inode in names.items():
            path = prefix + name
            if path in _OWNED:
                continue
            below = f"{folder}/{name}"
            if os.path.isdir(below) or below in self._names:
                yield from self._left(below, f"{path}/", lucky=lucky)
            else:
                yield path, self._content.get(inode, b"")


@contextlib.contextmanager
def unsynced_lost(root: str, seed: int = 0) -> Generator[Disk]:
    """In the block each sync of a file or folder of this process is followed; at its end the power goes, too."""
    disk, fsync = Disk(root, seed), os.fsync

    def followed(fd: int) -> None:
        disk.sync(fd)

    os.fsync = followed
    try:
        yield disk
        disk.cut()
    finally:
        os.fsync = fsync

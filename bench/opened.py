"""Which files of a folder are opened meanwhile, by whatever process: asked of the kernel (inotify), nothing runs in
what is measured."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from pathlib import Path
from types import TracebackType

_OPEN, _OVERFLOW = 0x20, 0x4000
_EVENT = struct.Struct("iIII")
_C = ctypes.CDLL(None, use_errno=True)


class Opened:
    """While it is open: `files` are those that were there before and have been opened, relative to the folder. The
    checksums that Hadoop keeps beside local files are not among them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: set[Path] = set()
        self._lost = False
        self._before: set[Path] = set()
        self.files: set[Path] = set()

    @property
    def data_files(self) -> set[Path]:
        """Base and log files of the table itself."""
        return {file for file in self.files if file.parts[0] != ".hoodie"}

    def __enter__(self) -> Opened:
        self._fd = _C.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        there = (path.relative_to(self._folder) for path in self._folder.rglob("*") if path.is_file())
        self._before = {path for path in there if path.suffix != ".crc"}
        self._watched: dict[int, Path] = {}
        for folder in {self._folder / path.parent for path in self._before}:
            watch = _C.inotify_add_watch(self._fd, os.fsencode(folder), _OPEN)
            if watch < 0:
                raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
            self._watched[watch] = folder.relative_to(self._folder)
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._reader.join()
        os.close(self._fd)
        if self._lost and error is None:
            raise RuntimeError("the kernel had more to tell than its queue holds")
        self.files = self._asked & self._before

    def _read(self) -> None:
        while True:
            last = self._over.is_set()  # asked before the queue is emptied: nothing that came earlier is left in it
            while select.select([self._fd], [], [], 0 if last else 0.05)[0]:
                self._take(os.read(self._fd, 1 << 16))
            if last:
                return

    def _take(self, events: bytes) -> None:
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            name = events[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            if mask & _OVERFLOW:
                self._lost = True
                continue
            self._asked.add(self._watched[watch] / os.fsdecode(name))

"""Clocks: a monotonic one for durations, which continues while the machine sleeps; and whether a storage sets
modification times by one clock or by those of the writing hosts.
"""

from __future__ import annotations

import os
import time

from lakebed.storage.base import StorageSpec

# File systems whose kernel or server sets the modification time. With others (FUSE, SMB, Ceph, Lustre...) it may be
# the writing host that does.
_STAMPING = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4", "overlay", "tmpfs", "xfs", "zfs"}
)


def stamps_itself(spec: StorageSpec) -> bool:
    """Whether the modification times of all files of this storage come from one clock, whichever host wrote them."""
    scheme, colon, _ = spec.uri.partition("://")
    if colon:
        return scheme != "memory"
    return _file_system(os.path.realpath(spec.uri)) in _STAMPING


def _file_system(path: str) -> str:
    """The type of the file system that a path is on; empty if the system does not report it."""
    best, kind = "", ""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                mount, _, source = line.partition(" - ")
                point = mount.split(" ")[4].replace("\\040", " ")
                # of mounts over one another the last counts
                if len(point) >= len(best) and f"{path}/".startswith(f"{point.rstrip('/')}/"):
                    best, kind = point, source.split(" ")[0]
    except (OSError, IndexError):
        return ""
    return kind


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def monotonic_seconds() -> float:
    """Seconds since a moment that is fixed while this process runs. `time.monotonic` alone stops while the machine is
    suspended (Linux), and a writer would not notice that its time is over."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

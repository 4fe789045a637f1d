"""What a process tree costs: CPU seconds, by kind of process, bytes read, and the most memory, from /proc."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_JVM = "java"
_EVERY_SECONDS = 0.2


@dataclass(frozen=True)
class Cpu:
    """User and system CPU seconds; `read`: bytes that the Python processes asked of files and pipes; `memory`: the sum
    of the most resident bytes that each process had meanwhile, those that it had before among them."""

    jvm: float = 0.0
    python: float = 0.0
    read: int = 0
    memory: int = 0

    @property
    def total(self) -> float:
        return self.jvm + self.python


class TreeMeter:
    """CPU of a process and everything below it while this is open, looked at so often that the share of processes that
    end meanwhile is counted, too: PySpark's daemon lets go of its workers without waiting for them, and what they have
    cost is in nobody's account.

    `spent` is complete when the block is left.
    """

    def __init__(self, root: int) -> None:
        self.spent = Cpu()
        self._root = root
        self._done = threading.Event()
        self._before = _below(root)
        for _, pid in self._before:
            _forget_peak(pid)
        self._memory: dict[int, int] = {}
        self._latest = dict(self._before)

    def __enter__(self) -> TreeMeter:
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._looking.join()
        self._see()
        jvm = python = 0.0
        read = 0
        for who, (seconds, size) in self._latest.items():
            seconds_before, size_before = self._before.get(who, (0.0, 0))
            if who[0] == _JVM:
                jvm += seconds - seconds_before
            else:
                python += seconds - seconds_before
                read += size - size_before
        self.spent = Cpu(jvm, python, read, sum(self._memory.values()))

    def _look(self) -> None:
        while not self._done.wait(_EVERY_SECONDS):
            self._see()

    def _see(self) -> None:
        found = _below(self._root)
        self._latest.update(found)
        for _, pid in found:
            self._memory[pid] = max(self._memory.get(pid, 0), _peak(pid))


def _below(root: int) -> dict[tuple[str, int], tuple[float, int]]:
    """Seconds and bytes read of each process of a tree, by name and number."""
    stats = {
        int(entry.name): stat for entry in Path("/proc").iterdir() if entry.name.isdigit() and (stat := _read(entry))
    }
    children: dict[int, list[int]] = {}
    for pid, (_, parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    found: dict[tuple[str, int], tuple[float, int]] = {}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting.extend(children.get(pid, ()))
        if pid in stats:
            name, _, seconds = stats[pid]
            found[name, pid] = seconds, _bytes_read(pid)
    return found


def _read(entry: Path) -> tuple[str, int, float] | None:
    """Name, parent and seconds of one process; None when it has just ended."""
    try:
        text = (entry / "stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    # utime, stime, cutime, cstime are fields 14 to 17 of proc(5), the first two of which are cut off here; a JVM waits
    # for the short commands that it starts, which are too short to be seen, so that they count with it
    return name, int(rest[1]), sum(int(ticks) for ticks in rest[11 : 15 if name == _JVM else 13]) / _TICKS


def _bytes_read(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["rchar"])


def _forget_peak(pid: int) -> None:
    """From now on a process's peak is that of the time after this."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak(pid: int) -> int:
    """The most resident bytes of a process; 0 when it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)

"""What a process tree has cost so far: CPU seconds, by kind of process, and bytes read, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cpu:
    """User and system CPU seconds, ended and waited-for children included; `read`: bytes that the Python processes
    asked of files and pipes."""

    jvm: float = 0.0
    python: float = 0.0
    read: int = 0

    @property
    def total(self) -> float:
        return self.jvm + self.python

    def __sub__(self, before: Cpu) -> Cpu:
        return Cpu(self.jvm - before.jvm, self.python - before.python, self.read - before.read)


def cpu_of_tree(root: int) -> Cpu:
    """CPU of a process and everything below it, up to now."""
    stats = {
        int(entry.name): stat for entry in Path("/proc").iterdir() if entry.name.isdigit() and (stat := _read(entry))
    }
    children: dict[int, list[int]] = {}
    for pid, (_, parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    jvm = python = 0.0
    read = 0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        waiting.extend(children.get(pid, ()))
        name, _, seconds = stats.get(pid, ("", 0, 0.0))
        if name == "java":
            jvm += seconds
        else:
            python += seconds
            read += _bytes_read(pid)
    return Cpu(jvm, python, read)


def _read(entry: Path) -> tuple[str, int, float] | None:
    """Name, parent and seconds of one process; None when it has just ended."""
    try:
        text = (entry / "stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    # utime, stime, cutime, cstime are fields 14 to 17 of proc(5), the first two of which are cut off here
    return name, int(rest[1]), sum(int(ticks) for ticks in rest[11:15]) / _TICKS


def _bytes_read(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["rchar"])

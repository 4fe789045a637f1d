"""The machine in words: processor, cores, memory, system, Python and Java."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def machine() -> dict[str, str]:
    cpu = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {
        "processor": cpu[0] if cpu else platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{round(memory[0] / 2**20)} GiB" if memory else "",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java[0] if java else "",
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()

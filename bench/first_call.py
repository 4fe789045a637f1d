"""What the first call of a process costs: user and system CPU of fresh processes, as ratios to the import of the
packages that lakebed is made of.

    python bench/first_call.py [runs]

Bytecode is compiled before the first run, as an installer does it; runs take turns, so that a busy machine slows all.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

RUNS = 9
PACKAGES = "import pyarrow.parquet, pyarrow.compute, obstore, fastavro"
_TABLE = """
import sys, lakebed, pyarrow as pa
rows = pa.table({"id": [1, 2], "city": ["rome", "oslo"], "fare": [9.5, 12.0], "ts": [1, 1]})
lakebed.create(sys.argv[1], rows, key="id", ordering="ts", index="bucket").upsert(rows)
"""
_GET = "import sys, lakebed; lakebed.open(sys.argv[1]).get([2])"
# What each may cost, in imports of the packages.
BARS = {"--version": 0.6, "--help": 0.6, "open and get": 1.9, "lakebed get": 2.2}


def cpu_of(arguments: Sequence[str], environment: dict[str, str]) -> float:
    """Seconds of CPU of one process of this Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(Path(folder, "bytecode"))
        table = str(Path(folder, "trips"))
        cpu_of(["-c", _TABLE, table], environment)
        calls = {
            "packages": ["-c", PACKAGES],
            "--version": ["-m", "lakebed", "--version"],
            "--help": ["-m", "lakebed", "--help"],
            "open and get": ["-c", _GET, table],
            "lakebed get": ["-m", "lakebed", "get", table, "2"],
        }
        for arguments in calls.values():
            cpu_of(arguments, environment)
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(runs):
            for name, arguments in calls.items():
                seconds[name].append(cpu_of(arguments, environment))
    unit = median(seconds["packages"])
    print(f"packages: {unit:.3f} CPU-s, median of {runs}")
    for name, bar in BARS.items():
        ratio = median(seconds[name]) / unit
        print(f"{name}: {ratio:.2f} of it, bar {bar}{'' if ratio <= bar else ', MISSED'}")


if __name__ == "__main__":
    main()

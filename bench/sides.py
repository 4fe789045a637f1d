"""Measured processes: started once, warmed up, asked step by step; each step's wall time and CPU of the whole tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpu import TreeMeter

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cost:
    """One step: seconds on the clock, CPU seconds of the JVM and of all Python processes, what the step answered, bytes
    that the Python processes read, and the most memory of the tree."""

    wall: float
    jvm: float
    python: float
    answer: Any = None
    read: int = 0
    memory: int = 0

    @property
    def cpu(self) -> float:
        return self.jvm + self.python


class Side:
    """A process that answers requests and whose tree is measured meanwhile."""

    def __init__(
        self, name: str, script: str, log: Path, python: str = sys.executable, words: Sequence[str] = (), **env: str
    ) -> None:
        self.name = name
        self._log = log
        with log.open("w") as noise:
            self._process = subprocess.Popen(
                [python, str(_HERE / script), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                text=True,
                env={**os.environ, **env},
            )
        self._answer()

    def ask(self, cmd: str, **request: Any) -> Cost:
        """Run one step. Raises RuntimeError with the side's own message where it failed."""
        pipe = self._process.stdin
        assert pipe is not None
        with TreeMeter(self._process.pid) as meter:
            started = time.perf_counter()
            pipe.write(json.dumps({"cmd": cmd, **request}, default=str) + "\n")
            pipe.flush()
            answer = self._answer()
            wall = time.perf_counter() - started
        return Cost(wall, meter.spent.jvm, meter.spent.python, answer, meter.spent.read, meter.spent.memory)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended, see {self._log}")
        answer: Mapping[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise RuntimeError(f"{self.name}: {answer['error']}\n{answer['trace']}")
        return answer["result"]


def lakebed_side(logs: Path) -> Side:
    return Side("lakebed", "lakebed_side.py", logs / "lakebed.log")


def floor_side(logs: Path) -> Side:
    return Side("floor", "floor_side.py", logs / "floor.log")


def delta_side(logs: Path) -> Side:
    """Delta Lake on Spark, in real Hudi's environment: its PySpark, and Delta's package, which Spark resolves."""
    sys.path.insert(0, str(_HERE.parent / "tests"))
    from oracle.environment import oracle_environment

    found = oracle_environment()
    return Side("delta", "delta_side.py", logs / "delta.log", str(found.python), BENCH_IVY=str(found.ivy))


def hudi_side(logs: Path) -> Side:
    """Real Hudi in the environment that the interop tests use too; fetched where it is not there yet."""
    python, place = hudi_place()
    return Side("hudi", "hudi_side.py", logs / "hudi.log", python, **place)


def hudi_place() -> tuple[str, dict[str, str]]:
    """The interpreter of real Hudi, and the variables that say where its bundle is."""
    sys.path.insert(0, str(_HERE.parent / "tests"))
    from oracle.environment import BUNDLE, RELEASE, oracle_environment

    found = oracle_environment()
    if found.bundle is not None:
        return str(found.python), {"BENCH_HUDI_JAR": str(found.bundle.absolute())}
    return str(found.python), {
        "BENCH_HUDI_PACKAGE": BUNDLE.format(release=RELEASE),
        "BENCH_HUDI_IVY": str(found.ivy),
    }

"""The runs behind docs/benchmarks.md: lakebed beside other table formats, the same tasks on the same rows.

    make bench                                       everything, some half an hour on two cores
    make bench ARGS='--only lakebed lance'           these sides again; the other results stay
    make bench ARGS='--only spark-hudi --tasks scan merge'
    python bench/page.py --rows 20000 --spark-rows 60000 --results /tmp/small.json     a quick look

Each side runs in a process of its own, one after another: a warm round with a tenth of the rows, then the rounds that
count, each with a new table. Reads are of the table as the writes before them leave it. CPU seconds are those of the
whole process tree, and of one process those that the kernel took are noted apart. After each task the rows of the
table, or of the answer, are compared with those of the other sides: a side with other rows is an error, and its figure
is not taken. The page is made of the results by `python bench/benchmarks_page.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import machine
from page_tasks import COMMITS, SIDES, SIZED, TASKS, SideKind, Task, make_inputs
from sides import Cost, Side, hudi_place

RESULTS = Path(__file__).parent / "results.json"
DELTA_JARS = (
    "io.delta:delta-spark_4.1_2.13:4.4.0!",
    "io.delta:delta-storage:4.4.0!",
    "io.delta:delta-kernel-api:4.4.0!",
    "io.delta:delta-kernel-defaults:4.4.0!",
    "io.delta:delta-kernel-unitycatalog:4.4.0!",
    "io.unitycatalog:unitycatalog-client:0.6.0!",
    "io.unitycatalog:unitycatalog-hadoop:0.6.0!",
)
ICEBERG_JARS = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0!",)
JARS = {"spark-delta": DELTA_JARS, "spark-iceberg": ICEBERG_JARS}
PACKAGES_OF_JARS = {"spark-delta": "delta-spark", "spark-iceberg": "iceberg-spark-runtime"}
# Small commits where each is a job of Spark.
SPARK_COMMITS = 20
Digest = list[int]


@dataclass(frozen=True)
class Wanted:
    """What a run is asked for."""

    only: Sequence[str]
    tasks: Sequence[str]
    rows: int
    spark_rows: int
    rounds: int
    commit_seconds: float
    pythons: Mapping[str, str]

    def rows_of(self, kind: SideKind) -> int:
        return self.spark_rows if kind.spark else self.rows


class Run:
    """One side with its process, and what was measured."""

    def __init__(self, name: str, wanted: Wanted, work: Path) -> None:
        self.kind = SIDES[name]
        self.measured: dict[str, list[dict[str, float]]] = defaultdict(list)
        self.digests: dict[str, Digest] = {}
        self.sizes: dict[str, int] = {}
        self._name, self._wanted, self._work = name, wanted, work
        self._side = started(name, wanted.pythons, work)
        self.about: dict[str, Any] = self._ask("about")
        self.about["versions"] |= versions_of_jars(name)

    def round(self, name: str, inputs: Path, *, counts: bool) -> None:
        """Each task that this side can do, on a new table."""
        folder = self._work / self._name / name
        self._ask("start", path=str(folder / "table"))
        for task in TASKS:
            if task.name in self.about["missing"]:
                continue
            if task.is_process:
                self._process(task, inputs, folder, counts=counts)
            else:
                self._task(task, inputs, folder, counts=counts)
            if counts and task.name in SIZED:
                self.sizes[task.name] = self._ask("size")
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self._side.close()

    def result(self, rows: int) -> dict[str, Any]:
        tasks = {
            name: {"runs": runs, "digest": self.digests.get(name)}
            for name, runs in self.measured.items()
            if name.partition(":")[0] in self._wanted.tasks
        }
        when = time.strftime("%Y-%m-%d")
        found = {"rows": rows, "when": when, "rounds": self._wanted.rounds, "sizes": self.sizes, "tasks": tasks}
        return {**self.about, **found}

    def _process(self, task: Task, inputs: Path, folder: Path, *, counts: bool) -> None:
        """A new process for each input, measured as a child of this one. The first one is not noted: it reads the
        files of its packages from the disk."""
        if not counts or task.name not in self._wanted.tasks:
            return
        self._ask("before", task=task.name, inputs=str(inputs), work=str(folder))
        for number, data in enumerate(task.inputs):
            self._ask("give", data=str(inputs / data))
            words = self._ask(task.command)
            if not words:
                return
            before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
            if task.name == "fresh_get" and done.stdout.strip() != "1":
                raise RuntimeError(f"{self._name}: a new process looked one key up and gave {done.stdout!r}")
            system = after.ru_stime - before.ru_stime
            cpu = after.ru_utime - before.ru_utime + system
            if number:
                answer = {"cpu": cpu, "system": system, "answer": None}
                self._note(task.name, answer, wall, None, after.ru_maxrss << 10)

    def _task(self, task: Task, inputs: Path, folder: Path, *, counts: bool) -> None:
        is_commits = task.name == "commits"
        if is_commits and not counts:
            return
        if is_commits and (task.name in self.measured or task.name not in self._wanted.tasks):
            return  # long enough to be measured once
        if task.name in {"lookup", "lookup_many", "range", "scan"} and task.name not in self._wanted.tasks:
            return  # no later task needs it
        self._ask("before", task=task.name, inputs=str(inputs), work=str(folder))
        digest: Digest = []
        words: dict[str, Any] = {}
        is_whole = True
        if is_commits:
            words = {"most": SPARK_COMMITS if self.kind.spark else COMMITS, "seconds": self._wanted.commit_seconds}
        for number in range(task.warm):
            cost = self._side.ask(task.command)
            if counts and not number:
                self._note(f"{task.name}:first", cost.answer, cost.wall, self._cpu(cost), cost.memory)
        for data in task.inputs:
            if data:
                self._ask("give", data=str(inputs / data))
            cost = self._side.ask(task.command, **words)
            if task.check == "result":
                digest += self._ask("digest", of="result")
            is_whole = not is_commits or cost.answer["answer"] == COMMITS
            if counts:
                self._note(task.name, cost.answer, cost.wall, self._cpu(cost), cost.memory)
        if task.check == "table":
            digest = self._ask("digest", of="table")
        if counts and is_whole:
            self.digests[task.name] = digest

    def _cpu(self, cost: Cost) -> float | None:
        """The CPU seconds of the tree of processes; None for a single process, which has its own account."""
        return cost.cpu if self.kind.spark else None

    def _note(self, task: str, answer: Mapping[str, Any], wall: float, cpu: float | None, memory: int) -> None:
        """CPU seconds of a single process are its own account, which is finer than the system's."""
        spent = {"cpu": round(answer["cpu"] if cpu is None else cpu, 5), "wall": round(wall, 5), "memory": memory}
        if cpu is None:
            spent["system"] = round(answer["system"], 5)
        if answer.get("services"):
            spent["services"] = answer["services"]
        if answer["answer"] is not None:
            spent["count"] = answer["answer"]
        self.measured[task].append(spent)
        print(f"  {self._name:<14} {task:<16} CPU {spent['cpu']:8.3f}  wall {wall:8.3f}", file=sys.stderr)

    def _ask(self, cmd: str, **words: Any) -> Any:
        return self._side.ask(cmd, **words).answer["answer"]


def started(name: str, pythons: Mapping[str, str], work: Path) -> Side:
    """The process of a side."""
    kind = SIDES[name]
    python, place = pythons.get(kind.environment, sys.executable), {"BENCH_WORK": str(work)}
    if kind.environment == "oracle":
        python, found = hudi_place()
        place |= found
    if name in JARS:
        # not `services.service`: bench/ has a services.py
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "services"))
        from service import maven_jars

        place["BENCH_JARS"] = ",".join(maven_jars(name, JARS[name]))
    return Side(name, "peer.py", work / f"{name}.log", python, [name], **place)


def versions_of_jars(name: str) -> dict[str, str]:
    if name == "spark-hudi":
        from oracle.environment import RELEASE

        return {"hudi": RELEASE}
    if name in JARS:
        return {PACKAGES_OF_JARS[name]: JARS[name][0].rstrip("!").split(":")[2]}
    return {}


def measured(wanted: Wanted) -> tuple[dict[str, Any], list[str]]:
    """The results of each side, and a line for each that failed; what it had measured until then is among them."""
    found: dict[str, Any] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as temporary:
        work = Path(temporary)
        for name in wanted.only:
            rows = wanted.rows_of(SIDES[name])
            inputs, warm = inputs_of(work, rows), inputs_of(work, max(rows // 10, 4_000))
            began = time.monotonic()
            run = Run(name, wanted, work)
            try:
                run.round("warm", warm, counts=False)
                for number in range(wanted.rounds):
                    run.round(f"round_{number}", inputs, counts=True)
            except RuntimeError as error:
                failed.append(f"{name} failed: {error}")
                print(failed[-1], file=sys.stderr)
            finally:
                run.close()
            found[name] = run.result(rows) | {"seconds": round(time.monotonic() - began, 1)}
    return found, failed


def inputs_of(work: Path, rows: int) -> Path:
    folder = work / f"inputs-{rows}"
    if not folder.exists():
        make_inputs(folder, rows)
    return folder


def check_rows(old: Mapping[str, Any], wanted: Wanted) -> None:
    """End before anything is measured where the results that are there are of other numbers of rows."""
    for name in wanted.only:
        rows = wanted.rows_of(SIDES[name])
        if name in old and old[name]["rows"] != rows:
            known = f"{name}: the results are of {old[name]['rows']:,} rows, this run is of {rows:,}"
            raise SystemExit(f"{known}; give --rows or --spark-rows, another --results, or --fresh")


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Old results of sides, and what new ones replace of them: task by task."""
    sides = dict(old)
    for name, side in new.items():
        before = sides.get(name)
        tasks = {**(before["tasks"] if before else {}), **side["tasks"]}
        sides[name] = {**side, "tasks": {name: tasks[name] for name in tasks if name not in side["missing"]}}
    return {name: sides[name] for name in SIDES if name in sides}


def differing(sides: Mapping[str, Any]) -> list[str]:
    """A line for each task whose answers are not equal on all sides that have as many rows."""
    found: list[str] = []
    for task in TASKS:
        answers: dict[tuple[int, str], list[str]] = defaultdict(list)
        for name, side in sides.items():
            digest = side["tasks"].get(task.name, {}).get("digest")
            if digest:
                answers[side["rows"], str(digest)].append(name)
        for rows in {rows for rows, _ in answers}:
            groups = {digest: names for (size, digest), names in answers.items() if size == rows}
            if len(groups) > 1:
                found.append(f"{task.name} of {rows:,} rows: " + "; ".join(f"{n}: {d}" for d, n in groups.items()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of tables in one process")
    parser.add_argument("--spark-rows", type=int, default=1_000_000, help="of tables on Spark")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=SIDES, default=list(SIDES), help="these sides")
    parser.add_argument("--commit-seconds", type=float, default=90.0, help="small commits end after so long")
    names = [task.name for task in TASKS]
    parser.add_argument("--tasks", nargs="*", choices=names, default=names, help="note these tasks alone")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there")
    parser.add_argument("--peers", default=sys.executable, help="an interpreter with deltalake, pyiceberg and pylance")
    parser.add_argument("--paimon", default=sys.executable, help="an interpreter with pypaimon")
    given = parser.parse_args()
    pythons = {"bench": given.peers, "bench-paimon": given.paimon}
    wanted = Wanted(given.only, given.tasks, given.rows, given.spark_rows, given.rounds, given.commit_seconds, pythons)
    os.environ["PYTHONPATH"] = os.pathsep.join(_paths())
    has_old = given.results.exists() and not given.fresh
    old = json.loads(given.results.read_text())["sides"] if has_old else {}
    check_rows(old, wanted)
    new, failed = measured(wanted)
    sides = merged(old, new)
    wrong = differing(sides)
    if wrong:
        aside = given.results.with_suffix(".differing.json")
        aside.write_text(json.dumps(sides, indent=1))
        print(f"the sides' answers differ, the results are only in {aside}:", *wrong, sep="\n", file=sys.stderr)
        return 1
    given.results.write_text(json.dumps({"machine": machine(), "sides": sides}, indent=1) + "\n")
    return int(bool(failed))


def _paths() -> Iterable[str]:
    """Where the sides' processes find what they import."""
    here = str(Path(__file__).parent)
    return [here, *filter(None, [os.environ.get("PYTHONPATH")])]


if __name__ == "__main__":
    raise SystemExit(main())

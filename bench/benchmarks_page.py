"""docs/benchmarks.md, its plots, and the figures of README, all from bench/results.json and, beside it, rounds.json.

python bench/benchmarks_page.py                                    writes them
python bench/benchmarks_page.py --check                            exits with 1 where they are others
python bench/benchmarks_page.py --results FILE --root FOLDER       of other results, in another folder
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from page_reasons import INTRODUCTION, ON_SPARK, ORDER, PROCESS_REASONS, ROUNDS, SPARK_REASONS, WARM
from svg import Axis, dots

_HERE = Path(__file__).parent
Results = Mapping[str, Any]
# A task by its name, or a part of its runs after a colon. Writes are means of their runs, reads are medians.
TITLES = {
    "load:mean": "load",
    "upsert_percent:mean": "upsert of 1 %",
    "upsert_ten:mean": "upsert of 10 rows (mean with services)",
    "upsert_ten:without": "upsert of 10 rows (median without services)",
    "upsert_tenth:mean": "upsert of 10 %",
    "delete:mean": "delete of 1,000 keys",
    "merge:mean": "MERGE of 1 %, sums with stored values",
    "lookup": "lookup of 1 key",
    "lookup_many": "lookup of 1,000 keys",
    "fresh_get": "lookup of 1 key by a new process",
    "shell_get": "lookup of 1 key on the shell",
    "range": "range query, 1 % of the rows",
    "scan": "full scan",
    "scan:first": "first full scan",
    "incremental": "incremental read of the upsert of 1 %",
    "commits": "a small commit (10 rows)",
}
TITLES_OF_SIDES = {
    "lakebed": "lakebed",
    "lakebed-cow": "lakebed, copy-on-write",
    "deltalake": "Delta (deltalake)",
    "deltalake-zstd": "Delta, zstd",
    "deltalake-text": "Delta, zstd, plain text",
    "pyiceberg": "Iceberg (pyiceberg)",
    "lance": "Lance",
    "pypaimon": "Paimon (pypaimon)",
    "spark-lakebed": "lakebed",
    "spark-hudi": "Hudi",
    "spark-delta": "Delta",
    "spark-iceberg": "Iceberg",
}
# The tasks of rounds.py, with whether a process has just begun or goes on.
ROUNDS_TITLES = {
    "fresh_count": "count, new process",
    "fresh_partition": "scan of a partition, new process",
    "fresh_lookup": "lookup of 1 key, new process",
    "fresh_upsert": "upsert of 10 rows, new process",
    "long_commit": "upsert of 10 rows",
    "long_count": "count after it",
    "long_changes": "incremental read",
    "long_delete": "delete of 1 key",
}
README_SIDES = ("lakebed", None, "deltalake", "pyiceberg", "lance")
README_SPARK_SIDES = ("spark-lakebed", "spark-hudi", "spark-delta", "spark-iceberg", None)
README_FIRST = "| an upsert finds stored rows by |"


class Group:
    """The sides of one kind: of one process, or of Spark."""

    def __init__(self, results: Results, *, spark: bool) -> None:
        self.sides: dict[str, Any] = {
            name: side for name, side in results["sides"].items() if name.startswith("spark-") == spark
        }
        self.ours = "spark-lakebed" if spark else "lakebed"
        self.reasons = SPARK_REASONS if spark else PROCESS_REASONS

    @property
    def rows(self) -> int:
        return max(side["rows"] for side in self.sides.values())

    def cost(self, side: str | None, task: str, of: str = "cpu") -> float | None:
        """The cost of a task, for each commit where it is of commits: the median of its runs, by the part of its name
        after a colon their mean ("mean"), or the median of the runs without table services ("without"), or of those
        that were the first of a process and a table ("first"). None where it was not measured.

        The mean is what a writer pays who writes again and again, since some runs compact or clean the table and most
        do not.
        """
        name, _, part = task.partition(":")
        tasks = self.sides.get(side or "", {}).get("tasks", {})
        runs = tasks.get(task if part == "first" else name, {}).get("runs", ())
        if part == "without":
            runs = [run for run in runs if not run.get("services")]
        costs = [run[of] / run.get("count", 1) for run in runs if of in run]
        return (mean if part == "mean" else median)(costs) if costs else None

    def reason(self, task: str) -> str:
        """Why another format takes less CPU in a task."""
        return self.reasons.get(task) or self.reasons[task.partition(":")[0]]

    def size(self, side: str, task: str) -> float | None:
        """The bytes of the table's files after a task, in MB."""
        found = self.sides[side].get("sizes", {}).get(task)
        return found / 1e6 if found else None

    def memory(self, side: str, tasks: Sequence[str]) -> float | None:
        """The most memory in any of these tasks, in MB: in the first round, since a process keeps some of it for the
        next one."""
        measured, rounds = self.sides[side]["tasks"], self.sides[side].get("rounds", 2)
        runs = [measured[task]["runs"] for task in tasks if task in measured]
        first = [run for some in runs for run in some[: max(len(some) // rounds, 1)]]
        found = [run["memory"] for run in first if run["memory"]]
        return max(found) / 1e6 if found else None

    def times(self, task: str) -> dict[str, float]:
        """How many times lakebed's CPU each side takes."""
        ours = self.cost(self.ours, task)
        costs = {name: self.cost(name, task) for name in self.sides}
        return {name: cost / ours for name, cost in costs.items() if ours and cost}


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def table(group: Group) -> list[str]:
    """CPU seconds, the least of each line in bold, and memory below."""
    lines = ["| CPU seconds | " + " | ".join(TITLES_OF_SIDES[name] for name in group.sides) + " |"]
    lines.append("|---|" + "---:|" * len(group.sides))
    for task, title in TITLES.items():
        costs = {name: group.cost(name, task) for name in group.sides}
        least = min((cost for cost in costs.values() if cost is not None), default=None)
        if least is None and task in _NOT_EVERYWHERE:
            continue
        cells = [
            f"**{seconds(cost)}**" if cost == least and cost is not None else seconds(cost) for cost in costs.values()
        ]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    kernel = [seconds(group.cost(name, "scan", "system")) for name in group.sides]
    if any(cell != "-" for cell in kernel):
        lines.append("| full scan, of it in the kernel | " + " | ".join(kernel) + " |")
    walls = {name: group.cost(name, "commits", "wall") for name in group.sides}
    lines.append("| the same, seconds on the clock | " + " | ".join(seconds(wall) for wall in walls.values()) + " |")
    for title, task in (("files after the load, MB", "load"), ("files after the small writes, MB", "scan")):
        sizes = [group.size(name, task) for name in group.sides]
        if any(sizes):
            lines.append(f"| {title} | " + " | ".join(f"{size:,.1f}" if size else "-" for size in sizes) + " |")
    for title, tasks in (("most memory in a write, MB", _WRITES), ("most memory in a read, MB", _READS)):
        sizes = [group.memory(name, tasks) for name in group.sides]
        lines.append(f"| {title} | " + " | ".join(f"{size:,.0f}" if size else "-" for size in sizes) + " |")
    return lines


# Lines that are left out where no side has a figure.
_NOT_EVERYWHERE = ("fresh_get", "shell_get", "scan:first")
_WRITES = ("load", "upsert_percent", "upsert_ten", "upsert_tenth", "delete", "merge")
_READS = ("lookup", "lookup_many", "range", "scan", "incremental")


def missing(group: Group) -> list[str]:
    """A line for each task that a side has no figure for."""
    found: list[str] = []
    for name, side in group.sides.items():
        for task, reason in side["missing"].items():
            found.append(f"- {TITLES_OF_SIDES[name]}, {_title(task)}: {reason}.")
        done = [run["count"] for run in side["tasks"].get("commits", {}).get("runs", ())]
        if done and done[0] < 1_000 and not name.startswith("spark-"):
            found.append(
                f"- {TITLES_OF_SIDES[name]}, small commits: {done[0]} of 1,000 were done when the time was over."
            )
    return found


def _title(task: str) -> str:
    return next(title for name, title in TITLES.items() if name.partition(":")[0] == task)


def better(group: Group) -> list[str]:
    """A line for each task in which another format takes less CPU, and why."""
    found: list[str] = []
    for task, title in TITLES.items():
        times = {name: share for name, share in group.times(task).items() if "lakebed" not in name and share < 0.95}
        if times:
            who = ", ".join(f"{TITLES_OF_SIDES[name]} {seconds(1 / share)} times" for name, share in times.items())
            found.append(f"- **{title}**: {who} less. {group.reason(task)}")
    return found


def picture(group: Group, title: str) -> str:
    shares = {
        label: {TITLES_OF_SIDES[name]: share for name, share in group.times(task).items()}
        for task, label in TITLES.items()
    }
    values = [share for row in shares.values() for share in row.values()]
    low = math.floor(math.log10(min(values, default=1)))
    high = max(math.ceil(math.log10(max(values, default=10))), low + 1)
    short = {label.split(", ")[0]: row for label, row in shares.items() if row}
    return dots(title, Axis("", [10.0**power for power in range(low, high + 1)], log=True), short)


def section(group: Group, title: str, image: str, text: str) -> list[str]:
    lines = [f"## {title}", "", text, "", f"![CPU of each side by task](images/{image})", "", *table(group), ""]
    lines += ["| side | version | settings | measured |", "|---|---|---|---|"]
    for name, side in group.sides.items():
        versions = ", ".join(f"{package} {number}" for package, number in side["versions"].items())
        lines.append(f"| {TITLES_OF_SIDES[name]} | {versions} | {side['settings']} | {side['when']} |")
    lost = missing(group)
    if lost:
        lines += ["", "Not measured:", "", *lost]
    wins = better(group)
    if wins:
        lines += ["", "Where another format takes less CPU than lakebed:", "", *wins]
    return [*lines, ""]


def rounds_section(rounds: Results) -> list[str]:
    """Rounds and requests on an object store, the fewest rounds of each line in bold."""
    sides = rounds["sides"]
    lines = ["## On an object store", "", *ROUNDS, ""]
    lines.append("| rounds (requests) | " + " | ".join(TITLES_OF_SIDES[name] for name in sides) + " |")
    lines.append("|---|" + "---:|" * len(sides))
    for task, title in ROUNDS_TITLES.items():
        costs = [side["tasks"].get(task) for side in sides.values()]
        least = min((cost["rounds"] for cost in costs if cost), default=None)
        cells = [
            f"{'**' * (cost['rounds'] == least)}{cost['rounds']}{'**' * (cost['rounds'] == least)} ({cost['requests']})"
            if cost
            else "-"
            for cost in costs
        ]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += ["", "Versions: " + ", ".join(side["version"] for side in sides.values()) + ".", ""]
    for name, side in sides.items():
        for task, reason in side["missing"].items():
            lines.append(f"- {TITLES_OF_SIDES[name]}, {ROUNDS_TITLES[f'long_{task}']}: {reason}.")
    return [*lines, ""]


def page(results: Results, rounds: Results | None) -> str:
    process, spark = Group(results, spark=False), Group(results, spark=True)
    machine = results["machine"]
    where = ", ".join(f"{machine[part]}" for part in ("processor", "memory", "system", "java"))
    lines = [
        "# Benchmarks",
        "",
        *INTRODUCTION,
        "",
        f"Measured on {machine['cores']} cores: {where}; Python {machine['python']}.",
        "",
        *ORDER,
        *(WARM if process.cost(process.ours, "scan:first") else ()),
        "",
    ]
    if process.sides:
        text = f"{process.rows:,} rows of 9 columns. Rows come and go as Arrow tables."
        lines += section(process, "In one process", "benchmarks_process.svg", text)
    if rounds is not None:
        lines += rounds_section(rounds)
    if spark.sides:
        text = f"{spark.rows:,} rows of 9 columns. {ON_SPARK}"
        lines += section(spark, "On Spark", "benchmarks_spark.svg", text)
    lines += [
        "## Run it again",
        "",
        "```sh",
        "make bench                                              # everything",
        "make bench ARGS='--only lance lakebed'                  # these sides; the results of the others stay",
        "make bench ARGS='--only spark-hudi --tasks scan merge'  # these tasks of one side",
        "python bench/benchmarks_page.py                         # the page from bench/results.json, without a run",
        "```",
        "",
    ]
    return "\n".join(lines)


def readme_rows(results: Results) -> list[str]:
    """The measured lines of README's table."""
    process, spark = Group(results, spark=False), Group(results, spark=True)

    def line(text: str, group: Group, sides: Sequence[str | None], task: str) -> str:
        return f"| {text} | " + " | ".join(seconds(group.cost(side, task)) for side in sides) + " |"

    rows, spark_rows = process.rows, spark.rows
    into, on_spark = f"upserted into {rows:,}, CPU seconds in one process", f"{spark_rows:,} on Spark, CPU seconds"
    fresh = f"a key of {rows:,} rows looked up by a new process, CPU seconds"
    read = f"a read of {spark_rows:,} rows after small upserts on Spark, CPU seconds"
    return [
        line(f"10 rows {into}, mean with services", process, README_SIDES, "upsert_ten:mean"),
        line("the same, median without services", process, README_SIDES, "upsert_ten:without"),
        line(f"{rows // 100:,} rows {into}", process, README_SIDES, "upsert_percent:mean"),
        line(f"{spark_rows // 10:,} rows upserted into {on_spark}", spark, README_SPARK_SIDES, "upsert_tenth:mean"),
        line(read, spark, README_SPARK_SIDES, "scan"),
        *([line(fresh, process, README_SIDES, "fresh_get")] if process.cost(process.ours, "fresh_get") else []),
    ]


def with_rows(readme: str, rows: Sequence[str]) -> str:
    """README with these lines below the first one of its table."""
    lines = readme.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(README_FIRST)) + 1
    last = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    return "\n".join([*lines[:first], *rows, *lines[last:], ""])


def files(results: Results, rounds: Results | None, root: Path) -> dict[Path, str]:
    """What the results give, by path."""
    found = {root / "docs" / "benchmarks.md": page(results, rounds)}
    process, spark = Group(results, spark=False), Group(results, spark=True)
    for group, name in ((process, "process"), (spark, "spark")):
        if group.sides:
            title = f"CPU by task, as times lakebed's ({'on Spark' if name == 'spark' else 'in one process'})"
            found[root / "docs" / "images" / f"benchmarks_{name}.svg"] = picture(group, title)
    readme = root / "README.md"
    if readme.exists() and process.sides and spark.sides:
        found[readme] = with_rows(readme.read_text(), readme_rows(results))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=_HERE / "results.json")
    parser.add_argument("--root", type=Path, default=_HERE.parent)
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    rounds = given.results.with_name("rounds.json")
    made = files(
        json.loads(given.results.read_text()), json.loads(rounds.read_text()) if rounds.exists() else None, given.root
    )
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if given.check:
            print(f"{path} is not what {given.results} gives: run python bench/benchmarks_page.py", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path])
    return int(given.check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())

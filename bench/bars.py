"""From measured steps to the figures and bars of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from sides import Cost

Steps = Mapping[str, Sequence[Cost]]


@dataclass(frozen=True)
class Bar:
    """A ratio and its limit; `value` None where a side was not run."""

    name: str
    value: float | None
    limit: float
    at_least: bool
    goal: float | None = None

    @property
    def held(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def line(self) -> str:
        sign = ">=" if self.at_least else "<="
        goal = f", goal {self.goal:g}" if self.goal is not None else ""
        verdict = {None: "not measured", True: "pass", False: "MISS"}[self.held]
        shown = "     -" if self.value is None else f"{self.value:6.2f}"
        return f"{verdict:<13}{shown}  ({sign} {self.limit:.3g}{goal})  {self.name}"


def bars(steps: Steps) -> list[Bar]:
    """The bars of the keyed upsert, from the medians of the steps that were run."""

    def cpu(step: str) -> float | None:
        return median(c.cpu for c in steps[step]) if steps.get(step) else None

    def wall(step: str) -> float | None:
        return median(c.wall for c in steps[step]) if steps.get(step) else None

    jvm = median(c.jvm for c in steps["count only"]) if steps.get("count only") else None
    floor = cpu("floor")
    least = floor + jvm if floor is not None and jvm is not None else None
    upsert, load = cpu("lakebed upsert"), cpu("lakebed load")
    scan, small = _ratio(cpu("lakebed scan"), cpu("spark scan")), _ratio(wall("lakebed small"), wall("hudi small"))
    return [
        Bar("upsert, CPU: Hudi's / lakebed's", _ratio(cpu("hudi upsert"), upsert), 7, True, 10),
        Bar("upsert, CPU: lakebed's / (floor + the JVM's share)", _ratio(upsert, least), 1.3, False),
        Bar("bulk insert, CPU: Hudi's / lakebed's", _ratio(cpu("hudi load"), load), 3.75, True, 4.5),
        Bar("bulk insert, CPU: lakebed's / Spark's write.parquet", _ratio(load, cpu("spark write")), 1.3, False),
        Bar("scan, CPU: lakebed's / spark.read.parquet's", scan, 1.1, False),
        Bar("upsert of 1,000 rows, wall: lakebed's / Hudi's", small, 1 / 6, False),
    ]


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def figures(steps: Steps) -> list[str]:
    """A line for each step: runs, median wall and CPU seconds, the JVM's and Python's part."""
    lines = [f"{'step':<18}{'runs':>5}{'wall s':>9}{'CPU s':>9}{'JVM':>9}{'Python':>9}{'CPU min-max':>16}"]
    for name, costs in steps.items():
        each = [median(values) for values in zip(*((c.wall, c.cpu, c.jvm, c.python) for c in costs), strict=True)]
        spread = f"{min(c.cpu for c in costs):.2f}-{max(c.cpu for c in costs):.2f}"
        lines.append(f"{name:<18}{len(costs):>5}" + "".join(f"{v:>9.2f}" for v in each) + f"{spread:>16}")
    return lines


def as_json(steps: Steps, about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "about": dict(about),
        "steps": {name: [asdict(c) for c in costs] for name, costs in steps.items()},
        "bars": [{**asdict(bar), "held": bar.held} for bar in bars(steps)],
    }

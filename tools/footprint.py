"""What `pip install lakebed` brings, by extra: `python tools/footprint.py` prints the table of docs/install.md.

It follows the requirements of the packages in this environment, leaves out extras that it lacks, and sums the sizes of
their files. Packages that lakebed needs without an extra are counted once, in the first row.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

_PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def packages_of(requirements: list[str]) -> set[str]:
    """The names of all packages that these requirements bring, directly or not."""
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(text, "") for text in requirements]
    while waiting:
        text, extra = waiting.pop()
        one = Requirement(text)
        name, extras = _normal(one.name), frozenset(one.extras)
        if (one.marker and not one.marker.evaluate({"extra": extra})) or (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        waiting += [(more, wanted) for more in distribution(name).requires or [] for wanted in ("", *extras)]
    return found


def megabytes(name: str) -> float:
    """The files of an installed package in MB, without compiled Python."""
    files = distribution(name).files or []
    sizes = (Path(str(file.locate())).stat().st_size for file in files if Path(str(file.locate())).is_file())
    return sum(sizes) / 1e6


def rows() -> list[tuple[str, int, float]]:
    """Extra, number of packages, MB: first of lakebed without an extra, then what each extra adds."""
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    base = packages_of(project["dependencies"])
    table = [("", len(base), sum(map(megabytes, base)))]
    for extra, requirements in sorted(project["optional-dependencies"].items()):
        try:
            more = packages_of(requirements) - base
            table.append((extra, len(more), sum(map(megabytes, more))))
        except PackageNotFoundError as error:
            print(f"left out: {error.name} of the extra {extra!r} is not installed", file=sys.stderr)
    return table


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print("| extra | packages more | MB more |\n|---|---|---|")
    for name, count, size in rows():
        print(f"| {f'`{name}`' if name else '(none)'} | {count} | {size:.0f} |")

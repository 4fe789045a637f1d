"""Where each source file is tested: `python tools/where_tested.py` measures it and writes tests/unit/where.tsv.

Runs the unit tests room by room and notes which functions of `src/lakebed` each test file calls. A source file without
a test of its name gets the test file that calls most of its functions: of those that call nearly as many, the one in
its own room, then the one that calls the fewest other functions. A file that no unit test reaches (Spark, servers,
processes) keeps the row that somebody wrote.

`python tools/where_tested.py ROOM...` measures these rooms of tests alone and adds to what was measured before, which
`--calls FILE` keeps (build/calls.json).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lakebed"
UNIT = ROOT / "tests" / "unit"
TABLE = UNIT / "where.tsv"
# Of test files that call nearly as many functions of a file as the best one, the nearest is chosen.
_NEARLY = 0.85
# Source file -> test file -> functions that it calls.
Calls = dict[str, dict[str, list[str]]]


class _Calls:
    """A plugin of pytest that notes which code of `src/lakebed` runs while the tests of a file run."""

    def __init__(self) -> None:
        self.of_tests: dict[str, set[CodeType]] = defaultdict(set)
        self._now: set[CodeType] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now = self.of_tests[item.path.relative_to(ROOT).as_posix()]
        sys.settrace(self._called)
        threading.settrace(self._called)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def _called(self, frame: FrameType, event: str, arg: object) -> None:
        self._now.add(frame.f_code)  # calls alone: no line is traced

    def by_source(self) -> Calls:
        found: Calls = defaultdict(dict)
        prefix = f"{SOURCE}{os.sep}"
        for test, codes in self.of_tests.items():
            names: dict[str, set[str]] = defaultdict(set)
            for code in codes:
                if code.co_filename.startswith(prefix) and not code.co_qualname.endswith(">"):
                    names[code.co_filename.removeprefix(prefix)].add(code.co_qualname)
            for source, called in names.items():
                found[Path(source).as_posix()][test] = sorted(called)
        return found


def own_test(source: str) -> Path:
    """The test that has the name of a source file: `index/bucket.py` -> `tests/unit/index/test_bucket.py`."""
    path = Path(source)
    return UNIT / path.parent / f"test_{path.name}"


def sources() -> list[str]:
    """The source files that have a function, without `__init__.py`."""
    return sorted(
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py"
        and any(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    )


def rows() -> dict[str, list[str]]:
    """The table: source file -> its test files."""
    if not TABLE.exists():
        return {}
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    return {source: tests.split() for source, tests in (line.split("\t") for line in lines)}


def nearest(source: str, called: Mapping[str, list[str]], breadth: Mapping[str, int]) -> str | None:
    """The test file to name for a source file; `breadth` has how many functions each test file calls."""
    if not called:
        return None
    enough = _NEARLY * max(map(len, called.values()))
    near = [test for test, functions in called.items() if len(functions) >= enough]
    room = (UNIT / Path(source).parent).relative_to(ROOT).as_posix()
    return min(near, key=lambda test: (Path(test).parent.as_posix() != room, breadth[test], test))


def write(calls: Calls) -> None:
    breadth = Counter[str]()
    for called in calls.values():
        breadth.update({test: len(functions) for test, functions in called.items()})
    before = rows()
    lines = ["# source file\tthe test file to look at first: measured by tools/where_tested.py, or named by hand"]
    for source in sources():
        if own_test(source).exists():
            continue
        test = nearest(source, calls.get(source, {}), breadth)
        tests = [test.removeprefix("tests/")] if test else before.get(source, [])
        if tests:
            lines.append(f"{source}\t{' '.join(tests)}")
        else:
            print(f"no unit test reaches {source}: write its row", file=sys.stderr)
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("room", nargs="*", help="folders and files of tests/unit; all of them by default")
    asked.add_argument("--calls", type=Path, default=ROOT / "build" / "calls.json")
    asked.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.measure:
        plugin = _Calls()
        pytest.main(["-p", "no:cacheprovider", "-m", "not spark and not interop", *given.room], plugins=[plugin])
        given.calls.write_text(json.dumps(plugin.by_source()), encoding="utf-8")
        return
    given.calls.parent.mkdir(exist_ok=True)
    calls: Calls = defaultdict(dict)
    if given.calls.exists():
        calls.update(json.loads(given.calls.read_text("utf-8")))
    rooms = given.room or sorted(p.name for p in UNIT.iterdir() if p.is_dir() or p.name.startswith("test_"))
    part = given.calls.with_suffix(".part")
    for room in rooms:
        # a process for each room: what one of them imports or leaves behind is not measured for the next
        subprocess.run([sys.executable, __file__, "--measure", "--calls", part, UNIT / room], cwd=ROOT, check=True)
        for source, called in json.loads(part.read_text("utf-8")).items():
            calls.setdefault(source, {}).update(called)
        given.calls.write_text(json.dumps(calls), encoding="utf-8")
    write(calls)


if __name__ == "__main__":
    main()

"""How many files and functions of lakebed a small write or read passes. The budgets only go down: a reader has to
follow the walk.

`python tests/unit/test_walk.py mor upsert` prints the functions of a walk, by room.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed.storage import parallel
from lakebed.table import Table

SOURCE = Path(lakebed.__file__).parent
# What decides nothing: byte formats, storages, settings, names.
GROUND = ("format/", "schema/", "storage/", "expressions/", "config/", "engine/", "inputs/", "properties/")
# What only watches, or is in place of a function of the standard library: a reader need not follow it.
WATCHES = ("telemetry.py", "lineage.py", "sharing.py")
GROUND_MODULES = ("model.py", "errors.py", "progress.py", "wording.py")
# A read or write: files in all, of them those of the other rooms, and functions.
BUDGETS: dict[tuple[Literal["cow", "mor"], str], tuple[int, int, int]] = {
    ("mor", "upsert"): (105, 64, 820),
    ("mor", "get"): (82, 38, 585),
    ("mor", "get again"): (63, 28, 381),
    ("mor", "scan"): (65, 31, 484),
    ("mor", "scan where"): (79, 44, 616),
    ("mor", "compact"): (119, 69, 997),
    ("cow", "upsert"): (127, 72, 1036),
    ("cow", "get"): (68, 31, 439),
    ("cow", "scan"): (50, 24, 321),
}
# Parts of the function that they stand in: from Python 3.12 on the interpreter takes them so, too.
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")


def rows(first: int) -> pa.Table:
    return pa.table({"id": [first, first + 1, first + 2], "city": ["a", "b", "a"], "n": [1, 2, 3], "ts": [1, 1, 1]})


def walk(run: Callable[[], object]) -> set[CodeType]:
    """The functions of `src/lakebed` that were called, without those that the import of a module calls."""
    found: set[CodeType] = set()
    importing: Counter[int] = Counter()

    def called(frame: FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(str(SOURCE)):
            return
        if frame.f_code.co_name == "<module>":
            importing[threading.get_ident()] += 1 if event == "call" else -1
        elif event == "call" and not importing[threading.get_ident()]:
            found.add(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return {code for code in found if code.co_name not in COMPREHENSIONS}


CALLS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows(0)),
    "get": lambda t: t.get([1]),
    "get again": lambda t: t.get([1]),
    "scan": lambda t: t.scan().to_arrow(),
    "scan where": lambda t: t.scan(where="n > 1").to_arrow(),
    "compact": lambda t: t.maintenance.compact(),
}


def name_of(function: CodeType) -> str:
    path = Path(function.co_filename).relative_to(SOURCE).as_posix()
    return f"{path}:{function.co_firstlineno} {function.co_qualname}"


def walks() -> dict[str, list[str]]:
    """The functions that each read or write passes, as `file:line name`."""
    found: dict[str, list[str]] = {}
    for kind, call in BUDGETS:
        uri = f"memory://walks/{kind}-{call}"
        table = lakebed.create(
            uri, rows(0), key="id", partition_by="city", ordering="ts", type=kind, index="bucket", buckets=2
        )
        for first in (0, 1, 0):
            table.upsert(rows(first))
        for thread in threading.enumerate():  # what the upserts left to threads of their own
            if thread.name == "lakebed-aside":
                thread.join()
        if call.endswith("again"):
            CALLS[call](table)
        gc.collect()
        parallel._forget()  # pyright: ignore[reportPrivateUsage]  (only threads that begin in the walk are followed)
        found[f"{kind} {call}"] = sorted(map(name_of, walk(partial(CALLS[call], table))))
    return found


@pytest.fixture(scope="module")
def passed() -> dict[str, list[str]]:
    """In a process of its own: what was read or made before by others would not be passed again."""
    script = "import json, test_walk; print(json.dumps(test_walk.walks()))"
    paths = os.pathsep.join([str(Path(__file__).parent), str(SOURCE.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.every_case
@pytest.mark.parametrize(("kind", "call"), BUDGETS)
def test_a_small_call_passes_no_more_files_and_functions_than_its_budget(
    kind: Literal["cow", "mor"], call: str, passed: dict[str, list[str]]
) -> None:
    functions = [name for name in passed[f"{kind} {call}"] if not name.startswith(tuple(f"{w}:" for w in WATCHES))]
    files = {name.partition(":")[0] for name in functions}
    control = {name for name in files if not name.startswith(GROUND) and name not in GROUND_MODULES}
    assert "table.py" in control
    most, most_control, most_functions = BUDGETS[kind, call]
    assert len(files) <= most, sorted(files)
    assert len(control) <= most_control, sorted(control)
    assert len(functions) <= most_functions, Counter(name.partition("/")[0].partition(":")[0] for name in functions)


def print_walk(name: str) -> None:
    """The functions of a walk by room, those of the room with the most first."""
    by_room: dict[str, list[str]] = {}
    for function in walks()[name]:
        by_room.setdefault(function.partition("/")[0].partition(":")[0], []).append(function)
    for room, functions in sorted(by_room.items(), key=lambda item: -len(item[1])):
        print(f"{len(functions):5} {room}", *functions, sep="\n        ")
    print(f"{sum(map(len, by_room.values())):5}")


if __name__ == "__main__":
    print_walk(" ".join(sys.argv[1:]))

"""How many files of lakebed a small write or read passes. The budgets only go down: a reader has to follow the walk."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.storage import parallel
from lakebed.table import Table

SOURCE = Path(lakebed.__file__).parent
# What decides nothing: byte formats, storages, settings, names.
GROUND = ("format/", "schema/", "storage/", "expressions/", "config/", "engine/", "inputs/", "properties/")
# What only watches, or is in place of a function of the standard library: a reader need not follow it.
WATCHES = ("telemetry.py", "sharing.py")
GROUND_MODULES = ("model.py", "errors.py", "progress.py", "wording.py")
# A read or write: files in all, and of them those of the other rooms.
BUDGETS = {
    ("mor", "upsert"): (122, 69),
    ("mor", "get"): (88, 39),
    ("mor", "scan"): (71, 33),
    ("mor", "compact"): (125, 68),
    ("cow", "upsert"): (134, 74),
    ("cow", "get"): (73, 32),
    ("cow", "scan"): (54, 26),
}


def rows(first: int) -> pa.Table:
    return pa.table({"id": [first, first + 1, first + 2], "city": ["a", "b", "a"], "n": [1, 2, 3], "ts": [1, 1, 1]})


def walk(run: Callable[[], object]) -> set[str]:
    """The files of `src/lakebed` with a function that was called."""
    found: set[str] = set()

    def called(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and (name := frame.f_code.co_filename).startswith(str(SOURCE)):
            found.add(Path(name).relative_to(SOURCE).as_posix())

    before = sys.getprofile()
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    return found


CALLS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows(0)),
    "get": lambda t: t.get([1]),
    "scan": lambda t: t.scan().to_arrow(),
    "compact": lambda t: t.compact(),
}


def walks() -> dict[str, list[str]]:
    """The files that each read or write passes."""
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
        gc.collect()
        parallel._forget()  # pyright: ignore[reportPrivateUsage]  (only threads that begin in the walk are followed)
        found[f"{kind} {call}"] = sorted(walk(partial(CALLS[call], table)))
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
def test_a_small_call_passes_no_more_files_than_its_budget(kind: str, call: str, passed: dict[str, list[str]]) -> None:
    files = [name for name in passed[f"{kind} {call}"] if name not in WATCHES]
    control = [name for name in files if not name.startswith(GROUND) and name not in GROUND_MODULES]
    assert "table.py" in control
    most, most_control = BUDGETS[kind, call]
    assert len(files) <= most, files
    assert len(control) <= most_control, control

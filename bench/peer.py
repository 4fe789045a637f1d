"""The process of one side of the benchmark page: `python bench/peer.py NAME`, asked by page.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from page_tasks import SIDES, TASKS
from serve import Commands, serve

_OTHERS = ("about", "start", "before", "give", "digest")


def measured(step: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """The step's answer, and the CPU seconds of this process alone, which are finer than those of the system."""

    def run(**words: Any) -> dict[str, Any]:
        started = time.process_time()
        answer = step(**words)
        return {"answer": answer, "cpu": time.process_time() - started}

    return run


def _start() -> Commands:
    module, name = SIDES[sys.argv[1]].peer.split(":")
    peer = getattr(import_module(f"peers.{module}"), name)()
    steps = {task.command for task in TASKS}
    return {name: measured(getattr(peer, name)) for name in sorted(steps | set(_OTHERS))}


if __name__ == "__main__":
    serve(_start)

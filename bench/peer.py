"""The process of one side of the benchmark page: `python bench/peer.py NAME`, asked by page.py."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from page_tasks import SIDES, TASKS
from peers.base import Peer
from serve import Commands, serve

_OTHERS = ("about", "start", "before", "give", "digest", "size")


def measured(peer: Peer, step: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """The step's answer, the CPU seconds of this process alone, which are finer than those of the system, those of them
    that the kernel took, and how many table services the step ran."""

    def run(**words: Any) -> dict[str, Any]:
        peer.services = 0
        started, in_kernel = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_stime
        answer = step(**words)
        cpu = time.process_time() - started
        system = resource.getrusage(resource.RUSAGE_SELF).ru_stime - in_kernel
        return {"answer": answer, "cpu": cpu, "system": system, "services": peer.services}

    return run


def _start() -> Commands:
    module, name = SIDES[sys.argv[1]].peer.split(":")
    peer = getattr(import_module(f"peers.{module}"), name)()
    steps = {task.command for task in TASKS}
    return {name: measured(peer, getattr(peer, name)) for name in sorted(steps | set(_OTHERS))}


if __name__ == "__main__":
    serve(_start)

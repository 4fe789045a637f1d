"""Dask as a cluster of the task engine: the workers of `distributed`, or else threads of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pkgutil import resolve_name
from typing import Any, Literal

import cloudpickle
import dask


class DaskCluster:
    """The scheduler that Dask takes here: the client that was made last, or one of its own."""

    name: Literal["ray", "dask"] = "dask"

    def cores(self) -> int:
        client = _client()
        return (os.cpu_count() or 1) if client is None else max(1, sum(client.nthreads().values()))

    def blocks(self, data: Any) -> list[Any]:
        if (client := _client()) is not None:
            client.run(resolve_name, "lakebed:__name__")  # a worker that cannot load a task does not say so
        return list(data.to_delayed())

    def pickled(self, value: Any) -> bytes:
        return cloudpickle.dumps(value)

    def share(self, value: bytes) -> Any:
        return dask.delayed(value, pure=False, traverse=False)

    def run(self, fn: Callable[..., Any], calls: Sequence[Sequence[Any]], outputs: int = 1) -> list[list[Any]]:
        task = dask.delayed(fn, pure=False)
        done = [task(*call) for call in calls]
        refs = [[result] if outputs == 1 else [result[at] for at in range(outputs)] for result in done]
        started = iter(dask.persist(*chain.from_iterable(refs)))
        return [[next(started) for _ in of_call] for of_call in refs]

    def get(self, refs: Sequence[Any]) -> list[Any]:
        return list(dask.compute(*refs))


def _client() -> Any | None:
    """The client of Dask's workers that was made last; None if there is none."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.default_client()
    except ValueError:
        return None

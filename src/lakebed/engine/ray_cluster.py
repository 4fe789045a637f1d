"""Ray as a cluster of the task engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import ray
from ray import cloudpickle
from ray.exceptions import RayTaskError


class RayCluster:
    """The Ray cluster of this process, which has begun: there is a Dataset."""

    name: Literal["ray", "dask"] = "ray"

    def cores(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def blocks(self, data: Any) -> list[Any]:
        return list(data.to_arrow_refs())

    def pickled(self, value: Any) -> bytes:
        return cloudpickle.dumps(value)

    def share(self, value: bytes) -> Any:
        return ray.put(value)

    def run(self, fn: Callable[..., Any], calls: Sequence[Sequence[Any]], outputs: int = 1) -> list[list[Any]]:
        remote = _remote(fn).options(num_returns=outputs)
        refs = [remote.remote(*call) for call in calls]
        return [[ref] for ref in refs] if outputs == 1 else refs

    def get(self, refs: Sequence[Any]) -> list[Any]:
        try:
            return ray.get(list(refs))
        except RayTaskError as error:
            cause: Any = error
            while isinstance(cause, RayTaskError) and isinstance(cause.cause, Exception):
                cause = cause.cause
            raise cause from error


@cache
def _remote(fn: Callable[..., Any]) -> Any:
    return ray.remote(fn)

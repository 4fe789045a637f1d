"""A cluster for the task engine that runs in this process: its tasks run one after the other, and everything that goes
to a task or comes from one is pickled. Results may be lost, and each task may run twice."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark import cloudpickle


@dataclass(eq=False)
class Result:
    """One output of a task, as bytes, and how to make it again."""

    make: Callable[[], Any]
    stored: bytes

    def lose(self) -> None:
        """Let the cluster lose the result, and run its task again."""
        self.stored = pickle.dumps(self.make())


@dataclass(frozen=True)
class Blocks:
    """A Dataset of these tables; a function is one that makes its table when it is evaluated."""

    tables: Sequence[pa.Table | Callable[[], pa.Table]]

    def to_arrow_refs(self) -> Sequence[pa.Table | Callable[[], pa.Table]]:
        return self.tables


class SerialCluster:
    """`runs` is how often each task runs: the last run counts, as after a loss of the results of those before.
    `received` has the bytes of everything that this process got, `tasks` the number of tasks."""

    name: Literal["ray", "dask"] = "ray"

    def __init__(self, runs: int = 1, cores: int = 2) -> None:
        self.runs, self._cores = runs, cores
        self.received = self.tasks = 0
        self.results: list[Result] = []

    def cores(self) -> int:
        return self._cores

    def blocks(self, data: Any) -> list[Any]:
        return [self._stored(table if callable(table) else partial(_itself, table)) for table in data.to_arrow_refs()]

    def pickled(self, value: Any) -> bytes:
        return cloudpickle.dumps(value)

    def share(self, value: bytes) -> Any:
        return self._stored(partial(_itself, value))

    def run(self, fn: Callable[..., Any], calls: Sequence[Sequence[Any]], outputs: int = 1) -> list[list[Any]]:
        return [self._run(fn, call, outputs) for call in calls]

    def get(self, refs: Sequence[Result]) -> list[Any]:
        self.received += sum(len(ref.stored) for ref in refs)
        return [pickle.loads(ref.stored) for ref in refs]

    def _run(self, fn: Callable[..., Any], call: Sequence[Any], outputs: int) -> list[Result]:
        sent = cloudpickle.dumps(fn)

        def run(again: bool = False) -> Any:
            self.tasks += 1
            return pickle.loads(sent)(*[_value(argument, again) for argument in call])

        done = run()
        for _ in range(self.runs - 1):
            done = run()
        if outputs == 1:
            return [self._stored(partial(run, True), done)]
        return [self._stored(lambda at=at: run(True)[at], done[at]) for at in range(outputs)]

    def _stored(self, make: Callable[[], Any], value: Any = None) -> Result:
        result = Result(make, pickle.dumps(make() if value is None else value))
        self.results.append(result)
        return result


def _itself(value: Any) -> Any:
    return value


def _value(argument: Any, again: bool) -> Any:
    if not isinstance(argument, Result):
        return argument
    return argument.make() if again else pickle.loads(argument.stored)

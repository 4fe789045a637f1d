"""Work on single things, each in a task of an engine: files to read, of which little comes back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from lakebed.engine.base import Engine, Task
from lakebed.engine.groups import GROUP
from lakebed.errors import LakebedError, from_json
from lakebed.model import PARTITION_PATH

T = TypeVar("T")
R = TypeVar("R")
_ITEMS = pa.schema([(PARTITION_PATH, pa.string()), (GROUP, pa.int32()), ("item", pa.binary())])
_RESULTS = pa.schema([("at", pa.int32()), ("result", pa.binary()), ("error", pa.string())])


def each(engine: Engine, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The work's result for each item, in their order. Items and results are sent pickled, the work as the engine sends
    its functions. Of lakebed's errors the first item's comes back as it was raised.

    >>> from lakebed.engine.local import LocalEngine
    >>> each(LocalEngine(), len, ["a", "bc"])
    [1, 2]
    """
    if not items:
        return []
    sent = pa.Table.from_arrays(
        [
            pa.repeat(pa.scalar(""), len(items)),
            pa.array(range(len(items)), pa.int32()),
            pa.array([pickle.dumps(item) for item in items], pa.binary()),
        ],
        schema=_ITEMS,
    )
    rows = engine.group_map(engine.from_arrow(sent), _Each(work), _RESULTS, groups=len(items), one_group_per_task=False)
    done = engine.collect(rows).sort_by("at")
    errors = done["error"].drop_null()
    if len(errors):
        raise from_json(errors[0].as_py())
    return [pickle.loads(result) for result in done["result"].to_pylist()]


@dataclass(frozen=True, slots=True)
class _Each:
    """Sent to the tasks."""

    work: Callable[[Any], Any]

    def __call__(
        self, partition: str, number: int, batches: Iterator[pa.RecordBatch], task: Task
    ) -> Iterator[pa.RecordBatch]:
        (item,) = (value for batch in batches for value in batch.column("item").to_pylist())
        result, error = None, None
        try:
            result = pickle.dumps(self.work(pickle.loads(item)))
        except LakebedError as failure:
            error = failure.to_json()
        yield pa.RecordBatch.from_pylist([{"at": number, "result": result, "error": error}], _RESULTS)

"""Requests to a store and how many of them wait for one another: `rounds_of` runs an action on a storage that is slow
as an object store is, with what lakebed does side by side done one after the other on a clock of requests.

A request takes one round. What begins side by side begins at the same round, and who waits for it goes on after the
last of them. So the number of rounds is the same in each run, on any machine.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from lakebed.read import batches
from lakebed.storage import parallel
from lakebed.storage.base import Storage, not_found
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.opening import wrapping
from lakebed.storage.parallel import write_each
from lakebed.storage.streams import RangeFile

T = TypeVar("T")
R = TypeVar("R")
# What one call takes on an object store, where it is more than one request: see `lakebed.storage.object_store`.
_ROUNDS = {"move": 3, "delete": 2, "delete_folder": 2}


@dataclass(frozen=True, slots=True)
class Request:
    """One request: the method of the storage and the path, and the round that it belongs to (from 1)."""

    verb: str
    path: str
    round: int
    stack: str = ""

    def __str__(self) -> str:
        return f"{self.round:3} {self.verb:15} {self.path}"


@dataclass
class RequestClock:
    """The requests of an action in the order in which they were made, and the round that the action has come to.
    `late`: what is begun in the background is done when its result is needed, not before the next step, and of several
    things at a time the last one comes first."""

    late: bool = False
    now: int = 0
    requests: list[Request] = field(default_factory=list[Request])
    with_stacks: bool = False

    @property
    def rounds(self) -> int:
        """The requests of the longest chain of those that wait for one another."""
        return self.now

    def request(self, verb: str, path: str, count: int = 1) -> None:
        stack = ""
        if self.with_stacks:
            frames = [f for f in traceback.extract_stack() if "/lakebed/" in f.filename]
            stack = " < ".join(f"{f.filename.rpartition('/lakebed/')[2]}:{f.lineno} {f.name}" for f in frames[::-1])
        for _ in range(count):
            self.now += 1
            self.requests.append(Request(verb, path, self.now, stack))

    def __str__(self) -> str:
        return "\n".join(map(str, sorted(self.requests, key=lambda r: r.round)))

    # what `lakebed.storage.parallel` does, and the reader of several file slices, on this clock

    def in_order(self, jobs: Sequence[Callable[[], Iterator[T]]], threads: int) -> Iterator[T]:
        for result in self.parallel_map(lambda job: list(job()), jobs, threads):
            yield from result

    def parallel_map(self, work: Callable[[T], R], items: Sequence[T], threads: int = 8) -> list[R]:
        begin = self.now
        free = [begin] * max(1, min(threads, len(items)))
        results: dict[int, R] = {}
        order = range(len(items))
        for number in reversed(order) if self.late else order:
            at = free.index(min(free))
            self.now = free[at]
            results[number] = work(items[number])
            free[at] = self.now
        self.now = max(free)
        return [results[number] for number in order]

    def in_background(self, work: Callable[[], R]) -> Callable[[], R]:
        begun = _Background(self, self.now, work)
        if not self.late:
            begun.run()
        return begun.wait

    def aside(self, storage: Storage, work: Callable[[], object]) -> None:
        """What no later step needs has requests, and takes no rounds of the action."""
        _Background(self, self.now, work).run()


@dataclass
class _Background:
    """Work that began at a round of the clock."""

    clock: RequestClock
    begin: int
    work: Callable[[], Any]
    end: int | None = None
    result: Any = None
    error: BaseException | None = None

    def run(self) -> None:
        before, self.clock.now = self.clock.now, self.begin
        try:
            self.result = self.work()
        except BaseException as raised:
            self.error = raised
        self.end, self.clock.now = self.clock.now, before

    def wait(self) -> Any:
        if self.end is None:
            self.run()
        assert self.end is not None
        self.clock.now = max(self.clock.now, self.end)
        if self.error is not None:
            raise self.error
        return self.result


class RemoteStorage(WrappedStorage):
    """A storage that looks as far away as an object store. Each request takes a round of the clock."""

    def __init__(self, inner: Storage, clock: RequestClock) -> None:
        super().__init__(inner)
        self._clock = clock

    def _before(self, verb: str, path: str) -> None:
        self._clock.request(verb, path, _ROUNDS.get(verb, 1))

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """A file that reads by requests for ranges, as that of an object store does."""
        if size is None:
            info = self.head(path)
            if info is None:
                raise not_found(self.url(path))
            size = info.size
        return pa.PythonFile(RangeFile(lambda at, length: self.read_ranges(path, [(at, length)])[0], size), mode="r")

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        write_each(self, paths, data)

    def url(self, path: str = "") -> str:
        return super().url(path).replace("memory://", "s3a://", 1)


@contextlib.contextmanager
def request_rounds(*, with_stacks: bool = False, late: bool = False) -> Generator[RequestClock]:
    """In the block each storage that is opened is far away; gives the clock of its requests."""
    clock = RequestClock(with_stacks=with_stacks, late=late)
    with wrapping(lambda inner: RemoteStorage(inner, clock)), _in_place_of_threads(clock):
        yield clock


@contextlib.contextmanager
def _in_place_of_threads(clock: RequestClock) -> Generator[None]:
    """Modules of lakebed have these functions under names of their own."""
    replaced: list[tuple[Any, str, Any]] = []
    try:
        names = {"parallel_map": parallel, "in_background": parallel, "aside": parallel, "in_order": batches}
        for name, home in names.items():
            real = getattr(home, name)
            stand_in = getattr(clock, name)
            for module in [m for key, m in sys.modules.items() if key.partition(".")[0] == "lakebed"]:
                if vars(module).get(name) is real:
                    replaced.append((module, name, real))
                    setattr(module, name, stand_in)
        yield
    finally:
        for module, name, real in replaced:
            setattr(module, name, real)

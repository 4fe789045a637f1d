"""Storages for tests: `FaultyStorage` fails, dies or loses the answer at the k-th change; `CountingStorage` counts
requests.
"""

from __future__ import annotations

import builtins
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from lakebed.storage.base import Durable, Storage, Upload, refused
from lakebed.storage.folder import WrappedStorage
from lakebed.storage.opening import open_storage_spec, wrapping
from lakebed.storage.parallel import write_each
from lakebed.storage.streams import StreamUpload

Mode = Literal["fail", "kill", "torn", "unacknowledged", "doubtful", "lost"]
MODES: tuple[Mode, ...] = ("fail", "kill", "torn", "unacknowledged", "doubtful", "lost")
_T = TypeVar("_T")


class Killed(BaseException):
    """The process of the test is dead. It is not an `Exception`, so that no handler continues."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One requested change of storage."""

    verb: str
    path: str

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """The fault at the `at`-th mutation (from 1; 0 means never), or at the first mutation that `at` accepts. `mode` is
    one of:

    `fail`: `StorageError`, nothing done, the writer lives on. `kill`: dead before it. `torn`: dead in the middle, and
    the storage keeps what it would keep after a power cut. `unacknowledged`: done, then dead. `doubtful`: done, but
    the writer gets a `StorageError` with `{"doubtful": True}`. `lost`: the same error, but nothing was done.
    """

    at: int | Callable[[Mutation], bool] = 0
    mode: Mode = "kill"

    def __str__(self) -> str:
        where = "a chosen mutation" if callable(self.at) else f"mutation {self.at}"
        return f"{self.mode} at {where}" if self.at else "no fault"


class Crash:
    """The state that the storages of one faulty process share: its mutations so far, and whether it is dead."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self.mutations: list[Mutation] = []
        self.dead = False
        self._struck = 0
        self._lock = threading.Lock()

    @property
    def fired(self) -> bool:
        return self._struck > 0

    def __str__(self) -> str:
        lines = [f"{self.plan}; {len(self.mutations)} mutations"]
        for number, mutation in enumerate(self.mutations, 1):
            lines.append(f"{'->' if number == self._struck else '  '} {number}. {mutation}")
        return "\n".join(lines)

    def check_alive(self) -> None:
        if self.dead:
            raise Killed(f"{self.plan}: the process is dead")

    def mutate(self, mutation: Mutation, act: Callable[[], _T], tear: Callable[[], None]) -> _T:
        """Do a mutation, or the fault that is planned for it. Only one runs at a time, so that the count is the order
        on storage."""
        with self._lock:
            self.check_alive()
            self.mutations.append(mutation)
            if self._struck or not self._is_planned(mutation):
                return act()
            self._struck = len(self.mutations)
            return self._strike(mutation, act, tear)

    def _is_planned(self, mutation: Mutation) -> bool:
        at = self.plan.at
        return at(mutation) if callable(at) else len(self.mutations) == at

    def _strike(self, mutation: Mutation, act: Callable[[], _T], tear: Callable[[], None]) -> _T:
        mode = self.plan.mode
        if mode == "fail":
            raise refused(f"{mutation} failed as planned", url=mutation.path)
        if mode in ("doubtful", "unacknowledged"):
            act()
        if mode in ("doubtful", "lost"):
            raise refused(f"no answer to {mutation}, as planned", url=mutation.path, retryable=True, doubtful=True)
        if mode == "torn":
            tear()
        self.dead = True
        raise Killed(f"{self.plan}: {mutation}")


class FaultyStorage(WrappedStorage):
    """A storage on which `plan` strikes. Mutations are: `write`, `put_if_absent`, `put_if_match`, the closing of a
    `create`, `delete`, and each single file of a `delete_folder`.

    >>> from lakebed.storage.memory import MemoryStorage
    >>> storage = FaultyStorage(MemoryStorage("faulty"), FaultPlan(2, "fail"))
    >>> storage.write("a", b"1")
    >>> storage.write("b", b"2")
    Traceback (most recent call last):
    lakebed.errors.StorageError: write b failed as planned
    >>> print(storage.crash)
    fail at mutation 2; 2 mutations
       1. write a
    -> 2. write b
    """

    def __init__(self, inner: Storage, plan: FaultPlan | None = None, crash: Crash | None = None) -> None:
        super().__init__(inner)
        self.crash = crash or Crash(plan or FaultPlan())

    @property
    def mutations(self) -> builtins.list[Mutation]:
        return self.crash.mutations

    def __reduce__(self) -> tuple[Any, ...]:
        return open_storage_spec, (self.spec,)  # other processes do without

    def _before(self, verb: str, path: str) -> None:
        self.crash.check_alive()  # a dead process does not even read

    # mutations

    def _mutate(self, verb: str, path: str, act: Callable[[], _T], data: bytes | None = None) -> _T:
        return self.crash.mutate(Mutation(verb, path), act, lambda: self._tear(path, data))

    def _tear(self, path: str, data: bytes | None) -> None:
        leave_torn: Any = getattr(self._inner, "leave_torn", None)
        if data is not None and leave_torn is not None:
            leave_torn(path, data)

    def write(self, path: str, data: bytes, *, durable: Durable = True) -> None:
        self._mutate("write", path, lambda: self._inner.write(path, data, durable=durable), data)

    def write_same(self, paths: Sequence[str], data: bytes) -> None:
        write_each(self, paths, data)

    def put_if_absent(self, path: str, data: bytes, *, durable: Durable = True) -> bool:
        return self._mutate("put_if_absent", path, lambda: self._inner.put_if_absent(path, data, durable=durable), data)

    def put_if_match(self, path: str, data: bytes, version: str | None, *, durable: bool = True) -> bool:
        def put() -> bool:
            return self._inner.put_if_match(path, data, version, durable=durable)

        return self._mutate("put_if_match", path, put, data)

    def move(self, path: str, to: str) -> None:
        self._mutate("move", to, lambda: self._inner.move(path, to))

    def create(self, path: str) -> Upload:
        return FaultyUpload(self, path, super().create(path))

    def finish_create(self, path: str, upload: Upload) -> None:
        """Close an upload, which is its mutation."""
        self.crash.mutate(Mutation("create", path), upload.close, lambda: None)

    def delete(self, path: str, *, durable: bool = True) -> bool:
        return self._mutate("delete", path, lambda: self._inner.delete(path, durable=durable))

    def delete_folder(self, prefix: str, *, durable: bool = True) -> None:
        self.crash.check_alive()
        for path in sorted(info.path for info in self._inner.list(prefix)):
            self.delete(path, durable=durable)
        self._inner.delete_folder(prefix, durable=durable)

    def make_folder(self, prefix: str) -> None:
        self._mutate("make_folder", prefix, lambda: self._inner.make_folder(prefix))


class FaultyUpload(StreamUpload):
    """An upload that passes bytes on at once; `close` is its mutation. A dead process neither finishes its uploads nor
    removes them."""

    def __init__(self, storage: FaultyStorage, path: str, inner: Upload) -> None:
        super().__init__(path)
        self._storage = storage
        self._inner = inner

    def _append(self, data: memoryview) -> None:
        self._storage.crash.check_alive()
        self._inner.write(data)

    def _finish(self) -> None:
        try:
            self._storage.finish_create(self._path, self._inner)
        except Killed:
            self._leave()
            raise

    def _discard(self) -> None:
        if self._storage.crash.dead:
            self._leave()
        else:
            self._inner.abort()

    def _leave(self) -> None:
        """Abandon the file as a dying process does. The bytes that are on storage stay."""
        leave: Any = getattr(self._inner, "leave", self._inner.abort)
        leave()


@contextlib.contextmanager
def crash_at(at: int | Callable[[Mutation], bool], mode: Mode = "kill") -> Generator[Crash]:
    """Make every storage that is opened in the block belong to one process, on which the fault occurs at its `at`-th
    mutation, or at the first mutation that `at` accepts.

    With 0 nothing strikes: a run that counts the mutations, so that a test can try each of them.
    """
    crash = Crash(FaultPlan(at, mode))
    with wrapping(lambda inner: FaultyStorage(inner, crash=crash)):
        yield crash


_OPENING = ("read", "read_ranges", "open_input", "read_versioned")
_LISTING = ("list", "list_names", "list_folders", "head")


class CountingStorage(WrappedStorage):
    """A storage that counts its requests and passes them on.

    `counts` has the calls of each verb; `opened` the paths whose content was asked for, `written` those that were
    written or deleted, both in order.

    >>> from lakebed.storage.memory import MemoryStorage
    >>> storage = CountingStorage(MemoryStorage("counted"))
    >>> storage.write("a", b"1"); storage.read("a")
    b'1'
    >>> dict(storage.counts), storage.opened
    ({'write': 1, 'read': 1}, ['a'])
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.opened: builtins.list[str] = []
        self.written: builtins.list[str] = []

    def reset(self) -> None:
        with self._lock:
            self.counts.clear()
            self.opened.clear()
            self.written.clear()

    def _before(self, verb: str, path: str) -> None:
        with self._lock:
            self.counts["list" if verb == "list_names" else verb] += 1
            if verb in _OPENING:
                self.opened.append(path)
            elif verb not in _LISTING:
                self.written.append(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_storage_spec, (self.spec,)  # other processes do without

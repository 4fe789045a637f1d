"""Objects that the threads of a process share: properties computed once, and locks that are free in a forked process.

A fork copies the process with one thread only. A lock that another thread held then is never released in the copy.
`functools.cached_property` of Python 3.11 has such a lock for each class, which `once` has not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar, overload
from weakref import WeakSet

T = TypeVar("T")

matters: set[tuple[Hashable, ...]] = set()
"""The matters about which `is_first_time` was asked in this process."""


def is_first_time(*matter: Hashable) -> bool:
    """Whether this process asks about `matter` for the first time, so that a message about it appears once.

    >>> is_first_time("docs", "a.parquet"), is_first_time("docs", "a.parquet"), is_first_time("docs", "b.parquet")
    (True, False, True)
    """
    if matter in matters:
        return False
    matters.add(matter)
    return True


class once(Generic[T]):  # noqa: N801 (reads like a property)
    """A property whose value its object caches. It has no lock: threads that ask at the same time may each compute the
    value."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> once[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._make(owner)
        return value


class Forgets(Protocol):
    """An object with state that a forked process cannot use."""

    def forget(self) -> None:
        """Begin without state, in a process that has none of its parent's other threads."""
        ...


_forgetting: WeakSet[Forgets] = WeakSet()
_locks: WeakSet[Any] = WeakSet()


def forget_in_forks(shared: Forgets) -> None:
    """Call `shared.forget` in each forked process in which the object exists."""
    _forgetting.add(shared)


def shared_lock() -> threading.Lock:
    """A lock of threads that is free in a forked process.

    >>> with shared_lock() as is_mine:
    ...     is_mine
    True
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def shared_rlock() -> threading.RLock:
    """A lock of threads that is free in a forked process, and that the thread that holds it may acquire again.

    >>> lock = shared_rlock()
    >>> with lock, lock as is_mine:
    ...     is_mine
    True
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _reset_in_child() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()
    for shared in list(_forgetting):
        shared.forget()


os.register_at_fork(after_in_child=_reset_in_child)

"""A cache for contents of files: bounded in bytes, it keeps the entries that were used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

import pyarrow as pa

from lakebed.sharing import forget_in_forks


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=Sized)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CacheEntry(Generic[V]):
    """A cached value with its size in bytes."""

    content: V
    nbytes: int


class BoundedCache(Generic[T]):
    """A cache of the values used last, up to `max_bytes` of memory. Several threads may use it.

    >>> cache = BoundedCache[memoryview](max_bytes=5)
    >>> for name in "ab":
    ...     cache.put(name, memoryview(b"123"))
    >>> cache.get("a") is None, cache.nbytes
    (True, 3)
    """

    def __init__(self, max_bytes: int, name: str = "") -> None:
        """A cache of up to `max_bytes`; `requests_of_caches` lists it if it has a name."""
        self._max_bytes = max_bytes
        self.hits = self.misses = 0
        if name:
            _named[name] = self
        self.forget()
        forget_in_forks(self)

    def forget(self) -> None:
        """Empty the cache of a forked process: another thread may have been changing it at the fork."""
        self._bytes = 0
        self._entries: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The bytes that are in memory."""
        return self._bytes

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            value = self._entries.get(key)
            if value is None:
                self.misses += 1
            else:
                self.hits += 1
                self._entries.move_to_end(key)
            return value

    def put(self, key: Hashable, value: T) -> None:
        """Cache a value, in place of an earlier value of the key. A value larger than the cache is not cached."""
        with self._lock:
            before = self._entries.pop(key, None)
            if before is not None:
                self._bytes -= before.nbytes
            if value.nbytes > self._max_bytes:
                return
            self._entries[key] = value
            self._bytes += value.nbytes
            while self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= dropped.nbytes

    def drop(self, key: Hashable) -> None:
        """Remove the value of a key, if there is one."""
        with self._lock:
            dropped = self._entries.pop(key, None)
            if dropped is not None:
                self._bytes -= dropped.nbytes

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0


P = ParamSpec("P")
_SCHEMAS_BYTES = 8 << 20
# A result has a few objects for each column, of which the serialised schema has at least so many bytes.
_BYTES_A_BYTE = 4


def cached_by_schema(make: Callable[Concatenate[pa.Schema, P], V]) -> Callable[Concatenate[pa.Schema, P], V]:
    """A function of a schema and of hashable values that returns again what it returned for an equal schema, with
    equal metadata. Callers share the results and do not change them.

    >>> names = cached_by_schema(lambda schema: list(schema.names))
    >>> names(pa.schema([("a", pa.int64())])) is names(pa.schema([("a", pa.int64())]))
    True
    """
    cache = BoundedCache[CacheEntry[V]](_SCHEMAS_BYTES)
    # the last schema is asked for again and again, and to serialise it takes longer than all else here
    last: tuple[pa.Schema | None, Any, V | None] = (None, None, None)

    @wraps(make)
    def cached(schema: pa.Schema, *args: P.args, **kwargs: P.kwargs) -> V:
        nonlocal last
        last_schema, last_arguments, content = last
        arguments = (args, kwargs)
        if schema is last_schema and arguments == last_arguments:
            return cast(V, content)
        # equality of schemas in Arrow leaves metadata out
        key = (schema.serialize().to_pybytes(), args, *kwargs.items())
        entry = cache.get(key)
        if entry is None:
            entry = CacheEntry(make(schema, *args, **kwargs), _BYTES_A_BYTE * len(key[0]))
            cache.put(key, entry)
        last = schema, arguments, entry.content
        return entry.content

    return cached


_named: dict[str, BoundedCache[Any]] = {}


def requests_of_caches() -> dict[str, tuple[int, int]]:
    """The hits and misses of each named cache of this process, by name."""
    return {name: (cache.hits, cache.misses) for name, cache in _named.items()}

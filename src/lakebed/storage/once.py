"""Values that are made once, when first asked for, without a lock: several threads read and merge at a time, and
`functools.cached_property` of Python 3.11 lets one object of a class work at a time. That is for objects that threads
share, whose values are dear to make twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 (reads like a property)
    """A property whose value is kept by its object, which one thread uses."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> once[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._make(owner)
        return value

"""pyarrow without an import of pandas that no data ask for.

`pyarrow.array` imports pandas where it is installed, to ask of every value whether it is a pandas object. Nothing can
be one before pandas is imported. So pyarrow gets names of pandas that answer no until then, and are pandas' own from
there. This serves values whose type is passed: to infer a type, Arrow's C++ imports pandas in any case, and so does
`import pyarrow.dataset`, which infers one.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.lib

_PANDAS = "pandas"


class _Name:
    """A name of pandas that is looked up when it is used."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._class: Any = None

    def __instancecheck__(self, value: object) -> bool:
        if self._class is None:  # pyarrow asks of every value
            if _PANDAS not in sys.modules:
                return False
            self._class = self._resolved()
        return isinstance(value, self._class)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._resolved()(*positional, **named)

    def __getattr__(self, name: str) -> Any:
        if isinstance(sys.modules.get(_PANDAS), _Names):  # pyarrow takes the names that it needs
            return _Name(f"{self._path}.{name}")
        return getattr(self._resolved(), name)

    def _resolved(self) -> Any:
        value: Any = __import__(_PANDAS)
        for name in self._path.split("."):
            value = getattr(value, name)
        return value


class _Names(ModuleType):
    """A module that stands for pandas where pyarrow imports it. It has the version and the names of pandas."""

    def __init__(self, version: str) -> None:
        super().__init__(_PANDAS)
        self.__version__ = version

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(_PANDAS) is self:
            return _Name(name)
        return getattr(__import__(_PANDAS), name)


@cache
def defer_pandas() -> None:
    """Let pyarrow import pandas only if it needs more than the answer that a value is not an object of pandas.

    Nothing changes where pandas is imported already, is not installed, or its version is not in the name of its
    folder, as every installer writes it: pyarrow then asks for pandas as it always does. The metadata of packages,
    read by `importlib.metadata`, cost a tenth of what pyarrow costs.
    """
    if _PANDAS in sys.modules or (spec := find_spec(_PANDAS)) is None or spec.origin is None:
        return
    for folder in Path(spec.origin).parents[1].glob(f"{_PANDAS}-*.dist-info"):
        sys.modules[_PANDAS] = _Names(folder.name.removesuffix(".dist-info").partition("-")[2])
        try:
            _ = pyarrow.lib._pandas_api.have_pandas  # pyright: ignore[reportAttributeAccessIssue]  # imports it once
        finally:
            del sys.modules[_PANDAS]
        return

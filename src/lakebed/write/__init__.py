"""The write path; `upsert.py` shows it from top to bottom. The room is callable: `lakebed.write(df, uri, options)`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """`lakebed.write` is a folder of modules and a public function at once; Python has one name for both."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from lakebed.write.job import write

        return write(*args, **options)


sys.modules[__name__].__class__ = _Room

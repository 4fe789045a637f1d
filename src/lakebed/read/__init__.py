"""Reads: scans, lookups by key, incremental reads, change data, joins by buckets."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import NoReturn


class _Package(ModuleType):
    """This package, whose name is a function in other libraries."""

    def __call__(self, *_arguments: object, **_options: object) -> NoReturn:
        from lakebed.other_names import OF_PACKAGE

        raise TypeError(f"lakebed.read is a package: {OF_PACKAGE['read']}")


sys.modules[__name__].__class__ = _Package

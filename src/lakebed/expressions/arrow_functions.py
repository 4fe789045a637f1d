"""Functions of lakebed in Arrow's registry, so that expressions over columns can call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def register(
    name: str, summary: str, types: Mapping[str, pa.DataType], to: pa.DataType, function: Callable[..., pa.Array]
) -> None:
    """Register `function` as `lakebed_<name>`. It takes an array of the first type, and one constant as a Python value
    of each further type; a function that is already registered stays."""
    first, *_ = types.values()

    def run(_context: Any, values: pa.Array | pa.Scalar, *others: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
        if isinstance(values, pa.Scalar):
            return run(_context, pa.array([values.as_py()], first), *others)[0]
        if not len(values):
            return pa.array([], to)
        return function(
            values, *((argument if isinstance(argument, pa.Scalar) else argument[0]).as_py() for argument in others)
        )

    with suppress(pa.ArrowKeyError):  # it is there already
        pc.register_scalar_function(run, f"lakebed_{name}", {"summary": summary, "description": ""}, dict(types), to)


def call(name: str, *arguments: pc.Expression) -> pc.Expression:
    """An expression that calls a registered function."""
    expression: Any = pc.Expression
    return expression._call(f"lakebed_{name}", list(arguments))

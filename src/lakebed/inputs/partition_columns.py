"""Columns whose values are in the names of folders (`year=2024/city=Oslo`), with types as Spark infers them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lakebed.errors import InvalidRecord, SchemaConflict
from lakebed.inputs.inference import EXACT
from lakebed.schema.assignment import check_finite

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.?[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INT_BITS, _LONG_BITS = 31, 63

Texts = Mapping[str, str | None]
"""Texts of the partition columns of one file, by name; None is null."""


def texts_of(path: str) -> dict[str, str | None]:
    """The texts of the partition columns that the folders of a path name, by column; None for the default partition.

    >>> texts_of("year=2024/city=S%C3%A3o/rows.parquet")
    {'year': '2024', 'city': 'São'}
    """
    texts: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, separator, value = folder.partition("=")
        if separator and name:
            texts[unquote(name)] = None if value == NULL_PARTITION else unquote(value)
    return texts


def check_same_names(files: Mapping[str, Texts]) -> None:
    """Raise `SchemaConflict` where two files are in folders of different partition columns."""
    first = next(iter(files), None)
    for path, texts in files.items():
        if first is not None and list(texts) != list(files[first]):
            raise SchemaConflict(
                f"the folders name different partition columns: {_names(files[first])} for {first}, {_names(texts)} for"
                f" {path}",
                hint="read each folder by itself, or give partitioning='none' to ignore the names of folders",
                context={"paths": [first, path]},
            )


def _names(texts: Texts) -> str:
    return ", ".join(texts) or "none"


def inferred_type(texts: Sequence[str | None]) -> pa.DataType:
    """The narrowest of int, bigint, double, date and string that holds all texts.

    >>> inferred_type(["2024", "07", None]), inferred_type(["2024-01-31"]), inferred_type(["1", "a"])
    (DataType(int32), DataType(date32[day]), DataType(string))
    """
    values = [text for text in texts if text is not None]
    if not values:
        return pa.string()
    if all(_INTEGER.fullmatch(text) for text in values):
        largest = max(abs(int(text) + (int(text) < 0)) for text in values)
        if largest.bit_length() <= _LONG_BITS:
            return pa.int32() if largest.bit_length() <= _INT_BITS else pa.int64()
        return pa.string()
    if all(_DECIMAL.fullmatch(text) for text in values):
        integers = (int(text) for text in values if _INTEGER.fullmatch(text))
        return pa.float64() if all(abs(number) <= EXACT for number in integers) else pa.string()
    return pa.date32() if all(map(_is_date, values)) else pa.string()


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def value_of(text: str | None, kind: pa.DataType, name: str) -> Any:
    """The text as an Arrow scalar of the type. Raises `InvalidRecord` if it does not fit."""
    try:
        if text is not None and pa.types.is_integer(kind):
            return pa.scalar(int(text), kind)  # Arrow takes no sign before a number
        texts = pa.array([text], pa.string())
        values = texts.cast(kind)
        if pa.types.is_floating(kind):
            check_finite(values, texts)
        return values[0]
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InvalidRecord(
            f"a folder names {name}={text}, which is no {kind}",
            hint="rename the folder, or give partitioning='none' to ignore the names of folders",
            context={"column": name, "value": text, "type": str(kind)},
        ) from error

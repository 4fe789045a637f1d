"""Holding what the table gives against what it must give, value by value."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import polars as pl

from lakebed import WriteResult
from lakebed.errors import LakebedError
from year_of_flights.flights import KEY
from year_of_flights.model import Counts


class Mismatch(LakebedError):
    """The table holds something else than the straight computation."""


@dataclass(frozen=True)
class Check:
    """A comparison that came out equal."""

    name: str
    rows: int
    values: int
    checksum: str
    seconds: float


def compare(name: str, found: pl.DataFrame, expected: pl.DataFrame, seconds: float) -> Check:
    """Every column of every row. Raises `Mismatch` with the first difference."""
    if sorted(found.columns) != sorted(expected.columns):
        raise Mismatch(f"{name}: the columns are {found.columns}, they must be {expected.columns}")
    found = found.select(expected.columns).sort(KEY)
    expected = expected.sort(KEY)
    if found.schema != expected.schema:
        raise Mismatch(f"{name}: the types are {dict(found.schema)}, they must be {dict(expected.schema)}")
    _same_keys(name, found, expected)
    for column in expected.columns:
        differs = found[column].ne_missing(expected[column])
        if differs.any():
            at = differs.arg_true()[0]
            is_, must = found[column][at], expected[column][at]
            raise Mismatch(
                f"{name}: {column} of {_key(expected, at)} is {is_!r}, it must be {must!r} "
                f"({differs.sum():,} rows differ in this column)",
                context={"column": column, "rows": differs.sum()},
            )
    sums = checksum(found), checksum(expected)
    if sums[0] != sums[1]:
        raise Mismatch(f"{name}: the checksum is {sums[0]}, it must be {sums[1]}")
    return Check(name, found.height, found.height * found.width, sums[0], seconds)


def compare_counts(name: str, result: WriteResult, expected: Counts) -> None:
    """Raises `Mismatch` where a write reports other counts than it must."""
    for word, must in asdict(expected).items():
        said = getattr(result, word)
        if said != must:
            raise Mismatch(f"{name}: the write reports {said:,} {word}, it must be {must:,}")


def checksum(rows: pl.DataFrame) -> str:
    """One number over all values of all rows, whatever the rows' order."""
    return f"{int(rows.select(sorted(rows.columns)).hash_rows(seed=0).sum()):016x}"


def _same_keys(name: str, found: pl.DataFrame, expected: pl.DataFrame) -> None:
    twice = found.filter(found.select(KEY).is_duplicated())
    if twice.height:
        raise Mismatch(f"{name}: {_key(twice, 0)} is there more than once ({twice.height:,} such rows)")
    for one, other, what in ((expected, found, "missing"), (found, expected, "too many")):
        lone = one.join(other, on=KEY, how="anti")
        if lone.height:
            raise Mismatch(f"{name}: {lone.height:,} rows are {what}, first {_key(lone, 0)}")


def _key(rows: pl.DataFrame, at: int) -> str:
    return ", ".join(f"{column} {rows[column][at]}" for column in KEY)

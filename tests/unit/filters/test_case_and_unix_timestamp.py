"""Conditions by `upper`, `lower`, `ILIKE` and `unix_timestamp` match the rows that they match on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.expressions import index_functions, letter_case
from lakebed.expressions.index_functions import IndexFunction
from lakebed.table import Table

NAMES = ["İSTANBUL", "istanbul", "Istanbul", "ΟΔΟΣ", "οδοσ", "straße", "STRASSE", "ﬁn", "FIN", None]


def texts(folder: Path, **words: Any) -> Table:
    table = lakebed.create(str(folder / "t"), pa.schema([("id", pa.int64()), ("s", pa.string())]), key="id", **words)
    table.insert(pa.table({"id": range(len(NAMES)), "s": NAMES}))
    return table


@pytest.mark.parametrize(
    ("condition", "matching"),
    [
        ("lower(s) = 'istanbul'", ["istanbul", "Istanbul"]),
        ("lower(s) = 'i\u0307stanbul'", ["İSTANBUL"]),
        ("s ILIKE 'istanbul'", ["istanbul", "Istanbul"]),
        ("s ILIKE 'İ%'", ["İSTANBUL"]),
        ("lower(s) = 'οδος'", ["ΟΔΟΣ"]),
        ("s ILIKE 'ΟΔΟΣ'", ["ΟΔΟΣ"]),
        ("upper(s) = 'STRASSE'", ["straße", "STRASSE"]),
        ("length(upper(s)) = 3", ["ﬁn", "FIN"]),
        ("length(upper(s)) > length(s)", ["straße", "ﬁn"]),
        ("s ILIKE 'STRASSE'", ["STRASSE"]),
        ("NOT (upper(s) = 'FIN') AND length(s) < 4", []),
    ],
)
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_letters_whose_case_is_not_one_letter(tmp_path: Path, condition: str, matching: list[str], type_: str) -> None:
    table = texts(tmp_path, type=type_)
    assert table.scan(where=condition).to_arrow()["s"].to_pylist() == matching
    assert table.delete(where=condition).deleted == len(matching)
    left = table.scan().to_arrow()["s"].to_pylist()
    assert sorted(map(str, left)) == sorted(str(name) for name in NAMES if name not in matching)


@pytest.mark.parametrize("function", [letter_case.upper, letter_case.lower])
def test_letters_are_the_same_alone_and_among_others(function: Any) -> None:
    letters = [chr(code) for code in range(1, 0x20000) if not 0xD800 <= code < 0xE000]
    together = function(pa.array([*letters, None])).to_pylist()
    assert together.pop() is None
    changed = [pair for pair in zip(letters, together, strict=True) if pair[0] != pair[1]]
    assert len(changed) > 1300
    assert [(letter, function(pa.array([letter]))[0].as_py()) for letter, _ in changed] == changed


MICROS = [-1_500_000, -1_000_001, -1_000_000, -999_999, -1, 0, 1, 999_999, 1_000_000]
SECONDS = [-1, -1, -1, 0, 0, 0, 0, 0, 1]
AT = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
CONDITIONS = {
    "unix_timestamp(at) = 0": lambda s: s == 0,
    "unix_timestamp(at) < 0": lambda s: s < 0,
    "unix_timestamp(at) >= 0": lambda s: s >= 0,
    "unix_timestamp(at) IN (0, 5)": lambda s: s == 0,
    "unix_timestamp(at) = -1": lambda s: s == -1,
    "NOT (unix_timestamp(at) < 0)": lambda s: s >= 0,
}


def times(folder: Path, kind: str) -> Table:
    """Each instant in a file of its own, under an index of its seconds (`kind` empty: without)."""
    table = lakebed.create(str(folder / "t"), AT, key="id", partition_by="id", index="simple")
    if kind:
        table.indexes.create("secs", column="at", function="unix_timestamp", kind=kind)
    table.insert(pa.table({"id": range(len(MICROS)), "at": pa.array(MICROS).cast(AT.field("at").type)}, AT))
    return lakebed.open(table.uri)


def assert_found(table: Table) -> None:
    for condition, holds in CONDITIONS.items():
        found = table.scan(where=condition).to_arrow()["id"].to_pylist()
        assert sorted(found) == [n for n, second in enumerate(SECONDS) if holds(second)], condition


@pytest.mark.parametrize("kind", ["", "column_stats", "bloom_filters"])
def test_seconds_are_cut_toward_zero(tmp_path: Path, kind: str) -> None:
    table = times(tmp_path, kind)
    assert_found(table)
    if kind:
        assert len(table.scan(where="unix_timestamp(at) = 1").files) < len(MICROS)
    assert table.indexes.verify()


@pytest.mark.parametrize("kind", ["column_stats", "bloom_filters"])
def test_an_index_of_an_older_release_hides_no_row(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = index_functions._FUNCTIONS["unix_timestamp"]

    def floored(name: str, options: Any, of: pa.DataType) -> IndexFunction:
        function = made(name, options, of)

        def compute(values: pa.Array) -> pa.Array:
            whole = pc.floor_temporal(values.cast(pa.timestamp("us")), unit="second")
            return whole.cast(pa.timestamp("s")).cast(pa.int64())

        return IndexFunction(name, function.result, function.zoned, compute, function.is_certain)

    with monkeypatch.context() as older:
        older.setitem(index_functions._FUNCTIONS, "unix_timestamp", floored)
        table = times(tmp_path, kind)
    assert_found(table)

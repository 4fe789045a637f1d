"""Merging of records against a plain model of Hudi's payload rules, key by key."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from lakebed.metadata_kinds import files
from lakebed.metadata_kinds.files import newest_files
from lakebed.metadata_kinds.stats_values import newest_stats
from lakebed.metadata_records.merge_records import Layer, alive, newest
from lakebed.metadata_records.stats_codec import stats_schema


def deletes(keys: list[str]) -> Layer:
    return Layer(deleted=pa.array(keys, pa.string()))


@pytest.mark.parametrize("seed", range(60))
def test_the_newest_record_of_a_key_wins(seed: int) -> None:
    random.seed(seed)
    model: dict[str, int] = {}
    layers: list[Layer] = []
    for number in range(random.randint(1, 6)):
        keys = random.sample("abcdefgh", random.randint(1, 6))
        if random.random() < 0.3:
            layers.append(deletes(keys))
            for key in keys:
                model.pop(key, None)
        else:
            layers.append(Layer(pa.table({"key": keys, "x": [number] * len(keys)})))
            model |= dict.fromkeys(keys, number)
    found = newest(layers)
    rows = [] if found is None else found.to_pylist()
    assert {row["key"]: row["x"] for row in rows} == model
    assert len(rows) == len(model)


Entry = tuple[int, bool]


def united(older: dict[str, Entry], newer: dict[str, Entry]) -> dict[str, Entry]:
    result = dict(older)
    for name, (size, is_deleted) in newer.items():
        known = result.get(name)
        if known is None or (is_deleted and known[1]):
            result[name] = (size, is_deleted)
        elif is_deleted:
            del result[name]
        else:
            result[name] = (max(size, known[0]), False)
    return result


@pytest.mark.parametrize("seed", range(150))
def test_files_records_unite_names_and_drop_deleted_ones(seed: int) -> None:
    random.seed(seed)
    model: dict[str, dict[str, Entry]] = {}
    layers: list[Layer] = []
    for _ in range(random.randint(1, 7)):
        keys = sorted(random.sample(["__all_partitions__", "p", "q", "r"], random.randint(1, 3)))
        if random.random() < 0.2:
            layers.append(deletes(keys))
            for key in keys:
                model.pop(key, None)
            continue
        rows: list[dict[str, Any]] = []
        for key in keys:
            is_deleted = [random.random() < 0.4 for _ in "abcd"]
            entries = {n: (0 if d else random.randint(1, 9), d) for n, d in zip("abcd", is_deleted, strict=True)}
            entries = {n: entries[n] for n in random.sample("abcd", random.randint(0, 4))}
            model[key] = united(model.get(key, {}), entries)
            rows += [{"key": key, "name": n, "size": s, "is_deleted": d} for n, (s, d) in entries.items()]
            rows += [] if entries else [{"key": key, "name": None, "size": None, "is_deleted": None}]
        layers.append(Layer(pa.Table.from_pylist(rows, files.SCHEMA)))
    records = alive(layers)
    found = None if records is None else newest_files(records)
    shown: dict[str, dict[str, Entry]] = {}
    for row in [] if found is None else found.to_pylist():
        entries = shown.setdefault(row["key"], {})
        if row["name"] is not None:
            assert row["name"] not in entries
            entries[row["name"]] = (row["size"], row["is_deleted"])
    assert shown == model


def stats(
    key: str, low: int | None, high: int | None, nulls: int, *, deleted: bool, tight: bool, values: int = 1
) -> dict[str, Any]:
    counts = {"null_count": nulls, "value_count": nulls + values, "total_size": 10, "total_uncompressed": 20}
    bounds = {"min": None, "max": None} if deleted else {"min": low, "max": high}
    return {"key": key, "file_name": f"f{nulls}", **bounds, **counts, "is_deleted": deleted, "is_tight": tight}


def widened(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    if older["is_deleted"] or newer["is_deleted"] or newer["is_tight"]:
        return newer
    result = dict(newer)
    for bound, choose in (("min", min), ("max", max)):
        # a bound that is not known hides the other one; of nulls alone nothing is unknown
        holding = [row[bound] for row in (older, newer) if row["null_count"] < row["value_count"]]
        result[bound] = choose(holding) if holding and None not in holding else None
    for count in ("null_count", "value_count", "total_size", "total_uncompressed"):
        result[count] = older[count] + newer[count]
    return result


@pytest.mark.parametrize("seed", range(80))
def test_statistics_unite_unless_they_are_tight(seed: int) -> None:
    random.seed(seed)
    model: dict[str, dict[str, Any]] = {}
    layers: list[Layer] = []
    for _ in range(random.randint(1, 6)):
        keys = random.sample("abc", random.randint(1, 3))
        if random.random() < 0.2:
            layers.append(deletes(keys))
            for key in keys:
                model.pop(key, None)
            continue
        rows: list[dict[str, Any]] = []
        for key in keys:
            low = random.choice([None, random.randint(0, 9)])
            high = None if low is None else low + random.randint(0, 9)
            kind = {"deleted": random.random() < 0.15, "tight": random.random() < 0.3}
            values = random.randint(0, 1) if low is None else 1
            row = stats(key, low, high, random.randint(0, 5), **kind, values=values)
            rows.append(row)
            model[key] = widened(model[key], row) if key in model else row
        layers.append(Layer(pa.Table.from_pylist(rows, stats_schema(pa.int64()))))
    records = alive(layers)
    found = [] if records is None else newest_stats([records]).to_pylist()
    expected = {key: row for key, row in model.items() if not row["is_deleted"]}
    assert {row["key"]: row for row in found} == expected


def test_stats_of_texts_and_of_a_column_that_grew() -> None:
    old = pa.Table.from_pylist([stats("k", 3, 4, 0, deleted=False, tight=False)], stats_schema(pa.int32()))
    new = pa.Table.from_pylist([stats("k", 2**40, 2**41, 0, deleted=False, tight=False)], stats_schema(pa.int64()))
    (row,) = newest_stats([old, new]).to_pylist()
    assert (row["min"], row["max"], row["value_count"]) == (3, 2**41, 2)
    rows = [
        {**stats("k", 0, 0, 0, deleted=False, tight=False), "min": a, "max": b} for a, b in (("b", "z"), ("a", "é"))
    ]
    (row,) = newest_stats([pa.Table.from_pylist(rows, stats_schema(pa.string()))]).to_pylist()
    assert (row["min"], row["max"]) == ("a", "é")

"""Consistent hashing and buckets of several file groups on Spark: the rows that the engine in this process has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from support.write_tables import SCHEMA, content, rows

SIZES = {
    "hoodie.parquet.max.file.size": 4000,
    "hoodie.parquet.small.file.limit": 2000,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.bloom.index.filter.dynamic.max.entries": 100,
    "hoodie.bucket.index.max.num.buckets": 3,
}


def batch(numbers: range, turn: int) -> list[tuple[Any, ...]]:
    return [(n, f"c{n % 2}", f"{turn}-{n:030d}", turn) for n in numbers]


@pytest.mark.parametrize("index", ["consistent", "bucket_groups"])
def test_both_engines_write_to_the_same_buckets(index: str, tmp_path: Path, spark: Any) -> None:
    places: list[Any] = []
    for name in ("local", "spark"):
        session = spark if name == "spark" else None
        table = lakebed.create(
            str(tmp_path / f"{index}-{name}"),
            SCHEMA,
            key="id",
            partition_by="city",
            ordering="ts",
            type="mor",
            index=index,
            buckets=2,
            spark=session,
            properties={"hoodie.compact.inline": False},
        )

        def data(numbers: range, turn: int, session: Any = session) -> Any:
            table = rows(*batch(numbers, turn))
            return table if session is None else session.createDataFrame(table.to_pandas())

        table.upsert(data(range(120), 0), options=SIZES)
        model = {row[0]: row for row in batch(range(120), 0)}
        planned = table.maintenance.cluster(plan_only=True, options=SIZES).planned if index == "consistent" else None
        table.upsert(data(range(100, 140), 1), options=SIZES)
        model.update({row[0]: row for row in batch(range(100, 140), 1)})
        table.delete(data(range(3), 2))
        for gone in range(3):
            del model[gone]
        assert content(table) == sorted(model.values())
        if planned is not None:
            assert planned in table.maintenance.cluster(options=SIZES).instants
            assert content(table) == sorted(model.values())
        assert lakebed.open(table.uri).indexes.verify().ok
        if index == "consistent":
            # rings begin alike, and a pending plan names groups of its own
            held = table.scan(columns=["id", "_hoodie_file_name"], where="id < 100").to_arrow().to_pylist()
            by_group: dict[str, set[int]] = {}
            for row in held:
                by_group.setdefault(row["_hoodie_file_name"].split("_")[0], set()).add(row["id"])
            places.append(sorted(map(sorted, by_group.values())))
        assert table.get([110]).to_pylist()[0]["ts"] == 1
    assert len(places) == (2 if index == "consistent" else 0)
    assert places[:1] == places[1:]

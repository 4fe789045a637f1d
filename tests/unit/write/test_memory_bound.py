"""Rows of a file group beyond `lakebed.write.memory` lie on disk while they are merged, and come out the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.spill import Spill
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from write_tables import content, rows

Make = Callable[..., Table]


class Watching:
    """A storage that notes the spill files there are whenever a data file is begun."""

    def __init__(self, inner: Any, folder: Path, seen: list[int]) -> None:
        self._inner = inner
        self._folder = folder
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str) -> Any:
        self._seen.append(len(list(self._folder.glob("lakebed-spill-*"))))
        return self._inner.create(path)


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize(("memory", "spills"), [(4_000, True), (100_000_000, False)])
def test_a_group_beyond_the_bound_spills(
    make: Make, index: str, memory: int, spills: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = {"lakebed.write.memory": memory, "lakebed.write.tasks": 1}
    seen: list[int] = []
    table = make(index=index, partition_by=None, **({"buckets": 1} if index == "bucket" else {}))
    first = [(n, f"c{n}", "a" * 50, 10) for n in range(500)]
    second = [(n, f"c{n}", "b" * 50, 20 if n % 2 else 5) for n in range(250, 750)]
    with wrapping(lambda inner: Watching(inner, tmp_path, seen)):  # pyright: ignore[reportArgumentType]
        writer = lakebed.open(table.uri)
        writer.upsert(rows(*first), options=options)
        writer.upsert(rows(*second, *second[:10]), options=options)
        writer.delete(rows(*first[:100]), options=options)
    assert any(seen) == spills
    assert list(tmp_path.iterdir()) == []
    model = {r[0]: r for r in first}
    model |= {r[0]: r for r in second if r[0] >= 500 or r[3] == 20}
    assert content(table) == sorted(r for r in model.values() if r[0] >= 100)


def test_a_spill_gives_back_what_it_took(tmp_path: Path) -> None:
    batches = [
        pa.record_batch({"n": pa.array(range(at, at + 100)), "t": ["x" * 20] * 100}) for at in range(0, 1000, 100)
    ]
    for limit in (0, 5_000, 1 << 30):
        with Spill(limit, str(tmp_path)) as spill:
            spill.extend(batches)
            assert spill.spilled == (limit < 1 << 30)
            assert spill.table().equals(pa.Table.from_batches(batches))
            assert len(list(tmp_path.iterdir())) == int(spill.spilled)
        assert list(tmp_path.iterdir()) == []

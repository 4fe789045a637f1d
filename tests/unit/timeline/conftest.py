"""The timelines of the golden tables, unpacked once for the whole run: `.hoodie` folders without data files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.storage import Storage, open_storage
from lakebed.timeline.timeline import Timeline, load_timeline
from support.golden_tables import GoldenTable, golden


@dataclass(frozen=True)
class Opened:
    folder: Path
    storage: Storage
    config: TableConfig
    timeline: Timeline


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[GoldenTable], Opened]:
    """A function that opens the timeline of a golden table."""
    root = tmp_path_factory.mktemp("timelines")

    @cache
    def open_one(name: str) -> Opened:
        table = golden(name)
        folder = root / table.name
        for path, data in table.files().items():
            if _is_timeline(path):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
        for path, millis in (table.more("mtimes.json") or {}).items():
            if (folder / path).exists():
                os.utime(folder / path, ns=(millis * 10**6, millis * 10**6))
        storage = open_storage(str(folder))
        config = load_table_config(storage)
        return Opened(folder, storage, config, load_timeline(storage, config))

    return lambda table: open_one(table.name)


def _is_timeline(name: str) -> bool:
    """Files of the data table's and the metadata table's timeline."""
    in_metadata = name.startswith(".hoodie/metadata/")
    return name.startswith(".hoodie/metadata/.hoodie/" if in_metadata else ".hoodie/") and not name.endswith("/")

"""The golden tables: small tables that real Hudi wrote, with what real Hudi read back.

The whole set is taken from the folder in LAKEBED_GOLDEN, else from `../shared/golden` beside the checkout where that
exists; otherwise the subset in `tests/golden` serves.
"""

from __future__ import annotations

import calendar
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TESTS = Path(__file__).resolve().parent
SUBSET = _TESTS / "golden"

_METADATA_PROPERTIES = ("hoodie.table.metadata.partitions", "hoodie.table.index.defs.path")


def golden_folder() -> Path:
    """Where the golden tables lie."""
    named = os.environ.get("LAKEBED_GOLDEN")
    if named:
        return Path(named)
    beside = _TESTS.parent.parent / "shared" / "golden"
    return beside if (beside / "manifest.json").exists() else SUBSET


@dataclass(frozen=True)
class GoldenTable:
    """One table of the set; `entry` is its part of the manifest."""

    name: str
    entry: dict[str, Any]
    folder: Path

    def __str__(self) -> str:
        return self.name

    @property
    def version(self) -> int:
        return int(self.entry["table_version"])

    @property
    def type(self) -> str:
        return self.entry["type"]

    @property
    def expected(self) -> pa.Table:
        """The snapshot as real Hudi read it, meta columns included; as 1.2.0 reads it where releases differ."""
        reread = self.more("expected_1.2.0.parquet")
        return reread if reread is not None else pq.read_table(self.folder / f"{self.name}.expected.parquet")

    def more(self, member: str) -> Any:
        """A side file: an Arrow table for `.parquet`, parsed JSON for `.json`; None where there is none."""
        with zipfile.ZipFile(self.folder / f"{self.name}.more.zip") as archive:
            if member not in archive.namelist():
                return None
            data = archive.read(member)
        return json.loads(data) if member.endswith(".json") else pq.read_table(io.BytesIO(data))

    def unpack(self, parent: Path) -> Path:
        """The table in a folder of its own below `parent`, with its modification times (version 6 needs them)."""
        target = parent / self.name
        _extract(self.folder / f"{self.name}.zip", target)
        for path, millis in (self.more("mtimes.json") or {}).items():
            os.utime(target / path, ns=(millis * 10**6, millis * 10**6))
        return target

    def unpack_without_metadata_table(self, parent: Path) -> Path:
        """The same with its metadata table taken off, so that lakebed may write to it."""
        target = self.unpack(parent)
        strip_metadata_table(target)
        return target


@dataclass(frozen=True)
class HudiRsTable:
    """One sample table of the hudi-rs project; `name` is its path in the set, `entry` what real Hudi found in it."""

    name: str
    entry: dict[str, Any]
    folder: Path

    def __str__(self) -> str:
        return self.name

    @property
    def expected(self) -> pa.Table | None:
        """The snapshot as real Hudi 1.2.0 read it, or None where it could not or there are no rows."""
        file = (self.entry.get("snapshot") or {}).get("file")
        return pq.read_table(self.folder / "expected" / file) if file else None

    def unpack(self, parent: Path) -> Path:
        target = parent / "hudi-rs"
        _extract(self.folder / "tables" / self.name, target)
        return target / self.entry["top_folder"]


def strip_metadata_table(table: Path) -> None:
    """Take the metadata table off a table on local disk: its folder, the index definitions, the properties."""
    shutil.rmtree(table / ".hoodie" / "metadata", ignore_errors=True)
    shutil.rmtree(table / ".hoodie" / ".index_defs", ignore_errors=True)
    properties = table / ".hoodie" / "hoodie.properties"
    lines = properties.read_bytes().splitlines(keepends=True)
    dropped = tuple(name.encode() for name in _METADATA_PROPERTIES)
    properties.write_bytes(b"".join(line for line in lines if not line.startswith(dropped)))


def _extract(path: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.startswith("__MACOSX"):
                continue
            written = archive.extract(member, target)
            if not member.is_dir():
                when = calendar.timegm((*member.date_time, 0, 0, 0))
                os.utime(written, (when, when))


@cache
def _all() -> tuple[GoldenTable, ...]:
    folder = golden_folder()
    entries = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["tables"]
    return tuple(GoldenTable(entry["name"], entry, folder) for entry in entries)


def golden(name: str) -> GoldenTable:
    """One table by name."""
    return next(table for table in _all() if table.name == name)


def golden_tables(where: Callable[[GoldenTable], bool] = lambda _: True) -> Sequence[GoldenTable]:
    """All tables (that fulfil `where`), for `pytest.mark.parametrize(..., ids=str)`."""
    return [table for table in _all() if where(table)]


def golden_cow_tables() -> Sequence[GoldenTable]:
    return golden_tables(lambda table: table.type == "cow")


def golden_mor_tables() -> Sequence[GoldenTable]:
    return golden_tables(lambda table: table.type == "mor")


@cache
def hudi_rs_tables() -> Sequence[HudiRsTable]:
    """The sample tables of hudi-rs; none in the subset that travels with the checkout."""
    folder = golden_folder() / "hudi-rs"
    if not folder.exists():
        return []
    index = json.loads((folder / "expected" / "index.json").read_text(encoding="utf-8"))
    return [HudiRsTable(name, entry, folder) for name, entry in sorted(index.items())]

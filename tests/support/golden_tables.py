"""The golden tables: small tables that real Hudi wrote, with what real Hudi read back.

`tests/golden` has every table that a test names. LAKEBED_GOLDEN names a folder with a larger set.

    python tests/support/golden_tables.py NAME... --source FOLDER     packs tables of a larger set into tests/golden
"""

from __future__ import annotations

import argparse
import calendar
import io
import json
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _pytest.mark import ParameterSet

from support.sampling import covering

_TESTS = Path(__file__).resolve().parents[1]
_SPREAD = 24
SUBSET = _TESTS / "golden"

# The members of a packed table: its files, and what real Hudi read back with all else that is known of it.
_TABLE, _MORE = "table/", "more/"
_EXPECTED = "expected.parquet"
_SOURCE = "source/"
_BASE_PATH = "hoodie.bootstrap.base.path"
_METADATA_PROPERTIES = ("hoodie.table.metadata.partitions", "hoodie.table.index.defs.path")


def golden_folder() -> Path:
    """The folder that the golden tables are taken from."""
    named = os.environ.get("LAKEBED_GOLDEN")
    return Path(named) if named else SUBSET


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
        return reread if reread is not None else self.more(_EXPECTED)

    def more(self, member: str) -> Any:
        """A side file: an Arrow table for `.parquet`, parsed JSON for `.json`; None where there is none."""
        data = _side_files(self.folder, self.name).get(member)
        if data is None:
            return None
        return json.loads(data) if member.endswith(".json") else pq.read_table(io.BytesIO(data))

    def files(self) -> Mapping[str, bytes]:
        """The table's files by their paths in it, in the order of their packing."""
        return _table_files(self.folder, self.name)

    def unpack(self, parent: Path) -> Path:
        """The table in a folder of its own below `parent`, with its modification times (version 6 needs them)."""
        target = parent / self.name
        packed = self.folder / f"{self.name}.tar.xz"
        if packed.exists():
            with tarfile.open(packed) as archive:
                members = [m for m in archive.getmembers() if m.name.startswith(_TABLE)]
                archive.extractall(
                    target, [m.replace(name=m.name.removeprefix(_TABLE)) for m in members], filter="data"
                )
        else:
            _extract(self.folder / f"{self.name}.zip", target)
        for path, millis in (self.more("mtimes.json") or {}).items():
            os.utime(target / path, ns=(millis * 10**6, millis * 10**6))
        if self.is_bootstrapped:
            self._unpack_source(target)
        return target

    @property
    def is_bootstrapped(self) -> bool:
        """Whether rows of the table are in files of another folder, its source."""
        return "source" in self.entry

    @property
    def is_of_flink(self) -> bool:
        """Whether another client of real Hudi wrote the table as its Flink writer would."""
        return "writer" in self.entry

    def source_of(self, table: Path) -> Path:
        """The source folder of an unpacked bootstrapped table."""
        return table.with_name(f"{self.name}_source")

    def _unpack_source(self, table: Path) -> None:
        """The source files beside the table, whose properties name their folder. The bootstrap index, whose bytes stay
        those of real Hudi, names the one where they were."""
        source = self.source_of(table)
        for member, data in _side_files(self.folder, self.name).items():
            if member.startswith(_SOURCE):
                path = source / member.removeprefix(_SOURCE)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        properties = table / ".hoodie" / "hoodie.properties"
        lines = [line for line in properties.read_text().splitlines() if not line.startswith(_BASE_PATH)]
        properties.write_text("\n".join([*lines, f"{_BASE_PATH}={source}"]) + "\n")

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


@lru_cache(maxsize=4)
def _table_files(folder: Path, name: str) -> Mapping[str, bytes]:
    packed = folder / f"{name}.tar.xz"
    return _members(packed, _TABLE) if packed.exists() else _members(folder / f"{name}.zip")


@lru_cache(maxsize=4)
def _side_files(folder: Path, name: str) -> Mapping[str, bytes]:
    packed = folder / f"{name}.tar.xz"
    if packed.exists():
        return _members(packed, _MORE)
    expected = (folder / f"{name}.expected.parquet").read_bytes()
    return {**_members(folder / f"{name}.more.zip"), _EXPECTED: expected}


def _members(path: Path, prefix: str = "") -> Mapping[str, bytes]:
    """The files in an archive by name, those below `prefix`."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    with tarfile.open(path) as archive:
        files = [m for m in archive if m.isfile() and m.name.startswith(prefix)]
        return {m.name.removeprefix(prefix): reader.read() for m in files if (reader := archive.extractfile(m))}


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
    """One table by name; one as Flink writes it is always that of `tests/golden`."""
    if name.startswith("flink"):
        entries = json.loads((SUBSET / "manifest.json").read_text(encoding="utf-8"))["tables"]
        return GoldenTable(name, next(entry for entry in entries if entry["name"] == name), SUBSET)
    return next(table for table in _all() if table.name == name)


def golden_tables(where: Callable[[GoldenTable], bool] = lambda _: True) -> Sequence[GoldenTable]:
    """All tables (that fulfil `where`) but bootstrapped ones and those as Flink writes them, for
    `pytest.mark.parametrize(..., ids=str)`."""
    return [table for table in _all() if where(table) and not (table.is_bootstrapped or table.is_of_flink)]


def bootstrapped_tables() -> Sequence[GoldenTable]:
    """The tables whose rows are partly in files of another folder; they are always those of `tests/golden`."""
    entries = json.loads((SUBSET / "manifest.json").read_text(encoding="utf-8"))["tables"]
    return [GoldenTable(entry["name"], entry, SUBSET) for entry in entries if "source" in entry]


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


def some_tables(tables: Sequence[GoldenTable], names: Collection[str]) -> list[ParameterSet]:
    """The named ones, for `pytest.mark.parametrize`; with a larger set the others, too, marked as part of it."""
    whole = golden_folder() != SUBSET
    return [
        pytest.param(table, marks=() if table.name in names else pytest.mark.larger_set)
        for table in tables
        if whole or table.name in names
    ]


def spread(tables: Sequence[GoldenTable]) -> list[ParameterSet]:
    """All of them, for `pytest.mark.parametrize`: `make test` takes those with the most versions, types and features
    among them, and the others are in its rest."""
    features = {(table.version, table.type, *table.name.split("_")[2:4]): table.name for table in tables}
    chosen = {features[one] for one in covering(list(features), _SPREAD)}
    return [pytest.param(table, marks=() if table.name in chosen else pytest.mark.rest) for table in tables]


def beyond_subset() -> frozenset[str]:
    """The tables of the larger set that are not in `tests/golden`, and the samples of hudi-rs; none without a larger
    set."""
    if golden_folder() == SUBSET:
        return frozenset()
    entries = json.loads((SUBSET / "manifest.json").read_text(encoding="utf-8"))["tables"]
    names = {table.name for table in _all()} | {table.name for table in hudi_rs_tables()}
    return frozenset(names - {entry["name"] for entry in entries})


def pack(name: str, source: Path, dest: Path = SUBSET) -> None:
    """Pack one table of a set into `dest` and put its entry into the manifest there."""
    entries = json.loads((source / "manifest.json").read_text(encoding="utf-8"))["tables"]
    table = GoldenTable(name, next(entry for entry in entries if entry["name"] == name), source)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(dest / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(table.unpack(Path(folder)), _TABLE.rstrip("/"))
        for member, data in _side_files(source, name).items():
            entry = tarfile.TarInfo(_MORE + member)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    manifest = dest / "manifest.json"
    there = json.loads(manifest.read_text(encoding="utf-8"))["tables"] if manifest.exists() else []
    tables = sorted([*(t for t in there if t["name"] != name), table.entry], key=lambda entry: entry["name"])
    manifest.write_text(json.dumps({"tables": tables}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--source", type=Path, required=True, help="the folder of the larger set")
    parser.add_argument("--dest", type=Path, default=SUBSET)
    given = parser.parse_args()
    for name in given.names:
        pack(name, given.source, given.dest)


if __name__ == "__main__":
    main()

"""Cut, lost and changed files of a metadata table: right rows or `CorruptFile`, and `repair` mends it.

With `LAKEBED_FUZZ=all` every file is damaged in every way, otherwise a sample, another one each day.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest

import lakebed
from lakebed.errors import CorruptFile
from lakebed.metadata.slices import HFILES, LOGS
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from support.sampling import FUZZ, is_todays
from support.write_tables import SCHEMA, content, files, rows

OPTIONS = {
    "hoodie.metadata.global.record.level.index.min.filegroup.count": 2,
    "hoodie.metadata.compact.max.delta.commits": 4,
}
INDEXES = {9: ["bloom_filters", "column_stats", "v"], 8: ["bloom_filters", "column_stats", "v"], 6: ["column_stats"]}
GIVEN = [(n, f"c{n % 2}", f"v{n % 3}", 10) for n in range(12)]
Damage = Callable[[bytes], bytes | None]
_PARTS = 14


@cache
def filled(version: int, commits: int) -> Mapping[str, bytes]:
    """The files of a table with a metadata table of logs, and of base files (from 6 commits on)."""
    name = uuid.uuid4().hex
    table = lakebed.create(
        f"memory://{name}/t",
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        index="record",
        table_version=version,
        indexes=INDEXES[version],
    )
    for at in range(commits):
        new = [(100 + at, f"c{at % 2}", "new", 10), (at, f"c{at % 2}", f"v{at}", 11 + at)]
        table.upsert(rows(*(GIVEN if at == 0 else []), *(new if at else [])), options=OPTIONS)
    found = files(table.uri)
    MemoryStorage.drop(name)
    return found


@pytest.fixture
def place() -> Iterator[Callable[[Mapping[str, bytes]], str]]:
    """Puts files into a table of its own, forgetting what the process has read."""
    names: list[str] = []

    def put(content: Mapping[str, bytes]) -> str:
        HFILES.clear()
        LOGS.clear()
        names.append(uuid.uuid4().hex)
        storage = open_storage(f"memory://{names[-1]}/t")
        for path, data in content.items():
            storage.write(path, data)
        return f"memory://{names[-1]}/t"

    yield put
    for name in names:
        MemoryStorage.drop(name)


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def cut_to_nothing(data: bytes) -> bytes:
    return b""


def delete(data: bytes) -> None:
    return None


def flip(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(data) * 3 // 5] ^= 0x10
    return bytes(changed)


def answers(uri: str) -> dict[str, Any]:
    """What different ways of reading say, by way."""
    table = lakebed.open(uri)
    return {
        "scan": content(table),
        "filter": sorted(table.scan(where="v = 'new'").to_arrow()["id"].to_pylist()),
        "range": sorted(table.scan(where="ts > 10").to_arrow()["id"].to_pylist()),
        "get": sorted(table.get(list(range(120))).to_pandas()["id"].tolist()),
    }


def answers_or_damage(uri: str) -> dict[str, Any] | str:
    try:
        return answers(uri)
    except CorruptFile as error:
        return "damage" if "indexes.repair()" in str(error) else str(error)


def without_metadata(uri: str) -> list[Any]:
    found = lakebed.open(uri, options={"hoodie.metadata.enable": False}).scan().to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def named_by_instants(path: str) -> bool:
    """Whether it is a log or base file of the metadata table, or a completed instant of it."""
    name = path.rpartition("/")[2]
    logs = ".log." in name and not name.endswith("_0-0-0")  # what creates a file group holds nothing
    return path.startswith(METADATA_FOLDER) and (logs or name.endswith((".hfile", ".deltacommit", ".commit")))


@pytest.mark.parametrize("damage", [cut, cut_to_nothing, delete, flip])
@pytest.mark.parametrize(("version", "commits"), [(9, 3), (9, 7), (8, 3), (6, 3), (6, 7)])
def test_right_rows_or_an_error_and_repair_mends_it(
    place: Callable[[Mapping[str, bytes]], str], version: int, commits: int, damage: Damage
) -> None:
    whole = filled(version, commits)
    expected = answers(place(whole))
    wrong: list[str] = []
    paths = sorted(filter(named_by_instants, whole))
    for path in [p for n, p in enumerate(paths) if is_todays(n, _PARTS, FUZZ, version, commits, damage.__name__)]:
        changed = damage(whole[path])
        left = {name: data for name, data in whole.items() if name != path}
        uri = place(left if changed is None else {**left, path: changed})
        try:
            assert answers_or_damage(uri) in (expected, "damage")
            assert without_metadata(uri) == expected["scan"]
            lakebed.open(uri).indexes.repair()
            assert answers(uri) == expected
            table = lakebed.open(uri)
            table.upsert(rows((3, "c1", "later", 99), (777, "c0", "later", 99)), options=OPTIONS)
            assert {row[2] for row in content(table) if row[0] in (3, 777)} == {"later"}
            assert len(content(table)) == len(expected["scan"]) + 1
            assert table.indexes.verify().ok
        except (lakebed.LakebedError, AssertionError, FileNotFoundError) as error:
            wrong.append(f"{path}: {error!r}"[:600])
    assert not wrong, "\n".join(wrong)

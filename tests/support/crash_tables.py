"""A small table to crash writers on: its rows as a dict, copies of it on any storage, what may lie in its folder."""

from __future__ import annotations

import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.format.file_names import parse_base_file, parse_log_file
from lakebed.index.bucket_counts import CONFIGS
from lakebed.index.consistent.ring import INITIAL
from lakebed.index.consistent.ring_files import FOLDER
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.model import Action, Instant
from lakebed.properties.features import SCHEMA_FOLDER
from lakebed.properties.file import load_table_config
from lakebed.properties.table_config import TableConfig
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.storage.folder import FolderStorage
from lakebed.storage.memory import MemoryStorage
from lakebed.timeline.instants import parse_instant_file
from lakebed.timeline.timeline import Timeline, completed_at, load_timeline
from support.sampling import CRASH, is_todays

Row = tuple[str, str, int]
Model = dict[int, Row]
"""Rows by key: city (the partition), text, ordering value."""

# One thread, so that the order of mutations is the same in every run; a lock that is stuck shows soon.
OPTIONS = {
    "lakebed.write.tasks": 1,
    "hoodie.write.lock.wait_time_ms": 5000,
    # each file group of an index is a mutation of every write: two are as good as Hudi's ten
    "hoodie.metadata.global.record.level.index.min.filegroup.count": 2,
}

MOR = "mor-"
CDC = "cdc-"

_HOODIE_FILES = re.compile(
    r"^\.hoodie/(hoodie\.properties|\.index_defs/index\.json|\.hoodie\.properties\.[0-9a-f.]*tmp"
    r"|\.hoodie\.properties\.guard"
    r"|\.locks/(table_lock\.json|\.table_lock\.json\.(guard|[0-9a-f.]*tmp)))$"
)
# The aside file is left where the system has no nameless files and no marker tells of the partition: nobody reads it.
_ARCHIVE_FILES = re.compile(r"manifest_\d+|_version_|\._version_\.guard|\d+_\d+_\d+\.parquet|\.commits_\.archive\..+")
_PARTITION_METADATA = re.compile(r"^(\.hoodie_partition_metadata|\.\.hoodie_partition_metadata\.[0-9a-f.]*tmp)$")


def rows(*given: tuple[int, str, str, int]) -> pa.Table:
    """Data of (id, city, text, ordering value)."""
    ids, cities, texts, orders = zip(*given, strict=True)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": pa.array(cities, pa.string()),
            "v": pa.array(texts, pa.string()),
            "ts": pa.array(orders, pa.int64()),
        }
    )


def put(model: Model, *given: tuple[int, str, str, int]) -> Model:
    return model | {key: (city, text, order) for key, city, text, order in given}


# Bloom filters of few values.
_SMALL = {"numentries": 20, "fpp": 0.01}


@cache
def prepared(index: str, version: int) -> tuple[Mapping[str, bytes], Model]:
    """The files of a table with two partitions and two commits, and its rows."""
    name = f"prepared-{uuid.uuid4().hex}"
    uri = f"memory://{name}/t"
    first = [(n, f"c{n % 2}", "a", 1) for n in range(6)]
    second = [(n, f"c{n % 2}", "b", 2) for n in range(3, 9)]
    create(uri, index, version)
    table = lakebed.open(uri)
    table.upsert(rows(*first), options=OPTIONS)
    if index == "simple" and version == 9:
        table.indexes.create("v_upper", column="v", function="upper")
        table.indexes.create("v_lower", column="v", function="lower", function_options=_SMALL, kind="bloom_filters")
    table.upsert(rows(*second), options=OPTIONS)
    storage = open_storage(uri)
    files = {info.path: storage.read(info.path) for info in storage.list()}
    MemoryStorage.drop(name)
    return files, put(put({}, *first), *second)


def create(uri: str, index: str, version: int) -> None:
    """An empty table; an index after `mor-` is that of a merge-on-read table, one after `cdc-` of one that logs its
    changes."""
    logged = index.startswith(CDC)
    index = index.removeprefix(CDC)
    kind = "mor" if index.startswith(MOR) else "cow"
    index = index.removeprefix(MOR)
    buckets = 1 if index == "bucket" else None
    lakebed.create(
        uri,
        rows((0, "c0", "", 0)).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        index=index,
        indexes=["v"] if index == "record" and version > 6 else None,
        buckets=buckets,
        table_version=version,
        properties={"hoodie.table.cdc.enabled": True} if logged else None,
    )


@contextmanager
def place(storage: str) -> Iterator[str]:
    """A URI on that kind of storage where nothing is yet; cleared away afterwards."""
    if storage == "memory":
        name = f"crash-{uuid.uuid4().hex}"
        yield f"memory://{name}/t"
        MemoryStorage.drop(name)
    else:
        # memory-backed where there is one: the code is the same, syncing is for nothing
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            yield f"{folder}/t"


@contextmanager
def copied(storage: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """A fresh copy of a table; gives its URI."""
    with place(storage) as uri:
        for path, data in files.items():
            if storage == "memory":
                open_storage(uri).write(path, data)
            else:
                target = Path(uri, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        yield uri


def state(uri: str) -> Model:
    """All rows, by key; fails where a key comes twice, or where listing the folders shows another table."""
    model = _rows(uri, through_metadata=True)
    assert model == _rows(uri, through_metadata=False), "the metadata table shows other rows than the folders"
    return model


def _rows(uri: str, *, through_metadata: bool) -> Model:
    table = lakebed.open(uri, options={"hoodie.metadata.enable": through_metadata})
    found = table.scan(["id", "city", "v", "ts"]).to_arrow().to_pylist()
    model = {row["id"]: (row["city"], row["v"], row["ts"]) for row in found}
    assert len(model) == len(found), f"keys come twice: {found}"
    return model


def strike_each(strike: Callable[[int], int | None], parts: int, *case: object) -> int:
    """Strike today's mutations of a run, which are one in so many `parts`, until there is none to be struck: gives what
    `strike` says then, the number of mutations that the run has."""
    said = (strike(at) for at in count(1) if is_todays(at, parts, CRASH, *case))
    return next(mutations for mutations in said if mutations is not None)


def leftovers(uri: str) -> list[str]:
    """Whatever a table at rest should not have: pending instants, files no commit names, leavings of any kind."""
    storage = open_storage(uri)
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    stats = [s for i in timeline.commits for g in timeline.commit_metadata(i).stats.values() for s in g]
    named = {path for stat in stats for path in stat.paths}
    found = [f"pending instant {i.time} {i.action} {i.state.name}" for i in timeline.pending]
    everything = {info.path for info in storage.list()}
    present = {path for path in everything if not path.startswith(METADATA_FOLDER + "/")}
    rules = {f"{CONFIGS}/{i.time}.hashing_config" for i in timeline.commits}
    cleaned = _cleaned(timeline)
    found += [f"missing {path}" for path in sorted(named - present - cleaned)]
    found += [f"cleaned, yet there: {path}" for path in sorted(present & cleaned)]
    if present < everything:
        found += _litter_of_metadata(FolderStorage(storage, METADATA_FOLDER))
    archived = {instant.time for instant in timeline.archived().instants}
    # rings and schema histories stay with the instants that wrote them, archived ones too, the first ones for ever
    done = {INITIAL, *archived, *(i.time for i in timeline.completed)}
    rings = {path for path in present if path.startswith((FOLDER + "/", SCHEMA_FOLDER + "/"))}
    found += sorted(path for path in rings if re.split("[._]", path.rpartition("/")[2])[0] not in done)
    present -= rings
    found += sorted(
        path
        for path in present - named
        if not (
            _may_stay(path, config.timeline_path, config.version)
            or _instant(path) in archived
            or path in rules
            or _is_of_archive(path, config.archive_folder)
        )
    )
    if Path(uri, ".hoodie").is_dir():
        found += [f"folder {p}" for p in Path(uri, ".hoodie", ".temp").glob("*")]
    return found


def _cleaned(timeline: Timeline) -> set[str]:
    """The paths that the completed cleans of the active timeline have deleted."""
    bodies = [timeline.metadata(i) for i in timeline.completed if i.action is Action.CLEAN]
    parts = [part for body in bodies for part in body["partitionMetadata"].values()]
    return {f"{part['partitionPath']}/{name}".lstrip("/") for part in parts for name in part["successDeleteFiles"]}


def _litter_of_metadata(storage: Storage) -> list[str]:
    """The same of the metadata table, cleaned and archived after some commits: what its cleanings took and what
    archived instants wrote is not known here."""
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    written = [(i, s.path) for i in timeline.commits for g in timeline.commit_metadata(i).stats.values() for s in g]
    named = {path for _, path in written}
    built = _built_anew(written)
    found = [f"pending metadata instant {i.time} {i.action} {i.state.name}" for i in timeline.pending]
    present = {info.path for info in storage.list()}
    cleaned = max((i.time for i in timeline.completed if i.action is Action.CLEAN), default="")
    found += sorted(
        f"missing metadata file {path}"
        for i, path in written
        if path not in present and _instant(path) > cleaned and completed_at(i) >= built.get(_folder(path), "")
    )
    return found + sorted(
        f"metadata file {path}"
        for path in present - named
        if not (_may_stay_in_metadata(path, config) or _instant(path) < (timeline.start or ""))
    )


def _built_anew(written: list[tuple[Instant, str]]) -> dict[str, str]:
    """When each partition was built last, as a restore does it: its folder is dropped before, with files that commits
    of its former life name. Only a build writes base files in a delta commit."""
    bases = [(i, path) for i, path in written if i.action is Action.DELTACOMMIT and path.endswith(".hfile")]
    return {_folder(path): completed_at(i) for i, path in sorted(bases, key=lambda base: completed_at(base[0]))}


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _instant(path: str) -> str:
    """Of the action that wrote a file; of any other file one that comes after all."""
    folder, _, name = path.rpartition("/")
    file = parse_base_file(folder, name, 0) or parse_log_file(folder, name, 0)
    return file.instant if file is not None else "9"


def _may_stay_in_metadata(path: str, config: TableConfig) -> bool:
    """Creation logs are in no commit; on version 6 a log that was rolled back stays, with a command block behind it."""
    folder, _, name = path.rpartition("/")
    if path == ".hoodie/hoodie.properties" or name.endswith("_0-0-0") or folder == config.archive_folder:
        return True
    if config.version < 8 and parse_log_file(folder, name, 0) is not None:
        return True
    return _may_stay(path, config.timeline_path, config.version)


def _may_stay(path: str, timeline_path: str, version: int) -> bool:
    folder, _, name = path.rpartition("/")
    if _HOODIE_FILES.match(path):
        return True
    if folder == timeline_path:
        return parse_instant_file(name, version) is not None
    log = parse_log_file(folder, name, 0) if version < 8 else None
    if log is not None and log.instant and not path.startswith(".hoodie/"):
        return True  # rolled back, with a command block behind it
    return parse_base_file(folder, name, 0) is None and bool(_PARTITION_METADATA.match(name))


def _is_of_archive(path: str, archive_folder: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == archive_folder and bool(_ARCHIVE_FILES.fullmatch(name))


@dataclass(frozen=True)
class Operation:
    """One write: how to run it, and what it makes of the rows."""

    name: str
    run: Callable[[Any], Any]
    model: Callable[[Model], Model]


def _without(model: Model, *cities: str) -> Model:
    return {key: row for key, row in model.items() if row[0] not in cities}


_UPSERTED = [(0, "c0", "new", 5), (20, "c2", "new", 5)]
_ADDED = [(30, "c0", "new", 5), (31, "c2", "new", 5)]
_OVER = [(40, "c0", "new", 5)]


def _merge(table: lakebed.Table) -> lakebed.WriteResult:
    """An update, a delete and an insert, by key."""
    source = rows(*_UPSERTED, (1, "c1", "gone", 9))
    merge = table.merge(source, ["id", "city"]).when_matched_delete(condition="s.v = 'gone'").when_matched_update()
    return merge.when_not_matched_insert().execute(options=OPTIONS)


OPERATIONS = {
    op.name: op
    for op in (
        Operation("upsert", lambda t: t.upsert(rows(*_UPSERTED), options=OPTIONS), lambda m: put(m, *_UPSERTED)),
        Operation("bulk_insert", lambda t: t.bulk_insert(rows(*_ADDED), options=OPTIONS), lambda m: put(m, *_ADDED)),
        Operation(
            "insert_overwrite",
            lambda t: t.insert_overwrite(rows(*_OVER), options=OPTIONS),
            lambda m: put(_without(m, "c0"), *_OVER),
        ),
        Operation(
            "insert_overwrite_table",
            lambda t: t.insert_overwrite(rows(*_ADDED), "table", options=OPTIONS),
            lambda m: put({}, *_ADDED),
        ),
        Operation(
            "delete",
            lambda t: t.delete([0, 1], options=OPTIONS),
            lambda m: {k: v for k, v in m.items() if k not in (0, 1)},
        ),
        Operation("merge", _merge, lambda m: {k: v for k, v in put(m, *_UPSERTED).items() if k != 1}),
        Operation(
            "update",
            lambda t: t.update({"v": "'set'"}, where="id < 2", options=OPTIONS),
            lambda m: {k: (v[0], "set", *v[2:]) if k < 2 else v for k, v in m.items()},
        ),
        Operation(
            "delete_partitions",
            lambda t: t.delete_partitions(["c0"], options=OPTIONS),
            lambda m: _without(m, "c0"),
        ),
    )
}

_NEXT = [(1, "c1", "next", 9), (50, "c2", "next", 9)]
_LAST = [(2, "c0", "last", 9), (51, "c2", "last", 9)]
LAST = Operation("last", lambda t: t.upsert(rows(*_LAST), options=OPTIONS), lambda m: put(m, *_LAST))
NEXT = Operation("next", lambda t: t.upsert(rows(*_NEXT), options=OPTIONS), lambda m: put(m, *_NEXT))

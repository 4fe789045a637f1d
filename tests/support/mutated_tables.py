"""Tables whose files are changed byte by byte: which kinds of files there are, how one is changed, what may show."""

from __future__ import annotations

import random
import re
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.errors import LakebedError
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from support.crash_tables import OPTIONS, prepared, rows
from support.golden_tables import golden

Files = Mapping[str, bytes]

WRITTEN = [("record", 9), ("simple", 9), ("bucket", 9), ("record", 8), ("simple", 6), ("record", 6)]
GOLDEN = [
    "v9_cow_mdt_all",
    "v9_cow_mdt_compacted",
    "v9_cow_archival",
    "v9_cow_clustering_inline",
    "v9_cow_delete_partition",
    "v9_cow_failed_left",
    "v8_cow_bloom",
    "v6_cow_archival",
    "v6_cow_rollback",
    "v6_cow_no_meta",
    "v6_cow_insert_overwrite",
]

# The first that fits a path names its kind.
_KINDS = [
    ("metadata log", r"\.hoodie/metadata/[^.].*/\..*\.log\..*"),
    ("metadata hfile", r"\.hoodie/metadata/[^.].*\.hfile"),
    ("metadata partition metadata", r"\.hoodie/metadata/.*\.hoodie_partition_metadata.*"),
    ("properties", r"(\.hoodie/metadata/)?\.hoodie/hoodie\.properties.*"),
    ("index definitions", r"\.hoodie/\.index_defs/.*"),
    ("archive", r"(\.hoodie/metadata/)?\.hoodie/(timeline/history|archived)/.*"),
    ("lock", r"\.hoodie/\.locks/.*"),
    ("heartbeat", r".*\.hoodie/\.heartbeat/.*"),
    ("marker", r".*\.hoodie/\.temp/.*"),
    ("pending instant", r"(\.hoodie/metadata/)?\.hoodie/(timeline/)?[0-9].*(requested|inflight)"),
    ("instant", r"(\.hoodie/metadata/)?\.hoodie/(timeline/)?[0-9_]+\.[a-z]+"),
    ("partition metadata", r"(.*/)?\.hoodie_partition_metadata.*"),
    ("base file", r"(?!\.hoodie/).*\.parquet"),
]
_PATTERNS = [(kind, re.compile(pattern)) for kind, pattern in _KINDS]
KINDS = [kind for kind, _ in _KINDS]


def kind_of(path: str) -> str | None:
    return next((kind for kind, pattern in _PATTERNS if pattern.fullmatch(path)), None)


@dataclass(frozen=True)
class Sample:
    """A table that was not changed: its files, whether lakebed wrote it, and what each question answers."""

    name: str
    files: Files
    is_ours: bool
    answers: Mapping[str, Any]

    def of_kind(self, kind: str) -> list[str]:
        return sorted(path for path in self.files if kind_of(path) == kind)


TABLES = [f"{index}_v{version}" for index, version in WRITTEN] + GOLDEN
CASES_A_TABLE = 60


@cache
def sample(table: str) -> Sample:
    if table in GOLDEN:
        return _golden(table)
    return _written(*WRITTEN[TABLES.index(table)])


@contextmanager
def placed(files: Files) -> Generator[str]:
    """The files as a table in memory; gives its URI."""
    name = f"mutated-{uuid.uuid4().hex}"
    storage = open_storage(f"memory://{name}/t")
    for path, data in files.items():
        storage.write(path, data)
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def _written(index: str, version: int) -> Sample:
    """With commits, an overwritten partition, and what a dead writer left: heartbeat, marker, pending instant."""
    files, _ = prepared(index, version)
    with placed(files) as uri:
        table = lakebed.open(uri)
        table.insert_overwrite(rows((60, "c2", "o", 3)), options=OPTIONS)
        table.insert_overwrite(rows((61, "c2", "p", 4), (62, "c2", "q", 4)), options=OPTIONS)
        files = _all_files(uri)
    return _sample(f"{index}_v{version}", {**files, **_left_by_a_dead_writer(version)}, is_ours=True)


def _left_by_a_dead_writer(version: int) -> dict[str, bytes]:
    time = "20200101000000000"
    timeline = ".hoodie" if version < 8 else ".hoodie/timeline"
    return {
        f"{timeline}/{time}.commit.requested": b"",
        f"{timeline}/{time}.inflight": b"",
        f".hoodie/.heartbeat/{time}": b'{"host":"h","boot":"b","pidNamespace":"n","pid":1,"processStart":"1",'
        b'"writerId":"w","intervalSeconds":0.001}',
        f".hoodie/.temp/{time}/city=c0/f-0_0-0-0_{time}.parquet.marker.CREATE": b"",
        f".hoodie/.temp/{time}/MARKERS0": f"c1/g-0_0-0-0_{time}.parquet.marker.MERGE\n".encode(),
    }


def _golden(name: str) -> Sample:
    with tempfile.TemporaryDirectory() as folder:
        top = golden(name).unpack(Path(folder))
        files = {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}
    return _sample(name, files, is_ours=False)


def _sample(name: str, files: Files, *, is_ours: bool) -> Sample:
    answers: dict[str, Any] = {}
    with placed(files) as uri:
        for what, ask in QUESTIONS.items():
            try:
                answers[what] = ask(uri, answers)
            except LakebedError:
                if what == "scan":
                    raise
    return Sample(name, files, is_ours, answers)


def _all_files(uri: str) -> dict[str, bytes]:
    storage = open_storage(uri)
    return {info.path: storage.read(info.path) for info in storage.list()}


# What is asked of a table. The whole scan is first; the others take a key, a value and a row from its answer.


def _counted(table: pa.Table) -> Counter[str]:
    names = sorted(table.column_names)
    return Counter(repr([row[name] for name in names]) for row in table.select(names).to_pylist())


def _scan(uri: str, _: Mapping[str, Any]) -> Counter[str]:
    return _counted(lakebed.open(uri).scan().to_arrow())


def _first_row(uri: str) -> pa.Table:
    table = lakebed.open(uri)
    found = table.scan().to_arrow()
    return found.sort_by([(table.properties.get("hoodie.table.recordkey.fields", "").split(",")[0], "ascending")])[:1]


def _condition(known: Mapping[str, Any]) -> str:
    return known["condition"]


def _filtered(uri: str, known: Mapping[str, Any]) -> Counter[str]:
    return _counted(lakebed.open(uri).scan(where=_condition(known)).to_arrow())


def _say_condition(uri: str, known: Mapping[str, Any]) -> str:
    if "condition" in known:
        return known["condition"]
    row = _first_row(uri)
    numbers = [f.name for f in row.schema if pa.types.is_integer(f.type)]
    texts = [f.name for f in row.schema if pa.types.is_string(f.type)]
    parts = [f"{name} = {row[name][0].as_py()}" for name in numbers[:1] if row[name][0].as_py() is not None]
    parts += [f"{name} = '{row[name][0].as_py()}'" for name in texts if "'" not in (row[name][0].as_py() or "'")]
    return " or ".join(parts)


def _key(uri: str, known: Mapping[str, Any]) -> str:
    if "key" in known:
        return known["key"]
    found = lakebed.open(uri).scan(["_hoodie_record_key"]).to_arrow()
    return min(found["_hoodie_record_key"].drop_null().to_pylist(), default="")


def _get(uri: str, known: Mapping[str, Any]) -> Counter[str]:
    return _counted(lakebed.open(uri).get(lakebed.KeyText([known["key"], "no such key"])))


def _changes(uri: str, _: Mapping[str, Any]) -> Counter[str]:
    return _counted(lakebed.open(uri).changes("0").to_arrow())


def _row(uri: str, known: Mapping[str, Any]) -> pa.Table:
    return known["row"] if "row" in known else _first_row(uri)


def _upserted(uri: str, known: Mapping[str, Any]) -> Counter[str]:
    """A row that is there is written again."""
    lakebed.open(uri).upsert(known["row"], options=OPTIONS)
    return _scan(uri, known)


QUESTIONS: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "scan": _scan,
    "condition": _say_condition,
    "key": _key,
    "row": _row,
    "filtered scan": _filtered,
    "get": _get,
    "changes": _changes,
    "upsert": _upserted,
}
ASKED = ("scan", "filtered scan", "get", "changes", "upsert")


# Mutations: each gives the new bytes, or None for a file that goes.

Mutation = Callable[[bytes, random.Random, bytes], bytes | None]


def _flip(data: bytes, rng: random.Random, other: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _zeroed(data: bytes, rng: random.Random, other: bytes) -> bytes:
    at = rng.randrange(len(data)) if data else 0
    size = min(len(data) - at, rng.choice([1, 8, 64, 512]))
    return data[:at] + bytes(size) + data[at + size :]


def _length_lie(data: bytes, rng: random.Random, other: bytes) -> bytes:
    lie = rng.choice(
        [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff" * 9 + b"\x01", b"\x80\0\0\0", b"\xfe\xff\xff\x7f"]
    )
    at = rng.randrange(max(1, len(data) - len(lie)))
    return data[:at] + lie + data[at + len(lie) :]


def _truncated(data: bytes, rng: random.Random, other: bytes) -> bytes:
    return data[: rng.choice([rng.randrange(max(1, len(data))), max(0, len(data) - rng.randint(1, 20))])]


def _extended(data: bytes, rng: random.Random, other: bytes) -> bytes:
    return data + rng.choice([rng.randbytes(rng.randint(1, 40)), bytes(rng.randint(1, 4096)), data[-100:]])


MUTATIONS: dict[str, Mutation] = {
    "flip": _flip,
    "zeroed": _zeroed,
    "length lie": _length_lie,
    "truncated": _truncated,
    "extended": _extended,
    "emptied": lambda data, rng, other: b"",
    "deleted": lambda data, rng, other: None,
    "swapped": lambda data, rng, other: other,
}
IN_PLACE = ("flip", "zeroed", "length lie")


@dataclass(frozen=True)
class Case:
    number: int
    sample: Sample
    kind: str
    path: str
    mutation: str
    files: Files

    @property
    def before(self) -> bytes:
        return self.sample.files[self.path]

    @property
    def is_of_same_size(self) -> bool:
        return len(self.before) == len(self.files.get(self.path, b""))

    @property
    def has_digest(self) -> bool:
        """Whether the sync marker of an Avro file of lakebed's tells of a change."""
        return self.before.startswith(b"Obj") and self.before[-16:].startswith(b"lkb1")

    @property
    def names_base_files(self) -> bool:
        """Whether the body that came from elsewhere names base files, each of which carries its instant's time."""
        return b".parquet" in self.files.get(self.path, b"")

    def __str__(self) -> str:
        return f"case {self.number}: {self.sample.name}, {self.mutation} {self.kind} {self.path}"


def case(number: int) -> Case | None:
    """The case of this number, the same in every run; None where the change changes nothing."""
    rng = random.Random(f"mutated-{number}")
    table = sample(TABLES[number // CASES_A_TABLE % len(TABLES)])
    kind = rng.choice([kind for kind in KINDS if table.of_kind(kind)])
    paths = table.of_kind(kind)
    path = rng.choice(paths)
    mutation = rng.choice(list(MUTATIONS))
    changed = MUTATIONS[mutation](table.files[path], rng, table.files[rng.choice(paths)])
    if changed == table.files[path]:
        return None
    files = {name: data for name, data in table.files.items() if name != path}
    if changed is not None:
        files[path] = changed
    return Case(number, table, kind, path, mutation, files)

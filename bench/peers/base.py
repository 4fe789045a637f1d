"""The steps that every side of the benchmark page has, and the digest by which their answers are compared."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KEY, ORDERING = "id", "ts"
DAYS = ("2022-03-01", "2022-03-04")
"""The range query takes the rows of these days: 4 of 365."""


class Peer(ABC):
    """One table format and its engine. The table is where `start` says; `give` hands over the rows of the next step."""

    packages: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[str] = ""
    missing: ClassVar[Mapping[str, str]] = {}
    """Tasks that cannot be done, and why."""
    services = 0
    """How many table services the last write ran, for formats whose writes run some."""

    def __init__(self) -> None:
        self.path = ""

    def about(self) -> dict[str, Any]:
        return {
            "versions": {package: version(package) for package in self.packages},
            "settings": self.settings,
            "missing": dict(self.missing),
        }

    def start(self, path: str) -> None:
        """The table of the next steps is at this path, where nothing is yet."""
        self.path = path

    def before(self, task: str, inputs: str, work: str) -> None:
        """What has to stand before a task; not measured."""
        if task == "upsert_percent":
            self.mark()
        elif task == "incremental":
            self.prepare_incremental(inputs, work)
        elif task == "commits":
            self.start(f"{work}/small")
            self.give(f"{inputs}/small")
            self.load()

    def mark(self) -> None:
        """Note the state of the table whose changes are read later."""
        return

    def prepare_incremental(self, inputs: str, work: str) -> None:
        """Where changes want a table of its own: load it, and do the upsert of a hundredth."""
        return

    def size(self) -> int:
        """The bytes of all files of the table, those of earlier versions among them."""
        return sum(file.stat().st_size for file in Path(self.path).rglob("*") if file.is_file())

    def fresh_get(self) -> list[str]:
        """The command line of a new process that opens the table, looks one given key up and prints the number of rows;
        empty where that is not measured."""
        return []

    def shell_get(self) -> list[str]:
        """The command line by which a shell looks one given key up; empty where the format has none."""
        return []

    @abstractmethod
    def give(self, data: str) -> None:
        """The rows of the next step are those of this folder of Parquet files."""

    @abstractmethod
    def load(self) -> None: ...

    @abstractmethod
    def upsert(self) -> None: ...

    @abstractmethod
    def delete(self) -> None:
        """Delete the rows with the given rows' keys."""

    def merge(self) -> None:
        """Known keys: the sum of both fares, and the new ordering value; others are inserted."""
        raise NotImplementedError

    def incremental(self) -> None:
        """The rows that are not as they were at the mark, as they are now."""
        raise NotImplementedError

    @abstractmethod
    def lookup(self) -> None:
        """The rows with the given rows' keys."""

    @abstractmethod
    def range(self) -> None:
        """The rows of `DAYS`."""

    @abstractmethod
    def scan(self) -> None:
        """All rows and columns."""

    @abstractmethod
    def commits(self, most: int, seconds: float) -> int:
        """Upserts of ten rows each, until there are so many or the time is over. Gives their number."""

    @abstractmethod
    def digest(self, of: str) -> list[int]:
        """That of the table, or of the `result` of the last read: what is equal if the rows are equal."""


class ProcessPeer(Peer):
    """A table of one process on Arrow: rows come and go as Arrow tables."""

    rows: pa.Table
    result: pa.Table

    def give(self, data: str) -> None:
        self.rows = pq.read_table(data)

    def keys(self) -> list[str]:
        return self.rows[KEY].to_pylist()

    def process(self, code: str) -> list[str]:
        """The command line of a new process that runs this code with the path of the table and one given key."""
        return [sys.executable, "-c", code, self.path, self.keys()[0]]

    def commits(self, most: int, seconds: float) -> int:
        ends, rows = time.monotonic() + seconds, self.rows
        for number in range(most):
            self.rows = rows.slice(number * 10, 10)
            self.upsert()
            if time.monotonic() > ends:
                return number + 1
        return most

    def digest(self, of: str) -> list[int]:
        if of == "table":
            self.scan()
        rows = self.result
        cents = pc.cast(pc.round(pc.multiply(rows["fare"], 100.0)), pa.int64())
        return [
            rows.num_rows,
            pc.count_distinct(pc.cast(rows[KEY], pa.string())).as_py(),
            pc.sum(pc.bit_wise_and(rows[ORDERING], 0xFFFFFFFF)).as_py() or 0,
            pc.sum(cents).as_py() or 0,
            pc.sum(pc.equal(pc.cast(rows["status"], pa.string()), "done")).as_py() or 0,
        ]


def quoted(keys: list[str]) -> str:
    """Keys as a list of SQL."""
    return ", ".join(f"'{key}'" for key in keys)


def folder(path: str) -> Path:
    """The path's folder, made where it is missing."""
    made = Path(path)
    made.mkdir(parents=True, exist_ok=True)
    return made

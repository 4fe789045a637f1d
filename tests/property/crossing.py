"""Writers of one table that cross: each is held before it begins and before it commits, and let go in any order.

What a writer does to the rows is told at its beginning, against the rows of that moment: it either does just that when
it commits, or is refused. A writer whose rows changed in between must be refused.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.operations import group_commit
from lakebed.operations.transaction import Transaction
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.table import Table

Row = dict[str, Any]
Key = tuple[str, int]
Rows = dict[Key, Row]

CITIES = ("c0", "c1", "c2")
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "city": pa.string(),
    "v": pa.int32(),
    "f": pa.float32(),
    "s": pa.string(),
    "ts": pa.int64(),
}
WIDER = {"v": pa.int64(), "f": pa.float64()}
NAN = float("nan")


@dataclass
class Model:
    """The rows by (partition path, key), and the columns with their types."""

    is_global: bool
    rows: Rows = field(default_factory=Rows)
    columns: dict[str, pa.DataType] = field(default_factory=lambda: dict(COLUMNS))

    def place(self, row: Row) -> Key:
        """Where a row's key lives now, else where it would go."""
        if self.is_global:
            return next((p for p in self.rows if p[1] == row["id"]), (row["city"], row["id"]))
        return row["city"], row["id"]


@dataclass
class Change:
    """What a write does: rows that come and go, and what it says of the columns."""

    come: Rows = field(default_factory=Rows)
    go: frozenset[Key] = frozenset()
    columns: dict[str, pa.DataType] = field(default_factory=dict[str, pa.DataType])
    before: Rows = field(default_factory=Rows)
    is_refused: bool = False

    def collides(self, model: Model) -> bool:
        """Whether a row that this change is about is not what it was when the write began."""
        if any(model.rows.get(p) is not self.before.get(p) for p in {*self.come, *self.go}):
            return True
        if not model.is_global:
            return False
        taken = {p[1]: p for p in model.rows if p not in self.go}
        return any(taken.get(p[1], p) != p for p in self.come)

    def apply(self, model: Model) -> None:
        for place in self.go:
            model.rows.pop(place, None)
        model.rows.update(self.come)
        for name, kind in self.columns.items():
            if name not in model.columns or kind in WIDER.values():
                model.columns[name] = kind


@dataclass(frozen=True)
class Write:
    """One write as it was drawn: its name, the call, and what it does to a model."""

    name: str
    run: Callable[[Table], object]
    change: Callable[[Model], Change]


class Draw:
    """Random writes."""

    def __init__(self, seed: int, index: str, version: int) -> None:
        self.random = random.Random(seed)
        self.index = index
        self.version = version
        self._fresh = 1000
        # few keys: the same one often comes from two writers
        self.new_keys = [self.random.randrange(100, 200) for _ in range(3)]

    def options(self) -> dict[str, Any]:
        r = self.random
        found: dict[str, Any] = {
            "lakebed.write.tasks": 1,
            "hoodie.metadata.compact.max.delta.commits": r.choice([1, 2, 3, 10]),
            "hoodie.write.set.null.for.missing.columns": True,
            "hoodie.metadata.global.record.level.index.min.filegroup.count": 2,
        }
        if r.random() < 0.7:
            found["hoodie.parquet.small.file.limit"] = 0
        if r.random() < 0.3:
            found |= {
                "hoodie.metadata.log.compaction.enable": True,
                "hoodie.metadata.log.compaction.blocks.threshold": 2,
            }
        return found

    def write(self, options: dict[str, Any]) -> Write:
        kinds = ["upsert"] * 4 + ["new_keys"] * 3 + ["add_column", "widen", "bulk_insert", "delete_ids", "delete_where"]
        kinds += ["delete_partition", "overwrite"]
        kind = self.random.choice(kinds)
        return getattr(self, f"_{kind}")(options)

    def row(self, key: int, city: str | None = None) -> Row:
        r = self.random
        return {
            "id": key,
            "city": city or r.choice(CITIES),
            "v": r.choice([None, r.randrange(-50, 50), r.randrange(-50, 50)]),
            "f": r.choice([None, NAN, r.randrange(-20, 20) / 2, r.randrange(-20, 20) / 2, r.randrange(-20, 20) / 2]),
            "s": r.choice([None, "", "é", f"t{r.randrange(20)}"]),
            "ts": r.randrange(100),
        }

    def _rows(self, keys: list[int], city: str | None = None) -> list[Row]:
        return [self.row(key, city) for key in dict.fromkeys(keys)]

    def _upsert(self, options: dict[str, Any]) -> Write:
        keys = [self.random.randrange(30) for _ in range(self.random.randint(1, 3))]
        return upsert("upsert", self._rows(keys, self.random.choice([None, *CITIES])), {}, options)

    def _new_keys(self, options: dict[str, Any]) -> Write:
        keys = [self.random.choice(self.new_keys) for _ in range(2)]
        return upsert("new_keys", self._rows(keys, self.random.choice([None, "c0", "c1"])), {}, options)

    def _add_column(self, options: dict[str, Any]) -> Write:
        name = self.random.choice("xy")
        rows = self._rows([self.random.randrange(40) for _ in range(2)])
        rows = [row | {name: f"{name}{self.random.randrange(10)}"} for row in rows]
        return upsert("add_column", rows, {name: pa.string()}, options)

    def _widen(self, options: dict[str, Any]) -> Write:
        name = self.random.choice(["v", "f"])
        rows = self._rows([self.random.randrange(40) for _ in range(2)])
        rows = [row | {name: 1 << 40 if name == "v" else 1e300} for row in rows]
        return upsert("widen", rows, {name: WIDER[name]}, options)

    def _bulk_insert(self, options: dict[str, Any]) -> Write:
        first, self._fresh = self._fresh, self._fresh + 2
        rows = self._rows([first, first + 1])
        data = table_of(rows, {})
        return Write("bulk_insert", lambda t: t.bulk_insert(data, options=options), lambda m: put(m, rows, {}))

    def _delete_ids(self, options: dict[str, Any]) -> Write:
        ids = [self.random.randrange(30) for _ in range(2)]
        if self.random.random() < 0.1:  # so many that they are looked for by the ranges of the files
            ids += range(10_000, 10_999)

        def change(model: Model) -> Change:
            return removal(model, frozenset(p for p in model.rows if p[1] in ids))

        return Write("delete_ids", lambda t: t.delete(ids, options=options), change)

    def _delete_where(self, options: dict[str, Any]) -> Write:
        low = self.random.randrange(20, 50)

        def change(model: Model) -> Change:
            return removal(model, frozenset(p for p, r in model.rows.items() if r["v"] is not None and r["v"] >= low))

        return Write("delete_where", lambda t: t.delete(where=f"v >= {low}", options=options), change)

    def _delete_partition(self, options: dict[str, Any]) -> Write:
        city = self.random.choice(CITIES)

        def change(model: Model) -> Change:
            return removal(model, frozenset(p for p in model.rows if p[0] == city))

        return Write("delete_partition", lambda t: t.delete_partitions([city], options=options), change)

    def _overwrite(self, options: dict[str, Any]) -> Write:
        city = self.random.choice(CITIES)
        # under a global index keys of another partition may not come
        keys = [3 * self.random.randrange(10) + int(city[1]) for _ in range(2)]
        rows = self._rows([*keys, *([self.random.choice(self.new_keys)] if self.random.random() < 0.5 else [])], city)
        data = table_of(rows, {})

        def change(model: Model) -> Change:
            gone = removal(model, frozenset(p for p in model.rows if p[0] == city))
            elsewhere = model.is_global and any(model.place(row)[0] != city for row in rows)
            return Change({(city, row["id"]): row for row in rows}, gone.go, {}, gone.before, is_refused=elsewhere)

        return Write("overwrite", lambda t: t.insert_overwrite(data, options=options), change)


def upsert(name: str, rows: list[Row], columns: dict[str, pa.DataType], options: dict[str, Any]) -> Write:
    data = table_of(rows, columns)
    return Write(name, lambda t: t.upsert(data, options=options), lambda m: put(m, rows, columns))


def put(model: Model, rows: list[Row], columns: dict[str, pa.DataType]) -> Change:
    """Known keys get the new row; under a global index they move to its partition path."""
    come = {(row["city"], row["id"]): row for row in rows}
    known = {(model.place(row)) for row in rows} & model.rows.keys()
    return Change(come, frozenset(known - come.keys()), columns, {p: model.rows[p] for p in known})


def removal(model: Model, places: frozenset[Key]) -> Change:
    return Change({}, places, {}, {p: model.rows[p] for p in places})


def table_of(rows: list[Row], columns: Mapping[str, pa.DataType]) -> pa.Table:
    kinds = COLUMNS | columns
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()})


class Writer:
    """One write in a thread of its own that stands still before it begins and before it commits."""

    STEPS = ("start", "begin", "commit")

    def __init__(self, uri: str, write: Write, spark: Any = None) -> None:
        self.write = write
        self._spark = spark
        self.error: BaseException | None = None
        self.change: Change | None = None
        self.waiting_for: str | None = "start"
        self._go = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(uri,), daemon=True)
        _writers[self._thread] = self
        self._thread.start()

    def step(self, model: Model) -> str:
        """Let it do its next step, up to where it stands still again or ends; gives the step's name."""
        step = self.waiting_for
        assert step is not None
        if step == "begin":
            self.change = self.write.change(model)
        self._go.release()
        assert self._stands.acquire(timeout=300), f"{self.write.name} stands still"
        return step

    def hold(self, step: str) -> None:
        """Called in the writer's thread: it waits for its turn."""
        self.waiting_for = step
        self._stands.release()
        assert self._go.acquire(timeout=600)

    def _run(self, uri: str) -> None:
        try:
            assert self._go.acquire(timeout=600)
            self.write.run(lakebed.open(uri, spark=self._spark))
        except BaseException as error:
            self.error = error
        finally:
            self.waiting_for = None
            self._stands.release()


_writers: dict[threading.Thread, Writer] = {}


@contextmanager
def held_writers() -> Generator[None]:
    """While it lasts, transactions of `Writer` threads stand still before `begin` and `commit`."""

    def held(step: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Transaction, *args: Any, **named: Any) -> Any:
            writer = _writers.get(threading.current_thread())
            if writer is not None:
                writer.hold(step)
            return method(self, *args, **named)

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "MAX_BYTES", -1)  # each writer is as one of a process of its own
        for kind, step in ((Transaction, "begin"), (WriteTransaction, "commit")):
            patch.setattr(kind, step, held(step, getattr(kind, step)))
        yield

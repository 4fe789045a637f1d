"""A table as a dict: what every history must come out as."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Place = tuple[str, int]


@dataclass
class DictTable:
    """Rows by (city, id), or by id alone under a global index; merge rules as the table's.

    `moves` says whether a global index lets a row follow its new city.
    """

    event_time: bool
    is_global: bool = False
    moves: bool = False
    partitioned: bool = True
    rows: dict[Place, Row] = field(default_factory=dict)

    def place(self, row: Row) -> Place:
        return (row["city"] if self.partitioned else "", row["id"])

    def find(self, row: Row) -> Place | None:
        """Where the row's key lives now."""
        if not self.is_global:
            return self.place(row) if self.place(row) in self.rows else None
        return next((p for p in self.rows if p[1] == row["id"]), None)

    def combined(self, batch: list[Row]) -> list[Row]:
        best: dict[Any, Row] = {}
        for row in batch:
            key = row["id"] if self.is_global else self.place(row)
            if key not in best or not self.event_time or row["ts"] >= best[key]["ts"]:
                best[key] = row
        return list(best.values())

    def upsert(self, batch: list[Row]) -> None:
        for row in self.combined(batch):
            found = self.find(row)
            if found is not None and self.event_time and row["ts"] < self.rows[found]["ts"]:
                continue
            if found is None:
                if not row.get("_hoodie_is_deleted"):
                    self.rows[self.place(row)] = row
                continue
            if row.get("_hoodie_is_deleted"):
                del self.rows[found]
            elif found == self.place(row) or not self.moves:
                self.rows[found] = row
            else:
                del self.rows[found]
                self.rows[self.place(row)] = row

    def insert_new(self, batch: list[Row]) -> None:
        for row in self.combined(batch):
            if self.find(row) is None and not row.get("_hoodie_is_deleted"):
                self.rows[self.place(row)] = row

    def delete_ids(self, ids: list[int]) -> None:
        self.rows = {p: r for p, r in self.rows.items() if p[1] not in ids}

    def delete_where(self, low: int) -> None:
        self.rows = {p: r for p, r in self.rows.items() if not r["v"] >= low}

    def overwrite(self, batch: list[Row], whole: bool) -> None:
        cities = {self.place(r)[0] for r in batch}
        kept = {} if whole else {p: r for p, r in self.rows.items() if p[0] not in cities}
        self.rows = kept | {self.place(r): r for r in batch}

    def drop_partition(self, city: str) -> None:
        self.rows = {p: r for p, r in self.rows.items() if p[0] != city}

    def follow(self, kind: str, rows: list[Row], gone: list[int], dropped: str = "") -> None:
        """What an operation by Hudi's name does with these rows, keys or partition path."""
        match kind:
            case "upsert":
                self.upsert(rows)
            case "insert":
                self.insert_new(rows)
            case "insert_overwrite":
                self.overwrite(rows, whole=False)
            case "delete":
                self.delete_ids(gone)
            case "delete_partition":
                self.drop_partition(dropped)
            case _:
                raise AssertionError(kind)

    def state(self) -> list[tuple[Any, ...]]:
        return sorted(as_tuple(r) for r in self.rows.values())


@dataclass
class LoggedTable(DictTable):
    """A merge-on-read table under a bucket index: what each key has in its base file, and what its log records come to.

    A base row that lost against a log record is not gone until the two are compacted: it is there again when a row that
    loses against it takes the log record's place. With `dated_deletes` a delete has the `ts` of the row that it
    deletes, else none.
    """

    bucket_of: Callable[[int], int] = lambda _: 0
    dated_deletes: bool = False
    base: dict[Place, Row] = field(default_factory=dict)
    logs: dict[Place, Row] = field(default_factory=dict)
    groups: set[Place] = field(default_factory=set)

    def upsert(self, batch: list[Row]) -> None:
        self._write(self.combined(batch))

    def insert_new(self, batch: list[Row]) -> None:
        self._write(row for row in self.combined(batch) if self.find(row) is None)

    def delete_ids(self, ids: list[int]) -> None:
        self._drop(place for place in self.rows if place[1] in ids)

    def delete_where(self, low: int) -> None:
        self._drop(place for place, row in self.rows.items() if row["v"] >= low)

    def overwrite(self, batch: list[Row], whole: bool) -> None:
        for city in {place[0] for place in self.groups} if whole else {self.place(row)[0] for row in batch}:
            self._forget(city)
        self._write(batch)

    def drop_partition(self, city: str) -> None:
        self._forget(city)
        self._merge()

    def compact(self) -> None:
        """Base files with what the table shows, and no log records."""
        self.base, self.logs = dict(self.rows), {}

    def rescale(self, bucket_of: Callable[[int], int]) -> None:
        """The same in other buckets: those that have rows."""
        self.compact()
        self.bucket_of = bucket_of
        self.groups = {(city, bucket_of(key)) for city, key in self.base}

    def _write(self, rows: Iterable[Row]) -> None:
        there = set(self.groups)
        for row in rows:
            place = self.place(row)
            group = (place[0], self.bucket_of(place[1]))
            if group in there:
                self._append(place, row)
            elif not row.get("_hoodie_is_deleted"):
                self.base[place] = row
                self.groups.add(group)
        self._merge()

    def _drop(self, places: Iterable[Place]) -> None:
        for place in list(places):
            ts = self.rows[place]["ts"] if self.dated_deletes and self.event_time else None
            self.logs[place] = {"_hoodie_is_deleted": True, "ts": ts}
        self._merge()

    def _append(self, place: Place, row: Row) -> None:
        known = self.logs.get(place)
        if self.event_time and known is not None and not self._replaces(row, known):
            return
        self.logs[place] = row

    def _replaces(self, row: Row, known: Row) -> bool:
        """Whether a log record takes the place of the one before; a delete without `ts` wins over all but inserts."""
        return not row.get("_hoodie_is_deleted") if known["ts"] is None else row["ts"] >= known["ts"]

    def _forget(self, city: str) -> None:
        for held in (self.base, self.logs):
            for place in [place for place in held if place[0] == city]:
                del held[place]
        self.groups = {group for group in self.groups if group[0] != city}

    def _merge(self) -> None:
        self.rows = dict(self.base)
        for place, row in self.logs.items():
            under = self.base.get(place)
            if self.event_time and under is not None and row["ts"] is not None and row["ts"] < under["ts"]:
                continue
            self.rows.pop(place, None)
            if not row.get("_hoodie_is_deleted"):
                self.rows[place] = row


@dataclass
class RingTable(LoggedTable):
    """The same under consistent hashing, where every row is appended to a log."""

    def _write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            place = self.place(row)
            self.groups.add((place[0], 0))
            self._append(place, row)
        self._merge()


def as_tuple(row: Row) -> tuple[Any, ...]:
    return (row["id"], row["city"], row["v"], row["ts"])

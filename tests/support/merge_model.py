"""The merge modes and payloads as one function over dicts: what the vectorised rules are held against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
UNAVAILABLE = "__debezium_unavailable_value"


@dataclass(frozen=True)
class Mode:
    """`ordering` None: the later row wins. `marker`: (column, text, whatever its case)."""

    ordering: tuple[str, ...] | None = None
    partial: str = ""
    marker: tuple[str, str, bool] | None = None
    file_positions: bool = False
    deletes_win: bool = False
    late_fills: bool = False
    batch_ordering: tuple[str, ...] | None = None

    def is_delete(self, row: Row) -> bool:
        if row.get("_hoodie_is_deleted"):
            return True
        if self.marker is None:
            return False
        column, text, any_case = self.marker
        found = row.get(column)
        return found is not None and (found.lower() == text.lower() if any_case else found == text)

    def merge(self, old: Row, new: Row) -> Row:
        """Of two rows, deletes among them; the result may be a delete."""
        wins = self._value(new) >= self._value(old) or (self.deletes_win and self.is_delete(new))
        if self.deletes_win and self.is_delete(old):
            wins = not self.is_delete(new)
        high, low = (new, old) if wins else (old, new)
        if self.late_fills and not wins:
            return high
        if not self.partial or self.is_delete(high) or self.is_delete(low):
            return high
        says_nothing = None if self.partial == "IGNORE_DEFAULTS" else UNAVAILABLE
        return {name: low[name] if value == says_nothing else value for name, value in high.items()}

    def batch(self, rows: Iterable[Row], key: str | tuple[str, ...]) -> dict[Any, Row]:
        """One row of each key of a batch."""
        names = (key,) if isinstance(key, str) else key
        mode = self if self.batch_ordering is None else Mode(ordering=self.batch_ordering)
        found: dict[Any, Row] = {}
        for row in rows:
            at = tuple(row[n] for n in names)
            found[at] = mode.merge(found[at], row) if at in found else row
        return found

    def _value(self, row: Row) -> tuple[Any, ...]:
        if self.ordering is None:
            return ()
        values = [row[name] for name in self.ordering]
        if self.file_positions:
            values = [int(part) for value in values for part in value.split(".")]
        return tuple(values)


@dataclass
class StoredTable:
    """A copy-on-write table: deleted rows are forgotten. With `moves` a key has one row, which goes to the partition
    that the merge says; else a key has a row in each partition."""

    mode: Mode
    key: str = "id"
    partition: str = ""
    moves: bool = False
    rows: dict[Any, Row] = field(default_factory=dict[Any, Row])

    def upsert(self, rows: Iterable[Row]) -> None:
        names = (self.key,) if self.moves or not self.partition else (self.key, self.partition)
        for at, row in self.mode.batch(rows, names).items():
            merged = self.mode.merge(self.rows[at], row) if at in self.rows else row
            if self.mode.is_delete(merged):
                self.rows.pop(at, None)
            else:
                self.rows[at] = merged

    def delete(self, keys: Iterable[Any]) -> None:
        gone = set(keys)
        self.rows = {at: row for at, row in self.rows.items() if row[self.key] not in gone}


_D = ("_change_operation_type", "d", False)
_OLD_D = ("_change_operation_type", "d", True)
# payload class, table version, ordering fields of the table, and what it does
PAYLOADS: list[tuple[str, int, tuple[str, ...], Mode]] = [
    ("DefaultHoodieRecordPayload", 9, ("ts",), Mode(("ts",))),
    ("EventTimeAvroPayload", 9, ("ts", "n"), Mode(("ts", "n"))),
    ("OverwriteWithLatestAvroPayload", 9, ("ts",), Mode()),
    ("PartialUpdateAvroPayload", 9, ("ts",), Mode(("ts",), "IGNORE_DEFAULTS")),
    ("OverwriteNonDefaultsWithLatestAvroPayload", 9, ("ts",), Mode(None, "IGNORE_DEFAULTS")),
    ("AWSDmsAvroPayload", 9, ("ts",), Mode(marker=("Op", "D", False))),
    ("MySqlDebeziumAvroPayload", 9, (), Mode(("_event_bin_file", "_event_pos"), marker=_D)),
    ("PostgresDebeziumAvroPayload", 9, (), Mode(("_event_lsn",), "FILL_UNAVAILABLE", _D)),
    *[
        (payload, version, ordering, mode)
        for version in (8, 6)
        for payload, ordering, mode in [
            ("PartialUpdateAvroPayload", ("ts",), Mode(("ts",), "IGNORE_DEFAULTS", deletes_win=True)),
            (
                "OverwriteNonDefaultsWithLatestAvroPayload",
                ("ts",),
                Mode(None, "IGNORE_DEFAULTS", batch_ordering=("ts",)),
            ),
            ("AWSDmsAvroPayload", ("ts",), Mode(marker=("Op", "D", True), batch_ordering=("ts",))),
            ("MySqlDebeziumAvroPayload", ("_event_seq",), Mode(("_event_seq",), "", _OLD_D, file_positions=True)),
            (
                "PostgresDebeziumAvroPayload",
                ("_event_lsn",),
                Mode(
                    ("_event_lsn",),
                    "FILL_UNAVAILABLE",
                    _OLD_D,
                    late_fills=True,
                ),
            ),
        ]
    ],
]

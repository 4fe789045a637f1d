"""Random streams of a database's changes as Debezium writes them, against the database itself: every event applied one
after another, over table versions and types, connectors, partition paths, and events that come twice."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

import lakebed
from support.given_topic import Topic, values

UNAVAILABLE = "__debezium_unavailable_value"
MARKERS: dict[str, Any] = {
    "text": UNAVAILABLE,
    "raw": base64.b64encode(UNAVAILABLE.encode()).decode(),
    "hex": UNAVAILABLE.encode().hex(),
    "tags": [UNAVAILABLE],
    "numbers": list(UNAVAILABLE.encode()),
    "inner": {"note": UNAVAILABLE, "n": 0},
}
COLUMNS = {
    "raw": "binary",
    "tags": "array<string>",
    "numbers": "array<bigint>",
    "inner": "struct<note: string, n: bigint>",
    "at": "timestamp_ntz",
    "price": "decimal(12,2)",
}
SCHEMA = [
    {"field": "id", "type": "int64"},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {
        "field": "price",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "12"},
    },
]
ENVELOPE = {
    "type": "struct",
    "fields": [{"field": name, "type": "struct", "fields": SCHEMA} for name in ("before", "after")],
}


@dataclass
class Database:
    """A table of a database, whose log has an event for each change."""

    chance: random.Random
    connector: str
    whole_before: bool
    rows: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    log: list[bytes] = field(default_factory=list[bytes])

    def change(self) -> None:
        number = self.chance.randrange(6)
        before = self.rows.get(number)
        if before is None:
            self.rows[number] = after = {"id": number, **{name: self._value(name) for name in ("city", "n", *COLUMNS)}}
            after |= {"text": self._value("text"), "hex": self._value("hex")}
            return self._write("c", None, after)
        if self.chance.random() < 0.25:
            del self.rows[number]
            return self._write("d", before, None)
        changed = self.chance.sample([*before][1:], 3)
        after = before | {name: self._value(name) for name in changed}
        self.rows[number] = after
        left_out = {}
        if self.connector == "postgresql":
            left_out = {name: marker for name, marker in MARKERS.items() if name not in changed}
            if "inner" in left_out:
                left_out["inner"] = {"note": UNAVAILABLE, "n": after["inner"]["n"]}
        return self._write("u", before, after, left_out)

    def _value(self, name: str) -> Any:
        n = self.chance.randrange(-5_000_000, 5_000_000)
        match name:
            case "city":
                return self.chance.choice(["rome", "oslo", "bern"])
            case "tags":
                return [str(n)] * self.chance.randrange(3)
            case "numbers":
                return [n] * self.chance.choice([0, 1, len(UNAVAILABLE)])
            case "inner":
                return {"note": str(n), "n": n}
            case "raw":
                return base64.b64encode(str(n).encode()).decode()
            case "hex":
                return str(n).encode().hex()
            case "at" | "n" | "price":
                return n
            case _:
                return f"long {n}"

    def _write(self, operation: str, before: Any, after: Any, left_out: dict[str, Any] | None = None) -> None:
        at = len(self.log)
        source: dict[str, Any] = {"connector": self.connector, "name": "db", "schema": "s", "ts_ms": 1}
        match self.connector:
            case "postgresql":
                source |= {"lsn": at, "txId": 1}
            case "mysql":
                source |= {"file": f"mysql-bin.{999_997 + at // 5:06d}", "pos": 4 + at % 5 * 100, "row": 0}
            case "sqlserver":
                position = f"{at // 4:08x}:00000758:0003"
                source |= {"commit_lsn": position, "change_lsn": f"{at:08x}:00000001:0002", "event_serial_no": 1}
            case _:
                source |= {"scn": str(95 + at), "commit_scn": str(95 + at)}
        if not self.whole_before and before is not None:
            before = {name: value if name == "id" else None for name, value in before.items()}
        state = [
            None if row is None else self._written(row) for row in (before, after and {**after, **(left_out or {})})
        ]
        envelope = {"before": state[0], "after": state[1], "source": source, "op": operation, "ts_ms": 2}
        self.log.append(json.dumps({"schema": ENVELOPE, "payload": envelope}).encode())

    def _written(self, row: dict[str, Any]) -> dict[str, Any]:
        if row["price"] is None:
            return row
        digits = row["price"].to_bytes((row["price"].bit_length() + 8) // 8, "big", signed=True)
        return row | {"price": base64.b64encode(digits).decode()}

    def expected(self) -> list[dict[str, Any]]:
        return [
            row | {"raw": base64.b64decode(row["raw"])} for row in sorted(self.rows.values(), key=lambda row: row["id"])
        ]


def stored_rows(uri: str) -> list[dict[str, Any]]:
    names = ["id", "city", "n", *COLUMNS, "text", "hex"]
    rows = lakebed.open(uri).scan(names).to_arrow().sort_by("id")
    assert str(rows.schema.field("price").type) == "decimal128(12, 2)"
    at = rows.column_names.index("at")
    rows = rows.set_column(at, "at", rows.column("at").cast("int64"))
    return [row | {"price": int(row["price"].scaleb(2))} for row in rows.to_pylist()]


STREAMS = [
    (version, kind, connector, envelope, partition)
    for version, kind in ((9, "cow"), (9, "mor"), (8, "cow"), (8, "mor"), (6, "cow"), (6, "mor"))
    for connector, envelope, partition in (
        ("postgresql", "hudi", "none"),
        ("postgresql", "row", "default"),
        ("postgresql", "row" if version == 8 else "hudi", "by path"),
        ("mysql", "hudi", "by path"),
        ("mysql", "row", "none"),
        ("sqlserver", "hudi", "default"),
        ("oracle", "row" if version == 8 else "hudi", "none"),
    )
]


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_stream_of_changes_leaves_the_rows_of_the_database(version: int, kind: str) -> None:
    for stream in (stream for stream in STREAMS if stream[:2] == (version, kind)):
        _, _, connector, envelope, partition = stream
        chance = random.Random(str(stream))
        database = Database(chance, connector, whole_before=partition == "by path")
        uri, rounds = "memory://debezium/stream", []
        for _ in range(3):
            start = len(database.log)
            for _ in range(chance.randrange(3, 14)):
                database.change()
            again = start if chance.random() < 0.6 else max(0, start - 6)  # events come at least once
            rounds.append(values(*database.log[again:]))
            create: dict[str, Any] = {"key": "id", "type": kind, "table_version": version}
            if partition != "none":
                create |= {"partition_by": "city"} | ({"index": "simple"} if partition == "by path" else {})
            source = Topic(*rounds, format="debezium-json", envelope=envelope, columns=COLUMNS)
            lakebed.ingest({"source": source, "target": {"uri": uri, "create": create}}, once=True)
            assert stored_rows(uri) == database.expected(), (stream, len(rounds))
        lakebed.drop(uri)

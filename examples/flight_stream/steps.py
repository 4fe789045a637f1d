"""The three steps of the pipeline. Each can be run again at any time, and goes on where it was.

`python -m flight_stream.steps gold FOLDER --hold` stops in the middle of a batch, for the demo to kill it.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakebed

_MAX_ROWS = 6000
_FLIGHT = pa.schema(
    [
        ("flight", pa.string()),
        ("kind", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("carrier", pa.string()),
        ("month", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.int32()),
        ("arr_delay", pa.int32()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
_GOLD = pa.schema(
    [
        ("carrier", pa.string()),
        ("month", pa.int32()),
        ("flights", pa.int64()),
        ("arrived", pa.int64()),
        ("delay", pa.int64()),
    ]
)
# Services run between the steps, as a process of their own would run them.
_SERVICES = {
    "hoodie.compact.inline": False,
    "hoodie.compact.inline.max.delta.commits": 6,
    "hoodie.clean.automatic": False,
    "hoodie.clean.commits.retained": 4,
}
_DELTAS = """
    WITH images AS (
        SELECT before AS f, -1 AS sign FROM changes WHERE before IS NOT NULL
        UNION ALL
        SELECT after AS f, 1 AS sign FROM changes WHERE after IS NOT NULL
    )
    SELECT f.carrier AS carrier, f.month AS month, sum(sign)::BIGINT AS flights,
        coalesce(sum(sign) FILTER (f.arr_delay IS NOT NULL), 0)::BIGINT AS arrived,
        coalesce(sum(sign * f.arr_delay), 0)::BIGINT AS delay
    FROM images GROUP BY ALL
"""


@dataclass(frozen=True)
class Lake:
    """The tables of the pipeline, in one folder."""

    folder: Path

    @property
    def bronze(self) -> str:
        """The raw events, each once."""
        return str(self.folder / "bronze")

    @property
    def silver(self) -> str:
        """The flights as they are known now."""
        return str(self.folder / "silver")

    @property
    def gold(self) -> str:
        """Flights, arrivals and the sum of their delays by carrier and month."""
        return str(self.folder / "gold")

    @property
    def job(self) -> Path:
        """The description of the ingest into bronze."""
        return self.folder / "bronze.toml"

    @property
    def tables(self) -> list[str]:
        """The tables, from the first one on."""
        return [self.bronze, self.silver, self.gold]


@dataclass(frozen=True)
class Added:
    """A batch that gold took: silver's changes by `op`, and whether a process that was killed had written it."""

    changes: Counter[str]
    skipped: bool


def prepare(lake: Lake, source: dict[str, Any]) -> None:
    """Describe the ingest, which creates bronze with its first rows, and create the empty silver and gold."""
    logged = {"hoodie.table.cdc.enabled": True, **_SERVICES}
    create = {"key": "event", "type": "mor", "index": "bucket", "buckets": 2, "properties": logged}
    columns = {"event": "bigint", "at": "timestamp", "month": "int", "dep_delay": "int", "arr_delay": "int"}
    lake.job.write_text(
        f"max_rows = {_MAX_ROWS}\n\n[source]\n{_toml({**source, 'columns': columns})}\n"
        f"[target]\n{_toml({'uri': lake.bronze, 'create': create})}"
    )
    lakebed.create(
        lake.silver,
        _FLIGHT,
        key="flight",
        partition_by="month",
        ordering="at",
        type="mor",
        index="bucket",
        buckets=2,
        properties=logged,
    )
    lakebed.create(lake.gold, _GOLD, key=["carrier", "month"], index="simple", properties=_SERVICES)


def to_bronze(lake: Lake) -> lakebed.IngestResult:
    """Take all new events. Each commit records the source's position."""
    return lakebed.ingest(lake.job, once=True)


def to_silver(lake: Lake) -> lakebed.WriteResult | None:
    """Upsert the flights of the events that are new in bronze; cancelled ones are deleted. None where nothing is new.

    An event that came again is an update in bronze and no insert, so it is passed by. An event that came late loses
    against the stored flight by `at`. So the same batch can be written twice, with the same result.
    """
    with lakebed.open(lake.bronze).consume("silver", cdc=True) as batch:
        changes = batch.to_arrow()
        new = changes.filter(pc.equal(changes["op"], "i"))["after"].combine_chunks()
        if not len(new):
            return None
        events = pa.Table.from_struct_array(new)
        is_deleted = pc.equal(events["kind"], "cancelled")
        rows = events.append_column("_hoodie_is_deleted", is_deleted)
        return lakebed.open(lake.silver).upsert(rows.select(_FLIGHT.names))


def to_gold(lake: Lake, committed: Callable[[], None] = lambda: None) -> list[Added]:
    """Add what the commits of silver changed to the sums; `committed` is called before a batch counts as read.

    Sums must not be added twice. `batch.once()` names the batch, and records where it ends: it is the same one when it
    is read again, whatever was committed since then.
    """
    silver, gold = lakebed.open(lake.silver), lakebed.open(lake.gold)
    results: list[Added] = []
    while True:
        with silver.consume("gold", cdc=True) as batch:
            if batch.end == batch.start:
                return results
            changes = batch.to_arrow()
            deltas = lakebed.sql(_DELTAS, {"changes": changes})
            merge = (
                gold.merge(deltas)
                .when_matched_delete(condition="t.flights + s.flights = 0")
                .when_matched_update({name: f"t.{name} + s.{name}" for name in ("flights", "arrived", "delay")})
                .when_not_matched_insert()
            )
            result = merge.execute(once=batch.once())
            results.append(Added(Counter(changes["op"].to_pylist()), result.skipped))
            committed()


def _toml(values: dict[str, Any]) -> str:
    return "".join(f"{name} = {_toml_value(value)}\n" for name, value in values.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{name}" = {_toml_value(one)}' for name, one in value.items()) + " }"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f"'{value}'"


def _hold() -> None:
    print("committed", flush=True)
    time.sleep(120)


if __name__ == "__main__":
    step, folder, *flags = sys.argv[1:]
    if step != "gold":
        sys.exit(f"there is no step {step!r} to hold")
    to_gold(Lake(Path(folder)), _hold if "--hold" in flags else lambda: None)

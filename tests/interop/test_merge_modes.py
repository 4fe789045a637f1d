"""lakebed and real Hudi take turns on tables of every payload, and on rows with some columns: both read the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from lakebed.errors import InvalidOption
from lakebed.properties.file import update_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from oracle.client import HudiOracle
from support.merge_model import PAYLOADS, UNAVAILABLE, Mode, StoredTable
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, some, todays

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.int64()),
        ("Op", pa.string()),
        ("s", pa.string()),
        ("n", pa.int64()),
        ("_event_bin_file", pa.int64()),
        ("_event_pos", pa.int64()),
        ("_event_seq", pa.string()),
        ("_event_lsn", pa.int64()),
        ("_change_operation_type", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
TURNS = 8
STRATEGY_IDS = {
    "EVENT_TIME_ORDERING": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    "COMMIT_TIME_ORDERING": "ce9acb64-bde0-424c-9b91-f6ebba25356d",
}
COMPACTS = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
NEVER = {"hoodie.compact.inline": "false"}
CASES = [
    (kind, payload, version, ordering, mode)
    for payload, version, ordering, mode in PAYLOADS
    for kind in ("cow", "mor")
    # below version 9 real Hudi compares the values of Debezium's rows as texts in logs, and leaves the marker there
    if not (kind == "mor" and version < 9 and "Debezium" in payload)
]


def batch(chance: random.Random) -> list[dict[str, Any]]:
    """Rows without two of one key: real Hudi does not say which of two equals wins."""
    return [
        {
            "id": i,
            "ts": (ts := chance.randrange(1, 15)),
            "Op": chance.choice(["I", "U", "U", "D", "d"]),
            "s": chance.choice([None, "a", "b", UNAVAILABLE]),
            "n": chance.choice([None, 1, 2]),
            "_event_bin_file": (file := chance.randrange(8, 12)),
            "_event_pos": (position := chance.randrange(3)),
            "_event_seq": f"{file}.{position}",
            "_event_lsn": ts,
            "_change_operation_type": chance.choice(["c", "u", "u", "d", "D"]),
            "_hoodie_is_deleted": chance.random() < 0.1,
        }
        for i in chance.sample(range(20), 12)
    ]


@pytest.mark.parametrize(
    ("kind", "payload", "version", "ordering", "mode"),
    todays(CASES, 6, INTEROP),
    ids=[f"{kind}-{payload}-{version}" for kind, payload, version, _, _ in todays(CASES, 6, INTEROP)],
)
def test_both_writers_in_turn_merge_by_the_payload(
    kind: Any, payload: str, version: int, ordering: tuple[str, ...], mode: Mode, tmp_path: Path, oracle: HudiOracle
) -> None:
    chance = random.Random(f"{kind} {payload} {version}")
    named: dict[str, Any] = {"key": "id", "ordering": ordering, "merge": payload, "table_version": version}
    table = lakebed.create(str(tmp_path / "turns"), SCHEMA, type=kind, index="simple", **named)
    options = {**hudi_job(table), **payload_job(table)}
    model = StoredTable(mode)
    says_deletes = version < 9 and ("Debezium" in payload or "AWSDms" in payload)
    for turn in range(TURNS):
        rows = [{**row, **{name: row[name] or 0 for name in ordering}} for row in batch(chance)]
        if says_deletes:
            rows = [as_real_hudi_knows_deletes(row) for row in rows]
        data = pa.Table.from_pylist(rows, SCHEMA)
        if turn % 2 == 0:
            table.upsert(data, options={"hoodie.compact.inline": False})
        else:
            oracle.write(table.uri, data, options=options | (COMPACTS if turn == 5 and kind == "mor" else NEVER))
        model.upsert(rows)
        found = lakebed.open(table.uri).scan().to_arrow()
        assert_same_rows(oracle.read(table.uri), found)
        if kind == "cow":
            assert_same_rows(found, pa.Table.from_pylist(list(model.rows.values()), SCHEMA))


def as_real_hudi_knows_deletes(row: dict[str, Any]) -> dict[str, Any]:
    """Below version 9 these payloads know deletes by a marker of theirs. Real Hudi fails on a deleted new key where its
    reader does not see that: by `_hoodie_is_deleted`, and by the marker in other letters."""
    return row | {
        "Op": row["Op"].upper(),
        "_change_operation_type": row["_change_operation_type"].lower(),
        "_hoodie_is_deleted": False,
    }


def payload_job(table: Table) -> dict[str, str]:
    """What real Hudi wants to hear again of a table that it merges by a class."""
    payload = table.properties.get("hoodie.compaction.payload.class")
    ordering = table.properties.get("hoodie.table.ordering.fields", "")
    options = {"hoodie.datasource.write.payload.class": payload} if payload else {}
    return options | ({"hoodie.datasource.write.precombine.field": ordering} if ordering else {})


@pytest.mark.parametrize(("version", "kind"), todays([(v, k) for v in (9, 8, 6) for k in ("cow", "mor")], 3, INTEROP))
def test_rows_of_a_batch_become_one_as_in_real_hudi(
    version: int, kind: Any, tmp_path: Path, oracle: HudiOracle
) -> None:
    """Values that Postgres left out, given by another row of the batch and by the stored one. Below version 9 real Hudi
    takes them from the stored row alone: lakebed does not lose those of the batch."""
    same: dict[str, Any] = dict.fromkeys(SCHEMA.names) | {"_change_operation_type": "u", "_hoodie_is_deleted": False}
    batches = [
        [(2, 1, "old"), (3, 9, UNAVAILABLE)],
        [(1, 5, "a"), (1, 7, UNAVAILABLE), (2, 5, "b"), (2, 7, UNAVAILABLE), (3, 2, "late"), (4, 7, UNAVAILABLE)],
    ]
    payload, found = "PostgresDebeziumAvroPayload", []
    for writer in ("lakebed", "hudi"):
        words: dict[str, Any] = {"key": "id", "ordering": "_event_lsn", "merge": payload, "table_version": version}
        table = lakebed.create(str(tmp_path / writer), SCHEMA, type=kind, index="simple", **words)
        for rows in batches:
            data = pa.Table.from_pylist([same | {"id": i, "_event_lsn": lsn, "s": s} for i, lsn, s in rows], SCHEMA)
            if writer == "lakebed":
                table.upsert(data)
            else:
                oracle.write(table.uri, data, options=hudi_job(table) | payload_job(table) | NEVER)
        found.append(lakebed.open(table.uri).scan().to_arrow())
        assert_same_rows(oracle.read(table.uri), found[-1])
    ours, theirs = (dict(zip(*(rows[name].to_pylist() for name in ("id", "s")), strict=True)) for rows in found)
    assert (ours[1], ours[2]) == ("a", "b")
    if version < 9:
        assert (theirs[1], theirs[2]) == (UNAVAILABLE, "old" if kind == "cow" else theirs[2])
    else:
        assert_same_rows(*(rows.select(SCHEMA.names) for rows in found))


SOME = (["id", "ts", "n"], ["id", "ts", "s", "Op"], ["s", "ts", "id"])


@pytest.mark.parametrize("marks", [False, True], ids=["unmarked", "marked"])
@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize(("kind", "version"), some([("mor", 9), ("mor", 8), ("mor", 6), ("cow", 9)], ("mor", 9)))
def test_rows_with_some_columns_are_read_by_real_hudi(
    kind: Any, version: int, index: str, marks: bool, tmp_path: Path, oracle: HudiOracle
) -> None:
    """Real Hudi fails on blocks without the column that marks deletes, where the table has one."""
    chance = random.Random(f"{kind} {version} {index}")
    schema = SCHEMA if marks else pa.schema([f for f in SCHEMA if f.name != "_hoodie_is_deleted"])
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "index": index, "table_version": version}
    table = lakebed.create(
        str(tmp_path / "partial"), schema, type=kind, buckets=2 if index == "bucket" else None, **words
    )
    options = hudi_job(table)
    for turn in range(TURNS):
        # real Hudi tells no new key from a known one in such blocks: all keys are there
        rows = [row | {"_hoodie_is_deleted": False} for row in batch(chance)]
        if turn == 0:
            rows = [rows[0] | {"id": i, "ts": 1} for i in range(20)]
        data = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)
        if turn in (3, 6):
            oracle.write(table.uri, data, options=options | (COMPACTS if turn == 6 and kind == "mor" else NEVER))
        elif turn == 0:
            table.upsert(data)
        else:
            table.upsert(data.select(SOME[turn % 3]), partial=True, options={"hoodie.compact.inline": False})
        found = lakebed.open(table.uri).scan().to_arrow()
        assert found.num_rows == 20
        assert_same_rows(oracle.read(table.uri), found)


@pytest.mark.parametrize("version", todays([9, 8], 2, INTEROP))
def test_a_deleted_key_that_comes_again_with_some_columns_is_read_by_real_hudi(
    version: int, tmp_path: Path, oracle: HudiOracle
) -> None:
    words: dict[str, Any] = {"key": "id", "ordering": "ts", "type": "mor", "index": "bucket", "buckets": 1}
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("s", pa.string()), ("n", pa.int64())])
    table = lakebed.create(str(tmp_path / "again"), schema, table_version=version, **words)
    table.upsert(pa.table({"id": [1, 2], "ts": [1, 1], "s": ["secret", "b"], "n": [1, 2]}, schema))
    table.delete([1])
    table.upsert(pa.table({"id": [1, 2], "ts": [2, 2], "n": [8, 9]}), partial=True)
    left = pa.table({"id": [1, 2], "ts": [2, 2], "s": [None, "b"], "n": [8, 9]}, schema)
    assert_same_rows(lakebed.open(table.uri).scan().to_arrow(), left)
    assert_same_rows(oracle.read(table.uri), left)


@pytest.mark.parametrize("version", todays([9, 8, 6], 3, INTEROP))
def test_deletes_ordered_by_milliseconds_are_read_by_real_hudi(
    version: int, tmp_path: Path, oracle: HudiOracle
) -> None:
    millis = pa.timestamp("ms", "UTC")
    schema = pa.schema([("id", pa.int64()), ("at", millis), ("_hoodie_is_deleted", pa.bool_())])
    words: dict[str, Any] = {"key": "id", "ordering": "at", "type": "mor", "index": "bucket", "buckets": 1}
    table = lakebed.create(str(tmp_path / "millis"), schema, table_version=version, **words)

    def write(ids: list[int], at: int, deleted: bool) -> None:
        table.upsert(pa.table([ids, pa.array([at] * len(ids), millis), [deleted] * len(ids)], schema=schema))

    write([1, 2, 3], 1_700_000_006_000, False)
    write([1], 1_700_000_005_000, True)
    write([2], 1_700_000_007_000, True)
    assert lakebed.open(table.uri).scan(["id"]).to_arrow().to_pylist() == [{"id": 1}, {"id": 3}]
    assert sorted(oracle.read(table.uri)["id"].to_pylist()) == [1, 3]


@pytest.mark.rest
def test_version_8_is_merged_by_the_stored_mode_whatever_the_strategy_id_is(tmp_path: Path, oracle: HudiOracle) -> None:
    """On copy-on-write tables: real Hudi fails where it reads log files of such a table."""
    rows = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
    event, commit = "EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"
    for mode, other, winner in ((event, commit, 5), (commit, event, 3)):
        named: dict[str, Any] = {"key": "id", "ordering": "ts", "index": "simple", "table_version": 8}
        table = lakebed.create(str(tmp_path / mode), rows, **named)
        changes = {"hoodie.record.merge.mode": mode, "hoodie.record.merge.strategy.id": STRATEGY_IDS[other]}
        update_table_config(open_storage(table.uri), changes, lambda: True)
        table = lakebed.open(table.uri)
        table.upsert(pa.table({"id": [1, 2, 3], "ts": [5, 5, 5]}, rows))
        job = hudi_job(table) | {"hoodie.datasource.write.precombine.field": "ts"}
        table.upsert(pa.table({"id": [1], "ts": [3]}, rows))
        oracle.write(table.uri, pa.table({"id": [2], "ts": [3]}, rows), options=job)
        asked = {"hoodie.record.merge.mode": mode}
        oracle.write(table.uri, pa.table({"id": [3], "ts": [3]}, rows), options=job | asked)
        table.upsert(pa.table({"id": [3], "ts": [3]}, rows), options=asked)
        found = lakebed.open(table.uri).scan().to_arrow()
        assert_same_rows(oracle.read(table.uri), found)
        assert sorted(zip(*(found[name].to_pylist() for name in rows.names), strict=True)) == [
            (key, winner) for key in (1, 2, 3)
        ], mode
        refused = {"hoodie.record.merge.mode": other}
        with pytest.raises(Exception, match="Config conflict"):
            oracle.write(table.uri, pa.table({"id": [3], "ts": [9]}, rows), options=job | refused)
        with pytest.raises(InvalidOption, match=r"hoodie\.record\.merge\.mode"):
            table.upsert(pa.table({"id": [3], "ts": [9]}, rows), options=refused)
